/* SPDX-License-Identifier: Apache-2.0 */
/* options.c: ntx-mkmodel's options, from its command line or a test's text. */
#include "tests/mkmodel/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/arch.h"

enum opt {
    O_HELP = 256 /* lower numbers are short options */,
    O_ARCH,
    O_TYPE,
    O_NAME,
    O_CHAT,
    O_VOCAB,
    O_VOCAB_SIZE,
    O_LAYERS,
    O_EMBD,
    O_FF,
    O_EXPERTS,
    O_USED,
    O_EXPERT_FF,
    O_SHARED_FF,
    O_LATENT,
    O_HEADS,
    O_KV,
    O_HEAD_DIM,
    O_WINDOW,
    O_CTX,
    O_Q_LORA,
    O_KV_LORA,
    O_VALUE_DIM,
    O_KV_JOINED,
    O_SIGMOID,
    O_LOG_MULTIPLIER,
    O_EXPERT_GROUPS,
    O_EXPERT_GROUPS_USED,
    O_DENSE,
    O_NEXTN,
    O_NEXTN_AGREES,
    O_ROTATED,
    O_DELTA_HEAD,
    O_DELTA_HEADS,
    O_DELTA_KEYS,
    O_DELTA_TAPS,
    O_EVERY,
    O_QK_NORMS,
    O_EXPERT_SCALE,
    O_TIED,
    O_BIASES,
    O_REPEAT,
    O_BASE,
    O_SCALING,
    O_FACTOR,
    O_ORIG,
    O_FREQS,
    O_LOGIT,
    O_VERSION,
    O_SPLIT,
    O_SEED,
    O_WINDOW_HEAD,
    O_FULL_KV,
    O_SHARED_KV,
    O_LAYER_INPUT,
    O_CHUNK,
    O_CHUNK_PATTERN,
    O_TEMPERATURE,
    O_FUSED,
    O_DELTA_JOINED,
    O_NO_V,
    O_EXPERT_EVERY,
    O_SCALES,
    O_INDEX_HEADS,
    O_INDEX_HEAD,
    O_INDEX_MOST,
    O_INDEX_EVERY,
    O_HOLES,
    O_HASHED,
    O_O_PARTS,
    O_O_LORA,
    O_INDEX_POOL,
    O_DELTA_BOUND,
    O_YARN_MAGNITUDE,
    O_WINDOW_HEADS,
    O_LOW_RANK,
    O_GRAM_LAYER,
    O_GRAM_HEADS,
    O_GRAM_ENTRIES,
    O_TAPS,
    O_STATE_WIDTH,
    O_DRAFT_VOCAB,
    O_NORM_FIRST,
    O_NORM_RESIDUAL,
    O_BARE,
    O_BLOCK,
};

