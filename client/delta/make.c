/* SPDX-License-Identifier: Apache-2.0 */
#include "client/delta/make.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/delta/make_impl.h"
#include "common/pieces.h"
#include "common/util.h"
#include "model/digest.h"
#include "model/quant.h"

#define FEWEST 32u /* outputs and inputs, in multiples: smaller matrices are not worth streaming */
#define NOTHING                                                                                                        \
    0.9 /* of what matrices take alone: deltas that save no more than the rest are not worth a lossy file \
                       */
#define REST_MOST 1e-3

struct entry { /* a matrix of a layer */
    enum ntx_tensor kind;
    uint32_t layer, tensor;
    struct ntx_gguf_tensor base; /* with the base's descriptor */
    int base_fd;
    struct ntx__made made;
};

struct maker {
    const struct ntx_model *m;
    const int *fds;
    const struct ntx_delta_options *o;
    struct ntx_delta_report *report;
    struct ntx__spool spool;
    struct ntx__types types[2]; /* for matrices whose width is a multiple of the super-block, and for others */
    struct entry *entries;
    uint32_t n_entries;
    uint32_t *entry_of, *same; /* [tensors] + 1, 0: none; [layers] */
    char name[96];             /* of base tensors' lists, while they are read */
    struct ntx_err *err;
};

static const struct ntx_gguf_tensor *tensor_at(const struct maker *k, uint32_t i)
{
    return ntx_gguf_tensor_at(k->m->gguf, i);
}

static void name_of(char *out, size_t size, uint32_t layer, enum ntx_tensor kind)
{
    snprintf(out, size, "blk.%u.%s", layer, ntx_tensor_kinds[kind].name);
}

/* ---- the matrices */

/* A layer's matrix of that kind, if it has one by its usual name, without a scale; else NTX_NO_TENSOR. */
static uint32_t matrix_of(const struct maker *k, uint32_t layer, enum ntx_tensor kind)
{
    const uint32_t i = k->m->layers[layer].tensor[kind];
    char name[80];
    if (i == NTX_NO_TENSOR || k->m->layers[layer].scale[kind] != NTX_NO_TENSOR)
        return NTX_NO_TENSOR;
    const struct ntx_gguf_tensor *t = tensor_at(k, i);
    name_of(name, sizeof name, layer, kind);
    return !strcmp(name, t->name) && t->ne[0] % FEWEST == 0 && t->ne[1] >= FEWEST && t->ne[2] == 1 && t->ne[3] == 1
               ? i
               : NTX_NO_TENSOR;
}

static bool in_all_layers(const struct maker *k, enum ntx_tensor kind)
{
    const uint32_t first = matrix_of(k, 0, kind);
    bool all = first != NTX_NO_TENSOR;
    for (uint32_t l = 1; l < k->m->hp.n_layers && all; l++) {
        const uint32_t i = matrix_of(k, l, kind);
        all = i != NTX_NO_TENSOR && !memcmp(tensor_at(k, i)->ne, tensor_at(k, first)->ne, sizeof tensor_at(k, i)->ne);
    }
    return all;
}

static int find_matrices(struct maker *k)
{
    const uint32_t n = k->m->hp.n_layers;
    k->entries = calloc((size_t)n * NTX_N_TENSORS, sizeof *k->entries);
    k->entry_of = calloc(ntx_gguf_n_tensors(k->m->gguf) + 1, sizeof *k->entry_of);
    if (!k->entries || !k->entry_of)
        return ntx_err_set(k->err, -ENOMEM, "no memory");
    for (int t = 0; t < NTX_N_TENSORS; t++) {
        if (ntx_low_of((enum ntx_tensor)t) == NTX_N_TENSORS ||
            (!k->o->base.gguf && !in_all_layers(k, (enum ntx_tensor)t)))
            continue;
        for (uint32_t l = 0; l < n; l++) {
            const uint32_t i = matrix_of(k, l, (enum ntx_tensor)t);
            if (i == NTX_NO_TENSOR)
                continue;
            k->entries[k->n_entries++] = (struct entry){
                .kind = (enum ntx_tensor)t, .layer = l, .tensor = i, .base_fd = -1};
            k->entry_of[i] = k->n_entries;
        }
    }
    return k->n_entries ? 0
                        : ntx_err_set(k->err, -ENOTSUP,
                                      "a %s model has no matrices of its own in all layers (attn_q, ffn_up, ...) to "
                                      "which deltas could be added",
                                      k->m->hp.arch);
}

