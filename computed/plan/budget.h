/* SPDX-License-Identifier: Apache-2.0 */
/* budget.h: what --ram is when nobody says it, and which part of it belongs to clients. For loading, and for `ntx
 * plan`, which must come to the same answer without loading anything. */
#ifndef NTX_COMPUTED_PLAN_BUDGET_H
#define NTX_COMPUTED_PLAN_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define NTX_BUDGET_SESSIONS_MIN 4
#define NTX_BUDGET_SESSIONS_MAX 32

/* What may still be taken, less a tenth and at least what the processes themselves need. reclaim_bytes: are given back
 * before. */
uint64_t ntx_budget_default(uint64_t reclaim_bytes);
/* Why that is nothing at all, in words: -ENOMEM. */
int ntx_budget_nothing(struct ntx_err *err);

struct ntx_budget_clients {
    uint32_t sessions;    /* that may run at once */
    uint32_t logits_rows; /* rows of a pass that may ask for logits */
    uint64_t kept_bytes;  /* for the tokens of sessions: of those that wait, and of conversations that may go on */
    uint64_t read_bytes;  /* for finding the tokens of a prompt */
    bool constrains; /* kept_bytes have room for a constrained answer (a grammar, a schema, calls) and its vocabulary */
    uint64_t bytes;  /* that all of these take */
};

/* Bytes that constrained answers want of a vocabulary (computed/grammar/mask.c), about, and with one such answer beside
 * them. */
uint64_t ntx_budget_words(uint32_t n_vocab);
uint64_t ntx_budget_constrained(uint32_t n_vocab);
/* Room for one, whatever the budget; kept_bytes grow only where they have none. */
void ntx_budget_constrain(uint32_t n_vocab, struct ntx_budget_clients *c);
/* The budget from which on it is a small part, and reserved. */
uint64_t ntx_budget_constrains_from(uint32_t n_vocab);

/* Of kept_bytes: for the vocabulary, which stays, and for each constrained answer beside it. */
void ntx_budget_constraint(uint32_t n_vocab, const struct ntx_budget_clients *c, uint64_t *words, uint64_t *answer);
/* A constrained answer that was refused: what its vocabulary takes, its grammar, and all else beside the answer. */
struct ntx_budget_refused {
    uint64_t words, grammar, other;
};
/* The smallest budget, of whole MiB and at least `from`, with room for it; 0: none has. */
uint64_t ntx_budget_with_room(uint32_t n_vocab, uint64_t from, const struct ntx_budget_refused *r);

/* As many as fit into a small part of `ram`, where each session takes session_more beside its logits; and guesses
 * (--draft) want least_rows rows of logits, and with `trees` more of them, up to 128, in a sixteenth of `ram`. A
 * constrained answer has room where it takes no more than a sixteenth. ram 0 gives the fewest: with those the smallest
 * budget is found, which must not depend on the one that was given. */
struct ntx_budget_clients ntx_budget_clients(uint32_t n_vocab, uint64_t session_more, uint32_t least_rows, bool trees,
                                             uint64_t ram);

#endif
