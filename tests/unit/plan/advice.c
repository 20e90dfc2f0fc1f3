/* SPDX-License-Identifier: Apache-2.0 */
/* The greatest gain that is named is the cost model's own figure for that change; machines in words; nearest names. */
#include <errno.h>
#include <math.h>

#include "common/nearest.h"
#include "common/util.h"
#include "computed/plan/advice.h"
#include "computed/plan/machine.h"
#include "tests/lib/check.h"

#define GIB        (1ull << 30)
#define MIB        (1ull << 20)
#define NEAR(a, b) CHECK_MSG(fabs((a) - (b)) <= 1e-9 * fabs(b), "%.12g, expected %.12g", (double)(a), (double)(b))

static struct ntx_hw machine(const char *words)
{
    struct ntx_hw hw = {0};
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_machine_parse(words, false, &hw, &err), "%s", err.text);
    return hw;
}

static void test_words(void)
{
    struct ntx_hw hw = machine("gpu=RTX 3090,ram=64G,drive=7G,pcie=3x8");
    CHECK_EQ(hw.ram_bytes, 64 * GIB);
    CHECK_EQ(hw.threads, 8);
    CHECK_EQ(hw.gpu.bytes, 24 * GIB);
    NEAR(hw.gpu.bps, 0.8 * 936e9);
    NEAR(hw.gpu.h2d_bps, 0.8 * 8 * 0.985e9);
    NEAR(hw.gpu.flops, 0.7 * 71e12);
    NEAR(ntx_hw_drive_bps(&hw, 1 << 20), 7e9);
    NEAR(hw.ram_bps, 0.8 * 51.2e9);
    CHECK_STR(hw.source, "estimated");
    hw = machine("pcie=5,gpu=rtx-4060-ti-16gb,memory=ddr5,cores=16");
    NEAR(hw.gpu.h2d_bps, 0.8 * 8 * 1.969e9); /* the card's own plug is PCIe 4 x8 */
    CHECK_EQ(hw.gpu.bytes, 16 * GIB);
    NEAR(hw.ram_bps, 0.8 * 96e9);
    CHECK_EQ(hw.threads, 16);
    NEAR(ntx_hw_byte_s(&hw, NTX_Q4_K, 1, 0, false), 1 / (0.64 * 96e9));
    CHECK_EQ(machine("memory=40G").gpu.bytes, 0);
    struct ntx_hw this = machine("gpu=3060,drive=2G");
    struct ntx_err err = {0};
    this.streams[0] = (struct ntx_hw_read){524288, 1.5e9};
    this.n_streams = 1;
    CHECK(ntx_machine_is_this("this,ram=8G") && ntx_machine_is_this("this") && !ntx_machine_is_this("thistle"));
    CHECK(!ntx_machine_parse("this,ram=8G", true, &this, &err));
    CHECK_EQ(this.ram_bytes, 8 * GIB);
    NEAR(ntx_hw_stream_bps(&this, 524288), 1.5e9); /* words that were left out keep their values */
    CHECK_STR(this.gpu.name, "3060");
    CHECK(!ntx_machine_parse("this,drive=3G,gpu=none", true, &this, &err));
    NEAR(ntx_hw_stream_bps(&this, 524288), 3e9);
    CHECK_EQ(this.gpu.bytes, 0);
}

