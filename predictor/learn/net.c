/* SPDX-License-Identifier: Apache-2.0 */
/* net.c: trains a network from samples, for layers and for groups of neurons. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "predictor/learn/learn.h"
#include "predictor/learn/train.h"

/* Scales each value of the state to mean 0 and deviation 1, then quantises and clips it as at run time. */
void ntx_learn_standardize(const struct ntx_mlp_weights *net, float *x, uint32_t n)
{
    for (uint32_t k = 0; k < net->n_in; k++) {
        double sum = 0, squares = 0;
        for (uint32_t i = 0; i < n; i++) {
            double v = (double)x[(size_t)i * net->n_in + k];
            sum += v;
            squares += v * v;
        }
        double mean = sum / n, var = fmax(squares / n - mean * mean, 0);
        net->mean[k] = (float)mean;
        net->scale[k] = var > 1e-12 ? (float)(1 / sqrt(var)) : 0;
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < net->n_in; k++) {
            float *v = &x[(size_t)i * net->n_in + k];
            *v = (float)ntx_mlp_quantize((*v - net->mean[k]) * net->scale[k]) / NTX_MLP_STEPS;
        }
}

int ntx_learn_train(const struct ntx_learning *l, const float *x, const uint8_t *y, uint32_t n_samples,
                    int (*progress)(void *ctx, uint32_t epoch, double loss), const struct ntx_mlp_weights *net)
{
    uint32_t *order = malloc(n_samples * sizeof *order), n = 0;
    if (!order)
        return -ENOMEM;
    for (uint32_t i = 0; i < n_samples; i++)
        if (!ntx_sample_held_out(i))
            order[n++] = i;
    struct ntx_train t = {.x = x,
                          .y = y,
                          .order = order,
                          .n = n,
                          .epochs = l->epochs,
                          .batch = 64,
                          .threads = l->threads,
                          .rate = 1e-3f,
                          .seed = l->seed,
                          .progress = progress,
                          .ctx = (void *)(uintptr_t)l};
    int rc = ntx_train_run(&t, net);
    free(order);
    return rc;
}

/* The samples are already standardised, so mean and scale are 0 and 1. */
int ntx_learn_logits(const struct ntx_mlp_weights *net, const float *x, uint32_t n, float *logits)
{
    struct ntx_mlp_weights plain = *net;
    struct ntx_mlp *mlp = NULL;
    void *scratch = NULL;
    plain.mean = calloc(net->n_in, sizeof(float));
    plain.scale = malloc(net->n_in * sizeof(float));
    int rc = plain.mean && plain.scale ? 0 : -ENOMEM;
    for (uint32_t k = 0; k < net->n_in && !rc; k++)
        plain.scale[k] = 1;
    if (!rc)
        rc = ntx_mlp_new(&plain, NULL, &mlp);
    if (!rc && !(scratch = malloc(ntx_mlp_scratch(mlp))))
        rc = -ENOMEM;
    for (uint32_t i = 0; i < n && !rc; i++)
        ntx_mlp_logits(mlp, x + (size_t)i * net->n_in, scratch, logits + (size_t)i * net->n_out);
    free(plain.mean);
    free(plain.scale);
    free(scratch);
    ntx_mlp_free(mlp);
    return rc;
}
