/* SPDX-License-Identifier: Apache-2.0 */
/* ntx perplexity: runs windows of a text through the daemons, alone or compared with an earlier run (logits_base.h). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/commands/logits_base.h"
#include "client/out.h"
#include "model/arch.h"
#include "model/tokenizer.h"

struct run {
    struct ntx_client *c;
    int32_t *ids, bos;
    size_t n, ctx;
    uint32_t windows, count; /* count: scored tokens */
    double nll;
    /* with --save-logits or --kl */
    struct ntx_base_writer *save;
    struct ntx_base_reader *base;
    uint32_t n_vocab;
    struct ntx_base_row row, base_row;
    double *kl, *change; /* [windows * scored]; change: nll less the base's */
    uint32_t same_top;
    double base_nll;
    bool decode; /* with layer skip or sparse FFN, the scored half is fed token by token, as in generation */
    double decoded, skipped, bytes, seconds; /* with `decode` */
    double early, late, wasted; /* chunks of skipped layers: cancelled before the read, read all the same; bytes of
                                 * the latter */
};

static size_t scored_from(const struct run *r) { return r->ctx / 2 + 1; }

/* Adds up the statistics of a window that was fed token by token. */
static void take_stats(struct run *r, const char *text)
{
    json_t *j = json_loads(text && *text ? text : "{}", 0, NULL);
    double n = json_number_value(json_object_get(j, "generated_tokens")),
           rate = json_number_value(json_object_get(j, "decode_tok_s"));
    if (n > 1 && r->decode) {
        r->decoded += n;
        r->skipped += n * json_number_value(json_object_get(j, "skipped_layers_per_token"));
        r->bytes += n * json_number_value(json_object_get(j, "bytes_read_per_token"));
        r->seconds += rate > 0 ? n / rate : 0;
        r->early += json_number_value(json_object_get(j, "skip_early_chunks"));
        r->late += json_number_value(json_object_get(j, "skip_late_chunks"));
        r->wasted += json_number_value(json_object_get(j, "skip_wasted_bytes"));
    }
    json_decref(j);
}

/* Sum of -log p over the second half of one window, as the daemons computed it. */
static int score_window(struct run *r, int32_t *ids, struct ntx_err *err)
{
    Ntx__ScoreReq m = NTX__SCORE_REQ__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    struct ntx_replies p = {.client = r->c, .last = NTX__REPLY__BODY_SCORE};
    m.tokens = ids;
    m.n_tokens = r->ctx;
    m.from = (uint32_t)scored_from(r);
    m.decode = r->decode;
    q.body_case = NTX__REQUEST__BODY_SCORE;
    q.score = &m;
    int rc = ntx_client_send(r->c, &q, NULL, 0, &p.id, err);
    while (ntx_client_more(&p, &rc, err))
        if (p.reply->body_case == p.last) {
            r->nll += p.reply->score->nll;
            r->count += p.reply->score->count;
            take_stats(r, p.reply->score->stats_json);
        }
    return rc;
}

/* Scores one token: `next` followed these logits. */
static int score_row(struct run *r, const Ntx__LogitsRow *m, int32_t next, struct ntx_err *err)
{
    int rc = 0;
    if (m->f32.len != r->n_vocab * sizeof(float))
        return ntx_err_set(err, -EPROTO, "the daemon sent %zu bytes of logits for a vocabulary of %u", m->f32.len,
                           r->n_vocab);
    if (ntx_base_round(&r->row, (const float *)m->f32.data, r->n_vocab, next))
        return ntx_err_set(err, -EDOM, "the model's logits are not finite: its weights are damaged");
    if (r->save)
        rc = ntx_base_write(r->save, &r->row, err);
    if (!rc && r->base && !(rc = ntx_base_read(r->base, &r->base_row, err))) {
        r->kl[r->count] = ntx_base_kl(&r->base_row, &r->row, r->n_vocab);
        r->change[r->count] = r->row.nll - r->base_row.nll;
        r->same_top += r->base_row.top == r->row.top;
        r->base_nll += r->base_row.nll;
    }
    r->nll += r->row.nll;
    r->count++;
    return rc;
}

