/* SPDX-License-Identifier: Apache-2.0 */
#include "model/pack_make.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "model/gguf_out.h"
#include "model/quant.h"
#include "model/quantize.h"

#define COPY_BYTES (1u << 20)

struct maker {
    const struct ntx_model *m;
    struct ntx_pack_source source;
    const struct ntx_pack_options *o;
    struct ntx_pack_layer *pack; /* [n_layers] */
    struct ntx_pack_report *report;
    struct ntx_quantizer *quantizer[NTX_TYPE_LIMIT]; /* for the types of down columns */
    double error, squares;
};

/* ---- reading */

static int read_at(int fd, void *p, size_t n, uint64_t at, const char *name, struct ntx_err *err)
{
    const int rc = ntx_read_at(fd, p, n, at);
    return rc ? ntx_err_set(err, rc, "tensor '%s' cannot be read at %llu: %s", name, (unsigned long long)at,
                            ntx_read_error(rc))
              : 0;
}

/* Reads all of a tensor, malloc'd. */
static int load_tensor(struct ntx_pack_source s, const struct ntx_gguf_tensor *t, uint8_t **out, struct ntx_err *err)
{
    uint8_t *p = malloc(t->bytes);
    int rc = p ? read_at(s.fds[t->file], p, t->bytes, t->offset, t->name, err)
               : ntx_err_set(err, -ENOMEM, "no memory for tensor '%s'", t->name);
    if (rc)
        free(p);
    else
        *out = p;
    return rc;
}

static const struct ntx_gguf_tensor *tensor_of(const struct maker *k, uint32_t tensor)
{
    return ntx_gguf_tensor_at(k->source.gguf, tensor);
}

/* The tensor that down is taken from: the more precise model's, if there is one. */
static const struct ntx_gguf_tensor *down_of(const struct maker *k, uint32_t layer, struct ntx_pack_source *from)
{
    const struct ntx_gguf_tensor *t = tensor_of(k, k->m->layers[layer].down);
    *from = k->o->precise.gguf ? k->o->precise : k->source;
    return k->o->precise.gguf ? ntx_gguf_tensor(k->o->precise.gguf, t->name) : t;
}

static uint32_t neuron_at(const struct maker *k, uint32_t layer, uint32_t place)
{
    return k->o->order ? k->o->order[(size_t)layer * k->m->hp.n_ff + place] : place;
}

/* ---- the groups of a layer */

/* Dequantises rows of n_ff values and transposes them: down [n_embd x n_ff], or ffn_down's lora_a [rank x n_ff],
 * becomes n_ff rows. */
static void transpose(const struct ntx_gguf_tensor *t, const uint8_t *down, float *row, float *columns)
{
    const struct ntx_type_info *type = ntx_type_info(t->type);
    uint64_t n_ff = t->ne[0], n_embd = t->ne[1], row_bytes = ntx_row_bytes(t->type, n_ff);
    for (uint64_t k = 0; k < n_embd; k++) {
        type->dequant(down + k * row_bytes, row, n_ff / type->block);
        for (uint64_t j = 0; j < n_ff; j++)
            columns[j * n_embd + k] = row[j];
    }
}

static int load_columns(struct ntx_pack_source from, const struct ntx_gguf_tensor *t, float **out, struct ntx_err *err)
{
    uint8_t *raw = NULL;
    int rc = load_tensor(from, t, &raw, err);
    if (rc)
        return rc;
    float *row = malloc(t->ne[0] * sizeof *row), *columns = malloc(t->ne[0] * t->ne[1] * sizeof *columns);
    if (row && columns) {
        transpose(t, raw, row, columns);
        *out = columns;
    } else {
        rc = ntx_err_set(err, -ENOMEM, "no memory for tensor '%s' as floats", t->name);
        free(columns);
    }
    free(row);
    free(raw);
    return rc;
}

/* Quantises a column, and adds its error to the sums. */
static void put_column(const struct maker *k, uint32_t as, const float *x, uint32_t n, float *back, uint8_t *out,
                       double *error, double *squares)
{
    const struct ntx_type_info *type = ntx_type_info(as);
    ntx_quantize(k->quantizer[as], x, NULL, out, n / type->block);
    type->dequant(out, back, n / type->block);
    for (uint32_t i = 0; i < n; i++) {
        double d = (double)back[i] - (double)x[i];
        *error += d * d;
        *squares += (double)x[i] * (double)x[i];
    }
}

