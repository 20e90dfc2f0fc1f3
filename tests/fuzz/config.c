/* SPDX-License-Identifier: Apache-2.0 */
/* config.c: ntx.conf under libFuzzer. A file is either accepted, or refused with the number of its line. A refused
 * file changes nothing. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct ntx_config c, before;
    struct ntx_err err = {0};
    int fd = memfd_create("ntx.conf", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    memset(&c, 0x5a, sizeof c);
    before = c;
    if (ntx_config_load(path, &c, &err)) {
        if (!err.text[0] || memcmp(&c, &before, sizeof c))
            abort();
    } else {
        if (c.max_clients < 1 || c.max_clients > 4096 || (c.model[0] && c.model[0] != '/') || c.load.link_nvme < 0)
            abort();
        ntx_config_free(&c);
    }
    close(fd);
    return 0;
}
