/* SPDX-License-Identifier: Apache-2.0 */
#include "model/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"

#define SAMPLES 64
#define BLOCK   4096u

struct sum { /* two FNV-1a sums with different initial values */
    uint64_t a, b;
};
static const struct sum none = {0xcbf29ce484222325u, 0x84222325cbf29ce4u};

static void add_hash(struct sum *s, const void *p, size_t n)
{
    const unsigned char *c = p;
    for (size_t i = 0; i < n; i++) {
        s->a = (s->a ^ c[i]) * 0x100000001b3u;
        s->b = (s->b ^ c[i]) * 0x100000001b3u + 0x9e3779b97f4a7c15u;
    }
}

/* Adds bytes [from, end) of a file by aligned reads, at most two blocks. Bytes behind the end of the file are left
 * out. */
static int add_bytes(struct sum *s, int fd, uint64_t from, uint64_t end, uint8_t *buf)
{
    while (from < end) {
        uint64_t at = NTX_ROUND_DOWN(from, (uint64_t)BLOCK);
        ssize_t n;
        do
            n = pread(fd, buf, 2 * BLOCK, (off_t)at);
        while (n < 0 && errno == EINTR);
        if (n < 0)
            return -errno;
        (void)posix_fadvise(fd, (off_t)at, n, POSIX_FADV_DONTNEED); /* the page cache is left to others */
        uint64_t to = NTX_MIN(end, at + (uint64_t)n);
        if (to <= from)
            return 0;
        add_hash(s, buf + (from - at), (size_t)(to - from));
        from = to;
    }
    return 0;
}

/* Adds one block of a tensor: from its middle, or the start of a small tensor. */
static int sample(struct sum *s, const struct ntx_gguf_tensor *t, int fd, uint8_t *buf)
{
    uint64_t from = t->bytes > 2 * BLOCK ? t->offset + t->bytes / 2 : t->offset;
    return add_bytes(s, fd, from, NTX_MIN(t->offset + t->bytes, from + BLOCK), buf);
}

static void put_text(const struct sum *s, char out[NTX_DIGEST_TEXT])
{
    snprintf(out, NTX_DIGEST_TEXT, "%016" PRIx64 "%016" PRIx64, s->a, s->b);
}

/* Digest of the first n tensors and the first `adapters` adapters. */
static int digest(const struct ntx_gguf *g, const int *fds, uint64_t n, unsigned adapters, char out[NTX_DIGEST_TEXT],
                  struct ntx_err *err)
{
    struct ntx_str whole;
    if (!ntx_gguf_str(g, "ntx.share.digest", &whole)) {
        snprintf(out, NTX_DIGEST_TEXT, "%.*s", (int)NTX_MIN(whole.n, (size_t)NTX_DIGEST_TEXT - 1), whole.p);
        return 0;
    }
    struct sum s = none;
    uint64_t every = n / SAMPLES + 1;
    uint8_t *buf = aligned_alloc(BLOCK, 2 * BLOCK);
    int rc = buf ? 0 : -ENOMEM;
    for (uint64_t i = 0; i < n && !rc; i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(g, i);
        add_hash(&s, t->name, strlen(t->name));
        add_hash(&s, &t->type, sizeof t->type);
        add_hash(&s, t->ne, sizeof t->ne);
        if (i % every == 0)
            rc = sample(&s, t, fds[t->file], buf);
    }
    for (unsigned k = 1; k <= adapters; k++) {
        const struct ntx_gguf_kv *alpha = ntx_gguf_adapter_find(g, k, "adapter.lora.alpha");
        if (alpha && alpha->type == NTX_GGUF_F32)
            add_hash(&s, alpha->data, sizeof(float));
    }
    free(buf);
    if (rc)
        return ntx_err_set(err, rc, "cannot read a sample of the model: %s", strerror(-rc));
    put_text(&s, out);
    return 0;
}

