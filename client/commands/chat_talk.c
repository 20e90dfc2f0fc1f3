/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/commands/chat.h"

#define FILE_MOST (64u << 20) /* bytes of a conversation's file */

static char *copy_text(const char *text, size_t len)
{
    char *t = malloc(len + 1);
    if (!t)
        return NULL;
    memcpy(t, text, len);
    t[len] = 0;
    return t;
}

int ntx_talk_add_user(struct ntx_talk *t, const char *text, size_t len)
{
    if (t->n == t->room) {
        unsigned room = 2 * t->room + 8;
        struct ntx_turn *p = realloc(t->turns, room * sizeof *p);
        if (!p)
            return -ENOMEM;
        t->turns = p;
        t->room = room;
    }
    struct ntx_turn turn = {.asked = copy_text(text, len), .n_asked = len};
    if (!turn.asked)
        return -ENOMEM;
    t->turns[t->n++] = turn;
    return 0;
}

void ntx_talk_answer(struct ntx_talk *t, char *text, size_t len)
{
    struct ntx_turn *turn = &t->turns[t->n - 1];
    free(turn->answer);
    turn->answer = text;
    turn->n_answer = len;
}

void ntx_talk_drop(struct ntx_talk *t)
{
    struct ntx_turn *turn = &t->turns[--t->n];
    free(turn->asked);
    free(turn->answer);
    while (turn->n_images)
        free(turn->images[--turn->n_images]);
    free(turn->images);
}

int ntx_talk_add_image(struct ntx_talk *t, const char *path)
{
    struct ntx_turn *turn = &t->turns[t->n - 1];
    char **list = realloc(turn->images, (turn->n_images + 1) * sizeof *list), *copy = strdup(path);
    if (list)
        turn->images = list;
    if (!list || !copy) {
        free(copy);
        return -ENOMEM;
    }
    list[turn->n_images++] = copy;
    return 0;
}

void ntx_talk_clear(struct ntx_talk *t)
{
    while (t->n)
        ntx_talk_drop(t);
    free(t->system);
    free(t->model);
    t->system = t->model = NULL;
}

int ntx_talk_set_model(struct ntx_talk *t, const char *model)
{
    char *copy = model ? strdup(model) : NULL;
    if (model && !copy)
        return -ENOMEM;
    free(t->model);
    t->model = copy;
    return 0;
}

/* ---- the file */

static int add_message(json_t *list, const char *role, const char *text, size_t len)
{
    json_t *said = json_stringn(text, len);
    return said ? json_array_append_new(list, json_pack("{s:s, s:o}", "role", role, "content", said)) : -1;
}

/* The question's pictures, by their paths, beside the message that was added last. A path that is no UTF-8 fails. */
static int add_images(json_t *list, const struct ntx_turn *u)
{
    json_t *m = json_array_get(list, json_array_size(list) - 1), *images = u->n_images ? json_array() : NULL;
    int rc = 0;
    for (unsigned i = 0; !rc && i < u->n_images; i++)
        rc = json_array_append_new(images, json_string(u->images[i]));
    if (images && json_object_set_new(m, "images", images))
        rc = -1;
    return rc;
}

static json_t *talk_to_json(const struct ntx_talk *t, struct ntx_err *err)
{
    json_t *list = json_array();
    unsigned i = 0;
    int rc = list ? 0 : -1;
    if (!rc && t->system)
        rc = add_message(list, "system", t->system, strlen(t->system));
    for (; !rc && i < t->n; i++) {
        const struct ntx_turn *u = &t->turns[i];
        rc = add_message(list, "user", u->asked, u->n_asked);
        if (!rc)
            rc = add_images(list, u);
        if (!rc && u->answer)
            rc = add_message(list, "assistant", u->answer, u->n_answer);
    }
    if (!rc) /* a model's name that is no UTF-8 is left out */
        return json_pack("{s:s, s:i, s:o*, s:o}", "ntx", "conversation", "version", 1, "model",
                         t->model ? json_string(t->model) : NULL, "messages", list);
    json_decref(list);
    ntx_err_set(err, -EILSEQ, "turn %u is no UTF-8, which JSON must be", i);
    return NULL;
}

/* NULL: there is no list of messages. */
static json_t *messages_of(const json_t *j)
{
    json_t *list = json_is_array(j) ? (json_t *)(uintptr_t)j : json_object_get(j, "messages");
    return json_is_array(list) ? list : NULL;
}

static int read_json(const char *path, json_t **out, struct ntx_err *err)
{
    struct stat st;
    json_error_t e;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), rc = fd < 0 ? -errno : 0;
    if (rc)
        return ntx_err_set(err, rc, "%s: %s", path, strerror(-rc));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > (off_t)FILE_MOST) {
        close(fd);
        return ntx_err_set(err, -EINVAL, "%s: not a file, or one of more than %u MiB", path, FILE_MOST >> 20);
    }
    *out = json_loadfd(fd, JSON_REJECT_DUPLICATES, &e);
    close(fd);
    if (*out && messages_of(*out))
        return 0;
    rc = *out ? ntx_err_set(err, -EINVAL, "%s: not a conversation: there is no list of messages in it", path)
              : ntx_err_set(err, -EINVAL, "%s: not a conversation: line %d: %s", path, e.line, e.text);
    json_decref(*out);
    return rc;
}

