/* SPDX-License-Identifier: Apache-2.0 */
/* make.h: writes models in the form of model/layer_delta.h, from ordinary models.
 *
 *   layers of one model    base: for each kind of matrix the mean over all layers, in every layer; each layer adds its
 *                          difference to it. Where layers have equal matrices (recursive models), these are written
 *                          once, without differences and without loss
 *   a fine-tune            of a base model: OUT has only the differences. It is an adapter (general.type "adapter",
 *                          adapter.type "lora"), for --lora
 *
 * A difference D [out x in] is written as two thin matrices in F16 (the best ones of their rank:
 * client/delta/lowrank.h), or in a type of few bits: the smaller form for the allowed error. Errors are square roots of
 * sums of squares, relative to the matrix W itself (layers), or to D (a fine-tune, whose D is small beside W). They are
 * measured on the written values, with their rounding and the base's.
 *
 * Refused with the figures, unless forced: an error above the bound; deltas larger than nine tenths of the matrices
 * quantised alone to the same error; and for a fine-tune, other tensors that differ from the base's by more than a
 * thousandth.
 *
 * Memory: a piece of some MiB and (2 in + out) x (largest rank + 16) floats for each thread. Results wait in an unnamed
 * file beside OUT, so that the drive needs room for OUT twice. After a failure no file is left behind. The output does
 * not depend on threads. */
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
