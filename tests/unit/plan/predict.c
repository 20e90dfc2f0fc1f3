/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model on numbers that can be checked by hand, the profile's file, and ntransformer's measured figures. */
#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/plan/estimates.h"
#include "computed/plan/hw.h"
#include "computed/plan/place.h"
#include "tests/lib/check.h"
#include "tests/lib/temporary.h"

#define GB         1e9
#define NEAR(a, b) CHECK_MSG(fabs((a) - (b)) <= 1e-9 * fabs(b), "%.12g, expected %.12g", (double)(a), (double)(b))

static const char machine[] = "{\"ntx_profile\": 1, \"name\": \"m\", \"source\": \"estimated\", \"cpu\": {\"threads\": "
                              "4}, \"ram\": {\"gib\": 16, \"gb_s_1\": 10, \"gb_s\": 32},"
                              " \"drive\": {\"reads\": [{\"bytes\": 4096, \"gb_s\": 0.5}, {\"bytes\": 65536, \"gb_s\": "
                              "2.5}, {\"bytes\": 1048576, \"gb_s\": 3.5}], \"read_us\": 80},"
                              " \"kernels\": [{\"type\": \"Q4_K\", \"rows\": 1, \"gb_s\": 20}, {\"type\": \"Q4_K\", "
                              "\"rows\": 9, \"gb_s\": 10}, {\"type\": \"*\", \"rows\": 1, \"gb_s\": 16},"
                              " {\"type\": \"*\", \"rows\": 64, \"gflops\": 640}]}";

static struct ntx_hw profile(const char *json)
{
    struct ntx_hw hw;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_hw_parse(json, &hw, &err), "%s", err.text);
    return hw;
}

/* Resident weights have their own rates if the profile has them; not beside a GPU. */
static void test_interleaved(void)
{
    struct ntx_hw hw = profile("{\"ntx_profile\": 1, \"cpu\": {\"threads\": 4}, \"ram\": {\"gb_s_1\": 100, \"gb_s\": "
                               "100}, \"drive\": {\"reads\": [{\"bytes\": 4096, \"gb_s\": 50}]},"
                               " \"kernels\": [{\"type\": \"Q4_K\", \"rows\": 1, \"gb_s\": 20}, {\"type\": \"Q4_K\", "
                               "\"rows\": 1, \"gb_s\": 40, \"interleaved\": true}]}");
    struct ntx_load_bytes l = {.rows = 1};
    struct ntx_forecast f;
    NEAR(ntx_hw_byte_s(&hw, NTX_Q4_K, 1, 0, true), 1 / (40 * GB));
    NEAR(ntx_hw_byte_s(&hw, NTX_Q4_K, 1, 0, false), 1 / (20 * GB));
    l.bytes[NTX_TIER_HOST][NTX_Q4_K] = 4 * GB;
    l.bytes[NTX_TIER_STORAGE][NTX_Q4_K] = 2 * GB;
    CHECK_EQ(ntx_predict(&hw, &l, &f), 0);
    NEAR(f.cpu_s, 4 / 40.0 + 2 / 20.0);
    hw.gpu.bytes = 1;
    CHECK_EQ(ntx_predict(&hw, &l, &f), 0);
    NEAR(f.cpu_s, 4 / 20.0 + 2 / 20.0);
    struct ntx_err err = {0};
    struct ntx_hw back;
    char *json = ntx_hw_dump(&hw, NULL, 0);
    CHECK(!ntx_hw_parse(json, &back, &err) && !back.kernels[0].interleaved && back.kernels[1].interleaved);
    free(json);
}

