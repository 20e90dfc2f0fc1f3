/* SPDX-License-Identifier: Apache-2.0 */
/* drive.c: measures the drive as ntx-iod reads it: with its source, into a region's pages, at random offsets, with
 * as many reads in flight. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/doctor/doctor_impl.h"
#include "common/util.h"
#include "iod/source.h"

#define IN_FLIGHT    (4u << 20)
#define FILE_LEAST   (256u << 20) /* of a file that is worth reading */
#define FILE_WRITTEN (512u << 20) /* of a file that is written for the measurement */

static const uint32_t sizes[] = {4096, 16384, 65536, 131072, 262144, 524288, 1048576};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

struct ntx__doctor_drive {
    const char *dir;
    struct ntx_region region;
    struct ntx_iod_files files;
    struct ntx_source *source;
    uint64_t file_bytes, random;
    unsigned free_slots[NTX_IOD_MAX_READS], n_free;
    uint64_t done_bytes;
    int error;
};

/* ---- the file */

/* Opens the largest file of the directory that is large enough; -1: none. */
static int largest_file(const char *dir, char *name, size_t n, uint64_t *bytes)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    struct stat st;
    int best = -1;
    *bytes = FILE_LEAST - 1;
    while (d && (e = readdir(d))) {
        int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (fd < 0)
            continue;
        /* holes in a file are read without the drive */
        if (fstat(fd, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size <= *bytes ||
            (uint64_t)st.st_blocks * 512 < (uint64_t)st.st_size / 10 * 9) {
            close(fd);
            continue;
        }
        if (best >= 0)
            close(best);
        best = fd;
        *bytes = (uint64_t)st.st_size;
        snprintf(name, n, "%s", e->d_name);
    }
    if (d)
        closedir(d);
    return best;
}

/* An unnamed file: gone when it is closed. */
static int write_unnamed(const char *dir, uint64_t bytes, struct ntx_err *err)
{
    static const size_t piece = 1u << 20;
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return ntx_err_set(err, -errno,
                           "%s: cannot write a file to measure the drive with: %s; give a directory with --dir", dir,
                           strerror(errno));
    uint64_t *buf = malloc(piece), s = 88172645463325252u;
    int rc = buf ? 0 : -ENOMEM;
    for (uint64_t at = 0; !rc && at < bytes; at += piece) {
        for (size_t i = 0; i < piece / 8; i++)
            buf[i] = s = s * 6364136223846793005u + 1442695040888963407u;
        rc = ntx_write_all(fd, buf, piece);
    }
    if (!rc && fsync(fd))
        rc = -errno;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    free(buf);
    if (!rc)
        return fd;
    close(fd);
    return ntx_err_set(err, rc,
                       "%s: cannot write %" PRIu64 " MiB to measure the drive with: %s; give a directory with --dir",
                       dir, bytes >> 20, strerror(-rc));
}

static int open_file(struct ntx__doctor_drive *d, const char *dir, double seconds, struct ntx_doctor_report *r,
                     struct ntx_err *err)
{
    char name[256];
    int fd = largest_file(dir, name, sizeof name, &d->file_bytes);
    if (fd >= 0) {
        snprintf(r->drive_note, sizeof r->drive_note, "read from %.200s", name);
    } else {
        d->file_bytes = seconds < 1 ? 16u << 20 : FILE_WRITTEN;
        if ((fd = write_unnamed(dir, d->file_bytes, err)) < 0)
            return fd;
        snprintf(r->drive_note, sizeof r->drive_note,
                 "read from a file written for it, since there is none of 256 MiB here: a drive's cache may flatter "
                 "it; --dir DIR names where models are");
    }
    d->files.n = 1;
    d->files.fd[0] = fd;
    return 0;
}

static int open_source(struct ntx__doctor_drive *d, struct ntx_doctor_report *r, struct ntx_err *err)
{
    struct ntx_region_geometry g = {.block = 4096,
                                    .n_files = 1,
                                    .n_chunks = 1,
                                    .n_desc = 1,
                                    .n_slots = 8,
                                    .n_demands = 1,
                                    .n_layers = 1,
                                    .n_embd = 1,
                                    .slot_bytes = 1u << 20,
                                    .frame_bytes = 4096,
                                    .arena_bytes = 1u << 21};
    char note[400], files[300], source[300];
    int rc = ntx_region_create(&g, &d->region, note, sizeof note, err);
    if (rc)
        return rc;
    d->region.hdr->file_bytes[0] = d->file_bytes;
    ntx_iod_files_prepare(&d->files, 4096, files, sizeof files);
    if ((rc = ntx_source_open("auto", &d->region, &d->files, NULL, &d->source, source, sizeof source, err)))
        return rc;
    if (d->region.huge_share < 0.9)
        ntx__doctor_say(r,
                        "Only %.0f %% of the buffers are in huge pages, and a drive may be read at half its rate into "
                        "small ones: free some memory, or "
                        "reboot, and see that /sys/kernel/mm/transparent_hugepage/enabled is not 'never'; Linux 6.1 or "
                        "later is needed.",
                        d->region.huge_share * 100);
    if (!d->files.direct[0])
        ntx__doctor_say(r,
                        "The directory cannot be read with O_DIRECT (%s): keep models on a file system such as ext4 or "
                        "xfs on the drive itself.",
                        files);
    if (!strcmp(d->source->ops->name, "pread"))
        ntx__doctor_say(r, "io_uring is refused here, so reads go through threads and cost more CPU: set "
                           "kernel.io_uring_disabled=0 with sysctl, or allow it "
                           "in the container's seccomp profile.");
    return 0;
}

