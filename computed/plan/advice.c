/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/plan/advice.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/plan/machine.h"

#define GIB           (1ull << 30)
#define MIB           (1ull << 20)
#define LEAST_GAIN    1.05
#define USABLE(bytes) ((bytes) - (bytes) / 100 * 15) /* of a machine's memory, as in place.c */

const char *ntx_advice_kind_name(enum ntx_advice_kind k)
{
    static const char *const names[] = {"setting", "type", "memory", "drive", "slot"};
    return names[k];
}

/* a trial: a copy of everything that a forecast depends on */
struct trial {
    struct ntx_hw hw;
    const struct ntx_outline *model;
    struct ntx_place_request place;
};

struct list {
    const struct ntx_advice_request *r;
    struct trial *trial;
    double pass_s;                   /* without a change */
    struct ntx_layout layout, tried; /* without a change; of the last trial */
    struct ntx_advice *out;
    unsigned n;
};

/* Seconds of a pass of one row; INFINITY: no forecast. */
static double pass_of(const struct ntx_hw *hw, const struct ntx_outline *m, const struct ntx_place_request *r,
                      struct ntx_layout *l)
{
    struct ntx_err ignored;
    return ntx_place(hw, m, r, l, &ignored) || !l->predicted ? INFINITY : l->decode.pass_s;
}

static struct trial *begin_trial(struct list *a)
{
    *a->trial = (struct trial){*a->r->hw, a->r->model, a->r->place};
    return a->trial;
}