/* Beside products, a row costs attention (its bytes and its arithmetic) and its values between matrices. */
static void test_row_work(void)
{
    struct ntx_hw hw = profile(machine), back;
    struct ntx_load_bytes l = {.rows = 1, .kv_bytes = 3.2 * GB, .attend_ops = 4 * GB, .values = 5 * GB};
    struct ntx_forecast f;
    l.bytes[NTX_TIER_HOST][NTX_Q4_K] = 2 * GB;
    CHECK_EQ(ntx_predict(&hw, &l, &f), 0);
    NEAR(f.cpu_s, 0.1 + 0.1); /* the profile has neither rate: only the bytes count */
    hw.attend[NTX_KV_F16][1].flops = 50 * GB;
    hw.value_s = 0.4 / GB;
    CHECK_EQ(ntx_predict(&hw, &l, &f), 0);
    NEAR(f.cpu_s, 0.1 + 0.1 + 0.08 + 8.0); /* arithmetic beside reading; values by one of four threads */
    l.rows = 4;
    const double products = 2 * GB * ntx_hw_byte_s(&hw, NTX_Q4_K, 4, 0, true);
    CHECK_EQ(ntx_predict(&hw, &l, &f), 0);
    NEAR(f.cpu_s, products + 0.1 + 0.08 + 2.0);
    l.attend_ops = 40 * GB;
    CHECK_EQ(ntx_predict(&hw, &l, &f), 0);
    NEAR(f.cpu_s, products + 0.1 + 0.8 + 2.0);
    l.kv_type = NTX_KV_Q8_0;
    CHECK_EQ(ntx_predict(&hw, &l, &f), 0);
    NEAR(f.cpu_s, products + 0.1 + 0.8 + 2.0); /* not known: as F16 */
    hw.attend[NTX_KV_Q8_0][1] = (struct ntx_hw_attend){100 * GB, 2 / GB};
    l.scores = 0.1 * GB;
    CHECK_EQ(ntx_predict(&hw, &l, &f), 0);
    NEAR(f.cpu_s, products + 0.1 + 0.4 + 0.2 + 2.0);
    l.kv_type = NTX_KV_F16;
    l.dots = 0.5 * GB;
    hw.dot_s = 2 / GB;
    CHECK_EQ(ntx_predict(&hw, &l, &f), 0);
    NEAR(f.cpu_s, products + 0.1 + 0.8 + 2.0 + 1.0);
    l.threads = 2; /* of four */
    const double read = 3.2 * GB / ntx_hw_ram_bps(&hw, 2);
    CHECK_EQ(ntx_predict(&hw, &l, &f), 0);
    NEAR(f.cpu_s, 2 * GB * ntx_hw_byte_s(&hw, NTX_Q4_K, 4, 2, true) + read + 1.6 + 4.0 + 2.0);
    l.few_dots[NTX_TIER_HOST][NTX_Q4_K] = 0.25 * GB;
    hw.kernels[0].dot_s = 4 / GB;
    CHECK_EQ(ntx_predict(&hw, &l, &f), 0);
    NEAR(f.cpu_s, 2 * GB * ntx_hw_byte_s(&hw, NTX_Q4_K, 4, 2, true) + read + 1.6 + 4.0 + 2.0 + 2.0);
    l.kv_on_device = true;
    CHECK_EQ(ntx_predict(&hw, &l, &f), 0);
    NEAR(f.cpu_s, 2 * GB * ntx_hw_byte_s(&hw, NTX_Q4_K, 4, 2, true));
    struct ntx_err err = {0};
    char *json = ntx_hw_dump(&hw, NULL, 0);
    CHECK(!ntx_hw_parse(json, &back, &err));
    NEAR(back.attend[NTX_KV_F16][1].flops, 50 * GB);
    NEAR(back.attend[NTX_KV_Q8_0][1].flops, 100 * GB);
    CHECK(fabs(back.attend[NTX_KV_Q8_0][1].score_s - 2 / GB) < 1e-15 && back.attend[NTX_KV_Q8_0][0].flops <= 0);
    CHECK(fabs(back.value_s - 0.4 / GB) < 1e-15 && fabs(back.dot_s - 2 / GB) < 1e-15);
    free(json);
}