/* The same window, with its logits in this process. */
static int logits_window(struct run *r, int32_t *ids, struct ntx_err *err)
{
    Ntx__LogitsReq m = NTX__LOGITS_REQ__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    struct ntx_replies p = {.client = r->c, .last = NTX__REPLY__BODY_DONE};
    m.tokens = ids;
    m.n_tokens = r->ctx;
    m.from = (uint32_t)scored_from(r) - 1;
    m.decode = r->decode;
    q.body_case = NTX__REQUEST__BODY_LOGITS;
    q.logits = &m;
    int rc = ntx_client_send(r->c, &q, NULL, 0, &p.id, err);
    uint32_t next = m.from;
    while (ntx_client_more(&p, &rc, err)) {
        if (p.reply->body_case == p.last)
            take_stats(r, p.reply->done->stats_json);
        if (p.reply->body_case == NTX__REPLY__BODY_LOGITS && p.reply->logits->row != next++)
            rc = ntx_err_set(err, -EPROTO, "the daemon sent rows of logits out of order");
        else if (p.reply->body_case == NTX__REPLY__BODY_LOGITS &&
                 next < r->ctx) /* the last token has no successor in this window */
            rc = score_row(r, p.reply->logits, ids[next], err);
    }
    if (!rc && next != r->ctx)
        rc = ntx_err_set(err, -EPROTO, "the daemon sent %u rows of logits instead of %zu", next - m.from,
                         r->ctx - m.from);
    return rc;
}

int ntx_tokens_of_file(const struct ntx_model_files *f, const char *path, int32_t **ids, int *n, int32_t *bos,
                       struct ntx_err *err)
{
    struct ntx_tokenizer *t = NULL;
    char *text = NULL;
    size_t len = 0;
    FILE *in = fopen(path, "rb");
    int rc = in ? ntx_read_stream(in, &text, &len) : -errno;
    if (in)
        fclose(in);
    if (rc)
        return ntx_err_set(err, rc, "%s: cannot read the text: %s", path, strerror(-rc));
    rc = ntx_tokenizer_open(f->gguf, &t, err);
    if (!rc && (*n = ntx_tokenize(t, text, len, NTX_TOK_BOS, ids)) < 0)
        rc = ntx_err_set(err, *n, "%s: cannot tokenize: %s", path, strerror(-*n));
    if (!rc)
        *bos = *n && (*ids)[0] == ntx_tokenizer_bos(t) ? (*ids)[0] : -1;
    ntx_tokenizer_free(t);
    free(text);
    return rc;
}

static int tokens_of_file(const struct ntx_model_files *f, const char *path, struct run *r, struct ntx_err *err)
{
    int n = 0, rc = ntx_tokens_of_file(f, path, &r->ids, &n, &r->bos, err);
    if (!rc)
        r->n = (size_t)n;
    if (!rc && r->n < 2 * r->ctx)
        rc = ntx_err_set(err, -EINVAL, "%s: %zu tokens; at least %zu are needed for windows of %zu (--ctx)", path, r->n,
                         2 * r->ctx, r->ctx);
    if (rc)
        return rc;
    r->windows = (uint32_t)(r->n / r->ctx);
    for (size_t i = 0; r->bos >= 0 && i < r->windows; i++)
        r->ids[i * r->ctx] = r->bos; /* each window begins like a text */
    return 0;
}

static int check_same_text(const struct run *r, const char *base, const char *text, struct ntx_err *err)
{
    const struct ntx_base_head *h = ntx_base_head(r->base);
    const int32_t *ids = ntx_base_tokens(r->base);
    if (h->n_vocab != r->n_vocab)
        return ntx_err_set(
            err, -EINVAL,
            "%s: logits of a model with %u tokens in its vocabulary, this one has %u: they cannot be compared", base,
            h->n_vocab, r->n_vocab);
    for (size_t i = 0; i < (size_t)h->windows * h->ctx && i < (size_t)r->windows * r->ctx; i++)
        if (ids[i] != r->ids[i])
            return ntx_err_set(err, -EINVAL,
                               "%s: made from another text or vocabulary than %s (token %zu is %d there, %d here)",
                               base, text, i, ids[i], r->ids[i]);
    if (h->windows != r->windows)
        return ntx_err_set(err, -EINVAL, "%s: made from another text than %s (%u windows there, %u here)", base, text,
                           h->windows, r->windows);
    return 0;
}

/* The vocabulary gives the row's size: the daemons refuse a model whose output is smaller, and score_row refuses a
 * longer row. */
