/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG by libjpeg-turbo, with its defaults (exact DCT, smooth upsampling), as Pillow uses it. */
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "common/util.h"
#include "computed/picture/picture_impl.h"

#define SCANS_MOST 200 /* a progressive picture of a few bytes may have scans without end */

struct jpeg_job {
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    char text[JMSG_LENGTH_MAX];
    uint8_t *line; /* of a CMYK picture */
};

static void fail_job(j_common_ptr c)
{
    struct jpeg_job *j = c->client_data;
    c->err->format_message(c, j->text);
    longjmp(j->failed, 1);
}

/* Bytes are missing, or entropy-coded data is wrong: the rest would be grey. Other warnings are about files that are
 * whole. */
static void take_warning(j_common_ptr c, int level)
{
    const int code = c->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE))
        fail_job(c);
}

static void count_scans(j_common_ptr c)
{
    struct jpeg_job *j = c->client_data;
    if (j->d.input_scan_number <= SCANS_MOST)
        return;
    snprintf(j->text, sizeof j->text, "it has more than %d scans", SCANS_MOST);
    longjmp(j->failed, 1);
}

static unsigned find_orientation(const struct jpeg_decompress_struct *d)
{
    unsigned found = 0;
    for (jpeg_saved_marker_ptr m = d->marker_list; m && !found; m = m->next)
        if (m->data_length > 6 && !memcmp(m->data, "Exif\0", 6))
            found = ntx__exif_orientation(m->data, m->data_length);
    return found;
}

/* Samples of CMYK are inverted, as Adobe's programs write them. The formula is Pillow's. */
static void cmyk_to_rgb(const uint8_t *in, uint8_t *out, uint32_t width)
{
    for (uint32_t x = 0; x < width; x++) {
        const unsigned light = in[4 * x + 3];
        for (unsigned c = 0; c < 3; c++) {
            const unsigned t = (255u - in[4 * x + c]) * light + 128u, dark = (t + (t >> 8)) >> 8;
            out[3 * x + c] = (uint8_t)(light - dark);
        }
    }
}

static int read_lines(struct jpeg_job *j, struct ntx__picture_read *p, struct ntx_err *err)
{
    const bool four = j->d.out_color_components == 4;
    if (four && !(j->line = malloc(4 * (size_t)p->width)))
        return ntx_err_set(err, -ENOMEM, "%s", NTX__PICTURE_NO_MEMORY);
    while (j->d.output_scanline < j->d.output_height) {
        uint8_t *to = p->rgb + 3 * (size_t)p->width * j->d.output_scanline;
        JSAMPROW row = four ? j->line : to;
        jpeg_read_scanlines(&j->d, &row, 1);
        if (four)
            cmyk_to_rgb(j->line, to, p->width);
    }
    return 0;
}

static int read_picture(struct jpeg_job *j, const struct ntx__picture_file *f, struct ntx__picture_read *p,
                        struct ntx_err *err)
{
    if (setjmp(j->failed))
        return ntx_err_set(err, -EINVAL, "the JPEG file is damaged: %s", j->text);
    jpeg_create_decompress(&j->d);
    j->d.progress = &j->progress;
    jpeg_mem_src(&j->d, f->data, (unsigned long)f->n);
    jpeg_save_markers(&j->d, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(&j->d, TRUE);
    int rc = ntx__picture_begin(p, j->d.image_width, j->d.image_height, err);
    if (rc)
        return rc;
    p->orientation = find_orientation(&j->d);
    const bool four = j->d.jpeg_color_space == JCS_CMYK || j->d.jpeg_color_space == JCS_YCCK;
    j->d.out_color_space = four ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&j->d);
    if ((rc = read_lines(j, p, err)))
        return rc;
    jpeg_finish_decompress(&j->d);
    return 0;
}

int ntx__picture_read_jpeg(const struct ntx__picture_file *f, struct ntx__picture_read *p, struct ntx_err *err)
{
    struct jpeg_job *j = calloc(1, sizeof *j);
    if (!j)
        return ntx_err_set(err, -ENOMEM, "%s", NTX__PICTURE_NO_MEMORY);
    j->d.err = jpeg_std_error(&j->errors);
    j->d.client_data = j;
    j->errors.error_exit = fail_job;
    j->errors.emit_message = take_warning;
    j->progress.progress_monitor = count_scans;
    int rc = read_picture(j, f, p, err);
    jpeg_destroy_decompress(&j->d);
    free(j->line);
    free(j);
    return rc;
}
