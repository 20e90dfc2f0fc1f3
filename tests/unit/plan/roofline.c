/* SPDX-License-Identifier: Apache-2.0 */
/* The published roofline table, row by row, and the network figures; and the differences of the corrected formulas. */
#include <math.h>

#include "common/util.h"
#include "computed/plan/outline.h"
#include "computed/plan/roofline.h"
#include "computed/state/recur.h"
#include "tests/lib/check.h"

static const struct ntx_roof_model llama7 = {4096, 32, 32, 128, 11008, 32000, 32, 2, 2, 2};
static const struct ntx_roof_model llama13 = {5120, 40, 40, 128, 13824, 32000, 40, 2, 2, 2};
static const struct ntx_roof_machine a6000 = {768e9, 309.677e12 / 2, 309.677e12};

static const struct row {
    const char *name, *ops, *bytes, *intensity, *attained, *bound;
} published[2][12] = {
    {{"q_proj", "69G", "67M", "1024", "155T", "compute"},
     {"k_proj", "69G", "67M", "1024", "155T", "compute"},
     {"v_proj", "69G", "67M", "1024", "155T", "compute"},
     {"o_proj", "69G", "67M", "1024", "155T", "compute"},
     {"gate_proj", "185G", "152M", "1215", "155T", "compute"},
     {"up_proj", "185G", "152M", "1215", "155T", "compute"},
     {"down_proj", "185G", "152M", "1215", "155T", "compute"},
     {"qk_matmul", "34G", "302M", "114", "87T", "memory"},
     {"sv_matmul", "34G", "302M", "114", "87T", "memory"},
     {"softmax", "671M", "537M", "1.25", "960G", "memory"},
     {"norm", "59M", "34M", "1.75", "1T", "memory"},
     {"add", "8M", "34M", "0.25", "192G", "memory"}},
    {{"q_proj", "34M", "34M", "1", "768G", "memory"},
     {"k_proj", "34M", "34M", "1", "768G", "memory"},
     {"v_proj", "34M", "34M", "1", "768G", "memory"},
     {"o_proj", "34M", "34M", "1", "768G", "memory"},
     {"gate_proj", "90M", "90M", "1", "768G", "memory"},
     {"up_proj", "90M", "90M", "1", "768G", "memory"},
     {"down_proj", "90M", "90M", "1", "768G", "memory"},
     {"qk_matmul", "17M", "17M", "0.99", "762G", "memory"},
     {"sv_matmul", "17M", "17M", "0.99", "762G", "memory"},
     {"softmax", "328K", "262K", "1.25", "960G", "memory"},
     {"norm", "29K", "16K", "1.75", "1T", "memory"},
     {"add", "4K", "16K", "0.25", "192G", "memory"}},
};

static void check_row(const struct ntx_roof_op *op, const struct row *want)
{
    char b[32];
    CHECK_STR(op->name, want->name);
    CHECK_STR(ntx_roof_si(op->ops, b, sizeof b), want->ops);
    CHECK_STR(ntx_roof_si(op->bytes, b, sizeof b), want->bytes);
    CHECK_STR(ntx_roof_intensity(op->intensity, b, sizeof b), want->intensity);
    CHECK_STR(ntx_roof_si(op->attained, b, sizeof b), want->attained);
    CHECK_STR(op->compute_bound ? "compute" : "memory", want->bound);
}

static unsigned table(const struct ntx_roof_model *m, struct ntx_roof_run r, struct ntx_roof_op *ops)
{
    return ntx_roof_table(m, &a6000, &r, ops);
}

static unsigned listed(const struct ntx_roof_op *ops, unsigned n)
{
    unsigned k = 0;
    for (unsigned i = 0; i < n; i++)
        k += ops[i].listed;
    return k;
}

