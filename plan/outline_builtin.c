/* outline_builtin.c: models by name. Widths are those of the published configurations; which tensors there are, and of which shape, the architecture's
 * layers say (model/arch.h); which gets which type follows the mixes of
 * llama.cpp's quantiser: of a mix, attn_v and ffn_down get more bits in the first and last eighth of the layers and in every third between. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/nearest.h"
#include "common/util.h"
#include "infer/recur.h"
#include "model/arch.h"
#include "plan/outline.h"

static const struct {
    const char *name, *arch;
    uint32_t layers, embd, ff, heads, kv, head, vocab, ctx;
    uint32_t experts, used, expert_ff, shared_ff, dense; /* none: 0; dense: layers at the beginning without */
} models[] = {
    {"llama-2-7b", "llama", 32, 4096, 11008, 32, 32, 128, 32000, 4096, 0, 0, 0, 0, 0},
    {"llama-2-13b", "llama", 40, 5120, 13824, 40, 40, 128, 32000, 4096, 0, 0, 0, 0, 0},
    {"llama-2-70b", "llama", 80, 8192, 28672, 64, 8, 128, 32000, 4096, 0, 0, 0, 0, 0},
    {"llama-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 0, 0, 0, 0, 0},
    {"llama-70b", "llama", 80, 8192, 28672, 64, 8, 128, 128256, 131072, 0, 0, 0, 0, 0},
    {"mixtral-8x7b", "llama", 32, 4096, 14336, 32, 8, 128, 32000, 32768, 8, 2, 14336, 0, 0},
    {"qwen3-30b-a3b", "qwen3moe", 48, 2048, 6144, 32, 4, 128, 151936, 40960, 128, 8, 768, 0, 0},
    {"qwen3-235b-a22b", "qwen3moe", 94, 4096, 12288, 64, 4, 128, 151936, 40960, 128, 8, 1536, 0, 0},
    {"gpt-oss-20b", "gpt-oss", 24, 2880, 2880, 64, 8, 64, 201088, 131072, 32, 4, 2880, 0, 0},
    {"gpt-oss-120b", "gpt-oss", 36, 2880, 2880, 64, 8, 64, 201088, 131072, 128, 4, 2880, 0, 0},
    {"glm-4.5-air", "glm4moe", 46, 4096, 10944, 96, 8, 128, 151552, 131072, 128, 8, 1408, 1408, 1},
    {"glm-4.6", "glm4moe", 92, 5120, 12288, 96, 8, 128, 151552, 202752, 160, 8, 1536, 1536, 3},
    {"minimax-m2", "minimax-m2", 62, 3072, 1536, 48, 8, 128, 200064, 196608, 256, 8, 1536, 0, 0},
    {"gemma-2-9b", "gemma2", 42, 3584, 14336, 16, 8, 256, 256000, 8192, 0, 0, 0, 0, 0},
    {"gemma-2-27b", "gemma2", 46, 4608, 36864, 32, 16, 128, 256000, 8192, 0, 0, 0, 0, 0},
    {"gemma-3-4b", "gemma3", 34, 2560, 10240, 8, 4, 256, 262208, 131072, 0, 0, 0, 0, 0},
    {"gemma-3-12b", "gemma3", 48, 3840, 15360, 16, 8, 256, 262208, 131072, 0, 0, 0, 0, 0},
    {"gemma-3-27b", "gemma3", 62, 5376, 21504, 32, 16, 128, 262208, 131072, 0, 0, 0, 0, 0},
    {"gemma-4-e2b", "gemma4", 35, 1536, 6144, 8, 1, 512, 262144, 131072, 0, 0, 0, 0, 0},
    {"gemma-4-e4b", "gemma4", 42, 2560, 10240, 8, 2, 512, 262144, 131072, 0, 0, 0, 0, 0},
    {"gemma-4-26b-a4b", "gemma4", 30, 2816, 2112, 16, 8, 512, 262144, 262144, 128, 8, 704, 0, 0},
    {"gemma-4-31b", "gemma4", 60, 5376, 21504, 32, 16, 512, 262144, 262144, 0, 0, 0, 0, 0},
    {"phi-3-mini", "phi3", 32, 3072, 8192, 32, 32, 96, 32064, 131072, 0, 0, 0, 0, 0},
    {"phi-4-mini", "phi3", 32, 3072, 8192, 24, 8, 128, 200064, 131072, 0, 0, 0, 0, 0},
    {"phi-4", "phi3", 40, 5120, 17920, 40, 10, 128, 100352, 16384, 0, 0, 0, 0, 0},
    {"llama-4-scout", "llama4", 48, 5120, 16384, 40, 8, 128, 202048, 8191, 16, 1, 8192, 8192, 0},
    {"llama-4-maverick", "llama4", 48, 5120, 16384, 40, 8, 128, 202048, 8191, 128, 1, 8192, 8192, 0},
    {"granite-3.3-8b", "granite", 40, 4096, 12800, 32, 8, 128, 49159, 131072, 0, 0, 0, 0, 0},
    {"ministral-3-8b", "mistral3", 34, 4096, 14336, 32, 8, 128, 131072, 16384, 0, 0, 0, 0, 0},
    {"ministral-3-14b", "mistral3", 40, 5120, 16384, 32, 8, 128, 131072, 16384, 0, 0, 0, 0, 0},
    {"smollm3-3b", "smollm3", 36, 2048, 11008, 16, 4, 128, 128256, 65536, 0, 0, 0, 0, 0},
    {"olmoe-7b", "olmoe", 16, 2048, 1024, 16, 16, 128, 50304, 4096, 64, 8, 1024, 0, 0},
    {"qwen3-next-80b-a3b", "qwen3next", 48, 2048, 5120, 16, 2, 256, 151936, 262144, 512, 10, 512, 512, 0},
    {"qwen3.5-27b", "qwen35", 64, 5120, 17408, 24, 4, 256, 248320, 262144, 0, 0, 0, 0, 0},
    {"qwen3.5-35b-a3b", "qwen35moe", 40, 2048, 512, 16, 2, 256, 248320, 262144, 256, 8, 512, 512, 0},
    {"qwen3.5-122b-a10b", "qwen35moe", 48, 3072, 1024, 32, 2, 256, 248320, 262144, 256, 8, 1024, 1024, 0},
    {"qwen3.5-397b-a17b", "qwen35moe", 60, 4096, 1024, 32, 2, 256, 248320, 262144, 512, 10, 1024, 1024, 0},
    {"deepseek-moe-16b", "deepseek", 28, 2048, 10944, 16, 16, 128, 102400, 4096, 64, 6, 1408, 2816, 1},
    {"deepseek-v2-lite", "deepseek2", 27, 2048, 10944, 16, 1, 192, 102400, 163840, 64, 6, 1408, 2816, 1},
    {"deepseek-v2", "deepseek2", 60, 5120, 12288, 128, 1, 192, 102400, 163840, 160, 6, 1536, 3072, 1},
    {"deepseek-v3", "deepseek2", 61, 7168, 18432, 128, 1, 192, 129280, 163840, 256, 8, 2048, 2048, 3},
    {"deepseek-r1", "deepseek2", 61, 7168, 18432, 128, 1, 192, 129280, 163840, 256, 8, 2048, 2048, 3},
    {"kimi-k2", "deepseek2", 61, 7168, 18432, 64, 1, 192, 163840, 131072, 384, 8, 2048, 2048, 1},
    {"glm-4.7-flash", "deepseek2", 47, 2048, 10240, 20, 1, 256, 154880, 202752, 64, 4, 1536, 1536, 1},
};

/* Attention over latents (infer/latent.c), of some of them. */
static const struct {
    const char *model;
    uint32_t kv_lora, q_lora, rotated, value;
} latents[] = {
    {"deepseek-v2-lite", 512, 0, 64, 128}, {"deepseek-v2", 512, 1536, 64, 128}, {"deepseek-v3", 512, 1536, 64, 128}, {"deepseek-r1", 512, 1536, 64, 128},
    {"kimi-k2", 512, 1536, 64, 128}, {"glm-4.7-flash", 512, 768, 64, 256},
};

/* Where layers differ: all but each `every`th have a window, and heads of another width; the last ones keep no K and V. */
static const struct by_layer {
    const char *name;
    uint32_t every, window_head, full_kv, shared, shared_ff, n_input;
    bool no_v; /* without a window */
} by_layer[] = {
    {"gemma-4-e2b", 5, 256, 1, 20, 12288, 256, false},
    {"gemma-4-e4b", 6, 256, 2, 18, 10240, 256, false},
    {"gemma-4-26b-a4b", 6, 256, 2, 0, 0, 0, true},
    {"gemma-4-31b", 6, 256, 4, 0, 0, 0, true},
};

static const struct mix {
    const char *name;
    uint32_t base, more, head; /* most tensors; those that a mix gives more bits; the output matrix */
    uint32_t experts;          /* where they have a type of their own; 0: as the others */
} mixes[] = {
    {"f16", NTX_F16, NTX_F16, NTX_F16, 0},     {"bf16", NTX_BF16, NTX_BF16, NTX_BF16, 0}, {"q8_0", NTX_Q8_0, NTX_Q8_0, NTX_Q8_0, 0},
    {"q6_k", NTX_Q6_K, NTX_Q6_K, NTX_Q6_K, 0}, {"q5_k_m", NTX_Q5_K, NTX_Q6_K, NTX_Q6_K, 0}, {"q4_k_m", NTX_Q4_K, NTX_Q6_K, NTX_Q6_K, 0},
    {"q4_0", NTX_Q4_0, NTX_Q4_0, NTX_Q6_K, 0}, {"mxfp4", NTX_Q8_0, NTX_Q8_0, NTX_Q8_0, NTX_MXFP4},
};

static bool more_bits(uint32_t l, uint32_t n)
{
    return l < n / 8 || l >= 7 * n / 8 || (l - n / 8) % 3 == 2;
}

static uint64_t add(struct ntx_outline *o, enum ntx_part part, uint32_t type, uint64_t n_in, uint64_t n_out)
{
    uint64_t bytes = n_out * ntx_row_bytes(type, n_in);
    o->bytes[part][type] += bytes;
    o->n_matrices += part != NTX_PART_EMBED && n_out > 1;
    return bytes;
}

/* attn_v, which is small with grouped heads: the 70B models share it between eight heads and never give it 4 bits; those of eight
 * experts give k and v 8 bits. */
static uint32_t v_type(const struct ntx_outline *o, const struct mix *m, bool more)
{
    bool mixed = m->base != m->more;
    if (mixed && o->n_experts == 8)
        return NTX_Q8_0;
    if (mixed && !more && o->n_layers == 80 && m->base == NTX_Q4_K)
        return NTX_Q5_K;
    return more ? m->more : m->base;
}

/* Vectors, and what chooses experts, are floats in all of them. */
static uint32_t type_of(const struct ntx_outline *o, const struct mix *m, enum ntx_tensor t, bool more)
{
    bool eight = m->base != m->more && o->n_experts == 8;
    enum ntx_use use = (enum ntx_use)ntx_tensor_kinds[t].use;
    if (use != NTX_USE_MATRIX && use != NTX_USE_HEADS && use != NTX_USE_EXPERT)
        return NTX_F32;
    if (use == NTX_USE_EXPERT && m->experts)
        return m->experts;
    switch (t) {
    case NTX_T_k: return eight ? NTX_Q8_0 : m->base;
    case NTX_T_v: return v_type(o, m, more);
    case NTX_T_o: return eight && m->base == NTX_Q4_K ? NTX_Q5_K : m->base;
    case NTX_T_down: case NTX_T_down_shared: case NTX_T_expert_down: return more ? m->more : m->base;
    default: return m->base;
    }
}

/* A row that is no whole blocks of a type gets a simpler one. */
static uint32_t fitting(uint32_t type, uint64_t n_in)
{
    if (ntx_row_bytes(type, n_in))
        return type;
    return type == NTX_Q4_K ? NTX_Q5_0 : type == NTX_Q5_K ? NTX_Q5_1 : NTX_Q8_0;
}

/* What all files of the architecture have: what may be there is small. */
static uint64_t add_layer(struct ntx_outline *o, const char *arch, const struct ntx_hparams *hp, const struct mix *m, uint32_t l)
{
    bool more = m->base != m->more && more_bits(l, o->n_layers);
    struct ntx_layer layer;
    uint64_t n = 0;
    ntx_layer_describe(arch, hp, l, &layer);
    for (const struct ntx_step *s = layer.step; s < layer.step + layer.n_steps; s++)
        for (uint8_t i = 0; i < s->n_weights; i++) {
            enum ntx_tensor t = (enum ntx_tensor)s->weight[i];
            struct ntx_shape w = ntx_shape_of(hp, l, t);
            uint32_t type = fitting(type_of(o, m, t, more), w.n_in);
            if (s->maybe >> i & 1)
                continue;
            n += add(o, ntx_tensor_kinds[t].use == NTX_USE_EXPERT ? NTX_PART_EXPERT : NTX_PART_DENSE, type, w.n_in, (uint64_t)w.n_out * w.n_each);
        }
    o->n_expert_layers += ntx_layer_find(&layer, NTX_OP_EXPERTS) != NULL;
    return n;
}

enum { N_MODELS = sizeof models / sizeof *models, N_MIXES = sizeof mixes / sizeof *mixes };

const char *ntx_outline_model(size_t i) { return i < N_MODELS ? models[i].name : NULL; }
const char *ntx_outline_type(size_t i) { return i < N_MIXES ? mixes[i].name : NULL; }
const char *ntx_outline_nearest(const char *word) { return ntx_nearest(word, ntx_outline_model, N_MODELS); }

static int unknown(const char *what, const char *word, const char *(*at)(size_t i), size_t n, struct ntx_err *err)
{
    char list[800] = "";
    const char *near = ntx_nearest(word, at, n);
    for (size_t i = 0; i < n; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", at(i));
    return ntx_err_set(err, -ENOENT, "there is no %s '%.80s'%s%s%s: there are %s; a GGUF's path goes, too", what, word, near ? " (did you mean '" : "", near ? near : "",
                       near ? "'?)" : "", list);
}

/* Three of four layers are delta nets of so many heads, 128 wide, over 16 key heads, behind 4 taps; 0: none is. */
static uint32_t delta_heads(const char *name)
{
    static const struct { const char *name; uint32_t n; } of[] = {
        {"qwen3-next-80b-a3b", 32}, {"qwen3.5-27b", 48}, {"qwen3.5-35b-a3b", 32}, {"qwen3.5-122b-a10b", 64}, {"qwen3.5-397b-a17b", 64},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (!strcmp(of[i].name, name))
            return of[i].n;
    return 0;
}

static void set_delta(struct ntx_hparams *hp, struct ntx_outline *o, uint32_t heads)
{
    if (!heads)
        return;
    hp->delta.heads = heads;
    hp->delta.key_heads = 16;
    hp->delta.head = 128;
    hp->delta.taps = 4;
    ntx_set_recurrent(hp, 4);
    o->n_recurrent = ntx_count_recurrent(hp);
    o->state_bytes = ntx_recur_bytes(hp);
}

/* Returns what a token has in K and V, in all layers. */
static uint64_t set_dims(struct ntx_hparams *hp, const struct by_layer *b, struct ntx_dims *d)
{
    const uint32_t own = hp->n_layers - b->shared;
    uint64_t n = 0;
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        bool full = l % b->every == b->every - 1;
        d[l] = ntx_dims_of(hp, l);
        d[l].n_head_kv = full ? b->full_kv : d[l].n_head_kv;
        d[l].head_k = d[l].head_v = full ? hp->head_k : b->window_head;
        d[l].kv_of = l < own ? l : own - (full ? 1 : 2);
        d[l].n_ff = l < own ? d[l].n_ff : b->shared_ff;
        hp->windowed[l / 64] |= (uint64_t)!full << l % 64;
        n += l < own ? (uint64_t)d[l].n_head_kv * (d[l].head_k + d[l].head_v) : 0;
    }
    hp->dims = d;
    hp->n_input = b->n_input;
    hp->v_of_k = b->no_v;
    return n;
}

static void add_latent(const char *model, struct ntx_hparams *hp, struct ntx_outline *o)
{
    for (size_t i = 0; i < sizeof latents / sizeof *latents; i++)
        if (!strcmp(latents[i].model, model)) {
            hp->kv_lora = latents[i].kv_lora;
            hp->q_lora = latents[i].q_lora;
            hp->rope_dim = latents[i].rotated;
            hp->head_v = o->head_v = latents[i].value;
            o->latent = ntx_kept_k(hp, 0);
        }
}

int ntx_outline_named(const char *name, struct ntx_outline *out, struct ntx_err *err)
{
    const char *at = strchr(name, '@');
    char model[96];
    size_t k = 0, t = 0;
    snprintf(model, sizeof model, "%.*s", at ? (int)NTX_MIN(at - name, 95) : 95, name);
    while (k < N_MODELS && strcasecmp(models[k].name, model))
        k++;
    if (k == N_MODELS)
        return unknown("model", model, ntx_outline_model, N_MODELS, err);
    if (!at)
        return ntx_err_set(err, -ENOENT, "%s: of which type? For example %s@q4_k_m; `ntx plan --list` shows them", model, model);
    while (t < N_MIXES && strcasecmp(mixes[t].name, at + 1))
        t++;
    if (t == N_MIXES)
        return unknown("type", at + 1, ntx_outline_type, N_MIXES, err);
    struct ntx_outline o = {
        .n_layers = models[k].layers, .n_embd = models[k].embd, .n_ff = models[k].experts ? models[k].expert_ff : models[k].ff, .n_vocab = models[k].vocab, .n_head = models[k].heads,
        .n_head_kv = models[k].kv, .head_k = models[k].head, .head_v = models[k].head, .ctx_train = models[k].ctx, .n_experts = models[k].experts,
        .n_used = models[k].used, .layer_min = UINT64_MAX,
    };
    if (!ntx_row_bytes(mixes[t].base, o.n_embd) || !ntx_row_bytes(mixes[t].head, o.n_embd))
        return ntx_err_set(err, -EINVAL, "%.80s: rows of %u values are no whole blocks of that type; mxfp4, q8_0 and f16 are possible", name, o.n_embd);
    if (mixes[t].experts && !o.n_experts)
        return ntx_err_set(err, -EINVAL, "%.80s: only experts are of that type, and the model has none", name);
    struct ntx_dims dims[NTX_MAX_LAYERS];
    struct ntx_hparams hp = {
        .n_layers = o.n_layers, .n_embd = o.n_embd, .n_ff = models[k].ff, .n_vocab = o.n_vocab, .n_head = o.n_head, .n_head_kv = o.n_head_kv, .head_k = o.head_k,
        .head_v = o.head_v, .n_dense = models[k].dense, .n_expert = o.n_experts, .n_expert_used = o.n_used, .n_ff_exp = models[k].expert_ff,
        .n_ff_shexp = models[k].shared_ff, .expert_every = strcmp(models[k].name, "llama-4-maverick") ? 1 : 2 /* of so many layers the last has experts */,
    };
    set_delta(&hp, &o, delta_heads(models[k].name));
    for (size_t i = 0; i < sizeof by_layer / sizeof *by_layer; i++)
        if (!strcmp(by_layer[i].name, models[k].name))
            o.kv_values = set_dims(&hp, &by_layer[i], dims);
    add_latent(models[k].name, &hp, &o);
    snprintf(o.name, sizeof o.name, "%s", name);
    for (uint32_t l = 0; l < o.n_layers; l++) {
        uint64_t n = add_layer(&o, models[k].arch, &hp, &mixes[t], l);
        o.layer_min = NTX_MIN(o.layer_min, n);
        o.layer_max = NTX_MAX(o.layer_max, n);
    }
    o.bytes[NTX_PART_DENSE][NTX_F32] += 4ull * o.n_embd; /* output_norm */
    add(&o, NTX_PART_HEAD, mixes[t].head, o.n_embd, o.n_vocab);
    add(&o, NTX_PART_EMBED, mixes[t].base, o.n_embd, o.n_vocab);
    if (hp.n_input)
        add(&o, NTX_PART_EMBED, mixes[t].base, (uint64_t)hp.n_input * hp.n_layers, o.n_vocab);
    *out = o;
    return 0;
}
