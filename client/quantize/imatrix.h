/* SPDX-License-Identifier: Apache-2.0 */
/* imatrix.h: importance matrices: for each matrix of a model the mean square of each of its inputs, over the tokens of
 * some text. An error in a weight that is multiplied by large numbers does more harm, so the quantiser lets it cost
 * more.
 *
 * The file is a GGUF as llama.cpp makes and reads it: general.type "imatrix"; for each matrix T a tensor "T.in_sum2",
 * F32 [inputs x matrices], sums of squares, and "T.counts", F32 [1 x matrices], how many tokens were summed; several
 * matrices for experts, of which one may have seen none, and for heads (DeepSeek's attn_k_b and attn_v_b; llama.cpp has
 * those of all heads as inputs of one matrix, with one count). */
#ifndef NTX_CLIENT_QUANTIZE_IMATRIX_H
#define NTX_CLIENT_QUANTIZE_IMATRIX_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct ntx_imatrix;

#define NTX_IMATRIX_FEW 10000 /* users are warned of a matrix from fewer tokens */

struct ntx_importance {
    char name[80];     /* name of the matrix's tensor */
    uint32_t n, n_mat; /* inputs; matrices */
    float *sum2;       /* [n_mat x n] */
    float *count;      /* [n_mat] */
};

/* Reads a file and checks every number. */
int ntx_imatrix_read(const char *path, struct ntx_imatrix **out, struct ntx_err *err);
void ntx_imatrix_free(struct ntx_imatrix *m);

const struct ntx_importance *ntx_imatrix_find(const struct ntx_imatrix *m,
                                              const char *tensor); /* NULL: no entry of that name */
uint32_t ntx_imatrix_n(const struct ntx_imatrix *m);
uint32_t ntx_imatrix_chunks(const struct ntx_imatrix *m);     /* number of text windows summed */
const char *ntx_imatrix_dataset(const struct ntx_imatrix *m); /* the text's name, or "" */
uint32_t ntx_imatrix_tokens(const struct ntx_imatrix *m);     /* tokens summed: the largest count of a matrix */

/* Makes a new one; matrices are added (values are copied) and written. -ENOMEM, or an error with a text. */
struct ntx_imatrix *ntx_imatrix_new(const char *dataset, uint32_t chunks, uint32_t chunk_tokens);
int ntx_imatrix_add(struct ntx_imatrix *m, const struct ntx_importance *i);
int ntx_imatrix_write(const struct ntx_imatrix *m, const char *path, struct ntx_err *err);

#endif
