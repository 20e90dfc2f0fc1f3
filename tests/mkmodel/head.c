/* SPDX-License-Identifier: Apache-2.0 */
/* head.c: keys and tensors of drafters that use states of another model's layers. They share the model's vocabulary,
 * so make both files with the same --vocab-size or --vocab-from. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/arch.h"
#include "model/quant.h"
#include "tests/mkmodel/describe.h"

struct maker {
    struct mk_file *f;
    const struct mk_options *o;
    uint32_t type, head, taps, width; /* of states */
};

static bool is_dflash(const struct mk_options *o) { return !strcmp(o->arch, "dflash"); }

bool mk_is_head(const char *arch) { return !strcmp(arch, "eagle3") || !strcmp(arch, "dflash"); }

static void matrix(struct maker *m, const char *name, uint64_t n_in, uint64_t n_out, float by)
{
    uint32_t type = n_in % ntx_type_info(m->type)->block ? (uint32_t)NTX_F32 : m->type;
    mk_tensor_add(m->f, name, type, n_in, n_out, by / sqrtf((float)n_in));
}

static void vector(struct maker *m, const char *name, uint64_t n, float mean)
{
    struct mk_tensor *t = mk_tensor_add(m->f, name, NTX_F32, n, 0, m->o->nextn_agrees != 0 ? 0 : 0.1f);
    if (t)
        t->mean = mean;
}

/* An identity matrix. */
static void same(struct maker *m, const char *name, uint64_t n_in, uint64_t n_out)
{
    struct mk_tensor *t = mk_tensor_add(m->f, name, NTX_F32, n_in, n_out, 0);
    if (t)
        t->unit = true;
}

/* To agree with a model whose layers add little, attention reads the token's own row and returns it. */
static void add_attention(struct maker *m, uint32_t l, uint64_t n_in)
{
    const struct mk_options *o = m->o;
    const struct {
        const char *name;
        uint32_t out;
    } of[] = {{"attn_q", o->heads * m->head}, {"attn_k", o->kv * m->head}, {"attn_v", o->kv * m->head}};
    char name[64];
    for (unsigned i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", l, of[i].name);
        if (o->nextn_agrees != 0)
            same(m, name, n_in, of[i].out);
        else
            matrix(m, name, n_in, of[i].out, 1.5f);
    }
    snprintf(name, sizeof name, "blk.%u.attn_output.weight", l);
    if (o->nextn_agrees != 0)
        same(m, name, o->heads * m->head, o->embd);
    else
        matrix(m, name, o->heads * m->head, o->embd, 1);
}

static void add_ffn(struct maker *m, uint32_t l)
{
    const struct mk_options *o = m->o;
    char name[64];
    snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", l);
    vector(m, name, o->embd, 1);
    snprintf(name, sizeof name, "blk.%u.ffn_gate.weight", l);
    matrix(m, name, o->embd, o->ff, 1);
    snprintf(name, sizeof name, "blk.%u.ffn_up.weight", l);
    matrix(m, name, o->embd, o->ff, 1);
    snprintf(name, sizeof name, "blk.%u.ffn_down.weight", l);
    matrix(m, name, o->ff, o->embd, o->nextn_agrees != 0 ? o->nextn_agrees : 1);
}

/* Embedding and output, if the drafter has its own. */
static void add_ends(struct maker *m, uint32_t n_vocab)
{
    const struct mk_options *o = m->o;
    uint32_t known = o->draft_vocab ? o->draft_vocab : n_vocab;
    if (o->draft_vocab) {
        struct mk_tensor *t = mk_tensor_add(m->f, "d2t", NTX_I64, known, 0, 0);
        if (t)
            t->below = n_vocab;
    }
    vector(m, "output_norm.weight", o->embd, 1);
    if (o->bare)
        return;
    matrix(m, "token_embd.weight", o->embd, n_vocab, sqrtf((float)o->embd));
    matrix(m, "output.weight", o->embd, known, o->logit_scale);
}

static void add_eagle3(struct maker *m)
{
    const struct mk_options *o = m->o;
    matrix(m, "fc.weight", (uint64_t)m->taps * m->width, o->embd, o->nextn_agrees != 0 ? o->nextn_agrees : 1);
    if (o->norm_first)
        vector(m, "enc.output_norm.weight", (uint64_t)m->taps * m->width, 1);
    vector(m, "blk.0.attn_norm.weight", o->embd, o->nextn_agrees != 0 ? 2 : 1);
    vector(m, "blk.0.attn_norm_2.weight", o->embd, 1);
    add_attention(m, 0, 2 * (uint64_t)o->embd);
    add_ffn(m, 0);
}

