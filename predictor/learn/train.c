/* SPDX-License-Identifier: Apache-2.0 */
#include "predictor/learn/train.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/clones.h"
#include "common/util.h"

#define BETA1   0.9f
#define BETA2   0.999f
#define EPSILON 1e-8f
#define DECAY   1e-4f /* weight decay per step, times the rate */
#define LANES   16

struct moments { /* Adam's first and second moments of an array of weights */
    float *m, *v;
};

struct run {
    const struct ntx_train *t;
    const struct ntx_mlp_weights *s;
    uint32_t n_in, n_hidden, n_out, batch;
    struct moments w1_moments, b1_moments, w2_moments, b2_moments;
    uint32_t *order; /* [n] shuffled */
    float *z;        /* [batch x n_hidden] after the relu */
    float *d;        /* [batch x n_out] (p - y) / batch */
    double *loss;    /* [batch] */
    float *grads;    /* [threads x (n_in + n_out)] */
    float *w2;       /* [n_hidden x n_out], by unit; copied to s at the end */
    double sum;
    uint64_t rng;
    pthread_barrier_t barrier;
    int rc; /* written by thread 0 before a barrier */
    /* of the current step */
    uint32_t at, n;
    float lr, fix1, fix2;
};

struct worker {
    struct run *r;
    unsigned number;
};

static uint64_t random64(uint64_t *s) /* splitmix64 */
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static float random_uniform(uint64_t *s) { return (float)(random64(s) >> 40) / (float)(1u << 23) - 1.0f; }

#ifdef __SANITIZE_ADDRESS__
#define WIDE /* gcc's resolvers run before the sanitizer is set up */
#else
#define WIDE NTX_CLONES
#endif

