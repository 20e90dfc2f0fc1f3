/* SPDX-License-Identifier: Apache-2.0 */
/* Models by name: pull, list, rm. Their parts are in client/pull. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/commands/plan.h"
#include "client/key.h"
#include "client/out.h"
#include "client/progress.h"
#include "client/pull/header.h"
#include "client/pull/part.h"
#include "client/pull/place.h"
#include "client/pull/store.h"
#include "common/util.h"
#include "model/arch.h"
#include "model/tokenizer.h"

#define SPARE (64ull << 20) /* bytes left free on the drive */

struct pull {
    const struct ntx_options *o;
    struct ntx_web *web;
    struct ntx_hub_model model;
    struct ntx_model_files heads; /* only their headers */
    char (*etag)[200];            /* [model.n] */
    char dir[1400];
    int folder;                  /* the folder, opened; -1: not yet */
    uint64_t all, before, whole; /* bytes: of the model, present at the beginning, of completed files */
    uint64_t since_ns, shown_ns;
    struct ntx_progress line;
    char name[300]; /* of the current file */
};

/* ---- the token */

static bool is_token(const char *t)
{
    for (const char *c = t; *c; c++)
        if (*c <= ' ' || *c > '~')
            return false;
    return *t;
}

/* Reads the token from $HF_TOKEN or a file. token "": there is none. */
static int get_token(const struct ntx_options *o, char token[NTX_KEY_ROOM], struct ntx_err *err)
{
    char path[1024];
    const char *env = getenv("HF_TOKEN"), *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    *token = 0;
    if (o->token_file)
        return ntx_key_read(o->token_file, token, err);
    if (env && *env)
        return is_token(env) && (size_t)snprintf(token, NTX_KEY_ROOM, "%s", env) < NTX_KEY_ROOM
                   ? 0
                   : ntx_err_set(err, -EINVAL, "HF_TOKEN is no token");
    if (config && *config)
        snprintf(path, sizeof path, "%s/ntx/token", config);
    else
        snprintf(path, sizeof path, "%s/.config/ntx/token", home ? home : "");
    return access(path, F_OK) ? 0 : ntx_key_read(path, token, err);
}

static int open_web(struct pull *p, const char *hub, struct ntx_err *err)
{
    char token[NTX_KEY_ROOM];
    int rc = get_token(p->o, token, err);
    if (!rc)
        rc = ntx_web_open(hub, *token ? token : NULL, p->o->stall_s, &p->web, err);
    explicit_bzero(token, sizeof token);
    return rc;
}

/* ---- the model's header, before the download */

static int get_heads(struct pull *p, struct ntx_err *err)
{
    struct ntx_model_files *h = &p->heads;
    int rc = 0;
    if (!(p->etag = calloc(p->model.n, sizeof *p->etag)))
        return ntx_err_set(err, -ENOMEM, "no memory");
    for (unsigned i = 0; !rc && i < p->model.n; i++) {
        ntx_progress_say(&p->line, "looking at %s", p->model.file[i].name);
        rc = ntx_header_get(p->web, &p->model.file[i], &h->fds[i], p->etag[i], err);
        h->n += !rc;
        h->names[i] = rc ? NULL : strdup(p->model.file[i].name);
        p->all += rc ? 0 : p->model.file[i].size;
    }
    ntx_progress_clear(&p->line);
    return rc ? rc : ntx_gguf_open(h->fds, h->n, (const char *const *)h->names, &h->gguf, err);
}

