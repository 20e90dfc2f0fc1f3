/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/plan/roofline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct table {
    const struct ntx_roof_model *m;
    const struct ntx_roof_machine *hw;
    const struct ntx_roof_run *r;
    struct ntx_roof_op *ops;
    unsigned n;
    double peak, b, tok, s; /* batch, tokens per sequence in this pass, positions that each of them sees */
};

static double peak_of(const struct ntx_roof_model *m, const struct ntx_roof_machine *hw)
{
    return m->w <= 1 && m->a <= 1 && m->kv <= 1 && hw->peak_int8 > 0 ? hw->peak_int8 : hw->peak;
}

double ntx_roof_turn(const struct ntx_roof_model *m, const struct ntx_roof_machine *hw)
{
    return peak_of(m, hw) / hw->bps;
}

static void add_op(struct table *t, const char *name, double count, bool listed, double ops, double bytes)
{
    double i = ops / bytes, turn = t->peak / t->hw->bps;
    struct ntx_roof_op op = {.name = name,
                             .ops = ops,
                             .bytes = bytes,
                             .intensity = i,
                             .compute_bound = i >= turn,
                             .count = count,
                             .listed = listed};
    op.attained = op.compute_bound ? t->peak : i * t->hw->bps;
    op.seconds = ops / op.attained;
    t->ops[t->n++] = op;
}

/* A matrix; its output is an activation, or KV. */
static void add_linear(struct table *t, const char *name, double in, double out, double out_bytes)
{
    double rows = t->b * t->tok;
    add_op(t, name, t->m->layers, true, 2 * in * out * rows,
           in * out * t->m->w + in * rows * t->m->a + out * rows * out_bytes);
}

static void add_attention(struct table *t)
{
    const struct ntx_roof_model *m = t->m;
    double rows = t->b * t->tok, vectors = rows * m->head * m->heads * m->a, scores = rows * t->s * m->heads;
    double cached = (double)t->r->seq * m->head * m->kv_heads * t->b * m->kv;
    double queries = t->r->published && t->r->prefill ? vectors / m->heads * m->kv_heads : vectors;
    add_op(t, "qk_matmul", m->layers, true, 2 * scores * m->head, queries + scores * m->a + cached);
    add_op(t, "sv_matmul", m->layers, true, 2 * scores * m->head, vectors + scores * m->a + cached);
    add_op(t, "softmax", m->layers, true, 5 * scores, 2 * scores * m->a);
}

static void add_small_ops(struct table *t)
{
    const struct ntx_roof_model *m = t->m;
    double rows = t->b * t->tok, state = rows * m->d;
    bool old = t->r->published;
    add_op(t, "norm", 2.0 * m->layers, true, 7 * state, 2 * state * m->a);
    add_op(t, "add", 2.0 * m->layers, true, state, (old ? 2 : 3) * state * m->a);
    double mid = old ? state : rows * m->ff;
    add_op(t, "mlp_act", m->layers, !old, (old ? 2 : 4) * mid, 3 * mid * m->a);
}

/* Only the last token's logits of each sequence are wanted. */
static void add_head(struct table *t)
{
    const struct ntx_roof_model *m = t->m;
    double d = m->d, v = m->vocab, rows = t->r->published ? 1 : t->b;
    add_op(t, "lm_head", 1, !t->r->published, (t->r->published ? 1 : 2) * t->b * d * v,
           d * v * m->w + rows * (d + v) * m->a);
}

unsigned ntx_roof_table(const struct ntx_roof_model *m, const struct ntx_roof_machine *hw, const struct ntx_roof_run *r,
                        struct ntx_roof_op *ops)
{
    struct table t = {.m = m,
                      .hw = hw,
                      .r = r,
                      .ops = ops,
                      .peak = peak_of(m, hw),
                      .b = r->batch,
                      .tok = r->prefill ? r->seq : 1,
                      .s = r->seq};
    double q = (double)m->head * m->heads, kv = (double)m->head * m->kv_heads;
    if (r->prefill && !r->published)
        t.s = ((double)r->seq + 1) / 2;
    add_linear(&t, "q_proj", m->d, q, m->a);
    add_linear(&t, "k_proj", m->d, kv, m->kv);
    add_linear(&t, "v_proj", m->d, kv, m->kv);
    add_linear(&t, "o_proj", q, m->d, m->a);
    add_linear(&t, "gate_proj", m->d, m->ff, m->a);
    add_linear(&t, "up_proj", m->d, m->ff, m->a);
    add_linear(&t, "down_proj", m->ff, m->d, m->a);
    add_attention(&t);
    add_small_ops(&t);
    add_head(&t);
    return t.n;
}

struct ntx_roof_network ntx_roof_sum(const struct ntx_roof_model *m, const struct ntx_roof_run *r,
                                     const struct ntx_roof_op *ops, unsigned n)
{
    struct ntx_roof_network s = {0};
    double q = (double)m->head * m->heads, kv = (double)m->head * m->kv_heads;
    for (unsigned i = 0; i < n; i++) {
        s.ops += ops[i].count * ops[i].ops;
        s.bytes += ops[i].count * ops[i].bytes;
        s.seconds += ops[i].count * ops[i].seconds;
    }
    s.weight_bytes = m->layers * m->w * m->d * (2 * q + 2 * kv + 3.0 * m->ff);
    s.kv_bytes = 2.0 * m->layers * kv * m->kv * r->seq * r->batch;
    return s;
}

const char *ntx_roof_si(double x, char *buf, unsigned n)
{
    static const char units[] = " KMGTPE";
    unsigned u = 0;
    while (x >= 1000 && u + 2 < sizeof units) {
        x /= 1000;
        u++;
    }
    if (u)
        snprintf(buf, n, "%.0f%c", x, units[u]);
    else
        snprintf(buf, n, "%.0f", x);
    return buf;
}

const char *ntx_roof_intensity(double x, char *buf, unsigned n)
{
    snprintf(buf, n, x >= 100 ? "%.0f" : "%.2f", x);
    char *dot = strchr(buf, '.');
    for (char *end = buf + strlen(buf) - 1; dot && (*end == '0' || *end == '.'); end--) {
        bool last = *end == '.';
        *end = 0;
        if (last)
            break;
    }
    return buf;
}
