/* SPDX-License-Identifier: Apache-2.0 */
/* WebP by libwebp. Of an animation, the first frame on its canvas. */
#include <errno.h>
#include <stdlib.h>

#include <webp/decode.h>
#include <webp/demux.h>

#include "common/util.h"
#include "computed/picture/picture_impl.h"

/* Decodes a frame with alpha over the white canvas. */
static int draw_frame(const WebPIterator *frame, struct ntx__picture_read *p, struct ntx_err *err)
{
    const uint32_t left = (uint32_t)frame->x_offset, top = (uint32_t)frame->y_offset;
    int width, height;
    if (!WebPGetInfo(frame->fragment.bytes, frame->fragment.size, &width, &height) || width <= 0 || height <= 0 ||
        left > p->width || (uint32_t)width > p->width - left || top > p->height || (uint32_t)height > p->height - top)
        return ntx_err_set(err, -EINVAL, "the WebP file is damaged: its frame does not lie in its canvas");
    const size_t w = (uint32_t)width, h = (uint32_t)height;
    uint8_t *rgba = malloc(4 * w * h);
    if (!rgba)
        return ntx_err_set(err, -ENOMEM, "%s", NTX__PICTURE_NO_MEMORY);
    bool good = WebPDecodeRGBAInto(frame->fragment.bytes, frame->fragment.size, rgba, 4 * w * h, 4 * width);
    for (size_t i = 0; good && i < w * h; i++) {
        uint8_t *to = p->rgb + 3 * ((top + i / w) * p->width + left + i % w);
        for (unsigned c = 0; c < 3; c++)
            to[c] = ntx__picture_over_white(rgba[4 * i + c], rgba[4 * i + 3]);
    }
    free(rgba);
    return good ? 0 : ntx_err_set(err, -EINVAL, "the WebP file is damaged: its pixels cannot be decoded");
}

static int read_canvas(WebPDemuxer *d, struct ntx__picture_read *p, struct ntx_err *err)
{
    WebPIterator frame;
    WebPChunkIterator exif;
    int rc = ntx__picture_begin(p, WebPDemuxGetI(d, WEBP_FF_CANVAS_WIDTH), WebPDemuxGetI(d, WEBP_FF_CANVAS_HEIGHT),
                                err);
    if (rc)
        return rc;
    if (!WebPDemuxGetFrame(d, 1, &frame))
        return ntx_err_set(err, -EINVAL, "the WebP file has no frame");
    rc = draw_frame(&frame, p, err);
    WebPDemuxReleaseIterator(&frame);
    if (!rc && WebPDemuxGetChunk(d, "EXIF", 1, &exif)) {
        p->orientation = ntx__exif_orientation(exif.chunk.bytes, exif.chunk.size);
        WebPDemuxReleaseChunkIterator(&exif);
    }
    return rc;
}

int ntx__picture_read_webp(const struct ntx__picture_file *f, struct ntx__picture_read *p, struct ntx_err *err)
{
    const WebPData data = {f->data, f->n};
    WebPDemuxer *d = WebPDemux(&data); /* NULL for a file that ends too early, too */
    if (!d)
        return ntx_err_set(err, -EINVAL, "the WebP file is damaged, or ends too early");
    int rc = read_canvas(d, p, err);
    WebPDemuxDelete(d);
    return rc;
}
