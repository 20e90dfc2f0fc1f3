/* SPDX-License-Identifier: Apache-2.0 */
/* ops.c: packing of activations, norm, rope, SwiGLU, F16 store: values against float64, and equal bits on every
 * instruction set. */
#include "computed/cpu/lanes.h"
#include "model/quant.h"
#include "tests/lib/cpu_kit.h"

enum { N = 1280 };

/* Distance in units of the last place of the float nearest to `want`. */
static double ulps(float got, double want)
{
    float near = (float)want;
    if (isinf(near) || near == 0)
        return got == near ? 0 : INFINITY;
    double ulp = ldexp(1, (int)fmax(ilogb(near) - 23, -149));
    return fabs((double)got - want) / ulp;
}

static void check_exp(void)
{
    double worst = 0;
    for (float x = -104; x < 90; x += 0.00917f) {
        float v[16];
        store16(v, exp16(splat(x)));
        double want = exp((double)x);
        if (want < 0x1p-149)
            continue;
        worst = fmax(worst, ulps(v[3], want));
    }
    printf("exp: at most %.2f ulp off\n", worst);
    CHECK(worst <= 1.5);
    float e[16] = {-INFINITY, INFINITY, NAN, 0, -0.0f, 1000, -1000, -150};
    store16(e, exp16(load16(e)));
    CHECK(e[0] == 0 && e[1] == INFINITY && isnan(e[2]) && e[3] == 1 && e[4] == 1 && e[5] == INFINITY && e[6] == 0 &&
          e[7] == 0);
}

static void check_half(void)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = ntx_f16_to_f32((uint16_t)h);
        if (f != f)
            continue;
        uint16_t back;
        ntx_cpu_pick("generic")->f16_store(&f, &back, 1);
        CHECK_EQ(back, h);
        CHECK(f16_to_f32((uint16_t)h) == f);
    }
    float x[N];
    uint16_t a[N], b[N];
    struct rng r = {7};
    const struct ntx_cpu_ops *ops;
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < N; i++) {
            uint32_t bits = rng_u32(&r);
            memcpy(&x[i], &bits, 4);
        }
        ntx_cpu_pick("generic")->f16_store(x, a, N - 3);
        for (int i = 0; i < N - 3; i++)
            CHECK(x[i] != x[i] || a[i] == ntx_f32_to_f16(x[i]));
        for (unsigned k = 0; (ops = isa_at(k)); k++) {
            ops->f16_store(x, b, N - 3);
            CHECK(!memcmp(a, b, (N - 3) * sizeof *a));
        }
    }
}

/* q, scale and sums of one form; `x` has zeros, ties, tiny and huge blocks. */
static void check_pack(enum ntx_act form, uint32_t n, const float *x)
{
    size_t bytes = ntx_act_row_bytes(form, n);
    CHECK_EQ(bytes % 64, 0);
    char *a = aligned_bytes(bytes + 64), *b = aligned_bytes(bytes + 64);
    ntx_cpu_pick("generic")->act_quantize[form](x, a, n);
    CHECK_EQ(a[bytes], (char)0xa5);
    const struct ntx_cpu_ops *ops;
    for (unsigned k = 0; (ops = isa_at(k)); k++) {
        memset(b, 0x5a, bytes);
        ops->act_quantize[form](x, b, n);
        CHECK(!memcmp(a, b, form == NTX_ACT_F32 ? n * 4 : bytes));
    }
    if (form == NTX_ACT_F32)
        CHECK(!memcmp(a, x, n * 4));
    uint32_t block = form == NTX_ACT_Q8 ? 32 : 256;
    for (uint32_t i = 0; form != NTX_ACT_F32 && i < n / block; i++) {
        const float *d = form == NTX_ACT_Q8 ? q8_view(a, n).d : q8k_view(a, n).d;
        float max = 0;
        int sum = 0;
        for (uint32_t k = i * block; k < (i + 1) * block; k++) {
            max = fmaxf(max, fabsf(x[k]));
            sum += a[k];
            CHECK(fabs((double)d[i] * (signed char)a[k] - (double)x[k]) <= (double)d[i] * 0.50001 + 1e-30);
        }
        CHECK(d[i] == (max > 1e-29f ? max / 127 : 0));
        int kept = 0;
        for (int g = 0; g < 16 && form == NTX_ACT_Q8K; g++)
            kept += q8k_view(a, n).s16[i * 16 + g];
        CHECK_EQ(form == NTX_ACT_Q8 ? q8_view(a, n).s[i] : kept, sum);
        kept = 0;
        for (int g = 0; g < 8 && form == NTX_ACT_Q8K; g++)
            kept += q8k_view(a, n).s32[i * 8 + g];
        CHECK(form == NTX_ACT_Q8 || kept == sum);
    }
    free(a);
    free(b);
}

