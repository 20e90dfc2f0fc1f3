/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the results of training, as text and as JSON. All figures are of the held-out part, at the threshold
 * written. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "client/commands/calibrate.h"
#include "client/out.h"
#include "common/util.h"

#define COLUMNS 64 /* tokens in the picture */

struct score {
    double alike, skipped, right, n; /* counts: may be skipped, skipped, skipped rightly, all tokens */
};

static float limit_of(const struct ntx_sidecar *s) { return logf(s->threshold / (1 - s->threshold)); }

static struct score score_of(const struct ntx_samples *a, const struct ntx_sidecar *s, uint32_t o)
{
    struct score c = {0};
    uint32_t out = ntx_sidecar_outputs(s);
    float limit = limit_of(s);
    for (uint32_t i = 0; i < a->n; i++) {
        size_t k = (size_t)i * out + o;
        if (!ntx_sample_held_out(i))
            continue;
        c.n++;
        c.alike += a->y[k];
        c.skipped += a->p[k] >= limit;
        c.right += a->p[k] >= limit && a->y[k];
    }
    return c;
}

static struct score total_of(const struct ntx_samples *a, const struct ntx_sidecar *s)
{
    struct score t = {0};
    for (uint32_t o = 0; o < ntx_sidecar_outputs(s); o++) {
        struct score c = score_of(a, s, o);
        t.alike += c.alike;
        t.skipped += c.skipped;
        t.right += c.right;
        t.n += c.n;
    }
    return t;
}

static double ratio(double x, double of) { return of > 0 ? x / of : 0; }
static double precision(struct score c) { return c.skipped > 0 ? c.right / c.skipped : 1; }
static double recall(struct score c) { return ratio(c.right, c.alike); }
static double false_rate(struct score c) { return ratio(c.skipped - c.right, c.n - c.alike); }

static double mean_part(const struct ntx_samples *a, unsigned part, uint32_t layer)
{
    double sum = 0;
    for (uint32_t i = 0; i < a->n; i++)
        sum += (double)a->similar[((size_t)i * 3 + part) * a->n_layers + layer];
    return sum / a->n;
}

static void print_layers(const struct ntx_samples *a, const struct ntx_sidecar *s)
{
    printf("layer   cosine     sd   attn    ffn   alike  skipped  precision  recall  false-skip\n");
    for (uint32_t l = 0; l < s->n_layers; l++) {
        printf("%5u   %6.3f %6.3f %6.3f %6.3f", l, (double)s->mean[l], (double)s->sd[l], mean_part(a, 1, l),
               mean_part(a, 2, l));
        if (l < s->first || l > s->last) {
            printf("   never skipped\n");
            continue;
        }
        struct score c = score_of(a, s, l - s->first);
        printf("   %5.3f    %5.3f      %5.3f   %5.3f       %5.3f\n", ratio(c.alike, c.n), ratio(c.skipped, c.n),
               precision(c), recall(c), false_rate(c));
    }
}

/* Shows the first held-out tokens, a column each. */
static void print_picture(const struct ntx_samples *a, const struct ntx_sidecar *s)
{
    uint32_t out = ntx_sidecar_outputs(s), from = 0;
    float limit = limit_of(s);
    while (from < a->n && !ntx_sample_held_out(from))
        from++;
    printf("\nlayers by tokens (# skipped, x skipped wrongly, o could have been, . computed):\n");
    for (uint32_t o = 0; o < out; o++) {
        printf("%5u   ", s->first + o);
        for (uint32_t i = from; i < a->n && i < from + COLUMNS; i++) {
            size_t k = (size_t)i * out + o;
            const char *marks = a->p[k] >= limit ? "x#" : ".o"; /* wrong or right to skip */
            putchar(marks[a->y[k] != 0]);
        }
        putchar('\n');
    }
}

static void print_ffn(const struct ntx_ffn_capture *f)
{
    if (f->packed)
        printf("\ngroups of neurons, on what was held out\nlayer  active  predicted  precision  recall  of as many as "
               "are active\n");
    else
        printf("\nshare of groups that a token uses, of 4, 8 and 16 neurons, on what was held out: as they are; as "
               "ordered for ntx pack --order\n");
    for (uint32_t l = 0; l < f->n_layers; l++) {
        const struct ntx_ffn_score *s = &f->score[l];
        if (f->packed)
            printf("%5u   %5.3f      %5.3f      %5.3f   %5.3f  %5.3f\n", l, s->active, s->predicted, s->precision,
                   s->recall, s->top);
        else
            printf("%5u   %5.3f %5.3f %5.3f   %5.3f %5.3f %5.3f\n", l, s->before[0], s->before[1], s->before[2],
                   s->after[0], s->after[1], s->after[2]);
    }
}

static void print_point(const char *policy, double level, const struct ntx_kl_point *p, bool layers)
{
    if (!(p->threshold > 0)) {
        printf("%-10s  %.3f   none\n", policy, level);
        return;
    }
    printf("%-10s  %.3f   %6.2f   %5.1f %%   %.4f   ", policy, level, p->layers, 100 * p->bytes, p->kl);
    if (!layers)
        printf("threshold %.2f", (double)p->threshold);
    for (uint32_t l = 0, n = 0; layers && l < NTX_MAX_LAYERS; l++)
        if (p->set[l])
            printf("%s%u", n++ ? ", " : "layers ", l);
    putchar('\n');
}