static void test_wrong_words(void)
{
    static const struct {
        const char *words, *says;
    } bad[] = {{"gpu=3091", "(did you mean '3090'?)"},
               {"gpu=zx81", "no GPU 'zx81'"},
               {"gpus=3090", "(did you mean 'gpu'?)"},
               {"ram=lots", "64G"},
               {"drive=0", "7G"},
               {"pcie=4x17", "4x16"},
               {"pcie=x", "4x16"},
               {"cores=0", "cores"},
               {"memory=sdram", "ddr4"},
               {"ram", "ram="},
               {"ram=8G,,gpu=3090", "no word"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ntx_err err = {0};
        struct ntx_hw hw = {.threads = 7};
        CHECK_MSG(ntx_machine_parse(bad[i].words, false, &hw, &err) == -EINVAL, "%s", bad[i].words);
        CHECK_MSG(strstr(err.text, bad[i].says), "%s: %s", bad[i].words, err.text);
        CHECK_EQ(hw.threads, 7);
    }
}

static const char *const fruit[] = {"apple", "pear", "plum"};
static const char *fruit_at(size_t i) { return fruit[i]; }

static void test_nearest(void)
{
    CHECK_STR(ntx_nearest("aple", fruit_at, 3), "apple");
    CHECK_STR(ntx_nearest("PAER", fruit_at, 3), "pear"); /* two letters swapped */
    CHECK_STR(ntx_nearest("plumb", fruit_at, 3), "plum");
    CHECK(!ntx_nearest("quince", fruit_at, 3) && !ntx_nearest("", fruit_at, 3));
    struct ntx_near near;
    ntx_near_begin(&near, "app", "--");
    ntx_near_offer_list(&near, "pear|apple|plum");
    CHECK_STR(near.hint, "; did you mean --apple?"); /* it begins so */
    char endless[2000];
    memset(endless, 'a', sizeof endless - 1);
    endless[sizeof endless - 1] = 0;
    ntx_near_begin(&near, endless, "");
    ntx_near_offer_list(&near, "pear|apple|plum");
    CHECK_STR(near.hint, "");
    ntx_near_begin(&near, "quince", "");
    ntx_near_offer_list(&near, "pear, apple, plum");
    CHECK_STR(near.hint, "");
}

static const struct ntx_advice *find(const struct ntx_advice *list, unsigned n, const char *what)
{
    for (unsigned i = 0; i < n; i++)
        if (strstr(list[i].what, what))
            return &list[i];
    return NULL;
}

static double pass_s(const struct ntx_hw *hw, const struct ntx_outline *o, const struct ntx_place_request *r)
{
    struct ntx_layout l;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_place(hw, o, r, &l, &err), "%s", err.text);
    CHECK(l.predicted);
    return l.decode.pass_s;
}

/* A model of 8.5 GB: nothing beyond it, beyond the machine, or for a part that the machine lacks. */
static void test_possible(const struct ntx_outline *o)
{
    struct ntx_advice list[NTX_ADVICE_MAX];
    struct ntx_hw roomy = machine("ram=64G,drive=2G"), tiny = machine("ram=4G,drive=2G"),
                  with_gpu = machine("ram=64G,drive=2G,gpu=3060,pcie=3x4");
    struct ntx_advice_request r = {&roomy, o, {.plan = {.ram_bytes = 4 * GIB, .ctx = 512}}, 0};
    unsigned n = ntx_advise(&r, list);
    CHECK(find(list, n, "--ram") && find(list, n, ", which holds all of it") && !find(list, n, "of memory"));
    CHECK(!find(list, n, "drive"));
    uint64_t asked = 0;
    CHECK(!ntx_parse_size(find(list, n, "--ram")->options + 6, &asked));
    CHECK_MSG(asked > 8000 * MIB && asked < 10 * GIB, "%llu", (unsigned long long)asked);
    CHECK(!find(list, n, "GPU") && !find(list, n, "slot"));
    r.most = 5 * GIB + 1; /* others have the rest of the memory */
    n = ntx_advise(&r, list);
    CHECK_STR(find(list, n, "--ram")->options, "--ram 5G");
    CHECK(find(list, n, "all that can be given"));
    r = (struct ntx_advice_request){&tiny, o, {.plan = {.ram_bytes = 3 * GIB, .ctx = 512}}, 0};
    n = ntx_advise(&r, list);
    CHECK(find(list, n, "16 GiB of memory instead of 4.0 GiB") && !find(list, n, "24 GiB") && !find(list, n, "32 GiB"));
    CHECK(find(list, n, "a drive of 3.3 GB/s") && !find(list, n, "a drive of 7") && !find(list, n, "a drive of 14"));
    tiny.ram_bytes = 2 * GIB; /* eight times as much is no advice */
    r.place.plan.ram_bytes = GIB;
    CHECK(!find(list, ntx_advise(&r, list), "of memory"));
    r = (struct ntx_advice_request){&with_gpu, o, {.plan = {.ram_bytes = 4 * GIB, .ctx = 512}}, 0};
    n = ntx_advise(&r, list);
    for (unsigned i = 0; i < n; i++)
        CHECK_MSG(!strstr(list[i].what, "instead of 3060"), "%s", list[i].what);
}

