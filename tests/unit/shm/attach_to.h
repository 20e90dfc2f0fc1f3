/* SPDX-License-Identifier: Apache-2.0 */
/* attach_to.h: attaches to a region that this process made, as a worker does. The plan is published first. */
#ifndef NTX_TESTS_UNIT_SHM_ATTACH_TO_H
#define NTX_TESTS_UNIT_SHM_ATTACH_TO_H

#include <unistd.h>

#include "shm/region.h"

static inline int attach_to(struct ntx_region *maker, struct ntx_region *r, struct ntx_err *err)
{
    int fd[NTX_REGION_PARTS], rc = ntx_region_publish(maker, err);
    if (rc)
        return rc;
    for (int i = 0; i < NTX_REGION_PARTS; i++)
        fd[i] = dup(maker->part[i].fd);
    return ntx_region_attach(fd, r, err);
}

#endif
