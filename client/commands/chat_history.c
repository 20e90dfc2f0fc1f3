/* SPDX-License-Identifier: Apache-2.0 */
/* chat_history.c: entries in libedit's own format, one a line. They are appended one by one, so that several chats
 * can share the file; a new run cuts the file to the newest entries. Every writer holds a lock on the file. */
#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/commands/chat_editor.h"

#define ENTRY_MOST 65536u /* bytes; longer entries are not kept */

struct ntx_history {
    char path[PATH_MAX];
    bool told;
};

static void report_error(struct ntx_history *h, int e)
{
    if (!h->told)
        fprintf(stderr, "ntx: %s: the history is not saved: %s\n", h->path, strerror(e));
    h->told = true;
}

int ntx_state_folders(char *path)
{
    for (char *p = path + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        int rc = mkdir(path, 0700) && errno != EEXIST ? -errno : 0;
        *p = '/';
        if (rc)
            return rc;
    }
    return 0;
}

int ntx_state_path(const char *file, char *path, size_t n)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    bool set = state && *state == '/'; /* the XDG specification: ignore a relative path */
    if (!set && (!home || *home != '/'))
        return -ENOENT;
    int len = set ? snprintf(path, n, "%s/ntx/%s", state, file)
                  : snprintf(path, n, "%s/.local/state/ntx/%s", home, file);
    return len < (int)n ? 0 : -ENOENT;
}

int ntx_history_open(struct ntx_history **out)
{
    struct ntx_history *h = calloc(1, sizeof *h);
    int rc = h ? ntx_state_path("history", h->path, sizeof h->path) : -ENOMEM;
    if (rc) {
        free(h);
        return rc;
    }
    *out = h;
    return 0;
}

void ntx_history_close(struct ntx_history *h) { free(h); }

/* Opens and locks the file, and checks that the name still means this file. */
static FILE *lock_file(struct ntx_history *h, int flags)
{
    for (;;) {
        struct stat a, b;
        int fd = open(h->path, flags | O_RDWR | O_CLOEXEC | O_NONBLOCK, 0600);
        if (fd < 0)
            return NULL;
        if (flock(fd, LOCK_EX) || fstat(fd, &a) || !S_ISREG(a.st_mode)) {
            close(fd);
            errno = EINVAL;
            return NULL;
        }
        if (!stat(h->path, &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev) {
            FILE *f = fdopen(fd, flags & O_APPEND ? "a" : "r+");
            if (!f)
                close(fd);
            return f;
        }
        close(fd); /* another chat has replaced the file meanwhile */
    }
}

/* Writes the newest entries to a new file, which replaces the old one. */
static void rewrite_file(struct ntx_history *h, History *all)
{
    char path[PATH_MAX + 8];
    HistEvent ev;
    snprintf(path, sizeof path, "%s.new", h->path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    bool bad = !f || history(all, &ev, H_SAVE_FP, f) < 0;
    if (f && (fclose(f) || bad || rename(path, h->path))) {
        report_error(h, errno);
        unlink(path);
    }
}

static bool too_many(FILE *f)
{
    unsigned n = 0;
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, f) > 0)
        n++;
    free(line);
    return n > 2 * NTX_HISTORY_MOST;
}

void ntx_history_load(struct ntx_history *h, void (*add)(void *ctx, const char *text), void *ctx)
{
    HistEvent ev;
    FILE *f = lock_file(h, 0);
    History *all = f ? history_init() : NULL;
    if (!all) {
        if (f)
            fclose(f);
        else if (errno != ENOENT)
            report_error(h, errno);
        return;
    }
    history(all, &ev, H_SETSIZE, NTX_HISTORY_MOST);
    if (history(all, &ev, H_LOAD, h->path) < 0)
        report_error(h, EINVAL);
    else if (too_many(f))
        rewrite_file(h, all);
    for (int rc = history(all, &ev, H_LAST); rc >= 0; rc = history(all, &ev, H_PREV))
        add(ctx, ev.str);
    history_end(all);
    fclose(f);
}

void ntx_history_append(struct ntx_history *h, const char *text)
{
    HistEvent ev;
    if (!h || h->told || strlen(text) > ENTRY_MOST)
        return;
    int rc = ntx_state_folders(h->path);
    FILE *f = rc ? NULL : lock_file(h, O_CREAT | O_APPEND);
    History *one = f ? history_init() : NULL;
    if (!one || history(one, &ev, H_SETSIZE, 1) < 0 || history(one, &ev, H_ENTER, text) < 0 || fseek(f, 0, SEEK_END) ||
        history(one, &ev, H_NSAVE_FP, (size_t)1, f) < 0 || fflush(f))
        report_error(h, rc ? -rc : errno);
    if (one)
        history_end(one);
    if (f)
        fclose(f);
}
