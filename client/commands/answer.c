/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/commands/answer_stats.h"
#include "client/commands/commands.h"
#include "client/commands/shown.h"
#include "client/out.h"
#include "client/progress.h"
#include "client/supervise.h"
#include "common/util.h"

struct answering { /* an answer being generated */
    const struct ntx_options *o;
    struct ntx_progress progress;
    struct ntx_answered a;
    struct ntx_shown *shown;
    size_t room;                    /* bytes of a.text */
    bool told;                      /* the user knows that an interrupted pass may take long */
    struct ntx_supervisor *daemons; /* NULL: not started by this process */
};

static int keep_text(struct answering *s, const void *p, size_t n)
{
    struct ntx_answered *a = &s->a;
    if (!n)
        return 0;
    if (a->len + n + 1 > s->room) {
        size_t room = (a->len + n + 1) * 2;
        char *t = realloc(a->text, room);
        if (!t)
            return -ENOMEM;
        a->text = t;
        s->room = room;
    }
    memcpy(a->text + a->len, p, n);
    a->len += n;
    a->text[a->len] = 0;
    return 0;
}

static int flush_stdout(struct ntx_err *err)
{
    errno = 0;
    if (!fflush(stdout) && !ferror(stdout))
        return 0;
    int e = errno ? errno : EIO;
    return ntx_err_set(err, -e, "standard output: %s", strerror(e));
}

static void print_line(json_t *j)
{
    ntx_out_json(j, JSON_COMPACT);
    json_decref(j);
}

static int on_token(struct answering *s, const Ntx__Token *t, struct ntx_err *err)
{
    ntx_progress_clear(&s->progress);
    if (s->o->json) {
        /* The daemon sends whole characters; bytes that are not UTF-8 (a lone byte token at the end) become U+FFFD. */
        json_t *text = json_stringn(t->text.len ? (const char *)t->text.data : "", t->text.len);
        json_t *line = json_pack("{s:o}", "text", text ? text : json_string("\xef\xbf\xbd"));
        if (t->token >= 0) /* -1: text of earlier tokens that was held back */
            json_object_set_new(line, "token", json_integer(t->token));
        print_line(line);
    } else if (t->text.len) {
        ntx_shown_text(s->shown, (const char *)t->text.data, t->text.len);
        ntx_progress_midline(&s->progress, ntx_shown_midline(s->shown));
    }
    int rc = flush_stdout(err);
    return rc ? rc : keep_text(s, t->text.data, t->text.len);
}

int ntx_check_writable(const char *path, struct ntx_err *err)
{
    if (!path || !strcmp(path, "-"))
        return 0;
    const char *slash = strrchr(path, '/');
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC), rc = fd < 0 ? -errno : 0;
    if (fd >= 0)
        close(fd);
    if (rc != -ENOENT)
        return rc ? ntx_err_set(err, rc, "%s: cannot be written: %s", path, strerror(-rc)) : 0;
    char dir[PATH_MAX];
    int n = snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    if (n >= (int)sizeof dir || access(dir, W_OK | X_OK))
        return ntx_err_set(err, -errno, "%s: cannot be written: %s", path, strerror(errno));
    return 0;
}

int ntx_check_readable(const char *path, struct ntx_err *err)
{
    struct stat st;
    int rc = 0;
    if (stat(path, &st) || access(path, R_OK))
        rc = -errno;
    else if (S_ISDIR(st.st_mode))
        rc = -EISDIR;
    return rc ? ntx_err_set(err, rc, "%s: cannot read the text: %s", path, strerror(-rc)) : 0;
}

int ntx_write_stats(const struct ntx_options *o, const json_t *j, struct ntx_err *err)
{
    if (!o->stats)
        return 0;
    if (!strcmp(o->stats, "-")) {
        ntx_out_json(j, JSON_INDENT(2));
        return 0;
    }
    return json_dump_file(j, o->stats, JSON_INDENT(2))
               ? ntx_err_set(err, -EIO, "%s: cannot write the statistics: %s", o->stats, strerror(errno))
               : 0;
}

static int on_done(struct answering *s, const Ntx__Done *d, struct ntx_err *err)
{
    /* A request that was cancelled before it began has no statistics. */
    json_t *j = *d->stats_json ? json_loads(d->stats_json, 0, NULL) : json_object();
    ntx_progress_clear(&s->progress);
    ntx_shown_end(s->shown);
    s->shown = NULL;
    if (!s->o->json)
        putchar('\n');
    fflush(stdout);
    ntx_progress_midline(&s->progress, false);
    if (!j)
        return ntx_err_set(err, -EPROTO, "the daemon sent statistics that are no JSON");
    int rc = ntx_write_stats(s->o, j, err);
    if (!s->o->quiet && s->o->tell_stats) {
        char line[512];
        ntx_stats_line(j, line, sizeof line);
        ntx_say("%s", line);
    }
    if (!s->o->quiet && s->daemons && json_is_true(json_object_get(j, "predictor_lost")))
        ntx_supervisor_tell_predictor(s->daemons, false);
    if (s->o->json)
        print_line(json_pack("{s:O}", "stats", j));
    json_decref(s->a.stats);
    s->a.stats = j;
    return rc ? rc : flush_stdout(err);
}