/* Whole layers took longer than the rates say: the more the narrower the model is. */
static void test_prompts(void)
{
    struct ntx_hw hw = profile(machine), back;
    struct ntx_load_bytes l = {.rows = 64, .width = 512, .n_layers = 2};
    struct ntx_forecast f, plain;
    struct ntx_err err = {0};
    l.bytes[NTX_TIER_HOST][NTX_Q4_K] = 2 * GB;
    CHECK_EQ(ntx_predict(&hw, &l, &plain), 0);
    NEAR(ntx_hw_times(&hw, 512, 64), 1.0);
    NEAR(ntx_predict_times(&hw, &l, 1.5 * plain.cpu_s + 2 * hw.layer_s + hw.token_s), 1.5);
    hw.n_prompts = 3;
    hw.prompts[0] = (struct ntx_hw_prompt){512, 1.5};
    hw.prompts[1] = (struct ntx_hw_prompt){896, 1.8}; /* counts for widths of its kind alone */
    hw.prompts[2] = (struct ntx_hw_prompt){2048, 1.1};
    CHECK_EQ(ntx_predict(&hw, &l, &f), 0);
    NEAR(f.cpu_s, 1.5 * plain.cpu_s);
    NEAR(ntx_hw_times(&hw, 256, 512), 1.5);
    NEAR(ntx_hw_times(&hw, 576, 512), 1.8);
    NEAR(ntx_hw_times(&hw, 1000, 512), 1.8);
    NEAR(ntx_hw_times(&hw, 1024, 512), 1.3);
    NEAR(ntx_hw_times(&hw, 4096, 512), 1.1);
    NEAR(ntx_hw_times(&hw, 512, 8), 1.0);
    NEAR(ntx_hw_times(&hw, 512, 1), 1.0);
    CHECK(ntx_hw_times(&hw, 512, 16) > 1 && ntx_hw_times(&hw, 512, 16) < ntx_hw_times(&hw, 512, 32));
    NEAR(ntx_hw_times(&hw, 0, 512), 1.0); /* of an unknown width */
    char *json = ntx_hw_dump(&hw, NULL, 0);
    CHECK(!ntx_hw_parse(json, &back, &err));
    CHECK_EQ(back.n_prompts, 3);
    CHECK(back.prompts[2].width == 2048 && fabs(back.prompts[2].times - 1.1) < 1e-9);
    free(json);
    CHECK(ntx_hw_parse("{\"ntx_profile\":1,\"pass\":{\"prompts\":[{\"embd\":512,\"times\":1},{\"embd\":512,"
                       "\"times\":2}]}}",
                       &back, &err) == -EINVAL);
    CHECK(strstr(err.text, "\"prompts\""));
}

static void test_rates(void)
{
    struct ntx_hw hw = profile(machine);
    CHECK_EQ(hw.ram_bytes, 16ll << 30);
    CHECK_EQ(hw.n_kernels, 4);
    NEAR(ntx_hw_drive_bps(&hw, 1024), 0.5 * GB); /* outside the measured sizes: the nearest */
    NEAR(ntx_hw_drive_bps(&hw, 16384), 1.5 * GB);
    NEAR(ntx_hw_drive_bps(&hw, 262144), 3.0 * GB);
    NEAR(ntx_hw_drive_bps(&hw, 1ll << 30), 3.5 * GB);
    NEAR(ntx_hw_byte_s(&hw, NTX_Q4_K, 1, 0, false), 1 / (20 * GB));
    NEAR(ntx_hw_byte_s(&hw, NTX_Q4_K, 5, 0, false), 0.075 / GB); /* half-way between 0.05 and 0.1 ns */
    NEAR(ntx_hw_byte_s(&hw, NTX_Q4_K, 18, 0, false), 0.2 / GB);
    NEAR(ntx_hw_byte_s(&hw, NTX_Q4_K, 1, 2, false), 1 / (10 * GB)); /* half the threads */
    struct ntx_hw alone = hw; /* one thread was measured, too: as much for each, but no more than all have */
    for (unsigned i = 0; i < alone.n_kernels; i++)
        alone.kernels[i].bps_1 = alone.kernels[i].type == NTX_Q4_K && alone.kernels[i].rows == 1 ? 7 * GB : 0;
    NEAR(ntx_hw_byte_s(&alone, NTX_Q4_K, 1, 2, false), 1 / (14 * GB));
    NEAR(ntx_hw_byte_s(&alone, NTX_Q4_K, 1, 3, false), 1 / (20 * GB));
    NEAR(ntx_hw_byte_s(&alone, NTX_Q4_K, 1, 4, false), 1 / (20 * GB));
    NEAR(ntx_hw_byte_s(&hw, NTX_Q8_0, 1, 0, false), 1 / (16 * GB));
    NEAR(ntx_hw_byte_s(&hw, NTX_Q8_0, 64, 0, false), 2.0 * 64 * 32 / 34 / (640 * GB));
    NEAR(ntx_hw_ram_bps(&hw, 2), 20 * GB);
    NEAR(ntx_hw_ram_bps(&hw, 4), 32 * GB);
    ntx_hw_cap(&hw, 1e9, 1e9);
    NEAR(ntx_hw_drive_bps(&hw, 1048576), 1 * GB);
    NEAR(ntx_hw_drive_bps(&hw, 4096), 0.5 * GB);
}

/* A streaming model is predicted at the rate of bytes that are multiplied as they come; a profile without it is read as
 * before. */
