/* SPDX-License-Identifier: Apache-2.0 */
/* Measures layer skip on windows that nothing was learned from: the KL divergence from the model without skipping,
 * and how many layers and bytes each threshold leaves out. Beside it a static choice, layer by layer the one that adds
 * least KL. Each run loads the model anew, with a sidecar for the measurement beside the one to be written. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/calibrate.h"
#include "client/commands/commands.h"
#include "client/commands/logits_base.h"
#include "common/util.h"

#define LEAST_FULL 4 /* static: layers that are tried again beside those that were chosen */

static const float thresholds[] = {0.99f, 0.97f, 0.95f, 0.9f, 0.85f, 0.8f, 0.7f, 0.6f, 0.5f, 0.4f, 0.3f};

struct measuring {
    struct ntx_options run; /* of the daemons */
    const struct ntx_kl_text *text;
    struct ntx_sidecar *s;
    struct ntx_base_row *base; /* [windows x scored] */
    struct ntx_base_row row;
    uint32_t n_vocab, scored; /* scored: of a window */
    bool tell;
    unsigned runs;
    char path[4096]; /* of the sidecar for the measurement */
    /* of the present run */
    double kl, skipped, decoded;
};

/* ---- one run over the windows */

static void add_skipped(struct measuring *k, const char *stats)
{
    json_t *j = json_loads(stats && *stats ? stats : "{}", 0, NULL);
    const double n = json_number_value(json_object_get(j, "generated_tokens"));
    k->decoded += n;
    k->skipped += n * json_number_value(json_object_get(j, "skipped_layers_per_token"));
    json_decref(j);
}

static int add_logits(struct measuring *k, const Ntx__LogitsRow *m, uint32_t at, int32_t next, bool base,
                      struct ntx_err *err)
{
    struct ntx_base_row *row = base ? &k->base[at] : &k->row;
    if (m->f32.len != k->n_vocab * sizeof(float))
        return ntx_err_set(err, -EPROTO, "the daemon sent %zu bytes of logits for a vocabulary of %u", m->f32.len,
                           k->n_vocab);
    if (ntx_base_round(row, (const float *)(const void *)m->f32.data, k->n_vocab, next))
        return ntx_err_set(err, -EDOM, "the model's logits are not finite: its weights are damaged");
    if (!base)
        k->kl += ntx_base_kl(&k->base[at], row, k->n_vocab);
    return 0;
}

/* The second half of a window, token by token as in generation if layers are skipped. */
static int measure_window(struct measuring *k, struct ntx_client *c, uint32_t window, bool base, struct ntx_err *err)
{
    const struct ntx_kl_text *t = k->text;
    int32_t *ids = t->ids + (size_t)window * t->ctx;
    Ntx__LogitsReq m = NTX__LOGITS_REQ__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    struct ntx_replies p = {.client = c, .last = NTX__REPLY__BODY_DONE};
    m.tokens = ids;
    m.n_tokens = t->ctx;
    m.from = t->ctx - k->scored - 1;
    m.decode = !base;
    q.body_case = NTX__REQUEST__BODY_LOGITS;
    q.logits = &m;
    int rc = ntx_client_send(c, &q, NULL, 0, &p.id, err);
    uint32_t at = 0;
    while (ntx_client_more(&p, &rc, err)) {
        if (p.reply->body_case == p.last)
            add_skipped(k, p.reply->done->stats_json);
        if (p.reply->body_case != NTX__REPLY__BODY_LOGITS || at == k->scored)
            continue; /* nothing in the window follows its last token */
        rc = add_logits(k, p.reply->logits, window * k->scored + at, ids[m.from + at + 1], base, err);
        at++;
    }
    return rc || at == k->scored
               ? rc
               : ntx_err_set(err, -EPROTO, "the daemon sent %u rows of logits instead of %u", at, k->scored);
}

/* policy: NULL makes the base. */
static int measure_policy(struct measuring *k, const char *policy, struct ntx_err *err)
{
    struct ntx_client *c = NULL;
    struct ntx_model_files f = {0}; /* opened anew: the daemons change how a description reads */
    int rc = policy ? ntx_sidecar_write(k->s, k->path, err) : 0;
    k->kl = k->skipped = k->decoded = 0;
    k->run.sidecar = policy ? k->path : NULL;
    k->run.load.skip = policy;
    if (!rc)
        rc = ntx_captive_model(&k->run, &f, &c, err);
    for (uint32_t w = 0; w < k->text->windows && !rc; w++)
        rc = measure_window(k, c, w, !policy, err);
    ntx_client_free(c);
    ntx_model_files_close(&f);
    if (rc)
        return rc;
    k->kl /= (double)k->text->windows * k->scored;
    k->skipped = k->decoded > 0 ? k->skipped / k->decoded : 0;
    if (k->tell)
        fprintf(stderr, "\r\033[Kmeasuring layer skip: run %u, KL %.4f", ++k->runs, k->kl);
    return 0;
}

/* ---- the two policies */

static void note_point(struct ntx_kl_point *level, const struct ntx_kl_point *p)
{
    for (unsigned i = 0; i < NTX_KL_LEVELS; i++)
        if (p->kl <= ntx_kl_levels[i])
            level[i] = *p;
}

