/* SPDX-License-Identifier: Apache-2.0 */
/* constraint.h: what a request asks of its tokens beside sampling: a constraint (computed/grammar/grammar.h), biases,
 * and what is told of the tokens: probabilities.
 *
 *   reader thread: ntx_constraint_new (compiles; sorts the vocabulary when it is first asked for one)
 *   engine thread: logits --take, bias, mask--> draw --> the match goes on with the token drawn
 *
 * Only tokens that are written are drawn, whatever a pass verified (engine_draft.c), so a match never goes back; and a
 * session's text does not depend on drafts. */
#ifndef NTX_COMPUTED_ENGINE_CONSTRAINT_H
#define NTX_COMPUTED_ENGINE_CONSTRAINT_H

#include <stdatomic.h>

#include "computed/engine/request.h"
#include "computed/grammar/grammar.h"
#include "computed/sample/sampler.h"
#include "model/tokenizer.h"

#define NTX_TOP_MOST 20u

/* What all constraints of a loaded model share, made when the first one comes: the vocabulary for masks, and the
 * compiled grammars with the masks that their answers computed (grammars.h). */
struct ntx_words;
typedef _Atomic(struct ntx_words *) ntx_words_slot;
void ntx_words_free(struct ntx_words *w);
uint64_t ntx_words_bytes(const struct ntx_words *w); /* NULL: 0 */
bool ntx_words_trim(struct ntx_words *w); /* a grammar that nobody has goes; false: there is none. NULL is fine */
/* Masks that no answer has are kept as long as ntx_words_bytes is within this. NULL is fine. */
void ntx_words_allow(struct ntx_words *w, uint64_t bytes);
uint64_t ntx_words_idle(const struct ntx_words *w);  /* bytes of those masks. NULL: 0 */
uint64_t ntx_words_masks(const struct ntx_words *w); /* computed so far */

struct ntx_constraint_ask {
    const struct ntx_request *m;
    const struct ntx_tokenizer *tok;
    ntx_words_slot *words;
    uint32_t n_vocab;
    const char *reply;        /* how the model writes thoughts and calls: a name of model/reply/reply.h */
    bool chat, thinks;        /* an answer of a conversation; which begins in a thought */
    uint64_t memory;          /* for a constraint */
    uint64_t words_most;      /* that the vocabulary may take: sessions live of the same bytes */
    uint64_t constrains_from; /* no smaller --ram has room for a constraint; 0: unknown */
};

/* The end of an error's text: with which --ram there is room for it. */
struct ntx_budget_refused;
const char *ntx_constraint_ram(uint32_t n_vocab, uint64_t from, const struct ntx_budget_refused *r, char *buf,
                               size_t room);

struct ntx_told { /* of a token, with logprobs */
    float logprob;
    uint32_t n;
    struct ntx_candidate top[NTX_TOP_MOST]; /* the likeliest first; .logit is the log of the probability */
};

struct ntx_constraint;
bool ntx_constraint_wanted(const struct ntx_request *m);
int ntx_constraint_new(const struct ntx_constraint_ask *ask, struct ntx_constraint **out, struct ntx_err *err);
void ntx_constraint_free(struct ntx_constraint *c);
/* Bytes that it holds now, and that it may come to hold while it draws; what it shares (ntx_words_bytes) is not
 * counted. NULL: 0. */
uint64_t ntx_constraint_bytes(const struct ntx_constraint *c);
uint64_t ntx_constraint_most(const struct ntx_constraint *c);
uint64_t ntx_constraint_shared(
    const struct ntx_constraint *c); /* of what it shares, that there would be for it alone */
void ntx_constraint_rest(
    struct ntx_constraint *c); /* no token is drawn for a while: it lets go of what it can make anew. NULL is fine */

/* The token for a position by the logits behind the one before it. lead: a space that it begins with is not shown.
 * Negative errno: it cannot go on (ntx_constraint_why says it in words). */
int ntx_constraint_draw(struct ntx_constraint *c, struct ntx_sampler *s, uint64_t position, const float *logits,
                        bool lead, int32_t *token);
const char *ntx_constraint_why(int rc);
bool ntx_constraint_over(const struct ntx_constraint *c); /* what must come has come, and nothing more may */
const struct ntx_told *ntx_constraint_told(const struct ntx_constraint *c); /* of the last token; NULL: not asked for */

/* ---- constraint_text.c: the grammar's text of what a schema, or tools, ask of an answer; malloc'd. guarded: the marks
 * of channels are control tokens */
int ntx__constraint_schema(const char *reply, bool chat, bool guarded, const char *json, size_t len, char **out,
                           struct ntx_err *err);
int ntx__constraint_calls(const char *reply, const char *json, size_t len, char **out, struct ntx_err *err);

#endif
