/* SPDX-License-Identifier: Apache-2.0 */
/* Models that are here: list, rm, and a name in place of a path. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "client/commands/commands.h"
#include "client/out.h"
#include "client/pull/names.h"
#include "client/pull/store.h"
#include "common/nearest.h"
#include "common/util.h"

/* ---- short names */

/* The model that a short name means ("qwen3-8b", "qwen3-8b:Q4_K_M"). -ENOENT: it is no short name, or not here. */
static int find_short(const struct ntx_store *s, const char *name, const struct ntx_stored **m, struct ntx_err *err)
{
    struct ntx_names *names = NULL;
    char first[128], full[NTX_STORE_NAME];
    size_t n = strcspn(name, ":");
    if (strchr(name, '/') || n >= sizeof first)
        return -ENOENT;
    snprintf(first, sizeof first, "%.*s", (int)n, name);
    int rc = ntx_names_open(&names, err);
    const char *means = rc ? NULL : ntx_names_find(names, first);
    if (!rc)
        rc = means ? 0 : -ENOENT;
    if (!rc) {
        snprintf(full, sizeof full, "%.*s%s", name[n] ? (int)strcspn(means, ":") : (int)sizeof full - 1, means,
                 name + n);
        rc = ntx_store_find(s, full, m, err);
    }
    ntx_names_free(names);
    return rc;
}

/* ---- list, rm */

static void print_one(const struct ntx_stored *m)
{
    char size[32], when[32], rest[64] = "", name[4 * NTX_STORE_NAME]; /* a folder's name may have any bytes */
    struct tm tm;
    localtime_r(&m->when, &tm);
    strftime(when, sizeof when, "%Y-%m-%d", &tm);
    if (!ntx_stored_whole(m))
        snprintf(rest, sizeof rest, "  not whole: %u of %u files; ntx pull goes on", m->parts, m->of);
    printf("%-56s %10s  %s%s\n", ntx_out_line(m->name, name, sizeof name),
           ntx_format_size(m->bytes + m->pulled, size, sizeof size), when, rest);
}

static json_t *json_of(const struct ntx_stored *m)
{
    char path[1400], name[4 * NTX_STORE_NAME], line[4 * sizeof path]; /* JSON needs UTF-8 */
    snprintf(path, sizeof path, "%s/%s", m->dir, m->first);
    return json_pack("{s:s, s:s, s:I, s:i, s:b, s:I}", "name", ntx_out_line(m->name, name, sizeof name), "path",
                     ntx_out_line(path, line, sizeof line), "bytes", (json_int_t)(m->bytes + m->pulled), "files",
                     (int)m->of, "whole", ntx_stored_whole(m), "changed", (json_int_t)m->when);
}

int ntx_cmd_list(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_store s;
    int rc = ntx_store_scan(&s, &err);
    json_t *list = json_array();
    for (unsigned i = 0; !rc && i < s.n; i++) {
        if (o->json)
            json_array_append_new(list, json_of(&s.m[i]));
        else
            print_one(&s.m[i]);
    }
    if (!rc && o->json)
        ntx_out_json(list, JSON_INDENT(1));
    else if (!rc && !s.n && !o->quiet)
        ntx_say("no models: `ntx pull --list` lists short names, and `ntx pull NAME` fetches one");
    json_decref(list);
    ntx_store_free(&s);
    return rc ? ntx_fail(&err) : 0;
}

/* Also the short forms of a name. */
static void offer_names(const struct ntx_store *s, struct ntx_near *near)
{
    for (unsigned i = 0; i < s->n; i++) {
        const char *name = s->m[i].name, *tail = strrchr(name, '/');
        ntx_near_offer(near, name, strlen(name));
        ntx_near_offer(near, name, strcspn(name, ":"));
        if (tail)
            ntx_near_offer(near, tail + 1, strlen(tail + 1));
        if (tail)
            ntx_near_offer(near, tail + 1, strcspn(tail + 1, ":"));
        ntx_near_offer(near, s->m[i].stem, strlen(s->m[i].stem));
    }
}

static void refuse_name(const struct ntx_store *s, const char *name, struct ntx_err *err)
{
    struct ntx_near near;
    ntx_near_begin(&near, name, "");
    offer_names(s, &near);
    ntx_err_set(err, -ENOENT, "'%.200s' is no model of `ntx list`%s", name, near.hint);
}

