/* SPDX-License-Identifier: Apache-2.0 */
/* attend.c: attention of the heads that share a KV head against float64, F16 and Q8_0, with holes, windows, sinks and
 * odd widths; equal bits on every instruction set, however heads and rows are grouped, and in steps that threads share;
 * K and V are read only where they are. */
#include "common/util.h"
#include "model/arch.h"
#include "model/quant.h"
#include "tests/lib/cpu_kit.h"

enum { MAX_POS = 600, MAX_HEAD = 576, MAX_BLOCKS = 80, MAX_Q = NTX_ATTN_HEADS };

struct kv {
    struct guarded mem[MAX_BLOCKS];
    const void *at[MAX_BLOCKS];
    enum ntx_kv_type type;
    uint32_t width, tokens;
    bool key;
};

static const char *const ntx_kind[] = {"F16", "Q8_0", "Q4_0"};

static size_t row_bytes(enum ntx_kv_type type, bool key, uint32_t width)
{
    const uint32_t four = key ? 26 : 18;
    if (type == NTX_KV_F16)
        return 2 * width;
    return width / 32 * (type == NTX_KV_Q8_0 ? 34 : four);
}

/* key: K, else V. A partial last block of F16 ends at a guard page; blocks of Q8_0 are whole, with noise behind the
 * last position. */
static void kv_fill(struct kv *kv, struct rng *r, uint32_t n_pos, uint32_t tokens, uint32_t width, const uint8_t *hole,
                    enum ntx_kv_type type, bool key)
{
    float x[MAX_HEAD];
    const struct ntx_cpu_ops *ops = ntx_cpu_pick("generic");
    *kv = (struct kv){.width = width, .tokens = tokens, .type = type, .key = key};
    for (uint32_t b = 0; b * tokens < n_pos; b++) {
        uint32_t here = n_pos - b * tokens < tokens ? n_pos - b * tokens : tokens;
        size_t bytes = (type == NTX_KV_F16 ? here : tokens) * row_bytes(type, key, width);
        kv->mem[b] = guard_new(bytes);
        uint8_t *p = (uint8_t *)kv->mem[b].end - bytes;
        for (size_t i = 0; i < bytes; i++)
            p[i] = (uint8_t)rng_u32(r);
        for (uint32_t t = 0; t < here; t++) {
            bool gone = hole && hole[(b * tokens + t) / 8] >> ((b * tokens + t) % 8) & 1;
            for (uint32_t i = 0; i < width; i++)
                x[i] = gone ? NAN /* must not be touched */ : rng_float(r);
            (key ? ops->k_store : ops->v_store)[type](x, p, t, width);
        }
        kv->at[b] = p;
    }
}

static void kv_free(struct kv *kv, uint32_t n_pos)
{
    for (uint32_t b = 0; b * kv->tokens < n_pos; b++)
        guard_free(kv->mem[b]);
}

/* K of Q4_0: four bits, and two more behind them. */
static int six_bits(const uint8_t *block, uint32_t n, uint32_t t, uint32_t i)
{
    const uint8_t low = block[i / 8 * 128 + 4 * t + i % 4], high = block[16 * n + i / 16 * 128 + 4 * t + i % 4];
    return (i / 4 % 2 ? low >> 4 : low & 15) + (high >> i / 4 % 4 * 2 & 3) * 16 - 32;
}

static double kv_at(const struct kv *kv, uint32_t p, uint32_t i)
{
    static const int8_t number[16] = {NTX_VALUES_iq4_nl};
    const uint8_t *block = kv->at[p / kv->tokens];
    uint32_t n = kv->width, t = p % kv->tokens, ints = 32 * n;
    uint16_t h;
    if (kv->type == NTX_KV_Q4_0)
        ints = kv->key ? 24 * n : 16 * n;
    memcpy(&h, block + (kv->type == NTX_KV_F16 ? 2 * (t * n + i) : ints + 2 * (i / 32 * 32 + t)), 2);
    double v = (double)ntx_f16_to_f32(h);
    if (kv->type == NTX_KV_F16)
        return v;
    uint32_t panel = i / NTX_KV_Q8_PANEL * NTX_KV_Q8_PANEL,
             width = n - panel < NTX_KV_Q8_PANEL ? n - panel : NTX_KV_Q8_PANEL, in = i - panel;
    if (kv->type == NTX_KV_Q8_0)
        return v * (kv->key ? block[i / 4 * 128 + 4 * t + i % 4] - 128
                            : (int8_t)block[32 * panel + t / 4 * 4 * width + 4 * in + t % 4]);
    if (kv->key)
        return v * six_bits(block, n, t, i);
    uint8_t two = block[16 * panel + t / 4 * 2 * width + 4 * (in % (width / 2)) + t % 4];
    return v * number[in >= width / 2 ? two >> 4 : two & 15];
}

/* By the definition, not by butterflies: sign of (i, j) is the parity of their common bits. */
static void turn(double *x, uint32_t n)
{
    uint32_t piece = n & -n;
    double y[MAX_HEAD];
    for (uint32_t i = 0; i < n; i++) {
        y[i] = 0;
        for (uint32_t j = 0; j < piece; j++)
            y[i] += (__builtin_popcount(i % piece & j) % 2 ? -1 : 1) * x[i / piece * piece + j];
        y[i] /= sqrt((double)piece);
    }
    memcpy(x, y, n * sizeof *x);
}

