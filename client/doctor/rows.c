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
    HEAD = 128,       /* values of a head */
    HEADS = 4,        /* query heads of a KV head */
    ROWS = 16,        /* of a call */
    POSITIONS = 1024, /* of the text */
    BLOCK = 32,       /* positions of a block of KV */
    VALUES = 4096,    /* of a row between matrices */
    CALLS = 16,       /* of a thread in a run */
};

struct rows {
    const struct ntx_cpu_ops *ops;
    const void *block[POSITIONS / BLOCK];
    float *q, *out; /* [HEADS * HEAD * ROWS]; per thread the same */
    float *x, *y;   /* [VALUES]; per thread [VALUES] */
    char *quantized;
};

static void attend_some(void *ctx, unsigned thread)
{
    const struct rows *m = ctx;
    const uint32_t width = HEADS * HEAD;
    const struct ntx_attn a = {.q = m->q,
                               .out = m->out + (size_t)thread * width * ROWS,
                               .n_q = HEADS,
                               .n_rows = ROWS,
                               .ld_q = width,
                               .ld_out = width,
                               .k = m->block,
                               .v = m->block,
                               .block_tokens = BLOCK,
                               .n_pos = POSITIONS - ROWS + 1,
                               .head_k = HEAD,
                               .head_v = HEAD,
                               .scale = 0.01f};
    for (int i = 0; i < CALLS; i++)
        m->ops->attend[NTX_KV_F16](&a);
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
    if (!rc) {
        /* a row sees the positions before it: POSITIONS less half the rows */
        const double macs = (double)CALLS * threads * HEADS * ROWS * 2 * HEAD * (POSITIONS - ROWS / 2.0);
        hw->attend_flops = 2 * macs / least_s(b->all, attend_some, &m, seconds / 2);
        hw->value_s = least_s(b->all, step_some, &m, seconds / 2) / ((double)CALLS * threads * 2 * VALUES);
    }
    free(kv);
    free(m.q);
    free(m.out);
    free(m.x);
    free(m.y);
    free(m.quantized);
    return rc;
}
