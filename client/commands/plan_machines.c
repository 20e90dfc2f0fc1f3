/* SPDX-License-Identifier: Apache-2.0 */
/* ntx plan MODEL --machines FILE: several machines as one, described by a file (computed/plan/machine.h) with a line
 * for each machine, its name first:
 *
 *     net=117M,100us
 *     a ram=16G,drive=3.3G
 *     b ram=8G,drive=500M,memory=20G */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/commands/commands.h"
#include "client/commands/plan.h"
#include "client/out.h"
#include "common/util.h"
#include "computed/plan/machine.h"
#include "computed/plan/machines.h"
#include "computed/plan/plan.h"

#define OF_RAM 0.85 /* of a machine's memory, as ntx_place takes without --ram */

struct machines {
    char name[NTX_RANKS_MAX][64];
    struct ntx_hw hw[NTX_RANKS_MAX];
    uint64_t budget[NTX_RANKS_MAX];
    uint32_t n;
    struct ntx_machines_link link;
};

/* Reads "net=RATE" and "100us", in either order. */
static int read_net(const char *words, struct machines *m, struct ntx_err *err)
{
    char buf[128];
    snprintf(buf, sizeof buf, "%s", words);
    for (char *save, *p = strtok_r(buf, ", ", &save); p; p = strtok_r(NULL, ", ", &save)) {
        char *end;
        double us = strtod(p, &end);
        if (end != p && !strcmp(end, "us") && us >= 0 && us < 1e7)
            m->link.latency_s = us / 1e6;
        else if (strncmp(p, "net=", 4) || ntx_parse_rate(p + 4, &m->link.bytes_per_s))
            return ntx_err_set(err, -EINVAL, "'%s' is no network: write net=117M,100us (bytes per second, latency)", p);
    }
    return 0;
}

static int read_machine(char *line, const struct ntx_options *o, struct machines *m, struct ntx_err *err)
{
    char *words = line + strcspn(line, " \t");
    size_t name = (size_t)(words - line);
    words += strspn(words, " \t");
    if (m->n == NTX_RANKS_MAX)
        return ntx_err_set(err, -E2BIG, "more than %u machines", NTX_RANKS_MAX);
    if (!*words || name >= sizeof *m->name)
        return ntx_err_set(err, -EINVAL, "'%.60s' is no machine: write NAME ram=16G,drive=3.3G", line);
    snprintf(m->name[m->n], sizeof *m->name, "%.*s", (int)name, line);
    int rc = ntx_machine_parse(words, false, &m->hw[m->n], err);
    m->budget[m->n] = o->load.ram ? o->load.ram : (uint64_t)(OF_RAM * (double)m->hw[m->n].ram_bytes);
    m->n += !rc;
    return rc;
}

static int read_file(const char *path, const struct ntx_options *o, struct machines *m, struct ntx_err *err)
{
    char line[512];
    FILE *f = fopen(path, "re");
    int rc = f ? 0 : ntx_err_set(err, -errno, "%s: %s", path, strerror(errno));
    for (unsigned number = 1; !rc && fgets(line, sizeof line, f); number++) {
        char at[600];
        line[strcspn(line, "#\n")] = 0;
        char *p = line + strspn(line, " \t");
        for (size_t n = strlen(p); n && strchr(" \t\r", p[n - 1]);)
            p[--n] = 0;
        if (!*p)
            continue;
        rc = strncmp(p, "net=", 4) ? read_machine(p, o, m, err) : read_net(p, m, err);
        snprintf(at, sizeof at, "%.500s, line %u", path, number);
        if (rc)
            ntx_err_prefix(err, at);
    }
    if (f)
        fclose(f);
    return rc;
}

/* The forecast for each split, and the best split. */
struct found {
    struct ntx_machines_forecast by[NTX_SPLITS];
    enum ntx_split split;
    const char *heads; /* why K and V cannot be split; NULL: they can */
    uint32_t ctx;
};

