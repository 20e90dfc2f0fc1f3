/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/quantize/job_impl.h"
#include "common/util.h"

#define PIECE       (8u << 20) /* bytes of a piece as floats, about */
#define LEAST_SHARE 1e-4f      /* of the mean: least weight of an input that was always about 0 */

int ntx__read_at(const struct ntx__job *j, const struct ntx_gguf_tensor *t, uint64_t at, void *p, size_t n,
                 struct ntx_err *err)
{
    const int rc = ntx_read_at(j->fds[t->file], p, n, t->offset + at);
    return rc ? ntx_err_set(err, rc, "tensor '%s' cannot be read at byte %llu: %s", t->name,
                            (unsigned long long)(t->offset + at), ntx_read_error(rc))
              : 0;
}

/* Returns the type's quantiser, made at its first use. */
static int open_quantizer(struct ntx__job *j, uint32_t type, struct ntx_err *err)
{
    if (!j->quantizer[type] && !(j->quantizer[type] = ntx_quantizer_new(type)))
        return ntx_err_set(err, -ENOMEM, "no memory for the quantiser of %s", ntx_type_info(type)->name);
    return 0;
}

/* ---- a thread */

struct work {
    struct ntx__job *j;
    struct ntx__piece *r;
    _Atomic uint64_t next;
    _Atomic int rc;
    struct sums *sums;    /* [r->n], for each output */
    pthread_mutex_t lock; /* of err */
    struct ntx_err *err;
};

struct sums {
    double error, squares;
};

struct scratch { /* [inputs] each */
    float *x, *w, *back, *importance;
    uint8_t *out;
    uint64_t matrix; /* whose importance is stored; UINT64_MAX: none */
    bool seen;
};

static int set_error(struct work *k, int rc, const char *what, uint64_t output)
{
    pthread_mutex_lock(&k->lock);
    if (!k->rc)
        ntx_err_set(k->err, rc,
                    rc == -ERANGE ? "tensor '%s', matrix row %llu: %s; keep it as it is with --tensor '%s=%s'"
                                  : "tensor '%s', matrix row %llu: %s",
                    k->r->target->t->name, (unsigned long long)output, what, k->r->target->t->name,
                    ntx_type_info(k->r->target->t->type)->name);
    k->rc = rc;
    pthread_mutex_unlock(&k->lock);
    return rc;
}

static bool all_finite(const float *x, uint64_t n)
{
    float sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += x[i] * 0; /* 0, or NaN */
    return sum == 0;
}

/* Mean squares of a matrix's inputs, none of them so small that its weights would be arbitrary. */
static void take_importance(const struct ntx__target *t, uint64_t matrix, struct scratch *s)
{
    const struct ntx_importance *from = t->importance;
    const uint64_t n = t->t->ne[0];
    const float count = from->count[from->n_mat > 1 ? matrix : 0],
                *sum2 = from->sum2 + (from->n_mat > 1 || from->n > n ? matrix * n : 0);
    double mean = 0;
    s->matrix = matrix;
    s->seen = count > 0;
    for (uint64_t i = 0; i < n && s->seen; i++) {
        s->importance[i] = sum2[i] / count;
        mean += (double)s->importance[i];
    }
    s->seen = s->seen && mean > 0 && isfinite(mean);
    for (uint64_t i = 0; i < n && s->seen; i++)
        s->importance[i] = NTX_MAX(s->importance[i], LEAST_SHARE * (float)(mean / (double)n));
}

static struct sums sums_of(const struct ntx__piece *r, const struct scratch *s, uint64_t n)
{
    struct sums to = {0, 0};
    bool weighed = r->weighed && s->seen;
    for (uint64_t i = 0; i < n; i++) {
        double d = (double)s->back[i] - (double)s->x[i], w = weighed ? (double)s->importance[i] : 1;
        to.error += w * d * d;
        to.squares += w * (double)s->x[i] * (double)s->x[i];
    }
    return to;
}

static int one_output(struct work *k, uint64_t i, struct scratch *s)
{
    struct ntx__piece *r = k->r;
    const struct ntx_gguf_tensor *t = r->target->t;
    const struct ntx_type_info *from = ntx_type_info(t->type), *to = ntx_type_info(r->type);
    uint64_t n = t->ne[0], output = r->first + i * r->step, matrix = output / t->ne[1];
    from->dequant(r->in + i * ntx_row_bytes(t->type, n), s->x, n / from->block);
    for (uint64_t v = 0; v < n && r->target->scale; v++)
        s->x[v] *= r->target->scale[r->target->n_scale > 1 ? matrix : 0];
    if (!all_finite(s->x, n))
        return set_error(k, -EINVAL, "a weight is no number; the model is broken", output);
    if (r->target->importance && s->matrix != matrix)
        take_importance(r->target, matrix, s);
    ntx_quantize_weights(s->x, s->seen ? s->importance : NULL, n, s->w);
    uint8_t *out = r->out ? r->out + i * ntx_row_bytes(r->type, n) : s->out;
    ntx_quantize(k->j->quantizer[r->type], s->x, s->w, out, n / to->block);
    to->dequant(out, s->back, n / to->block);
    if (!all_finite(s->back, n))
        return set_error(k, -ERANGE, "its weights are larger than the type can hold", output);
    k->sums[i] = sums_of(r, s, n);
    return 0;
}