static const struct option options[] = {
    {"help", 0, 0, O_HELP},
    {"arch", 1, 0, O_ARCH},
    {"type", 1, 0, O_TYPE},
    {"name", 1, 0, O_NAME},
    {"chat-template", 1, 0, O_CHAT},
    {"vocab-from", 1, 0, O_VOCAB},
    {"vocab-size", 1, 0, O_VOCAB_SIZE},
    {"layers", 1, 0, O_LAYERS},
    {"embd", 1, 0, O_EMBD},
    {"ff", 1, 0, O_FF},
    {"experts", 1, 0, O_EXPERTS},
    {"experts-used", 1, 0, O_USED},
    {"expert-ff", 1, 0, O_EXPERT_FF},
    {"shared-ff", 1, 0, O_SHARED_FF},
    {"latent", 1, 0, O_LATENT},
    {"heads", 1, 0, O_HEADS},
    {"kv", 1, 0, O_KV},
    {"head-dim", 1, 0, O_HEAD_DIM},
    {"window", 1, 0, O_WINDOW},
    {"ctx", 1, 0, O_CTX},
    {"q-lora", 1, 0, O_Q_LORA},
    {"kv-lora", 1, 0, O_KV_LORA},
    {"value-dim", 1, 0, O_VALUE_DIM},
    {"kv-joined", 0, 0, O_KV_JOINED},
    {"sigmoid", 0, 0, O_SIGMOID},
    {"log-multiplier", 1, 0, O_LOG_MULTIPLIER},
    {"yarn-magnitude", 1, 0, O_YARN_MAGNITUDE},
    {"expert-groups", 1, 0, O_EXPERT_GROUPS},
    {"expert-groups-used", 1, 0, O_EXPERT_GROUPS_USED},
    {"dense", 1, 0, O_DENSE},
    {"nextn", 1, 0, O_NEXTN},
    {"nextn-agrees", 1, 0, O_NEXTN_AGREES},
    {"rotated", 1, 0, O_ROTATED},
    {"delta-head", 1, 0, O_DELTA_HEAD},
    {"delta-heads", 1, 0, O_DELTA_HEADS},
    {"delta-keys", 1, 0, O_DELTA_KEYS},
    {"delta-taps", 1, 0, O_DELTA_TAPS},
    {"attention-every", 1, 0, O_EVERY},
    {"qk-norms", 0, 0, O_QK_NORMS},
    {"expert-scale", 1, 0, O_EXPERT_SCALE},
    {"tied", 0, 0, O_TIED},
    {"biases", 0, 0, O_BIASES},
    {"repeat-layers", 0, 0, O_REPEAT},
    {"rope-base", 1, 0, O_BASE},
    {"rope-scaling", 1, 0, O_SCALING},
    {"rope-factor", 1, 0, O_FACTOR},
    {"rope-orig", 1, 0, O_ORIG},
    {"rope-freqs", 0, 0, O_FREQS},
    {"logit-scale", 1, 0, O_LOGIT},
    {"gguf-version", 1, 0, O_VERSION},
    {"split", 1, 0, O_SPLIT},
    {"seed", 1, 0, O_SEED},
    {"index-heads", 1, 0, O_INDEX_HEADS},
    {"index-head", 1, 0, O_INDEX_HEAD},
    {"index-most", 1, 0, O_INDEX_MOST},
    {"index-every", 1, 0, O_INDEX_EVERY},
    {"holes", 0, 0, O_HOLES},
    {"hashed", 1, 0, O_HASHED},
    {"o-parts", 1, 0, O_O_PARTS},
    {"o-lora", 1, 0, O_O_LORA},
    {"index-pool", 1, 0, O_INDEX_POOL},
    {"delta-bound", 1, 0, O_DELTA_BOUND},
    {"low-rank", 1, 0, O_LOW_RANK},
    {"gram-layer", 1, 0, O_GRAM_LAYER},
    {"gram-heads", 1, 0, O_GRAM_HEADS},
    {"gram-entries", 1, 0, O_GRAM_ENTRIES},
    {"expert-every", 1, 0, O_EXPERT_EVERY},
    {"window-head", 1, 0, O_WINDOW_HEAD},
    {"window-heads", 1, 0, O_WINDOW_HEADS},
    {"full-kv", 1, 0, O_FULL_KV},
    {"shared-kv", 1, 0, O_SHARED_KV},
    {"layer-input", 1, 0, O_LAYER_INPUT},
    {"attn-chunk", 1, 0, O_CHUNK},
    {"attn-chunk-pattern", 1, 0, O_CHUNK_PATTERN},
    {"temperature-length", 1, 0, O_TEMPERATURE},
    {"fused", 0, 0, O_FUSED},
    {"delta-joined", 0, 0, O_DELTA_JOINED},
    {"no-v", 0, 0, O_NO_V},
    {"scales", 0, 0, O_SCALES},
    {"taps", 1, 0, O_TAPS},
    {"state-width", 1, 0, O_STATE_WIDTH},
    {"draft-vocab", 1, 0, O_DRAFT_VOCAB},
    {"norm-before-fc", 0, 0, O_NORM_FIRST},
    {"norm-before-residual", 0, 0, O_NORM_RESIDUAL},
    {"bare", 0, 0, O_BARE},
    {"block", 1, 0, O_BLOCK},
    {0},
};

/* A whole number in [min, max]; false on anything else. */
static bool number(const char *text, uint64_t min, uint64_t max, uint64_t *v)
{
    char *end;
    unsigned long long x = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || x < min || x > max)
        return false;
    *v = x;
    return true;
}