static void test_published_rows(void)
{
    struct ntx_roof_op ops[NTX_ROOF_OPS];
    unsigned rows = 0;
    for (int decode = 0; decode < 2; decode++) {
        unsigned n = table(&llama7, (struct ntx_roof_run){1, 2048, !decode, true}, ops);
        CHECK_EQ(listed(ops, n), 12);
        for (int i = 0; i < 12; i++, rows++)
            check_row(&ops[i], &published[decode][i]);
    }
    CHECK_EQ(rows, 24);
}

/* The exact integers behind the rounded ones. */
static void test_exact(void)
{
    struct ntx_roof_op p[NTX_ROOF_OPS], d[NTX_ROOF_OPS];
    table(&llama7, (struct ntx_roof_run){1, 2048, true, true}, p);
    table(&llama7, (struct ntx_roof_run){1, 2048, false, true}, d);
    CHECK_EQ(p[0].ops, 68719476736);
    CHECK_EQ(p[0].bytes, 67108864);
    CHECK_EQ(p[4].ops, 184683593728);
    CHECK_EQ(p[4].bytes, 152043520);
    CHECK_EQ(p[7].ops, 34359738368);
    CHECK_EQ(p[7].bytes, 301989888);
    CHECK_EQ(d[0].ops, 33554432);
    CHECK_EQ(d[0].bytes, 33570816);
    CHECK_EQ(d[4].ops, 90177536);
    CHECK_EQ(d[4].bytes, 90207744);
    CHECK_EQ(d[7].ops, 16777216);
    CHECK_EQ(d[7].bytes, 16916480);
    CHECK_EQ(d[9].ops, 327680);
    CHECK_EQ(d[9].bytes, 262144);
    CHECK_EQ(d[10].ops, 28672);
    CHECK_EQ(d[10].bytes, 16384);
    CHECK_EQ(d[11].ops, 4096);
    CHECK_EQ(d[11].bytes, 16384);
    CHECK(fabs(ntx_roof_turn(&llama7, &a6000) - 201.61) < 0.005);
    CHECK(fabs(p[7].intensity - 113.78) < 0.005 && fabs(p[7].attained / 1e12 - 87.38) < 0.005);
    CHECK(fabs(d[0].intensity - 0.99951) < 0.000005 && fabs(d[0].attained / 1e9 - 767.63) < 0.005);
    CHECK(fabs(d[7].intensity - 0.99177) < 0.000005 && fabs(d[7].attained / 1e9 - 761.68) < 0.005);
}

static struct ntx_roof_network network(const struct ntx_roof_model *m, struct ntx_roof_run r)
{
    struct ntx_roof_op ops[NTX_ROOF_OPS];
    return ntx_roof_sum(m, &r, ops, table(m, r, ops));
}

static void check_digits(double x, const char *want, const char *format)
{
    char b[32];
    snprintf(b, sizeof b, format, x);
    CHECK_STR(b, want);
}

static void test_network(void)
{
    struct ntx_roof_network d = network(&llama7, (struct ntx_roof_run){1, 2048, false, true});
    struct ntx_roof_network p = network(&llama7, (struct ntx_roof_run){1, 2048, true, true});
    check_digits(d.ops, "1.41697e+10", "%.5e");
    check_digits(d.bytes, "1.43132e+10", "%.5e");
    check_digits(d.seconds * 1e3, "18.637", "%.3f");
    check_digits(p.ops, "2.87512e+13", "%.5e");
    check_digits(p.bytes, "6.58611e+10", "%.5e");
    check_digits(p.seconds * 1e3, "226.88", "%.2f");
    check_digits(d.weight_bytes / 1e9, "12.952", "%.3f");
    check_digits(d.kv_bytes / 1e9, "1.0737", "%.4f");
}