static void *quantize_outputs(void *arg)
{
    struct work *k = arg;
    struct ntx__piece *r = k->r;
    uint64_t n = r->target->t->ne[0];
    struct scratch s = {.matrix = UINT64_MAX};
    s.x = malloc(4 * n * sizeof *s.x);
    s.out = malloc(ntx_row_bytes(r->type, n));
    if (s.x && s.out) {
        s.w = s.x + n;
        s.back = s.w + n;
        s.importance = s.back + n;
    } else {
        set_error(k, -ENOMEM, "no memory", r->first);
    }
    for (uint64_t i; !k->rc && (i = atomic_fetch_add(&k->next, 1)) < r->n;)
        if (one_output(k, i, &s))
            break;
    free(s.x);
    free(s.out);
    return NULL;
}

int ntx__quantize_piece(struct ntx__job *j, struct ntx__piece *r, struct ntx_err *err)
{
    struct work k = {.j = j, .r = r, .err = err, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread[64];
    uint32_t n = 0;
    int rc = open_quantizer(j, r->type, err);
    if (rc)
        return rc;
    if (!(k.sums = calloc(r->n + 1, sizeof *k.sums)))
        return ntx_err_set(err, -ENOMEM, "no memory");
    while (n + 1 < NTX_MIN(j->threads, 64u) && n + 1 < r->n && !pthread_create(&thread[n], NULL, quantize_outputs, &k))
        n++;
    quantize_outputs(&k);
    while (n)
        pthread_join(thread[--n], NULL);
    pthread_mutex_destroy(&k.lock);
    for (uint64_t i = 0; i < r->n;
         i++) { /* in order: fit:SIZE decides by these sums, which must not depend on the order of threads */
        r->error += k.sums[i].error;
        r->squares += k.sums[i].squares;
    }
    free(k.sums);
    return k.rc;
}

/* ---- a tensor */

static int check_stop(const struct ntx__job *j, struct ntx_err *err)
{
    return j->o->stop && *j->o->stop ? ntx_err_set(err, -EINTR, "interrupted: nothing was written") : 0;
}

static void report_progress(struct ntx__job *j, uint32_t tensor, uint64_t bytes)
{
    j->done += bytes;
    if (j->o->progress)
        j->o->progress(j->o->ctx, &(struct ntx_quantize_progress){j->done, j->report->bytes_in, tensor, j->n,
                                                                  j->target[tensor].t->name, false});
}

static int copy_tensor(struct ntx__job *j, uint32_t tensor, int fd, struct ntx_err *err)
{
    const struct ntx_gguf_tensor *t = j->target[tensor].t;
    uint8_t *p = malloc(PIECE);
    int rc = p ? 0 : ntx_err_set(err, -ENOMEM, "no memory");
    for (uint64_t at = 0, n; at < t->bytes && !rc; at += n) {
        n = NTX_MIN(t->bytes - at, (uint64_t)PIECE);
        if (!(rc = check_stop(j, err)) && !(rc = ntx__read_at(j, t, at, p, n, err)))
            rc = ntx_write_all(fd, p, n);
        report_progress(j, tensor, n);
    }
    free(p);
    return rc;
}

static void note_error(struct ntx__job *j, const struct ntx__target *k, double error, double squares)
{
    double share = squares > 0 ? sqrt(error / squares) : 0;
    j->error += error;
    j->squares += squares;
    if (share > j->report->worst) {
        j->report->worst = share;
        strncpy(j->report->worst_name, k->t->name, sizeof j->report->worst_name - 1);
    }
    if (j->o->on_type)
        j->o->on_type(j->o->ctx, k->t, k->type, share);
}

static int quantize_tensor(struct ntx__job *j, uint32_t tensor, int fd, struct ntx_err *err)
{
    const struct ntx__target *k = &j->target[tensor];
    const struct ntx_gguf_tensor *t = k->t;
    uint64_t outputs = t->ne[1] * t->ne[2] * t->ne[3], in_bytes = ntx_row_bytes(t->type, t->ne[0]),
             out_bytes = ntx_row_bytes(k->type, t->ne[0]);
    uint64_t each = NTX_MIN(NTX_MAX(PIECE / (t->ne[0] * sizeof(float)), 1u), outputs);
    uint8_t *in = malloc(each * in_bytes), *out = malloc(each * out_bytes);
    double error = 0, squares = 0;
    int rc = in && out ? 0 : ntx_err_set(err, -ENOMEM, "no memory for outputs of tensor '%s'", t->name);
    for (uint64_t first = 0; first < outputs && !rc; first += each) {
        struct ntx__piece r = {.target = k,
                               .type = k->type,
                               .first = first,
                               .step = 1,
                               .n = NTX_MIN(each, outputs - first),
                               .in = in,
                               .out = out};
        posix_fadvise(j->fds[t->file], (off_t)(t->offset + (first + r.n) * in_bytes), (off_t)(each * in_bytes),
                      POSIX_FADV_WILLNEED); /* the next piece */
        if (!(rc = check_stop(j, err)) && !(rc = ntx__read_at(j, t, first * in_bytes, in, r.n * in_bytes, err)) &&
            !(rc = ntx__quantize_piece(j, &r, err)))
            rc = ntx_write_all(fd, out, r.n * out_bytes);
        error += r.error;
        squares += r.squares;
        report_progress(j, tensor, r.n * in_bytes);
    }
    free(in);
    free(out);
    if (!rc)
        note_error(j, k, error, squares);
    return rc;
}

int ntx__write_tensor(struct ntx__job *j, uint32_t tensor, int fd, struct ntx_err *err)
{
    const struct ntx__target *k = &j->target[tensor];
    if (k->type != k->t->type)
        return quantize_tensor(j, tensor, fd, err);
    if (j->o->on_type)
        j->o->on_type(j->o->ctx, k->t, k->type, -1);
    return copy_tensor(j, tensor, fd, err);
}
