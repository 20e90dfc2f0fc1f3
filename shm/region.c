#include "shm/region.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/util.h"
#include "shm/memlimit.h"
#include "shm/region_impl.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

uint64_t ntx_region_bytes(const struct ntx_region_geometry *g)
{
    struct ntx__region_layout l;
    return ntx__region_layout(g, &l, NULL) ? 0 : l.bytes;
}

/* Huge pages need address and file offset congruent modulo 2 MiB; mmap alone promises 4 KiB. */
static int map_aligned(struct ntx_region *r)
{
    size_t room = r->bytes + NTX_HUGE;
    int prot = PROT_READ | (r->writable ? PROT_WRITE : 0);
    uint8_t *hole = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (hole == MAP_FAILED)
        return -errno;
    uint8_t *base = (uint8_t *)NTX_ROUND_UP((uintptr_t)hole, (uintptr_t)NTX_HUGE);
    if (mmap(base, r->bytes, prot, MAP_SHARED | MAP_FIXED, r->fd, 0) == MAP_FAILED) {
        int rc = -errno;
        munmap(hole, room);
        return rc;
    }
    if (base > hole)
        munmap(hole, (size_t)(base - hole));
    if (base + r->bytes < hole + room)
        munmap(base + r->bytes, (size_t)(hole + room - (base + r->bytes)));
    r->base = base;
    return 0;
}

static void point(struct ntx_region *r)
{
    struct ntx_region_hdr *h = (struct ntx_region_hdr *)r->base;
    r->hdr = h;
    r->chunks = (struct ntx_plan_chunk *)(r->base + h->off_chunks);
    r->sched = (uint32_t *)(r->base + h->off_sched);
    r->state = (_Atomic uint32_t *)(r->base + h->off_state);
    r->desc = (struct ntx_desc *)(r->base + h->off_desc);
    r->taint = (_Atomic uint32_t *)(r->base + h->off_taint);
    r->pass_map = (struct ntx_pass_map *)(r->base + h->off_pass);
    r->demand = (struct ntx_demand *)(r->base + h->off_demand);
    r->probe = (struct ntx_probe *)(r->base + h->off_probe);
    r->probe_data = (float *)(r->base + h->off_probe_data);
}

static void write_header(struct ntx_region *r, const struct ntx_region_geometry *g, const struct ntx__region_layout *l)
{
    struct ntx_region_hdr *h = (struct ntx_region_hdr *)r->base;
    h->magic = NTX_REGION_MAGIC;
    h->version = NTX_REGION_VERSION;
    h->hdr_bytes = sizeof *h;
    h->epoch = g->epoch;
    h->bytes = l->bytes;
    h->block = g->block;
    h->n_files = g->n_files;
    h->n_chunks = g->n_chunks;
    h->n_sched = g->n_sched;
    h->n_desc = g->n_desc;
    h->n_slots = g->n_slots;
    h->n_demands = g->n_demands;
    h->n_bundle_demands = g->n_bundle_demands;
    h->n_probes = g->n_probes;
    h->n_layers = g->n_layers;
    h->n_embd = g->n_embd;
    h->slot_bytes = g->slot_bytes;
    h->frame_bytes = g->frame_bytes;
    h->arena_bytes = g->arena_bytes;
    h->off_chunks = l->off_chunks;
    h->off_sched = l->off_sched;
    h->off_state = l->off_state;
    h->off_desc = l->off_desc;
    h->off_taint = l->off_taint;
    h->off_pass = l->off_pass;
    h->off_demand = l->off_demand;
    h->off_probe = l->off_probe;
    h->off_probe_data = l->off_probe_data;
    h->off_slots = l->off_slots;
    h->off_frames = l->off_frames;
    h->off_arena = l->off_arena;
}

static int check_room(uint64_t bytes, struct ntx_err *err)
{
    struct ntx_memlimit m;
    char want[32], have[32];
    ntx_memlimit_read(&m);
    if (bytes <= m.available)
        return 0;
    return ntx_err_set(err, -ENOMEM, "the shared region takes %s (%llu bytes), but only %s (%llu bytes) of memory can be had (%s); use --ram with at most that",
                       ntx_format_size(bytes, want, sizeof want), (unsigned long long)bytes, ntx_format_size(m.available, have, sizeof have),
                       (unsigned long long)m.available, m.cgroup_left < m.mem_available ? "the limit of the memory cgroup" : "MemAvailable of this machine");
}

