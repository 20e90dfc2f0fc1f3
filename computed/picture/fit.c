/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes as transformers computes them: smart_resize of Qwen2-VL's processor, and get_resize_output_image_size of
 * Pixtral's. */
#include <errno.h>
#include <math.h>

#include "common/util.h"
#include "computed/picture/picture_impl.h"

#define SHAPE_MOST 200.0 /* longest side / shortest side, as smart_resize has it */

/* Division that rounds halves to even, as Python's round. */
static double multiples(double side, double factor) { return nearbyint(side / factor) * factor; }

static void fit_multiple(const struct ntx_picture_rule *r, double w, double h, double *fw, double *fh)
{
    const double f = r->factor, most = (double)r->max_pixels, least = (double)r->min_pixels;
    *fw = multiples(w, f);
    *fh = multiples(h, f);
    if (*fw * *fh > most) {
        const double beta = sqrt(h * w / most);
        *fw = fmax(f, floor(w / beta / f) * f);
        *fh = fmax(f, floor(h / beta / f) * f);
    } else if (*fw * *fh < least) {
        const double beta = sqrt(least / (h * w));
        *fw = ceil(w * beta / f) * f;
        *fh = ceil(h * beta / f) * f;
    }
}

static void fit_longest(const struct ntx_picture_rule *r, double w, double h, double *fw, double *fh)
{
    const double f = r->factor, ratio = fmax(w / r->size, h / r->size);
    if (ratio > 1) {
        w = fmax(1, floor(w / ratio));
        h = fmax(1, floor(h / ratio));
    }
    *fw = ceil(w / f) * f;
    *fh = ceil(h / f) * f;
}

int ntx_picture_size(const struct ntx_picture_rule *r, uint32_t width, uint32_t height, uint32_t *fit_width,
                     uint32_t *fit_height, struct ntx_err *err)
{
    const double w = width, h = height;
    double fw = r->size, fh = r->size;
    if (!width || !height || width > NTX_PICTURE_SIDE || height > NTX_PICTURE_SIDE)
        return ntx_err_set(err, -EINVAL, "a picture of %u x %u pixels: a side has 1 to %u", width, height,
                           NTX_PICTURE_SIDE);
    if (r->fit == NTX_FIT_MULTIPLE && fmax(w, h) / fmin(w, h) > SHAPE_MOST)
        return ntx_err_set(
            err, -EINVAL,
            "a picture of %u x %u pixels is too narrow: the model takes pictures whose sides differ by a "
            "factor of at most %.0f; cut it into parts",
            width, height, SHAPE_MOST);
    if (r->fit == NTX_FIT_MULTIPLE)
        fit_multiple(r, w, h, &fw, &fh);
    else if (r->fit == NTX_FIT_LONGEST)
        fit_longest(r, w, h, &fw, &fh);
    if (!(fw >= 1 && fh >= 1 && fw * fh <= NTX_PICTURE_PIXELS))
        return ntx_err_set(err, -EINVAL, "a picture of %u x %u pixels does not become one that the projector takes",
                           width, height);
    *fit_width = (uint32_t)fw;
    *fit_height = (uint32_t)fh;
    return 0;
}