static void print_others(const struct found *found)
{
    for (int s = NTX_SPLIT_ROWS; s < NTX_SPLITS; s++) {
        const struct ntx_machines_forecast *f = &found->by[s];
        if (s == NTX_SPLIT_HEADS && found->heads)
            printf("  %-7s  not this model: %s\n", ntx_split_names[s], found->heads);
        else if (f->lacks)
            printf("  %-7s  K and V of machine %u have no room in its memory: --ctx, --kv-type\n", ntx_split_names[s],
                   f->lacks);
        else
            printf("  %-7s %9.4g %14.4g %14.4g%s\n", ntx_split_names[s], f->token_s, f->prompt_pass_s,
                   ntx_machines_turn(f), (enum ntx_split)s == found->split ? "  *" : "");
    }
}

static void print_plan(const struct ntx_plan_answer *a, const struct machines *m, const struct found *found)
{
    char bytes[32];
    const struct ntx_machines_forecast *f = &found->by[found->split];
    ntx_out_format("%s over %u machines, split by %s: %.3g tokens/s, by the %s\n\n", a->model.name, m->n,
                   ntx_split_names[found->split], 1 / f->token_s, f->limit);
    printf("%-20s %8s %10s %10s %10s %10s\n", "machine", "share", "weights", "in memory", "reads", "K and V");
    for (uint32_t i = 0; i < m->n; i++) {
        printf("%-20s %6.1f %%", m->name[i], 100 * f->of[i].share);
        printf(" %10s", ntx_format_size((uint64_t)f->of[i].bytes, bytes, sizeof bytes));
        printf(" %10s", ntx_format_size((uint64_t)f->of[i].keeps, bytes, sizeof bytes));
        printf(" %10s", ntx_format_size((uint64_t)f->of[i].reads, bytes, sizeof bytes));
        printf(" %10s\n", ntx_format_size((uint64_t)f->of[i].kv, bytes, sizeof bytes));
    }
    printf("\nA token: drives read ahead for %.4g s; meanwhile products take %.4g s (%s), attention to %u tokens %.4g "
           "s and messages %.4g s (%u exchanges, %s).\n",
           f->drives_s, f->products_s,
           found->split != NTX_SPLIT_LAYERS ? "each machine its rows of every matrix, at once"
                                            : "whole layers, one machine after another",
           found->ctx / 2, f->attend_s, f->messages_s, f->runs,
           ntx_format_size((uint64_t)f->crosses, bytes, sizeof bytes));
    if (f->lacks)
        printf("%s has no room for its keys and values in a context of %u tokens: say --ctx or --kv-type.\n",
               m->name[f->lacks - 1], found->ctx);
    if (f->experts_s > 0)
        printf("Experts that are not in memory take another %.4g s.\n", f->experts_s);
    if (f->prompt_products_s > 0)
        printf("A prompt of %u tokens: products take %.3g s, its messages %.3g s.\n", NTX_MACHINES_PROMPT,
               f->prompt_products_s, NTX_MACHINES_PROMPT * f->prompt_s);
    else
        printf("A prompt of %u tokens: its messages take %.3g s; the time of its products is not in these machines' "
               "profiles.\n",
               NTX_MACHINES_PROMPT, NTX_MACHINES_PROMPT * f->prompt_s);
    printf("\n  split    a token s   prompt of %u   and %u tokens\n", NTX_MACHINES_PROMPT, NTX_MACHINES_ANSWER);
    print_others(found);
    puts("Predicted; rates of networks were not measured with it.");
}

