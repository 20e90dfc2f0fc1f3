/* SPDX-License-Identifier: Apache-2.0 */
/* computed's side of its workers, with real processes on the other side: this program starts itself as `--worker`. */
#include "computed/workers/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <ntx_version.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/link.h"
#include "tests/lib/emulated.h"
#include "tests/unit/shm/make_region.h"
#include "tests/lib/temporary.h"
#include "tests/lib/patient.h"

/* ---- the worker */

struct child {
    uv_loop_t loop;
    uv_poll_t poll;
    uv_timer_t hello;
    enum ntx_role role;
    const char *mode;
    int sock;
    uint32_t instance;
    struct ntx_link *link;
    struct ntx_counters *counters;
    struct ntx_region region; /* iod */
    struct ntx_board board;   /* predictor */
    bool configured;
};

static void child_link(void *ctx, const Ntx__Peer *m)
{
    struct child *c = ctx;
    Ntx__Peer answer = NTX__PEER__INIT;
    Ntx__IodError e = NTX__IOD_ERROR__INIT;
    CHECK_EQ(m->body_case, NTX__PEER__BODY_IOD_CONFIG);
    CHECK_EQ(m->epoch, c->role == NTX_ROLE_IOD ? c->region.hdr->epoch : c->board.epoch);
    c->configured = true;
    answer.body_case = NTX__PEER__BODY_IOD_ERROR;
    answer.iod_error = &e;
    e.text = m->iod_config->source;
    CHECK_EQ(ntx_link_send(c->link, &answer), 0);
}

static void child_hello(uv_timer_t *t)
{
    struct child *c = t->data;
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__Hello h = NTX__HELLO__INIT;
    m.body_case = NTX__PEER__BODY_HELLO;
    m.hello = &h;
    h.role = (char *)(c->role == NTX_ROLE_IOD ? "iod" : "predictor");
    h.instance = c->instance;
    h.build = (char *)NTX_BUILD;
    if (!c->configured)
        ntx_link_send(c->link, &m);
}

/* A worker cannot write the parts that it must only read, whatever it tries. */
static void cannot_write(int fd)
{
    char path[64], byte = 1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR | O_CLOEXEC); /* the same file, opened anew for writing */
    for (int i = 0; i < 2; i++) {
        int f = i ? again : fd;
        CHECK(f >= 0 && pwrite(f, &byte, 1, 0) < 0 && errno == EPERM);
        CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0) == MAP_FAILED && errno == EPERM);
        CHECK(ftruncate(f, 0) < 0 && errno == EPERM);
        CHECK(fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0 && errno == EPERM);
        CHECK(fcntl(f, F_ADD_SEALS, F_SEAL_GROW) < 0 && errno == EPERM);
    }
    close(again);
}

static void cannot_become_writable(void *at)
{
    CHECK(mprotect(at, 4096, PROT_READ | PROT_WRITE) < 0 && errno == EACCES);
}

