/* SPDX-License-Identifier: Apache-2.0 */
#include "client/commands/chat.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"

void ntx_chat_tell(const struct ntx_chat *k, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    if (k->o.quiet)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ntx_say("%s", text);
}

/* On a terminal, a failure that leaves the conversation usable is only printed; a script gets the exit code. */
static int report_failure(struct ntx_chat *k, int rc, struct ntx_err *err)
{
    if (!rc || !k->tty || (rc == -EINTR && ntx_client_signalled() != SIGINT))
        return rc;
    ntx_say("%s", err->text);
    *err = (struct ntx_err){0};
    return 0;
}

static int handle_message(struct ntx_chat *k, char *text, size_t len, struct ntx_err *err)
{
    if (ntx_chat_is_command(text))
        return ntx_chat_command(k, text, err);
    int rc = k->tty ? ntx_chat_take_paths(k, text, &len, err) : 0;
    if (rc)
        return rc;
    if (ntx_talk_add_user(&k->talk, text, len) || ntx_chat_attach(k))
        rc = ntx_err_set(err, -ENOMEM, "no memory for the message");
    else
        rc = ntx_chat_send(k, err);
    if (rc && k->talk.n && !k->talk.turns[k->talk.n - 1].answer)
        ntx_talk_drop(&k->talk);
    return rc;
}

/* Ctrl-C at the prompt drops the line. At an empty line it prints how to end, and the second time in a row it ends. */
static int handle_cancel(struct ntx_chat *k, size_t given_up, bool *again, struct ntx_err *err)
{
    if (given_up || !k->tty) {
        *again = false;
        return k->tty ? 0 : ntx_err_set(err, -EINTR, "interrupted");
    }
    if (*again)
        return ntx_err_set(err, -EINTR, "interrupted");
    ntx_say("Ctrl-D or /bye ends the chat, or Ctrl-C once more");
    *again = true;
    return 0;
}

static int converse(struct ntx_chat *k, struct ntx_err *err)
{
    bool again = false;
    while (!k->done) {
        char *text;
        size_t n;
        int rc = ntx_chat_input_next(k->in, &text, &n, err);
        if (rc == -ECANCELED) {
            rc = handle_cancel(k, n, &again, err);
        } else if (rc == 1) {
            again = false;
            rc = report_failure(k, text[strspn(text, " \t\r\n")] ? handle_message(k, text, n, err) : 0, err);
            free(text);
        } else if (!rc) {
            break;
        }
        if (rc)
            return rc;
    }
    return 0;
}

static void close_chat(struct ntx_chat *k)
{
    ntx_talk_clear(&k->talk);
    free(k->talk.turns);
    json_decref(k->stats);
    free(k->file);
    free(k->model);
    while (k->n_texts)
        free(k->texts[--k->n_texts]);
    free(k->texts);
    ntx_chat_drop_images(k);
}

int ntx_chat_loop(struct ntx_client *c, const struct ntx_options *o, const char *model, struct ntx_err *err)
{
    struct ntx_chat k = {.c = c, .o = *o};
    int rc = 0;
    if (model)
        k.model = realpath(model, NULL);
    if (o->system && !(k.talk.system = strdup(o->system)))
        rc = ntx_err_set(err, -ENOMEM, "no memory");
    for (unsigned i = 0; !rc && i < o->n_images; i++)
        rc = ntx_chat_image(&k, (char *)(uintptr_t)o->images[i], err);
    if (!rc)
        rc = ntx_chat_input_open(&k.in, err);
    if (!rc) {
        k.tty = ntx_chat_input_shown(k.in);
        if (o->resume && !(rc = ntx_chat_resume(&k, o->talk, err)) && o->system) {
            free(k.talk.system);
            k.talk.system = strdup(o->system);
        }
        if (k.tty && !rc)
            ntx_chat_tell(&k, "a chat: /help lists the commands, Ctrl-C stops an answer, Ctrl-D ends it");
        rc = rc ? rc : converse(&k, err);
    }
    ntx_chat_input_close(k.in);
    close_chat(&k);
    return rc;
}
