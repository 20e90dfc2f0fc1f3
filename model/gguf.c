/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.c: joins the parts of a model (one for a plain file), finds keys and tensors by name, converts scalars. */
#include "model/gguf.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/gguf_part.h"
#include "model/planes.h"
#include "model/tensors.h"

#define MAX_PARTS 128 /* the number of descriptors that one message can pass */

/* Sorted by (hash, name), so that equal names are neighbours and look-up is a bisection, whatever the names are. */
struct entry {
    uint64_t hash;
    struct ntx_str name;
    uint32_t i;
};

struct ntx_gguf {
    struct ntx__gguf_part *parts;    /* only the first part and adapters keep their keys */
    unsigned n_parts, n_own;         /* all files, and those of the model, which come first */
    bool planes;                     /* its files are low and high bits */
    char *names;                     /* names of adapters' tensors */
    struct ntx_gguf_tensor *tensors; /* of all parts, in order */
    uint64_t n_tensors;
    struct entry *key_index, *tensor_index;
    struct ntx__gguf_given *given;
};

static uint64_t hash_of(const struct ntx_str *s)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < s->n; i++)
        h = (h ^ (unsigned char)s->p[i]) * 0x100000001b3u;
    return h;
}

static int compare_entries(const void *va, const void *vb)
{
    const struct entry *a = va, *b = vb;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    if (a->name.n != b->name.n)
        return a->name.n < b->name.n ? -1 : 1;
    return memcmp(a->name.p, b->name.p, a->name.n);
}

static struct entry entry_of(const char *p, size_t n, uint64_t i)
{
    struct entry e = {.name = {p, n}, .i = (uint32_t)i};
    e.hash = hash_of(&e.name);
    return e;
}

static int index_names(struct entry *e, uint64_t n, const char *kind, struct ntx_err *err)
{
    qsort(e, n, sizeof *e, compare_entries);
    for (uint64_t i = 1; i < n; i++)
        if (!compare_entries(&e[i - 1], &e[i]))
            return ntx_err_set(err, -EINVAL, "%s '%.*s': there are two of this name", kind,
                               (int)(e[i].name.n > 80 ? 80 : e[i].name.n), e[i].name.p);
    return 0;
}

static int index_all_keys(struct ntx_gguf *g, struct ntx_err *err)
{
    const struct ntx__gguf_part *p = &g->parts[0];
    g->key_index = calloc(p->n_kv + 1, sizeof *g->key_index);
    if (!g->key_index)
        return ntx_err_set(err, -ENOMEM, "no memory for %llu keys", (unsigned long long)p->n_kv);
    for (uint64_t i = 0; i < p->n_kv; i++)
        g->key_index[i] = entry_of(p->kv[i].key.p, p->kv[i].key.n, i);
    return index_names(g->key_index, p->n_kv, "key", err);
}

/* Tensors as the high bits list them; those that are split become tensors of low bits. */
static int join_planes(struct ntx_gguf *g, uint64_t *n, struct ntx_err *err)
{
    const struct ntx__gguf_part *low = &g->parts[0], *high = &g->parts[NTX_GGUF_HIGH_FILE];
    uint64_t k = 0;
    for (uint64_t i = 0; i < high->n_tensors; i++) {
        const struct ntx_gguf_tensor *h = &high->tensors[i], *l = &low->tensors[k];
        struct ntx_gguf_tensor *t = &g->tensors[(*n)++];
        const struct ntx_planes *p = ntx_planes_of(h->type);
        *t = *h;
        t->file = NTX_GGUF_HIGH_FILE;
        if (!p)
            continue;
        if (k++ >= low->n_tensors || strcmp(l->name, h->name) || l->type != p->low || l->n_dims != h->n_dims ||
            memcmp(l->ne, h->ne, sizeof l->ne))
            return ntx_err_set(err, -EINVAL, "tensor '%s': its low bits are missing, or have another type or shape",
                               h->name);
        *t = *l;
        t->high = h->offset;
    }
    if (k < low->n_tensors)
        return ntx_err_set(err, -EINVAL, "tensor '%s' has no high bits", low->tensors[k].name);
    for (uint64_t i = 0; i < *n; i++)
        g->tensor_index[i] = entry_of(g->tensors[i].name, strlen(g->tensors[i].name), i);
    return 0;
}

