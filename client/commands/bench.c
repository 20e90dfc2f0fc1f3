/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c: `ntx bench`. Cases run one after the other, several times each. Case k uses the k-th prompt length and
 * the k-th output length; after the shorter list ends, its last length is used, and its test is not repeated. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/commands/bench.h"
#include "client/out.h"
#include "client/progress.h"
#include "common/util.h"

struct bench {
    const struct ntx_options *o;
    struct ntx_client *client;
    struct ntx_bench_case cases[NTX_MAX_LIST];
    unsigned n;
    int32_t *ids; /* [longest prompt length] */
    struct ntx_progress progress;
};

static int run_once(struct bench *b, uint32_t prompt, uint32_t write, json_t **stats, struct ntx_err *err)
{
    Ntx__Generate m = NTX__GENERATE__INIT;
    Ntx__Sampling s = NTX__SAMPLING__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    struct ntx_replies p = {.client = b->client, .last = NTX__REPLY__BODY_DONE};
    m.tokens = b->ids;
    m.n_tokens = prompt;
    m.ignore_eos = true;
    m.max_tokens = write;
    m.raw = true;
    m.chat_template = (char *)"";
    m.sampling = &s;
    q.body_case = NTX__REQUEST__BODY_GENERATE;
    q.generate = &m;
    int rc = ntx_client_send(b->client, &q, NULL, 0, &p.id, err);
    while (ntx_client_more(&p, &rc, err)) {
        if (p.reply->body_case == NTX__REPLY__BODY_PROGRESS)
            ntx_progress_show(&b->progress, p.reply->progress);
        if (p.reply->body_case == p.last)
            *stats = json_loads(p.reply->done->stats_json, 0, NULL);
    }
    return rc;
}

static int run_case(struct bench *b, unsigned k, struct ntx_err *err)
{
    struct ntx_bench_case *c = &b->cases[k];
    int rc = 0;
    for (c->runs = 0; !rc && c->runs < b->o->repeats; c->runs++) {
        json_decref(c->last);
        c->last = NULL;
        ntx_progress_say(&b->progress, "prompt of %u, %u written: run %u of %u", c->prompt, c->write, c->runs + 1,
                         b->o->repeats);
        rc = run_once(b, c->prompt, c->write, &c->last, err);
        for (unsigned i = 0; i < NTX_N_FIGURES && !rc; i++)
            c->v[i][c->runs] = json_number_value(json_object_get(c->last, ntx_figure_name[i]));
    }
    return rc;
}

/* Resident weights are interleaved at their first use; this must not happen in a measured run. */
static int warm_up(struct bench *b, struct ntx_err *err)
{
    json_t *ignored = NULL;
    ntx_progress_say(&b->progress, "warming up");
    int rc = run_once(b, 1, 1, &ignored, err);
    json_decref(ignored);
    return rc;
}

/* Returns the context length that the cases need. */
static uint32_t plan_cases(struct bench *b)
{
    const struct ntx_list *p = &b->o->prompts, *w = &b->o->writes;
    uint32_t ctx = 0;
    b->n = NTX_MAX(p->n, w->n);
    for (unsigned k = 0; k < b->n; k++) {
        struct ntx_bench_case *c = &b->cases[k];
        c->prompt = p->v[NTX_MIN(k, p->n - 1)];
        c->write = k < w->n ? w->v[k] : 1;
        c->reads = k < p->n;
        c->writes = k < w->n && c->write > 1; /* a single token comes with its prompt and has no rate */
        ctx = NTX_MAX(ctx, c->prompt + c->write + 1);
    }
    return ctx;
}

static int report_cases(struct bench *b, const struct ntx_gguf *g, struct ntx_err *err)
{
    const struct ntx_options *o = b->o;
    int rc = 0;
    if (!o->json)
        ntx_bench_report(o->out ? o->out : "md", b->cases, b->n, g);
    for (unsigned k = 0; !rc && k < b->n; k++) {
        json_t *j = ntx_bench_object(&b->cases[k]);
        if (o->json)
            ntx_out_json(j, JSON_COMPACT);
        if (k + 1 == b->n)
            rc = ntx_write_stats(o, j, err);
        json_decref(j);
    }
    return rc;
}

int ntx_cmd_bench(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_model_files f = {0};
    struct bench *b = calloc(1, sizeof *b);
    if (!b)
        return ntx_fail(&(struct ntx_err){-ENOMEM, "no memory"});
    b->o = o;
    b->progress = ntx_progress_begin(o);
    o->load.draft = o->load.draft && *o->load.draft
                        ? o->load.draft
                        : "off"; /* drafts depend on the text, and these tokens are no text */
    o->repeats = NTX_MIN(o->repeats, (uint32_t)NTX_BENCH_RUNS);
    uint32_t ctx = plan_cases(b);
    o->load.no_prefix_cache = true; /* every repetition must compute its prompt */
    if (!o->load.ctx)
        o->load.ctx = ctx;
    int rc = ntx_captive_model(o, &f, &b->client, &err);
    uint64_t n_vocab = rc ? 1 : ntx_gguf_find(f.gguf, "tokenizer.ggml.tokens")->count;
    b->ids = malloc(ctx * sizeof *b->ids);
    for (uint32_t i = 0; b->ids && i < ctx; i++) /* spread over the vocabulary, the same each time */
        b->ids[i] = (int32_t)((uint64_t)(i + 1) * 2654435761u % n_vocab);
    if (!rc && !b->ids)
        rc = ntx_err_set(&err, -ENOMEM, "no memory for %u tokens", ctx);
    if (!rc && !o->json)
        rc = warm_up(b, &err);
    for (unsigned k = 0; !rc && k < b->n; k++)
        rc = run_case(b, k, &err);
    ntx_progress_clear(&b->progress);
    if (!rc)
        rc = report_cases(b, f.gguf, &err);
    for (unsigned k = 0; k < b->n; k++)
        json_decref(b->cases[k].last);
    ntx_client_free(b->client);
    ntx_model_files_close(&f);
    free(b->ids);
    free(b);
    return rc ? ntx_fail(&err) : 0;
}
