/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a type: sizes, predicted speeds, and a recommendation, before the model is fetched.
 *
 * One header is read, of the file with the fewest parts; the other types are predicted from it as `ntx plan` would
 * (plan_types.c). Where no header comes in time, or it is broken, the sizes alone must do. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/plan.h"
#include "client/commands/pull.h"
#include "client/out.h"
#include "client/pull/store.h"
#include "common/util.h"
#include "computed/plan/budget.h"

#define HEADER_S    20  /* seconds for a request of the header */
#define GOOD_RATE   5.0 /* tokens a second: about as fast as one reads */
#define BITS_ENOUGH 8.8 /* a weight: more gains nothing that is noticed */
#define BITS_LEAST  4.0 /* fewer lose noticeably */

struct type {
    const struct ntx_hub_offer *offer;
    const char *label;
    double tok_s, streamed, bits; /* 0: unknown; streamed: share that is read from the drive */
    bool fits, here;              /* on the drive; it is pulled already */
};

struct picking {
    const struct ntx_options *o;
    const struct ntx_hub_repo *repo;
    const char *name;
    struct type *type; /* [n], by size */
    unsigned n, best;
    const struct ntx_hub_offer *base; /* whose header was read */
    struct ntx_plan_answer *plan;
    uint64_t room;
    char by[200]; /* where the speeds come from */
};

static int by_size(const void *a, const void *b)
{
    const struct type *x = a, *y = b;
    if (x->offer->bytes != y->offer->bytes)
        return x->offer->bytes < y->offer->bytes ? -1 : 1;
    return strcmp(x->label, y->label);
}

/* ---- speeds */

/* The one whose header is read fastest. */
static const struct ntx_hub_offer *choose_base(const struct picking *p)
{
    const struct ntx_hub_offer *best = p->type[0].offer;
    for (unsigned i = 1; i < p->n; i++)
        if (p->type[i].offer->of < best->of)
            best = p->type[i].offer;
    return best;
}

static double weights_in(const struct picking *p)
{
    double n = 0;
    for (int part = 0; part < NTX_N_PARTS; part++)
        n += (double)ntx_outline_values(&p->plan->model, (enum ntx_part)part);
    return n;
}

static void predict_types(struct picking *p, const struct ntx_gguf *g)
{
    double weights = weights_in(p);
    for (unsigned i = 0; i < p->n; i++) {
        struct type *t = &p->type[i];
        const uint64_t bytes = t->offer->bytes;
        const char *type = ntx_store_type(t->offer->stem);
        t->bits = bytes != NTX_WEB_UNKNOWN && weights > 0 ? (double)bytes * 8 / weights : 0;
        if (t->offer == p->base && p->plan->place.predicted) {
            t->tok_s = 1 / p->plan->place.decode.pass_s;
            t->streamed = (double)p->plan->place.bytes[NTX_TIER_STORAGE] /
                          (double)NTX_MAX(ntx_outline_model_bytes(&p->plan->model), 1u);
        } else {
            t->tok_s = ntx__plan_type_rate(p->plan, g, type, bytes, &t->streamed);
        }
    }
    snprintf(p->by, sizeof p->by, "Speeds: predicted as by `ntx plan`, from the header of %.80s and the sizes.",
             ntx_hub_label(p->repo, p->base));
}

/* Without any header. */
static void predict_sizes(struct picking *p, const char *why)
{
    struct ntx_err err = {0};
    uint64_t ram = ntx_budget_default(0);
    bool known = !ntx__plan_machine(p->o, p->plan, &err);
    for (unsigned i = 0; known && i < p->n; i++)
        p->type[i].tok_s = ntx__plan_size_rate(&p->plan->hw, ram, p->type[i].offer->bytes, &p->type[i].streamed);
    snprintf(p->by, sizeof p->by,
             "Speeds: from the sizes alone (experts make it faster), since no header could be read: %.90s", why);
}

