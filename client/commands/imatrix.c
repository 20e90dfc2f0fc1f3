/* SPDX-License-Identifier: Apache-2.0 */
/* ntx imatrix: runs a text through the daemons in windows, which sum the squared inputs of every matrix, then writes
 * the sums, a tensor at a time, to a file (client/quantize/imatrix.h). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/out.h"
#include "client/progress.h"
#include "client/quantize/imatrix.h"
#include "common/util.h"
#include "model/tensors.h"

struct run {
    const struct ntx_options *o;
    struct ntx_client *c;
    struct ntx_model_files f;
    int32_t *ids, bos;
    uint32_t n, ctx, windows;
    double nll;
    uint32_t scored, n_unseen, n_experts;
    struct ntx_progress line;
    uint64_t began;
};

/* All rows of the window go through all layers, since all but the last are scored. */
static int run_window(struct run *r, uint32_t at, struct ntx_err *err)
{
    Ntx__ScoreReq m = NTX__SCORE_REQ__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    struct ntx_replies p = {.client = r->c, .last = NTX__REPLY__BODY_SCORE};
    m.tokens = r->ids + (size_t)at * r->ctx;
    m.n_tokens = r->ctx;
    m.from = 1;
    if (r->bos >= 0)
        m.tokens[0] = r->bos; /* each window begins like a text */
    q.body_case = NTX__REQUEST__BODY_SCORE;
    q.score = &m;
    int rc = ntx_client_send(r->c, &q, NULL, 0, &p.id, err);
    while (ntx_client_more(&p, &rc, err))
        if (p.reply->body_case == p.last) {
            r->nll += p.reply->score->nll;
            r->scored += p.reply->score->count;
        }
    return rc;
}

static int run_windows(struct run *r, struct ntx_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < r->windows && !rc; i++) {
        if ((rc = run_window(r, i, err)))
            break;
        double left = (double)(ntx_now_ns() - r->began) * 1e-9 * (r->windows - i - 1) / (i + 1);
        ntx_progress_say(&r->line, "window %u of %u, perplexity %.3f, %.0f %s left", i + 1, r->windows,
                         exp(r->nll / NTX_MAX(r->scored, 1u)), left < 120 ? left : left / 60, left < 120 ? "s" : "min");
    }
    ntx_progress_clear(&r->line);
    return rc;
}

/* Stores one matrix of a tensor. */
static int take_sums(struct ntx_importance *k, const Ntx__StatesRow *m, struct ntx_err *err)
{
    if (m->row >= k->n_mat || m->state.len != k->n * sizeof(float) || m->similar.len != sizeof(float))
        return ntx_err_set(err, -EPROTO,
                           "the daemon sent sums of %zu bytes of matrix %u, expected %u floats of %u matrices",
                           m->state.len, m->row, k->n, k->n_mat);
    memcpy(k->sum2 + (size_t)m->row * k->n, m->state.data, m->state.len);
    memcpy(&k->count[m->row], m->similar.data, sizeof(float));
    return 0;
}

static int request_sums(struct run *r, uint32_t tensor, struct ntx_importance *k, uint32_t *got, struct ntx_err *err)
{
    Ntx__StatesReq m = NTX__STATES_REQ__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    struct ntx_replies p = {.client = r->c, .last = NTX__REPLY__BODY_DONE};
    m.sums = true;
    m.tensor = tensor;
    q.body_case = NTX__REQUEST__BODY_STATES;
    q.states = &m;
    int rc = ntx_client_send(r->c, &q, NULL, 0, &p.id, err);
    while (ntx_client_more(&p, &rc, err))
        if (p.reply->body_case == NTX__REPLY__BODY_STATES) {
            rc = take_sums(k, p.reply->states, err);
            ++*got;
        }
    return rc;
}