/* Joins the parts' tensors in one list, each with the number of its part. */
static int join_tensors(struct ntx_gguf *g, struct ntx_err *err)
{
    for (unsigned f = 0; f < g->n_parts; f++)
        g->n_tensors += g->parts[f].n_tensors;
    g->tensors = calloc(g->n_tensors + 1, sizeof *g->tensors);
    g->tensor_index = calloc(g->n_tensors + 1, sizeof *g->tensor_index);
    if (!g->tensors || !g->tensor_index)
        return ntx_err_set(err, -ENOMEM, "no memory for %llu tensors", (unsigned long long)g->n_tensors);
    size_t bytes = 0;
    for (unsigned f = g->n_own; f < g->n_parts; f++)
        for (uint64_t i = 0; i < g->parts[f].n_tensors; i++)
            bytes += strlen(g->parts[f].tensors[i].name) + 3;
    char *name = g->names = malloc(bytes + 1);
    if (!name)
        return ntx_err_set(err, -ENOMEM, "no memory for the names of %llu tensors", (unsigned long long)g->n_tensors);
    uint64_t n = 0;
    int rc = g->planes ? join_planes(g, &n, err) : 0;
    if (rc)
        return rc;
    for (unsigned f = g->planes ? g->n_own : 0; f < g->n_parts; f++)
        for (uint64_t i = 0; i < g->parts[f].n_tensors; i++, n++) {
            struct ntx_gguf_tensor *t = &g->tensors[n];
            *t = g->parts[f].tensors[i];
            if (ntx_planes_low(t->type))
                return ntx_err_set(err, -EINVAL, "tensor '%s' has low bits only, and the file is no model's (%s)",
                                   t->name, NTX_PLANES_PART);
            t->file = f;
            if (f >= g->n_own) { /* `name` has room for these: it was computed above */
                snprintf(name, strlen(t->name) + 3, "%s.%u", t->name, f - g->n_own + 1);
                t->name = name;
                name += strlen(name) + 1;
            }
            g->tensor_index[n] = entry_of(t->name, strlen(t->name), n);
        }
    g->n_tensors = n;
    return index_names(g->tensor_index, n, "tensor", err);
}

static const struct ntx_gguf_kv *find_in_part(const struct ntx__gguf_part *p, const char *key)
{
    size_t n = strlen(key);
    for (uint64_t i = 0; i < p->n_kv; i++)
        if (p->kv[i].key.n == n && !memcmp(p->kv[i].key.p, key, n))
            return &p->kv[i];
    return NULL;
}

/* 0: the key is absent; -1: it is not an integer. */
static long long split_key(const struct ntx__gguf_part *p, const char *key)
{
    const struct ntx_gguf_kv *kv = find_in_part(p, key);
    uint64_t v;
    if (!kv)
        return 0;
    return ntx__gguf_kv_u64(kv, &v) || v > INT32_MAX ? -1 : (long long)v;
}

/* Part f must declare itself part f of n. */
static int check_split(const struct ntx__gguf_part *p, unsigned f, unsigned n, struct ntx_err *err)
{
    long long no = split_key(p, "split.no"), count = split_key(p, "split.count");
    if (no < 0 || count < 0)
        return ntx_err_set(err, -EINVAL, "its split.no or split.count is not a small integer");
    if (count <= 1 && n == 1)
        return 0;
    if (!count)
        return ntx_err_set(err, -EINVAL, "is no part of a split model (it has no split.count), but %u files were given",
                           n);
    if (count != (long long)n)
        return ntx_err_set(err, -EINVAL, "says that it is part %lld of %lld (split.count), but %u were given", no + 1,
                           count, n);
    if (no != (long long)f)
        return ntx_err_set(err, -EINVAL, "says that it is part %lld of %lld (split.no), but was given as part %u",
                           no + 1, count, f + 1);
    return 0;
}

