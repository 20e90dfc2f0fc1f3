/* SPDX-License-Identifier: Apache-2.0 */
/* ntx analyze: measures how alike a model's layers are (client/delta/analyze.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/delta/analyze.h"
#include "client/out.h"
#include "client/progress.h"
#include "common/util.h"
#include "model/quant.h"
#include "model/share_file.h"

static void show_pairs(void *ctx, uint32_t done, uint32_t total)
{
    ntx_progress_say(ctx, "%u of %u pairs of matrices", done, total);
}

/* ---- text output */

/* The mean of a figure over some pairs of a role. */
static double mean_figure(const struct ntx_analyze_pair *p, uint32_t n, size_t at)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += *(const double *)((const char *)&p[i].is + at);
    return sum / n;
}

#define MEAN(f) mean_figure(p, n, offsetof(struct ntx_likeness, f))

static void print_figures(const struct ntx_analyze_role *r, const struct ntx_analyze_pair *p, uint32_t n,
                          const struct ntx_analyze_options *o)
{
    printf("  %7.4f %7.4f  %6.3f %6.3f ", MEAN(cosine), MEAN(change), MEAN(docs), MEAN(docs_chance));
    for (uint32_t k = 0; k < o->n_ranks; k++)
        printf("  %8.3f", MEAN(by_rank[k]));
    for (uint32_t k = 0; k < NTX_ANALYZE_TYPES && r->types[k] != NTX_TYPE_LIMIT; k++)
        printf("  %s %.3f (%.3f)", ntx_type_info(r->types[k])->name, MEAN(by_type[k]), MEAN(own[k]));
    putchar('\n');
}

static void print_pair(const struct ntx_analyze_role *r, const struct ntx_analyze_pair *p, bool experts,
                       const struct ntx_analyze_options *o)
{
    char name[64];
    snprintf(name, sizeof name, "  %u, %u", p->a, p->b);
    if (experts)
        snprintf(name + strlen(name), sizeof name - strlen(name), ", expert %u", p->matrix);
    printf("%-30s", name);
    print_figures(r, p, 1, o);
}

static void print_roles(const struct ntx_analysis *a, const struct ntx_analyze_options *o, bool pairs)
{
    printf("%-24s %5s  %7s %7s  %6s %6s ", "matrices", "pairs", "cosine", "change", "docs", "chance");
    for (uint32_t i = 0; i < o->n_ranks; i++)
        printf("  rank %-3u", o->ranks[i]);
    puts("  in few bits (without a base)");
    for (uint32_t i = 0; i < a->n_roles; i++) {
        const struct ntx_analyze_role *r = &a->roles[i];
        const struct ntx_analyze_pair *p = &a->pairs[r->first];
        if (!r->n)
            continue;
        printf("%-24s %5u", r->name, r->n);
        print_figures(r, p, r->n, o);
        for (uint32_t k = 0; k < r->n && pairs; k++)
            print_pair(r, &p[k], p[r->n - 1].matrix != 0, o);
    }
}

static char cosine_digit(const struct ntx_likeness *is)
{
    if (!(is->change > 0))
        return '#';
    if (is->cosine < 0.05)
        return '.';
    return (char)('0' + NTX_MIN((int)(is->cosine * 10 + 0.5), 9));
}

/* Prints a row of digits for each kind of matrix, a digit for each pair (for experts, their first pair). */
static void print_picture(const struct ntx_analysis *a)
{
    puts("\ncosine of each layer's matrix with its partner, in tenths, layer by layer (. under 0.05, # equal):");
    for (uint32_t i = 0; i < a->n_roles; i++) {
        const struct ntx_analyze_role *r = &a->roles[i];
        if (!r->n)
            continue;
        printf("%-24s ", r->name);
        for (uint32_t p = r->first; p < r->first + r->n; p++) {
            if (p == r->first || a->pairs[p].b != a->pairs[p - 1].b)
                putchar(cosine_digit(&a->pairs[p].is));
        }
        putchar('\n');
    }
}

static const char *const verdicts[] = {"no", "little", "yes"};

static void print_verdict(const struct ntx_analysis *a, const struct ntx_analyze_options *o)
{
    char now[32], alone[32], then[32];
    enum ntx_analyze_verdict v = ntx_analysis_verdict(a);
    double change = 0;
    for (uint32_t i = 0; i < a->n_pairs; i++)
        change += a->pairs[i].is.change / a->n_pairs;
    printf("\nThe matrices differ by %.2f of their size (unrelated ones: 1.41). With an error of at most %g, a delta "
           "is smaller than the matrix quantised alone in %u of %u.\n",
           change, o->bound, a->n_delta, a->n_pairs);
    printf("Bytes per token, of these matrices: %s as they are, %s quantised to that error, %s as deltas or so, "
           "whichever is smaller.\n",
           ntx_format_size((uint64_t)a->bytes, now, sizeof now),
           ntx_format_size((uint64_t)a->alone_bytes, alone, sizeof alone),
           ntx_format_size((uint64_t)a->delta_bytes, then, sizeof then));
    if (v == NTX_ANALYZE_NO)
        puts("Verdict: no. Deltas would save less than a tenth of the bytes read.");
    else
        printf("Verdict: %s. With deltas %.0f %% would be read.%s\n", verdicts[v],
               100 * a->delta_bytes / a->alone_bytes,
               o->has_base ? "" : " That is of neighbours; ask with --base L for one layer that stays in memory.");
}