struct layer_parts {
    uint8_t *gate, *up; /* gate: NULL if it is not in the groups */
    uint8_t *down;      /* as in the file, if groups have its rows; else: */
    float *columns;     /* [n_ff x n_embd] */
    float *back;        /* [n_embd] */
    uint8_t *group;     /* [group_bytes] */
};

/* Puts the blocks of n neurons from `first` on, output by output. */
static void put_rows(const struct maker *k, const struct ntx_pack_layer *p, const struct layer_parts *l, uint32_t first,
                     uint32_t n)
{
    const uint32_t type = p->type[NTX_PACK_DOWN], n_embd = k->m->hp.n_embd;
    const size_t row = ntx_row_bytes(type, k->m->hp.n_ff), at = ntx_row_bytes(type, first),
                 bytes = ntx_row_bytes(type, n);
    for (uint32_t o = 0; o < n_embd; o++)
        memcpy(l->group + p->at[NTX_PACK_DOWN] + (size_t)o * p->row_bytes[NTX_PACK_DOWN], l->down + o * row + at,
               bytes);
}

static void put_group(const struct maker *k, uint32_t layer, uint32_t g, const struct layer_parts *l, double *error,
                      double *squares)
{
    const struct ntx_pack_layer *p = &k->pack[layer];
    uint32_t n_embd = k->m->hp.n_embd, first = g * p->group, n = NTX_MIN(p->group, k->m->hp.n_ff - first);
    const uint8_t *const rows[] = {[NTX_PACK_GATE] = l->gate, [NTX_PACK_UP] = l->up};
    memset(l->group, 0, p->group_bytes);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = neuron_at(k, layer, first + i);
        for (int part = NTX_PACK_GATE; part <= NTX_PACK_UP; part++)
            if (p->row_bytes[part])
                memcpy(l->group + p->at[part] + (size_t)i * p->row_bytes[part],
                       rows[part] + (size_t)j * p->row_bytes[part], p->row_bytes[part]);
        if (!p->down_rows)
            put_column(k, p->type[NTX_PACK_DOWN], l->columns + (size_t)j * n_embd, n_embd, l->back,
                       l->group + p->at[NTX_PACK_DOWN] + (size_t)i * p->row_bytes[NTX_PACK_DOWN], error, squares);
    }
    if (p->down_rows)
        put_rows(k, p, l, first, n);
}

static void note_error(struct maker *k, uint32_t layer, double error, double squares)
{
    double e = squares > 0 ? sqrt(error / squares) : 0;
    if (layer == 0 || e > k->report->worst) {
        k->report->worst = e;
        k->report->worst_layer = layer;
    }
    k->error += error;
    k->squares += squares;
}

static int alloc_parts(struct layer_parts *l, uint32_t values, uint32_t group_bytes, struct ntx_err *err)
{
    l->back = malloc(values * sizeof *l->back);
    l->group = malloc(group_bytes);
    return l->back && l->group ? 0 : ntx_err_set(err, -ENOMEM, "no memory for a group of neurons");
}

static void free_parts(struct layer_parts *l)
{
    free(l->gate);
    free(l->up);
    free(l->down);
    free(l->columns);
    free(l->back);
    free(l->group);
}

static int load_parts(const struct maker *k, uint32_t layer, struct layer_parts *l, struct ntx_err *err)
{
    const struct ntx_layer *t = &k->m->layers[layer];
    const struct ntx_pack_layer *p = &k->pack[layer];
    struct ntx_pack_source from;
    const struct ntx_gguf_tensor *down = down_of(k, layer, &from);
    int rc = load_tensor(k->source, tensor_of(k, t->up), &l->up, err);
    if (!rc && ntx_pack_has_gate(p))
        rc = load_tensor(k->source, tensor_of(k, t->gate), &l->gate, err);
    if (!rc)
        rc = p->down_rows ? load_tensor(from, down, &l->down, err) : load_columns(from, down, &l->columns, err);
    return rc ? rc : alloc_parts(l, k->m->hp.n_embd, p->group_bytes, err);
}

