/* SPDX-License-Identifier: Apache-2.0 */
/* kv_file_shape.c: how large a file of K and V is, what of it is in memory, and what a pass reads. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "computed/state/kv_file_impl.h"

#define FS_TMPFS 0x01021994

/* ---- bytes; of one cluster unless noted */

static uint64_t part_bytes(const struct ntx_kv_layout *l, uint32_t part)
{
    return l->cluster / ntx__kv_file_run_blocks(l, part) * ntx__kv_file_run_bytes(l, part);
}

uint64_t ntx__kv_file_all_parts(const struct ntx_kv_layout *l)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < l->n_parts; i++)
        n += part_bytes(l, i);
    return n;
}

uint64_t ntx_kv_file_bytes(const struct ntx_kv_layout *l)
{
    return ntx__kv_file_all_parts(l) * ntx__kv_file_clusters(l, l->n_blocks);
}

static uint64_t largest_turn(const struct ntx_kv_layout *l)
{
    uint64_t most = 0;
    for (uint32_t layer = 0; layer < l->n_layers; layer++) {
        uint64_t n = 0;
        for (uint32_t i = 0; i < NTX_KV_READS; i++)
            n += ntx__kv_file_part_of(l, layer, i) == NTX_KV_NO_PART ? 0
                                                                     : part_bytes(l, ntx__kv_file_part_of(l, layer, i));
        most = NTX_MAX(most, n);
    }
    return most;
}

/* How many of the first n_layers layers read the part. */
static uint32_t readers_of(const struct ntx_kv_layout *l, uint32_t part, uint32_t n_layers)
{
    uint32_t n = 0;
    for (uint32_t layer = 0; layer < n_layers; layer++)
        for (uint32_t i = 0; i < NTX_KV_READS; i++)
            n += ntx__kv_file_part_of(l, layer, i) == part;
    return n;
}

/* Parts that several layers read stay from the first of these to the last. */
static uint64_t shared_parts(const struct ntx_kv_layout *l)
{
    uint64_t n = 0;
    for (uint32_t p = 0; p < l->n_parts; p++)
        n += readers_of(l, p, l->n_layers) > 1 ? part_bytes(l, p) : 0;
    return n;
}

/* A touched place is one run, or one of each of the two parts of a layer's K and keys. */
static uint64_t touched_bytes(const struct ntx_kv_layout *l)
{
    uint64_t most = 0, topk = 0;
    for (uint32_t i = 0; i < l->n_parts; i++) {
        most = l->part[i].topk ? most : NTX_MAX(most, ntx__kv_file_run_bytes(l, i));
        topk = l->part[i].topk ? NTX_MAX(topk, ntx__kv_file_run_bytes(l, i)) : topk;
    }
    return NTX__KV_TOUCHED * (most + topk);
}

uint64_t ntx_kv_file_least(const struct ntx_kv_layout *l)
{
    return (NTX__KV_LEAST_AHEAD * largest_turn(l) + shared_parts(l)) * ntx__kv_file_clusters(l, l->n_blocks) +
           ntx__kv_file_all_parts(l) + touched_bytes(l);
}

/* Turns that are held in memory, and clusters that stay, for a pass over n_clusters. */
uint32_t ntx__kv_file_turns(const struct ntx_kv_layout *l, uint32_t n_clusters, uint64_t most, uint32_t *keep)
{
    uint64_t turn = largest_turn(l) * n_clusters, cluster = ntx__kv_file_all_parts(l),
             other = shared_parts(l) * n_clusters + touched_bytes(l);
    if (cluster * n_clusters + touched_bytes(l) <= most) {
        *keep = n_clusters;
        return l->n_layers;
    }
    uint32_t ahead = NTX__KV_AHEAD * turn + other + cluster <= most ? NTX__KV_AHEAD : NTX__KV_LEAST_AHEAD;
    *keep = ahead * turn + other < most ? (uint32_t)((most - ahead * turn - other) / cluster) : 0;
    return ahead;
}

/* Expected share of runs that have at least one of `places` random positions. */
static double share_of_runs(uint32_t n_blocks, uint32_t run, double places)
{
    const double runs = (double)((n_blocks + run - 1) / run);
    return runs > 1 ? 1 - pow(1 - 1 / runs, places) : 1;
}

uint64_t ntx_kv_file_reads(const struct ntx_kv_layout *l, uint32_t n_blocks, uint64_t most, uint32_t attends,
                           uint32_t rows)
{
    uint32_t n = ntx__kv_file_clusters(l, n_blocks), keep;
    double of_cluster = 0;
    ntx__kv_file_turns(l, n, most, &keep);
    for (uint32_t i = 0; i < l->n_parts; i++) {
        double share = 1;
        if (rows && l->part[i].topk)
            share = share_of_runs(n_blocks, ntx__kv_file_run_blocks(l, i), (double)rows * l->topk);
        if (readers_of(l, i, attends))
            of_cluster += (double)part_bytes(l, i) * share;
    }
    return (uint64_t)((double)(n - keep) * of_cluster);
}

/* ---- the file */

int ntx_kv_file_open(const char *dir, uint64_t bytes, struct ntx_err *err)
{
    struct statfs fs;
    (void)mkdir(dir, 0700); /* open() reports the error */
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
    if (fd < 0 && errno == EINVAL)
        fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return ntx_err_set(err, -errno, "--kv-ram: no file for K and V can be made in %s: %s", dir, strerror(errno));
    if (!fstatfs(fd, &fs) && fs.f_type == FS_TMPFS) {
        close(fd);
        return ntx_err_set(err, -EINVAL,
                           "--kv-ram: %s lies in memory itself (tmpfs): --state needs a directory on a drive", dir);
    }
    int rc = posix_fallocate(fd, 0, (off_t)NTX_ROUND_UP(bytes, ntx_page_bytes()));
    if (rc) {
        char size[32];
        close(fd);
        return ntx_err_set(err, -rc, "--kv-ram: K and V need %s in %s: %s; make room, or use a smaller --ctx",
                           ntx_format_size(bytes, size, sizeof size), dir, strerror(rc));
    }
    return fd;
}
