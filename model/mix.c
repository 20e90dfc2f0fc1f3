/* SPDX-License-Identifier: Apache-2.0 */
#include "model/mix.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/util.h"
#include "model/arch.h"
#include "model/quant.h"
#include "model/quantize.h"

enum role { OTHER, OUTPUT, EMBEDDING, Q, K, V, O, UP, GATE, DOWN };

/* X(name, type of most matrices, general.file_type, tiny). tiny: of two bits and fewer; the rules that give more bits
 * to V and K of other mixes do not hold. */
#define MIXES(X)                                                                                                       \
    X(F32, F32, 0, 0)                                                                                                  \
    X(F16, F16, 1, 0)                                                                                                  \
    X(BF16, BF16, 32, 0)                                                                                               \
    X(Q8_0, Q8_0, 7, 0)                                                                                                \
    X(Q6_K, Q6_K, 18, 0)                                                                                               \
    X(Q5_K_M, Q5_K, 17, 0)                                                                                             \
    X(Q5_K_S, Q5_K, 16, 0)                                                                                             \
    X(Q5_1, Q5_1, 9, 0)                                                                                                \
    X(Q5_0, Q5_0, 8, 0)                                                                                                \
    X(Q4_K_M, Q4_K, 15, 0)                                                                                             \
    X(Q4_K_S, Q4_K, 14, 0)                                                                                             \
    X(Q4_1, Q4_1, 3, 0)                                                                                                \
    X(Q4_0, Q4_0, 2, 0)                                                                                                \
    X(IQ4_NL, IQ4_NL, 25, 0)                                                                                           \
    X(IQ4_XS, IQ4_XS, 30, 0)                                                                                           \
    X(Q3_K_L, Q3_K, 13, 0)                                                                                             \
    X(Q3_K_M, Q3_K, 12, 0)                                                                                             \
    X(Q3_K_S, Q3_K, 11, 0)                                                                                             \
    X(IQ3_M, IQ3_S, 27, 0)                                                                                             \
    X(IQ3_S, IQ3_S, 26, 0)                                                                                             \
    X(IQ3_XS, IQ3_S, 22, 0)                                                                                            \
    X(IQ3_XXS, IQ3_XXS, 23, 0)                                                                                         \
    X(Q2_K, Q2_K, 10, 0)                                                                                               \
    X(Q2_K_S, Q2_K, 21, 0)                                                                                             \
    X(IQ2_M, IQ2_S, 29, 1)                                                                                             \
    X(IQ2_S, IQ2_XS, 28, 1)                                                                                            \
    X(IQ2_XS, IQ2_XS, 20, 1)                                                                                           \
    X(IQ2_XXS, IQ2_XXS, 19, 1)                                                                                         \
    X(IQ1_M, IQ1_M, 31, 1)                                                                                             \
    X(IQ1_S, IQ1_S, 24, 1)                                                                                             \
    X(TQ2_0, TQ2_0, 37, 0)                                                                                             \
    X(TQ1_0, TQ1_0, 36, 0)                                                                                             \
    X(MXFP4_MOE, MXFP4, 38, 0)                                                                                         \
    X(NVFP4, NVFP4, 39, 0)                                                                                             \
    X(MXFP4, MXFP4, 38, 0)                                                                                             \
    X(Q2_0, Q2_0, 41, 0)                                                                                               \
    X(Q1_0, Q1_0, 40, 0)

enum mix {
#define X(name, ...) MIX_##name,
    MIXES(X)
#undef X
        N_MIXES
};

struct ntx_mix {
    const char *name;
    uint32_t type, file_type;
    bool tiny;
};
static const struct ntx_mix mixes[N_MIXES] = {
#define X(name, type, number, tiny) {#name, NTX_##type, number, tiny},
    MIXES(X)
#undef X
};