/* Sealed, so that no process that has it can shrink it under another's feet (SIGBUS). */
static int make_memfd(uint64_t bytes, int *out, struct ntx_err *err)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create("ntx-region", flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = memfd_create("ntx-region", flags);
    if (fd < 0)
        return ntx_err_set(err, -errno, "cannot create the shared region: memfd_create: %s", strerror(errno));
    if (ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
        int rc = -errno;
        close(fd);
        return ntx_err_set(err, rc, "cannot make a shared region of %llu bytes: %s", (unsigned long long)bytes, strerror(-rc));
    }
    *out = fd;
    return 0;
}

int ntx_region_begin(const struct ntx_region_geometry *g, struct ntx_region *out, struct ntx_err *err)
{
    struct ntx__region_layout l;
    struct ntx_region r = {.fd = -1, .writable = true};
    int rc = ntx__region_layout(g, &l, err);
    if (rc || (rc = check_room(l.bytes, err)))
        return rc;
    r.bytes = l.bytes;
    if ((rc = make_memfd(l.bytes, &r.fd, err)))
        return rc;
    if ((rc = map_aligned(&r))) {
        ntx_err_set(err, rc, "cannot map a shared region of %llu bytes: %s", (unsigned long long)l.bytes, strerror(-rc));
        goto fail;
    }
    write_header(&r, g, &l);
    point(&r);
    if ((rc = ntx__region_bring_in_front(&r, l.front_end, err)))
        goto fail;
    for (int i = 0; i < NTX_PASS_MAPS; i++)
        atomic_store_explicit(&r.pass_map[i].pass, UINT64_MAX, memory_order_relaxed);
    *out = r;
    return 0;
fail:
    ntx_region_close(&r);
    return rc;
}

int ntx_region_create(const struct ntx_region_geometry *g, struct ntx_region *out, char *note, size_t note_len, struct ntx_err *err)
{
    struct ntx_region r;
    int rc = ntx_region_begin(g, &r, err);
    if (rc)
        return rc;
    if ((rc = ntx_region_bring_in(&r, r.bytes, err))) {
        ntx_region_close(&r);
        return rc;
    }
    ntx_region_settle(&r, note, note_len);
    *out = r;
    return 0;
}

/* The size and the seals must hold before a byte of it is looked at. */
static int check_file(int fd, uint64_t *bytes, struct ntx_err *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &st))
        return ntx_err_set(err, -errno, "shared region: %s", strerror(errno));
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return ntx_err_set(err, -EINVAL, "shared region: the descriptor is no sealed memory file");
    if (st.st_size < (off_t)sizeof(struct ntx_region_hdr) || st.st_size % NTX_HUGE)
        return ntx_err_set(err, -EINVAL, "shared region: %lld bytes cannot be one", (long long)st.st_size);
    *bytes = (uint64_t)st.st_size;
    return 0;
}

int ntx_region_attach(int fd, bool writable, struct ntx_region *out, struct ntx_err *err)
{
    struct ntx_region r = {.fd = fd, .writable = writable};
    uint64_t bytes = 0;
    int rc = check_file(fd, &bytes, err);
    if (rc)
        goto fail;
    r.bytes = bytes;
    if ((rc = map_aligned(&r))) {
        ntx_err_set(err, rc, "cannot map the shared region of %llu bytes: %s", (unsigned long long)bytes, strerror(-rc));
        goto fail;
    }
    if ((rc = ntx__region_check_header((const struct ntx_region_hdr *)r.base, bytes, err)))
        goto fail;
    point(&r);
    if ((rc = ntx__region_check_plan(&r, err)))
        goto fail;
    *out = r;
    return 0;
fail:
    ntx_region_close(&r);
    return rc;
}

void ntx_region_close(struct ntx_region *r)
{
    if (r->base)
        munmap(r->base, r->bytes);
    if (r->base || r->bytes || r->fd > 0) /* in a zeroed handle fd 0 is not ours */
        close(r->fd);
    *r = (struct ntx_region){.fd = -1};
}

int ntx_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
    struct timespec t = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    /* not FUTEX_PRIVATE: the waker is another process */
    if (!syscall(SYS_futex, word, FUTEX_WAIT, seen, timeout_ns ? &t : NULL, NULL, 0) || errno == EAGAIN)
        return 0;
    return -errno;
}

void ntx_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
