/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/prctl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/util.h"

#define WHEN(call, ...)                                                                                                \
    {                                                                                                                  \
        SCMP_SYS(call), 1, SCMP_CMP(__VA_ARGS__)                                                                       \
    }
#define ALWAYS(call)                                                                                                   \
    {                                                                                                                  \
        SCMP_SYS(call), 0, { 0 }                                                                                       \
    }

/* ---- system calls */

/* For libc, libuv's loop, nanomsg, the attach socket, the region's parts and the log. */
static const struct ntx_sandbox_call common[] = {
    ALWAYS(read),
    ALWAYS(readv),
    ALWAYS(write),
    ALWAYS(writev),
    ALWAYS(close),
    ALWAYS(lseek),
    ALWAYS(fstat),
    ALWAYS(dup),
    WHEN(newfstatat, 3, SCMP_CMP_EQ, AT_EMPTY_PATH), /* glibc's fstat */
    WHEN(fcntl, 1, SCMP_CMP_EQ, F_GETFD),
    WHEN(fcntl, 1, SCMP_CMP_EQ, F_SETFD),
    WHEN(fcntl, 1, SCMP_CMP_EQ, F_GETFL),
    WHEN(fcntl, 1, SCMP_CMP_EQ, F_SETFL),
    WHEN(fcntl, 1, SCMP_CMP_EQ, F_DUPFD_CLOEXEC),
    WHEN(fcntl, 1, SCMP_CMP_EQ, F_GET_SEALS),
    ALWAYS(poll),
    ALWAYS(ppoll),
    ALWAYS(epoll_create1),
    ALWAYS(epoll_ctl),
    ALWAYS(epoll_wait),
    ALWAYS(epoll_pwait),
    ALWAYS(epoll_pwait2),
    ALWAYS(eventfd2),
    ALWAYS(pipe2),
    ALWAYS(timerfd_create),
    ALWAYS(timerfd_settime),
    WHEN(ioctl, 1, SCMP_CMP_EQ, 0x5421 /* FIONBIO: libuv */),
    WHEN(socket, 0, SCMP_CMP_EQ, AF_UNIX),
    ALWAYS(connect),
    ALWAYS(getsockopt),
    ALWAYS(setsockopt),
    ALWAYS(getsockname),
    ALWAYS(getpeername),
    ALWAYS(shutdown),
    ALWAYS(sendmsg),
    ALWAYS(recvmsg),
    ALWAYS(sendto),
    ALWAYS(recvfrom),
    WHEN(mmap, 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0),
    WHEN(mprotect, 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0),
    ALWAYS(munmap),
    ALWAYS(mremap),
    ALWAYS(madvise),
    ALWAYS(brk),
    /* threads, no processes; clone3 is refused below */
    WHEN(clone, 0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD),
    ALWAYS(futex),
    ALWAYS(set_robust_list),
    ALWAYS(rseq),
    ALWAYS(sched_yield),
    ALWAYS(sched_getaffinity),
    ALWAYS(exit),
    ALWAYS(exit_group),
    WHEN(prctl, 0, SCMP_CMP_EQ, PR_SET_NAME),
    ALWAYS(clock_gettime),
    ALWAYS(clock_getres),
    ALWAYS(gettimeofday),
    ALWAYS(clock_nanosleep),
    ALWAYS(nanosleep),
    ALWAYS(restart_syscall),
    ALWAYS(getrandom),
    ALWAYS(rt_sigaction),
    ALWAYS(rt_sigprocmask),
    ALWAYS(rt_sigreturn),
    ALWAYS(sigaltstack),
    ALWAYS(getpid),
    ALWAYS(gettid),
    ALWAYS(getuid),
    ALWAYS(geteuid),
    ALWAYS(uname),
};

/* For a process that only computes and writes to a descriptor. */
static const struct ntx_sandbox_call bare[] = {
    ALWAYS(write),
    WHEN(mmap, 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0),
    WHEN(mprotect, 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0),
    ALWAYS(munmap),
    ALWAYS(mremap),
    ALWAYS(madvise),
    ALWAYS(brk),
    ALWAYS(futex),
    ALWAYS(exit_group),
    ALWAYS(clock_gettime),
    ALWAYS(rt_sigprocmask),
    ALWAYS(rt_sigreturn),
    ALWAYS(getpid),
    ALWAYS(gettid),
};

static const struct ntx_sandbox_call binding[] = {ALWAYS(bind), ALWAYS(listen), ALWAYS(accept), ALWAYS(accept4)};

#ifdef NTX_SANITIZED
/* Their runtimes read /proc/self; at the end a process of theirs stops our threads to look for leaks. */
static const struct ntx_sandbox_call sanitizers[] = {
    ALWAYS(open),   ALWAYS(openat),     ALWAYS(readlink), ALWAYS(readlinkat),  ALWAYS(getdents),  ALWAYS(getdents64),
    ALWAYS(stat),   ALWAYS(newfstatat), ALWAYS(access),   ALWAYS(mmap),        ALWAYS(mprotect),  ALWAYS(clone),
    ALWAYS(ptrace), ALWAYS(wait4),      ALWAYS(kill),     ALWAYS(prctl),       ALWAYS(prlimit64), ALWAYS(getppid),
    ALWAYS(pipe),   ALWAYS(dup2),       ALWAYS(ioctl),    ALWAYS(sigaltstack),
};
#endif

