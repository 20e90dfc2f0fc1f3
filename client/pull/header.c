/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pull/header.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/util.h"

#define FIRST (1u << 20)
#define MOST  (256u << 20)

/* ---- the end of the header */

struct cursor {
    const uint8_t *p;
    size_t n, at;
    bool bad; /* no GGUF */
    bool out; /* it continues after n */
};

static uint64_t read_integer(struct cursor *c, unsigned bytes)
{
    uint64_t v = 0;
    c->out |= !c->bad && bytes > c->n - c->at;
    if (c->bad || c->out)
        return 0;
    for (unsigned i = 0; i < bytes; i++)
        v |= (uint64_t)c->p[c->at + i] << (8 * i);
    c->at += bytes;
    return v;
}

static void skip_bytes(struct cursor *c, uint64_t bytes)
{
    if (bytes > MOST)
        c->bad = true;
    else if (bytes > c->n - c->at)
        c->out = true;
    else
        c->at += bytes;
}

/* Bytes of a value of this GGUF type; 0 for a string, an array and an unknown type. */
static unsigned type_width(uint64_t type)
{
    return type < 13 ? (unsigned[]){1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}[type] : 0;
}

static void skip_value(struct cursor *c)
{
    uint64_t type = read_integer(c, 4), elem = type == 9 ? read_integer(c, 4) : type,
             count = type == 9 ? read_integer(c, 8) : 1;
    c->bad |= elem > 12 || elem == 9 || count > MOST;
    if (type_width(elem))
        skip_bytes(c, c->bad ? 0 : count * type_width(elem));
    else
        for (uint64_t i = 0; i < count && !c->bad && !c->out; i++)
            skip_bytes(c, read_integer(c, 8));
}

static void skip_tensor(struct cursor *c)
{
    skip_bytes(c, read_integer(c, 8));
    uint64_t dims = read_integer(c, 4);
    c->bad |= dims > 4;
    skip_bytes(c, c->bad ? 0 : dims * 8 + 4 + 8);
}

uint64_t ntx_header_end(const void *p, size_t n)
{
    struct cursor c = {p, n, 0, false, false};
    c.bad |= read_integer(&c, 4) != 0x46554747; /* "GGUF" */
    uint64_t version = read_integer(&c, 4), tensors = read_integer(&c, 8), keys = read_integer(&c, 8);
    c.bad |= !c.out && (version < 2 || version > 3 || tensors > MOST || keys > MOST);
    for (uint64_t i = 0; i < keys && !c.bad && !c.out; i++) {
        skip_bytes(&c, read_integer(&c, 8));
        skip_value(&c);
    }
    for (uint64_t i = 0; i < tensors && !c.bad && !c.out; i++)
        skip_tensor(&c);
    if (c.out)
        return n < MOST ? 0 : UINT64_MAX;
    return c.bad ? UINT64_MAX : c.at;
}

/* ---- the download */

struct head {
    uint8_t *p;
    size_t n, room;
    bool begun;
};

static int take_bytes(void *arg, const struct ntx_web_answer *a, const void *p, size_t n)
{
    struct head *h = arg;
    if (!h->begun && a->from && a->from != h->n)
        return -EPROTO;
    if (!h->begun && !a->from)
        h->n = 0; /* from a server without ranges */
    h->begun = true;
    n = NTX_MIN(n, h->room - h->n);
    memcpy(h->p + h->n, p, n);
    h->n += n;
    return h->n == h->room ? -ECANCELED : 0; /* all that was asked for has come */
}

static int fetch_more(struct ntx_web *w, const struct ntx_hub_file *f, unsigned most_s, struct head *h, size_t room,
                      struct ntx_web_answer *a, struct ntx_err *err)
{
    uint8_t *p = realloc(h->p, room);
    if (!p)
        return ntx_err_set(err, -ENOMEM, "no memory");
    *h = (struct head){.p = p, .n = h->n, .room = room};
    struct ntx_web_request q = {
        .url = f->url, .from = h->n, .to = room, .most_s = most_s, .take = take_bytes, .arg = h};
    int rc = ntx_web_get(w, &q, a, err);
    return rc == -ECANCELED ? 0 : rc;
}

static int check_size(struct ntx_hub_file *f, const struct ntx_web_answer *a, struct ntx_err *err)
{
    if (a->size == NTX_WEB_UNKNOWN)
        return ntx_err_set(err, -EMSGSIZE, "%s: the server does not tell how long it is", f->name);
    if (f->size != NTX_WEB_UNKNOWN && f->size != a->size)
        return ntx_err_set(err, -EMSGSIZE, "%s: the server has %llu bytes of it, the list says %llu", f->name,
                           (unsigned long long)a->size, (unsigned long long)f->size);
    f->size = a->size;
    if (*a->sha256 && !*f->sha256)
        memcpy(f->sha256, a->sha256, sizeof f->sha256);
    return 0;
}

static int make_memory_file(const struct head *h, uint64_t size, int *fd)
{
    int m = memfd_create("gguf header", MFD_CLOEXEC);
    bool good = m >= 0;
    for (size_t at = 0; good && at < h->n;) {
        ssize_t n = write(m, h->p + at, h->n - at);
        good = n > 0;
        at += good ? (size_t)n : 0;
    }
    good = good && !ftruncate(m, (off_t)size);
    int rc = good ? 0 : -errno;
    if (rc && m >= 0)
        close(m);
    else
        *fd = m;
    return rc;
}

int ntx_header_get(struct ntx_web *w, struct ntx_hub_file *f, unsigned most_s, int *fd, char etag[200],
                   struct ntx_err *err)
{
    struct head h = {0};
    struct ntx_web_answer a;
    uint64_t end = 0;
    int rc = 0;
    for (size_t room = FIRST; !rc && !end && room <= MOST; room *= 4) {
        rc = fetch_more(w, f, most_s, &h, room, &a, err);
        if (!rc)
            rc = check_size(f, &a, err);
        end = rc ? 0 : ntx_header_end(h.p, h.n);
        if (!rc && !end && h.n == f->size)
            end = UINT64_MAX;
    }
    if (!rc && (!end || end == UINT64_MAX))
        rc = ntx_err_set(err, -EINVAL, "%s is no GGUF, or its header is not whole", f->name);
    if (!rc && (rc = make_memory_file(&h, f->size, fd)))
        ntx_err_set(err, rc, "%s: its header: %s", f->name, strerror(-rc));
    if (!rc)
        memcpy(etag, a.etag, 200);
    free(h.p);
    return rc;
}
