/* SPDX-License-Identifier: Apache-2.0 */
/* drafter_impl.h: a drafter and the texts that it follows; internals of drafter.c, drafter_open.c and
 * drafter_head.c. */
#ifndef NTX_COMPUTED_DRAFT_DRAFTER_IMPL_H
#define NTX_COMPUTED_DRAFT_DRAFTER_IMPL_H

#include "computed/draft/drafter.h"
#include "computed/pass/forward.h"
#include "computed/pass/weights_ram.h"

#define SLOTS     384u /* KV slots of a tree, after the text */
#define GROWS     256u /* least tokens that a text may grow before it gets other KV */
#define STEP      8u   /* most nodes expanded together; by the large model's layers, whose rows cost more, */
#define FEW       2u
#define NARROW    0.2f    /* none of them with less than this part of the likeliest one's chance */
#define READ      64u     /* tokens of a text read together */
#define KIDS      8u      /* most children of a node */
#define SPINE     64u     /* a longer spine is moved into order */
#define DEEPEST   48u     /* SPINE + DEEPEST < NTX_PATH_MAX */
#define SHARP     0.75f   /* temperature at which the small model's chances are near the truth, by simulation */
#define LEAST     0.0005f /* least chance of a path that is followed */

#define SHOWN     128u /* most states of a text that wait to be read */
#define BLOCK     64u  /* most tokens that are drafted at once (model/arch/dflash.c) */
#define OWN_NODES 128u /* most nodes that a drafter by states expands, since each leaves a state */

struct ntx__drafter_node {
    int32_t token;
    uint32_t parent, depth, slot;
    float chance, path; /* of the node, and of the path from node 0 */
    bool expanded;      /* expanded, with a slot */
};

struct ntx__drafter_text {
    uint64_t session, asked;
    bool used;
    int32_t *tokens; /* [ctx] */
    uint32_t n, n_prompt;
    struct ntx_sampling sampling;
    struct ntx_sampler *sampler;
    struct ntx_kv_seq *kv;
    uint32_t kv_n; /* tokens in order in kv */
    uint32_t spine[SPINE + 2], n_spine;
    struct ntx__drafter_node node[NTX_DRAFTER_NODES];
    uint32_t n_nodes, n_expanded;
    /* For a drafter by states; else 0 and NULL. */
    uint8_t adapter; /* of the model itself */
    uint32_t skip;   /* tokens before the first one that it has read, which has position 0 */
    uint32_t shown_at, n_shown;
    float *shown; /* [SHOWN x shown_width] states of positions from shown_at on */
    float *left;  /* [OWN_NODES x n_embd] states that expanded nodes left, by slot - kv_n */
};

struct ntx_drafter {
    struct ntx_gguf *gguf;
    struct ntx_model *model;
    struct ntx_chunks *chunks;
    struct ntx_ram_weights weights;
    int fd; /* of a small model's file, borrowed */
    struct ntx_forward *f;
    struct ntx_kv_pool *pool;
    uint32_t ctx, n_vocab, shown_width, step /* most nodes expanded together */;
    uint64_t pass, asked;
    float *logits; /* [step x n_vocab] */
    float *states; /* of a drafter by states: memory of its texts' states; else NULL */
    /* [2 x n_embd] of a next-token block: norms of the large model's states and of its own; else NULL */
    const float *norms;
    struct ntx_drafter_head *head; /* of a file that works by states of several layers; else NULL */
    struct ntx_drafter_layers
        layers; /* of the model itself: model, f and the texts' kv are borrowed; else .model NULL */
    const struct ntx_cpu_ops *ops;
    struct ntx__drafter_text text[NTX_DRAFTER_TEXTS];
};

/* the first model: makes of several layers' states the input of the next token, or (DFlash) K and V of the position */
struct ntx_drafter_head {
    struct ntx_gguf *gguf;
    struct ntx_model *model;
    struct ntx_chunks *chunks;
    struct ntx_ram_weights weights;
    struct ntx_forward *f;
    int *fds;       /* of its file and of the model's; borrowed */
    float *fused;   /* [READ x n_embd] */
    int32_t *token; /* [n_out] ids in the large model's vocabulary; NULL: all */
    float *logits;  /* [n_vocab] with token */
};

/* ---- drafter_head.c: drafters by states of the large model */
/* The states [n x n_embd] that tokens `token` to token + n - 1 are fed with. They have been shown. */
int ntx__drafter_states(struct ntx_drafter *d, struct ntx__drafter_text *t, uint32_t token, uint32_t n,
                        const float **out);
void ntx__drafter_keep(const struct ntx_drafter *d, const float *state, float *to); /* stores a state as it is kept */
void ntx__drafter_left(struct ntx_drafter *d, float *left); /* prepares the state that a node left for its children */
const float *ntx__drafter_logits(struct ntx_drafter *d, const float *logits); /* logits of the whole vocabulary */
uint64_t ntx__drafter_state_bytes(const struct ntx_model *m);
int ntx__drafter_state_room(struct ntx_drafter *d);
void ntx__drafter_head_free(struct ntx_drafter_head *h);
/* Drafts the block below node 0, and grows the tree from it to `most` expanded nodes. 1; 0: that was done before; or a
 * negative errno. */
int ntx__drafter_block(struct ntx_drafter *d, struct ntx__drafter_text *t, uint32_t most);
/* Returns n, or a negative errno. */
int ntx__drafter_run(struct ntx_drafter *d, struct ntx_forward *f, struct ntx_row *rows, uint32_t n);

static inline uint32_t ntx__drafter_block_of(const struct ntx_drafter *d)
{
    return d->model ? d->model->hp.head.block : 0;
}
/* Nodes have no memory beside this text's place in the large model's KV, so it reads no text. */
static inline bool ntx__drafter_by_layers(const struct ntx_drafter *d) { return d->layers.model != NULL; }
/* In a block, a position is fed with its own state; else the token after it is. */
static inline uint32_t ntx__drafter_behind(const struct ntx_drafter *d) { return ntx__drafter_block_of(d) ? 0 : 1; }

/* ---- drafter_open.c */
int ntx__drafter_chunks(const struct ntx_model *m, struct ntx_chunks **out, struct ntx_err *err);
int ntx__drafter_suits(const struct ntx_gguf *draft, const struct ntx_gguf *model, struct ntx_err *err);
struct ntx_forward_config ntx__drafter_pass(const struct ntx_model *m, const struct ntx_chunks *c, uint32_t ctx,
                                            uint32_t threads);
int ntx__drafter_bytes(const struct ntx_model *m, uint64_t header_bytes, uint32_t ctx, uint32_t threads,
                       uint64_t *bytes, struct ntx_err *err);
/* Completes a drafter, with the parts that all kinds share, if rc is 0. d (may be NULL) is freed on an error. */
int ntx__drafter_made(struct ntx_drafter *d, int rc, uint32_t ctx, uint32_t threads, struct ntx_drafter **out,
                      struct ntx_err *err);

#endif
