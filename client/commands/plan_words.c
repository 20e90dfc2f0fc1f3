/* SPDX-License-Identifier: Apache-2.0 */
/* plan_words.c: the answer of `ntx plan` in plain words. */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "client/commands/plan.h"
#include "client/out.h"
#include "client/pull/store.h"
#include "common/util.h"
#include "computed/plan/cards.h"
#include "model/arch.h"
#include "model/planes.h"

#define BOUGHT           31 /* all kinds that must be bought, as one */
#define ANSWER_WORDS     300
#define PROMPT_WORDS     500
#define TOKENS_OF(words) ((words)*4 / 3) /* in English, about */

static const char *duration_text(double s, char *buf, size_t n)
{
    if (s < 0.95)
        snprintf(buf, n, "less than a second");
    else if (s < 9.5)
        snprintf(buf, n, s < 1.05 ? "%.2g second" : "%.2g seconds", s);
    else if (s < 100)
        snprintf(buf, n, "%.0f seconds", s);
    else if (s < 100 * 60)
        snprintf(buf, n, "%.0f minutes", s / 60);
    else if (s < 48 * 3600)
        snprintf(buf, n, "%.0f hours", s / 3600);
    else
        snprintf(buf, n, "%.0f days", s / 86400);
    return buf;
}

static const char *about_text(double s, char *buf, size_t n)
{
    char text[32];
    snprintf(buf, n, "%s%s", s < 0.95 ? "" : "about ", duration_text(s, text, sizeof text));
    return buf;
}

const char *ntx__plan_rate_text(double tok_s, char *buf, size_t n)
{
    char one[32];
    if (tok_s >= 1)
        snprintf(buf, n, tok_s >= 99.5 ? "%.0f tokens a second" : "%.2g tokens a second", tok_s);
    else
        snprintf(buf, n, "a token every %s", duration_text(1 / tok_s, one, sizeof one));
    return buf;
}

static double gb(uint64_t bytes) { return (double)bytes / 1e9; }

static void print_fit(const struct ntx_plan_answer *a)
{
    const uint64_t *b = a->place.bytes;
    double all = gb(ntx_outline_model_bytes(&a->model));
    if (ntx_planes_bytes(a->model.model, NULL)) /* the outline has the low bits alone */
        all = gb(b[NTX_TIER_DEVICE] + b[NTX_TIER_HOST] + b[NTX_TIER_STORAGE]);
    char ram[32], exact[32];
    if (*a->model.why)
        printf("ntx does not run this file: %s.\nEstimated all the same, it would fit", a->model.why);
    printf("%s in %s of memory (--ram %s): ", *a->model.why ? "" : "Fits",
           ntx_format_size(a->place.ram, ram, sizeof ram), ntx_format_exact(a->place.ram, exact, sizeof exact));
    if (!b[NTX_TIER_STORAGE] && !b[NTX_TIER_HOST])
        printf("all %.3g GB of it lie on the GPU.\n", all);
    else if (!b[NTX_TIER_STORAGE] && !b[NTX_TIER_DEVICE])
        printf("all %.3g GB of it stay there.\n", all);
    else if (!b[NTX_TIER_STORAGE])
        printf("%.3g of its %.3g GB lie on the GPU, the others stay in memory.\n", gb(b[NTX_TIER_DEVICE]), all);
    else {
        if (b[NTX_TIER_DEVICE])
            printf("%.3g of its %.3g GB lie on the GPU, %.3g stay in memory", gb(b[NTX_TIER_DEVICE]), all,
                   gb(b[NTX_TIER_HOST]));
        else
            printf("%.3g of its %.3g GB stay there", gb(b[NTX_TIER_HOST]), all);
        printf("; the other %.3g are read from the drive %s.\n", gb(b[NTX_TIER_STORAGE]),
               a->model.model->hp.n_expert ? "when a token wants them" : "for every token");
    }
}

static void print_rates(const struct ntx_plan_answer *a)
{
    char r[64], d[32];
    double pass = a->place.decode.pass_s, per_token = a->place.prefill.pass_s / a->place.rows;
    printf("Writing: %s; an answer of %d words takes %s.\n", ntx__plan_rate_text(1 / pass, r, sizeof r), ANSWER_WORDS,
           about_text(TOKENS_OF(ANSWER_WORDS) * pass, d, sizeof d));
    printf("Reading: %s; a prompt of %d words takes %s.\n", ntx__plan_rate_text(1 / per_token, r, sizeof r),
           PROMPT_WORDS,
           about_text(NTX_MAX(TOKENS_OF(PROMPT_WORDS) * per_token, a->place.prefill.pass_s), d, sizeof d));
}

static void print_drafts(const struct ntx_plan_answer *a)
{
    const struct ntx_layout *p = &a->place;
    char r[64];
    const char *by = p->drafts.known ? "at the acceptance rates measured here" : "at the usual acceptance rates";
    if (p->drafts.nodes)
        printf("Drafts: %.1f tokens per pass of %u drafts: %s, %s.\n", p->drafts.tokens, p->drafts.nodes,
               ntx__plan_rate_text(p->drafts.tok_s, r, sizeof r), by);
    else if (p->drafts.tok_s > 0)
        printf("Drafts: they do not pay here, %s.\n", by);
}

