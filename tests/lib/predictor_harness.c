/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/emulated.h"
#include "tests/lib/predictor_harness.h"

#include <errno.h>
#include <fcntl.h>
#include <ntx_version.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/lib/check.h"
#include "tests/lib/patient.h"
#include "tests/lib/temporary.h"

#define DEADLINE_NS 20000000000ull

static uint64_t first_word(ProtobufCBinaryData b)
{
    uint64_t v = 0;
    for (size_t i = 0; i < b.len && i < 8; i++)
        v |= (uint64_t)b.data[i] << 8 * i;
    return v;
}

static void on_predictor(void *ctx, const Ntx__Peer *m)
{
    struct harness *h = ctx;
    if (m->body_case == NTX__PEER__BODY_HELLO) {
        CHECK_STR(m->hello->role, "predictor");
        CHECK_EQ(m->hello->instance, h->instance);
        snprintf(h->build, sizeof h->build, "%s", m->hello->build);
        h->hellos++;
    } else if (m->body_case == NTX__PEER__BODY_POLICY_STATE) {
        snprintf(h->policy, sizeof h->policy, "%s", m->policy_state->policy);
        snprintf(h->error, sizeof h->error, "%s", m->policy_state->error);
        h->skips = m->policy_state->skips;
        h->probe_layer = m->policy_state->probe_layer;
        h->states++;
    } else if (m->body_case == NTX__PEER__BODY_DECISION) {
        const Ntx__Decision *d = m->decision;
        CHECK(h->decisions < sizeof h->decision / sizeof *h->decision);
        h->decision[h->decisions++] = (struct harness_decision){
            d->index, d->gen, d->row, d->pass, first_word(d->skip), ntx_now_ns()};
    }
}

static void on_iod(void *ctx, const Ntx__Peer *m)
{
    struct harness *h = ctx;
    CHECK_EQ(m->body_case, NTX__PEER__BODY_HINT);
    h->hint_pass = m->hint->pass;
    h->hint_skip = first_word(m->hint->skip);
    h->hints++;
}

static void listen_on(struct harness *h)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/region.sock", h->dir);
    h->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(h->listener >= 0);
    CHECK_EQ(bind(h->listener, (struct sockaddr *)&a, sizeof a), 0);
    CHECK_EQ(listen(h->listener, 4), 0);
}

void harness_start(struct harness *h) { harness_start_for(h, HARNESS_LAYERS, 32); }

void harness_start_for(struct harness *h, uint32_t n_layers, uint32_t n_embd)
{
    struct ntx_region_geometry g = {
        .block = 4096, .n_files = 1, .n_layers = n_layers, .n_embd = n_embd, .n_probes = 8, .epoch = HARNESS_EPOCH};
    struct ntx_err err = {0};
    char note[256];
    *h = (struct harness){.listener = -1, .sock = -1, .sidecar = -1, .model = ""};
    skip_if_emulated();
    temporary_dir(h->dir, sizeof h->dir, "test");
    CHECK_EQ(uv_loop_init(&h->loop), 0);
    CHECK_MSG(ntx_region_create(&g, &h->region, note, sizeof note, &err) == 0, "%s", err.text);
    CHECK_MSG(ntx_counters_create(h->dir, &h->counters, &h->counters_fd, &err) == 0, "%s", err.text);
    h->wake_fd = eventfd(0, EFD_CLOEXEC);
    CHECK(h->wake_fd >= 0);
    CHECK_EQ(pipe2(h->alive, O_CLOEXEC), 0);
    listen_on(h);
}

static void exec_predictor(const struct harness *h)
{
    char path[512], fd[16];
    const char *bin = getenv("NTX_BIN");
    snprintf(path, sizeof path, "%s/ntx-predictor", bin ? bin : "build/bin");
    snprintf(fd, sizeof fd, "%d", h->alive[0]);
    fcntl(h->alive[0], F_SETFD, 0);
    execl(path, "ntx-predictor", "--runtime", h->dir, "--alive-fd", fd, (char *)NULL);
    _exit(127);
}

bool harness_recv(struct harness *h, struct ntx_attach_msg *m)
{
    int fds[NTX_ATTACH_MAX_FDS], rc;
    unsigned n;
    struct pollfd p = {h->sock, POLLIN, 0};
    CHECK(poll(&p, 1, (int)(DEADLINE_NS / 1000000)) == 1);
    rc = ntx_attach_recv(h->sock, m, fds, &n);
    CHECK(rc >= 0);
    CHECK_EQ(n * (unsigned)rc, 0); /* a worker passes no descriptors */
    return rc == 1;
}

void harness_spawn(struct harness *h)
{
    char path[128];
    struct ntx_attach_msg m, welcome = {.kind = NTX_AT_WELCOME, .role = NTX_ROLE_PREDICTOR};
    struct pollfd p = {h->listener, POLLIN, 0};
    h->instance++;
    ntx_count(h->counters, NTX_C_pred_starts, 1);
    ntx_link_address(path, sizeof path, h->dir, "cp", h->instance, 0);
    CHECK_EQ(ntx_link_open(&h->loop, path, true, on_predictor, h, &h->link, NULL), 0);
    ntx_link_set_epoch(h->link, HARNESS_EPOCH);
    h->pid = fork();
    CHECK(h->pid >= 0);
    if (!h->pid)
        exec_predictor(h);
    CHECK(poll(&p, 1, (int)(DEADLINE_NS / 1000000)) == 1);
    h->sock = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(h->sock >= 0);
    CHECK(harness_recv(h, &m));
    CHECK_EQ(m.kind, NTX_AT_HELLO);
    CHECK_EQ(m.role, NTX_ROLE_PREDICTOR);
    CHECK_EQ(m.pid, h->pid);
    CHECK_STR(m.build, NTX_BUILD);
    welcome.instance = h->instance;
    CHECK_EQ(ntx_attach_send(h->sock, &welcome, &h->counters_fd, 1), 0);
}