static int predict_all(struct picking *p, struct ntx_web *w, struct ntx_pull_heads *h, struct ntx_err *err)
{
    struct ntx_err why = {0};
    p->base = choose_base(p);
    int rc = ntx_hub_take(p->repo, p->base, &h->model, err);
    if (!rc)
        rc = ntx__pull_heads(p->o, w, HEADER_S, h, &why);
    if (rc && rc != -EACCES) {
        p->base = NULL;
        predict_sizes(p, why.text);
        return 0;
    }
    if (!rc && (rc = ntx__pull_runs(p->o, h->files.gguf, &why)) >= 0) {
        if (rc || ntx__plan_files(p->o, &h->files, p->name, p->plan, &why))
            snprintf(p->by, sizeof p->by, "Speeds: not known. %.150s", why.text);
        else
            predict_types(p, h->files.gguf);
        return 0;
    }
    return *why.text ? ntx_err_set(err, rc, "%s", why.text) : rc;
}

/* ---- the recommendation */

static bool can_take(const struct type *t) { return t->fits && t->tok_s > 0; }

/* The largest, up to 8 bits, that is fast enough; else the fastest of 4 bits or more; else the fastest. Without speeds:
 * none. p->n: none. */
static unsigned recommend(const struct picking *p)
{
    unsigned good = p->n, fair = p->n, any = p->n;
    for (unsigned i = 0; i < p->n; i++) {
        const struct type *t = &p->type[i];
        if (!can_take(t))
            continue;
        if (t->tok_s >= GOOD_RATE && (t->bits <= BITS_ENOUGH || good == p->n))
            good = i;
        if (t->bits >= BITS_LEAST && (fair == p->n || t->tok_s > p->type[fair].tok_s))
            fair = i;
        if (any == p->n || t->tok_s > p->type[any].tok_s)
            any = i;
    }
    if (good < p->n)
        return good;
    return fair < p->n ? fair : any;
}

/* ---- the table */

static void remark(const struct picking *p, unsigned i, char *buf, size_t n)
{
    const struct type *t = &p->type[i];
    char free_[32], parts[32] = "", drive[64] = "";
    if (t->offer->of > 1)
        snprintf(parts, sizeof parts, "%u files", t->offer->of);
    if (!t->fits)
        snprintf(drive, sizeof drive, "no room: %s are free", ntx_format_size(p->room, free_, sizeof free_));
    else if (t->here)
        snprintf(drive, sizeof drive, "is here already");
    else if (t->streamed >= 0.005)
        snprintf(drive, sizeof drive, "%.0f %% read from the drive", 100 * t->streamed);
    const char *first = i == p->best ? "recommended" : "";
    snprintf(buf, n, "%s%s%s%s%s", first, *first && (*drive || *parts) ? "; " : "", drive, *drive && *parts ? "; " : "",
             parts);
}

static void print_types(const struct picking *p)
{
    char size[32], rate[64], words[160], label[300];
    int width = 8;
    for (unsigned i = 0; i < p->n; i++)
        width = NTX_MAX(width, (int)strlen(p->type[i].label));
    printf("%s:\n  no  %-*s %11s  writes\n", p->name, width, "type", "size");
    for (unsigned i = 0; i < p->n; i++) {
        const struct type *t = &p->type[i];
        const char *known = t->tok_s > 0 ? ntx__plan_rate_text(t->tok_s, rate, sizeof rate) : "?";
        remark(p, i, words, sizeof words);
        ntx_format_size(t->offer->bytes, size, sizeof size);
        printf("%c %2u  %-*s %11s  %s%*s%s\n", i == p->best ? '*' : ' ', i + 1, width,
               ntx_out_line(t->label, label, sizeof label), t->offer->bytes == NTX_WEB_UNKNOWN ? "?" : size, known,
               *words ? NTX_MAX(28 - (int)strlen(known), 2) : 0, "", words);
    }
    if (*p->by)
        ntx_out_format("%s\n", p->by);
    const char *note = p->plan->notes[NTX_PLAN_NOTE_PROFILE], *busy = p->plan->notes[NTX_PLAN_NOTE_BUSY];
    if (*note)
        ntx_out_format("%s\n", note);
    if (*busy)
        ntx_out_format("%s\n", busy);
    fflush(stdout);
}

/* ---- the user's word */

/* The number of a type; p->n: none. */
static unsigned read_choice(const struct picking *p, const char *line)
{
    char word[300];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(line, "\r\n"), line);
    if (!*word)
        return p->best;
    char *end;
    unsigned long no = strtoul(word, &end, 10);
    if (!*end && no >= 1 && no <= p->n)
        return (unsigned)no - 1;
    for (unsigned i = 0; i < p->n; i++)
        if (!strcasecmp(word, p->type[i].label))
            return i;
    return p->n;
}

