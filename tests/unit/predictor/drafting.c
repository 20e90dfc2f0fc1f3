/* SPDX-License-Identifier: Apache-2.0 */
/* The drafter's thread, with this test in place of computed: each tree is for a text that it received whole. */
#include <fcntl.h>
#include <unistd.h>

#include "common/util.h"
#include "predictor/drafting.h"
#include "shm/drafts.h"
#include "tests/lib/check.h"

enum { EPOCH = 7, CTX = 256, TEXT = 12, SESSION = 5 };

static struct ntx_drafts part;
static struct ntx_drafts_tree tree;
static int32_t tokens[CTX];

/* Waits for a tree with more than `beyond` expanded nodes, or a final one. */
static void next_tree(uint32_t beyond)
{
    for (uint64_t until = ntx_now_ns() + 60000000000ull;;) {
        uint32_t bell = atomic_load(&part.answers->bell);
        if (ntx_drafts_answered(&part, 0, &tree) && (tree.n_expanded > beyond || tree.done))
            return;
        CHECK_MSG(ntx_now_ns() < until, "no tree beyond %u nodes", beyond);
        ntx_futex_wait(&part.answers->bell, bell, 100000000);
    }
}

static struct ntx_drafts_text text(uint32_t n, uint32_t most)
{
    return (struct ntx_drafts_text){
        .n = n, .n_prompt = n, .repeat_last = 64, .top_p = 1, .repeat_penalty = 1, .most = most, .session = SESSION};
}

/* A text with more tokens than there is room for, as computed may leave it in the middle of a change. */
static void tear(void)
{
    struct ntx_drafts_text *t = &part.requests->text[0];
    ntx_drafts_open_seq(&t->seq);
    t->n = CTX + 1;
    t->session = SESSION + 1;
    t->most = 1;
    ntx_drafts_close_seq(&t->seq, &part.requests->bell);
}

static void check_torn(void)
{
    struct ntx_drafts_text t = text(TEXT, 200);
    for (int i = 0; i < CTX; i++)
        tokens[i] = 300 + i % 50;
    ntx_drafts_post_request(&part, 0, &t, tokens);
    next_tree(0);
    CHECK(!tree.done);
    tear();
    while (!tree.done) {
        next_tree(tree.n_expanded);
        CHECK_EQ(tree.n_text, TEXT);
        CHECK_EQ(tree.session, SESSION);
    }
    CHECK_MSG(tree.n_expanded > 100, "%u nodes of at most 200", tree.n_expanded);
}

/* The next whole text is followed. */
static void check_next(void)
{
    struct ntx_drafts_text t = text(TEXT + 1, 3);
    t.session = SESSION + 2;
    ntx_drafts_post_request(&part, 0, &t, tokens);
    do
        next_tree(0);
    while (tree.session == SESSION);
    CHECK_EQ(tree.n_text, TEXT + 1);
    CHECK_EQ(tree.session, SESSION + 2);
}

/* Waits until no tree has been published for a while. */
static void wait_silent(void)
{
    uint32_t bell;
    do {
        bell = atomic_load(&part.answers->bell);
        ntx_futex_wait(&part.answers->bell, bell, 300000000);
    } while (atomic_load(&part.answers->bell) != bell);
    CHECK(ntx_drafts_answered(&part, 0, &tree));
}

/* When no draft is wanted, the drafter stops long before its tree is full, and publishes nothing until the next
 * request. On a busy machine the tree may have been full before, so there are several tries. */
static void check_rest(void)
{
    struct ntx_drafts_text t = text(TEXT + 2, 250), nothing = {0};
    t.session = SESSION + 3;
    for (int tries = 0; tries < 20; tries++) {
        t.session++;
        ntx_drafts_post_request(&part, 0, &t, tokens);
        do
            next_tree(0);
        while (tree.session != t.session);
        ntx_drafts_post_request(&part, 0, &nothing, tokens);
        wait_silent();
        CHECK_EQ(tree.session, t.session);
        if (!tree.done)
            break;
    }
    CHECK_MSG(tree.n_expanded < 200 && !tree.done, "%u nodes", tree.n_expanded);
    ntx_drafts_post_request(&part, 0, &t, tokens);
    do
        next_tree(200);
    while (tree.session != t.session || tree.n_text != t.n || !tree.done);
    CHECK_MSG(tree.n_expanded > 200, "%u nodes of at most 250", tree.n_expanded);
}

int main(void)
{
    struct ntx_err err = {0};
    struct ntx_drafting *d;
    char path[4096];
    snprintf(path, sizeof path, "%s/models/demo-draft.gguf", getenv("NTX_SOURCE"));
    int file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK_MSG(file >= 0, "%s", path);
    CHECK_MSG(!ntx_drafts_make(EPOCH, CTX, &part, &err), "%s", err.text);
    CHECK_MSG(!ntx_drafting_start(dup(part.part[0].fd), dup(part.part[1].fd), file, -1, EPOCH, 0, NULL, &d, &err), "%s",
              err.text);
    check_torn();
    check_next();
    check_rest();
    ntx_drafting_stop(d);
    ntx_drafts_close(&part);
    return 0;
}
