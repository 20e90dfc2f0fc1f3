/* SPDX-License-Identifier: Apache-2.0 */
/* chunk.c: the chunks of every tensor tile it exactly, in execution order. */
#include "model/chunk.h"

#include <errno.h>

#include "model/quant.h"
#include "tests/unit/model/make.h"

/* The order of a layer's tensors that chunk.h promises. */
static const char *const layer_order[] = {
    "attn_norm.weight", "attn_q.weight",   "attn_k.weight",      "attn_v.weight",      "attn_q.bias",
    "attn_k.bias",      "attn_v.bias",     "attn_q_norm.weight", "attn_k_norm.weight", "attn_output.weight",
    "attn_output.bias", "ffn_norm.weight", "ffn_gate.weight",    "ffn_up.weight",      "ffn_down.weight",
};

static const struct ntx_gguf *the_gguf;
static const struct ntx_chunks *the_chunks;
static uint32_t next_chunk; /* next index in the list */
static uint64_t chunk_limit;

/* This tensor's chunks come next; w describes them. */
static void expect_tensor(const struct ntx_gguf_tensor *t, uint32_t layer, const struct ntx_weight *w)
{
    uint32_t row = 0, count = 0, first = next_chunk;
    uint64_t end = t->offset;
    while (row < t->ne[1]) {
        const struct ntx_chunk *c = &the_chunks->list[next_chunk++];
        CHECK_MSG(next_chunk <= the_chunks->n && ntx_gguf_tensor_at(the_gguf, c->tensor) == t, "%s", t->name);
        CHECK(c->layer == layer && c->out0 == row && c->offset == end && c->file == t->file &&
              c->fixed == (t->n_dims == 1));
        CHECK_EQ(c->bytes, ntx_row_bytes(t->type, t->ne[0]) * c->n_out);
        CHECK(c->bytes <= chunk_limit || c->n_out == 1);
        CHECK(row + c->n_out == t->ne[1] || (c->n_out == w->chunk_outs && c->bytes + w->row_bytes > chunk_limit));
        row += c->n_out;
        end += c->bytes;
        count++;
    }
    CHECK(row == t->ne[1] && end == t->offset + t->bytes);
    CHECK(w->tensor != NTX_NO_TENSOR && ntx_gguf_tensor_at(the_gguf, w->tensor) == t && w->type == t->type);
    CHECK(w->n_in == t->ne[0] && w->n_out == t->ne[1] && w->chunk0 == first && w->n_chunks == count);
    CHECK_EQ(w->row_bytes, ntx_row_bytes(t->type, t->ne[0]));
}

static void expect_layer(uint32_t l)
{
    const struct ntx_layer_weights *w = &the_chunks->layers[l];
    const struct ntx_weight *const weights[] = {&w->attn_norm, &w->q,        &w->k,      &w->v,      &w->q_bias,
                                                &w->k_bias,    &w->v_bias,   &w->q_norm, &w->k_norm, &w->o,
                                                &w->o_bias,    &w->ffn_norm, &w->gate,   &w->up,     &w->down};
    char name[64];
    for (int i = 0; i < 15; i++) {
        snprintf(name, sizeof name, "blk.%u.%s", l, layer_order[i]);
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor(the_gguf, name);
        if (t)
            expect_tensor(t, l, weights[i]);
        else
            CHECK(weights[i]->tensor == NTX_NO_TENSOR && !weights[i]->n_chunks);
    }
}

