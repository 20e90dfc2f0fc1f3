/* sparse.c: --ffn-sparse without processes. Zero thresholds change no bit, with ReLU and SiLU; only what is used is asked for; the choice
 * is a row's own. */
#include <math.h>

#include "model/quant.h"
#include "tests/forward/rig.h"

#define N 23

static struct rig_options options(const char *arch, const char *type, const char *ffn)
{
    struct rig_options o = {.make = rig_model(), .pack = 6000, .ffn = ffn, .chunk_bytes = 32 << 10};
    o.make.arch = arch;
    o.make.type = type;
    o.make.layers = 3;
    o.make.ff = 700;
    if (strstr(type, "_K"))
        o.make.ff = 768;
    return o;
}

static void same(const struct rig_options *a, uint32_t step_a, const struct rig_options *b, uint32_t step_b, bool equal)
{
    size_t n;
    float *x = rig_logits(a, N, step_a, &n), *y = rig_logits(b, N, step_b, &n);
    CHECK_MSG(!memcmp(x, y, n * sizeof *x) == equal, "%s %s with %s and %s: %s", a->make.arch, a->make.type, a->ffn ? a->ffn : "off", b->ffn ? b->ffn : "off",
              equal ? "logits differ" : "logits are the same");
    free(x), free(y);
}

static void zeros_are_nothing(void)
{
    static const struct { const char *arch, *type; } is[] = {{"llama-relu", "F32"}, {"llama-relu", "Q8_0"}, {"llama-relu", "Q4_K_M"}, {"llama", "F16"}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct rig_options off = options(is[i].arch, is[i].type, NULL), zero = options(is[i].arch, is[i].type, "threshold=0"),
                           all = options(is[i].arch, is[i].type, "topk=1");
        same(&off, N, &zero, N, true);
        same(&off, N, &zero, 1, true);
        same(&off, 4, &all, 3, true);
    }
}

/* The same for batches, threads, kernels, group sizes and chunks. */
static void a_rows_own_choice(void)
{
    static const char *const modes[] = {"threshold=0.3", "topk=0.2", "topk=0.003"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct rig_options a = options(i ? "llama" : "llama-relu", "Q8_0", modes[i]), b = a, off = a;
        b.threads = 3;
        b.kernel = "generic";
        b.chunk_bytes = 4096;
        same(&a, N, &b, 1, true);
        b.pack = 30000;
        b.chunk_bytes = 1 << 20;
        same(&a, 5, &b, 2, true);
        off.ffn = NULL;
        same(&a, N, &off, N, false);
    }
}

/* ---- one layer by its definition */

struct watched {
    const struct rig *r;
    float *after[3]; /* [layer][n_embd] of the last row */
};

static void keep(void *ctx, uint32_t layer, const float *hidden, uint32_t n_rows)
{
    struct watched *w = ctx;
    memcpy(w->after[layer], hidden + (size_t)(n_rows - 1) * w->r->n_embd, w->r->n_embd * sizeof *hidden);
}

/* Chunks that a pass took of the groups, by mode: fewer neurons, fewer groups. */
static uint32_t acquired(const char *ffn)
{
    struct rig_options o = options("llama", "F32", ffn);
    struct rig r;
    int32_t ids[N];
    o.chunk_bytes = 1; /* a group each */
    rig_open(&r, &o);
    rig_ids(&r, 5, ids, N);
    struct ntx_kv_seq *kv = rig_seq(&r, N);
    rig_feed(&r, kv, ids, 1, 0, 1, NULL);
    uint32_t n = 0;
    for (uint32_t c = 0; c < r.chunks->n; c++)
        n += r.chunks->list[c].on_demand && r.w.state[c] == MEM_RELEASED;
    if (!ffn)
        for (uint32_t l = 0; l < r.n_layers; l++)
            n += r.chunks->layers[l].groups.n_chunks;
    ntx_kv_seq_free(kv);
    rig_close(&r);
    return n;
}

static void only_what_is_used(void)
{
    uint32_t all = acquired(NULL), half = acquired("topk=0.5"), few = acquired("topk=0.01"), one = acquired("topk=0.000001");
    CHECK_EQ(one, 3); /* a neuron per layer */
    CHECK(few > one && few <= 3 * 7 && half > few && half <= all);
    CHECK_EQ(acquired("topk=1"), all);
    CHECK_EQ(acquired("threshold=1e20"), 0);
}

/* Without any neuron a layer is its attention alone; the state then differs from the full one by what the FFN adds. */
static void none_is_attention_alone(void)
{
    struct rig_options o = options("llama", "F32", "threshold=1e20"), p = options("llama", "F32", NULL);
    float none[3][256], full[3][256];
    int32_t ids[N];
    for (int k = 0; k < 2; k++) {
        struct rig r;
        struct watched w = {.r = &r};
        for (int l = 0; l < 3; l++)
            w.after[l] = k ? full[l] : none[l];
        rig_open(&r, k ? &p : &o);
        rig_ids(&r, 5, ids, N);
        ntx_forward_trace(r.f, keep, &w);
        struct ntx_kv_seq *kv = rig_seq(&r, N);
        rig_feed(&r, kv, ids, 1, 0, 1, NULL);
        ntx_kv_seq_free(kv);
        rig_close(&r);
    }
    double d = 0;
    for (int i = 0; i < 256; i++)
        d += fabs((double)none[0][i] - (double)full[0][i]);
    CHECK(d > 1);
}

static void refused(const char *ffn, const struct rig_options *o, const char *why)
{
    struct rig r;
    struct ntx_err err = {0};
    struct ntx_ffn_mode m;
    rig_open(&r, o);
    CHECK(ntx_ffn_mode_parse(ffn, r.model, &m, &err) < 0);
    CHECK_MSG(strstr(err.text, why), "%s: %s", ffn, err.text);
    rig_close(&r);
}

int main(void)
{
    struct rig_options plain = {.make = rig_model()}, gate = {.make = rig_model(), .pack = 6000, .pack_gate = true}, packed = {.make = rig_model(), .pack = 6000};
    zeros_are_nothing();
    a_rows_own_choice();
    only_what_is_used();
    none_is_attention_alone();
    refused("threshold=0", &plain, "ntx pack");
    refused("threshold=0", &gate, "without --gate-in-bundle");
    static const char *const bad[] = {"threshold", "threshold=", "threshold=-1", "threshold=nan", "topk=0", "topk=1.5", "topk=0.5x", "some"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i], &packed, "there are off");
    return 0;
}
