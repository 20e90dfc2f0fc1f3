/* SPDX-License-Identifier: Apache-2.0 */
#include "client/delta/analyze.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/delta/analyze_impl.h"
#include "common/pieces.h"
#include "common/util.h"
#include "model/quant.h"
#include "model/tensors.h"

#define MAX_ROLES 256u
#define FEWEST    32u /* inputs and outputs: smaller matrices are not worth streaming */

struct entry { /* a matrix of a layer */
    uint32_t role, layer;
    const struct ntx_gguf_tensor *t;
};

struct job {
    const struct ntx_gguf *g;
    const int *fds;
    const struct ntx_analyze_options *o;
    struct entry *entries;
    uint32_t n_entries;
    struct ntx_quantizer *quantizer[NTX_TYPE_LIMIT];
    struct ntx_analysis *a;
    struct ntx_err *err;
};

/* ---- the matrices */

/* "blk.7.ffn_up.weight" -> 7, "ffn_up". */
static bool take_name(const char *name, uint32_t *layer, char *role, size_t len)
{
    char *end;
    size_t n = strlen(name);
    if (strncmp(name, "blk.", 4) || name[4] < '0' || name[4] > '9' || n < 7 || strcmp(name + n - 7, ".weight"))
        return false;
    unsigned long l = strtoul(name + 4, &end, 10);
    size_t role_len = (size_t)(name + n - 7 - end);
    if (*end != '.' || l > 100000 || end + 1 >= name + n - 7 || role_len > len)
        return false;
    *layer = (uint32_t)l;
    memcpy(role, end + 1, role_len - 1);
    role[role_len - 1] = 0;
    return true;
}

static uint32_t find_role(const struct ntx_analysis *a, const char *name, const struct ntx_gguf_tensor *t)
{
    uint32_t i = 0;
    while (i < a->n_roles &&
           (strcmp(a->roles[i].name, name) || a->roles[i].in != t->ne[0] || a->roles[i].out != t->ne[1]))
        i++;
    return i;
}

static void choose_types(struct ntx_analyze_role *r)
{
    static const uint32_t large[NTX_ANALYZE_TYPES] = {NTX_Q2_K, NTX_Q3_K, NTX_Q4_K, NTX_Q6_K},
                          small[NTX_ANALYZE_TYPES] = {NTX_Q4_0, NTX_Q5_0, NTX_Q8_0, NTX_TYPE_LIMIT},
                          none[NTX_ANALYZE_TYPES] = {NTX_TYPE_LIMIT, NTX_TYPE_LIMIT, NTX_TYPE_LIMIT, NTX_TYPE_LIMIT};
    const uint32_t *types = none;
    if (r->in % 256 == 0)
        types = large;
    else if (r->in % 32 == 0)
        types = small;
    memcpy(r->types, types, sizeof r->types);
}

static int find_matrices(struct job *j)
{
    uint64_t n = ntx_gguf_n_tensors(j->g);
    j->entries = calloc(n + 1, sizeof *j->entries);
    j->a->roles = calloc(MAX_ROLES, sizeof *j->a->roles);
    if (!j->entries || !j->a->roles)
        return ntx_err_set(j->err, -ENOMEM, "no memory");
    for (uint64_t i = 0; i < n; i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(j->g, i);
        struct entry e = {.t = t};
        char name[sizeof j->a->roles->name];
        if (t->ne[0] < FEWEST || t->ne[1] < FEWEST || t->ne[3] > 1 || !take_name(t->name, &e.layer, name, sizeof name))
            continue;
        if ((e.role = find_role(j->a, name, t)) == j->a->n_roles) {
            if (e.role == MAX_ROLES)
                return ntx_err_set(j->err, -E2BIG,
                                   "more than %u kinds of matrices; this is no model of layers that are alike",
                                   MAX_ROLES);
            struct ntx_analyze_role *r = &j->a->roles[j->a->n_roles++];
            *r = (struct ntx_analyze_role){.in = t->ne[0], .out = t->ne[1]};
            memcpy(r->name, name, sizeof r->name);
            choose_types(r);
        }
        j->entries[j->n_entries++] = e;
    }
    return 0;
}

static const struct entry *find_entry(const struct job *j, uint32_t role, uint32_t layer)
{
    for (uint32_t i = 0; i < j->n_entries; i++)
        if (j->entries[i].role == role && j->entries[i].layer == layer)
            return &j->entries[i];
    return NULL;
}

/* ---- pairs */

static uint32_t experts_looked_at(const struct job *j, const struct ntx_gguf_tensor *t)
{
    return (uint32_t)NTX_MIN(t->ne[2], j->o->experts);
}