static int write_groups(void *ctx, uint32_t layer, int fd, struct ntx_err *err)
{
    struct maker *k = ctx;
    struct layer_parts l = {0};
    double error = 0, squares = 0;
    if (k->o->tell)
        k->o->tell(layer, k->m->hp.n_layers);
    int rc = load_parts(k, layer, &l, err);
    for (uint32_t g = 0; g < k->pack[layer].n_groups && !rc; g++) {
        put_group(k, layer, g, &l, &error, &squares);
        rc = ntx_write_all(fd, l.group, k->pack[layer].group_bytes);
    }
    note_error(k, layer, error, squares);
    free_parts(&l);
    return rc;
}

/* ---- what a layer adds to groups that it shares */

/* The tensor that a layer adds to up (lora_b, or the full matrix) or to down (lora_a, or the full matrix);
 * NTX_NO_TENSOR: none. */
static uint32_t added_tensor(const struct ntx_layer *t, enum ntx_pack_part part, bool *whole)
{
    const uint32_t thin = part == NTX_PACK_UP ? t->up_high : t->down_low,
                   rest = part == NTX_PACK_UP ? t->up_rest : t->down_rest;
    *whole = thin == NTX_NO_TENSOR;
    return *whole ? rest : thin;
}

static int load_added(const struct maker *k, uint32_t layer, struct layer_parts *l, struct ntx_err *err)
{
    const struct ntx_layer *t = &k->m->layers[layer];
    const struct ntx_pack_layer *p = &k->pack[layer];
    bool whole;
    const uint32_t up = added_tensor(t, NTX_PACK_UP, &whole), down = added_tensor(t, NTX_PACK_DOWN, &whole);
    int rc = up != NTX_NO_TENSOR ? load_tensor(k->source, tensor_of(k, up), &l->up, err) : 0;
    if (!rc && down != NTX_NO_TENSOR)
        rc = load_columns(k->source, tensor_of(k, down), &l->columns, err);
    return rc ? rc : alloc_parts(l, p->added[NTX_PACK_DOWN].rank + 1, p->added_bytes, err);
}

static void put_added(const struct maker *k, uint32_t layer, uint32_t g, const struct layer_parts *l, double *error,
                      double *squares)
{
    const struct ntx_pack_layer *p = &k->pack[layer];
    const struct ntx_pack_added *up = &p->added[NTX_PACK_UP], *down = &p->added[NTX_PACK_DOWN];
    const uint32_t first = g * p->group, n = NTX_MIN(p->group, k->m->hp.n_ff - first);
    memset(l->group, 0, p->added_bytes);
    if (up->row_bytes)
        memcpy(l->group + up->at, l->up + (size_t)first * up->row_bytes, (size_t)n * up->row_bytes);
    for (uint32_t i = 0; i < n && down->row_bytes; i++)
        put_column(k, down->type, l->columns + (size_t)(first + i) * down->rank, down->rank, l->back,
                   l->group + down->at + (size_t)i * down->row_bytes, error, squares);
}

static int write_added(void *ctx, uint32_t layer, int fd, struct ntx_err *err)
{
    struct maker *k = ctx;
    struct layer_parts l = {0};
    double error = 0, squares = 0;
    int rc = load_added(k, layer, &l, err);
    for (uint32_t g = 0; g < k->pack[layer].n_groups && !rc; g++) {
        put_added(k, layer, g, &l, &error, &squares);
        rc = ntx_write_all(fd, l.group, k->pack[layer].added_bytes);
    }
    note_error(k, layer, error, squares);
    free_parts(&l);
    return rc;
}

/* ---- the rest of the file */

static int write_copy(void *ctx, uint32_t tensor, int fd, struct ntx_err *err)
{
    const struct maker *k = ctx;
    const struct ntx_gguf_tensor *t = tensor_of(k, tensor);
    uint8_t *buf = malloc(COPY_BYTES);
    int rc = buf ? 0 : ntx_err_set(err, -ENOMEM, "no memory");
    for (uint64_t at = 0, n; at < t->bytes && !rc; at += n) {
        n = NTX_MIN(t->bytes - at, (uint64_t)COPY_BYTES);
        if (!(rc = read_at(k->source.fds[t->file], buf, n, t->offset + at, t->name, err)))
            rc = ntx_write_all(fd, buf, n);
    }
    free(buf);
    return rc;
}

