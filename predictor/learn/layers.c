/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c: from samples to a sidecar: the similarity limit, the network, and the threshold of its decisions. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "predictor/learn/learn.h"

static float layer_similarity(const struct ntx_samples *a, uint32_t i, uint32_t layer)
{
    return a->similar[(size_t)i * 3 * a->n_layers + layer];
}

static int compare_similarities(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Finds the cosine that the share `share` of all (token, layer) pairs reaches. */
static int choose_similarity(const struct ntx_samples *a, float share, struct ntx_sidecar *s)
{
    uint32_t out = ntx_sidecar_outputs(s);
    size_t n = (size_t)a->n * out;
    float *v = malloc(n * sizeof *v);
    if (!v)
        return -ENOMEM;
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t o = 0; o < out; o++)
            v[(size_t)i * out + o] = layer_similarity(a, i, s->first + o);
    qsort(v, n, sizeof *v, compare_similarities);
    s->similarity = v[NTX_MIN((size_t)((1.0 - (double)share) * (double)n), n - 1)];
    free(v);
    return 0;
}

static void measure_layers(const struct ntx_samples *a, struct ntx_sidecar *s)
{
    for (uint32_t l = 0; l < s->n_layers; l++) {
        double sum = 0, squares = 0, alike = 0;
        for (uint32_t i = 0; i < a->n; i++) {
            double c = (double)layer_similarity(a, i, l);
            sum += c;
            squares += c * c;
            alike += c >= (double)s->similarity;
        }
        double mean = sum / a->n;
        s->mean[l] = (float)mean;
        s->sd[l] = (float)sqrt(fmax(squares / a->n - mean * mean, 0));
        s->rate[l] = l >= s->first && l <= s->last ? (float)(alike / a->n) : 0;
    }
}

static int label_samples(struct ntx_samples *a, const struct ntx_sidecar *s)
{
    uint32_t out = ntx_sidecar_outputs(s);
    a->y = malloc((size_t)a->n * out);
    a->p = malloc((size_t)a->n * out * sizeof *a->p);
    if (!a->y || !a->p)
        return -ENOMEM;
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t o = 0; o < out; o++)
            a->y[(size_t)i * out + o] = layer_similarity(a, i, s->first + o) >= s->similarity;
    return 0;
}

static int on_epoch(void *ctx, uint32_t epoch, double loss)
{
    const struct ntx_learning *l = ctx;
    if (l->tell)
        fprintf(stderr, "\r\033[Ktraining: epoch %u of %u, loss %.4f", epoch + 1, l->epochs, loss);
    return 0;
}

static int train_network(const struct ntx_samples *a, const struct ntx_learning *l, struct ntx_sidecar *s)
{
    struct ntx_mlp_weights net = ntx_sidecar_net(s);
    return ntx_learn_train(l, a->x, a->y, a->n, on_epoch, &net);
}

/* Uses the network as at run time, in 8 bits. */
static int predict_samples(struct ntx_samples *a, const struct ntx_sidecar *s)
{
    struct ntx_mlp_weights net = ntx_sidecar_net(s);
    return ntx_learn_logits(&net, a->x, a->n, a->p);
}

int ntx_learn_layers(struct ntx_samples *a, const struct ntx_learning *l, struct ntx_sidecar *s, struct ntx_err *err)
{
    if (a->n < 320)
        return ntx_err_set(err, -EINVAL,
                           "only %u tokens to learn from: give a longer text, some thousand words at least", a->n);
    int rc = choose_similarity(a, l->share, s);
    if (!rc) {
        measure_layers(a, s);
        struct ntx_mlp_weights net = ntx_sidecar_net(s);
        ntx_learn_standardize(&net, a->x, a->n);
        rc = label_samples(a, s);
    }
    if (!rc)
        rc = train_network(a, l, s);
    if (!rc)
        rc = predict_samples(a, s);
    if (l->tell)
        fputs("\r\033[K", stderr);
    if (rc)
        return ntx_err_set(err, rc, "cannot train the skip predictor: %s", strerror(-rc));
    s->n_tokens = a->n;
    return 0;
}

void ntx_samples_free(struct ntx_samples *a)
{
    free(a->x);
    free(a->similar);
    free(a->y);
    free(a->p);
    *a = (struct ntx_samples){0};
}