/* One block of large values, one of tiny ones, the others usual. */
static float pack_scale(int block)
{
    if (block == 2)
        return 1e30f;
    return block == 3 ? 1e-36f : 4;
}

static void check_packs(void)
{
    float x[N];
    struct rng r = {11};
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < N; i++)
            x[i] = rng_float(&r) * pack_scale(i / 256) * (i / 32 % 5 != 0);
        for (uint32_t n = 256; n <= N; n += 256)
            for (int form = 0; form < NTX_N_ACTS; form++)
                check_pack(form, n, x);
        for (uint32_t n = 32; n <= 512; n += 32)
            check_pack(NTX_ACT_Q8, n, x);
    }
    x[40] = NAN; /* damage stays visible */
    x[300] = INFINITY;
    char *a = aligned_bytes(ntx_act_row_bytes(NTX_ACT_Q8K, N)), *b = aligned_bytes(ntx_act_row_bytes(NTX_ACT_Q8K, N));
    const struct ntx_cpu_ops *ops = ntx_cpu_pick("generic");
    for (unsigned k = 0; ops; ops = isa_at(k++)) {
        ops->act_quantize[NTX_ACT_Q8](x, a, N);
        CHECK(!isnan(q8_view(a, N).d[0]) && isnan(q8_view(a, N).d[1]) && isnan(q8_view(a, N).d[9]) && a[40] == 0);
        ops->act_quantize[NTX_ACT_Q8K](x, b, N);
        CHECK(isnan(q8k_view(b, N).d[0]) && isnan(q8k_view(b, N).d[1]) && !isnan(q8k_view(b, N).d[4]));
    }
    free(a);
    free(b);
}

static void check_norm(const struct ntx_cpu_ops *g, const float *x, const float *w, uint32_t n)
{
    float y[N], z[N];
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    g->rmsnorm(x, w, 1e-5f, n, y);
    for (uint32_t i = 0; i < n; i++)
        CHECK(ulps(y[i], (double)x[i] / sqrt(sum / n + (double)1e-5f) * (double)w[i]) <= 2);
    const struct ntx_cpu_ops *ops;
    for (unsigned k = 0; (ops = isa_at(k)); k++) {
        ops->rmsnorm(x, w, 1e-5f, n, z);
        CHECK(!memcmp(y, z, n * sizeof *y));
    }
}

