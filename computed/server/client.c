/* SPDX-License-Identifier: Apache-2.0 */
/* A connection: frames in, frames out. It uses uv_poll and recvmsg, since libuv's streams cannot take descriptors. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/server/server_impl.h"

#define READ_BYTES 65536
#define STALLED_NS 500000000ull /* without a byte taken; checked every second */
#define READS      16           /* reads in a row, before others have their turn */

static void on_ready(uv_poll_t *poll, int status, int events);

/* Input waits in the kernel while the client's replies pile up, or there is no room for its requests. A broken
 * connection is noticed all the same. */
void ntx__conn_update(struct ntx_conn *c)
{
    int events = UV_DISCONNECT;
    if (!c->closing && !c->receiver && ntx_reply_queue_room(c->replies) && ntx__admission_room(c))
        events |= UV_READABLE;
    if (c->out)
        events |= UV_WRITABLE;
    if (c->gone || events == c->events)
        return;
    c->events = events;
    uv_poll_start(&c->poll, events, on_ready);
}

void ntx__conn_sent(struct ntx_server *s, struct ntx_reply_queue *replies, size_t len)
{
    if (ntx_reply_queue_sent(replies, len) && s->engine)
        ntx_engine_poke(s->engine);
}

static void drop_output(struct ntx_conn *c)
{
    while (c->out) {
        struct ntx_out *o = c->out;
        c->out = o->next;
        ntx__conn_sent(c->server, c->replies, o->len);
        free(o->buf);
        free(o);
    }
    c->last_out = &c->out;
}

static void free_conn(struct ntx_conn *c)
{
    drop_output(c);
    close(c->fd);
    ntx_frame_free(&c->in);
    ntx_reply_queue_unref(c->replies);
    free(c);
}

static void on_conn_closed(uv_handle_t *h) { free_conn(h->data); }

void ntx__conn_close(struct ntx_conn *c)
{
    struct ntx_server *s = c->server;
    if (c->gone)
        return;
    c->gone = true;
    for (struct ntx_conn **p = &s->conns; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            break;
        }
    ntx__conn_slot_leave(c);
    ntx__fd_receiver_end(c->receiver);
    ntx__admission_forget(c);
    ntx_reply_queue_close(c->replies);
    ntx__conns_drop_queue(s, c->replies);
    uv_close((uv_handle_t *)&c->poll, on_conn_closed);
    ntx__server_step(s);
}

void ntx__conn_finish(struct ntx_conn *c)
{
    c->closing = true;
    if (c->out)
        ntx__conn_update(c);
    else
        ntx__conn_close(c);
}

