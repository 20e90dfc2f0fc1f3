/* SPDX-License-Identifier: Apache-2.0 */
/* chat_pictures.c: pictures of the next message: /image FILE, and paths of pictures in the message itself, as terminals
 * paste files that are dropped on them. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/commands/chat.h"
#include "client/commands/pictures.h"

void ntx_chat_drop_images(struct ntx_chat *k)
{
    while (k->n_images)
        free(k->images[--k->n_images]);
    free(k->images);
    k->images = NULL;
}

int ntx_chat_attach(struct ntx_chat *k)
{
    int rc = 0;
    for (unsigned i = 0; !rc && i < k->n_images; i++)
        rc = ntx_talk_add_image(&k->talk, k->images[i]);
    ntx_chat_drop_images(k);
    return rc;
}

static int keep_path(struct ntx_chat *k, const char *path)
{
    char *real = realpath(path, NULL), **list = realloc(k->images, (k->n_images + 1) * sizeof *list);
    if (list)
        k->images = list;
    if (!real || !list) {
        free(real);
        return -ENOMEM;
    }
    list[k->n_images++] = real;
    return 0;
}

/* A path with "~/" expanded, in buf where that is needed. */
static const char *home_path(const char *path, char buf[PATH_MAX])
{
    const char *home = getenv("HOME");
    if (strncmp(path, "~/", 2) || !home || snprintf(buf, PATH_MAX, "%s/%s", home, path + 2) >= PATH_MAX)
        return path;
    return buf;
}

int ntx_chat_image(struct ntx_chat *k, char *rest, struct ntx_err *err)
{
    char path[PATH_MAX];
    size_t n = strlen(rest);
    if (!n)
        return ntx_err_set(err, -EINVAL, "/image needs a file: /image FILE");
    if (!strcmp(rest, "none")) {
        ntx_chat_drop_images(k);
        ntx_chat_tell(k, "no picture goes with the next message");
        return 0;
    }
    if (n > 2 && strchr("\"'", *rest) && rest[n - 1] == *rest) {
        rest[n - 1] = 0;
        rest++;
    }
    const char *file = home_path(rest, path);
    int rc = ntx_picture_look(file, err);
    if (!rc && keep_path(k, file))
        rc = ntx_err_set(err, -ENOMEM, "no memory");
    if (!rc)
        ntx_chat_tell(k, "%u picture%s with the next message", k->n_images, k->n_images == 1 ? " goes" : "s go");
    return rc;
}

/* One word of the text from *at on, without its quotes and backslashes; *at moves behind it. 0: there is no more. */
static size_t take_word(const char *text, size_t n, size_t *at, char word[PATH_MAX])
{
    size_t i = *at, len = 0;
    char quote = 0;
    for (; i < n && (quote || !isspace((unsigned char)text[i])); i++) {
        const char c = text[i];
        if (!quote && (c == '"' || c == '\'') && i == *at)
            quote = c;
        else if (quote && c == quote)
            quote = 0;
        else if (len + 1 < PATH_MAX)
            word[len++] = c == '\\' && !quote && i + 1 < n ? text[++i] : c;
    }
    word[len] = 0;
    *at = i;
    return len;
}

/* Whether the word names a picture, by a path with a slash. */
static bool names_picture(const char *word)
{
    char path[PATH_MAX];
    const char *file = strncmp(word, "file://", 7) ? word : word + 7;
    const bool is_path = *file == '/' || !strncmp(file, "~/", 2) || !strncmp(file, "./", 2) || !strncmp(file, "../", 3);
    return is_path && !ntx_picture_look(home_path(file, path), NULL);
}

int ntx_chat_take_paths(struct ntx_chat *k, char *text, size_t *n, struct ntx_err *err)
{
    char word[PATH_MAX], path[PATH_MAX];
    for (size_t at = 0; at < *n;) {
        size_t end = at + strspn(text + at, " \t\r\n"), from = end;
        if (!take_word(text, *n, &end, word) || !names_picture(word)) {
            at = end > at ? end : at + 1;
            continue;
        }
        if (keep_path(k, home_path(strncmp(word, "file://", 7) ? word : word + 7, path)))
            return ntx_err_set(err, -ENOMEM, "no memory");
        ntx_chat_tell(k, "with the picture %s", word);
        end += end < *n; /* and the blank behind it */
        memmove(text + from, text + end, *n - end + 1);
        *n -= end - from;
        at = from;
    }
    return 0;
}
