/* SPDX-License-Identifier: Apache-2.0 */
#include "model/pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "model/layer_delta.h"
#include "model/quant.h"

#define GROUP_BYTES_MAX (64u << 20)

int ntx_pack_layout(struct ntx_pack_layer *p, uint32_t n_embd, uint32_t n_ff, bool gate)
{
    uint64_t at = 0;
    if (!p->group || p->group > n_ff)
        return -EINVAL;
    for (int part = 0; part < NTX_PACK_PARTS; part++) {
        bool in = gate || part != NTX_PACK_GATE;
        const uint32_t width = part == NTX_PACK_DOWN && p->down_rows ? p->group : n_embd;
        size_t row = in && p->type[part] != NTX_I8 ? ntx_row_bytes(p->type[part], width) : 0;
        if (in && !row)
            return -EINVAL;
        p->row_bytes[part] = (uint32_t)row;
        at = NTX_ROUND_UP(at, 2u); /* aligns rows that follow rows of MXFP4, whose blocks have 17 bytes */
        p->at[part] = (uint32_t)at;
        at += (uint64_t)row * ntx_pack_rows(p, (enum ntx_pack_part)part, n_embd);
        if (at > GROUP_BYTES_MAX)
            return -EINVAL;
    }
    const uint32_t block = ntx_type_info(p->type[NTX_PACK_DOWN])->block;
    if (p->down_rows && (block == 1 || n_ff % block)) /* single values are in columns */
        return -EINVAL;
    p->group_bytes = NTX_ROUND_UP((uint32_t)at, NTX_PACK_BLOCK);
    p->n_groups = (n_ff + p->group - 1) / p->group;
    return 0;
}

int ntx_pack_layout_added(struct ntx_pack_layer *p)
{
    uint64_t at = 0;
    for (int part = NTX_PACK_UP; part <= NTX_PACK_DOWN; part++) {
        struct ntx_pack_added *a = &p->added[part];
        size_t row = a->type != NTX_I8 ? ntx_row_bytes(a->type, a->rank) : 0;
        if (!row != (a->type == NTX_I8))
            return -EINVAL;
        a->row_bytes = (uint32_t)row;
        at = NTX_ROUND_UP(at, 4u);
        a->at = (uint32_t)at;
        at += (uint64_t)row * p->group;
        if (at > GROUP_BYTES_MAX)
            return -EINVAL;
    }
    p->added_bytes = NTX_ROUND_UP((uint32_t)at, NTX_PACK_BLOCK);
    return 0;
}

uint32_t ntx_pack_group_for(uint64_t bytes, uint64_t neuron_bytes)
{
    uint32_t best = (uint32_t)NTX_MAX(bytes / neuron_bytes, 1u), first = best;
    double least = 2;
    for (uint32_t n = first; n == first || n * neuron_bytes <= bytes + bytes / 2; n++) {
        double waste = (double)NTX_ROUND_UP(n * neuron_bytes, (uint64_t)NTX_PACK_BLOCK) / (double)(n * neuron_bytes);
        if (waste < least - 0.005) {
            least = waste;
            best = n;
        }
    }
    return best;
}

/* Reads an array of u32 with one entry per layer. -ENOENT: it is absent. */
static int get_array(const struct ntx_gguf *g, const char *key, uint32_t n, uint32_t *v, struct ntx_err *err)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, key);
    if (!kv)
        return -ENOENT;
    if (kv->type != NTX_GGUF_ARR || kv->elem != NTX_GGUF_U32 || kv->count != n)
        return ntx_err_set(err, -EINVAL, "key '%s' is no array of %u integers, one for each layer", key, n);
    memcpy(v, kv->data, n * sizeof *v);
    return 0;
}

static int need_array(const struct ntx_gguf *g, const char *key, uint32_t n, uint32_t *v, struct ntx_err *err)
{
    int rc = get_array(g, key, n, v, err);
    return rc == -ENOENT ? ntx_err_set(err, -EINVAL, "key '%s' is missing in a packed model", key) : rc;
}

