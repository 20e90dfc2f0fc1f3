/* SPDX-License-Identifier: Apache-2.0 */
/* The caller's side of a decoding: the file goes to the process in sealed memory, its pixels come in memory that no
 * other process has by then. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/picture/picture_impl.h"

#define WAIT_MS    60000
#define HEAP_MOST  (13 * (uint64_t)NTX_PICTURE_PIXELS)
#define HEAP_LEAST (1u << 20) /* what the libraries take for any picture */

static const int first_free = 10; /* above the process's own descriptors */

struct decoding {
    int file, pixels; /* memory */
    int pipe[2];      /* its verdict; both above the process's own descriptors */
    pid_t pid;
};

static int make_memory(const char *name, uint64_t bytes)
{
    int low = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, first_free);
    int rc = fd < 0 || ftruncate(fd, (off_t)bytes) ? -errno : 0;
    if (low >= 0)
        close(low);
    if (rc && fd >= 0)
        close(fd);
    return rc ? rc : fd;
}

static int write_bytes(int fd, const void *bytes, size_t n, size_t at)
{
    const uint8_t *data = bytes;
    for (size_t done = 0; done < n;) {
        ssize_t k = pwrite(fd, data + done, n - done, (off_t)(at + done));
        if (k < 0 && errno != EINTR)
            return -errno;
        done += k > 0 ? (size_t)k : 0;
    }
    return 0;
}

static int write_file(int fd, const struct ntx__picture_order *o, const void *data, size_t n)
{
    int rc = write_bytes(fd, o, sizeof *o, 0);
    if (rc || (rc = write_bytes(fd, data, n, sizeof *o)))
        return rc;
    return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ? -errno : 0;
}

static int make_pipe(int ends[2])
{
    int low[2], rc = 0;
    if (pipe2(low, O_CLOEXEC))
        return -errno;
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, first_free);
        rc = ends[i] < 0 && !rc ? -errno : rc;
        close(low[i]);
    }
    return rc;
}

static int spawn_process(struct decoding *d)
{
    char *argv[] = {(char *)"ntx-picture", (char *)NTX_PICTURE_PROCESS, NULL}, *none[] = {NULL};
    posix_spawn_file_actions_t a;
    posix_spawnattr_t attr;
    sigset_t empty, all;
    sigemptyset(&empty);
    sigfillset(&all);
    posix_spawn_file_actions_init(&a);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &empty);
    posix_spawnattr_setsigdefault(&attr, &all);
    for (int fd = 0; fd < 3; fd++)
        posix_spawn_file_actions_addopen(&a, fd, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&a, d->pipe[1], NTX__PICTURE_SOCK);
    posix_spawn_file_actions_adddup2(&a, d->file, NTX__PICTURE_FILE);
    posix_spawn_file_actions_adddup2(&a, d->pixels, NTX__PICTURE_OUT);
    int rc = -posix_spawn(&d->pid, "/proc/self/exe", &a, &attr, argv, none);
    posix_spawn_file_actions_destroy(&a);
    posix_spawnattr_destroy(&attr);
    close(d->pipe[1]);
    d->pipe[1] = -1;
    return rc;
}

/* Reads the verdict, and ends the process in any case. */
static int await_verdict(struct decoding *d, struct ntx__picture_verdict *v, struct ntx_err *err)
{
    const uint64_t end = ntx_now_ns() + WAIT_MS * 1000000ull;
    size_t have = 0;
    ssize_t n = 1;
    int status = 0, ready = 1;
    while (have < sizeof *v && n > 0 && ready > 0) {
        struct pollfd p = {.fd = d->pipe[0], .events = POLLIN};
        const uint64_t now = ntx_now_ns();
        ready = poll(&p, 1, now < end ? (int)((end - now) / 1000000 + 1) : 0);
        if (ready < 0 && errno == EINTR)
            ready = 1;
        else if (ready > 0 && (n = read(d->pipe[0], (char *)v + have, sizeof *v - have)) > 0)
            have += (size_t)n;
    }
    if (!ready || have == sizeof *v) /* else it has ended already, and its status says why */
        kill(d->pid, SIGKILL);
    while (waitpid(d->pid, &status, 0) < 0 && errno == EINTR) {}
    if (have == sizeof *v)
        return 0;
    if (!ready || (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU))
        return ntx_err_set(err, -ETIMEDOUT, "decoding the picture takes too long: save it anew, as JPEG or PNG");
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return ntx_err_set(err, -ENOMEM,
                           "the process that decodes the picture was killed, perhaps for want of memory: "
                           "make the picture smaller");
    return ntx_err_set(err, -EIO, "the process that decodes the picture died: the file is damaged in an unknown way");
}

