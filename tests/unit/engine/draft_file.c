/* SPDX-License-Identifier: Apache-2.0 */
/* A drafter's trees as proposals: the request, the order in which nodes are taken, and well-formed proposals from trees
 * of any bits. */
#include <stdbool.h>
#include <string.h>

#include "computed/engine/draft_file.h"
#include "tests/lib/check.h"

#define VOCAB 100
static struct ntx_drafts part;
static struct ntx_draft_file file = {.part = &part};
static struct ntx_draft_chances chances;
static const struct ntx_sampling sampling = {.temp = 0.8f, .top_p = 1, .seed = 5};
static int32_t text[64];

static struct ntx_draft_text text_of(uint32_t n)
{
    return (struct ntx_draft_text){
        .session = 3, .tokens = text, .n = n, .n_prompt = 2, .n_vocab = VOCAB, .sampling = &sampling};
}

static void well_formed(const struct ntx_draft *d, uint32_t n, uint32_t most, uint32_t deepest)
{
    CHECK(d->n >= 1 && d->n <= NTX_DRAFT_NODES && d->n <= (most ? most : 1));
    CHECK_EQ(d->token[0], text[n - 1]);
    for (uint32_t i = 0; i < d->n; i++) {
        CHECK(d->token[i] >= 0 && d->token[i] < VOCAB && d->kind[i] < NTX_DRAFT_KINDS);
        CHECK(i ? d->parent[i] < i && d->depth[i] == d->depth[d->parent[i]] + 1 && d->depth[i] <= deepest
                : !d->depth[0]);
        for (uint32_t k = 0, at = i; k <= d->depth[i]; k++, at = d->parent[at])
            CHECK_EQ(d->path[i][d->depth[i] - k], n - 1 + at);
    }
}

static void answer(uint32_t n_text, const struct ntx_drafts_node *node, uint32_t n)
{
    struct ntx_drafts_tree *t = &part.answers->tree[0];
    ntx_drafts_open_seq(&t->seq);
    t->session = 3;
    t->n_text = n_text;
    t->n_nodes = n;
    t->n_expanded = 2;
    t->done = 0;
    memcpy(t->node, node, n * sizeof *node);
    ntx_drafts_close_seq(&t->seq, &part.answers->bell);
}

static struct ntx_draft propose(uint32_t n, uint32_t most, uint32_t deepest, double cost)
{
    struct ntx_draft d;
    const struct ntx_draft_text t = text_of(n);
    ntx_draft_from_file(&file, &d, &chances, &t, most, deepest, cost);
    well_formed(&d, n, most, deepest);
    return d;
}

static void asked(void)
{
    struct ntx_drafts_text got;
    int32_t tokens[64];
    uint32_t seq, before;
    const struct ntx_draft_text t = text_of(5);
    CHECK(!ntx_drafts_read_request(&part, 0, &got, tokens, &seq)); /* nothing yet */
    ntx_draft_file_request(&file, &t, 40);
    CHECK(ntx_drafts_read_request(&part, 0, &got, tokens, &before));
    CHECK(got.session == 3 && got.n == 5 && got.n_prompt == 2 && got.most == 40 && got.temp == 0.8f && got.seed == 5);
    CHECK(!memcmp(tokens, text, 5 * sizeof *text));
    ntx_draft_file_request(&file, &t, 40); /* the same again: nothing happens */
    CHECK(ntx_drafts_read_request(&part, 0, &got, tokens, &seq));
    CHECK_EQ(seq, before);
    ntx_drafts_open_seq(&part.requests->text[0].seq); /* a write in progress */
    CHECK(!ntx_drafts_read_request(&part, 0, &got, tokens, &seq));
    ntx_drafts_close_seq(&part.requests->text[0].seq, &part.requests->bell);
    ntx_draft_file_leave(&file, 4); /* another session was answered */
    CHECK(ntx_drafts_read_request(&part, 0, &got, tokens, &seq) && got.n == 5);
    ntx_draft_file_leave(&file, 3);
    CHECK(ntx_drafts_read_request(&part, 0, &got, tokens, &seq) && !got.n);
}

/* 0 -> 1 (0.5) -> 3 (0.8); 0 -> 2 (0.25) -> 4 (0.95): paths of 0.5, 0.4, 0.25, 0.2375. */
static const struct ntx_drafts_node tree[] = {{4, 0, 1}, {10, 0, 0.5f}, {20, 0, 0.25f}, {30, 1, 0.8f}, {40, 2, 0.95f}};

