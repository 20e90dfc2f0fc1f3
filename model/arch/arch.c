/* SPDX-License-Identifier: Apache-2.0 */
/* arch.c: opens a model from a validated file: its keys, then the steps of the layers, then their tensors. Every
 * tensor of the file must be used: an unknown one would make the output silently wrong. */
#include "model/arch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/printable.h"
#include "common/util.h"
#include "model/arch/arch_impl.h"
#include "model/kind.h"
#include "model/planes.h"
#include "model/quant.h"

static const struct {
    const char *name;
    const struct ntx__arch *arch;
} archs[] = {
#define X(symbol, name) {name, &ntx__arch_##symbol},
    NTX_ARCHS(X)
#undef X
};
#define N_ARCHS (sizeof archs / sizeof *archs)

static const struct {
    const char *name, *kind;
    const struct ntx__arch *arch;
} heads[] = {
#define X(symbol, name, kind) {name, kind, &ntx__arch_##symbol},
    NTX_HEADS(X)
#undef X
};

static const struct {
    const char *name;
    const struct ntx__arch *arch;
} towers[] = {
#define X(symbol, name) {name, &ntx__arch_##symbol},
    NTX_TOWERS(X)
#undef X
};

static bool str_is(struct ntx_str s, const char *what) { return s.n == strlen(what) && !memcmp(s.p, what, s.n); }

static unsigned head_of(const struct ntx_gguf *g)
{
    struct ntx_str s = {0};
    unsigned i = 0;
    while (i < sizeof heads / sizeof *heads &&
           (ntx_gguf_str(g, "general.architecture", &s) || !str_is(s, heads[i].name)))
        i++;
    return i;
}

const char *ntx_head_kind(const struct ntx_gguf *g)
{
    unsigned i = head_of(g);
    return i < sizeof heads / sizeof *heads ? heads[i].kind : NULL;
}

const char *ntx_arch_names(void)
{
#define X(symbol, name) ", " name
    static const char names[] = NTX_ARCHS(X);
#undef X
    return names + strlen(", ");
}

const char *ntx_arch_at(size_t i)
{
    for (size_t a = 0; a < N_ARCHS; a++)
        if (!archs[a].arch->own_name && !i--)
            return archs[a].name;
    return NULL;
}

const struct ntx_known *ntx_known_at(size_t i, const char **arch)
{
    for (size_t a = 0; a < N_ARCHS; a++)
        for (const struct ntx_known *k = archs[a].arch->models; k && k->name; k++)
            if (!i--) {
                *arch = archs[a].name;
                return k;
            }
    return NULL;
}

/* A model being opened. */
struct opening {
    const struct ntx_gguf *g;
    const struct ntx__arch *arch;
    const char *name; /* the architecture's name */
    struct ntx_model *m;
    uint8_t *used;   /* for each tensor of the file */
    uint32_t block0; /* the file's block number of layer 0 */
    struct ntx_err *err;
};

static int find_arch(struct opening *o)
{
    struct ntx_str s;
    int rc = ntx_gguf_str(o->g, "general.architecture", &s);
    if (rc)
        return ntx_err_set(o->err, -EINVAL, "no key 'general.architecture': this GGUF holds no language model");
    if ((rc = ntx_kind_refuse(o->g, NULL, o->err)))
        return rc;
    for (size_t i = 0; i < N_ARCHS; i++)
        if (str_is(s, archs[i].name)) {
            o->name = archs[i].name;
            o->arch = archs[i].arch;
            return 0;
        }
    char name[48]; /* text of the file: only letters go into the message */
    size_t n = s.n < sizeof name - 1 ? s.n : sizeof name - 1;
    for (size_t i = 0; i < n; i++)
        name[i] = s.p[i] > 0x20 && s.p[i] < 0x7f ? s.p[i] : '?';
    name[n] = 0;
    return ntx_err_set(o->err, -ENOTSUP, "architecture '%s' is not supported; `ntx plan --list` has those that are",
                       name);
}

static int get_keys(struct opening *o)
{
    o->m->hp.by = o->arch;
    const char *name = o->arch->tower ? "clip.vision" : o->name;
    struct ntx__keys k = {.g = o->g, .arch = o->arch, .name = name, .m = o->m, .hp = &o->m->hp, .err = o->err};
    return o->arch->tower ? ntx__tower_keys(&k) : ntx__read_keys(&k);
}

