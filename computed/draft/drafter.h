/* SPDX-License-Identifier: Apache-2.0 */
/* drafter.h: a draft model: a small model that drafts tokens for a larger one with the same vocabulary (speculative
 * decoding). Its texts share KV for ctx tokens. Each has a tree of drafts that grows best first, by the chance of the
 * path:
 *
 *     the text ... its last token (node 0) --+-- node --+-- node
 *                                            |          +-- node -- ...
 *                                            +-- node
 *
 * If the text goes on along the tree, the subtree stays and grows on; else the tree begins anew. An expanded node has a
 * slot in the KV, after the text (forward.h). The accepted nodes whose slots are not yet moved into the text's order
 * are the spine, up to node 0.
 *
 * The chance of a child is the softmax of (logit + temp x noise) / 0.75 over the tokens that the text's filters leave.
 * The noise is that of the large model's draw (noise.h), so only the small model's errors are uncertain; at temp 0
 * there is no noise. Penalties count the tokens of the text, not of the drafts. Pure: no clock, no files after new. One
 * thread.
 *
 * It may also be the large model's own next-token block (model/arch.h: ntx_model_open_nextn). That gets the states that
 * the large model's passes leave (ntx_drafter_saw), and reads the text from the first of them on: token i with the
 * state of token i - 1. Below node 0 it uses its own states. Accepted drafts are read again, with the large model's
 * states.
 *
 * Or it is a file that works by the states of several layers, from which a pass of its own (drafter_head.c) makes its
 * input. EAGLE-3: one state; it then works like such a block. DFlash: K and V of the position; it drafts a block of
 * tokens after the text at once, each position independently: all nodes of a depth have the same children.
 *
 * Or it is the large model itself, without the layers that are not in memory (ntx_drafter_layers_new). It needs no
 * weights and reads no text: its rows see the K and V that the large model wrote, and leave theirs behind the text,
 * where the pass that verifies them writes anew. */
#ifndef NTX_COMPUTED_DRAFT_DRAFTER_H
#define NTX_COMPUTED_DRAFT_DRAFTER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "computed/sample/sampler.h"
#include "model/arch.h"

#define NTX_DRAFTER_TEXTS 4u    /* texts that it follows at once; another one replaces the one asked for longest ago */
#define NTX_DRAFTER_NODES 2048u /* most nodes of a tree */

struct ntx_drafter;

struct ntx_draft_node { /* a node; its parent has a lower number, node 0 is the text's last token */
    int32_t token;
    uint32_t parent;
    float chance; /* chance that it holds, if its parent does */
};

struct ntx_drafter_text {
    uint64_t session;
    const int32_t *tokens; /* [n] */
    uint32_t n, n_prompt;  /* tokens from n_prompt on were generated for the present request */
    struct ntx_sampling sampling;
    /* For a drafter of the model's own layers: K and V of all but the last token (NULL: they are not there; -EAGAIN),
     * and the adapter of its rows. */
    struct ntx_kv_seq *kv;
    uint8_t adapter;
};

struct ntx_drafter_needs {
    uint64_t bytes;                     /* all memory that it takes, without what is lent */
    uint32_t n_taps, tap[NTX_TAPS_MAX]; /* 0: it gets no states */
    bool lent;                          /* it is the model's own high bits, which the model has in memory */
};
struct ntx_drafter_lent { /* a file's bytes by their offsets; borrowed */
    const uint8_t *at;
    uint64_t bytes;
};

/* Checks a file: 0, or why it can draft for no model, or not for this one. Its memory is for texts of ctx tokens. */
int ntx_drafter_look(int fd, const struct ntx_gguf *model, uint32_t ctx, struct ntx_drafter_needs *needs,
                     struct ntx_err *err);
/* fd is borrowed, since entries of an embedding that is not the output matrix, too, are read later. lent: weights that
 * lie in memory; NULL: they are read. */
int ntx_drafter_new(int fd, uint32_t ctx, const struct ntx_drafter_lent *lent, struct ntx_drafter **out,
                    struct ntx_err *err);
void ntx_drafter_free(struct ntx_drafter *d);

/* The same for the model's own block, which is in the model's files. fds are borrowed, since entries of the embedding
 * are read later. */
int ntx_drafter_nextn_look(const struct ntx_gguf *model, uint32_t ctx, uint32_t threads, uint64_t *bytes,
                           struct ntx_err *err);
/* Bytes of the states that a pass leaves for it, one for each row. rows 0: the number of rows is unknown. */
uint64_t ntx_drafter_left_bytes(uint32_t n_embd, uint32_t rows);
int ntx_drafter_nextn_new(const struct ntx_gguf *model, const int *fds, uint32_t ctx, uint32_t threads,
                          struct ntx_drafter **out, struct ntx_err *err);
/* The same for a file that works by states of several layers (model/arch.h: ntx_model_open_head), for the model of
 * these descriptors; both are borrowed. `taps` are the layers whose states it gets (computed/pass/forward.h: left):
 * [n_taps x n_embd]. */
int ntx_drafter_head_look(int fd, const struct ntx_gguf *model, uint32_t ctx, uint32_t threads,
                          struct ntx_drafter_needs *out, struct ntx_err *err);
int ntx_drafter_head_new(int fd, const struct ntx_gguf *model, const int *fds, unsigned n_fds, uint32_t ctx,
                         uint32_t threads, struct ntx_drafter **out, struct ntx_err *err);
/* The same for the layers of a model that lie in memory. All is borrowed. */
struct ntx_drafter_layers {
    const struct ntx_model *model;
    struct ntx_forward *forward; /* of the model; used between its passes */
    struct ntx_weights *weights; /* of all but the layers of these bits (computed/pass/forward.h) */
    uint64_t without[NTX_MAX_LAYERS / 64];
    uint32_t ctx, max_rows; /* of the forward pass */
};
/* NULL, or why they cannot draft. */
const char *ntx_drafter_layers_refused(const struct ntx_model *model);
uint64_t ntx_drafter_layers_bytes(const struct ntx_model *model, uint32_t ctx);
int ntx_drafter_layers_new(const struct ntx_drafter_layers *of, struct ntx_drafter **out, struct ntx_err *err);
/* Shows it the state [n_embd] that the large model left after all layers at position pos of this text, one position
 * after the other; one that does not follow begins anew. read: without room for more, the states are read now; else the
 * oldest are dropped. 0, or a negative errno. */
int ntx_drafter_saw(struct ntx_drafter *d, const struct ntx_drafter_text *t, uint32_t pos, const float *state,
                    bool read);

/* Follows a text. Returns its number (below NTX_DRAFTER_TEXTS), or a negative errno: it cannot be followed (-EAGAIN:
 * the states of the text were not shown). */
int ntx_drafter_follow(struct ntx_drafter *d, const struct ntx_drafter_text *t);
/* One step: reads more of the text, or expands the likeliest nodes. Returns how many rows that took; 0: nothing
 * worthwhile is left, or `most` nodes are expanded; or a negative errno. */
int ntx_drafter_grow(struct ntx_drafter *d, unsigned text, uint32_t most);
/* Expanded nodes of its tree; 0: not even node 0. */
uint32_t ntx_drafter_expanded(const struct ntx_drafter *d, unsigned text);
uint32_t ntx_drafter_tree(const struct ntx_drafter *d, unsigned text,
                          struct ntx_draft_node *out /* [NTX_DRAFTER_NODES] */);

#endif
