/* SPDX-License-Identifier: Apache-2.0 */
/* emulated.h: tests under qemu-user. It filters no system calls, which the workers need, and starts no program of the
 * emulated machine, so tests that start ntx's programs are skipped. Tests that would take minutes do less, there and,
 * in part, without --long. */
#ifndef NTX_TESTS_LIB_EMULATED_H
#define NTX_TESTS_LIB_EMULATED_H

#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "tests/lib/check.h"

static inline bool emulated(void) { return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0; }

/* Under an emulator only every n-th case runs: kernels give the same bits everywhere, and each has its own test. */
static inline unsigned emulated_step(unsigned n) { return emulated() ? n : 1; }

/* Where many models go through the same ways, each takes every n-th way and the next model others; by --long all. */
static inline unsigned thinned_step(unsigned n, unsigned under_emulator)
{
    if (emulated())
        return under_emulator;
    return getenv("NTX_LONG") ? 1 : n;
}

static inline void skip_if_emulated(void)
{
    if (emulated())
        SKIP("no seccomp, as under qemu-user: ntx's programs cannot be started");
}

#endif
