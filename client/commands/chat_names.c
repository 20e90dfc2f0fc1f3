/* SPDX-License-Identifier: Apache-2.0 */
/* chat_names.c: named conversations. The files hold the text only; a daemon with --state finds its prefix by the
 * text. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/commands/chat.h"
#include "client/commands/chat_editor.h"
#include "client/out.h"
#include "common/nearest.h"

#define END ".json"

bool ntx_talk_is_name(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
    return n && n < NTX_TALK_NAME && !text[n] && *text != '-';
}

int ntx_talk_path(const char *name, char path[NTX_TALK_PATH], struct ntx_err *err)
{
    char file[NTX_TALK_NAME + 16];
    if (!ntx_talk_is_name(name))
        return ntx_err_set(err, -EINVAL,
                           "'%.80s' is no name of a conversation: it has up to %d letters, digits, '-' and '_'", name,
                           NTX_TALK_NAME - 1);
    snprintf(file, sizeof file, "chats/%s" END, name);
    return ntx_state_path(file, path, NTX_TALK_PATH)
               ? ntx_err_set(err, -ENOENT,
                             "conversations have no place: neither XDG_STATE_HOME nor HOME is a folder's path")
               : 0;
}

/* Calls `each` with every saved name. */
static void each_name(void (*each)(void *ctx, const char *name, time_t saved), void *ctx)
{
    char path[NTX_TALK_PATH];
    struct stat st;
    DIR *d = ntx_state_path("chats", path, sizeof path) ? NULL : opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t n = strlen(e->d_name), end = strlen(END);
        if (n <= end || strcmp(e->d_name + n - end, END) || fstatat(dirfd(d), e->d_name, &st, 0) ||
            !S_ISREG(st.st_mode))
            continue;
        e->d_name[n - end] = 0;
        if (ntx_talk_is_name(e->d_name))
            each(ctx, e->d_name, st.st_mtim.tv_sec);
    }
    if (d)
        closedir(d);
}

struct found {
    char name[NTX_TALK_NAME];
    time_t saved;
    unsigned n;
};

static void take_newest(void *ctx, const char *name, time_t saved)
{
    struct found *f = ctx;
    if (f->n++ && saved < f->saved)
        return;
    snprintf(f->name, sizeof f->name, "%s", name);
    f->saved = saved;
}

/* Finds the conversation that was saved last. */
static int find_newest(char name[NTX_TALK_NAME], struct ntx_err *err)
{
    struct found f = {0};
    each_name(take_newest, &f);
    memcpy(name, f.name, NTX_TALK_NAME);
    return f.n ? 0 : ntx_err_set(err, -ENOENT, "no conversation was saved by name: /save NAME in a chat does it");
}

static void print_name(void *ctx, const char *name, time_t saved)
{
    char at[32];
    struct tm tm;
    strftime(at, sizeof at, "%F %H:%M", localtime_r(&saved, &tm));
    char line[4 * NTX_TALK_NAME];
    fprintf(stderr, "  %s  %s\n", at, ntx_out_line(name, line, sizeof line));
    ++*(unsigned *)ctx;
}

unsigned ntx_talk_list(void)
{
    unsigned n = 0;
    each_name(print_name, &n);
    return n;
}

bool ntx_chat_taken(const struct ntx_chat *k, const char *name)
{
    char path[NTX_TALK_PATH];
    struct ntx_err ignored;
    return strcmp(name, k->name) && !ntx_talk_path(name, path, &ignored) && !access(path, F_OK);
}

int ntx_chat_keep(struct ntx_chat *k, const char *name, struct ntx_err *err)
{
    char path[NTX_TALK_PATH];
    int rc = ntx_talk_path(name, path, err);
    if (!rc && (rc = ntx_state_folders(path)))
        return ntx_err_set(err, rc, "%s: its folder cannot be made: %s", path, strerror(-rc));
    if (!rc && !(rc = ntx_talk_save(&k->talk, path, err)) && name != k->name)
        snprintf(k->name, sizeof k->name, "%s", name);
    return rc;
}

static void offer_name(void *ctx, const char *name, time_t saved)
{
    (void)saved;
    ntx_near_offer(ctx, name, strlen(name));
}

/* Finds the file of a saved conversation; *name NULL: the one that was saved last. */
static int find_saved(const char **name, char newest[NTX_TALK_NAME], char path[NTX_TALK_PATH], struct ntx_err *err)
{
    int rc = *name ? 0 : find_newest(newest, err);
    if (!*name)
        *name = newest;
    if (rc || (rc = ntx_talk_path(*name, path, err)))
        return rc;
    if (!access(path, F_OK) || errno != ENOENT)
        return 0;
    struct ntx_near near;
    ntx_near_begin(&near, *name, "");
    each_name(offer_name, &near);
    return ntx_err_set(err, -ENOENT, "no conversation is named %s: /list in a chat shows those there are%s", *name,
                       near.hint);
}

int ntx_talk_model(const char *name, char model[NTX_TALK_PATH], struct ntx_err *err)
{
    char path[NTX_TALK_PATH], newest[NTX_TALK_NAME];
    struct ntx_talk t = {0};
    int rc = find_saved(&name, newest, path, err);
    if (rc || (rc = ntx_talk_load(&t, path, err)))
        return rc;
    int n = t.model && *t.model == '/' ? snprintf(model, NTX_TALK_PATH, "%s", t.model) : 0;
    if (!n || n >= NTX_TALK_PATH)
        rc = ntx_err_set(err, -ENOENT, "%s does not say which model file it was held with: ntx run MODEL --resume %s",
                         name, name);
    else if (access(model, R_OK))
        rc = ntx_err_set(err, -errno, "%s was held with %s (%s): with another model, ntx run MODEL --resume %s", name,
                         model, strerror(errno), name);
    ntx_talk_clear(&t);
    free(t.turns);
    return rc;
}

int ntx_chat_resume(struct ntx_chat *k, const char *name, struct ntx_err *err)
{
    char path[NTX_TALK_PATH], newest[NTX_TALK_NAME];
    int rc = find_saved(&name, newest, path, err);
    if (rc || (rc = ntx_talk_load(&k->talk, path, err)))
        return rc;
    snprintf(k->name, sizeof k->name, "%s", name);
    k->first = 0;
    ntx_chat_forget(k);
    ntx_chat_tell(k, "the conversation %s goes on after %u turn%s; it is saved after each answer", name, k->talk.n,
                  k->talk.n == 1 ? "" : "s");
    ntx_chat_show(k);
    return 0;
}
