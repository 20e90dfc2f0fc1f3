/* SPDX-License-Identifier: Apache-2.0 */
/* Tests on a real drive the assumption behind quarantine: reads outlive the process that posted them, and its ring,
 * held open by another process, shows when the last one has landed. Needs root, a cgroup that makes the drive slow
 * (slow_drive.h) and io_uring; skipped otherwise. This program is started again as `--iod`. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "computed/workers/workers.h"
#include "tests/lib/emulated.h"
#include "tests/lib/slow_drive.h"
#include "tests/lib/temporary.h"
#include "tests/unit/shm/make_region.h"

#define READS      8u
#define READ_BYTES (1u << 20)
#define RATE       4194304u /* bytes per second: the reads take two seconds, the kill a millisecond */

/* ---- the process that dies */

static int iod(const char *dir, bool tell)
{
    struct ntx_attach_msg m, a = {.kind = NTX_AT_ATTACHED, .role = NTX_ROLE_IOD};
    struct ntx_err err;
    struct ntx_region r;
    struct io_uring ring;
    uint32_t instance;
    int counters, fds[NTX_ATTACH_MAX_FDS], rc,
        sock = ntx_attach_connect(dir, NTX_ROLE_IOD, 5000, &instance, &counters, &err);
    unsigned n;
    CHECK_MSG(sock >= 0, "%s", err.text);
    do
        rc = ntx_attach_recv(sock, &m, fds, &n);
    while (rc == -EAGAIN || (rc == 1 && m.kind != NTX_AT_ATTACH));
    CHECK_EQ(rc, 1);
    CHECK_EQ(ntx_region_attach(fds, &r, &err), 0);
    CHECK_EQ(io_uring_queue_init(32, &ring, 0), 0);
    prctl(PR_SET_PTRACER, getppid(), 0, 0, 0);
    a.epoch = m.epoch;
    a.ring_fd = ring.ring_fd;
    if (tell) {
        a.ring_bytes = ring.sq.ring_sz;
        a.ring_sq_head = (uint32_t)((char *)ring.sq.khead - (char *)ring.sq.ring_ptr);
        a.ring_cq_tail = (uint32_t)((char *)ring.cq.ktail - (char *)ring.sq.ring_ptr);
    }
    CHECK_EQ(ntx_attach_send(sock, &a, NULL, 0), 0);
    for (unsigned i = 0; i < READS; i++)
        io_uring_prep_read(io_uring_get_sqe(&ring), fds[NTX_IOD_FDS], ntx_region_slot(&r, i), READ_BYTES,
                           (uint64_t)i * READ_BYTES);
    CHECK_EQ(io_uring_submit(&ring), READS);
    struct io_uring_sqe *never = io_uring_get_sqe(&ring); /* written, and never submitted: it does not count */
    io_uring_prep_read(never, fds[NTX_IOD_FDS], ntx_region_slot(&r, 0), READ_BYTES, 0);
    atomic_store(&r.desc[0].word, ntx_word(0, NTX_FILLING));
    for (;;)
        pause();
}

/* ---- the process that watches */

struct watch {
    unsigned died, drained;
};

static void on_died(void *ctx, enum ntx_role role)
{
    (void)role;
    ((struct watch *)ctx)->died++;
}
static void on_drained(void *ctx) { ((struct watch *)ctx)->drained++; }
static void on_tick(uv_timer_t *t) { (void)t; }

static struct slow_drive slow;

static int make_file(char *path)
{
    static uint8_t buf[READ_BYTES];
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    for (unsigned i = 0; i < READS; i++) {
        for (uint32_t k = 0; k < READ_BYTES; k++)
            buf[k] = pattern(0, (uint64_t)i * READ_BYTES + k);
        CHECK_EQ(ntx_write_all(fd, buf, sizeof buf), 0);
    }
    CHECK(!fsync(fd) && !posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    close(fd);
    return open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
}

static bool can_uring(void)
{
    struct io_uring ring;
    if (io_uring_queue_init(4, &ring, 0))
        return false;
    io_uring_queue_exit(&ring);
    return true;
}

static unsigned landed(const struct ntx_region *r)
{
    unsigned n = 0;
    for (unsigned i = 0; i < READS; i++) {
        const uint8_t *slot = ntx_region_slot(r, i);
        uint32_t k = 0;
        while (k < READ_BYTES && slot[k] == pattern(0, (uint64_t)i * READ_BYTES + k))
            k++;
        n += k == READ_BYTES;
    }
    return n;
}

static pid_t start(const char *self, const char *dir, bool tell)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid)
        return pid;
    if (slow_drive_enter(&slow))
        execl(self, self, "--iod", dir, tell ? "tell" : "hide", (char *)NULL);
    _exit(42);
}