static int get_pack(struct opening *o)
{
    const struct ntx_hparams *hp = &o->m->hp;
    int rc = ntx_pack_read(o->g, hp->n_layers, hp->n_embd, hp->n_ff, &o->m->pack, o->err);
    if (!rc && o->m->pack && hp->n_expert)
        return ntx_err_set(o->err, -ENOTSUP, "a model with experts cannot be packed: its experts are bundles already");
    const char *why = !rc && o->m->pack ? ntx_pack_refuses(hp) : NULL;
    return why ? ntx_err_set(o->err, -ENOTSUP, "a %s model cannot be packed: %s", o->name, why) : rc;
}

static struct ntx_shape shape_of(const struct opening *o, uint32_t layer, enum ntx_tensor t)
{
    if (t == NTX_T_groups)
        return (struct ntx_shape){o->m->pack[layer].group_bytes, o->m->pack[layer].n_groups, 1};
    if (t == NTX_T_groups_added)
        return (struct ntx_shape){o->m->pack[layer].added_bytes, o->m->pack[layer].n_groups, 1};
    struct ntx_shape s = ntx_shape_of(&o->m->hp, layer, t);
    if (ntx_is_low(t) && ntx_low_part_of(t) != NTX_REST)
        *(ntx_low_part_of(t) == NTX_LOW ? &s.n_out : &s.n_in) = ntx_layer_delta_rank(
            o->g, layer, (enum ntx_tensor)(t - ntx_low_part_of(t)));
    if (t == NTX_T_down_high && o->m->pack &&
        ntx_pack_adds(&o->m->pack[layer], NTX_PACK_DOWN)) /* the first matrix is in the groups */
        s.n_in = o->m->pack[layer].added[NTX_PACK_DOWN].rank;
    return s;
}

/* The matrices of heads may be written as one matrix; outputs of a convolution may have a dimension of 1 in between. */
static int check_shape(const struct opening *o, const struct ntx_gguf_tensor *t, struct ntx_shape s, enum ntx_use use)
{
    char each[16] = "";
    bool apart = t->ne[1] == s.n_out && t->ne[2] == s.n_each,
         as_one = use == NTX_USE_HEADS && t->ne[1] == (uint64_t)s.n_out * s.n_each && t->ne[2] == 1;
    bool between = use == NTX_USE_VECTORS && t->ne[1] == 1 && t->ne[2] == s.n_out;
    bool of_squares = use == NTX_USE_MATRIX && o->m->hp.tower && ntx_gguf_rows(t) == s.n_out &&
                      ntx_gguf_row(t) == s.n_in; /* inputs have a row, a column and a channel */
    bool in_grid = use == NTX_USE_VECTORS && o->m->hp.tower && t->ne[1] * t->ne[2] == s.n_out; /* positions */
    if (of_squares || (t->ne[0] == s.n_in && in_grid && t->ne[3] == 1) ||
        (t->ne[0] == s.n_in && (apart || as_one || between) && t->ne[3] == 1))
        return 0;
    if (s.n_each > 1)
        snprintf(each, sizeof each, " x %u", s.n_each);
    return ntx_err_set(o->err, -EINVAL, "tensor '%s' is %llu x %llu x %llu x %llu, expected %u x %u%s", t->name,
                       (unsigned long long)t->ne[0], (unsigned long long)t->ne[1], (unsigned long long)t->ne[2],
                       (unsigned long long)t->ne[3], s.n_in, s.n_out, each);
}