static int measure_predictive(struct measuring *k, struct ntx_kl_table *t, struct ntx_err *err)
{
    double mean = 0;
    int rc = 0;
    for (uint32_t l = k->s->first; l <= k->s->last; l++)
        mean += k->text->share[l] / ntx_sidecar_outputs(k->s);
    for (size_t i = 0; i < sizeof thresholds / sizeof *thresholds && !rc; i++) {
        k->s->threshold = thresholds[i];
        if ((rc = measure_policy(k, "predictive", err)))
            break;
        const struct ntx_kl_point p = {
            .threshold = thresholds[i], .kl = k->kl, .layers = k->skipped, .bytes = k->skipped * mean};
        note_point(t->predictive, &p);
        if (k->kl > ntx_kl_levels[NTX_KL_LEVELS - 1])
            break;
    }
    return rc;
}

static int measure_set(struct measuring *k, const bool *set, struct ntx_kl_point *p, struct ntx_err *err)
{
    *p = (struct ntx_kl_point){.threshold = 0.5f};
    k->s->threshold = 0.5f;
    for (uint32_t l = 0; l < k->s->n_layers; l++) {
        k->s->rate[l] = set[l];
        p->layers += set[l];
        p->bytes += set[l] ? k->text->share[l] : 0;
        p->set[l] = set[l];
    }
    const int rc = measure_policy(k, "static", err);
    p->kl = k->kl;
    return rc;
}

/* Adds the layer that costs least. single: KL of each layer alone; only the LEAST_FULL best are tried. */
static int add_layer(struct measuring *k, bool *set, const double *single, struct ntx_kl_point *best,
                     struct ntx_err *err)
{
    bool tried[NTX_MAX_LAYERS] = {false};
    uint32_t add = NTX_MAX_LAYERS;
    int rc = 0;
    best->kl = INFINITY;
    for (unsigned i = 0; i < LEAST_FULL && !rc; i++) {
        uint32_t next = NTX_MAX_LAYERS;
        struct ntx_kl_point p;
        for (uint32_t l = k->s->first; l <= k->s->last; l++)
            if (!set[l] && !tried[l] && (next == NTX_MAX_LAYERS || single[l] < single[next]))
                next = l;
        if (next == NTX_MAX_LAYERS)
            break;
        tried[next] = set[next] = true;
        rc = measure_set(k, set, &p, err);
        set[next] = false;
        if (!rc && p.kl < best->kl) {
            *best = p;
            add = next;
        }
    }
    if (!rc && add != NTX_MAX_LAYERS)
        set[add] = true;
    return rc;
}

static int measure_static(struct measuring *k, struct ntx_kl_table *t, struct ntx_err *err)
{
    bool set[NTX_MAX_LAYERS] = {false};
    double single[NTX_MAX_LAYERS];
    struct ntx_kl_point p = {.kl = INFINITY};
    int rc = 0;
    for (uint32_t l = k->s->first; l <= k->s->last && !rc; l++) {
        struct ntx_kl_point one;
        set[l] = true;
        rc = measure_set(k, set, &one, err);
        set[l] = false;
        single[l] = one.kl;
        if (!rc && one.kl < p.kl)
            p = one;
    }
    memcpy(set, p.set, sizeof set);
    for (uint32_t n = 1; !rc && p.kl <= ntx_kl_levels[NTX_KL_LEVELS - 1]; n++) {
        note_point(t->fixed, &p);
        if (n == ntx_sidecar_outputs(k->s))
            break;
        rc = add_layer(k, set, single, &p, err);
    }
    return rc;
}

/* ---- all of it */

static int begin_measuring(struct measuring *k, struct ntx_err *err)
{
    const uint32_t rows = k->text->windows * k->scored;
    int rc = ntx_base_row_new(k->n_vocab, &k->row);
    if (!rc)
        rc = (k->base = calloc(rows, sizeof *k->base)) ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < rows && !rc; i++)
        rc = ntx_base_row_new(k->n_vocab, &k->base[i]);
    return rc ? ntx_err_set(err, rc, "no memory for the logits of %u tokens", rows) : 0;
}

static void end_measuring(struct measuring *k)
{
    for (uint32_t i = 0; k->base && i < k->text->windows * k->scored; i++)
        free(k->base[i].q);
    free(k->base);
    free(k->row.q);
    unlink(k->path);
    ntx_clear_progress();
}

int ntx_calibrate_kl(const struct ntx_options *o, const struct ntx_kl_text *text, struct ntx_sidecar *s,
                     struct ntx_kl_table *table, struct ntx_err *err)
{
    const float threshold = s->threshold;
    float *const rate = s->rate;
    struct ntx_kl_table t = {.windows = text->windows};
    struct measuring k = {.run = *o, .text = text, .s = s, .n_vocab = text->n_vocab, .scored = text->ctx / 2 - 1};
    k.tell = !o->quiet && isatty(STDERR_FILENO);
    k.run.load.ctx = text->ctx;
    k.run.load.capture = false;
    k.run.load.capture_ffns = 0;
    k.run.skip_policy[0] = 0;
    k.run.quiet = true;
    if (snprintf(k.path, sizeof k.path, "%s.measuring", o->out) >= (int)sizeof k.path)
        return ntx_err_set(err, -ENAMETOOLONG, "%s: the path is too long", o->out);
    int rc = begin_measuring(&k, err);
    if (!rc)
        rc = measure_policy(&k, NULL, err);
    if (!rc)
        rc = measure_predictive(&k, &t, err);
    if (!rc && !(s->rate = calloc(s->n_layers, sizeof *s->rate)))
        rc = ntx_err_set(err, -ENOMEM, "no memory");
    if (!rc)
        rc = measure_static(&k, &t, err);
    if (s->rate != rate)
        free(s->rate);
    s->rate = rate;
    s->threshold = threshold;
    t.scored = text->windows * k.scored;
    end_measuring(&k);
    if (!rc)
        *table = t;
    return rc;
}
