/* SPDX-License-Identifier: Apache-2.0 */
/* describe_impl.h: shared by tensors.c (types, tensors), widths.c (a model's widths) and keys.c (keys). */
#ifndef NTX_TESTS_MKMODEL_DESCRIBE_IMPL_H
#define NTX_TESTS_MKMODEL_DESCRIBE_IMPL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model/arch.h"
#include "tests/mkmodel/describe.h"

struct recipe {
    const char *name;
    uint32_t file_type; /* general.file_type */
    uint32_t base;      /* most tensors */
    uint32_t more;      /* output; of a mix also half of attn_v and ffn_down */
    bool mix;
};

struct model {
    struct mk_file *f;
    const struct mk_options *o;
    const struct recipe *recipe;
    uint32_t head, n_vocab;
    struct ntx_hparams hp; /* as far as widths go */
    struct ntx_dims dims[NTX_MAX_LAYERS];
};

/* Keys that only some architectures have. */
enum {
    UNSAID_LENGTH = 1 /* of heads, where it follows from the others */,
    SHARED_WIDTH = 2,
    WINDOW = 4,
    SHARED_COUNT = 8,
    SIGMOID = 16,
    DENSE = 32,
    TEMPERATURE = 64 /* with YaRN */,
    SCALES = 128,
    CAPS = 256,
    WINDOW_BASE = 512,
    EMBED_SCALED = 1024 /* no key, but the embedding's values are smaller */,
    MLA = 4096,
    DELTA = 2048,
    SECTIONS = 8192 /* of pairs */,
    GEMMA4 = 16384,
    EXPERT_EVERY = 32768,
    CHOICE = 65536 /* of positions */,
    POOLED = 131072,
    KDA = 262144,
    STREAMED = 524288,
    BLOCKS = 1048576 /* of positions that are chosen, streams, and what follows from tokens */,
    STEP = 2097152 /* limits by layer */,
    GATED = 4194304 /* latents */,
    BY_LAYER = 8388608 /* heads and windows */,
    BOUND = 16777216 /* of decays */,
    XIELU = 33554432,
    MEANS = 67108864 /* that norms subtract */,
    SCANS = 134217728 /* Mamba-2 */,
    SHORT = 268435456 /* convolutions */,
    ALONE = 536870912 /* a layer has a scan, attention or an FFN */
};
bool mk__says(const struct mk_options *o, unsigned key);

static inline bool is_jamba(const struct mk_options *o) { return !strcmp(o->arch, "jamba"); }
static inline bool is_dbrx(const struct mk_options *o) { return !strcmp(o->arch, "dbrx"); }
static inline bool is_grok(const struct mk_options *o) { return !strcmp(o->arch, "grok"); }
static inline bool is_grove(const struct mk_options *o) { return !strcmp(o->arch, "grovemoe"); }
static inline bool is_k3(const struct mk_options *o) { return !strcmp(o->arch, "kimi-k3"); }
static inline bool is_deci(const struct mk_options *o) { return !strcmp(o->arch, "deci"); }
static inline bool chooses_blocks(const struct mk_options *o) { return !strcmp(o->arch, "minimax-m3"); }
static inline bool is_gpt_oss(const struct mk_options *o) { return !strcmp(o->arch, "gpt-oss"); }
static inline uint32_t expert_ff(const struct mk_options *o) { return o->expert_ff ? o->expert_ff : o->ff; }
static inline uint32_t shared_ff(const struct mk_options *o)
{
    if (!strcmp(o->arch, "llama4"))
        return expert_ff(o);
    return o->shared_ff ? o->shared_ff : o->ff;
}
static inline uint32_t value_dim(const struct mk_options *o, uint32_t head)
{
    return o->value_dim ? o->value_dim : head;
}
static inline uint32_t or_else(uint32_t n, uint32_t fallback) { return n ? n : fallback; }
static inline uint32_t attention_every(const struct mk_options *o) { return or_else(o->attention_every, 4); }
static inline bool is_phi3(const struct mk_options *o) { return !strcmp(o->arch, "phi3"); }
static inline bool is_gemma4(const struct mk_options *o) { return !strcmp(o->arch, "gemma4"); }
static inline bool is_pooled(const struct mk_options *o) { return !strcmp(o->arch, "deepseek4"); }
static inline uint32_t ratio_of(uint32_t layer)
{
    static const uint32_t ratios[] = {0, 4, 128};
    return ratios[layer % 3];
}
/* Gated models, if an indexer was asked for. */
static inline bool chooses(const struct mk_options *o)
{
    return mk__says(o, CHOICE) && (!mk__says(o, GATED) || o->index_heads);
}

/* ---- widths.c */
void mk__find_widths(struct model *m);

/* ---- keys.c: n-gram keys follow the vocabulary, whose length they need. */
void mk__kv_u32(struct model *m, const char *suffix, uint32_t v);
void mk__add_keys(struct model *m, uint32_t orig);
void mk__add_gram_keys(struct model *m);

#endif
