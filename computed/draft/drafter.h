/* SPDX-License-Identifier: Apache-2.0 */
/* drafter.h: a small model that guesses how texts go on, for a larger one of the same vocabulary. Of each text it has
 * its own KV, and a tree of guesses that grows best first, by the chance that all of a path comes true:
 *
 *     the text ... its last token (node 0) --+-- node --+-- node
 *                                            |          +-- node -- ...
 *                                            +-- node
 *
 * When the text goes on along the tree, what lies below stays and goes on growing; else it begins anew. A node that has
 * been expanded has a slot in the KV, behind the text (forward.h); the nodes from where the KV is in order to node 0
 * are the spine, which comes into order now and then.
 *
 * The chance of a child is the softmax of (logit + temp x noise) / 0.75 over what the text's filters leave: the noise
 * is the one that the large model's draw will have (noise.h), so that only what the small model has wrong is uncertain;
 * greedily (temp 0) there is none. Penalties count what the text has, not what the guesses would add. Pure: no clock,
 * no files after new. One thread.
 *
 * Or it is the large model's own next-token block (model/arch.h: ntx_model_open_nextn). That is shown the states which
 * the large model's passes leave (ntx_drafter_saw), and reads the text from where it was first shown any: token i with
 * the state of token i - 1. Below node 0 the states are its own. What held is read again, with the states that the
 * large model had then.
 *
 * Or it is a file that goes by the states of several layers, of which a pass of its own (drafter_head.c) makes what it
 * wants. EAGLE-3: one state, and it is as such a block then. DFlash: K and V of the position, and a block of tokens
 * behind the text is guessed at once, each place for itself: below all nodes of a depth stand the same tokens. */
#ifndef NTX_COMPUTED_DRAFT_DRAFTER_H
#define NTX_COMPUTED_DRAFT_DRAFTER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "computed/sample/sampler.h"
#include "model/arch.h"

#define NTX_DRAFTER_TEXTS                                                                                              \
    4u /* that it follows at once; another one takes the place of the one asked for longest ago  \
                              */
#define NTX_DRAFTER_NODES 2048u /* of a tree */

struct ntx_drafter;

struct ntx_draft_node { /* a node; its parent has a lower number, node 0 is the text's last token */
    int32_t token;
    uint32_t parent;
    float chance; /* that it comes, if its parent does */
};

struct ntx_drafter_text {
    uint64_t session;
    const int32_t *tokens; /* [n] */
    uint32_t n, n_prompt;  /* tokens from n_prompt on were written in answer to the request at hand */
    struct ntx_sampling sampling;
};

/* The file's: 0, or why it can draft for no model, or not for this one. *bytes: all memory that it takes for texts of
 * ctx tokens. */
int ntx_drafter_look(int fd, const struct ntx_gguf *model, uint32_t ctx, uint64_t *bytes, struct ntx_err *err);
/* fd is read, and not needed afterwards. */
int ntx_drafter_new(int fd, uint32_t ctx, struct ntx_drafter **out, struct ntx_err *err);
void ntx_drafter_free(struct ntx_drafter *d);

/* The same of the model's own block, which is read from the model's files: fds are borrowed, entries of the embedding
 * are read by them later. */
int ntx_drafter_nextn_look(const struct ntx_gguf *model, uint32_t ctx, uint32_t threads, uint64_t *bytes,
                           struct ntx_err *err);
/* What a pass leaves for it, beside: a state for each row. rows 0: nobody says how many a pass has. */
uint64_t ntx_drafter_left_bytes(uint32_t n_embd, uint32_t rows);
int ntx_drafter_nextn_new(const struct ntx_gguf *model, const int *fds, uint32_t ctx, uint32_t threads,
                          struct ntx_drafter **out, struct ntx_err *err);
/* The same of a file that goes by states of several layers (model/arch.h: ntx_model_open_head), for the model of these
 * descriptors; both are borrowed. `taps` say of which layers it is shown states (computed/pass/forward.h: left): that
 * is [n_taps x n_embd]. */
struct ntx_drafter_needs {
    uint64_t bytes;                     /* all memory that it takes */
    uint32_t n_taps, tap[NTX_TAPS_MAX]; /* 0: it is shown none */
};
int ntx_drafter_head_look(int fd, const struct ntx_gguf *model, uint32_t ctx, uint32_t threads,
                          struct ntx_drafter_needs *out, struct ntx_err *err);
int ntx_drafter_head_new(int fd, const struct ntx_gguf *model, const int *fds, unsigned n_fds, uint32_t ctx,
                         uint32_t threads, struct ntx_drafter **out, struct ntx_err *err);
/* It is shown the state [n_embd] that the large model left behind all layers at position pos of this text, one position
 * after the other; one that does not follow begins anew there. read: where there is no room for more, those that there
 * are are read now, else forgotten, the oldest first. 0, or a negative errno: it failed. */
int ntx_drafter_saw(struct ntx_drafter *d, const struct ntx_drafter_text *t, uint32_t pos, const float *state,
                    bool read);

/* The text is this now. Returns its number (below NTX_DRAFTER_TEXTS), or a negative errno: it cannot be followed
 * (-EAGAIN: the states of the text have not been shown). */
int ntx_drafter_follow(struct ntx_drafter *d, const struct ntx_drafter_text *t);
/* One step: reads of the text what it has not read, or expands the likeliest nodes. Returns how many rows that were; 0:
 * nothing is left to do that is worth it, or `most` nodes of this tree are expanded; or a negative errno. */
int ntx_drafter_grow(struct ntx_drafter *d, unsigned text, uint32_t most);
uint32_t ntx_drafter_expanded(const struct ntx_drafter *d,
                              unsigned text); /* nodes of its tree; 0: not even the text's last token */
uint32_t ntx_drafter_tree(const struct ntx_drafter *d, unsigned text,
                          struct ntx_draft_node *out /* [NTX_DRAFTER_NODES] */);

#endif