/* The pixels, in memory of this process alone. */
static int take_pixels(const struct decoding *d, const struct ntx__picture_verdict *v, struct ntx_picture *out,
                       struct ntx_err *err)
{
    const uint64_t pixels = (uint64_t)v->width * v->height, bytes = 3 * pixels;
    struct stat st;
    if (!pixels || v->width > NTX_PICTURE_SIDE || v->height > NTX_PICTURE_SIDE || pixels > NTX_PICTURE_PIXELS)
        return ntx_err_set(err, -EIO, "the process that decodes the picture reported a wrong size");
    if (fstat(d->pixels, &st) || (uint64_t)st.st_size < bytes) /* reading beyond its end would end this process */
        return ntx_err_set(err, -EIO, "the process that decodes the picture cut its memory short");
    void *rgb = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, d->pixels, 0);
    if (rgb == MAP_FAILED)
        return ntx_err_set(err, -ENOMEM, "no memory for a picture of %u x %u pixels", v->width, v->height);
    *out = (struct ntx_picture){v->width, v->height, rgb};
    return 0;
}

static int run_process(struct decoding *d, struct ntx_picture *out, struct ntx_err *err)
{
    struct ntx__picture_verdict v;
    int rc = spawn_process(d);
    if (rc)
        return ntx_err_set(err, rc, "cannot start a process to decode the picture: %s", strerror(-rc));
    if ((rc = await_verdict(d, &v, err)))
        return rc;
    v.text[sizeof v.text - 1] = 0;
    if (v.rc)
        return ntx_err_set(err, v.rc < 0 && v.rc > -4096 ? v.rc : -EIO, "%s", v.text);
    return take_pixels(d, &v, out, err);
}

/* Of the memory, pixels get a part and the libraries the rest: for a copy with alpha, or turned, or for the
 * coefficients of a progressive JPEG. */
static struct ntx__picture_order order_within(uint64_t memory, size_t n)
{
    const uint64_t most = 3 * (uint64_t)NTX_PICTURE_PIXELS, left = memory - NTX_MIN(memory, n);
    if (!memory)
        return (struct ntx__picture_order){most, HEAP_MOST};
    const uint64_t room = NTX_MAX(NTX_MIN(left / 8 * 3, most), 4096u);
    return (struct ntx__picture_order){room, HEAP_LEAST + NTX_MIN(left - NTX_MIN(left, room), HEAP_MOST)};
}

static int begin_decoding(struct decoding *d, const void *data, size_t n, const struct ntx__picture_order *o)
{
    d->file = make_memory("ntx picture", sizeof *o + n);
    d->pixels = make_memory("ntx pixels", o->room);
    if (d->file < 0 || d->pixels < 0)
        return d->file < 0 ? d->file : d->pixels;
    int rc = write_file(d->file, o, data, n);
    return rc ? rc : make_pipe(d->pipe);
}

int ntx_picture_decode(const void *data, size_t n, uint64_t memory, struct ntx_picture *out, struct ntx_err *err)
{
    const struct ntx__picture_order o = order_within(memory, n);
    struct decoding d = {.file = -1, .pixels = -1, .pipe = {-1, -1}};
    int rc = ntx_picture_check(data, n, err);
    if (!rc && n > NTX_PICTURE_BYTES)
        rc = ntx_err_set(err, -EFBIG, "a picture of %zu bytes: at most %u MiB are decoded", n, NTX_PICTURE_BYTES >> 20);
    if (rc)
        return rc;
    if ((rc = begin_decoding(&d, data, n, &o)))
        ntx_err_set(err, rc, "cannot hand the picture over to be decoded: %s", strerror(-rc));
    else
        rc = run_process(&d, out, err);
    const int fds[] = {d.file, d.pixels, d.pipe[0], d.pipe[1]};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return rc;
}

void ntx_picture_free(struct ntx_picture *p)
{
    if (p->rgb)
        munmap(p->rgb, 3 * (size_t)p->width * p->height);
    p->rgb = NULL;
}
