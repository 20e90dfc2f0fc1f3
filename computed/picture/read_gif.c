/* SPDX-License-Identifier: Apache-2.0 */
/* GIF by giflib: the first frame, on its canvas. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <gif_lib.h>

#include "common/util.h"
#include "computed/picture/picture_impl.h"

struct gif_source {
    const struct ntx__picture_file *file;
    size_t at;
};

static int give_bytes(GifFileType *g, GifByteType *to, int n)
{
    struct gif_source *s = g->UserData;
    const size_t k = NTX_MIN((size_t)n, s->file->n - s->at);
    memcpy(to, s->file->data + s->at, k);
    s->at += k;
    return (int)k;
}

static int gif_damaged(int code, struct ntx_err *err)
{
    const char *why = GifErrorString(code);
    return ntx_err_set(err, -EINVAL, "the GIF file is damaged: %s", why ? why : "it ends too early");
}

/* Reads an extension; a graphic control block names the transparent colour. */
static int read_extension(GifFileType *g, int *transparent)
{
    GraphicsControlBlock block;
    GifByteType *data;
    int code;
    if (DGifGetExtension(g, &code, &data) == GIF_ERROR)
        return -EINVAL;
    if (data && code == GRAPHICS_EXT_FUNC_CODE && DGifExtensionToGCB(data[0], data + 1, &block) == GIF_OK)
        *transparent = block.TransparentColor;
    while (data)
        if (DGifGetExtensionNext(g, &data) == GIF_ERROR)
            return -EINVAL;
    return 0;
}

/* Reads up to the first frame's header. */
static int find_frame(GifFileType *g, int *transparent, struct ntx_err *err)
{
    GifRecordType type;
    for (;;) {
        if (DGifGetRecordType(g, &type) == GIF_ERROR)
            return gif_damaged(g->Error, err);
        if (type == TERMINATE_RECORD_TYPE)
            return ntx_err_set(err, -EINVAL, "the GIF file has no picture");
        if (type == EXTENSION_RECORD_TYPE && read_extension(g, transparent))
            return gif_damaged(g->Error, err);
        if (type == IMAGE_DESC_RECORD_TYPE)
            return DGifGetImageDesc(g) == GIF_ERROR ? gif_damaged(g->Error, err) : 0;
    }
}

/* The line of the picture that comes as number i: interlaced ones come in four passes. */
static uint32_t line_at(uint32_t i, uint32_t height)
{
    static const uint32_t first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
    for (unsigned pass = 0; pass < 4; pass++) {
        const uint32_t lines = height > first[pass] ? (height - first[pass] + step[pass] - 1) / step[pass] : 0;
        if (i < lines)
            return first[pass] + i * step[pass];
        i -= lines;
    }
    return 0;
}

static void draw_line(const ColorMapObject *colors, const GifByteType *line, int n, int transparent, uint8_t *to)
{
    for (int x = 0; x < n; x++, to += 3)
        if (line[x] != transparent && line[x] < colors->ColorCount) {
            const GifColorType *c = &colors->Colors[line[x]];
            to[0] = c->Red;
            to[1] = c->Green;
            to[2] = c->Blue;
        }
}

static int read_frame(GifFileType *g, int transparent, struct ntx__picture_read *p, struct ntx_err *err)
{
    const GifImageDesc *d = &g->Image;
    const ColorMapObject *colors = d->ColorMap ? d->ColorMap : g->SColorMap;
    if (!colors)
        return ntx_err_set(err, -EINVAL, "the GIF file is damaged: its picture has no colours");
    GifByteType *line = malloc((size_t)d->Width);
    int rc = line ? 0 : ntx_err_set(err, -ENOMEM, "%s", NTX__PICTURE_NO_MEMORY);
    for (uint32_t i = 0; !rc && i < (uint32_t)d->Height; i++) {
        const uint32_t y = (uint32_t)d->Top + (d->Interlace ? line_at(i, (uint32_t)d->Height) : i);
        if (DGifGetLine(g, line, d->Width) == GIF_ERROR)
            rc = gif_damaged(g->Error, err);
        else
            draw_line(colors, line, d->Width, transparent, p->rgb + 3 * ((size_t)y * p->width + (uint32_t)d->Left));
    }
    free(line);
    return rc;
}

/* The canvas is at least as large as the frame: some files have a smaller screen. */
static int read_canvas(GifFileType *g, struct ntx__picture_read *p, struct ntx_err *err)
{
    int transparent = NO_TRANSPARENT_COLOR, rc = find_frame(g, &transparent, err);
    if (rc)
        return rc;
    const GifImageDesc *d = &g->Image;
    if (d->Width <= 0 || d->Height <= 0 || d->Left < 0 || d->Top < 0)
        return ntx_err_set(err, -EINVAL, "the GIF file is damaged: a picture of %d x %d", d->Width, d->Height);
    const int width = NTX_MAX(g->SWidth, d->Left + d->Width), height = NTX_MAX(g->SHeight, d->Top + d->Height);
    rc = ntx__picture_begin(p, (uint64_t)width, (uint64_t)height, err);
    return rc ? rc : read_frame(g, transparent, p, err);
}

int ntx__picture_read_gif(const struct ntx__picture_file *f, struct ntx__picture_read *p, struct ntx_err *err)
{
    struct gif_source source = {f, 0};
    int code = 0;
    GifFileType *g = DGifOpen(&source, give_bytes, &code);
    if (!g)
        return gif_damaged(code, err);
    int rc = read_canvas(g, p, err);
    DGifCloseFile(g, &code);
    return rc;
}
