#include "model/digest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"

#define SAMPLES 64
#define BLOCK 4096u

struct sum { /* two FNV-1a sums with different beginnings */
    uint64_t a, b;
};

static void add(struct sum *s, const void *p, size_t n)
{
    const unsigned char *c = p;
    for (size_t i = 0; i < n; i++) {
        s->a = (s->a ^ c[i]) * 0x100000001b3u;
        s->b = (s->b ^ c[i]) * 0x100000001b3u + 0x9e3779b97f4a7c15u;
    }
}

/* The first whole block at or after the middle of a tensor, as far as it is the tensor's; small ones whole. */
static int sample(struct sum *s, const struct ntx_gguf_tensor *t, int fd, uint8_t *buf)
{
    uint64_t from = t->bytes > 2 * BLOCK ? t->offset + t->bytes / 2 : t->offset, end = t->offset + t->bytes;
    uint64_t at = NTX_ROUND_DOWN(from, (uint64_t)BLOCK);
    ssize_t n;
    do
        n = pread(fd, buf, 2 * BLOCK, (off_t)at);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    uint64_t got = at + (uint64_t)n, to = NTX_MIN(NTX_MIN(end, got), from + BLOCK);
    if (to > from)
        add(s, buf + (from - at), (size_t)(to - from));
    return 0;
}

/* Of the first n tensors and so many adapters. */
static int digest(const struct ntx_gguf *g, const int *fds, uint64_t n, unsigned adapters, char out[NTX_DIGEST_TEXT], struct ntx_err *err)
{
    struct ntx_str whole;
    if (!ntx_gguf_str(g, "ntx.share.digest", &whole)) {
        snprintf(out, NTX_DIGEST_TEXT, "%.*s", (int)NTX_MIN(whole.n, (size_t)NTX_DIGEST_TEXT - 1), whole.p);
        return 0;
    }
    struct sum s = {0xcbf29ce484222325u, 0x84222325cbf29ce4u};
    uint64_t every = n / SAMPLES + 1;
    uint8_t *buf = aligned_alloc(BLOCK, 2 * BLOCK);
    int rc = buf ? 0 : -ENOMEM;
    for (uint64_t i = 0; i < n && !rc; i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(g, i);
        add(&s, t->name, strlen(t->name));
        add(&s, &t->type, sizeof t->type);
        add(&s, t->ne, sizeof t->ne);
        if (i % every == 0)
            rc = sample(&s, t, fds[t->file], buf);
    }
    for (unsigned k = 1; k <= adapters; k++) {
        const struct ntx_gguf_kv *alpha = ntx_gguf_adapter_find(g, k, "adapter.lora.alpha");
        if (alpha && alpha->type == NTX_GGUF_F32)
            add(&s, alpha->data, sizeof(float));
    }
    free(buf);
    if (rc)
        return ntx_err_set(err, rc, "cannot read a sample of the model: %s", strerror(-rc));
    snprintf(out, NTX_DIGEST_TEXT, "%016" PRIx64 "%016" PRIx64, s.a, s.b);
    return 0;
}

static void add_key(struct sum *s, const struct ntx_gguf_kv *kv)
{
    const size_t each = ntx_gguf_scalar_bytes(kv->type == NTX_GGUF_ARR ? kv->elem : kv->type);
    add(s, kv->key.p, kv->key.n);
    add(s, &kv->type, sizeof kv->type);
    add(s, &kv->count, sizeof kv->count);
    if (each)
        add(s, kv->data, each * kv->count);
    for (uint64_t i = 0; !each && i < kv->count; i++)
        add(s, kv->strs[i].p, kv->strs[i].n);
}

/* The order of keys says nothing. */
uint64_t ntx_model_keys(const struct ntx_gguf *g)
{
    struct ntx_str arch;
    uint64_t all = 0;
    if (ntx_gguf_str(g, "general.architecture", &arch))
        return 0;
    for (uint64_t i = 0; i < ntx_gguf_n_kv(g); i++) {
        const struct ntx_gguf_kv *kv = ntx_gguf_kv_at(g, i);
        struct sum s = {0xcbf29ce484222325u, 0};
        if (kv->key.n <= arch.n || memcmp(kv->key.p, arch.p, arch.n) || kv->key.p[arch.n] != '.')
            continue;
        add_key(&s, kv);
        all += s.a;
    }
    return all;
}

int ntx_model_digest(const struct ntx_gguf *g, const int *fds, char out[NTX_DIGEST_TEXT], struct ntx_err *err)
{
    return digest(g, fds, ntx_gguf_n_tensors(g), ntx_gguf_adapters(g), out, err);
}

/* Adapters' tensors stand behind the model's. */
static uint64_t own_tensors(const struct ntx_gguf *g, unsigned n_files)
{
    uint64_t n = ntx_gguf_n_tensors(g);
    while (n && ntx_gguf_tensor_at(g, n - 1)->file >= n_files - ntx_gguf_adapters(g))
        n--;
    return n;
}

int ntx_adapters_fit(const struct ntx_gguf *g, const int *fds, unsigned n_files, char *const *names, struct ntx_err *err)
{
    char own[NTX_DIGEST_TEXT] = "";
    int rc = 0;
    for (unsigned k = 1; k <= ntx_gguf_adapters(g) && !rc; k++) {
        const struct ntx_gguf_kv *of = ntx_gguf_adapter_find(g, k, "ntx.delta.of");
        if (!of)
            continue;
        if (!*own && (rc = digest(g, fds, own_tensors(g, n_files), 0, own, err)))
            return rc;
        if (of->type != NTX_GGUF_STR || of->strs->n != NTX_DIGEST_TEXT - 1 || memcmp(of->strs->p, own, NTX_DIGEST_TEXT - 1))
            rc = ntx_err_set(err, -EINVAL, "%s: was made of another model than this one (ntx.delta.of): load the very file that ntx pack --delta was given as --base, or make the adapter anew with this one",
                             names[n_files - ntx_gguf_adapters(g) + k - 1]);
    }
    return rc;
}