/* Router, shared expert, and the three whole matrices of each expert. */
static void expect_experts(uint32_t l, uint32_t n_expert)
{
    static const char *const parts[] = {"ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"};
    const struct ntx_layer_weights *w = &the_chunks->layers[l];
    char name[64];
    CHECK(the_chunks->list[w->router.chunk0].fixed && w->router.n_chunks == 1 && w->router.n_out == n_expert);
    next_chunk = w->expert[NTX_EXPERT_GATE].chunk0;
    for (uint32_t e = 0; e < n_expert; e++)
        for (int part = 0; part < NTX_EXPERT_PARTS; part++) {
            const struct ntx_weight x = ntx_expert_weight(w, e, (enum ntx_expert_part)part);
            const struct ntx_chunk *c = &the_chunks->list[next_chunk];
            snprintf(name, sizeof name, "blk.%u.%s", l, parts[part]);
            const struct ntx_gguf_tensor *t = ntx_gguf_tensor(the_gguf, name);
            CHECK(x.chunk0 == next_chunk++ && x.n_chunks == 1 && x.chunk_outs == t->ne[1] && x.n_in == t->ne[0] &&
                  x.n_out == t->ne[1]);
            CHECK(c->expert && !c->fixed && c->layer == l && c->file == t->file && c->bytes == t->bytes / n_expert &&
                  c->n_out == t->ne[1]);
            CHECK_EQ(c->offset, t->offset + e * (t->bytes / n_expert));
        }
}

static void check_moe(const char *arch)
{
    struct mk_options o = make_options();
    size_t n;
    struct ntx_model *m;
    struct ntx_chunks *c;
    struct ntx_err err = {0};
    o.arch = arch;
    o.experts = 5;
    uint8_t *p = make_bytes(&o, &n);
    struct ntx_gguf *g = parse_ok(p, n);
    CHECK(!ntx_model_open(g, &m, &err) && !ntx_chunks_make(m, 1000, &c, &err));
    the_gguf = g;
    the_chunks = c;
    for (uint32_t l = 0; l < o.layers; l++)
        expect_experts(l, 5);
    CHECK_EQ(next_chunk, c->output_norm.chunk0);
    CHECK((c->layers[0].gate_shared.tensor == NTX_NO_TENSOR) == (strcmp(arch, "qwen2moe") != 0));
    ntx_chunks_free(c);
    ntx_model_free(m);
    ntx_gguf_free(g);
    free(p);
}

static void check_model(const struct mk_options *o, uint64_t chunk_bytes)
{
    size_t n;
    uint8_t *p = make_bytes(o, &n);
    struct ntx_gguf *g = parse_ok(p, n);
    struct ntx_model *m;
    struct ntx_chunks *c;
    struct ntx_err err = {0};
    uint64_t all = 0, embd = ntx_gguf_tensor(g, "token_embd.weight")->bytes;
    CHECK(!ntx_model_open(g, &m, &err) && !ntx_chunks_make(m, chunk_bytes, &c, &err));
    the_gguf = g;
    the_chunks = c;
    chunk_limit = chunk_bytes;
    next_chunk = 0;
    if (o->rope_freqs)
        expect_tensor(ntx_gguf_tensor(g, "rope_freqs.weight"), 0, &c->rope_freqs);
    else
        CHECK(c->rope_freqs.tensor == NTX_NO_TENSOR);
    for (uint32_t l = 0; l < o->layers; l++)
        expect_layer(l);
    expect_tensor(ntx_gguf_tensor(g, "output_norm.weight"), o->layers, &c->output_norm);
    expect_tensor(ntx_gguf_tensor(g, o->tied ? "token_embd.weight" : "output.weight"), o->layers, &c->output);
    CHECK_EQ(next_chunk, c->n);
    CHECK(c->token_embd.n_in == o->embd && c->token_embd.n_out == m->hp.n_vocab && !c->token_embd.n_chunks);
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(g); i++)
        all += ntx_gguf_tensor_at(g, i)->bytes;
    CHECK_EQ(c->matrix_bytes + c->fixed_bytes + (o->tied ? 0 : embd), all);
    ntx_chunks_free(c);
    CHECK_EQ(ntx_chunks_make(m, 0, &c, &err), -EINVAL);
    ntx_model_free(m);
    ntx_gguf_free(g);
    free(p);
}

static struct ntx_model *open_shared(const struct mk_options *o, uint8_t **p, struct ntx_gguf **g)
{
    struct ntx_model *m = NULL;
    struct ntx_err err = {0};
    size_t n;
    *p = make_bytes(o, &n);
    *g = parse_ok(*p, n);
    CHECK_MSG(!ntx_model_open(*g, &m, &err), "%s", err.text);
    return m;
}

