/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/trace.h"

#include <string.h>

#define BUSY (1ull << 63) /* bit of seq: the record is being written */

void ntx_trace_put(struct ntx_trace *t, enum ntx_trace_kind kind, uint64_t t0, uint64_t t1, uint32_t a, uint64_t b,
                   uint64_t c)
{
    uint64_t n = atomic_fetch_add_explicit(&t->head, 1, memory_order_relaxed);
    struct ntx_trace_record *r = &t->r[n % NTX_TRACE_RECORDS];
    uint64_t seq = atomic_load_explicit(&r->seq, memory_order_relaxed);
    /* If the ring lapped us, or the slot is busy, drop the record: two writers must not share a slot. */
    if (seq & BUSY || seq > n ||
        !atomic_compare_exchange_strong_explicit(&r->seq, &seq, (n + 1) | BUSY, memory_order_acquire,
                                                 memory_order_relaxed))
        return;
    /* A reader that sees a new field also sees the new seq. */
    atomic_thread_fence(memory_order_release);
    r->t0 = t0;
    r->t1 = t1;
    r->b = b;
    r->c = c;
    r->kind = (uint32_t)kind;
    r->a = a;
    atomic_store_explicit(&r->seq, n + 1, memory_order_release); /* pairs with the acquire in take_one */
}

/* 1: copied, 0: not written yet, -1: overwritten. */
static int take_one(const struct ntx_trace *t, uint64_t n, struct ntx_trace_record *out)
{
    struct ntx_trace_record *r = (struct ntx_trace_record *)(uintptr_t)&t->r[n % NTX_TRACE_RECORDS];
    uint64_t seq = atomic_load_explicit(&r->seq, memory_order_acquire);
    if (seq != n + 1)
        return (seq & ~BUSY) > n + 1 ? -1 : 0;
    memcpy((char *)out + sizeof out->seq, (const char *)r + sizeof r->seq, sizeof *r - sizeof r->seq);
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&r->seq, memory_order_relaxed) != n + 1)
        return -1;
    out->seq = n + 1;
    return 1;
}

unsigned ntx_trace_take(const struct ntx_trace *t, uint64_t *next, struct ntx_trace_record *out, unsigned max,
                        uint64_t *missed)
{
    uint64_t head = atomic_load_explicit(&((struct ntx_trace *)(uintptr_t)t)->head, memory_order_acquire);
    unsigned n = 0;
    if (head > NTX_TRACE_RECORDS && *next < head - NTX_TRACE_RECORDS) {
        *missed += head - NTX_TRACE_RECORDS - *next;
        *next = head - NTX_TRACE_RECORDS;
    }
    while (*next < head && n < max) {
        int rc = take_one(t, *next, &out[n]);
        /* A record that is still being written is taken by the next call, unless its writer seems to be dead: then the
         * ring is half a lap ahead. */
        if (!rc && head - *next < NTX_TRACE_RECORDS / 2)
            break;
        n += rc > 0;
        *missed += rc <= 0;
        ++*next;
    }
    return n;
}
