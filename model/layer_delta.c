/* SPDX-License-Identifier: Apache-2.0 */
#include "model/layer_delta.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"

enum { PAD = 16 /* floats: alignment of a product's input */, RANK_MOST = 1 << 20 };

static int read_base(const struct ntx_gguf *g, uint32_t n_layers, uint32_t **out, struct ntx_err *err)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, "ntx.delta.base");
    if (!kv)
        return 0;
    bool right = kv->type == NTX_GGUF_ARR && kv->elem == NTX_GGUF_U32 && kv->count == n_layers;
    uint32_t *base = right ? malloc(n_layers * sizeof *base) : NULL;
    if (right && !base)
        return ntx_err_set(err, -ENOMEM, "no memory for %u layers", n_layers);
    if (base)
        memcpy(base, kv->data, n_layers * sizeof *base);
    for (uint32_t l = 0; l < n_layers && right; l++)
        right = base[l] < n_layers;
    if (right) {
        *out = base;
        return 0;
    }
    free(base);
    return ntx_err_set(err, -EINVAL, "key 'ntx.delta.base' is no list of %u numbers of layers", n_layers);
}

/* Reads a key of adapter k; false: it is not a finite F32. An absent key leaves *out. */
static bool take_f32(const struct ntx_gguf *g, unsigned k, const char *key, float *out)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_adapter_find(g, k, key);
    if (kv && kv->type == NTX_GGUF_F32)
        memcpy(out, kv->data, sizeof *out);
    return !kv || (kv->type == NTX_GGUF_F32 && isfinite(*out));
}

int ntx_layer_delta_read(const struct ntx_gguf *g, uint32_t n_layers, struct ntx_deltas *out, struct ntx_err *err)
{
    struct ntx_deltas d = {.base = NULL};
    int rc = ntx_gguf_f32(g, "adapter.lora.alpha", &d.alpha[0]);
    if ((rc && rc != -ENOENT) || !isfinite(d.alpha[0]))
        return ntx_err_set(err, -EINVAL, "key 'adapter.lora.alpha' is no number");
    for (unsigned k = 1; k <= ntx_gguf_adapters(g); k++)
        if (!take_f32(g, k, "adapter.lora.alpha", &d.alpha[k]) ||
            !take_f32(g, k, "ntx.delta.error", &d.adapter_error[k]))
            return ntx_err_set(err, -EINVAL, "a key of adapter %u is no number: adapter.lora.alpha, or ntx.delta.error",
                               k);
    rc = ntx_gguf_f32(g, "ntx.delta.error", &d.error);
    if ((rc && rc != -ENOENT) || !(d.error >= 0))
        return ntx_err_set(err, -EINVAL, "key 'ntx.delta.error' is no share");
    rc = read_base(g, n_layers, &d.base, err);
    if (!rc)
        *out = d;
    return rc;
}

static const struct ntx_gguf_tensor *find_tensor(const struct ntx_gguf *g, uint32_t layer, enum ntx_tensor t)
{
    char name[80];
    snprintf(name, sizeof name, "blk.%u.%s", layer, ntx_tensor_kinds[t].name);
    return ntx_gguf_tensor(g, name);
}

uint32_t ntx_layer_delta_rank(const struct ntx_gguf *g, uint32_t layer, enum ntx_tensor low)
{
    const struct ntx_gguf_tensor *t = find_tensor(g, layer, low);
    return t && t->ne[1] < RANK_MOST ? (uint32_t)t->ne[1] : 0;
}

uint32_t ntx_layer_delta_rank_of_high(const struct ntx_gguf *g, uint32_t layer, enum ntx_tensor low)
{
    const struct ntx_gguf_tensor *t = find_tensor(g, layer, (enum ntx_tensor)(low + NTX_HIGH));
    return t && t->ne[0] < RANK_MOST ? (uint32_t)t->ne[0] : 0;
}

/* The low-rank add of a product: which of its three tensors the file has, and where its part of NTX_BUF_LOW begins. */
struct added {
    const struct ntx_step *to;
    enum ntx_tensor low;
    bool thin;
    uint32_t width, at;
    uint8_t set; /* 0: the file itself, else the adapter */
    float scale;
};