/* Shared tensors are cut once, or with `apart` once for each layer; additions are cut for each layer, in order of
 * use. */
static void check_shared(void)
{
    struct mk_options o = make_options();
    struct ntx_chunks *c = NULL;
    struct ntx_err err = {0};
    struct ntx_gguf *g;
    uint8_t *p;
    o.layers = 3;
    o.shared = true;
    o.lora_rank = 32;
    struct ntx_model *m = open_shared(&o, &p, &g);
    CHECK(m->delta.base && m->delta.any && m->delta.base[2] == 0 && m->delta.error == 0 && m->delta.alpha[0] == 0);
    CHECK(m->layers[2].q == m->layers[0].q && m->layers[2].attn_norm != m->layers[0].attn_norm &&
          m->layers[2].q_low != m->layers[0].q_low);
    CHECK(!ntx_chunks_make(m, 1 << 20, &c, &err));
    const struct ntx_weight *first = &c->layers[0].q, *last = &c->layers[2].q;
    CHECK(last->chunk0 == first->chunk0 && last->layer == 0 && c->list[first->chunk0].fixed &&
          c->list[first->chunk0].users == 3);
    CHECK(c->layers[2].q_low.n_out == 32 && c->layers[2].q_high.n_in == 32 && c->layers[2].up_rest.n_out == m->hp.n_ff);
    CHECK(c->layers[2].q_low.layer == 2 && !c->list[c->layers[2].q_low.chunk0].fixed &&
          c->layers[2].q_low.chunk0 < c->layers[2].q_high.chunk0);
    const uint64_t once = c->fixed_bytes + c->matrix_bytes;
    ntx_chunks_free(c);
    CHECK(!ntx_chunks_make_bounded(m, 1 << 20, &(struct ntx_chunk_bounds){.most = NTX_CHUNKS_MAX, .apart = true}, &c,
                                   &err));
    CHECK(c->layers[2].q.layer == 2 && c->layers[2].q.chunk0 > c->layers[0].q.chunk0 &&
          !c->list[c->layers[2].q.chunk0].fixed);
    uint64_t matrices = 0;
    for (int t = 0; t < NTX_N_TENSORS; t++)
        if (m->layers[0].tensor[t] == m->layers[2].tensor[t] && m->layers[0].tensor[t] != NTX_NO_TENSOR)
            matrices += ntx_gguf_tensor_at(g, m->layers[0].tensor[t])->bytes;
    CHECK(matrices > 0);
    CHECK_EQ(c->fixed_bytes + c->matrix_bytes, once + 2 * matrices);
    ntx_chunks_free(c);
    ntx_model_free(m);
    ntx_gguf_free(g);
    free(p);
}

/* Refuses a base that is not a layer. */
static void refuse_base(void)
{
    struct mk_options o = make_options();
    struct ntx_model *m = NULL;
    struct ntx_err err = {0};
    size_t n;
    o.shared = true;
    uint8_t *p = make_bytes(&o, &n);
    const uint32_t none = o.layers;
    memcpy(value_of(p, n, "ntx.delta.base") + 4 + 4 + 8, &none,
           sizeof none); /* the first of the list: behind its type, theirs, and their number */
    struct ntx_gguf *g = parse_ok(p, n);
    CHECK_EQ(ntx_model_open(g, &m, &err), -EINVAL);
    CHECK_MSG(strstr(err.text, "key 'ntx.delta.base' is no list of 2 numbers of layers"), "%s", err.text);
    ntx_gguf_free(g);
    free(p);
}

int main(void)
{
    check_shared();
    refuse_base();
    struct mk_options o = make_options();
    check_model(&o, 1);
    check_model(&o, 5000);
    check_model(&o, 1 << 30);
    o.type = "Q4_K_M";
    o.embd = o.ff = 256;
    o.tied = o.rope_freqs = true;
    check_model(&o, 1000);
    o.arch = "qwen3";
    o.head_dim = 32;
    o.rope_freqs = o.tied = false;
    check_model(&o, 4096);
    o.arch = "qwen2";
    check_model(&o, 4096);
    check_moe("llama");
    check_moe("qwen2moe");
    return 0;
}
