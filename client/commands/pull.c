/* SPDX-License-Identifier: Apache-2.0 */
/* ntx pull. Its parts are in client/pull. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "client/commands/plan.h"
#include "client/commands/pull.h"
#include "client/out.h"
#include "client/progress.h"
#include "client/pull/header.h"
#include "client/pull/names.h"
#include "client/pull/part.h"
#include "client/pull/place.h"
#include "client/pull/store.h"
#include "common/nearest.h"
#include "common/util.h"
#include "model/arch.h"
#include "model/tokenizer.h"

#define SPARE (64ull << 20) /* bytes left free on the drive */

struct pull {
    const struct ntx_options *o;
    struct ntx_web *web;
    struct ntx_pull_heads heads;
    struct ntx_hub_model mmproj; /* n 0: none */
    char mmproj_etag[200];
    char dir[1400], store[1024];
    int folder;                  /* the folder, opened; -1: it does not exist yet */
    uint64_t all, before, whole; /* bytes: of the model, present at the beginning, of completed files */
    uint64_t since_ns, shown_ns;
    struct ntx_progress line;
    unsigned file;  /* the current file, */
    char name[300]; /* and its name */
};

/* --json: a line for each step, for programs. */
static void tell_step(const struct pull *p, json_t *step)
{
    if (p->o->json)
        ntx_out_json(step, JSON_COMPACT);
    json_decref(step);
    fflush(stdout);
}

/* ---- the model's header, before the download */

int ntx__pull_heads(const struct ntx_options *o, struct ntx_web *w, unsigned most_s, struct ntx_pull_heads *h,
                    struct ntx_err *err)
{
    struct ntx_model_files *f = &h->files;
    struct ntx_progress line = ntx_progress_begin(o);
    int rc = 0;
    if (!(h->etag = calloc(h->model.n, sizeof *h->etag)))
        return ntx_err_set(err, -ENOMEM, "no memory");
    for (unsigned i = 0; !rc && i < h->model.n; i++) {
        ntx_progress_say(&line, "looking at %s", h->model.file[i].name);
        rc = ntx_header_get(w, &h->model.file[i], most_s, &f->fds[i], h->etag[i], err);
        f->n += !rc;
        f->names[i] = rc ? NULL : strdup(h->model.file[i].name);
    }
    ntx_progress_clear(&line);
    return rc ? rc : ntx_gguf_open(f->fds, f->n, (const char *const *)f->names, &f->gguf, err);
}

void ntx__pull_heads_free(struct ntx_pull_heads *h)
{
    ntx_model_files_close(&h->files);
    ntx_hub_free(&h->model);
    free(h->etag);
    *h = (struct ntx_pull_heads){.etag = NULL};
}

int ntx__pull_runs(const struct ntx_options *o, const struct ntx_gguf *g, struct ntx_err *err)
{
    struct ntx_model *m = NULL;
    struct ntx_tokenizer *t = NULL;
    struct ntx_err why = {0};
    int rc = ntx_model_open(g, &m, &why);
    if (!rc)
        rc = ntx_tokenizer_open(g, &t, &why);
    ntx_tokenizer_free(t);
    ntx_model_free(m);
    if (rc && !o->anyway)
        return ntx_err_set(err, rc, "ntx does not run it: %.400s (--anyway pulls it all the same)", why.text);
    if (rc)
        ntx_say("ntx does not run it: %s", why.text);
    return rc ? 1 : 0;
}

/* Reports whether ntx can run the model, and how fast it would be here. */
static int judge_model(struct pull *p, struct ntx_err *err)
{
    struct ntx_err why = {0};
    int rc = ntx__pull_runs(p->o, p->heads.files.gguf, err);
    if (rc)
        return NTX_MIN(rc, 0);
    struct ntx_plan_answer *a = p->o->json ? NULL : calloc(1, sizeof *a);
    if (p->o->json)
        return 0;
    if (a && !ntx__plan_files(p->o, &p->heads.files, p->heads.model.file[0].name, a, &why))
        ntx__plan_print_words(a);
    else
        ntx_say("how fast it will be is not known yet: %s", why.text);
    if (a)
        ntx__plan_done(a);
    free(a);
    fflush(stdout);
    return 0;
}

/* The file i; behind those of the model comes the projector. */
static const struct ntx_hub_file *file_of(const struct pull *p, unsigned i)
{
    return i < p->heads.model.n ? &p->heads.model.file[i] : &p->mmproj.file[i - p->heads.model.n];
}

static unsigned count_files(const struct pull *p) { return p->heads.model.n + p->mmproj.n; }

static struct ntx_pull_part part_of(struct pull *p, unsigned i)
{
    const char *etag = p->heads.etag && i < p->heads.model.n ? p->heads.etag[i] : "";
    return (struct ntx_pull_part){.dir = p->dir,
                                  .folder = p->folder,
                                  .file = file_of(p, i),
                                  .etag = i < p->heads.model.n ? etag : p->mmproj_etag,
                                  .arg = p,
                                  .wait_ms = p->o->retry_ms};
}

