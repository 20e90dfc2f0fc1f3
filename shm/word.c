/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/word.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int ntx_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
    struct timespec t = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    /* not FUTEX_PRIVATE: another process wakes us */
    if (!syscall(SYS_futex, word, FUTEX_WAIT, seen, timeout_ns ? &t : NULL, NULL, 0) || errno == EAGAIN)
        return 0;
    return -errno;
}

void ntx_futex_wake(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }
