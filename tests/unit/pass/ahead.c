/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions of the next layer's experts (computed/pass/router_lookahead.c), before this layer's experts give anything
 * or when some have: all are right if layers add nearly nothing to the residual stream, or streams; most are if they
 * do; none are made if a needed weight is not in memory. No bit depends on them. */
#include <string.h>

#include "tests/unit/pass/rig.h"

enum { TOKENS = 24 };

struct predicted {
    uint32_t right, wanted, n; /* experts; lists */
};

static uint32_t ones(uint64_t bits) { return (uint32_t)__builtin_popcountll(bits); }

/* Token by token; for the first one nothing is in memory yet. */
static struct predicted run(const struct rig_options *o, bool predicts, unsigned late_of, float *logits)
{
    struct rig r;
    struct predicted sum = {0};
    int32_t ids[TOKENS];
    rig_open(&r, o);
    rig_ids(&r, 3, ids, TOKENS);
    if (predicts)
        mem_weights_prefetch(&r.w);
    r.w.late_of = late_of;
    struct ntx_kv_seq *kv = rig_seq(&r, TOKENS);
    for (uint32_t i = 0; i < TOKENS; i++) {
        memset(r.w.prefetch, 0, sizeof r.w.prefetch);
        rig_feed(&r, kv, ids + i, 1, i, 1, logits + (size_t)i * r.n_vocab);
        for (uint32_t l = 0; i && l < r.n_layers; l++) {
            sum.n += r.w.prefetch[l] != 0;
            sum.wanted += r.w.prefetch[l] ? ones(r.w.wanted[l]) : 0;
            sum.right += ones(r.w.prefetch[l] & r.w.wanted[l]);
        }
    }
    ntx_kv_seq_free(kv);
    rig_close(&r);
    return sum;
}

static uint32_t right_before, right_later; /* over all models, with one of three experts late */

/* lists: predictions per token; of_rest: with only vectors and routers resident. least: percent of wanted experts that
 * are predicted, fewer where streams are mixed on the way. all: every one is, where layers add little. */
static void check(struct mk_options make, uint32_t lists, uint32_t of_rest, uint32_t least, bool all)
{
    struct rig_options o = {.make = make, .stay_every = 1};
    const size_t n = (size_t)TOKENS * 1024;
    float *plain = calloc(n, sizeof *plain), *with = calloc(n, sizeof *with);
    run(&o, false, 0, plain);
    struct predicted got = run(&o, true, 0, with);
    CHECK_MSG(!memcmp(plain, with, n * sizeof *plain), "%s: floats differ", make.arch);
    CHECK_MSG(got.n == lists * (TOKENS - 1), "%s: %u lists", make.arch, got.n);
    CHECK_MSG(100 * got.right >= least * got.wanted && got.wanted >= got.n * make.experts_used, "%s: %u of %u",
              make.arch, got.right, got.wanted);
    /* The output of experts in memory, and of the shared one, is used while the others are read. */
    for (unsigned late_of = 3; late_of > 0; late_of--) {
        struct predicted more = run(&o, true, late_of, with);
        CHECK_MSG(late_of < 3 || more.right >= got.right,
                  "%s: %u of %u were foretold, and %u when most experts' outputs were known", make.arch, got.right,
                  got.wanted, more.right);
        right_later += late_of == 3 ? more.right : 0;
        right_before += late_of == 3 ? got.right : 0;
        CHECK_MSG(!memcmp(plain, with, n * sizeof *plain), "%s: floats differ where one of %u experts is late",
                  make.arch, late_of);
    }
    o.make.nextn_agrees = 1e-6f; /* layers add so much less */
    got = run(&o, true, 0, with);
    CHECK_MSG(!all || got.right == got.wanted, "%s, whose layers add next to nothing: %u of %u", make.arch, got.right,
              got.wanted);
    o.stay_every = 0;
    o.make.nextn_agrees = 0;
    got = run(&o, true, 0, with);
    CHECK_MSG(got.n == of_rest * (TOKENS - 1), "%s, of which only vectors and routers stay: %u lists", make.arch,
              got.n);
    CHECK_MSG(!memcmp(plain, with, n * sizeof *plain), "%s: floats differ", make.arch);
    free(plain), free(with);
}

static struct mk_options of(const char *arch)
{
    struct mk_options o = rig_model();
    o.arch = arch;
    o.type = "Q8_0";
    o.experts = 8;
    o.experts_used = 3;
    o.ff = 256;
    return o;
}

static void of_one_stream(void)
{
    check(of("qwen2moe"), 3, 3, 81, true);
    check(of("glm4moe"), 3, 3, 77, true);
    check(of("gpt-oss"), 3, 3, 58, false); /* its biases are added unchanged */
    struct mk_options o = of("gemma4");    /* Y is normed before it is added; layers are scaled */
    rig_gemma4(&o, 1);
    o.layers = 6;
    o.window = 11;
    o.experts_used = 2;
    check(o, 5, 5, 68, false);
}

static void of_several_streams(void)
{
    struct mk_options o = rig_pooled(); /* deepseek4: layer 0 is routed by the token */
    o.type = "Q8_0";
    check(o, 3, 1, 88, true);
    o = rig_streamed(); /* glm5-next: layer 0 has no experts */
    check(o, 2, 0, 81, true);
    o = rig_blocks(); /* qwen4exp */
    o.gram_layer = 0;
    check(o, 3, 0, 91, true);
    o.gram_layer = 3; /* n-grams add to the streams in the third layer, which is not predicted */
    check(o, 3, 0, 87, false);
    o = rig_choosing();
    o.arch = "hy_v4"; /* layer 0 has no experts */
    check(o, 1, 0, 73, true);
}

int main(void)
{
    of_one_stream();
    of_several_streams();
    CHECK_MSG(100 * right_later >= 105 * right_before, "%u, and with most experts' outputs %u", right_before,
              right_later);
    return 0;
}
