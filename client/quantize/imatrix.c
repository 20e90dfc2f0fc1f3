/* SPDX-License-Identifier: Apache-2.0 */
#include "client/quantize/imatrix.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"
#include "model/gguf.h"
#include "model/gguf_out.h"
#include "model/quant.h"

#define SUMS         ".in_sum2"
#define COUNTS       ".counts"
#define MAX_MATRICES (1u << 16)

struct ntx_imatrix {
    struct ntx_importance *list;
    uint32_t n, room, chunks, chunk_tokens;
    char dataset[512];
};

void ntx_imatrix_free(struct ntx_imatrix *m)
{
    for (uint32_t i = 0; m && i < m->n; i++) {
        free(m->list[i].sum2);
        free(m->list[i].count);
    }
    if (m)
        free(m->list);
    free(m);
}

struct ntx_imatrix *ntx_imatrix_new(const char *dataset, uint32_t chunks, uint32_t chunk_tokens)
{
    struct ntx_imatrix *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->chunks = chunks;
    m->chunk_tokens = chunk_tokens;
    snprintf(m->dataset, sizeof m->dataset, "%s", dataset);
    return m;
}

/* Adds an empty entry, with room for the numbers. */
static struct ntx_importance *append_entry(struct ntx_imatrix *m, const char *name, uint32_t n, uint32_t n_mat)
{
    if (m->n == m->room) {
        uint32_t room = m->room ? 2 * m->room : 64;
        struct ntx_importance *list = realloc(m->list, room * sizeof *list);
        if (!list)
            return NULL;
        m->list = list;
        m->room = room;
    }
    struct ntx_importance *i = &m->list[m->n];
    *i = (struct ntx_importance){.n = n,
                                 .n_mat = n_mat,
                                 .sum2 = malloc((size_t)n * n_mat * sizeof(float)),
                                 .count = malloc(n_mat * sizeof(float))};
    if (!i->sum2 || !i->count) {
        free(i->sum2);
        free(i->count);
        return NULL;
    }
    snprintf(i->name, sizeof i->name, "%s", name);
    m->n++;
    return i;
}

int ntx_imatrix_add(struct ntx_imatrix *m, const struct ntx_importance *from)
{
    struct ntx_importance *i = append_entry(m, from->name, from->n, from->n_mat);
    if (!i)
        return -ENOMEM;
    memcpy(i->sum2, from->sum2, (size_t)i->n * i->n_mat * sizeof *i->sum2);
    memcpy(i->count, from->count, i->n_mat * sizeof *i->count);
    return 0;
}

const struct ntx_importance *ntx_imatrix_find(const struct ntx_imatrix *m, const char *tensor)
{
    for (uint32_t i = 0; m && i < m->n; i++)
        if (!strcmp(m->list[i].name, tensor))
            return &m->list[i];
    return NULL;
}

uint32_t ntx_imatrix_n(const struct ntx_imatrix *m) { return m->n; }
uint32_t ntx_imatrix_chunks(const struct ntx_imatrix *m) { return m->chunks; }
const char *ntx_imatrix_dataset(const struct ntx_imatrix *m) { return m->dataset; }

uint32_t ntx_imatrix_tokens(const struct ntx_imatrix *m)
{
    float most = 0;
    for (uint32_t i = 0; i < m->n; i++)
        for (uint32_t k = 0; k < m->list[i].n_mat; k++)
            most = NTX_MAX(most, m->list[i].count[k]);
    return most < (float)(1u << 31) ? (uint32_t)most : 1u << 31;
}

/* ---- reading */

static int read_values(int fd, const struct ntx_gguf_tensor *t, float *v, struct ntx_err *err)
{
    const int rc = ntx_read_at(fd, v, t->bytes, t->offset);
    if (rc)
        return ntx_err_set(err, rc, "tensor '%s' cannot be read: %s", t->name, ntx_read_error(rc));
    for (size_t i = 0; i < t->bytes / sizeof *v; i++)
        if (!isfinite(v[i]) || v[i] < 0)
            return ntx_err_set(err, -EINVAL, "tensor '%s': value %zu is %g, which is no sum of squares and no count",
                               t->name, i, (double)v[i]);
    return 0;
}

static bool ends_with(const char *name, const char *end, size_t *stem)
{
    size_t n = strlen(name), e = strlen(end);
    *stem = n - e;
    return n > e && !strcmp(name + n - e, end);
}

