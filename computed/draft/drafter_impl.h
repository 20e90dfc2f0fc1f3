/* SPDX-License-Identifier: Apache-2.0 */
/* drafter_impl.h: what drafter.c, drafter_open.c and drafter_head.c share: a drafter, and the texts that it follows. */
#ifndef NTX_COMPUTED_DRAFT_DRAFTER_IMPL_H
#define NTX_COMPUTED_DRAFT_DRAFTER_IMPL_H

#include "computed/draft/drafter.h"
#include "computed/pass/forward.h"
#include "computed/pass/weights_ram.h"

#define SLOTS     384u    /* of a tree, behind the text */
#define STEP      8u      /* nodes expanded together */
#define READ      64u     /* tokens of a text read together */
#define KIDS      8u      /* of a node, at most */
#define SPINE     64u     /* comes into order when it is longer */
#define DEEPEST   48u     /* SPINE + DEEPEST < NTX_PATH_MAX */
#define SHARP     0.75f   /* by simulation: the temperature at which the small model's chances are near the truth */
#define LEAST     0.0005f /* a path of less chance is not followed */

#define SHOWN     128u /* states that wait to be read, of a text */
#define BLOCK     64u  /* tokens that are guessed at once, at most (model/arch/dflash.c) */
#define OWN_NODES 128u /* what goes by states expands no more: each leaves one */

struct ntx__drafter_node {
    int32_t token;
    uint32_t parent, depth, slot;
    float chance, path; /* of its own, and of all from node 0 on */
    bool expanded;      /* and has a slot */
};

struct ntx__drafter_text {
    uint64_t session, asked;
    bool used;
    int32_t *tokens; /* [ctx] */
    uint32_t n, n_prompt;
    struct ntx_sampling sampling;
    struct ntx_sampler *sampler;
    struct ntx_kv_seq *kv;
    uint32_t kv_n; /* tokens in order there */
    uint32_t spine[SPINE + 2], n_spine;
    struct ntx__drafter_node node[NTX_DRAFTER_NODES];
    uint32_t n_nodes, n_expanded;
    /* Of what goes by states; else 0 and NULL */
    uint32_t skip; /* tokens of the text before the first that it has read: its position 0 */
    uint32_t shown_at, n_shown;
    float *shown; /* [SHOWN x shown_width] states of positions shown_at on, as they are kept */
    float *left;  /* [OWN_NODES x n_embd] states that expanded nodes left: by their slots behind kv_n */
};

struct ntx_drafter {
    struct ntx_gguf *gguf;
    struct ntx_model *model;
    struct ntx_chunks *chunks;
    struct ntx_ram_weights weights;
    struct ntx_forward *f;
    struct ntx_kv_pool *pool;
    uint32_t ctx, n_vocab, shown_width;
    uint64_t pass, asked;
    float *logits;      /* [STEP x n_vocab] */
    float *states;      /* of what goes by states: all that its texts hold of them; else NULL */
    const float *norms; /* [2 x n_embd] of a next-token block: of the large model's states, and of its own; else NULL */
    struct ntx_drafter_head *head; /* of a file that goes by states of several layers; else NULL */
    const struct ntx_cpu_ops *ops;
    struct ntx__drafter_text text[NTX_DRAFTER_TEXTS];
};

struct ntx_drafter_head { /* another pass makes of the states of several layers what comes with the next token; or, of a
                             block, K and V of that position */
    struct ntx_gguf *gguf;
    struct ntx_model *model;
    struct ntx_chunks *chunks;
    struct ntx_ram_weights weights;
    struct ntx_forward *f;
    int *fds;       /* of its file, and of the model's: borrowed */
    float *fused;   /* [READ x n_embd] */
    int32_t *token; /* [n_out] of the large model's vocabulary; NULL: it is the whole */
    float *logits;  /* [n_vocab] then */
};

/* ---- drafter_head.c: what goes by states of the large model */
/* Of tokens `token` to token + n - 1 of the text, the states that come with them, [n x n_embd]: they have been shown.
 * */
int ntx__drafter_states(struct ntx_drafter *d, struct ntx__drafter_text *t, uint32_t token, uint32_t n,
                        const float **out);
void ntx__drafter_keep(const struct ntx_drafter *d, const float *state, float *to); /* as it is kept until then */
void ntx__drafter_left(struct ntx_drafter *d, float *left); /* what a node left, as it comes with its children */
const float *ntx__drafter_logits(struct ntx_drafter *d, const float *logits); /* of the whole vocabulary */
uint64_t ntx__drafter_state_bytes(const struct ntx_model *m);
int ntx__drafter_state_room(struct ntx_drafter *d);
void ntx__drafter_head_free(struct ntx_drafter_head *h);
/* The block below node 0 is guessed, and the tree grows to `most` expanded nodes, of it. 1, 0: that was done before, or
 * a negative errno. */
int ntx__drafter_block(struct ntx_drafter *d, struct ntx__drafter_text *t, uint32_t most);
int ntx__drafter_run(struct ntx_drafter *d, struct ntx_forward *f, struct ntx_row *rows,
                     uint32_t n); /* n, or a negative errno */

static inline uint32_t ntx__drafter_block_of(const struct ntx_drafter *d) { return d->model->hp.head.block; }
/* Of a block, a position's state comes with itself; else with the token behind it. */
static inline uint32_t ntx__drafter_behind(const struct ntx_drafter *d) { return ntx__drafter_block_of(d) ? 0 : 1; }

/* ---- drafter_open.c */
int ntx__drafter_chunks(const struct ntx_model *m, struct ntx_chunks **out, struct ntx_err *err);
int ntx__drafter_suits(const struct ntx_gguf *draft, const struct ntx_gguf *model, struct ntx_err *err);
struct ntx_forward_config ntx__drafter_pass(const struct ntx_model *m, const struct ntx_chunks *c, uint32_t ctx,
                                            uint32_t threads);
int ntx__drafter_bytes(const struct ntx_model *m, uint64_t file_bytes, uint32_t ctx, uint32_t threads, uint64_t *bytes,
                       struct ntx_err *err);
/* The end of making one: all that its kinds share, if rc is 0; d (may be NULL) is freed where it fails. */
int ntx__drafter_made(struct ntx_drafter *d, int rc, uint32_t ctx, uint32_t threads, struct ntx_drafter **out,
                      struct ntx_err *err);

#endif