static int prepare_rows(struct run *r, const struct ntx_options *o, const struct ntx_model_files *f,
                        struct ntx_err *err)
{
    const struct ntx_gguf_tensor *out = ntx_end_tensor(f->gguf, NTX_END_token_embd);
    uint32_t scored = (uint32_t)(r->ctx - scored_from(r));
    struct ntx_base_head h = {.ctx = (uint32_t)r->ctx, .windows = r->windows, .scored = scored};
    int rc;
    if (!out)
        return ntx_err_set(err, -EINVAL, "%s: no token_embd.weight", o->args[0]);
    h.n_vocab = r->n_vocab = (uint32_t)out->ne[1];
    snprintf(h.model, sizeof h.model, "%s", strrchr(o->args[0], '/') ? strrchr(o->args[0], '/') + 1 : o->args[0]);
    if (ntx_base_row_new(r->n_vocab, &r->row) || ntx_base_row_new(r->n_vocab, &r->base_row) ||
        !(r->kl = calloc((size_t)r->windows * scored, sizeof *r->kl)) ||
        !(r->change = calloc((size_t)r->windows * scored, sizeof *r->change)))
        return ntx_err_set(err, -ENOMEM, "no memory for the logits");
    if (r->base && (rc = check_same_text(r, o->kl, o->args[1], err)))
        return rc;
    return o->save_logits ? ntx_base_create(o->save_logits, &h, r->ids, &r->save, err) : 0;
}

static int run_windows(struct run *r, const struct ntx_options *o, struct ntx_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && i < r->windows; i++) {
        int32_t *ids = r->ids + i * r->ctx;
        rc = r->save || r->base ? logits_window(r, ids, err) : score_window(r, ids, err);
        if (!rc && !o->quiet && !o->json && isatty(STDERR_FILENO))
            fprintf(stderr, "\r\033[Kwindow %u of %u: %.4f", i + 1, r->windows, exp(r->nll / r->count));
    }
    ntx_clear_progress();
    return rc;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Quantile of sorted values, interpolated linearly. */
static double quantile(const double *v, uint32_t n, double q)
{
    double at = q * (n - 1);
    uint32_t i = (uint32_t)at;
    return i + 1 < n ? v[i] + (at - i) * (v[i + 1] - v[i]) : v[n - 1];
}

struct estimate {
    double mean, error; /* error: the standard error of the mean */
};

static struct estimate estimate(const double *v, uint32_t n)
{
    double sum = 0, square = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += v[i];
    const double mean = sum / n;
    for (uint32_t i = 0; i < n; i++)
        square += (v[i] - mean) * (v[i] - mean);
    return (struct estimate){mean, n > 1 ? sqrt(square / (n - 1) / n) : 0};
}

/* [change, KL] of each window: so two runs beside the same base can be compared window by window. */
static json_t *json_of_windows(const struct run *r)
{
    const uint32_t scored = r->count / r->windows;
    json_t *a = json_array();
    for (uint32_t i = 0; a && i < r->windows; i++)
        json_array_append_new(a, json_pack("[f,f]", estimate(r->change + i * scored, scored).mean,
                                           estimate(r->kl + i * scored, scored).mean));
    return a;
}

static json_t *json_of_results(struct run *r)
{
    json_t *j = json_pack("{s:f, s:f, s:i, s:i, s:i}", "perplexity", exp(r->nll / r->count), "nll", r->nll / r->count,
                          "tokens", (int)r->count, "windows", (int)r->windows, "ctx", (int)r->ctx);
    if (r->decoded > 0 && j) {
        json_object_set_new(j, "skipped_layers_per_token", json_real(r->skipped / r->decoded));
        json_object_set_new(j, "bytes_read_per_token", json_real(r->bytes / r->decoded));
        json_object_set_new(j, "decode_tok_s", json_real(r->seconds > 0 ? r->decoded / r->seconds : 0));
        json_object_set_new(j, "skip_early_chunks", json_integer((json_int_t)r->early));
        json_object_set_new(j, "skip_late_chunks", json_integer((json_int_t)r->late));
        json_object_set_new(j, "skip_wasted_bytes", json_integer((json_int_t)r->wasted));
    }
    if (!r->base || !j)
        return j;
    const struct estimate kl = estimate(r->kl, r->count), change = estimate(r->change, r->count);
    json_object_set_new(j, "by_window", json_of_windows(r));
    qsort(r->kl, r->count, sizeof *r->kl, compare_doubles);
    char name[512];
    json_t *k = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "base",
                          ntx_out_line(ntx_base_head(r->base)->model, name, sizeof name), "base_perplexity",
                          exp(r->base_nll / r->count), "base_nll", r->base_nll / r->count, "change", change.mean,
                          "change_error", change.error, "kl_mean", kl.mean, "kl_error", kl.error, "kl_median",
                          quantile(r->kl, r->count, 0.5), "kl_99", quantile(r->kl, r->count, 0.99), "kl_max",
                          r->kl[r->count - 1], "top1_agreement", (double)r->same_top / r->count);
    json_object_update(j, k);
    json_decref(k);
    return j;
}