/* Tensors that are not matrices must be F32. */
static int check_type(const struct opening *o, const struct ntx_gguf_tensor *t, enum ntx_use use)
{
    const char *type = ntx_type_info(t->type)->name;
    if (use == NTX_USE_VECTOR && t->type != NTX_F32)
        return ntx_err_set(o->err, -EINVAL, "tensor '%s' is %s; it must be an F32 vector", t->name, type);
    if (use == NTX_USE_VECTORS && t->type != NTX_F32)
        return ntx_err_set(o->err, -EINVAL, "tensor '%s' is %s; it must be F32", t->name, type);
    if (use == NTX_USE_NUMBERS && t->type != NTX_I32)
        return ntx_err_set(o->err, -EINVAL, "tensor '%s' is %s; it must be I32", t->name, type);
    if ((t->type == NTX_I8) != (use == NTX_USE_GROUPS) || (t->type == NTX_I32) != (use == NTX_USE_NUMBERS) ||
        t->type == NTX_I64)
        return ntx_err_set(o->err, -ENOTSUP, "tensor '%s' is %s, which nothing can be multiplied by", t->name, type);
    if (ntx_planes_of(t->type) && use != NTX_USE_MATRIX && use != NTX_USE_EXPERT && use != NTX_USE_LOOKUP)
        return ntx_err_set(o->err, -ENOTSUP,
                           "tensor '%s' is %s; only matrices and experts are split in high and low bits", t->name,
                           type);
    if (use == NTX_USE_LOOKUP && ntx_planes_low(t->type) && strcmp(t->name, "token_embd.weight"))
        return ntx_err_set(o->err, -ENOTSUP, "tensor '%s' is %s; of tables only the embedding may be", t->name, type);
    if (use == NTX_USE_GROUPS && t->offset % NTX_PACK_BLOCK)
        return ntx_err_set(o->err, -EINVAL, "tensor '%s' does not begin on a block of %u bytes, as a packed one must",
                           t->name, NTX_PACK_BLOCK);
    return 0;
}

static int get_tensor(struct opening *o, const char *name, struct ntx_shape s, enum ntx_use use, bool required,
                      uint32_t *out)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor(o->g, name);
    int rc;
    *out = NTX_NO_TENSOR;
    if (!t)
        return required ? ntx_err_set(o->err, -EINVAL, "tensor '%s' is missing; a %s model needs it", name, o->name)
                        : 0;
    if ((rc = check_shape(o, t, s, use)) || (rc = check_type(o, t, use)))
        return rc;
    *out = (uint32_t)(t - ntx_gguf_tensor_at(o->g, 0));
    o->used[*out] = 1;
    return 0;
}

static int get_end(struct opening *o, enum ntx_end t, bool required)
{
    const struct ntx_tensor_kind *k = &ntx_end_kinds[t];
    const char *own = t == NTX_END_output_norm && o->arch ? o->arch->output_norm : NULL;
    const char *name = own && ntx_gguf_tensor(o->g, own) ? own : k->name;
    return get_tensor(o, name, ntx_end_shape(&o->m->hp, t), (enum ntx_use)k->use, required, &o->m->end[t]);
}

static const char *name_of(const struct ntx__arch *a, enum ntx_tensor t)
{
    return a && a->names[t] ? a->names[t] : ntx_tensor_kinds[t].name;
}

static const struct ntx__arch *arch_called(const char *name)
{
    for (size_t i = 0; i < N_ARCHS; i++)
        if (!strcmp(archs[i].name, name))
            return archs[i].arch;
    return NULL;
}

const char *ntx_tensor_name(const char *arch, enum ntx_tensor t) { return name_of(arch_called(arch), t); }

bool ntx_arch_keeps(const struct ntx_gguf *g, const char *tensor)
{
    struct ntx_str s = {0};
    ntx_gguf_str(g, "general.architecture", &s);
    for (size_t i = 0; i < N_ARCHS; i++)
        for (int t = 0; str_is(s, archs[i].name) && t < NTX_N_TENSORS; t++)
            if (archs[i].arch->kept[t] && strstr(tensor, name_of(archs[i].arch, (enum ntx_tensor)t)))
                return true;
    return false;
}

bool ntx_layer_describe(const char *arch, const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *out)
{
    const struct ntx__arch *a = arch_called(arch);
    const struct ntx_model m = {.hp = *hp};
    *out = (struct ntx_layer){0};
    if (a)
        a->layer(&m, layer, out);
    return a;
}

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n > k && !strcmp(name + n - k, end);
}

