/* SPDX-License-Identifier: Apache-2.0 */
/* trees.h: a draft tree of 13 rows, for any back end. */
#ifndef NTX_TESTS_UNIT_PASS_TREES_H
#define NTX_TESTS_UNIT_PASS_TREES_H

#include "tests/unit/pass/rig.h"

enum { TREE_ROWS = 13, TREE_DEPTH = 6, TREE_PREFIX = 256 };

/* Row i of the tree continues row tree_parent[i]; row 0 continues the session. */
static const uint8_t tree_parent[TREE_ROWS] = {0, 0, 0, 0, 1, 1, 2, 3, 4, 4, 6, 8, 10};

struct tree {
    uint32_t base, depth[TREE_ROWS], path[TREE_ROWS][TREE_DEPTH];
    int32_t token[TREE_ROWS];
    float *logits; /* [TREE_ROWS x n_vocab] */
};

static inline void tree_make(struct tree *t, const struct rig *r, uint32_t base)
{
    t->base = base;
    t->logits = malloc((size_t)TREE_ROWS * r->n_vocab * sizeof *t->logits);
    rig_ids(r, 77, t->token, TREE_ROWS);
    for (uint32_t i = 0; i < TREE_ROWS; i++) {
        uint32_t above = i ? t->depth[tree_parent[i]] : 0;
        memcpy(t->path[i], t->path[tree_parent[i]], above * sizeof t->path[i][0]);
        t->path[i][above] = base + i;
        t->depth[i] = above + 1;
    }
}

static inline void tree_rows(const struct tree *t, const struct rig *r, struct ntx_kv_seq *kv, struct ntx_row *rows)
{
    for (uint32_t i = 0; i < TREE_ROWS; i++)
        rows[i] = (struct ntx_row){.token = t->token[i],
                                   .pos = t->base + t->depth[i] - 1,
                                   .n_path = t->depth[i],
                                   .path = t->path[i],
                                   .kv = kv,
                                   .logits = t->logits + (size_t)i * r->n_vocab,
                                   .may_skip = true};
}

/* Tokens one after another from `pos` on, as decoding does; logits of the last. */
static inline void tree_decode(struct rig *r, struct ntx_kv_seq *kv, uint32_t pos, const int32_t *ids, uint32_t n,
                               float *logits)
{
    for (uint32_t i = 0; i < n; i++) {
        struct ntx_row row = {
            .token = ids[i], .pos = pos + i, .kv = kv, .logits = i + 1 == n ? logits : NULL, .may_skip = true};
        CHECK_MSG(!rig_run(r, &row, 1), "%s", r->w.w.error.text);
    }
}

/* The tokens of row i's path; returns how many. */
static inline uint32_t tree_tokens(const struct tree *t, uint32_t i, int32_t *ids)
{
    for (uint32_t k = 0; k < t->depth[i]; k++)
        ids[k] = t->token[t->path[i][k] - t->base];
    return t->depth[i];
}

static inline void tree_prefix(struct rig *r, struct ntx_kv_seq *kv, uint32_t n)
{
    int32_t ids[TREE_PREFIX];
    rig_ids(r, 5, ids, n);
    rig_feed(r, kv, ids, n, 0, 64, NULL);
}

/* Accepts the path to row i: tokens decoded after it match those after the chain. Both are at the tree's base or after
 * it, and go back. */
static inline void tree_commit_same(struct rig *r, const struct tree *t, struct ntx_kv_seq *kv,
                                    struct ntx_kv_seq *chain, uint32_t i, const char *what)
{
    static const int32_t next[] = {11, 12, 13};
    float *want = malloc(r->n_vocab * sizeof *want), *got = malloc(r->n_vocab * sizeof *got);
    struct ntx_row rows[TREE_ROWS];
    int32_t ids[TREE_DEPTH];
    uint32_t n = tree_tokens(t, i, ids);
    CHECK_EQ(ntx_kv_return(chain, t->base), t->base);
    tree_decode(r, chain, t->base, ids, n, NULL);
    tree_decode(r, chain, t->base + n, next, 3, want);
    CHECK_EQ(ntx_kv_return(kv, t->base), t->base);
    tree_rows(t, r, kv, rows);
    CHECK_MSG(!rig_run(r, rows, TREE_ROWS), "%s", r->w.w.error.text);
    CHECK_EQ(ntx_forward_commit(r->f, kv, t->base, t->path[i], n), 0);
    tree_decode(r, kv, t->base + n, next, 3, got);
    CHECK_MSG(!memcmp(got, want, r->n_vocab * sizeof *got), "%s, base %u: behind the accepted path to row %u", what,
              t->base, i);
    free(want), free(got);
}

static inline void tree_same_as_chains(struct rig *r, uint32_t base, const char *what)
{
    static const uint32_t paths[] = {9, 12};
    struct tree t = {0};
    struct ntx_row rows[TREE_ROWS];
    float *want = malloc(r->n_vocab * sizeof *want);
    struct ntx_kv_seq *kv = rig_seq(r, base + 32), *chain = rig_seq(r, base + 32);
    tree_make(&t, r, base);
    tree_prefix(r, kv, base);
    tree_prefix(r, chain, base);
    tree_rows(&t, r, kv, rows);
    CHECK_MSG(!rig_run(r, rows, TREE_ROWS), "%s", r->w.w.error.text);
    for (uint32_t i = 0; i < TREE_ROWS; i++) {
        int32_t ids[TREE_DEPTH];
        tree_decode(r, chain, base, ids, tree_tokens(&t, i, ids), want);
        CHECK_MSG(!memcmp(want, t.logits + (size_t)i * r->n_vocab, r->n_vocab * sizeof *want),
                  "%s, base %u: row %u of the tree is not its chain", what, base, i);
    }
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        tree_commit_same(r, &t, kv, chain, paths[i], what);
    ntx_kv_seq_free(kv), ntx_kv_seq_free(chain);
    free(want), free(t.logits);
}

#endif
