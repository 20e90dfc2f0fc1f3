/* SPDX-License-Identifier: Apache-2.0 */
#include "model/gguf_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/new_file.h"
#include "common/util.h"
#include "model/gguf.h"
#include "model/gguf_part.h"
#include "model/planes.h"
#include "model/quant.h"

#define ALIGN 32

struct bytes {
    char *p;
    size_t n, room;
};

struct tensor {
    char name[80];
    const float *values;
    ntx_gguf_write_fn *write; /* writes the values, if `values` is NULL */
    void *ctx;
    uint32_t number; /* argument of `write` */
    uint32_t type, n_dims;
    uint64_t ne[4], bytes;
};

struct ntx_gguf_out {
    struct bytes kv;
    uint64_t n_kv;
    struct tensor *tensors;
    size_t n_tensors, room;
    uint32_t align;
    bool failed;
};

struct ntx_gguf_out *ntx_gguf_out_new(void)
{
    struct ntx_gguf_out *g = calloc(1, sizeof *g);
    if (g)
        g->align = ALIGN;
    return g;
}

void ntx_gguf_out_free(struct ntx_gguf_out *g)
{
    if (g) {
        free(g->kv.p);
        free(g->tensors);
    }
    free(g);
}

static bool put_bytes(struct bytes *b, const void *p, size_t n)
{
    if (b->n + n > b->room) {
        size_t room = NTX_MAX(2 * b->room, b->n + n + 4096);
        char *q = realloc(b->p, room);
        if (!q)
            return false;
        b->p = q;
        b->room = room;
    }
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    return true;
}

static bool put_u32(struct bytes *b, uint32_t v) { return put_bytes(b, &v, sizeof v); }
static bool put_u64(struct bytes *b, uint64_t v) { return put_bytes(b, &v, sizeof v); }
static bool put_text(struct bytes *b, struct ntx_str s) { return put_u64(b, s.n) && put_bytes(b, s.p, s.n); }
static bool put_str(struct bytes *b, const char *s) { return put_text(b, (struct ntx_str){s, strlen(s)}); }

static bool begin_kv(struct ntx_gguf_out *g, const char *key, uint32_t type)
{
    g->n_kv++;
    return put_str(&g->kv, key) && put_u32(&g->kv, type);
}

void ntx_gguf_out_u32(struct ntx_gguf_out *g, const char *key, uint32_t v)
{
    g->failed |= !begin_kv(g, key, NTX_GGUF_U32) || !put_u32(&g->kv, v);
}

void ntx_gguf_out_bool(struct ntx_gguf_out *g, const char *key, bool v)
{
    const uint8_t byte = v;
    g->failed |= !begin_kv(g, key, NTX_GGUF_BOOL) || !put_bytes(&g->kv, &byte, sizeof byte);
}

void ntx_gguf_out_f32(struct ntx_gguf_out *g, const char *key, float v)
{
    g->failed |= !begin_kv(g, key, NTX_GGUF_F32) || !put_bytes(&g->kv, &v, sizeof v);
}

void ntx_gguf_out_str(struct ntx_gguf_out *g, const char *key, const char *v)
{
    g->failed |= !begin_kv(g, key, NTX_GGUF_STR) || !put_str(&g->kv, v);
}

void ntx_gguf_out_f32s(struct ntx_gguf_out *g, const char *key, const float *v, size_t n)
{
    g->failed |= !begin_kv(g, key, NTX_GGUF_ARR) || !put_u32(&g->kv, NTX_GGUF_F32) || !put_u64(&g->kv, n) ||
                 !put_bytes(&g->kv, v, n * sizeof *v);
}

void ntx_gguf_out_u32s(struct ntx_gguf_out *g, const char *key, const uint32_t *v, size_t n)
{
    g->failed |= !begin_kv(g, key, NTX_GGUF_ARR) || !put_u32(&g->kv, NTX_GGUF_U32) || !put_u64(&g->kv, n) ||
                 !put_bytes(&g->kv, v, n * sizeof *v);
}

void ntx_gguf_out_copy(struct ntx_gguf_out *g, const struct ntx_gguf_kv *kv)
{
    bool array = kv->type == NTX_GGUF_ARR, ok = put_text(&g->kv, kv->key) && put_u32(&g->kv, kv->type);
    enum ntx_gguf_vtype leaf = array ? kv->elem : kv->type;
    if (array)
        ok = ok && put_u32(&g->kv, kv->elem) && put_u64(&g->kv, kv->count);
    if (leaf != NTX_GGUF_STR)
        ok = ok && put_bytes(&g->kv, kv->data, kv->count * ntx_gguf_scalar_bytes(leaf));
    for (uint64_t i = 0; leaf == NTX_GGUF_STR && i < kv->count; i++)
        ok = ok && put_text(&g->kv, kv->strs[i]);
    uint64_t align;
    static const char alignment[] = "general.alignment";
    if (kv->key.n == sizeof alignment - 1 && !memcmp(kv->key.p, alignment, kv->key.n) && !ntx__gguf_kv_u64(kv, &align))
        g->align = (uint32_t)align;
    g->failed |= !ok;
    g->n_kv++;
}

void ntx_gguf_out_align(struct ntx_gguf_out *g, uint32_t bytes)
{
    ntx_gguf_out_u32(g, "general.alignment", bytes);
    g->align = bytes;
}