/* The layer that b's layer is compared with; NULL: none. */
static const struct entry *partner_of(const struct job *j, const struct entry *b)
{
    uint32_t layer = j->o->has_base ? j->o->base : b->layer - j->o->apart;
    if (j->o->has_base ? b->layer == layer : b->layer < j->o->apart)
        return NULL;
    const struct entry *a = find_entry(j, b->role, layer);
    return a && a->t->ne[2] == b->t->ne[2] ? a : NULL;
}

static void add_pairs(struct job *j, uint32_t role)
{
    struct ntx_analysis *a = j->a;
    a->roles[role].first = a->n_pairs;
    for (uint32_t i = 0; i < j->n_entries; i++) {
        const struct entry *b = &j->entries[i], *with = b->role == role ? partner_of(j, b) : NULL;
        uint32_t n = with ? experts_looked_at(j, b->t) : 0;
        for (uint32_t e = 0; e < n; e++)
            a->pairs[a->n_pairs++] = (struct ntx_analyze_pair){.role = role,
                                                               .a = with->layer,
                                                               .b = b->layer,
                                                               .matrix = (uint32_t)(e * b->t->ne[2] / n),
                                                               .bytes = b->t->bytes / b->t->ne[2]};
    }
    a->roles[role].n = a->n_pairs - a->roles[role].first;
}

static int make_pairs(struct job *j)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < j->n_entries; i++)
        n += experts_looked_at(j, j->entries[i].t);
    if (!(j->a->pairs = calloc(n + 1, sizeof *j->a->pairs)))
        return ntx_err_set(j->err, -ENOMEM, "no memory");
    for (uint32_t r = 0; r < j->a->n_roles; r++)
        add_pairs(j, r);
    if (!j->a->n_pairs && j->o->has_base)
        return ntx_err_set(j->err, -ENOENT, "no layer but %u has matrices of the shapes that layer %u has", j->o->base,
                           j->o->base);
    if (!j->a->n_pairs && ntx_gguf_find(j->g, "ntx.delta.base"))
        return ntx_err_set(
            j->err, -ENOENT,
            "the layers of this model share their matrices already (ntx.delta.base): there are none to compare");
    return j->a->n_pairs ? 0
                         : ntx_err_set(j->err, -ENOENT, "no two layers that lie %u apart have matrices of one shape",
                                       j->o->apart);
}

/* ---- the smallest delta within the bound */

static uint64_t factor_bytes(const struct ntx_analyze_role *r, uint64_t rank)
{
    return rank * (r->in + r->out) * 2; /* F16 */
}

static uint64_t type_bytes(const struct ntx_analyze_role *r, uint32_t t)
{
    return ntx_row_bytes(r->types[t], r->in) * r->out;
}

static void take_smaller(struct ntx_analyze_pair *p, uint64_t bytes, uint32_t rank, uint32_t type)
{
    if (bytes >= p->delta_bytes)
        return;
    p->delta_bytes = bytes;
    p->rank = rank;
    p->type = type;
}

static void choose_delta(const struct ntx_analyze_options *o, const struct ntx_analyze_role *r,
                         struct ntx_analyze_pair *p)
{
    p->alone_bytes = p->bytes;
    for (uint32_t t = 0; t < NTX_ANALYZE_TYPES && r->types[t] != NTX_TYPE_LIMIT; t++)
        if (p->is.own[t] <= o->bound)
            p->alone_bytes = NTX_MIN(p->alone_bytes, type_bytes(r, t));
    p->delta_bytes = p->alone_bytes;
    p->type = NTX_TYPE_LIMIT;
    if (!(p->is.change > 0))
        take_smaller(p, 0, 0, NTX_TYPE_LIMIT);
    for (uint32_t i = 0; i < o->n_ranks; i++)
        if (p->is.by_rank[i] <= o->bound)
            take_smaller(p, factor_bytes(r, o->ranks[i]), o->ranks[i], NTX_TYPE_LIMIT);
    for (uint32_t t = 0; t < NTX_ANALYZE_TYPES && r->types[t] != NTX_TYPE_LIMIT; t++)
        if (p->is.by_type[t] <= o->bound)
            take_smaller(p, type_bytes(r, t), 0, r->types[t]);
}

/* ---- comparison */

