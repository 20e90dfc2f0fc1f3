/* SPDX-License-Identifier: Apache-2.0 */
#include "iod_harness.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <ntx_version.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/lib/check.h"
#include "tests/lib/patient.h"
#include "tests/lib/emulated.h"
#include "tests/lib/temporary.h"

#define DEADLINE_NS 30000000000ull
#define BLOCK       4096u
#define N_LAYERS    500u

/* ---- region */

static void plan(struct harness *h, const struct harness_shape *s, uint32_t n)
{
    struct ntx_region *r = &h->region;
    uint64_t where = r->hdr->off_arena;
    uint32_t sched = 0;
    r->hdr->file_bytes[0] = s->file_bytes;
    for (uint32_t i = 0; i < n; i++) {
        struct ntx_plan_chunk *p = &r->chunks[i];
        p->offset = (uint64_t)i * s->chunk_bytes;
        p->bytes = NTX_MIN(s->chunk_bytes, s->file_bytes - p->offset);
        p->layer = i / 2 % N_LAYERS;
        if (s->host_every && i % s->host_every == 0) {
            p->placement = NTX_PLACE_HOST;
            p->where = where + p->offset % BLOCK;
            where = NTX_ROUND_UP(p->where + p->bytes, BLOCK);
        } else {
            p->placement = NTX_PLACE_STORAGE;
            p->sched = sched;
            r->sched[sched++] = i;
        }
    }
}

static void make_region(struct harness *h, const struct harness_shape *s)
{
    uint32_t n = (uint32_t)((s->file_bytes + s->chunk_bytes - 1) / s->chunk_bytes);
    uint32_t host = s->host_every ? (n + s->host_every - 1) / s->host_every : 0;
    uint64_t slot = NTX_ROUND_UP(s->chunk_bytes, BLOCK) + 2 * BLOCK;
    struct ntx_err err = {0};
    struct ntx_region_geometry g = {
        .block = BLOCK,
        .n_files = 1,
        .n_chunks = n,
        .n_sched = n - host,
        .n_desc = s->n_desc,
        .n_slots = s->n_slots,
        .n_demands = s->n_demands,
        .n_layers = N_LAYERS,
        .n_embd = 1,
        .slot_bytes = slot,
        .frame_bytes = s->frame_bytes,
        .arena_bytes = host * slot,
        .epoch = 42,
    };
    CHECK_MSG(!ntx_region_create(&g, &h->region, h->note, sizeof(h->note), &err), "%s", err.text);
    plan(h, s, n);
    CHECK_EQ(ntx_region_publish(&h->region, &err), 0);
}

void harness_open(struct harness *h, const struct harness_shape *s, int file)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct ntx_err err = {0};
    skip_if_emulated();
    memset(h, 0, sizeof(*h));
    h->sock = h->alive[0] = h->alive[1] = h->ring_dup = -1;
    h->file_fd = file;
    temporary_dir(h->dir, sizeof(h->dir), "iod");
    CHECK_EQ(uv_loop_init(&h->loop), 0);
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/region.sock", h->dir);
    h->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(h->listener >= 0 && !bind(h->listener, (struct sockaddr *)&a, sizeof(a)) && !listen(h->listener, 4));
    CHECK_MSG(!ntx_counters_create(h->dir, &h->counters, &h->counters_fd, &err), "%s", err.text);
    h->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    make_region(h, s);
}

void harness_drop_ring(struct harness *h)
{
    if (h->ring_map)
        munmap(h->ring_map, h->ring.ring_bytes);
    if (h->ring_dup >= 0)
        close(h->ring_dup);
    h->ring_map = NULL;
    h->ring_dup = -1;
}

