/* SPDX-License-Identifier: Apache-2.0 */
/* replay: the drive's rate for independent reads of given sizes.
 *
 *   bench_replay FILE [SECONDS=0.5 [KIB=4096 [look]]] < SIZES     sizes in bytes, one per line; they are read in
 *     this order, again and again
 *
 * It uses iod's source, a region's huge pages and random offsets, with so many KiB in flight (4 MiB, as in `ntx
 * doctor`). look: this thread then reads each byte once, as inference must. It prints GB/s. bench/sparse/share.py takes
 * the sizes from a trace, so that a run is compared with the drive of the same minute. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/util.h"
#include "iod/source.h"

#define SIZES_MOST 65536
#define SLOT       (1u << 20)

struct drive {
    struct ntx_region region;
    struct ntx_iod_files files;
    struct ntx_source *source;
    uint64_t file_bytes, random, done, inflight;
    uint64_t most, sum; /* most: bytes in flight; sum: of the bytes read by the CPU */
    bool look;
    unsigned free[NTX_IOD_MAX_READS], n_free;
    int error;
};

static uint32_t size_of[SIZES_MOST];
static unsigned n_sizes;

static void came(void *ctx, uint64_t tag, int32_t result)
{
    struct drive *d = ctx;
    d->free[d->n_free++] = (unsigned)(tag >> 32);
    d->inflight -= (uint32_t)tag;
    const uint64_t *p = (const uint64_t *)(d->region.base + (tag >> 32) % 8 * SLOT);
    for (uint32_t i = 0; d->look && i < (uint32_t)tag / 8; i++)
        d->sum += p[i];
    if (result < 0)
        d->error = result;
    else
        d->done += (uint32_t)result;
}

static void submit(struct drive *d, uint32_t size)
{
    d->random = d->random * 6364136223846793005u + 1442695040888963407u;
    unsigned slot = d->free[--d->n_free];
    struct ntx_iod_read rd = {.tag = (uint64_t)slot << 32 | size,
                              .offset = (d->random >> 16) % ((d->file_bytes - size) / 4096 + 1) * 4096,
                              .len = size,
                              .expect = size,
                              .dest = (uint64_t)slot % 8 * SLOT}; /* the bytes do not matter, so reads may overlap */
    d->inflight += size;
    d->error = d->source->ops->submit(d->source, &rd);
    if (size >= 262144)
        d->source->ops->flush(d->source);
}

static void wait_some(struct drive *d)
{
    int fds[NTX_SOURCE_MAX_FDS];
    struct pollfd p[NTX_SOURCE_MAX_FDS];
    unsigned n = d->source->ops->fds(d->source, fds, 0);
    for (unsigned i = 0; i < n; i++)
        p[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    poll(p, n, 1000);
    d->source->ops->reap(d->source, came, d);
}

static double replay(struct drive *d, double seconds)
{
    uint64_t t0 = ntx_now_ns(), end = t0 + (uint64_t)(seconds * 1e9);
    for (unsigned i = 0; i < NTX_IOD_MAX_READS; i++)
        d->free[d->n_free++] = i;
    for (unsigned k = 0; !d->error && ntx_now_ns() < end;) {
        for (; d->n_free && !d->error && d->inflight + size_of[k] <= d->most; k = (k + 1) % n_sizes)
            submit(d, size_of[k]);
        d->source->ops->flush(d->source);
        wait_some(d);
    }
    while (d->inflight && !d->error)
        wait_some(d);
    return (double)d->done / (double)(ntx_now_ns() - t0);
}

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "replay: %s: %s\n", what, why);
    return 1;
}

int main(int argc, char **argv)
{
    static struct drive d = {.random = 88172645463325252u};
    struct ntx_region_geometry g = {.block = 4096,
                                    .n_files = 1,
                                    .n_chunks = 1,
                                    .n_desc = 1,
                                    .n_slots = 8,
                                    .n_demands = 1,
                                    .n_layers = 1,
                                    .n_embd = 1,
                                    .slot_bytes = SLOT,
                                    .frame_bytes = 4096,
                                    .arena_bytes = 1u << 21};
    struct ntx_err err = {0};
    struct stat st;
    char note[400];
    if (argc < 2)
        return fail("usage", "bench_replay FILE [SECONDS [KIB [look]]] < SIZES");
    while (n_sizes < SIZES_MOST && scanf("%u", &size_of[n_sizes]) == 1)
        if (size_of[n_sizes] && size_of[n_sizes] <= SLOT && size_of[n_sizes] % 4096 == 0)
            n_sizes++;
    d.files.n = 1;
    d.files.fd[0] = open(argv[1], O_RDONLY | O_CLOEXEC);
    if (d.files.fd[0] < 0 || fstat(d.files.fd[0], &st))
        return fail(argv[1], strerror(errno));
    if (!n_sizes || st.st_size < (off_t)SLOT)
        return fail(argv[1], "no sizes, or the file is too small");
    d.file_bytes = (uint64_t)st.st_size;
    if (ntx_region_create(&g, &d.region, note, sizeof note, &err))
        return fail(argv[1], err.text);
    d.region.hdr->file_bytes[0] = d.file_bytes;
    ntx_iod_files_prepare(&d.files, 4096, note, sizeof note);
    if (ntx_source_open("auto", &d.region, &d.files, NULL, &d.source, note, sizeof note, &err))
        return fail(argv[1], err.text);
    d.most = argc > 3 ? (uint64_t)atol(argv[3]) << 10 : 4u << 20;
    d.look = argc > 4;
    for (unsigned i = 0; i < n_sizes; i++)
        d.most = NTX_MAX(d.most, size_of[i]);
    double rate = replay(&d, argc > 2 ? atof(argv[2]) : 0.5);
    if (d.error)
        return fail(argv[1], strerror(-d.error));
    printf("%.4f%s\n", rate, d.sum == 1 ? " " : "");
    ntx_source_close(d.source);
    ntx_region_close(&d.region);
    return 0;
}
