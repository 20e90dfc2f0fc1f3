/* SPDX-License-Identifier: Apache-2.0 */
/* drive.h: emulates a drive that is slower than the real one (--link nvme=RATE), for all processes that read from it:
 * ntx-iod reads weights, and ntx-computed reads K and V where they are in a file. The processes share the time at which
 * the emulated drive is free again. Each read is queued after the one before and gets a due time; its result is held
 * back until then. It is a token bucket: a reader that pauses may catch up on a little, and on as much as results were
 * delivered late, so that a busy machine does not make the drive slower than RATE. */
#ifndef NTX_SHM_DRIVE_H
#define NTX_SHM_DRIVE_H

#include <stdatomic.h>
#include <stdint.h>

#define NTX_DRIVE_CREDIT_NS 2000000u
#define NTX_DRIVE_LATE_NS   50000000u     /* most lateness that is caught up on */
#define NTX_DRIVE_FAR_NS    100000000000u /* a shared time beyond this is impossible, and is ignored */

struct ntx_drive {
    _Atomic uint64_t *until; /* CLOCK_MONOTONIC ns; NULL: the real drive */
    double ns_per_byte;
};

/* Due time of a read of `bytes` that is issued now. Relaxed: it orders nothing else. */
static inline uint64_t ntx_drive_due(struct ntx_drive d, uint64_t bytes, uint64_t now, uint64_t credit)
{
    uint64_t old = atomic_load_explicit(d.until, memory_order_relaxed), from, due;
    do {
        from = old < now - credit || old > now + NTX_DRIVE_FAR_NS ? now - credit : old;
        due = from + (uint64_t)((double)bytes * d.ns_per_byte + 0.5);
    } while (!atomic_compare_exchange_weak_explicit(d.until, &old, due, memory_order_relaxed, memory_order_relaxed));
    return due;
}

static inline uint64_t ntx_drive_credit(uint64_t late)
{
    if (late < NTX_DRIVE_CREDIT_NS)
        return NTX_DRIVE_CREDIT_NS;
    return late < NTX_DRIVE_LATE_NS ? late : NTX_DRIVE_LATE_NS;
}

#endif