/* Other names of mixes. */
static const struct {
    const char *name;
    enum mix is;
} aliases[] = {{"Q4_K", MIX_Q4_K_M}, {"Q5_K", MIX_Q5_K_M}, {"Q3_K", MIX_Q3_K_M}};

const struct ntx_mix *ntx_mix_named(const char *name)
{
    for (unsigned i = 0; i < N_MIXES; i++)
        if (!strcasecmp(name, mixes[i].name))
            return &mixes[i];
    for (unsigned i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcasecmp(name, aliases[i].name))
            return &mixes[aliases[i].is];
    return NULL;
}

uint32_t ntx_mix_file_type(const struct ntx_mix *m) { return m->file_type; }

int ntx_mix_names(char *buf, size_t n)
{
    int len = 0;
    for (unsigned i = 0; i < N_MIXES; i++) {
        int more = snprintf((size_t)len < n ? buf + len : NULL, (size_t)len < n ? n - (size_t)len : 0, "%s%s",
                            i ? ", " : "", mixes[i].name);
        len += more;
    }
    return len;
}

uint32_t ntx_writable_type(const char *name)
{
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        if (ntx_quantizes(t) && !strcasecmp(ntx_type_info(t)->name, name))
            return t;
    return NTX_TYPE_LIMIT;
}

/* ---- rules */

/* When a rule holds. FIRST_n: for the first n; EIGHTH, SIXTEENTH: for the first layers; MORE: for the first and last
 * eighth, and every third between; MIDDLE: for neither the first nor the last eighth; GQA: several heads share K and
 * V; BLIND, SEEN: without and with an importance matrix; EIGHT: of eight experts. */
enum when {
    ALWAYS,
    GQA,
    GQA_OR_EXPERTS,
    BLIND,
    BLIND_EIGHTH,
    SEEN_EIGHTH,
    FIRST_2,
    FIRST_4,
    EIGHTH,
    SIXTEENTH,
    MORE,
    MIDDLE,
    EIGHT,
    EIGHT_MORE,
    NOT_EIGHT
};