static void add_tensor(struct ntx_gguf_out *g, const char *name, struct tensor t)
{
    if (g->n_tensors == g->room) {
        size_t room = g->room ? 2 * g->room : 64;
        struct tensor *all = realloc(g->tensors, room * sizeof *all);
        if (all) {
            g->tensors = all;
            g->room = room;
        }
    }
    g->failed |= g->n_tensors == g->room || strlen(name) >= sizeof t.name;
    if (g->failed)
        return;
    strcpy(t.name, name);
    t.bytes = ntx_row_bytes(t.type, t.ne[0]);
    for (uint32_t d = 1; d < t.n_dims; d++)
        t.bytes *= t.ne[d];
    g->tensors[g->n_tensors++] = t;
}

void ntx_gguf_out_tensor(struct ntx_gguf_out *g, const char *name, const float *values, uint64_t ne0, uint64_t ne1)
{
    add_tensor(g, name, (struct tensor){.values = values, .type = NTX_F32, .ne = {ne0, ne1}, .n_dims = ne1 ? 2 : 1});
}

void ntx_gguf_out_data(struct ntx_gguf_out *g, const char *name, uint32_t type, const uint64_t ne[4], uint32_t n_dims,
                       ntx_gguf_write_fn *write, void *ctx, uint32_t tensor)
{
    struct tensor t = {.write = write, .ctx = ctx, .number = tensor, .type = type, .n_dims = n_dims};
    memcpy(t.ne, ne, sizeof t.ne);
    add_tensor(g, name, t);
}

static bool put_zeros(struct bytes *b, size_t n)
{
    bool ok = true;
    while (n-- && ok)
        ok = put_bytes(b, "", 1);
    return ok;
}

static bool put_header(const struct ntx_gguf_out *g, struct bytes *b)
{
    uint64_t offset = 0;
    bool ok = put_bytes(b, "GGUF", 4) && put_u32(b, 3) && put_u64(b, g->n_tensors) && put_u64(b, g->n_kv) &&
              put_bytes(b, g->kv.p, g->kv.n);
    for (size_t i = 0; i < g->n_tensors && ok; i++) {
        const struct tensor *t = &g->tensors[i];
        ok = put_str(b, t->name) && put_u32(b, t->n_dims) && put_bytes(b, t->ne, t->n_dims * sizeof *t->ne) &&
             put_u32(b, t->type < NTX_PLANES_FIRST ? t->type : ntx_planes_to_file(t->type)) && put_u64(b, offset);
        offset += NTX_ROUND_UP(t->bytes, (uint64_t)g->align);
    }
    return ok && put_zeros(b, NTX_ROUND_UP(b->n, (size_t)g->align) - b->n);
}

/* Writes the tensor's bytes at the file's position, and zeros up to the next tensor. */
static int write_tensor(const struct ntx_gguf_out *g, const struct tensor *t, int fd, struct ntx_err *err)
{
    static const char zeros[4096];
    off_t at = lseek(fd, 0, SEEK_CUR);
    int rc = t->write ? t->write(t->ctx, t->number, fd, err) : ntx_write_all(fd, t->values, t->bytes);
    if (!rc && lseek(fd, 0, SEEK_CUR) != at + (off_t)t->bytes)
        rc = -EIO;
    for (uint64_t left = NTX_ROUND_UP(t->bytes, (uint64_t)g->align) - t->bytes, n; left && !rc; left -= n) {
        n = NTX_MIN(left, sizeof zeros);
        rc = ntx_write_all(fd, zeros, n);
    }
    return rc;
}

uint64_t ntx_gguf_out_bytes(const struct ntx_gguf_out *g)
{
    struct bytes head = {0};
    uint64_t sum = put_header(g, &head) ? head.n : 0;
    for (size_t i = 0; i < g->n_tensors; i++)
        sum += NTX_ROUND_UP(g->tensors[i].bytes, (uint64_t)g->align);
    free(head.p);
    return sum;
}

void *ntx_gguf_out_header(const struct ntx_gguf_out *g, size_t *n)
{
    struct bytes head = {0};
    if (!g->failed && put_header(g, &head)) {
        *n = head.n;
        return head.p;
    }
    free(head.p);
    return NULL;
}

int ntx_gguf_out_write_fd(const struct ntx_gguf_out *g, int fd, struct ntx_err *err)
{
    struct bytes head = {0};
    int rc = g->failed || !put_header(g, &head) ? -ENOMEM : ntx_write_all(fd, head.p, head.n);
    for (size_t i = 0; i < g->n_tensors && !rc; i++)
        rc = write_tensor(g, &g->tensors[i], fd, err);
    free(head.p);
    if (!rc && fsync(fd))
        rc = -errno;
    return rc;
}

int ntx_gguf_out_write(const struct ntx_gguf_out *g, const char *path, struct ntx_err *err)
{
    struct ntx_err why = {0}; /* error of the tensor's callback */
    struct ntx_new_file f;
    int rc = ntx_new_file_open(&f, path);
    if (!rc)
        rc = ntx_gguf_out_write_fd(g, f.fd, &why);
    if (!rc)
        rc = ntx_new_file_name(&f, path);
    ntx_new_file_drop(&f);
    if (!rc)
        return 0;
    return ntx_err_set(err, rc, "%s: cannot write: %s", path, why.code ? why.text : strerror(-rc));
}