/* Reports whether ntx can run the model, and how fast it would be here. */
static int judge_model(struct pull *p, struct ntx_err *err)
{
    struct ntx_model *m = NULL;
    struct ntx_tokenizer *t = NULL;
    struct ntx_err why = {0};
    int rc = ntx_model_open(p->heads.gguf, &m, &why);
    if (!rc)
        rc = ntx_tokenizer_open(p->heads.gguf, &t, &why);
    ntx_tokenizer_free(t);
    ntx_model_free(m);
    if (rc && !p->o->anyway)
        return ntx_err_set(err, rc, "ntx does not run it: %.400s (--anyway pulls it all the same)", why.text);
    if (rc)
        return ntx_say("ntx does not run it: %s", why.text), 0;
    struct ntx_plan_answer *a = calloc(1, sizeof *a);
    if (a && !ntx__plan_files(p->o, &p->heads, p->model.file[0].name, a, &why))
        ntx__plan_print_words(a);
    else
        ntx_say("how fast it will be is not known yet: %s", why.text);
    if (a)
        ntx__plan_done(a);
    free(a);
    fflush(stdout);
    return 0;
}

static struct ntx_pull_part part_of(struct pull *p, unsigned i)
{
    return (struct ntx_pull_part){.dir = p->dir,
                                  .folder = p->folder,
                                  .file = &p->model.file[i],
                                  .etag = p->etag[i],
                                  .arg = p,
                                  .wait_ms = p->o->retry_ms};
}

static int check_space(struct pull *p, struct ntx_err *err)
{
    struct statvfs v;
    char need[32], free_[32];
    for (unsigned i = 0; i < p->model.n; i++) {
        struct ntx_pull_part f = part_of(p, i);
        uint64_t have;
        bool whole;
        int rc = ntx_part_have(&f, &have, &whole, err);
        if (rc)
            return rc;
        p->before += have;
    }
    if (fstatvfs(p->folder, &v))
        return ntx_err_set(err, -errno, "%s: %s", p->dir, strerror(errno));
    uint64_t room = (uint64_t)v.f_bavail * v.f_frsize, left = p->all - p->before;
    if (!left || (room > SPARE && room - SPARE >= left))
        return 0;
    return ntx_err_set(err, -ENOSPC,
                       "%s: %s are to come, %s are free there, of which %u MiB stay free: make room, or set "
                       "XDG_DATA_HOME to another drive",
                       p->dir, ntx_format_size(left, need, sizeof need), ntx_format_size(room, free_, sizeof free_),
                       (unsigned)(SPARE >> 20));
}

/* ---- the download */

static const char *time_left(double s, char *buf, size_t n)
{
    if (s < 100)
        snprintf(buf, n, "%.0f s", s);
    else if (s < 6000)
        snprintf(buf, n, "%.0f min", s / 60);
    else
        snprintf(buf, n, "%.1f h", s / 3600);
    return buf;
}

static void on_progress(void *arg, uint64_t have)
{
    struct pull *p = arg;
    char done[32], all[32], left[32];
    uint64_t now = ntx_now_ns();
    if (now - p->shown_ns < 200000000)
        return;
    p->shown_ns = now;
    uint64_t there = p->whole + have;
    double s = (double)(now - p->since_ns) / 1e9,
           rate = there > p->before ? (double)(there - p->before) / NTX_MAX(s, 0.01) : 0;
    ntx_progress_say(&p->line, "%s of %s (%.0f %%), %.1f MB/s, %s left: %s", ntx_format_size(there, done, sizeof done),
                     ntx_format_size(p->all, all, sizeof all), 100.0 * (double)there / (double)p->all, rate / 1e6,
                     rate > 0 ? time_left((double)(p->all - there) / rate, left, sizeof left) : "?", p->name);
}

static void on_retry(void *arg, const char *why, unsigned seconds)
{
    struct pull *p = arg;
    ntx_progress_clear(&p->line);
    ntx_say("%s; going on in %u s", why, seconds);
}

static int pull_files(struct pull *p, struct ntx_err *err)
{
    int rc = 0;
    p->since_ns = ntx_now_ns();
    for (unsigned i = 0; !rc && i < p->model.n; i++) {
        struct ntx_pull_part f = part_of(p, i);
        f.at = on_progress;
        f.again = on_retry;
        snprintf(p->name, sizeof p->name, "%s", p->model.file[i].name);
        rc = ntx_part_pull(p->web, &f, err);
        p->whole += p->model.file[i].size;
    }
    ntx_progress_clear(&p->line);
    return rc;
}