int ntx__pull_room(const char *dir, uint64_t *bytes, struct ntx_err *err)
{
    char path[1400];
    struct statvfs v;
    snprintf(path, sizeof path, "%s", dir);
    int rc = statvfs(path, &v);
    for (char *slash; rc && errno == ENOENT && (slash = strrchr(path, '/')); rc = statvfs(path, &v))
        slash[slash == path] = 0;
    if (rc)
        return ntx_err_set(err, -errno, "%s: %s", path, strerror(errno));
    uint64_t room = (uint64_t)v.f_bavail * v.f_frsize;
    *bytes = room > SPARE ? room - SPARE : 0;
    return 0;
}

/* Bytes that are present, of files of known size. */
static int count_present(struct pull *p, struct ntx_err *err)
{
    p->before = 0;
    for (unsigned i = 0; p->folder >= 0 && i < count_files(p); i++) {
        struct ntx_pull_part f = part_of(p, i);
        uint64_t have = 0;
        bool whole;
        int rc = f.file->size == NTX_WEB_UNKNOWN ? 0 : ntx_part_have(&f, &have, &whole, err);
        if (rc)
            return rc;
        p->before += have;
    }
    return 0;
}

/* Before the headers are read it counts the sizes of the list, and afterwards those of the server. */
static int check_space(struct pull *p, struct ntx_err *err)
{
    char need[32], free_[32];
    uint64_t room = 0;
    p->all = 0;
    for (unsigned i = 0; i < count_files(p); i++) {
        if (file_of(p, i)->size == NTX_WEB_UNKNOWN)
            return 0;
        p->all += file_of(p, i)->size;
    }
    int rc = count_present(p, err);
    if (!rc)
        rc = ntx__pull_room(p->dir, &room, err);
    uint64_t left = p->all - p->before;
    if (rc || room >= left)
        return rc;
    return ntx_err_set(err, -ENOSPC,
                       "%s: %s are to come, %s are free there (%u MiB more stay free): make room, or set "
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

/* `have` bytes of the file i are there. */
static void tell_file(const struct pull *p, unsigned i, uint64_t have)
{
    const struct ntx_hub_file *f = file_of(p, i);
    json_t *step = json_pack("{s:s, s:s, s:I}", "status", "pulling", "file", f->name, "completed", (json_int_t)have);
    if (f->size != NTX_WEB_UNKNOWN)
        json_object_set_new(step, "total", json_integer((json_int_t)f->size));
    if (*f->sha256)
        json_object_set_new(step, "sha256", json_string(f->sha256));
    tell_step(p, step);
}

static void on_progress(void *arg, uint64_t have)
{
    struct pull *p = arg;
    char done[32], all[32], left[32];
    uint64_t now = ntx_now_ns();
    if (now - p->shown_ns < 200000000)
        return;
    p->shown_ns = now;
    if (p->o->json)
        tell_file(p, p->file, have);
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
    for (unsigned i = 0; !rc && i < count_files(p); i++) {
        struct ntx_pull_part f = part_of(p, i);
        f.at = on_progress;
        f.again = on_retry;
        p->file = i;
        snprintf(p->name, sizeof p->name, "%s", f.file->name);
        rc = ntx_part_pull(p->web, &f, err);
        if (!rc && p->o->json)
            tell_file(p, i, f.file->size);
        p->whole += f.file->size;
    }
    ntx_progress_clear(&p->line);
    return rc;
}

/* make: the folder is created where it is missing. */
static int open_place(struct pull *p, bool make, struct ntx_err *err)
{
    if (p->folder >= 0)
        return 0;
    const char *within = p->heads.model.dir;
    int rc = ntx_store_dir(p->store, sizeof p->store, err);
    if (rc)
        return rc;
    snprintf(p->dir, sizeof p->dir, "%s%s%s", p->store, *within ? "/" : "", within);
    p->folder = ntx_place_open(p->store, within, make, err);
    return p->folder < 0 && (make || p->folder != -ENOENT) ? p->folder : 0;
}

static void tell_done(const struct pull *p)
{
    const struct ntx_hub_model *m = &p->heads.model;
    char stem[256] = "", size[32], name[NTX_STORE_NAME], path[1800];
    unsigned no, of;
    ntx_store_stem(m->file[0].name, stem, &no, &of);
    const char *type = ntx_store_type(stem);
    snprintf(name, sizeof name, "%.140s%s%s", m->dir, *m->dir ? ":" : "", *m->dir && *type ? type : stem);
    snprintf(path, sizeof path, "%s/%s", p->dir, m->file[0].name);
    tell_step(p, json_pack("{s:s, s:s, s:s, s:I}", "status", "done", "name", name, "path", path, "bytes",
                           (json_int_t)p->all));
    if (!p->o->quiet && !p->o->json)
        ntx_say("%s is there (%s): ntx run %s", name, ntx_format_size(p->all, size, sizeof size), name);
}

static int set_sha256(struct pull *p, struct ntx_err *err)
{
    const char *hex = p->o->sha256;
    if (!hex)
        return 0;
    if (p->heads.model.n != 1 || strlen(hex) != 64 || strspn(hex, "0123456789abcdefABCDEF") < 64)
        return ntx_err_set(err, -EINVAL, "--sha256 is for one file, and has 64 digits");
    for (size_t i = 0; i <= 64; i++)
        p->heads.model.file[0].sha256[i] = (char)tolower((unsigned char)hex[i]);
    return 0;
}

/* The files of the name; the user picks the type of several. 1: none was picked. */
static int find_model(struct pull *p, struct ntx_err *err)
{
    struct ntx_pull_what what;
    struct ntx_hub_repo *repo = NULL;
    const struct ntx_hub_offer *offer = NULL;
    int rc = ntx__pull_what(p->o, &what, err);
    if (!rc)
        rc = ntx__pull_web(p->o, &p->web, err);
    if (!rc && *what.url)
        return ntx_hub_url(what.url, &p->heads.model, err);
    if (!rc)
        rc = ntx_hub_list(p->web, ntx_hub_address(), what.repo, &repo, err);
    if (!rc && *what.type && strcasecmp(what.type, "best"))
        rc = ntx_hub_choose(repo, what.type, &offer, err);
    else if (!rc)
        rc = ntx__pull_pick(p->o, p->web, repo, what.repo, *what.type || p->o->json, &offer, &p->heads, err);
    if (!rc && !p->heads.model.n)
        rc = ntx_hub_take(repo, offer, &p->heads.model, err);
    if (!rc && !p->o->no_mmproj)
        rc = ntx_hub_projector(repo, &p->mmproj, err);
    ntx_hub_repo_free(repo);
    return rc;
}

static int print_names(struct ntx_err *err)
{
    struct ntx_names *names = NULL;
    const char *name, *means;
    bool own;
    int rc = ntx_names_open(&names, err);
    for (size_t i = 0; !rc && (name = ntx_names_at(names, i, &means, &own)); i++)
        ntx_out_format("%-24s %s%s\n", name, means, own ? "  (yours)" : "");
    ntx_names_free(names);
    return rc;
}

/* Reads the projector's header, and says that it comes, too. One that cannot be read is left out: the model is what was
 * asked for. */
static void look_at_projector(struct pull *p)
{
    struct ntx_err why = {0};
    int fd = -1, rc = p->mmproj.n ? ntx_header_get(p->web, p->mmproj.file, 0, &fd, p->mmproj_etag, &why) : 0;
    if (fd >= 0)
        close(fd);
    if (rc) {
        ntx_say("the projector is left out, so the model will take no images: %s", why.text);
        ntx_hub_free(&p->mmproj);
        p->mmproj = (struct ntx_hub_model){0};
    } else if (p->mmproj.n && !p->o->quiet && !p->o->json) {
        ntx_say("%s comes with it, by which the model takes images (--no-mmproj leaves it out)", p->mmproj.file->name);
    }
}

static int pull_model(struct pull *p, struct ntx_err *err)
{
    tell_step(p, json_pack("{s:s, s:s}", "status", "looking", "name", p->o->args[0]));
    int rc = find_model(p, err);
    if (!rc)
        rc = set_sha256(p, err);
    if (!rc)
        rc = open_place(p, false, err);
    if (!rc)
        rc = check_space(p, err);
    if (!rc && !p->heads.etag)
        rc = ntx__pull_heads(p->o, p->web, 0, &p->heads, err);
    if (!rc)
        rc = judge_model(p, err);
    if (!rc)
        look_at_projector(p);
    if (!rc)
        rc = open_place(p, true, err);
    if (!rc)
        rc = check_space(p, err);
    if (!rc)
        rc = pull_files(p, err);
    if (!rc)
        tell_done(p);
    return rc;
}

int ntx_cmd_pull(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct pull p = {.o = o, .folder = -1, .line = ntx_progress_begin(o)};
    if (!o->n_args && !o->list)
        return ntx_say("no NAME: `ntx pull --list` lists short names, `ntx search WORD` asks the hub"), NTX_EXIT_USAGE;
    int rc = o->list ? print_names(&err) : pull_model(&p, &err);
    ntx_progress_clear(&p.line);
    ntx__pull_heads_free(&p.heads);
    ntx_hub_free(&p.mmproj);
    ntx_web_close(p.web);
    if (p.folder >= 0)
        close(p.folder);
    if (rc > 0)
        return NTX_EXIT_USAGE;
    if (rc && o->json && !o->list)
        tell_step(&p, json_pack("{s:o}", "error", json_stringn(err.text, strnlen(err.text, sizeof err.text))));
    return rc ? ntx_fail(&err) : 0;
}
