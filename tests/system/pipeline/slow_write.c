/* SPDX-License-Identifier: Apache-2.0 */
/* slow_write.c: to be preloaded: each write of a MiB or more takes NTX_WRITE_MS, as on a drive that can hardly write.
 * */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

ssize_t write(int fd, const void *buf, size_t n)
{
    const char *ms = getenv("NTX_WRITE_MS");
    if (ms && n >= 1 << 20)
        nanosleep(&(struct timespec){atol(ms) / 1000, atol(ms) % 1000 * 1000000}, NULL);
    return syscall(SYS_write, fd, buf, n);
}