/* iod gets the region and the model; the predictor gets the probe board and no file. */
static void child_attach(struct child *c, const struct ntx_attach_msg *m, int *fds, unsigned n)
{
    struct ntx_attach_msg a = {.kind = NTX_AT_ATTACHED, .role = c->role, .epoch = m->epoch, .ring_fd = -1};
    bool iod = c->role == NTX_ROLE_IOD;
    char byte = 0;
    CHECK_EQ(n, iod ? NTX_IOD_FDS + 1 : NTX_PREDICTOR_FDS);
    CHECK_EQ(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
    cannot_write(fds[0]);
    if (iod) {
        cannot_write(fds[NTX_REGION_CONTROL]);
        CHECK_EQ(ntx_region_attach(fds, &c->region, NULL), 0);
        cannot_become_writable(c->region.control);
        CHECK_EQ(c->region.hdr->epoch, m->epoch);
        CHECK(pread(fds[NTX_IOD_FDS], &byte, 1, 0) == 1 && byte == 'M');
    } else {
        CHECK_EQ(ntx_board_attach(fds[0], &c->board, NULL), 0);
        cannot_become_writable(c->board.part.at);
        CHECK_EQ(c->board.epoch, m->epoch);
        CHECK_EQ(c->board.n_embd, 100);
    }
    ntx_count(c->counters, NTX_C_iod_reads, 1);
    if (!strcmp(c->mode, "cannot"))
        strcpy(a.text, "no room for the region");
    ntx_link_set_epoch(c->link, m->epoch);
    CHECK_EQ(ntx_attach_send(c->sock, &a, NULL, 0), 0);
    uv_timer_start(&c->hello, child_hello, 0, 20);
}

static void child_detach(struct child *c, const struct ntx_attach_msg *m)
{
    struct ntx_attach_msg a = {.kind = NTX_AT_DETACHED, .role = c->role, .epoch = m->epoch};
    if (!strcmp(c->mode, "deaf"))
        return;
    ntx_region_close(&c->region);
    ntx_board_close(&c->board);
    ntx_link_set_epoch(c->link, 0); /* an answer that is still under way is stale */
    uv_timer_stop(&c->hello);
    c->configured = false;
    CHECK_EQ(ntx_attach_send(c->sock, &a, NULL, 0), 0);
}

static void child_socket(uv_poll_t *h, int status, int events)
{
    struct child *c = h->data;
    struct ntx_attach_msg m;
    int fds[NTX_ATTACH_MAX_FDS], rc;
    unsigned n;
    (void)status;
    (void)events;
    while ((rc = ntx_attach_recv(c->sock, &m, fds, &n)) > 0) {
        if (m.kind == NTX_AT_ATTACH)
            child_attach(c, &m, fds, n);
        else if (m.kind == NTX_AT_DETACH)
            child_detach(c, &m);
        else
            CHECK_EQ(m.kind, NTX_AT_PEERS);
        if (m.kind == NTX_AT_ATTACH && !strcmp(c->mode, "leaves")) {
            uv_poll_stop(h);
            close(c->sock);
            pause(); /* it stays until it is killed */
        }
    }
    if (rc == 0)
        exit(0);
    CHECK_EQ(rc, -EAGAIN);
}

static int worker(const char *role, const char *dir, const char *mode)
{
    struct child c = {.role = strcmp(role, "iod") ? NTX_ROLE_PREDICTOR : NTX_ROLE_IOD, .mode = mode};
    char address[128];
    struct ntx_err err;
    int counters;
    c.sock = ntx_attach_connect(dir, c.role, 5000, &c.instance, &counters, &err);
    if (c.sock < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 40;
    }
    uv_loop_init(&c.loop);
    c.poll.data = c.hello.data = &c;
    CHECK_EQ(ntx_counters_map(counters, &c.counters, &err), 0);
    ntx_link_address(address, sizeof address, dir, c.role == NTX_ROLE_IOD ? "ci" : "cp", c.instance, 0);
    CHECK_EQ(ntx_link_open(&c.loop, address, false, child_link, &c, &c.link, &err), 0);
    uv_timer_init(&c.loop, &c.hello);
    CHECK_EQ(uv_poll_init(&c.loop, &c.poll, c.sock), 0);
    CHECK_EQ(uv_poll_start(&c.poll, UV_READABLE, child_socket), 0);
    uv_run(&c.loop, UV_RUN_DEFAULT);
    return 0;
}

/* ---- computed */

struct parent {
    uv_loop_t loop;
    uv_timer_t tick;
    const char *self;
    char dir[40];
    struct ntx_workers *w;
    struct ntx_counters *counters;
    struct ntx_region region;
    int counters_fd, wake_fd, model_fd;
    unsigned admitted[3], hello[3], message[3], died[3], drained, detached, failed;
    uint32_t instance[3];
    char text[64];
};

static void on_admitted(void *ctx, enum ntx_role role)
{
    struct parent *p = ctx;
    CHECK(ntx_workers_present(p->w, role));
    p->admitted[role]++;
}

static void on_hello(void *ctx, enum ntx_role role, uint32_t instance)
{
    struct parent *p = ctx;
    CHECK(p->admitted[role] == p->died[role] + 1);
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__IodConfig c = NTX__IOD_CONFIG__INIT;
    p->hello[role]++;
    p->instance[role] = instance;
    m.body_case = NTX__PEER__BODY_IOD_CONFIG;
    m.iod_config = &c;
    c.source = (char *)"auto";
    CHECK_EQ(ntx_workers_send(p->w, role, &m), 0);
}

static void on_message(void *ctx, enum ntx_role role, const Ntx__Peer *m)
{
    struct parent *p = ctx;
    CHECK_EQ(m->body_case, NTX__PEER__BODY_IOD_ERROR);
    CHECK_STR(m->iod_error->text, "auto");
    p->message[role]++;
}

static void on_died(void *ctx, enum ntx_role role)
{
    struct parent *p = ctx;
    CHECK(!ntx_workers_present(p->w, role));
    p->died[role]++;
}

static void on_drained(void *ctx) { ((struct parent *)ctx)->drained++; }
static void on_detached(void *ctx) { ((struct parent *)ctx)->detached++; }

static void on_failed(void *ctx, enum ntx_role role, const char *text)
{
    struct parent *p = ctx;
    (void)role;
    p->failed++;
    snprintf(p->text, sizeof p->text, "%s", text);
}

static void on_tick(uv_timer_t *t) { (void)t; }

/* Runs the loop until the condition holds. */
#define UNTIL(p, cond)                                                                                                 \
    for (uint64_t end_ = ntx_now_ns() + patient_ns(20000000000u); !(cond);) {                                          \
        CHECK_MSG(ntx_now_ns() < end_, "%s did not come about", #cond);                                                \
        uv_run(&(p)->loop, UV_RUN_ONCE);                                                                               \
    }

static pid_t start_as(struct parent *p, const char *role, const char *mode, uid_t uid)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        if (uid && setresuid(uid, uid, uid))
            _exit(41);
        execl(p->self, p->self, "--worker", role, p->dir, mode, (char *)NULL);
        _exit(42);
    }
    return pid;
}