/* q as the Q4_0 product uses it. The floats are added in the same order, since rounding to integers may go either
 * way at the bound. */
static void transpose_floats(const float *q, uint32_t n, float *x)
{
    uint32_t piece = n & -n;
    memcpy(x, q, n * sizeof *x);
    for (uint32_t half = 1; half < piece; half *= 2)
        for (uint32_t k = 0; k < n; k++)
            if (!(k & half)) {
                float a = x[k], b = x[k + half];
                x[k] = a + b;
                x[k + half] = a - b;
            }
    for (uint32_t k = 0; k < n; k++)
        x[k] *= 1.0f / sqrtf((float)piece);
}

/* q as the Q8_0 product uses it: blocks of 32, rounded to int8. */
static void quantise(const float *q, uint32_t n, double *out)
{
    for (uint32_t b = 0; b < n; b += 32) {
        float max = 0;
        for (uint32_t i = b; i < b + 32; i++)
            max = fmaxf(max, fabsf(q[i]));
        for (uint32_t i = b; i < b + 32; i++)
            out[i] = (double)(max / 127) * (max > 0 ? nearbyint((double)(q[i] * (127 / max))) : 0);
    }
}

static void reference(const struct ntx_attn *a, const struct kv *k, const struct kv *v, double *out)
{
    double s[MAX_POS], max = -INFINITY, sum = 0, q[MAX_HEAD];
    float turned[MAX_HEAD];
    for (uint32_t i = 0; i < a->head_k; i++)
        q[i] = (double)a->q[i];
    if (k->type == NTX_KV_Q8_0)
        quantise(a->q, a->head_k, q);
    if (k->type == NTX_KV_Q4_0) {
        transpose_floats(a->q, a->head_k, turned);
        quantise(turned, a->head_k, q);
    }
    if (a->sinks)
        max = (double)a->sinks[0];
    for (uint32_t p = 0; p < a->n_pos; p++) {
        s[p] = 0;
        for (uint32_t i = 0; i < a->head_k && p >= ntx_attn_from(a, 0); i++)
            s[p] += q[i] * kv_at(k, p, i);
        s[p] = p < ntx_attn_from(a, 0) || (a->hole && a->hole[p / 8] >> (p % 8) & 1) ? -INFINITY
                                                                                     : s[p] * (double)a->scale;
        if (a->cap != 0 && s[p] != -INFINITY)
            s[p] = (double)a->cap * tanh(s[p] / (double)a->cap);
        max = fmax(max, s[p]);
    }
    if (a->sinks)
        sum = exp((double)a->sinks[0] - max);
    for (uint32_t i = 0; i < a->head_v; i++)
        out[i] = 0;
    for (uint32_t p = 0; p < a->n_pos; p++) {
        if (s[p] == -INFINITY)
            continue;
        double e = exp(s[p] - max);
        sum += e;
        for (uint32_t i = 0; i < a->head_v; i++)
            out[i] += e * kv_at(v, p, i);
    }
    for (uint32_t i = 0; i < a->head_v && sum > 0; i++)
        out[i] /= sum;
    if (k->type == NTX_KV_Q4_0)
        turn(out, a->head_v);
}

static void near(const struct ntx_attn *a, const struct kv *k, const struct kv *v)
{
    double want[MAX_HEAD];
    for (uint32_t g = 0; g < a->n_q; g++) {
        struct ntx_attn one = *a;
        one.q += g * a->head_k;
        one.out += g * a->head_v;
        one.sinks = a->sinks ? a->sinks + g : NULL;
        reference(&one, k, v, want);
        for (uint32_t i = 0; i < a->head_v; i++)
            CHECK_MSG(fabs((double)one.out[i] - want[i]) <
                          (k->type == NTX_KV_F16 ? 3e-6 : 2e-5 /* weights have 15 bits */),
                      "%u positions, head %u of %u: %g, expected %g", a->n_pos, g, a->n_q, (double)one.out[i], want[i]);
    }
}

