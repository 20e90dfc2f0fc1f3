/* SPDX-License-Identifier: Apache-2.0 */
/* bench_depth MODEL TYPE POSITIONS[,POSITIONS...] [PASSES [ROWS [THREADS]]]: the rate of answers and of prompts behind
 * so many positions, with K and V of TYPE. K and V are filled with random numbers instead of by reading a prompt, which
 * would take hours; attention takes as long over these. Weights, passes and memory are those of a model that stays in
 * memory. The positions may exceed the model's own context.
 *
 * CSV: tokens per second of one row (median of PASSES, 24), and the least and largest; MB that a row reads; GB/s; what
 * the profile of `ntx doctor` predicts; tokens per second of a pass with ROWS (512) rows of a prompt; the prediction of
 * that. 0 PASSES or ROWS: leaves them out. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/pass/forward.h"
#include "computed/pass/kv_form.h"
#include "computed/plan/plan.h"
#include "model/gguf.h"

enum { MOST_ROWS = 512, MOST = 200, DEPTHS = 16, VALUES = 1 << 16 };

struct bench {
    struct ntx_weights w; /* first: it is one */
    int fd;
    uint8_t *bytes;
    uint64_t *at;
    struct ntx_gguf *gguf;
    struct ntx_model *model;
    struct ntx_plan *plan;
    struct ntx_kv_form *form;
    struct ntx_forward *f;
    struct ntx_kv_pool *pool;
    struct ntx_kv_seq *kv;
    struct ntx_hw hw;
    bool known; /* hw */
    float *logits;
    uint64_t pass;
    enum ntx_kv_type type;
};

static void must(int rc, const char *what, const struct ntx_err *err)
{
    if (!rc)
        return;
    fprintf(stderr, "bench_depth: %s: %s\n", what, err && err->text[0] ? err->text : strerror(-rc));
    exit(111);
}

/* ---- weights that stay in memory, and are interleaved */

static int begin_pass(struct ntx_weights *w, uint64_t pass)
{
    (void)w, (void)pass;
    return 0;
}

static int acquire_chunk(struct ntx_weights *w, uint32_t chunk, const void **bytes)
{
    const struct bench *b = (const struct bench *)w;
    *bytes = b->bytes + b->at[chunk];
    return 0;
}

static void ignore_number(struct ntx_weights *w, uint32_t number) { (void)w, (void)number; }

static bool stays(struct ntx_weights *w, uint32_t chunk)
{
    (void)w, (void)chunk;
    return true;
}

static void end_pass(struct ntx_weights *w) { (void)w; }

static int read_entries(struct ntx_weights *w, uint32_t file, uint64_t offset, uint32_t entry_bytes, const int32_t *ids,
                        uint32_t n, void *out)
{
    (void)file;
    for (uint32_t i = 0; i < n; i++)
        if (pread(((struct bench *)w)->fd, (uint8_t *)out + (size_t)i * entry_bytes, entry_bytes,
                  (off_t)(offset + (uint64_t)(uint32_t)ids[i] * entry_bytes)) != (ssize_t)entry_bytes)
            return -EIO;
    return 0;
}

static const struct ntx_weights_ops ops = {.begin = begin_pass,
                                           .acquire = acquire_chunk,
                                           .release = ignore_number,
                                           .drop_layer = ignore_number,
                                           .skip = ignore_number,
                                           .stays = stays,
                                           .end = end_pass,
                                           .entries = read_entries};