/* Measures the trial's gain, and keeps it if there is any. NULL: there is none. */
static struct ntx_advice *keep_trial(struct list *a, enum ntx_advice_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static struct ntx_advice *keep_trial(struct list *a, enum ntx_advice_kind kind, const char *fmt, ...)
{
    struct ntx_advice *to = &a->out[a->n];
    va_list ap;
    double gain = a->pass_s / pass_of(&a->trial->hw, a->trial->model, &a->trial->place, &a->tried);
    if (a->n == NTX_ADVICE_MAX || !(gain >= LEAST_GAIN && isfinite(gain)))
        return NULL;
    *to = (struct ntx_advice){.kind = kind, .gain = gain};
    va_start(ap, fmt);
    vsnprintf(to->what, sizeof to->what, fmt, ap);
    va_end(ap);
    a->n++;
    return to;
}

static struct ntx_advice *keep_setting(struct list *a, const char *options)
{
    struct ntx_advice *to = keep_trial(a, NTX_ADVICE_SETTING, "%s", options);
    if (to)
        snprintf(to->options, sizeof to->options, "%s", options);
    return to;
}

static bool streams(const struct list *a) { return a->layout.bytes[NTX_TIER_STORAGE] > 0; }

/* A budget with which nothing is read: a little more than its parts, since the planner rounds. */
static uint64_t resident_budget(const struct list *a)
{
    uint64_t bytes = a->layout.bytes[NTX_TIER_HOST] + a->layout.bytes[NTX_TIER_STORAGE] + a->layout.kv_bytes +
                     a->layout.work_bytes;
    return NTX_ROUND_UP(bytes + bytes / 50, MIB);
}

/* The largest budget, in whole MiB. */
static uint64_t usable_memory(const struct list *a)
{
    uint64_t most = USABLE(a->r->hw->ram_bytes);
    return NTX_ROUND_DOWN(a->r->most ? NTX_MIN(a->r->most, most) : most, MIB);
}

/* The rest of the memory, or as much of it as the model can use. */
static void try_budget(struct list *a)
{
    struct trial *t = begin_trial(a);
    uint64_t usable = usable_memory(a), want = resident_budget(a);
    char option[64], size[32];
    if (!streams(a) || a->layout.ram >= usable)
        return;
    t->place.plan.ram_bytes = NTX_MIN(usable, want);
    snprintf(option, sizeof option, "--ram %s", ntx_format_exact(t->place.plan.ram_bytes, size, sizeof size));
    struct ntx_advice *to = keep_setting(a, option);
    if (to && !a->tried.bytes[NTX_TIER_STORAGE])
        snprintf(to->what, sizeof to->what, "%s, which holds all of it", option);
    else if (to && want > usable)
        snprintf(to->what, sizeof to->what, "%s, all that can be given", option);
}

static void try_type(struct list *a)
{
    struct trial *t = begin_trial(a);
    struct ntx_outline smaller;
    struct ntx_err ignored;
    uint32_t n_other;
    if (ntx_outline_retyped(a->r->model->model->gguf, ntx_mix_named("Q4_K_M"), true, "smaller", &n_other, &smaller,
                            &ignored))
        return;
    double gb = (double)ntx_outline_model_bytes(&smaller) / 1e9,
           is = (double)ntx_outline_model_bytes(a->r->model) / 1e9;
    smaller.held_bytes = a->r->model->held_bytes;
    t->model = &smaller;
    if (gb < 0.85 * is)
        keep_trial(a, NTX_ADVICE_TYPE, "the model in Q4_K_M, about %.3g GB instead of %.3g (less exact)", gb, is);
    ntx_outline_free(&smaller);
}

static void try_threads(struct list *a)
{
    struct trial *t = begin_trial(a);
    if (!t->place.plan.threads || t->place.plan.threads >= t->hw.threads)
        return;
    char option[64];
    t->place.plan.threads = t->hw.threads;
    snprintf(option, sizeof option, "--threads %u", t->hw.threads);
    keep_setting(a, option);
}

/* GPU memory that is not used. */
static void try_vram(struct list *a)
{
    struct trial *t = begin_trial(a);
    bool unused = t->place.plan.multiply == NTX_MULTIPLY_CPU;
    if (!t->hw.gpu.bytes || (!unused && !t->place.vram))
        return;
    t->place.vram = 0;
    t->place.plan.multiply = unused ? NTX_MULTIPLY_BEST : t->place.plan.multiply;
    if (unused)
        keep_setting(a, "--backend auto");
    else
        keep_trial(a, NTX_ADVICE_SETTING, "all of the GPU's memory (no --vram)");
}

/* Where the model fits into the memory that is there, --ram does it, and nothing need be bought. */
static bool lacks_memory(const struct list *a) { return streams(a) && usable_memory(a) < resident_budget(a); }

/* More memory, of sizes that are sold: up to four times as much, and no more than the model fills. */
static void try_memory(struct list *a)
{
    static const uint32_t sizes[] = {16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 768, 1024};
    const uint64_t has = a->r->hw->ram_bytes, want = resident_budget(a);
    char have[32];
    bool done = !lacks_memory(a) || !has;
    for (size_t i = 0; !done && i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t bytes = sizes[i] * GIB;
        if (bytes < has + has / 4 || USABLE(bytes) < a->layout.ram + a->layout.ram / 4)
            continue;
        if (bytes > 4 * has)
            return;
        struct trial *t = begin_trial(a);
        t->hw.ram_bytes = bytes;
        t->place.plan.ram_bytes = USABLE(bytes);
        keep_trial(a, NTX_ADVICE_MEMORY, "%u GiB of memory instead of %s", sizes[i],
                   ntx_format_size(has, have, sizeof have));
        done = USABLE(bytes) >= want;
    }
}

/* The next class of drives, and a second one of the same. */
static void try_drive(struct list *a)
{
    static const double rates[] = {3.3e9, 7e9, 14e9};
    double now = ntx_hw_stream_bps(a->r->hw, 524288);
    size_t next = 0;
    if (!lacks_memory(a) || now <= 0)
        return;
    while (next < sizeof rates / sizeof *rates && rates[next] < 1.5 * now)
        next++;
    if (next < sizeof rates / sizeof *rates) {
        struct trial *t = begin_trial(a);
        ntx_machine_set_drive(&t->hw, rates[next]);
        keep_trial(a, NTX_ADVICE_DRIVE, "a drive of %.3g GB/s instead of %.2g", rates[next] / 1e9, now / 1e9);
    }
    struct trial *t = begin_trial(a);
    ntx_machine_set_drive(&t->hw, 2 * now);
    keep_trial(a, NTX_ADVICE_DRIVE, "a second such drive with a copy of the model (--also)");
}

static void try_slot(struct list *a)
{
    struct trial *t = begin_trial(a);
    double full = 0.8 * ntx_pcie_bps(4, 16);
    if (!t->hw.gpu.bytes || t->hw.gpu.h2d_bps <= 0 || t->hw.gpu.h2d_bps > 0.8 * full)
        return;
    t->hw.gpu.h2d_bps = full;
    keep_trial(a, NTX_ADVICE_SLOT, "a slot of PCIe 4 x16 for the GPU");
}

/* Cheaper changes were tried first: one that is about as good stays behind them. */
static void sort_advice(struct ntx_advice *list, unsigned n)
{
    for (unsigned i = 1; i < n; i++) {
        struct ntx_advice it = list[i];
        unsigned k = i;
        for (; k && it.gain > list[k - 1].gain * LEAST_GAIN; k--)
            list[k] = list[k - 1];
        list[k] = it;
    }
}

unsigned ntx_advise(const struct ntx_advice_request *r, struct ntx_advice out[NTX_ADVICE_MAX])
{
    static void (*const tries[])(struct list *) = {try_budget, try_threads, try_vram,  try_type,
                                                   try_slot,   try_drive,   try_memory};
    struct list a = {.r = r, .out = out, .trial = calloc(1, sizeof *a.trial)};
    if (!a.trial)
        return 0;
    a.pass_s = pass_of(r->hw, r->model, &r->place, &a.layout);
    for (size_t i = 0; isfinite(a.pass_s) && i < sizeof tries / sizeof *tries; i++)
        tries[i](&a);
    free(a.trial);
    sort_advice(out, a.n);
    return a.n;
}