/* In rounds of `most` positions: scores of a part at a time, from the last on, and `slice` values of V at a time. */
static void same_shared_bits(const struct ntx_cpu_ops *ops, const struct ntx_attn *a, enum ntx_kv_type type,
                             uint32_t most, uint32_t slice)
{
    static float out[MAX_Q * MAX_HEAD + 1], w[MAX_Q][3 * NTX_ATTN_PART], by[MAX_Q][3];
    struct ntx_attn_sum sum[MAX_Q];
    struct ntx_attn b = *a;
    const size_t n = (size_t)a->n_q * a->head_v;
    if (!ops->attn_scores[type])
        return;
    b.out = out;
    memset(out, 0xff, n * sizeof *out);
    out[n] = 77;
    for (uint32_t first = ntx_attn_begins(a), end; first < a->n_pos; first = end) {
        end = NTX_MIN(first + most, a->n_pos);
        const struct ntx_attn_round r = {first, end, 3 * NTX_ATTN_PART, w[0], by[0], sum};
        memset(w, 0xff, sizeof w);
        for (uint32_t part = (end - first + NTX_ATTN_PART - 1) / NTX_ATTN_PART; part--;) {
            const uint32_t from = first + part * NTX_ATTN_PART;
            ops->attn_scores[type](&b, &r, from, NTX_MIN(from + NTX_ATTN_PART, end));
        }
        for (uint32_t g = 0; g < a->n_q; g++)
            ops->attn_weights(&b, &r, g);
        for (uint32_t e = 0; e < a->head_v; e += slice)
            ops->attn_values[type](&b, &r, e, NTX_MIN(e + slice, a->head_v));
    }
    CHECK_MSG(!memcmp(out, a->out, n * sizeof *out) && out[n] == 77,
              "%s, %s, %u heads of %u and %u, %u positions, window %u, rounds of %u, %u values", ops->name,
              ntx_kind[type], a->n_q, a->head_k, a->head_v, a->n_pos, a->window, most, slice);
}

/* All heads in one call, and each alone. */
static void same_bits(const struct ntx_cpu_ops *ops, const struct ntx_attn *a, enum ntx_kv_type type)
{
    static float out[MAX_Q * MAX_HEAD + 1];
    struct ntx_attn b = *a;
    size_t n = (size_t)a->n_q * a->head_v;
    b.out = out;
    out[n] = 77;
    ops->attend[type](&b);
    CHECK_MSG(!memcmp(out, a->out, n * sizeof *out) && out[n] == 77, "%s, %u heads", ops->name, a->n_q);
    memset(out, 0xff, n * sizeof *out);
    for (uint32_t g = 0; g < a->n_q; g++) {
        struct ntx_attn one = b;
        one.n_q = 1;
        one.q = a->q + g * a->head_k;
        one.out = out + g * a->head_v;
        one.sinks = a->sinks ? a->sinks + g : NULL;
        ops->attend[type](&one);
    }
    CHECK_MSG(!memcmp(out, a->out, n * sizeof *out), "%s, %u heads one by one", ops->name, a->n_q);
    same_shared_bits(ops, a, type, 3 * NTX_ATTN_PART, 32);
    same_shared_bits(ops, a, type, NTX_ATTN_PART, 64);
    same_shared_bits(ops, a, type, 2 * NTX_ATTN_PART, MAX_HEAD);
}

/* With a window; an odd one comes with sinks. Every third length has capped scores. Blocks before what the first row
 * sees are nowhere. */
static void narrow(struct rng *r, struct ntx_attn *a, uint32_t window, float *sinks, struct kv *k, struct kv *v)
{
    a->window = window;
    a->first = window && window % 4 == 0 ? a->n_pos * 2 / 3 : 0;
    a->cap = a->n_pos % 3 == 1 ? 1.5f : 0;
    a->sinks = window % 2 ? sinks : NULL;
    for (uint32_t g = 0; g < a->n_q; g++)
        sinks[g] = rng_float(r) * 3;
    for (uint32_t b = 0; (b + 1) * a->block_tokens <= ntx_attn_from(a, 0); b++)
        k->at[b] = v->at[b] = NULL;
}

/* V is a part of K. */
static void v_in_k(struct ntx_attn *a, const struct kv *k)
{
    a->v = k->at;
    a->v_in_k = true;
    ntx_cpu_pick("generic")->attend[NTX_KV_F16](a);
    near(a, k, k);
    const struct ntx_cpu_ops *ops;
    for (unsigned n = 0; (ops = isa_at(n)); n++)
        same_bits(ops, a, NTX_KV_F16);
}

static void check_case(struct rng *r, enum ntx_kv_type type, uint32_t n_q, uint32_t n_pos, uint32_t tokens,
                       uint32_t head_k, uint32_t head_v, int holes, uint32_t window)
{
    static float q[MAX_Q * MAX_HEAD], out[MAX_Q * MAX_HEAD];
    float sinks[MAX_Q];
    uint8_t hole[MAX_POS / 8 + 1];
    struct kv k, v;
    for (uint32_t i = 0; i < sizeof hole; i++)
        hole[i] = (uint8_t)(holes == 1 ? rng_u32(r) & rng_u32(r) : 0xff);
    if (holes == 3) /* all of the first part */
        memset(hole + 32, 0, sizeof hole - 32);
    kv_fill(&k, r, n_pos, tokens, head_k, holes ? hole : NULL, type, true);
    kv_fill(&v, r, n_pos, tokens, head_v, holes ? hole : NULL, type, false);
    for (uint32_t i = 0; i < n_q * head_k; i++)
        q[i] = rng_float(r) * 4;
    struct ntx_attn a = {
        .q = q,
        .out = out,
        .n_q = n_q,
        .n_rows = 1,
        .k = k.at,
        .v = v.at,
        .block_tokens = tokens,
        .n_pos = n_pos,
        .head_k = head_k,
        .head_v = head_v,
        .scale = 1 / sqrtf((float)head_k),
        .hole = holes ? hole : NULL,
    };
    narrow(r, &a, window, sinks, &k, &v);
    ntx_cpu_pick("generic")->attend[type](&a);
    near(&a, &k, &v);
    same_bits(ntx_cpu_pick("generic"), &a, type);
    const struct ntx_cpu_ops *ops;
    for (unsigned n = 0; (ops = isa_at(n)); n++)
        same_bits(ops, &a, type);
    if (type == NTX_KV_F16 && head_v <= head_k)
        v_in_k(&a, &k);
    kv_free(&k, n_pos);
    kv_free(&v, n_pos);
}

