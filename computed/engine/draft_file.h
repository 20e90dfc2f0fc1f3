/* SPDX-License-Identifier: Apache-2.0 */
/* draft_file.h: a drafter (--draft FILE; computed/draft/drafter_file.h has the kinds), and its trees as proposals
 * (draft.h). A draft model runs in ntx-predictor (shm/drafts.h) and is waited for. Its tree is not trusted: it is
 * copied, and each node is checked. The other kinds draft here, when a proposal is made. Engine thread. */
#ifndef NTX_COMPUTED_ENGINE_DRAFT_FILE_H
#define NTX_COMPUTED_ENGINE_DRAFT_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "computed/draft/drafter_file.h"
#include "computed/engine/draft.h"
#include "computed/sample/sampler.h"
#include "shm/drafts.h"

struct ntx_draft_text { /* of a session that decodes, or is about to */
    uint64_t session;
    const int32_t *tokens;
    uint32_t n, n_prompt, n_vocab;
    const struct ntx_sampling *sampling;
    struct ntx_kv_seq *kv; /* of all but the last token; NULL: some are not computed yet */
    uint8_t adapter;
};

struct ntx_draft_file {
    unsigned number;                       /* index among the files of --draft: its nodes have their own kinds */
    struct ntx_drafter_file *drafter_file; /* borrowed; NULL: one of the next two */
    /* a drafter by the model's states or layers, borrowed; NULL: a draft model */
    struct ntx_drafter *by_states;
    struct ntx_drafts *part; /* of the draft model, borrowed */
    struct {
        uint64_t session, asked, seed;
        uint32_t n, n_prompt;
    } text[NTX_DRAFTS_TEXTS]; /* the requests */
    uint64_t asked;
    double step_ns;              /* time of a step of a draft model that was waited for, or of by_states; 0: unknown */
    bool failure_logged;         /* its failure was logged */
    struct ntx_drafts_tree tree; /* copy of the tree */
};

/* Asks a draft model to go on with this text, expanding `most` nodes at most. More than once for one state of a text
 * does no harm. */
void ntx_draft_file_request(struct ntx_draft_file *f, const struct ntx_draft_text *t, uint32_t most);
/* Its texts are not wanted any more: it stops. */
void ntx_draft_file_rest(struct ntx_draft_file *f);
void ntx_draft_file_leave(struct ntx_draft_file *f, uint64_t session); /* likewise this session's text */
/* Waits at most ns until the tree for this text has its `most` likeliest nodes (of those with a chance above `cost`, or
 * that are worth the time of another step, at `worth` tokens per ns), or is done. A node that is not expanded has no
 * child among them. Returns whether it has. */
bool ntx_draft_file_wait(struct ntx_draft_file *f, const struct ntx_draft_text *t, uint32_t most, double cost,
                         double worth, uint64_t ns);
/* Grows the tree of a drafter by states or layers until its `most` likeliest nodes are known, of those with a chance
 * above `cost`, or that are worth the time of another step. Returns whether it could. */
bool ntx_draft_file_grow(struct ntx_draft_file *f, const struct ntx_draft_text *t, uint32_t most, double cost,
                         double worth);
/* Shows it the states of rows from position pos on (computed/draft/drafter.h). */
void ntx_draft_file_show(struct ntx_draft_file *f, const struct ntx_draft_text *t, uint32_t pos, const float *state,
                         bool read);
/* Whether its `most` likeliest nodes are known. Leaves may still get children. */
bool ntx__draft_settled(const struct ntx_drafts_tree *x, uint32_t most, double cost);
/* Like ntx_draft_lookup, from its current tree. */
void ntx_draft_from_file(struct ntx_draft_file *f, struct ntx_draft *d, const struct ntx_draft_chances *c,
                         const struct ntx_draft_text *t, uint32_t most, uint32_t deepest, double cost);

#endif
