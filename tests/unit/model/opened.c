/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/model/opened.h"

struct opened open_with(const struct mk_options *o, void (*extra)(struct mk_file *f))
{
    struct opened x = {0};
    struct ntx_err err = {0};
    x.bytes = make_bytes_with(o, extra, &x.n);
    x.g = parse_ok(x.bytes, x.n);
    CHECK_MSG(!ntx_model_open(x.g, &x.m, &err), "%s", err.text);
    return x;
}

struct opened open_model(const struct mk_options *o) { return open_with(o, NULL); }

void close_model(struct opened *x)
{
    ntx_model_free(x->m);
    ntx_gguf_free(x->g);
    free(x->bytes);
}

const char *name_of(const struct opened *x, uint32_t tensor)
{
    return tensor == NTX_NO_TENSOR ? "none" : ntx_gguf_tensor_at(x->g, tensor)->name;
}

void finish(uint8_t *p, size_t n, int rc, const char *text)
{
    struct ntx_gguf *g = parse_ok(p, n);
    struct ntx_model *m = NULL;
    struct ntx_err err = {0};
    int got = ntx_model_open(g, &m, &err);
    CHECK_MSG(got == rc && err.code == rc && !m, "%d '%s', expected %d '%s'", got, err.text, rc, text);
    CHECK_MSG(strstr(err.text, text), "'%s', expected '%s'", err.text, text);
    ntx_gguf_free(g);
    free(p);
}

void refuse(const struct mk_options *o, const char *old, const char *new, int rc, const char *text)
{
    size_t n;
    uint8_t *p = make_bytes(o, &n);
    if (old)
        rename_in(p, n, old, new);
    finish(p, n, rc, text);
}

void refuse_key(const struct mk_options *o, const char *key, uint32_t v, int rc, const char *text)
{
    size_t n;
    uint8_t *p = make_bytes(o, &n);
    set_u32(p, n, key, v);
    finish(p, n, rc, text);
}

void refuse_with(const struct mk_options *o, void (*extra)(struct mk_file *f), int rc, const char *text)
{
    size_t n;
    uint8_t *p = make_bytes_with(o, extra, &n);
    finish(p, n, rc, text);
}

struct mk_options moe_options(const char *arch)
{
    struct mk_options o = make_options();
    o.arch = arch;
    o.experts = 6;
    o.expert_ff = 48;
    o.shared_ff = 80;
    return o;
}