static int check_total(const struct ntx_gguf *g, struct ntx_err *err)
{
    const struct ntx_gguf_kv *kv = find_in_part(&g->parts[0], "split.tensors.count");
    uint64_t v, n = 0;
    for (unsigned f = 0; f < g->n_own; f++)
        n += g->parts[f].n_tensors;
    if (!kv || g->n_own == 1 || g->planes)
        return 0;
    if (ntx__gguf_kv_u64(kv, &v) || v != n)
        return ntx_err_set(err, -EINVAL, "its parts hold %llu tensors, its split.tensors.count says otherwise",
                           (unsigned long long)n);
    return 0;
}

/* Later parts keep their tensors only. */
static void drop_keys(struct ntx__gguf_part *p)
{
    free(p->header);
    free(p->kv);
    free(p->strs);
    p->header = NULL;
    p->kv = NULL;
    p->strs = NULL;
    p->n_kv = p->n_strs = p->header_bytes = 0;
}

static bool key_says(const struct ntx__gguf_part *p, const char *key, const char *value)
{
    const struct ntx_gguf_kv *kv = find_in_part(p, key);
    return kv && kv->type == NTX_GGUF_STR && kv->strs->n == strlen(value) && !memcmp(kv->strs->p, value, kv->strs->n);
}

static bool is_adapter(const struct ntx__gguf_part *p) { return key_says(p, "general.type", "adapter"); }

/* The adapter must be a LoRA for a model of this architecture. */
static int check_adapter(const struct ntx_gguf *g, const struct ntx__gguf_part *p, struct ntx_err *err)
{
    const struct ntx_gguf_kv *arch = find_in_part(&g->parts[0], "general.architecture"),
                             *own = find_in_part(p, "general.architecture");
    if (!is_adapter(p))
        return ntx_err_set(err, -EINVAL, "stands behind an adapter, and is none (general.type)");
    if (!key_says(p, "adapter.type", "lora"))
        return ntx_err_set(err, -ENOTSUP, "is an adapter, but not of the type 'lora' (adapter.type)");
    if (!arch || !own || own->type != NTX_GGUF_STR || arch->type != NTX_GGUF_STR || own->strs->n != arch->strs->n ||
        memcmp(own->strs->p, arch->strs->p, own->strs->n))
        return ntx_err_set(err, -EINVAL,
                           "is an adapter for another architecture than the model's (general.architecture)");
    return 0;
}

/* Low bits need the high bits of the same pair. */
static int check_planes(struct ntx_gguf *g, struct ntx_err *err)
{
    const struct ntx_gguf_kv *pair = find_in_part(&g->parts[0], NTX_PLANES_PAIR), *other;
    if (!key_says(&g->parts[0], NTX_PLANES_PART, "low"))
        return 0;
    if (g->n_own != 2)
        return ntx_err_set(err, -EINVAL,
                           "has only the low bits of a model: the file with its high bits (%s), which ntx pack "
                           "--planes wrote with it, must be beside it",
                           NTX_PLANES_HIGH_FILE);
    other = find_in_part(&g->parts[NTX_GGUF_HIGH_FILE], NTX_PLANES_PAIR);
    if (!pair || !other || pair->type != NTX_GGUF_STR || other->type != NTX_GGUF_STR ||
        pair->strs->n != other->strs->n || memcmp(pair->strs->p, other->strs->p, pair->strs->n) ||
        !key_says(&g->parts[NTX_GGUF_HIGH_FILE], NTX_PLANES_PART, "high"))
        return ntx_err_set(err, -EINVAL,
                           "has low bits, and the file with high bits beside it (%s) is not of one model with it: both "
                           "must come from the same ntx pack --planes",
                           NTX_PLANES_HIGH_FILE);
    g->planes = true;
    return 0;
}

