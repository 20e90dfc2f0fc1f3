/* SPDX-License-Identifier: Apache-2.0 */
/* chat_save.c: /save and /load. An argument that can be a conversation's name is one; any other is a file's path. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/commands/chat.h"

static const char *plural(unsigned n) { return n == 1 ? "" : "s"; }

/* Removes quotes around the text. */
static bool strip_quotes(char *text)
{
    size_t n = strlen(text);
    if (n < 2 || !strchr("\"'", *text) || text[n - 1] != *text)
        return false;
    memmove(text, text + 1, n - 2);
    text[n - 2] = 0;
    return true;
}

/* Expands "~/" to the user's home; malloc'd. NULL: nothing is named, or no memory. */
static char *path_of(const struct ntx_chat *k, const char *rest)
{
    const char *home = getenv("HOME");
    char *path = NULL;
    if (!*rest)
        return k->file ? strdup(k->file) : NULL;
    if (strncmp(rest, "~/", 2) || !home)
        return strdup(rest);
    return asprintf(&path, "%s/%s", home, rest + 2) < 0 ? NULL : path;
}

/* The path as the user finds it from any folder. */
static const char *whole_path(const char *path, char real[PATH_MAX]) { return realpath(path, real) ? real : path; }

static bool is_same(const char *a, const char *b)
{
    struct stat x, y;
    return a && !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* The user is asked about a path that may be meant otherwise. *go: the file may be written. */
static int check_save_path(struct ntx_chat *k, const char *path, bool quoted, bool *go, struct ntx_err *err)
{
    struct stat st;
    bool there = !stat(path, &st);
    if (path[strlen(path) - 1] == '/' || (there && S_ISDIR(st.st_mode)))
        return ntx_err_set(err, -EISDIR, "%s is a folder: name a file in it", path);
    int rc = ntx_talk_may_replace(path, err);
    if (rc)
        return rc;
    if (strpbrk(path, " \t\n") && !quoted) {
        if (!k->tty)
            return ntx_err_set(err, -EINVAL, "a file's name with blanks goes in quotes: /save \"%s\"", path);
        *go = ntx_chat_input_confirm(k->in, "save as the file '%s'?", path);
        if (!*go)
            return 0;
    }
    if (there && k->tty && !is_same(k->file, path))
        *go = ntx_chat_input_confirm(k->in, "%s is there already: write over it?", path);
    return 0;
}

static int save_file(struct ntx_chat *k, const char *rest, bool quoted, struct ntx_err *err)
{
    char *path = path_of(k, rest), real[PATH_MAX];
    bool go = true;
    if (!path)
        return ntx_err_set(err, -EINVAL, "/save needs a name: /save NAME");
    int rc = check_save_path(k, path, quoted || !*rest, &go, err);
    if (!rc && !go)
        ntx_chat_tell(k, "nothing is saved");
    if (!rc && go)
        rc = ntx_talk_save(&k->talk, path, err);
    if (rc || !go) {
        free(path);
        return rc;
    }
    free(k->file);
    k->file = path;
    ntx_chat_tell(k, "%u turn%s saved to the file %s", k->talk.n, plural(k->talk.n), whole_path(path, real));
    return 0;
}

int ntx_chat_save(struct ntx_chat *k, char *rest, struct ntx_err *err)
{
    bool quoted = strip_quotes(rest);
    const char *name = *rest ? rest : k->name;
    if (!ntx_talk_is_name(name))
        return save_file(k, rest, quoted, err);
    if (ntx_chat_taken(k, name)) {
        if (!k->tty)
            return ntx_err_set(err, -EEXIST, "a conversation %s is there already: take another name; /list shows them",
                               name);
        if (!ntx_chat_input_confirm(k->in, "a conversation %s is there already: write over it?", name)) {
            ntx_chat_tell(k, "nothing is saved");
            return 0;
        }
    }
    int rc = ntx_chat_keep(k, name, err);
    if (!rc)
        ntx_chat_tell(k, "%u turn%s saved as %s, and after each answer from now on; --resume %s goes on with it",
                      k->talk.n, plural(k->talk.n), k->name, k->name);
    return rc;
}

static int load_file(struct ntx_chat *k, const char *rest, struct ntx_err *err)
{
    char *path = path_of(k, rest), real[PATH_MAX];
    if (!path)
        return ntx_err_set(err, -EINVAL, "/load needs a name: /list shows those there are");
    int rc = ntx_talk_load(&k->talk, path, err);
    if (rc) {
        free(path);
        return rc;
    }
    free(k->file);
    k->file = path;
    *k->name = 0;
    k->first = 0;
    ntx_chat_forget(k);
    ntx_chat_tell(k, "%u turn%s from %s", k->talk.n, plural(k->talk.n), whole_path(path, real));
    ntx_chat_show(k);
    return 0;
}

/* A name without a saved conversation may be the name of a file. */
int ntx_chat_load(struct ntx_chat *k, char *rest, struct ntx_err *err)
{
    char path[NTX_TALK_PATH];
    struct ntx_err ignored;
    strip_quotes(rest);
    bool named = ntx_talk_is_name(rest) && !ntx_talk_path(rest, path, &ignored) && !access(path, F_OK);
    return named ? ntx_chat_resume(k, rest, err) : load_file(k, rest, err);
}
