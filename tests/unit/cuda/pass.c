/* SPDX-License-Identifier: Apache-2.0 */
/* pass.c: whole passes on a device (argument: the plug-in's path) against the CPU's: chunks on the device, on the host
 * and streamed through a short ring, in every mixture; decoding gives the CPU's bits, prompts its values within F16's
 * rounding. */
#include <errno.h>

#include "tests/unit/cuda/pass.h"
#include "tests/unit/pass/trees.h"

/* ---- packed models: groups on the device, in place, and copied, by layer; which of them rows use, in every mode */

static struct rig_options packed_options(const char *ffn, bool gate_in)
{
    struct rig_options o = {
        .make = small_model("Q8_0", 3), .chunk_bytes = 50000, .pack = 6000, .pack_gate = gate_in, .ffn = ffn};
    o.make.arch = gate_in ? "llama" : "llama-relu";
    o.make.ff = 250 / 32 * 32 + 30; /* the last group is not full */
    return o;
}

/* Layers that share matrices and add a low-rank product to them, with the shared ones on the device; and adapters,
 * of which each row has its own (tests/system/delta/lora_test.py). */
static void deltas(struct world *w)
{
    static const struct way ways[] = {{"d", 1, 0, 4, 0}, {"hs", 2, 4, N, 64}, {"dsh", 1, 2, 2, UINT32_MAX}};
    static const char *const types[] = {"F16", "Q8_0"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct mk_options make = rig_model();
        make.type = types[i];
        make.layers = 2;
        make.shared = true;
        make.lora_rank = 32;
        pass_mixtures(w, &make, NTX_KV_F16, ways, sizeof ways / sizeof *ways, i ? 0.05 : 0.02);
    }
}

static void packed(struct world *w)
{
    static const struct {
        const char *ffn;
        bool gate_in;
    } is[] = {
        {NULL, false},
        {NULL, true},
        {"threshold=0.3", false},
        {"topk=0.2", false},
        {"predicted=0.3", false},
        {"predicted=0.3,learned", true},
        {"predicted=0.4", true},
    };
    static const struct way ways[] = {{"d", 1, 0, 4, 0},
                                      {"h", 1, 0, 3, 0},
                                      {"hs", 2, 4, N, 64},
                                      {"dsh", 1, 2, 2, UINT32_MAX},
                                      {"sd", 3, 4, 5, UINT32_MAX}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct rig_options o = packed_options(is[i].ffn, is[i].gate_in);
        free(same_every_way(w, &o, ways, sizeof ways / sizeof *ways, "packed", o.ffn ? o.ffn : "off"));
    }
    puts("packed models: bits equal in all mixtures and modes");
}

/* Two sessions read their prompts, which choose groups; then both write, together. */
static float *prompted(struct world *w, bool gate_in, size_t *size)
{
    enum { PROMPT = 9, WRITTEN = 3 };
    struct rig_options o = packed_options("prompt=0.3", gate_in);
    struct rig r;
    struct ntx_kv_seq *kv[2];
    struct ntx_ffn_set *set[2];
    struct ntx_row rows[PROMPT];
    int32_t ids[2][PROMPT + WRITTEN];
    world_rig(w, &r, &o);
    float *logits = malloc((*size = (size_t)2 * WRITTEN * r.n_vocab) * sizeof *logits);
    for (uint32_t t = 0; t < 2; t++) {
        rig_ids(&r, 5 + t, ids[t], PROMPT + WRITTEN);
        kv[t] = rig_seq(&r, PROMPT + WRITTEN);
        set[t] = ntx_ffn_set_new(r.model);
        for (uint32_t i = 0; i < PROMPT; i++)
            rows[i] = (struct ntx_row){
                .token = ids[t][i], .pos = i, .kv = kv[t], .rounded = true, .all_groups = true, .add = set[t]};
        CHECK_MSG(!rig_run(&r, rows, PROMPT), "%s", r.w.w.error.text);
        ntx_ffn_set_choose(set[t], 0.3f);
    }
    for (uint32_t i = 0; i < WRITTEN; i++) {
        for (uint32_t t = 0; t < 2; t++)
            rows[t] = (struct ntx_row){.token = ids[t][PROMPT + i],
                                       .pos = PROMPT + i,
                                       .kv = kv[t],
                                       .ffn = set[t],
                                       .logits = logits + (size_t)(2 * i + t) * r.n_vocab};
        CHECK_MSG(!rig_run(&r, rows, 2), "%s", r.w.w.error.text);
    }
    for (uint32_t t = 0; t < 2; t++) {
        ntx_kv_seq_free(kv[t]);
        ntx_ffn_set_free(set[t]);
    }
    world_close(w, &r);
    return logits;
}