/* Writes a gate matrix with its rows in the new order of neurons. */
static int write_gate(void *ctx, uint32_t layer, int fd, struct ntx_err *err)
{
    const struct maker *k = ctx;
    const struct ntx_gguf_tensor *t = tensor_of(k, k->m->layers[layer].gate);
    size_t row = ntx_row_bytes(t->type, t->ne[0]);
    uint8_t *gate = NULL;
    int rc = load_tensor(k->source, t, &gate, err);
    for (uint32_t i = 0; i < k->m->hp.n_ff && !rc; i++)
        rc = ntx_write_all(fd, gate + neuron_at(k, layer, i) * row, row);
    free(gate);
    return rc;
}

static bool replaced_key(struct ntx_str key)
{
    return (key.n == 17 && !memcmp(key.p, "general.alignment", 17)) || (key.n > 6 && !memcmp(key.p, "split.", 6));
}

static uint32_t group_number(const struct ntx_pack_layer *p) { return p->group; }
static uint32_t gate_number(const struct ntx_pack_layer *p) { return p->type[NTX_PACK_GATE]; }
static uint32_t up_number(const struct ntx_pack_layer *p) { return p->type[NTX_PACK_UP]; }
static uint32_t rows_number(const struct ntx_pack_layer *p) { return p->down_rows; }
static uint32_t down_number(const struct ntx_pack_layer *p) { return p->type[NTX_PACK_DOWN]; }
static uint32_t added_up_number(const struct ntx_pack_layer *p) { return p->added[NTX_PACK_UP].type; }
static uint32_t added_down_number(const struct ntx_pack_layer *p) { return p->added[NTX_PACK_DOWN].type; }

static int put_u32s(struct ntx_gguf_out *g, const struct maker *k, const char *key,
                    uint32_t (*number)(const struct ntx_pack_layer *))
{
    uint32_t n = k->m->hp.n_layers, *v = malloc(n * sizeof *v);
    if (!v)
        return -ENOMEM;
    for (uint32_t l = 0; l < n; l++)
        v[l] = number(&k->pack[l]);
    ntx_gguf_out_u32s(g, key, v, n);
    free(v);
    return 0;
}

static int put_keys(struct ntx_gguf_out *g, const struct maker *k)
{
    for (uint64_t i = 0; i < ntx_gguf_n_kv(k->source.gguf); i++)
        if (!replaced_key(ntx_gguf_kv_at(k->source.gguf, i)->key))
            ntx_gguf_out_copy(g, ntx_gguf_kv_at(k->source.gguf, i));
    ntx_gguf_out_align(g, NTX_PACK_BLOCK);
    bool rows = false;
    for (uint32_t l = 0; l < k->m->hp.n_layers; l++)
        rows |= k->pack[l].down_rows;
    ntx_gguf_out_u32(g, "ntx.pack.version", rows ? NTX_PACK_VERSION_ROWS : NTX_PACK_VERSION);
    int rc = put_u32s(g, k, "ntx.pack.group", group_number);
    if (!rc && rows)
        rc = put_u32s(g, k, "ntx.pack.down_rows", rows_number);
    if (!rc && k->o->gate_in_bundle)
        rc = put_u32s(g, k, "ntx.pack.gate_type", gate_number);
    if (!rc)
        rc = put_u32s(g, k, "ntx.pack.up_type", up_number);
    if (!rc)
        rc = put_u32s(g, k, "ntx.pack.down_type", down_number);
    if (!rc && k->pack[0].adds && !(rc = put_u32s(g, k, "ntx.pack.up_delta_type", added_up_number)))
        rc = put_u32s(g, k, "ntx.pack.down_delta_type", added_down_number);
    return rc;
}

/* The layer whose matrix t has this number in the file; none if it is not an FFN matrix. */
static uint32_t layer_with(const struct maker *k, uint32_t tensor, enum ntx_tensor t)
{
    for (uint32_t l = 0; l < k->m->hp.n_layers; l++)
        if (k->m->layers[l].tensor[t] == tensor)
            return l;
    return UINT32_MAX;
}

