/* SPDX-License-Identifier: Apache-2.0 */
/* scarce_memory.c: to be preloaded: madvise has no memory for huge pages nor small ones of a shared mapping any more,
 * once NTX_PAGES pieces have been brought in. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define POPULATE_WRITE 23
#define HUGE           (2ul << 20)

int madvise(void *p, size_t n, int advice)
{
    static atomic_long used;
    const char *limit = getenv("NTX_PAGES");
    if (advice == POPULATE_WRITE && (n == 4096 || n == HUGE) && limit && atomic_fetch_add(&used, 1) >= atol(limit)) {
        errno = ENOMEM;
        return -1;
    }
    return (int)syscall(SYS_madvise, p, n, advice);
}