static int compare_pair(void *ctx, uint32_t i, struct ntx_err *err)
{
    const struct job *j = ctx;
    struct ntx_analyze_pair *p = &j->a->pairs[i];
    const struct ntx_analyze_role *r = &j->a->roles[p->role];
    const struct ntx_gguf_tensor *a = find_entry(j, p->role, p->a)->t, *b = find_entry(j, p->role, p->b)->t;
    struct ntx_quantizer *quantizer[NTX_ANALYZE_TYPES] = {NULL};
    for (uint32_t t = 0; t < NTX_ANALYZE_TYPES && r->types[t] != NTX_TYPE_LIMIT; t++)
        quantizer[t] = j->quantizer[r->types[t]];
    struct ntx__pair_job k = {.a = {a, j->fds[a->file], p->matrix * r->out},
                              .b = {b, j->fds[b->file], p->matrix * r->out},
                              .in = r->in,
                              .out = r->out,
                              .columns = ntx_is_kin(r->name, NTX_T_down) || ntx_is_kin(r->name, NTX_T_o),
                              .types = r->types,
                              .quantizer = quantizer,
                              .o = j->o};
    int rc = ntx__compare(&k, &p->is, err);
    if (!rc)
        choose_delta(j->o, r, p);
    return rc;
}

static int make_quantizers(struct job *j)
{
    for (uint32_t r = 0; r < j->a->n_roles; r++)
        for (uint32_t t = 0; t < NTX_ANALYZE_TYPES; t++) {
            uint32_t type = j->a->roles[r].types[t];
            if (type != NTX_TYPE_LIMIT && !j->quantizer[type] && !(j->quantizer[type] = ntx_quantizer_new(type)))
                return ntx_err_set(j->err, -ENOMEM, "no memory");
        }
    return 0;
}

static int compare_all(struct job *j)
{
    const struct ntx_pieces p = {.n = j->a->n_pairs,
                                 .threads = j->o->threads,
                                 .one = compare_pair,
                                 .ctx = j,
                                 .progress = j->o->progress,
                                 .progress_ctx = j->o->ctx};
    return ntx_pieces_do(&p, j->err);
}

/* The share of a layer's experts that a token uses. */
static double used_experts(const struct ntx_gguf *g)
{
    struct ntx_str arch;
    char key[96];
    uint64_t n = 0, used = 0;
    if (ntx_gguf_str(g, "general.architecture", &arch))
        return 1;
    snprintf(key, sizeof key, "%.*s.expert_count", (int)NTX_MIN(arch.n, (size_t)64), arch.p);
    bool known = !ntx_gguf_u64(g, key, &n);
    snprintf(key, sizeof key, "%.*s.expert_used_count", (int)NTX_MIN(arch.n, (size_t)64), arch.p);
    return known && !ntx_gguf_u64(g, key, &used) && used && used < n ? (double)used / (double)n : 1;
}

static void add_up(struct job *j)
{
    struct ntx_analysis *a = j->a;
    const double used = used_experts(j->g);
    for (uint32_t i = 0; i < a->n_pairs; i++) {
        const struct ntx_analyze_pair *p = &a->pairs[i];
        const struct ntx_gguf_tensor *t = find_entry(j, p->role, p->b)->t;
        double stands_for = (t->ne[2] > 1 ? used : 1) * (double)t->ne[2] / experts_looked_at(j, t);
        a->n_delta += p->delta_bytes < p->alone_bytes;
        a->bytes += stands_for * (double)p->bytes;
        a->alone_bytes += stands_for * (double)p->alone_bytes;
        a->delta_bytes += stands_for * (double)p->delta_bytes;
    }
}

int ntx_analyze(const struct ntx_gguf *g, const int *fds, const struct ntx_analyze_options *o,
                struct ntx_analysis **out, struct ntx_err *err)
{
    struct job j = {.g = g, .fds = fds, .o = o, .a = calloc(1, sizeof *j.a), .err = err};
    int rc = j.a ? find_matrices(&j) : ntx_err_set(err, -ENOMEM, "no memory");
    if (!rc && !(rc = make_pairs(&j)) && !(rc = make_quantizers(&j)) && !(rc = compare_all(&j)))
        add_up(&j);
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        ntx_quantizer_free(j.quantizer[t]);
    free(j.entries);
    if (rc)
        ntx_analysis_free(j.a);
    else
        *out = j.a;
    return rc;
}

enum ntx_analyze_verdict ntx_analysis_verdict(const struct ntx_analysis *a)
{
    if (a->delta_bytes > 0.9 * a->alone_bytes)
        return NTX_ANALYZE_NO;
    return a->delta_bytes > 0.5 * a->alone_bytes ? NTX_ANALYZE_LITTLE : NTX_ANALYZE_YES;
}

void ntx_analysis_free(struct ntx_analysis *a)
{
    if (!a)
        return;
    free(a->roles);
    free(a->pairs);
    free(a);
}
