/* SPDX-License-Identifier: Apache-2.0 */
/* job.h: rewrites a model in other types, tensor by tensor, in pieces. Memory is bounded by a piece (some MiB) and a
 * few outputs' weights for each thread, whatever the model's size.
 *
 *   the model's header -> a type for each tensor (mix.h, patterns, or by size) -> check of the drive's space -> pieces
 *   of whole outputs: read -> floats -> quantised by threads -> written to unnamed files (common/new_file.h)
 *   -> synced -> all get their names
 *
 * Scales of whole matrices, which NVFP4 stores in separate tensors (X.scale), are multiplied into the weights if these
 * get another type.
 *
 * After a failure or a stop no file is left behind; nor after a kill, if the file system has unnamed files. The output
 * does not depend on threads or pieces. */
#ifndef NTX_CLIENT_QUANTIZE_JOB_H
#define NTX_CLIENT_QUANTIZE_JOB_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/quantize/imatrix.h"
#include "common/err.h"
#include "model/gguf.h"
#include "model/mix.h"
#include "model/quant.h"

#define NTX_QUANTIZE_RULES 64

struct ntx_quantize_rule {
    const char *pattern; /* a regular expression that matches any part of the tensor's name; the first matching rule
                          * counts */
    uint32_t type;
};

struct ntx_quantize_progress {
    uint64_t done, total; /* bytes of the source model */
    uint32_t tensor, n_tensors;
    const char *name;
    bool looking; /* types are being chosen by their loss */
};

struct ntx_quantize_options {
    const struct ntx_mix *mix;         /* NULL: by size */
    uint64_t fit;                      /* bytes of the file, without a mix */
    const struct ntx_imatrix *imatrix; /* or NULL */
    const char *imatrix_path;          /* for the file's keys */
    struct ntx_quantize_rule rules[NTX_QUANTIZE_RULES];
    uint32_t n_rules;
    bool pure;      /* no rules of the mix */
    bool dry;       /* writes nothing, only fills the report */
    uint64_t split; /* bytes of a part at most; 0: one file */
    uint32_t threads;
    void (*progress)(void *ctx, const struct ntx_quantize_progress *p); /* or NULL */
    void (*on_type)(void *ctx, const struct ntx_gguf_tensor *t, uint32_t type,
                    double error); /* or NULL: for each tensor when it is done; dry: in advance. error < 0: unchanged */
    void *ctx;
    const volatile sig_atomic_t *stop; /* not 0: ends with -EINTR */
};

struct ntx_quantize_report {
    uint64_t bytes_in, bytes_out, values; /* of the tensors; of the files; number of weights */
    uint32_t n_tensors, n_changed;
    uint32_t n_other;   /* matrices whose width is no multiple of the wanted type's block */
    uint32_t n_twice;   /* matrices that were quantised before: both losses add up */
    uint32_t n_unknown; /* quantised matrices that the importance matrix lacks */
    uint32_t n_nextn;   /* matrices of next-token blocks, which it cannot cover: they got types that need none */
    uint32_t n_unseen, n_experts; /* experts that the text never used, which count by their own values; all experts */
    uint32_t parts;
    double error, worst; /* relative root-mean-square error over all quantised weights; the worst tensor's */
    char worst_name[80];
};

int ntx_quantize_model(const struct ntx_gguf *g, const int *fds, const char *out, const struct ntx_quantize_options *o,
                       struct ntx_quantize_report *report, struct ntx_err *err);

#endif