static pid_t start(struct parent *p, const char *role, const char *mode) { return start_as(p, role, mode, 0); }

/* Runs the loop until the process ends; returns its status. */
static int finish(struct parent *p, pid_t pid)
{
    int status = 0;
    UNTIL(p, waitpid(pid, &status, WNOHANG) == pid);
    return status;
}

static void set_up(struct parent *p)
{
    static const struct shape shape = {
        .n_layers = 2, .per_layer = 3, .n_desc = 2, .n_slots = 3, .n_demands = 1, .chunk_bytes = 9000};
    struct ntx_workers_cb cb = {.ctx = p,
                                .admitted = on_admitted,
                                .hello = on_hello,
                                .message = on_message,
                                .died = on_died,
                                .drained = on_drained,
                                .detached = on_detached,
                                .attach_failed = on_failed};
    struct ntx_err err = {0};
    temporary_dir(p->dir, sizeof p->dir, "workers");
    uv_loop_init(&p->loop);
    uv_timer_init(&p->loop, &p->tick);
    uv_timer_start(&p->tick, on_tick, 20, 20);
    CHECK_EQ(ntx_counters_create(p->dir, &p->counters, &p->counters_fd, &err), 0);
    make_region(&shape, &p->region);
    p->wake_fd = eventfd(0, EFD_CLOEXEC);
    p->model_fd = memfd_create("model", MFD_CLOEXEC);
    CHECK_EQ(write(p->model_fd, "M", 1), 1);
    CHECK_MSG(!ntx_workers_new(&p->loop, p->dir, p->counters_fd, p->counters, &cb, &p->w, &err), "%s", err.text);
}

static int offer(struct parent *p) { return ntx_workers_attach(p->w, &p->region, p->wake_fd, &p->model_fd, 1); }

static void tear_down(struct parent *p)
{
    char command[80];
    ntx_workers_free(p->w);
    uv_close((uv_handle_t *)&p->tick, NULL);
    uv_run(&p->loop, UV_RUN_DEFAULT);
    CHECK_EQ(uv_loop_close(&p->loop), 0);
    ntx_counters_close(p->counters);
    ntx_region_close(&p->region);
    close(p->counters_fd);
    close(p->wake_fd);
    close(p->model_fd);
    snprintf(command, sizeof command, "rm -r %s", p->dir);
    CHECK(!system(command));
}

static bool both(const struct parent *p, const unsigned *what, unsigned n)
{
    return (void)p, what[1] >= n && what[2] >= n;
}

/* ---- cases */

