/* SPDX-License-Identifier: Apache-2.0 */
/* drive.h: a drive that is slower than the real one (--link nvme=RATE), played by all processes that read from it:
 * ntx-iod, which reads weights, and ntx-computed where K and V lie in a file. They share the time at which the drive's
 * last byte will have come. Each read is given the time of its own last byte, one read after the other, whoever asked,
 * and its result is held back until then. It is a token bucket: who comes late with the next read may catch up on a
 * little, and, so that a busy machine makes the drive no slower than it is said to be, on as much as results were given
 * late. */
#ifndef NTX_SHM_DRIVE_H
#define NTX_SHM_DRIVE_H

#include <stdatomic.h>
#include <stdint.h>

#define NTX_DRIVE_CREDIT_NS 2000000u
#define NTX_DRIVE_LATE_NS   50000000u     /* of being late, that is caught up on */
#define NTX_DRIVE_FAR_NS    100000000000u /* another process says what cannot be: it is not believed */

struct ntx_drive {
    _Atomic uint64_t *until; /* CLOCK_MONOTONIC ns; NULL: the real drive */
    double ns_per_byte;
};

/* When a read of so many bytes will have come that is asked for now. Relaxed: it orders nothing else. */
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
    return late < NTX_DRIVE_CREDIT_NS ? NTX_DRIVE_CREDIT_NS : late < NTX_DRIVE_LATE_NS ? late : NTX_DRIVE_LATE_NS;
}

#endif
