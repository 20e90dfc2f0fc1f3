/* SPDX-License-Identifier: Apache-2.0 */
/* job_impl.h: shared by the files of a job; no other file includes it.
 *
 *   job.c     types, files, messages
 *   pieces.c  pieces of tensors: read, quantised by threads
 *   by_size.c types by size and loss */
#ifndef NTX_CLIENT_QUANTIZE_JOB_IMPL_H
#define NTX_CLIENT_QUANTIZE_JOB_IMPL_H

#include "client/quantize/job.h"
#include "model/quantize.h"

struct ntx__target {
    const struct ntx_gguf_tensor *t;
    uint32_t type;
    const struct ntx_importance *importance; /* or NULL */
    float *scale;     /* [n_scale] the file's factors of the products, multiplied into the weights; NULL: none */
    uint32_t n_scale; /* 1, or one for each of its matrices */
    bool dropped;     /* a scale that is now in the weights */
};

struct ntx__job {
    const struct ntx_gguf *g;
    const int *fds;
    const struct ntx_quantize_options *o;
    struct ntx_quantize_report *report;
    uint32_t n;
    struct ntx__target *target; /* [n] */
    struct ntx_quantizer *quantizer[NTX_TYPE_LIMIT];
    uint32_t threads;
    uint64_t done;
    double error, squares; /* over all */
};

/* ---- pieces.c */

int ntx__read_at(const struct ntx__job *j, const struct ntx_gguf_tensor *t, uint64_t at, void *p, size_t n,
                 struct ntx_err *err);

/* The weights of n outputs in `in` (the tensor's output `first` and every `step`-th after it), quantised to `out`
 * (NULL: only measure the loss). error and squares are added to, weighed by importance or not. */
struct ntx__piece {
    const struct ntx__target *target;
    uint32_t type;
    uint64_t first, step, n;
    const uint8_t *in;
    uint8_t *out;
    bool weighed;
    double error, squares;
};
int ntx__quantize_piece(struct ntx__job *j, struct ntx__piece *r, struct ntx_err *err);

/* Writes a whole tensor to fd. */
int ntx__write_tensor(struct ntx__job *j, uint32_t tensor, int fd, struct ntx_err *err);

/* ---- by_size.c: types for all matrices without a given type, for a limit of bytes in all. */
/* The least possible bytes; given: a type, or NTX_TYPE_LIMIT, of each tensor. */
uint64_t ntx__least_by_size(const struct ntx__job *j, const uint32_t *given);
int ntx__choose_by_size(struct ntx__job *j, const uint32_t *given, uint64_t bytes, struct ntx_err *err);

#endif
