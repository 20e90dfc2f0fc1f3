/* draft_file.h: computed's side of a drafter (--draft FILE), which works in ntx-predictor (shm/drafts.h): what it is asked, and its trees as proposals (draft.h).
 * Nothing of a tree is believed: it is copied, and each node looked at. Engine thread. */
#ifndef NTX_SERVE_DRAFT_FILE_H
#define NTX_SERVE_DRAFT_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "infer/sampler.h"
#include "serve/draft.h"
#include "shm/drafts.h"

struct ntx_draft_text { /* of a session that writes, or is about to */
    uint64_t session;
    const int32_t *tokens;
    uint32_t n, n_prompt, n_vocab;
    const struct ntx_sampling *sampling;
};

struct ntx_draft_file {
    struct ntx_drafts *part;  /* NULL: there is no drafter */
    struct { uint64_t session, asked, seed; uint32_t n, n_prompt; } text[NTX_DRAFTS_TEXTS]; /* who asked for what */
    uint64_t asked;
    bool told;                /* that it failed */
    struct ntx_drafts_tree tree; /* the copy */
};

/* The drafter is to go on with this text: with `most` nodes expanded at most. Once for each state of a text; more often does no harm. */
void ntx_draft_file_ask(struct ntx_draft_file *f, const struct ntx_draft_text *t, uint32_t most);
/* Waits, ns at most, until the drafter has come to this text and its `most` likeliest nodes (of those whose chance is more than `cost`) are known, or it is done: a node that
 * has not been expanded yet has no child among them. Whether it has. */
bool ntx_draft_file_wait(struct ntx_draft_file *f, const struct ntx_draft_text *t, uint32_t most, double cost, uint64_t ns);
/* As ntx_draft_lookup, from the drafter's tree as it stands. */
void ntx_draft_from_file(struct ntx_draft_file *f, struct ntx_draft *d, const struct ntx_draft_chances *c, const struct ntx_draft_text *t, uint32_t most, uint32_t deepest, double cost);

#endif
