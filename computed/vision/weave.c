/* SPDX-License-Identifier: Apache-2.0 */
/* weave.c: the rows of a picture as DeepSeek V4 reads them: padding, the beginning, the grid's lines in pairs, of which
 * each pair is read column by column and ends with a new line, padding, and the end. All but the grid's are learned. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "computed/vision/vision_impl.h"
#include "model/gguf.h"

static int read_all(int fd, uint64_t at, size_t n, void *to)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = pread(fd, (uint8_t *)to + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got ? -errno : -EIO;
        done += (size_t)got;
    }
    return 0;
}

int ntx__marks_read(const struct ntx_tower *t, const struct ntx_gguf *g, int fd, float **marks, struct ntx_err *err)
{
    const size_t bytes = t->out * sizeof(float);
    float *out = malloc(NTX_TOWER_MARKS * bytes);
    int rc = out ? 0 : -ENOMEM;
    for (uint32_t i = 0; !rc && i < NTX_TOWER_MARKS; i++)
        rc = read_all(fd, ntx_gguf_tensor_at(g, t->marks[i])->offset, bytes, out + (size_t)i * t->out);
    if (rc) {
        free(out);
        return ntx_err_set(err, rc, "the rows around a picture's cannot be read: %s", strerror(-rc));
    }
    *marks = out;
    return 0;
}

static uint32_t squares_along(const struct ntx_tower *t, uint32_t pixels)
{
    const uint32_t square = t->patch * t->merge;
    return (pixels + square - 1) / square;
}

uint64_t ntx__squares(const struct ntx_tower *t, uint32_t width, uint32_t height)
{
    return (uint64_t)squares_along(t, width) * squares_along(t, height);
}

uint64_t ntx__woven_rows(const struct ntx_tower *t, const struct ntx_fitted *size)
{
    return NTX_TOWER_LEAD + ntx_picture_rows(squares_along(t, size->width), squares_along(t, size->height));
}

struct weaving {
    size_t width;
    const float *marks;
    float *to;
};

static void put_row(struct weaving *w, const float *row)
{
    memcpy(w->to, row, w->width * sizeof *row);
    w->to += w->width;
}

static void put_mark(struct weaving *w, int mark, uint32_t n)
{
    while (n--)
        put_row(w, w->marks + (size_t)mark * w->width);
}

void ntx__weave(const struct ntx_tower *t, const struct ntx_fitted *size, const float *marks, const float *rows,
                float *values)
{
    const uint32_t columns = squares_along(t, size->width), lines = squares_along(t, size->height);
    struct weaving w = {.width = t->out, .marks = marks, .to = values};
    put_mark(&w, NTX_TOWER_MARK_PAD, NTX_TOWER_LEAD);
    put_mark(&w, NTX_TOWER_MARK_BEGIN, 1);
    for (uint32_t i = 0; i < (lines + 1) / 2 * (columns + 1); i++)
        for (uint32_t k = 0; k < 2; k++) {
            const uint32_t line = i / (columns + 1) * 2 + k, column = i % (columns + 1);
            if (line >= lines)
                put_mark(&w, NTX_TOWER_MARK_PAD, 1);
            else if (column == columns)
                put_mark(&w, NTX_TOWER_MARK_LINE, 1);
            else
                put_row(&w, rows + ((size_t)line * columns + column) * w.width);
        }
    put_mark(&w, NTX_TOWER_MARK_PAD, (lines + 1) / 2 * (columns + 1) % 2 * 2);
    put_mark(&w, NTX_TOWER_MARK_END, 1);
}