static void test_streams(void)
{
    static const char drive[] = "{\"ntx_profile\": 1, \"cpu\": {\"threads\": 4}, \"ram\": {\"gb_s\": 50}, \"kernels\": "
                                "[{\"type\": \"*\", \"rows\": 1, \"gb_s\": 40}],"
                                " \"drive\": {\"reads\": [{\"bytes\": 65536, \"gb_s\": 1.2}, {\"bytes\": 524288, "
                                "\"gb_s\": 2.4}, {\"bytes\": 1048576, \"gb_s\": 2.6}]%s}}";
    char text[600];
    snprintf(text, sizeof text, drive, "");
    struct ntx_hw plain = profile(text);
    CHECK_EQ(plain.n_streams, 0);
    NEAR(ntx_hw_stream_bps(&plain, 524288), 2.4 * GB);
    CHECK_EQ(ntx_hw_read_bytes(&plain), 1 << 20);
    snprintf(text, sizeof text, drive,
             ", \"streams\": [{\"bytes\": 524288, \"gb_s\": 1.8}, {\"bytes\": 1048576, \"gb_s\": 1.6}]");
    struct ntx_hw hw = profile(text), back;
    CHECK_EQ(hw.n_streams, 2);
    NEAR(ntx_hw_stream_bps(&hw, 524288), 1.8 * GB);
    NEAR(ntx_hw_stream_bps(&hw, 1 << 20), 1.6 * GB);
    NEAR(ntx_hw_stream_bps(&hw, 65536), 1.8 * GB / 2); /* half of it, as the drive alone gives half */
    NEAR(ntx_hw_stream_bps(&hw, 1 << 22), 1.6 * GB);
    NEAR(ntx_hw_drive_bps(&hw, 524288), 2.4 * GB);
    CHECK_EQ(ntx_hw_read_bytes(&hw), 512 << 10); /* larger ones are slower where it counts */
    struct ntx_load_bytes l = {.rows = 1, .read_bytes = 524288, .late_read_bytes = 1 << 20, .late_bytes = 3.2 * GB};
    struct ntx_forecast f;
    l.bytes[NTX_TIER_STORAGE][NTX_Q4_K] = 6.8 * GB;
    CHECK(!ntx_predict(&hw, &l, &f));
    NEAR(f.drive_s, 3.6 / 1.8);
    NEAR(f.late_s, 3.2 / 1.6);
    CHECK(!ntx_predict(&plain, &l, &f));
    NEAR(f.drive_s, 3.6 / 2.4);
    NEAR(f.late_s, 3.2 / 2.6);
    struct ntx_err err = {0};
    char *json = ntx_hw_dump(&hw, NULL, 0);
    CHECK(!ntx_hw_parse(json, &back, &err) && back.n_streams == 2 && back.streams[1].bytes == 1 << 20 &&
          back.streams[1].bps == 1.6 * GB && back.n_reads == 3);
    free(json);
    ntx_hw_cap(&hw, 1.7e9, 0);
    NEAR(ntx_hw_stream_bps(&hw, 524288), 1.7 * GB);
    NEAR(ntx_hw_stream_bps(&hw, 1 << 20), 1.6 * GB);
}

static void test_terms(void)
{
    struct ntx_hw hw = profile(machine);
    struct ntx_forecast f;
    struct ntx_load_bytes l = {.rows = 1, .n_layers = 10, .read_bytes = 1048576};
    l.bytes[NTX_TIER_HOST][NTX_Q4_K] = 4 * GB;
    l.bytes[NTX_TIER_STORAGE][NTX_Q4_K] = 7 * GB;
    CHECK(!ntx_predict(&hw, &l, &f));
    NEAR(f.drive_s, 2.0);
    NEAR(f.memory_s, 18.0 / 32);
    NEAR(f.compute_s, 11.0 / 20);
    NEAR(f.pass_s, 2.0);
    CHECK_STR(f.limit, "drive");
    l.late_bytes = 3.5 * GB; /* half of the streamed bytes cannot be read ahead */
    CHECK(!ntx_predict(&hw, &l, &f));
    NEAR(f.pass_s, 2.0);
    NEAR(f.late_s, 1.0);
    l.late_bytes = 0;
    l.bytes[NTX_TIER_STORAGE][NTX_Q4_K] = 0;
    hw.layer_s = 0.001;
    hw.token_s = 0.002;
    l.kv_bytes = 3.2 * GB;
    CHECK(!ntx_predict(&hw, &l, &f));
    NEAR(f.pass_s, 0.2 + 0.1 + 0.012);
    CHECK_STR(f.limit, "compute");
    l.rows = 18;
    CHECK(!ntx_predict(&hw, &l, &f));
    NEAR(f.pass_s, 0.8 + 0.1 + 0.012);
    l.bytes[NTX_TIER_DEVICE][NTX_Q4_K] = 1;
    CHECK_EQ(ntx_predict(&hw, &l, &f), -ENODATA); /* no GPU in this profile */
}