static void send_cancel(struct ntx_client *c, uint64_t target)
{
    Ntx__Cancel k = NTX__CANCEL__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    struct ntx_err ignored;
    k.target = target;
    q.body_case = NTX__REQUEST__BODY_CANCEL;
    q.cancel = &k;
    ntx_client_send(c, &q, NULL, 0, NULL, &ignored);
}

/* Handles one reply. 1: it was the last one. */
static int take_reply(struct answering *s, const Ntx__Reply *r, struct ntx_err *err)
{
    switch (r->body_case) {
    case NTX__REPLY__BODY_STARTED:
        s->a.session = r->started->session;
        s->a.seed = r->started->seed;
        s->a.context = r->started->context;
        s->a.ctx = r->started->ctx;
        snprintf(s->a.note, sizeof s->a.note, "%s", r->started->note);
        snprintf(s->a.think_note, sizeof s->a.think_note, "%s", r->started->think_note);
        if (s->a.begun)
            s->a.begun(s->a.arg);
        return 0;
    case NTX__REPLY__BODY_PROGRESS: ntx_progress_show(&s->progress, r->progress); return 0;
    case NTX__REPLY__BODY_TOKEN: return on_token(s, r->token, err);
    case NTX__REPLY__BODY_DONE: {
        int rc = on_done(s, r->done, err);
        return rc ? rc : 1;
    }
    default: return 0;
    }
}

void ntx_answered_free(struct ntx_answered *a)
{
    free(a->text);
    json_decref(a->stats);
    *a = (struct ntx_answered){0};
}

/* Milliseconds to wait for the next reply. A pass that other clients share is not cut short, and may take long. */
static int reply_timeout(const struct answering *s, bool interrupted)
{
    if (!interrupted || s->told)
        return -1;
    return s->a.patient ? 1500 : 5000;
}

/* Whether the daemon, not this client, cancelled the answer. */
static bool daemon_cancelled(const json_t *stats)
{
    const char *finish = json_string_value(json_object_get(stats, "finish"));
    return finish && !strcmp(finish, "cancel");
}

int ntx_answer(struct ntx_client *c, const struct ntx_options *o, Ntx__Generate *m, struct ntx_answered *a,
               struct ntx_err *err)
{
    struct answering s = {.o = o,
                          .daemons = ntx_client_supervisor(c),
                          .a = a ? *a : (struct ntx_answered){0},
                          .progress = ntx_progress_begin(o),
                          .shown = o->json ? NULL : ntx_shown_begin(!o->raw && ntx_shown_apart())};
    s.a.seed = o->sampling.seed;
    Ntx__Request q = NTX__REQUEST__INIT;
    uint64_t id;
    bool interrupted = false;
    q.body_case = NTX__REQUEST__BODY_GENERATE;
    q.generate = m;
    int rc = ntx_client_send(c, &q, NULL, 0, &id, err);
    while (!rc) {
        Ntx__Reply *r;
        rc = ntx_client_next(c, id, reply_timeout(&s, interrupted), &r, err);
        if (rc == -ETIMEDOUT && s.a.patient && !s.told) {
            ntx_say("the answer ends with the pass under way, which is others' too; Ctrl-C once more does not wait for "
                    "that");
            s.told = true;
            rc = 0;
            continue;
        }
        if (rc == -EINTR && !interrupted) { /* the first Ctrl-C ends the answer, a second one the waiting */
            send_cancel(c, id);
            interrupted = true;
            rc = 0;
            continue;
        }
        if (!rc) {
            rc = take_reply(&s, r, err);
            ntx__reply__free_unpacked(r, NULL);
        }
    }
    bool open = s.shown && s.a.len; /* the answer's end did not come */
    ntx_progress_clear(&s.progress);
    ntx_shown_end(s.shown);
    fflush(stdout);
    ntx_progress_midline(&s.progress, open);
    ntx_progress_yield();
    if (rc == -EINTR || (rc == 1 && interrupted))
        rc = ntx_err_set(err, -EINTR, "interrupted");
    else if (rc == 1 && daemon_cancelled(s.a.stats))
        rc = ntx_err_set(err, -ESHUTDOWN, "the answer is cut short: ntx-computed is shutting down");
    else if (rc == 1)
        rc = 0;
    if (a)
        *a = s.a;
    else
        ntx_answered_free(&s.a);
    return rc;
}
