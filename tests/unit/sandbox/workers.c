/* SPDX-License-Identifier: Apache-2.0 */
/* A sandboxed worker can do only what it needs. Each role locks itself in as its main function does
 * (ntx_iod_sandbox, ntx_service_lock_in), in its own process, and then tries: what it needs works, everything else
 * is refused. A build with sanitizers allows more (common/sandbox.h), so there only the rest is tried. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "iod/daemon.h"
#include "predictor/service.h"
#include "proto/link.h"
#include "tests/lib/emulated.h"
#include "tests/lib/temporary.h"
#include "tests/unit/shm/attach_to.h"
#include "tests/unit/shm/make_region.h"

#ifdef NTX_SANITIZED
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static char dir[64], kept[96]; /* the runtime directory, and a file in it that must survive */
static const struct shape shape = {
    .n_layers = 2, .per_layer = 3, .n_desc = 3, .n_slots = 5, .n_demands = 2, .chunk_bytes = 12000, .host = true};

/* EPERM by the filter, EACCES by Landlock, a seal or the ring. */
#define REFUSED(call)                                                                                                  \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        long rc_ = (long)(call);                                                                                       \
        CHECK_MSG(rc_ == -1 && (errno == EPERM || errno == EACCES), "%s gives %ld, %s", #call, rc_, strerror(errno));  \
    } while (0)
#define WORKS(call) CHECK_MSG((call) >= 0, "%s: %s", #call, strerror(errno))

/* ---- calls that both workers are refused */

static void files(void)
{
    char path[128];
    if (!SANITIZED) {
        REFUSED(open("/etc/passwd", O_RDONLY));
        REFUSED(open("/", O_RDONLY | O_DIRECTORY));
        REFUSED(open(kept, O_RDONLY));
        REFUSED(open("/proc/self/mem", O_RDWR));
        REFUSED(open("/dev/null", O_RDWR));
        REFUSED(readlink("/proc/self/exe", path, sizeof path));
        REFUSED(syscall(SYS_memfd_create, "x", 0));
    }
    snprintf(path, sizeof path, "%s/new", dir);
    REFUSED(open(path, O_CREAT | O_WRONLY, 0600));
    REFUSED(open(kept, O_WRONLY));
    REFUSED(open(kept, O_WRONLY | O_TRUNC));
    REFUSED(truncate(kept, 0));
    REFUSED(rename(kept, path));
    REFUSED(link(kept, path));
    REFUSED(symlink(kept, path));
    REFUSED(mkdir(path, 0700));
    REFUSED(chmod(kept, 0666));
    REFUSED(rmdir(dir));
    REFUSED(syscall(SYS_openat2, AT_FDCWD, kept, NULL, 0));
    REFUSED(syscall(SYS_open_by_handle_at, 0, NULL, O_RDONLY));
    REFUSED(syscall(SYS_mount, "none", dir, "tmpfs", 0, NULL));
    CHECK(unlink(kept) < 0); /* the predictor gets ENOENT; the parent sees that the file is there */
}

static void processes(void)
{
    char *const args[] = {(char *)"/bin/true", NULL};
    char byte;
    struct iovec v = {&byte, 1};
    REFUSED(execve("/bin/true", args, NULL));
#ifdef SYS_fork /* other machines have clone alone */
    REFUSED(syscall(SYS_fork));
    REFUSED(syscall(SYS_vfork));
#endif
    REFUSED(kill(getppid(), SIGTERM));
    REFUSED(syscall(SYS_process_vm_writev, getppid(), &v, 1, &v, 1, 0));
    REFUSED(syscall(SYS_pidfd_open, getppid(), 0));
    REFUSED(syscall(SYS_unshare, CLONE_NEWUSER));
    REFUSED(syscall(SYS_bpf, 0, NULL, 0));
    REFUSED(syscall(SYS_userfaultfd, 0));
    REFUSED(syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
    REFUSED(syscall(SYS_add_key, "user", "x", "y", 1, 0));
    REFUSED(setuid(0));
    WORKS(kill(getpid(), 0)); /* tests and abort() end the process so */
    if (SANITIZED)
        return;
    REFUSED(ptrace(PTRACE_ATTACH, getppid(), NULL, NULL));
    REFUSED(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
    REFUSED(syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0));
    REFUSED(prctl(PR_SET_DUMPABLE, 0));
}

static void network(void)
{
    static const int families[] = {AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_ALG, 40 /* AF_VSOCK */};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        REFUSED(socket(families[i], SOCK_STREAM, 0));
    REFUSED(socket(AF_INET, SOCK_DGRAM, 0));
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    WORKS(s);
    close(s);
}

static void memory(void)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    WORKS(mprotect(p, 4096, PROT_READ));
    WORKS(munmap(p, 4096));
    if (SANITIZED)
        return;
    REFUSED(mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REFUSED(mprotect((void *)((uintptr_t)dir & ~4095ul), 4096, PROT_READ | PROT_WRITE | PROT_EXEC));
}

static void *nothing(void *arg) { return arg; }

static void threads(void)
{
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, nothing, NULL), 0);
    CHECK_EQ(pthread_join(t, NULL), 0);
}