/* The GPU takes the share of the CPU's work that makes both links end together. */
static void test_gpu(void)
{
    struct ntx_hw hw = profile(machine);
    struct ntx_forecast f;
    struct ntx_load_bytes l = {.rows = 1, .n_layers = 1};
    hw.gpu.bytes = 24ull << 30;
    hw.gpu.bps = 800 * GB;
    hw.gpu.flops = 1e15;
    hw.gpu.h2d_bps = 5 * GB;
    l.bytes[NTX_TIER_DEVICE][NTX_Q4_K] = 8 * GB;
    l.bytes[NTX_TIER_HOST][NTX_Q4_K] = 20 * GB;
    l.multiply = NTX_MULTIPLY_GPU;
    CHECK(!ntx_predict(&hw, &l, &f));
    NEAR(f.h2d_s, 4.0);
    NEAR(f.pass_s, 4.0);
    CHECK_STR(f.limit, "h2d");
    l.multiply = NTX_MULTIPLY_CPU;
    CHECK(!ntx_predict(&hw, &l, &f));
    NEAR(f.pass_s, 1.0 + 0.01);
    l.multiply = NTX_MULTIPLY_BEST;
    CHECK(!ntx_predict(&hw, &l, &f));
    NEAR(f.copied, 13.0 / 64); /* 1.01 - s (1 - 0.025) = 4 s at 0.203, in steps of 1/64 */
    CHECK(f.pass_s < 0.83);
    CHECK(f.estimated);
    hw.gpu.bps = 4000 * GB; /* more than the kernels reach, by the estimate; a measured rate replaces it */
    l.bytes[NTX_TIER_HOST][NTX_Q4_K] = 0;
    CHECK(!ntx_predict(&hw, &l, &f));
    NEAR(f.device_s, 8.0 / (5167 * 2.0 / 3));
    hw.gpu.type_bps[NTX_Q4_K] = 2000 * GB;
    CHECK(!ntx_predict(&hw, &l, &f));
    NEAR(f.device_s, 8.0 / 2000);
    CHECK(!f.estimated);
    l.rows = 7; /* one row was measured; for up to eight rows at most the estimate */
    CHECK(!ntx_predict(&hw, &l, &f));
    NEAR(f.device_s, 8.0 / (1205 * 2.0 / 3));
    CHECK(f.estimated);
    l.rows = 9; /* matrix units */
    CHECK(!ntx_predict(&hw, &l, &f));
    NEAR(f.device_s, 8.0 / 2000);
    CHECK(!f.estimated);
}

/* Every type with products has an estimate, no larger with more rows. */
static void test_estimates(void)
{
#define NUMBER(rule, TYPE, ...) NTX_##TYPE,
    static const uint8_t types[] = {NTX_TYPES(NUMBER)};
#undef NUMBER
    for (unsigned i = 0; i < sizeof types; i++)
        for (uint32_t rows = 2, before = 1; rows <= NTX_ESTIMATE_ROWS; before = rows, rows *= 2)
            CHECK(ntx_estimate_bps(types[i], rows) > 0 &&
                  ntx_estimate_bps(types[i], rows) <= ntx_estimate_bps(types[i], before));
    CHECK_EQ(ntx_estimate_bps(NTX_I32, 1), 0);
}

/* GPU memory for all but matrices. */
static uint64_t work_of(const struct ntx_outline *o, const struct ntx_plan_request *r)
{
    const struct ntx_plan_clients clients = {.least_rows = 0};
    struct ntx_plan_request q = *r;
    struct ntx_plan *p;
    struct ntx_err err = {0};
    q.clients = &clients;
    q.other_bytes = o->held_bytes;
    q.vram_bytes = 1;
    q.threads = 2;
    CHECK_MSG(!ntx_plan_make(o->model, &q, &p, &err), "%s", err.text);
    uint64_t need = p->device_need;
    ntx_plan_free(p);
    return need;
}