/* The first rule that holds gives the type; if none holds, it is the mix's own type. */
static const struct rule {
    uint8_t mix, role, when;
    uint32_t type;
} rules[] = {
    {MIX_Q2_K, V, GQA, NTX_Q4_K},
    {MIX_Q2_K, V, ALWAYS, NTX_Q3_K},
    {MIX_Q2_K, DOWN, ALWAYS, NTX_Q3_K},
    {MIX_Q2_K, O, EIGHT, NTX_Q5_K},
    {MIX_Q2_K, O, ALWAYS, NTX_Q3_K},
    {MIX_Q2_K_S, V, GQA, NTX_Q4_K},
    {MIX_Q2_K_S, DOWN, EIGHTH, NTX_Q4_K},
    {MIX_Q3_K_S, O, EIGHT, NTX_Q5_K},
    {MIX_Q3_K_M, V, FIRST_2, NTX_Q5_K},
    {MIX_Q3_K_M, V, ALWAYS, NTX_Q4_K},
    {MIX_Q3_K_M, DOWN, SIXTEENTH, NTX_Q5_K},
    {MIX_Q3_K_M, DOWN, ALWAYS, NTX_Q4_K},
    {MIX_Q3_K_M, O, EIGHT, NTX_Q5_K},
    {MIX_Q3_K_M, O, ALWAYS, NTX_Q4_K},
    {MIX_Q3_K_L, V, ALWAYS, NTX_Q5_K},
    {MIX_Q3_K_L, DOWN, ALWAYS, NTX_Q5_K},
    {MIX_Q3_K_L, O, NOT_EIGHT, NTX_Q5_K},
    {MIX_Q4_0, DOWN, SEEN_EIGHTH, NTX_Q4_1},
    {MIX_Q5_0, DOWN, SEEN_EIGHTH, NTX_Q5_1},
    {MIX_Q4_K_S, V, FIRST_4, NTX_Q5_K},
    {MIX_Q4_K_S, DOWN, EIGHTH, NTX_Q5_K},
    {MIX_Q4_K_S, O, EIGHT, NTX_Q5_K},
    {MIX_Q4_K_M, V, MORE, NTX_Q6_K},
    {MIX_Q4_K_M, DOWN, MORE, NTX_Q6_K},
    {MIX_Q4_K_M, O, EIGHT, NTX_Q5_K},
    {MIX_Q5_K_M, V, MORE, NTX_Q6_K},
    {MIX_Q5_K_M, DOWN, MORE, NTX_Q6_K},
    {MIX_IQ4_NL, V, GQA, NTX_Q5_K},
    {MIX_IQ4_NL, DOWN, BLIND_EIGHTH, NTX_Q5_K},
    {MIX_IQ4_NL, O, EIGHT, NTX_Q5_K},
    {MIX_IQ4_XS, V, GQA, NTX_Q5_K},
    {MIX_IQ4_XS, DOWN, BLIND_EIGHTH, NTX_Q5_K},
    {MIX_IQ4_XS, O, EIGHT, NTX_Q5_K},
    {MIX_IQ3_XXS, EMBEDDING, ALWAYS, NTX_IQ3_S},
    {MIX_IQ3_XXS, V, GQA, NTX_Q4_K},
    {MIX_IQ3_XXS, V, BLIND, NTX_IQ3_S},
    {MIX_IQ3_XXS, K, ALWAYS, NTX_IQ2_S},
    {MIX_IQ3_XXS, Q, ALWAYS, NTX_IQ2_S},
    {MIX_IQ3_XXS, DOWN, BLIND_EIGHTH, NTX_Q4_K},
    {MIX_IQ3_XXS, DOWN, BLIND, NTX_Q3_K},
    {MIX_IQ3_XXS, O, EIGHT, NTX_Q5_K},
    {MIX_IQ3_XXS, O, ALWAYS, NTX_IQ3_S},
    {MIX_IQ3_XS, V, GQA, NTX_Q4_K},
    {MIX_IQ3_XS, K, ALWAYS, NTX_IQ3_XXS},
    {MIX_IQ3_XS, Q, ALWAYS, NTX_IQ3_XXS},
    {MIX_IQ3_XS, O, EIGHT, NTX_Q5_K},
    {MIX_IQ3_XS, GATE, MIDDLE, NTX_IQ3_XXS},
    {MIX_IQ3_XS, UP, MIDDLE, NTX_IQ3_XXS},
    {MIX_IQ3_S, V, GQA, NTX_Q4_K},
    {MIX_IQ3_S, O, EIGHT, NTX_Q5_K},
    {MIX_IQ3_M, V, ALWAYS, NTX_Q4_K},
    {MIX_IQ3_M, DOWN, EIGHTH, NTX_Q4_K},
    {MIX_IQ3_M, DOWN, EIGHT_MORE, NTX_Q4_K},
    {MIX_IQ3_M, O, EIGHT, NTX_Q5_K},
    {MIX_IQ3_M, O, ALWAYS, NTX_Q4_K},
    {MIX_IQ2_XXS, EMBEDDING, ALWAYS, NTX_Q2_K},
    {MIX_IQ2_XXS, V, GQA_OR_EXPERTS, NTX_Q4_K},
    {MIX_IQ2_XXS, V, ALWAYS, NTX_Q2_K},
    {MIX_IQ2_XXS, K, EIGHT, NTX_Q4_K},
    {MIX_IQ2_XXS, DOWN, EIGHTH, NTX_Q2_K},
    {MIX_IQ2_XXS, O, EIGHT, NTX_Q5_K},
    {MIX_IQ2_XS, EMBEDDING, ALWAYS, NTX_Q2_K},
    {MIX_IQ2_XS, V, GQA_OR_EXPERTS, NTX_Q4_K},
    {MIX_IQ2_XS, V, ALWAYS, NTX_Q2_K},
    {MIX_IQ2_XS, K, EIGHT, NTX_Q4_K},
    {MIX_IQ2_XS, DOWN, EIGHTH, NTX_Q2_K},
    {MIX_IQ2_XS, O, EIGHT, NTX_Q5_K},
    {MIX_IQ2_S, EMBEDDING, ALWAYS, NTX_IQ3_S},
    {MIX_IQ2_S, V, GQA_OR_EXPERTS, NTX_Q4_K},
    {MIX_IQ2_S, V, ALWAYS, NTX_IQ3_S},
    {MIX_IQ2_S, K, EIGHT, NTX_Q4_K},
    {MIX_IQ2_S, DOWN, EIGHTH, NTX_IQ3_S},
    {MIX_IQ2_S, O, EIGHT, NTX_Q5_K},
    {MIX_IQ2_S, O, ALWAYS, NTX_IQ3_S},
    {MIX_IQ2_M, EMBEDDING, ALWAYS, NTX_IQ3_S},
    {MIX_IQ2_M, V, GQA_OR_EXPERTS, NTX_Q4_K},
    {MIX_IQ2_M, V, ALWAYS, NTX_IQ3_S},
    {MIX_IQ2_M, K, EIGHT, NTX_Q4_K},
    {MIX_IQ2_M, DOWN, EIGHTH, NTX_IQ3_S},
    {MIX_IQ2_M, O, EIGHT, NTX_Q5_K},
    {MIX_IQ2_M, O, ALWAYS, NTX_IQ3_S},
    {MIX_IQ1_S, EMBEDDING, ALWAYS, NTX_Q2_K},
    {MIX_IQ1_S, V, GQA_OR_EXPERTS, NTX_Q4_K},
    {MIX_IQ1_S, V, ALWAYS, NTX_Q2_K},
    {MIX_IQ1_S, K, EIGHT, NTX_Q4_K},
    {MIX_IQ1_S, DOWN, EIGHTH, NTX_Q2_K},
    {MIX_IQ1_S, O, EIGHT, NTX_Q5_K},
    {MIX_IQ1_S, O, ALWAYS, NTX_IQ2_XXS},
    {MIX_IQ1_M, EMBEDDING, ALWAYS, NTX_Q2_K},
    {MIX_IQ1_M, V, GQA_OR_EXPERTS, NTX_Q4_K},
    {MIX_IQ1_M, V, ALWAYS, NTX_Q2_K},
    {MIX_IQ1_M, K, EIGHT, NTX_Q4_K},
    {MIX_IQ1_M, DOWN, EIGHTH, NTX_Q2_K},
    {MIX_IQ1_M, O, EIGHT, NTX_Q5_K},
    {MIX_IQ1_M, O, ALWAYS, NTX_IQ2_XXS},
    {MIX_TQ1_0, EMBEDDING, ALWAYS, NTX_Q4_K},
    {MIX_TQ2_0, EMBEDDING, ALWAYS, NTX_Q4_K},
    {MIX_Q2_0, EMBEDDING, ALWAYS, NTX_Q4_K},
};