/* 1: the user wants none. */
static int prompt_user(const struct picking *p, unsigned *choice)
{
    char line[300];
    for (;;) {
        if (p->best < p->n)
            fprintf(stderr, "Which one (1 to %u, Enter: %u, q: none)? ", p->n, p->best + 1);
        else
            fprintf(stderr, "Which one (1 to %u, q: none)? ", p->n);
        if (!fgets(line, sizeof line, stdin)) {
            fputc('\n', stderr);
            return 1;
        }
        if (!strcmp(line, "q\n") || !strcmp(line, "Q\n"))
            return 1;
        *choice = read_choice(p, line);
        if (*choice < p->n)
            return 0;
        fprintf(stderr, "That is none of them.\n");
    }
}

static void say_command(const struct picking *p)
{
    unsigned i = p->best < p->n ? p->best : 0;
    if (strchr(p->type[i].label, ' '))
        ntx_say("say which type: ntx pull %s --type '%s'", p->name, p->type[i].label);
    else
        ntx_say("say which type: ntx pull %s:%s", p->name, p->type[i].label);
}

static int pick_type(const struct picking *p, bool best, unsigned *choice, struct ntx_err *err)
{
    *choice = p->best;
    if (best && p->best < p->n)
        return 0;
    if (best)
        return ntx_err_set(err, -ENOENT, "%s: no type can be recommended, since %s; say which one", p->name,
                           p->type[0].tok_s > 0 ? "none fits on the drive" : "no speed is known");
    if (isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
        return prompt_user(p, choice);
    say_command(p);
    return 1;
}

/* ---- all together */

static void mark_present(struct picking *p)
{
    struct ntx_store s;
    struct ntx_err ignored = {0};
    char name[NTX_STORE_NAME];
    if (!ntx_store_scan(&s, &ignored))
        for (unsigned i = 0; i < p->n; i++) {
            const char *type = ntx_store_type(p->type[i].offer->stem);
            snprintf(name, sizeof name, "%.140s:%s", p->name, *type ? type : p->type[i].offer->stem);
            for (unsigned k = 0; k < s.n; k++)
                p->type[i].here |= ntx_stored_whole(&s.m[k]) && !strcasecmp(s.m[k].name, name) &&
                                   !strcmp(s.m[k].stem, p->type[i].offer->stem);
        }
    ntx_store_free(&s);
}

static int list_types(struct picking *p, struct ntx_err *err)
{
    char dir[1024];
    const struct ntx_hub_offer *offer = ntx_hub_offers(p->repo, &p->n);
    int rc = ntx_store_dir(dir, sizeof dir, err);
    if (!rc)
        rc = ntx__pull_room(dir, &p->room, err);
    if (!rc && (!(p->type = calloc(p->n, sizeof *p->type)) || !(p->plan = calloc(1, sizeof *p->plan))))
        rc = ntx_err_set(err, -ENOMEM, "no memory");
    for (unsigned i = 0; !rc && i < p->n; i++)
        p->type[i] = (struct type){.offer = &offer[i],
                                   .label = ntx_hub_label(p->repo, &offer[i]),
                                   .fits = offer[i].bytes == NTX_WEB_UNKNOWN || offer[i].bytes <= p->room};
    if (!rc)
        qsort(p->type, p->n, sizeof *p->type, by_size);
    if (!rc)
        mark_present(p);
    return rc;
}

int ntx__pull_pick(const struct ntx_options *o, struct ntx_web *w, const struct ntx_hub_repo *repo, const char *name,
                   bool best, const struct ntx_hub_offer **offer, struct ntx_pull_heads *h, struct ntx_err *err)
{
    struct picking p = {.o = o, .repo = repo, .name = name};
    unsigned n, choice = 0;
    *offer = ntx_hub_offers(repo, &n);
    if (n == 1)
        return 0;
    int rc = list_types(&p, err);
    if (!rc)
        rc = predict_all(&p, w, h, err);
    if (!rc) {
        p.best = recommend(&p);
        if (!best)
            print_types(&p);
        rc = pick_type(&p, best, &choice, err);
    }
    if (!rc)
        *offer = p.type[choice].offer;
    if (rc || *offer != p.base)
        ntx__pull_heads_free(h);
    if (p.plan)
        ntx__plan_done(p.plan);
    free(p.plan);
    free(p.type);
    return rc;
}
