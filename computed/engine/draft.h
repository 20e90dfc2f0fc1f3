/* SPDX-License-Identifier: Apache-2.0 */
/* draft.h: speculative decoding: the tree of tokens that a decoding session proposes after its next token. One pass
 * computes all of them. The tokens drawn from its logits follow the tree as long as they are in it (engine_draft.c). So
 * a proposal decides how many passes a text takes, and never the text.
 *
 * Each row of a tree skips the layers that its token would skip (--skip). A tree ends before a token that adapts the
 * policy (--skip-verify). On a GPU nothing is proposed where layers are skipped.
 *
 * Prompt lookup: the end of the text occurred earlier in it, and the tokens after that place may come again; also where
 * only the last token differs. Files: draft_file.h.
 *
 * Nodes are added likeliest first; how many a pass gets is decided by draft_policy.h. Chances and times are learned,
 * and kept for the next load (computed/plan/draft_stats.h): chances by the length of the match, or by the draft model's
 * probability, and by depth; times from passes (struct ntx_pace). Chances of kinds that are not tried drift back to
 * their priors, so these kinds are tried again now and then. */
#ifndef NTX_COMPUTED_ENGINE_DRAFT_H
#define NTX_COMPUTED_ENGINE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "computed/plan/draft_stats.h"

#define NTX_DRAFT_NODES 128u

struct ntx_draft {
    uint64_t asked_ns, taken_ns; /* when it was asked for, and when it came */
    uint32_t n;                  /* nodes; node 0 is the next token, which is fed in any case. 0: no proposal */
    int32_t token[NTX_DRAFT_NODES];
    uint8_t parent[NTX_DRAFT_NODES]; /* an earlier node; node 0's is itself */
    uint8_t depth[NTX_DRAFT_NODES];  /* node 0 has 0 */
    uint8_t kind[NTX_DRAFT_NODES];   /* index of its chance */
    float said[NTX_DRAFT_NODES];     /* the draft model's probability; 1 for prompt lookup */
    /* kind by each other source that proposed it, or NTX_DRAFT_ALONE */
    uint8_t also[NTX_DRAFT_NODES][NTX_DRAFT_SOURCES];
    float also_said[NTX_DRAFT_NODES][NTX_DRAFT_SOURCES]; /* that source's probability */
    uint32_t path[NTX_DRAFT_NODES][NTX_DRAFT_NODES];     /* slots from node 0 to the node (forward.h) */
};

#define NTX_DRAFT_LOOKUP_KINDS NTX_DRAFT_STATS_LOOKUP_KINDS
#define NTX_DRAFT_ALONE        255u
enum { NTX_DRAFT_BY_LOOKUP, NTX_DRAFT_BY_FILE }; /* the first file */
static inline uint32_t ntx_draft_first_kind(unsigned file)
{
    return NTX_DRAFT_STATS_LOOKUP_KINDS + file * NTX_DRAFT_STATS_FILE_KINDS;
}
static inline unsigned ntx_draft_source(uint32_t kind)
{
    return kind < NTX_DRAFT_STATS_LOOKUP_KINDS
               ? NTX_DRAFT_BY_LOOKUP
               : NTX_DRAFT_BY_FILE + (kind - NTX_DRAFT_STATS_LOOKUP_KINDS) / NTX_DRAFT_STATS_FILE_KINDS;
}
/* Chance that a node at this depth holds, if its parent does; below 1. */
double ntx_draft_chance(const struct ntx_draft_chances *c, uint32_t kind, uint32_t depth, float said);
float ntx_draft_believed(uint32_t kind); /* prior chance, per unit of the source's probability */
/* Halves the prior of prompt lookup, where rows are expensive. */
void ntx_draft_chances_doubt(struct ntx_draft_chances *c);
/* Number of nodes, from the first on, with the most expected tokens less `worth` times the time of their pass. ns[i]:
 * of one with i drafts beside `rows` other rows. worth: tokens per ns elsewhere, or nearly those of this proposal, if
 * they are more. 1: no draft. */
uint32_t ntx_draft_best(const struct ntx_draft *d, const struct ntx_draft_chances *c, double rows, const double *ns,
                        double worth);
void ntx_draft_chances(struct ntx_draft_chances *c);       /* sets the priors */
void ntx_draft_chances_drift(struct ntx_draft_chances *c); /* once a pass */

