/* SPDX-License-Identifier: Apache-2.0 */
/* ntx-iod: reads the model from the drive into the shared region. Its arguments are those of all workers; iod/daemon.h
 * has the rest. */
#include "common/programs.h"
#include "common/worker_main.h"
#include "iod/daemon.h"

static int run_iod(const char *dir, int alive_fd, struct ntx_err *err)
{
    struct ntx_iod_ring ring;
    struct ntx_iod_options o = {.dir = dir, .alive_fd = alive_fd, .ring = &ring};
    int rc = ntx_iod_sandbox(dir, &ring, err);
    if (!rc)
        rc = ntx_iod_run(&o, err);
    ntx_iod_ring_close(&ring);
    return rc;
}

int main(int argc, char **argv) { return ntx_worker_main(argc, argv, &ntx_iod_program, run_iod); }
