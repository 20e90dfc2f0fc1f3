/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

/* The seals are applied after the maker has written the part, or has mapped it for writing. */
static int seals_of(enum ntx_segment_use use)
{
    switch (use) {
    case NTX_SEGMENT_CONSTANT: return F_SEAL_WRITE;
    case NTX_SEGMENT_OWNED: return F_SEAL_FUTURE_WRITE;
    default: return 0;
    }
}

/* Huge pages need address and file offset congruent modulo a huge page; mmap alone aligns to a page. */
static int map_segment(struct ntx_segment *p, int prot, int flags, uint64_t align)
{
    const uint64_t page = ntx_page_bytes();
    if (align && p->bytes >= ntx_huge_bytes())
        align = NTX_MAX(align, ntx_huge_bytes());
    size_t room = p->bytes + (align > page ? align : 0);
    uint8_t *hole = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (hole == MAP_FAILED)
        return -errno;
    uint8_t *at = (uint8_t *)NTX_ROUND_UP((uintptr_t)hole, NTX_MAX((uintptr_t)align, (uintptr_t)page));
    if (mmap(at, p->bytes, prot, flags | MAP_FIXED, p->fd, 0) == MAP_FAILED) {
        int rc = -errno;
        munmap(hole, room);
        return rc;
    }
    if (at > hole)
        munmap(hole, (size_t)(at - hole));
    if (at + p->bytes < hole + room)
        munmap(at + p->bytes, (size_t)(hole + room - (at + p->bytes)));
    p->at = at;
    return 0;
}

static int make_file(const char *name, uint64_t bytes)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = memfd_create(name, flags);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)bytes)) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

static int write_all(int fd, const uint8_t *from, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fd, from + done, bytes - done, (off_t)done);
        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

int ntx_segment_make(const char *name, uint64_t bytes, enum ntx_segment_use use, uint64_t align, const void *from,
                     struct ntx_segment *out, struct ntx_err *err)
{
    struct ntx_segment p = {.bytes = NTX_ROUND_UP(bytes, ntx_page_bytes())};
    int rc = p.fd = make_file(name, p.bytes);
    if (rc >= 0)
        rc = use == NTX_SEGMENT_CONSTANT ? write_all(p.fd, from, bytes)
                                         : map_segment(&p, PROT_READ | PROT_WRITE, MAP_SHARED, align);
    if (!rc && fcntl(p.fd, F_ADD_SEALS, SIZE_SEALS | seals_of(use) | F_SEAL_SEAL))
        rc = -errno;
    if (rc < 0) {
        ntx_segment_close(&p);
        return ntx_err_set(err, rc, "cannot make %s, shared memory of %llu bytes: %s", name, (unsigned long long)bytes,
                           strerror(-rc));
    }
    *out = p;
    return 0;
}

/* Size and seals are checked before any byte is read. */
static int check_file(int fd, enum ntx_segment_use use, uint64_t *bytes, struct ntx_err *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS), want = F_SEAL_SHRINK | seals_of(use);
    if (fstat(fd, &st))
        return ntx_err_set(err, -errno, "shared region: %s", strerror(errno));
    if (seals < 0 || (seals & want) != want)
        return ntx_err_set(
            err, -EINVAL,
            "shared region: the descriptor is no memory file that is sealed as it must be (has %#x, expected %#x)",
            seals < 0 ? 0u : (unsigned)seals, (unsigned)want);
    if (st.st_size <= 0 || (uint64_t)st.st_size % ntx_page_bytes())
        return ntx_err_set(err, -EINVAL, "shared region: %lld bytes cannot be a part of one", (long long)st.st_size);
    *bytes = (uint64_t)st.st_size;
    return 0;
}

int ntx_segment_take(int fd, enum ntx_segment_use use, uint64_t align, struct ntx_segment *out, struct ntx_err *err)
{
    struct ntx_segment p = {.fd = fd};
    int rc = check_file(fd, use, &p.bytes, err);
    if (rc)
        goto fail;
    int prot = PROT_READ | (use == NTX_SEGMENT_SHARED ? PROT_WRITE : 0);
    /* Before Linux 6.7 a file sealed with F_SEAL_WRITE cannot be mapped shared, not even for reading. */
    if ((rc = map_segment(&p, prot, use == NTX_SEGMENT_CONSTANT ? MAP_PRIVATE : MAP_SHARED, align))) {
        ntx_err_set(err, rc, "cannot map a part of the shared region of %llu bytes: %s", (unsigned long long)p.bytes,
                    strerror(-rc));
        goto fail;
    }
    *out = p;
    return 0;
fail:
    ntx_segment_close(&p);
    return rc;
}

void ntx_segment_close(struct ntx_segment *p)
{
    if (p->at)
        munmap(p->at, p->bytes);
    if (p->fd > 0 || (!p->fd && p->bytes)) /* a zeroed handle does not own fd 0 */
        close(p->fd);
    *p = NTX_NO_SEGMENT;
}
