/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pull/hub_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOST      (16u << 20) /* bytes */
#define MOST_TIME 120         /* seconds */

struct text {
    char *p;
    size_t n;
};

static int take_text(void *arg, const struct ntx_web_answer *a, const void *p, size_t n)
{
    struct text *t = arg;
    char *more = t->n + n > MOST ? NULL : realloc(t->p, t->n + n);
    (void)a;
    if (!more)
        return -E2BIG;
    memcpy(more + t->n, p, n);
    t->p = more;
    t->n += n;
    return 0;
}

int ntx__hub_json_parse(const char *text, size_t n, json_t **out, struct ntx_err *err)
{
    json_error_t why;
    json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!j)
        return ntx_err_set(err, -EPROTO, "the hub's answer is no JSON, or not all of it (%.80s)", why.text);
    *out = j;
    return 0;
}

int ntx__hub_json_get(struct ntx_web *w, const char *url, json_t **out, bool *more, struct ntx_err *err)
{
    struct text t = {0};
    struct ntx_web_answer a;
    struct ntx_err why = {0};
    struct ntx_web_request q = {.url = url, .most_s = MOST_TIME, .take = take_text, .arg = &t};
    int rc = ntx_web_get(w, &q, &a, &why);
    if (!rc)
        rc = ntx__hub_json_parse(t.p ? t.p : "", t.n, out, &why);
    if (!rc && more)
        *more = a.more;
    free(t.p);
    if (!rc)
        return 0;
    const char *reason = rc == -E2BIG ? "the hub's answer is longer than 16 MiB" : strerror(-rc);
    return ntx_err_set(err, rc, "%.400s", *why.text ? why.text : reason);
}