/* Rows that end with n_pos positions and those before, in one call, against each alone by the oracle. Between rows lie
 * `gap` floats that nobody may touch. */
static void check_rows(struct rng *r, enum ntx_kv_type type, uint32_t n_q, uint32_t n_rows, uint32_t n_pos,
                       uint32_t tokens, uint32_t head_k, uint32_t head_v, int holes, uint32_t window)
{
    enum { GAP = 5, ROOM = NTX_ATTN_VECTORS * (MAX_HEAD + GAP) };
    static float q[ROOM], out[ROOM], want[ROOM];
    float sinks[MAX_Q];
    uint8_t hole[MAX_POS / 8 + 1];
    struct kv k, v;
    for (uint32_t i = 0; i < sizeof hole; i++)
        hole[i] = (uint8_t)(holes == 1 ? rng_u32(r) & rng_u32(r) : 0xff);
    if (holes == 3)
        memset(hole + 32, 0, sizeof hole - 32);
    kv_fill(&k, r, n_pos, tokens, head_k, holes ? hole : NULL, type, true);
    kv_fill(&v, r, n_pos, tokens, head_v, holes ? hole : NULL, type, false);
    for (uint32_t i = 0; i < ROOM; i++) {
        q[i] = rng_float(r) * 4;
        want[i] = 77;
    }
    bool in_k = type == NTX_KV_F16 && head_v <= head_k && n_pos % 2;
    struct ntx_attn a = {
        .q = q,
        .out = want,
        .n_q = n_q,
        .n_rows = n_rows,
        .v_in_k = in_k,
        .ld_q = n_q * head_k + GAP,
        .ld_out = n_q * head_v + GAP,
        .k = k.at,
        .v = in_k ? k.at : v.at,
        .block_tokens = tokens,
        .n_pos = n_pos - n_rows + 1,
        .head_k = head_k,
        .head_v = head_v,
        .scale = 1 / sqrtf((float)head_k),
        .hole = holes ? hole : NULL,
    };
    narrow(r, &a, window, sinks, &k, &v);
    for (uint32_t i = 0; i < n_rows; i++) {
        struct ntx_attn one = a;
        one.q += i * a.ld_q;
        one.out += i * a.ld_out;
        one.n_pos += i;
        one.n_rows = 1;
        ntx_cpu_pick("generic")->attend[type](&one);
    }
    a.out = out;
    for (unsigned n = 0; n < 4; n++) {
        const struct ntx_cpu_ops *ops = n ? isa_at(n - 1) : ntx_cpu_pick("generic");
        for (uint32_t i = 0; i < ROOM; i++)
            out[i] = 77;
        if (ops)
            ops->attend[type](&a);
        CHECK_MSG(!ops || !memcmp(out, want, sizeof out),
                  "%s, %s: %u rows of %u heads of %u and %u, up to %u positions, holes %d, window %u", ops->name,
                  ntx_kind[type], n_rows, n_q, head_k, head_v, n_pos, holes, window);
    }
    kv_free(&k, n_pos);
    kv_free(&v, n_pos);
}

/* check_store's values: the first block is small, the second large, the others zero. */
static double store_scale(uint32_t i)
{
    if (i < 32)
        return 1;
    return i < 64 ? 1000 : 0;
}

/* Q8_0 values read back within half a step of their block. Every instruction set writes the same bytes, and only those
 * of the position. */
static void check_store(struct rng *r, bool key)
{
    enum { N = 160, TOKENS = NTX_KV_Q8_TOKENS };
    static float x[TOKENS][N];
    static uint8_t a[TOKENS * N / 32 * 34], b[sizeof a];
    struct kv kv = {.at = {a}, .type = NTX_KV_Q8_0, .width = N, .tokens = TOKENS, .key = key};
    for (uint32_t t = 0; t < TOKENS; t++)
        for (int i = 0; i < N; i++)
            x[t][i] = rng_float(r) * (float)store_scale((uint32_t)i);
    const struct ntx_cpu_ops *ops = ntx_cpu_pick("generic");
    for (uint32_t t = 0; t < TOKENS; t++)
        (key ? ops->k_store : ops->v_store)[NTX_KV_Q8_0](x[t * 7 % TOKENS], a, t * 7 % TOKENS, N);
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t i = 0; i < N; i++)
            CHECK(fabs(kv_at(&kv, t, i) - (double)x[t][i]) <= store_scale(i) * (0.5 / 127 + 1.0 / 2048));
    for (unsigned n = 0; (ops = isa_at(n)); n++) {
        memset(b, 0x55, sizeof b);
        for (uint32_t t = 0; t < TOKENS; t++)
            (key ? ops->k_store : ops->v_store)[NTX_KV_Q8_0](x[t], b, t, N);
        CHECK(!memcmp(a, b, sizeof a));
    }
}

