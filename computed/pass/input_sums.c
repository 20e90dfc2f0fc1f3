/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/pass/input_sums.h"

#include <stdlib.h>

#include "common/clones.h"

struct of_tensor {
    uint32_t n, n_mat; /* inputs; matrices; n_mat 0: not summed */
    uint64_t at;       /* offset in sum */
    uint64_t count_at; /* offset in count */
};

struct ntx_input_sums {
    struct of_tensor *of; /* [tensors of the model] */
    uint64_t n_tensors;
    float *sum, *count;
};

/* Tensors that layers multiply by; not routers, which keep their precision, nor a head's K and V in one tensor (mla.c),
 * whose K is multiplied from the other side. */
static bool is_summed(const struct ntx_model *m, uint32_t layer, uint32_t kind)
{
    return m->layers[layer].tensor[kind] != NTX_NO_TENSOR && ntx_is_matrix((enum ntx_tensor)kind) &&
           kind != NTX_T_router && kind != NTX_T_kv_b;
}

static bool has_several(uint32_t kind)
{
    return ntx_tensor_kinds[kind].use == NTX_USE_EXPERT || ntx_tensor_kinds[kind].use == NTX_USE_HEADS;
}

/* Numbers them; of NULL: only the sizes. */
static void number_tensors(const struct ntx_model *m, struct of_tensor *of, uint64_t *sums, uint64_t *counts)
{
    *sums = *counts = 0;
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        for (uint32_t k = 0; k < NTX_N_TENSORS; k++) {
            if (!is_summed(m, l, k))
                continue;
            const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(m->gguf, m->layers[l].tensor[k]);
            struct of_tensor is = {(uint32_t)t->ne[0], has_several(k) ? (uint32_t)t->ne[2] : 1, *sums, *counts};
            if (of)
                of[m->layers[l].tensor[k]] = is;
            *sums += (uint64_t)is.n * is.n_mat;
            *counts += is.n_mat;
        }
}

uint64_t ntx_input_sums_bytes(const struct ntx_model *m)
{
    uint64_t sums, counts;
    number_tensors(m, NULL, &sums, &counts);
    return (sums + counts) * sizeof(float) + ntx_gguf_n_tensors(m->gguf) * sizeof(struct of_tensor);
}

struct ntx_input_sums *ntx_input_sums_new(const struct ntx_model *m)
{
    struct ntx_input_sums *s = calloc(1, sizeof *s);
    uint64_t sums, counts;
    if (!s)
        return NULL;
    s->n_tensors = ntx_gguf_n_tensors(m->gguf);
    s->of = calloc(s->n_tensors + 1, sizeof *s->of);
    if (s->of) {
        number_tensors(m, s->of, &sums, &counts);
        s->sum = calloc(sums + 1, sizeof *s->sum);
        s->count = calloc(counts + 1, sizeof *s->count);
    }
    if (s->sum && s->count)
        return s;
    ntx_input_sums_free(s);
    return NULL;
}

void ntx_input_sums_free(struct ntx_input_sums *s)
{
    if (s) {
        free(s->of);
        free(s->sum);
        free(s->count);
    }
    free(s);
}

NTX_CLONES static void add_squares(float *restrict sum, const float *restrict x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        sum[i] += x[i] * x[i];
}

void ntx_input_sums_add(struct ntx_input_sums *s, uint32_t tensor, uint32_t number, const float *x, size_t ld,
                        uint32_t n_rows)
{
    const struct of_tensor *t = &s->of[tensor];
    if (number >= t->n_mat)
        return;
    for (uint32_t i = 0; i < n_rows; i++)
        add_squares(s->sum + t->at + (uint64_t)number * t->n, x + i * ld, t->n);
    s->count[t->count_at + number] += (float)n_rows;
}

uint32_t ntx_input_sums_matrices(const struct ntx_input_sums *s, uint32_t tensor)
{
    return tensor < s->n_tensors ? s->of[tensor].n_mat : 0;
}

const float *ntx_input_sums_of(const struct ntx_input_sums *s, uint32_t tensor, uint32_t number, uint32_t *n,
                               float *count)
{
    const struct of_tensor *t = &s->of[tensor];
    *n = t->n;
    *count = s->count[t->count_at + number];
    return s->sum + t->at + (uint64_t)number * t->n;
}
