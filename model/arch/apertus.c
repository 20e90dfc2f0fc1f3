/* SPDX-License-Identifier: Apache-2.0 */
/* apertus.c: Apertus: norms of each head's q and k; an FFN without a gate, whose activation is xIELU with numbers of
 * each layer. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"

struct own {
    struct ntx_map_step map[NTX_MAX_LAYERS];
};

static double softplus(double x) { return x > 20 ? x : log1p(exp(x)); }

/* Reads number l of a list, or a number for all layers. The keys have no architecture before them. */
static int number_of_layer(struct ntx__keys *k, const char *key, uint32_t l, float *out)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, key);
    const bool list = kv && kv->type == NTX_GGUF_ARR;
    if (!kv || (list && (kv->elem != NTX_GGUF_F32 || kv->count < k->hp->n_layers)) ||
        (!list && ntx_gguf_f32(k->g, key, out)))
        return ntx_err_set(k->err, -EINVAL, "key '%s' is missing, or not a list of a number for each layer", key);
    if (list)
        memcpy(out, (const uint8_t *)kv->data + l * sizeof *out, sizeof *out);
    return isfinite(*out) ? 0 : ntx_err_set(k->err, -EINVAL, "key '%s' is not finite for layer %u", key, l);
}

static int apertus_keys(struct ntx__keys *k)
{
    struct own *own = ntx__own(k, sizeof *own);
    k->hp->ungated = true;
    for (uint32_t l = 0; own && l < k->hp->n_layers; l++) {
        struct ntx_map_step *m = &own->map[l];
        int rc;
        if ((rc = number_of_layer(k, "xielu.alpha_p", l, &m->alpha_p)) ||
            (rc = number_of_layer(k, "xielu.alpha_n", l, &m->alpha_n)) ||
            (rc = number_of_layer(k, "xielu.beta", l, &m->beta)) || (rc = number_of_layer(k, "xielu.eps", l, &m->eps)))
            return rc;
        m->kind = NTX_MAP_XIELU;
        m->alpha_p = (float)softplus((double)m->alpha_p);
        m->alpha_n = m->beta + (float)softplus((double)m->alpha_n);
    }
    return own ? 0 : -ENOMEM;
}

static void apertus_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct own *own = m->hp.own;
    ntx__add_attention(&m->hp, out,
                       &(struct ntx__attention){.rope = NTX_ROPE_NEOX, .o_bias = NTX__MAYBE, .qk_norm = NTX__ALWAYS});
    ntx__norm(out, NTX_BUF_X, NTX_BUF_H, NTX_T_ffn_norm, NTX__ALWAYS, 1, m->hp.n_embd);
    ntx__add_product(out, NTX_BUF_GATE, NTX_BUF_X, NTX_T_up);
    struct ntx_step *s = ntx_layer_add(out, NTX_OP_MAP, NTX_BUF_GATE, NTX_BUF_GATE);
    s->width = m->hp.n_ff;
    if (own)
        s->map = own->map[l];
    ntx__add_product(out, NTX_BUF_Y, NTX_BUF_GATE, NTX_T_down);
    ntx__add_state(&m->hp, out);
}

/* ---- models by name (model/arch.h) */

#define XIELU "/xielu.alpha_p=0.0 /xielu.alpha_n=0.0 /xielu.beta=0.5 /xielu.eps=0.0"
static const struct ntx_known models[] = {
    {"apertus-8b", 32, 4096, 21504, 32, 8, 128, 131072, 65536, 0, 0, 0, XIELU, ""},
    {"apertus-70b", 80, 8192, 43008, 64, 8, 128, 131072, 65536, 0, 0, 0, XIELU, ""},
    {0},
};

const struct ntx__arch ntx__arch_apertus = {.keys = apertus_keys, .layer = apertus_layer, .models = models};
