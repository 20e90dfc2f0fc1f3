/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c: measures what a row of a pass costs beside its products: attention over the positions before it, and the
 * steps between matrices (norms, activations, quantizing), which take longer than reading where a prompt is long. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "client/doctor/doctor_impl.h"
#include "common/util.h"

enum {
    HEAD = 128,      /* values of a head; half as many in a second measurement */
    HEADS = 4,       /* query heads of a KV head */
    ROWS = 16,       /* of a call; one in a second measurement */
    POSITIONS = 512, /* of the text */
    BLOCK = 32,      /* positions of a block of KV */
    VALUES = 4096,   /* of a row between matrices */
    CALLS = 16,      /* of a thread in a run; of attention with ROWS a quarter */
    TURNS = 3,       /* in which both sizes of a head are measured */
};

struct rows {
    const struct ntx_cpu_ops *ops;
    const void *block[POSITIONS / BLOCK];
    float *q, *out; /* [HEADS * HEAD * ROWS]; per thread the same */
    float *x, *y;   /* [VALUES]; per thread [VALUES] */
    char *quantized;
    enum ntx_kv_type type; /* of an attention */
    uint32_t head, n_rows, calls;
};

static void attend_some(void *ctx, unsigned thread)
{
    const struct rows *m = ctx;
    const uint32_t width = HEADS * m->head;
    const struct ntx_attn a = {.q = m->q,
                               .out = m->out + (size_t)thread * HEADS * HEAD * ROWS,
                               .n_q = HEADS,
                               .n_rows = m->n_rows,
                               .ld_q = width,
                               .ld_out = width,
                               .k = m->block,
                               .v = m->block,
                               .block_tokens = BLOCK,
                               .n_pos = POSITIONS - m->n_rows + 1,
                               .head_k = m->head,
                               .head_v = m->head,
                               .scale = 0.01f};
    for (uint32_t i = 0; i < m->calls; i++)
        m->ops->attend[m->type](&a);
}

static void step_some(void *ctx, unsigned thread)
{
    const struct rows *m = ctx;
    float *y = m->y + (size_t)thread * VALUES;
    char *to = m->quantized + (size_t)thread * ntx_act_row_bytes(NTX_ACT_Q8K, VALUES);
    for (int i = 0; i < CALLS; i++) {
        m->ops->rmsnorm(m->x, m->x, 1e-5f, VALUES, y);
        m->ops->act_quantize[NTX_ACT_Q8K](y, to, VALUES);
        m->ops->add(y, m->x, VALUES);
        m->ops->glu[NTX_FFN_SILU](m->x, m->x, VALUES, y);
        m->ops->act_quantize[NTX_ACT_Q8K](y, to, VALUES);
    }
}

/* The least time of a run: a disturbance only adds. */
static double least_s(struct ntx_pool *pool, void (*run)(void *, unsigned), struct rows *m, double seconds)
{
    double least = 0;
    for (uint64_t begun = ntx_now_ns(), now = begun; !least || (double)(now - begun) < seconds * 1e9;) {
        uint64_t t0 = now;
        ntx_pool_run(pool, run, m);
        now = ntx_now_ns();
        double s = (double)(now - t0) / 1e9;
        least = least > 0 ? NTX_MIN(least, s) : s;
    }
    return least;
}

/* Scores of two sizes of a head: from their times follow the rate of the arithmetic, and a score's time beside it. */
static struct ntx_hw_attend measure_attend(struct ntx_pool *pool, struct rows *m, enum ntx_kv_type type, bool many,
                                           double seconds)
{
    double score_s[2] = {0};
    m->type = type;
    m->n_rows = many ? ROWS : 1;
    m->calls = many ? CALLS / 4 : CALLS;
    /* a row sees the positions before it: POSITIONS less half the rows */
    const double scores = (double)m->calls * ntx_pool_threads(pool) * HEADS * m->n_rows * (POSITIONS - m->n_rows / 2.0);
    for (int i = 0; i < 2 * TURNS; i++) {
        m->head = i % 2 ? HEAD / 2 : HEAD;
        const double s = least_s(pool, attend_some, m, seconds / (2 * TURNS)) / scores;
        score_s[i % 2] = i < 2 ? s : NTX_MIN(score_s[i % 2], s);
    }
    const double ops = 4 * HEAD / 2, /* a product with K, one with V: two additions, two multiplications a value */
        value_s = NTX_MAX(score_s[0] - score_s[1], score_s[0] / 4) / ops;
    return (struct ntx_hw_attend){1 / value_s, NTX_MAX(score_s[0] - 2 * ops * value_s, 0.0)};
}

int ntx__doctor_rows(const struct ntx__doctor_bench *b, double seconds, struct ntx_hw *hw)
{
    const unsigned threads = ntx_pool_threads(b->all);
    struct rows m = {.ops = b->ops};
    const size_t floats = (size_t)HEADS * HEAD * ROWS, block = (size_t)BLOCK * HEAD * sizeof(uint16_t);
    char *kv = ntx__doctor_buffer(POSITIONS / BLOCK * block);
    m.q = ntx__doctor_buffer(floats * sizeof *m.q);
    m.out = ntx__doctor_buffer(threads * floats * sizeof *m.out);
    m.x = ntx__doctor_buffer(VALUES * sizeof *m.x);
    m.y = ntx__doctor_buffer(threads * VALUES * sizeof *m.y);
    m.quantized = ntx__doctor_buffer(threads * ntx_act_row_bytes(NTX_ACT_Q8K, VALUES));
    int rc = kv && m.q && m.out && m.x && m.y && m.quantized ? 0 : -ENOMEM;
    for (size_t i = 0; !rc && i < POSITIONS / BLOCK; i++) {
        ntx__doctor_fill(kv + i * block, block);
        m.block[i] = kv + i * block;
    }
    for (size_t i = 0; !rc && i < floats; i++)
        m.q[i] = (float)(i * 7 % 31) / 16 - 1;
    for (size_t i = 0; !rc && i < VALUES; i++)
        m.x[i] = (float)(i * 5 % 29) / 16 - 1;
    for (int t = 0; !rc && t < NTX_N_KV; t++)
        for (int many = 0; many < 2; many++)
            hw->attend[t][many] = measure_attend(b->all, &m, (enum ntx_kv_type)t, many, seconds / (2.0 * NTX_N_KV + 1));
    if (!rc)
        hw->value_s = least_s(b->all, step_some, &m, seconds / (2.0 * NTX_N_KV + 1)) /
                      ((double)CALLS * threads * 2 * VALUES);
    free(kv);
    free(m.q);
    free(m.out);
    free(m.x);
    free(m.y);
    free(m.quantized);
    return rc;
}