/* check_store_four's values: one channel is far above the others, and the last block is zero. */
static float four_scale(int i)
{
    if (i == 3)
        return 100;
    return i < 128 ? 1 : 0;
}

/* Q4_0 values, which are stored rotated, read back within half a step of their block. K's step is 1 / 31.5 of the
 * block's largest rotated value. V's numbers are up to 24 of 107 apart, or cut off up to 31 of 144. Every instruction
 * set writes the same bytes, and only those of the position. */
static void check_store_four(struct rng *r, bool key)
{
    enum { N = 160, TOKENS = NTX_KV_Q8_TOKENS };
    static uint8_t a[TOKENS * N / 32 * 26], b[sizeof a];
    struct kv kv = {.at = {a}, .type = NTX_KV_Q4_0, .width = N, .tokens = TOKENS, .key = key};
    static float x[TOKENS][N];
    const struct ntx_cpu_ops *ops = ntx_cpu_pick("generic");
    for (uint32_t t = 0; t < TOKENS; t++)
        for (int i = 0; i < N; i++)
            x[t][i] = rng_float(r) * four_scale(i);
    memset(a, 0x55, sizeof a);
    for (uint32_t t = 0; t < TOKENS; t++)
        (key ? ops->k_store : ops->v_store)[NTX_KV_Q4_0](x[t * 7 % TOKENS], a, t * 7 % TOKENS, N);
    for (uint32_t t = 0; t < TOKENS; t++) {
        float most[N / 32] = {0}, turned[N];
        transpose_floats(x[t], N, turned);
        for (uint32_t i = 0; i < N; i++)
            most[i / 32] = fmaxf(most[i / 32], fabsf(turned[i]));
        for (uint32_t i = 0; i < N; i++)
            CHECK_MSG(fabs(kv_at(&kv, t, i) - (double)turned[i]) <=
                          (double)most[i / 32] * (key ? 0.501 / 31.5 + 32 / 31.5 / 2048 : 0.24),
                      "%g for %g", kv_at(&kv, t, i), (double)turned[i]);
    }
    for (unsigned n = 0; (ops = isa_at(n)); n++) {
        memset(b, 0xaa, sizeof b);
        for (uint32_t t = 0; t < TOKENS; t++)
            (key ? ops->k_store : ops->v_store)[NTX_KV_Q4_0](x[t], b, t, N);
        CHECK(!memcmp(a, b, TOKENS * row_bytes(NTX_KV_Q4_0, key, N)));
    }
}

/* A NaN in K or V shows in every head that sees it, and in no other. Weights far below the part's largest, or below
 * the range of integers, do no harm. */
static void check_odd_values(struct rng *r)
{
    enum { N = 64, POS = 300 };
    struct kv k, v;
    float q[N], bad[N], out[N], want[N];
    for (int where = 0; where < 3; where++) {
        kv_fill(&k, r, POS, 32, N, NULL, NTX_KV_Q8_0, true);
        kv_fill(&v, r, POS, 32, N, NULL, NTX_KV_Q8_0, false);
        for (int i = 0; i < N; i++) {
            q[i] = rng_float(r) * (where == 2 ? 4000 : 1);
            bad[i] = i == 40 ? INFINITY : 1;
        }
        if (where < 2)
            (where ? ntx_cpu_pick("generic")->v_store : ntx_cpu_pick("generic")->k_store)[NTX_KV_Q8_0](
                bad, (void *)(uintptr_t)(where ? v : k).at[8], 7, N);
        for (unsigned n = 0; n < 4; n++) {
            const struct ntx_cpu_ops *ops = n ? isa_at(n - 1) : ntx_cpu_pick("generic");
            struct ntx_attn a = {.q = q,
                                 .out = n ? out : want,
                                 .n_q = 1,
                                 .n_rows = 1,
                                 .ld_q = N,
                                 .ld_out = N,
                                 .k = k.at,
                                 .v = v.at,
                                 .block_tokens = 32,
                                 .n_pos = POS,
                                 .head_k = N,
                                 .head_v = N,
                                 .scale = 0.125f};
            if (!ops)
                continue;
            ops->attend[NTX_KV_Q8_0](&a);
            CHECK_MSG(!n || where < 2 || !memcmp(out, want, sizeof out), "%s", ops->name);
            for (int i = 0; i < N; i++)
                CHECK_MSG(!isnan(a.out[i]) == (where == 2 || (where == 1 && i < 32)), "%s: value %d in %d is %g",
                          ops->name, i, where, (double)a.out[i]);
            if (where == 2)
                near(&a, &k, &v);
        }
        kv_free(&k, POS);
        kv_free(&v, POS);
    }
}

/* Scores of positions have the bits of the order that cpu.h states. The score of a NULL key is minus infinity, and
 * no key is read beyond its end. */
