/* SPDX-License-Identifier: Apache-2.0 */
/* load_planes.c: what stays in memory of a model in high and low bits (model/planes.h). It lies in a sealed part that
 * is as long as the file of high bits, in the places of that file; the rest of the part is a hole. ntx-predictor gets
 * it, too, and drafts with it: so it is in memory once. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/engine/load.h"
#include "computed/pass/finite.h"
#include "model/planes.h"

#define READ (4u << 20)
#define PAGE 4096u

/* Reads whole pages: the descriptor may have O_DIRECT. */
static int read_range(int fd, uint8_t *file, uint64_t from, uint64_t end)
{
    for (uint64_t at = NTX_ROUND_DOWN(from, (uint64_t)PAGE), n; at < end; at += n) {
        n = NTX_ROUND_UP(NTX_MIN(end - at, (uint64_t)READ), (uint64_t)PAGE);
        ssize_t got = pread(fd, file + at, n, (off_t)at);
        if (got < 0 && errno == EINTR) {
            n = 0;
            continue;
        }
        if (got <= 0)
            return got ? -errno : -EIO;
        (void)posix_fadvise(fd, (off_t)at, got, POSIX_FADV_DONTNEED); /* the page cache is left to others */
        n = (uint64_t)got;
        if (at + n < end && n % PAGE)
            return -EIO;
    }
    return 0;
}

/* The low bits are checked nowhere: they have no scales. */
static int check_finite(const struct ntx_loaded *l, const struct ntx_planes_range *r, struct ntx_err *err)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(l->gguf, r->tensor);
    if (!ntx_planes_low(t->type) || ntx_blocks_finite(ntx_planes_of(t->type)->high, l->high.at + r->offset, r->bytes))
        return 0;
    return ntx_err_set(err, -EDOM,
                       "%s: tensor '%s' holds a NaN or an infinity: the file is damaged or was converted wrongly; make "
                       "it anew by ntx pack --planes",
                       l->names[NTX_GGUF_HIGH_FILE], t->name);
}

static int bring_in(struct ntx_loaded *l, const struct ntx_planes_range *run, struct ntx_err *err)
{
    int rc = run->bytes ? ntx_segment_bring_in(&l->high, run->offset, run->bytes, err) : 0;
    if (!rc && (rc = read_range(l->fds[NTX_GGUF_HIGH_FILE], l->high.at, run->offset, run->offset + run->bytes)))
        ntx_err_set(err, rc, "%s: cannot read the high bits: %s", l->names[NTX_GGUF_HIGH_FILE],
                    rc == -EIO ? "the file is shorter than it was" : strerror(-rc));
    return rc;
}

int ntx__load_planes(struct ntx_loaded *l, struct ntx_err *err)
{
    struct ntx_planes_range r, run = {0}; /* neighbours are one run, for huge pages */
    if (!ntx_gguf_planes(l->gguf))
        return 0;
    const uint64_t bytes = (uint64_t)l->stamps[NTX_GGUF_HIGH_FILE].st_size;
    const struct ntx_chunks *c = l->plan->chunks;
    const uint32_t n = ntx_planes_places(l->model, c);
    int rc = ntx_segment_make("ntx-high", bytes, NTX_SEGMENT_OWNED, NTX_HUGE, NULL, &l->high, err);
    for (uint32_t i = 0; i < n && !rc; i++) {
        if (!ntx_planes_stays(l->model, c, i, &r))
            continue;
        if (run.bytes && r.offset >= run.offset + run.bytes && r.offset - run.offset - run.bytes < PAGE) {
            run.bytes = r.offset + r.bytes - run.offset;
            continue;
        }
        rc = bring_in(l, &run, err);
        run = r;
    }
    rc = rc ? rc : bring_in(l, &run, err);
    for (uint32_t i = 0; i < n && !rc; i++)
        if (ntx_planes_stays(l->model, c, i, &r))
            rc = check_finite(l, &r, err);
    return rc;
}
