/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h: what happened, as records of fixed size in a ring, one ring per daemon that writes. They lie in the
 * counters' file, always on: a record costs some 50 ns and there are a few per chunk and layer. Monitors copy records
 * out as they come; who is too slow misses the oldest, and knows how many.
 *
 *   writers: threads of one daemon         head -> number of the next record
 *            number = head++               slot  = number % NTX_TRACE_RECORDS
 *            seq = number + 1 and a bit for busy, by compare and swap; fields; seq = number + 1 (release).
 *            A record whose place is busy, or was taken for a later round, is given up
 *   readers: seq before and after the copy is number + 1, or the record is not taken
 *
 * Times are CLOCK_MONOTONIC, ns, in all daemons. */
#ifndef NTX_SHM_TRACE_H
#define NTX_SHM_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define NTX_TRACE_RECORDS 8192u

/* Kinds and what a, b and c say:
 *   read      iod a chunk was read, t0 asked, t1 there a slot, frame or chunk; b chunk, and above 32 bits ntx_trace_to;
 *             c bytes
 *   slot      computed   a ring slot's chunk was used, t0 taken, t1 let go    a slot, b chunk, c when it was ready (ns)
 *   layer     computed   a layer was computed                         a layer, b pass, c rows
 *   stall     computed   computing waited for reading                 a ntx_trace_wait
 *   pass      computed   a pass                                       a rows, b pass
 *   decision  computed a wait for the predictor a layers left out, summed over rows, b pass, c rows that asked
 *   token     computed   a token came, t0 = the one before            b session, c number of the token (never which)
 *   copy      computed   a chunk was copied to the GPU, t0 queued, t1 seen to be over    b chunk, c bytes
 *   draft     computed a tree of guesses was asked for, t0, and taken, t1 a guesses, above 8 bits those that held,
 *             above 16 those of them by look-up,
 *                                                                     above 24 by a drafter's file; b pass, c session
 *   path      computed a tree was computed, t0 taken, t1 its path known a session, b and c: bit k: node k, or 64 + k,
 *             is on the path that held; node 0 was sure
 *   drafting  predictor  a drafter worked on a tree, or read a text    a rows; b which drafter, c session
 *   rank      computed another machine was at products, by the first one's clock a rank; b layer, c ns of it that it
 *             waited for its drive
 *   experts   computed   a layer's router has chosen; only when asked for at load: it says something about the text
 *                                                                     a layer, and above 16 bits i; b pass, c bit k:
 *                                                                       expert 64 i + k is wanted */
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
enum ntx_trace_to { NTX_TR_TO_SLOT, NTX_TR_TO_FRAME, NTX_TR_TO_ARENA };
enum ntx_trace_wait { NTX_WAIT_CHUNK, NTX_WAIT_EXPERT, NTX_WAIT_NEURONS, NTX_WAIT_ENTRY, NTX_WAITS };
enum { NTX_TRACE_COMPUTED, NTX_TRACE_IOD, NTX_TRACE_PREDICTOR, NTX_N_TRACES };

struct ntx_trace_record {
    _Atomic uint64_t seq;
    uint64_t t0, t1, b, c;
    uint32_t kind, a;
};

struct ntx_trace {
    _Alignas(64) _Atomic uint64_t head;
    _Atomic uint32_t off; /* no records, and no clock read for them alone; bench/trace/switch.c sets it to compare,
                             nobody else does */
    _Alignas(64) struct ntx_trace_record r[NTX_TRACE_RECORDS];
};

static inline bool ntx_trace_is_off(struct ntx_trace *t) { return atomic_load_explicit(&t->off, memory_order_relaxed); }

void ntx_trace_put(struct ntx_trace *t, enum ntx_trace_kind kind, uint64_t t0, uint64_t t1, uint32_t a, uint64_t b,
                   uint64_t c);

/* Copies at most max records from number *next on, and moves *next behind them; returns how many. *missed grows by
 * those that were overwritten before they could be copied, and those given up: see ntx_trace_put. */
unsigned ntx_trace_take(const struct ntx_trace *t, uint64_t *next, struct ntx_trace_record *out, unsigned max,
                        uint64_t *missed);

#endif
