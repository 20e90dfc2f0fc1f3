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
    struct ntx_quantizer *quantizer[NTX_TYPE_LIMIT]; /* of the types of down columns */
    double error, squares;
};

/* ---- reading */

static int read_at(int fd, void *p, size_t n, uint64_t at, const char *name, struct ntx_err *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)p + done, n - done, (off_t)(at + done));
        if (got <= 0)
            return ntx_err_set(err, got ? -errno : -ENODATA, "tensor '%s' cannot be read at %llu: %s", name, (unsigned long long)(at + done),
                               got ? strerror(errno) : "the file ends");
        done += (size_t)got;
    }
    return 0;
}

/* All of a tensor, malloc'd. */
static int load(struct ntx_pack_source s, const struct ntx_gguf_tensor *t, uint8_t **out, struct ntx_err *err)
{
    uint8_t *p = malloc(t->bytes);
    int rc = p ? read_at(s.fds[t->file], p, t->bytes, t->offset, t->name, err) : ntx_err_set(err, -ENOMEM, "no memory for tensor '%s'", t->name);
    if (rc)
        free(p);
    else
        *out = p;
    return rc;
}

static const struct ntx_gguf_tensor *tensor_of(const struct maker *k, uint32_t tensor) { return ntx_gguf_tensor_at(k->source.gguf, tensor); }

/* Where down is taken from: the more precise model, if there is one. */
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

/* down [n_embd x n_ff] of any type into floats [n_ff x n_embd]. */
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

