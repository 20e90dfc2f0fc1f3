/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/session_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "model/tokenizer.h"

struct ntx_text {
    char **stops;
    size_t *stop_len;
    size_t n_stops, n_own; /* the request's, then n_own others */
    size_t beyond;         /* bytes from the text on that stopped it */
    char *held;            /* fed, not yet shown */
    size_t n, room;
    char *out; /* the cleaned text of the last take */
    size_t out_room;
    bool stopped;
    size_t by; /* index in stops, once stopped */
};

int ntx_text_new(char *const *stops, size_t n_stops, struct ntx_text **out)
{
    struct ntx_text *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    t->stops = calloc(n_stops + 1, sizeof *t->stops);
    t->stop_len = calloc(n_stops + 1, sizeof *t->stop_len);
    if (!t->stops || !t->stop_len)
        goto fail;
    for (size_t i = 0; i < n_stops; i++) {
        if (!*stops[i])
            continue;
        if (!(t->stops[t->n_stops] = strdup(stops[i])))
            goto fail;
        t->stop_len[t->n_stops++] = strlen(stops[i]);
    }
    *out = t;
    return 0;
fail:
    ntx_text_free(t);
    return -ENOMEM;
}

int ntx_text_end_before(struct ntx_text *t, const char *const *marks)
{
    for (; *marks; marks++) {
        char **stops = realloc(t->stops, (t->n_stops + t->n_own + 1) * sizeof *stops);
        t->stops = stops ? stops : t->stops;
        size_t *lengths = realloc(t->stop_len, (t->n_stops + t->n_own + 1) * sizeof *lengths);
        t->stop_len = lengths ? lengths : t->stop_len;
        char *mark = stops && lengths ? strdup(*marks) : NULL;
        if (!mark)
            return -ENOMEM;
        t->stops[t->n_stops + t->n_own] = mark;
        t->stop_len[t->n_stops + t->n_own++] = strlen(mark);
    }
    return 0;
}

void ntx_text_free(struct ntx_text *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_stops + t->n_own; i++)
        free(t->stops[i]);
    free(t->stops);
    free(t->stop_len);
    free(t->held);
    free(t->out);
    free(t);
}

/* Finds the earliest stop string in the held text: *at is the end of the text to show. */
static bool find_stop(struct ntx_text *t, size_t *at)
{
    bool found = false;
    for (size_t i = 0; i < t->n_stops + t->n_own; i++) {
        const char *p = memmem(t->held, t->n, t->stops[i], t->stop_len[i]);
        if (p && (!found || (size_t)(p - t->held) < *at)) {
            *at = (size_t)(p - t->held);
            t->by = i;
            found = true;
        }
    }
    return found;
}

int ntx_text_feed(struct ntx_text *t, const char *bytes, size_t n, bool *stopped)
{
    if (t->n + n > t->room) {
        size_t room = 2 * (t->n + n) + 64;
        char *p = realloc(t->held, room);
        if (!p)
            return -ENOMEM;
        t->held = p;
        t->room = room;
    }
    if (n)
        memcpy(t->held + t->n, bytes, n);
    t->n += n;
    const size_t all = t->n;
    if (t->n && find_stop(t, &t->n)) {
        t->stopped = true;
        t->beyond = all - t->n;
    }
    *stopped = t->stopped;
    return 0;
}

const char *ntx_text_stop(const struct ntx_text *t)
{
    return t && t->stopped && t->by < t->n_stops ? t->stops[t->by] : "";
}

size_t ntx_text_beyond(const struct ntx_text *t) { return t->stopped && t->by >= t->n_stops ? t->beyond : 0; }

/* Bytes at the end that may begin a stop string. */
static size_t stop_hold(const struct ntx_text *t)
{
    size_t hold = 0;
    for (size_t i = 0; i < t->n_stops + t->n_own; i++)
        for (size_t k = t->stop_len[i] - 1 < t->n ? t->stop_len[i] - 1 : t->n; k > hold; k--)
            if (!memcmp(t->held + t->n - k, t->stops[i], k))
                hold = k;
    return hold;
}

/* Copies n bytes to t->out. A byte that is not part of a character becomes U+FFFD. */
static int clean(struct ntx_text *t, size_t n, size_t *len)
{
    if (3 * n + 1 > t->out_room) {
        char *p = realloc(t->out, 3 * n + 1);
        if (!p)
            return -ENOMEM;
        t->out = p;
        t->out_room = 3 * n + 1;
    }
    size_t o = 0;
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)t->held + i, (utf8proc_ssize_t)(n - i), &c);
        if (k > 0) {
            memcpy(t->out + o, t->held + i, (size_t)k);
            o += (size_t)k;
            i += (size_t)k;
        } else {
            memcpy(t->out + o, "\xef\xbf\xbd", 3);
            o += 3;
            i++;
        }
    }
    *len = o;
    return 0;
}

int ntx_text_take(struct ntx_text *t, bool flush, const char **text, size_t *n)
{
    size_t show = t->n, len = 0;
    if (!flush && !t->stopped) {
        show -= stop_hold(t);
        show -= ntx_utf8_hold(t->held, show);
    }
    int rc = show ? clean(t, show, &len) : 0;
    if (rc)
        return rc;
    if (show)
        memmove(t->held, t->held + show, t->n - show);
    t->n -= show;
    *text = len ? t->out : "";
    *n = len;
    return 0;
}