/* Figures measured by ntransformer (PCIe 3 x8, RTX 3090, 48 GB, 3.35 GB/s): all is copied to the GPU. */
static void test_lineage(void)
{
    enum { REST = 862 + 300 }; /* MB of VRAM beside layers: the output matrix, KV and work */
    static const struct {
        const char *model;
        uint64_t vram;    /* for weights */
        uint64_t ram;     /* for weights */
        double low, high; /* tok/s measured */
        const char *limit;
    } runs[] = {
        {"llama-70b@q4_k_m", (36 * 513ull + REST) * 1000000, 30ull << 30, 0.28, 0.32, "h2d"}, /* 36 layers + 44: 0.3 */
        {"llama-70b@q6_k", (28 * 702ull + REST) * 1000000, 44ull << 30, 0.165, 0.205,
         "h2d"},                                                  /* 26 to 29 + 51 to 54: 0.18 to 0.2 */
        {"llama-70b@q6_k", 1, 1ull << 30, 0.055, 0.065, "drive"}, /* all from NVMe: 0.06 */
    };
    struct ntx_err err = {0};
    struct ntx_hw hw;
    char path[512];
    snprintf(path, sizeof path, "%s/bench/profiles/rtx3090-pcie3x8.json",
             getenv("NTX_SOURCE") ? getenv("NTX_SOURCE") : ".");
    CHECK_MSG(!ntx_hw_load(path, &hw, &err), "%s", err.text);
    for (unsigned i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct ntx_outline o;
        struct ntx_layout p;
        struct ntx_place_request r = {
            .plan = {.ram_bytes = runs[i].ram, .ctx = 512, .multiply = NTX_MULTIPLY_GPU, .max_rows = 64},
            .vram = UINT64_MAX};
        CHECK(!ntx_outline_named(runs[i].model, &o, &err));
        r.vram = runs[i].vram + work_of(&o, &r.plan);
        CHECK_MSG(!ntx_place(&hw, &o, &r, &p, &err), "%s", err.text);
        CHECK(p.on_device && p.predicted);
        CHECK_MSG(1 / p.decode.pass_s >= runs[i].low && 1 / p.decode.pass_s <= runs[i].high, "%s: %.4f tok/s",
                  runs[i].model, 1 / p.decode.pass_s);
        CHECK_STR(p.decode.limit, runs[i].limit);
        ntx_outline_free(&o);
    }
}

static void test_experts(void)
{
    struct ntx_hw hw = profile(machine);
    struct ntx_outline o;
    struct ntx_plan *p;
    struct ntx_load_bytes l;
    struct ntx_err err = {0};
    CHECK(!ntx_outline_named("qwen3-235b-a22b@q4_k_m", &o, &err));
    struct ntx_plan_request q = {.ram_bytes = 14ull << 30, .ctx = 1024, .threads = 2, .hw = &hw};
    CHECK_MSG(!ntx_plan_make(o.model, &q, &p, &err), "%s", err.text);
    CHECK_EQ(p->geo.n_sched, 0); /* all but experts is resident */
    double off = (double)p->bytes_storage;
    CHECK(off > 0.9 * (double)ntx_outline_bytes(&o, NTX_PART_EXPERT));
    CHECK(ntx_plan_load(o.model, p, 1, 1, 1, &l));
    CHECK_MSG(fabs(l.late_bytes / (off * 8 / 128) - 1) < 0.01, "%g of %g", l.late_bytes,
              off); /* (frames have room for the largest) */
    double one = l.late_bytes;
    CHECK(ntx_plan_load(o.model, p, 2, 2, 1, &l));
    NEAR(l.late_bytes, one / 0.0625 * (1 - (1 - 0.0625) * (1 - 0.0625)));
    CHECK_EQ(l.expert_rows, 1);
    CHECK(ntx_plan_load(o.model, p, 512, 512, 1, &l));
    NEAR(l.late_bytes, 0.0);
    struct ntx_forecast some, all;
    CHECK_EQ(l.expert_rows, 32); /* of 512, which take 8 of 128 experts each */
    CHECK(!ntx_predict(&hw, &l, &some));
    l.expert_rows = 0;
    CHECK(!ntx_predict(&hw, &l, &all));
    CHECK_MSG(all.cpu_s > 4 * some.cpu_s, "%g, %g", all.cpu_s, some.cpu_s); /* most weights are experts' */
    ntx_plan_free(p);
    q.ram_bytes = 1 << 20;
    CHECK_EQ(ntx_plan_make(o.model, &q, &p, &err), -ENOMEM);
    CHECK(strstr(err.text, "--ram"));
    ntx_outline_free(&o);
    CHECK(!ntx_outline_named("deepseek-v4-flash@mxfp4", &o, &err));
    q.ram_bytes = 3ull << 29;
    CHECK_MSG(!ntx_plan_make(o.model, &q, &p, &err), "%s", err.text);
    CHECK_EQ(p->max_rows,
             512); /* its rows are wide: more than an eighth of that, so that a prompt reads its experts once */
    CHECK(p->bytes_activations > q.ram_bytes / 8 && p->bytes_activations < q.ram_bytes / 5);
    ntx_plan_free(p);
    ntx_outline_free(&o);
}