/* Finds "X.scale" of matrix "X.weight", `each` values. Names that do not end in ".weight" have no scale. */
static int get_scale(struct opening *o, const char *weight, uint32_t each, uint32_t *out)
{
    char name[80];
    int stem = (int)strlen(weight) - (int)strlen(".weight");
    if (!ends_in(weight, ".weight"))
        return 0;
    snprintf(name, sizeof name, "%.*s.scale", stem, weight);
    return get_tensor(o, name, (struct ntx_shape){each, 1, 1}, NTX_USE_VECTOR, false, out);
}

/* The matrix may have a scale. Packed groups have none; in gemma4 the scale of the experts' last matrices is a
 * weight of ROUTE. */
static bool has_scale(const struct opening *o, const struct ntx_layer *l, enum ntx_tensor t)
{
    return l->tensor[t] != NTX_NO_TENSOR && ntx_is_scalable(t) && !(o->m->pack && t == NTX_T_gate) &&
           (t != NTX_T_expert_down || l->expert_scale == NTX_NO_TENSOR);
}

/* The name of the layer's tensor, or of its base's if it has none. */
static void name_in_layer(const struct opening *o, uint32_t layer, enum ntx_tensor t, const char *of, char *name,
                          size_t size)
{
    if (o->arch->name) {
        o->arch->name(&o->m->hp, layer, t, of, name, size);
        return;
    }
    snprintf(name, size, "blk.%u.%s", o->block0 + layer, of);
    if (o->m->delta.base && !ntx_is_low(t) && t != NTX_T_groups_added && !ntx_gguf_tensor(o->g, name))
        snprintf(name, size, "blk.%u.%s", o->m->delta.base[layer], of);
}

static int get_step(struct opening *o, uint32_t layer, const struct ntx_step *s)
{
    struct ntx_layer *l = &o->m->layers[layer];
    char name[80];
    for (uint8_t i = 0; i < s->n_weights; i++) {
        enum ntx_tensor t = (enum ntx_tensor)s->weight[i];
        struct ntx_whole whole = {.name = name_of(o->arch, t), .shape = shape_of(o, layer, t)};
        ntx_whole_of(&o->m->hp, layer, t, &whole);
        if (ntx_is_models(t))
            snprintf(name, sizeof name, "%s", name_of(o->arch, t));
        else
            name_in_layer(o, layer, t, whole.name, name, sizeof name);
        int rc = get_tensor(o, name, whole.shape, (enum ntx_use)ntx_tensor_kinds[t].use, !(s->maybe >> i & 1),
                            &l->tensor[t]);
        if (!rc && has_scale(o, l, t))
            rc = get_scale(o, name, ntx_tensor_kinds[t].use == NTX_USE_EXPERT ? o->m->hp.n_expert : 1, &l->scale[t]);
        if (rc)
            return rc;
    }
    return 0;
}

static int get_layer(struct opening *o, uint32_t layer)
{
    struct ntx_layer *l = &o->m->layers[layer];
    memset(l->tensor, 0xff, sizeof l->tensor); /* NTX_NO_TENSOR */
    memset(l->scale, 0xff, sizeof l->scale);
    if (o->m->hp.by_state && !o->m->hp.head.n_taps && !o->m->hp.tower)
        ntx__add_nextn(&o->m->hp, l);
    o->arch->layer(o->m, layer, l);
    int rc = o->m->hp.by_state || o->m->hp.head.n_taps ? 0
                                                       : ntx_layer_delta_steps(o->g, &o->m->delta, layer, l, o->err);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < l->n_steps; i++) {
        if ((rc = get_step(o, layer, &l->step[i])))
            return rc;
    }
    ntx_layer_done(l);
    return 0;
}

/* Finds the tensors of no layer. */
static int get_ends(struct opening *o)
{
    struct ntx_model *m = o->m;
    int rc = 0;
    m->output_scale = m->trunk_norm = NTX_NO_TENSOR;
    for (int t = 0; t < NTX_N_ENDS; t++) {
        const enum ntx_has has = ntx_end_has(&m->hp, (enum ntx_end)t);
        m->end[t] = NTX_NO_TENSOR;
        if (has != NTX_NEVER && (rc = get_end(o, (enum ntx_end)t, has == NTX_ALWAYS)))
            return rc;
    }
    if (m->output != NTX_NO_TENSOR)
        return get_scale(o, ntx_end_kinds[NTX_END_output].name, 1, &m->output_scale);
    m->output = m->token_embd;
    return 0;
}

