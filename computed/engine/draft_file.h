/* SPDX-License-Identifier: Apache-2.0 */
/* draft_file.h: a file that guesses (--draft FILE; computed/draft/drafter_file.h has their kinds), and its trees as
 * proposals (draft.h). A small model works in ntx-predictor (shm/drafts.h): it is asked, and waited for. Nothing of its
 * tree is believed: it is copied, and each node looked at. The others guess here, when a proposal is made. Engine
 * thread. */
#ifndef NTX_COMPUTED_ENGINE_DRAFT_FILE_H
#define NTX_COMPUTED_ENGINE_DRAFT_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "computed/draft/drafter_file.h"
#include "computed/engine/draft.h"
#include "computed/sample/sampler.h"
#include "shm/drafts.h"

struct ntx_draft_text { /* of a session that writes, or is about to */
    uint64_t session;
    const int32_t *tokens;
    uint32_t n, n_prompt, n_vocab;
    const struct ntx_sampling *sampling;
};

struct ntx_draft_file {
    unsigned number;                       /* among the files of --draft: what it guesses has kinds of its own */
    struct ntx_drafter_file *drafter_file; /* borrowed; or NULL, and then */
    struct ntx_drafter
        *by_states;          /*   what goes by the model's states, borrowed; or NULL, and then a small model, with */
    struct ntx_drafts *part; /*   this, borrowed, too */
    struct {
        uint64_t session, asked, seed;
        uint32_t n, n_prompt;
    } text[NTX_DRAFTS_TEXTS]; /* who asked for what */
    uint64_t asked;
    bool told;                   /* that it failed */
    struct ntx_drafts_tree tree; /* the copy */
};

/* A small model is to go on with this text: with `most` nodes expanded at most. Once for each state of a text; more
 * often does no harm. */
void ntx_draft_file_ask(struct ntx_draft_file *f, const struct ntx_draft_text *t, uint32_t most);
/* Nobody wants to know how its texts go on: it stops where it is. */
void ntx_draft_file_rest(struct ntx_draft_file *f);
/* Waits, ns at most, until it has come to this text and its `most` likeliest nodes (of those whose chance is more than
 * `cost`) are known, or it is done: a node that has not been expanded yet has no child among them. Whether it has. */
bool ntx_draft_file_wait(struct ntx_draft_file *f, const struct ntx_draft_text *t, uint32_t most, double cost,
                         uint64_t ns);
/* What goes by the model's states goes on with this text, here and now, until its `most` likeliest nodes are known.
 * Whether it could. */
bool ntx_draft_file_grow(struct ntx_draft_file *f, const struct ntx_draft_text *t, uint32_t most, double cost);
/* It is shown the states of rows at positions pos on (computed/draft/drafter.h). */
void ntx_draft_file_show(struct ntx_draft_file *f, const struct ntx_draft_text *t, uint32_t pos, const float *state,
                         bool read);
/* Whether its `most` likeliest nodes are known: leaves may have children yet, which nobody knows. */
bool ntx__draft_settled(const struct ntx_drafts_tree *x, uint32_t most, double cost);
/* As ntx_draft_lookup, from its tree as it stands. */
void ntx_draft_from_file(struct ntx_draft_file *f, struct ntx_draft *d, const struct ntx_draft_chances *c,
                         const struct ntx_draft_text *t, uint32_t most, uint32_t deepest, double cost);

#endif
