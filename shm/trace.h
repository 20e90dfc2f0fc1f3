/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h: events as records of fixed size, in one ring buffer for each daemon. The rings are in the counters' file and
 * always on: a record costs about 50 ns, and there are a few per chunk and layer. Monitors copy records out; a monitor
 * that is too slow misses the oldest ones, and learns how many.
 *
 *   writers: threads of one daemon         head -> number of the next record
 *            number = head++               slot  = number % NTX_TRACE_RECORDS
 *            seq = number + 1 and a busy bit, by compare and swap; fields; seq = number + 1 (release).
 *            If the slot is busy, or a later lap has used it, the record is dropped
 *   readers: seq must be number + 1 before and after the copy, else the record is not taken
 *
 * Times are CLOCK_MONOTONIC, ns, in all daemons. */
#ifndef NTX_SHM_TRACE_H
#define NTX_SHM_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define NTX_TRACE_RECORDS 8192u

/* Kinds of records, their writers, and the meaning of t0, t1, a, b and c:
 *   read      iod        a chunk was read: t0 issued, t1 complete
 *                          a slot, request or chunk; b chunk, from bit 32 on ntx_trace_to; c bytes
 *   slot      computed   a ring slot's chunk was used: t0 taken, t1 released
 *                          a slot; b chunk; c time when it was ready (ns)
 *   layer     computed   a layer was computed
 *                          a layer; b pass; c rows
 *   stall     computed   compute waited for a read
 *                          a ntx_trace_wait
 *   pass      computed   a pass
 *                          a rows; b pass
 *   decision  computed   compute waited for the predictor
 *                          a skipped layers, summed over rows; b pass; c rows that waited
 *   token     computed   a token was generated: t0 the previous one
 *                          b session; c number of the token in the answer (not its id)
 *   copy      computed   a chunk was copied to the GPU: t0 queued, t1 seen to be complete
 *                          b chunk; c bytes
 *   draft     computed   a draft tree: t0 requested, t1 taken
 *                          a draft tokens; from bit 8 on accepted ones; from bit 16 on those by lookup, from bit 24 on
 *                          those by a drafter file; b pass; c session
 *   path      computed   a draft tree was verified: t0 taken, t1 its accepted path known
 *                          a session; bit k of b: node k, bit k of c: node 64 + k is on the accepted path. Node 0 is
 *                          the last sure token
 *   drafting  predictor  a drafter computed a tree, or read a text
 *                          a rows; b number of the drafter; c session
 *   rank      computed   another machine computed products, by rank 0's clock
 *                          a rank; b layer; c ns that it waited for its drive
 *   experts   computed   a layer's router chose experts; only when enabled at load, since it tells of the text
 *                          a layer, from bit 16 on i; b pass; bit k of c: expert 64 i + k is routed to */
enum ntx_trace_kind {
    NTX_TR_NONE,
    NTX_TR_READ,
    NTX_TR_SLOT,
    NTX_TR_LAYER,
    NTX_TR_STALL,
    NTX_TR_PASS,
    NTX_TR_DECISION,
    NTX_TR_TOKEN,
    NTX_TR_EXPERTS,
    NTX_TR_COPY,
    NTX_TR_DRAFT,
    NTX_TR_PATH,
    NTX_TR_RANK,
    NTX_TR_DRAFTING,
    NTX_TR_KINDS
};
enum ntx_trace_to { NTX_TR_TO_SLOT, NTX_TR_TO_FRAME, NTX_TR_TO_ARENA, NTX_TR_TO_STAGE };
enum ntx_trace_wait { NTX_WAIT_CHUNK, NTX_WAIT_EXPERT, NTX_WAIT_NEURONS, NTX_WAIT_ENTRY, NTX_WAITS };
enum { NTX_TRACE_COMPUTED, NTX_TRACE_IOD, NTX_TRACE_PREDICTOR, NTX_N_TRACES };

struct ntx_trace_record {
    _Atomic uint64_t seq;
    uint64_t t0, t1, b, c;
    uint32_t kind, a;
};

struct ntx_trace {
    _Alignas(64) _Atomic uint64_t head;
    _Atomic uint32_t off; /* no records, and no clock is read for them; only bench/trace/switch.c sets it */
    _Alignas(64) struct ntx_trace_record r[NTX_TRACE_RECORDS];
};

static inline bool ntx_trace_is_off(struct ntx_trace *t) { return atomic_load_explicit(&t->off, memory_order_relaxed); }

void ntx_trace_put(struct ntx_trace *t, enum ntx_trace_kind kind, uint64_t t0, uint64_t t1, uint32_t a, uint64_t b,
                   uint64_t c);

/* Copies at most max records from number *next on and moves *next past them. Returns the count. *missed grows by the
 * records that were overwritten before they were copied, and by those that their writer dropped (ntx_trace_put). */
unsigned ntx_trace_take(const struct ntx_trace *t, uint64_t *next, struct ntx_trace_record *out, unsigned max,
                        uint64_t *missed);

#endif