static int make_types(struct maker *k)
{
    static const uint32_t lists[2][NTX__TYPES] = {{NTX_Q2_K, NTX_Q3_K, NTX_Q4_K, NTX_Q5_K, NTX_Q6_K, NTX_Q8_0, NTX_F16},
                                                  {NTX_Q4_0, NTX_Q5_0, NTX_Q8_0, NTX_F16}};
    static const uint32_t counts[2] = {7, 4};
    for (int i = 0; i < 2; i++) {
        k->types[i].n = counts[i];
        for (uint32_t t = 0; t < counts[i]; t++) {
            k->types[i].type[t] = lists[i][t];
            if (!(k->types[i].q[t] = ntx_quantizer_new(lists[i][t])))
                return ntx_err_set(k->err, -ENOMEM, "no memory");
        }
    }
    return 0;
}

/* ---- bases */

static uint32_t base_type(const struct ntx_gguf_tensor *t)
{
    return ntx_type_info(t->type)->block == 1 ? NTX_F16 : NTX_Q8_0;
}

static int mean_piece(struct maker *k, const struct entry *first, uint64_t at, uint64_t n, uint8_t *raw, float *x,
                      float *sum)
{
    const uint32_t layers = k->m->hp.n_layers;
    const uint64_t in = tensor_at(k, first->tensor)->ne[0];
    int rc = k->o->stop && *k->o->stop ? ntx_err_set(k->err, -EINTR, "interrupted") : 0;
    memset(sum, 0, n * in * sizeof *sum);
    for (uint32_t l = 0; l < layers && !rc; l++) {
        const struct ntx_gguf_tensor *t = tensor_at(k, first[l].tensor);
        const struct ntx__matrix m = {t, k->fds[t->file], 0};
        rc = ntx__read_outputs(&m, at, n, raw, x, k->err);
        for (uint64_t i = 0; i < n * in && !rc; i++)
            sum[i] += x[i] / (float)layers;
    }
    return rc;
}

/* Makes the mean of one kind, whose entries follow each other. */
static int make_mean(struct maker *k, struct entry *first)
{
    const struct ntx_gguf_tensor *t = tensor_at(k, first->tensor);
    const uint32_t type = base_type(t);
    const uint64_t in = t->ne[0], out = t->ne[1], piece = ntx__low_piece(in, out), each = ntx_row_bytes(type, in);
    const struct ntx__spooled to = ntx__spool_take(&k->spool, each * out);
    struct ntx_quantizer *q = ntx_quantizer_new(type);
    float *x = malloc(piece * in * sizeof *x), *sum = malloc(piece * in * sizeof *sum);
    uint8_t *raw = malloc(piece * in * sizeof *x);
    int rc = q && x && sum && raw ? 0 : ntx_err_set(k->err, -ENOMEM, "no memory");
    for (uint64_t at = 0; at < out && !rc; at += piece) {
        const uint64_t n = NTX_MIN(piece, out - at);
        if ((rc = mean_piece(k, first, at, n, raw, x, sum)))
            break;
        ntx_quantize(q, sum, NULL, raw, n * in / ntx_type_info(type)->block);
        rc = ntx__spool_write(&k->spool, &to, at * each, raw, n * each, k->err);
    }
    for (uint32_t l = 0; l < k->m->hp.n_layers; l++) {
        first[l].base = *t;
        first[l].base.type = type;
        first[l].base.offset = to.at;
        first[l].base.bytes = to.bytes;
        first[l].base_fd = k->spool.fd;
    }
    k->report->base_bytes += to.bytes;
    ntx_quantizer_free(q);
    free(x);
    free(sum);
    free(raw);
    return rc;
}