void harness_attach(struct harness *h)
{
    struct ntx_attach_msg m = {.kind = NTX_AT_ATTACH, .role = NTX_ROLE_PREDICTOR, .epoch = HARNESS_EPOCH, .n_files = 1};
    int fds[2] = {h->region.board.part.fd,
                  /* wake_fd is no sidecar, but only learned policies read it */
                  h->sidecar >= 0 ? h->sidecar : h->wake_fd};
    CHECK_EQ(ntx_attach_send(h->sock, &m, fds, 2), 0);
    CHECK(harness_recv(h, &m));
    CHECK_EQ(m.kind, NTX_AT_ATTACHED);
    CHECK_EQ(m.epoch, HARNESS_EPOCH);
    CHECK_EQ(m.ring_fd, -1);
    CHECK_STR(m.text, "");
}

void harness_wait(struct harness *h, const unsigned *count, unsigned want)
{
    uint64_t end = ntx_now_ns() + patient_ns(DEADLINE_NS);
    while (*count < want) {
        CHECK_MSG(ntx_now_ns() < end, "%u of %u", *count, want);
        uv_run(&h->loop, UV_RUN_NOWAIT);
    }
    CHECK_EQ(*count, want);
}

void harness_run(struct harness *h, unsigned ms)
{
    for (uint64_t end = ntx_now_ns() + ms * 1000000ull; ntx_now_ns() < end;)
        uv_run(&h->loop, UV_RUN_NOWAIT);
}

static void send_policy(struct harness *h, const char *policy, const char *fault)
{
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__PolicySet p = NTX__POLICY_SET__INIT;
    m.body_case = NTX__PEER__BODY_POLICY_SET;
    m.policy_set = &p;
    p.policy = (char *)policy;
    p.fault = (char *)fault;
    p.model = (char *)h->model;
    CHECK_EQ(ntx_link_send(h->link, &m), 0);
}

void harness_policy(struct harness *h, const char *policy, const char *fault)
{
    h->hellos = 0;
    unsigned states = h->states;
    /* on a busy machine two may come at once */
    for (uint64_t end = ntx_now_ns() + patient_ns(DEADLINE_NS); !h->hellos; uv_run(&h->loop, UV_RUN_NOWAIT))
        CHECK(ntx_now_ns() < end);
    CHECK_STR(h->build, NTX_BUILD);
    send_policy(h, policy, fault);
    harness_wait(h, &h->states, states + 1);
}

/* As computed does, since a worker cannot remove its bound socket. */
static void unlink_pair(struct harness *h)
{
    if (h->pair[0])
        unlink(h->pair);
    h->pair[0] = 0;
}

void harness_peers(struct harness *h, uint32_t iod_instance)
{
    char path[128];
    struct ntx_attach_msg m = {.kind = NTX_AT_PEERS, .iod_instance = iod_instance, .predictor_instance = h->instance};
    CHECK_EQ(ntx_attach_send(h->sock, &m, NULL, 0), 0);
    ntx_link_close(h->iod);
    unlink_pair(h);
    ntx_link_address(path, sizeof path, h->dir, "pi", h->instance, iod_instance);
    strcpy(h->pair, path);
    CHECK_EQ(ntx_link_open(&h->loop, path, false, on_iod, h, &h->iod, NULL), 0);
    ntx_link_set_epoch(h->iod, HARNESS_EPOCH);
}

void harness_show(struct harness *h, uint32_t index, uint32_t gen, uint64_t pass, uint32_t row)
{
    struct ntx_probe *p = &h->region.board.probe[index];
    p->row = row;
    p->pass = pass;
    p->layer = 0;
    atomic_store(&p->word, ntx_word(gen, NTX_READY));
}

void harness_notice(struct harness *h, uint32_t index, uint32_t gen, uint64_t pass)
{
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__ProbeNotice p = NTX__PROBE_NOTICE__INIT;
    m.body_case = NTX__PEER__BODY_PROBE;
    m.probe = &p;
    p.index = index;
    p.gen = gen;
    p.pass = pass;
    CHECK_EQ(ntx_link_send(h->link, &m), 0);
}

int harness_reap(struct harness *h)
{
    int status, fd = (int)syscall(SYS_pidfd_open, h->pid, 0);
    struct pollfd p = {fd, POLLIN, 0};
    CHECK_MSG(poll(&p, 1, (int)(DEADLINE_NS / 1000000)) == 1, "ntx-predictor does not end");
    close(fd);
    CHECK_EQ(waitpid(h->pid, &status, 0), h->pid);
    h->pid = 0;
    ntx_link_close(h->link);
    h->link = NULL;
    if (h->sock >= 0)
        close(h->sock);
    h->sock = -1;
    return status;
}

void harness_end(struct harness *h)
{
    char path[128];
    if (h->pid) {
        kill(h->pid, SIGTERM);
        int status = harness_reap(h);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    ntx_link_close(h->iod);
    unlink_pair(h);
    CHECK_EQ(uv_run(&h->loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(uv_loop_close(&h->loop), 0);
    close(h->listener);
    snprintf(path, sizeof path, "%s/region.sock", h->dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/counters", h->dir);
    unlink(path);
    ntx_counters_close(h->counters);
    ntx_region_close(&h->region);
    close(h->counters_fd);
    close(h->wake_fd);
    close(h->alive[0]);
    if (h->alive[1] >= 0)
        close(h->alive[1]);
    CHECK_MSG(rmdir(h->dir) == 0, "%s is not empty", h->dir);
}
