/* SPDX-License-Identifier: Apache-2.0 */
/* sparse.c: --ffn-sparse without processes. Zero thresholds change no bit, with ReLU and SiLU; only used parts are
 * requested; the selection is a row's own. */
#include <math.h>

#include "common/util.h"
#include "model/quant.h"
#include "tests/unit/pass/rig.h"

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
    CHECK_MSG(!memcmp(x, y, n * sizeof *x) == equal, "%s %s with %s and %s: %s", a->make.arch, a->make.type,
              a->ffn ? a->ffn : "off", b->ffn ? b->ffn : "off", equal ? "logits differ" : "logits are the same");
    free(x), free(y);
}

static void zeros_are_nothing(void)
{
    static const struct {
        const char *arch, *type;
    } is[] = {{"llama-relu", "F32"}, {"llama-relu", "Q8_0"}, {"llama-relu", "Q4_K_M"}, {"llama", "F16"}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct rig_options off = options(is[i].arch, is[i].type, NULL),
                           zero = options(is[i].arch, is[i].type, "threshold=0"),
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

/* ---- groups that are known ahead */

static void all_groups_are_off(void)
{
    static const char *const all[] = {"predicted=1", "predicted=1,learned", "prompt=1",
                                      "prompt=0.1"}; /* without a prompt all are used */
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct rig_options off = options("llama", "Q8_0", NULL), a = options("llama", "Q8_0", all[i]);
        same(&off, N, &a, N, true);
        if (i) {
            a.pack_gate = off.pack_gate = true;
            same(&off, N, &a, 1, true);
        }
    }
}

static void a_predicted_rows_own_choice(void)
{
    static const struct {
        const char *mode;
        bool gate_in;
    } is[] = {{"predicted=0.3", false}, {"predicted=0.3,learned", false}, {"predicted=0.3", true}, {"predicted", true}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct rig_options a = options(i % 2 ? "llama" : "llama-relu", i == 3 ? "Q4_K_M" : "Q8_0", is[i].mode), b, off;
        a.pack_gate = is[i].gate_in;
        off = b = a;
        b.threads = 3;
        b.kernel = "generic";
        b.chunk_bytes = 4096;
        same(&a, N, &b, 1, true);
        same(&a, 4, &b, 7, true);
        off.ffn = NULL;
        same(&a, N, &off, N, false);
    }
}

/* Prompts of both texts in passes of `step` rows, then the following tokens, together or one text after the other.
 * logits: [2 x (N - PROMPT) x n_vocab] */
#define PROMPT 15
static float *prompted(const struct rig_options *o, uint32_t step, bool together, float share, size_t *n)
{
    struct rig r;
    int32_t ids[2][N];
    struct ntx_kv_seq *kv[2];
    struct ntx_ffn_set *set[2];
    struct ntx_row rows[PROMPT];
    rig_open(&r, o);
    float *logits = malloc((*n = (size_t)2 * (N - PROMPT) * r.n_vocab) * sizeof *logits);
    for (uint32_t t = 0; t < 2; t++) {
        rig_ids(&r, 5 + t, ids[t], N);
        kv[t] = rig_seq(&r, N);
        set[t] = ntx_ffn_set_new(r.model);
        for (uint32_t i = 0; i < PROMPT; i += step) {
            uint32_t k = NTX_MIN(step, PROMPT - i);
            for (uint32_t j = 0; j < k; j++)
                rows[j] = (struct ntx_row){.token = ids[t][i + j],
                                           .pos = i + j,
                                           .kv = kv[t],
                                           .rounded = true,
                                           .all_groups = true,
                                           .add = set[t]};
            CHECK_EQ(rig_run(&r, rows, k), 0);
        }
        ntx_ffn_set_choose(set[t], share);
    }
    for (uint32_t i = 0; i < 2 * (N - PROMPT); i += together ? 2 : 1) {
        uint32_t k = together ? 2 : 1;
        for (uint32_t j = 0; j < k; j++) {
            uint32_t t = together ? j : i / (N - PROMPT), at = together ? i / 2 : i % (N - PROMPT);
            rows[j] = (struct ntx_row){.token = ids[t][PROMPT + at],
                                       .pos = PROMPT + at,
                                       .kv = kv[t],
                                       .ffn = set[t],
                                       .logits = logits + ((size_t)t * (N - PROMPT) + at) * r.n_vocab};
        }
        CHECK_EQ(rig_run(&r, rows, k), 0);
    }
    for (int t = 0; t < 2; t++) {
        ntx_kv_seq_free(kv[t]);
        ntx_ffn_set_free(set[t]);
    }
    rig_close(&r);
    return logits;
}

static void a_prompt_chooses(void)
{
    for (int gate_in = 0; gate_in < 2; gate_in++) {
        struct rig_options o = options("llama", "Q8_0", "prompt=0.3"), p;
        size_t n;
        o.pack_gate = gate_in;
        p = o;
        p.threads = 3;
        p.chunk_bytes = 4096;
        float *a = prompted(&o, PROMPT, true, 0.3f, &n), *b = prompted(&p, 4, false, 0.3f, &n),
              *all = prompted(&o, 3, true, 1, &n);
        CHECK_SAME(a, b, n);
        CHECK(memcmp(a, all, n * sizeof *a));
        o.ffn = NULL;
        float *off = prompted(&o, 1, false, 0.3f, &n);
        CHECK_SAME(all, off, n);
        free(a), free(b), free(all), free(off);
    }
}

/* ---- layers that share their groups, and add to them (up as a whole matrix, down as two low-rank ones;
 * tests/system/delta has low-rank ones for both) */

static struct rig_options sharing(const char *type, uint32_t lora_rank, const char *ffn)
{
    struct rig_options o = options("llama-relu", type, ffn);
    o.make.shared = true;
    o.make.lora_rank = lora_rank;
    return o;
}

static void what_layers_share(void)
{
    static const struct {
        const char *type;
        uint32_t lora_rank;
    } is[] = {{"F32", 5}, {"F16", 32}, {"Q8_0", 32}, {"Q8_0", 0}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct rig_options off = sharing(is[i].type, is[i].lora_rank, NULL),
                           zero = sharing(is[i].type, is[i].lora_rank, "threshold=0"),
                           few = sharing(is[i].type, is[i].lora_rank, "topk=0.2"), b = few;
        if (strcmp(is[i].type, "F32"))
            off.make.ff = zero.make.ff = few.make.ff = b.make.ff = 704; /* low-rank matrices in blocks */
        same(&off, N, &zero, 1, true);
        b = few;
        b.threads = 3;
        b.kernel = "generic";
        b.chunk_bytes = 4096;
        b.pack = 30000;
        same(&few, N, &b, 3, true);
        same(&few, N, &off, N, false);
        few.ffn = b.ffn = "prompt=0.3";
        same(&few, N, &b, 1, true);
        few.ffn = "predicted=0.3,learned";
        b = few;
        b.threads = 1;
        b.chunk_bytes = 4096;
        same(&few, N, &b, 1, true);
    }
}

/* Like matrices that are not packed: products of floats in another order of sums. */
static void groups_are_the_matrices(void)
{
    struct rig_options packed = sharing("F32", 5, "threshold=0"), plain = packed;
    plain.pack = 0;
    plain.ffn = NULL;
    size_t n;
    float *x = rig_logits(&packed, N, N, &n), *y = rig_logits(&plain, N, N, &n);
    double d = 0, s = 0;
    for (size_t i = 0; i < n; i++) {
        d += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        s += (double)y[i] * (double)y[i];
    }
    CHECK_MSG(sqrt(d / s) < 3e-4, "%g of the logits", sqrt(d / s)); /* K and V are rounded to F16 */
    free(x), free(y);
}

/* ---- one layer, by its definition */

struct watched {
    const struct rig *r;
    float *after[3]; /* [layer][n_embd] of the last row */
};

static void keep(void *ctx, uint32_t layer, const float *hidden, uint32_t n_rows)
{
    struct watched *w = ctx;
    memcpy(w->after[layer], hidden + (size_t)(n_rows - 1) * w->r->n_embd, w->r->n_embd * sizeof *hidden);
}

/* Chunks of the groups that a pass took, by mode: fewer neurons, fewer groups. */
static uint32_t acquired(const char *ffn)
{
    struct rig_options o = options("llama", "F32", ffn);
    struct rig r;
    int32_t ids[N];
    o.chunk_bytes = 1; /* a group each */
    rig_open(&r, &o);
    rig_ids(&r, 5, ids, N);
    struct ntx_kv_seq *kv = rig_seq(&r, N);
    float *logits = malloc(r.n_vocab * sizeof *logits);
    rig_feed(&r, kv, ids, 1, 0, 1, logits);
    free(logits);
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
    uint32_t all = acquired(NULL), half = acquired("topk=0.5"), few = acquired("topk=0.01"),
             one = acquired("topk=0.000001");
    CHECK_EQ(one, 3); /* a neuron per layer */
    CHECK(few > one && few <= 3 * 7 && half > few && half <= all);
    CHECK_EQ(acquired("topk=1"), all);
    CHECK_EQ(acquired("predicted=0.000001"), 3); /* a group per layer */
    CHECK_EQ(acquired("predicted=0.5,learned"), 3 * ((all / 3 + 1) / 2));
    CHECK_EQ(acquired("threshold=1e20"), 0);
}

/* Without neurons a layer is its attention alone; the state then differs from the full one by the FFN's output. */
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

/* Packing changes no weight, but the order of down's sums, where a down matrix is cut into several groups. */
static void packed_is_the_model(void)
{
    static const struct {
        const char *type;
        double most;
    } is[] = {{"F32", 1e-4}, {"Q8_0", 0.03}, {"Q4_K", 0.03}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct rig_options o = {.make = rig_model()};
        size_t n;
        double error = 0, squares = 0;
        o.make.type = is[i].type;
        float *a = rig_logits(&o, 41, 41, &n);
        o.pack = 16 << 10;
        float *b = rig_logits(&o, 41, 41, &n);
        for (size_t k = 0; k < n; k++) {
            error += ((double)a[k] - (double)b[k]) * ((double)a[k] - (double)b[k]);
            squares += (double)a[k] * (double)a[k];
        }
        double e = sqrt(error / squares);
        CHECK_MSG(e < is[i].most, "%s: packed, logits differ by %g", is[i].type, e);
        free(a), free(b);
    }
}

int main(void)
{
    struct rig_options plain = {.make = rig_model()}, gate = {.make = rig_model(), .pack = 6000, .pack_gate = true},
                       packed = {.make = rig_model(), .pack = 6000}, adding = sharing("F32", 5, NULL);
    zeros_are_nothing();
    a_rows_own_choice();
    all_groups_are_off();
    a_predicted_rows_own_choice();
    a_prompt_chooses();
    what_layers_share();
    groups_are_the_matrices();
    packed_is_the_model();
    refused("predicted=0.5", &adding, "predicts nothing");
    only_what_is_used();
    none_is_attention_alone();
    refused("threshold=0", &plain, "ntx pack");
    refused("threshold=0", &gate, "without --gate-in-bundle");
    refused("predicted=0.5,gate", &gate, "without --gate-in-bundle");
    static const char *const bad[] = {
        "threshold", "threshold=", "threshold=-1", "threshold=nan",   "topk=0",         "topk=1.5", "topk=0.5x",
        "some",      "predicted=", "predicted=2",  "predicted=0.5,x", "predicted,gate", "prompt",   "prompt=0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i], &packed, "there are off");
    return 0;
}
