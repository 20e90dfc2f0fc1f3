/* SPDX-License-Identifier: Apache-2.0 */
/* drafts.h: texts that are to be guessed, and trees of guesses: two parts of the shared region, for computed and the
 * predictor.
 *
 *   asks      computed writes, nobody else can: header; NTX_DRAFTS_TEXTS texts, each with room for `ctx` tokens
 *   answers   the predictor writes: header; a tree for each text. It may write anything at any time, or die within a
 *             word: computed copies a tree whole, and
 *             looks at the copy. A wrong tree costs time, and nothing else
 *
 * Each text and each tree has a `seq` of its own: odd while its writer is at it. A reader that finds it odd, or changed
 * behind its copy, has nothing. Bells are rung after each change, for who sleeps. Fields have native byte order: the
 * daemons share one machine. */
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
#define NTX_DRAFTS_NODES   2048u /* of a tree */

struct ntx_drafts_text { /* tokens [ctx] stand behind all texts */
    _Atomic uint32_t seq;
    uint32_t n, n_prompt; /* tokens; before the answer. n 0: nobody wants to know how it goes on */
    uint32_t top_k, repeat_last;
    float temp, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    uint32_t most; /* nodes to expand, at most */
    uint64_t session, seed;
};

struct ntx_drafts_asks {
    uint64_t magic;
    uint32_t version, hdr_bytes;
    uint64_t epoch;
    uint32_t ctx;
    _Atomic uint32_t bell;
    struct ntx_drafts_text text[NTX_DRAFTS_TEXTS];
};

struct ntx_drafts_node {
    int32_t token;
    uint32_t parent; /* an earlier one; node 0 is the text's last token */
    float chance;    /* if the parent comes */
};

struct ntx_drafts_tree {
    _Atomic uint32_t seq;
    uint32_t n_text; /* tokens of the text that it stands on */
    uint64_t session;
    uint32_t n_nodes, n_expanded;
    uint32_t done; /* nothing more comes before the text goes on */
    struct ntx_drafts_node node[NTX_DRAFTS_NODES];
};

enum ntx_drafts_state { NTX_DRAFTS_NONE, NTX_DRAFTS_READY, NTX_DRAFTS_FAILED };
struct ntx_drafts_answers {
    _Atomic uint32_t bell, state;
    char why[240]; /* FAILED */
    struct ntx_drafts_tree tree[NTX_DRAFTS_TEXTS];
};

struct ntx_drafts { /* the private handle */
    uint32_t ctx;   /* a copy of what was made, or checked */
    struct ntx_drafts_asks *asks;
    int32_t *tokens; /* [NTX_DRAFTS_TEXTS x ctx] */
    struct ntx_drafts_answers *answers;
    struct ntx_segment part[2];
};

uint64_t ntx_drafts_bytes(uint32_t ctx);
int ntx_drafts_make(uint64_t epoch, uint32_t ctx, struct ntx_drafts *d, struct ntx_err *err);
/* The predictor: maps both and validates the asks. Takes the descriptors over, also on failure. */
int ntx_drafts_attach(int asks, int answers, uint64_t epoch, struct ntx_drafts *d, struct ntx_err *err);
void ntx_drafts_close(struct ntx_drafts *d); /* a zeroed or closed one is fine */

/* A writer's brackets around a change; after a death within them the next writer's are as good. */
void ntx_drafts_open_seq(_Atomic uint32_t *seq);
void ntx_drafts_close_seq(_Atomic uint32_t *seq, _Atomic uint32_t *bell);

/* computed: the text with this number is this now; n at most ctx. The bell is rung. */
void ntx_drafts_ask(struct ntx_drafts *d, unsigned text, const struct ntx_drafts_text *t, const int32_t *tokens);
/* The predictor: copies a text (tokens [ctx]) as it was at one moment; false: not now. *seq: of what was copied. */
bool ntx_drafts_asked(const struct ntx_drafts *d, unsigned text, struct ntx_drafts_text *t, int32_t *tokens,
                      uint32_t *seq);
/* computed: copies a tree; false: not now. Of the copy n_nodes is at most NTX_DRAFTS_NODES, and nothing else is sure.
 * */
bool ntx_drafts_answered(const struct ntx_drafts *d, unsigned text, struct ntx_drafts_tree *t);

#endif