static void add_key(struct sum *s, const struct ntx_gguf_kv *kv)
{
    const size_t each = ntx_gguf_scalar_bytes(kv->type == NTX_GGUF_ARR ? kv->elem : kv->type);
    add_hash(s, kv->key.p, kv->key.n);
    add_hash(s, &kv->type, sizeof kv->type);
    add_hash(s, &kv->count, sizeof kv->count);
    if (each)
        add_hash(s, kv->data, each * kv->count);
    for (uint64_t i = 0; !each && i < kv->count; i++)
        add_hash(s, kv->strs[i].p, kv->strs[i].n);
}

/* The sum does not depend on the order of the keys. */
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

/* ---- an adapter's base */

/* Number of the model's own tensors; the adapters' follow them in the list. */
static uint64_t own_tensors(const struct ntx_gguf *g, unsigned n_files)
{
    uint64_t n = ntx_gguf_n_tensors(g);
    while (n && ntx_gguf_tensor_at(g, n - 1)->file >= n_files - ntx_gguf_adapters(g))
        n--;
    return n;
}

static bool is_norm(const struct ntx_gguf_tensor *t) { return t->ne[1] == 1 && strstr(t->name, "norm"); }

/* Sums over the first n tensors: what quantization keeps, and what it changes. They do not depend on the order of
 * the tensors, since a quantiser may write another one. */
static int parts(const struct ntx_gguf *g, const int *fds, uint64_t n, struct ntx_digest_parts *out,
                 struct ntx_err *err)
{
    struct sum norms = {0, 0}, types = {0, 0};
    uint8_t *buf = aligned_alloc(BLOCK, 2 * BLOCK);
    int rc = buf ? 0 : -ENOMEM;
    for (uint64_t i = 0; i < n && !rc; i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(g, i);
        const bool norm = is_norm(t);
        struct sum s = none, *to = norm ? &norms : &types;
        add_hash(&s, t->name, strlen(t->name));
        add_hash(&s, &t->type, sizeof t->type);
        if (norm)
            rc = add_bytes(&s, fds[t->file], t->offset, t->offset + t->bytes, buf);
        to->a += s.a;
        to->b += s.b;
    }
    free(buf);
    if (rc)
        return ntx_err_set(err, rc, "cannot read the model's norms: %s", strerror(-rc));
    put_text(&norms, out->norms);
    put_text(&types, out->types);
    return 0;
}

int ntx_model_digest_parts(const struct ntx_gguf *g, const int *fds, struct ntx_digest_parts *out, struct ntx_err *err)
{
    return parts(g, fds, ntx_gguf_n_tensors(g), out, err);
}

/* The adapter's key has this text; `other`: it has the key with another text. */
static bool says(const struct ntx_gguf *g, unsigned k, const char *key, const char *text, bool other)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_adapter_find(g, k, key);
    bool is = kv && kv->type == NTX_GGUF_STR && kv->strs->n == NTX_DIGEST_TEXT - 1;
    return is && !memcmp(kv->strs->p, text, NTX_DIGEST_TEXT - 1) != other;
}

int ntx_adapters_fit(const struct ntx_gguf *g, const int *fds, unsigned n_files, char *const *names,
                     struct ntx_err *err)
{
    char own[NTX_DIGEST_TEXT] = "";
    struct ntx_digest_parts p;
    int rc = 0;
    for (unsigned k = 1; k <= ntx_gguf_adapters(g) && !rc; k++) {
        const uint64_t n = own_tensors(g, n_files);
        if (!ntx_gguf_adapter_find(g, k, "ntx.delta.of"))
            continue;
        if (!*own && ((rc = digest(g, fds, n, 0, own, err)) || (rc = parts(g, fds, n, &p, err))))
            return rc;
        const bool copy = says(g, k, "ntx.delta.of_norms", p.norms, false) &&
                          says(g, k, "ntx.delta.of_types", p.types, true);
        if (!copy && !says(g, k, "ntx.delta.of", own, false))
            rc = ntx_err_set(
                err, -EINVAL,
                "%s: was made of another model than this one (ntx.delta.of): load the file that ntx pack --delta was "
                "given as --base, or a quantised copy of it, or make the adapter anew with this one",
                names[n_files - ntx_gguf_adapters(g) + k - 1]);
    }
    return rc;
}
