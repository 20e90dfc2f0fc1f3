/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h: a pass over several machines. Rank 0 runs it, with all state: sessions, norms, attention, sampling; K and V,
 * unless they are dealt, too. The others hold weights: their rows of each matrix, or all matrices of some layers
 * (model/share.h). Where a run of products takes dealt matrices, rank 0 sends its input, in the form that they are
 * multiplied by, to those who have rows of them; every machine multiplies its own rows, from its own memory and drive;
 * the outputs come back to rank 0.
 *
 *      rank 0         begin   x ------------------> multiply own rows ... y <---- ... end
 *      other ranks      |     '-> multiply own rows ------------------------^        |
 *      their drives   reading ahead in the order of use, across the end of a pass, as ever
 *
 * So a token's bytes come from all drives and all memories at once, and an output has the bits that one machine gives
 * it: its sum is never cut. What a machine computes depends on the message alone; of a conversation nothing is kept
 * there but K and V of heads, where those are dealt.
 *
 * Few bytes cross where one machine's rows are all that a step needs: act(gate) * up is made of the own rows before
 * they are sent, and stays, quantised there, where the machine has the whole layer: what an FFN takes then is one input
 * out and one output back; a row's input goes out once for all of its experts; and every machine adds its rows of their
 * outputs to its rows of Y, of which only the sum comes back, with the last wave of experts. (Experts with biases,
 * which only rank 0 has, do without.)
 *
 * What another machine did is told with its outputs, and stands in the counters' file (shm/monitor.h) and the trace,
 * there by rank 0's clock: the other's is set by the exchange that took least, as if both its messages had taken alike.
 *
 * Messages between machines of one build: a header and its products, then the input. Activations cross in the clear.
 * What came is checked before it is used.
 *
 * K and V may be dealt, too (NTX_SPLIT_HEADS, kv.c): by heads, in the parts that rows have. Rank 0 makes q, K and V as
 * ever, norms and turns them, and sends each machine those of its heads, which it puts into its blocks and attends
 * with: so memories and memory buses add up for long texts, for an exchange more a layer. Texts stay rank 0's: which
 * block has which positions it alone knows, and with a pass it says what it has done to blocks since the last one
 * (copied, for a fork or a write to what others share; moved, for an accepted guess). So sessions, shared prefixes,
 * guesses and marks are nothing to the others. Where all heads have one K, where positions are chosen, and for texts
 * that are kept in files, rank 0 has all.
 *
 * Who hangs is found: rank 0 waits limit_ms for an answer, the others five times that in the middle of a pass; between
 * passes they wait for ever. Then all end: MPI takes no machine back.
 *
 * What was left, for these reasons (figures: docs/log/machines.md): - Experts are dealt by rows, not whole. Of a row's
 * few experts the busiest machine would have more than its part (of 8: 5.1 of 2 machines, 2.1 instead of 0.5 of 16),
 * and each
 *   choice's whole output would come back, since its sum is made in the order of experts. By arithmetic it loses for
 *     all sizes but 16 machines at 1 Gb/s, where whole layers win.
 * - No mixture of rows and layers (groups of machines that take turns at layers, rows within a group): of four
 * machines, two and two, it is slower than the better of the two for all
 *   models and networks; of eight at most 1.17 times as fast, in 5 of 9 cases by nothing; of sixteen it would win where
 *     the network is slow beside the machines (1.2 to 1.6 times at 2.5 Gb/s).
 * - Rank 0 sends to each by itself, in no tree and by no collective: a tree pays from 8 machines at 1 Gb/s on, for
 * prompts, where layers that go round have a quarter of the bytes;
 *   and MPI's collectives want all to know each message's length beforehand, and all to take part, where a layer may be
 *     one machine's.
 * - A predictor runs on each machine, but only rank 0's decides. */
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
    const char *const *names; /* [size] of machines, for messages */
    uint32_t limit_ms; /* a rank that gives nothing for so long fails the pass, and all later ones; the first answer may
                          take half an hour, while its machine loads. 0: 60 s */
};

/* Bytes that it may take: for the planner. */
uint64_t ntx_ranks_bytes(const struct ntx_model *m, uint32_t max_rows, uint32_t logits_rows);
int ntx_ranks_new(const struct ntx_ranks_config *c, struct ntx_ranks **out);
void ntx_ranks_free(struct ntx_ranks *r);
/* K and V are dealt by heads: in this pool are those of this machine's, in as many blocks, of the same kinds, as all
 * the others have. Before the first pass, or ntx_ranks_follow. */
void ntx_ranks_keep(struct ntx_ranks *r, struct ntx_kv_pool *pool);
const struct ntx_backend *ntx_ranks_backend(
    struct ntx_ranks *r); /* of rank 0's pass: the CPU's, but for the products */
/* Rank 0: a machine has given nothing for too long, or cannot be reached. No pass will succeed any more: all machines
 * are to be started again. */
bool ntx_ranks_lost(const struct ntx_ranks *r);
uint64_t ntx_ranks_messages(
    const struct ntx_ranks *r); /* runs of products, so far. Bytes and times are in the counters of the pass */
/* Rank 0, between passes: the others end. A negative errno: they cannot be told. */
int ntx_ranks_quit(struct ntx_ranks *r);

/* Any other rank: multiplies what rank 0 asks for until it says that it is over (0), *stop is set (-ECANCELED), or the
 * network fails, with words in the weights' error. A product that fails (a read, say) fails rank 0's pass with this
 * machine's words, and no more. */
int ntx_ranks_follow(struct ntx_ranks *r, struct ntx_forward *f, const atomic_bool *stop);

#endif