static void test_life(const char *self)
{
    struct parent p = {.self = self};
    Ntx__Peer m = NTX__PEER__INIT;
    struct stat st;
    char path[64];
    set_up(&p);
    snprintf(path, sizeof path, "%s/region.sock", p.dir);
    CHECK(!stat(path, &st));
    CHECK_EQ(st.st_mode & 0777, 0600);
    CHECK_EQ(ntx_workers_send(p.w, NTX_ROLE_IOD, &m), -ENOTCONN);

    pid_t iod = start(&p, "iod", "good"); /* iod starts before the model is there, the predictor after */
    UNTIL(&p, ntx_workers_present(p.w, NTX_ROLE_IOD));
    CHECK_EQ(offer(&p), 0);
    CHECK_EQ(offer(&p), -EBUSY);
    pid_t predictor = start(&p, "predictor", "good");
    UNTIL(&p, both(&p, p.message, 1));
    CHECK(both(&p, p.hello, 1));
    CHECK_EQ(ntx_counter_get(p.counters, NTX_C_iod_reads), 2);
    CHECK_EQ(ntx_counter_get(p.counters, NTX_C_iod_starts), 1);

    /* a second iod is refused while the first lives */
    CHECK_EQ(finish(&p, start(&p, "iod", "good")), 40 << 8);
    CHECK_EQ(p.died[NTX_ROLE_IOD], 0);

    /* killed, reaped or a zombie, before computed has looked: computed sees the death and the successor at once */
    for (unsigned i = 1; i <= 10; i++) {
        uint32_t old = p.instance[NTX_ROLE_IOD];
        unsigned hello = p.hello[NTX_ROLE_IOD];
        kill(iod, SIGKILL);
        siginfo_t info;
        CHECK_EQ(waitid(P_PID, (id_t)iod, &info, WEXITED | (i & 1 ? 0 : WNOWAIT)), 0);
        pid_t next = start(&p, "iod", "good");
        UNTIL(&p, p.hello[NTX_ROLE_IOD] > hello);
        CHECK_EQ(p.died[NTX_ROLE_IOD], i);
        CHECK_EQ(p.drained, i); /* it had no ring, so no read was in flight */
        CHECK(p.instance[NTX_ROLE_IOD] > old);
        if (!(i & 1))
            CHECK_EQ(waitpid(iod, NULL, 0), iod);
        iod = next;
    }
    CHECK_EQ(p.died[NTX_ROLE_PREDICTOR], 0);
    CHECK_EQ(ntx_counter_get(p.counters, NTX_C_iod_starts), 11);

    /* the next model uses the same workers */
    ntx_workers_detach(p.w);
    CHECK_EQ(p.detached, 0);
    CHECK_EQ(offer(&p), -EBUSY);
    UNTIL(&p, p.detached == 1);
    unsigned hello = p.hello[NTX_ROLE_IOD] + 1, hello2 = p.hello[NTX_ROLE_PREDICTOR] + 1;
    p.region.hdr->epoch++;
    ((struct ntx_board_hdr *)p.region.board.part.at)->epoch++;
    CHECK_EQ(ntx_region_publish(&p.region, NULL), 0);
    CHECK_EQ(offer(&p), 0);
    UNTIL(&p, p.hello[NTX_ROLE_IOD] >= hello && p.hello[NTX_ROLE_PREDICTOR] >= hello2);

    /* a worker dies while it should detach */
    kill(predictor, SIGSTOP);
    ntx_workers_detach(p.w);
    UNTIL(&p, p.detached >= 1); /* 2 on a machine that rests for seconds: a worker that does not let go is ended */
    kill(predictor, SIGKILL);
    UNTIL(&p, p.detached == 2);
    CHECK_EQ(p.died[NTX_ROLE_PREDICTOR], 1);
    CHECK_EQ(waitpid(predictor, NULL, 0), predictor);

    tear_down(&p);
    int status;
    CHECK_EQ(waitpid(iod, &status, 0), iod); /* it saw the end of its socket */
    CHECK_EQ(status, 0);
}

/* The worker closes its socket but stays: computed kills it, and reports its death when it is gone. */
static void test_leaver(const char *self)
{
    struct parent p = {.self = self};
    set_up(&p);
    CHECK_EQ(offer(&p), 0);
    pid_t pid = start(&p, "iod", "leaves");
    UNTIL(&p, p.died[NTX_ROLE_IOD] == 1);
    int status;
    CHECK_EQ(waitpid(pid, &status, WNOHANG), pid); /* a zombie already, not some time later */
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    tear_down(&p);
}

