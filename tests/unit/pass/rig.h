/* SPDX-License-Identifier: Apache-2.0 */
/* rig.h: a forward pass over a model without processes: weights are in memory (mem_weights.h). */
#ifndef NTX_TESTS_UNIT_PASS_RIG_H
#define NTX_TESTS_UNIT_PASS_RIG_H

#include "computed/pass/forward.h"
#include "tests/lib/check.h"
#include "tests/mkmodel/describe.h"
#include "tests/unit/pass/mem_weights.h"

struct rig;
struct rig_options {
    const char *path; /* a file, or NULL: made from `make` */
    struct mk_options make;
    uint64_t pack;                              /* not 0: the made model is packed, in groups of about so many bytes */
    bool pack_gate;                             /* gate rows in the groups */
    uint32_t down_type;                         /* of the groups; 0: the matrix's own */
    const char *ffn;                            /* --ffn-sparse; NULL: off. If it is learned, networks are made up */
    const char *kernel;                         /* NULL: the best */
    uint32_t threads, max_rows, ctx, kv_tokens; /* 0: 2, 64, 512, 8 x ctx */
    uint64_t chunk_bytes;                       /* 0: 64 KiB */
    uint32_t window;
    uint32_t stay_every; /* mem_weights.h */
    enum ntx_kv_type kv_type;
    bool windows; /* layers with a window keep only the window */
    struct ntx_skip_hooks skip;
    struct ntx_device *(*device)(struct rig *r, const struct rig_options *o, void *ctx); /* NULL: the CPU */
    const struct ntx_backend *backend;                                                   /* its table */
    void *device_ctx;
    uint32_t n_taps; /* computed/pass/forward.h */
    const uint32_t *taps;
    const struct ntx_share *share; /* rows of one machine of several, */
    struct ntx_ranks *ranks;       /* which share this pass; their back end is `backend` */
};

struct rig {
    struct ntx_gguf *gguf;
    struct ntx_model *model;
    struct ntx_chunks *chunks;
    struct ntx_kv_pool *pool;
    struct ntx_kv_shape kv; /* the pool's shape */
    struct ntx_forward *f;
    struct ntx_ffn_nets *nets;
    struct ntx_ffn_mode ffn;
    struct mem_weights w;
    uint32_t n_vocab, n_embd, n_layers;
    uint64_t pass;
    struct ntx_counters *counters;
};

/* 4 layers, 256 wide (so that every type fits), llama, F32, vocabulary of 548. Tests change what they are about. */
struct mk_options rig_model(void);
struct mk_options rig_choosing(void);
struct mk_options rig_kda(void);
/* qwen4exp: blocks of three positions, two of which are in the top-k, and n-grams of the last three tokens. */
struct mk_options rig_blocks(void);
struct mk_options rig_streamed(void); /* rig_mla with a top-k of 9 positions */
/* Heads of two widths; i 1: experts beside a dense FFN, no V; 2: K and V of other layers, inputs of each layer. */
void rig_gemma4(struct mk_options *o, uint32_t i);
/* deepseek4: three layers, which pool nothing, 4 and 128 positions, with a top-k of 5 of those; windows of 16. */
struct mk_options rig_pooled(void);
struct mk_options rig_mla(void); /* MLA, experts in groups */
/* This kernel set, or its counterpart on 64-bit Arm: neon for avx2, i8mm for avx512. The processor may lack it
 * (ntx_cpu_pick). */
const char *rig_kernel(const char *name);
void rig_open(struct rig *r, const struct rig_options *o);
void rig_close(struct rig *r);
struct ntx_kv_seq *rig_seq(struct rig *r, uint32_t n_tokens);

int rig_run(struct rig *r, struct ntx_row *rows, uint32_t n); /* the next pass */
/* Feeds ids[0..n) at positions pos.. in passes of `step` rows; logits [n x n_vocab], or NULL. Must succeed. */
void rig_feed(struct rig *r, struct ntx_kv_seq *kv, const int32_t *ids, uint32_t n, uint32_t pos, uint32_t step,
              float *logits);
uint32_t rig_argmax(const float *v, uint32_t n);
/* ids[i]: some tokens, the same for the same seed. */
void rig_ids(const struct rig *r, uint32_t seed, int32_t *ids, uint32_t n);

/* Logits of so many tokens of a new rig [*n = tokens x n_vocab], in passes of `step` rows; to be freed. */
float *rig_logits(const struct rig_options *o, uint32_t tokens, uint32_t step, size_t *n);
/* Feeds them with logits wanted only for every `every`-th row and the last: these are `want`'s, and the other rows went
 * no further than to the last layer's state. */
void rig_check_asked(struct rig *r, uint32_t tokens, uint32_t step, uint32_t every, bool rounded, const float *want,
                     const char *what);
#define CHECK_SAME(a, b, n_floats) CHECK_MSG(!memcmp(a, b, (n_floats) * sizeof(float)), "floats differ")

#endif
