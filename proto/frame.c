/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/util.h"

#define HEADER     4u
#define FEED_SLACK (1u << 20)  /* a caller may feed this much beyond a frame before it takes frames */
#define KEEP_ROOM  (16u << 10) /* a larger buffer is freed as soon as it is empty */
#define MOST       (HEADER + NTX_FRAME_MAX + FEED_SLACK)

static uint32_t get_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void put_le32(uint8_t *p, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

/* Moves the bytes that were not taken to the front, which invalidates pointers of ntx_frame_next. */
static void compact(struct ntx_frame_in *in)
{
    memmove(in->buf, in->buf + in->used, in->len - in->used);
    in->len -= in->used;
    in->used = 0;
}

int ntx_frame_feed(struct ntx_frame_in *in, const void *buf, size_t len)
{
    if (in->used)
        compact(in);
    if (len > MOST - in->len)
        return -EMSGSIZE;
    if (in->len + len > in->room) {
        /* The buffer grows with the received bytes, not with the length that the peer claims. */
        size_t room = NTX_MIN(NTX_MAX(NTX_MAX(2 * in->room, in->len + len), (size_t)4096), (size_t)MOST);
        uint8_t *p = realloc(in->buf, room);
        if (!p)
            return -ENOMEM;
        in->buf = p;
        in->room = room;
    }
    if (len)
        memcpy(in->buf + in->len, buf, len);
    in->len += len;
    return 0;
}

int ntx_frame_next(struct ntx_frame_in *in, const uint8_t **body, size_t *len)
{
    size_t have = in->len - in->used;
    if (!have && in->room > KEEP_ROOM)
        ntx_frame_free(in);
    if (have < HEADER)
        return 0;
    uint32_t n = get_le32(in->buf + in->used);
    if (n == 0 || n > NTX_FRAME_MAX)
        return -EMSGSIZE;
    if (have - HEADER < n)
        return 0;
    *body = in->buf + in->used + HEADER;
    *len = n;
    in->used += HEADER + n;
    return 1;
}

size_t ntx_frame_wants(const struct ntx_frame_in *in)
{
    size_t have = in->len - in->used;
    if (!have)
        return 0;
    return have < HEADER ? HEADER - have : HEADER + get_le32(in->buf + in->used) - have;
}

void ntx_frame_free(struct ntx_frame_in *in)
{
    free(in->buf);
    *in = (struct ntx_frame_in){0};
}

static int new_frame(size_t body, uint8_t **frame)
{
    if (!body || body > NTX_FRAME_MAX)
        return -EMSGSIZE;
    *frame = malloc(HEADER + body);
    if (!*frame)
        return -ENOMEM;
    put_le32(*frame, (uint32_t)body);
    return 0;
}

int ntx_request_encode(const Ntx__Request *m, uint8_t **frame, size_t *len)
{
    size_t n = ntx__request__get_packed_size(m);
    uint8_t *p;
    int rc = new_frame(n, &p);
    if (rc)
        return rc;
    ntx__request__pack(m, p + HEADER);
    *frame = p;
    *len = HEADER + n;
    return 0;
}

int ntx_reply_encode(const Ntx__Reply *m, uint8_t **frame, size_t *len)
{
    size_t n = ntx__reply__get_packed_size(m);
    uint8_t *p;
    int rc = new_frame(n, &p);
    if (rc)
        return rc;
    ntx__reply__pack(m, p + HEADER);
    *frame = p;
    *len = HEADER + n;
    return 0;
}

/* Like ntx_write_all, without SIGPIPE: a library must not end its program when the daemon goes away. */
static int send_all(int sock, const uint8_t *p, size_t len)
{
    while (len) {
        ssize_t n = send(sock, p, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == ECONNRESET ? -EPIPE : -errno;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int ntx_frame_send_request(int sock, const Ntx__Request *m, const int *fds, unsigned n_fds)
{
    uint8_t *frame;
    size_t len;
    int rc = ntx_request_encode(m, &frame, &len);
    if (rc)
        return rc;
    rc = ntx_send_fds(sock, frame, HEADER, fds, n_fds); /* so few bytes are sent whole or not at all */
    if (!rc)
        rc = send_all(sock, frame + HEADER, len - HEADER);
    free(frame);
    return rc == -ECONNRESET ? -EPIPE : rc;
}