static void print_limit(const struct ntx_plan_answer *a)
{
    const struct ntx_forecast *f = &a->place.decode;
    const struct {
        const char *limit, *means;
    } words[] = {
        {"drive", "the drive: all else waits for what it reads"},
        {"memory", "memory: the weights are read from it as fast as it goes"},
        {"h2d", "the GPU's slot: weights are copied through it"},
        {"vram", "the GPU's memory: the weights are read from it as fast as it goes"},
        {"compute", f->device_s > f->cpu_s ? "the GPU's arithmetic" : "the processor: it multiplies as fast as it can"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i].limit, f->limit))
            printf("Limit:   %s.\n", words[i].means);
}

static const char *gain_text(double gain, char *buf, size_t n)
{
    snprintf(buf, n, gain < 9.95 ? "%.1f" : "%.0f", gain);
    return buf;
}

/* A path that needs no quotes in a shell. */
static bool is_plain(const char *path)
{
    for (const char *c = path; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("/._+-", *c))
            return false;
    return *path && *path != '-';
}

/* The command that makes the smaller file; "" where the model has no file, or its name needs quotes. */
static void type_command(const struct ntx_plan_answer *a, char *buf, size_t n)
{
    char stem[256];
    unsigned no, of;
    const char *slash = a->path ? strrchr(a->path, '/') : NULL;
    *buf = 0;
    if (!a->named && a->path && is_plain(a->path) && ntx_store_stem(slash ? slash + 1 : a->path, stem, &no, &of))
        snprintf(buf, n, " (`ntx quantize %s %s-Q4_K_M.gguf Q4_K_M`)", a->path, stem);
}

/* One line for each kind of what can be done now, the best first; then at most one for what must be bought. */
static void print_advice(const struct ntx_plan_answer *a)
{
    unsigned seen = 0;
    char r[64], t[32], what[300], command[4500];
    for (int bought = 0; bought < 2; bought++)
        for (unsigned i = 0; i < a->n_advice; i++) {
            const struct ntx_advice *v = &a->advice[i];
            if (ntx_advice_is_bought(v->kind) != bought || seen >> (bought ? BOUGHT : v->kind) & 1)
                continue;
            type_command(a, command, v->kind == NTX_ADVICE_TYPE ? sizeof command : 1);
            const char *head = seen ? "        " : "Gain:   ";
            printf("%s %s times as fast with %s: %s%s.\n", bought ? "To buy: " : head, gain_text(v->gain, t, sizeof t),
                   ntx_out_line(v->what, what, sizeof what),
                   ntx__plan_rate_text(v->gain / a->place.decode.pass_s, r, sizeof r), command);
            seen |= 1u << (bought ? BOUGHT : v->kind);
        }
    if (!seen)
        puts("Gain:    nothing that was tried (memory, drive, a smaller type) makes it a twentieth faster.");
}

void ntx__plan_print_words(const struct ntx_plan_answer *a)
{
    print_fit(a);
    if (a->place.predicted) {
        print_rates(a);
        print_drafts(a);
        print_limit(a);
        print_advice(a);
    } else {
        puts("How fast: unknown, since the profile lacks a rate that this placement needs.");
    }
    for (size_t i = 0; i < sizeof a->notes / sizeof *a->notes; i++)
        if (a->notes[i][0] && i != NTX_PLAN_NOTE_MODEL) /* it was printed first */
            ntx_out_format("Note:    %s\n", a->notes[i]);
}

/* ---- lists */

static void print_names(const char *title, const char *(*at)(size_t i), size_t n)
{
    size_t column = 0;
    printf("%s", title);
    for (size_t i = 0; i < n && at(i); i++) {
        if (column + strlen(at(i)) > 90) {
            printf("\n        ");
            column = 0;
        }
        column += (size_t)printf(" %s", at(i));
    }
    putchar('\n');
}

static json_t *names_json(const char *(*at)(size_t i), size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n && at(i); i++)
        json_array_append_new(a, json_string(at(i)));
    return a;
}

void ntx__plan_print_lists(bool json)
{
    if (json) {
        json_t *j = json_pack("{s:o, s:o, s:o, s:o}", "models", names_json(ntx_outline_model, SIZE_MAX),
                              "architectures", names_json(ntx_arch_at, SIZE_MAX), "types",
                              names_json(ntx_outline_type, SIZE_MAX), "gpus",
                              names_json(ntx_card_name, ntx_card_count()));
        json_dumpf(j, stdout, JSON_INDENT(1));
        putchar('\n');
        json_decref(j);
        return;
    }
    puts(
        "A model by name is MODEL@TYPE, such as llama-70b@q4_k_m, or MODEL for the usual type. A path of a GGUF works, "
        "too.");
    print_names("models: ", ntx_outline_model, SIZE_MAX);
    print_names("types:  ", ntx_outline_type, SIZE_MAX);
    print_names("A GGUF is run whose general.architecture is one of these:\n        ", ntx_arch_at, SIZE_MAX);
    print_names("GPUs:   ", ntx_card_name, ntx_card_count());
    puts("A machine by words: --machine gpu=3090,ram=64G,drive=7G,pcie=4x16; or this one changed: --machine "
         "this,gpu=3090");
}
