/* SPDX-License-Identifier: Apache-2.0 */
/* ideal.c: tokens per pass with a drafter that is never late: bench_ideal MODEL DRAFTER TOKENS TEMP < PROMPTS (each
 * ends in a zero byte; measure.py --prompts TASK writes them). Both models are in memory. The model writes each text
 * once (seed 1, 2, ...); then the bench follows the text through trees of B rows. `said` takes nodes by the product
 * of the drafter's own chances, `learned` as the engine does (computed/engine/draft_file.h), with as many nodes
 * expanded as each pass requests. The text goes on behind the last counted token, so no tree is cut. CSV: rows,
 * tokens per pass by said, by learned. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/draft/writer.h"
#include "common/util.h"
#include "computed/draft/drafter.h"
#include "computed/engine/draft_file.h"

enum { CTX = 512, MORE = 40, SIZES = 5 };
static const uint32_t rows_of[SIZES] = {4, 8, 16, 32, 64};

/* Puts the prompt and `more` tokens that the model writes into text [CTX]; returns the prompt's length. */
static uint32_t write_text(struct writer *w, const char *prompt, const struct ntx_sampling *how, uint32_t more,
                           int32_t *text)
{
    struct ntx_err none = {0};
    struct ntx_kv_seq *kv;
    struct ntx_sampler *s;
    struct ntx_row rows[CTX];
    int32_t *ids;
    int n = ntx_tokenize(w->tok, prompt, strlen(prompt), NTX_TOK_BOS, &ids);
    must(n < 0 ? n : 0, &none);
    must((uint32_t)n + more > CTX ? -E2BIG : 0, &none);
    must(ntx_kv_seq_new(w->pool, CTX, &kv), &none);
    must(ntx_sampler_new(how, w->model->hp.n_vocab, &s), &none);
    memcpy(text, ids, (size_t)n * sizeof *ids);
    for (uint32_t at = 0, end = (uint32_t)n; end < (uint32_t)n + more; at = end++) {
        for (uint32_t i = at; i < end; i++)
            rows[i - at] = (struct ntx_row){
                .token = text[i], .pos = i, .kv = kv, .logits = i + 1 == end ? w->logits : NULL};
        const struct ntx_batch b = {.pass = w->pass++, .rows = rows, .n_rows = end - at};
        must(ntx_forward_run(w->f, &b), ntx_forward_error(w->f));
        text[end] = ntx_sampler_next(s, end, w->logits);
    }
    ntx_sampler_free(s);
    ntx_kv_seq_free(kv);
    free(ids);
    return (uint32_t)n;
}

/* ---- trees */

static struct ntx_drafts part;
static struct ntx_draft_file file = {.part = &part};

/* Writes the drafter's whole tree to the part, as if it had come through the region. */
static void answer(struct ntx_drafter *d, const struct ntx_drafter_text *t, uint32_t most)
{
    static struct ntx_draft_node draft[NTX_DRAFTER_NODES];
    struct ntx_err none = {0};
    struct ntx_drafts_tree *x = &part.answers->tree[0];
    int i = ntx_drafter_follow(d, t), rc;
    must(i < 0 ? i : 0, &none);
    while ((rc = ntx_drafter_grow(d, (unsigned)i, most)) > 0)
        ;
    must(rc, &none);
    ntx_drafts_open_seq(&x->seq);
    x->n_nodes = ntx_drafter_tree(d, (unsigned)i, draft);
    x->n_expanded = ntx_drafter_expanded(d, (unsigned)i);
    x->session = t->session;
    x->n_text = t->n;
    for (uint32_t k = 0; k < x->n_nodes; k++)
        x->node[k] = (struct ntx_drafts_node){draft[k].token, draft[k].parent, draft[k].chance};
    ntx_drafts_close_seq(&x->seq, &part.answers->bell);
}