/* False: the drive was not slow, so this run proves nothing. */
static bool prove(const char *self, int file, bool tell)
{
    static const struct shape shape = {
        .n_layers = 1, .per_layer = 4, .n_desc = READS, .n_slots = READS, .chunk_bytes = READ_BYTES};
    char dir[64], command[96];
    struct watch seen = {0};
    struct ntx_workers_cb cb = {.ctx = &seen, .died = on_died, .drained = on_drained};
    struct ntx_counters *counters;
    struct ntx_workers *w;
    struct ntx_region r;
    struct ntx_err err;
    uv_loop_t loop;
    uv_timer_t tick;
    int counters_fd, wake = eventfd(0, EFD_CLOEXEC);
    temporary_dir(dir, sizeof dir, "dma");
    uv_loop_init(&loop);
    uv_timer_init(&loop, &tick);
    uv_timer_start(&tick, on_tick, 1, 1);
    make_region(&shape, &r);
    memset(ntx_region_slot(&r, 0), 0, READS * r.hdr->slot_bytes);
    CHECK_EQ(ntx_counters_create(dir, &counters, &counters_fd, &err), 0);
    CHECK_EQ(ntx_workers_new(&loop, dir, counters_fd, counters, &cb, &w, &err), 0);
    CHECK_EQ(ntx_workers_attach(w, &r, wake, &file, 1), 0);
    pid_t pid = start(self, dir, tell);
    uint64_t end = ntx_now_ns() + 20000000000u;
    while (ntx_word_state(atomic_load(&r.desc[0].word)) != NTX_FILLING) {
        CHECK(ntx_now_ns() < end && !waitpid(pid, NULL, WNOHANG));
        uv_run(&loop, UV_RUN_ONCE);
    }
    for (int i = 0; i < 20; i++) /* ATTACHED was sent before: the duplicate is ours after this */
        uv_run(&loop, UV_RUN_ONCE);
    uint64_t t0 = ntx_now_ns();
    kill(pid, SIGKILL);
    while (!seen.died)
        uv_run(&loop, UV_RUN_ONCE);
    uint64_t t_died = ntx_now_ns();
    unsigned at_death = landed(&r);
    bool early = seen.drained;
    while (!seen.drained) {
        CHECK_MSG(ntx_now_ns() < end, "%u of %u reads have landed, and no proof", landed(&r), READS);
        uv_run(&loop, UV_RUN_ONCE);
    }
    unsigned at_proof = landed(&r);
    printf("%s: dead %.1f ms after the kill with %u of %u reads landed, all proved finished %.0f ms after that\n",
           tell ? "mapped" : "fdinfo", (double)(t_died - t0) / 1e6, at_death, READS,
           (double)(ntx_now_ns() - t_died) / 1e6);
    CHECK_EQ(at_proof, READS); /* the proof never comes before the data */
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    CHECK_EQ(seen.died, 1);
    ntx_workers_free(w);
    uv_close((uv_handle_t *)&tick, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    ntx_counters_close(counters);
    ntx_region_close(&r);
    close(counters_fd);
    close(wake);
    snprintf(command, sizeof command, "rm -r %s", dir);
    CHECK(!system(command));
    return at_death < READS && !early;
}

int main(int argc, char **argv)
{
    const char *base = getenv("NTX_BUILD");
    char path[4096];
    if (argc == 4 && !strcmp(argv[1], "--iod"))
        return iod(argv[2], !strcmp(argv[3], "tell"));
    skip_if_emulated();
    if (base)
        snprintf(path, sizeof path, "%s/dma-XXXXXX", base);
    else
        temporary_name(path, sizeof path, "dma");
    if (!can_uring())
        SKIP("no io_uring here");
    int file = make_file(path);
    unlink(path);
    if (file < 0)
        SKIP("no O_DIRECT on the file system of %s", path);
    if (!slow_drive_make(&slow, file, RATE))
        SKIP("needs " SLOW_DRIVE_NEEDS ", for the drive of %s", path);
    bool proved = prove(argv[0], file, true) & prove(argv[0], file, false);
    slow_drive_leave(&slow);
    if (!proved)
        SKIP("the drive was not slow enough for reads to outlive the process");
    return 0;
}
