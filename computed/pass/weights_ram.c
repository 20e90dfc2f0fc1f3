/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/pass/weights_ram.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"

static const struct ntx_ram_weights *ram_weights(const struct ntx_weights *w)
{
    return (const struct ntx_ram_weights *)w;
}

static int begin_pass(struct ntx_weights *w, uint64_t pass)
{
    (void)w, (void)pass;
    return 0;
}

static int acquire_chunk(struct ntx_weights *w, uint32_t chunk, const void **bytes)
{
    *bytes = ram_weights(w)->bytes + ram_weights(w)->at[chunk];
    return 0;
}

static void ignore_number(struct ntx_weights *w, uint32_t number) { (void)w, (void)number; }

static void end_pass(struct ntx_weights *w) { (void)w; }

enum { PAGE = 4096, BOUNCE = 1 << 20 };

/* Reads by whole pages, at most BOUNCE at a time. */
static int read_some(const struct ntx_ram_weights *w, int fd, uint64_t from, uint64_t n, uint8_t *out)
{
    for (uint64_t done = 0; done < n;) {
        uint64_t at = from + done, page = at / PAGE * PAGE, skip = at - page,
                 want = NTX_MIN((uint64_t)BOUNCE, (skip + n - done + PAGE - 1) / PAGE * PAGE);
        ssize_t got = pread(fd, w->page, want, (off_t)page);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= (ssize_t)skip)
            return got < 0 ? -errno : -EIO;
        uint64_t some = NTX_MIN((uint64_t)got - skip, n - done);
        memcpy(out + done, w->page + skip, some);
        done += some;
    }
    return 0;
}

static int read_entries(struct ntx_weights *w, uint32_t file, uint64_t offset, uint32_t entry_bytes, const int32_t *ids,
                        uint32_t n, void *out)
{
    int rc = 0;
    for (uint32_t i = 0; i < n && !rc; i++)
        rc = read_some(ram_weights(w), ram_weights(w)->fds[file], offset + (uint64_t)(uint32_t)ids[i] * entry_bytes,
                       entry_bytes, (uint8_t *)out + (size_t)i * entry_bytes);
    return rc;
}

static const struct ntx_weights_ops ops = {.begin = begin_pass,
                                           .acquire = acquire_chunk,
                                           .release = ignore_number,
                                           .drop_layer = ignore_number,
                                           .skip = ignore_number,
                                           .end = end_pass,
                                           .entries = read_entries};

/* padded, since kernels read whole registers */
static uint64_t padded_bytes(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

uint64_t ntx_ram_weights_pick_bytes(const struct ntx_chunks *chunks)
{
    uint64_t n = BOUNCE + chunks->n * sizeof(uint64_t);
    for (uint32_t i = 0; i < chunks->n; i++)
        n += padded_bytes(chunks->list[i].bytes);
    return n;
}

int ntx_ram_weights_pick(struct ntx_ram_weights *w, const int *fds, const struct ntx_chunks *chunks,
                         struct ntx_err *err)
{
    *w = (struct ntx_ram_weights){.w.ops = &ops, .chunks = chunks, .fds = fds, .at = calloc(chunks->n, sizeof *w->at)};
    for (uint32_t i = 0; w->at && i < chunks->n; i++) {
        w->at[i] = w->n;
        w->n += padded_bytes(chunks->list[i].bytes);
    }
    w->bytes = aligned_alloc(64, NTX_MAX(w->n, (uint64_t)64));
    w->page = aligned_alloc(PAGE, BOUNCE);
    if (!w->at || !w->bytes || !w->page)
        return ntx_err_set(err, -ENOMEM, "no memory for %llu bytes of weights", (unsigned long long)w->n);
    for (uint32_t i = 0; i < chunks->n; i++) {
        int rc = read_some(w, fds[chunks->list[i].file], chunks->list[i].offset, chunks->list[i].bytes,
                           w->bytes + w->at[i]);
        if (rc)
            return ntx_err_set(err, rc, "its weights cannot be read: %s",
                               rc == -EIO ? "the file is shorter than it was" : strerror(-rc));
    }
    return 0;
}

uint64_t ntx_ram_weights_lent_bytes(const struct ntx_chunks *chunks) { return BOUNCE + chunks->n * sizeof(uint64_t); }

int ntx_ram_weights_lent(struct ntx_ram_weights *w, const int *fds, const struct ntx_chunks *chunks,
                         const uint8_t *file, uint64_t bytes, struct ntx_err *err)
{
    *w = (struct ntx_ram_weights){.w.ops = &ops, .chunks = chunks, .fds = fds, .at = calloc(chunks->n, sizeof *w->at)};
    w->page = aligned_alloc(PAGE, BOUNCE);
    w->bytes = (uint8_t *)(uintptr_t)file;
    w->lent = true;
    if (!w->at || !w->page)
        return ntx_err_set(err, -ENOMEM, "no memory for the places of %u chunks", chunks->n);
    for (uint32_t i = 0; i < chunks->n; i++) {
        const struct ntx_chunk *c = &chunks->list[i];
        if (c->file || c->offset > bytes || c->bytes > bytes - c->offset)
            return ntx_err_set(err, -EINVAL, "its weights in memory are not those of its file");
        w->at[i] = c->offset;
    }
    return 0;
}

void ntx_ram_weights_free(struct ntx_ram_weights *w)
{
    free(w->at);
    free(w->page);
    w->at = NULL;
    w->page = NULL;
    if (!w->lent)
        free(w->bytes);
    w->bytes = NULL;
}