static double sum_of(const double bytes[NTX_N_TIERS][NTX_TYPE_LIMIT])
{
    double n = 0;
    for (int tier = 0; tier < NTX_N_TIERS; tier++)
        for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
            n += bytes[tier][t];
    return n;
}

/* Prompt rows without a wanted output only leave K and V in the last layer: the rest of it, and the output, are for the
 * others. */
static void test_asked(void)
{
    struct ntx_hw hw = profile(machine);
    struct ntx_outline o;
    struct ntx_plan *p;
    struct ntx_load_bytes all, none, one, alone;
    struct ntx_forecast f_all, f_none, f_one;
    struct ntx_err err = {0};
    enum { LAYERS = 94, CTX = 4096, EMBD = 4096, HEADS = 64 * 128, EXPERT = 3 * 1536, VOCAB = 151936 };
    const double q8 = 34.0 / 32, experts = (double)EMBD * EXPERT * q8 * 128,
                 output = (double)EMBD * VOCAB * q8 + EMBD * 4,
                 rest = 2.0 * EMBD * HEADS * q8 + EMBD * 128 * 4 + EMBD * 4 + 128 * 4;
    CHECK(!ntx_outline_named("qwen3-235b-a22b@q8_0", &o, &err));
    struct ntx_plan_request q = {.ram_bytes = 24ull << 30, .ctx = CTX, .threads = 2, .hw = &hw, .kv_ram = 256 << 20};
    CHECK_MSG(!ntx_plan_make(o.model, &q, &p, &err), "%s", err.text);
    CHECK(p->kv.ram);
    CHECK(ntx_plan_load(o.model, p, 512, 512, CTX, &all) && ntx_plan_load(o.model, p, 512, 0, CTX, &none) &&
          ntx_plan_load(o.model, p, 512, 1, CTX, &one) && ntx_plan_load(o.model, p, 1, 1, CTX, &alone));
    CHECK(!sum_of(all.end_bytes) && !sum_of(none.end_bytes) && !sum_of(alone.end_bytes));
    NEAR(sum_of(none.expert_bytes), sum_of(all.expert_bytes) * (LAYERS - 1) / LAYERS);
    NEAR(sum_of(all.bytes) - sum_of(none.bytes), sum_of(all.expert_bytes) / LAYERS + rest + output);
    NEAR(sum_of(one.end_bytes), experts * 8 / 128 + rest + output);
    NEAR(sum_of(one.bytes), sum_of(none.bytes) + sum_of(one.end_bytes));
    CHECK(one.kv_read_bytes == all.kv_read_bytes && one.kv_bytes == all.kv_bytes);
    CHECK_MSG(fabs(none.kv_read_bytes - all.kv_read_bytes * (LAYERS - 1) / LAYERS) <= 1, "%g of %g", none.kv_read_bytes,
              all.kv_read_bytes);
    NEAR(none.kv_bytes, all.kv_bytes * (LAYERS - 1) / LAYERS);
    CHECK(!ntx_predict(&hw, &all, &f_all) && !ntx_predict(&hw, &none, &f_none) && !ntx_predict(&hw, &one, &f_one));
    CHECK_MSG(f_none.pass_s < f_one.pass_s && f_one.pass_s < f_all.pass_s, "%g, %g, %g", f_none.pass_s, f_one.pass_s,
              f_all.pass_s);
    CHECK_MSG(f_one.cpu_s < f_all.cpu_s * LAYERS / (LAYERS + 0.9), "%g of %g", f_one.cpu_s,
              f_all.cpu_s); /* one row of 512 */
    ntx_plan_free(p);
    ntx_outline_free(&o);
}

