/* SPDX-License-Identifier: Apache-2.0 */
/* deepseek2.c: DeepSeek V2 to V3.1, R1, Kimi K2, GLM-4.7-Flash; Mistral 4, whose scores grow with the position;
 * DeepSeek V3.2 and GLM-5, with an indexer.
 *
 * MLA; the first layers are dense, the others have experts, chosen within groups by a softmax, or by a sigmoid with
 * a bias for the choice, and shared experts. Next-token blocks may follow.
 *
 * Files give the widths of heads in one of two ways: attention.key_length_mla and value_length_mla with separate
 * matrices (k_b, v_b); older files attention.key_length and value_length with a fused one (kv_b). */
#include <errno.h>
#include <math.h>

#include "model/arch/arch_impl.h"

/* Scores are multiplied by the square of YaRN's magnitude, whose multiplier a key gives in tenths; then RoPE has no
 * magnitude (as in llama.cpp, for any scaling). If the file has the magnitude of RoPE, that stays, and scores have
 * the multiplier's alone, as in transformers. */
static int scale_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    float tenth;
    int rc;
    if ((rc = ntx__key_f32(k, "rope.scaling.yarn_log_multiplier", 0, 0, 1e3f, &tenth)) ||
        (rc = ntx__key_f32(k, "attention.temperature_scale", 0, 0, 1e3f, &hp->temperature.scale)) ||
        (hp->temperature.scale != 0 &&
         (rc = ntx__key_u32(k, "attention.temperature_length", -1, 1, INT32_MAX, &hp->temperature.length))))
        return rc;
    hp->ctx_plain = hp->temperature.length;
    if ((k->arch == &ntx__arch_mistral4 || k->arch == &ntx__arch_deepseek32) && tenth != 0 &&
        !(fabsf(tenth - 0.1f) < 1e-6f)) /* llama.cpp reads it differently there */
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is %g: 0.1 is supported with a %s model",
                           ntx__key_of(k, "rope.scaling.yarn_log_multiplier"), (double)tenth, k->name);
    double by = (double)tenth / (double)0.1f, rotated = hp->rope_attn_factor;
    if (hp->rope_scaling == NTX_ROPE_SCALE_YARN && hp->yarn_ext_factor != 0 && by != 0 && !hp->yarn_magnitude_told)
        rotated /= ntx__yarn_magnitude(hp, 1);
    double scores = (hp->yarn_magnitude_told ? 1 : rotated * ntx__yarn_magnitude(hp, 1)) * ntx__yarn_magnitude(hp, by);
    hp->rope_attn_factor = (float)rotated;
    hp->score_scale = (float)(scores * scores / sqrt(hp->head_k));
    return 0;
}

/* Old files of GLM-4.7-Flash lack the key: their size says that the score is a sigmoid. */
static void find_score(struct ntx__keys *k)
{
    const struct ntx_hparams *hp = k->hp;
    uint64_t function = 0;
    ntx_gguf_u64(k->g, ntx__key_of(k, "expert_gating_func"), &function);
    if (!function && (hp->n_layers == 47 || hp->n_layers == 48) && hp->n_vocab == 154880)
        k->hp->router.score = NTX_SCORE_SIGMOID;
}

/* DeepSeek-V2's group_limited_greedy (softmax, no bias for the choice) ranks groups by their best expert
 * (transformers' modeling_deepseek_v2.py); DeepSeek-V3's noaux_tc, and Mistral 4, by the sum of the two best
 * (modeling_deepseek_v3.py). llama.cpp uses the sum for all; the model's own code is right. */
static void find_worth_of_groups(struct ntx__keys *k)
{
    const struct ntx_hparams *hp = k->hp;
    const bool biased = ntx__has(k, hp->n_dense, ntx_tensor_kinds[NTX_T_router_select].name);
    const bool v2 = k->arch == &ntx__arch_deepseek2 && hp->router.score == NTX_SCORE_SOFTMAX && !biased;
    k->hp->router.expert_groups_by_best = v2 && hp->router.n_expert_groups;
}

static int deepseek2_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t shared;
    int rc = ntx__key_nextn(k);
    if (rc || (rc = ntx__key_u32(k, "leading_dense_block_count", 0, 0, hp->n_layers, &hp->n_dense)) ||
        (rc = ntx__key_mla(k)) || (rc = scale_keys(k)))
        return rc;
    find_score(k);
    if (!hp->n_expert)
        return 0;
    if ((rc = ntx__key_u32(k, "expert_shared_count", -1, 0, NTX__MAX_WIDTH / hp->n_ff_exp, &shared)))
        return rc;
    find_worth_of_groups(k);
    hp->n_ff_shexp = shared * hp->n_ff_exp;
    ntx__find_fused_experts(k);
    return 0;
}

/* With a context as long as GLM-5.2's, the first three layers have an indexer, and every fourth after them. */
static int choosing_keys(struct ntx__keys *k)
{
    const bool each = k->arch == &ntx__arch_deepseek32;
    int rc = deepseek2_keys(k);
    if (rc)
        return rc;
    return ntx__key_indexer(k, &(struct ntx__indexer){.all = each,
                                                      .fourth = !each && k->hp->ctx_train >= 1u << 20,
                                                      .pairs = each ? NTX_ROPE_NEOX : NTX_ROPE_NORM});
}