static void print_json(const struct ntx_plan_answer *a, const struct machines *m, const struct found *found)
{
    const struct ntx_machines_forecast *f = &found->by[found->split];
    json_t *of = json_array(), *j;
    for (uint32_t i = 0; i < m->n; i++)
        json_array_append_new(of, json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "name", m->name[i], "share",
                                            f->of[i].share, "bytes", f->of[i].bytes, "bytes_host", f->of[i].keeps,
                                            "bytes_storage", f->of[i].reads, "bytes_kv", f->of[i].kv));
    json_t *all = json_object();
    for (int k = NTX_SPLIT_ROWS; k < NTX_SPLITS; k++)
        if (k != NTX_SPLIT_HEADS || !found->heads)
            json_object_set_new(all, ntx_split_names[k],
                                json_pack("{s:f, s:f, s:b, s:f}", "predicted_tok_s", 1 / found->by[k].token_s,
                                          "prompt_s", found->by[k].prompt_pass_s, "fits", !found->by[k].lacks, "turn_s",
                                          ntx_machines_turn(&found->by[k])));
    j = json_pack("{s:s, s:s, s:f, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:f, s:o, s:o}", "model",
                  a->model.name, "split", ntx_split_names[found->split], "predicted_tok_s", 1 / f->token_s, "limit",
                  f->limit, "drives_s", f->drives_s, "products_s", f->products_s, "experts_s", f->experts_s,
                  "messages_s", f->messages_s, "messages_s_prompt_token", f->prompt_s, "attend_s", f->attend_s,
                  "prompt_products_s", f->prompt_products_s, "prompt_pass_s", f->prompt_pass_s, "exchanges",
                  (int)f->runs, "rank_bytes", f->crosses, "splits", all, "machines", of);
    char *text = json_dumps(j, JSON_INDENT(2));
    puts(text ? text : "{}");
    free(text);
    json_decref(j);
}

static int make_forecast(const struct ntx_options *o, const struct ntx_outline *model, struct machines **out,
                         struct found *f, struct ntx_err *err)
{
    struct machines *m = *out = calloc(1, sizeof *m);
    int rc = m ? read_file(o->machines, o, m, err) : ntx_err_set(err, -ENOMEM, "no memory");
    struct ntx_machines_request request = {.ctx = o->load.ctx};
    if (!rc)
        rc = ntx_kv_type_of(o->load.kv_type, &model->model->hp, &request.kv_type, err);
    if (!rc) {
        request.hw = m->hw;
        request.budget = m->budget;
        request.n = m->n;
        request.link = m->link;
    }
    f->ctx = ntx_plan_ctx(&model->model->hp, o->load.ctx);
    f->heads = ntx_heads_refuse(model->model);
    for (int s = NTX_SPLIT_ROWS; s < NTX_SPLITS && !rc; s++)
        rc = ntx_machines_forecast(model, &request, (enum ntx_split)s, &f->by[s], err);
    if (!rc)
        f->split = ntx_machines_choose(o->load.split, f->by, !f->heads);
    if (!rc && f->split == NTX_SPLIT_HEADS && f->heads)
        rc = ntx_err_set(
            err, -ENOTSUP,
            "--split heads: keys and values of this model stay with the first machine, for %s: use --split rows",
            f->heads);
    return rc;
}

int ntx__plan_machines(const struct ntx_options *o, const struct ntx_plan_answer *a, struct ntx_err *err)
{
    struct machines *m;
    struct found f;
    int rc = make_forecast(o, &a->model, &m, &f, err);
    if (!rc)
        (o->json ? print_json : print_plan)(a, m, &f);
    free(m);
    return rc;
}

int ntx__plan_parts(const struct ntx_options *o, const struct ntx_gguf *g, const char *name, struct ntx_share *parts,
                    struct ntx_err *err)
{
    struct ntx_outline model;
    struct machines *m = NULL;
    struct found f;
    int rc = ntx_outline_gguf(g, name, &model, err);
    if (rc)
        return rc;
    rc = make_forecast(o, &model, &m, &f, err);
    if (!rc)
        *parts = f.by[f.split].parts;
    free(m);
    ntx_outline_free(&model);
    return rc;
}