/* A part of the region that this worker must not write. */
static void sealed(int fd, void *mapped)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!SANITIZED) /* Landlock lets memory files be opened so; the seals hold all the same */
        REFUSED(open(path, O_RDWR));
    REFUSED(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    REFUSED(write(fd, "x", 1));
    REFUSED(ftruncate(fd, 0));
    REFUSED(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
    REFUSED(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
    if (mapped)
        REFUSED(mprotect(mapped, 4096, PROT_READ | PROT_WRITE));
}

static void all_alike(void)
{
    CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 || errno == EPERM, 1);
    files();
    processes();
    network();
    memory();
    threads();
    struct io_uring u;
    CHECK_EQ(io_uring_queue_init(8, &u, 0), -EPERM); /* no further ring */
}

static int bind_at(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = bind(s, (struct sockaddr *)&a, sizeof a), e = errno;
    close(s);
    errno = e;
    return rc;
}

/* ---- the iod */

static int one(struct io_uring *u, struct io_uring_sqe *sqe)
{
    struct io_uring_cqe *cqe;
    (void)sqe;
    CHECK_EQ(io_uring_submit(u), 1);
    CHECK_EQ(io_uring_wait_cqe(u, &cqe), 0);
    int res = cqe->res;
    io_uring_cqe_seen(u, cqe);
    return res;
}

#define RING(prep, ...)                                                                                                \
    ({                                                                                                                 \
        struct io_uring_sqe *sqe_ = io_uring_get_sqe(u);                                                               \
        io_uring_prep_##prep(sqe_, ##__VA_ARGS__);                                                                     \
        one(u, sqe_);                                                                                                  \
    })

/* io_uring's operations pass by the filter: the ring itself refuses them. */
static void ring_reads_only(struct io_uring *u, const struct ntx_region *r)
{
    char buf[64] = "";
    int zero = r->part[NTX_REGION_RING].fd;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct iovec v = {r->base, 4096};
    CHECK_EQ(RING(read, zero, buf, 8, 0), 8);
    CHECK_EQ(RING(nop), -EACCES);
    CHECK_EQ(RING(openat, AT_FDCWD, "/etc/passwd", O_RDONLY, 0), -EACCES);
    CHECK_EQ(RING(write, zero, buf, 8, 0), -EACCES);
    CHECK_EQ(RING(connect, 0, (struct sockaddr *)&a, sizeof a), -EACCES);
    CHECK_EQ(RING(unlinkat, AT_FDCWD, kept, 0), -EACCES);
    CHECK_EQ(RING(close, zero), -EACCES);
    struct io_uring_sqe *sqe = io_uring_get_sqe(u);
    io_uring_prep_read(sqe, zero, buf, 8, 0);
    sqe->flags = IOSQE_ASYNC;
    CHECK_EQ(one(u, sqe), -EACCES);
    CHECK_EQ(io_uring_register_files(u, &zero, 1), -EPERM);
    CHECK_EQ(io_uring_register_eventfd(u, zero), -EPERM);
    int rc = io_uring_register_buffers(u, &v, 1);
    CHECK(rc == 0 || rc == -ENOMEM);
    if (!rc) {
        CHECK_EQ(RING(read_fixed, zero, r->base, 512, 0, 0), 512);
        CHECK_EQ(io_uring_unregister_buffers(u), 0);
    }
}

static void iod(struct ntx_region *mine)
{
    struct ntx_region r;
    struct ntx_iod_ring ring;
    struct ntx_err err = {0};
    char path[96];
    CHECK_EQ(attach_to(mine, &r, &err), 0);
    ntx_region_close(mine);
    CHECK_MSG(!ntx_iod_sandbox(dir, &ring, &err), "%s", err.text);
    all_alike();
    sealed(r.part[NTX_REGION_PLAN].fd, NULL); /* a private mapping: no other process would see a write */
    sealed(r.part[NTX_REGION_CONTROL].fd, r.control);
    r.desc[0].slot = 3; /* parts that it may write */
    r.base[0] = 1;
    snprintf(path, sizeof path, "%s/socket", dir);
    REFUSED(bind_at(path));
    WORKS(prctl(PR_SET_PTRACER, getppid(), 0, 0, 0) && errno != EINVAL ? -1 : 0); /* EINVAL without Yama */
    if (ring.why)
        printf("iod: no io_uring here (%s): its ring is not tried\n", strerror(-ring.why));
    else
        ring_reads_only(&ring.u, &r);
    ntx_iod_ring_close(&ring);
    ntx_region_close(&r);
}

/* ---- the predictor */

static bool has_landlock(void) { return syscall(SYS_landlock_create_ruleset, NULL, 0, 1 /* VERSION */) > 0; }

static void predictor(struct ntx_region *mine)
{
    struct ntx_board b;
    struct ntx_err err = {0};
    char path[96];
    bool landlock = has_landlock();
    CHECK_EQ(ntx_board_attach(dup(mine->board.part.fd), &b, &err), 0);
    ntx_region_close(mine);
    CHECK_MSG(!ntx_service_lock_in(dir, &err), "%s", err.text);
    all_alike();
    sealed(b.part.fd, b.part.at);
    REFUSED(syscall(SYS_io_uring_enter, 0, 1, 0, 0, NULL, 0));
    snprintf(path, sizeof path, "%s/socket", dir);
    WORKS(bind_at(path));
    snprintf(path, sizeof path, "%s.socket", dir);
    if (landlock)
        REFUSED(bind_at(path));
    else
        printf("predictor: no Landlock here: sockets elsewhere are not tried\n");
    ntx_board_close(&b);
}

/* ---- nanomsg from behind the lock: the other side comes, goes, and comes again */

static void beat(uv_timer_t *t)
{
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__Hello h = NTX__HELLO__INIT;
    m.body_case = NTX__PEER__BODY_HELLO;
    m.hello = &h;
    h.role = (char *)"predictor";
    h.instance = 1;
    h.build = (char *)"build";
    (void)ntx_link_send(t->data, &m);
}

static void ignore(void *ctx, const Ntx__Peer *m)
{
    (void)ctx;
    (void)m;
}

static void reconnects(struct ntx_region *mine)
{
    struct ntx_err err = {0};
    struct ntx_link *l;
    uv_loop_t loop;
    uv_timer_t t;
    char address[128];
    (void)mine;
    CHECK_MSG(!ntx_service_lock_in(dir, &err), "%s", err.text);
    ntx_link_address(address, sizeof address, dir, "cp", 1, 0);
    CHECK_EQ(uv_loop_init(&loop), 0);
    CHECK_MSG(!ntx_link_open(&loop, address, false, ignore, NULL, &l, &err), "%s", err.text);
    uv_timer_init(&loop, &t);
    t.data = l;
    uv_timer_start(&t, beat, 0, 5);
    uv_run(&loop, UV_RUN_DEFAULT); /* until it is ended */
}

static void came(void *ctx, const Ntx__Peer *m)
{
    CHECK_STR(m->hello->build, "build");
    ++*(unsigned *)ctx;
}

static void meet(uv_loop_t *loop, const char *address)
{
    unsigned n = 0;
    struct ntx_link *l;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_link_open(loop, address, true, came, &n, &l, &err), "%s", err.text);
    for (uint64_t end = ntx_now_ns() + 20000000000ull; n < 3; uv_run(loop, UV_RUN_ONCE))
        CHECK(ntx_now_ns() < end);
    ntx_link_close(l);
    uv_run(loop, UV_RUN_DEFAULT);
}

