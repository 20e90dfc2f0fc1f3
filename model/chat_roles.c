/* SPDX-License-Identifier: Apache-2.0 */
/* chat_roles.c: a conversation in another order of roles, for a template that refuses the one it came in. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat_impl.h"

static bool is_role(const struct ntx_chat_msg *m, const char *role) { return !strcmp(m->role, role); }

static bool is_system(const struct ntx_chat_msg *m) { return is_role(m, "system") || is_role(m, "developer"); }

/* The role that a message gets. */
static const char *role_of(const struct ntx_chat_msg *m, bool first, enum ntx__chat_order order)
{
    if (!is_system(m) || order < NTX__ORDER_USERS || (first && order == NTX__ORDER_USERS))
        return m->role;
    return "user";
}

/* m may be written behind the text of `to`. */
static bool can_join(const struct ntx_chat_msg *to, const char *role, const struct ntx_chat_msg *m,
                     enum ntx__chat_order order)
{
    if (is_role(to, "tool"))
        return order >= NTX__ORDER_USERS && !strcmp(role, "user") && !m->n_fields;
    return is_role(to, role) && !to->n_fields && strcmp(role, "tool");
}

static char *put(char *p, const char *text, size_t n)
{
    memcpy(p, text, n);
    return p + n;
}

/* Writes m behind the text of `to`, with an empty line between, and returns the end. p: free memory, directly behind
 * the text of `to` if that was joined before. */
static char *join(struct ntx_chat_msg *to, const struct ntx_chat_msg *m, bool joined, char *p)
{
    if (!joined) {
        char *text = p;
        p = put(p, to->text, to->len);
        to->text = text;
    }
    if (to->len && m->len)
        p = put(p, "\n\n", 2);
    p = put(p, m->text, m->len);
    to->len = (size_t)(p - to->text);
    if (m->n_fields) {
        to->fields = m->fields;
        to->n_fields = m->n_fields;
    }
    return p;
}

int ntx__chat_reorder(const struct ntx_chat_msg *msgs, unsigned from, unsigned n, enum ntx__chat_order order,
                      struct ntx__chat_talk *out)
{
    size_t bytes = 0;
    for (unsigned i = from; i < n; i++)
        bytes += msgs[i].len + 2;
    *out = (struct ntx__chat_talk){.msgs = malloc((n + 1) * sizeof *msgs), .texts = malloc(bytes + 1)};
    if (!out->msgs || !out->texts) {
        ntx__chat_talk_free(out);
        return -ENOMEM;
    }
    char *p = out->texts;
    bool joined = false;
    for (unsigned i = 0; i < n; i++) {
        struct ntx_chat_msg m = msgs[i], *last = out->n > from ? &out->msgs[out->n - 1] : NULL;
        m.role = i < from ? m.role : role_of(&m, i == 0, order);
        if (last && can_join(last, m.role, &m, order)) {
            p = join(last, &m, joined, p);
            joined = true;
        } else {
            out->msgs[out->n++] = m;
            joined = false;
        }
    }
    return 0;
}

bool ntx__chat_says_systems(const struct ntx_chat_msg *msgs, unsigned from, unsigned n, const char *text, size_t len)
{
    for (unsigned i = from; i < n; i++) {
        const char *p = msgs[i].text, *end = p + msgs[i].len;
        while (p < end && strchr(" \t\r\n", *p) && *p)
            p++;
        while (p < end && strchr(" \t\r\n", end[-1]) && end[-1])
            end--;
        if (is_system(&msgs[i]) && p < end && !memmem(text, len, p, (size_t)(end - p)))
            return false;
    }
    return true;
}

void ntx__chat_talk_free(struct ntx__chat_talk *t)
{
    free(t->msgs);
    free(t->texts);
}
