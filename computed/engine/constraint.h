/* SPDX-License-Identifier: Apache-2.0 */
/* constraint.h: a request's demands on its tokens beside sampling: a constraint (computed/grammar/grammar.h), logit
 * biases, and log probabilities to report.
 *
 *   reader thread: ntx_constraint_new (compiles; the first one sorts the vocabulary)
 *   engine thread: logits --take, bias, mask--> draw --> the match advances by the token drawn
 *
 * Only accepted tokens are drawn, whatever a pass verifies (engine_draft.c). So a match never goes back, and a
 * session's text does not depend on drafts. */
#ifndef NTX_COMPUTED_ENGINE_CONSTRAINT_H
#define NTX_COMPUTED_ENGINE_CONSTRAINT_H

#include <stdatomic.h>

#include "computed/engine/request.h"
#include "computed/grammar/grammar.h"
#include "computed/sample/sampler.h"
#include "model/tokenizer.h"

#define NTX_TOP_MOST 20u

/* Shared by all constraints of a loaded model, made for the first one: the vocabulary for masks, and the compiled
 * grammars with the masks that their answers computed (grammars.h). */
struct ntx_words;
typedef _Atomic(struct ntx_words *) ntx_words_slot;
void ntx_words_free(struct ntx_words *w);
uint64_t ntx_words_bytes(const struct ntx_words *w); /* NULL: 0 */
bool ntx_words_trim(struct ntx_words *w);            /* frees an unused grammar; false: there is none. NULL is fine */
/* Masks that no answer uses are kept while ntx_words_bytes is within this. NULL is fine. */
void ntx_words_allow(struct ntx_words *w, uint64_t bytes);
uint64_t ntx_words_idle(const struct ntx_words *w);  /* bytes of those masks. NULL: 0 */
uint64_t ntx_words_masks(const struct ntx_words *w); /* computed so far */

struct ntx_constraint_request {
    const struct ntx_request *m;
    const struct ntx_tokenizer *tok;
    ntx_words_slot *words;
    uint32_t n_vocab;
    const char *reply;        /* format of the model's thoughts and calls: a name of model/reply/reply.h */
    bool chat, thinks;        /* an answer of a conversation; it begins in a thought */
    uint64_t memory;          /* bytes for a constraint */
    uint64_t words_most;      /* bytes that the vocabulary may take; sessions share them */
    uint64_t constrains_from; /* least --ram with room for a constraint; 0: unknown */
};

/* Writes the end of an error's text: the --ram with room for it. */
struct ntx_budget_refused;
const char *ntx_constraint_ram(uint32_t n_vocab, uint64_t from, const struct ntx_budget_refused *r, char *buf,
                               size_t room);

struct ntx_token_top { /* reported of a token, with logprobs */
    float logprob;
    uint32_t n;
    struct ntx_candidate top[NTX_TOP_MOST]; /* the likeliest first; .logit is the log of the probability */
};

struct ntx_constraint;
bool ntx_constraint_wanted(const struct ntx_request *m);
int ntx_constraint_new(const struct ntx_constraint_request *request, struct ntx_constraint **out, struct ntx_err *err);
void ntx_constraint_free(struct ntx_constraint *c);
/* Bytes that it holds now, and most bytes while it draws. Shared ones (ntx_words_bytes) are not counted. NULL: 0. */
uint64_t ntx_constraint_bytes(const struct ntx_constraint *c);
uint64_t ntx_constraint_most(const struct ntx_constraint *c);
/* Shared bytes that it would need even if it were alone. */
uint64_t ntx_constraint_shared(const struct ntx_constraint *c);
/* Frees memory that can be made again: no token is drawn for a while. NULL is fine. */
void ntx_constraint_rest(struct ntx_constraint *c);

/* Draws the token for a position by the logits before it. lead: its leading space is not shown. Negative errno: it
 * cannot go on (ntx_constraint_why says why). */
int ntx_constraint_draw(struct ntx_constraint *c, struct ntx_sampler *s, uint64_t position, const float *logits,
                        bool lead, int32_t *token);
/* Takes a token that was not drawn. */
int ntx_constraint_take(struct ntx_constraint *c, int32_t token, bool lead);
const char *ntx_constraint_why(int rc);
bool ntx_constraint_over(const struct ntx_constraint *c); /* the constraint is fulfilled and allows no more */
/* Of the last token; NULL: the request has no logprobs, or the token was not drawn. */
const struct ntx_token_top *ntx_constraint_token_top(const struct ntx_constraint *c);

/* ---- constraint_text.c: grammar texts for a schema's or tools' answers; malloc'd. guarded: channel marks are control
 * tokens */
int ntx__constraint_schema(bool closest, const char *reply, bool chat, bool guarded, const char *json, size_t len,
                           char **out, struct ntx_err *err);
int ntx__constraint_calls(const char *reply, const char *json, size_t len, char **out, struct ntx_err *err);

#endif