static void drop_connection(struct harness *h)
{
    ntx_link_close(h->link);
    h->link = NULL;
    int *fds[] = {&h->sock, &h->alive[0], &h->alive[1]};
    for (int i = 0; i < 3; i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
    uv_run(&h->loop, UV_RUN_NOWAIT);
}

void harness_close(struct harness *h)
{
    char path[128];
    if (h->pid) {
        kill(h->pid, SIGKILL);
        harness_wait_exit(h);
    }
    drop_connection(h);
    harness_drop_ring(h);
    uv_run(&h->loop, UV_RUN_DEFAULT);
    CHECK_EQ(uv_loop_close(&h->loop), 0);
    ntx_region_close(&h->region);
    ntx_counters_close(h->counters);
    close(h->counters_fd);
    close(h->wake_fd);
    close(h->file_fd);
    close(h->listener);
    for (const char *const *f = (const char *const[]){"region.sock", "counters", NULL}; *f; f++) {
        snprintf(path, sizeof(path), "%s/%s", h->dir, *f);
        unlink(path);
    }
    CHECK_MSG(!rmdir(h->dir), "%s is not empty", h->dir);
}

/* ---- attach */

static struct ntx_attach_msg receive(struct harness *h, enum ntx_attach_kind kind)
{
    struct ntx_attach_msg m;
    int fds[NTX_ATTACH_MAX_FDS], rc;
    unsigned n;
    uint64_t end = ntx_now_ns() + patient_ns(DEADLINE_NS);
    while ((rc = ntx_attach_recv(h->sock, &m, fds, &n)) == -EAGAIN) {
        CHECK_MSG(ntx_now_ns() < end, "no message %d came", kind);
        harness_turn(h, 10);
    }
    CHECK_MSG(rc == 1, "attach socket: %s", rc ? strerror(-rc) : "iod closed it");
    CHECK_MSG(m.kind == kind, "message %u: %s", m.kind, m.text);
    return m;
}

static void send_config(struct harness *h)
{
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__IodConfig c = NTX__IOD_CONFIG__INIT;
    m.body_case = NTX__PEER__BODY_IOD_CONFIG;
    m.iod_config = &c;
    c.source = (char *)(h->config.source ? h->config.source : "auto");
    c.fault = (char *)(h->config.fault ? h->config.fault : "");
    c.rate_bps = h->config.rate_bps;
    c.inflight_bytes = h->config.inflight;
    c.piece_bytes = h->config.piece;
    h->configured = !ntx_link_send(h->link, &m);
}

static void on_message(void *ctx, const Ntx__Peer *m)
{
    struct harness *h = ctx;
    if (m->body_case == NTX__PEER__BODY_HELLO) {
        CHECK_STR(m->hello->role, "iod");
        CHECK_STR(m->hello->build, NTX_BUILD);
        CHECK_EQ(m->hello->instance, h->instance);
        if (h->attached) /* as computed: only after ATTACHED was read; Hello is repeated */
            send_config(h);
    } else if (m->body_case == NTX__PEER__BODY_IOD_ERROR) {
        snprintf(h->text, sizeof(h->text), "%s", m->iod_error->text);
        if (m->iod_error->err) {
            h->n_errors++;
            h->err = m->iod_error->err;
        } else {
            h->n_notices++;
        }
    }
}

void harness_turn(struct harness *h, int wait_ms)
{
    if (wait_ms) {
        struct pollfd p[2] = {{.fd = uv_backend_fd(&h->loop), .events = POLLIN}, {.fd = h->sock, .events = POLLIN}};
        poll(p, 2, wait_ms);
    }
    uv_run(&h->loop, UV_RUN_NOWAIT);
}

static void map_ring(struct harness *h, const struct ntx_attach_msg *m)
{
    harness_drop_ring(h);
    int pidfd = (int)syscall(SYS_pidfd_open, h->pid, 0);
    CHECK(pidfd >= 0);
    h->ring_dup = (int)syscall(SYS_pidfd_getfd, pidfd, m->ring_fd, 0);
    close(pidfd);
    CHECK_MSG(h->ring_dup >= 0, "pidfd_getfd: %s", strerror(errno));
    h->ring = *m;
    h->ring_map = mmap(NULL, m->ring_bytes, PROT_READ, MAP_SHARED, h->ring_dup, IORING_OFF_SQ_RING);
    CHECK(h->ring_map != MAP_FAILED);
}

bool harness_drained(const struct harness *h)
{
    const uint8_t *base = h->ring_map;
    CHECK(base);
    uint32_t taken = __atomic_load_n((const uint32_t *)(base + h->ring.ring_sq_head), __ATOMIC_ACQUIRE);
    uint32_t done = __atomic_load_n((const uint32_t *)(base + h->ring.ring_cq_tail), __ATOMIC_ACQUIRE);
    return taken == done;
}

void harness_attach(struct harness *h)
{
    struct ntx_attach_msg m = {.kind = NTX_AT_ATTACH, .role = NTX_ROLE_IOD, .epoch = 42, .n_files = 1};
    int fds[NTX_IOD_FDS + 1] = {[NTX_REGION_PARTS] = h->wake_fd, h->file_fd};
    uint64_t end = ntx_now_ns() + patient_ns(DEADLINE_NS);
    h->attached = h->configured = false;
    for (int i = 0; i < NTX_REGION_PARTS; i++)
        fds[i] = h->region.part[i].fd;
    CHECK_EQ(ntx_attach_send(h->sock, &m, fds, NTX_IOD_FDS + 1), 0);
    m = receive(h, NTX_AT_ATTACHED);
    CHECK_STR(m.text, "");
    CHECK_EQ(m.epoch, 42);
    if (m.ring_fd >= 0)
        map_ring(h, &m);
    h->attached = true;
    while (!h->configured) {
        CHECK_MSG(ntx_now_ns() < end, "no Hello came");
        harness_turn(h, 10);
    }
}

static void spawn(struct harness *h)
{
    char path[512], alive[16];
    const char *bin = getenv("NTX_BIN");
    CHECK(!pipe(h->alive));
    snprintf(path, sizeof(path), "%s/ntx-iod", bin ? bin : "bin");
    snprintf(alive, sizeof(alive), "%d", h->alive[0]);
    fcntl(h->alive[1], F_SETFD, FD_CLOEXEC);
    h->pid = fork();
    CHECK(h->pid >= 0);
    if (!h->pid) {
        execl(path, "ntx-iod", "--runtime", h->dir, "--alive-fd", alive, "--quiet", (char *)NULL);
        perror(path);
        _exit(127);
    }
}

void harness_start(struct harness *h, const struct harness_config *c)
{
    struct ntx_err err = {0};
    char path[128];
    struct ntx_attach_msg m = {0};
    h->config = *c;
    h->instance++;
    spawn(h);
    h->sock = accept4(h->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(h->sock >= 0);
    m = receive(h, NTX_AT_HELLO);
    CHECK_EQ(m.role, NTX_ROLE_IOD);
    CHECK_EQ(m.pid, h->pid);
    ntx_link_address(path, sizeof(path), h->dir, "ci", h->instance, 0);
    CHECK_MSG(!ntx_link_open(&h->loop, path, true, on_message, h, &h->link, &err), "%s", err.text);
    ntx_link_set_epoch(h->link, 42);
    ntx_count(h->counters, NTX_C_iod_starts, 1);
    m = (struct ntx_attach_msg){.kind = NTX_AT_WELCOME, .instance = h->instance};
    CHECK_EQ(ntx_attach_send(h->sock, &m, &h->counters_fd, 1), 0);
    m = (struct ntx_attach_msg){.kind = NTX_AT_PEERS, .iod_instance = h->instance};
    CHECK_EQ(ntx_attach_send(h->sock, &m, NULL, 0), 0);
    harness_attach(h);
}

void harness_detach(struct harness *h)
{
    struct ntx_attach_msg m = {.kind = NTX_AT_DETACH, .epoch = 42};
    CHECK_EQ(ntx_attach_send(h->sock, &m, NULL, 0), 0);
    CHECK_EQ(receive(h, NTX_AT_DETACHED).epoch, 42);
}

/* ---- death */

bool harness_exited(struct harness *h)
{
    if (h->pid && waitpid(h->pid, &h->exit_status, WNOHANG) == h->pid)
        h->pid = 0;
    return !h->pid;
}

void harness_wait_exit(struct harness *h)
{
    uint64_t end = ntx_now_ns() + patient_ns(DEADLINE_NS);
    int pidfd = h->pid ? (int)syscall(SYS_pidfd_open, h->pid, 0) : -1;
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    while (!harness_exited(h)) {
        CHECK_MSG(ntx_now_ns() < end, "iod does not end");
        poll(&p, 1, 100);
        harness_turn(h, 0);
    }
    if (pidfd >= 0)
        close(pidfd);
}

void harness_bury(struct harness *h)
{
    struct ntx_region *r = &h->region;
    harness_wait_exit(h);
    drop_connection(h);
    for (uint32_t i = 0; i < r->hdr->n_desc; i++) {
        uint32_t w = r->desc[i].word;
        if (ntx_word_state(w) == NTX_FILLING) {
            r->quarantine[r->desc[i].slot] = 1;
            r->desc[i].word = ntx_word(ntx_word_gen(w), NTX_FREE);
        }
    }
    for (uint32_t i = 0; i < r->hdr->n_chunks; i++)
        if (ntx_word_state(r->state[i]) == NTX_FILLING)
            r->state[i] = ntx_word(0, NTX_FREE);
    for (uint32_t i = 0; i < r->hdr->n_demands; i++) {
        uint32_t w = r->demand[i].word;
        if (ntx_word_state(w) == NTX_FILLING) {
            r->request[i].quarantined = 1;
            r->demand[i].word = ntx_word(ntx_word_gen(w), NTX_POSTED);
        }
    }
    r->ring->iod_asleep = 0;
}

void harness_end_quarantine(struct harness *h)
{
    for (uint32_t i = 0; i < h->region.hdr->n_slots; i++)
        h->region.quarantine[i] = 0;
    for (uint32_t i = 0; i < h->region.hdr->n_demands; i++)
        h->region.request[i].quarantined = 0;
    harness_wake(h);
}

/* ---- the consumer */

void harness_wake(struct harness *h)
{
    if (atomic_load(&h->region.ring->iod_asleep))
        eventfd_write(h->wake_fd, 1);
}

enum ntx_state harness_wait_word(struct harness *h, _Atomic uint32_t *word, uint32_t mask)
{
    uint64_t end = ntx_now_ns() + patient_ns(DEADLINE_NS);
    uint32_t w;
    while (!(mask >> ntx_word_state(w = atomic_load(word)) & 1)) {
        CHECK_MSG(ntx_now_ns() < end, "sequence %llu, word %#x: nothing comes", (unsigned long long)h->seq, w);
        harness_turn(h, 0);
        if (harness_exited(h)) /* take its last writes into account */
            return mask >> ntx_word_state(w = atomic_load(word)) & 1 ? ntx_word_state(w) : NTX_FILLING;
        ntx_futex_wait(word, w, 10000000);
    }
    return ntx_word_state(w);
}

enum ntx_state harness_wait_seq(struct harness *h)
{
    return harness_wait_word(h, &h->region.desc[h->seq % h->region.hdr->n_desc].word,
                             1u << NTX_READY | 1u << NTX_FAILED | 1u << NTX_SKIPPED);
}

const uint8_t *harness_bytes(struct harness *h, const struct ntx_plan_chunk **chunk)
{
    const struct ntx_region_hdr *hdr = h->region.hdr;
    const struct ntx_desc *d = &h->region.desc[h->seq % hdr->n_desc];
    CHECK_EQ(ntx_word_gen(d->word), h->seq / hdr->n_desc);
    CHECK_EQ(d->pass, h->seq / hdr->n_sched);
    CHECK_EQ(d->sched, h->seq % hdr->n_sched);
    CHECK_EQ(d->chunk, h->region.sched[d->sched]);
    CHECK(d->slot < hdr->n_slots && !h->region.quarantine[d->slot]);
    CHECK(d->t_ready >= d->t_issue && d->t_issue);
    *chunk = &h->region.chunks[d->chunk];
    CHECK_EQ(d->shift, (*chunk)->offset % BLOCK);
    return ntx_region_slot(&h->region, d->slot) + d->shift;
}

void harness_release(struct harness *h)
{
    const struct ntx_region_hdr *hdr = h->region.hdr;
    uint32_t n_free = 0;
    atomic_store(&h->region.desc[h->seq % hdr->n_desc].word, ntx_word((uint32_t)(h->seq / hdr->n_desc) + 1, NTX_FREE));
    h->seq++;
    atomic_store(&h->region.control->current_pass, h->seq / hdr->n_sched);
    for (uint32_t i = 0; i < hdr->n_desc; i++)
        n_free += ntx_word_state(atomic_load_explicit(&h->region.desc[i].word, memory_order_relaxed)) == NTX_FREE;
    if (2 * n_free >= hdr->n_desc)
        harness_wake(h);
}

uint32_t harness_post(struct harness *h, uint32_t frame, uint64_t offset, uint32_t bytes)
{
    struct ntx_demand *d = &h->region.demand[frame];
    uint32_t gen = ntx_word_gen(d->word);
    h->region.request[frame].file = 0;
    h->region.request[frame].offset = offset;
    h->region.request[frame].bytes = bytes;
    atomic_store(&d->word, ntx_word(gen, NTX_POSTED));
    atomic_fetch_add(&h->region.control->demand_posted, 1);
    harness_wake(h);
    return gen;
}
