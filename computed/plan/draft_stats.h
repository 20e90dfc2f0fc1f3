/* SPDX-License-Identifier: Apache-2.0 */
/* draft_stats.h: how often guesses held (--draft), as a model's loads learn it one after the other: chances by who
 * guessed, how sure he was and how deep in the tree, what a tree's first, second, ... node brought, and whether
 * guessing paid where the model lay. A file beside the hardware profile, for each model one:
 *
 *   guesses/DIGEST.json   { "ntx_draft_stats": 2, "drafters": [...], "held": [...], "said": [...], ..., "places": [...]
 *                         }
 *
 * Nothing of a text is in it, and no text depends on it: it decides how many passes one takes. */
#ifndef NTX_COMPUTED_PLAN_DRAFT_STATS_H
#define NTX_COMPUTED_PLAN_DRAFT_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define NTX_DRAFT_KINDS              50u /* computed/engine/draft.h says of what */
#define NTX_DRAFT_SOURCES            4u  /* look-up, and files in the order of --draft: */
#define NTX_DRAFT_STATS_FILES        (NTX_DRAFT_SOURCES - 1)
#define NTX_DRAFT_STATS_LOOKUP_KINDS 20u /* the first ones; each file has as many of the others */
#define NTX_DRAFT_STATS_FILE_KINDS   ((NTX_DRAFT_KINDS - NTX_DRAFT_STATS_LOOKUP_KINDS) / NTX_DRAFT_STATS_FILES)
#define NTX_DRAFT_STATS_DIGEST       33u
#define NTX_DRAFT_DEPTHS             8u
#define NTX_DRAFT_STATS_RANKS        127u /* nodes of a tree, without the first */
#define NTX_DRAFT_STATS_WAYS         3u   /* by look-up, by a file, by both */
#define NTX_DRAFT_STATS_PLACES       8u

struct ntx_draft_chances { /* of a node whose parent held: what it is said to be, times how often such nodes held for
                              each time that they were said to */
    float held[NTX_DRAFT_KINDS], said[NTX_DRAFT_KINDS];
    float deep_held[NTX_DRAFT_SOURCES][NTX_DRAFT_DEPTHS]; /* the same once more, by depth */
    float deep_said[NTX_DRAFT_SOURCES][NTX_DRAFT_DEPTHS];
};

struct ntx_draft_stats_ranks { /* of trees, whose nodes stand likeliest first */
    double passes;
    double tried[NTX_DRAFT_STATS_RANKS], held[NTX_DRAFT_STATS_RANKS];
};

struct ntx_draft_stats_place { /* where the model lay, and what came of guessing there */
    uint32_t way, threads;
    uint64_t streamed; /* bytes that a pass read */
    bool on;
    uint32_t left, rest; /* struct ntx_draft_turn's */
    double rate[2],
        pace[5]; /* tokens per ns, without and with guesses: both while the files that guess have their memory */
    uint32_t away, tries; /* loads in a row that left those files out; times that they were taken again all the same */
};

struct ntx_draft_stats {
    char drafter[NTX_DRAFT_STATS_FILES]
                [NTX_DRAFT_STATS_DIGEST]; /* digests of the files that guessed; "": no such one */
    struct ntx_draft_chances chances;
    struct ntx_draft_stats_ranks ranks[NTX_DRAFT_STATS_WAYS];
    struct ntx_draft_stats_place place[NTX_DRAFT_STATS_PLACES]; /* the latest first */
    uint32_t n_places;
};

/* Before anything was learned. first: what a kind is believed to be. */
void ntx_draft_stats_begin(struct ntx_draft_stats *g, float (*first)(uint32_t kind));
/* A tree of n guesses went by; bit i of held says that node i, of which 0 is no guess, held. */
void ntx_draft_stats_rank(struct ntx_draft_stats_ranks *r, uint32_t n, const uint64_t held[2]);
/* Tokens that the i-th guess (from 0) adds to a pass; *known: by what was seen, not by what is common. Less and less
 * with i. */
double ntx_draft_stats_gain(const struct ntx_draft_stats *g, uint32_t way, uint32_t i, bool *known);
/* The place like this one, or NULL. */
const struct ntx_draft_stats_place *ntx_draft_stats_place(const struct ntx_draft_stats *g, uint32_t way,
                                                          uint32_t threads, uint64_t streamed);
void ntx_draft_stats_settle(struct ntx_draft_stats *g,
                            const struct ntx_draft_stats_place *p); /* it is kept, in that one's stead */

/* Whether this load does better without the files that guessed there: their memory then holds weights, and plain passes
 * are `faster` times as fast. They are taken again now and then. It is counted in p. */
bool ntx_draft_stats_leave_out(struct ntx_draft_stats_place *p, double faster);

/* digest: the model's (model/digest.h). -ENOENT, without text: nothing is kept of it; -EINVAL: it cannot be believed. g
 * has the files that guess now, and is only changed by a success: what was learned of each of them is then its own,
 * whatever its number was; what was learned of all together holds where they are the same. Without any file what is
 * known of those there were stays. */
int ntx_draft_stats_load(const char *digest, struct ntx_draft_stats *g, struct ntx_err *err);
int ntx_draft_stats_store(const char *digest, const struct ntx_draft_stats *g, struct ntx_err *err);
int ntx_draft_stats_parse(const char *json, struct ntx_draft_stats *out, struct ntx_err *err);
char *ntx_draft_stats_dump(const struct ntx_draft_stats *g); /* malloc'd */

#endif