static void best_first(void)
{
    answer(5, tree, 5);
    struct ntx_draft d = propose(5, 32, 32, 0);
    CHECK_EQ(d.n, 5);
    CHECK(d.token[1] == 10 && d.token[2] == 30 && d.token[3] == 20 && d.token[4] == 40);
    CHECK(d.parent[2] == 1 && !d.parent[3] && d.parent[4] == 3);
    CHECK_EQ(propose(5, 3, 32, 0).n, 3);
    CHECK_EQ(propose(5, 32, 1, 0).n, 3); /* 10 and 20 */
    CHECK_EQ(propose(5, 32, 32, 0.3).n, 3);
    CHECK_EQ(propose(5, 32, 32, 0.6).n, 1);
    text[5] = 10; /* the text went on along the tree: the subtree stays */
    d = propose(6, 32, 32, 0);
    CHECK(d.n == 2 && d.token[0] == 10 && d.token[1] == 30);
    text[5] = 50; /* or off the tree */
    CHECK_EQ(propose(6, 32, 32, 0).n, 1);
    CHECK_EQ(propose(4, 32, 32, 0).n, 1); /* a tree of a later text */
    for (int i = 0; i < 300; i++) {       /* 10 never comes, so 20 becomes the likelier */
        d = propose(5, 32, 32, 0);
        CHECK_EQ(ntx_draft_follow(&d, &chances, 0, 99), 0);
    }
    CHECK(propose(5, 32, 32, 0.1).n < 5);
    for (int i = 0; i < 30000; i++)
        ntx_draft_chances_drift(&chances);
    CHECK_EQ(propose(5, 32, 32, 0.1).n, 5); /* tried again, after a while */
}

static void waits(void)
{
    const struct ntx_draft_text t = text_of(5);
    answer(5, tree, 5);
    /* 0.4 is not expanded: a child may have 0.32, and three nodes have more */
    CHECK(ntx_draft_file_wait(&file, &t, 3, 0, 0, 0));
    CHECK(!ntx_draft_file_wait(&file, &t, 4, 0, 0, 1000));
    CHECK(!ntx_draft_file_wait(&file, &t, 5, 0.3, 0, 1000));
    CHECK(ntx_draft_file_wait(&file, &t, 5, 0.33, 0, 0));
    file.step_ns = 1e6; /* another step would cost 0.3 and 0.34 tokens */
    CHECK(!ntx_draft_file_wait(&file, &t, 5, 0, 0.3e-6, 1000));
    CHECK(ntx_draft_file_wait(&file, &t, 5, 0, 0.34e-6, 0));
    file.step_ns = 0;
    part.answers->tree[0].done = 1;
    CHECK(ntx_draft_file_wait(&file, &t, 5, 0, 0, 0));
    part.answers->state = NTX_DRAFTS_FAILED;
    CHECK(!ntx_draft_file_wait(&file, &t, 2, 0, 0, UINT64_MAX / 2));
    part.answers->state = NTX_DRAFTS_READY;
    ntx_drafts_open_seq(&part.answers->tree[0].seq); /* the writer died here */
    CHECK(!ntx_draft_file_wait(&file, &t, 2, 0, 0, 1000));
    answer(5, tree, 5); /* its successor writes */
    CHECK(ntx_draft_file_wait(&file, &t, 2, 0, 0, 0));
}

/* Random bits: numbers near the valid ones, and far from them. */
static void hostile(void)
{
    static struct ntx_drafts_node node[NTX_DRAFTS_NODES];
    uint32_t h = 1, grown = 0;
    for (int round = 0; round < 3000; round++) {
        uint32_t wild = h >> 28, n = 0;
        for (; n < (wild & 1 ? NTX_DRAFTS_NODES : 40); n++) {
            uint32_t v[3];
            for (int k = 0; k < 3; k++)
                v[k] = (h = h * 1664525u + 1013904223u) >> 3;
            node[n] = (struct ntx_drafts_node){wild & 2 ? (int32_t)(v[0] << 3) : (int32_t)(v[0] % 120) - 10,
                                               wild & 4 ? v[1] : v[1] % (n + 2), 0};
            v[2] = wild & 8 ? v[2] << 3 : 0x3f000000u - v[2] % 0x2000000;
            memcpy(&node[n].chance, &v[2], 4);
        }
        node[0].token = text[4];
        answer(5, node, n);
        part.answers->tree[0].n_expanded = h;
        grown += propose(5, 1 + h % 130, h >> 8 & 31, 0).n > 8;
        answer(h, node, n);
        part.answers->tree[0].n_nodes = h;
        propose(5, 128, 31, 0);
    }
    CHECK(grown > 100);
}

int main(void)
{
    struct ntx_err err = {0};
    for (int i = 0; i < 64; i++)
        text[i] = i;
    ntx_draft_chances(&chances);
    CHECK_MSG(!ntx_drafts_make(7, 64, &part, &err), "%s", err.text);
    asked();
    best_first();
    ntx_draft_chances(&chances);
    waits();
    hostile();
    ntx_drafts_close(&part);
    return 0;
}