/* The tensor "X.weight" for a name "X" + end, or NULL. */
static const struct ntx_gguf_tensor *of_matrix(const struct opening *o, const char *name, const char *end)
{
    char weight[80];
    int stem = (int)strlen(name) - (int)strlen(end);
    if (!ends_in(name, end))
        return NULL;
    snprintf(weight, sizeof weight, "%.*s.weight", stem, name);
    return ntx_gguf_tensor(o->g, weight);
}

/* The tensor belongs to a next-token block: a tensor that layers may have, or one that only such blocks have. */
static bool predicts(const struct opening *o, const char *name)
{
    unsigned block;
    int n = 0;
    if (sscanf(name, "blk.%u.%n", &block, &n) != 1 || !n || block < o->m->hp.n_layers ||
        block - o->m->hp.n_layers >= o->m->hp.n_nextn)
        return false;
    bool known = !strncmp(name + n, "nextn.", 6);
    for (int t = 0; t < NTX_N_TENSORS; t++)
        known |= !strcmp(name + n, name_of(o->arch, (enum ntx_tensor)t));
    return known || of_matrix(o, name, ".scale");
}

/* Tensors of an indexer in a layer that reuses another layer's choice: they may be in a file. */
static bool is_unread(const struct opening *o, const char *name)
{
    unsigned block;
    int n = 0, t = NTX_T_index_q;
    if (!o->m->hp.index.head || sscanf(name, "blk.%u.%n", &block, &n) != 1 || !n || block >= o->m->hp.n_layers ||
        ntx_has_indexer(&o->m->hp, block))
        return false;
    while (t <= NTX_T_index_heads && strcmp(name + n, name_of(o->arch, (enum ntx_tensor)t)))
        t++;
    return t <= NTX_T_index_heads;
}

/* Only images and sounds use this tensor: an encoder in the same file, or a tensor that the architecture names. */
static bool is_of_images(const struct opening *o, const char *name)
{
    static const char *const encoders[] = {"v.", "a.", "mm."};
    unsigned block;
    int n = 0;
    for (size_t i = 0; i < sizeof encoders / sizeof *encoders; i++)
        if (!strncmp(name, encoders[i], strlen(encoders[i])))
            return true;
    if (sscanf(name, "blk.%u.%n", &block, &n) != 1 || !n || block >= o->m->hp.n_layers + o->m->hp.n_nextn)
        return false;
    for (size_t i = 0; i < NTX__UNREAD_TENSORS && o->arch->unread[i]; i++)
        if (!strcmp(name + n, o->arch->unread[i]))
            return true;
    return false;
}

/* Refuses a tensor. Scales of matrices that cannot have them here (ntx_is_scalable) can be merged into the weights
 * by ntx quantize, which changes the type. */
static int no_place(const struct opening *o, const char *name)
{
    const struct ntx_gguf_tensor *scaled = of_matrix(o, name, ".scale");
    const char *help = "";
    if (scaled && scaled->type == NTX_Q8_0)
        help = "; ntx quantize MODEL OUT.gguf F16 puts such scales into the weights";
    else if (scaled)
        help = "; ntx quantize MODEL OUT.gguf Q8_0 puts such scales into the weights";
    return ntx_err_set(o->err, -ENOTSUP, "tensor '%s' has no place in a %s model of %u layers%s", name, o->name,
                       o->m->hp.n_layers, help);
}

/* Tensors that no step takes and that need not be computed. "X.input_scale" is for programs that round inputs to
 * four bits, too. */
static bool has_place(const struct opening *o, uint64_t i)
{
    const char *name = ntx_gguf_tensor_at(o->g, i)->name;
    return o->used[i] || predicts(o, name) || is_unread(o, name) || is_of_images(o, name) ||
           of_matrix(o, name, ".input_scale");
}

static int get_tensors(struct opening *o)
{
    int rc = get_ends(o);
    for (uint32_t l = 0; !rc && l < o->m->hp.n_layers; l++)
        rc = get_layer(o, l);
    for (uint64_t i = 0; !rc && i < ntx_gguf_n_tensors(o->g); i++)
        if (!has_place(o, i))
            return no_place(o, ntx_gguf_tensor_at(o->g, i)->name);
    return rc;
}

