/* SPDX-License-Identifier: Apache-2.0 */
/* analyze.h: measures how alike a model's layers are, and whether it would pay to keep one of them in memory and
 * stream the differences of the others.
 *
 * Matrices of one role (the layers' ffn_gate, say) are compared in pairs: neighbours, or one base and each other one.
 * For a pair A, B:
 *
 *   cosine    of the two, element by element: sum of A B / (|A| |B|); |.| is the root of the sum of squares
 *   change    |B - A| / |B|: the size of a delta. Two unrelated matrices of one size have 1.41
 *   docs      the DOCS index: for each neuron's weights the largest |cosine| with any neuron of the other matrix; a
 *             Gumbel distribution is fitted to these, and the index is its location (the mean of both directions). It
 *             ignores the order of neurons, which a delta does not. `docs_chance` is the index of as many random
 *             vectors of that length. Source: Min and Wang, "DOCS: Quantifying Weight Similarity for Deeper Insights
 *             into Large Language Models", 2025. A neuron: in ffn_down and attn_output a column, in others the weights
 *             of an output
 *   by_rank   |D - D_r| / |B|, with D = B - A and D_r its best approximation of rank r. By randomised SVD with one
 *             power iteration (Halko, Martinsson and Tropp, 2011): an upper bound, close where the spectrum falls
 *   by_type   the same for D quantised to a type; `own` is that of B without A: the cost of the type itself
 *
 * The model is streamed: a thread needs some 20 MiB and (2 in + out) x (largest rank + 16) + 512 in floats of the
 * largest matrix, and reads each pair four times. The figures do not depend on the number of threads. */
#ifndef NTX_CLIENT_DELTA_ANALYZE_H
#define NTX_CLIENT_DELTA_ANALYZE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "model/layer_delta.h"
#include "model/gguf.h"

#define NTX_ANALYZE_TYPES 4

struct ntx_likeness {
    double cosine, change, docs, docs_chance;
    double by_rank[NTX_ANALYZE_RANKS];
    double by_type[NTX_ANALYZE_TYPES], own[NTX_ANALYZE_TYPES];
};

struct ntx_analyze_pair {
    uint32_t role, a, b; /* layers */
    uint32_t matrix;     /* number of the expert, 0 without experts */
    struct ntx_likeness is;
    uint64_t bytes;       /* of B in the file */
    uint64_t alone_bytes; /* of B without A, in the smallest type within the bound; = bytes if none is smaller */
    uint64_t delta_bytes; /* of the smallest delta within the bound; = alone_bytes if none is smaller */
    uint32_t rank, type;  /* of that delta: rank > 0, or the type; NTX_TYPE_LIMIT and 0: no delta, or (delta_bytes 0)
                          * the two are equal */
};

struct ntx_analyze_role {
    char name[64]; /* without "blk.N." and ".weight" */
    uint64_t in, out;
    uint32_t types[NTX_ANALYZE_TYPES]; /* of by_type; NTX_TYPE_LIMIT after the last */
    uint32_t first, n;                 /* in pairs[] */
};

struct ntx_analysis {
    struct ntx_analyze_role *roles;
    struct ntx_analyze_pair *pairs;
    uint32_t n_roles, n_pairs;
    uint32_t n_delta;                       /* pairs whose delta is smaller than the matrix alone */
    double bytes, alone_bytes, delta_bytes; /* of all matrices B that a token uses: of experts its share, and experts
                                             * that were left out count like the others */
};

struct ntx_analyze_options {
    uint32_t ranks[NTX_ANALYZE_RANKS], n_ranks; /* rising; those above min(in, out) count as that */
    uint32_t apart; /* compare layers that are this far apart (1: neighbours), unless has_base */
    uint32_t base;
    bool has_base;
    double bound;     /* largest error of a delta, relative to |B| */
    uint32_t experts; /* of each tensor of experts at most so many, evenly spread */
    uint32_t threads;
    void (*progress)(void *ctx, uint32_t done, uint32_t total); /* called under a lock; or NULL */
    void *ctx;
};

/* Whether streaming deltas would pay, compared with matrices quantised to the same error. */
enum ntx_analyze_verdict {
    NTX_ANALYZE_NO,     /* they would save less than a tenth of the bytes */
    NTX_ANALYZE_LITTLE, /* less than half */
    NTX_ANALYZE_YES,
};
enum ntx_analyze_verdict ntx_analysis_verdict(const struct ntx_analysis *a);

/* -ENOENT: nothing to compare. The caller frees *out. */
int ntx_analyze(const struct ntx_gguf *g, const int *fds, const struct ntx_analyze_options *o,
                struct ntx_analysis **out, struct ntx_err *err);
void ntx_analysis_free(struct ntx_analysis *a);

#endif