static void test_series(void)
{
    static const struct {
        double w;
        const char *ms;
    } by_width[] = {{2, "34.594"}, {1, "17.860"}, {0.5, "9.493"}, {0.25, "5.310"}, {0.125, "3.218"}};
    static const struct {
        uint32_t batch;
        const char *ms;
    } by_batch[] = {{1, "17.297"}, {16, "25.746"}, {127, "88.264"}};
    struct ntx_roof_model m = llama13;
    for (unsigned i = 0; i < sizeof by_width / sizeof *by_width; i++) {
        m.w = by_width[i].w;
        check_digits(network(&m, (struct ntx_roof_run){1, 1024, false, true}).seconds * 1e3, by_width[i].ms, "%.3f");
    }
    m.w = m.a = m.kv = 1;
    for (unsigned i = 0; i < sizeof by_batch / sizeof *by_batch; i++)
        check_digits(network(&m, (struct ntx_roof_run){by_batch[i].batch, 1024, false, true}).seconds * 1e3,
                     by_batch[i].ms, "%.3f");
    struct ntx_roof_network one = network(&llama13, (struct ntx_roof_run){1, 1, false, true});
    CHECK_EQ(one.weight_bytes / one.kv_bytes, 30976); /* tokens at which the KV is as large as the weights */
}

/* All rows but the named ones are as published; those are as corrected. */
static void test_corrected(void)
{
    struct ntx_roof_op now[NTX_ROOF_OPS], then[NTX_ROOF_OPS];
    for (int prefill = 0; prefill < 2; prefill++) {
        unsigned n = table(&llama7, (struct ntx_roof_run){1, 2048, prefill, false}, now);
        table(&llama7, (struct ntx_roof_run){1, 2048, prefill, true}, then);
        CHECK_EQ(n, 14);
        CHECK_EQ(listed(now, n), 14);
        for (int i = 0; i < 11; i++)
            if (!prefill || i < 7 || i == 10)
                CHECK(now[i].ops == then[i].ops && now[i].bytes == then[i].bytes && now[i].seconds == then[i].seconds);
        double tokens = prefill ? 2048 : 1;
        CHECK_EQ(now[11].bytes, 3 * 4096 * 2 * tokens); /* both operands */
        CHECK_EQ(now[12].ops, 4 * 11008 * tokens);
        CHECK_EQ(now[13].ops, 2 * 4096 * 32000ll);
    }
    CHECK_EQ(now[7].ops, 2 * 2048ll * 2049 / 2 * 128 * 32); /* causal */
    CHECK_EQ(now[9].ops, 5 * 2048ll * 2049 / 2 * 32);
}

/* Models by name have the sizes of their mixes: per layer of a 70B, and whole files. */
static void named(const char *name, struct ntx_outline *o)
{
    struct ntx_err err = {0};
    ntx_outline_free(o);
    CHECK_MSG(!ntx_outline_named(name, o, &err), "%s", err.text);
}

/* Of one layer. */
static double layer_mib(const struct ntx_outline *o, uint32_t l)
{
    uint64_t bytes = 0;
    for (int t = 0; t < NTX_N_TENSORS; t++)
        if (o->model->layers[l].tensor[t] != NTX_NO_TENSOR)
            bytes += ntx_gguf_tensor_at(o->model->gguf, o->model->layers[l].tensor[t])->bytes;
    return (double)bytes / (1 << 20);
}

/* Weights, and those that a token uses, in units of 10^9; layers with experts. */
static void check_experts(const char *name, const char *all, const char *used, uint32_t layers)
{
    struct ntx_outline o = {.own = NULL};
    uint32_t n_layers = 0;
    double n = 0;
    named(name, &o);
    for (int p = 0; p < NTX_N_PARTS; p++)
        n += (double)ntx_outline_values(&o, p);
    check_digits(n / 1e9, all, "%.0f");
    check_digits((n - (double)ntx_outline_values(&o, NTX_PART_EXPERT) *
                          (1 - (double)o.model->hp.n_expert_used / o.model->hp.n_expert)) /
                     1e9,
                 used, "%.0f");
    for (uint32_t l = 0; l < o.model->hp.n_layers; l++)
        n_layers += ntx_layer_find(&o.model->layers[l], NTX_OP_EXPERTS) != NULL;
    CHECK_EQ(n_layers, layers);
    ntx_outline_free(&o);
}

