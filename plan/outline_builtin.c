/* outline_builtin.c: models by name. Widths are those of the published configurations; which tensors there are, and of which shape, the architecture's
 * layers say (plan/sketch.h); which gets which type, what ntx quantize would choose (quantize/mix.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/nearest.h"
#include "common/util.h"
#include "plan/outline.h"
#include "plan/sketch.h"
#include "quantize/mix.h"

#define QWEN_DELTA " ssm.state_size=128 ssm.group_count=16 ssm.conv_kernel=4"
#define QWEN_TURN " rope.dimension_count=64 rope.dimension_sections=11,11,10,0"
#define HEADS_SWA "attention.key_length_swa=256 attention.value_length_swa=256 "
#define LATENT "attention.kv_lora_rank=512 rope.dimension_count=64 "
#define CHOICE(heads) " attention.indexer.head_count=" heads " attention.indexer.key_length=128 attention.indexer.top_k=2048"
#define WIDTHS_GLM5 LATENT "attention.q_lora_rank=2048 attention.key_length_mla=256 attention.value_length_mla=256 leading_dense_block_count=3 expert_shared_count=1" CHOICE("32")
#define WIDTHS_R1 LATENT "attention.q_lora_rank=1536 attention.key_length_mla=192 attention.value_length_mla=128"

#define V4(heads, parts, lora, most) "expert_shared_count=1 rope.dimension_count=64 attention.sliding_window=128 attention.q_lora_rank=" lora " attention.output_group_count=" parts " attention.output_lora_rank=1024" \
    " attention.indexer.head_count=64 attention.indexer.key_length=128 attention.indexer.top_k=" most " attention.compress_rope_freq_base=160000.0 hyper_connection.count=4" \
    " hyper_connection.sinkhorn_iterations=20 hyper_connection.epsilon=0.000001 hash_layer_count=3 expert_gating_func=4 swiglu_clamp_exp=10.0 attention.compress_ratios="
#define IN_TURN "4,128,4,128,4,128,4,128,4,128,"

static const struct {
    const char *name, *arch;
    uint32_t layers, embd, ff, heads, kv, head, vocab, ctx;
    uint32_t experts, used, expert_ff; /* none: 0 */
    const char *keys, *has;            /* more of them; and tensors by whose presence the architecture tells (plan/sketch.h) */
} models[] = {
    {"llama-2-7b", "llama", 32, 4096, 11008, 32, 32, 128, 32000, 4096, 0, 0, 0, "", ""},
    {"llama-2-13b", "llama", 40, 5120, 13824, 40, 40, 128, 32000, 4096, 0, 0, 0, "", ""},
    {"llama-2-70b", "llama", 80, 8192, 28672, 64, 8, 128, 32000, 4096, 0, 0, 0, "", ""},
    {"llama-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 0, 0, 0, "", ""},
    {"llama-70b", "llama", 80, 8192, 28672, 64, 8, 128, 128256, 131072, 0, 0, 0, "", ""},
    {"mixtral-8x7b", "llama", 32, 4096, 14336, 32, 8, 128, 32000, 32768, 8, 2, 14336, "", ""},
    {"qwen3-30b-a3b", "qwen3moe", 48, 2048, 6144, 32, 4, 128, 151936, 40960, 128, 8, 768, "", ""},
    {"qwen3-235b-a22b", "qwen3moe", 94, 4096, 12288, 64, 4, 128, 151936, 40960, 128, 8, 1536, "", ""},
    {"gpt-oss-20b", "gpt-oss", 24, 2880, 2880, 64, 8, 64, 201088, 131072, 32, 4, 2880, "attention.sliding_window=128", ""},
    {"gpt-oss-120b", "gpt-oss", 36, 2880, 2880, 64, 8, 64, 201088, 131072, 128, 4, 2880, "attention.sliding_window=128", ""},
    {"glm-4.5-air", "glm4moe", 46, 4096, 10944, 96, 8, 128, 151552, 131072, 128, 8, 1408, "leading_dense_block_count=1 expert_shared_count=1", ""},
    {"glm-4.6", "glm4moe", 92, 5120, 12288, 96, 8, 128, 151552, 202752, 160, 8, 1536, "leading_dense_block_count=3 expert_shared_count=1", ""},
    {"minimax-m2", "minimax-m2", 62, 3072, 1536, 48, 8, 128, 200064, 196608, 256, 8, 1536, "", ""},
    {"step-3.5-flash", "step35", 45, 4096, 11264, 0, 8, 128, 128896, 262144, 288, 8, 1280,
     "attention.head_count=64x1,96x3 attention.sliding_window=512 attention.sliding_window_pattern=0x1,1x3 leading_dense_block_count=3 expert_shared_feed_forward_length=1280", ""},
    {"gemma-2-9b", "gemma2", 42, 3584, 14336, 16, 8, 256, 256000, 8192, 0, 0, 0, "", ""},
    {"gemma-2-27b", "gemma2", 46, 4608, 36864, 32, 16, 128, 256000, 8192, 0, 0, 0, "", ""},
    {"gemma-3-4b", "gemma3", 34, 2560, 10240, 8, 4, 256, 262208, 131072, 0, 0, 0, "attention.sliding_window=1024", ""},
    {"gemma-3-12b", "gemma3", 48, 3840, 15360, 16, 8, 256, 262208, 131072, 0, 0, 0, "attention.sliding_window=1024", ""},
    {"gemma-3-27b", "gemma3", 62, 5376, 21504, 32, 16, 128, 262208, 131072, 0, 0, 0, "attention.sliding_window=1024", ""},
    {"gemma-4-e2b", "gemma4", 35, 1536, 0, 8, 1, 512, 262144, 131072, 0, 0, 0,
     "attention.sliding_window=512 attention.sliding_window_pattern=1x4,0 " HEADS_SWA "embedding_length_per_layer_input=256 attention.shared_kv_layers=20 feed_forward_length=6144x15,12288x20", "blk.4.attn_v.weight"},
    {"gemma-4-e4b", "gemma4", 42, 2560, 10240, 8, 2, 512, 262144, 131072, 0, 0, 0,
     "attention.sliding_window=512 attention.sliding_window_pattern=1x5,0 " HEADS_SWA "embedding_length_per_layer_input=256 attention.shared_kv_layers=18", "blk.5.attn_v.weight"},
    {"gemma-4-26b-a4b", "gemma4", 30, 2816, 2112, 16, 0, 512, 262144, 262144, 128, 8, 704,
     "attention.sliding_window=1024 attention.sliding_window_pattern=1x5,0 " HEADS_SWA "embedding_length_per_layer_input=0 attention.head_count_kv=8x5,2", ""},
    {"gemma-4-31b", "gemma4", 60, 5376, 21504, 32, 0, 512, 262144, 262144, 0, 0, 0,
     "attention.sliding_window=1024 attention.sliding_window_pattern=1x5,0 " HEADS_SWA "embedding_length_per_layer_input=0 attention.head_count_kv=16x5,4", ""},
    {"phi-3-mini", "phi3", 32, 3072, 8192, 32, 32, 96, 32064, 131072, 0, 0, 0, "", "blk.0.attn_qkv.weight"},
    {"phi-4-mini", "phi3", 32, 3072, 8192, 24, 8, 128, 200064, 131072, 0, 0, 0, "", "blk.0.attn_qkv.weight"},
    {"phi-4", "phi3", 40, 5120, 17920, 40, 10, 128, 100352, 16384, 0, 0, 0, "", "blk.0.attn_qkv.weight"},
    {"llama-4-scout", "llama4", 48, 5120, 16384, 40, 8, 128, 202048, 10485760, 16, 1, 8192, "interleave_moe_layer_step=1", ""},
    {"llama-4-maverick", "llama4", 48, 5120, 16384, 40, 8, 128, 202048, 1048576, 128, 1, 8192, "interleave_moe_layer_step=2", ""},
    {"granite-3.3-8b", "granite", 40, 4096, 12800, 32, 8, 128, 49159, 131072, 0, 0, 0, "logit_scale=16.0", ""},
    {"ministral-3-8b", "mistral3", 34, 4096, 14336, 32, 8, 128, 131072, 262144, 0, 0, 0, "", ""},
    {"ministral-3-14b", "mistral3", 40, 5120, 16384, 32, 8, 128, 131072, 262144, 0, 0, 0, "", ""},
    {"smollm3-3b", "smollm3", 36, 2048, 11008, 16, 4, 128, 128256, 65536, 0, 0, 0, "", ""},
    {"olmoe-7b", "olmoe", 16, 2048, 1024, 16, 16, 128, 50304, 4096, 64, 8, 1024, "", ""},
    {"qwen3-next-80b-a3b", "qwen3next", 48, 2048, 5120, 16, 2, 256, 151936, 262144, 512, 10, 512,
     "expert_shared_feed_forward_length=512 ssm.time_step_rank=32 ssm.inner_size=4096" QWEN_DELTA, ""},
    {"qwen3.5-27b", "qwen35", 64, 5120, 17408, 24, 4, 256, 248320, 262144, 0, 0, 0,
     "ssm.time_step_rank=48 ssm.inner_size=6144" QWEN_DELTA QWEN_TURN, ""},
    {"qwen3.5-35b-a3b", "qwen35moe", 40, 2048, 512, 16, 2, 256, 248320, 262144, 256, 8, 512,
     "expert_shared_feed_forward_length=512 ssm.time_step_rank=32 ssm.inner_size=4096" QWEN_DELTA QWEN_TURN, ""},
    {"qwen3.5-122b-a10b", "qwen35moe", 48, 3072, 1024, 32, 2, 256, 248320, 262144, 256, 8, 1024,
     "expert_shared_feed_forward_length=1024 ssm.time_step_rank=64 ssm.inner_size=8192" QWEN_DELTA QWEN_TURN, ""},
    {"qwen3.5-397b-a17b", "qwen35moe", 60, 4096, 1024, 32, 2, 256, 248320, 262144, 512, 10, 1024,
     "expert_shared_feed_forward_length=1024 ssm.time_step_rank=64 ssm.inner_size=8192" QWEN_DELTA QWEN_TURN, ""},
    /* The table's 51B give the width, and transformers' defaults the streams and rows of the table; what chooses, and an expert's width, are guesses that its 125B and 6B at a time leave. */
    {"qwen3.8-flash-next", "qwen4exp", 48, 2560, 0, 16, 2, 256, 248320, 262144, 512, 10, 384,
     "expert_shared_feed_forward_length=384 ssm.time_step_rank=32 ssm.inner_size=4096 hyper_connection.count=4 hyper_connection.low_rank=320 attention.compress_ratios=0x3,16 "
     "ple.layers=1, ple.ngram_size=3 ple.heads_per_ngram=8 ple.conv_kernel=4 ple.eos_token_id=0 embedding_length_per_layer_input=160 ple.layer_multipliers=1,3,5, ple.head_offsets=0x15,300000045 "
     "ple.head_vocab_sizes=20000003x16" CHOICE("16") QWEN_DELTA QWEN_TURN, ""},
    {"deepseek-moe-16b", "deepseek", 28, 2048, 10944, 16, 16, 128, 102400, 4096, 64, 6, 1408,
     "leading_dense_block_count=1 expert_shared_count=2", ""},
    {"deepseek-v2-lite", "deepseek2", 27, 2048, 10944, 16, 1, 576, 102400, 163840, 64, 6, 1408,
     "leading_dense_block_count=1 expert_shared_count=2 " LATENT "attention.key_length_mla=192 attention.value_length_mla=128", ""},
    {"deepseek-v2", "deepseek2", 60, 5120, 12288, 128, 1, 576, 102400, 163840, 160, 6, 1536,
     "leading_dense_block_count=1 expert_shared_count=2 " WIDTHS_R1, ""},
    {"deepseek-v3", "deepseek2", 61, 7168, 18432, 128, 1, 576, 129280, 163840, 256, 8, 2048,
     "leading_dense_block_count=3 expert_shared_count=1 " WIDTHS_R1, ""},
    {"deepseek-r1", "deepseek2", 61, 7168, 18432, 128, 1, 576, 129280, 163840, 256, 8, 2048,
     "leading_dense_block_count=3 expert_shared_count=1 " WIDTHS_R1, ""},
    {"deepseek-v3.2", "deepseek32", 61, 7168, 18432, 128, 1, 576, 129280, 163840, 256, 8, 2048,
     "leading_dense_block_count=3 expert_shared_count=1 " WIDTHS_R1 CHOICE("64"), ""},
    {"glm-5", "glm-dsa", 78, 6144, 12288, 64, 1, 576, 154880, 202752, 256, 8, 2048, WIDTHS_GLM5, ""},
    {"glm-5.2", "glm-dsa", 78, 6144, 12288, 64, 1, 576, 154880, 1048576, 256, 8, 2048, WIDTHS_GLM5, ""},
    {"deepseek-v4-flash", "deepseek4", 43, 4096, 0, 64, 1, 512, 129280, 1048576, 256, 6, 2048, V4("64", "8", "1024", "512") "0x2," IN_TURN IN_TURN IN_TURN IN_TURN "4", ""},
    {"deepseek-v4-pro", "deepseek4", 61, 7168, 0, 128, 1, 512, 129280, 1048576, 384, 6, 3072,
     V4("128", "16", "1536", "1024") "128x3," IN_TURN IN_TURN IN_TURN IN_TURN IN_TURN "4,128,4,128,4,128,4,128", ""},
    {"kimi-k2", "deepseek2", 61, 7168, 18432, 64, 1, 576, 163840, 131072, 384, 8, 2048,
     "leading_dense_block_count=1 expert_shared_count=1 " WIDTHS_R1, ""},
    {"kimi-linear-48b-a3b", "kimi-linear", 27, 2304, 9216, 32, 0, 576, 163840, 1048576, 256, 8, 1024,
     "attention.head_count_kv=0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x2,1 ssm.conv_kernel=4 kda.head_dim=128 leading_dense_block_count=1 expert_shared_count=1 " LATENT
     "attention.key_length_mla=192 attention.value_length_mla=128", ""},
    {"glm-5.3-flash", "glm5-next", 45, 4096, 12288, 64, 0, 512, 154880, 1048576, 288, 8, 2048,
     "attention.head_count_kv=0x3,1 attention.layer_norm_epsilon=0.000001 ssm.conv_kernel=4 kda.head_dim=128 kda.gate_lower_bound=-5.0 attention.kv_lora_rank=512 rope.dimension_count=0 "
     "attention.q_lora_rank=1536 attention.key_length_mla=256 attention.value_length_mla=256 leading_dense_block_count=3 expert_shared_count=1 attention.indexer.kpool=16 "
     "attention.indexer.kpool_select_tail=true swiglu_clamp_exp=10.0 hyper_connection.count=4 hyper_connection.sinkhorn_iterations=20 hyper_connection.epsilon=0.000001" CHOICE("32"), ""},
    /* transformers' defaults */
    {"hy-4", "hy_v4", 34, 2816, 6912, 32, 1, 576, 120832, 262144, 256, 8, 768,
     LATENT "attention.q_lora_rank=1536 attention.key_length_mla=256 attention.value_length_mla=256 leading_dense_block_count=1 expert_shared_count=1 swiglu_clamp_exp=10.0 hyper_connection.count=4 "
     "hyper_connection.magnitude=2.0 hyper_connection.epsilon=0.000001 attention.indexer.types=1x2,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1" CHOICE("16"), ""},
    {"glm-4.7-flash", "deepseek2", 47, 2048, 10240, 20, 1, 576, 154880, 202752, 64, 4, 1536,
     "leading_dense_block_count=1 expert_shared_count=1 " LATENT "attention.q_lora_rank=768 attention.key_length_mla=256 attention.value_length_mla=256", ""},
    {"mistral-small-4", "mistral4", 36, 4096, 12288, 32, 1, 320, 131072, 1048576, 128, 4, 2048,
     "leading_dense_block_count=0 expert_shared_count=1 attention.kv_lora_rank=256 rope.dimension_count=64 attention.q_lora_rank=1024 "
     "attention.key_length_mla=128 attention.value_length_mla=128", ""},
};

/* As they are called here, in the order of the list; all others of quantize/mix.h go, too. */
static const char *const types[] = {"f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0", "iq4_xs", "q3_k_m", "q2_k", "mxfp4"};

enum { N_MODELS = sizeof models / sizeof *models, N_TYPES = sizeof types / sizeof *types };

const char *ntx_outline_model(size_t i) { return i < N_MODELS ? models[i].name : NULL; }
const char *ntx_outline_type(size_t i) { return i < N_TYPES ? types[i] : NULL; }
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

/* A key of the table's columns: 0 is none. */
static void add_key(char *keys, size_t size, const char *name, uint32_t v)
{
    if (v)
        snprintf(keys + strlen(keys), size - strlen(keys), " %s=%u", name, v);
}

static int sketch(size_t k, struct ntx_gguf **out, struct ntx_err *err)
{
    char keys[2048];
    const size_t n = sizeof keys;
    snprintf(keys, n, "block_count=%u embedding_length=%u vocab_size=%u", models[k].layers, models[k].embd, models[k].vocab);
    add_key(keys, n, "feed_forward_length", models[k].ff);
    add_key(keys, n, "attention.head_count", models[k].heads);
    add_key(keys, n, "attention.head_count_kv", models[k].kv);
    add_key(keys, n, "attention.key_length", models[k].head);
    add_key(keys, n, "attention.value_length", models[k].head);
    add_key(keys, n, "context_length", models[k].ctx);
    add_key(keys, n, "expert_count", models[k].experts);
    add_key(keys, n, "expert_used_count", models[k].used);
    add_key(keys, n, "expert_feed_forward_length", models[k].expert_ff);
    if (*models[k].keys)
        snprintf(keys + strlen(keys), n - strlen(keys), " %s", models[k].keys);
    return ntx_sketch_make(models[k].arch, keys, models[k].has, out, err);
}

int ntx_outline_named(const char *name, struct ntx_outline *out, struct ntx_err *err)
{
    const char *at = strchr(name, '@');
    char model[96];
    size_t k = 0;
    snprintf(model, sizeof model, "%.*s", at ? (int)NTX_MIN(at - name, 95) : 95, name);
    while (k < N_MODELS && strcasecmp(models[k].name, model))
        k++;
    if (k == N_MODELS)
        return unknown("model", model, ntx_outline_model, N_MODELS, err);
    if (!at)
        return ntx_err_set(err, -ENOENT, "%s: of which type? For example %s@q4_k_m; `ntx plan --list` shows them", model, model);
    bool experts_only = !strcasecmp(at + 1, "mxfp4");
    const struct ntx_mix *mix = ntx_mix_named(experts_only ? "MXFP4_MOE" : at + 1);
    if (!mix)
        return unknown("type", at + 1, ntx_outline_type, N_TYPES, err);
    if (experts_only && !models[k].experts)
        return ntx_err_set(err, -EINVAL, "%.80s: only experts are of that type, and the model has none", name);
    struct ntx_gguf *floats = NULL;
    uint32_t n_other = 0;
    int rc = sketch(k, &floats, err);
    if (!rc)
        rc = ntx_outline_retyped(floats, mix, false, name, &n_other, out, err);
    ntx_gguf_free(floats);
    if (!rc && n_other && models[k].embd % 256) {
        ntx_outline_free(out);
        return ntx_err_set(err, -EINVAL, "%.80s: rows of %u values are no whole blocks of that type; mxfp4, q8_0 and f16 are possible", name, models[k].embd);
    }
    return rc;
}