void ntx_calibrate_print_kl(const struct ntx_kl_table *kl)
{
    printf("most that keeps a KL divergence, on %u tokens that nothing was learned from; bytes: of the weights that a "
           "token uses\npolicy      level   layers     bytes   KL\n",
           kl->scored);
    for (unsigned i = 0; i < NTX_KL_LEVELS; i++)
        print_point("predictive", ntx_kl_levels[i], &kl->predictive[i], false);
    for (unsigned i = 0; i < NTX_KL_LEVELS; i++)
        print_point("static", ntx_kl_levels[i], &kl->fixed[i], true);
    putchar('\n');
}

void ntx_calibrate_report(const struct ntx_samples *a, const struct ntx_sidecar *s, const struct ntx_ffn_capture *ffn,
                          const struct ntx_kl_table *kl)
{
    if (kl)
        ntx_calibrate_print_kl(kl);
    struct score t = total_of(a, s);
    printf("%u tokens; layers %u to %u may be skipped, decided from the state after layer %u\n", a->n, s->first,
           s->last, s->first - 1);
    printf("alike: a cosine of a layer's input and output of at least %.4f; threshold %.2f\n", (double)s->similarity,
           (double)s->threshold);
    printf("held out: precision %.3f, recall %.3f, false-skip rate %.3f (of layers that should be computed), %.2f "
           "layers skipped per token\n\n",
           precision(t), recall(t), false_rate(t), ratio(t.skipped, t.n) * ntx_sidecar_outputs(s));
    print_layers(a, s);
    print_picture(a, s);
    if (ffn)
        print_ffn(ffn);
}

static json_t *json_of_score(struct score c)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "alike", ratio(c.alike, c.n), "skipped", ratio(c.skipped, c.n),
                     "precision", precision(c), "recall", recall(c), "false_skip", false_rate(c));
}

static json_t *json_of_shares(const double v[3]) { return json_pack("[f, f, f]", v[0], v[1], v[2]); }

static json_t *json_of_ffn(const struct ntx_ffn_capture *f)
{
    json_t *layers = json_array();
    for (uint32_t l = 0; l < f->n_layers; l++) {
        const struct ntx_ffn_score *s = &f->score[l];
        json_array_append_new(layers, f->packed ? json_pack("{s:f, s:f, s:f, s:f, s:f}", "active", s->active,
                                                            "predicted", s->predicted, "precision", s->precision,
                                                            "recall", s->recall, "top", s->top)
                                                : json_pack("{s:o, s:o}", "groups_before", json_of_shares(s->before),
                                                            "groups_after", json_of_shares(s->after)));
    }
    return layers;
}

static json_t *json_of_points(const struct ntx_kl_point *p, bool fixed)
{
    json_t *points = json_array();
    for (unsigned i = 0; i < NTX_KL_LEVELS; i++) {
        json_t *j = json_pack("{s:f, s:f, s:f, s:f, s:f}", "level", ntx_kl_levels[i], "kl", p[i].kl, "layers",
                              p[i].layers, "bytes", p[i].bytes, "threshold", (double)p[i].threshold);
        json_t *set = fixed ? json_array() : NULL;
        for (uint32_t l = 0; set && l < NTX_MAX_LAYERS; l++)
            if (p[i].set[l])
                json_array_append_new(set, json_integer(l));
        if (set)
            json_object_set_new(j, "set", set);
        json_array_append_new(points, j);
    }
    return points;
}

int ntx_calibrate_json(const struct ntx_samples *a, const struct ntx_sidecar *s, const struct ntx_ffn_capture *ffn,
                       const struct ntx_kl_table *kl)
{
    json_t *j = json_pack("{s:i, s:i, s:i, s:f, s:f, s:o}", "tokens", (int)a->n, "first", (int)s->first, "last",
                          (int)s->last, "threshold", (double)s->threshold, "similarity", (double)s->similarity,
                          "held_out", json_of_score(total_of(a, s)));
    json_t *layers = json_array();
    for (uint32_t l = 0; l < s->n_layers; l++) {
        json_t *e = l < s->first || l > s->last ? json_object() : json_of_score(score_of(a, s, l - s->first));
        json_object_set_new(e, "layer", json_integer(l));
        json_object_set_new(e, "cosine", json_real((double)s->mean[l]));
        json_object_set_new(e, "cosine_sd", json_real((double)s->sd[l]));
        json_object_set_new(e, "cosine_attn", json_real(mean_part(a, 1, l)));
        json_object_set_new(e, "cosine_ffn", json_real(mean_part(a, 2, l)));
        json_array_append_new(layers, e);
    }
    if (ffn)
        json_object_set_new(j, "ffn", json_of_ffn(ffn));
    if (kl)
        json_object_set_new(j, "kl",
                            json_pack("{s:i, s:o, s:o}", "tokens", (int)kl->scored, "predictive",
                                      json_of_points(kl->predictive, false), "static",
                                      json_of_points(kl->fixed, true)));
    if (!j || json_object_set_new(j, "layers", layers))
        return -ENOMEM;
    ntx_out_json(j, JSON_COMPACT);
    json_decref(j);
    return 0;
}