/* Values in all, and those that a token uses, in billions; layers with experts. */
static const struct {
    const char *name, *all, *used;
    uint32_t layers;
} with_experts[] = {
    {"qwen3-235b-a22b@q4_k_m", "235", "22", 94},
    {"glm-4.5-air@q4_k_m", "107", "13", 45}, /* published as 106B-A12B: without a next-token block and embeddings */
    {"minimax-m2@q4_k_m", "229", "11", 62},
    {"step-3.5-flash@q4_k_m", "197", "12", 42}, /* published as 196B-A11B, without embeddings */
    {"olmoe-7b@q4_k_m", "7", "1", 16},
    {"glm-4.6@f16", "353", "34", 89},
    {"qwen3-next-80b-a3b@q4_k_m", "80", "4", 48}, /* published as A3B: without embeddings */
    {"qwen3.5-35b-a3b@q4_k_m", "35", "3", 40},
    {"qwen3.5-122b-a10b@q4_k_m", "122", "10", 48},
    {"qwen3.5-397b-a17b@q4_k_m", "396", "17", 60}, /* 397B with the vision part */
    {"qwen3.8-flash-next@q4_k_m", "128", "57",
     48}, /* published as 125B-A6B, with a table of 51B: all of it is counted here; some widths are assumed */
    {"deepseek-v2-lite@q4_k_m", "16", "3", 26}, /* as published: 15.7 and 2.4, the latter without embeddings */
    {"deepseek-v2@q4_k_m", "236", "21", 59},
    {"deepseek-v3@q4_k_m", "671", "38", 58},
    {"deepseek-v3.2@q4_k_m", "672", "38", 58},     /* with the indexer */
    {"glm-5@q4_k_m", "744", "42", 75},             /* published as A40B: without embeddings */
    {"deepseek-v4-flash@q4_k_m", "284", "14", 43}, /* published as A13B: without embeddings */
    {"deepseek-v4-pro@mxfp4", "1573", "50", 61},   /* published as 1.6T-A49B: without embeddings */
    {"kimi-linear-48b-a3b@q4_k_m", "49", "3", 26}, /* published as 48B-A3B */
    {"glm-5.3-flash@q4_k_m", "313", "17", 42},     /* published as 320B-A18B: with the next-token block tokens */
    {"hy-4@q4_k_m", "58", "5", 33},
    {"kimi-k2@f16", "1026", "33", 60},
    {"glm-4.7-flash@q8_0", "30", "4", 46},
    {"mistral-small-4@q4_k_m", "119", "7", 36}, /* published as 119B-A6.5B: the embedding matrix is counted, too */
    {"deepseek-moe-16b@q4_k_m", "16", "3", 27},
    {"gemma-4-26b-a4b@q4_k_m", "26", "5",
     30}, /* published as 25.2 and 3.8: the embedding is also counted as the output matrix */
    {"llama-4-scout@q4_k_m", "108", "17", 48}, /* published as 109, with the vision part */
    {"llama-4-maverick@q4_k_m", "401", "17", 24},
};

/* Matrix values that a token is multiplied by, in billions. */
static const struct {
    const char *name, *values;
} dense[] = {
    {"smollm3-3b@q4_k_m", "3.08"}, {"gemma-3-27b@q4_k_m", "27.01"}, {"gemma-4-31b@q4_k_m", "30.70"},
    {"gemma-4-e2b@q8_0", "2.28"},  {"gemma-2-9b@q4_k_m", "9.24"},
};

