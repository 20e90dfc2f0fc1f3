/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/plan/shape.h"

#include "model/quant.h"
#include "tests/lib/check.h"

#define LLAMA(type_, layers_, embd_, ff_, heads_, kv_, ctx_, vocab_)                                                   \
    {                                                                                                                  \
        .arch = "llama", .type = type_, .name = "shape", .rope_scaling = "none", .layers = layers_, .embd = embd_,     \
        .ff = ff_, .heads = heads_, .kv = kv_, .ctx = ctx_, .vocab_size = vocab_, .rope_base = 10000,                  \
        .rope_factor = 1, .logit_scale = 3, .version = 3, .parts = 1, .seed = 1                                        \
    }

static const struct {
    const char *name;
    struct mk_options make;
} shapes[N_SHAPES + 1] = {
    [SHAPE_TINY] = {"tiny", LLAMA("F32", 5, 64, 172, 8, 4, 512, 0)},
    [SHAPE_1B] = {"1B", LLAMA("Q8_0", 16, 2048, 8192, 32, 8, 131072, 32000)},
    [SHAPE_8B] = {"8B", LLAMA("Q4_K_M", 32, 4096, 14336, 32, 8, 8192, 32000)},
    [SHAPE_13B] = {"13B", LLAMA("Q4_K_M", 40, 5120, 13824, 40, 40, 4096, 32000)},
    [SHAPE_70B] = {"70B", LLAMA("Q4_K_M", 80, 8192, 28672, 64, 8, 8192, 32000)},
    [SHAPE_3T] = {"3T", LLAMA("Q8_0", 100, 16384, 620000, 128, 8, 8192, 32000)},
};

static void put32(struct mk_buf *b, uint32_t v) { mk_put(b, &v, sizeof v); }
static void put64(struct mk_buf *b, uint64_t v) { mk_put(b, &v, sizeof v); }

static uint64_t put_tensor(struct mk_buf *b, const struct mk_tensor *t, uint64_t offset)
{
    uint64_t rows = t->n_dims > 1 ? t->ne[1] : 1;
    put64(b, strlen(t->name));
    mk_put(b, t->name, strlen(t->name));
    put32(b, t->n_dims);
    for (uint32_t d = 0; d < t->n_dims; d++)
        put64(b, t->ne[d]);
    put32(b, t->type);
    put64(b, offset);
    return (offset + rows * ntx_row_bytes(t->type, t->ne[0]) + 31) / 32 * 32;
}

void shape_open(struct shape *s, int which)
{
    struct mk_file f = {0};
    struct mk_buf b = {0};
    struct ntx_err err = {0};
    float *freqs = NULL;
    uint64_t offset = 0;
    *s = (struct shape){.name = shapes[which].name, .make = shapes[which].make};
    CHECK_MSG(!mk_describe(&f, &s->make, &freqs, &err), "%s", err.text);
    put32(&b, 0x46554747);
    put32(&b, 3);
    put64(&b, f.n_tensors);
    put64(&b, f.n_kv);
    mk_put(&b, f.kv.p, f.kv.n);
    for (size_t i = 0; i < f.n_tensors; i++)
        offset = put_tensor(&b, &f.tensors[i], offset);
    CHECK(!b.failed && !f.failed);
    CHECK_MSG(!ntx_gguf_parse(b.p, b.n, b.n + 32 + offset, &s->gguf, &err), "%s", err.text);
    CHECK_MSG(!ntx_model_open(s->gguf, &s->model, &err), "%s", err.text);
    free(b.p);
    free(freqs);
    mk_file_free(&f);
}

void shape_close(struct shape *s)
{
    ntx_model_free(s->model);
    ntx_gguf_free(s->gguf);
}
