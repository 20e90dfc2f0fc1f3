/* SPDX-License-Identifier: Apache-2.0 */
/* ntx search: models of the hub, by words. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "client/commands/pull.h"
#include "client/out.h"
#include "client/progress.h"
#include "client/pull/names.h"
#include "client/pull/search.h"
#include "common/util.h"
#include "model/arch.h"

enum { WORDS = 400 };

static bool runs_arch(const char *arch)
{
    for (size_t i = 0; ntx_arch_at(i); i++)
        if (!strcmp(ntx_arch_at(i), arch))
            return true;
    return false;
}

static const char *count_text(uint64_t n, char *buf, size_t room)
{
    if (n >= 999500)
        snprintf(buf, room, "%.1fM", (double)n / 1e6);
    else if (n >= 1000)
        snprintf(buf, room, "%.0fk", (double)n / 1e3);
    else
        snprintf(buf, room, "%llu", (unsigned long long)n);
    return buf;
}

static const char *sizes_text(const struct ntx_found *f, char *buf, size_t room)
{
    char least[32], most[32];
    ntx_format_size(f->least, least, sizeof least);
    ntx_format_size(f->most, most, sizeof most);
    if (!f->most)
        snprintf(buf, room, "?");
    else if (f->types == 1 || f->least == f->most)
        snprintf(buf, room, "%s", most);
    else
        snprintf(buf, room, "%s to %s, %u types", least, most, f->types);
    return buf;
}

static const char *verdict(const struct ntx_found *f, char *buf, size_t room)
{
    char arch[4 * sizeof f->arch];
    ntx_out_line(f->arch, arch, sizeof arch);
    const char *terms = f->gated ? "; its terms must be accepted first" : "";
    if (f->looked && !f->types)
        snprintf(buf, room, "no GGUF of a model in it");
    else if (!*f->arch)
        snprintf(buf, room, "architecture unknown%s", terms);
    else if (runs_arch(f->arch))
        snprintf(buf, room, "ntx runs it (%s)%s", arch, terms);
    else
        snprintf(buf, room, "ntx does not run it: architecture %s", arch);
    return buf;
}

static json_t *result_json(const struct ntx_found *f)
{
    char arch[4 * sizeof f->arch];
    return json_pack("{s:s, s:I, s:I, s:I, s:i, s:I, s:s, s:b, s:b}", "name", f->name, "downloads",
                     (json_int_t)f->downloads, "bytes_least", (json_int_t)f->least, "bytes_most", (json_int_t)f->most,
                     "types", (int)f->types, "weights", (json_int_t)NTX_MIN(f->weights, (uint64_t)INT64_MAX),
                     "architecture", ntx_out_line(f->arch, arch, sizeof arch), "runs", runs_arch(f->arch), "gated",
                     f->gated);
}

static void print_results(const struct ntx_found *f, unsigned n)
{
    char downloads[32], sizes[96], words[320];
    int width = 20;
    for (unsigned i = 0; i < n; i++)
        width = NTX_MAX(width, (int)strlen(f[i].name));
    for (unsigned i = 0; i < n; i++)
        printf("%-*s %7s  %-31s %s\n", width, f[i].name, count_text(f[i].downloads, downloads, sizeof downloads),
               sizes_text(&f[i], sizes, sizeof sizes), verdict(&f[i], words, sizeof words));
}

/* Short names that contain the first word. */
static void print_short(const char *word)
{
    struct ntx_names *names = NULL;
    struct ntx_err ignored = {0};
    const char *name, *means;
    bool own, any = false;
    if (ntx_names_open(&names, &ignored))
        return;
    for (size_t i = 0; (name = ntx_names_at(names, i, &means, &own)); i++)
        if (strcasestr(name, word)) {
            printf("%s%s", any ? ", " : "short names: ", name);
            any = true;
        }
    if (any)
        putchar('\n');
    ntx_names_free(names);
}

static void look_at_all(const struct ntx_options *o, struct ntx_web *w, struct ntx_found *f, unsigned n)
{
    struct ntx_progress line = ntx_progress_begin(o);
    struct ntx_err why = {0};
    int rc = 0;
    for (unsigned i = 0; i < n; i++) {
        ntx_progress_say(&line, "looking at %s", f[i].name);
        rc = ntx_search_look(w, ntx_hub_address(), &f[i], &why);
        if (rc == -EAGAIN || rc == -EIO) /* the hub does not answer any more */
            break;
    }
    ntx_progress_clear(&line);
    if (rc)
        ntx_say("not all is known: %s", why.text);
}

static int join_words(const struct ntx_options *o, char *words, struct ntx_err *err)
{
    size_t n = 0;
    *words = 0;
    for (unsigned i = 0; i < o->n_args; i++) {
        n += (size_t)snprintf(words + n, WORDS - n, "%s%s", i ? " " : "", o->args[i]);
        if (n >= WORDS)
            return ntx_err_set(err, -EINVAL, "the words are too long to search for");
    }
    return n ? 0 : ntx_err_set(err, -EINVAL, "an empty word finds nothing");
}

int ntx_cmd_search(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_web *w = NULL;
    struct ntx_found found[NTX_SEARCH_MOST];
    char words[WORDS];
    unsigned n = 0;
    int rc = join_words(o, words, &err);
    if (!rc)
        rc = ntx__pull_web(o, &w, &err);
    if (!rc)
        rc = ntx_search(w, ntx_hub_address(), words, o->results, found, &n, &err);
    if (!rc)
        look_at_all(o, w, found, n);
    ntx_web_close(w);
    if (rc)
        return ntx_fail(&err);
    if (o->json) {
        json_t *list = json_array();
        for (unsigned i = 0; i < n; i++)
            json_array_append_new(list, result_json(&found[i]));
        ntx_out_json(list, JSON_INDENT(1));
        json_decref(list);
        return 0;
    }
    print_results(found, n);
    print_short(o->args[0]);
    if (n)
        ntx_say("`ntx pull NAME` shows a model's types, with their sizes and speeds here");
    else
        ntx_say("nothing on the hub has these words and a GGUF");
    return 0;
}
