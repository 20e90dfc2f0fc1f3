#include "predictor/sidecar.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/arch.h"
#include "model/gguf.h"
#include "model/gguf_out.h"
#include "model/quant.h"

#define VERSION 1

int ntx_sidecar_alloc(struct ntx_sidecar *s)
{
    uint32_t outputs = ntx_sidecar_outputs(s);
    const struct {
        float **p;
        size_t n;
    } a[] = {
        {&s->mean, s->n_layers}, {&s->sd, s->n_layers}, {&s->rate, s->n_layers}, {&s->in_mean, s->n_embd}, {&s->in_scale, s->n_embd},
        {&s->w1, (size_t)s->n_hidden * s->n_embd}, {&s->b1, s->n_hidden}, {&s->w2, (size_t)outputs * s->n_hidden}, {&s->b2, outputs},
    };
    for (size_t i = 0; i < sizeof a / sizeof *a; i++)
        *a[i].p = NULL;
    for (size_t i = 0; i < sizeof a / sizeof *a; i++)
        if (!(*a[i].p = calloc(a[i].n, sizeof(float)))) {
            ntx_sidecar_free(s);
            return -ENOMEM;
        }
    return 0;
}

void ntx_sidecar_free(struct ntx_sidecar *s)
{
    float **p[] = {&s->mean, &s->sd, &s->rate, &s->in_mean, &s->in_scale, &s->w1, &s->b1, &s->w2, &s->b2};
    for (size_t i = 0; i < sizeof p / sizeof *p; i++) {
        free(*p[i]);
        *p[i] = NULL;
    }
}

/* ---- reading: everything is refused with the name of what was wrong */

static int bad(struct ntx_err *err, const char *what)
{
    return ntx_err_set(err, -EINVAL, "this is no usable skip sidecar: %s; make one with ntx calibrate", what);
}

static int get_u32(const struct ntx_gguf *g, const char *key, uint32_t lo, uint32_t hi, uint32_t *v, struct ntx_err *err)
{
    uint64_t x;
    if (ntx_gguf_u64(g, key, &x) || x < lo || x > hi)
        return ntx_err_set(err, -EINVAL, "this is no usable skip sidecar: '%s' is missing or not from %u to %u; make one with ntx calibrate", key, lo, hi);
    *v = (uint32_t)x;
    return 0;
}

static int get_share(const struct ntx_gguf *g, const char *key, float *v, struct ntx_err *err)
{
    float x;
    if (ntx_gguf_f32(g, key, &x) || !(x >= -1 && x <= 1))
        return bad(err, key);
    *v = x;
    return 0;
}

static bool is_digest(const struct ntx_str *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strchr("0123456789abcdef", s->p[i]) || !s->p[i])
            return false;
    return s->n == NTX_DIGEST_TEXT - 1;
}

static int read_keys(const struct ntx_gguf *g, const char *model, struct ntx_sidecar *s, struct ntx_err *err)
{
    struct ntx_str digest;
    uint32_t version;
    int rc;
    if ((rc = get_u32(g, "ntx.skip.version", VERSION, VERSION, &version, err)) ||
        (rc = get_u32(g, "ntx.skip.layers", 2, NTX_MAX_LAYERS, &s->n_layers, err)) ||
        (rc = get_u32(g, "ntx.skip.embd", 1, NTX_SIDECAR_EMBD_MAX, &s->n_embd, err)) ||
        (rc = get_u32(g, "ntx.skip.hidden", 1, NTX_SIDECAR_HIDDEN_MAX, &s->n_hidden, err)) ||
        (rc = get_u32(g, "ntx.skip.first", 1, s->n_layers - 1, &s->first, err)) ||
        (rc = get_u32(g, "ntx.skip.last", s->first, s->n_layers - 1, &s->last, err)) ||
        (rc = get_u32(g, "ntx.skip.tokens", 0, UINT32_MAX, &s->n_tokens, err)) ||
        (rc = get_share(g, "ntx.skip.threshold", &s->threshold, err)) || (rc = get_share(g, "ntx.skip.similarity", &s->similarity, err)))
        return rc;
    if (ntx_gguf_str(g, "ntx.skip.model", &digest) || !is_digest(&digest))
        return bad(err, "'ntx.skip.model' is missing or no digest");
    if (model && memcmp(digest.p, model, digest.n))
        return ntx_err_set(err, -EINVAL, "the skip sidecar belongs to another model (%.*s, this one is %s); make one for this model with ntx calibrate",
                           (int)digest.n, digest.p, model);
    memcpy(s->model, digest.p, digest.n);
    return 0;
}

static bool all_finite(const float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(v[i]) < 1e30f))
            return false;
    return true;
}

static int get_array(const struct ntx_gguf *g, const char *key, float *v, uint32_t n, struct ntx_err *err)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, key);
    if (!kv || kv->type != NTX_GGUF_ARR || kv->elem != NTX_GGUF_F32 || kv->count != n)
        return ntx_err_set(err, -EINVAL, "this is no usable skip sidecar: '%s' is missing or not %u numbers", key, n);
    memcpy(v, kv->data, n * sizeof *v);
    return all_finite(v, n) ? 0 : bad(err, key);
}

static int read_exact(int fd, void *p, size_t n, uint64_t at)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = pread(fd, (char *)p + done, n - done, (off_t)(at + done));
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k ? -errno : -EPIPE;
        done += (size_t)k;
    }
    return 0;
}