/* Checks all parts after reading. *f: the part that is wrong. */
static int check_parts(struct ntx_gguf *g, unsigned *f, struct ntx_err *err)
{
    int rc = 0;
    for (g->n_own = 1; g->n_own < g->n_parts && !is_adapter(&g->parts[g->n_own]);)
        g->n_own++;
    *f = 0;
    if ((rc = check_planes(g, err)))
        return rc;
    for (*f = 0; *f < g->n_parts && !rc; ++*f) {
        struct ntx__gguf_part *p = &g->parts[*f];
        if (*f < g->n_own && g->planes)
            rc = 0;
        else if (*f < g->n_own)
            rc = check_split(p, *f, g->n_own, err);
        else if (*f - g->n_own < NTX_ADAPTERS_MAX)
            rc = check_adapter(g, p, err);
        else
            rc = ntx_err_set(err, -E2BIG, "%u adapters are the most", NTX_ADAPTERS_MAX);
        if (rc)
            return rc;
        if (*f && *f < g->n_own)
            drop_keys(p);
    }
    return 0;
}

static int finish_index(struct ntx_gguf *g, struct ntx_err *err)
{
    int rc = index_all_keys(g, err);
    if (!rc)
        rc = join_tensors(g, err);
    return rc ? rc : check_total(g, err);
}

static int check_apart(const struct ntx_gguf *g, unsigned f, struct ntx_err *err)
{
    bool shared = false;
    ntx_gguf_bool(g, "ntx.shared_tensors", &shared);
    return ntx__gguf_part_apart(&g->parts[f], shared, err);
}

static struct ntx_gguf *new_gguf(unsigned n_parts)
{
    struct ntx_gguf *g = calloc(1, sizeof *g);
    if (g && !(g->parts = calloc(n_parts, sizeof *g->parts))) {
        free(g);
        return NULL;
    }
    if (g)
        g->n_parts = n_parts;
    return g;
}

