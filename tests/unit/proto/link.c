/* SPDX-License-Identifier: Apache-2.0 */
/* A link against a raw nanomsg socket: delivered, dropped and refused messages, and its end. */
#include "proto/link.h"

#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/pair.h>
#include <sys/stat.h>

#include "common/util.h"
#include "tests/lib/check.h"
#include "tests/lib/patient.h"
#include "tests/unit/proto/dir.h"

/* nanomsg 1.1 loses one block when a bind fails; test_refusals makes one fail. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:nn_bipc_create"; }

static uv_loop_t loop;
static struct ntx_link *link_;
static unsigned got;
static uint64_t last_seq;
static bool close_in_callback;

static void on_message(void *ctx, const Ntx__Peer *m)
{
    CHECK(ctx == &loop);
    got++;
    last_seq = m->seq;
    if (close_in_callback) {
        ntx_link_close(link_);
        link_ = NULL;
    }
}

/* Runs the loop until `n` messages were delivered in all, at most 30 s. */
static void run_until(unsigned n)
{
    uint64_t end = ntx_now_ns() + patient_ns(30000000000u);
    while (got < n) {
        CHECK_MSG(ntx_now_ns() < end, "%u of %u messages", got, n);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    CHECK_EQ(got, n);
}

static void send_bytes(int s, const void *buf, size_t len) { CHECK_EQ(nn_send(s, buf, len, 0), (int)len); }

static void send_peer(int s, uint64_t epoch, uint64_t seq, bool hello)
{
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__Hello h = NTX__HELLO__INIT;
    Ntx__Hint hint = NTX__HINT__INIT;
    uint8_t buf[256];
    m.epoch = epoch;
    m.seq = seq;
    m.body_case = hello ? NTX__PEER__BODY_HELLO : NTX__PEER__BODY_HINT;
    if (hello)
        m.hello = &h;
    else
        m.hint = &hint;
    h.role = (char *)"iod";
    h.instance = 3;
    send_bytes(s, buf, ntx__peer__pack(&m, buf));
}

static void test_delivery(int s)
{
    send_peer(s, 0, 1, true); /* before any model */
    run_until(1);
    ntx_link_set_epoch(link_, 7);
    send_peer(s, 7, 5, false);
    run_until(2);
    CHECK_EQ(last_seq, 5);
    send_peer(s, 7, 5, false);            /* seen */
    send_peer(s, 7, 4, false);            /* older */
    send_peer(s, 6, 6, false);            /* another region's */
    send_bytes(s, "\xff\xff\xff\xff", 4); /* not a message */
    send_bytes(s, "", 0);                 /* no body */
    send_peer(s, 6, 7, true);             /* Hello of any epoch */
    send_peer(s, 7, 8, false);
    run_until(4);
    CHECK_EQ(last_seq, 8);
}

static void test_send(int s)
{
    Ntx__Peer m = NTX__PEER__INIT, *back;
    Ntx__PolicySet p = NTX__POLICY_SET__INIT;
    m.body_case = NTX__PEER__BODY_POLICY_SET;
    m.policy_set = &p;
    for (uint64_t seq = 1; seq <= 3; seq++) {
        void *buf;
        CHECK_EQ(ntx_link_send(link_, &m), 0);
        int n = nn_recv(s, &buf, NN_MSG, 0);
        CHECK(n > 0);
        back = ntx__peer__unpack(NULL, (size_t)n, buf);
        CHECK(back && back->epoch == 7 && back->seq == seq);
        ntx__peer__free_unpacked(back, NULL);
        nn_freemsg(buf);
    }
    char *big = calloc(1, NTX_LINK_MAX + 1);
    CHECK(big != NULL);
    memset(big, 'x', NTX_LINK_MAX);
    p.policy = big;
    CHECK_EQ(ntx_link_send(link_, &m), -EMSGSIZE);
    free(big);
}

/* Without a peer, or with one that does not read, send never blocks. */
static void test_would_block(const char *dir)
{
    char path[128];
    struct ntx_link *l;
    struct ntx_err err;
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__Hint hint = NTX__HINT__INIT;
    m.body_case = NTX__PEER__BODY_HINT;
    m.hint = &hint;
    ntx_link_address(path, sizeof path, dir, "pi", 4, 5);
    CHECK(strstr(path, "/pi.4.5"));
    CHECK_EQ(ntx_link_open(&loop, path, false, on_message, &loop, &l, &err), 0); /* nobody binds it */
    CHECK_EQ(ntx_link_send(l, &m), -EAGAIN);
    ntx_link_close(l);

    /* Connected, but the other side never receives. */
    unsigned sent = 0;
    uint64_t end = ntx_now_ns() + patient_ns(30000000000u);
    while (ntx_link_send(link_, &m) == 0) {
        CHECK(ntx_now_ns() < end);
        sent++;
    }
    CHECK(sent > 0);
}

static void test_refusals(void)
{
    char dir[200], path[256], small[8];
    struct ntx_link *l = NULL;
    struct ntx_err err;
    memset(dir, 'd', sizeof dir - 1);
    dir[sizeof dir - 1] = 0;
    ntx_link_address(path, sizeof path, dir, "ci", 1, 0);
    CHECK_EQ(ntx_link_open(&loop, path, true, on_message, NULL, &l, &err), -ENAMETOOLONG);
    CHECK(strstr(err.text, "too long"));
    ntx_link_address(small, sizeof small, dir, "ci", 1, 0);
    CHECK_EQ(small[0], 0);
    CHECK_EQ(ntx_link_open(&loop, small, true, on_message, NULL, &l, &err), -ENAMETOOLONG);
    CHECK(ntx_link_open(&loop, "/nonexistent/x", true, on_message, NULL, &l, &err) < 0);
    CHECK(strstr(err.text, "/nonexistent/x"));
    CHECK(l == NULL);
}

int main(void)
{
    char dir[64], path[128], url[160];
    struct ntx_err err;
    struct stat st;
    make_dir(dir);
    CHECK_EQ(uv_loop_init(&loop), 0);
    ntx_link_address(path, sizeof path, dir, "ci", 3, 0);
    CHECK(!strcmp(path + strlen(dir), "/ci.3"));
    CHECK_EQ(ntx_link_open(&loop, path, true, on_message, &loop, &link_, &err), 0);
    CHECK_EQ(stat(path, &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0600);

    int s = nn_socket(AF_SP, NN_PAIR);
    CHECK(s >= 0);
    snprintf(url, sizeof url, "ipc://%s", path);
    CHECK(nn_connect(s, url) >= 0);
    test_delivery(s);
    test_send(s);
    test_would_block(dir);
    test_refusals();

    close_in_callback = true;
    send_peer(s, 7, 100, false);
    send_peer(s, 7, 101, false); /* in the same wake: not delivered any more */
    run_until(5);
    CHECK_EQ(last_seq, 100);
    ntx_link_close(NULL);
    CHECK_EQ(uv_run(&loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(uv_loop_close(&loop), 0); /* no handle is left */
    nn_close(s);
    drop_dir(dir); /* the bound address is gone */
    return 0;
}