static void read_weights(struct bench *b)
{
    const struct ntx_chunks *c = b->plan->chunks;
    uint64_t n = 0;
    b->w.ops = &ops;
    b->at = calloc(c->n, sizeof *b->at);
    must(b->at ? 0 : -ENOMEM, "weights", NULL);
    for (uint32_t i = 0; i < c->n; i++) {
        b->at[i] = n;
        n += (c->list[i].bytes + 127) / 64 * 64; /* kernels read whole registers */
    }
    b->bytes = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(b->bytes != MAP_FAILED ? 0 : -ENOMEM, "weights", NULL);
    madvise(b->bytes, n, MADV_HUGEPAGE);
    for (uint32_t i = 0; i < c->n; i++)
        for (uint64_t done = 0; done < c->list[i].bytes;) {
            ssize_t got = pread(b->fd, b->bytes + b->at[i] + done, c->list[i].bytes - done,
                                (off_t)(c->list[i].offset + done));
            must(got > 0 ? 0 : -EIO, "weights", NULL);
            done += (uint64_t)got;
        }
}

/* ---- the model, with room for so many positions */

static void open_model(struct bench *b, const char *path, const char *type, uint32_t ctx, uint32_t threads)
{
    struct ntx_err err = {0};
    b->fd = open(path, O_RDONLY | O_CLOEXEC);
    must(b->fd < 0 ? -errno : 0, path, NULL);
    must(ntx_gguf_open(&b->fd, 1, NULL, &b->gguf, &err), path, &err);
    must(ntx_model_open(b->gguf, &b->model, &err), path, &err);
    must(ntx_kv_type_of(type, &b->model->hp, &b->type, &err), type, &err);
    must(ntx_kv_form_read(b->model, &b->fd, b->type, &b->form, &err), path, &err);
    b->known = !ntx_hw_find(&b->hw, &err);
    const struct ntx_plan_request r = {.ram_bytes = 64ull << 30,
                                       .ctx = ctx,
                                       .threads = threads,
                                       .max_rows = MOST_ROWS,
                                       .kv_type = b->type,
                                       .no_prefixes = true,
                                       .hw = b->known ? &b->hw : NULL};
    must(ntx_plan_make(b->model, &r, &b->plan, &err), "plan", &err);
    read_weights(b);
    const struct ntx_forward_config c = {.model = b->model,
                                         .chunks = b->plan->chunks,
                                         .ops = ntx_cpu_pick(NULL),
                                         .weights = &b->w,
                                         .threads = threads,
                                         .max_rows = MOST_ROWS,
                                         .ctx = ctx,
                                         .kv_form = b->form};
    must(ntx_kv_pool_new(&b->model->hp, b->type, &b->plan->kv, &b->pool, &err), "K and V", &err);
    must(ntx_kv_seq_new(b->pool, ctx, &b->kv), "K and V", NULL);
    must(ntx_forward_new(&c, &b->f, &err), "pass", &err);
    b->logits = malloc(b->model->hp.n_vocab * sizeof *b->logits);
    must(b->logits ? 0 : -ENOMEM, "logits", NULL);
}

/* Numbers between -1 and 1. Layers with a window keep only its end: earlier positions are overwritten. */
static void fill(struct bench *b, uint32_t from, uint32_t to)
{
    static float x[VALUES + NTX_MAX_HEAD];
    const struct ntx_cpu_ops *o = ntx_cpu_pick(NULL);
    uint64_t seed = 1;
    for (uint32_t i = 0; i < VALUES + NTX_MAX_HEAD; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(seed >> 40) / (1 << 23) - 1;
    }
    for (uint32_t pos = from; pos < to; pos++)
        for (uint32_t l = 0; l < b->model->hp.n_layers; l++)
            for (uint32_t h = 0; h < ntx_kv_heads(b->kv, l); h++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                const float *v = x + (seed >> 32) % VALUES;
                const uint32_t n_v = ntx_kept_v(&b->model->hp, l);
                o->k_store[b->type](v, ntx_kv_k(b->kv, l, h, pos), pos % NTX_KV_BLOCK, ntx_kept_k(&b->model->hp, l));
                if (n_v)
                    o->v_store[b->type](v, ntx_kv_v(b->kv, l, h, pos), pos % NTX_KV_BLOCK, n_v);
            }
}

