/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: bench_kernels [-t TYPES] [-i ISAS] [-j THREADS] [-r ROWS] [-n WIDTHS] [-m MIB] [-s SECONDS]
 *
 * -w: interleaved weights (computed/cpu/interleaved.h), for types that have them. -c KIB: weights are multiplied in
 * pieces of that size (1024), a seventh of a piece apart, like experts: prefetches beyond a piece's end are wasted.
 *
 * Prints CSV: for each row width, type, instruction set, thread count and row count the rate of multiplied weights:
 * from memory (more weights than any cache; best and median pass) and from cache (256 KiB per thread). Beside it is the
 * rate of plain reads of the same memory, measured before and after. Lists are comma separated. Ratios compare the best
 * passes within SECONDS, since other processes only make a pass slower; medians show the sustained rate. */
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/kernels/lab.h"
#include "common/util.h"
#include "computed/cpu/cpu.h"
#include "model/quant.h"
#include "ntx_version.h"

enum { MAX_THREADS = 64, MAX_LIST = 32, MAX_PASSES = 4096, CHUNK = 1 << 20, APART = 7 };

struct job {
    const struct ntx_cpu_ops *ops; /* NULL: read only */
    uint32_t type, n_in, n_rows, threads;
    char *weights;
    size_t bytes; /* of weights, shared by the threads */
    char *x;
    size_t x_stride;
    float *y[MAX_THREADS]; /* per thread [n_rows x outputs of a chunk] */
    double seconds;
    size_t piece; /* bytes multiplied at a time; 0: CHUNK, one behind the other */
    bool interleaved;
    pthread_barrier_t gate;
    double *pass; /* [MAX_PASSES] seconds of each pass, by thread 0 */
    int n_passes;
    volatile int stop;
    volatile uint64_t seen;
};

struct worker {
    struct job *job;
    uint32_t index;
};

static void multiply_piece(struct job *j, uint32_t t, const char *w, size_t bytes, size_t row)
{
    uint32_t n_out = (uint32_t)(bytes / row);
    if (!j->ops)
        j->seen ^= lab_read(w, bytes);
    else
        (j->interleaved ? j->ops->interleaved : j->ops->matmul)[j->type](w, row, n_out, j->n_in, j->x, j->x_stride,
                                                                         j->n_rows, j->y[t], n_out);
}

