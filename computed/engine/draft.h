/* SPDX-License-Identifier: Apache-2.0 */
/* draft.h: what a session that writes proposes beside its next token: a tree of tokens that may follow. The pass
 * computes all of them at once; the tokens that are then drawn walk through it for as long as they are in it
 * (engine_pass.c). So a proposal decides how many passes a text takes, and never the text.
 *
 * Each row of a tree skips what its token would (--skip). A tree ends before a token that moves what the policy goes by
 * (--skip-verify). On a GPU nothing is proposed where layers are skipped.
 *
 * Look-up: what the end of the text is like was seen before in it, and what came then may come again; also where the
 * last token alone is another one. Files: draft_file.h.
 *
 * Nodes are added likeliest first, while the chance that one holds times the time of a plain token is more than the
 * time that a row more takes. Both are learned as it goes, and kept for the next load (computed/plan/draft_stats.h):
 * chances by how much of the text was alike, or by what the small model says, and by depth, times from passes (struct
 * ntx_pace). What is not tried drifts back to what was believed before anything was learned, and so is tried again now
 * and then. */
#ifndef NTX_COMPUTED_ENGINE_DRAFT_H
#define NTX_COMPUTED_ENGINE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "computed/plan/draft_stats.h"

#define NTX_DRAFT_NODES 128u

struct ntx_draft {
    uint64_t asked_ns, taken_ns; /* when it was asked for, and there */
    uint32_t n;                  /* nodes; node 0 is the token that is fed in any case. 0: nothing is proposed */
    int32_t token[NTX_DRAFT_NODES];
    uint8_t parent[NTX_DRAFT_NODES]; /* an earlier node; of node 0 itself */
    uint8_t depth[NTX_DRAFT_NODES];  /* of node 0: 0 */
    uint8_t kind[NTX_DRAFT_NODES];   /* which of the chances is its */
    float said[NTX_DRAFT_NODES];     /* the chance that a small model gives it; 1 by look-up, which says nothing */
    uint8_t also[NTX_DRAFT_NODES][NTX_DRAFT_SOURCES]; /* others guessed it, too: the kind that it has by each of them,
                                                         or NTX_DRAFT_ALONE, */
    float also_said[NTX_DRAFT_NODES][NTX_DRAFT_SOURCES]; /*   and what that one said */
    uint32_t path[NTX_DRAFT_NODES][NTX_DRAFT_NODES];     /* slots from node 0's to its own (forward.h) */
};

#define NTX_DRAFT_LOOKUP_KINDS NTX_DRAFT_STATS_LOOKUP_KINDS
#define NTX_DRAFT_ALONE        255u
enum { NTX_DRAFT_BY_LOOKUP, NTX_DRAFT_BY_FILE }; /* the first of the files */
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
double ntx_draft_chance(const struct ntx_draft_chances *c, uint32_t kind, uint32_t depth,
                        float said);     /* that a node so deep holds, if its parent does */
float ntx_draft_believed(uint32_t kind); /* before anything is learned, of each that it is said to hold */
/* Where a row is dear look-up is believed half of that, until it is known better. */
void ntx_draft_chances_doubt(struct ntx_draft_chances *c);
/* What all nodes would gain whose chance is more than `cost`: the sum of what it is more, in tokens. */
double ntx_draft_promise(const struct ntx_draft *d, const struct ntx_draft_chances *c, double cost);
/* How many of its nodes, from the first on, make the most of a pass: of `rows` rows beside them, which gives as many
 * tokens in `plain` ns, a row more costing `least`, and what ntx_pace_union(share) adds times `row`. 1: none of them,
 * where the others do not make a token `surer` times as cheap. */
uint32_t ntx_draft_best(const struct ntx_draft *d, const struct ntx_draft_chances *c, double rows, double plain,
                        double share, double row, double least, double surer);
void ntx_draft_chances(struct ntx_draft_chances *c);       /* before anything is learned */
void ntx_draft_chances_drift(struct ntx_draft_chances *c); /* once a pass */

