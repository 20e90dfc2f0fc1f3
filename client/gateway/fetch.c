/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures by URL, from hosts that the operator allows (--image-hosts, common/fence.h). What a request fetches is
 * bounded in bytes and in time over all its pictures. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/gateway/fetch.h"
#include "client/pull/web.h"
#include "common/util.h"

#define BYTES_MOST (16u << 20) /* as many as the text and the pictures of a request may have */

enum { REQUEST_S = 30, STALL_S = 10 };

static struct ntx_fence fence; /* of all requests; set before the first */

void ntx_api_request_image_hosts(const char *const *patterns, unsigned n) { fence = (struct ntx_fence){patterns, n}; }

struct fetching {
    struct ntx_fetched *all;
    uint8_t *data;
    size_t n, room;
};

static int take_bytes(void *arg, const struct ntx_web_answer *a, const void *p, size_t n)
{
    struct fetching *x = arg;
    if (n > BYTES_MOST - x->all->bytes || (a->size != NTX_WEB_UNKNOWN && a->size > BYTES_MOST))
        return -EFBIG;
    if (x->n + n > x->room) {
        const size_t room = x->n + n + x->room / 2;
        uint8_t *more = realloc(x->data, room);
        if (!more)
            return -ENOMEM;
        x->data = more;
        x->room = room;
    }
    memcpy(x->data + x->n, p, n);
    x->n += n;
    x->all->bytes += n;
    return 0;
}

static int fetch(const char *url, struct fetching *x, struct ntx_err *err)
{
    struct ntx_web *w = NULL;
    struct ntx_web_answer a;
    char origin[300];
    const uint64_t now = ntx_now_ns();
    if (!ntx_web_origin(url, origin))
        return ntx_err_set(err, -EINVAL, "its URL is no address of HTTP, or has a password in it");
    if (!x->all->until_ns)
        x->all->until_ns = now + REQUEST_S * 1000000000ull;
    if (now >= x->all->until_ns)
        return ntx_err_set(err, -ETIMEDOUT, "the pictures of the request take longer than %d s", REQUEST_S);
    const struct ntx_web_request q = {
        .url = url, .most_s = (unsigned)((x->all->until_ns - now) / 1000000000) + 1, .take = take_bytes, .arg = x};
    int rc = ntx_web_open(origin, NULL, STALL_S, &w, err);
    if (!rc) {
        ntx_web_fence(w, &fence);
        rc = ntx_web_get(w, &q, &a, err);
    }
    ntx_web_close(w);
    if (rc == -EFBIG)
        ntx_err_set(err, rc, "the pictures of the request have more than %u MiB", BYTES_MOST >> 20);
    return rc ? rc : 0;
}

int ntx__request_fetch(const char *url, struct ntx_fetched *all, const char *param, uint8_t **data, size_t *n,
                       struct ntx_fault *f)
{
    struct fetching x = {.all = all};
    struct ntx_err err = {0};
    if (!fence.n)
        return ntx_fault(
            f, NTX_FAULT_UNSUPPORTED, param,
            "a picture's URL begins with http, and nothing is fetched (--image-hosts names hosts): send the "
            "picture itself as data:image/png;base64,...");
    int rc = fetch(url, &x, &err);
    if (rc) {
        free(x.data);
        return ntx_fault(f, rc == -ENOMEM ? NTX_FAULT_MEMORY : NTX_FAULT_INVALID, param,
                         "a picture cannot be fetched: %s", err.text[0] ? err.text : strerror(-rc));
    }
    *data = x.data;
    *n = x.n;
    return 0;
}
