/* SPDX-License-Identifier: Apache-2.0 */
#include "client/commands/prompt.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/chat.h"

int ntx_read_stream(FILE *f, char **text, size_t *len)
{
    size_t room = 65536, n = 0, k;
    char *t = malloc(room + 1);
    errno = 0;
    while (t && (k = fread(t + n, 1, room - n, f)) > 0) {
        n += k;
        if (n == room) {
            char *u = realloc(t, (room *= 2) + 1);
            if (!u)
                free(t);
            t = u;
        }
    }
    if (!t)
        return -ENOMEM;
    if (ferror(f)) {
        const int why = errno ? errno : EIO;
        free(t);
        return -why;
    }
    t[n] = 0;
    *text = t;
    *len = n;
    return 0;
}

static int add_part(struct ntx_prompt *p, const char *text, size_t len, struct ntx_err *err)
{
    size_t gap = p->text != NULL;
    char *t = realloc(p->text, p->len + gap + len + 1);
    if (!t)
        return ntx_err_set(err, -ENOMEM, "no memory for the prompt");
    if (gap)
        t[p->len] = '\n';
    memcpy(t + p->len + gap, text, len);
    p->text = t;
    p->len += gap + len;
    t[p->len] = 0;
    return 0;
}

static int add_stream(struct ntx_prompt *p, FILE *f, const char *name, struct ntx_err *err)
{
    char *text = NULL;
    size_t len = 0;
    int rc = f ? ntx_read_stream(f, &text, &len) : -errno;
    if (rc)
        return ntx_err_set(err, rc, "%s: cannot read the prompt: %s", name, strerror(-rc));
    len -= len && text[len - 1] == '\n';
    rc = add_part(p, text, len, err);
    free(text);
    return rc;
}

/* A chat reads its pictures with the first message. */
static int read_pictures(const struct ntx_options *o, struct ntx_prompt *p, struct ntx_err *err)
{
    int rc = 0;
    if (p->text)
        return ntx_pictures_add_all(&p->pictures, o->images, o->n_images, err);
    for (unsigned i = 0; !rc && i < o->n_images; i++)
        rc = ntx_picture_look(o->images[i], err);
    return rc;
}

int ntx_prompt_read(const struct ntx_options *o, const char *const *words, unsigned n, struct ntx_prompt *p,
                    struct ntx_err *err)
{
    bool piped = n && !strcmp(words[n - 1], "-");
    int rc = 0;
    if (n && strcmp(words[0], "-"))
        rc = add_part(p, words[0], strlen(words[0]), err);
    if (!rc && o->prompt_file) {
        FILE *f = fopen(o->prompt_file, "rb");
        rc = add_stream(p, f, o->prompt_file, err);
        if (f)
            fclose(f);
    }
    p->took_input = piped || (!n && !o->prompt_file && !isatty(STDIN_FILENO));
    if (!rc && p->took_input)
        rc = add_stream(p, stdin, "standard input", err);
    if (!rc)
        rc = read_pictures(o, p, err);
    if (rc || !p->text || p->len)
        return rc;
    const char *why = "give a text, or none at all on a terminal for a chat";
    if (p->took_input)
        why = "nothing came from standard input";
    else if (o->prompt_file)
        why = "the file has no text";
    return ntx_err_set(err, -EINVAL, "the prompt is empty: %s", why);
}

void ntx_prompt_free(struct ntx_prompt *p)
{
    free(p->text);
    ntx_pictures_free(&p->pictures);
    *p = (struct ntx_prompt){0};
}

void ntx_prompt_tell_left(const struct ntx_options *o, struct ntx_prompt *p)
{
    struct stat st;
    int waits = 0;
    if (o->quiet || p->told || p->took_input || !p->text || fstat(STDIN_FILENO, &st) || !S_ISFIFO(st.st_mode))
        return;
    if (ioctl(STDIN_FILENO, FIONREAD, &waits) || waits <= 0)
        return;
    fputs("ntx: standard input is left unread, though something waits in it; to put it after the prompt, end the "
          "command line with -\n",
          stderr);
    p->told = true;
}

static int refuse_template(const char *name, struct ntx_err *err)
{
    struct ntx_near near;
    ntx_near_begin(&near, name, "");
    ntx_near_offer_list(&near, ntx_chat_names());
    return ntx_err_set(err, -EINVAL, "--chat-template: there is no '%.64s', but %s%s", name, ntx_chat_names(),
                       near.hint);
}

int ntx_prompt_check_form(const struct ntx_options *o, const struct ntx_model_files *f, bool chat, struct ntx_err *err)
{
    struct ntx_str jinja;
    if (chat && o->raw)
        return ntx_err_set(err, -EINVAL,
                           "a chat needs a form, so it cannot be --raw: give a prompt, or leave --raw out "
                           "(--chat-template plain suits models without a form of their own)");
    if (o->raw)
        return 0;
    if (o->template_file)
        return 0; /* it was checked when it was read */
    if (o->chat_template)
        return ntx_chat_by_name(o->chat_template) ? 0 : refuse_template(o->chat_template, err);
    struct ntx_err why = {0};
    if (!f || ntx_gguf_str(f->gguf, "tokenizer.chat_template", &jinja) || !jinja.n ||
        !ntx_chat_check(jinja.p, jinja.n, &why))
        return 0;
    return ntx_err_set(err, -ENOTSUP, "%s: use --raw%s, or --chat-template with one of %s", why.text,
                       chat ? " and a prompt" : "", ntx_chat_names());
}

void ntx_prompt_tell_note(const char *note)
{
    fprintf(stderr, "ntx: %s (--raw says nothing of this; --chat-template NAME makes it a conversation)\n", note);
}

void ntx_prompt_tell_think(const struct ntx_options *o, const char *note)
{
    if (*note && !o->quiet)
        fprintf(stderr, "ntx: --think %s: %s\n", o->think ? o->think : "", note);
}