static int source_of(int fd, struct ntx__gguf_source *src, struct ntx_err *err)
{
    struct stat st;
    if (fstat(fd, &st))
        return ntx_err_set(err, -errno, "cannot stat: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return ntx_err_set(err, -EINVAL, "not a regular file");
    *src = (struct ntx__gguf_source){.fd = fd, .file_bytes = (uint64_t)st.st_size};
    return 0;
}

int ntx_gguf_open(const int *fds, unsigned n_fds, const char *const *names, struct ntx_gguf **out, struct ntx_err *err)
{
    int rc = 0;
    unsigned f = 0;
    if (!n_fds || n_fds > MAX_PARTS)
        return ntx_err_set(err, -EINVAL, "a model of %u files; 1 to %u are allowed", n_fds, MAX_PARTS);
    struct ntx_gguf *g = new_gguf(n_fds);
    if (!g)
        return ntx_err_set(err, -ENOMEM, "no memory to open a model");
    for (f = 0; f < n_fds && !rc; f++) {
        struct ntx__gguf_source src;
        rc = source_of(fds[f], &src, err);
        if (!rc)
            rc = ntx__gguf_part_read(&src, &g->parts[f], err);
        if (rc)
            break;
    }
    if (!rc)
        rc = check_parts(g, &f, err);
    if (!rc) {
        f = 0; /* errors of the whole model name its first part */
        rc = finish_index(g, err);
    }
    while (!rc && f < n_fds && !(rc = check_apart(g, f, err)))
        f++;
    if (rc) {
        if (names && names[f])
            ntx_err_prefix(err, "%s", names[f]);
        else if (n_fds > 1)
            ntx_err_prefix(err, "part %u", f + 1);
        ntx_gguf_free(g);
        return rc;
    }
    *out = g;
    return 0;
}

int ntx_gguf_parse(const void *buf, size_t len, uint64_t file_bytes, struct ntx_gguf **out, struct ntx_err *err)
{
    struct ntx__gguf_source src = {.fd = -1, .mem = buf, .mem_len = len, .file_bytes = file_bytes};
    struct ntx_gguf *g = new_gguf(1);
    if (!g)
        return ntx_err_set(err, -ENOMEM, "no memory to open a model");
    unsigned f;
    int rc = ntx__gguf_part_read(&src, &g->parts[0], err);
    if (!rc)
        rc = check_parts(g, &f, err);
    if (!rc)
        rc = finish_index(g, err);
    if (!rc)
        rc = check_apart(g, 0, err);
    if (rc) {
        ntx_gguf_free(g);
        return rc;
    }
    *out = g;
    return 0;
}

void ntx_gguf_free(struct ntx_gguf *g)
{
    if (!g)
        return;
    for (unsigned f = 0; f < g->n_parts; f++)
        ntx__gguf_part_free(&g->parts[f]);
    free(g->parts);
    free(g->names);
    free(g->tensors);
    free(g->key_index);
    free(g->tensor_index);
    while (g->given) {
        struct ntx__gguf_given *next = g->given->next;
        free(g->given);
        g->given = next;
    }
    free(g);
}

int ntx__gguf_give(struct ntx_gguf *g, const struct ntx_gguf_kv *kv, struct ntx__gguf_given *what, struct ntx_err *err)
{
    struct ntx__gguf_part *p = &g->parts[0];
    struct ntx_gguf_kv *has = NULL, *more;
    what->next = g->given;
    g->given = what;
    for (uint64_t i = 0; i < p->n_kv && !has; i++)
        if (p->kv[i].key.n == kv->key.n && !memcmp(p->kv[i].key.p, kv->key.p, kv->key.n))
            has = &p->kv[i];
    if (has) {
        has->type = kv->type;
        has->elem = kv->elem;
        has->count = kv->count;
        has->data = kv->data;
        has->strs = kv->strs;
        return 0;
    }
    if (!(more = realloc(p->kv, (p->n_kv + 1) * sizeof *more)))
        return ntx_err_set(err, -ENOMEM, "no memory for one more key");
    p->kv = more;
    p->kv[p->n_kv++] = *kv;
    free(g->key_index);
    return index_all_keys(g, err);
}

uint64_t ntx_gguf_n_kv(const struct ntx_gguf *g) { return g->parts[0].n_kv; }

const struct ntx_gguf_kv *ntx_gguf_kv_at(const struct ntx_gguf *g, uint64_t i)
{
    return i < g->parts[0].n_kv ? &g->parts[0].kv[i] : NULL;
}

uint64_t ntx_gguf_n_tensors(const struct ntx_gguf *g) { return g->n_tensors; }

const struct ntx_gguf_tensor *ntx_gguf_tensor_at(const struct ntx_gguf *g, uint64_t i)
{
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

bool ntx_gguf_planes(const struct ntx_gguf *g) { return g->planes; }

bool ntx_gguf_planes_pair(const struct ntx_gguf *a, const struct ntx_gguf *b)
{
    struct ntx_str x, y;
    return !ntx_gguf_str(a, NTX_PLANES_PAIR, &x) && !ntx_gguf_str(b, NTX_PLANES_PAIR, &y) && x.n == y.n &&
           !memcmp(x.p, y.p, x.n);
}

uint32_t ntx_gguf_version(const struct ntx_gguf *g) { return g->parts[0].version; }

uint64_t ntx_gguf_header_bytes(const struct ntx_gguf *g)
{
    const struct ntx__gguf_part *p = &g->parts[0];
    return p->header_bytes + p->n_strs * sizeof *p->strs + p->n_kv * (sizeof *p->kv + sizeof *g->key_index) +
           g->n_tensors * (2 * sizeof *g->tensors + sizeof *g->tensor_index);
}

static const struct entry *look_up(const struct entry *index, uint64_t n, const char *name)
{
    struct entry e = entry_of(name, strlen(name), 0);
    return bsearch(&e, index, n, sizeof e, compare_entries);
}

const struct ntx_gguf_kv *ntx_gguf_find(const struct ntx_gguf *g, const char *key)
{
    const struct entry *e = look_up(g->key_index, g->parts[0].n_kv, key);
    return e ? &g->parts[0].kv[e->i] : NULL;
}

unsigned ntx_gguf_adapters(const struct ntx_gguf *g) { return g->n_parts - g->n_own; }

const struct ntx_gguf_kv *ntx_gguf_adapter_find(const struct ntx_gguf *g, unsigned k, const char *key)
{
    return k && k <= ntx_gguf_adapters(g) ? find_in_part(&g->parts[g->n_own + k - 1], key) : NULL;
}

const struct ntx_gguf_tensor *ntx_gguf_tensor(const struct ntx_gguf *g, const char *name)
{
    const struct entry *e = look_up(g->tensor_index, g->n_tensors, name);
    return e ? &g->tensors[e->i] : NULL;
}

int ntx_gguf_lend(struct ntx_gguf *g, const struct ntx_gguf *from, const struct ntx_gguf_loan *loans, unsigned n,
                  struct ntx_err *err)
{
    struct ntx_gguf_tensor *tensors = realloc(g->tensors, (g->n_tensors + n + 1) * sizeof *tensors);
    g->tensors = tensors ? tensors : g->tensors;
    struct entry *index = realloc(g->tensor_index, (g->n_tensors + n + 1) * sizeof *index);
    g->tensor_index = index ? index : g->tensor_index;
    if (!tensors || !index)
        return ntx_err_set(err, -ENOMEM, "no memory for %u more tensors", n);
    uint64_t own = g->n_tensors;
    for (unsigned i = 0; i < n; i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor(from, loans[i].of);
        if (!t || look_up(g->tensor_index, own, loans[i].name))
            continue;
        struct ntx_gguf_tensor *to = &g->tensors[g->n_tensors];
        *to = *t;
        to->name = loans[i].name;
        to->file += g->n_parts;
        g->tensor_index[g->n_tensors] = entry_of(to->name, strlen(to->name), g->n_tensors);
        g->n_tensors++;
    }
    return index_names(g->tensor_index, g->n_tensors, "tensor", err);
}

int ntx_gguf_u64(const struct ntx_gguf *g, const char *key, uint64_t *v)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, key);
    return kv ? ntx__gguf_kv_u64(kv, v) : -ENOENT;
}

int ntx_gguf_f32(const struct ntx_gguf *g, const char *key, float *v)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, key);
    double d;
    if (!kv)
        return -ENOENT;
    if (kv->type == NTX_GGUF_F32) {
        memcpy(v, kv->data, sizeof *v);
        return 0;
    }
    if (kv->type != NTX_GGUF_F64)
        return -EINVAL;
    memcpy(&d, kv->data, sizeof d);
    if (isfinite(d) && fabs(d) > (double)__FLT_MAX__)
        return -EINVAL;
    *v = (float)d;
    return 0;
}

int ntx_gguf_bool(const struct ntx_gguf *g, const char *key, bool *v)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, key);
    if (!kv)
        return -ENOENT;
    if (kv->type != NTX_GGUF_BOOL)
        return -EINVAL;
    *v = *(const uint8_t *)kv->data != 0;
    return 0;
}

int ntx_gguf_str(const struct ntx_gguf *g, const char *key, struct ntx_str *v)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, key);
    if (!kv)
        return -ENOENT;
    if (kv->type != NTX_GGUF_STR)
        return -EINVAL;
    *v = kv->strs[0];
    return 0;
}
