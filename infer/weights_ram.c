#include "infer/weights_ram.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct ntx_ram_weights *of(const struct ntx_weights *w) { return (const struct ntx_ram_weights *)w; }

static int begin(struct ntx_weights *w, uint64_t pass)
{
    (void)w, (void)pass;
    return 0;
}

static int acquire(struct ntx_weights *w, uint32_t chunk, const void **bytes)
{
    *bytes = of(w)->bytes + of(w)->chunks->list[chunk].offset;
    return 0;
}

static void nothing(struct ntx_weights *w, uint32_t number) { (void)w, (void)number; }

static void end(struct ntx_weights *w) { (void)w; }

static int rows(struct ntx_weights *w, uint32_t file, uint64_t offset, uint32_t row_bytes, const int32_t *ids, uint32_t n, void *out)
{
    (void)file;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t at = offset + (uint64_t)(uint32_t)ids[i] * row_bytes;
        if (at > of(w)->n || row_bytes > of(w)->n - at) /* the file has grown since */
            return -EIO;
        memcpy((uint8_t *)out + (size_t)i * row_bytes, of(w)->bytes + at, row_bytes);
    }
    return 0;
}

static const struct ntx_weights_ops ops = {.begin = begin, .acquire = acquire, .release = nothing, .drop_layer = nothing, .skip = nothing, .end = end, .rows = rows};

int ntx_ram_weights_read(struct ntx_ram_weights *w, int fd, uint64_t bytes, const struct ntx_chunks *chunks, struct ntx_err *err)
{
    *w = (struct ntx_ram_weights){.w.ops = &ops, .chunks = chunks, .n = bytes};
    for (uint32_t i = 0; i < chunks->n; i++)
        if (chunks->list[i].file || chunks->list[i].offset > bytes || chunks->list[i].bytes > bytes - chunks->list[i].offset)
            return ntx_err_set(err, -EINVAL, "it does not lie in one file");
    if (!(w->bytes = malloc(bytes)))
        return ntx_err_set(err, -ENOMEM, "no memory for %llu bytes of weights", (unsigned long long)bytes);
    for (uint64_t at = 0; at < bytes;) {
        ssize_t n = pread(fd, w->bytes + at, bytes - at, (off_t)at);
        if (n <= 0 && !(n < 0 && errno == EINTR))
            return ntx_err_set(err, n ? -errno : -EIO, "its weights cannot be read: %s", n ? strerror(errno) : "the file is shorter than it was");
        at += n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

void ntx_ram_weights_free(struct ntx_ram_weights *w)
{
    free(w->bytes);
    w->bytes = NULL;
}