static bool number32(const char *text, uint32_t min, uint32_t max, uint32_t *v)
{
    uint64_t x;
    if (!number(text, min, max, &x))
        return false;
    *v = (uint32_t)x;
    return true;
}

static bool real(const char *text, float min, float *v)
{
    char *end;
    float x = strtof(text, &end);
    if (end == text || *end || !(x >= min && x < 1e12f))
        return false;
    *v = x;
    return true;
}

static bool one_of(const char *text, const char *const *names, const char **v)
{
    for (; *names; names++)
        if (!strcmp(*names, text)) {
            *v = *names;
            return true;
        }
    return false;
}

static bool take(struct mk_options *o, int opt, const char *a)
{
    static const char *const scalings[] = {"none", "linear", "yarn", NULL};
    switch (opt) {
    case O_ARCH: o->arch = a; return mk_arch_known(a);
    case O_SCALING: return one_of(a, scalings, &o->rope_scaling);
    case O_TYPE: o->type = a; return mk_type_known(a);
    case O_NAME: o->name = a; return true;
    case O_CHAT: o->chat_template = a; return true;
    case O_VOCAB: o->vocab_from = a; return true;
    case O_TAPS: o->taps = a; return true;
    case O_STATE_WIDTH: return number32(a, 1, 1 << 20, &o->state_width);
    case O_DRAFT_VOCAB: return number32(a, 1, 200000, &o->draft_vocab);
    case O_NORM_FIRST: return o->norm_first = true;
    case O_NORM_RESIDUAL: return o->norm_residual = true;
    case O_BLOCK: return number32(a, 2, 64, &o->block);
    case O_BARE: return o->bare = true;
    case O_VOCAB_SIZE: return number32(a, 1, 200000, &o->vocab_size);
    case O_LAYERS: return number32(a, 1, 512, &o->layers);
    case O_EMBD: return number32(a, 1, 1 << 20, &o->embd);
    case O_FF: return number32(a, 1, 1 << 20, &o->ff);
    case O_EXPERTS: return number32(a, 1, 1024, &o->experts);
    case O_USED: return number32(a, 1, 1024, &o->experts_used);
    case O_EXPERT_FF: return number32(a, 1, 1 << 20, &o->expert_ff);
    case O_LATENT: return number32(a, 1, 1 << 20, &o->latent);
    case O_SHARED_FF: return number32(a, 1, 1 << 20, &o->shared_ff);
    case O_HEADS: return number32(a, 1, 4096, &o->heads);
    case O_KV: return number32(a, 1, 4096, &o->kv);
    case O_HEAD_DIM: return number32(a, 2, 4096, &o->head_dim);
    case O_WINDOW: return number32(a, 1, 1 << 24, &o->window);
    case O_CTX: return number32(a, 1, 1 << 24, &o->ctx);
    case O_Q_LORA: return number32(a, 1, 1 << 20, &o->q_lora);
    case O_KV_LORA: return number32(a, 1, 1024, &o->kv_lora);
    case O_VALUE_DIM: return number32(a, 1, 1024, &o->value_dim);
    case O_KV_JOINED: return o->kv_joined = true;
    case O_SIGMOID: return o->sigmoid = true;
    case O_LOG_MULTIPLIER: return real(a, 0, &o->log_multiplier);
    case O_YARN_MAGNITUDE: return real(a, 0, &o->yarn_magnitude);
    case O_EXPERT_GROUPS: return number32(a, 1, 1024, &o->expert_groups);
    case O_EXPERT_GROUPS_USED: return number32(a, 1, 1024, &o->expert_groups_used);
    case O_DENSE: return number32(a, 0, 512, &o->dense);
    case O_NEXTN: return number32(a, 0, 16, &o->nextn);
    case O_NEXTN_AGREES: return real(a, 0, &o->nextn_agrees);
    case O_ROTATED: return number32(a, 2, 4096, &o->rotated);
    case O_DELTA_HEAD: return number32(a, 16, 1024, &o->delta_head);
    case O_DELTA_HEADS: return number32(a, 1, 1024, &o->delta_heads);
    case O_DELTA_KEYS: return number32(a, 1, 1024, &o->delta_keys);
    case O_DELTA_TAPS: return number32(a, 2, 8, &o->delta_taps);
    case O_EVERY: return number32(a, 1, 512, &o->attention_every);
    case O_QK_NORMS: return o->qk_norms = true;
    case O_EXPERT_SCALE: return real(a, 0, &o->expert_scale);
    case O_TIED: return o->tied = true;
    case O_BIASES: return o->biases = true;
    case O_REPEAT: return o->repeat_layers = true;
    case O_FREQS: return o->rope_freqs = true;
    case O_BASE: return real(a, 1, &o->rope_base);
    case O_FACTOR: return real(a, 1, &o->rope_factor);
    case O_ORIG: return number32(a, 1, 1 << 24, &o->rope_orig);
    case O_LOGIT: return real(a, 0, &o->logit_scale);
    case O_VERSION: return number32(a, 2, 3, &o->version);
    case O_SPLIT: return number32(a, 1, 128, &o->parts);
    case O_WINDOW_HEAD: return number32(a, 2, 4096, &o->window_head);
    case O_WINDOW_HEADS: return number32(a, 1, 4096, &o->window_heads);
    case O_FULL_KV: return number32(a, 1, 4096, &o->full_kv);
    case O_SHARED_KV: return number32(a, 0, 512, &o->shared_kv);
    case O_LAYER_INPUT: return number32(a, 1, 4096, &o->layer_input);
    case O_EXPERT_EVERY: return number32(a, 1, 512, &o->expert_every);
    case O_INDEX_HEADS: return number32(a, 1, NTX_INDEX_HEADS_MAX, &o->index_heads);
    case O_INDEX_HEAD: return number32(a, 16, NTX_INDEX_HEAD_MAX, &o->index_head);
    case O_INDEX_MOST: return number32(a, 1, 1 << 24, &o->index_most);
    case O_INDEX_EVERY: return number32(a, 1, 512, &o->index_every);
    case O_INDEX_POOL: return number32(a, 2, NTX_INDEX_BLOCK_MAX, &o->index_pool);
    case O_DELTA_BOUND: return real(a, 0, &o->delta_bound);
    case O_LOW_RANK: return number32(a, 1, 1 << 16, &o->low_rank);
    case O_GRAM_LAYER: return number32(a, 1, 512, &o->gram_layer);
    case O_GRAM_HEADS: return number32(a, 1, NTX_GRAM_HEADS_MAX / 2, &o->gram_heads);
    case O_GRAM_ENTRIES: return number32(a, 1, 1 << 26, &o->gram_entries);
    case O_HOLES: return o->holes = true;
    case O_HASHED: return number32(a, 0, 512, &o->hashed);
    case O_O_PARTS: return number32(a, 1, 1024, &o->o_parts);
    case O_O_LORA: return number32(a, 1, 1 << 16, &o->o_lora);
    case O_CHUNK: return number32(a, 1, 1 << 24, &o->chunk);
    case O_CHUNK_PATTERN: return number32(a, 1, 64, &o->chunk_pattern);
    case O_TEMPERATURE: return number32(a, 1, 1 << 24, &o->temperature);
    case O_FUSED: return o->fused = true;
    case O_DELTA_JOINED: return o->delta_joined = true;
    case O_NO_V: return o->no_v = true;
    case O_SCALES: return o->scales = true;
    case O_SEED: return number(a, 0, UINT64_MAX, &o->seed);
    default: return false;
    }
}

int mk_options_take(struct mk_options *o, int argc, char **argv)
{
    int opt, at = 0;
    optind = 0; /* restarts getopt on every call */
    while ((opt = getopt_long(argc, argv, "", options, &at)) != -1) {
        if (opt == O_HELP)
            return MK_HELP;
        if (opt != '?' && take(o, opt, optarg))
            continue;
        if (opt != '?')
            fprintf(stderr, "ntx-mkmodel: --%s %s: not possible; see --help\n", options[at].name, optarg ? optarg : "");
        return -1;
    }
    return optind;
}