/* Counts the tokens that the text follows through the `rows` likeliest nodes of the drafter's tree. */
static uint32_t walk_said(const int32_t *next, uint32_t rows)
{
    const struct ntx_drafts_tree *x = &part.answers->tree[0];
    float path[NTX_DRAFTS_NODES] = {1};
    uint32_t before[NTX_DRAFTS_NODES] = {0}, at = 0, came = 1;
    for (uint32_t i = 1; i < x->n_nodes; i++)
        path[i] = path[x->node[i].parent] * x->node[i].chance;
    for (uint32_t i = 1; i < x->n_nodes; i++)
        for (uint32_t k = 0; k < x->n_nodes; k++)
            before[i] += path[k] > path[i] || (path[k] == path[i] && k < i);
    for (uint32_t i = 1; i < x->n_nodes; i++)
        if (x->node[i].parent == at && x->node[i].token == *next && before[i] < rows) {
            at = i;
            came++;
            next++;
        }
    return came;
}

static uint32_t walk_learned(struct ntx_draft_chances *c, const struct ntx_draft_text *t, uint32_t rows)
{
    static struct ntx_draft d;
    uint32_t at = 0, came = 0;
    ntx_draft_chances_drift(c);
    ntx_draft_from_file(&file, &d, c, t, rows, MORE, 0);
    do {
        at = ntx_draft_follow(&d, c, at, t->tokens[t->n + came++]);
    } while (at);
    return came;
}

/* Passes that the tokens from `from` to n take. */
static uint32_t passes(struct ntx_drafter *d, struct ntx_draft_chances *c, const struct ntx_draft_text *whole,
                       uint32_t from, uint32_t rows)
{
    uint32_t n = 0;
    struct ntx_draft_text t = *whole;
    for (t.n = from; t.n < whole->n; n++) {
        const struct ntx_drafter_text x = {
            .session = t.session, .tokens = t.tokens, .n = t.n, .n_prompt = t.n_prompt, .sampling = *t.sampling};
        answer(d, &x, NTX_MIN(4 * rows, 256u));
        t.n += c ? walk_learned(c, &t, rows) : walk_said(t.tokens + t.n, rows);
    }
    return n;
}

int main(int argc, char **argv)
{
    static struct writer w;
    struct ntx_draft_chances chances[SIZES];
    struct ntx_drafter *d;
    struct ntx_err err = {0};
    char *prompt = NULL;
    size_t room = 0;
    uint64_t bytes, tokens = 0, n[2][SIZES] = {0};
    if (argc != 5) {
        fprintf(stderr, "usage: bench_ideal MODEL DRAFTER TOKENS TEMP < PROMPTS\n");
        return 1;
    }
    uint32_t more = (uint32_t)strtoul(argv[3], NULL, 10);
    open_writer(&w, argv[1], CTX, 1, NULL);
    int fd = open_file(argv[2], &bytes);
    must(ntx_drafter_new(fd, CTX, NULL, &d, &err), &err);
    must(ntx_drafts_make(1, CTX, &part, &err), &err);
    for (uint64_t seed = 1; getdelim(&prompt, &room, 0, stdin) > 0; seed++) {
        int32_t text[CTX];
        const struct ntx_sampling how = {.temp = strtof(argv[4], NULL),
                                         .top_k = 40,
                                         .top_p = 0.95f,
                                         .min_p = 0.05f,
                                         .repeat_penalty = 1,
                                         .repeat_last = 64,
                                         .seed = seed};
        struct ntx_draft_text t = {.tokens = text, .n_vocab = w.model->hp.n_vocab, .sampling = &how};
        t.n_prompt = write_text(&w, prompt, &how, more + MORE, text);
        t.n = t.n_prompt + more;
        tokens += more - 1;
        for (uint32_t k = 0; k < 2 * SIZES; k++) {
            t.session = seed * 2 * SIZES + k + 1;
            file.text[0].session = t.session;
            if (k / 2 < SIZES)
                ntx_draft_chances(&chances[k / 2]); /* `ntx run` begins anew with each text */
            n[k % 2][k / 2] += passes(d, k % 2 ? &chances[k / 2] : NULL, &t, t.n_prompt + 1, rows_of[k / 2]);
        }
    }
    puts("rows,said,learned");
    for (uint32_t k = 0; k < SIZES; k++)
        printf("%u,%.2f,%.2f\n", rows_of[k], (double)tokens / (double)n[0][k], (double)tokens / (double)n[1][k]);
    ntx_drafts_close(&part);
    ntx_drafter_free(d);
    close_writer(&w);
    free(prompt);
    close(fd);
    return 0;
}