static void check_index(struct rng *r, uint32_t heads, uint32_t width, uint32_t n)
{
    static float q[NTX_INDEX_HEADS_MAX * NTX_INDEX_HEAD_MAX], weights[NTX_INDEX_HEADS_MAX], score[64],
        apart[NTX_INDEX_HEADS_MAX * 65];
    const uint16_t *key[64];
    struct guarded mem = guard_new((size_t)n * width * 2);
    uint16_t *rows = (uint16_t *)(void *)mem.end - (size_t)n * width;
    for (uint32_t i = 0; i < heads * width; i++)
        q[i] = rng_float(r);
    for (uint32_t h = 0; h < heads; h++)
        weights[h] = rng_float(r);
    for (uint32_t p = 0; p < n; p++) {
        for (uint32_t i = 0; i < width; i++)
            rows[(size_t)p * width + i] = ntx_f32_to_f16(rng_float(r));
        key[p] = p % 7 == 3 ? NULL : rows + (size_t)p * width;
    }
    const struct ntx_cpu_ops *ops = ntx_cpu_pick("generic");
    for (unsigned k = 0; ops; ops = isa_at(k++)) {
        ops->index(&(struct ntx_index){
            .q = q, .weights = weights, .heads = heads, .width = width, .key = key, .score = score, .n = n});
        ops->index(
            &(struct ntx_index){.q = q, .ld = 65, .heads = heads, .width = width, .key = key, .score = apart, .n = n});
        for (uint32_t p = 0; p < n; p++) {
            float lane[16] = {0};
            for (uint32_t h = 0; h < heads && key[p]; h++) {
                float dot = 0;
                for (uint32_t i = 0; i < width; i++)
                    dot = fmaf(q[h * width + i], ntx_f16_to_f32(key[p][i]), dot);
                CHECK_MSG(apart[h * 65 + p] == dot, "%s, %u x %u, query %u, position %u", ops->name, heads, width, h,
                          p);
                lane[h % 16] = fmaf(weights[h], dot > 0 ? dot : 0, lane[h % 16]);
            }
            CHECK(key[p] || apart[p] == -INFINITY);
            for (int step = 8; step; step /= 2)
                for (int l = 0; l < step; l++)
                    lane[l] += lane[l + step];
            CHECK_MSG(score[p] == (key[p] ? lane[0] : -INFINITY), "%s, %u x %u, position %u of %u: %g, expected %g",
                      ops->name, heads, width, p, n, (double)score[p], (double)lane[0]);
        }
    }
    guard_free(mem);
}

/* Positions that are given one by one are summed like those of blocks. */
static void check_one_by_one(struct rng *r)
{
    enum { POS = 300 };
    static float q[4 * 96], out[4 * 96], want[4 * 96];
    struct kv k, v;
    const void *each_k[POS], *each_v[POS];
    kv_fill(&k, r, POS, 32, 96, NULL, NTX_KV_F16, true);
    kv_fill(&v, r, POS, 32, 64, NULL, NTX_KV_F16, false);
    for (uint32_t i = 0; i < 4 * 96; i++)
        q[i] = rng_float(r);
    struct ntx_attn a = {.q = q,
                         .out = want,
                         .n_q = 4,
                         .n_rows = 1,
                         .k = k.at,
                         .v = v.at,
                         .block_tokens = 32,
                         .n_pos = POS,
                         .head_k = 96,
                         .head_v = 64,
                         .scale = 0.1f};
    ntx_cpu_pick("generic")->attend[NTX_KV_F16](&a);
    for (uint32_t p = 0; p < POS; p++) {
        each_k[p] = (const uint16_t *)k.at[p / 32] + p % 32 * 96;
        each_v[p] = (const uint16_t *)v.at[p / 32] + p % 32 * 64;
    }
    a.k = each_k, a.v = each_v, a.block_tokens = 1, a.out = out;
    const struct ntx_cpu_ops *ops = ntx_cpu_pick("generic");
    for (unsigned n = 0; ops; ops = isa_at(n++)) {
        ops->attend[NTX_KV_F16](&a);
        CHECK_MSG(!memcmp(out, want, 4 * 64 * sizeof *out), "%s", ops->name);
    }
    kv_free(&k, POS);
    kv_free(&v, POS);
}

/* ---- K without its rotated biases */

enum { BIASED = 3, BIAS_POS = 2200, BIAS_HEAD = 64 }; /* pairs; positions, beyond one span of angles */

struct biased {
    struct ntx_turns turns[BIASED];
    float bias[BIASED][2];
    struct kv with, without, v; /* K with the biases, and without */
    double k[BIAS_POS][BIAS_HEAD];
};