static int find_bases(struct maker *k)
{
    int rc = 0;
    for (uint32_t i = 0; i < k->n_entries && !rc && !k->o->base.gguf; i += k->m->hp.n_layers)
        rc = make_mean(k, &k->entries[i]);
    for (uint32_t i = 0; i < k->n_entries && !rc && k->o->base.gguf; i++) {
        struct entry *e = &k->entries[i];
        const struct ntx_gguf_tensor *t = tensor_at(k, e->tensor), *b = ntx_gguf_tensor(k->o->base.gguf, t->name);
        if (!b || memcmp(b->ne, t->ne, sizeof t->ne) || b->type == NTX_I8)
            return ntx_err_set(
                k->err, -EINVAL,
                "this is no fine-tune of the base: there the tensor '%s' is missing, or of another shape", t->name);
        e->base = *b;
        e->base_fd = k->o->base.fds[b->file];
        k->report->base_bytes += b->bytes;
    }
    return rc;
}

/* ---- differences */

static int make_entry(void *ctx, uint32_t i, struct ntx_err *err)
{
    struct maker *k = ctx;
    struct entry *e = &k->entries[i];
    const struct ntx_gguf_tensor *t = tensor_at(k, e->tensor);
    const struct ntx__matrix_job j = {.m = {t, k->fds[t->file], 0},
                                      .base = {&e->base, e->base_fd, 0},
                                      .in = t->ne[0],
                                      .out = t->ne[1],
                                      .types = &k->types[t->ne[0] % 256 != 0],
                                      .o = k->o,
                                      .spool = &k->spool};
    return ntx__make_matrix(&j, &e->made, err);
}

static int make_all(struct maker *k)
{
    const struct ntx_pieces p = {.n = k->n_entries,
                                 .threads = k->o->threads,
                                 .one = make_entry,
                                 .ctx = k,
                                 .progress = k->o->progress,
                                 .progress_ctx = k->o->ctx};
    return ntx_pieces_do(&p, k->err);
}

/* ---- figures */

static double ratio(double part, double whole) { return whole > 0 ? sqrt(part / whole) : 0; }

static void add_up(struct maker *k)
{
    struct ntx_delta_report *r = k->report;
    double square = 0, difference = 0, left = 0;
    for (uint32_t i = 0; i < k->n_entries; i++) {
        const struct ntx__made *d = &k->entries[i].made;
        const double error = ratio(d->left, k->o->base.gguf ? d->difference : d->square);
        const struct ntx_gguf_tensor *t = tensor_at(k, k->entries[i].tensor);
        square += d->square;
        difference += d->difference;
        left += d->left;
        r->bytes += t->bytes;
        r->alone_bytes += d->alone_bytes;
        r->delta_bytes += d->bytes;
        r->n_equal += d->how == NTX__EQUAL;
        r->n_low += d->how == NTX__LOW_RANK;
        r->n_typed += d->how == NTX__TYPED;
        if (d->how == NTX__LOW_RANK) {
            r->rank_least = r->rank_least ? NTX_MIN(r->rank_least, d->rank) : d->rank;
            r->rank_most = NTX_MAX(r->rank_most, d->rank);
        }
        if (error > r->worst) {
            r->worst = error;
            snprintf(r->worst_name, sizeof r->worst_name, "%s", t->name);
        }
    }
    r->n_matrices = k->n_entries;
    r->error = ratio(left, k->o->base.gguf ? difference : square);
    r->change = ratio(difference, square);
}

/* Measures the distance from the base of a tensor that a fine-tune's file leaves out. */
static int look_at_rest(struct maker *k, const struct ntx_gguf_tensor *t)
{
    const struct ntx_gguf_tensor *b = ntx_gguf_tensor(k->o->base.gguf, t->name);
    if (!b || memcmp(b->ne, t->ne, sizeof t->ne))
        return ntx_err_set(k->err, -EINVAL,
                           "this is no fine-tune of the base: there the tensor '%s' is missing, or of another shape",
                           t->name);
    const uint64_t in = t->ne[0], out = t->ne[1] * t->ne[2] * t->ne[3], piece = ntx__low_piece(in, out);
    const struct ntx__matrix a = {t, k->fds[t->file], 0}, base = {b, k->o->base.fds[b->file], 0};
    float *x = malloc(piece * in * sizeof *x), *y = malloc(piece * in * sizeof *y);
    uint8_t *raw = malloc(piece * NTX_MAX(ntx_row_bytes(t->type, in), ntx_row_bytes(b->type, in)));
    double square = 0, change = 0;
    int rc = x && y && raw ? 0 : ntx_err_set(k->err, -ENOMEM, "no memory");
    for (uint64_t at = 0; at < out && !rc; at += piece) {
        const uint64_t n = NTX_MIN(piece, out - at);
        if ((rc = ntx__read_outputs(&a, at, n, raw, x, k->err)) ||
            (rc = ntx__read_outputs(&base, at, n, raw, y, k->err)))
            break;
        for (uint64_t i = 0; i < n * in; i++) {
            square += (double)y[i] * (double)y[i];
            change += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        }
    }
    free(x);
    free(y);
    free(raw);
    if (!rc && ratio(change, square) > k->report->rest) {
        k->report->rest = ratio(change, square);
        snprintf(k->report->rest_name, sizeof k->report->rest_name, "%s", t->name);
    }
    return rc;
}