static int read_matrix(int fd, const struct ntx_gguf *g, const struct ntx_gguf_tensor *sums, size_t stem,
                       struct ntx_imatrix *m, struct ntx_err *err)
{
    char name[96], of[80];
    if (stem >= sizeof of)
        return ntx_err_set(err, -EINVAL, "tensor '%s': its name is too long", sums->name);
    snprintf(of, sizeof of, "%.*s", (int)stem, sums->name);
    snprintf(name, sizeof name, "%s" COUNTS, of);
    const struct ntx_gguf_tensor *counts = ntx_gguf_tensor(g, name);
    uint64_t n_mat = sums->ne[1] * sums->ne[2] * sums->ne[3];
    if (!counts || counts->bytes / sizeof(float) != n_mat || n_mat > MAX_MATRICES || sums->ne[0] > UINT32_MAX ||
        sums->type != NTX_F32 || counts->type != NTX_F32)
        return ntx_err_set(
            err, -EINVAL,
            "tensor '%s' [%llu x %llu] needs '%s' beside it, with a count for each of its matrices, both F32",
            sums->name, (unsigned long long)sums->ne[0], (unsigned long long)n_mat, name);
    struct ntx_importance *i = append_entry(m, of, (uint32_t)sums->ne[0], (uint32_t)n_mat);
    if (!i)
        return ntx_err_set(err, -ENOMEM, "no memory for tensor '%s'", sums->name);
    int rc = read_values(fd, sums, i->sum2, err);
    return rc ? rc : read_values(fd, counts, i->count, err);
}

static void read_keys(const struct ntx_gguf *g, struct ntx_imatrix *m)
{
    uint64_t v;
    const struct ntx_gguf_kv *sets = ntx_gguf_find(g, "imatrix.datasets");
    if (!ntx_gguf_u64(g, "imatrix.chunk_count", &v) && v <= UINT32_MAX)
        m->chunks = (uint32_t)v;
    if (!ntx_gguf_u64(g, "imatrix.chunk_size", &v) && v <= UINT32_MAX)
        m->chunk_tokens = (uint32_t)v;
    if (sets && sets->type == NTX_GGUF_ARR && sets->elem == NTX_GGUF_STR && sets->count)
        snprintf(m->dataset, sizeof m->dataset, "%.*s", (int)NTX_MIN(sets->strs[0].n, sizeof m->dataset - 1),
                 sets->strs[0].p);
}

static int read_entries(int fd, const struct ntx_gguf *g, struct ntx_imatrix *m, struct ntx_err *err)
{
    struct ntx_str type = {"", 0};
    size_t stem;
    int rc = 0;
    ntx_gguf_str(g, "general.type", &type);
    if (type.n != 7 || memcmp(type.p, "imatrix", 7))
        return ntx_err_set(err, -EINVAL,
                           "this GGUF is no importance matrix; make one with ntx imatrix MODEL TEXT -o FILE");
    read_keys(g, m);
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(g) && !rc; i++)
        if (ends_with(ntx_gguf_tensor_at(g, i)->name, SUMS, &stem))
            rc = read_matrix(fd, g, ntx_gguf_tensor_at(g, i), stem, m, err);
    if (!rc && !m->n)
        rc = ntx_err_set(err, -EINVAL, "it holds nothing about any matrix");
    return rc;
}

int ntx_imatrix_read(const char *path, struct ntx_imatrix **out, struct ntx_err *err)
{
    struct ntx_imatrix *m = NULL;
    struct ntx_gguf *g = NULL;
    struct stat st;
    int rc, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ntx_err_set(err, -errno, "%s: %s; an importance matrix is made with ntx imatrix MODEL TEXT -o FILE",
                           path, strerror(errno));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        rc = ntx_err_set(err, -EINVAL, "%s: not a regular file", path);
    else if ((rc = ntx_gguf_open(&fd, 1, &path, &g, err)) == -EINVAL)
        ntx_err_prefix(err, "this is no importance matrix in GGUF, make one with ntx imatrix MODEL TEXT -o FILE");
    else if (!rc)
        rc = (m = ntx_imatrix_new("", 0, 0)) ? read_entries(fd, g, m, err) : ntx_err_set(err, -ENOMEM, "no memory");
    if (rc && g)
        ntx_err_prefix(err, "%s", path);
    close(fd);
    ntx_gguf_free(g);
    if (rc) {
        ntx_imatrix_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

/* ---- writing */

int ntx_imatrix_write(const struct ntx_imatrix *m, const char *path, struct ntx_err *err)
{
    struct ntx_gguf_out *g = ntx_gguf_out_new();
    char name[96];
    if (!g)
        return ntx_err_set(err, -ENOMEM, "no memory");
    struct ntx_str set = {m->dataset, strlen(m->dataset)};
    ntx_gguf_out_str(g, "general.type", "imatrix");
    ntx_gguf_out_copy(
        g, &(struct ntx_gguf_kv){
               .key = {"imatrix.datasets", 16}, .type = NTX_GGUF_ARR, .elem = NTX_GGUF_STR, .count = 1, .strs = &set});
    ntx_gguf_out_u32(g, "imatrix.chunk_count", m->chunks);
    ntx_gguf_out_u32(g, "imatrix.chunk_size", m->chunk_tokens);
    for (uint32_t i = 0; i < m->n; i++) {
        const struct ntx_importance *k = &m->list[i];
        snprintf(name, sizeof name, "%s" SUMS, k->name);
        ntx_gguf_out_tensor(g, name, k->sum2, k->n, k->n_mat);
        snprintf(name, sizeof name, "%s" COUNTS, k->name);
        ntx_gguf_out_tensor(g, name, k->count, 1, k->n_mat);
    }
    int rc = ntx_gguf_out_write(g, path, err);
    ntx_gguf_out_free(g);
    return rc;
}