static int take_tensor(struct run *r, uint32_t tensor, struct ntx_imatrix *out, struct ntx_err *err)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(r->f.gguf, tensor);
    struct ntx_importance k = {.n = (uint32_t)t->ne[0], .n_mat = (uint32_t)t->ne[2]};
    uint32_t got = 0;
    snprintf(k.name, sizeof k.name, "%s", t->name);
    k.sum2 = calloc((size_t)k.n * k.n_mat, sizeof *k.sum2);
    k.count = calloc(k.n_mat, sizeof *k.count);
    int rc = k.sum2 && k.count ? request_sums(r, tensor, &k, &got, err)
                               : ntx_err_set(err, -ENOMEM, "no memory for tensor '%s'", t->name);
    const bool experts = ntx_is_experts(t->name); /* MLA heads have matrices, too, but each token uses all of them */
    for (uint32_t i = 0; !rc && got && experts && i < k.n_mat; i++) {
        r->n_unseen += k.count[i] == 0;
        r->n_experts++;
    }
    if (!rc && got && ntx_imatrix_add(out, &k))
        rc = ntx_err_set(err, -ENOMEM, "no memory for tensor '%s'", t->name);
    free(k.sum2);
    free(k.count);
    return rc;
}

static int cut_windows(struct run *r, const char *path, struct ntx_err *err)
{
    int n = 0, rc = ntx_tokens_of_file(&r->f, path, &r->ids, &n, &r->bos, err);
    if (!rc && n < 2)
        rc = ntx_err_set(err, -EINVAL, "%s: %d tokens are no text; some hundred thousand make a good importance matrix",
                         path, n);
    if (rc)
        return rc;
    r->n = NTX_MIN((uint32_t)n, r->o->limit ? NTX_MAX(r->o->limit, 2u) : UINT32_MAX);
    r->ctx = NTX_MIN(r->ctx, r->n);
    r->windows = r->n / r->ctx;
    return 0;
}

static int write_sums(struct run *r, const char *text, struct ntx_err *err)
{
    struct ntx_imatrix *m = ntx_imatrix_new(strrchr(text, '/') ? strrchr(text, '/') + 1 : text, r->windows, r->ctx);
    int rc = m ? 0 : ntx_err_set(err, -ENOMEM, "no memory");
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(r->f.gguf) && !rc; i++)
        rc = take_tensor(r, (uint32_t)i, m, err);
    if (!rc)
        rc = ntx_imatrix_write(m, r->o->out, err);
    if (!rc && !r->o->quiet)
        printf("%u matrices, %u tokens in %u windows, perplexity %.4f\n", ntx_imatrix_n(m), r->windows * r->ctx,
               r->windows, exp(r->nll / NTX_MAX(r->scored, 1u)));
    if (!rc && !r->o->quiet && ntx_imatrix_tokens(m) < NTX_IMATRIX_FEW)
        ntx_say("%u tokens are few for an importance matrix; some hundred thousand make a good one",
                ntx_imatrix_tokens(m));
    ntx_imatrix_free(m);
    return rc;
}

int ntx_cmd_imatrix(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_model_files loaded = {0};
    struct run r = {.o = o, .ctx = o->load.ctx ? o->load.ctx : 512, .line = ntx_progress_begin(o)};
    if (!o->out)
        return fputs("ntx imatrix: -o FILE is needed; see ntx imatrix --help\n", stderr), NTX_EXIT_USAGE;
    o->load.ctx = r.ctx;
    o->load.sum_inputs = true;
    o->load.backend = "cpu"; /* only the CPU back end sums inputs */
    int rc = ntx_model_files_open(o, o->args[0], &r.f, &err);
    if (!rc && !(rc = cut_windows(&r, o->args[1], &err)) && !(rc = ntx_captive_model(o, &loaded, &r.c, &err))) {
        r.began = ntx_now_ns();
        if (!(rc = run_windows(&r, &err)))
            rc = write_sums(&r, o->args[1], &err);
    }
    ntx_client_free(r.c);
    if (!rc && r.n_unseen && !o->quiet)
        ntx_say(
            "%u of %u experts were never chosen: a longer text would reach more; ntx quantize goes by their own values",
            r.n_unseen, r.n_experts);
    ntx_model_files_close(&loaded);
    ntx_model_files_close(&r.f);
    free(r.ids);
    return rc ? ntx_fail(&err) : 0;
}