static int look_at_the_rest(struct maker *k)
{
    int rc = 0;
    for (uint32_t i = 0; i < ntx_gguf_n_tensors(k->m->gguf) && !rc && k->o->base.gguf; i++)
        if (!k->entry_of[i] && tensor_at(k, i)->type != NTX_I8)
            rc = look_at_rest(k, tensor_at(k, i));
    if (!rc && k->report->rest > REST_MOST && !k->o->force)
        rc = ntx_err_set(k->err, -ENOTSUP,
                         "the fine-tune changed '%s' by %.4f of its size, and differences have matrices of attention "
                         "and FFNs alone: it would be left out; --force leaves it out",
                         k->report->rest_name, k->report->rest);
    return rc;
}

static int check_gain(const struct maker *k)
{
    const struct ntx_delta_report *r = k->report;
    char delta[32], alone[32];
    if (k->o->force)
        return 0;
    if (r->error > k->o->error)
        return ntx_err_set(k->err, -ENOTSUP,
                           "not written: %.3f of %s would be lost (%s: %.3f), and the bound is %g; allow more "
                           "(--error), or a higher --rank, or --force it",
                           r->error, k->o->base.gguf ? "the differences" : "the matrices", r->worst_name, r->worst,
                           k->o->error);
    if ((double)r->delta_bytes <= NOTHING * (double)r->alone_bytes)
        return 0;
    ntx_format_size(r->delta_bytes, delta, sizeof delta);
    ntx_format_size(r->alone_bytes, alone, sizeof alone);
    if (k->o->base.gguf)
        return ntx_err_set(k->err, -ENOTSUP,
                           "not written: the differences would take %s, and the fine-tune's matrices themselves take "
                           "%s; allow a larger error (--error, now %g), or --force it",
                           delta, alone, k->o->error);
    return ntx_err_set(k->err, -ENOTSUP,
                       "not written: nothing would be gained. For each token %s of deltas would be read, and quantised "
                       "alone to the same error (%g) the matrices take %s: these layers have too "
                       "little in common (see ntx analyze). ntx quantize makes models smaller; --force "
                       "writes it all the same",
                       delta, k->o->error, alone);
}

/* ---- the file */

static int write_tensor(void *ctx, uint32_t i, int fd, struct ntx_err *err)
{
    const struct maker *k = ctx;
    const struct ntx_gguf_tensor *t = tensor_at(k, i);
    return k->o->stop && *k->o->stop ? ntx_err_set(err, -EINTR, "interrupted")
                                     : ntx__copy(k->fds[t->file], t->offset, t->bytes, fd, t->name, err);
}

static int write_base(void *ctx, uint32_t i, int fd, struct ntx_err *err)
{
    const struct maker *k = ctx;
    const struct ntx_gguf_tensor *b = &k->entries[i].base;
    return ntx__copy(k->spool.fd, b->offset, b->bytes, fd, b->name, err);
}

static int write_part(const struct maker *k, uint32_t i, int part, int fd, struct ntx_err *err)
{
    const struct ntx__spooled *p = &k->entries[i].made.part[part];
    return ntx__copy(k->spool.fd, p->at, p->bytes, fd, "of a difference", err);
}
static int write_first(void *ctx, uint32_t i, int fd, struct ntx_err *err) { return write_part(ctx, i, 0, fd, err); }
static int write_second(void *ctx, uint32_t i, int fd, struct ntx_err *err) { return write_part(ctx, i, 1, fd, err); }