/* Prompts through the matrix units may route to other groups where scores are nearly equal. Without the units the
 * bits are the CPU's. */
static void packed_prompts(struct world *w)
{
    static const char *const mix[] = {"dhs", "hds", "d"};
    for (int i = 0; i < 6; i++) {
        size_t n;
        w->mix = mix[i / 2];
        w->in_flight = 2;
        w->share = i < 2 ? 0 : UINT32_MAX;
        if (w->fake)
            w->fake->no_dense = 1;
        float *want = prompted(NULL, i % 2, &n), *exact = prompted(w, i % 2, &n);
        CHECK_MSG(!w->fake || !memcmp(exact, want, n * sizeof *want), "packed, prompt: not the CPU's bits (off by %g)",
                  worst(exact, want, n));
        if (w->fake)
            w->fake->no_dense = 0;
        float *got = prompted(w, i % 2, &n);
        double off = worst(got, want, n);
        CHECK_MSG(off < 1, "packed, prompt: off by %g", off);
        free(want), free(got), free(exact);
    }
    puts("packed models: groups by the prompt");
}

/* A row of decoding has the same bits whichever rows share its pass: alone, or before a prompt's rows. */
static void in_company(struct world *w)
{
    struct rig r;
    struct rig_options o = {.make = small_model("Q4_K_M", 2)};
    float *alone, *beside;
    struct ntx_row rows[12];
    int32_t ids[12];
    w->mix = "dhs";
    w->in_flight = 2;
    world_rig(w, &r, &o);
    rig_ids(&r, 3, ids, 12);
    alone = malloc(r.n_vocab * sizeof *alone), beside = malloc(r.n_vocab * sizeof *beside);
    struct ntx_kv_seq *a = rig_seq(&r, 8), *b = rig_seq(&r, 8), *c = rig_seq(&r, 16);
    rows[0] = (struct ntx_row){.token = ids[0], .kv = a, .logits = alone};
    CHECK_EQ(rig_run(&r, rows, 1), 0);
    rows[0] = (struct ntx_row){.token = ids[0], .kv = b, .logits = beside};
    for (uint32_t i = 1; i < 12; i++)
        rows[i] = (struct ntx_row){.token = ids[i], .pos = i - 1, .kv = c, .rounded = true, .all_groups = true};
    CHECK_EQ(rig_run(&r, rows, 12), 0);
    CHECK_SAME(alone, beside, r.n_vocab);
    CHECK_EQ(rig_run(&r, rows + 1, 11), 0); /* no row wants logits: the output is skipped */
    ntx_kv_seq_free(a), ntx_kv_seq_free(b), ntx_kv_seq_free(c);
    world_close(w, &r);
    free(alone), free(beside);
}

/* More positions than one split of attention. */
static void long_context(struct world *w)
{
    struct rig_options o = {.make = small_model("Q8_0", 1)};
    o.make.heads = 2;
    o.make.kv = 1;
    size_t n;
    float *want = logits_of(NULL, o, LONG, 60, false, &n);
    w->mix = "d";
    w->in_flight = 1;
    float *got = logits_of(w, o, LONG, 60, false, &n);
    size_t equal = (size_t)NTX_GPU_SPLIT * (n / LONG);
    CHECK_MSG(!memcmp(got, want, equal * sizeof *got), "positions of one split differ");
    double off = worst(got + equal, want + equal, n - equal);
    CHECK_MSG(off < 1e-4, "split attention is off by %g", off);
    free(got), free(want);
}

/* ---- the largest logits instead of all */