static double stat_number(const json_t *j, const char *key) { return json_number_value(json_object_get(j, key)); }

static int print_perplexity_report(struct run *r, const struct ntx_options *o, struct ntx_err *err)
{
    json_t *j = json_of_results(r);
    if (!j)
        return ntx_err_set(err, -ENOMEM, "no memory");
    if (o->json)
        ntx_out_json(j, JSON_COMPACT);
    else
        printf("perplexity %.4f over %u tokens in %u windows of %zu\n", stat_number(j, "perplexity"), r->count,
               r->windows, r->ctx);
    if (r->decoded > 0 && !o->json)
        printf("%.3f layers skipped and %.0f bytes read per token, %.2f tok/s (the scored half, token by token)\n",
               stat_number(j, "skipped_layers_per_token"), stat_number(j, "bytes_read_per_token"),
               stat_number(j, "decode_tok_s"));
    if (r->base && !o->json) {
        ntx_out_format("base %.4f (%s), change of ln perplexity %+.4f ± %.4f\n", stat_number(j, "base_perplexity"),
                       json_string_value(json_object_get(j, "base")), stat_number(j, "change"),
                       stat_number(j, "change_error"));
        printf("KL divergence mean %.6f ± %.6f, median %.6f, 99%% %.6f, largest %.6f\n", stat_number(j, "kl_mean"),
               stat_number(j, "kl_error"), stat_number(j, "kl_median"), stat_number(j, "kl_99"),
               stat_number(j, "kl_max"));
        printf("likeliest token agrees %.2f %%\n", 100 * stat_number(j, "top1_agreement"));
    }
    int rc = ntx_write_stats(o, j, err);
    json_decref(j);
    return rc;
}

/* --kl takes its windows from the base. */
static int open_base(struct run *r, struct ntx_options *o, struct ntx_err *err)
{
    int rc = ntx_base_open(o->kl, &r->base, err);
    if (rc)
        return rc;
    uint32_t ctx = ntx_base_head(r->base)->ctx;
    if (o->load.ctx && o->load.ctx != ctx)
        return ntx_err_set(err, -EINVAL, "%s: made with windows of %u tokens: leave --ctx out, or give that", o->kl,
                           ctx);
    o->load.ctx = ctx;
    return 0;
}

static bool is_sparse(const struct ntx_options *o)
{
    return o->load.ffn_sparse &&
           (!strncmp(o->load.ffn_sparse, "predicted", 9) || !strncmp(o->load.ffn_sparse, "prompt", 6));
}

int ntx_cmd_perplexity(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_model_files f = {0};
    struct run r = {0};
    int rc = 0;
    if (o->kl && o->save_logits)
        return fputs("ntx perplexity: --kl and --save-logits exclude each other\n", stderr), NTX_EXIT_USAGE;
    if (o->kl)
        rc = open_base(&r, o, &err);
    if (!o->load.ctx)
        o->load.ctx = 512;
    r.ctx = o->load.ctx;
    r.decode = !ntx_skip_off(o->load.skip) || is_sparse(o);
    if (!rc && r.ctx < 4)
        rc = ntx_err_set(&err, -EINVAL, "--ctx %zu: windows of at least 4 tokens are needed", r.ctx);
    if (!rc)
        rc = ntx_check_readable(o->args[1], &err);
    if (!rc)
        rc = ntx_captive_model(o, &f, &r.c, &err);
    if (!rc)
        rc = tokens_of_file(&f, o->args[1], &r, &err);
    if (!rc && (o->kl || o->save_logits))
        rc = prepare_rows(&r, o, &f, &err);
    if (!rc)
        rc = run_windows(&r, o, &err);
    int end = ntx_base_finish(r.save, !rc, rc ? NULL : &err);
    if (!rc && !(rc = end))
        rc = print_perplexity_report(&r, o, &err);
    ntx_base_close(r.base);
    free(r.row.q);
    free(r.base_row.q);
    free(r.kl);
    free(r.change);
    free(r.ids);
    ntx_client_free(r.c);
    ntx_model_files_close(&f);
    return rc ? ntx_fail(&err) : 0;
}