/* Values of K and V, or of their replacement, for one position. */
static const struct {
    const char *name;
    uint64_t kv;
} kept[] = {
    {"qwen3.5-35b-a3b@q4_k_m", 10 * 2 * 512},
    {"qwen3.8-flash-next@q4_k_m", 12 * (2 * 512 + 128)}, /* and an index key for each position */
    {"glm-5.2@q4_k_m", 78 * 576 + 21 * 128},             /* 21 of its layers have an indexer */
    {"deepseek-v4-flash@mxfp4",
     21 * ((512 + 128) / 4) + 20 * (512 / 128)}, /* beside windows: 21 layers pool 4 positions, and 20 pool 128 */
    {"kimi-linear-48b-a3b@q4_k_m", 7 * 576},
    {"glm-5.3-flash@q4_k_m", 11 * (512 + 2 * 128)}, /* c_kv, and an index key and its weight for each position */
    {"hy-4@q4_k_m", 34 * 576 + 10 * 128},           /* 10 of its layers have an indexer */
    {"mistral-small-4@q4_k_m", 36 * 320},
    {"deepseek-v3@q4_k_m", 61 * 576},
    {"gemma-4-31b@q4_k_m", 50ull * 16 * 512 + 10ull * 4 * 1024},
    {"gemma-4-e2b@q8_0", 12ull * 512 + 3ull * 1024},
};

/* Layers with a recurrent state, and its bytes; 0: not checked. */
static const struct {
    const char *name;
    uint32_t layers;
    uint64_t bytes;
} states[] = {
    {"qwen3.5-35b-a3b@q4_k_m", 30, 2 * 30 * 4ull * (32 * 128 * 128 + 3 * 8192)}, /* 125 MB */
    {"qwen3.8-flash-next@q4_k_m", 0,
     2 * NTX_ROUND_UP(36 * 4ull * (32 * 128 * 128 + 3 * 8192) + 4ull * (9 * 4 * 2560 + 2), 4096)},
    {"deepseek-v4-flash@mxfp4", 41, 2 * NTX_ROUND_UP(4ull * (21 * 8 * 4 * (512 + 128) + 20 * 128 * 2 * 512), 4096)},
    {"kimi-linear-48b-a3b@q4_k_m", 20, 2 * 20 * 4ull * (32 * 128 * 128 + 3 * 3 * 4096)},
    {"glm-5.3-flash@q4_k_m", 34, 0},
};

#define EACH(i, of) (size_t i = 0; i < sizeof of / sizeof *of; i++)

static void test_known(void)
{
    struct ntx_outline o = {.own = NULL};
    for
        EACH(i, with_experts)
    check_experts(with_experts[i].name, with_experts[i].all, with_experts[i].used, with_experts[i].layers);
    for
        EACH(i, dense)
        {
            named(dense[i].name, &o);
            check_digits((double)(ntx_outline_values(&o, NTX_PART_DENSE) + ntx_outline_values(&o, NTX_PART_HEAD)) / 1e9,
                         dense[i].values, "%.2f");
        }
    for
        EACH(i, kept)
        {
            named(kept[i].name, &o);
            CHECK_MSG(ntx_outline_kv_values(&o) == kept[i].kv, "%s: %llu", kept[i].name,
                      (unsigned long long)ntx_outline_kv_values(&o));
        }
    for
        EACH(i, states)
        {
            named(states[i].name, &o);
            CHECK_MSG(!states[i].layers || ntx_count_recurrent(&o.model->hp) == states[i].layers, "%s: %u",
                      states[i].name, ntx_count_recurrent(&o.model->hp));
            CHECK_MSG(!states[i].bytes || ntx_recur_bytes(&o.model->hp) == states[i].bytes, "%s: %llu", states[i].name,
                      (unsigned long long)ntx_recur_bytes(&o.model->hp));
        }
    ntx_outline_free(&o);
}

