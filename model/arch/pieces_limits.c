/* SPDX-License-Identifier: Apache-2.0 */
/* pieces_limits.c: limits of activations that differ from layer to layer (Step 3.5, Ling 3.0). */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "model/arch/arch_impl.h"

/* Reads a list of numbers, one for each layer (and next-token block), or one for all; absent: 0. */
int ntx__key_limits(struct ntx__keys *k, const char *suffix, float *out)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, suffix));
    float all = 0;
    int rc = kv && kv->type == NTX_GGUF_ARR ? 0 : ntx__key_f32(k, suffix, 0, 0, 1e6f, &all);
    if (rc)
        return rc;
    if (kv && kv->type == NTX_GGUF_ARR && (kv->elem != NTX_GGUF_F32 || kv->count < k->hp->n_layers))
        return ntx_err_set(k->err, -EINVAL, "key '%s' is not a list of a floating-point number for each layer", k->key);
    for (uint32_t l = 0; l < k->hp->n_layers; l++) {
        float v = all;
        if (kv && kv->type == NTX_GGUF_ARR)
            memcpy(&v, (const uint8_t *)kv->data + l * sizeof v, sizeof v);
        if (!(v >= 0 && v <= 1e6f))
            return ntx_err_set(k->err, -EINVAL, "key '%s' is %g for layer %u; 0 to 1e+06 are possible", k->key,
                               (double)v, l);
        out[l] = v;
    }
    return 0;
}

/* The input where SiLU, which is increasing there, reaches `limit`: clamping the input clamps the output. */
static float silu_reaches(float limit)
{
    double x = (double)limit + 1;
    for (int i = 0; i < 100 && limit > 0; i++) {
        double s = 1 / (1 + exp(-x));
        x -= (x * s - (double)limit) / (s * (1 + x * (1 - s)));
    }
    return (float)x;
}

static void set_limit(struct ntx_activation *a, float limit)
{
    a->limit = limit;
    a->gate_limit = limit > 0 ? silu_reaches(limit) : 0;
}

/* llama.cpp reads a limit of at most 1e-6 as none. */
void ntx__set_limits(struct ntx_layer *l, float limit, float shared)
{
    limit = limit > 1e-6f ? limit : 0;
    shared = shared > 1e-6f ? shared : 0;
    for (struct ntx_step *s = l->step; s < l->step + l->n_steps; s++) {
        if (s->op == NTX_OP_GLU) /* llama.cpp gives a dense FFN the limit of the shared expert */
            set_limit(&s->glu.hidden, shared);
        if (s->op != NTX_OP_EXPERTS)
            continue;
        set_limit(&s->experts.hidden, limit);
        set_limit(&s->experts.shared, shared);
    }
}
