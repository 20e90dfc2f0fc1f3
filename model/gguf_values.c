/* SPDX-License-Identifier: Apache-2.0 */
#include "model/gguf_values.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/util.h"
#include "model/digest.h"
#include "model/quant.h"

#define UNUSABLE "this is no usable sidecar (%s): "
#define MAKE_ONE "; make one with ntx calibrate"

static bool all_finite(const float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(v[i]) < 1e30f))
            return false;
    return true;
}

static const struct ntx_gguf_kv *array(const struct ntx_gguf *g, const char *key, uint32_t elem, uint32_t n)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, key);
    return kv && kv->type == NTX_GGUF_ARR && kv->elem == elem && kv->count == n ? kv : NULL;
}

int ntx_gguf_take_f32s(const struct ntx_gguf *g, const char *what, const char *key, float *v, uint32_t n,
                       struct ntx_err *err)
{
    const struct ntx_gguf_kv *kv = array(g, key, NTX_GGUF_F32, n);
    if (!kv)
        return ntx_err_set(err, -EINVAL, UNUSABLE "'%s' is missing or not %u numbers" MAKE_ONE, what, key, n);
    memcpy(v, kv->data, n * sizeof *v);
    return all_finite(v, n)
               ? 0
               : ntx_err_set(err, -EINVAL, UNUSABLE "'%s' holds a value that is no number" MAKE_ONE, what, key);
}

int ntx_gguf_take_u32s(const struct ntx_gguf *g, const char *what, const char *key, uint32_t *v, uint32_t n,
                       struct ntx_err *err)
{
    const struct ntx_gguf_kv *kv = array(g, key, NTX_GGUF_U32, n);
    if (!kv)
        return ntx_err_set(err, -EINVAL, UNUSABLE "'%s' is missing or not %u integers" MAKE_ONE, what, key, n);
    memcpy(v, kv->data, n * sizeof *v);
    return 0;
}

int ntx_gguf_take_u32(const struct ntx_gguf *g, const char *what, const char *key, uint32_t lo, uint32_t hi,
                      uint32_t *v, struct ntx_err *err)
{
    uint64_t x;
    if (ntx_gguf_u64(g, key, &x) || x < lo || x > hi)
        return ntx_err_set(err, -EINVAL, UNUSABLE "'%s' is missing or not from %u to %u" MAKE_ONE, what, key, lo, hi);
    *v = (uint32_t)x;
    return 0;
}

int ntx_gguf_take_tensor(const struct ntx_gguf *g, int fd, const char *what, const char *name, float *v, uint32_t width,
                         uint32_t rows, struct ntx_err *err)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor(g, name);
    size_t n = (size_t)width * (rows ? rows : 1);
    if (!t || t->type != NTX_F32 || t->ne[0] != width || t->ne[1] != (rows ? rows : 1) || t->ne[2] != 1 ||
        t->ne[3] != 1)
        return ntx_err_set(err, -EINVAL, UNUSABLE "tensor '%s' is missing or not F32 of %u x %u" MAKE_ONE, what, name,
                           rows ? rows : 1, width);
    int rc = ntx_read_at(fd, v, n * sizeof *v, t->offset);
    if (rc)
        return ntx_err_set(err, rc, "%s cannot be read: %s", what, ntx_read_error(rc));
    return all_finite(v, n)
               ? 0
               : ntx_err_set(err, -EINVAL, UNUSABLE "tensor '%s' holds a value that is no number" MAKE_ONE, what, name);
}

static bool is_digest(const struct ntx_str *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strchr("0123456789abcdef", s->p[i]) || !s->p[i])
            return false;
    return s->n == NTX_DIGEST_TEXT - 1;
}

int ntx_gguf_take_digest(const struct ntx_gguf *g, const char *what, const char *key, const char *model, char *out,
                         struct ntx_err *err)
{
    struct ntx_str digest;
    if (ntx_gguf_str(g, key, &digest) || !is_digest(&digest))
        return ntx_err_set(err, -EINVAL, UNUSABLE "'%s' is missing or no digest" MAKE_ONE, what, key);
    if (model && memcmp(digest.p, model, digest.n))
        return ntx_err_set(
            err, -EINVAL,
            "%s belongs to another model (%.*s, this one is %s); make one for this model with ntx calibrate", what,
            (int)digest.n, digest.p, model);
    memcpy(out, digest.p, digest.n);
    return 0;
}