static void best_logits(struct world *w)
{
    struct rig r;
    struct rig_options o = {.make = small_model("F16", 1)};
    struct ntx_candidate best[2][NTX_BEST_MAX];
    struct ntx_row rows[3];
    w->mix = "d";
    world_rig(w, &r, &o);
    float *all = malloc(3 * r.n_vocab * sizeof *all);
    struct ntx_kv_seq *kv[3];
    for (uint32_t i = 0; i < 3; i++) {
        kv[i] = rig_seq(&r, 1);
        rows[i] = (struct ntx_row){.token = 5, .kv = kv[i], .logits = all + i * r.n_vocab};
    }
    for (uint32_t i = 0; i < 2; i++) {
        rows[i].best = best[i];
        rows[i].n_best = 17 + 3 * i;
    }
    CHECK_MSG(!rig_run(&r, rows, 3), "%s", r.w.w.error.text);
    for (uint32_t i = 0; i < 2; i++) {
        float least = INFINITY;
        uint32_t larger = 0;
        CHECK_EQ(rows[i].n_best, 20);
        for (uint32_t k = 0; k < 20; k++) {
            CHECK(best[i][k].logit == all[2 * r.n_vocab + (uint32_t)best[i][k].id]);
            least = fminf(least, best[i][k].logit);
        }
        for (uint32_t v = 0; v < r.n_vocab; v++)
            larger += all[2 * r.n_vocab + v] > least;
        CHECK(larger < 20);
    }
    CHECK_EQ(rows[2].n_best, 0);
    for (uint32_t i = 0; i < 3; i++)
        ntx_kv_seq_free(kv[i]);
    world_close(w, &r);
    free(all);
}

static void dense_models(struct world *w)
{
    static const struct way ways[] = {
        {"d", 1, 0, 4, UINT32_MAX}, {"h", 1, 0, 3, UINT32_MAX}, {"s", 1, 1, 2, UINT32_MAX}, {"s", 3, 4, 7, UINT32_MAX},
        {"sdhhd", 1, 2, 3, 32},     {"ddhs", 4, 5, N, 0},       {"h", 2, 0, N, 40},
    };
    static const char *const types[] = {"Q8_0", "F16", "Q4_K_M"};
    static const char *const archs[] = {"qwen2", "qwen3", "llama-relu"};
    for (unsigned i = 0; i < 3; i++) {
        struct mk_options make = small_model(types[i], i ? 1 : 2);
        make.arch = archs[i];
        pass_mixtures(w, &make, i == 0 ? NTX_KV_Q8_0 : NTX_KV_F16, ways + i, i ? 4 : 7, 0.05);
    }
}

/* ---- watched steps (ntx_forward_watch): each step that a device reports has the CPU's bits; it reports all but
 * those inside its fused kernels */

struct seen {
    uint32_t layer, step, pos, width;
    char buffer[16];
    float *values;
};
struct diary {
    struct seen seen[4096];
    size_t n;
};

static void note(void *ctx, const struct ntx_row *row, const struct ntx_step_values *v)
{
    struct diary *d = ctx;
    struct seen *s = &d->seen[d->n++];
    CHECK(d->n < sizeof d->seen / sizeof *d->seen && strlen(v->buffer) < sizeof s->buffer && row->pos % 2 == 0);
    *s = (struct seen){v->layer, v->step, row->pos, v->width, "", malloc(v->width * sizeof(float))};
    strcpy(s->buffer, v->buffer);
    memcpy(s->values, v->values, v->width * sizeof(float));
}

/* Rows at even positions are watched. */
static void watched(struct world *w, const struct rig_options *o, struct diary *d)
{
    struct rig_options on = *o;
    struct rig r;
    int32_t ids[N];
    struct ntx_row rows[N];
    world_rig(w, &r, &on);
    rig_ids(&r, 5, ids, N);
    float *logits = malloc((size_t)N * r.n_vocab * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, N);
    ntx_forward_watch(r.f, note, d);
    for (uint32_t i = 0; i < N; i++)
        rows[i] = (struct ntx_row){
            .token = ids[i], .pos = i, .kv = kv, .logits = logits + (size_t)i * r.n_vocab, .watched = i % 2 == 0};
    CHECK_MSG(!rig_run(&r, rows, N), "%s", r.w.w.error.text);
    CHECK_SAME(d->seen[d->n - 1].values, logits + (size_t)(N - 1) * r.n_vocab, r.n_vocab);
    ntx_kv_seq_free(kv);
    world_close(w, &r);
    free(logits);
}