float ntx_layer_delta_scale(const struct ntx_deltas *d, uint8_t set, uint32_t rank)
{
    return d->alpha[set] != 0 && rank ? d->alpha[set] / (float)rank : 1;
}
uint32_t ntx_layer_delta_behind(uint32_t width) { return NTX_ROUND_UP(width, (uint32_t)PAD); }

static bool find_added(const struct ntx_gguf *g, const struct ntx_deltas *d, uint32_t layer, const struct ntx_step *s,
                       uint8_t set, struct added *a)
{
    enum ntx_tensor low = s->op == NTX_OP_MM ? ntx_low_of((enum ntx_tensor)s->weight[0]) : NTX_N_TENSORS;
    if (low == NTX_N_TENSORS)
        return false;
    low = (enum ntx_tensor)(low + set * NTX_LOW_SET);
    *a = (struct added){.to = s, .low = low, .set = set};
    const struct ntx_gguf_tensor *rest = find_tensor(g, layer, (enum ntx_tensor)(low + NTX_REST));
    a->width = ntx_layer_delta_rank(g, layer, low);
    a->thin = a->width;
    a->scale = a->thin ? ntx_layer_delta_scale(d, set, a->width) : 1;
    if (!a->thin && rest && rest->ne[1] < RANK_MOST)
        a->width = (uint32_t)rest->ne[1];
    return a->width;
}

static bool same_input(const struct ntx_step *a, const struct ntx_step *b)
{
    return a->op == NTX_OP_MM && b->op == NTX_OP_MM && a->in[0] == b->in[0];
}

/* Appends, after the products of one input, the low-rank products and the steps that add them. */
static void append_steps(struct ntx_layer *l, const struct added *a, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct ntx_step *s = ntx_layer_add(l, NTX_OP_MM, NTX_BUF_LOW, (enum ntx_buf)a[i].to->in[0]);
        s->offset = a[i].at;
        s->width = a[i].width;
        ntx_step_takes(s, (enum ntx_tensor)(a[i].low + (a[i].thin ? NTX_LOW : NTX_REST)), false);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct ntx_step *s = ntx_layer_add(l, NTX_OP_LORA, (enum ntx_buf)a[i].to->out, NTX_BUF_LOW);
        s->from = a[i].at;
        s->offset = a[i].to->offset;
        s->width = a[i].width;
        s->scale = a[i].scale;
        s->adapter = a[i].set;
        if (a[i].thin)
            ntx_step_takes(s, (enum ntx_tensor)(a[i].low + NTX_HIGH), false);
    }
}

int ntx_layer_delta_steps(const struct ntx_gguf *g, struct ntx_deltas *d, uint32_t layer, struct ntx_layer *l,
                          struct ntx_err *err)
{
    struct added a[NTX_LAYER_STEPS];
    struct ntx_step old[NTX_LAYER_STEPS];
    const uint32_t n_old = l->n_steps;
    uint32_t n = 0, at = 0;
    memcpy(old, l->step, sizeof old);
    l->n_steps = 0;
    for (uint32_t i = 0; i < n_old; i++) {
        bool last = i + 1 == n_old || !same_input(&old[i], &old[i + 1]);
        for (uint8_t set = 0; set <= ntx_gguf_adapters(g) && n < NTX_LAYER_STEPS; set++)
            if (find_added(g, d, layer, &old[i], set, &a[n])) {
                a[n].at = at;
                at += ntx_layer_delta_behind(a[n++].width);
            }
        if (old[i].op == NTX_OP_MM &&
            old[i].out == NTX_BUF_LOW) /* a step of the architecture itself, first of its run (pack.h) */
            at = ntx_layer_delta_behind(old[i].offset + old[i].width);
        l->step[l->n_steps++] = old[i];
        if (!last)
            continue;
        d->any |= n;
        if (l->n_steps + 2 * n + (n_old - i - 1) > NTX_LAYER_STEPS)
            return ntx_err_set(err, -ENOTSUP,
                               "layer %u, with all adapters, adds to so many of its matrices that it has more than %u "
                               "steps; load fewer adapters",
                               layer, NTX_LAYER_STEPS);
        append_steps(l, a, n);
        n = at = 0;
    }
    return 0;
}
