/* SPDX-License-Identifier: Apache-2.0 */
/* drafts.c: the shared parts through which ntx-computed requests drafts and the predictor answers (shm/drafts.h),
 * under libFuzzer. The input is changes to valid parts (fuzz.h); the first byte says how many of them go to the
 * requests. The predictor accepts only requests within their sizes; ntx-computed makes a well-formed proposal of any
 * tree. */
#include "computed/engine/draft_file.h"
#include "tests/fuzz/fuzz.h"

enum { CTX = 64, N_TEXT = 6, VOCAB = 100, EPOCH = 77 };

static struct ntx_drafts made;
static uint8_t *requests, *answers; /* as they are right */
static const int32_t text[N_TEXT + 2] = {4, 9, 2, 9, 2, 7, 11, 12};
static const struct ntx_sampling sampling = {.temp = 0.8f, .top_p = 1, .seed = 5};

static uint8_t *copy_of(const struct ntx_segment *p)
{
    uint8_t *copy = malloc(p->bytes);
    MUST(copy);
    return memcpy(copy, p->at, p->bytes);
}

static void answer(unsigned i)
{
    struct ntx_drafts_tree *t = &made.answers->tree[i];
    static const struct ntx_drafts_node node[] = {{7, 0, 1},     {11, 0, 0.6f}, {3, 0, 0.2f},
                                                  {12, 1, 0.5f}, {5, 1, 0.3f},  {6, 3, 0.9f}};
    ntx_drafts_open_seq(&t->seq);
    t->session = 3;
    t->n_text = N_TEXT;
    t->n_nodes = sizeof node / sizeof *node;
    t->n_expanded = 2;
    memcpy(t->node, node, sizeof node);
    ntx_drafts_close_seq(&t->seq, &made.answers->bell);
}

static void change(uint8_t *seed, const void *part, const void *at, uint8_t how, uint32_t value)
{
    uint32_t place = (uint32_t)((const uint8_t *)at - (const uint8_t *)part) / 4;
    const uint8_t c[8] = {(uint8_t)place, (uint8_t)(place >> 8), (uint8_t)(place >> 16), how,
                          (uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16), (uint8_t)(value >> 24)};
    memcpy(seed + 1, c, sizeof c);
}

/* Writes seeds that change one of the fields that are read first. */
static void write_seeds(void)
{
    uint8_t seed[9] = {1};
    change(seed, made.requests, &made.requests->ctx, 2, 1u << 30);
    fuzz_seed("ctx", seed, sizeof seed);
    change(seed, made.requests, &made.requests->text[0].n, 2, CTX + 1);
    fuzz_seed("text", seed, sizeof seed);
    seed[0] = 0;
    change(seed, made.answers, &made.answers->tree[0].n_nodes, 2, NTX_DRAFTS_NODES + 1);
    fuzz_seed("nodes", seed, sizeof seed);
    change(seed, made.answers, &made.answers->tree[0].node[3].parent, 2, 900);
    fuzz_seed("parent", seed, sizeof seed);
    change(seed, made.answers, &made.answers->tree[0].node[1].token, 2, UINT32_MAX);
    fuzz_seed("token", seed, sizeof seed);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct ntx_err err = {0};
    struct ntx_draft_file f = {.part = &made};
    const struct ntx_draft_text t = {3, text, N_TEXT, 2, VOCAB, &sampling};
    (void)argc;
    (void)argv;
    MUST(!ntx_drafts_make(EPOCH, CTX, &made, &err));
    ntx_draft_file_request(&f, &t, 40);
    for (unsigned i = 0; i < NTX_DRAFTS_TEXTS; i++)
        answer(i);
    requests = copy_of(&made.part[0]);
    answers = copy_of(&made.part[1]);
    if (!fuzz_seed_dir())
        return 0;
    write_seeds();
    exit(0);
}

static void take_requests(void)
{
    struct ntx_drafts d;
    struct ntx_err err = {0};
    uint32_t seq;
    if (ntx_drafts_attach(dup(made.part[0].fd), dup(made.part[1].fd), EPOCH, &d, &err)) {
        MUST(err.code < 0 && err.text[0]);
        return;
    }
    int32_t *tokens = malloc(d.ctx * sizeof *tokens);
    MUST(tokens && d.ctx * sizeof *tokens < d.part[0].bytes);
    for (unsigned i = 0; i < NTX_DRAFTS_TEXTS; i++) {
        struct ntx_drafts_text t = {0};
        MUST(!ntx_drafts_read_request(&d, i, &t, tokens, &seq) || t.n <= d.ctx);
    }
    free(tokens);
    ntx_drafts_close(&d);
}

static void well_formed(const struct ntx_draft *d, uint32_t n, uint32_t deepest)
{
    MUST(d->n >= 1 && d->n <= NTX_DRAFT_NODES && d->token[0] == text[n - 1] && !d->depth[0]);
    for (uint32_t i = 1; i < d->n; i++) {
        MUST(d->token[i] >= 0 && d->token[i] < VOCAB && d->kind[i] < NTX_DRAFT_KINDS);
        MUST(d->parent[i] < i && d->depth[i] == d->depth[d->parent[i]] + 1 && d->depth[i] <= deepest);
    }
}

static void take_answers(void)
{
    static struct ntx_draft_file f;
    static struct ntx_draft d;
    static struct ntx_draft_chances chances;
    for (unsigned i = 0; i < NTX_DRAFT_KINDS; i++)
        chances.held[i] = chances.said[i] = 1;
    for (unsigned i = 0; i < NTX_DRAFT_SOURCES * NTX_DRAFT_DEPTHS; i++)
        chances.deep_held[i / NTX_DRAFT_DEPTHS][i % NTX_DRAFT_DEPTHS] =
            chances.deep_said[i / NTX_DRAFT_DEPTHS][i % NTX_DRAFT_DEPTHS] = 1;
    for (uint32_t n = N_TEXT; n <= N_TEXT + 2; n++) {
        f = (struct ntx_draft_file){.part = &made, .failure_logged = true};
        f.text[n % NTX_DRAFTS_TEXTS].session = 3;
        const struct ntx_draft_text t = {3, text, n, 2, VOCAB, &sampling};
        ntx_draft_from_file(&f, &d, &chances, &t, 31, 8, 0.01);
        well_formed(&d, n, 8);
        ntx_draft_file_wait(&f, &t, 31, 0.01, 0, 0);
        MUST(f.tree.n_nodes <= NTX_DRAFTS_NODES || !ntx_drafts_answered(&made, n % NTX_DRAFTS_TEXTS, &f.tree));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    size_t first = data[0] * 8u < size - 1 ? data[0] * 8u : size - 1;
    fuzz_patch(made.part[0].at, made.part[0].bytes, data + 1, first);
    fuzz_patch(made.part[1].at, made.part[1].bytes, data + 1 + first, size - 1 - first);
    take_requests();
    memcpy(made.part[0].at, requests, made.part[0].bytes);
    take_answers();
    memcpy(made.part[1].at, answers, made.part[1].bytes);
    return 0;
}
