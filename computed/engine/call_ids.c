/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/call_ids.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 9 };

static json_t *short_id(const char *id)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    char out[LENGTH + 1] = {0};
    uint64_t h = 0xcbf29ce484222325ULL; /* FNV-1a */
    size_t good = 0;
    while (isalnum((unsigned char)id[good]))
        good++;
    if (good == LENGTH && !id[good])
        return json_string(id);
    for (const char *p = id; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3ULL;
    for (int i = 0; i < LENGTH; i++, h /= 62)
        out[i] = digits[h % 62];
    return json_string(out);
}

struct walk {
    json_t *waiting; /* ids of calls without a result so far */
    unsigned n_calls;
};

static void name_call(struct walk *w, json_t *call)
{
    const char *id = json_string_value(json_object_get(call, "id"));
    char number[24];
    w->n_calls++;
    snprintf(number, sizeof number, "call %u", w->n_calls);
    json_object_set_new(call, "id", short_id(id && *id ? id : number));
    json_array_append(w->waiting, json_object_get(call, "id"));
}

/* The result of the call that it names, or of the first one that waits. */
static void name_result(struct walk *w, json_t *fields)
{
    const char *id = json_string_value(json_object_get(fields, "tool_call_id"));
    json_t *own = id && *id ? short_id(id) : json_incref(json_array_get(w->waiting, 0));
    for (size_t i = 0; own && i < json_array_size(w->waiting); i++)
        if (json_equal(json_array_get(w->waiting, i), own)) {
            json_array_remove(w->waiting, i);
            break;
        }
    json_object_set_new(fields, "tool_call_id", own ? own : short_id("call"));
}

/* The message's fields with other ids, as a text; NULL: it has none. */
static char *rename_ids(struct walk *w, const struct ntx_chat_msg *m)
{
    const bool result = !strcmp(m->role, "tool");
    json_t *fields = m->n_fields ? json_loadb(m->fields, m->n_fields, 0, NULL) : NULL, *one,
           *calls = json_object_get(fields, "tool_calls");
    size_t i;
    fields = !fields && result ? json_object() : fields;
    json_array_foreach(calls, i, one)
        name_call(w, one);
    if (result)
        name_result(w, fields);
    char *text = fields && (result || json_array_size(calls)) ? json_dumps(fields, JSON_COMPACT) : NULL;
    json_decref(fields);
    return text;
}

bool ntx_call_ids_shorten(struct ntx_chat_msg *msgs, size_t n, struct ntx_call_ids *made)
{
    struct walk w = {.waiting = json_array()};
    *made = (struct ntx_call_ids){.text = calloc(n + 1, sizeof *made->text)};
    for (size_t i = 0; made->text && i < n; i++) {
        char *text = rename_ids(&w, &msgs[i]);
        if (!text)
            continue;
        made->text[made->n++] = text;
        msgs[i].fields = text;
        msgs[i].n_fields = strlen(text);
    }
    json_decref(w.waiting);
    return made->n > 0;
}

void ntx_call_ids_free(struct ntx_call_ids *made)
{
    for (size_t i = 0; i < made->n; i++)
        free(made->text[i]);
    free(made->text);
    *made = (struct ntx_call_ids){0};
}

int ntx_call_ids_tokens(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok, struct ntx_chat_msg *msgs,
                        unsigned from, unsigned n, struct ntx_chat_more *more, const struct ntx_tok_limits *limits,
                        int32_t **ids, struct ntx_err *err)
{
    struct ntx_call_ids made;
    int rc = ntx_chat_tokens_with(t, tok, msgs, from, n, more, limits, ids, err);
    if (rc != -EINVAL)
        return rc;
    if (ntx_call_ids_shorten(msgs, n, &made)) {
        int again = ntx_chat_tokens_with(t, tok, msgs, from, n, more, limits, ids, NULL);
        rc = again >= 0 ? again : rc;
    }
    ntx_call_ids_free(&made);
    return rc;
}