static void add_dflash(struct maker *m)
{
    const struct mk_options *o = m->o;
    char name[64];
    matrix(m, "fc.weight", (uint64_t)m->taps * m->width, o->embd, 1);
    vector(m, "enc.output_norm.weight", o->embd, 1);
    for (uint32_t l = 0; l < o->layers; l++) {
        static const struct {
            const char *name;
            bool head;
        } norms[] = {{"attn_norm", false}, {"attn_q_norm", true}, {"attn_k_norm", true}};
        for (unsigned i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "blk.%u.%s.weight", l, norms[i].name);
            vector(m, name, norms[i].head ? m->head : o->embd, 1);
        }
        add_attention(m, l, o->embd);
        add_ffn(m, l);
    }
}

static void number(struct maker *m, const char *suffix, uint32_t v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->o->arch, suffix);
    mk_kv_u32(m->f, key, v);
}

static void add_keys(struct maker *m, const uint32_t *taps)
{
    const struct mk_options *o = m->o;
    char key[96];
    mk_kv_str(m->f, "general.architecture", o->arch);
    mk_kv_str(m->f, "general.name", o->name);
    number(m, "block_count", o->layers);
    number(m, "context_length", o->ctx);
    number(m, "embedding_length", o->embd);
    number(m, "feed_forward_length", o->ff);
    number(m, "attention.head_count", o->heads);
    number(m, "attention.head_count_kv", o->kv);
    number(m, "attention.key_length", m->head);
    number(m, "attention.value_length", m->head);
    number(m, "rope.dimension_count", m->head);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", o->arch);
    mk_kv_f32(m->f, key, 1e-5f);
    snprintf(key, sizeof key, "%s.rope.freq_base", o->arch);
    mk_kv_f32(m->f, key, o->rope_base);
    snprintf(key, sizeof key, "%s.target_layers", o->arch);
    mk_kv_arr(m->f, key, NTX_GGUF_U32, taps, m->taps);
    if (is_dflash(o)) {
        number(m, "block_size", o->block ? o->block : 8);
        mk_kv_u32(m->f, "tokenizer.ggml.mask_token_id", 5);
        if (o->window) {
            const uint8_t windowed[] = {1, 0, 1, 0, 1, 0, 1, 0};
            number(m, "attention.sliding_window", o->window);
            snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", o->arch);
            mk_kv_arr(m->f, key, NTX_GGUF_BOOL, windowed, o->layers < 8 ? o->layers : 8);
        }
        return;
    }
    number(m, "target_hidden_size", m->width);
    snprintf(key, sizeof key, "%s.norm_before_residual", o->arch);
    mk_kv_bool(m->f, key, o->norm_residual);
    snprintf(key, sizeof key, "%s.norm_before_fc", o->arch);
    mk_kv_bool(m->f, key, o->norm_first);
}

static uint32_t type_called(const char *name)
{
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        if (ntx_type_info(t) && !strcmp(ntx_type_info(t)->name, name))
            return t;
    return NTX_F32;
}

int mk_describe_head(struct mk_file *f, const struct mk_options *o, struct ntx_err *err)
{
    uint32_t taps[NTX_TAPS_MAX], n_vocab;
    struct maker m = {.f = f,
                      .o = o,
                      .type = type_called(o->type),
                      .head = o->head_dim ? o->head_dim : o->embd / o->heads,
                      .width = o->state_width ? o->state_width : o->embd};
    for (const char *p = o->taps ? o->taps : "0,1,2"; m.taps < NTX_TAPS_MAX && *p;) {
        char *end;
        taps[m.taps++] = (uint32_t)strtoul(p, &end, 10);
        if (end == p || (*end && *end != ','))
            return ntx_err_set(err, -EINVAL, "--taps are numbers with commas between");
        p = *end ? end + 1 : end;
    }
    f->version = o->version;
    f->seed = o->seed;
    add_keys(&m, taps);
    int rc = mk_vocab(f, o, &n_vocab, err);
    if (rc)
        return rc;
    add_ends(&m, n_vocab);
    (is_dflash(o) ? add_dflash : add_eagle3)(&m);
    return 0;
}