static const struct seen *find_seen(const struct diary *d, const struct seen *s)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->seen[i].layer == s->layer && d->seen[i].step == s->step && d->seen[i].pos == s->pos &&
            !strcmp(d->seen[i].buffer, s->buffer))
            return &d->seen[i];
    return NULL;
}

static void same_steps(struct world *w, const struct rig_options *o, const char *mix, const char *what)
{
    static struct diary cpu, device;
    cpu.n = device.n = 0;
    watched(NULL, o, &cpu);
    w->mix = mix;
    watched(w, o, &device);
    for (size_t i = 0; i < device.n; i++) {
        const struct seen *got = &device.seen[i], *want = find_seen(&cpu, got);
        CHECK_MSG(want && want->width == got->width && !memcmp(want->values, got->values, got->width * sizeof(float)),
                  "%s, %s: layer %u, step %u, %s of row %u", what, mix, got->layer, got->step, got->buffer, got->pos);
    }
    for (size_t i = 0; i < cpu.n; i++) { /* K is turned, and Y gets its bias, on the way */
        const struct seen *s = &cpu.seen[i];
        CHECK_MSG(find_seen(&device, s) || strchr("KVY", *s->buffer), "%s, %s: layer %u, step %u, %s is not shown",
                  what, mix, s->layer, s->step, s->buffer);
    }
    CHECK(device.n > cpu.n * 3 / 4);
    for (size_t i = 0; i < cpu.n; i++)
        free(cpu.seen[i].values);
    for (size_t i = 0; i < device.n; i++)
        free(device.seen[i].values);
}

static void steps(struct world *w)
{
    struct rig_options o = {.make = small_model("Q8_0", 2), .chunk_bytes = 6000, .max_rows = N};
    w->in_flight = 2;
    w->share = 40;
    o.make.arch = "qwen2";
    same_steps(w, &o, "d", "dense");
    same_steps(w, &o, "dhs", "dense");
    o.make.arch = "gpt-oss";
    o.make.experts = 4;
    o.make.experts_used = 2;
    same_steps(w, &o, "dh", "experts");
    o = packed_options("predicted=0.4", false);
    o.max_rows = N;
    same_steps(w, &o, "dhs", "packed");
    o = (struct rig_options){.make = pass_streamed(), .chunk_bytes = 20000, .max_rows = N};
    same_steps(w, &o, "dhs", "streams");
    puts("what steps gave: the CPU's bits");
}

/* ---- a GPU that shares the host's memory: chunks are multiplied in place and never copied; the ring releases each
 * after its use */

static uint64_t uploads(struct world *w, const struct rig_options *o, bool in_place, const float *want,
                        uint64_t *matrices)
{
    struct rig_options on = *o;
    struct rig r;
    size_t n;
    w->in_place = false;
    world_rig(w, &r, &on);
    *matrices = 0;
    for (uint32_t i = 0; i < r.chunks->n; i++)
        *matrices += r.chunks->list[i].fixed ? 0 : r.chunks->list[i].bytes;
    world_close(w, &r);
    uint64_t before = w->fake->uploaded;
    w->in_place = in_place;
    float *got = logits_of(w, on, N, 1, false, &n);
    w->in_place = false;
    CHECK_MSG(!memcmp(got, want, n * sizeof *got), "%s, %s: not the CPU's bits", o->make.type,
              in_place ? "in place" : "copied");
    free(got);
    return w->fake->uploaded - before;
}

