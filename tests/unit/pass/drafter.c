/* SPDX-License-Identifier: Apache-2.0 */
/* The drafter: its tree is the same whether it followed the text or began there, its chances are those of its own
 * logits, and a different vocabulary is refused. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "computed/draft/drafter.h"
#include "computed/sample/noise.h"
#include "tests/lib/temporary.h"
#include "tests/unit/pass/rig.h"

#define CTX 256

static int made(uint32_t seed)
{
    struct mk_options o = rig_model();
    struct mk_file f = {0};
    struct ntx_err err = {0};
    float *freqs = NULL;
    uint64_t bytes;
    char path[4096];
    int fd = temporary_file(path, sizeof path, "drafter");
    o.seed = seed;
    close(fd);
    CHECK_MSG(!mk_describe(&f, &o, &freqs, &err) && !mk_write(&f, path, 1, &bytes, &err), "%s", err.text);
    free(freqs);
    mk_file_free(&f);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    unlink(path);
    return fd;
}

static struct ntx_drafter *drafter(int fd)
{
    struct ntx_drafter *d;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_drafter_new(fd, CTX, NULL, &d, &err), "%s", err.text);
    return d;
}

static uint32_t grown(struct ntx_drafter *d, const struct ntx_drafter_text *t, uint32_t most,
                      struct ntx_draft_node *out)
{
    int i = ntx_drafter_follow(d, t), rc;
    CHECK(i >= 0);
    while ((rc = ntx_drafter_grow(d, (unsigned)i, most)) > 0)
        ;
    CHECK_EQ(rc, 0);
    return ntx_drafter_tree(d, (unsigned)i, out);
}

/* Every node of a has its counterpart in b, with the same chance, to the bit. Returns their number. */
static uint32_t compare(const struct ntx_draft_node *a, uint32_t n, const struct ntx_draft_node *b, uint32_t m)
{
    uint32_t like[NTX_DRAFTER_NODES] = {0}, found = 1;
    CHECK_EQ(a[0].token, b[0].token);
    for (uint32_t i = 1; i < n; i++) {
        like[i] = UINT32_MAX;
        CHECK(a[i].parent < i && a[i].chance > 0 && a[i].chance <= 1);
        for (uint32_t k = 1; k < m && like[a[i].parent] != UINT32_MAX; k++)
            if (b[k].parent == like[a[i].parent] && b[k].token == a[i].token) {
                CHECK(b[k].chance == a[i].chance);
                like[i] = k;
                found++;
            }
    }
    return found;
}

static void goes_along(int fd)
{
    static struct ntx_draft_node a[NTX_DRAFTER_NODES], b[NTX_DRAFTER_NODES];
    struct ntx_drafter *along = drafter(fd);
    int32_t tokens[CTX];
    struct ntx_drafter_text t = {.session = 1,
                                 .tokens = tokens,
                                 .n = 20,
                                 .n_prompt = 20,
                                 .sampling = {.temp = 0.8f, .top_k = 40, .top_p = 1, .seed = 9, .repeat_penalty = 1}};
    for (uint32_t i = 0; i < t.n; i++)
        tokens[i] = (int32_t)(i * 37 % 500);
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t n = grown(along, &t, 24, a);
        CHECK(n > 8);
        if (round % 7 == 0) {
            struct ntx_drafter *fresh = drafter(fd);
            uint32_t m = grown(fresh, &t, 24, b);
            CHECK(compare(b, m, a, n) > 8); /* earlier deep nodes may have kept more or fewer nodes beside them */
            ntx_drafter_free(fresh);
        }
        uint32_t at = 0, go = round % 5; /* along the tree by none to three tokens, or beside it */
        for (uint32_t i = 1; i < n && go > 1 && t.n < CTX - 2; i++)
            if (a[i].parent == at) {
                at = i;
                tokens[t.n++] = a[i].token;
                go--;
            }
        tokens[t.n++] = (int32_t)(round % 2 ? 499 : a[1].token);
        if (round % 11 == 10)
            t.n -= 6; /* the conversation was cut */
        if (t.n > CTX - 10)
            t.n = 30;
    }
    ntx_drafter_free(along);
}

/* Several texts, more than there are places. */
static void takes_turns(int fd)
{
    static struct ntx_draft_node a[NTX_DRAFTER_NODES], b[NTX_DRAFTER_NODES];
    struct ntx_drafter *d = drafter(fd);
    int32_t tokens[7][40];
    for (int round = 0; round < 3; round++)
        for (uint32_t s = 0; s < 7; s++) {
            for (uint32_t i = 0; i < 40; i++)
                tokens[s][i] = (int32_t)((i * 31 + s * 77) % 500);
            const struct ntx_drafter_text t = {.session = s + 1,
                                               .tokens = tokens[s],
                                               .n = 20 + (uint32_t)round,
                                               .n_prompt = 20,
                                               .sampling = {.temp = 0, .top_p = 1}};
            struct ntx_drafter *fresh = drafter(fd);
            uint32_t n = grown(d, &t, 8, a), m = grown(fresh, &t, 8, b);
            CHECK(n == m && compare(a, n, b, m) == n);
            ntx_drafter_free(fresh);
        }
    ntx_drafter_free(d);
}

/* A model that drafts for itself: the likeliest child is the token that it draws. */
static void knows_itself(int fd)
{
    static struct ntx_draft_node tree[NTX_DRAFTER_NODES];
    const struct ntx_sampling ways[] = {{.temp = 0, .top_p = 1},
                                        {.temp = 1.5f, .top_k = 40, .top_p = 0.9f, .min_p = 0.01f, .seed = 4},
                                        {.temp = 1, .top_p = 1, .seed = 5}};
    const struct rig_options o = {.make = rig_model(), .ctx = CTX};
    struct rig r;
    rig_open(&r, &o);
    float *logits = malloc(12 * r.n_vocab * sizeof *logits);
    int32_t tokens[12];
    rig_ids(&r, 3, tokens, 12);
    struct ntx_kv_seq *kv = rig_seq(&r, 12);
    rig_feed(&r, kv, tokens, 12, 0, 12, logits);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct ntx_sampler *s;
        struct ntx_drafter *d = drafter(fd);
        const struct ntx_drafter_text t = {
            .session = 1, .tokens = tokens, .n = 12, .n_prompt = 12, .sampling = ways[w]};
        CHECK(!ntx_sampler_new(&ways[w], r.n_vocab, &s));
        CHECK(grown(d, &t, 1, tree) > 1);
        CHECK_EQ(tree[1].token, ntx_sampler_next(s, 12, logits + 11 * r.n_vocab));
        ntx_sampler_free(s);
        ntx_drafter_free(d);
    }
    free(logits);
    ntx_kv_seq_free(kv);
    rig_close(&r);
}

static void refusals(int fd)
{
    struct ntx_drafter *d = drafter(fd);
    int32_t tokens[CTX] = {0};
    struct ntx_drafter_text t = {.session = 1, .tokens = tokens, .n = CTX, .sampling = {.top_p = 1}};
    CHECK_EQ(ntx_drafter_follow(d, &t), -E2BIG);
    t.n = 0;
    CHECK_EQ(ntx_drafter_follow(d, &t), -E2BIG);
    t.n = 3;
    tokens[1] = 548;
    CHECK_EQ(ntx_drafter_follow(d, &t), -EINVAL);
    ntx_drafter_free(d);
}

int main(void)
{
    int fd = made(1);
    goes_along(fd);
    takes_turns(fd);
    knows_itself(fd);
    refusals(fd);
    close(fd);
    return 0;
}
