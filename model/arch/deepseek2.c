/* deepseek2.c: DeepSeek V2 to V3.1, R1, Kimi K2, GLM-4.7-Flash; Mistral 4, whose scores grow with the position; and DeepSeek V3.2 and GLM-5, which attend to positions that they choose: attention over latents, the first layers dense, then experts, of which a row's are chosen in some of
 * their groups, by a softmax or a sigmoid with a bias for the choice, and some more that every row goes through. Blocks that foretell tokens may follow.
 *
 * Files say the widths of heads in one of two ways: attention.key_length_mla and value_length_mla, beside matrices that are apart (k_b, v_b); older ones
 * attention.key_length and value_length, beside those that are one (kv_b). */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"

/* Of a head, as keys tell that llama.cpp made for attention over latents: then those of heads in general are the latents'. */
static int own_widths(struct ntx__keys *k, uint32_t head_k, uint32_t head_v)
{
    struct ntx_hparams *hp = k->hp;
    if (hp->head_k != hp->kv_lora + hp->rope_dim || hp->n_head_kv != 1)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is %u, of %u heads: latents of %u values with %u rotated ones, of one head, are possible", ntx__key_of(k, "attention.key_length"),
                           hp->head_k, hp->n_head_kv, hp->kv_lora, hp->rope_dim);
    hp->head_k = head_k;
    hp->head_v = head_v;
    return 0;
}

int ntx__key_latents(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t head_k, head_v;
    int rc;
    if ((rc = ntx__key_u32(k, "attention.kv_lora_rank", -1, 1, NTX_MAX_HEAD - hp->rope_dim, &hp->kv_lora)) ||
        (rc = ntx__key_u32(k, "attention.q_lora_rank", 0, 0, NTX__MAX_WIDTH, &hp->q_lora)) ||
        (rc = ntx__key_u32(k, "attention.value_length_mla", 0, 0, NTX_MAX_HEAD, &head_v)) ||
        (rc = ntx__key_u32(k, "attention.key_length_mla", head_v ? -1 : 0, head_v != 0, head_v ? NTX_MAX_HEAD : 0, &head_k)))
        return rc;
    hp->kv_joined = !head_v;
    if (head_v && (rc = own_widths(k, head_k, head_v)))
        return rc;
    if (hp->head_k <= hp->rope_dim)
        return ntx_err_set(k->err, -EINVAL, "%u of a head's %u values are rotated: some are not in a %s model", hp->rope_dim, hp->head_k, k->name);
    hp->n_head_kv = 1;
    return 0;
}

/* Scores have the square of a magnitude that a key tells the multiplier of, in tenths; then what is rotated has none. (As llama.cpp does, whatever
 * the scaling.) Where the file tells what is rotated by, that stays, and scores have the multiplier's alone, as transformers does it. */
static int scale_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    float tenth;
    int rc;
    if ((rc = ntx__key_f32(k, "rope.scaling.yarn_log_multiplier", 0, 0, 1e3f, &tenth)) ||
        (rc = ntx__key_f32(k, "attention.temperature_scale", 0, 0, 1e3f, &hp->temperature.scale)) ||
        (hp->temperature.scale != 0 && (rc = ntx__key_u32(k, "attention.temperature_length", -1, 1, INT32_MAX, &hp->temperature.length))))
        return rc;
    hp->ctx_plain = hp->temperature.length;
    if ((k->arch == &ntx__arch_mistral4 || k->arch == &ntx__arch_deepseek32) && tenth != 0 && !(fabsf(tenth - 0.1f) < 1e-6f)) /* llama.cpp takes it otherwise there */
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is %g: 0.1 is supported with a %s model", ntx__key_of(k, "rope.scaling.yarn_log_multiplier"), (double)tenth, k->name);
    double by = (double)tenth / (double)0.1f, rotated = hp->rope_attn_factor;
    if (hp->rope_scaling == NTX_ROPE_SCALE_YARN && hp->yarn_ext_factor != 0 && by != 0 && !hp->yarn_magnitude_told)
        rotated /= ntx__yarn_magnitude(hp, 1);
    double scores = (hp->yarn_magnitude_told ? 1 : rotated * ntx__yarn_magnitude(hp, 1)) * ntx__yarn_magnitude(hp, by);
    hp->rope_attn_factor = (float)rotated;
    hp->score_scale = (float)(scores * scores / sqrt(hp->head_k));
    return 0;
}

/* Files of GLM-4.7-Flash from before the key say by their size that they have a sigmoid. */
static void find_score(struct ntx__keys *k)
{
    const struct ntx_hparams *hp = k->hp;
    uint64_t function = 0;
    ntx_gguf_u64(k->g, ntx__key_of(k, "expert_gating_func"), &function);
    if (!function && (hp->n_layers == 47 || hp->n_layers == 48) && hp->n_vocab == 154880)
        k->hp->router.score = NTX_SCORE_SIGMOID;
}

static int keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t shared;
    int rc = ntx__key_nextn(k);
    if (rc || (rc = ntx__key_u32(k, "leading_dense_block_count", 0, 0, hp->n_layers, &hp->n_dense)) || (rc = ntx__key_latents(k)) || (rc = scale_keys(k)))
        return rc;
    find_score(k);
    if (!hp->n_expert)
        return 0;
    if ((rc = ntx__key_u32(k, "expert_shared_count", -1, 0, NTX__MAX_WIDTH / hp->n_ff_exp, &shared)))
        return rc;
    hp->n_ff_shexp = shared * hp->n_ff_exp;
    ntx__find_fused_experts(k);
    return 0;
}