static void one_pass(struct job *j, uint32_t t)
{
    size_t row = j->ops ? ntx_row_bytes(j->type, j->n_in) : 512;
    size_t unit = j->interleaved ? row * NTX_SLICE_OUTS : row, share = j->bytes / j->threads / unit * unit;
    size_t step = NTX_MAX((j->ops && j->piece ? j->piece : CHUNK) / unit, (size_t)1) * unit,
           first = j->ops && j->piece ? APART : 1;
    const char *w = j->weights + share * t;
    for (size_t from = 0; from < first; from++)
        for (size_t at = from * step; at < share; at += first * step)
            multiply_piece(j, t, w + at, NTX_MIN(share - at, step), row);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct job *j = w->job;
    uint64_t start = ntx_now_ns();
    while (!j->stop) {
        pthread_barrier_wait(&j->gate);
        uint64_t t0 = ntx_now_ns();
        one_pass(j, w->index);
        pthread_barrier_wait(&j->gate);
        if (w->index == 0) {
            j->pass[j->n_passes++] = (double)(ntx_now_ns() - t0) * 1e-9;
            j->stop = (double)(ntx_now_ns() - start) * 1e-9 > j->seconds || j->n_passes == MAX_PASSES;
        }
        pthread_barrier_wait(&j->gate);
    }
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct seconds {
    double best, median;
};

/* Seconds of a pass. */
static struct seconds measure(struct job *j)
{
    pthread_t id[MAX_THREADS];
    struct worker w[MAX_THREADS];
    j->n_passes = 0;
    j->stop = 0;
    pthread_barrier_init(&j->gate, NULL, j->threads);
    for (uint32_t t = 0; t < j->threads; t++) {
        w[t] = (struct worker){j, t};
        if (t && pthread_create(&id[t], NULL, work, &w[t]))
            abort();
    }
    work(&w[0]);
    for (uint32_t t = 1; t < j->threads; t++)
        pthread_join(id[t], NULL);
    pthread_barrier_destroy(&j->gate);
    qsort(j->pass, (size_t)j->n_passes, sizeof *j->pass, by_value);
    return (struct seconds){j->pass[0], j->pass[j->n_passes / 2]};
}

/* Exponent bits that keep the scales of this type finite and its floats from being subnormal. */
static uint16_t exponent_bits(uint32_t type)
{
    if (ntx_type_info(type)->block == 1)
        return 0x3c00;
    return type == NTX_MXFP4 ? 0x4040 : 0;
}

/* Random weights with finite scales and no subnormal floats. */
static void fill_weights(char *p, size_t bytes, uint32_t type)
{
    uint64_t s = 88172645463325252u;
    uint16_t *h = (uint16_t *)(void *)p;
    const uint16_t exponent = exponent_bits(type);
    for (size_t i = 0; i < bytes / 2; i++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        h[i] = (uint16_t)((s & 0x3f3f) | exponent);
    }
}

static void *big_alloc(size_t bytes)
{
    size_t huge = 2u << 20;
    void *p = aligned_alloc(huge, NTX_ROUND_UP(bytes, huge));
    if (!p)
        abort();
    madvise(p, NTX_ROUND_UP(bytes, huge), MADV_HUGEPAGE);
    return p;
}

/* Bytes per second. */
static struct seconds read_rate(struct job j)
{
    j.ops = NULL;
    double bytes = (double)(j.bytes / j.threads / 512 * 512 * j.threads);
    struct seconds s = measure(&j);
    return (struct seconds){bytes / s.best * 1e-9, bytes / s.median * 1e-9};
}

static void bench_one(struct job *j)
{
    size_t row = ntx_row_bytes(j->type, j->n_in) * (j->interleaved ? NTX_SLICE_OUTS : 1), all = j->bytes;
    struct seconds before = read_rate(*j);
    size_t used = j->bytes / j->threads / row * row * j->threads;
    struct seconds memory = measure(j);
    double macs = (double)(used / ntx_row_bytes(j->type, j->n_in)) * j->n_in * j->n_rows;
    struct seconds after = read_rate(*j);
    j->bytes = (size_t)j->threads * NTX_MAX(row, (size_t)(256 << 10));
    size_t near = j->bytes / j->threads / row * row * j->threads;
    double cache = measure(j).best;
    j->bytes = all;
    double read = NTX_MAX(before.best, after.best), gb = (double)used / memory.best * 1e-9;
    printf("%s,%s,%s,%u,%u,%u,%.2f,%.2f,%.2f,%.2f,%.2f,%.1f,%.2f\n", NTX_COMMIT, ntx_type_info(j->type)->name,
           j->ops->name, j->n_in, j->threads, j->n_rows, read, gb, (double)used / memory.median * 1e-9, gb / read,
           (double)near / cache * 1e-9, macs / memory.best * 1e-9, (before.median + after.median) / 2);
    fflush(stdout);
}

/* Splits a comma separated list in place. */
static int split(char *text, char *out[MAX_LIST])
{
    int n = 0;
    for (char *p = strtok(text, ","); p && n < MAX_LIST; p = strtok(NULL, ","))
        out[n++] = p;
    return n;
}

static int type_by_name(const char *name)
{
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        if (ntx_type_info(t) && !strcasecmp(ntx_type_info(t)->name, name))
            return (int)t;
    fprintf(stderr, "bench_kernels: no type %s\n", name);
    exit(100);
}

struct lists {
    char *types[MAX_LIST], *isas[MAX_LIST], *threads[MAX_LIST], *rows[MAX_LIST], *widths[MAX_LIST];
    int n_types, n_isas, n_threads, n_rows, n_widths;
};

static void bench_type(struct job *j, const struct lists *l, const char *type)
{
    j->type = (uint32_t)type_by_name(type);
    enum ntx_act form = ntx_act_for(j->type);
    fill_weights(j->weights, j->bytes, j->type);
    float *x = big_alloc(j->n_in * sizeof *x);
    j->x_stride = ntx_act_row_bytes(form, j->n_in);
    for (int i = 0; i < l->n_isas; i++)
        for (int t = 0; t < l->n_threads; t++)
            for (int r = 0; r < l->n_rows; r++) {
                if (!(j->ops = ntx_cpu_pick(l->isas[i])) || (j->interleaved && !j->ops->interleaved[j->type]))
                    continue;
                j->threads = (uint32_t)atoi(l->threads[t]);
                j->n_rows = (uint32_t)atoi(l->rows[r]);
                j->x = big_alloc(j->x_stride * j->n_rows);
                for (uint32_t row = 0; row < j->n_rows; row++) {
                    for (uint32_t k = 0; k < j->n_in; k++)
                        x[k] = (float)((k * 7 + row) % 31) - 15;
                    j->ops->act_quantize[form](x, j->x + row * j->x_stride, j->n_in);
                }
                for (uint32_t k = 0; k < j->threads; k++)
                    j->y[k] = big_alloc((CHUNK / ntx_row_bytes(j->type, j->n_in) + 1) * j->n_rows * sizeof(float));
                bench_one(j);
                for (uint32_t k = 0; k < j->threads; k++)
                    free(j->y[k]);
                free(j->x);
            }
    free(x);
}

int main(int argc, char **argv)
{
    char types[] = "q4_k,q6_k,q8_0,q4_0,q5_k,f16,bf16,f32,q2_k,q3_k,q4_1,q5_0,q5_1,mxfp4", isas[] = "avx2,avx512",
         threads[] = "1,2", rows[] = "1",
         widths[] = "4096,5120,11008,13824"; /* of 7B and 13B models: 16, 20, 43 and 54 super-blocks */
    char *text[5] = {types, isas, threads, rows, widths};
    struct job j = {.bytes = (size_t)640 << 20, .seconds = 0.4};
    for (int c; (c = getopt(argc, argv, "t:i:j:r:n:m:s:c:w")) != -1;) {
        if (c == '?')
            return 100;
        if (strchr("tijrn", c))
            text[strchr("tijrn", c) - "tijrn"] = optarg;
        else if (c == 'w')
            j.interleaved = true;
        else if (c == 'c')
            j.piece = NTX_MIN((size_t)atoi(optarg) << 10, (size_t)CHUNK);
        else if (c == 'm')
            j.bytes = (size_t)atoi(optarg) << 20;
        else
            j.seconds = atof(optarg);
    }
    struct lists l;
    l.n_types = split(text[0], l.types);
    l.n_isas = split(text[1], l.isas);
    l.n_threads = split(text[2], l.threads);
    l.n_rows = split(text[3], l.rows);
    l.n_widths = split(text[4], l.widths);
    double pass[MAX_PASSES];
    j.pass = pass;
    j.weights = big_alloc(j.bytes);
    printf("commit,type,isa,n_in,threads,rows,read_gb_s,memory_gb_s,memory_p50_gb_s,ratio,cache_gb_s,gmac_s,read_p50_"
           "gb_s\n");
    for (int n = 0; n < l.n_widths; n++) {
        j.n_in = (uint32_t)atoi(l.widths[n]);
        for (int t = 0; t < l.n_types; t++)
            bench_type(&j, &l, l.types[t]);
    }
    free(j.weights);
    return 0;
}
