/* SPDX-License-Identifier: Apache-2.0 */
#include "predictor/sidecar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/arch.h"
#include "model/gguf.h"
#include "model/gguf_out.h"
#include "model/gguf_values.h"

#define VERSION 1
#define WHAT    "the skip sidecar"

int ntx_sidecar_alloc(struct ntx_sidecar *s)
{
    uint32_t outputs = ntx_sidecar_outputs(s);
    const struct {
        float **p;
        size_t n;
    } a[] = {
        {&s->mean, s->n_layers},   {&s->sd, s->n_layers},
        {&s->rate, s->n_layers},   {&s->in_mean, s->n_embd},
        {&s->in_scale, s->n_embd}, {&s->w1, (size_t)s->n_hidden * s->n_embd},
        {&s->b1, s->n_hidden},     {&s->w2, (size_t)outputs * s->n_hidden},
        {&s->b2, outputs},
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

/* ---- reading: an error names the wrong key or tensor */

static int refuse_sidecar(struct ntx_err *err, const char *what)
{
    return ntx_err_set(err, -EINVAL, "this is no usable skip sidecar: %s; make one with ntx calibrate", what);
}

static int get_share(const struct ntx_gguf *g, const char *key, float *v, struct ntx_err *err)
{
    float x;
    if (ntx_gguf_f32(g, key, &x) || !(x >= -1 && x <= 1))
        return refuse_sidecar(err, key);
    *v = x;
    return 0;
}

static int read_keys(const struct ntx_gguf *g, const char *model, struct ntx_sidecar *s, struct ntx_err *err)
{
    uint32_t version;
    int rc;
    if ((rc = ntx_gguf_take_u32(g, WHAT, "ntx.skip.version", VERSION, VERSION, &version, err)) ||
        (rc = ntx_gguf_take_u32(g, WHAT, "ntx.skip.layers", 2, NTX_MAX_LAYERS, &s->n_layers, err)) ||
        (rc = ntx_gguf_take_u32(g, WHAT, "ntx.skip.embd", 1, NTX_SIDECAR_EMBD_MAX, &s->n_embd, err)) ||
        (rc = ntx_gguf_take_u32(g, WHAT, "ntx.skip.hidden", 1, NTX_SIDECAR_HIDDEN_MAX, &s->n_hidden, err)) ||
        (rc = ntx_gguf_take_u32(g, WHAT, "ntx.skip.first", 1, s->n_layers - 1, &s->first, err)) ||
        (rc = ntx_gguf_take_u32(g, WHAT, "ntx.skip.last", s->first, s->n_layers - 1, &s->last, err)) ||
        (rc = ntx_gguf_take_u32(g, WHAT, "ntx.skip.tokens", 0, UINT32_MAX, &s->n_tokens, err)) ||
        (rc = get_share(g, "ntx.skip.threshold", &s->threshold, err)) ||
        (rc = get_share(g, "ntx.skip.similarity", &s->similarity, err)))
        return rc;
    return ntx_gguf_take_digest(g, WHAT, "ntx.skip.model", model, s->model, err);
}

static int read_values(const struct ntx_gguf *g, int fd, struct ntx_sidecar *s, struct ntx_err *err)
{
    uint32_t outputs = ntx_sidecar_outputs(s);
    int rc;
    if ((rc = ntx_gguf_take_f32s(g, WHAT, "ntx.skip.mean", s->mean, s->n_layers, err)) ||
        (rc = ntx_gguf_take_f32s(g, WHAT, "ntx.skip.sd", s->sd, s->n_layers, err)) ||
        (rc = ntx_gguf_take_f32s(g, WHAT, "ntx.skip.rate", s->rate, s->n_layers, err)) ||
        (rc = ntx_gguf_take_tensor(g, fd, WHAT, "mean", s->in_mean, s->n_embd, 0, err)) ||
        (rc = ntx_gguf_take_tensor(g, fd, WHAT, "scale", s->in_scale, s->n_embd, 0, err)) ||
        (rc = ntx_gguf_take_tensor(g, fd, WHAT, "w1", s->w1, s->n_embd, s->n_hidden, err)) ||
        (rc = ntx_gguf_take_tensor(g, fd, WHAT, "b1", s->b1, s->n_hidden, 0, err)) ||
        (rc = ntx_gguf_take_tensor(g, fd, WHAT, "w2", s->w2, s->n_hidden, outputs, err)))
        return rc;
    return ntx_gguf_take_tensor(g, fd, WHAT, "b2", s->b2, outputs, 0, err);
}

/* The keys' sizes are trusted only when the tensors have them, whose extent the reader has checked against the file. */
static int check_sizes(const struct ntx_gguf *g, const struct ntx_sidecar *s, struct ntx_err *err)
{
    const struct ntx_gguf_tensor *w1 = ntx_gguf_tensor(g, "w1"), *w2 = ntx_gguf_tensor(g, "w2");
    if (!w1 || w1->ne[0] != s->n_embd || w1->ne[1] != s->n_hidden)
        return refuse_sidecar(err, "tensor 'w1' is missing or not of the size that the keys say");
    if (!w2 || w2->ne[0] != s->n_hidden || w2->ne[1] != ntx_sidecar_outputs(s))
        return refuse_sidecar(err, "tensor 'w2' is missing or not of the size that the keys say");
    return 0;
}

int ntx_sidecar_read(int fd, const char *model, struct ntx_sidecar *out, struct ntx_err *err)
{
    struct ntx_sidecar s = {0};
    struct ntx_gguf *g = NULL;
    int rc = ntx_gguf_open(&fd, 1, (const char *const[]){"the skip sidecar"}, &g, err);
    if (rc)
        return rc;
    if (!(rc = read_keys(g, model, &s, err)) && !(rc = check_sizes(g, &s, err)))
        rc = ntx_sidecar_alloc(&s) ? ntx_err_set(err, -ENOMEM, "no memory for the skip sidecar")
                                   : read_values(g, fd, &s, err);
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
    if (s->ffn)
        ntx_ffn_learned_put(s->ffn, s->model, g);
    int rc = ntx_gguf_out_write(g, path, err);
    ntx_gguf_out_free(g);
    return rc;
}
