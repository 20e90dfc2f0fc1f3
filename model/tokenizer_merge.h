/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_merge.h: the core of both kinds: joins neighbouring symbols, best pair first, until no pair is left. A
 * heap of candidate pairs over a linked list of symbols takes O(n log n) for any text. Ties go to the leftmost pair. */
#ifndef NTX_MODEL_TOKENIZER_MERGE_H
#define NTX_MODEL_TOKENIZER_MERGE_H

#include "model/tokenizer_impl.h"

struct ntx__sym {
    uint32_t off, len;  /* in the text; len 0: absorbed by its left neighbour */
    int32_t id;         /* -1: no token has this text */
    int32_t prev, next; /* -1 at the ends */
};

struct ntx__pair {  /* heap entry */
    uint64_t order; /* key << 32 | left symbol: smallest first */
    uint32_t len;   /* of both symbols when entered; another sum later: one of them has changed */
    int32_t id;     /* token of the joined symbol */
};

struct ntx__merge {             /* scratch, reused for each word; zero all but `out` first */
    const struct ntx__ids *out; /* its limits hold here, too */
    struct ntx__sym *syms;
    size_t n_syms, room_syms;
    struct ntx__pair *heap;
    size_t n_heap, room_heap;
    size_t most_pairs; /* upper bound for this word */
};

/* true: two neighbours may be joined, with `key` (smaller is better) into token `id`. */
typedef bool ntx__join_fn(const struct ntx_tokenizer *t, const char *text, const struct ntx__sym *a,
                          const struct ntx__sym *b, uint32_t *key, int32_t *id);

int ntx__merge_begin(struct ntx__merge *m,
                     size_t n_bytes); /* begins a word of n_bytes. -ENOBUFS: it would exceed the memory limit */
int ntx__merge_add(struct ntx__merge *m, uint32_t off, uint32_t len, int32_t id); /* appends a symbol on the right */
int ntx__merge_run(struct ntx__merge *m, const struct ntx_tokenizer *t, const char *text, ntx__join_fn *join);
void ntx__merge_free(struct ntx__merge *m);

#endif
