/* emulated.h: a test that starts ntx's programs is skipped under qemu-user, which filters no system calls, without which workers do not run, and starts no program of the machine that it plays. */
#ifndef NTX_TESTS_EMULATED_H
#define NTX_TESTS_EMULATED_H

#include <stdbool.h>
#include <sys/prctl.h>

#include "tests/check.h"

static inline bool emulated(void) { return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0; }

static inline void skip_if_emulated(void)
{
    if (emulated())
        SKIP("no seccomp, as under qemu-user: ntx's programs cannot be started");
}

#endif