static int allow_calls(scmp_filter_ctx f, const struct ntx_sandbox_call *c, unsigned n)
{
    int rc = 0;
    for (unsigned i = 0; !rc && i < n; i++)
        rc = seccomp_rule_add_array(f, SCMP_ACT_ALLOW, c[i].call, c[i].n, &c[i].when);
    return rc;
}

/* The process may kill itself (abort, and faults of tests), but no other. */
static int allow_suicide(scmp_filter_ctx f)
{
    const struct ntx_sandbox_call own[] = {WHEN(kill, 0, SCMP_CMP_EQ, (scmp_datum_t)getpid()),
                                           WHEN(tgkill, 0, SCMP_CMP_EQ, (scmp_datum_t)getpid())};
    return allow_calls(f, own, 2);
}

static int add_rules(scmp_filter_ctx f, const struct ntx_sandbox *needs)
{
    int rc = needs->bare ? allow_calls(f, bare, sizeof bare / sizeof *bare)
                         : allow_calls(f, common, sizeof common / sizeof *common);
    if (!rc)
        rc = allow_suicide(f);
    if (!rc)
        rc = allow_calls(f, needs->calls, needs->n_calls);
    if (!rc && needs->binds)
        rc = allow_calls(f, binding, sizeof binding / sizeof *binding);
    /* nanomsg removes its bound sockets, and aborts on EPERM but not on ENOENT */
    if (!rc && needs->binds)
        rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOENT), SCMP_SYS(unlink), 0);
    /* a filter cannot see clone3's flags, which are in memory; on ENOSYS libc uses clone */
    if (!rc)
        rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
#ifdef NTX_SANITIZED
    if (!rc)
        rc = allow_calls(f, sanitizers, sizeof sanitizers / sizeof *sanitizers);
#endif
    return rc;
}

static int filter_calls(const struct ntx_sandbox *needs)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (!f)
        return -ENOMEM;
    int rc = seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);
    if (!rc)
        rc = seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a binary tree in place of a list */
    if (!rc)
        rc = add_rules(f, needs);
    if (!rc)
        rc = seccomp_load(f);
    seccomp_release(f);
    return rc;
}

/* ---- the file system */

/* Declared here, since the build's kernel headers may be too old. */
struct ruleset {
    uint64_t fs, net, scoped;
};
#define FS_UP_TO(bit) (((uint64_t)2 << (bit)) - 1)
static const struct { /* index: version of Landlock */
    uint64_t fs, net, scoped;
    size_t size;
} known[] = {
    {0, 0, 0, 0},
    {FS_UP_TO(12), 0, 0, 8},  /* Linux 5.13: up to MAKE_SYM */
    {FS_UP_TO(13), 0, 0, 8},  /* 5.19: REFER */
    {FS_UP_TO(14), 0, 0, 8},  /* 6.2: TRUNCATE */
    {FS_UP_TO(14), 3, 0, 16}, /* 6.7: TCP, bind and connect */
    {FS_UP_TO(15), 3, 0, 16}, /* 6.10: IOCTL_DEV */
    {FS_UP_TO(15), 3, 3, 24}, /* 6.12: abstract sockets, signals */
};

static int allow_beneath(int ruleset, const char *path, uint64_t access)
{
    int fd = open(path, O_PATH | O_CLOEXEC);
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = fd};
    if (fd < 0)
        return -errno;
    int rc = syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) ? -errno : 0;
    close(fd);
    return rc;
}

static int restrict_paths(const struct ntx_sandbox *needs, const char *dir)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 1) {
        ntx_log(NTX_LOG_INFO,
                "this kernel has no Landlock (%s): system calls are filtered, but access to paths is not restricted",
                strerror(errno));
        return 0;
    }
    size_t v = NTX_MIN((size_t)version, sizeof known / sizeof *known - 1);
    struct ruleset set = {known[v].fs, known[v].net, known[v].scoped};
    int fd = (int)syscall(SYS_landlock_create_ruleset, &set, known[v].size, 0), rc = 0;
    if (fd < 0)
        return -errno;
    if (needs->binds)
        rc = allow_beneath(fd, dir, LANDLOCK_ACCESS_FS_MAKE_SOCK);
#ifdef NTX_SANITIZED
    if (!rc)
        rc = allow_beneath(fd, "/", LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR);
#endif
    if (!rc && syscall(SYS_landlock_restrict_self, fd, 0))
        rc = -errno;
    close(fd);
    return rc;
}

int ntx_sandbox(const struct ntx_sandbox *needs, const char *dir, struct ntx_err *err)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return ntx_err_set(err, -errno, "cannot give up new privileges: %s", strerror(errno));
    int rc = restrict_paths(needs, dir);
    if (rc)
        return ntx_err_set(err, rc, "%s: cannot restrict access to paths by Landlock: %s", dir, strerror(-rc));
    if ((rc = filter_calls(needs)))
        return ntx_err_set(err, rc, "cannot filter system calls by seccomp: %s", strerror(-rc));
    return 0;
}