struct place {     /* of a tensor among those of its role */
    uint32_t i, n; /* number of the tensor, and of all; experts and FFNs count layers */
};

static bool more_bits(struct place p) { return p.i < p.n / 8 || p.i >= 7 * p.n / 8 || (p.i - p.n / 8) % 3 == 2; }

static bool holds(enum when when, const struct ntx_mix_model *m, struct place p)
{
    bool eighth = p.i < p.n / 8;
    switch (when) {
    case ALWAYS: return true;
    case GQA: return m->n_gqa >= 4;
    case GQA_OR_EXPERTS: return m->n_gqa >= 4 || m->n_expert >= 4;
    case BLIND: return !m->importance;
    case BLIND_EIGHTH: return !m->importance && eighth;
    case SEEN_EIGHTH: return m->importance && eighth;
    case FIRST_2: return p.i < 2;
    case FIRST_4: return p.i < 4;
    case EIGHTH: return eighth;
    case SIXTEENTH: return p.i < p.n / 16;
    case MORE: return more_bits(p);
    case MIDDLE: return !eighth && p.i < 7 * p.n / 8;
    case EIGHT: return m->n_expert == 8;
    case EIGHT_MORE: return m->n_expert == 8 && more_bits(p);
    case NOT_EIGHT: return m->n_expert != 8;
    }
    return false;
}

