/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/server/receiver.h"

#include <errno.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/engine/facts.h"
#include "computed/server/wire.h"
#include "proto/frame.h"

struct receiver {
    int fds[NTX_MAX_FILES];
    unsigned n;
    Ntx__Request *request; /* from a client */
    Ntx__Load *load;
};

/* Reads n bytes. The connection is shared with ntx-computed and so non-blocking. */
static int receive_all(int fd, void *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        poll(&p, 1, -1);
        ssize_t k = recv(fd, (char *)to + done, n - done, 0);
        if (k < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (k <= 0)
            return k ? -errno : -EPIPE;
        done += (size_t)k;
    }
    return 0;
}

static int send_all(const void *from, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = send(NTX_RECEIVER_SOCK, (const char *)from + done, n - done, MSG_NOSIGNAL);
        if (k < 0 && errno != EINTR)
            return -errno;
        done += k > 0 ? (size_t)k : 0;
    }
    return 0;
}

/* Reads a body of n bytes. */
static int read_body(int fd, uint32_t n, uint8_t **body)
{
    int rc = n && n <= NTX_RECEIVER_MAX && (*body = malloc(n)) ? 0 : -EMSGSIZE;
    return rc ? rc : receive_all(fd, *body, n);
}

/* Takes the client's request and its descriptors. Then the connection is ntx-computed's again. */
static int take_request(struct receiver *t)
{
    uint8_t head[4], *body = NULL;
    t->n = NTX_MAX_FILES;
    int n = ntx_recv_fds(NTX_RECEIVER_CONN, head, sizeof head, t->fds, &t->n);
    if (n <= 0)
        return n ? n : -EPIPE;
    int rc = receive_all(NTX_RECEIVER_CONN, head + n, sizeof head - (size_t)n);
    uint32_t len = (uint32_t)head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 | (uint32_t)head[3] << 24;
    if (!rc)
        rc = read_body(NTX_RECEIVER_CONN, len, &body);
    close(NTX_RECEIVER_CONN);
    if (!rc && !(t->request = ntx_request_decode(body, len, NULL)))
        rc = -EBADMSG;
    if (!rc && !(rc = send_all(&len, sizeof len)))
        rc = send_all(body, len);
    if (!rc && t->request->body_case == NTX__REQUEST__BODY_LOAD)
        t->load = t->request->load;
    free(body);
    return rc;
}

static int take_order(struct receiver *t, struct ntx_receiver_order *o)
{
    uint8_t *body = NULL;
    int rc = receive_all(NTX_RECEIVER_SOCK, o, sizeof *o);
    if (rc || t->request)
        return rc;
    if (!(rc = read_body(NTX_RECEIVER_SOCK, o->load_bytes, &body)))
        t->load = ntx__load__unpack(NULL, o->load_bytes, body);
    free(body);
    return rc;
}

/* Refuses a file system that a user's process serves, or that may lie over such a one. */
static int check_kind(int fd, const char *name, struct ntx_err *err)
{
    struct statfs s;
    if (fstatfs(fd, &s))
        return ntx_err_set(err, -errno, "%s: %s", name, strerror(errno));
    if (s.f_type != FUSE_SUPER_MAGIC && s.f_type != OVERLAYFS_SUPER_MAGIC)
        return 0;
    return ntx_err_set(err, -EPERM,
                       "%s: lies on a file system that some user's program serves (FUSE), or over one (overlay): it "
                       "could stop everybody's answers at any time. "
                       "Copy it to a disk, run it with ntx run, or have it named in the service's ntx.conf",
                       name);
}

static int read_header(int fd, const char *what, struct ntx_err *err)
{
    struct ntx_gguf *g;
    int rc = ntx_gguf_open(&fd, 1, NULL, &g, err);
    if (!rc)
        ntx_gguf_free(g);
    if (rc)
        ntx_err_prefix(err, what);
    return rc;
}

static int read_headers(const struct ntx_loaded *l, const struct ntx_load_request *r, struct ntx_err *err)
{
    struct ntx_gguf *g;
    struct ntx_facts facts;
    int rc = ntx_gguf_open(l->fds, l->n_files, (const char *const *)l->names, &g, err);
    if (rc)
        return rc;
    ntx_facts_read(g, l->fds, &facts); /* its samples show whether the drive gives weights, too */
    for (unsigned i = 0; i < r->n_drafters && !rc && !ntx_draft_auto(r->set.draft);
         i++) { /* a drafter of the card is checked later, and left out if it does not suit */
        enum ntx_drafter_file_kind kind;
        struct ntx_drafter_needs needs;
        rc = ntx_drafter_file_look(r->drafter_fd[i], g, 1, 1, &kind, &needs, err);
        if (rc)
            ntx_draft_blame(r->set.draft, ntx_draft_came(r->set.draft, r->n_drafters, i), err);
    }
    ntx_gguf_free(g);
    if (!rc && r->projector_fd >= 0)
        rc = read_header(r->projector_fd, "the projector", err);
    return rc || r->sidecar_fd < 0 ? rc : read_header(r->sidecar_fd, "the sidecar", err);
}

/* Checks the files. The descriptors stay open, since the process ends soon. */
static int check_files(struct receiver *t, bool foreign, struct ntx_err *err)
{
    static struct ntx_loaded l;
    struct ntx_load_request *r;
    int rc = t->load ? ntx_load_request_check(t->load, t->n, err) : ntx_err_set(err, -EBADMSG, "no load");
    if (!rc)
        rc = ntx_load_request_new(t->load, t->fds, t->n, &r, err);
    for (unsigned i = 0; !rc && foreign && i < t->n; i++) {
        const char *name = t->fds[i] == r->sidecar_fd ? "the sidecar" : "the drafter";
        name = t->fds[i] == r->projector_fd ? "the projector" : name;
        rc = check_kind(t->fds[i], i < r->n_files ? r->names[i] : name, err);
    }
    if (!rc)
        rc = ntx__load_files(r, &l, err);
    return rc ? rc : read_headers(&l, r, err);
}

int ntx_receiver_main(int conn)
{
    static struct receiver t;
    struct ntx_receiver_order order;
    struct ntx_receiver_verdict v = {0};
    struct ntx_err err = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "ntx-take");
    if ((conn && take_request(&t)) || take_order(&t, &order))
        return 1;
    v.rc = check_files(&t, order.foreign, &err);
    snprintf(v.text, sizeof v.text, "%s", err.text);
    return ntx_send_fds(NTX_RECEIVER_SOCK, &v, sizeof v, t.fds, v.rc ? 0 : t.n) ? 1 : 0;
}