static void test_cannot(const char *self)
{
    struct parent p = {.self = self};
    set_up(&p);
    CHECK_EQ(offer(&p), 0);
    pid_t pid = start(&p, "iod", "cannot");
    UNTIL(&p, p.failed == 1);
    CHECK_STR(p.text, "no room for the region");
    ntx_workers_detach(p.w); /* no worker holds it */
    UNTIL(&p, p.detached == 1);
    CHECK_EQ(p.hello[NTX_ROLE_IOD], 0);
    tear_down(&p);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

static void test_deaf(const char *self)
{
    struct parent p = {.self = self};
    set_up(&p);
    CHECK_EQ(offer(&p), 0);
    pid_t pid = start(&p, "predictor", "deaf");
    UNTIL(&p, p.hello[NTX_ROLE_PREDICTOR]);
    ntx_workers_detach(p.w);
    UNTIL(&p, p.detached == 1);
    CHECK_EQ(p.died[NTX_ROLE_PREDICTOR], 1);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    tear_down(&p);
}

static int raw_connect(const struct parent *p)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/region.sock", p->dir);
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(!connect(s, (struct sockaddr *)&a, sizeof a));
    return s;
}

/* The answer to these bytes: the text of a refusal, or "" for a closed connection. */
static void provoke(struct parent *p, const void *bytes, size_t n, const int *fds, unsigned n_fds, char *text)
{
    struct ntx_attach_msg m = {0};
    int in[102], rc, s = raw_connect(p);
    unsigned n_in;
    CHECK_EQ(ntx_send_fds(s, bytes, n, fds, n_fds), 0);
    UNTIL(p, (rc = ntx_attach_recv(s, &m, in, &n_in)) != -EAGAIN);
    CHECK(rc == 0 || (rc == 1 && m.kind == NTX_AT_REFUSED));
    strcpy(text, rc ? m.text : "");
    close(s);
}

static void test_bad_hellos(const char *self)
{
    struct parent p = {.self = self};
    char text[256];
    uint64_t seed = 5;
    struct ntx_attach_msg hello = {
        .magic = NTX_ATTACH_MAGIC, .version = NTX_ATTACH_VERSION, .kind = NTX_AT_HELLO, .role = NTX_ROLE_IOD, .pid = 1};
    set_up(&p);
    CHECK_EQ(offer(&p), 0);
    strcpy(hello.build, "0.0.1+0123");
    provoke(&p, &hello, sizeof hello, NULL, 0, text);
    CHECK_MSG(strstr(text, "0.0.1+0123") && strstr(text, NTX_BUILD), "%s", text);
    hello.version++;
    provoke(&p, &hello, sizeof hello, NULL, 0, text);
    CHECK_MSG(strstr(text, "version"), "%s", text);
    hello.version--;
    provoke(&p, &hello, sizeof hello - 1, NULL, 0, text);
    CHECK_MSG(strstr(text, "version"), "%s", text);
    provoke(&p, &hello, sizeof hello, &p.model_fd, 1, text); /* a descriptor where none belongs */
    CHECK_MSG(strstr(text, "version"), "%s", text);
    for (int i = 0; i < 300; i++) {
        uint8_t junk[sizeof hello + 8];
        memcpy(junk, &hello, sizeof hello);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        junk[(seed >> 33) % 32] ^= (uint8_t)(1 + (seed >> 40) % 255);
        int s = raw_connect(&p); /* some of these get no answer; they must not do harm */
        CHECK_EQ(ntx_send_fds(s, junk, 1 + (seed >> 20) % sizeof hello, NULL, 0), 0);
        uv_run(&p.loop, UV_RUN_NOWAIT);
        close(s);
        uv_run(&p.loop, UV_RUN_NOWAIT);
    }
    CHECK(!ntx_workers_present(p.w, NTX_ROLE_IOD) && !ntx_workers_present(p.w, NTX_ROLE_PREDICTOR));

    if (!geteuid()) { /* another user is refused even if the socket's mode would let it in */
        char path[64];
        snprintf(path, sizeof path, "%s/region.sock", p.dir);
        CHECK(!chmod(p.dir, 0755));
        CHECK_EQ(finish(&p, start_as(&p, "iod", "good", 65534)) >> 8 > 0, 1);
        CHECK(!chmod(path, 0777));
        CHECK_EQ(finish(&p, start_as(&p, "iod", "good", 65534)) >> 8 > 0, 1);
        CHECK(!ntx_workers_present(p.w, NTX_ROLE_IOD));
    }
    pid_t pid = start(&p, "iod", "good"); /* a good worker is still admitted */
    UNTIL(&p, p.message[NTX_ROLE_IOD]);
    tear_down(&p);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "--worker"))
        return worker(argv[2], argv[3], argv[4]);
    skip_if_emulated();
    test_life(argv[0]);
    test_leaver(argv[0]);
    test_cannot(argv[0]);
    test_bad_hellos(argv[0]);
    test_deaf(argv[0]);
    return 0;
}
