/* draft.h: what a session that writes proposes beside its next token: a tree of tokens that may follow. The pass computes all of them at once; the tokens that
 * are then drawn walk through it for as long as they are in it (engine_pass.c). So a proposal decides how many passes a text takes, and never the text.
 *
 * Look-up: what the end of the text is like was seen before in it, and what came then may come again. A small model: draft_file.h.
 *
 * Nodes are added likeliest first, while the chance that one holds times the time of a plain token is more than the time that a row more takes. Both are
 * learned as it goes: chances by how much of the text was alike, or by what the small model says, times from passes (struct ntx_pace). What is not tried drifts back to
 * what was believed before anything was learned, and so is tried again now and then. */
#ifndef NTX_SERVE_DRAFT_H
#define NTX_SERVE_DRAFT_H

#include <stdint.h>

#define NTX_DRAFT_NODES 128u

struct ntx_draft {
    uint32_t n;                       /* nodes; node 0 is the token that is fed in any case. 0: nothing is proposed */
    int32_t token[NTX_DRAFT_NODES];
    uint8_t parent[NTX_DRAFT_NODES];  /* an earlier node; of node 0 itself */
    uint8_t depth[NTX_DRAFT_NODES];   /* of node 0: 0 */
    uint8_t kind[NTX_DRAFT_NODES];    /* which of the chances is its */
    uint32_t path[NTX_DRAFT_NODES][NTX_DRAFT_NODES]; /* slots from node 0's to its own (forward.h) */
};

#define NTX_DRAFT_LOOKUP_KINDS 20u
#define NTX_DRAFT_FILE_KINDS NTX_DRAFT_LOOKUP_KINDS /* the first of 10 */
#define NTX_DRAFT_KINDS 30u
struct ntx_draft_chances { /* of a node whose parent held */
    float held[NTX_DRAFT_KINDS], tried[NTX_DRAFT_KINDS];
};
void ntx_draft_chances(struct ntx_draft_chances *c); /* before anything is learned */
void ntx_draft_chances_drift(struct ntx_draft_chances *c); /* once a pass */

/* How long passes take by their rows: a line through those that there were, the latest counting most. */
struct ntx_pace {
    double n, rows, rows2, ns, rows_ns;
};
void ntx_pace_add(struct ntx_pace *p, uint32_t rows, double ns);
double ntx_pace_row(const struct ntx_pace *p); /* ns that a row more takes */
double ntx_pace_of(const struct ntx_pace *p, uint32_t rows);

/* Fills d for a text of n tokens whose last is about to be fed at slot and position n - 1: at most `most` nodes, none deeper than `deepest`. A node is worth
 * its row where its chance is more than `cost`. */
void ntx_draft_lookup(struct ntx_draft *d, const struct ntx_draft_chances *c, const int32_t *text, uint32_t n, uint32_t most, uint32_t deepest, double cost);
/* The tokens walk on: the child of `node` that is this token, or 0 where there is none. What was tried there is learned. */
uint32_t ntx_draft_follow(const struct ntx_draft *d, struct ntx_draft_chances *c, uint32_t node, int32_t token);

#endif