/* ---- reading */

static void on_read(void *ctx, uint64_t tag, int32_t result)
{
    struct ntx__doctor_drive *d = ctx;
    d->free_slots[d->n_free++] = (unsigned)tag;
    if (result < 0)
        d->error = result;
    else
        d->done_bytes += (uint32_t)result;
}

static void submit(struct ntx__doctor_drive *d, uint32_t size)
{
    d->random = d->random * 6364136223846793005u + 1442695040888963407u;
    unsigned slot = d->free_slots[--d->n_free];
    struct ntx_iod_read rd = {.tag = slot,
                              .offset = (d->random >> 16) % (d->file_bytes / size) * size,
                              .len = size,
                              .expect = size,
                              .dest = (uint64_t)slot * size};
    int rc = d->source->ops->submit(d->source, &rd);
    if (rc) {
        d->n_free++;
        d->error = rc;
    }
}

static void wait_some(struct ntx__doctor_drive *d)
{
    int fds[NTX_SOURCE_MAX_FDS];
    struct pollfd p[NTX_SOURCE_MAX_FDS];
    unsigned n = d->source->ops->fds(d->source, fds, 0);
    for (unsigned i = 0; i < n; i++)
        p[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    poll(p, n, 1000);
    d->source->ops->reap(d->source, on_read, d);
}

/* Bytes per second of reads of `size`, `depth` at a time, over `seconds`; reads under way at the end are awaited and
 * counted. */
static double read_for(struct ntx__doctor_drive *d, uint32_t size, unsigned depth, double seconds)
{
    uint64_t t0 = ntx_now_ns(), end = t0 + (uint64_t)(seconds * 1e9);
    d->n_free = d->done_bytes = 0;
    for (unsigned i = depth; i > 0; i--)
        d->free_slots[d->n_free++] = i - 1;
    while (!d->error && ntx_now_ns() < end) {
        while (d->n_free && !d->error) {
            submit(d, size);
            if (size >= 262144)
                d->source->ops->flush(d->source);
        }
        d->source->ops->flush(d->source);
        wait_some(d);
    }
    while (d->n_free < depth)
        wait_some(d);
    return (double)d->done_bytes / ((double)(ntx_now_ns() - t0) * 1e-9);
}

int ntx__doctor_drive_open(const char *dir, double seconds, struct ntx_doctor_report *r, struct ntx__doctor_drive **out,
                           struct ntx_err *err)
{
    struct ntx__doctor_drive *d = calloc(1, sizeof *d);
    if (!d)
        return ntx_err_set(err, -ENOMEM, "no memory");
    d->dir = dir;
    d->random = ntx_now_ns();
    int rc = open_file(d, dir, seconds, r, err);
    if (!rc)
        rc = open_source(d, r, err);
    if (rc)
        ntx__doctor_drive_close(d);
    else
        *out = d;
    return rc;
}

int ntx__doctor_drive_measure(struct ntx__doctor_drive *d, double seconds, struct ntx_hw *hw, struct ntx_err *err)
{
    double each = seconds / (N_SIZES + 1);
    read_for(d, sizes[N_SIZES - 1], 4, each / 2); /* wakes the drive up */
    for (int i = 0; i < N_SIZES; i++)
        hw->reads[hw->n_reads++] = (struct ntx_hw_read){
            sizes[i], read_for(d, sizes[i], NTX_MIN(IN_FLIGHT / sizes[i], NTX_IOD_MAX_READS), each)};
    hw->read_s = 4096 / read_for(d, 4096, 1, each / 2);
    hw->in_flight = IN_FLIGHT;
    return d->error ? ntx_err_set(err, d->error, "%s: the drive cannot be read: %s", d->dir, strerror(-d->error)) : 0;
}

int ntx__doctor_drive_file(const struct ntx__doctor_drive *d, uint64_t *bytes)
{
    *bytes = d->file_bytes;
    return d->files.fd[0];
}

void ntx__doctor_drive_close(struct ntx__doctor_drive *d)
{
    if (!d)
        return;
    ntx_source_close(d->source);
    ntx_region_close(&d->region);
    if (d->files.n)
        close(d->files.fd[0]);
    free(d);
}