/* Sixteen sums, then added in one order: the same for every instruction set, since products and sums are not fused. */
WIDE static float dot(const float *a, const float *b, uint32_t n)
{
    float lane[LANES] = {0}, sum = 0;
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t k = 0; k < LANES; k++)
            lane[k] += a[i + k] * b[i + k];
    for (uint32_t k = 0; k < LANES; k++)
        sum += lane[k];
    for (; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

WIDE static void add_scaled(float *a, const float *b, float f, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        a[i] += b[i] * f;
}

WIDE static void adam(const struct run *r, float *w, float *m, float *v, const float *g, uint32_t n)
{
    float fix1 = r->fix1, fix2 = r->fix2, lr = r->lr, keep = 1.0f - r->lr * DECAY;
    for (uint32_t i = 0; i < n; i++) {
        m[i] = BETA1 * m[i] + (1.0f - BETA1) * g[i];
        v[i] = BETA2 * v[i] + (1.0f - BETA2) * g[i] * g[i];
        w[i] = w[i] * keep - lr * (m[i] * fix1) / (sqrtf(v[i] * fix2) + EPSILON);
    }
}

static const float *sample(const struct run *r, uint32_t i) { return r->t->x + (size_t)r->order[r->at + i] * r->n_in; }

/* ---- the three phases of a step, with barriers between them */

static void forward_units(struct run *r, unsigned k)
{
    for (uint32_t j = k; j < r->n_hidden; j += r->t->threads)
        for (uint32_t i = 0; i < r->n; i++) {
            float z = dot(r->s->w1 + (size_t)j * r->n_in, sample(r, i), r->n_in) + r->s->b1[j];
            r->z[(size_t)i * r->n_hidden + j] = z > 0 ? z : 0;
        }
}

static void outputs_of(struct run *r, uint32_t i)
{
    const uint8_t *y = r->t->y + (size_t)r->order[r->at + i] * r->n_out;
    const float *z = r->z + (size_t)i * r->n_hidden;
    float *d = r->d + (size_t)i * r->n_out;
    memcpy(d, r->s->b2, r->n_out * sizeof *d);
    for (uint32_t j = 0; j < r->n_hidden; j++)
        if (z[j] > 0)
            add_scaled(d, r->w2 + (size_t)j * r->n_out, z[j], r->n_out);
    r->loss[i] = 0;
    for (uint32_t o = 0; o < r->n_out; o++) {
        float a = d[o];
        double wrong = y[o] ? -(double)a : (double)a;
        r->loss[i] += log1p(exp(-fabs((double)a))) + (wrong > 0 ? wrong : 0);
        d[o] = (1.0f / (1.0f + expf(-a)) - (float)y[o]) / (float)r->n;
    }
}

/* g: [n_in + n_out] of this thread. */
static void backward_unit(struct run *r, uint32_t j, float *g)
{
    float *w2 = r->w2 + (size_t)j * r->n_out, *g2 = g + r->n_in, gb = 0;
    memset(g, 0, ((size_t)r->n_in + r->n_out) * sizeof *g);
    for (uint32_t i = 0; i < r->n; i++) {
        float z = r->z[(size_t)i * r->n_hidden + j];
        const float *d = r->d + (size_t)i * r->n_out;
        if (!(z > 0))
            continue;
        float dz = dot(d, w2, r->n_out);
        add_scaled(g2, d, z, r->n_out);
        add_scaled(g, sample(r, i), dz, r->n_in);
        gb += dz;
    }
    size_t at = (size_t)j * r->n_in, at2 = (size_t)j * r->n_out;
    adam(r, r->s->w1 + at, r->w1_moments.m + at, r->w1_moments.v + at, g, r->n_in);
    adam(r, r->s->b1 + j, r->b1_moments.m + j, r->b1_moments.v + j, &gb, 1);
    adam(r, w2, r->w2_moments.m + at2, r->w2_moments.v + at2, g2, r->n_out);
}

static void update_outputs(struct run *r, float *g)
{
    memset(g, 0, r->n_out * sizeof *g);
    for (uint32_t i = 0; i < r->n; i++)
        add_scaled(g, r->d + (size_t)i * r->n_out, 1.0f, r->n_out);
    adam(r, r->s->b2, r->b2_moments.m, r->b2_moments.v, g, r->n_out);
    for (uint32_t i = 0; i < r->n; i++)
        r->sum += r->loss[i];
}

static void train_step(struct run *r, unsigned k)
{
    uint32_t threads = r->t->threads;
    forward_units(r, k);
    pthread_barrier_wait(&r->barrier);
    for (uint32_t i = k; i < r->n; i += threads)
        outputs_of(r, i);
    pthread_barrier_wait(&r->barrier);
    for (uint32_t j = k; j < r->n_hidden; j += threads)
        backward_unit(r, j, r->grads + (size_t)k * (r->n_in + r->n_out));
    if (!k)
        update_outputs(r, r->grads);
    pthread_barrier_wait(&r->barrier);
}

/* ---- thread 0 prepares the steps of all threads */

static void shuffle(struct run *r)
{
    for (uint32_t i = r->t->n; i > 1; i--) {
        uint32_t k = (uint32_t)(random64(&r->rng) % i), x = r->order[i - 1];
        r->order[i - 1] = r->order[k];
        r->order[k] = x;
    }
}

static void prepare_step(struct run *r, uint32_t epoch, uint32_t at)
{
    uint64_t steps = (r->t->n + r->batch - 1) / r->batch, number = epoch * steps + at / r->batch;
    r->at = at;
    r->n = NTX_MIN(r->batch, r->t->n - at);
    r->lr = r->t->rate * (1.0f - (float)number / (float)(steps * r->t->epochs));
    r->fix1 = 1.0f / (float)(1.0 - pow((double)BETA1, (double)(number + 1)));
    r->fix2 = 1.0f / (float)(1.0 - pow((double)BETA2, (double)(number + 1)));
}

static void *train_epochs(void *arg)
{
    const struct worker *w = arg;
    struct run *r = w->r;
    for (uint32_t e = 0; e < r->t->epochs; e++) {
        if (!w->number) {
            shuffle(r);
            r->sum = 0;
        }
        for (uint32_t at = 0; at < r->t->n; at += r->batch) {
            if (!w->number)
                prepare_step(r, e, at);
            pthread_barrier_wait(&r->barrier);
            train_step(r, w->number);
        }
        if (!w->number && r->t->progress)
            r->rc = r->t->progress(r->t->ctx, e, r->sum / r->t->n / r->n_out);
        pthread_barrier_wait(&r->barrier);
        if (r->rc)
            return NULL;
    }
    return NULL;
}

/* ---- making */

static bool make_moments(struct moments *a, size_t n)
{
    a->m = calloc(n, sizeof(float));
    a->v = calloc(n, sizeof(float));
    return a->m && a->v;
}

static void free_moments(struct moments *a)
{
    free(a->m);
    free(a->v);
}

static bool make_buffers(struct run *r)
{
    size_t out = (size_t)r->n_hidden * r->n_out;
    r->order = malloc(r->t->n * sizeof *r->order);
    r->z = calloc((size_t)r->batch * r->n_hidden, sizeof(float));
    r->d = calloc((size_t)r->batch * r->n_out, sizeof(float));
    r->loss = calloc(r->batch, sizeof(double));
    r->grads = calloc((size_t)r->t->threads * (r->n_in + r->n_out), sizeof(float));
    r->w2 = calloc(out, sizeof(float));
    return make_moments(&r->w1_moments, (size_t)r->n_hidden * r->n_in) && make_moments(&r->b1_moments, r->n_hidden) &&
           make_moments(&r->w2_moments, out) && make_moments(&r->b2_moments, r->n_out) && r->order && r->z && r->d &&
           r->loss && r->grads && r->w2;
}

static void free_buffers(struct run *r)
{
    free_moments(&r->w1_moments);
    free_moments(&r->b1_moments);
    free_moments(&r->w2_moments);
    free_moments(&r->b2_moments);
    free(r->order);
    free(r->z);
    free(r->d);
    free(r->loss);
    free(r->grads);
    free(r->w2);
}

/* The first layer as usual for a relu. The outputs' biases begin at the share of ones, so that nothing has to be
 * unlearned. */
static void init_weights(struct run *r)
{
    float w1 = sqrtf(6.0f / (float)r->n_in), w2 = sqrtf(1.0f / (float)r->n_hidden);
    for (size_t i = 0; i < (size_t)r->n_hidden * r->n_in; i++)
        r->s->w1[i] = w1 * random_uniform(&r->rng);
    for (size_t i = 0; i < (size_t)r->n_hidden * r->n_out; i++)
        r->w2[i] = w2 * random_uniform(&r->rng);
    for (uint32_t o = 0; o < r->n_out; o++) {
        uint32_t ones = 0;
        for (uint32_t i = 0; i < r->t->n; i++)
            ones += r->t->y[(size_t)r->t->order[i] * r->n_out + o];
        r->s->b2[o] = logf(((float)ones + 1.0f) / ((float)(r->t->n - ones) + 1.0f));
    }
    memset(r->s->b1, 0, r->n_hidden * sizeof(float));
    memcpy(r->order, r->t->order, r->t->n * sizeof *r->order);
}

/* A missing thread would block the others at the first barrier, so all threads are made before any begins. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t open;
    int state; /* 0 wait, 1 begin, -1 end */
};