/* ---- */

static pid_t start(void (*role)(struct ntx_region *))
{
    struct ntx_region r;
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid)
        return pid;
    make_region(&shape, &r);
    role(&r);
    fflush(NULL);
    _exit(0);
}

static void pass(void (*role)(struct ntx_region *))
{
    struct stat st;
    int status;
    pid_t pid = start(role);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_MSG(WIFEXITED(status) && !WEXITSTATUS(status), "status %#x", status);
    CHECK(!stat(kept, &st) && st.st_size == 4 && (st.st_mode & 0777) == 0600); /* whatever it tried */
}

static void test_reconnect(void)
{
    char address[128];
    uv_loop_t loop;
    uv_timer_t tick;
    CHECK_EQ(uv_loop_init(&loop), 0);
    pid_t pid = start(reconnects);
    ntx_link_address(address, sizeof address, dir, "cp", 1, 0);
    for (int i = 0; i < 3; i++)
        meet(&loop, address);
    (void)tick;
    CHECK_EQ(uv_loop_close(&loop), 0);
    kill(pid, SIGKILL);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

int main(void)
{
    char path[96];
    skip_if_emulated();
    temporary_dir(dir, sizeof dir, "lockin");
    snprintf(kept, sizeof kept, "%s/kept", dir);
    int fd = open(kept, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, "kept", 4) == 4);
    close(fd);
    pass(iod);
    pass(predictor);
    test_reconnect();
    snprintf(path, sizeof path, "%s/socket", dir);
    unlink(path);
    unlink(kept);
    CHECK_MSG(!rmdir(dir), "%s is not empty", dir);
    return 0;
}