/* Time of a pass by its rows. What the rows compute is a line through the measured passes, the latest counting most,
 * corrected for each small number of rows; the drive's time hides it as far as it can. The line's slope is not
 * forgotten while all passes have as many rows. */
struct ntx_pace {
    double n;              /* passes, the older ones fading */
    double rows, ns;       /* means, without waits for the drive */
    double rows2, rows_ns; /* mean square deviation of rows, and covariance */
    double floor;          /* ns of passes that wait for the drive; 0: none does */
    double row;            /* ns that one more row takes before that is measured; 0: by prior */
    double prior;          /* or in units of a pass; 0: 1/16 */
    /* Measured times of passes with 1, 2, ... rows in parts of the line's; 0: none was measured. A product of two or
     * four rows may take hardly more than that of one, and three more than four. */
    double few[NTX_DRAFT_STATS_FEW];
};
/* waited: part of ns that was spent waiting for the drive. */
void ntx_pace_add(struct ntx_pace *p, double rows, double ns, double waited);
double ntx_pace_row(const struct ntx_pace *p); /* ns of one more row, where nothing hides it */
double ntx_pace_of(const struct ntx_pace *p, double rows);
/* Expected number of distinct experts for `rows` rows, in units of one row's experts. The n-th row adds (1 - share)^(n
 * - 1). */
double ntx_pace_union(double share, double rows);

/* Whether a draft model pays, as measured. Passes take turns: most of them in the mode (with or without it) that gave
 * more tokens per ns, a few in the other on trial. The losing mode is tried less and less often. Only this sees the
 * cost of a drafter that shares cores with the passes. */
struct ntx_draft_turn {
    bool on;                     /* passes draft now */
    bool trial;                  /* this turn tries the losing mode */
    double rate[2];              /* tokens per ns without and with drafts; 0: unknown */
    double tokens, ns, least;    /* of this turn */
    uint32_t passes, left, rest; /* of this turn; until the next trial; between trials while drafting loses */
    uint32_t dear; /* passes without a trial after a lost one, so that trials cost at most 1 % of the time */
};
void ntx_draft_turn_begin(struct ntx_draft_turn *t, bool on);
/* A pass of decode rows alone, including waits for the drafter. least_ns: time spent waiting for weights, so a pass
 * without drafts takes at least as long. */
void ntx_draft_turn_pass(struct ntx_draft_turn *t, uint32_t tokens, double ns, double least_ns);

/* Searches of the text while nothing is drafted, to learn which drafts would have held. They get a small share of the
 * time, however long the text is and however short passes are. */
struct ntx_draft_look {
    double over_ns;
}; /* Time that searches took beyond their share. The caller adds each search's time. */
static inline bool ntx_draft_look_due(const struct ntx_draft_look *l) { return l->over_ns <= 0; }
void ntx_draft_look_pass(struct ntx_draft_look *l, double ns); /* a pass took so long */

/* Fills d for a text of n tokens whose last one is fed next, at slot and position n - 1: at most `most` nodes, none
 * deeper than `deepest`, each with a chance above `cost`. */
void ntx_draft_lookup(struct ntx_draft *d, const struct ntx_draft_chances *c, const int32_t *text, uint32_t n,
                      uint32_t most, uint32_t deepest, double cost);
/* Joins n proposals (at most NTX_DRAFT_SOURCES, one of each source) for the same text into d: their likeliest nodes,
 * equal ones once. Below a shared node each source goes on from the better of its chances. */
void ntx_draft_join(struct ntx_draft *d, const struct ntx_draft *of, unsigned n, const struct ntx_draft_chances *c,
                    uint32_t most, double cost);
void ntx_draft_root(struct ntx_draft *d, int32_t token, uint32_t n_text); /* sets d to node 0 alone */
/* Appends a node, for which there must be room. Returns its number. */
uint32_t ntx_draft_add(struct ntx_draft *d, uint32_t parent, uint32_t kind, int32_t token, float said);
/* Keeps only the first child of each node, the likeliest: node i then continues node i - 1. `path` is invalid
 * afterwards. */
void ntx_draft_straighten(struct ntx_draft *d);
/* Returns the child of `node` with this token, or 0 for none. Learns from the outcome of all its children. */
uint32_t ntx_draft_follow(const struct ntx_draft *d, struct ntx_draft_chances *c, uint32_t node, int32_t token);

#endif