static void in_place(struct world *w)
{
    static const char *const types[] = {"Q4_K_M", "Q8_0", "F16"};
    size_t n;
    if (!w->fake)
        return;
    w->share = 64;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const struct rig_options o = {
            .make = small_model(types[i], 2), .chunk_bytes = i ? 6000 : 20000, .max_rows = N, .window = 5};
        float *want = logits_of(NULL, (struct rig_options){.make = o.make, .chunk_bytes = o.chunk_bytes, .max_rows = N},
                                N, N, false, &n);
        w->mix = "hss";
        w->in_flight = 2;
        uint64_t matrices, copied = uploads(w, &o, false, want, &matrices),
                           there = uploads(w, &o, true, want, &matrices);
        CHECK_MSG(copied - there == N * matrices,
                  "%s: %llu bytes of weights were to be copied in %d passes, and %llu less are in place", types[i],
                  (unsigned long long)(N * matrices), N, (unsigned long long)(copied - there));
        printf("%s: in place: the same bits, %llu bytes of weights not copied\n", types[i],
               (unsigned long long)(copied - there));
        free(want);
    }
    struct mk_options moe = small_model("Q4_K_M", 1);
    moe.arch = "qwen3moe";
    moe.experts = 5;
    moe.experts_used = 2;
    static const struct way ways[] = {{"h", 1, 0, N, 0}, {"hs", 2, 5, 3, 0}};
    w->in_place = true;
    free(same_every_way(w, &(struct rig_options){.make = moe, .chunk_bytes = 20000, .max_rows = N}, ways, 2,
                        "experts in place", moe.type));
    w->in_place = false;
}

/* ---- steps that begin within a row: an in-place norm of a part, and a copy of the values behind another; only
 * drafters have such layers */

static struct ntx_step *insert_step(struct ntx_layer *l, uint32_t at)
{
    CHECK(l->n_steps < NTX_LAYER_STEPS);
    memmove(&l->step[at + 1], &l->step[at], (l->n_steps++ - at) * sizeof *l->step);
    return &l->step[at];
}

/* The first head of q is not normed; of what attention gives all but the last head are then a half of what q has behind
 * the first. */
static struct ntx_device *within_rows(struct rig *r, const struct rig_options *o, void *ctx)
{
    for (uint32_t l = 0; l < r->model->hp.n_layers; l++) {
        struct ntx_layer *layer = &r->model->layers[l];
        uint32_t head = 0, i = 0;
        for (; layer->step[i].op != NTX_OP_ATTEND; i++) {
            struct ntx_step *s = &layer->step[i];
            if (s->op != NTX_OP_NORM || s->in[0] != NTX_BUF_Q)
                continue;
            CHECK(s->out == NTX_BUF_Q && s->heads == 4);
            head = s->offset = s->width;
            s->heads--;
        }
        CHECK(head);
        *insert_step(layer, i + 1) = (struct ntx_step){
            .op = NTX_OP_SCALE, .in = {NTX_BUF_Q}, .out = NTX_BUF_ATTN, .width = 3 * head, .from = head, .scale = 0.5f};
    }
    return ctx ? world_device(r, o, ctx) : NULL;
}

static float *logits_within(struct world *w, struct rig_options o, size_t *size)
{
    struct rig r;
    int32_t ids[N];
    struct ntx_row rows[N];
    o.device = within_rows;
    o.device_ctx = w;
    o.backend = w ? &ntx_device_backend : NULL;
    rig_open(&r, &o);
    rig_ids(&r, 5, ids, N);
    float *logits = malloc((*size = (size_t)N * r.n_vocab) * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, N);
    for (uint32_t i = 0; i < N; i++)
        rows[i] = (struct ntx_row){.token = ids[i], .pos = i, .kv = kv, .logits = logits + (size_t)i * r.n_vocab};
    CHECK_MSG(!rig_run(&r, rows, N), "%s", r.w.w.error.text);
    ntx_kv_seq_free(kv);
    world_close(w, &r);
    return logits;
}

static void within(struct world *w)
{
    struct rig_options o = {.make = small_model("Q8_0", 2), .max_rows = N};
    size_t n;
    o.make.arch = "qwen3";
    w->mix = "d";
    float *want = logits_within(NULL, o, &n), *got = logits_within(w, o, &n),
          *plain = logits_of(NULL, o, N, N, false, &n);
    CHECK_MSG(!memcmp(got, want, n * sizeof *got), "steps within rows: not the CPU's bits (off by %g)",
              worst(got, want, n));
    CHECK(memcmp(plain, want, n * sizeof *got));
    free(got), free(want), free(plain);
    puts("steps that begin within a row: bits equal");
}