/* Pair i is value i and i + 32 of a head; biases of 300 as in Qwen2.5, at slow and fast angles. */
static void biased_fill(struct biased *b, struct rng *r, enum ntx_kv_type type)
{
    const struct ntx_cpu_ops *ops = ntx_cpu_pick("generic");
    uint8_t all[BIAS_POS / 8 + 1] = {0};
    for (int i = 0; i < BIASED; i++) {
        const double freq = pow(1e6, -i / 2.0);
        b->turns[i].freq = freq;
        for (int n = 0; n < NTX_TURNS_FAR; n++) {
            b->turns[i].far[n][0] = cos(32 * n * freq);
            b->turns[i].far[n][1] = sin(32 * n * freq);
        }
        for (int n = 0; n < 32; n++) {
            b->turns[i].near[0][n] = (float)cos(n * freq);
            b->turns[i].near[1][n] = (float)sin(n * freq);
        }
        b->bias[i][0] = 300 * (float)(i + 1) / BIASED;
        b->bias[i][1] = -200;
    }
    kv_fill(&b->with, r, BIAS_POS, 32, BIAS_HEAD, all, type, true);
    kv_fill(&b->without, r, BIAS_POS, 32, BIAS_HEAD, all, type, true);
    kv_fill(&b->v, r, BIAS_POS, 32, BIAS_HEAD, all, type, false);
    for (uint32_t p = 0; p < BIAS_POS; p++) {
        float x[BIAS_HEAD], y[BIAS_HEAD];
        for (int i = 0; i < BIAS_HEAD; i++)
            x[i] = rng_float(r);
        for (int i = 0; i < BIAS_HEAD; i++)
            b->k[p][i] = (double)x[i];
        memcpy(y, x, sizeof y);
        for (int i = 0; i < BIASED; i++) {
            const double c = cos(p * b->turns[i].freq), s = sin(p * b->turns[i].freq);
            b->k[p][i] += (double)b->bias[i][0] * c - (double)b->bias[i][1] * s;
            b->k[p][i + 32] += (double)b->bias[i][0] * s + (double)b->bias[i][1] * c;
            y[i] = (float)b->k[p][i];
            y[i + 32] = (float)b->k[p][i + 32];
        }
        ops->k_store[type](x, (void *)b->without.at[p / 32], p % 32, BIAS_HEAD);
        ops->k_store[type](y, (void *)b->with.at[p / 32], p % 32, BIAS_HEAD);
    }
}

/* Root mean square of the errors of out, beside attention over exact K and the stored V. */
static double biased_error(const struct biased *b, const struct ntx_attn *a, const float *out)
{
    static double w[BIAS_POS];
    double sum = 0, most = -INFINITY, errors = 0, want[BIAS_HEAD] = {0};
    for (uint32_t p = 0; p < a->n_pos; p++) {
        w[p] = 0;
        for (int i = 0; i < BIAS_HEAD; i++)
            w[p] += (double)a->q[i] * b->k[p][i] * (double)a->scale;
        most = fmax(most, w[p]);
    }
    for (uint32_t p = 0; p < a->n_pos; p++) {
        sum += w[p] = exp(w[p] - most);
        for (uint32_t i = 0; i < BIAS_HEAD; i++)
            want[i] += w[p] * kv_at(&b->v, p, i);
    }
    for (int i = 0; i < BIAS_HEAD; i++)
        want[i] /= sum;
    if (b->v.type == NTX_KV_Q4_0)
        turn(want, BIAS_HEAD);
    for (int i = 0; i < BIAS_HEAD; i++)
        errors += ((double)out[i] - want[i]) * ((double)out[i] - want[i]);
    return sqrt(errors / BIAS_HEAD);
}

/* Biases of 300 in some pairs of K: kept in K they spoil attention; kept apart they cost nothing. Rows together, and
 * every instruction set, give the bits of a row alone. */
static void check_bias(struct rng *r, enum ntx_kv_type type)
{
    enum { ROWS = 5, HEADS_Q = 3, VECTORS = ROWS * HEADS_Q };
    static struct biased b;
    static const uint16_t angle[BIASED] = {0, 1, 2};
    static float q[VECTORS][BIAS_HEAD], x[VECTORS][BIASED][2], out[VECTORS * BIAS_HEAD], all[VECTORS * BIAS_HEAD];
    struct ntx_attn_bias bias = {.n = BIASED, .x = x[0][0], .angle = angle, .turns = b.turns};
    struct ntx_attn a = {.q = q[0],
                         .out = out,
                         .n_q = 1,
                         .n_rows = 1,
                         .ld_q = HEADS_Q * BIAS_HEAD,
                         .ld_out = HEADS_Q * BIAS_HEAD,
                         .k = b.with.at,
                         .v = b.v.at,
                         .block_tokens = 32,
                         .n_pos = BIAS_POS,
                         .head_k = BIAS_HEAD,
                         .head_v = BIAS_HEAD,
                         .scale = 0.125f};
    const struct ntx_cpu_ops *ops = ntx_cpu_pick("generic");
    biased_fill(&b, r, type);
    for (int m = 0; m < VECTORS; m++) {
        for (int i = 0; i < BIAS_HEAD; i++)
            q[m][i] = rng_float(r) * 2;
        for (int i = 0; i < BIASED; i++) {
            x[m][i][0] = (q[m][i] * b.bias[i][0] + q[m][i + 32] * b.bias[i][1]) * a.scale;
            x[m][i][1] = (q[m][i + 32] * b.bias[i][0] - q[m][i] * b.bias[i][1]) * a.scale;
        }
    }
    ops->attend[type](&a);
    const double inside = biased_error(&b, &a, out);
    a.k = b.without.at;
    a.bias = &bias;
    ops->attend[type](&a);
    const double apart = biased_error(&b, &a, out);
    printf("%s: error %.4f with biases of 300 in K, %.5f apart\n", ntx_kind[type], inside, apart);
    CHECK_MSG(inside > 20 * apart && apart < 0.005, "%g, %g", inside, apart);
    a.n_q = HEADS_Q;
    for (int m = 0; m < ROWS; m++) {
        struct ntx_attn one = a;
        one.q = q[HEADS_Q * m];
        one.out = out + (size_t)HEADS_Q * m * BIAS_HEAD;
        one.n_pos = BIAS_POS - ROWS + 1 + (uint32_t)m;
        bias.x = x[HEADS_Q * m][0];
        ops->attend[type](&one);
    }
    a.n_rows = ROWS;
    a.n_pos = BIAS_POS - ROWS + 1;
    a.out = all;
    bias.x = x[0][0];
    for (unsigned n = 0; ops; ops = isa_at(n++)) {
        ops->attend[type](&a);
        CHECK_MSG(!memcmp(all, out, sizeof out), "%s, %s", ops->name, ntx_kind[type]);
    }
    kv_free(&b.with, BIAS_POS);
    kv_free(&b.without, BIAS_POS);
    kv_free(&b.v, BIAS_POS);
}