static void test_gains(void)
{
    struct ntx_hw hw = machine("ram=32G,drive=2G"), faster = machine("ram=32G,drive=4G"),
                  larger = machine("ram=48G,drive=2G");
    struct ntx_outline o;
    struct ntx_err err = {0};
    struct ntx_advice list[NTX_ADVICE_MAX];
    CHECK(!ntx_outline_named("llama-70b@q4_k_m", &o, &err));
    struct ntx_advice_request r = {&hw, &o, {.plan = {.ram_bytes = 10 * GIB, .ctx = 512}}, 0};
    unsigned n = ntx_advise(&r, list);
    double now = pass_s(&hw, &o, &r.place);
    for (unsigned i = 1; i < n; i++) /* earlier ones are better, or as good and cheaper */
        CHECK(list[i].gain <= list[i - 1].gain * 1.05);
    const struct ntx_advice *second = find(list, n, "--also"), *budget = find(list, n, "--ram"),
                            *memory = find(list, n, "48 GiB of memory");
    CHECK(second && second->kind == NTX_ADVICE_DRIVE && budget && budget->kind == NTX_ADVICE_SETTING && memory &&
          memory->kind == NTX_ADVICE_MEMORY);
    NEAR(second->gain, now / pass_s(&faster, &o, &r.place));
    struct ntx_place_request more = {.plan = {.ram_bytes = 27852 * MIB, .ctx = 512}}; /* 85 % */
    NEAR(budget->gain, now / pass_s(&hw, &o, &more));
    more.plan.ram_bytes = 48 * GIB - 48 * GIB / 100 * 15;
    NEAR(memory->gain, now / pass_s(&larger, &o, &more));
    CHECK(list[0].gain >= memory->gain && !find(list, n, "Q4_K_M")); /* the model already has that type */
    CHECK_STR(budget->options, "--ram 27852M");
    CHECK(!budget->kind && !ntx_advice_is_bought(budget->kind) && ntx_advice_is_bought(memory->kind));
    CHECK(!find(list, n, "GPU"));
    ntx_outline_free(&o);
    /* all in memory: neither drive nor memory help, a smaller type does */
    CHECK(!ntx_outline_named("llama-8b@q8_0", &o, &err));
    r.place.plan.ram_bytes = 20 * GIB;
    n = ntx_advise(&r, list);
    CHECK(n && !find(list, n, "drive") && !find(list, n, "of memory") && !find(list, n, "--ram"));
    CHECK(find(list, n, "Q4_K_M") && find(list, n, "Q4_K_M")->kind == NTX_ADVICE_TYPE &&
          fabs(find(list, n, "Q4_K_M")->gain - 1.72) < 0.05);
    test_possible(&o);
    hw.n_kernels = 0;
    hw.ram_bps = 0;
    CHECK_EQ(ntx_advise(&r, list), 0); /* no rate is known */
    ntx_outline_free(&o);
}

static void test_cards(void)
{
    for (size_t i = 0; i < ntx_card_count(); i++) {
        const struct ntx_card *c = ntx_card_at(i);
        CHECK_MSG(ntx_card_find(c->name) == c, "%s is found as another", c->name);
        CHECK_MSG(c->gib && c->gb_s > 100 && c->tflops > 10 && c->tops >= 2 * c->tflops * 0.99 &&
                      c->tops < 4.1 * c->tflops && c->pcie >= 3 && c->pcie <= 5 && c->lanes >= 8,
                  "%s", c->name);
    }
    CHECK(ntx_card_find("NVIDIA GeForce RTX 4070 Ti SUPER") == ntx_card_find("4070tis"));
    CHECK(!ntx_card_find("1080") && !ntx_card_find(""));
}

int main(void)
{
    test_words();
    test_wrong_words();
    test_nearest();
    test_gains();
    test_cards();
    return 0;
}
