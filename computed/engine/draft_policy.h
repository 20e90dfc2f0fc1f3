/* SPDX-License-Identifier: Apache-2.0 */
/* draft_policy.h: how many drafts a pass gets. A pass of r rows takes about
 *
 *     T(r) = max(floor, busy(r))      floor: the drive's time; busy: a line through the measured passes
 *
 * and a proposal of n nodes adds g(n) tokens. The policy takes the n with the most g(n) - worth x T(n), where `worth`
 * is the tokens that a ns brings elsewhere: the rate of the recent passes, or that of plain ones. So no draft is made
 * where its row costs more than its chance is worth, and many are made while the drive hides them. Plain passes come
 * out of the same rule, so that prompt lookup needs no trials; only a draft model has them (struct ntx_draft_turn),
 * since it shares cores and memory with the passes.
 *
 * Pure: no clock. bench/draft/policy.c replays recorded texts through it. */
#ifndef NTX_COMPUTED_ENGINE_DRAFT_POLICY_H
#define NTX_COMPUTED_ENGINE_DRAFT_POLICY_H

#include "computed/engine/draft.h"

struct ntx_draft_policy {
    bool automatic;      /* --draft auto: drafts must pay by a margin */
    bool models;         /* a draft model takes part, so turns decide */
    bool reads;          /* passes read weights from the drive */
    uint32_t asked;      /* --draft-nodes; 0: as many as pay */
    double expert_share; /* share of the experts that a row uses, where they are read; else 0 */

    struct ntx_pace pace;
    struct ntx_draft_turn turn; /* whether draft models take part now */
    struct ntx_draft_look look;
    double row_ns; /* compute time of a row in a pass of row_ns_of rows */
    uint32_t row_ns_of;
    double drafted;       /* recent mean of nodes in a proposal */
    double gain;          /* recent mean of tokens that a pass with drafts gave beyond the first */
    double rate, rate_ns; /* recent tokens and ns, older ones fading */
    struct ntx_draft_texts texts;
    double looked; /* recent mean of accepted draft tokens of a pass that look-up proposed */
};

/* ns of a pass of `writers` rows without drafts. 0: unknown. */
double ntx_draft_policy_plain(const struct ntx_draft_policy *p, uint32_t writers);
/* Tokens that a ns is worth: those of recent passes, or of plain ones; 0: unknown. */
double ntx_draft_policy_worth(const struct ntx_draft_policy *p, uint32_t writers);
/* Least chance of a node that may be worth its row. */
double ntx_draft_policy_least(const struct ntx_draft_policy *p, uint32_t writers);
/* Cuts a proposal to the nodes that pay, beside the rows of `writers` sessions. */
void ntx_draft_policy_cut(const struct ntx_draft_policy *p, struct ntx_draft *d, const struct ntx_draft_chances *c,
                          uint32_t writers);
void ntx_draft_policy_proposed(struct ntx_draft_policy *p, uint32_t nodes); /* a proposal had so many, after the cut */
/* A pass with the rows of a prompt, or of decoding sessions alone (rows), took ns, of which it waited for weights. */
void ntx_draft_policy_prompt(struct ntx_draft_policy *p, uint32_t rows, double ns, double waited);
void ntx_draft_policy_pass(struct ntx_draft_policy *p, uint32_t rows, double ns, double waited);
/* It wrote so many tokens of `texts` sessions, of which look-up proposed the number `looked`, and took ns with all that
 * was done for it. */
void ntx_draft_policy_wrote(struct ntx_draft_policy *p, uint32_t tokens, uint32_t looked, uint32_t texts, double ns,
                            double waited);

#endif