/* The layer in the tensor's name: one of those that share it, not always the first. */
static uint32_t named_layer(const struct ntx_gguf_tensor *t)
{
    unsigned layer = 0;
    return sscanf(t->name, "blk.%u.", &layer) == 1 ? layer : 0;
}

/* A layer's additions are written at the place of the first of the tensors that they replace. */
static bool put_added_tensor(struct ntx_gguf_out *g, struct maker *k, uint32_t i)
{
    const uint32_t up = NTX_MIN(layer_with(k, i, NTX_T_up_high), layer_with(k, i, NTX_T_up_rest)),
                   down = NTX_MIN(layer_with(k, i, NTX_T_down_low), layer_with(k, i, NTX_T_down_rest));
    const uint32_t layer = NTX_MIN(up, down);
    char name[80];
    if (layer == UINT32_MAX)
        return false;
    const struct ntx_pack_layer *p = &k->pack[layer];
    if (up != UINT32_MAX || !ntx_pack_adds(p, NTX_PACK_UP)) {
        const uint64_t ne[4] = {p->added_bytes, p->n_groups, 1, 1};
        snprintf(name, sizeof name, "blk.%u." NTX_PACK_ADDED_TENSOR, layer);
        ntx_gguf_out_data(g, name, NTX_I8, ne, 2, write_added, k, layer);
    }
    return true;
}

/* Groups are written at the place of the layer's up matrix. */
static void put_tensor(struct ntx_gguf_out *g, struct maker *k, uint32_t i)
{
    const struct ntx_gguf_tensor *t = tensor_of(k, i);
    uint32_t up = layer_with(k, i, NTX_T_up), gate = layer_with(k, i, NTX_T_gate);
    char name[80];
    if (put_added_tensor(g, k, i) || layer_with(k, i, NTX_T_down) != UINT32_MAX ||
        (gate != UINT32_MAX && k->o->gate_in_bundle))
        return;
    if (up != UINT32_MAX) {
        uint64_t ne[4] = {k->pack[up].group_bytes, k->pack[up].n_groups, 1, 1};
        snprintf(name, sizeof name, "blk.%u." NTX_PACK_TENSOR, named_layer(t));
        ntx_gguf_out_data(g, name, NTX_I8, ne, 2, write_groups, k, up);
    } else if (gate != UINT32_MAX && k->o->order) {
        ntx_gguf_out_data(g, t->name, t->type, t->ne, t->n_dims, write_gate, k, gate);
    } else {
        ntx_gguf_out_data(g, t->name, t->type, t->ne, t->n_dims, write_copy, k, i);
    }
}

/* ---- the choices */

static bool writable(uint32_t type, uint32_t n_embd) { return ntx_quantizes(type) && ntx_row_bytes(type, n_embd); }

/* The type has fewer than four bits per value. */
static bool coarse(uint32_t type) { return ntx_type_info(type)->block_bytes * 8 < ntx_type_info(type)->block * 4; }

static uint32_t down_type(const struct maker *k, uint32_t layer)
{
    uint32_t type = tensor_of(k, k->m->layers[layer].down)->type, n = k->m->hp.n_embd;
    if (k->o->down_type != NTX_TYPE_LIMIT)
        return k->o->down_type;
    if (!k->o->precise.gguf)
        return type;
    if (coarse(type)) /* a second rounding to so few bits would cost too much */
        type = NTX_Q4_K;
    if (writable(type, n))
        return type;
    return writable(NTX_Q8_0, n) ? NTX_Q8_0 : NTX_F16;
}

/* Columns of thin matrices become F32, which keeps their values; those of full ones become another type only where
 * the user allows it (refuse_added). */
static uint32_t type_of_column(uint32_t type, uint32_t rank, bool whole)
{
    if (!whole)
        return NTX_F32;
    if (!coarse(type) && writable(type, rank))
        return type;
    return writable(NTX_Q8_0, rank) ? NTX_Q8_0 : NTX_F16;
}