static void test_bad_files(void)
{
    static const struct {
        const char *json, *says;
    } bad[] = {
        {"", "line 1"},
        {"[]", "ntx_profile"},
        {"{\"ntx_profile\": 2}", "ntx_profile"},
        {"{\"ntx_profile\": 1, \"ram\": {\"gb_s\": -3}}", "gb_s"},
        {"{\"ntx_profile\": 1, \"ram\": {\"gb_s\": 1e300}}", "gb_s"},
        {"{\"ntx_profile\": 1, \"ram\": {\"gb_s\": \"fast\"}}", "gb_s"},
        {"{\"ntx_profile\": 1, \"ram\": [1]}", "ram"},
        {"{\"ntx_profile\": 1, \"drive\": {\"reads\": [{\"bytes\": 4096, \"gb_s\": 1}, {\"bytes\": 4096, \"gb_s\": "
         "1}]}}",
         "reads"},
        {"{\"ntx_profile\": 1, \"drive\": {\"streams\": [{\"bytes\": 4096, \"gb_s\": 0}]}}", "streams"},
        {"{\"ntx_profile\": 1, \"kernels\": [{\"type\": \"Q9\", \"rows\": 1, \"gb_s\": 1}]}", "kernels"},
        {"{\"ntx_profile\": 1, \"kernels\": [{\"type\": \"Q4_K\", \"rows\": 0, \"gb_s\": 1}]}", "kernels"},
        {"{\"ntx_profile\": 1, \"name\": 5}", "name"},
    };
    struct ntx_err err;
    struct ntx_hw hw = {.threads = 7};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (struct ntx_err){0};
        CHECK_MSG(ntx_hw_parse(bad[i].json, &hw, &err) == -EINVAL, "%s", bad[i].json);
        CHECK_MSG(strstr(err.text, bad[i].says), "%s", err.text);
    }
    CHECK_EQ(hw.threads, 7); /* untouched */
    CHECK_EQ(ntx_hw_load("/nonexistent/profile.json", &hw, &err), -ENOENT);
}

static double stored_load(const char *path)
{
    struct ntx_hw hw;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_hw_load(path, &hw, &err), "%s", err.text);
    return hw.load;
}

/* A profile of a busy machine replaces one of a busy machine, a brief one and one of another machine, but none of a
 * quiet machine; a quiet one replaces each. */
static void store_busy(const char *path, struct ntx_hw hw)
{
    static const struct {
        double load, then;
        const char *source;
        uint32_t threads;
        bool kept;
    } is[] = {{0.1, 1.5, "measured", 0, true},  {0.1, 0.3, "measured", 0, false}, {0.1, 1.5, NTX_HW_BRIEF, 0, false},
              {0.1, 1.5, "measured", 1, false}, {0.8, 1.5, "measured", 0, false}, {1.5, 0.2, "measured", 0, false}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++)
        for (int second = 0; second < 2; second++) {
            struct ntx_err err = {0};
            struct ntx_hw now = hw;
            bool kept = false;
            now.load = second ? is[i].then : is[i].load;
            now.threads += second ? is[i].threads : 0;
            snprintf(now.source, sizeof now.source, "%s", second ? "measured" : is[i].source);
            char *json = ntx_hw_dump(&now, NULL, 0);
            CHECK_EQ(second ? ntx_hw_store_measured(path, &now, json, &kept, &err) : ntx_hw_store(path, json, &err), 0);
            free(json);
            CHECK_EQ(kept, second && is[i].kept);
            CHECK_MSG(fabs(stored_load(path) - (kept ? is[i].load : now.load)) < 1e-9, "case %zu", i);
        }
}

/* A stored profile is found again, the user's first. */
static void test_store(void)
{
    char dir[256], path[400];
    struct ntx_hw hw = profile(machine), back;
    struct ntx_err err = {0};
    const char *said[] = {"raise the limit"};
    temporary_dir(dir, sizeof dir, "profile");
    CHECK(!setenv("XDG_CACHE_HOME", dir, 1) && !ntx_hw_user_path(path, sizeof path));
    CHECK(strstr(path, "/ntx/profile.json"));
    hw.kernels[0].bps_1 = 7 * GB;
    char *json = ntx_hw_dump(&hw, said, 1);
    CHECK(strstr(json, "raise the limit"));
    CHECK_MSG(!ntx_hw_store(path, json, &err), "%s", err.text);
    CHECK_MSG(!ntx_hw_find(&back, &err), "%s", err.text);
    CHECK_EQ(back.n_kernels, 4);
    CHECK_EQ(back.n_reads, 3);
    CHECK(back.ram_bytes == hw.ram_bytes && back.kernels[3].flops == hw.kernels[3].flops &&
          back.kernels[0].bps_1 == 7 * GB && back.reads[1].bps == hw.reads[1].bps);
    free(json);
    store_busy(path, hw);
    unlink(path);
    snprintf(path, sizeof path, "%s/ntx", dir);
    rmdir(path);
    rmdir(dir);
}

int main(void)
{
    test_prompts();
    test_rates();
    test_streams();
    test_interleaved();
    test_row_work();
    test_terms();
    test_gpu();
    test_estimates();
    test_lineage();
    test_experts();
    test_asked();
    test_bad_files();
    test_store();
    return 0;
}
