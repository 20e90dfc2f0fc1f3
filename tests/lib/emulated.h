/* SPDX-License-Identifier: Apache-2.0 */
/* emulated.h: a test that starts ntx's programs is skipped under qemu-user, which filters no system calls, without
 * which workers do not run, and starts no program of the machine that it plays; and what takes minutes there does less.
 * */
#ifndef NTX_TESTS_LIB_EMULATED_H
#define NTX_TESTS_LIB_EMULATED_H

#include <stdbool.h>
#include <sys/prctl.h>

#include "tests/lib/check.h"

static inline bool emulated(void) { return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0; }

/* Of what an emulator takes minutes for, each so manieth is enough there: kernels have the same bits everywhere, and
 * each is looked at by itself. */
static inline unsigned emulated_step(unsigned n) { return emulated() ? n : 1; }

static inline void skip_if_emulated(void)
{
    if (emulated())
        SKIP("no seccomp, as under qemu-user: ntx's programs cannot be started");
}

#endif