int main(void)
{
    static const uint32_t widths[] = {8, 16, 32, 40, 64, 80, 96, 128, 192, 256},
                          quantised[] = {32, 64, 96, 128, 256, 160};
    static const uint32_t lengths[] = {1, 2, 7, 15, 16, 17, 33, 64, 129, 200, 255, 256, 257, 513, 600};
    enum {
        N_WIDTHS = sizeof widths / sizeof *widths,
        N_LENGTHS = sizeof lengths / sizeof *lengths,
        N_Q8 = sizeof quantised / sizeof *quantised
    };
    static const uint32_t windows[] = {0, 1, 0, 2, 31, 0, 128, UINT32_MAX, 0, 255, 64, 0, 257, 100, 0, 45, 300};
    uint32_t w_at = 0;
    struct rng r = {5};
    for (uint32_t w = 0; w < N_WIDTHS; w++)
        for (uint32_t n = 0; n < N_LENGTHS; n++)
            for (int holes = 0; holes < 4; holes++) {
                uint32_t window = windows[w_at++ % (sizeof windows / sizeof *windows)], tokens = n % 2 ? 16 : 32,
                         n_q = 1 + (w + n + (uint32_t)holes) % MAX_Q;
                check_case(&r, NTX_KV_F16, n_q, lengths[n], tokens, widths[w], widths[(w + n) % N_WIDTHS], holes,
                           window);
                for (int type = NTX_KV_Q8_0; type < NTX_N_KV && w < N_Q8; type++)
                    check_case(&r, (enum ntx_kv_type)type, n_q, lengths[n], NTX_KV_Q8_TOKENS, quantised[w],
                               quantised[(w + n) % N_Q8], holes, window);
                uint32_t n_rows = 1 + (3 * w + 5 * n) % (NTX_ATTN_VECTORS / n_q);
                if (n_rows > lengths[n])
                    n_rows = lengths[n];
                check_rows(&r, NTX_KV_F16, n_q, n_rows, lengths[n], tokens, widths[w], widths[(w + n) % N_WIDTHS],
                           holes, window);
                for (int type = NTX_KV_Q8_0; type < NTX_N_KV && w < N_Q8; type++)
                    check_rows(&r, (enum ntx_kv_type)type, n_q, n_rows, lengths[n], NTX_KV_Q8_TOKENS, quantised[w],
                               quantised[(w + n) % N_Q8], holes, window);
            }
    for (uint32_t n_pos = 250; n_pos < 290; n_pos++) { /* rows on both sides of a part's end */
        for (uint32_t window = 0; window < 40; window += 3 + window / 2) {
            check_rows(&r, NTX_KV_F16, 3, NTX_ATTN_VECTORS / 3, n_pos, 32, 128, 128, n_pos % 2, window);
            check_rows(&r, NTX_KV_Q8_0, 1, NTX_ATTN_VECTORS, n_pos, 32, 64, 64, n_pos % 2, window);
            check_rows(&r, NTX_KV_Q4_0, 2, NTX_ATTN_VECTORS / 2, n_pos, 32, 128, 64, n_pos % 2, window);
        }
    }
    check_case(&r, NTX_KV_F16, 8, 300, 32, 576, 512, 1, 0); /* latents of DeepSeek's */
    check_rows(&r, NTX_KV_F16, 8, 8, 301, 32, 576, 512, 0, 0);
    for (uint32_t heads = 1; heads <= NTX_INDEX_HEADS_MAX; heads += 1 + heads / 2)
        for (uint32_t n = 1; n < 30; n += 6)
            check_index(&r, heads, 16 * (1 + (heads + n) % 16), n);
    check_index(&r, NTX_INDEX_HEADS_MAX, NTX_INDEX_HEAD_MAX, 64);
    check_one_by_one(&r);
    check_store(&r, true);
    check_store(&r, false);
    check_store_four(&r, true);
    check_store_four(&r, false);
    check_odd_values(&r);
    check_bias(&r, NTX_KV_Q8_0);
    check_bias(&r, NTX_KV_Q4_0);
    return 0;
}