static double gelu(double x) { return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

/* Far beyond the cap, and where it changes nearly nothing. */
static void check_cap(const struct ntx_cpu_ops *g, const float *x, uint32_t n)
{
    float y[N], z[N];
    const struct ntx_cpu_ops *ops = g;
    for (unsigned k = 0; ops; ops = isa_at(k++)) {
        memcpy(z, x, sizeof z);
        ops->cap(z, 3, n);
        for (uint32_t i = 0; i < N; i++)
            CHECK(i < n ? fabs((double)z[i] - 3 * tanh((double)x[i] / 3)) < 1e-6 : z[i] == x[i]);
        if (ops == g)
            memcpy(y, z, sizeof z);
        CHECK(!memcmp(y, z, sizeof z));
    }
    float ends[3] = {-INFINITY, 1e30f, NAN};
    g->cap(ends, 3, 3);
    CHECK(ends[0] == -INFINITY && ends[1] == 3 && isnan(ends[2]));
}

static void check_glu(const struct ntx_cpu_ops *g, enum ntx_ffn_act act, const float *x, const float *w, uint32_t n)
{
    float y[N], z[N];
    g->glu[act](x, w, n, y);
    for (uint32_t i = 0; i < n; i++)
        if (act == NTX_FFN_SILU)
            CHECK(ulps(y[i], (double)x[i] / (1 + exp(-(double)x[i])) * (double)w[i]) <= 4);
        else if (act == NTX_FFN_GELU)
            CHECK(fabs((double)y[i] - gelu((double)x[i]) * (double)w[i]) <= 4e-7 * fabs((double)x[i] * (double)w[i]));
        else
            CHECK(y[i] == fmaxf(x[i], 0) * w[i]);
    const struct ntx_cpu_ops *ops;
    for (unsigned k = 0; (ops = isa_at(k)); k++) {
        z[n] = 77;
        ops->glu[act](x, w, n, z);
        CHECK(!memcmp(y, z, n * sizeof *y) && z[n] == 77);
        memcpy(z, x, sizeof z);
        ops->add(z, w, n);
        for (uint32_t i = 0; i < N; i++)
            CHECK(z[i] == (i < n ? x[i] + w[i] : x[i]));
    }
}

static void check_rope(const struct ntx_cpu_ops *ops, const float *x, bool neox)
{
    enum { HEADS = 3, HEAD = 40, DIM = 24 };
    float y[HEADS * HEAD], cs[DIM / 2], sn[DIM / 2];
    memcpy(y, x, sizeof y);
    for (int i = 0; i < DIM / 2; i++) {
        cs[i] = cosf((float)i * 0.3f);
        sn[i] = sinf((float)i * 0.3f);
    }
    (neox ? ops->rope_neox : ops->rope_norm)(y, HEADS, HEAD, DIM, cs, sn);
    for (int h = 0; h < HEADS; h++) {
        for (int i = 0; i < DIM / 2; i++) {
            int p = h * HEAD + (neox ? i : 2 * i), q = neox ? p + DIM / 2 : p + 1;
            float ac = x[p] * cs[i], bs = x[q] * sn[i], as = x[p] * sn[i], bc = x[q] * cs[i];
            CHECK(y[p] == ac - bs && y[q] == as + bc);
        }
        CHECK(!memcmp(y + h * HEAD + DIM, x + h * HEAD + DIM, (HEAD - DIM) * sizeof *x));
    }
}

/* Mamba-1 scans: the order of cpu.h, and the same bits with each instruction set. */
static void check_scan(const struct ntx_cpu_ops *g, const float *x, uint32_t keys)
{
    enum { PANEL = 16, MOST = 20 };
    float t[PANEL], out[PANEL], keeps[PANEL], want[PANEL] = {0}, to[MOST * PANEL], states[MOST * PANEL];
    for (int i = 0; i < PANEL; i++)
        t[i] = fabsf(x[i]) / 8;
    for (uint32_t k = 0; k < keys; k++) {
        for (int i = 0; i < PANEL; i++)
            keeps[i] = t[i] * x[k + (uint32_t)i];
        g->exp_of(keeps, 0, PANEL);
        for (uint32_t i = 0; i < PANEL; i++) {
            const uint32_t at = k * PANEL + i;
            states[at] = fmaf(x[40 + i], x[60 + k], keeps[i] * x[at + 1]);
            want[i] = fmaf(states[at], x[90 + k], want[i]);
        }
    }
    float rates[MOST * PANEL];
    for (uint32_t k = 0; k < keys; k++)
        memcpy(rates + k * PANEL, x + k, PANEL * sizeof *rates);
    const struct ntx_cpu_ops *ops = g;
    for (unsigned k = 0; ops; ops = isa_at(k++)) {
        ops->scan_each(&(struct ntx_scan_each){.t = t,
                                               .tx = x + 40,
                                               .rates = rates,
                                               .b = x + 60,
                                               .c = x + 90,
                                               .from = x + 1,
                                               .to = to,
                                               .out = out,
                                               .n_keys = keys});
        CHECK_MSG(!memcmp(to, states, keys * PANEL * sizeof *to) && !memcmp(out, want, sizeof out), "%s, %u keys",
                  ops->name, keys);
    }
}

int main(void)
{
    check_exp();
    check_half();
    check_packs();
    float x[N], w[N];
    struct rng r = {3};
    const struct ntx_cpu_ops *g = ntx_cpu_pick("generic"), *ops = g;
    for (uint32_t n = 1; n < N; n += n < 40 ? 1 : 101) {
        for (int i = 0; i < N; i++) {
            x[i] = rng_float(&r) * 8;
            w[i] = rng_float(&r);
        }
        check_norm(g, x, w, n);
        check_glu(g, NTX_FFN_SILU, x, w, n);
        check_glu(g, NTX_FFN_RELU, x, w, n);
        check_glu(g, NTX_FFN_GELU, x, w, n);
        check_cap(g, x, n);
    }
    for (uint32_t keys = 1; keys < 20; keys++)
        check_scan(g, x, keys);
    for (unsigned k = 0; ops; ops = isa_at(k++)) {
        check_rope(ops, x, false);
        check_rope(ops, x, true);
    }
    CHECK(!ntx_cpu_pick("sse9") && ntx_cpu_pick(NULL) && strstr(ntx_cpu_names(), "generic"));
    return 0;
}