static int get_layers(struct opening *o)
{
    int rc = get_pack(o);
    if (!rc && !o->m->hp.by_state)
        rc = ntx_layer_delta_read(o->g, o->m->hp.n_layers, &o->m->delta, o->err);
    if (rc)
        return rc;
    o->m->layers = calloc(o->m->hp.n_layers, sizeof *o->m->layers);
    o->used = calloc(ntx_gguf_n_tensors(o->g) + 1, 1);
    rc = o->m->layers && o->used ? get_tensors(o)
                                 : ntx_err_set(o->err, -ENOMEM, "no memory for %u layers", o->m->hp.n_layers);
    free(o->used);
    return rc;
}

typedef int get_fn(struct opening *o);
static int open_as(const struct ntx_gguf *g, get_fn *find, get_fn *get, struct ntx_model **out, struct ntx_err *err)
{
    struct ntx_model *m = calloc(1, sizeof *m);
    struct opening o = {.g = g, .m = m, .err = err};
    if (!m)
        return ntx_err_set(err, -ENOMEM, "no memory to open a model");
    m->gguf = g;
    int rc = find(&o);
    if (!rc)
        rc = get_keys(&o);
    if (!rc && get)
        rc = get(&o);
    if (rc)
        ntx_model_free(m);
    else
        *out = m;
    return rc;
}

static int open_model(const struct ntx_gguf *g, get_fn *get, struct ntx_model **out, struct ntx_err *err)
{
    return open_as(g, find_arch, get, out, err);
}

/* ---- a next-token block */

/* Turns the model's numbers into those of the block: one layer, not dense in models with experts, and not recurrent. */
static int nextn_keys(struct opening *o)
{
    struct ntx_hparams *hp = &o->m->hp;
    char fused[64];
    if (!hp->n_nextn)
        return ntx_err_set(o->err, -ENOENT, "the model has no next-token block (key '%s.nextn_predict_layers')",
                           o->name);
    if (!o->arch->nextn || hp->dims)
        return ntx_err_set(o->err, -ENOTSUP, "what predicts tokens in a %s model is not computed", o->name);
    o->block0 = hp->n_layers;
    snprintf(fused, sizeof fused, "blk.%u.%s", o->block0, ntx_tensor_kinds[NTX_T_expert_gate_up].name);
    hp->experts_fused = hp->n_expert && ntx_gguf_tensor(o->g, fused);
    hp->n_layers = 1;
    hp->n_nextn = hp->n_dense = 0;
    hp->by_state = true;
    memset(hp->recurrent, 0, sizeof hp->recurrent);
    return 0;
}

/* A tensor of the block replaces that of the model. */
static int nextn_end(struct opening *o, const char *own, enum ntx_end t)
{
    char name[80];
    uint32_t has;
    snprintf(name, sizeof name, "blk.%u.nextn.%s.weight", o->block0, own);
    int rc = get_tensor(o, name, ntx_end_shape(&o->m->hp, t), (enum ntx_use)ntx_end_kinds[t].use, false, &has);
    if (rc || has == NTX_NO_TENSOR)
        return rc;
    o->m->end[t] = has;
    if (t == NTX_END_output)
        o->m->output_scale = NTX_NO_TENSOR;
    return 0;
}

static int nextn_ends(struct opening *o)
{
    int rc = get_ends(o);
    o->m->trunk_norm = o->m->output_norm;
    if (rc || (rc = nextn_end(o, "embed_tokens", NTX_END_token_embd)) ||
        (rc = nextn_end(o, "shared_head_norm", NTX_END_output_norm)))
        return rc;
    return nextn_end(o, "shared_head_head", NTX_END_output);
}

static int get_nextn(struct opening *o)
{
    int rc = nextn_keys(o);
    if (rc)
        return rc;
    o->m->layers = calloc(1, sizeof *o->m->layers);
    o->used = calloc(ntx_gguf_n_tensors(o->g) + 1, 1);
    rc = o->m->layers && o->used ? nextn_ends(o) : ntx_err_set(o->err, -ENOMEM, "no memory for a layer");
    rc = rc ? rc : get_layer(o, 0);
    free(o->used);
    return rc;
}

