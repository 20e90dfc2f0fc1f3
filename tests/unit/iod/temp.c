/* SPDX-License-Identifier: Apache-2.0 */
#include "temp.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/lib/check.h"

uint8_t temp_byte(uint64_t offset)
{
    uint64_t x = (offset >> 3) * 0x9e3779b97f4a7c15ull;
    return (uint8_t)(x >> 32) ^ (uint8_t)((offset & 7) * 31);
}

int temp_file(const char *dir, uint64_t bytes)
{
    if (!dir)
        dir = getenv("NTX_BUILD") ? getenv("NTX_BUILD") : ".";
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    static uint8_t buf[1 << 20];
    CHECK_MSG(fd >= 0, "%s", dir);
    for (uint64_t at = 0; at < bytes; at += sizeof(buf)) {
        uint64_t n = NTX_MIN(bytes - at, sizeof(buf));
        for (uint64_t i = 0; i < n; i++)
            buf[i] = temp_byte(at + i);
        CHECK_EQ(ntx_write_all(fd, buf, n), 0);
    }
    CHECK_EQ(fsync(fd), 0);
    return fd;
}

int temp_same(const uint8_t *p, uint64_t from, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i] != temp_byte(from + i))
            return 0;
    return 1;
}