/* Chooses the types of additions: rows keep theirs; columns keep theirs only if each value is stored by itself. */
static void choose_added(struct maker *k, uint32_t layer)
{
    for (int part = NTX_PACK_UP; part <= NTX_PACK_DOWN; part++) {
        struct ntx_pack_added *a = &k->pack[layer].added[part];
        const uint32_t i = added_tensor(&k->m->layers[layer], (enum ntx_pack_part)part, &a->whole);
        const struct ntx_gguf_tensor *t = i == NTX_NO_TENSOR ? NULL : tensor_of(k, i);
        const int dim = part == NTX_PACK_UP ? 0 : 1;
        a->type = t ? t->type : NTX_I8;
        a->rank = t ? (uint32_t)t->ne[dim] : 0;
        if (t && a->whole)
            a->rank = k->m->hp.n_embd;
        if (t && part == NTX_PACK_DOWN && !(ntx_type_info(t->type)->block == 1 && ntx_quantizes(t->type)))
            a->type = type_of_column(t->type, a->rank, a->whole);
    }
}

static int need_quantizer(struct maker *k, uint32_t type, struct ntx_err *err)
{
    struct ntx_quantizer **q = &k->quantizer[type];
    return type == NTX_I8 || *q || (*q = ntx_quantizer_new(type)) ? 0 : ntx_err_set(err, -ENOMEM, "no memory");
}

/* A type of blocks stays as it is: its blocks lie along the neurons, and a group has whole ones. */
static bool keeps_rows(const struct maker *k, uint32_t type)
{
    return k->o->down_type == NTX_TYPE_LIMIT && !k->o->precise.gguf && ntx_type_info(type)->block > 1;
}

static int refuse_order(const struct maker *k, uint32_t l, struct ntx_err *err)
{
    const struct ntx_type_info *type = ntx_type_info(k->pack[l].type[NTX_PACK_DOWN]);
    return k->o->order && k->pack[l].down_rows
               ? ntx_err_set(err, -ENOTSUP,
                             "--order: layer %u's down matrix is %s, whose blocks have %u neighbouring neurons each: "
                             "in another order its weights would have to be rounded again. --down-type F32 keeps their "
                             "values, other types round them",
                             l, type->name, type->block)
               : 0;
}

static int refuse_added(const struct maker *k, uint32_t l, struct ntx_err *err)
{
    bool whole;
    const uint32_t i = added_tensor(&k->m->layers[l], NTX_PACK_DOWN, &whole);
    const struct ntx_gguf_tensor *t = i != NTX_NO_TENSOR && whole ? tensor_of(k, i) : NULL;
    return t && ntx_type_info(t->type)->block > 1 && k->o->down_type == NTX_TYPE_LIMIT
               ? ntx_err_set(err, -ENOTSUP,
                             "tensor '%s' is a full matrix in %s, whose blocks a group would cut: its weights would "
                             "have to be rounded again. --down-type TYPE allows that; ntx pack --delta --rank R makes "
                             "thin matrices instead",
                             t->name, ntx_type_info(t->type)->name)
               : 0;
}

static int choose_types(struct maker *k, uint32_t l, bool adds, struct ntx_err *err)
{
    const struct ntx_layer *t = &k->m->layers[l];
    struct ntx_pack_layer *p = &k->pack[l];
    p->type[NTX_PACK_GATE] = tensor_of(k, t->gate)->type;
    p->type[NTX_PACK_UP] = tensor_of(k, t->up)->type;
    p->type[NTX_PACK_DOWN] = down_type(k, l);
    p->adds = adds;
    p->down_rows = keeps_rows(k, p->type[NTX_PACK_DOWN]);
    int rc = refuse_order(k, l, err);
    if (!rc && adds)
        rc = refuse_added(k, l, err);
    if (rc)
        return rc;
    if (!p->down_rows && !writable(p->type[NTX_PACK_DOWN], k->m->hp.n_embd))
        return ntx_err_set(err, -EINVAL, "down columns of %u values cannot be written in that type", k->m->hp.n_embd);
    if (adds)
        choose_added(k, l);
    if (!p->down_rows)
        rc = need_quantizer(k, p->type[NTX_PACK_DOWN], err);
    return rc || !adds ? rc : need_quantizer(k, p->added[NTX_PACK_DOWN].type, err);
}

