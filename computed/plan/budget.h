/* SPDX-License-Identifier: Apache-2.0 */
/* budget.h: the default of --ram, and the part of it that belongs to clients. For loading, and for `ntx plan`, which
 * must come to the same answer without loading anything. */
#ifndef NTX_COMPUTED_PLAN_BUDGET_H
#define NTX_COMPUTED_PLAN_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define NTX_BUDGET_SESSIONS_MIN 4
#define NTX_BUDGET_SESSIONS_MAX 32

/* The memory that is available, less a tenth, and less what the processes themselves need, in whole MiB.
 * reclaim_bytes: will be freed before. */
uint64_t ntx_budget_default(uint64_t reclaim_bytes);
/* The error for no memory at all: -ENOMEM. */
int ntx_budget_nothing(struct ntx_err *err);

struct ntx_budget_clients {
    uint32_t sessions;    /* that may run at once */
    uint32_t logits_rows; /* rows of a pass that may want logits */
    uint32_t few_rows;    /* rows of drafts beside them, which keep their largest logits only (pass/best.h) */
    uint64_t kept_bytes;  /* for the tokens of sessions: of waiting ones, and of conversations that may go on */
    uint64_t read_bytes;  /* for tokenizing a prompt */
    /* kept_bytes has room for a constrained answer (a grammar, a schema, calls) and its vocabulary. */
    bool constrains;
    uint64_t bytes; /* bytes of all of these */
};

/* Bytes that constrained answers need for a vocabulary (computed/grammar/mask.c), roughly; and with one such answer. */
uint64_t ntx_budget_words(uint32_t n_vocab);
uint64_t ntx_budget_constrained(uint32_t n_vocab);
/* Makes room for one, whatever the budget; kept_bytes grows only if it has none. */
void ntx_budget_constrain(uint32_t n_vocab, struct ntx_budget_clients *c);
/* The budget from which on this is a small part of it, and reserved. */
uint64_t ntx_budget_constrains_from(uint32_t n_vocab);

/* Parts of kept_bytes: for the vocabulary, which stays, and for each constrained answer. */
void ntx_budget_constraint(uint32_t n_vocab, const struct ntx_budget_clients *c, uint64_t *words, uint64_t *answer);
/* a constrained answer that was refused: bytes of its vocabulary, of its grammar, and of all else beside the answer */
struct ntx_budget_refused {
    uint64_t words, grammar, other;
};
/* The smallest budget, in whole MiB and at least `from`, with room for it; 0: none. */
uint64_t ntx_budget_with_room(uint32_t n_vocab, uint64_t from, const struct ntx_budget_refused *r);

/* As many as fit into a small part of `ram`, if each session takes session_more beside its logits. Drafts (--draft)
 * need least_rows rows of logits, and with `trees` more of them, up to 128, in a sixteenth of `ram`. A constrained
 * answer has room if it takes at most a sixteenth. ram 0 gives the fewest: the smallest budget is found with those, and
 * must not depend on the given one. */
struct ntx_budget_clients ntx_budget_clients(uint32_t n_vocab, uint64_t session_more, uint32_t least_rows, bool trees,
                                             uint64_t ram);

#endif