/* Reads types of additions. Their ranks are those of the matrices outside of the groups. */
static int get_added(const struct ntx_gguf *g, uint32_t n, uint32_t n_embd, uint32_t *v, struct ntx_pack_layer *p,
                     struct ntx_err *err)
{
    static const char *const keys[NTX_PACK_PARTS] = {
        [NTX_PACK_UP] = "ntx.pack.up_delta_type", [NTX_PACK_DOWN] = "ntx.pack.down_delta_type"};
    int rc = 0;
    if (!ntx_gguf_find(g, keys[NTX_PACK_UP]) && !ntx_gguf_find(g, keys[NTX_PACK_DOWN]))
        return 0;
    for (int part = NTX_PACK_UP; part <= NTX_PACK_DOWN && !rc; part++) {
        rc = need_array(g, keys[part], n, v, err);
        for (uint32_t l = 0; l < n && !rc; l++) {
            p[l].adds = true;
            const uint32_t rank = part == NTX_PACK_UP ? ntx_layer_delta_rank(g, l, NTX_T_up_low)
                                                      : ntx_layer_delta_rank_of_high(g, l, NTX_T_down_low);
            p[l].added[part] = (struct ntx_pack_added){.type = v[l], .rank = rank ? rank : n_embd, .whole = !rank};
        }
    }
    for (uint32_t l = 0; l < n && !rc; l++)
        if (ntx_pack_has_gate(&p[l]) || ntx_pack_layout_added(&p[l]))
            rc = ntx_err_set(err, -EINVAL,
                             "layer %u: what is added to ffn_up and ffn_down, of the ranks %u and %u in the types %u "
                             "and %u, is not possible in groups of %u neurons",
                             l, p[l].added[NTX_PACK_UP].rank, p[l].added[NTX_PACK_DOWN].rank,
                             p[l].added[NTX_PACK_UP].type, p[l].added[NTX_PACK_DOWN].type, p[l].group);
    return rc;
}

static int get_down_rows(const struct ntx_gguf *g, uint32_t n, uint32_t *v, struct ntx_pack_layer *p,
                         struct ntx_err *err)
{
    int rc = need_array(g, "ntx.pack.down_rows", n, v, err);
    for (uint32_t l = 0; l < n && !rc; l++) {
        if (v[l] > 1)
            return ntx_err_set(err, -EINVAL, "key 'ntx.pack.down_rows' is %u for layer %u, not 0 or 1", v[l], l);
        p[l].down_rows = v[l];
    }
    return rc;
}

static int get_layers(const struct ntx_gguf *g, uint32_t n, uint32_t n_embd, uint32_t n_ff, uint32_t *v,
                      struct ntx_pack_layer *p, struct ntx_err *err)
{
    static const char *const keys[] = {"ntx.pack.gate_type", "ntx.pack.up_type", "ntx.pack.down_type"};
    int rc = need_array(g, "ntx.pack.group", n, v, err), gate = -ENOENT;
    for (uint32_t l = 0; l < n && !rc; l++)
        p[l].group = v[l];
    for (int part = 0; part < NTX_PACK_PARTS && !rc; part++) {
        rc = part == NTX_PACK_GATE ? (gate = get_array(g, keys[part], n, v, err))
                                   : need_array(g, keys[part], n, v, err);
        for (uint32_t l = 0; l < n && !rc; l++)
            p[l].type[part] = v[l];
        if (part == NTX_PACK_GATE && rc == -ENOENT)
            rc = 0;
    }
    for (uint32_t l = 0; l < n && !rc; l++)
        if (ntx_pack_layout(&p[l], n_embd, n_ff, !gate))
            rc = ntx_err_set(err, -EINVAL,
                             "layer %u: groups of %u neurons in the types %u and %u are not possible for a width of %u",
                             l, p[l].group, p[l].type[NTX_PACK_UP], p[l].type[NTX_PACK_DOWN], n_embd);
    return rc ? rc : get_added(g, n, n_embd, v, p, err);
}

int ntx_pack_read(const struct ntx_gguf *g, uint32_t n_layers, uint32_t n_embd, uint32_t n_ff,
                  struct ntx_pack_layer **layers, struct ntx_err *err)
{
    uint64_t version;
    int rc = ntx_gguf_u64(g, "ntx.pack.version", &version);
    if (rc == -ENOENT) {
        *layers = NULL;
        return 0;
    }
    if (rc || (version != NTX_PACK_VERSION && version != NTX_PACK_VERSION_ROWS))
        return ntx_err_set(err, -ENOTSUP,
                           "key 'ntx.pack.version' is not %u or %u: pack the model again with this version's ntx pack",
                           NTX_PACK_VERSION, NTX_PACK_VERSION_ROWS);
    struct ntx_pack_layer *p = calloc(n_layers, sizeof *p);
    uint32_t *v = calloc(n_layers, sizeof *v);
    rc = p && v ? 0 : ntx_err_set(err, -ENOMEM, "no memory for %u layers", n_layers);
    if (!rc && version == NTX_PACK_VERSION_ROWS)
        rc = get_down_rows(g, n_layers, v, p, err);
    if (!rc)
        rc = get_layers(g, n_layers, n_embd, n_ff, v, p, err);
    free(v);
    if (rc) {
        free(p);
        return rc;
    }
    *layers = p;
    return 0;
}