static uint64_t added_row_bytes(const struct ntx_pack_added *a)
{
    return a->type == NTX_I8 ? 0 : ntx_row_bytes(a->type, a->rank);
}

/* Bytes of one neuron that a pass reads. */
static uint64_t neuron_bytes(const struct maker *k, uint32_t l)
{
    const struct ntx_pack_layer *p = &k->pack[l];
    uint64_t neuron = 0, added = added_row_bytes(&p->added[NTX_PACK_UP]) + added_row_bytes(&p->added[NTX_PACK_DOWN]);
    for (int part = k->o->gate_in_bundle ? NTX_PACK_GATE : NTX_PACK_UP; part < NTX_PACK_PARTS; part++)
        neuron += ntx_row_bytes(p->type[part], k->m->hp.n_embd);
    return p->adds && added ? added : neuron;
}

/* Layers that share groups have the same group size: that of the layer that adds most. */
static uint32_t group_of(const struct maker *k, uint32_t l)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < k->m->hp.n_layers && k->pack[l].adds; i++)
        if (added_row_bytes(&k->pack[i].added[NTX_PACK_UP]) + added_row_bytes(&k->pack[i].added[NTX_PACK_DOWN]))
            most = NTX_MAX(most, neuron_bytes(k, i));
    const uint32_t n = ntx_pack_group_for(k->o->group_bytes, most ? most : neuron_bytes(k, l)),
                   block = k->pack[l].down_rows ? ntx_type_info(k->pack[l].type[NTX_PACK_DOWN])->block : 1;
    return NTX_MIN(NTX_MAX(n / block, 1u) * block, k->m->hp.n_ff);
}

static int choose_group(struct maker *k, uint32_t l, struct ntx_err *err)
{
    struct ntx_pack_layer *p = &k->pack[l];
    const uint64_t neuron = neuron_bytes(k, l);
    p->group = group_of(k, l);
    if (ntx_pack_layout(p, k->m->hp.n_embd, k->m->hp.n_ff, k->o->gate_in_bundle) ||
        (p->adds && ntx_pack_layout_added(p)))
        return ntx_err_set(err, -EINVAL, "layer %u: groups of %u neurons of %llu bytes are not possible", l, p->group,
                           (unsigned long long)neuron);
    k->report->padding += (uint64_t)p->n_groups * (p->added_bytes ? p->added_bytes : p->group_bytes) -
                          neuron * k->m->hp.n_ff;
    return 0;
}

static int choose_layout(struct maker *k, struct ntx_err *err)
{
    const uint32_t n = k->m->hp.n_layers;
    const bool adds = k->m->delta.any;
    int rc = 0;
    for (uint32_t l = 0; l < n && !rc; l++)
        rc = choose_types(k, l, adds, err);
    for (uint32_t l = 0; l < n && !rc; l++)
        rc = choose_group(k, l, err);
    if (rc)
        return rc;
    k->report->group = k->pack[0].group;
    k->report->group_bytes = k->pack[0].added_bytes ? k->pack[0].added_bytes : k->pack[0].group_bytes;
    k->report->down_type = k->pack[0].type[NTX_PACK_DOWN];
    k->report->down_rows = k->pack[0].down_rows;
    return 0;
}

/* Refuses what is impossible for models whose layers share groups or add to them. */
static int refuse_shared(const struct maker *k, struct ntx_err *err)
{
    if (k->m->delta.any && !k->m->delta.base)
        return ntx_err_set(err, -ENOTSUP,
                           "the model adds to its matrices but shares none, so nothing would stay in memory that its "
                           "groups could be added to: put what is added into the matrices");
    if (k->m->delta.any && k->o->gate_in_bundle)
        return ntx_err_set(
            err, -ENOTSUP,
            "--gate-in-bundle: the layers share their gates and add to them, so these are not in groups");
    return k->m->delta.base && k->o->order
               ? ntx_err_set(err, -ENOTSUP, "--order goes by layers, and these share their neurons")
               : 0;
}

