/* SPDX-License-Identifier: Apache-2.0 */
/* kv_form.h: K as q8_0 and q4_0 keep it, decided from the model's file. Few bits cannot hold K where some values of a
 * head are far larger than the others. Two causes are in the file:
 *
 *   biases   Qwen2.5 adds up to 450 to some pairs of values before they are rotated. Such a pair's rotated bias is
 *            subtracted from K before it is stored. q . bias is added to the scores in float, exactly (cpu.h).
 *   norms    Weights of K's norm differ by a factor of 100 between values (Gemma 3). K is divided, and q multiplied, by
 *            the root of the ratio of both norms' weights, pair by pair, as SmoothAttention does (QServe: Lin et al.
 *            2024).
 *
 * Then K is rotated (Walsh-Hadamard), which q4_0 always does. Everything here depends on the file alone, so the bits
 * depend on neither batch, threads nor place. A model without such biases and norms has no form. */
#ifndef NTX_COMPUTED_PASS_KV_FORM_H
#define NTX_COMPUTED_PASS_KV_FORM_H

#include "common/err.h"
#include "computed/cpu/cpu.h"
#include "model/arch.h"

struct ntx_kv_pair { /* two values of a head that are rotated together */
    uint16_t first, second, angle;
    float bias[2];
};

struct ntx_kv_form_layer {
    float *by, *inverse; /* [head_k] factors of q and of K; NULL: none */
    struct ntx_kv_pair *pair;
    uint32_t *from; /* [n_head_kv + 1] a head's pairs are from[h] .. from[h + 1]; NULL: no biases */
};

struct ntx_kv_form {
    struct ntx_kv_form_layer *layer; /* [n_layers] */
    struct ntx_turns *turns;         /* [n_angles], of ntx_kv_form_turn */
    uint32_t n_layers, n_angles;
    uint32_t n_pairs, n_scaled; /* pairs with a bias apart, and layers with factors, in all */
    float most;                 /* the largest bias of a pair */
    bool turned;                /* turns are made */
    uint64_t bytes;
};

/* *out: NULL if K needs no form. -EIO and the like: the file cannot be read. -ENOTSUP: large biases that cannot be kept
 * apart, so that this type would destroy the text; the text says what to do. fds: as in model/numbers.h. */
int ntx_kv_form_read(const struct ntx_model *m, const int *fds, enum ntx_kv_type type, struct ntx_kv_form **out,
                     struct ntx_err *err);
void ntx_kv_form_free(struct ntx_kv_form *form);
/* Makes the tables of angles, once. freq: [n_angles] radians per position (rope.h). */
void ntx_kv_form_turn(struct ntx_kv_form *form, const double *freq);

/* K of a head, [n], as it is handed to k_store. cs, sn: of its position. out may not be k. */
void ntx_kv_form_key(const struct ntx_kv_form *form, const struct ntx_cpu_ops *ops, enum ntx_kv_type type,
                     uint32_t layer, uint32_t head, const float *cs, const float *sn, const float *k, uint32_t n,
                     float *out);

struct ntx_kv_query { /* room for the query side */
    float q[NTX_ATTN_VECTORS * NTX_MAX_HEAD], x[NTX_ATTN_VECTORS * 2 * NTX_BIAS_PAIRS];
    uint16_t angle[NTX_BIAS_PAIRS];
    struct ntx_attn_bias bias;
};
/* Makes a's queries those of K as it is stored. magnitude: of the cosines (rope.h). */
void ntx_kv_form_query(const struct ntx_kv_form *form, const struct ntx_cpu_ops *ops, enum ntx_kv_type type,
                       uint32_t layer, uint32_t head, float magnitude, struct ntx_kv_query *room, struct ntx_attn *a);

#endif
