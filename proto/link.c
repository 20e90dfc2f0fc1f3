/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/link.h"

#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/pair.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct ntx_link {
    uv_poll_t poll;
    int sock;
    bool bound, closing;
    ntx_link_cb *cb;
    void *ctx;
    uint64_t epoch;
    uint64_t seq_out, seq_in; /* the last sequence numbers sent and received */
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
};

void ntx_link_address(char *buf, size_t n, const char *dir, const char *kind, uint32_t a, uint32_t b)
{
    int len = strcmp(kind, "pi") ? snprintf(buf, n, "%s/%s.%u", dir, kind, a)
                                 : snprintf(buf, n, "%s/%s.%u.%u", dir, kind, a, b);
    if (n && (len < 0 || (size_t)len >= n))
        *buf = 0;
}

/* True for a valid message of this epoch (Hello: of any) that was not seen before. Others are dropped. */
static bool is_fresh(struct ntx_link *l, const Ntx__Peer *m)
{
    if (ntx_peer_validate(m) || m->seq <= l->seq_in)
        return false;
    l->seq_in = m->seq;
    return m->epoch == l->epoch || m->body_case == NTX__PEER__BODY_HELLO;
}

static void deliver(struct ntx_link *l, const void *buf, size_t len)
{
    Ntx__Peer *m = len <= NTX_LINK_MAX ? ntx__peer__unpack(NULL, len, buf) : NULL;
    if (!m)
        return;
    if (is_fresh(l, m))
        l->cb(l->ctx, m);
    ntx__peer__free_unpacked(m, NULL);
}

/* Takes all messages: the descriptor only hints that there may be one. */
static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct ntx_link *l = poll->data;
    (void)status;
    (void)events;
    while (!l->closing) {
        void *buf;
        int n = nn_recv(l->sock, &buf, NN_MSG, NN_DONTWAIT);
        if (n < 0 && nn_errno() == EINTR)
            continue;
        if (n < 0)
            return;
        deliver(l, buf, (size_t)n);
        nn_freemsg(buf);
    }
}

static int set_options(int sock, int *rcvfd)
{
    /* Quick reconnects, since the other side may bind a moment after we connect. nanomsg drops a connection that sends
     * a larger message than the limit, so it gets no memory. (nanomsg 1.x has no linger: unsent messages are lost at
     * close.) */
    int max = NTX_LINK_MAX, first_ms = 5, max_ms = 50;
    size_t n = sizeof *rcvfd;
    if (nn_setsockopt(sock, NN_SOL_SOCKET, NN_RCVMAXSIZE, &max, sizeof max) < 0 ||
        nn_setsockopt(sock, NN_SOL_SOCKET, NN_RECONNECT_IVL, &first_ms, sizeof first_ms) < 0 ||
        nn_setsockopt(sock, NN_SOL_SOCKET, NN_RECONNECT_IVL_MAX, &max_ms, sizeof max_ms) < 0 ||
        nn_getsockopt(sock, NN_SOL_SOCKET, NN_RCVFD, rcvfd, &n) < 0)
        return -nn_errno();
    return 0;
}

static int bind_or_connect(struct ntx_link *l, bool bind)
{
    char url[sizeof l->path + 8];
    snprintf(url, sizeof url, "ipc://%s", l->path);
    if ((bind ? nn_bind(l->sock, url) : nn_connect(l->sock, url)) < 0)
        return -nn_errno();
    l->bound = bind;
    /* The service's directory is open to the group, but links are not. A worker may not call chmod, and has its
     * umask. */
    if (bind)
        (void)chmod(l->path, 0600);
    return 0;
}

static void on_link_closed(uv_handle_t *h) { free(h->data); }

int ntx_link_open(uv_loop_t *loop, const char *address, bool bind, ntx_link_cb *cb, void *ctx, struct ntx_link **out,
                  struct ntx_err *err)
{
    struct ntx_link *l = NULL;
    int rc, fd = -1;
    /* nanomsg aborts on a path that a sockaddr_un cannot hold. */
    if (!*address || strlen(address) >= sizeof l->path)
        return ntx_err_set(err, -ENAMETOOLONG,
                           "'%s': too long for a unix socket (107 bytes); set NTX_RUNTIME to a shorter directory",
                           address);
    l = calloc(1, sizeof *l);
    if (!l)
        return ntx_err_set(err, -ENOMEM, "no memory for a link");
    strcpy(l->path, address);
    l->cb = cb;
    l->ctx = ctx;
    l->poll.data = l;
    l->sock = nn_socket(AF_SP, NN_PAIR);
    rc = l->sock < 0 ? -nn_errno() : set_options(l->sock, &fd);
    if (!rc)
        rc = bind_or_connect(l, bind);
    if (!rc)
        rc = uv_poll_init(loop, &l->poll, fd);
    if (rc) {
        ntx_err_set(err, rc, "%s: cannot open the link: %s", address, nn_strerror(-rc));
        goto fail;
    }
    rc = uv_poll_start(&l->poll, UV_READABLE, on_readable);
    if (rc) {
        ntx_err_set(err, rc, "%s: cannot watch the link: %s", address, uv_strerror(rc));
        ntx_link_close(l); /* frees it in the loop */
        return rc;
    }
    *out = l;
    return 0;
fail:
    if (l->sock >= 0)
        nn_close(l->sock);
    if (l->bound)
        unlink(l->path);
    free(l);
    return rc;
}

void ntx_link_close(struct ntx_link *l)
{
    if (!l || l->closing)
        return;
    l->closing = true;
    /* removes the descriptor from the loop before nanomsg closes it */
    uv_close((uv_handle_t *)&l->poll, on_link_closed);
    nn_close(l->sock);
    if (l->bound)
        unlink(l->path);
}

void ntx_link_set_epoch(struct ntx_link *l, uint64_t epoch) { l->epoch = epoch; }

int ntx_link_send(struct ntx_link *l, Ntx__Peer *m)
{
    m->epoch = l->epoch;
    m->seq = l->seq_out + 1;
    size_t n = ntx__peer__get_packed_size(m);
    if (n > NTX_LINK_MAX)
        return -EMSGSIZE;
    void *buf = nn_allocmsg(n, 0);
    if (!buf)
        return -ENOMEM;
    ntx__peer__pack(m, buf);
    int rc;
    do
        rc = nn_send(l->sock, &buf, NN_MSG, NN_DONTWAIT);
    while (rc < 0 && nn_errno() == EINTR);
    if (rc < 0) {
        rc = -nn_errno();
        nn_freemsg(buf);
        return rc;
    }
    l->seq_out++;
    return 0;
}