/* ---- JSON output */

static json_t *figures(const double *v, uint32_t n)
{
    json_t *j = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(j, json_real(v[i]));
    return j;
}

static uint32_t n_types(const struct ntx_analyze_role *r)
{
    uint32_t n = 0;
    while (n < NTX_ANALYZE_TYPES && r->types[n] != NTX_TYPE_LIMIT)
        n++;
    return n;
}

static json_t *json_of_pair(const struct ntx_analysis *a, const struct ntx_analyze_pair *p,
                            const struct ntx_analyze_options *o)
{
    const struct ntx_analyze_role *r = &a->roles[p->role];
    return json_pack("{s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:I, s:I, s:I, s:i, s:s?}", "matrix",
                     r->name, "a", (int)p->a, "b", (int)p->b, "expert", (int)p->matrix, "cosine", p->is.cosine,
                     "change", p->is.change, "docs", p->is.docs, "docs_chance", p->is.docs_chance, "by_rank",
                     figures(p->is.by_rank, o->n_ranks), "by_type", figures(p->is.by_type, n_types(r)), "without_base",
                     figures(p->is.own, n_types(r)), "bytes", (json_int_t)p->bytes, "alone_bytes",
                     (json_int_t)p->alone_bytes, "delta_bytes", (json_int_t)p->delta_bytes, "delta_rank", (int)p->rank,
                     "delta_type", p->type == NTX_TYPE_LIMIT ? NULL : ntx_type_info(p->type)->name);
}

static json_t *json_of_roles(const struct ntx_analysis *a)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < a->n_roles; i++) {
        const struct ntx_analyze_role *r = &a->roles[i];
        json_t *types = json_array();
        for (uint32_t t = 0; t < n_types(r); t++)
            json_array_append_new(types, json_string(ntx_type_info(r->types[t])->name));
        json_array_append_new(all, json_pack("{s:s, s:I, s:I, s:i, s:o}", "matrix", r->name, "in", (json_int_t)r->in,
                                             "out", (json_int_t)r->out, "pairs", (int)r->n, "types", types));
    }
    return all;
}

static void print_json(const struct ntx_analysis *a, const struct ntx_analyze_options *o)
{
    json_t *pairs = json_array(), *ranks = json_array();
    for (uint32_t i = 0; i < a->n_pairs; i++)
        json_array_append_new(pairs, json_of_pair(a, &a->pairs[i], o));
    for (uint32_t i = 0; i < o->n_ranks; i++)
        json_array_append_new(ranks, json_integer(o->ranks[i]));
    json_t *j = json_pack("{s:s, s:f, s:f, s:f, s:f, s:i, s:o, s:o, s:o}", "verdict", verdicts[ntx_analysis_verdict(a)],
                          "bound", o->bound, "bytes_per_token", a->bytes, "alone_bytes_per_token", a->alone_bytes,
                          "delta_bytes_per_token", a->delta_bytes, "deltas", (int)a->n_delta, "ranks", ranks,
                          "matrices", json_of_roles(a), "pairs", pairs);
    ntx_out_json(j, JSON_COMPACT);
    json_decref(j);
}

int ntx_cmd_analyze(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_model_files f = {0};
    struct ntx_analysis *a = NULL;
    struct ntx_progress line = ntx_progress_begin(o);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    struct ntx_analyze_options q = {.n_ranks = o->ranks.n,
                                    .apart = o->apart,
                                    .base = (uint32_t)o->base,
                                    .has_base = o->has_base,
                                    .bound = (double)o->bound,
                                    .experts = o->experts,
                                    .threads = o->load.threads ? o->load.threads : (uint32_t)NTX_MAX(cpus, 1),
                                    .progress = show_pairs,
                                    .ctx = &line};
    memcpy(q.ranks, o->ranks.v, sizeof q.ranks);
    int rc = ntx_model_files_open(o, o->args[0], &f, &err);
    if (!rc)
        rc = ntx_share_file_refuse(f.gguf, f.names[0], &err);
    if (!rc && ntx_gguf_planes(f.gguf))
        rc = ntx_err_set(
            &err, -ENOTSUP,
            "%s: it is split in high and low bits (ntx pack --planes): make it whole again by ntx pack --join",
            f.names[0]);
    if (!rc && !(rc = ntx_analyze(f.gguf, f.fds, &q, &a, &err))) {
        ntx_progress_clear(&line);
        if (o->json) {
            print_json(a, &q);
        } else {
            print_roles(a, &q, o->pairs);
            print_picture(a);
            print_verdict(a, &q);
        }
    }
    ntx_progress_clear(&line);
    ntx_analysis_free(a);
    ntx_model_files_close(&f);
    return rc ? ntx_fail(&err) : 0;
}