int ntx_cmd_rm(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_store s;
    const struct ntx_stored *m;
    int rc = ntx_store_scan(&s, &err);
    if (!rc && (rc = ntx_store_find(&s, o->args[0], &m, &err)) == -ENOENT)
        rc = find_short(&s, o->args[0], &m, &err);
    if (rc == -ENOENT)
        refuse_name(&s, o->args[0], &err);
    if (!rc)
        rc = ntx_store_remove(m, &err);
    if (!rc && !o->quiet)
        ntx_say("%s is gone", m->name);
    ntx_store_free(&s);
    return rc ? ntx_fail(&err) : 0;
}

/* ---- a name in place of a path */

int ntx_model_by_name(const char **model, char path[1400], struct ntx_err *err)
{
    struct ntx_store s;
    const struct ntx_stored *m = NULL;
    struct stat st;
    if (!stat(*model, &st) && !S_ISDIR(st.st_mode))
        return 0;
    int rc = ntx_store_scan(&s, err);
    if (!rc)
        rc = ntx_store_find(&s, *model, &m, err);
    if (rc == -ENOENT)
        rc = find_short(&s, *model, &m, err);
    if (!rc && !ntx_stored_whole(m))
        rc = ntx_err_set(err, -EINVAL, "%s is not whole: ntx pull goes on with it", m->name);
    if (!rc) {
        snprintf(path, 1400, "%s/%s", m->dir, m->first);
        *model = path;
    }
    ntx_store_free(&s);
    return rc == -ENOENT ? 0 : rc; /* opening the path reports the error */
}

void ntx_model_names(void (*see)(void *arg, const char *name), void *arg)
{
    struct ntx_err ignored = {0};
    struct ntx_store s;
    if (!ntx_store_scan(&s, &ignored))
        for (unsigned i = 0; i < s.n; i++)
            see(arg, s.m[i].name);
    ntx_store_free(&s);
}

static bool ends_with_gguf(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && !strcasecmp(name + n - 5, ".gguf");
}

/* The GGUF files in the folder of a path that does not exist. folder: must outlive near. */
static void offer_files(const char *path, char folder[1024], struct ntx_near *near)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    snprintf(folder, 1024, "%.*s", (int)(base - path), path);
    ntx_near_begin(near, base, folder);
    DIR *d = opendir(*folder ? folder : ".");
    for (struct dirent *e; d && (e = readdir(d));)
        if (ends_with_gguf(e->d_name))
            ntx_near_offer(near, e->d_name, strlen(e->d_name));
    if (d)
        closedir(d);
}

/* A short name whose model is not here, or one that is like it: says how to fetch the model. */
static void offer_short(const char *name, struct ntx_near *near)
{
    struct ntx_names *names = NULL;
    struct ntx_err ignored = {0};
    char first[128];
    const size_t n = strcspn(name, ":");
    if (strchr(name, '/') || n >= sizeof first || ntx_names_open(&names, &ignored))
        return;
    snprintf(first, sizeof first, "%.*s", (int)n, name);
    const char *like = ntx_names_nearest(names, first);
    if (ntx_names_find(names, first))
        snprintf(near->hint, sizeof near->hint, "; it is not here yet: `ntx pull %.200s` fetches it", name);
    else if (like && !*near->hint)
        snprintf(near->hint, sizeof near->hint, "; did you mean %s? `ntx pull %s` fetches it", like, like);
    ntx_names_free(names);
}

void ntx_model_near(const char *name, struct ntx_near *near)
{
    char folder[1024];
    struct ntx_err ignored = {0};
    struct ntx_near files;
    struct ntx_store s;
    *near = (struct ntx_near){.hint = ""};
    if (!strncmp(name, "hf:", 3) || !strncmp(name, "http://", 7) || !strncmp(name, "https://", 8)) {
        snprintf(near->hint, sizeof near->hint, "; `ntx pull %.200s` fetches it", name);
        return;
    }
    ntx_near_begin(near, name, "");
    offer_files(name, folder, &files);
    if (!ntx_store_scan(&s, &ignored))
        offer_names(&s, near);
    ntx_store_free(&s);
    if (*files.hint && (!*near->hint || files.few < near->few))
        *near = files;
    offer_short(name, near);
    near->head = near->word = NULL;
}
