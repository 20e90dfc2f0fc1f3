/* SPDX-License-Identifier: Apache-2.0 */
/* ffn.c: FFNs. In a packed model, which groups of neurons will be active; else, which neurons are active together. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "predictor/learn/learn.h"

#define LEVEL_VALUES (1u << 20) /* about this many values determine a level */

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

float ntx_learn_level(float *v, size_t n, float share)
{
    qsort(v, n, sizeof *v, compare_floats);
    float level = v[NTX_MIN((size_t)((1.0 - (double)share) * (double)n), n - 1)];
    return level > 0 ? level : 0;
}

static int level_of(const float *energy, size_t n, float share, float *level)
{
    size_t step = n / LEVEL_VALUES | 1, k = 0; /* odd, so that all units are sampled */
    float *v = malloc((n / step + 1) * sizeof *v);
    if (!v)
        return -ENOMEM;
    for (size_t i = 0; i < n; i += step)
        v[k++] = energy[i];
    *level = ntx_learn_level(v, k, share);
    free(v);
    return 0;
}

/* ---- quality of the predictions, on the held-out samples */

/* The logit above which the share `recall` of the active groups lies. */
static int limit_for(const float *logits, const uint8_t *y, uint32_t n, uint32_t units, float recall, float *limit)
{
    float *v = malloc((size_t)n * units * sizeof *v);
    size_t k = 0;
    if (!v)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t u = 0; u < units && ntx_sample_held_out(i); u++)
            if (y[(size_t)i * units + u])
                v[k++] = logits[(size_t)i * units + u];
    qsort(v, k, sizeof *v, compare_floats);
    *limit = k ? v[(size_t)((1.0 - (double)recall) * (double)(k - 1))] : 0;
    free(v);
    return 0;
}

static void score_limit(const float *logits, const uint8_t *y, uint32_t n, uint32_t units, float limit,
                        struct ntx_ffn_score *s)
{
    double all = 0, active = 0, predicted = 0, right = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t u = 0; u < units && ntx_sample_held_out(i); u++) {
            size_t k = (size_t)i * units + u;
            all++;
            active += y[k];
            predicted += logits[k] >= limit;
            right += y[k] && logits[k] >= limit;
        }
    s->active = all > 0 ? active / all : 0;
    s->predicted = all > 0 ? predicted / all : 0;
    s->precision = predicted > 0 ? right / predicted : 1;
    s->recall = active > 0 ? right / active : 1;
}

/* The k-th largest of a row. scratch: [n] */
static float kth_largest(const float *v, float *scratch, uint32_t n, uint32_t k)
{
    memcpy(scratch, v, n * sizeof *v);
    qsort(scratch, n, sizeof *v, compare_floats);
    return scratch[n - k];
}

static int score_top(const float *logits, const float *energy, uint32_t n, uint32_t units, struct ntx_ffn_score *s)
{
    uint32_t k = (uint32_t)NTX_MIN(NTX_MAX(s->active * units + 0.5, 1.0), (double)units);
    float *scratch = malloc(units * sizeof *scratch);
    double right = 0, all = 0;
    if (!scratch)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        const float *p = logits + (size_t)i * units, *e = energy + (size_t)i * units;
        if (!ntx_sample_held_out(i))
            continue;
        float least_p = kth_largest(p, scratch, units, k), least_e = kth_largest(e, scratch, units, k);
        for (uint32_t u = 0; u < units; u++)
            right += p[u] >= least_p && e[u] >= least_e && e[u] > 0;
        all += k;
    }
    free(scratch);
    s->top = all > 0 ? right / all : 1;
    return 0;
}

/* ---- a layer */

static int on_epoch(void *ctx, uint32_t epoch, double loss)
{
    const struct ntx_learning *l = ctx;
    if (l->tell)
        fprintf(stderr, "\r\033[Ktraining for FFNs: epoch %u of %u, loss %.4f", epoch + 1, l->epochs, loss);
    return 0;
}

static int learn_groups(struct ntx_ffn_capture *f, uint32_t layer, float *x, const float *energy, uint32_t n,
                        const struct ntx_learning *l)
{
    uint32_t units = f->units[layer];
    struct ntx_mlp_weights *net = &f->learned.net[layer];
    struct ntx_ffn_score *s = &f->score[layer];
    uint8_t *y = malloc((size_t)n * units);
    float *logits = malloc((size_t)n * units * sizeof *logits), level;
    *net = (struct ntx_mlp_weights){.n_in = f->n_embd, .n_hidden = l->ffn_rank, .n_out = units};
    int rc = !y || !logits || ntx_mlp_weights_alloc(net) ? -ENOMEM : 0;
    if (!rc)
        rc = level_of(energy, (size_t)n * units, l->ffn_active, &level);
    for (size_t i = 0; i < (size_t)n * units && !rc; i++)
        y[i] = energy[i] > level;
    if (!rc) {
        ntx_learn_standardize(net, x, n);
        rc = ntx_learn_train(l, x, y, n, on_epoch, net);
    }
    if (!rc && !(rc = ntx_learn_logits(net, x, n, logits)) &&
        !(rc = limit_for(logits, y, n, units, l->ffn_recall, &f->learned.limit[layer]))) {
        score_limit(logits, y, n, units, f->learned.limit[layer], s);
        rc = score_top(logits, energy, n, units, s);
    }
    free(y);
    free(logits);
    return rc;
}

static int learn_order(struct ntx_ffn_capture *f, uint32_t layer, const float *energy, uint32_t n,
                       const struct ntx_learning *l)
{
    float level;
    int rc = level_of(energy, (size_t)n * f->n_ff, l->ffn_active, &level);
    if (rc)
        return rc;
    return ntx_learn_order(energy, n, f->n_ff, level, f->learned.order + (size_t)layer * f->n_ff, &f->score[layer]);
}

int ntx_learn_ffn(struct ntx_ffn_capture *f, uint32_t layer, float *x, const float *energy, uint32_t n,
                  const struct ntx_learning *l)
{
    return f->packed ? learn_groups(f, layer, x, energy, n, l) : learn_order(f, layer, energy, n, l);
}
