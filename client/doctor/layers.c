/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c: small models, run by the pass itself. What a prompt takes beside the rates that are measured one by one
 * (values go from matrix to matrix through caches, threads wait for one another) is known only from a whole layer. The
 * weights are the bench's bytes: their values do not change the time. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/doctor/doctor_impl.h"
#include "common/util.h"
#include "computed/pass/forward.h"
#include "computed/plan/plan.h"
#include "computed/plan/sketch.h"
#include "computed/state/kv.h"
#include "model/arch.h"

#define LONGEST_S 0.4 /* a pass; on slower machines the wider models are left out */

enum {
    ROWS = 512,  /* of a prompt */
    CTX = 1024,  /* of a context */
    SAMPLES = 3, /* of each model; a sample is the faster one of */
    PASSES = 2,  /* so many passes: the first may find cold caches and sleeping threads */
    APART = 3,   /* rounds from one sample to the next */
    VALUES = 64, /* of a head */
};

/* Weights as in ntx-computed's memory; vectors are ones. */
struct bytes {
    struct ntx_weights w; /* first: it is one */
    const struct ntx__doctor_bench *bench;
    const struct ntx_model *model;
    const struct ntx_chunks *chunks;
    uint64_t *at; /* [chunks] */
    float *ones;  /* [n_embd] */
};

struct small {
    struct ntx_gguf *gguf;
    struct ntx_model *model;
    struct ntx_plan *plan;
    struct bytes bytes;
    struct ntx_kv_pool *pool;
    struct ntx_kv_seq *kv;
    struct ntx_forward *forward;
    struct ntx_row rows[ROWS];
    double s[SAMPLES];
    unsigned n;
};

struct ntx__doctor_layers {
    struct small of[NTX_HW_PROMPTS];
    unsigned n, round, samples;
};

static int begin_small(struct ntx_weights *w, uint64_t pass)
{
    (void)w, (void)pass;
    return 0;
}

static bool is_vector(const struct bytes *b, uint32_t chunk)
{
    return ntx_gguf_tensor_at(b->model->gguf, b->chunks->list[chunk].tensor)->type == NTX_F32;
}

static int acquire_chunk(struct ntx_weights *w, uint32_t chunk, const void **bytes)
{
    const struct bytes *b = (const struct bytes *)w;
    *bytes = is_vector(b, chunk) ? (const char *)b->ones : (const char *)b->bench->buf + b->at[chunk];
    return 0;
}

static void ignore_number(struct ntx_weights *w, uint32_t number) { (void)w, (void)number; }

static bool stays(struct ntx_weights *w, uint32_t chunk)
{
    (void)w, (void)chunk;
    return true;
}

static void end_small(struct ntx_weights *w) { (void)w; }

static int copy_entries(struct ntx_weights *w, uint32_t file, uint64_t offset, uint32_t entry_bytes, const int32_t *ids,
                        uint32_t n, void *out)
{
    (void)w, (void)file, (void)offset, (void)ids;
    memset(out, 0x22, (size_t)n * entry_bytes); /* finite in every type */
    return 0;
}

static const struct ntx_weights_ops ops = {.begin = begin_small,
                                           .acquire = acquire_chunk,
                                           .release = ignore_number,
                                           .drop_layer = ignore_number,
                                           .skip = ignore_number,
                                           .stays = stays,
                                           .end = end_small,
                                           .entries = copy_entries};

/* Llamas, with a type that suits their width: blocks of 256 where they fit. */
static const struct shape {
    uint32_t width, layers, kv_heads, type;
} shapes[NTX_HW_PROMPTS] = {
    {576, 8, 3, NTX_Q4_1}, {896, 4, 2, NTX_Q5_0}, {1024, 6, 4, NTX_Q4_K}, {2048, 3, 8, NTX_Q4_K}};

static int make_model(const struct shape *of, struct small *s, struct ntx_err *err)
{
    char keys[400];
    struct ntx_gguf *plain = NULL;
    uint32_t *type = NULL;
    snprintf(keys, sizeof keys,
             "block_count=%u embedding_length=%u feed_forward_length=%u attention.head_count=%u "
             "attention.head_count_kv=%u context_length=%u vocab_size=%u",
             of->layers, of->width, 3 * of->width, of->width / VALUES, of->kv_heads, CTX, of->width);
    int rc = ntx_sketch_make("llama", keys, "", &plain, err);
    const uint64_t n = rc ? 0 : ntx_gguf_n_tensors(plain);
    if (!rc && !(type = malloc(n * sizeof *type)))
        rc = ntx_err_set(err, -ENOMEM, "no memory");
    for (uint64_t i = 0; !rc && i < n; i++)
        type[i] = ntx_gguf_tensor_at(plain, i)->type == NTX_F32 ? NTX_F32 : of->type;
    if (!rc && !(rc = ntx_sketch_retype(plain, type, &s->gguf, err)))
        rc = ntx_model_open(s->gguf, &s->model, err);
    free(type);
    ntx_gguf_free(plain);
    return rc;
}