static int make_place(struct pull *p, struct ntx_err *err)
{
    char store[1024];
    int rc = ntx_store_dir(store, sizeof store, err);
    if (rc)
        return rc;
    snprintf(p->dir, sizeof p->dir, "%s%s%s", store, *p->model.dir ? "/" : "", p->model.dir);
    p->folder = ntx_place_open(store, p->model.dir, true, err);
    return p->folder < 0 ? p->folder : 0;
}

static void tell_done(const struct pull *p)
{
    char stem[256] = "", size[32];
    unsigned no, of;
    ntx_store_stem(p->model.file[0].name, stem, &no, &of);
    const char *type = ntx_store_type(stem);
    if (!p->o->quiet)
        ntx_say("%s%s%s is there (%s): ntx run %s%s%s", p->model.dir, *p->model.dir ? ":" : "",
                *p->model.dir && *type ? type : stem, ntx_format_size(p->all, size, sizeof size), p->model.dir,
                *p->model.dir ? ":" : "", *p->model.dir && *type ? type : stem);
}

static int set_sha256(struct pull *p, struct ntx_err *err)
{
    const char *hex = p->o->sha256;
    if (!hex)
        return 0;
    if (p->model.n != 1 || strlen(hex) != 64 || strspn(hex, "0123456789abcdefABCDEF") < 64)
        return ntx_err_set(err, -EINVAL, "--sha256 is for one file, and has 64 digits");
    for (size_t i = 0; i <= 64; i++)
        p->model.file[0].sha256[i] = (char)tolower((unsigned char)hex[i]);
    return 0;
}

int ntx_cmd_pull(struct ntx_options *o)
{
    const char *hub = getenv("NTX_HUB");
    struct ntx_err err = {0};
    struct pull p = {.o = o, .folder = -1, .line = ntx_progress_begin(o)};
    hub = hub && *hub ? hub : NTX_HUB;
    int rc = open_web(&p, hub, &err);
    if (!rc)
        rc = ntx_hub_find(p.web, hub, o->args[0], &p.model, &err);
    if (!rc)
        rc = set_sha256(&p, &err);
    if (!rc)
        rc = get_heads(&p, &err);
    if (!rc)
        rc = judge_model(&p, &err);
    if (!rc)
        rc = make_place(&p, &err);
    if (!rc)
        rc = check_space(&p, &err);
    if (!rc)
        rc = pull_files(&p, &err);
    if (!rc)
        tell_done(&p);
    ntx_progress_clear(&p.line);
    ntx_model_files_close(&p.heads);
    ntx_hub_free(&p.model);
    ntx_web_close(p.web);
    if (p.folder >= 0)
        close(p.folder);
    free(p.etag);
    return rc ? ntx_fail(&err) : 0;
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
        ntx_say("no models: ntx pull hf:OWNER/REPO fetches one");
    json_decref(list);
    ntx_store_free(&s);
    return rc ? ntx_fail(&err) : 0;
}

int ntx_cmd_rm(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_store s;
    const struct ntx_stored *m;
    int rc = ntx_store_scan(&s, &err);
    if (!rc && (rc = ntx_store_find(&s, o->args[0], &m, &err)) == -ENOENT)
        ntx_err_set(&err, rc, "'%.200s' is no model of `ntx list`", o->args[0]);
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
    if (!rc && !ntx_stored_whole(m))
        rc = ntx_err_set(err, -EINVAL, "%s is not whole: ntx pull goes on with it", m->name);
    if (!rc) {
        snprintf(path, 1400, "%s/%s", m->dir, m->first);
        *model = path;
    }
    ntx_store_free(&s);
    return rc == -ENOENT ? 0 : rc; /* opening the path reports the error */
}