static uint32_t by_rules(enum mix mix, enum role role, const struct ntx_mix_model *m, struct place p)
{
    uint32_t type = mixes[mix].type;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].mix == mix && rules[i].role == role && holds((enum when)rules[i].when, m, p)) {
            type = rules[i].type;
            break;
        }
    if (role == V && m->seventy && !mixes[mix].tiny && (type == NTX_Q3_K || type == NTX_Q4_K))
        type = NTX_Q5_K; /* V is an eighth of Q there, so more bits cost nearly nothing */
    if ((role == V || role == K) && m->n_expert == 8 && !mixes[mix].tiny)
        type = NTX_Q8_0; /* small beside the experts */
    return type;
}

/* The type of the output matrix, and of an embedding that is used as one. */
static uint32_t of_output(enum mix mix, uint64_t n)
{
    uint32_t type = mixes[mix].type;
    if (mix == MIX_MXFP4_MOE || n % ntx_type_info(type)->block)
        return NTX_Q8_0;
    if (mixes[mix].tiny || mix == MIX_IQ3_XXS)
        return NTX_Q5_K;
    return type == NTX_Q8_0 ? type : NTX_Q6_K;
}

/* ---- tensors */

/* The role by the tensor's name, also in models that ntx cannot run. */
static enum role role_of(const char *name)
{
    static const struct {
        uint16_t tensor;
        uint8_t role;
    } matrices[] = {{NTX_T_delta_mix, V} /* joined q, k and v have this name, too */,
                    {NTX_T_kv_b, V},
                    {NTX_T_v, V},
                    {NTX_T_k, K},
                    {NTX_T_q, Q},
                    {NTX_T_o, O}},
      families[] = {{NTX_T_up, UP}, {NTX_T_gate, GATE}, {NTX_T_down, DOWN}};
    if (!strcmp(name, ntx_end_kinds[NTX_END_output].name))
        return OUTPUT;
    if (!strcmp(name, ntx_end_kinds[NTX_END_token_embd].name) || !strcmp(name, ntx_end_kinds[NTX_END_input_embd].name))
        return EMBEDDING;
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        if (ntx_is_called(name, (enum ntx_tensor)matrices[i].tensor))
            return (enum role)matrices[i].role;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (ntx_is_kin(name, (enum ntx_tensor)families[i].tensor))
            return (enum role)families[i].role;
    return OTHER;
}