/* ---- refusals: heads whose rows of K or V would not be 16-aligned */

static void refusals(struct world *w)
{
    static const struct {
        uint32_t k, v;
        bool can;
    } heads[] = {{64, 64, true},
                 {68, 64, false},
                 {64, 68, false},
                 {62, 62, false},
                 {72, 40, true},
                 {NTX_GPU_HEAD_MAX + 8, 64, false},
                 {64, NTX_GPU_HEAD_MAX + 8, false}};
    struct rig r;
    struct rig_options o = {.make = small_model("F16", 2)};
    struct ntx_err err = {0};
    world_rig(NULL, &r, &o);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        r.model->hp.head_k = heads[i].k;
        r.model->hp.head_v = heads[i].v;
        CHECK_EQ(ntx_backend_can(&ntx_device_backend, r.model, 0, &err), heads[i].can ? 0 : -ENOTSUP);
        CHECK_MSG(heads[i].can || !strcmp(err.text, "what layer 0 does (ATTEND) is computed on the CPU only"), "%s",
                  err.text);
    }
    world_close(NULL, &r);
    w->mix = "d";
    puts("heads of widths that are no multiples of 8, or too wide, are refused");
}

/* A prompt's bits do not depend on where chunks are cut and placed, though a library's product depends on its shape
 * and on an output's place in it (fake.c). */
static void panels(struct world *w)
{
    static const struct {
        uint32_t chunk_bytes, in_flight;
        const char *mix;
    } cuts[] = {{1 << 20, 1, "d"}, {20000, 1, "d"},  {3000, 3, "dhs"},
                {11000, 2, "s"},   {7001, 4, "hsd"}, {1 << 20, 2, "s"}};
    static const char *const types[] = {"Q8_0", "Q4_K_M"};
    w->panel_outs = 128;
    for (size_t k = 0; k < 2; k++) {
        struct mk_options make = small_model(types[k], 2);
        size_t n;
        make.ff = 512;
        make.scales = !k;
        float *want = NULL;
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            const struct rig_options o = {.make = make, .chunk_bytes = cuts[i].chunk_bytes, .max_rows = N};
            w->mix = cuts[i].mix;
            w->in_flight = cuts[i].in_flight;
            w->share = UINT32_MAX;
            float *got = logits_of(w, o, N, i % 2 ? 4 : N, true, &n);
            CHECK_MSG(!want || !memcmp(got, want, n * sizeof *got),
                      "%s, chunks of %u bytes, mixture %s: a prompt's bits change (off by %g)", types[k],
                      cuts[i].chunk_bytes, w->mix, worst(got, want, n));
            free(i ? got : NULL);
            want = i ? want : got;
        }
        free(want);
    }
    w->panel_outs = 0;
    w->mix = "d";
    puts("prompts: the same bits wherever chunks are cut and live");
}

/* More arguments: these parts alone. */
static bool wanted(int argc, char **argv, const char *part)
{
    for (int i = 2; i < argc; i++)
        if (!strcmp(argv[i], part))
            return true;
    return argc < 3;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(struct world *w);
    } parts[] = {{"dense", dense_models},
                 {"architectures", pass_architectures},
                 {"experts", pass_experts},
                 {"crowds", pass_crowds},
                 {"packed", packed},
                 {"deltas", deltas},
                 {"packed-prompts", packed_prompts},
                 {"company", in_company},
                 {"long", long_context},
                 {"skip", pass_skips},
                 {"best", best_logits},
                 {"trees", pass_trees},
                 {"windows", pass_windows},
                 {"pooled", pass_pooled},
                 {"steps", steps},
                 {"panels", panels},
                 {"in-place", in_place},
                 {"within", within},
                 {"refusals", refusals}};
    struct world w;
    CHECK(argc >= 2);
    setvbuf(stdout, NULL, _IOLBF, 0);
    world_open(&w, argv[1]);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (wanted(argc, argv, parts[i].name))
            parts[i].run(&w);
    gpu_close(&w.gpu);
    return 0;
}