static int load_columns(const struct maker *k, uint32_t layer, float **out, struct ntx_err *err)
{
    struct ntx_pack_source from;
    const struct ntx_gguf_tensor *t = down_of(k, layer, &from);
    uint8_t *raw = NULL;
    int rc = load(from, t, &raw, err);
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

/* Quantises a column, and adds what that changes to the sums. */
static void put_column(const struct maker *k, const struct ntx_pack_layer *p, const float *x, uint32_t n, float *back, uint8_t *out, double *error, double *squares)
{
    const struct ntx_type_info *type = ntx_type_info(p->type[NTX_PACK_DOWN]);
    ntx_quantize(k->quantizer[p->type[NTX_PACK_DOWN]], x, NULL, out, n / type->block);
    type->dequant(out, back, n / type->block);
    for (uint32_t i = 0; i < n; i++) {
        double d = (double)back[i] - (double)x[i];
        *error += d * d;
        *squares += (double)x[i] * (double)x[i];
    }
}

struct layer_parts {
    uint8_t *gate, *up; /* gate: NULL where it is not in the groups */
    float *columns;     /* [n_ff x n_embd] */
    float *back;        /* [n_embd] */
    uint8_t *group;     /* [group_bytes] */
};

static void put_group(const struct maker *k, uint32_t layer, uint32_t g, const struct layer_parts *l, double *error, double *squares)
{
    const struct ntx_pack_layer *p = &k->pack[layer];
    uint32_t n_embd = k->m->hp.n_embd, first = g * p->group, n = NTX_MIN(p->group, k->m->hp.n_ff - first);
    const uint8_t *const rows[] = {[NTX_PACK_GATE] = l->gate, [NTX_PACK_UP] = l->up};
    memset(l->group, 0, p->group_bytes);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = neuron_at(k, layer, first + i);
        for (int part = NTX_PACK_GATE; part <= NTX_PACK_UP; part++)
            if (p->row_bytes[part])
                memcpy(l->group + p->at[part] + (size_t)i * p->row_bytes[part], rows[part] + (size_t)j * p->row_bytes[part], p->row_bytes[part]);
        put_column(k, p, l->columns + (size_t)j * n_embd, n_embd, l->back, l->group + p->at[NTX_PACK_DOWN] + (size_t)i * p->row_bytes[NTX_PACK_DOWN], error,
                   squares);
    }
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

static int load_parts(const struct maker *k, uint32_t layer, struct layer_parts *l, struct ntx_err *err)
{
    const struct ntx_layer *t = &k->m->layers[layer];
    const struct ntx_pack_layer *p = &k->pack[layer];
    int rc = load(k->source, tensor_of(k, t->up), &l->up, err);
    if (!rc && ntx_pack_has_gate(p))
        rc = load(k->source, tensor_of(k, t->gate), &l->gate, err);
    if (!rc)
        rc = load_columns(k, layer, &l->columns, err);
    if (rc)
        return rc;
    l->back = malloc(k->m->hp.n_embd * sizeof *l->back);
    l->group = malloc(p->group_bytes);
    return l->back && l->group ? 0 : ntx_err_set(err, -ENOMEM, "no memory for a group of neurons");
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
    free(l.gate);
    free(l.up);
    free(l.columns);
    free(l.back);
    free(l.group);
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

/* A gate matrix whose rows go where the neurons went. */
static int write_gate(void *ctx, uint32_t layer, int fd, struct ntx_err *err)
{
    const struct maker *k = ctx;
    const struct ntx_gguf_tensor *t = tensor_of(k, k->m->layers[layer].gate);
    size_t row = ntx_row_bytes(t->type, t->ne[0]);
    uint8_t *gate = NULL;
    int rc = load(k->source, t, &gate, err);
    for (uint32_t i = 0; i < k->m->hp.n_ff && !rc; i++)
        rc = ntx_write_all(fd, gate + neuron_at(k, layer, i) * row, row);
    free(gate);
    return rc;
}

static bool replaced_key(struct ntx_str key)
{
    return (key.n == 17 && !memcmp(key.p, "general.alignment", 17)) || (key.n > 6 && !memcmp(key.p, "split.", 6));
}

static int put_u32s(struct ntx_gguf_out *g, const struct maker *k, const char *key, int part)
{
    uint32_t n = k->m->hp.n_layers, *v = malloc(n * sizeof *v);
    if (!v)
        return -ENOMEM;
    for (uint32_t l = 0; l < n; l++)
        v[l] = part < 0 ? k->pack[l].group : k->pack[l].type[part];
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
    ntx_gguf_out_u32(g, "ntx.pack.version", NTX_PACK_VERSION);
    int rc = put_u32s(g, k, "ntx.pack.group", -1);
    if (!rc && k->o->gate_in_bundle)
        rc = put_u32s(g, k, "ntx.pack.gate_type", NTX_PACK_GATE);
    if (!rc)
        rc = put_u32s(g, k, "ntx.pack.up_type", NTX_PACK_UP);
    return rc ? rc : put_u32s(g, k, "ntx.pack.down_type", NTX_PACK_DOWN);
}

/* Which layer's, by its number in the file; what is no FFN's matrix is none. */
static uint32_t layer_with(const struct maker *k, uint32_t tensor, enum ntx_tensor t)
{
    for (uint32_t l = 0; l < k->m->hp.n_layers; l++)
        if (k->m->layers[l].tensor[t] == tensor)
            return l;
    return UINT32_MAX;
}

/* Groups stand where the layer's up matrix stood. */
static void put_tensor(struct ntx_gguf_out *g, struct maker *k, uint32_t i)
{
    const struct ntx_gguf_tensor *t = tensor_of(k, i);
    uint32_t up = layer_with(k, i, NTX_T_up), gate = layer_with(k, i, NTX_T_gate);
    char name[80];
    if (layer_with(k, i, NTX_T_down) != UINT32_MAX || (gate != UINT32_MAX && k->o->gate_in_bundle))
        return;
    if (up != UINT32_MAX) {
        uint64_t ne[4] = {k->pack[up].group_bytes, k->pack[up].n_groups, 1, 1};
        snprintf(name, sizeof name, "blk.%u." NTX_PACK_TENSOR, up);
        ntx_gguf_out_data(g, name, NTX_I8, ne, 2, write_groups, k, up);
    } else if (gate != UINT32_MAX && k->o->order) {
        ntx_gguf_out_data(g, t->name, t->type, t->ne, t->n_dims, write_gate, k, gate);
    } else {
        ntx_gguf_out_data(g, t->name, t->type, t->ne, t->n_dims, write_copy, k, i);
    }
}

/* ---- the choices */

static bool writable(uint32_t type, uint32_t n_embd) { return ntx_quantizes(type) && ntx_row_bytes(type, n_embd); }

/* Fewer than four bits for a value. */
static bool coarse(uint32_t type) { return ntx_type_info(type)->block_bytes * 8 < ntx_type_info(type)->block * 4; }

static uint32_t down_type(const struct maker *k, uint32_t layer)
{
    uint32_t type = tensor_of(k, k->m->layers[layer].down)->type, n = k->m->hp.n_embd;
    if (k->o->down_type != NTX_TYPE_LIMIT)
        return k->o->down_type;
    if (coarse(type)) /* a second rounding to so few would cost too much */
        type = NTX_Q4_K;
    return writable(type, n) ? type : writable(NTX_Q8_0, n) ? NTX_Q8_0 : NTX_F16;
}

static int choose(struct maker *k, struct ntx_err *err)
{
    const struct ntx_hparams *hp = &k->m->hp;
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        struct ntx_pack_layer *p = &k->pack[l];
        const struct ntx_layer *t = &k->m->layers[l];
        p->type[NTX_PACK_GATE] = tensor_of(k, t->gate)->type;
        p->type[NTX_PACK_UP] = tensor_of(k, t->up)->type;
        p->type[NTX_PACK_DOWN] = down_type(k, l);
        if (!writable(p->type[NTX_PACK_DOWN], hp->n_embd))
            return ntx_err_set(err, -EINVAL, "down columns of %u values cannot be written in that type", hp->n_embd);
        struct ntx_quantizer **q = &k->quantizer[p->type[NTX_PACK_DOWN]];
        if (!*q && !(*q = ntx_quantizer_new(p->type[NTX_PACK_DOWN])))
            return ntx_err_set(err, -ENOMEM, "no memory");
        uint64_t neuron = 0;
        for (int part = k->o->gate_in_bundle ? NTX_PACK_GATE : NTX_PACK_UP; part < NTX_PACK_PARTS; part++)
            neuron += ntx_row_bytes(p->type[part], hp->n_embd);
        p->group = NTX_MIN(ntx_pack_group_for(k->o->group_bytes, neuron), hp->n_ff);
        if (ntx_pack_layout(p, hp->n_embd, hp->n_ff, k->o->gate_in_bundle))
            return ntx_err_set(err, -EINVAL, "layer %u: groups of %u neurons of %llu bytes are not possible", l, p->group, (unsigned long long)neuron);
        k->report->padding += (uint64_t)p->n_groups * p->group_bytes - neuron * hp->n_ff;
    }
    k->report->group = k->pack[0].group;
    k->report->group_bytes = k->pack[0].group_bytes;
    k->report->down_type = k->pack[0].type[NTX_PACK_DOWN];
    return 0;
}

static int check_precise(const struct maker *k, struct ntx_err *err)
{
    for (uint32_t l = 0; l < k->m->hp.n_layers; l++) {
        struct ntx_pack_source from;
        const struct ntx_gguf_tensor *own = tensor_of(k, k->m->layers[l].down), *t = down_of(k, l, &from);
        if (!t || memcmp(t->ne, own->ne, sizeof t->ne) || t->type == NTX_I8)
            return ntx_err_set(err, -EINVAL, "the more precise model is another one: its tensor '%s' is missing or of another shape", own->name);
    }
    return 0;
}

/* The type in which the FFN's matrices would have their scales in their weights: another than theirs; NULL: they have none. */
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

int ntx_pack_make(const struct ntx_model *m, const int *fds, const struct ntx_pack_options *o, const char *path, struct ntx_pack_report *report,
                  struct ntx_err *err)
{
    struct ntx_pack_report r = {0};
    struct maker k = {.m = m, .source = {m->gguf, fds}, .o = o, .report = &r};
    struct ntx_gguf_out *g = NULL;
    int rc;
    if (m->pack || m->hp.n_expert)
        return ntx_err_set(err, -EINVAL, m->pack ? "the model is packed already" : "a model with experts needs no packing: its experts are bundles already");
    if (m->delta.base || m->delta.any)
        return ntx_err_set(err, -ENOTSUP, "a model whose layers share matrices, or add to them, cannot be packed");
    if (without_scales(m))
        return ntx_err_set(err, -ENOTSUP, "a model whose FFN has scales of whole matrices cannot be packed: ntx quantize MODEL OUT.gguf %s puts them into the weights, and OUT.gguf can",
                           without_scales(m));
    const char *why = ntx_pack_refuses(&m->hp);
    if (why)
        return ntx_err_set(err, -ENOTSUP, "a %s model cannot be packed: %s", m->hp.arch, why);
    if (!(k.pack = calloc(m->hp.n_layers, sizeof *k.pack)) || !(g = ntx_gguf_out_new()))
        rc = ntx_err_set(err, -ENOMEM, "no memory");
    else if (!(rc = check_precise(&k, err)) && !(rc = choose(&k, err)))
        rc = put_keys(g, &k) ? ntx_err_set(err, -ENOMEM, "no memory") : 0;
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(m->gguf) && !rc; i++)
        put_tensor(g, &k, (uint32_t)i);
    if (!rc)
        rc = ntx_gguf_out_write(g, path, err);
    ntx_gguf_out_free(g);
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        ntx_quantizer_free(k.quantizer[t]);
    free(k.pack);
    if (rc)
        return rc;
    r.error = k.squares > 0 ? sqrt(k.error / k.squares) : 0;
    *report = r;
    return 0;
}