/* Small tensors; also those of models that llama.cpp runs and ntx does not. */
static bool is_small(const char *name)
{
    static const uint16_t called[] = {NTX_T_router, NTX_T_token_experts, NTX_T_block_k, NTX_T_block_q,
                                      NTX_T_short_conv},
                          kin[] = {NTX_T_inputs_proj, NTX_T_delta_conv};
    static const char *const others[] = {
        "_norm.weight",
        "altup",
        "laurel",
        "time_mix_first.weight",
        "time_mix_w",
        "time_mix_v0.weight",
        "time_mix_v1.weight",
        "time_mix_v2.weight",
        "time_mix_a",
        "time_mix_g1.weight",
        "time_mix_g2.weight",
        "time_mix_decay_w",
        "time_mix_lerp_fused.weight",
        "attn_rel_b.weight",
        ".position_embd",
        "position_embd.weight",
        "token_types.weight",
        ".rel_pos",
        ".patch_embd",
        ".patch_merger",
    };
    bool is = false;
    for (size_t i = 0; i < sizeof called / sizeof *called; i++)
        is |= ntx_is_called(name, (enum ntx_tensor)called[i]);
    for (size_t i = 0; i < sizeof kin / sizeof *kin; i++)
        is |= ntx_is_kin(name, (enum ntx_tensor)kin[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        is |= strstr(name, others[i]) != NULL;
    return is;
}

bool ntx_mix_allows(const struct ntx_gguf *g, const struct ntx_gguf_tensor *t)
{
    size_t len = strlen(t->name);
    if (t->type == NTX_I8 || t->type == NTX_I32 || (t->ne[1] == 1 && t->ne[2] == 1 && t->ne[3] == 1) || len < 6 ||
        strcmp(t->name + len - 6, "weight"))
        return false;
    return !is_small(t->name) && !ntx_arch_keeps(g, t->name);
}

/* The type for matrix rows that are no multiple of a type's block, and whether the type needs an importance matrix. A
 * type that is not listed gives way to Q4_0, and needs none. */
static const struct {
    uint8_t type, narrow;
    bool needs_importance;
} type_rules[] = {
    {NTX_IQ1_S, NTX_IQ4_NL, true},  {NTX_IQ1_M, NTX_IQ4_NL, true},   {NTX_IQ2_XXS, NTX_IQ4_NL, true},
    {NTX_IQ2_XS, NTX_IQ4_NL, true}, {NTX_IQ2_S, NTX_IQ4_NL, true},   {NTX_IQ3_XXS, NTX_IQ4_NL, true},
    {NTX_IQ3_S, NTX_IQ4_NL, false}, {NTX_IQ4_XS, NTX_IQ4_NL, false}, {NTX_Q4_K, NTX_Q5_0, false},
    {NTX_Q5_K, NTX_Q5_1, false},    {NTX_Q6_K, NTX_Q8_0, false},
};

static uint32_t narrow_type(uint32_t type)
{
    for (size_t i = 0; i < sizeof type_rules / sizeof *type_rules; i++)
        if (type_rules[i].type == type)
            return type_rules[i].narrow;
    return NTX_Q4_0;
}

static bool type_needs_importance(uint32_t type)
{
    for (size_t i = 0; i < sizeof type_rules / sizeof *type_rules; i++)
        if (type_rules[i].type == type)
            return type_rules[i].needs_importance;
    return false;
}

uint32_t ntx_mix_for_inputs(uint32_t type, uint64_t n)
{
    if (n % ntx_type_info(type)->block == 0)
        return type;
    type = narrow_type(type);
    return n % ntx_type_info(type)->block ? NTX_F16 : type;
}

bool ntx_mix_needs_importance(const struct ntx_mix *m, const char *name, uint32_t type)
{
    enum role role = role_of(name);
    if (role == EMBEDDING || role == OUTPUT)
        return false;
    return type_needs_importance(type) || (type == NTX_Q2_K && m == &mixes[MIX_Q2_K_S]);
}

/* ---- the model */

static uint32_t arch_number(const struct ntx_gguf *g, const char *key, uint32_t otherwise)
{
    struct ntx_str arch = {"", 0};
    char name[128];
    uint64_t v;
    if (ntx_gguf_str(g, "general.architecture", &arch))
        return otherwise;
    snprintf(name, sizeof name, "%.*s.%s", (int)NTX_MIN(arch.n, (size_t)64), arch.p, key);
    return ntx_gguf_u64(g, name, &v) || v > UINT32_MAX ? otherwise : (uint32_t)v;
}

struct ntx_mix_model ntx_mix_model_of(const struct ntx_gguf *g, bool importance)
{
    struct ntx_str arch = {"", 0};
    uint32_t heads = arch_number(g, "attention.head_count", 1), kv = arch_number(g, "attention.head_count_kv", heads);
    struct ntx_mix_model m = {.n_layers = arch_number(g, "block_count", 1),
                              .n_expert = arch_number(g, "expert_count", 0),
                              .n_gqa = kv ? heads / kv : 0,
                              .importance = importance};
    ntx_gguf_str(g, "general.architecture", &arch);
    m.seventy = arch.n == 5 && !memcmp(arch.p, "llama", 5) && m.n_layers == 80 && heads != kv;
    return m;
}

static int layer_of(const char *name)
{
    int layer = -1;
    return sscanf(name, "blk.%d.", &layer) == 1 ? layer : -1;
}

bool ntx_mix_is_nextn(const struct ntx_gguf *g, const char *name)
{
    int64_t blocks = arch_number(g, "block_count", 0), behind = arch_number(g, "nextn_predict_layers", 0);
    return behind > 0 && layer_of(name) >= blocks - behind;
}

struct named {
    uint32_t i;
    int layer;
    const char *name;
};

/* By layer, then by name, so that the numbers do not depend on the order in the file. */
static int compare_named(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    return x->layer != y->layer ? (x->layer > y->layer) - (x->layer < y->layer) : strcmp(x->name, y->name);
}

static struct named *ordered(const struct ntx_gguf *g)
{
    uint64_t n = ntx_gguf_n_tensors(g);
    struct named *o = malloc((n + 1) * sizeof *o);
    for (uint64_t i = 0; o && i < n; i++)
        o[i] = (struct named){(uint32_t)i, layer_of(ntx_gguf_tensor_at(g, i)->name), ntx_gguf_tensor_at(g, i)->name};
    if (o)
        qsort(o, n, sizeof *o, compare_named);
    return o;
}

struct counts {
    uint32_t before[DOWN + 1], v; /* tensors seen of each role; number of all V */
};

static uint32_t choose_type(const struct ntx_mix *m, const struct ntx_gguf_tensor *t, int layer,
                            const struct ntx_mix_model *of, bool tied, struct counts *c)
{
    enum mix mix = (enum mix)(m - mixes);
    enum role role = role_of(t->name);
    struct place p = {c->before[role]++, role == V ? c->v : of->n_layers};
    bool ffn = role == DOWN || role == UP || role == GATE;
    if (ffn && of->n_expert > 1 && layer >= 0 && !mixes[mix].tiny) /* each expert may be a tensor */
        p.i = (uint32_t)layer;
    if (role == OUTPUT || (role == EMBEDDING && tied))
        return of_output(mix, t->ne[0]);
    if (mix == MIX_MXFP4_MOE)
        return t->ne[2] > 1 ? NTX_MXFP4 : NTX_Q8_0;
    return by_rules(mix, role, of, p);
}

int ntx_mix_choose(const struct ntx_mix *m, const struct ntx_gguf *g, const struct ntx_mix_model *of, bool pure,
                   const uint32_t *given, uint32_t *type, uint32_t *n_other, struct ntx_err *err)
{
    uint64_t n = ntx_gguf_n_tensors(g);
    struct named *o = ordered(g);
    struct counts c = {.v = 0};
    bool floats = ntx_type_info(m->type)->block == 1, tied = !ntx_end_tensor(g, NTX_END_output);
    if (!o)
        return ntx_err_set(err, -ENOMEM, "no memory");
    for (uint64_t i = 0; i < n; i++)
        c.v += role_of(o[i].name) == V;
    *n_other = 0;
    for (uint64_t i = 0; i < n; i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(g, o[i].i);
        uint32_t want = given[o[i].i];
        if (want == NTX_TYPE_LIMIT && !ntx_mix_allows(g, t))
            want = t->type;
        else if (want == NTX_TYPE_LIMIT)
            want = pure || floats ? m->type : choose_type(m, t, o[i].layer, of, tied, &c);
        uint32_t fits = t->type == want ? want : ntx_mix_for_inputs(want, t->ne[0]);
        *n_other += fits != want;
        type[o[i].i] = fits;
    }
    free(o);
    return 0;
}