/* rows 0: a vector. */
static int get_tensor(const struct ntx_gguf *g, int fd, const char *name, float *v, uint32_t width, uint32_t rows, struct ntx_err *err)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor(g, name);
    size_t n = (size_t)width * (rows ? rows : 1);
    if (!t || t->type != NTX_F32 || t->ne[0] != width || t->ne[1] != (rows ? rows : 1) || t->ne[2] != 1 || t->ne[3] != 1)
        return ntx_err_set(err, -EINVAL, "this is no usable skip sidecar: tensor '%s' is missing or not F32 of %u x %u", name, rows ? rows : 1, width);
    int rc = read_exact(fd, v, n * sizeof *v, t->offset);
    if (rc)
        return ntx_err_set(err, rc, "the skip sidecar cannot be read: %s", strerror(-rc));
    return all_finite(v, n) ? 0 : ntx_err_set(err, -EINVAL, "this is no usable skip sidecar: tensor '%s' holds a value that is no number", name);
}

static int read_values(const struct ntx_gguf *g, int fd, struct ntx_sidecar *s, struct ntx_err *err)
{
    uint32_t outputs = ntx_sidecar_outputs(s);
    int rc;
    if ((rc = get_array(g, "ntx.skip.mean", s->mean, s->n_layers, err)) || (rc = get_array(g, "ntx.skip.sd", s->sd, s->n_layers, err)) ||
        (rc = get_array(g, "ntx.skip.rate", s->rate, s->n_layers, err)) || (rc = get_tensor(g, fd, "mean", s->in_mean, s->n_embd, 0, err)) ||
        (rc = get_tensor(g, fd, "scale", s->in_scale, s->n_embd, 0, err)) || (rc = get_tensor(g, fd, "w1", s->w1, s->n_embd, s->n_hidden, err)) ||
        (rc = get_tensor(g, fd, "b1", s->b1, s->n_hidden, 0, err)) || (rc = get_tensor(g, fd, "w2", s->w2, s->n_hidden, outputs, err)))
        return rc;
    return get_tensor(g, fd, "b2", s->b2, outputs, 0, err);
}

/* The sizes are only believed once the tensors, whose extent the reader has held against the file, are known to have them. */
static int check_sizes(const struct ntx_gguf *g, const struct ntx_sidecar *s, struct ntx_err *err)
{
    const struct ntx_gguf_tensor *w1 = ntx_gguf_tensor(g, "w1"), *w2 = ntx_gguf_tensor(g, "w2");
    if (!w1 || w1->ne[0] != s->n_embd || w1->ne[1] != s->n_hidden)
        return bad(err, "tensor 'w1' is missing or not of the size that the keys say");
    return w2 && w2->ne[0] == s->n_hidden && w2->ne[1] == ntx_sidecar_outputs(s) ? 0 : bad(err, "tensor 'w2' is missing or not of the size that the keys say");
}

int ntx_sidecar_read(int fd, const char *model, struct ntx_sidecar *out, struct ntx_err *err)
{
    struct ntx_sidecar s = {0};
    struct ntx_gguf *g = NULL;
    int rc = ntx_gguf_open(&fd, 1, (const char *const[]){"the skip sidecar"}, &g, err);
    if (rc)
        return rc;
    if (!(rc = read_keys(g, model, &s, err)) && !(rc = check_sizes(g, &s, err)))
        rc = ntx_sidecar_alloc(&s) ? ntx_err_set(err, -ENOMEM, "no memory for the skip sidecar") : read_values(g, fd, &s, err);
    ntx_gguf_free(g);
    if (rc) {
        ntx_sidecar_free(&s);
        return rc;
    }
    *out = s;
    return 0;
}

/* ---- writing */

int ntx_sidecar_write(const struct ntx_sidecar *s, const char *path, struct ntx_err *err)
{
    struct ntx_gguf_out *g = ntx_gguf_out_new();
    uint32_t outputs = ntx_sidecar_outputs(s);
    if (!g)
        return ntx_err_set(err, -ENOMEM, "no memory");
    ntx_gguf_out_str(g, "general.architecture", "ntx-skip");
    ntx_gguf_out_u32(g, "ntx.skip.version", VERSION);
    ntx_gguf_out_str(g, "ntx.skip.model", s->model);
    ntx_gguf_out_u32(g, "ntx.skip.layers", s->n_layers);
    ntx_gguf_out_u32(g, "ntx.skip.embd", s->n_embd);
    ntx_gguf_out_u32(g, "ntx.skip.hidden", s->n_hidden);
    ntx_gguf_out_u32(g, "ntx.skip.first", s->first);
    ntx_gguf_out_u32(g, "ntx.skip.last", s->last);
    ntx_gguf_out_u32(g, "ntx.skip.tokens", s->n_tokens);
    ntx_gguf_out_f32(g, "ntx.skip.threshold", s->threshold);
    ntx_gguf_out_f32(g, "ntx.skip.similarity", s->similarity);
    ntx_gguf_out_f32s(g, "ntx.skip.mean", s->mean, s->n_layers);
    ntx_gguf_out_f32s(g, "ntx.skip.sd", s->sd, s->n_layers);
    ntx_gguf_out_f32s(g, "ntx.skip.rate", s->rate, s->n_layers);
    ntx_gguf_out_tensor(g, "mean", s->in_mean, s->n_embd, 0);
    ntx_gguf_out_tensor(g, "scale", s->in_scale, s->n_embd, 0);
    ntx_gguf_out_tensor(g, "w1", s->w1, s->n_embd, s->n_hidden);
    ntx_gguf_out_tensor(g, "b1", s->b1, s->n_hidden, 0);
    ntx_gguf_out_tensor(g, "w2", s->w2, s->n_hidden, outputs);
    ntx_gguf_out_tensor(g, "b2", s->b2, outputs, 0);
    int rc = ntx_gguf_out_write(g, path, err);
    ntx_gguf_out_free(g);
    return rc;
}