/* Writes as much as the socket takes. False: the connection is broken. */
static bool write_some(struct ntx_conn *c)
{
    while (c->out) {
        struct ntx_out *o = c->out;
        ssize_t n = send(c->fd, o->buf + o->off, o->len - o->off, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN;
        c->active_ns = c->moved_ns = ntx__server_awake(c->server);
        ntx_reply_queue_stall(c->replies, false);
        o->off += (size_t)n;
        if (o->off < o->len)
            continue;
        c->out = o->next;
        if (!c->out)
            c->last_out = &c->out;
        ntx__conn_sent(c->server, c->replies, o->len);
        free(o->buf);
        free(o);
    }
    return true;
}

static void flush_output(struct ntx_conn *c)
{
    if (!write_some(c)) {
        ntx__conn_close(c);
        return;
    }
    if (c->closing && !c->out) {
        ntx__conn_close(c);
        return;
    }
    ntx__conn_update(c);
}

void ntx__conn_send(struct ntx_conn *c, uint8_t *frame, size_t len)
{
    struct ntx_out *o = calloc(1, sizeof *o);
    if (!o) {
        ntx__conn_sent(c->server, c->replies, len);
        free(frame);
        ntx_reply_queue_lose(c->replies);
        return;
    }
    *o = (struct ntx_out){.buf = frame, .len = len};
    if (!c->out)
        c->moved_ns = ntx__server_awake(c->server);
    *c->last_out = o;
    c->last_out = &o->next;
    flush_output(c);
}

static void close_for_garbage(struct ntx_conn *c, const char *why)
{
    ntx_log(NTX_LOG_WARN, "client %llu: %s; connection closed", (unsigned long long)ntx_reply_queue_client(c->replies),
            why);
    ntx__conn_close(c);
}

static bool allowed_over_limit(const Ntx__Request *req)
{
    return req->body_case == NTX__REQUEST__BODY_STATUS || req->body_case == NTX__REQUEST__BODY_STOP;
}

static void take_frame(struct ntx_conn *c, const uint8_t *body, size_t len)
{
    size_t took = 0;
    Ntx__Request *req = ntx_request_decode(body, len, &took);
    if (!req) {
        close_for_garbage(c, "a frame that is no valid request");
    } else if (c->over_limit && !allowed_over_limit(req)) {
        ntx__conn_slot_refuse(c, req->id);
        ntx__request__free_unpacked(req, NULL);
    } else {
        ntx__request(c, req, NTX_MAX(took, len));
    }
}

static void take_frames(struct ntx_conn *c)
{
    const uint8_t *body;
    size_t len;
    int rc = 0;
    while (!c->gone && !c->closing && (rc = ntx_frame_next(&c->in, &body, &len)) > 0) {
        ntx__admission_part(c, 0); /* only a whole one counts, or each byte would restart its deadline */
        take_frame(c, body, len);
        c->no_receiver = false;
    }
    if (rc < 0)
        close_for_garbage(c, "a frame of an impossible length");
    else if (!c->gone)
        ntx__admission_part(c, c->in.len - c->in.used);
}

/* Reads without room for descriptors. The kernel drops those that come, and *dropped reports it. */
static ssize_t receive_bytes(int fd, void *to, size_t n, int flags, bool *dropped)
{
    struct iovec iov = {to, n};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t got;
    do
        got = recvmsg(fd, &m, flags | MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    *dropped = m.msg_flags & MSG_CTRUNC;
    return got < 0 ? -errno : got;
}

/* The next request comes with descriptors, which this process must not take: starts a receiver. False: none could be
 * started, and the request goes on without them. */
static bool start_receiver(struct ntx_conn *c)
{
    int rc = ntx__fd_receiver_new(c->server, c, &c->receiver);
    c->no_receiver = rc != 0;
    if (rc && rc != -EBUSY)
        ntx_log(NTX_LOG_WARN, "cannot start a process to take a model: %s", strerror(-rc));
    return !rc;
}

/* Reads at most one frame. True: something came, and more may follow. */
static bool read_some(struct ntx_conn *c)
{
    uint8_t buf[READ_BYTES];
    bool fds, begins = false;
    size_t room = ntx__admission_room(c), want = ntx_frame_wants(&c->in);
    if (!room || !ntx_reply_queue_room(c->replies)) /* an answer may have megabytes at once */
        return false;
    ssize_t n = want ? 1 : receive_bytes(c->fd, buf, 1, MSG_PEEK, &fds);
    if (n > 0 && !want) {
        want = 4; /* the frame's length */
        begins = fds;
        if (fds && start_receiver(c))
            return false;
    }
    if (n > 0)
        n = receive_bytes(c->fd, buf, NTX_MIN(NTX_MIN(room, want), sizeof buf), 0, &fds);
    if (n == -EAGAIN)
        return false;
    if (n <= 0) {
        ntx__conn_close(c);
        return false;
    }
    c->active_ns = ntx__server_awake(c->server);
    if (fds && !begins) {
        close_for_garbage(c, "descriptors within a request: they come with its first byte");
        return false;
    }
    if (ntx_frame_feed(&c->in, buf, (size_t)n)) {
        close_for_garbage(c, "a frame that is too big, or no memory for it");
        return false;
    }
    take_frames(c);
    return !c->gone && !c->closing;
}

void ntx__conn_taken(struct ntx_conn *c, const uint8_t *body, size_t len)
{
    c->active_ns = ntx__server_awake(c->server);
    take_frame(c, body, len);
    ntx__fd_receiver_end(c->receiver); /* if the request was not a load */
    ntx__conn_update(c);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct ntx_conn *c = poll->data;
    if (c->gone)
        return;
    if (status < 0) {
        ntx__conn_close(c);
        return;
    }
    if (events & (UV_READABLE | UV_DISCONNECT)) {
        /* its input was not being read, so it has hung up */
        if (!(c->events & UV_READABLE) && (events & UV_DISCONNECT)) {
            ntx__conn_close(c);
            return;
        }
        for (int i = 0; i < READS && read_some(c); i++)
            ;
    }
    if (!c->gone && (events & UV_WRITABLE))
        flush_output(c);
    if (!c->gone)
        ntx__conn_update(c);
}

void ntx__conn_new(struct ntx_server *s, int fd)
{
    struct ntx_conn *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return;
    }
    c->server = s;
    c->fd = fd;
    c->poll.data = c;
    c->last_out = &c->out;
    c->since_ns = ntx_now_ns();
    c->active_ns = ntx__server_awake(s);
    if (!(c->replies = ntx_reply_queue_new(&s->output_budget, ++s->last_client)) || !ntx__conn_slot_take(c) ||
        uv_poll_init(s->loop, &c->poll, fd)) {
        ntx__conn_slot_leave(c);
        ntx_reply_queue_unref(c->replies);
        free(c);
        close(fd);
        return;
    }
    c->next = s->conns;
    s->conns = c;
    ntx__conn_update(c);
}

struct ntx_conn *ntx__conn_of(struct ntx_server *s, const struct ntx_reply_queue *replies)
{
    struct ntx_conn *c = s->conns;
    while (c && c->replies != replies)
        c = c->next;
    return c;
}

/* Marks a client whose replies have not moved since the last check: the engine may preempt its sessions. True: it is
 * new. */
static bool mark_stalled(struct ntx_conn *c, uint64_t now)
{
    bool does = c->out && now - c->moved_ns > STALLED_NS, did = ntx_reply_queue_stalls(c->replies);
    if (does)
        ntx_reply_queue_stall(c->replies, true);
    return does && !did;
}

void ntx__conns_check(struct ntx_server *s)
{
    uint64_t now = ntx__server_awake(s), bound = s->c.stall_s * 1000000000ull;
    bool news = false;
    for (struct ntx_conn *c = s->conns; c; c = c->next)
        news |= mark_stalled(c, now);
    if (news && s->engine)
        ntx_engine_poke(s->engine);
    for (struct ntx_conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        if (ntx_reply_queue_lost(c->replies)) {
            close_for_garbage(c, "no memory for a reply");
        } else if (c->out && now - c->moved_ns > bound) {
            ntx_log(NTX_LOG_WARN, "client %llu has taken none of its replies for %u s; connection closed",
                    (unsigned long long)ntx_reply_queue_client(c->replies), s->c.stall_s);
            ntx__conn_close(c);
        } else if (c->part && !ntx__admission_room(c)) { /* there is no room for the rest */
            c->part_ns = now;
        } else if (c->part && now - c->part_ns > bound) {
            ntx_log(NTX_LOG_WARN,
                    "client %llu has sent %zu bytes of a request in %u s, and not the rest; connection closed",
                    (unsigned long long)ntx_reply_queue_client(c->replies), c->part, s->c.stall_s);
            ntx__conn_close(c);
        } else if (c->over_limit && !c->requests && ntx_now_ns() - c->since_ns > NTX_OVER_LIMIT_S * 1000000000ull) {
            ntx__conn_close(c);
        }
    }
}