static void put_difference(struct ntx_gguf_out *g, struct maker *k, uint32_t i)
{
    const struct entry *e = &k->entries[i];
    const struct ntx_gguf_tensor *t = tensor_at(k, e->tensor);
    const enum ntx_tensor low = ntx_low_of(e->kind);
    const uint64_t a[4] = {t->ne[0], e->made.rank, 1, 1}, b[4] = {e->made.rank, t->ne[1], 1, 1};
    char name[96];
    if (e->made.how == NTX__LOW_RANK) {
        name_of(name, sizeof name, e->layer, (enum ntx_tensor)(low + NTX_LOW));
        ntx_gguf_out_data(g, name, NTX_F16, a, 2, write_first, k, i);
        name_of(name, sizeof name, e->layer, (enum ntx_tensor)(low + NTX_HIGH));
        ntx_gguf_out_data(g, name, NTX_F16, b, 2, write_second, k, i);
    } else if (e->made.how == NTX__TYPED) {
        name_of(name, sizeof name, e->layer, (enum ntx_tensor)(low + NTX_REST));
        ntx_gguf_out_data(g, name, e->made.type, t->ne, 2, write_first, k, i);
    }
}

/* Whether a "blk.N.rest" is left out: its layer equals an earlier one, and so does this tensor. */
static bool left_out(struct maker *k, const struct ntx_gguf_tensor *t, int *rc)
{
    uint32_t layer;
    int n = 0;
    if (!k->same || sscanf(t->name, "blk.%u.%n", &layer, &n) != 1 || !n || layer >= k->m->hp.n_layers ||
        k->same[layer] == layer)
        return false;
    snprintf(k->name, sizeof k->name, "blk.%u.%s", k->same[layer], t->name + n);
    const struct ntx_gguf_tensor *b = ntx_gguf_tensor(k->m->gguf, k->name);
    return b && ntx__same_bytes(t, b, k->fds, rc, k->err);
}

static int put_tensors(struct ntx_gguf_out *g, struct maker *k)
{
    int rc = 0;
    for (uint32_t i = 0; i < ntx_gguf_n_tensors(k->m->gguf) && !rc; i++) {
        const struct ntx_gguf_tensor *t = tensor_at(k, i);
        const uint32_t e = k->entry_of[i];
        if (e && !k->same) {
            if (!k->o->base.gguf && !k->entries[e - 1].layer)
                ntx_gguf_out_data(g, t->name, k->entries[e - 1].base.type, t->ne, t->n_dims, write_base, k, e - 1);
            put_difference(g, k, e - 1);
        } else if (!k->o->base.gguf && !left_out(k, t, &rc)) {
            ntx_gguf_out_data(g, t->name, t->type, t->ne, t->n_dims, write_tensor, k, i);
        }
    }
    return rc;
}

static bool key_is(const struct ntx_gguf_kv *kv, const char *key, bool begins)
{
    return kv->key.n >= strlen(key) && (begins || kv->key.n == strlen(key)) && !memcmp(kv->key.p, key, strlen(key));
}

static int put_keys(struct ntx_gguf_out *g, struct maker *k)
{
    static const char *const of_adapters[] = {"general.architecture", "general.name"};
    for (uint64_t i = 0; i < ntx_gguf_n_kv(k->m->gguf); i++) {
        const struct ntx_gguf_kv *kv = ntx_gguf_kv_at(k->m->gguf, i);
        if (k->o->base.gguf ? key_is(kv, of_adapters[0], false) || key_is(kv, of_adapters[1], false)
                            : !key_is(kv, "general.alignment", false) && !key_is(kv, "split.", true))
            ntx_gguf_out_copy(g, kv);
    }
    if (k->report->error > 0)
        ntx_gguf_out_f32(g, "ntx.delta.error", (float)k->report->error);
    if (!k->o->base.gguf) {
        uint32_t *base = calloc(k->m->hp.n_layers, sizeof *base);
        if (!base)
            return ntx_err_set(k->err, -ENOMEM, "no memory");
        ntx_gguf_out_u32s(g, "ntx.delta.base", k->same ? k->same : base, k->m->hp.n_layers);
        free(base);
        return 0;
    }
    char digest[NTX_DIGEST_TEXT];
    struct ntx_digest_parts parts;
    int rc = ntx_model_digest(k->o->base.gguf, k->o->base.fds, digest, k->err);
    if (!rc)
        rc = ntx_model_digest_parts(k->o->base.gguf, k->o->base.fds, &parts, k->err);
    ntx_gguf_out_str(g, "general.type", "adapter");
    ntx_gguf_out_str(g, "adapter.type", "lora");
    ntx_gguf_out_f32(g, "adapter.lora.alpha", 0);
    if (rc)
        return rc;
    ntx_gguf_out_str(g, "ntx.delta.of", digest);
    ntx_gguf_out_str(g, "ntx.delta.of_norms", parts.norms);
    ntx_gguf_out_str(g, "ntx.delta.of_types", parts.types);
    return 0;
}