/* Runs n rows at positions from `pos` on; asked: with logits of the last. Seconds. */
static double run(struct bench *b, uint32_t pos, uint32_t n, bool asked)
{
    static struct ntx_row rows[MOST_ROWS];
    const uint64_t t0 = ntx_now_ns();
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct ntx_row){.token = (int32_t)((pos + i + 1) * 2654435761u % b->model->hp.n_vocab),
                                   .pos = pos + i,
                                   .kv = b->kv,
                                   .logits = asked && i + 1 == n ? b->logits : NULL};
    const struct ntx_batch batch = {.pass = b->pass++, .rows = rows, .n_rows = n};
    must(ntx_forward_run(b->f, &batch), "a pass", &b->w.error);
    return (double)(ntx_now_ns() - t0) / 1e9;
}

/* ---- figures */

static double predict(const struct bench *b, uint32_t rows, uint32_t asked, uint32_t positions, double *bytes)
{
    struct ntx_load_bytes l;
    struct ntx_forecast f;
    *bytes = 0;
    if (!ntx_plan_load(b->model, b->plan, rows, asked, positions, &l))
        return 0;
    *bytes = l.kv_bytes;
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        *bytes += l.bytes[NTX_TIER_HOST][t];
    return b->known && !ntx_predict(&b->hw, &l, &f) ? rows / f.pass_s : 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct bench *b, const char *name, uint32_t pos, uint32_t passes, uint32_t rows)
{
    double s[MOST] = {0}, bytes, ignored, prompt = 0, expected = 0;
    for (uint32_t i = 0; i < passes; i++)
        s[i] = run(b, pos + i, 1, true);
    qsort(s, passes, sizeof *s, by_value);
    if (rows) {
        expected = predict(b, rows, 0, pos + rows, &ignored);
        prompt = rows / run(b, pos, rows, false);
    }
    const double predicted = predict(b, 1, 1, pos + 1, &bytes), each = passes ? s[passes / 2] : 0;
    printf("%s,%s,%u,%.2f,%.2f,%.2f,%.1f,%.1f,%.2f,%.1f,%.1f\n", name, ntx_kv_type_name(b->type), pos,
           each > 0 ? 1 / each : 0, each > 0 ? 1 / s[passes - 1] : 0, each > 0 ? 1 / s[0] : 0, bytes / 1e6,
           each > 0 ? bytes / each / 1e9 : 0, predicted, prompt, expected);
    fflush(stdout);
}

static uint32_t number(int argc, char **argv, int i, uint32_t otherwise)
{
    return i < argc ? (uint32_t)atoi(argv[i]) : otherwise;
}

int main(int argc, char **argv)
{
    static struct bench b;
    uint32_t depth[DEPTHS], n = 0, most = 0, passes = number(argc, argv, 4, 24),
                            rows = number(argc, argv, 5, MOST_ROWS);
    for (char *at = argc > 3 ? strtok(argv[3], ",") : NULL; at && n < DEPTHS; at = strtok(NULL, ",")) {
        depth[n] = (uint32_t)strtoul(at, NULL, 10);
        most = NTX_MAX(most, depth[n]);
        n++;
    }
    if (!n || passes > MOST || rows > MOST_ROWS || most > 1 << 20) {
        fputs("usage: bench_depth MODEL f16|q8_0|q4_0 POSITIONS[,...] [PASSES [ROWS [THREADS]]]\n", stderr);
        return 100;
    }
    const char *name = strrchr(argv[1], '/') ? strrchr(argv[1], '/') + 1 : argv[1];
    open_model(&b, argv[1], argv[2], (most + MOST_ROWS + NTX_KV_BLOCK) / NTX_KV_BLOCK * NTX_KV_BLOCK,
               number(argc, argv, 6, 2));
    fill(&b, 0, most);
    run(&b, 0, 8, true); /* checks and interleaves the weights */
    puts("model,kv,positions,tokens/s,least,most,MB,GB/s,predicted,prompt tokens/s,predicted");
    for (uint32_t i = 0; i < n; i++)
        measure(&b, name, depth[i], passes, rows);
    return 0;
}
