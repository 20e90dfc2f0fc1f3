/* SPDX-License-Identifier: Apache-2.0 */
/* load_template.c: the chat template of a load: the one that the load names (--chat-template), or the model's own. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "computed/engine/load.h"

/* The text of the file that ntx.conf names; malloc'd. */
static int read_template(const char *path, char **text, size_t *len, struct ntx_err *err)
{
    enum { MOST = 1 << 20 };
    FILE *f = fopen(path, "re");
    char *p = f ? malloc(MOST + 1) : NULL;
    size_t n = p ? fread(p, 1, MOST + 1, f) : 0;
    int rc = 0;
    if (!f)
        rc = ntx_err_set(err, -errno, "chat_template %s: %s", path, strerror(errno));
    else if (!p)
        rc = ntx_err_set(err, -ENOMEM, "no memory for a chat template");
    else if (ferror(f) || !n || n > MOST)
        rc = ntx_err_set(err, -EINVAL, "chat_template %s: it must be a file of 1 byte to 1 MiB", path);
    if (f)
        fclose(f);
    if (rc) {
        free(p);
        return rc;
    }
    *text = p;
    *len = n;
    return 0;
}

/* A template that the load itself names must be without fault; one of the model's file may be. */
static int open_named_template(struct ntx_loaded *l, const char *named, struct ntx_err *err)
{
    char *text = NULL;
    size_t len = strlen(named);
    l->env.has_template = true;
    if ((l->env.chat = ntx_chat_by_name(named)))
        return 0;
    int rc = *named == '/' ? read_template(named, &text, &len, err) : 0;
    if (!rc && (rc = ntx_chat_open(text ? text : named, len, l->tok, &l->chat, err)))
        ntx_err_prefix(err, "the chat template that was given (--chat-template, chat_template)");
    l->env.chat = l->chat;
    free(text);
    return rc;
}

int ntx__load_template(struct ntx_loaded *l, const struct ntx_load_settings *set, struct ntx_err *err)
{
    struct ntx_str jinja;
    int rc = ntx_think_read(set->think, &l->env.think, err);
    if (rc)
        return ntx_err_prefix(err, "think"), rc;
    if (set->chat_template && *set->chat_template)
        return open_named_template(l, set->chat_template, err);
    if (!ntx_gguf_str(l->gguf, "tokenizer.chat_template", &jinja) && jinja.n) {
        l->env.has_template = true;
        if (!ntx_chat_open(jinja.p, jinja.n, l->tok, &l->chat, &l->env.chat_err))
            l->env.chat = l->chat;
    }
    return 0;
}