static void test_names(void)
{
    struct ntx_outline o = {.own = NULL};
    const double mib = 1 << 20;
    named("llama-70b@q4_k_m", &o);
    CHECK(fabs(layer_mib(&o, 10) - 460.0) < 0.1 && fabs(layer_mib(&o, 0) - 518.8) < 0.1);
    double layers = (double)(ntx_outline_bytes(&o, NTX_PART_DENSE)) / 80 / mib;
    CHECK_MSG(fabs(layers - 489.4) < 0.1, "%.2f", layers);
    check_digits((double)(ntx_outline_model_bytes(&o) + ntx_outline_bytes(&o, NTX_PART_EMBED)) / 1e9, "42.5", "%.1f");
    named("llama-70b@Q6_K", &o);
    CHECK(fabs(layer_mib(&o, 0) - 669.4) < 0.1 && layer_mib(&o, 10) == layer_mib(&o, 0));
    named("llama-2-13b@q4_k_m", &o);
    check_digits((double)(ntx_outline_model_bytes(&o)) / 1e9, "7.77", "%.2f");
    CHECK_EQ(2 * ntx_outline_kv_values(&o), 819200);
    named("qwen3.8-flash-next@q4_k_m", &o);
    CHECK_EQ(ntx_outline_values(&o, NTX_PART_EMBED), 320000048ull * 160 + 248320 * 2560);
    named("phi-4@q4_k_m", &o);
    check_digits((double)(ntx_outline_values(&o, NTX_PART_DENSE) + 2 * ntx_outline_values(&o, NTX_PART_HEAD)) / 1e9,
                 "14.66", "%.2f");
    named("mixtral-8x7b@q4_k_m", &o);
    check_digits((double)(ntx_outline_model_bytes(&o) + ntx_outline_bytes(&o, NTX_PART_EMBED)) / 1e9, "28.4", "%.1f");
    named("gpt-oss-120b@mxfp4", &o); /* experts are, the rest is Q8_0 */
    check_digits((double)(ntx_outline_model_bytes(&o) + ntx_outline_bytes(&o, NTX_PART_EMBED)) / 1e9, "63.4",
                 "%.1f"); /* 0.16 of it are the experts' biases */
    CHECK_EQ(o.bytes[NTX_PART_EXPERT][NTX_MXFP4], 36ull * 3 * 128 * 2880 * 2880 / 32 * 17);
    ntx_outline_free(&o);
}

static void test_wrong_names(void)
{
    struct ntx_outline o = {.own = NULL};
    struct ntx_err err = {0};
    CHECK_EQ(ntx_outline_named("gpt-oss-20b@q4_k_m", &o, &err), -22);
    CHECK(strstr(err.text, "rows of 2880 values") && strstr(err.text, "mxfp4"));
    CHECK_EQ(ntx_outline_named("llama-8b@mxfp4", &o, &err), -22);
    CHECK(strstr(err.text, "the model has none"));
    CHECK_EQ(ntx_outline_named("llama-71b@q4_k_m", &o, &err), -2);
    CHECK(strstr(err.text, "(did you mean 'llama-70b'?)") && strstr(err.text, "`ntx plan --list`"));
    CHECK(!strstr(err.text, "qwen3-235b-a22b"));
    CHECK_EQ(ntx_outline_named("@q4_k_m", &o, &err), -2);
    CHECK_EQ(ntx_outline_named("llama-70b@", &o, &err), -2);
    CHECK(strstr(err.text, "there is no type ''") && strstr(err.text, "`ntx plan --list`"));
}

static void test_usual_types(void)
{
    static const char *const names[][2] = {
        {"llama-70b", "llama-70b@q4_k_m"}, {"gpt-oss-20b", "gpt-oss-20b@mxfp4"}, {"qwen2.5-7b", "qwen2.5-7b@q4_k_m"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct ntx_outline usual, full;
        struct ntx_err err = {0};
        CHECK_MSG(!ntx_outline_named(names[i][0], &usual, &err), "%s", err.text);
        CHECK_MSG(!ntx_outline_named(names[i][1], &full, &err), "%s", err.text);
        CHECK_EQ(ntx_outline_model_bytes(&usual), ntx_outline_model_bytes(&full));
        ntx_outline_free(&usual);
        ntx_outline_free(&full);
    }
}

int main(void)
{
    test_usual_types();
    test_published_rows();
    test_exact();
    test_network();
    test_series();
    test_corrected();
    test_known();
    test_names();
    test_wrong_names();
    return 0;
}