static void deepseek2_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx__experts experts = {
        .act = NTX_FFN_SILU, .choice = NTX__MAYBE, .shared = m->hp.n_ff_shexp ? NTX__ALWAYS : NTX__NEVER};
    ntx__add_mla_attention(&m->hp, l, out, &(struct ntx__mla){0});
    if (!m->hp.n_expert || l < m->hp.n_dense)
        ntx__add_dense(m, l, out, NTX_FFN_SILU);
    else
        ntx__add_experts(m, out, &experts);
}

#define SAME                                                                                                           \
    .experts = NTX__MAYBE, .score = NTX_SCORE_SOFTMAX, .any_score = true, .keys = deepseek2_keys,                      \
    .layer = deepseek2_layer, .own = {"attention.key_length_mla",         "attention.value_length_mla",                \
                                      "attention.kv_lora_rank",           "attention.q_lora_rank",                     \
                                      "leading_dense_block_count",        "nextn_predict_layers",                      \
                                      "rope.scaling.yarn_log_multiplier", "attention.temperature_scale",               \
                                      "attention.temperature_length"}

/* ---- models by name (model/arch.h) */

#define WIDTHS_GLM5                                                                                                    \
    NTX__MLA "attention.q_lora_rank=2048 attention.key_length_mla=256 attention.value_length_mla=256 "                 \
             "leading_dense_block_count=3 expert_shared_count=1" NTX__INDEXER("32")
#define WIDTHS_R1 NTX__MLA "attention.q_lora_rank=1536 attention.key_length_mla=192 attention.value_length_mla=128"
static const struct ntx_known models_deepseek2[] = {
    {"deepseek-v2-lite", 27, 2048, 10944, 16, 1, 576, 102400, 163840, 64, 6, 1408,
     "leading_dense_block_count=1 expert_shared_count=2 " NTX__MLA
     "attention.key_length_mla=192 attention.value_length_mla=128",
     ""},
    {"deepseek-v2", 60, 5120, 12288, 128, 1, 576, 102400, 163840, 160, 6, 1536,
     "leading_dense_block_count=1 expert_shared_count=2 " WIDTHS_R1, ""},
    {"deepseek-v3", 61, 7168, 18432, 128, 1, 576, 129280, 163840, 256, 8, 2048,
     "leading_dense_block_count=3 expert_shared_count=1 " WIDTHS_R1, ""},
    {"deepseek-r1", 61, 7168, 18432, 128, 1, 576, 129280, 163840, 256, 8, 2048,
     "leading_dense_block_count=3 expert_shared_count=1 " WIDTHS_R1, ""},
    {"kimi-k2", 61, 7168, 18432, 64, 1, 576, 163840, 131072, 384, 8, 2048,
     "leading_dense_block_count=1 expert_shared_count=1 " WIDTHS_R1, ""},
    {"glm-4.7-flash", 47, 2048, 10240, 20, 1, 576, 154880, 202752, 64, 4, 1536,
     "leading_dense_block_count=1 expert_shared_count=1 " NTX__MLA
     "attention.q_lora_rank=768 attention.key_length_mla=256 attention.value_length_mla=256",
     ""},
    {0},
};
static const struct ntx_known models_deepseek32[] = {
    {"deepseek-v3.2", 61, 7168, 18432, 128, 1, 576, 129280, 163840, 256, 8, 2048,
     "leading_dense_block_count=3 expert_shared_count=1 " WIDTHS_R1 NTX__INDEXER("64"), ""},
    {0},
};
static const struct ntx_known models_glm_dsa[] = {
    {"glm-5", 78, 6144, 12288, 64, 1, 576, 154880, 202752, 256, 8, 2048, WIDTHS_GLM5, ""},
    {"glm-5.2", 78, 6144, 12288, 64, 1, 576, 154880, 1048576, 256, 8, 2048, WIDTHS_GLM5, ""},
    {0},
};
static const struct ntx_known models_mistral4[] = {
    {"mistral-small-4", 36, 4096, 12288, 32, 1, 320, 131072, 1048576, 128, 4, 2048,
     "leading_dense_block_count=0 expert_shared_count=1 attention.kv_lora_rank=256 rope.dimension_count=64 "
     "attention.q_lora_rank=1024 "
     "attention.key_length_mla=128 attention.value_length_mla=128",
     ""},
    {0},
};

const struct ntx__arch ntx__arch_deepseek2 = {SAME, .nextn = true, .models = models_deepseek2};
const struct ntx__arch ntx__arch_mistral4 = {SAME, .models = models_mistral4};

/* llama.cpp has no YaRN multiplier for GLM-5, whose files have none: it is refused. */
#define CHOOSING(...)                                                                                                  \
    .experts = NTX__MAYBE, .score = NTX_SCORE_SIGMOID, .any_score = true, .keys = choosing_keys,                       \
    .layer = deepseek2_layer,                                                                                          \
    .own = {"attention.key_length_mla",     "attention.value_length_mla", "attention.kv_lora_rank",                    \
            "attention.q_lora_rank",        "leading_dense_block_count",  "nextn_predict_layers",                      \
            "attention.indexer.head_count", "attention.indexer.top_k",    __VA_ARGS__}

const struct ntx__arch ntx__arch_deepseek32 = {CHOOSING("rope.scaling.yarn_log_multiplier"),
                                               .models = models_deepseek32};
const struct ntx__arch ntx__arch_glm_dsa = {CHOOSING(NULL), .models = models_glm_dsa};