struct guarded {
    struct worker w;
    struct gate *gate;
};

static void *guarded_work(void *arg)
{
    struct guarded *g = arg;
    pthread_mutex_lock(&g->gate->lock);
    while (!g->gate->state)
        pthread_cond_wait(&g->gate->open, &g->gate->lock);
    int go = g->gate->state;
    pthread_mutex_unlock(&g->gate->lock);
    return go > 0 ? train_epochs(&g->w) : NULL;
}

static int run_threads(struct run *r)
{
    unsigned n = r->t->threads, made = 1;
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    struct guarded *g = calloc(n, sizeof *g);
    pthread_t *id = calloc(n, sizeof *id);
    int rc = g && id ? 0 : -ENOMEM;
    for (; made < n && !rc; made += !rc) {
        g[made] = (struct guarded){{r, made}, &gate};
        rc = -pthread_create(&id[made], NULL, guarded_work, &g[made]);
    }
    pthread_mutex_lock(&gate.lock);
    gate.state = rc ? -1 : 1;
    pthread_cond_broadcast(&gate.open);
    pthread_mutex_unlock(&gate.lock);
    if (!rc)
        train_epochs(&(struct worker){r, 0});
    for (unsigned i = 1; i < made && id; i++)
        pthread_join(id[i], NULL);
    free(g);
    free(id);
    return rc ? rc : r->rc;
}

int ntx_train_run(const struct ntx_train *t, const struct ntx_mlp_weights *s)
{
    struct ntx_train own = *t;
    own.threads = NTX_MAX(NTX_MIN(t->threads, s->n_hidden), 1u);
    struct run r = {.t = &own,
                    .s = s,
                    .n_in = s->n_in,
                    .n_hidden = s->n_hidden,
                    .n_out = s->n_out,
                    .batch = NTX_MAX(t->batch, 1u),
                    .rng = t->seed};
    int rc = t->n && t->epochs ? 0 : -EINVAL;
    if (!rc && !make_buffers(&r))
        rc = -ENOMEM;
    if (!rc) {
        init_weights(&r);
        pthread_barrier_init(&r.barrier, NULL, own.threads);
        rc = run_threads(&r);
        pthread_barrier_destroy(&r.barrier);
    }
    for (uint32_t j = 0; j < r.n_hidden && !rc; j++)
        for (uint32_t o = 0; o < r.n_out; o++)
            s->w2[(size_t)o * r.n_hidden + j] = r.w2[(size_t)j * r.n_out + o];
    free_buffers(&r);
    return rc;
}