/* ---- a drafter that uses states of another model's layers */

static int find_head(struct opening *o)
{
    unsigned i = head_of(o->g);
    if (i == sizeof heads / sizeof *heads)
        return ntx_err_set(o->err, -ENOTSUP, "it is no drafter of a kind that is computed here");
    o->name = heads[i].name;
    o->arch = heads[i].arch;
    return 0;
}

/* Every tensor must be used by one of the two parts, or be the table of token numbers (d2t). */
static int check_places(const struct opening *o, bool fuses)
{
    const char *const others[] = {ntx_tensor_kinds[NTX_T_fuse].name, ntx_tensor_kinds[NTX_T_fuse_norm].name, "d2t"};
    for (uint64_t i = 0; !fuses && i < ntx_gguf_n_tensors(o->g); i++) {
        const char *name = ntx_gguf_tensor_at(o->g, i)->name;
        bool known = o->used[i] || of_matrix(o, name, ".scale");
        for (unsigned k = 0; k < sizeof others / sizeof *others; k++)
            known |= !strcmp(name, others[k]);
        if (!known)
            return no_place(o, name);
    }
    return 0;
}

/* The first part computes no logits. */
static void drop_output(struct ntx_model *m)
{
    m->output = m->output_scale = m->output_norm = NTX_NO_TENSOR;
    m->hp.no_output_norm = true;
}

static int get_head(struct opening *o, bool fuses)
{
    struct ntx_hparams *hp = &o->m->hp;
    hp->head.fuses = fuses;
    hp->by_state = fuses || !hp->head.block;
    o->m->layers = calloc(hp->n_layers, sizeof *o->m->layers);
    o->used = calloc(ntx_gguf_n_tensors(o->g) + 1, 1);
    int rc = o->m->layers && o->used ? get_ends(o)
                                     : ntx_err_set(o->err, -ENOMEM, "no memory for %u layers", hp->n_layers);
    for (uint32_t l = 0; !rc && l < hp->n_layers; l++)
        rc = get_layer(o, l);
    rc = rc ? rc : check_places(o, fuses);
    if (!rc && fuses)
        drop_output(o->m);
    free(o->used);
    return rc;
}

static int get_first_part(struct opening *o) { return get_head(o, true); }
static int get_second_part(struct opening *o) { return get_head(o, false); }

int ntx_model_open_keys(const struct ntx_gguf *g, struct ntx_model **out, struct ntx_err *err)
{
    return open_as(g, ntx_head_kind(g) ? find_head : find_arch, NULL, out, err);
}
int ntx_model_open_head(const struct ntx_gguf *g, bool fuses, struct ntx_model **out, struct ntx_err *err)
{
    return open_as(g, find_head, fuses ? get_first_part : get_second_part, out, err);
}

/* ---- a vision tower */

static int find_tower(struct opening *o)
{
    struct ntx_str s = {0}, kind = {0};
    if (ntx_gguf_str(o->g, "general.architecture", &s) || !str_is(s, "clip"))
        return ntx_err_set(o->err, -EINVAL, "it is no projector file (key 'general.architecture' is not clip)");
    if (ntx_gguf_str(o->g, "clip.projector_type", &kind) && ntx_gguf_str(o->g, "clip.vision.projector_type", &kind))
        return ntx_err_set(o->err, -EINVAL, "key 'clip.projector_type' is missing");
    for (size_t i = 0; i < sizeof towers / sizeof *towers; i++)
        if (str_is(kind, towers[i].name)) {
            o->name = towers[i].name;
            o->arch = towers[i].arch;
            snprintf(o->m->hp.arch, sizeof o->m->hp.arch, "%s", o->name);
            return 0;
        }
    char name[48];
    ntx_printable(name, sizeof name, kind.p, kind.n);
    return ntx_err_set(o->err, -ENOTSUP, "it is of the kind '%s', which is not computed; these are: %s", name,
                       ntx_tower_names());
}