/* How long passes take by their rows: a line through those that there were, the latest counting most. */
struct ntx_pace {
    double n, rows, rows2, ns, rows_ns;
    double guess; /* of a pass, that a row more takes before anything is known; 0: a sixteenth */
};
void ntx_pace_add(struct ntx_pace *p, double rows, double ns);
double ntx_pace_row(const struct ntx_pace *p); /* ns that a row more takes */
double ntx_pace_of(const struct ntx_pace *p, double rows);
/* With experts, of which each row takes a share, and several rows some the same: what the union is of, in rows. The
 * n-th row adds (1 - share)^(n - 1) of one. */
double ntx_pace_union(double share, double rows);

/* Whether guessing pays, by what was measured and not by what was predicted: passes take turns, most of them in the way
 * that gave more tokens per ns, a few now and then in the other. What loses is tried less and less often. A drafter has
 * a core of its own only where computing leaves one: what it costs the others is seen here alone. */
struct ntx_draft_turn {
    bool on;                     /* passes guess now */
    bool trial;                  /* of the way that does not lead */
    double rate[2];              /* tokens per ns, without and with; 0: not known */
    double tokens, ns, least;    /* of this turn */
    uint32_t passes, left, rest; /* of this turn; until the next trial, and between trials where guessing loses */
    uint32_t dear; /* passes behind a trial that lost in which there is none: by all of them a hundredth of the time is
                      lost */
};
void ntx_draft_turn_begin(struct ntx_draft_turn *t, bool on);
/* Passes that do not guess would gain by it, as it seems: it is tried sooner, but not right behind the last time. */
void ntx_draft_turn_promise(struct ntx_draft_turn *t);
/* A pass in which nothing but writing happened, waiting for the drafter included. least_ns: one without guesses takes
 * that at least, since weights were waited for so long. */
void ntx_draft_turn_pass(struct ntx_draft_turn *t, uint32_t tokens, double ns, double least_ns);

/* Looks over a text where nothing is guessed, to learn what would have held: of the time a small share goes to them,
 * however long the text is and however short passes are. */
struct ntx_draft_look {
    double over_ns;
}; /* that they have taken beyond it; who looks adds what it took */
static inline bool ntx_draft_look_due(const struct ntx_draft_look *l) { return l->over_ns <= 0; }
void ntx_draft_look_pass(struct ntx_draft_look *l, double ns); /* a pass took so long */

/* Fills d for a text of n tokens whose last is about to be fed at slot and position n - 1: at most `most` nodes, none
 * deeper than `deepest`. A node is worth its row where its chance is more than `cost`. */
void ntx_draft_lookup(struct ntx_draft *d, const struct ntx_draft_chances *c, const int32_t *text, uint32_t n,
                      uint32_t most, uint32_t deepest, double cost);
/* d becomes the likeliest nodes of n proposals (at most NTX_DRAFT_SOURCES, of one each) for the same text, those that
 * several have once: below such a node each goes on from the better of its chances. */
void ntx_draft_join(struct ntx_draft *d, const struct ntx_draft *of, unsigned n, const struct ntx_draft_chances *c,
                    uint32_t most, double cost);
void ntx_draft_root(struct ntx_draft *d, int32_t token, uint32_t n_text); /* d becomes node 0 alone */
uint32_t ntx_draft_add(struct ntx_draft *d, uint32_t parent, uint32_t kind, int32_t token,
                       float said); /* the last of d; there is room. Returns its number */
/* Of a node's children only the first, which is the likeliest, is left: node i continues node i - 1. `path` is nobody's
 * then. */
void ntx_draft_straighten(struct ntx_draft *d);
/* The tokens walk on: the child of `node` that is this token, or 0 where there is none. What was tried there is
 * learned. */
uint32_t ntx_draft_follow(const struct ntx_draft *d, struct ntx_draft_chances *c, uint32_t node, int32_t token);

#endif
