/* SPDX-License-Identifier: Apache-2.0 */
/* draft_stats.h: statistics of speculative decoding (--draft), learned over a model's loads: how often draft tokens
 * were accepted, by drafter, by its confidence and by depth in the tree; what a tree's first, second, ... node gained;
 * and whether drafts paid at the model's place. One file for each model, beside the hardware profile:
 *
 *   drafts/DIGEST.json
 *     { "ntx_draft_stats": 2, "drafters": [...], "held": [...], "said": [...], ..., "places": [...] }
 *
 * It contains nothing of a text, and no text depends on it: it decides only how many passes one takes. */
#ifndef NTX_COMPUTED_PLAN_DRAFT_STATS_H
#define NTX_COMPUTED_PLAN_DRAFT_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define NTX_DRAFT_KINDS              50u /* see computed/engine/draft.h */
#define NTX_DRAFT_SOURCES            4u  /* look-up, and files in the order of --draft: */
#define NTX_DRAFT_STATS_FILES        (NTX_DRAFT_SOURCES - 1)
#define NTX_DRAFT_STATS_LOOKUP_KINDS 20u /* the first ones; each file has as many of the others */
#define NTX_DRAFT_STATS_FILE_KINDS   ((NTX_DRAFT_KINDS - NTX_DRAFT_STATS_LOOKUP_KINDS) / NTX_DRAFT_STATS_FILES)
#define NTX_DRAFT_STATS_DIGEST       33u
#define NTX_DRAFT_DEPTHS             8u
#define NTX_DRAFT_STATS_RANKS        127u /* nodes of a tree, without the root */
#define NTX_DRAFT_STATS_WAYS         3u   /* by look-up, by a file, by both */
#define NTX_DRAFT_STATS_PLACES       8u
#define NTX_DRAFT_STATS_FEW          8u /* numbers of rows whose times are known one by one */

/* Chances of a node whose parent was accepted: the drafter's estimate, times the acceptance rate at such estimates. */
struct ntx_draft_chances {
    float held[NTX_DRAFT_KINDS], said[NTX_DRAFT_KINDS];
    float deep_held[NTX_DRAFT_SOURCES][NTX_DRAFT_DEPTHS]; /* the same again, by depth */
    float deep_said[NTX_DRAFT_SOURCES][NTX_DRAFT_DEPTHS];
    float lately_held[NTX_DRAFT_SOURCES], lately_said[NTX_DRAFT_SOURCES]; /* of the last few nodes; not stored */
    float run; /* nodes of look-up's first match that held in a row; not stored */
};

struct ntx_draft_stats_ranks { /* of trees, likeliest nodes first */
    double passes;
    double tried[NTX_DRAFT_STATS_RANKS], held[NTX_DRAFT_STATS_RANKS];
};

/* The last texts, while draft models took part: tokens, ns, and passes that look-up alone would have taken. */
struct ntx_draft_texts {
    double tokens, ns, alone;
};

struct ntx_draft_stats_place { /* a placement of the model, and whether drafts paid there */
    uint32_t way, threads;
    uint64_t streamed; /* bytes that a pass read */
    bool on;
    uint32_t left, rest; /* see struct ntx_draft_turn */
    /* Tokens per ns, without and with drafts: both while the drafters have their memory. */
    double rate[2], pace[6]; /* pace: struct ntx_pace up to `floor` */
    double few[NTX_DRAFT_STATS_FEW];
    struct ntx_draft_texts texts;
    uint32_t away, tries; /* loads in a row without these drafters; times that they were tried again */
};

struct ntx_draft_stats {
    /* Digests of the drafters' files; "": none. */
    char drafter[NTX_DRAFT_STATS_FILES][NTX_DRAFT_STATS_DIGEST];
    struct ntx_draft_chances chances;
    struct ntx_draft_stats_ranks ranks[NTX_DRAFT_STATS_WAYS];
    struct ntx_draft_stats_place place[NTX_DRAFT_STATS_PLACES]; /* latest first */
    uint32_t n_places;
};

/* The state before anything was learned. first: the initial estimate of a kind. */
void ntx_draft_stats_begin(struct ntx_draft_stats *g, float (*first)(uint32_t kind));
/* Counts a tree of n draft tokens; bit i of held: node i was accepted; node 0 is the root. */
void ntx_draft_stats_rank(struct ntx_draft_stats_ranks *r, uint32_t n, const uint64_t held[2]);
/* Tokens that the i-th draft token (from 0) adds to a pass; *known: measured for this model, not common. Falls with
 * i. */
double ntx_draft_stats_gain(const struct ntx_draft_stats *g, uint32_t way, uint32_t i, bool *known);
/* Whether passes of this model were counted; of those, the share that had n draft tokens (`most` or more count as
 * `most`), and accepted tokens at rank i (from 0) for each pass. */
bool ntx_draft_stats_known(const struct ntx_draft_stats *g, uint32_t way);
double ntx_draft_stats_share(const struct ntx_draft_stats *g, uint32_t way, uint32_t n, uint32_t most);
double ntx_draft_stats_held(const struct ntx_draft_stats *g, uint32_t way, uint32_t i);
/* The place like this one, or NULL. */
const struct ntx_draft_stats_place *ntx_draft_stats_place(const struct ntx_draft_stats *g, uint32_t way,
                                                          uint32_t threads, uint64_t streamed);
/* Stores this place, instead of the one like it. */
void ntx_draft_stats_settle(struct ntx_draft_stats *g, const struct ntx_draft_stats_place *p);

/* Whether this load does better without the drafters used there: their memory then holds weights, and plain passes are
 * `faster` times as fast. So it does, too, where look-up alone would have written the last texts in less time. They are
 * tried again now and then. Counted in p. */
bool ntx_draft_stats_leave_out(struct ntx_draft_stats_place *p, double faster);

/* digest: the model's (model/digest.h). -ENOENT, without text: nothing is stored; -EINVAL: the file is damaged. g has
 * the present drafters, and changes only on success: it gets what was learned of each of them, whatever its number was;
 * and what was learned of all together if they are the same. Without any drafter, what is known of the stored ones is
 * kept. */
int ntx_draft_stats_load(const char *digest, struct ntx_draft_stats *g, struct ntx_err *err);
int ntx_draft_stats_store(const char *digest, const struct ntx_draft_stats *g, struct ntx_err *err);
int ntx_draft_stats_parse(const char *json, struct ntx_draft_stats *out, struct ntx_err *err);
char *ntx_draft_stats_dump(const struct ntx_draft_stats *g); /* malloc'd */

#endif