static int write_model(struct maker *k, const char *out)
{
    struct ntx_gguf_out *g = ntx_gguf_out_new();
    int rc = g ? put_keys(g, k) : ntx_err_set(k->err, -ENOMEM, "no memory");
    if (!rc && !(rc = put_tensors(g, k)))
        rc = ntx_gguf_out_write(g, out, k->err);
    ntx_gguf_out_free(g);
    return rc;
}

/* ---- */

/* Finds layers that are equal already and sets k->same. */
static int look_for_same(struct maker *k)
{
    const uint32_t n = k->m->hp.n_layers;
    if (k->o->base.gguf)
        return 0;
    if (!(k->same = calloc(n, sizeof *k->same)))
        return ntx_err_set(k->err, -ENOMEM, "no memory");
    int rc = ntx__same_layers(k->m, k->fds, k->same, k->err);
    k->report->n_distinct = 0;
    for (uint32_t l = 0; l < n; l++)
        k->report->n_distinct += k->same[l] == l;
    if (rc || k->report->n_distinct == n) {
        free(k->same);
        k->same = NULL;
    }
    return rc;
}

static void report_same(struct maker *k)
{
    for (uint32_t i = 0; i < k->n_entries; i++) {
        const uint64_t bytes = tensor_at(k, k->entries[i].tensor)->bytes;
        k->report->bytes += bytes;
        k->report->alone_bytes += bytes;
        k->report->base_bytes += k->same[k->entries[i].layer] == k->entries[i].layer ? bytes : 0;
    }
    k->report->n_matrices = k->report->n_equal = k->n_entries;
}

static int make_delta(struct maker *k, const char *out)
{
    int rc = find_matrices(k);
    if (!rc)
        rc = look_for_same(k);
    if (!rc && k->same) {
        report_same(k);
        return write_model(k, out);
    }
    if (rc || (rc = look_at_the_rest(k)) || (rc = ntx__spool_open(out, &k->spool, k->err)) || (rc = make_types(k)) ||
        (rc = find_bases(k)) || (rc = make_all(k)))
        return rc;
    add_up(k);
    rc = check_gain(k);
    return rc ? rc : write_model(k, out);
}

int ntx_delta_make(const struct ntx_model *m, const int *fds, const char *out, const struct ntx_delta_options *o,
                   struct ntx_delta_report *report, struct ntx_err *err)
{
    struct ntx_delta_report r = {.n_layers = m->hp.n_layers, .n_distinct = m->hp.n_layers};
    struct maker k = {.m = m, .fds = fds, .o = o, .report = &r, .spool = {.fd = -1}, .err = err};
    if (m->pack || m->delta.base || m->delta.any)
        return ntx_err_set(
            err, -ENOTSUP,
            m->pack ? "a packed model (ntx pack) has no matrices of whole FFNs: take the file that it was made from"
                    : "the layers of this model share matrices, or add to them, already");
    int rc = make_delta(&k, out);
    ntx__spool_close(&k.spool);
    for (int i = 0; i < 2; i++)
        for (uint32_t t = 0; t < NTX__TYPES; t++)
            ntx_quantizer_free(k.types[i].q[t]);
    free(k.entries);
    free(k.entry_of);
    free(k.same);
    if (!rc)
        *report = r;
    return rc;
}