/* Entry l of a list, or what is no list. */
static uint32_t type_of(const struct ntx_gguf_kv *kv, uint32_t l)
{
    uint32_t is = 0;
    size_t size = ntx_gguf_scalar_bytes(kv->type == NTX_GGUF_ARR ? kv->elem : kv->type);
    memcpy(&is, (const uint8_t *)kv->data + (kv->type == NTX_GGUF_ARR ? l * size : 0), size);
    return is;
}

static int check_types(struct ntx__keys *k, const struct ntx_gguf_kv *kv)
{
    const struct ntx_hparams *hp = k->hp;
    const enum ntx_gguf_vtype elem = kv->type == NTX_GGUF_ARR ? kv->elem : kv->type;
    if (k->arch == &ntx__arch_deepseek32)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is not supported with a %s model, where each layer chooses", k->key, k->name);
    if (elem != NTX_GGUF_BOOL && elem != NTX_GGUF_U32 && elem != NTX_GGUF_I32)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is not a list of numbers or truth values", k->key);
    if (kv->type == NTX_GGUF_ARR && kv->count != hp->n_layers && kv->count != hp->n_layers + hp->n_nextn)
        return ntx_err_set(k->err, -EINVAL, "key '%s' tells of %llu layers; there are %u", k->key, (unsigned long long)kv->count, hp->n_layers);
    return type_of(kv, 0) ? 0 : ntx_err_set(k->err, -EINVAL, "key '%s': the first layer does not choose positions, and has nobody before it to choose for it", k->key);
}

/* Which layers choose: all, or as a key tells, or, where a context is as long as GLM-5.2's, the first three and every fourth behind them. */
static int find_choosing(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, "attention.indexer.types"));
    const bool fourth = k->arch == &ntx__arch_glm_dsa && hp->ctx_train >= 1u << 20;
    int rc = kv ? check_types(k, kv) : 0;
    for (uint32_t l = 0; l < hp->n_layers && !rc; l++) {
        bool chooses = kv ? type_of(kv, l) != 0 : !fourth || l < 2 || l % 4 == 2;
        hp->index.in[l / 64] |= (uint64_t)chooses << l % 64;
    }
    return rc;
}

int ntx__key_choice(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc;
    if ((rc = ntx__key_u32(k, "attention.indexer.head_count", -1, 1, NTX_INDEX_HEADS_MAX, &hp->index.heads)) ||
        (rc = ntx__key_u32(k, "attention.indexer.key_length", -1, NTX_MAX(hp->rope_dim, 16u), NTX_INDEX_HEAD_MAX, &hp->index.head)) ||
        (rc = ntx__key_u32(k, "attention.indexer.top_k", -1, 1, UINT32_MAX, &hp->index.most)))
        return rc;
    if (hp->kv_joined || !hp->q_lora)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is missing; a %s model needs it", ntx__key_of(k, hp->q_lora ? "attention.value_length_mla" : "attention.q_lora_rank"), k->name);
    if (hp->index.head % 16)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is %u; multiples of 16 are supported", ntx__key_of(k, "attention.indexer.key_length"), hp->index.head);
    hp->index.pairs = k->arch == &ntx__arch_deepseek32 ? NTX_ROPE_NEOX : NTX_ROPE_NORM;
    return find_choosing(k);
}

static int choosing_keys(struct ntx__keys *k)
{
    int rc = keys(k);
    return rc ? rc : ntx__key_choice(k);
}

static void layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx__experts experts = {.act = NTX_FFN_SILU, .choice = NTX__MAYBE, .shared = m->hp.n_ff_shexp ? NTX__ALWAYS : NTX__NEVER};
    ntx__add_latent_attention(&m->hp, l, out);
    if (!m->hp.n_expert || l < m->hp.n_dense)
        ntx__add_dense(m, l, out, NTX_FFN_SILU);
    else
        ntx__add_experts(m, out, &experts);
}

#define SAME                                                                                                                                                   \
    .experts = NTX__MAYBE, .score = NTX_SCORE_SOFTMAX, .any_score = true, .keys = keys, .layer = layer, \
    .own = {"attention.key_length_mla", "attention.value_length_mla", "attention.kv_lora_rank", "attention.q_lora_rank", "leading_dense_block_count", "nextn_predict_layers", \
            "rope.scaling.yarn_log_multiplier", "attention.temperature_scale", "attention.temperature_length"}

const struct ntx__arch ntx__arch_deepseek2 = {SAME, .nextn = true};
const struct ntx__arch ntx__arch_mistral4 = {SAME};

/* llama.cpp takes no multiplier of YaRN with GLM-5, whose files have none: it is refused. */
#define CHOOSING(...)                                                                                                                                               \
    .experts = NTX__MAYBE, .score = NTX_SCORE_SIGMOID, .any_score = true, .keys = choosing_keys, .layer = layer, \
    .own = {"attention.key_length_mla", "attention.value_length_mla", "attention.kv_lora_rank", "attention.q_lora_rank", "leading_dense_block_count", "nextn_predict_layers", \
            "attention.indexer.head_count", "attention.indexer.top_k", __VA_ARGS__}

const struct ntx__arch ntx__arch_deepseek32 = {CHOOSING("rope.scaling.yarn_log_multiplier")};
const struct ntx__arch ntx__arch_glm_dsa = {CHOOSING(NULL)};
