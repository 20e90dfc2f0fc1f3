/* SPDX-License-Identifier: Apache-2.0 */
/* drafts.h: texts that want a draft, and draft trees: two parts of the shared region, for computed and the predictor.
 *
 *   asks      only computed writes: header; NTX_DRAFTS_TEXTS texts, each with room for `ctx` tokens
 *   answers   the predictor writes: header; a tree for each text. It may write anything at any time, or die within a
 *             word. So computed copies a tree whole and checks the copy. A wrong tree costs time, nothing else
 *
 * Each text and each tree has a `seq`, which is odd while its writer is changing it. A reader that finds it odd, or
 * finds it changed after the copy, discards the copy. A bell is rung after each change, for a sleeping reader. Fields
 * have native byte order: the daemons share one machine. */
#ifndef NTX_SHM_DRAFTS_H
#define NTX_SHM_DRAFTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shm/segment.h"
#include "shm/word.h"

#define NTX_DRAFTS_MAGIC   0x7374666172647478ULL
#define NTX_DRAFTS_VERSION 2u
#define NTX_DRAFTS_TEXTS   4u
#define NTX_DRAFTS_NODES   2048u /* nodes of a tree */

struct ntx_drafts_text { /* the tokens [ctx] of each text follow after all texts */
    _Atomic uint32_t seq;
    uint32_t n, n_prompt; /* tokens in all; tokens before the answer. n 0: no draft is wanted */
    uint32_t top_k, repeat_last;
    float temp, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    uint32_t most; /* nodes to expand at most */
    uint64_t session, seed;
};

struct ntx_drafts_requests {
    uint64_t magic;
    uint32_t version, hdr_bytes;
    uint64_t epoch;
    uint32_t ctx;
    _Atomic uint32_t bell;
    struct ntx_drafts_text text[NTX_DRAFTS_TEXTS];
};

struct ntx_drafts_node {
    int32_t token;
    uint32_t parent; /* an earlier node; node 0 is the text's last token */
    float chance;    /* probability, given that the parent is accepted */
};

struct ntx_drafts_tree {
    _Atomic uint32_t seq;
    uint32_t n_text; /* tokens of the text that the tree continues */
    uint64_t session;
    uint32_t n_nodes, n_expanded;
    uint32_t done; /* the tree is final until the text changes */
    struct ntx_drafts_node node[NTX_DRAFTS_NODES];
};

enum ntx_drafts_state { NTX_DRAFTS_NONE, NTX_DRAFTS_READY, NTX_DRAFTS_FAILED };
struct ntx_drafts_answers {
    _Atomic uint32_t bell, state;
    char why[240]; /* FAILED */
    struct ntx_drafts_tree tree[NTX_DRAFTS_TEXTS];
};

struct ntx_drafts { /* the private handle */
    uint32_t ctx;   /* a copy of the checked header's */
    struct ntx_drafts_requests *requests;
    int32_t *tokens; /* [NTX_DRAFTS_TEXTS x ctx] */
    struct ntx_drafts_answers *answers;
    struct ntx_segment part[2];
};

uint64_t ntx_drafts_bytes(uint32_t ctx);
int ntx_drafts_make(uint64_t epoch, uint32_t ctx, struct ntx_drafts *d, struct ntx_err *err);
/* The predictor maps both parts and validates the asks. Takes over the descriptors, also on failure. */
int ntx_drafts_attach(int requests, int answers, uint64_t epoch, struct ntx_drafts *d, struct ntx_err *err);
void ntx_drafts_close(struct ntx_drafts *d); /* accepts a zeroed or closed handle */

/* A writer calls these before and after a change. If it dies in between, the next writer may call them all the same. */
void ntx_drafts_open_seq(_Atomic uint32_t *seq);
void ntx_drafts_close_seq(_Atomic uint32_t *seq, _Atomic uint32_t *bell);

/* computed sets text number `text` (t->n at most ctx) and rings the bell. */
void ntx_drafts_post_request(struct ntx_drafts *d, unsigned text, const struct ntx_drafts_text *t,
                             const int32_t *tokens);
/* The predictor copies a consistent text (tokens [ctx]) and its seq; false: no text, or it is being changed. */
bool ntx_drafts_read_request(const struct ntx_drafts *d, unsigned text, struct ntx_drafts_text *t, int32_t *tokens,
                             uint32_t *seq);
/* computed copies a tree; false: no tree, or it is being changed. In the copy n_nodes is at most NTX_DRAFTS_NODES; all
 * else is unchecked. */
bool ntx_drafts_answered(const struct ntx_drafts *d, unsigned text, struct ntx_drafts_tree *t);

#endif