/* used: bytes of the buffer that other models have; at its end the first ones are taken again. */
static int lay_weights(const struct ntx__doctor_bench *b, uint64_t *used, struct small *s, struct ntx_err *err)
{
    const struct ntx_chunks *c = s->plan->chunks;
    const uint32_t width = s->model->hp.n_embd;
    s->bytes = (struct bytes){.w.ops = &ops,
                              .bench = b,
                              .model = s->model,
                              .chunks = c,
                              .at = calloc(c->n, sizeof *s->bytes.at),
                              .ones = malloc(width * sizeof(float))};
    if (!s->bytes.at || !s->bytes.ones)
        return ntx_err_set(err, -ENOMEM, "no memory");
    for (uint32_t i = 0; i < width; i++)
        s->bytes.ones[i] = 1;
    for (uint32_t i = 0; i < c->n; i++) {
        const uint64_t bytes = (c->list[i].bytes + 127) / 64 * 64; /* kernels read whole registers */
        if (bytes > b->bytes)
            return ntx_err_set(err, -E2BIG, "a matrix is larger than the buffer");
        *used = *used + bytes > b->bytes ? 0 : *used;
        ntx__doctor_fill((char *)b->buf + *used, bytes); /* others may have interleaved it */
        s->bytes.at[i] = *used;
        *used += bytes;
    }
    return 0;
}

static int make_pass(const struct ntx__doctor_bench *b, uint64_t *used, struct small *s, struct ntx_err *err)
{
    const struct ntx_plan_request r = {.ram_bytes = 64ull << 30,
                                       .ctx = CTX,
                                       .threads = ntx_pool_threads(b->all),
                                       .max_rows = ROWS,
                                       .no_prefixes = true};
    int rc = ntx_plan_make(s->model, &r, &s->plan, err);
    if (rc || (rc = lay_weights(b, used, s, err)) ||
        (rc = ntx_kv_pool_new(&s->model->hp, r.kv_type, &s->plan->kv, &s->pool, err)))
        return rc;
    const struct ntx_forward_config c = {.model = s->model,
                                         .chunks = s->plan->chunks,
                                         .ops = b->ops,
                                         .weights = &s->bytes.w,
                                         .threads = r.threads,
                                         .max_rows = ROWS,
                                         .ctx = CTX};
    if ((rc = ntx_kv_seq_new(s->pool, CTX, &s->kv)))
        return ntx_err_set(err, rc, "no memory");
    return ntx_forward_new(&c, &s->forward, err);
}

static void free_small(struct small *s)
{
    ntx_forward_free(s->forward);
    ntx_kv_seq_free(s->kv);
    ntx_kv_pool_free(s->pool);
    free(s->bytes.at);
    free(s->bytes.ones);
    ntx_plan_free(s->plan);
    ntx_model_free(s->model);
    ntx_gguf_free(s->gguf);
}

static int run_prompt(struct small *s, double *seconds, struct ntx_err *err)
{
    double least = 0;
    for (int k = 0; k < PASSES; k++) {
        for (uint32_t i = 0; i < ROWS; i++)
            s->rows[i] = (struct ntx_row){.token = (int32_t)(i % s->model->hp.n_vocab), .pos = i, .kv = s->kv};
        const struct ntx_batch batch = {.rows = s->rows, .n_rows = ROWS};
        const uint64_t t0 = ntx_now_ns();
        int rc = ntx_forward_run(s->forward, &batch);
        const double took = (double)(ntx_now_ns() - t0) / 1e9;
        if (rc)
            return ntx_err_set(err, rc, "a pass: %s%s", s->bytes.w.error.text, ntx_forward_error(s->forward)->text);
        least = k ? NTX_MIN(least, took) : took;
        if (took > LONGEST_S)
            break;
    }
    *seconds = least;
    return 0;
}

int ntx__doctor_layers_open(const struct ntx__doctor_bench *b, bool brief, struct ntx__doctor_layers **out,
                            struct ntx_err *err)
{
    struct ntx__doctor_layers *l = calloc(1, sizeof *l);
    int rc = l ? 0 : ntx_err_set(err, -ENOMEM, "no memory");
    uint64_t used = 0;
    for (unsigned i = 0; !rc && i < NTX_HW_PROMPTS; i++) {
        struct small *s = &l->of[i];
        rc = make_model(&shapes[i], s, err);
        if (!rc)
            rc = make_pass(b, &used, s, err);
        if (!rc)
            rc = run_prompt(s, &s->s[0], err);
        s->n = 1;
        if (rc)
            free_small(s);
        else
            l->n++;
        if (!rc && s->s[0] > LONGEST_S)
            break;
    }
    if (l)
        l->samples = brief ? 1 : SAMPLES;
    if (rc && rc != -E2BIG) {
        ntx__doctor_layers_close(l);
        return rc;
    }
    *out = l;
    return 0;
}

int ntx__doctor_layers_measure(struct ntx__doctor_layers *l, struct ntx_err *err)
{
    int rc = 0;
    l->round++;
    for (unsigned i = 0; !rc && l->round % APART == 0 && i < l->n; i++) {
        struct small *s = &l->of[i];
        if (s->n < l->samples)
            rc = run_prompt(s, &s->s[s->n++], err);
    }
    return rc;
}

void ntx__doctor_layers_rate(struct ntx__doctor_layers *l, struct ntx_hw *hw)
{
    for (unsigned i = 0; i < l->n; i++) {
        struct small *s = &l->of[i];
        struct ntx_load_bytes load;
        if (!s->n || !ntx_plan_load(s->model, s->plan, ROWS, 0, ROWS, &load))
            continue;
        const double times = ntx_predict_times(hw, &load, ntx__doctor_quantile(s->s, s->n, 2));
        if (times > 0)
            hw->prompts[hw->n_prompts++] = (struct ntx_hw_prompt){s->model->hp.n_embd, times};
    }
}

void ntx__doctor_layers_close(struct ntx__doctor_layers *l)
{
    for (unsigned i = 0; l && i < l->n; i++)
        free_small(&l->of[i]);
    free(l);
}