static int get_part(struct opening *o)
{
    struct ntx_model *m = o->m;
    m->layers = calloc(m->hp.n_layers, sizeof *m->layers);
    o->used = calloc(ntx_gguf_n_tensors(o->g) + 1, 1);
    int rc = m->layers && o->used ? get_ends(o)
                                  : ntx_err_set(o->err, -ENOMEM, "no memory for %u layers", m->hp.n_layers);
    for (uint32_t l = 0; !rc && l < m->hp.n_layers; l++)
        rc = get_layer(o, l);
    free(o->used);
    return rc;
}

static int get_converter(struct opening *o)
{
    ntx__tower_converts(&o->m->hp);
    return get_part(o);
}

static int get_projector(struct opening *o)
{
    ntx__tower_projects(&o->m->hp);
    return get_part(o);
}

static void mark_used(const struct ntx_model *m, uint8_t *used)
{
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        for (int t = 0; t < NTX_N_TENSORS; t++) {
            const uint32_t of[] = {m->layers[l].tensor[t], m->layers[l].scale[t]};
            for (int i = 0; i < 2; i++)
                if (of[i] != NTX_NO_TENSOR)
                    used[of[i]] = 1;
        }
}

/* Tensors for sounds, and those that a text model's file has, too. */
static bool is_of_others(const char *name)
{
    static const char *const others[] = {"a.", "mm.a.", "v.token_embd."};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strncmp(name, others[i], strlen(others[i])))
            return true;
    return false;
}

static int check_tower(const struct ntx_gguf *g, struct ntx_model *const *parts, struct ntx_err *err)
{
    const uint64_t n = ntx_gguf_n_tensors(g);
    uint8_t *used = calloc(n + 1, 1);
    int rc = used ? 0 : ntx_err_set(err, -ENOMEM, "no memory for a list of %llu tensors", (unsigned long long)n);
    for (int i = 0; used && i < NTX_TOWER_PARTS; i++)
        if (parts[i])
            mark_used(parts[i], used);
    const struct ntx_tower *t = parts[NTX_TOWER_SEES]->hp.tower;
    for (int i = 0; used && t->marked && i < NTX_TOWER_MARKS; i++)
        used[t->marks[i]] = 1;
    for (uint64_t i = 0; i < n && !rc; i++)
        if (!used[i] && !is_of_others(ntx_gguf_tensor_at(g, i)->name))
            rc = ntx_err_set(err, -ENOTSUP, "tensor '%s' has no place in a tower of the kind %s of %u layers",
                             ntx_gguf_tensor_at(g, i)->name, parts[NTX_TOWER_SEES]->hp.arch,
                             parts[NTX_TOWER_SEES]->hp.n_layers);
    free(used);
    return rc;
}

int ntx_tower_open(const struct ntx_gguf *g, struct ntx_model *out[NTX_TOWER_PARTS], struct ntx_err *err)
{
    struct ntx_model *parts[NTX_TOWER_PARTS] = {NULL};
    int rc = open_as(g, find_tower, get_part, &parts[NTX_TOWER_SEES], err);
    if (!rc && parts[NTX_TOWER_SEES]->hp.tower->converted)
        rc = open_as(g, find_tower, get_converter, &parts[NTX_TOWER_CONVERTS], err);
    if (!rc)
        rc = open_as(g, find_tower, get_projector, &parts[NTX_TOWER_PROJECTS], err);
    if (!rc)
        rc = check_tower(g, parts, err);
    for (int i = 0; i < NTX_TOWER_PARTS; i++)
        if (rc)
            ntx_model_free(parts[i]);
        else
            out[i] = parts[i];
    return rc;
}

const char *ntx_tower_names(void)
{
#define X(symbol, name) ", " name
    static const char names[] = NTX_TOWERS(X);
#undef X
    return names + strlen(", ");
}

int ntx_model_open(const struct ntx_gguf *g, struct ntx_model **out, struct ntx_err *err)
{
    return open_model(g, get_layers, out, err);
}
int ntx_model_open_nextn(const struct ntx_gguf *g, struct ntx_model **out, struct ntx_err *err)
{
    return open_model(g, get_nextn, out, err);
}

void ntx_model_free(struct ntx_model *m)
{
    if (!m)
        return;
    free(m->layers);
    free(m->dims);
    free(m->own);
    free(m->pack);
    free(m->delta.base);
    free(m);
}
