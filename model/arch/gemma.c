/* SPDX-License-Identifier: Apache-2.0 */
/* gemma.c: Gemma 2 and 3: norms before and after attention and FFN, GELU, a scaled embedding, sliding windows in
 * most layers. Gemma 2: caps of scores and logits. Gemma 3: norms of each head's q and k; layers with a window have
 * a RoPE base of their own, unscaled. */
#include <errno.h>
#include <math.h>

#include "model/arch/arch_impl.h"

enum { EVERY_2 = 2, WINDOW_2 = 4096, LAYERS_2_27B = 46, EVERY_3 = 6, LAYERS_3_27B = 62 };

/* The largest models divide scores by sqrt(n_embd / n_head), not by the root of a head's width. Files do not say so. */
static void set_score_scale(struct ntx_hparams *hp, uint32_t layers_27b)
{
    hp->embd_scale = sqrtf((float)hp->n_embd);
    hp->score_scale = 1 / sqrtf((float)(hp->n_layers == layers_27b ? hp->n_embd / hp->n_head : hp->head_k));
}

struct own {         /* numbers of Gemma 2 */
    float score_cap; /* scores x become cap * tanh(x / cap) */
};

static int keys2(struct ntx__keys *k)
{
    struct own *own = ntx__own(k, sizeof *own);
    int rc;
    if (!own)
        return -ENOMEM;
    if ((rc = ntx__key_windows(k, WINDOW_2, EVERY_2)) ||
        (rc = ntx__key_f32(k, "attn_logit_softcapping", 50, 1e-3f, 1e6f, &own->score_cap)) ||
        (rc = ntx__key_f32(k, "final_logit_softcapping", 30, 1e-3f, 1e6f, &k->hp->logit_cap)))
        return rc;
    set_score_scale(k->hp, LAYERS_2_27B);
    return 0;
}

static int keys3(struct ntx__keys *k)
{
    int rc;
    if ((rc = ntx__key_windows(k, 0, EVERY_3)) ||
        (rc = ntx__key_f32(k, "rope.freq_base_swa", 10000, 1, 1e12f, &k->hp->rope_base_window)) ||
        (rc = ntx__key_f32(k, "final_logit_softcapping", 0, 0, 1e6f, &k->hp->logit_cap)))
        return rc;
    k->hp->rope_factor_window = 1;
    k->hp->rope_dim_window = k->hp->rope_dim;
    set_score_scale(k->hp, LAYERS_3_27B);
    return 0;
}

static void layer2(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    const struct own *own = hp->own;
    const struct ntx__attention has = {.rope = NTX_ROPE_NEOX,
                                       .post_norm = true,
                                       .scale = hp->score_scale,
                                       .cap = own ? own->score_cap : 0,
                                       .window = ntx_windowed(hp, l) ? hp->window : 0};
    ntx__add_attention(hp, out, &has);
    ntx__add_dense_normed(m, l, out, NTX_FFN_GELU);
}

static void layer3(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    bool windowed = ntx_windowed(hp, l);
    const struct ntx__attention has = {.rope = NTX_ROPE_NEOX,
                                       .qk_norm = NTX__ALWAYS,
                                       .post_norm = true,
                                       .scale = hp->score_scale,
                                       .turn = windowed ? NTX_ROTATION_WINDOW : NTX_ROTATION_ALL,
                                       .window = windowed ? hp->window : 0};
    ntx__add_attention(hp, out, &has);
    ntx__add_dense_normed(m, l, out, NTX_FFN_GELU);
}

#define WINDOWS "attention.sliding_window", "attention.sliding_window_pattern", "final_logit_softcapping"

/* ---- models by name (model/arch.h) */

static const struct ntx_known models_gemma2[] = {
    {"gemma-2-9b", 42, 3584, 14336, 16, 8, 256, 256000, 8192, 0, 0, 0, "", ""},
    {"gemma-2-27b", 46, 4608, 36864, 32, 16, 128, 256000, 8192, 0, 0, 0, "", ""},
    {0},
};
static const struct ntx_known models_gemma3[] = {
    {"gemma-3-4b", 34, 2560, 10240, 8, 4, 256, 262208, 131072, 0, 0, 0, "attention.sliding_window=1024", ""},
    {"gemma-3-12b", 48, 3840, 15360, 16, 8, 256, 262208, 131072, 0, 0, 0, "attention.sliding_window=1024", ""},
    {"gemma-3-27b", 62, 5376, 21504, 32, 16, 128, 262208, 131072, 0, 0, 0, "attention.sliding_window=1024", ""},
    {0},
};

const struct ntx__arch ntx__arch_gemma2 = {
    .keys = keys2, .own = {WINDOWS, "attn_logit_softcapping"}, .layer = layer2, .models = models_gemma2};
const struct ntx__arch ntx__arch_gemma3 = {
    .keys = keys3, .own = {WINDOWS, "rope.freq_base_swa"}, .layer = layer3, .models = models_gemma3};
