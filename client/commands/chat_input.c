/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/chat.h"
#include "client/commands/chat_editor.h"
#include "common/util.h"

#define QUOTES "\"\"\""

struct ntx_chat_input {
    struct ntx_editor *editor; /* NULL: plain lines */
    bool prompts;              /* input is a terminal */
    char *buf;                 /* bytes read without an editor */
    size_t len, taken, room;   /* bytes in buf; bytes handed out */
    bool ended;
};

int ntx_chat_input_open(struct ntx_chat_input **out, struct ntx_err *err)
{
    struct ntx_chat_input *in = calloc(1, sizeof *in);
    if (!in)
        return ntx_err_set(err, -ENOMEM, "no memory");
    in->prompts = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    int rc = ntx_editor_fits() ? ntx_editor_open(&in->editor, err) : 0;
    if (rc) {
        free(in);
        return rc;
    }
    *out = in;
    return 0;
}

void ntx_chat_input_close(struct ntx_chat_input *in)
{
    if (!in)
        return;
    ntx_editor_close(in->editor);
    free(in->buf);
    free(in);
}

bool ntx_chat_input_shown(const struct ntx_chat_input *in) { return in->prompts; }

/* ---- without an editor; unlike getline, reading can be interrupted */

static int read_more(struct ntx_chat_input *in)
{
    if (in->room - in->len < 4096) {
        char *b = realloc(in->buf, in->room += 65536);
        if (!b)
            return -ENOMEM;
        in->buf = b;
    }
    int rc = ntx_client_wait(STDIN_FILENO, -1);
    if (rc)
        return rc == -EINTR && ntx_client_signalled() == SIGINT ? -ECANCELED : rc;
    ssize_t n = read(STDIN_FILENO, in->buf + in->len, in->room - in->len);
    if (n < 0)
        return errno == EINTR || errno == EAGAIN ? 0 : -errno;
    in->ended = !n;
    in->len += (size_t)n;
    return 0;
}

static int plain_line(struct ntx_chat_input *in, const char *prompt, char **text, size_t *len)
{
    char *end = NULL;
    size_t looked = 0;
    int rc = 0;
    if (in->prompts)
        fputs(prompt, stderr);
    if (in->taken)
        memmove(in->buf, in->buf + in->taken, in->len -= in->taken);
    in->taken = 0;
    while (!rc && !(end = in->len > looked ? memchr(in->buf + looked, '\n', in->len - looked) : NULL) && !in->ended) {
        looked = in->len;
        rc = read_more(in);
    }
    if (rc == -ECANCELED && in->prompts)
        fputc('\n', stderr);
    if (rc == -ECANCELED)
        *len = in->len;
    if (rc || (!end && !in->len))
        return rc;
    *len = end ? (size_t)(end - in->buf) : in->len;
    in->taken = *len + (end != NULL);
    if (!(*text = malloc(*len + 1)))
        return -ENOMEM;
    memcpy(*text, in->buf, *len);
    *len -= *len && (*text)[*len - 1] == '\r'; /* a file with CRLF line ends */
    (*text)[*len] = 0;
    return 1;
}

static int next_line(struct ntx_chat_input *in, const char *prompt, char **text, size_t *len)
{
    return in->editor ? ntx_editor_read(in->editor, prompt, text, len) : plain_line(in, prompt, text, len);
}

/* ---- messages of several lines */

/* The closing quotes, which end the text. NULL: the text goes on. */
static char *find_closing(char *body)
{
    size_t n = strlen(body);
    while (n && strchr(" \t\r\n", body[n - 1]))
        n--;
    return n >= 3 && !memcmp(body + n - 3, QUOTES, 3) ? body + n - 3 : NULL;
}

/* The place where a quoted text begins: at the beginning, or at the argument of a command. A paste of several lines
 * that begins with quotes but does not end with them is not quoted. */
static char *find_opening(char *text)
{
    char *p = strncmp(text, "/system ", 8) ? text : text + 8 + strspn(text + 8, " ");
    if (strncmp(p, QUOTES, 3) || (strchr(p, '\n') && !find_closing(p + 3)))
        return NULL;
    return p;
}

static int append_text(char **text, size_t *n, const char *more_text, size_t k)
{
    char *p = realloc(*text, *n + k + 2);
    if (!p)
        return -ENOMEM;
    p[(*n)++] = '\n';
    memcpy(p + *n, more_text, k);
    p[ *n += k] = 0;
    *text = p;
    return 0;
}

/* Reads on to the closing quotes; the text becomes the part between the quotes. */
static int read_quoted(struct ntx_chat_input *in, char **text, size_t *n)
{
    size_t at = (size_t)(find_opening(*text) - *text), begin = at + 3;
    char *end, *line;
    while (!(end = find_closing(*text + begin))) {
        size_t k = 0;
        int rc = next_line(in, "... ", &line, &k);
        if (rc == -ECANCELED)
            *n += 1; /* input was dropped */
        if (rc <= 0)
            return rc ? rc : -ENODATA;
        rc = append_text(text, n, line, k);
        free(line);
        if (rc)
            return rc;
    }
    size_t len = (size_t)(end - *text) - begin, skip = len && (*text)[begin] == '\n';
    len -= len > skip && end[-1] == '\n'; /* the quotes are on lines of their own */
    memmove(*text + at, *text + begin + skip, len - skip);
    (*text)[ *n = at + len - skip] = 0;
    return 1;
}

int ntx_chat_input_next(struct ntx_chat_input *in, char **text, size_t *n, struct ntx_err *err)
{
    char *t = NULL;
    *n = 0;
    int rc = next_line(in, "> ", &t, n);
    if (rc == 1 && find_opening(t))
        rc = read_quoted(in, &t, n);
    if (rc == 1) {
        if (in->editor && t[strspn(t, " \t\r\n")])
            ntx_editor_remember(in->editor, t);
        *text = t;
        return 1;
    }
    free(t);
    if (rc == -EINTR)
        return ntx_err_set(err, rc, "interrupted");
    if (rc == -ENODATA)
        return ntx_err_set(err, rc, "the text that %s began has no end", QUOTES);
    return rc < 0 && rc != -ECANCELED ? ntx_err_set(err, rc, "cannot read standard input: %s", strerror(-rc)) : rc;
}

bool ntx_chat_input_confirm(struct ntx_chat_input *in, const char *fmt, ...)
{
    char question[1024], *text = NULL;
    size_t n = 0;
    va_list ap;
    if (!in->prompts)
        return false;
    va_start(ap, fmt);
    vsnprintf(question, sizeof question, fmt, ap);
    va_end(ap);
    ntx_say("%s", question);
    bool yes = next_line(in, "[y/N] ", &text, &n) == 1 && n && strchr("yY", *text);
    free(text);
    return yes;
}
