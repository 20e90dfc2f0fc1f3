/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h: a pass over several machines. Rank 0 runs it, with all state: sessions, norms, attention, sampling; and K
 * and V, unless they are split, too. The other ranks hold weights: their rows of each matrix, or all matrices of some
 * layers (model/share.h). For a run of products of split matrices, rank 0 sends the input, in the form that is
 * multiplied, to the ranks that have rows of them. Every machine multiplies its own rows, from its own memory and
 * drive, and the outputs come back to rank 0.
 *
 *      rank 0         begin   x ------------------> multiply own rows ... y <---- ... end
 *      other ranks      |     '-> multiply own rows ------------------------^        |
 *      their drives   read ahead in the order of use, across the end of a pass, as on one machine
 *
 * So a token's bytes come from all drives and all memories at once, and each output has the bits that one machine gives
 * it: its sum is never split. A rank's result depends on the message alone; it keeps nothing of a conversation but K
 * and V of heads, if those are split.
 *
 * Few bytes are sent where one machine's rows are all that a step needs. act(gate) * up is computed for a rank's rows
 * before they are sent; if the rank has the whole layer, it stays there, quantised: an FFN then takes one input out and
 * one output back. A row's input is sent once for all of its experts. Every rank adds its rows of their outputs to its
 * rows of Y, and only the sum comes back, with the last wave of experts. (Not for experts with biases, which only rank
 * 0 has.)
 *
 * Another rank's counters come with its outputs, and are in the counters' file (shm/monitor.h) and in the trace, there
 * by rank 0's clock. The offset of its clock is taken from the shortest exchange, assuming that both messages took
 * equally long.
 *
 * Messages between machines of one build: a header and its products, then the input. Activations are sent unencrypted.
 * Everything received is checked before use.
 *
 * K and V may be split by heads, too (NTX_SPLIT_HEADS, kv.c), in the same parts as rows. Rank 0 computes q, K and V,
 * norms and rotates them, and sends each rank those of its heads; the rank stores K and V in its blocks and computes
 * attention. So memories and memory buses add up for long texts, at the cost of one more exchange per layer. Only rank
 * 0 knows which block has which positions of which text; with each pass it sends the changes to blocks since the last
 * one (copied, for a fork or a write to a shared block; moved, for accepted draft tokens). So the others need not know
 * about sessions, shared prefixes, drafts and snapshots. Rank 0 keeps all K and V if all heads share one K, with an
 * indexer top-k, and for texts in files.
 *
 * Hanging ranks are detected: rank 0 waits limit_ms for an answer; in the middle of a pass the others wait five times
 * that, between passes forever. Then all processes end, since MPI cannot take a machine back.
 *
 * Alternatives that were rejected (figures: docs/log/machines.md):
 * - Whole experts on each machine. The busiest machine would have more than its share of a row's experts (of 8: 5.1 of
 *   2 machines, 2.1 instead of 0.5 of 16), and each choice's whole output would come back, since the sum is made in the
 *   order of experts. By calculation this loses for all sizes but 16 machines at 1 Gb/s, where whole layers win.
 * - A mixture of rows and layers (groups of machines that take turns at layers, rows within a group). With four
 *   machines, two and two, it is slower than the better of the two for all models and networks; with eight it is at
 *   most 1.17 times as fast, and no faster in 5 of 9 cases; with sixteen it would win on networks that are slow beside
 *   the machines (1.2 to 1.6 times at 2.5 Gb/s).
 * - A tree or collectives instead of messages from rank 0 to each rank. A tree pays from 8 machines at 1 Gb/s on, for
 *   prompts, where whole layers have a quarter of the bytes. MPI's collectives need each message's length beforehand on
 *   all ranks, and all ranks to take part, while a layer may be on one machine.
 * - Decisions by each machine's predictor. A predictor runs on each, but only rank 0's decides. */
#ifndef NTX_COMPUTED_RANKS_RANKS_H
#define NTX_COMPUTED_RANKS_RANKS_H

#include <stdatomic.h>
#include <stdint.h>

#include "computed/pass/forward.h"
#include "computed/ranks/net.h"

struct ntx_ranks;

struct ntx_ranks_config {
    const struct ntx_net_ops *ops;
    struct ntx_net *net;      /* borrowed */
    const char *const *names; /* [size] names of machines, for messages */
    /* A rank that sends nothing for so long fails the pass, and all later ones; the first answer may take half an hour,
     * while its machine loads. 0: 60 s. */
    uint32_t limit_ms;
};

/* Bytes that it may take, for the planner. */
uint64_t ntx_ranks_bytes(const struct ntx_model *m, uint32_t max_rows, uint32_t logits_rows);
int ntx_ranks_new(const struct ntx_ranks_config *c, struct ntx_ranks **out);
void ntx_ranks_free(struct ntx_ranks *r);
/* For K and V by heads: the pool of this machine's heads, with as many blocks, of the same kinds, as on all others.
 * Before the first pass, or ntx_ranks_follow. */
void ntx_ranks_keep(struct ntx_ranks *r, struct ntx_kv_pool *pool);
/* The back end of rank 0's pass: the CPU's, except for products. */
const struct ntx_backend *ntx_ranks_backend(struct ntx_ranks *r);
/* Rank 0: a machine has sent nothing for too long, or cannot be reached. No pass will succeed any more: all machines
 * must be started again. */
bool ntx_ranks_lost(const struct ntx_ranks *r);
/* Runs of products so far. Bytes and times are in the counters of the pass. */
uint64_t ntx_ranks_messages(const struct ntx_ranks *r);
/* Rank 0, between passes: ends the others. A negative errno: they cannot be reached. */
int ntx_ranks_quit(struct ntx_ranks *r);

/* Any other rank: multiplies for rank 0 until rank 0 ends it (0), *stop is set (-ECANCELED), or the network fails, with
 * a text in the weights' error. A product that fails (a read, say) fails only rank 0's pass, with this machine's
 * text. */
int ntx_ranks_follow(struct ntx_ranks *r, struct ntx_forward *f, const atomic_bool *stop);

#endif
