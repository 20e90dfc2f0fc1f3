#include "model/gguf_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "model/gguf.h"

#define ALIGN 32
#define MAX_TENSORS 16

struct bytes {
    char *p;
    size_t n, room;
};

struct tensor {
    char name[64];
    const float *values;
    uint64_t ne[2];
};

struct ntx_gguf_out {
    struct bytes kv;
    uint64_t n_kv;
    struct tensor tensors[MAX_TENSORS];
    unsigned n_tensors;
    bool failed;
};

struct ntx_gguf_out *ntx_gguf_out_new(void) { return calloc(1, sizeof(struct ntx_gguf_out)); }

void ntx_gguf_out_free(struct ntx_gguf_out *g)
{
    if (g)
        free(g->kv.p);
    free(g);
}

static bool put(struct bytes *b, const void *p, size_t n)
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

static bool put_u32(struct bytes *b, uint32_t v) { return put(b, &v, sizeof v); }
static bool put_u64(struct bytes *b, uint64_t v) { return put(b, &v, sizeof v); }
static bool put_str(struct bytes *b, const char *s) { return put_u64(b, strlen(s)) && put(b, s, strlen(s)); }

static bool begin_kv(struct ntx_gguf_out *g, const char *key, uint32_t type)
{
    g->n_kv++;
    return put_str(&g->kv, key) && put_u32(&g->kv, type);
}

void ntx_gguf_out_u32(struct ntx_gguf_out *g, const char *key, uint32_t v)
{
    g->failed |= !begin_kv(g, key, NTX_GGUF_U32) || !put_u32(&g->kv, v);
}

void ntx_gguf_out_f32(struct ntx_gguf_out *g, const char *key, float v)
{
    g->failed |= !begin_kv(g, key, NTX_GGUF_F32) || !put(&g->kv, &v, sizeof v);
}

void ntx_gguf_out_str(struct ntx_gguf_out *g, const char *key, const char *v)
{
    g->failed |= !begin_kv(g, key, NTX_GGUF_STR) || !put_str(&g->kv, v);
}

void ntx_gguf_out_f32s(struct ntx_gguf_out *g, const char *key, const float *v, size_t n)
{
    g->failed |= !begin_kv(g, key, NTX_GGUF_ARR) || !put_u32(&g->kv, NTX_GGUF_F32) || !put_u64(&g->kv, n) || !put(&g->kv, v, n * sizeof *v);
}

void ntx_gguf_out_tensor(struct ntx_gguf_out *g, const char *name, const float *values, uint64_t ne0, uint64_t ne1)
{
    if (g->n_tensors == MAX_TENSORS || strlen(name) >= sizeof g->tensors->name) {
        g->failed = true;
        return;
    }
    struct tensor *t = &g->tensors[g->n_tensors++];
    *t = (struct tensor){.values = values, .ne = {ne0, ne1}};
    strcpy(t->name, name);
}

static size_t tensor_bytes(const struct tensor *t) { return (size_t)(t->ne[0] * NTX_MAX(t->ne[1], 1u)) * sizeof(float); }

static bool put_header(const struct ntx_gguf_out *g, struct bytes *b)
{
    static const char zeros[ALIGN];
    uint64_t offset = 0;
    bool ok = put(b, "GGUF", 4) && put_u32(b, 3) && put_u64(b, g->n_tensors) && put_u64(b, g->n_kv) && put(b, g->kv.p, g->kv.n);
    for (unsigned i = 0; i < g->n_tensors && ok; i++) {
        const struct tensor *t = &g->tensors[i];
        ok = put_str(b, t->name) && put_u32(b, t->ne[1] ? 2 : 1) && put_u64(b, t->ne[0]) && (!t->ne[1] || put_u64(b, t->ne[1])) &&
             put_u32(b, 0 /* F32 */) && put_u64(b, offset);
        offset += NTX_ROUND_UP(tensor_bytes(t), (size_t)ALIGN);
    }
    return ok && put(b, zeros, NTX_ROUND_UP(b->n, (size_t)ALIGN) - b->n);
}

static int write_all(const struct ntx_gguf_out *g, const struct bytes *head, int fd)
{
    static const char zeros[ALIGN];
    int rc = ntx_write_all(fd, head->p, head->n);
    for (unsigned i = 0; i < g->n_tensors && !rc; i++) {
        size_t n = tensor_bytes(&g->tensors[i]);
        rc = ntx_write_all(fd, g->tensors[i].values, n);
        if (!rc)
            rc = ntx_write_all(fd, zeros, NTX_ROUND_UP(n, (size_t)ALIGN) - n);
    }
    return rc ? rc : fsync(fd) ? -errno : 0;
}

int ntx_gguf_out_write(const struct ntx_gguf_out *g, const char *path, struct ntx_err *err)
{
    struct bytes head = {0};
    char temp[4096];
    int fd = -1, rc = -ENOMEM;
    if (snprintf(temp, sizeof temp, "%s.%d.tmp", path, (int)getpid()) >= (int)sizeof temp)
        return ntx_err_set(err, -ENAMETOOLONG, "%s: the path is too long", path);
    if (g->failed || !put_header(g, &head))
        goto done;
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    rc = fd < 0 ? -errno : write_all(g, &head, fd);
    if (fd >= 0 && close(fd) && !rc)
        rc = -errno;
    if (!rc && rename(temp, path))
        rc = -errno;
    if (rc && fd >= 0)
        unlink(temp);
done:
    free(head.p);
    return rc ? ntx_err_set(err, rc, "%s: cannot write: %s", path, strerror(-rc)) : 0;
}
