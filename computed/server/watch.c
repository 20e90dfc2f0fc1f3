/* SPDX-License-Identifier: Apache-2.0 */
/* Checks every second whether the model's files have changed, in a work thread, since a hanging drive or file server
 * blocks the caller. A check owns its data, so a model can be unloaded while one hangs.
 *
 * The open file is checked by its size and times; the name may lead to another file by now. A name that the service
 * could not follow at the load (another user's home) is not checked. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/server/server_impl.h"

#define HANGS_S 5

enum by_name { UNKNOWN, FOLLOWED, IGNORED };

struct ntx_watch {
    struct ntx_server *server;
    uv_work_t work;
    bool working, dropped;
    bool again;        /* loaded from kept descriptors: the names may lead to other files already */
    uint64_t since_ns; /* when the check began, by ntx__server_awake */
    unsigned n;
    struct watched {
        int fd;
        char *name;
        struct stat was;
        enum by_name by_name;
    } file[NTX_MAX_FILES];
    enum ntx_mon_grade grade; /* result of the last check */
    char text[400];
};

static void free_watch(struct ntx_watch *w)
{
    for (unsigned i = 0; i < w->n; i++) {
        close(w->file[i].fd);
        free(w->file[i].name);
    }
    free(w);
}

static bool set_finding(struct ntx_watch *w, enum ntx_mon_grade grade, const char *what, const struct watched *f,
                        const char *todo)
{
    w->grade = grade;
    snprintf(w->text, sizeof w->text, "%s; %s: %s", what, todo, f->name);
    return true;
}

/* Checks the open file: a changed one gives no answers (ntx_loaded_check). */
static bool has_changed(struct ntx_watch *w, const struct watched *f, const struct stat *now)
{
    static const char todo[] = "no answer is given from it: load the model again (ntx load MODEL)";
    char what[160];
    long long size = (long long)now->st_size, was = (long long)f->was.st_size;
    if (!ntx_loaded_changed(&f->was, now))
        return false;
    if (size < was)
        snprintf(what, sizeof what,
                 "a file of the model has become shorter since it was loaded (%lld bytes, it had %lld)", size, was);
    else if (size > was)
        snprintf(what, sizeof what,
                 "a file of the model has become longer since it was loaded (%lld bytes, it had %lld)", size, was);
    else
        snprintf(what, sizeof what,
                 "a file of the model has been changed since it was loaded (same size, other time of change)");
    return set_finding(w, NTX_MON_STOPPED, what, f, todo);
}

static bool check_file(struct ntx_watch *w, struct watched *f)
{
    static const char served[] = "the file that was loaded is served on";
    struct stat now, named;
    if (fstat(f->fd, &now))
        return set_finding(w, NTX_MON_STOPPED, strerror(errno), f,
                           "no answer is given from this file: load the model again (ntx load MODEL)");
    if (has_changed(w, f, &now))
        return true;
    bool there = *f->name == '/' && !stat(f->name, &named), missing = !there && errno == ENOENT;
    bool same = there && named.st_dev == now.st_dev && named.st_ino == now.st_ino;
    if (f->by_name == UNKNOWN)
        f->by_name = same || (there && w->again) ? FOLLOWED : IGNORED;
    if (f->by_name == FOLLOWED && there && !same)
        return set_finding(
            w, NTX_MON_SERVED, "another file has taken the place of a file of the model", f,
            "the one that was loaded is served on: load the model again (ntx load MODEL) to serve the new one");
    if ((f->by_name == FOLLOWED && missing) || (!now.st_nlink && (f->was.st_nlink || w->again)))
        return set_finding(w, NTX_MON_SERVED, "a file of the model has been removed or renamed", f, served);
    return false;
}

static void look_at_files(uv_work_t *work)
{
    struct ntx_watch *w = work->data;
    w->grade = NTX_MON_WELL;
    for (unsigned i = 0; i < w->n; i++)
        if (check_file(w, &w->file[i]) && w->grade == NTX_MON_STOPPED)
            return;
}

static void after_check(uv_work_t *work, int status)
{
    struct ntx_watch *w = work->data;
    (void)status;
    w->working = false;
    if (w->dropped)
        free_watch(w);
    else if (w->grade == NTX_MON_WELL)
        ntx__health_well(w->server, NTX_MON_PART_FILES);
    else
        ntx__health_set(w->server, NTX_MON_PART_FILES, w->grade, "%s", w->text);
}

void ntx__files_look(struct ntx_server *s)
{
    struct ntx_watch *w = s->watch;
    const uint64_t now = ntx__server_awake(s);
    if (!w)
        return;
    if (w->working) {
        if (now - w->since_ns > HANGS_S * 1000000000ull)
            ntx__health_set(s, NTX_MON_PART_FILES, NTX_MON_STOPPED,
                            "the drive or the server with the model's files has not answered for %d s: %s", HANGS_S,
                            w->file[0].name);
        return;
    }
    w->working = true;
    w->since_ns = now;
    w->work.data = w;
    if (uv_queue_work(s->loop, &w->work, look_at_files, after_check))
        w->working = false;
}

void ntx__files_begin(struct ntx_server *s, bool again)
{
    const struct ntx_loaded *l = s->loaded;
    struct ntx_watch *w = calloc(1, sizeof *w);
    if (!w)
        return;
    *w = (struct ntx_watch){.server = s, .again = again};
    for (unsigned i = 0; i < l->n_fds; i++) {
        struct watched *f = &w->file[w->n];
        *f = (struct watched){
            .fd = fcntl(l->fds[i], F_DUPFD_CLOEXEC, 0), .name = strdup(l->names[i]), .was = l->stamps[i]};
        if (f->fd < 0 || !f->name) {
            ntx_log(NTX_LOG_WARN, "the model's files are not watched: no memory, or too few descriptors");
            if (f->fd >= 0)
                close(f->fd);
            free(f->name);
            free_watch(w);
            return;
        }
        w->n++;
    }
    s->watch = w;
    ntx__files_look(s);
}

void ntx__files_end(struct ntx_server *s)
{
    struct ntx_watch *w = s->watch;
    s->watch = NULL;
    ntx__health_well(s, NTX_MON_PART_FILES);
    if (w && w->working)
        w->dropped = true;
    else if (w)
        free_watch(w);
}