int ntx_talk_may_replace(const char *path, struct ntx_err *err)
{
    struct stat st;
    struct ntx_err ignored;
    json_t *j = NULL;
    if (lstat(path, &st) && errno == ENOENT)
        return 0;
    const char *kind = read_json(path, &j, &ignored) ? NULL : json_string_value(json_object_get(j, "ntx"));
    bool ours = kind && !strcmp(kind, "conversation");
    json_decref(j);
    return ours ? 0 : ntx_err_set(err, -EEXIST, "%s is there already and is no conversation: take another name", path);
}

/* Writes a temporary file, which replaces path when it is on the drive. */
static int write_conversation(const char *path, const json_t *j)
{
    char temp[PATH_MAX];
    if (snprintf(temp, sizeof temp, "%s.XXXXXX", path) >= (int)sizeof temp)
        return -ENAMETOOLONG;
    int fd = mkostemp(temp, O_CLOEXEC); /* mode 0600 */
    if (fd < 0)
        return -errno;
    int rc = 0;
    if (json_dumpfd(j, fd, JSON_INDENT(2)) || write(fd, "\n", 1) != 1 || fsync(fd))
        rc = errno ? -errno : -EIO;
    close(fd);
    if (!rc && rename(temp, path))
        rc = -errno;
    if (rc)
        unlink(temp);
    return rc;
}

int ntx_talk_save(const struct ntx_talk *t, const char *path, struct ntx_err *err)
{
    char real[PATH_MAX];
    if (realpath(path, real))
        path = real; /* replace the target of a link, not the link */
    int rc = ntx_talk_may_replace(path, err);
    if (rc)
        return rc;
    json_t *j = talk_to_json(t, err);
    if (!j)
        return -EILSEQ;
    errno = 0;
    rc = write_conversation(path, j);
    json_decref(j);
    return rc ? ntx_err_set(err, rc, "%s: cannot be written: %s", path, strerror(-rc)) : 0;
}

static int take_images(struct ntx_talk *t, const json_t *list)
{
    size_t i;
    json_t *path;
    json_array_foreach((json_t *)(uintptr_t)list, i, path)
        if (json_is_string(path) && ntx_talk_add_image(t, json_string_value(path)))
            return -ENOMEM;
    return 0;
}

/* Adds one message of a file; i: its number, for errors. */
static int take_message(struct ntx_talk *t, const json_t *m, size_t i, struct ntx_err *err)
{
    const char *role = json_string_value(json_object_get(m, "role"));
    const json_t *said = json_object_get(m, "content");
    const char *text = json_string_value(said);
    size_t len = json_string_length(said);
    if (!role || !text)
        return ntx_err_set(err, -EINVAL, "message %zu has no role, or its content is no text", i + 1);
    bool system = !strcmp(role, "system"), answer = !strcmp(role, "assistant");
    if (!system && !answer && strcmp(role, "user"))
        return ntx_err_set(err, -EINVAL, "message %zu: the role is system, user or assistant, not \"%.40s\"", i + 1,
                           role);
    if (!system && !answer)
        return ntx_talk_add_user(t, text, len) || take_images(t, json_object_get(m, "images"))
                   ? ntx_err_set(err, -ENOMEM, "no memory")
                   : 0;
    if (system ? i > 0 : !t->n || t->turns[t->n - 1].answer)
        return ntx_err_set(err, -EINVAL, "message %zu: %s", i + 1,
                           system ? "the system's text comes first, once" : "an answer without a question");
    char *copy = copy_text(text, len);
    if (!copy)
        return ntx_err_set(err, -ENOMEM, "no memory");
    if (system)
        t->system = copy;
    else
        ntx_talk_answer(t, copy, len);
    return 0;
}

int ntx_talk_load(struct ntx_talk *t, const char *path, struct ntx_err *err)
{
    struct ntx_talk got = {0};
    json_t *j, *m;
    size_t i;
    int rc = read_json(path, &j, err);
    if (rc)
        return rc;
    json_array_foreach(messages_of(j), i, m)
        if (!rc && (rc = take_message(&got, m, i, err)))
            ntx_err_prefix(err, "%s", path);
    if (!rc && ntx_talk_set_model(&got, json_string_value(json_object_get(j, "model"))))
        rc = ntx_err_set(err, -ENOMEM, "no memory");
    json_decref(j);
    struct ntx_talk *gone = rc ? &got : t;
    ntx_talk_clear(gone);
    free(gone->turns);
    if (!rc)
        *t = got;
    return rc;
}