static int check_precise(const struct maker *k, struct ntx_err *err)
{
    for (uint32_t l = 0; l < k->m->hp.n_layers; l++) {
        struct ntx_pack_source from;
        const struct ntx_gguf_tensor *own = tensor_of(k, k->m->layers[l].down), *t = down_of(k, l, &from);
        if (!t || memcmp(t->ne, own->ne, sizeof t->ne) || t->type == NTX_I8)
            return ntx_err_set(err, -EINVAL,
                               "the more precise model is another one: its tensor '%s' is missing or of another shape",
                               own->name);
    }
    return 0;
}

/* A type for FFN matrices that have separate scales, in which the scales would be part of the weights; NULL: they
 * have no such scales. */
static const char *without_scales(const struct ntx_model *m)
{
    static const enum ntx_tensor ffn[] = {NTX_T_gate, NTX_T_up, NTX_T_down};
    const char *type = NULL;
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        for (size_t k = 0; k < sizeof ffn / sizeof *ffn; k++)
            if (m->layers[l].scale[ffn[k]] != NTX_NO_TENSOR && !(type && !strcmp(type, "F16")))
                type = ntx_gguf_tensor_at(m->gguf, m->layers[l].tensor[ffn[k]])->type == NTX_Q8_0 ? "F16" : "Q8_0";
    return type;
}

static int refuse_model(const struct maker *k, struct ntx_err *err)
{
    const struct ntx_model *m = k->m;
    const char *why = ntx_pack_refuses(&m->hp);
    if (m->pack || m->hp.n_expert)
        return ntx_err_set(err, -EINVAL,
                           m->pack ? "the model is packed already"
                                   : "a model with experts needs no packing: its experts are bundles already");
    int rc = refuse_shared(k, err);
    if (rc)
        return rc;
    if (without_scales(m))
        return ntx_err_set(err, -ENOTSUP,
                           "a model whose FFN has scales of whole matrices cannot be packed: ntx quantize MODEL "
                           "OUT.gguf %s puts them into the weights, and OUT.gguf can",
                           without_scales(m));
    return why ? ntx_err_set(err, -ENOTSUP, "a %s model cannot be packed: %s", m->hp.arch, why) : 0;
}

static int begin_maker(struct maker *k, struct ntx_err *err)
{
    int rc = refuse_model(k, err);
    if (!rc && !(k->pack = calloc(k->m->hp.n_layers, sizeof *k->pack)))
        rc = ntx_err_set(err, -ENOMEM, "no memory");
    if (!rc)
        rc = check_precise(k, err);
    return rc ? rc : choose_layout(k, err);
}

static void end_maker(struct maker *k)
{
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        ntx_quantizer_free(k->quantizer[t]);
    free(k->pack);
}

int ntx_pack_choose(const struct ntx_model *m, const int *fds, const struct ntx_pack_options *o,
                    struct ntx_pack_layer **layers, struct ntx_err *err)
{
    struct ntx_pack_report r = {0};
    struct maker k = {.m = m, .source = {m->gguf, fds}, .o = o, .report = &r};
    int rc = begin_maker(&k, err);
    if (!rc) {
        *layers = k.pack;
        k.pack = NULL;
    }
    end_maker(&k);
    return rc;
}

int ntx_pack_make(const struct ntx_model *m, const int *fds, const struct ntx_pack_options *o, const char *path,
                  struct ntx_pack_report *report, struct ntx_err *err)
{
    struct ntx_pack_report r = {0};
    struct maker k = {.m = m, .source = {m->gguf, fds}, .o = o, .report = &r};
    struct ntx_gguf_out *g = NULL;
    int rc = begin_maker(&k, err);
    if (!rc && !(g = ntx_gguf_out_new()))
        rc = ntx_err_set(err, -ENOMEM, "no memory");
    if (!rc && put_keys(g, &k))
        rc = ntx_err_set(err, -ENOMEM, "no memory");
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(m->gguf) && !rc; i++)
        put_tensor(g, &k, (uint32_t)i);
    if (!rc)
        rc = ntx_gguf_out_write(g, path, err);
    ntx_gguf_out_free(g);
    end_maker(&k);
    if (rc)
        return rc;
    r.error = k.squares > 0 ? sqrt(k.error / k.squares) : 0;
    *report = r;
    return 0;
}
