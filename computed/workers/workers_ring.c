/* SPDX-License-Identifier: Apache-2.0 */
/* Proves that the reads of a dead process are finished. Reads that were submitted to the kernel outlive the process:
 * their data arrives when the drive delivers it. But the ring outlives it, too, as long as a process holds a descriptor
 * of it, and the kernel posts a completion only after the data has arrived. So we hold one, and count. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "computed/workers/workers_impl.h"

#define RING_BYTES_MAX (64u << 20)

static bool is_ring(int fd)
{
    char path[64], target[64] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, target, sizeof target - 1);
    return n > 0 && strstr(target, "[io_uring]");
}

static bool words_fit(const struct ntx_attach_msg *m)
{
    return m->ring_bytes >= 8 && m->ring_bytes <= RING_BYTES_MAX && m->ring_sq_head % 4 == 0 &&
           m->ring_cq_tail % 4 == 0 && m->ring_sq_head <= m->ring_bytes - 4 && m->ring_cq_tail <= m->ring_bytes - 4 &&
           m->ring_sq_head != m->ring_cq_tail;
}

static int map_words(int fd, const struct ntx_attach_msg *m, struct ntx__ring *r)
{
    /* IORING_OFF_SQ_RING: with SINGLE_MMAP both rings */
    void *map = mmap(NULL, m->ring_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    r->map = map;
    r->bytes = m->ring_bytes;
    r->sq_head = (const _Atomic uint32_t *)((const char *)map + m->ring_sq_head);
    r->cq_tail = (const _Atomic uint32_t *)((const char *)map + m->ring_cq_tail);
    return 0;
}

/* Reads the same two numbers from fdinfo, where the kernel prints them unless it is busy with the ring. */
static bool read_fdinfo(int fd, uint32_t *sq_head, uint32_t *cq_tail)
{
    char path[64], line[256];
    unsigned found = 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *f = fopen(path, "re");
    while (f && found < 2 && fgets(line, sizeof line, f))
        found += sscanf(line, "SqHead: %" SCNu32, sq_head) == 1 || sscanf(line, "CqTail: %" SCNu32, cq_tail) == 1;
    if (f)
        fclose(f);
    return found == 2;
}

/* Whether fdinfo has them. A busy ring is read again, for 50 ms at most. */
static bool shows_state(int fd)
{
    uint32_t head, tail;
    for (int tries = 0; tries < 500; tries++) {
        if (read_fdinfo(fd, &head, &tail))
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return false;
}

int ntx__ring_duplicate(int pidfd, const struct ntx_attach_msg *m, struct ntx__ring *out, struct ntx_err *err)
{
    struct ntx__ring r = {0};
    if (m->ring_bytes && !words_fit(m))
        return ntx_err_set(err, -EINVAL, "its words cannot lie at %u and %u of %llu bytes", m->ring_sq_head,
                           m->ring_cq_tail, (unsigned long long)m->ring_bytes);
    if (pidfd < 0)
        return ntx_err_set(err, -ENOSYS, "this kernel has no pidfd");
    r.fd = (int)syscall(SYS_pidfd_getfd, pidfd, m->ring_fd, 0);
    if (r.fd < 0)
        return ntx_err_set(err, -errno, "pidfd_getfd: %s", strerror(errno));
    r.open = true;
    int rc = is_ring(r.fd) ? 0 : ntx_err_set(err, -EINVAL, "descriptor %d is no io_uring", m->ring_fd);
    if (!rc && m->ring_bytes && (rc = map_words(r.fd, m, &r)))
        ntx_err_set(err, rc, "mapping it: %s", strerror(-rc));
    else if (!rc && !m->ring_bytes && !shows_state(r.fd))
        rc = ntx_err_set(err, -ENOTSUP, "this kernel does not show its state");
    if (rc)
        ntx__ring_close(&r);
    else
        *out = r;
    return rc;
}

bool ntx__ring_drained(const struct ntx__ring *r)
{
    uint32_t head, tail;
    if (!r->map)
        return read_fdinfo(r->fd, &head, &tail) && head == tail;
    /* The SQ head, not its tail: entries that the kernel has not taken are reads that never begin. The acquire pairs
     * with the kernel's release of the tail: the data read is in memory then. */
    tail = atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)r->cq_tail, memory_order_acquire);
    return tail == atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)r->sq_head, memory_order_relaxed);
}

void ntx__ring_close(struct ntx__ring *r)
{
    if (r->map)
        munmap(r->map, r->bytes);
    if (r->open)
        close(r->fd);
    *r = (struct ntx__ring){0};
}
