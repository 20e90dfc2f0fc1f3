/* SPDX-License-Identifier: Apache-2.0 */
/* make.h: writes what model/layer_delta.h describes, from models that were not made so.
 *
 *   layers of one model    base: of each kind of matrix the mean over all layers, which all of them then have; each
 *                          layer adds its difference to that. Where layers
 *                          are the very same matrices (recursive models), these are written once, nothing is added, and
 *                            nothing is lost
 *   a fine-tune            of a base model: OUT has the differences alone. It is an adapter (general.type "adapter",
 *                          adapter.type "lora"), for --lora
 *
 * A difference D [out x in] is written as two thin matrices in F16 (the best ones of their rank:
 * client/delta/lowrank.h), or in a type of few bits: whichever is smaller for the error that is allowed. Errors are
 * roots of squares, over those of the matrix W itself (layers), or over those of D (a fine-tune, whose D is small
 * beside W). They are measured on what is written, rounding and the base's own rounding included.
 *
 * Refused, unless forced, with the figures: an error above the bound; deltas that would take more than nine tenths of
 * what the matrices take that are quantised alone to the same error; and of a fine-tune, other tensors that differ from
 * the base's by more than a thousandth.
 *
 * Memory: a piece of some MiB and (2 in + out) x (largest rank + 16) floats for each thread. What was made waits in an
 * unnamed file beside OUT, so there must be room on that drive for OUT twice. After a failure nothing is left behind.
 * What comes out does not depend on threads. */
#ifndef NTX_CLIENT_DELTA_MAKE_H
#define NTX_CLIENT_DELTA_MAKE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "model/arch.h"
#include "model/gguf.h"

struct ntx_delta_source {
    const struct ntx_gguf *gguf;
    const int *fds;
};

struct ntx_delta_options {
    uint32_t rank; /* of all; 0: for each matrix as large as the error needs */
    double error;  /* largest allowed error, over all matrices; each stays below it if ranks are free */
    bool force;
    struct ntx_delta_source base; /* gguf NULL: layers of one model */
    uint32_t threads;
    void (*progress)(void *ctx, uint32_t done, uint32_t total); /* matrices; called under a lock; or NULL */
    void *ctx;
    const volatile sig_atomic_t *stop; /* not 0: ends with -EINTR */
};

struct ntx_delta_report {
    uint32_t n_matrices, n_low, n_typed,
        n_equal; /* matrices: all, as thin matrices, in few bits, without a difference */
    uint32_t rank_least, rank_most;
    uint32_t n_layers, n_distinct; /* n_distinct: of a recursive model, else n_layers */
    uint64_t bytes;                /* of these matrices in the source */
    uint64_t alone_bytes;          /* quantised to the same error, or unchanged if that is smaller */
    uint64_t base_bytes, delta_bytes;
    double error, worst; /* over all; of the worst */
    double change;       /* |D| / |W| over all */
    char worst_name[80];
    double rest; /* of a fine-tune: the largest difference of a tensor that stays like the base's */
    char rest_name[80];
};

int ntx_delta_make(const struct ntx_model *m, const int *fds, const char *out, const struct ntx_delta_options *o,
                   struct ntx_delta_report *report, struct ntx_err *err);

#endif
