/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes as transformers computes them: smart_resize of Qwen2-VL's and of GLM-5.3-Flash's processors,
 * get_resize_output_image_size of Pixtral's, get_aspect_ratio_preserving_size of Gemma 4's, and get_best_fit of
 * Llama 4's; and as Kimi-K2.5's processor has them (navit_resize_image). */
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

/* A side that would vanish is one multiple, and the other one then as many as the sides' ratio, rounded down. */
static void fit_fill(const struct ntx_picture_rule *r, double w, double h, double *fw, double *fh)
{
    const double f = r->factor, by = sqrt((double)r->max_pixels / (w * h)),
                 most = floor((double)r->max_pixels / (f * f));
    *fw = floor(by * w / f) * f;
    *fh = floor(by * h / f) * f;
    if (*fh < f) {
        *fh = f;
        *fw = fmin(floor(w / h), most) * f;
    } else if (*fw < f) {
        *fw = f;
        *fh = fmin(floor(h / w), most) * f;
    }
}

static double align_up(double side, double factor) { return ceil(side / factor) * factor; }

/* Of all heights that the picture may be reduced to, the largest that leaves the canvas within max_pixels. */
static void fit_canvas(const struct ntx_picture_rule *r, double w, double h, double *fw, double *fh)
{
    const double f = r->factor, least = (double)r->min_pixels, most = (double)r->max_pixels;
    double low = 1, high = h;
    *fw = align_up(w, f);
    *fh = align_up(h, f);
    if (*fw * *fh < least) {
        const double by = sqrt(least / (w * h));
        *fw = align_up(ceil(w * by), f);
        *fh = align_up(ceil(h * by), f);
    }
    if (*fw * *fh <= most)
        return;
    *fw = *fh = f;
    while (low <= high) {
        const double height = floor((low + high) / 2), width = fmax(1, floor(w * height / h));
        if (align_up(width, f) * align_up(height, f) <= most) {
            *fw = align_up(width, f);
            *fh = align_up(height, f);
            low = height + 1;
        } else {
            high = height - 1;
        }
    }
}

/* Within a canvas the picture keeps its shape, and is enlarged only below min_pixels. */
static void canvas_content(const struct ntx_picture_rule *r, double w, double h, double fw, double fh, double *cw,
                           double *ch)
{
    double by = fmin(fh / h, fw / w);
    if (w * h >= (double)r->min_pixels)
        by = fmin(1, by);
    *cw = fmax(1, fmin(fw, floor(w * by)));
    *ch = fmax(1, fmin(fh, floor(h * by)));
}

static void padded_content(const struct ntx_picture_rule *r, double w, double h, double *cw, double *ch)
{
    const double patch = r->patch, most = (double)r->max_pixels / (patch * patch),
                 patches = fmax(1, floor(w / patch)) * fmax(1, floor(h / patch)),
                 by = fmin(fmin(1, sqrt(most / patches)), fmin(r->size / w, r->size / h));
    *cw = fmin(fmax(1, floor(w * by)), r->size);
    *ch = fmin(fmax(1, floor(h * by)), r->size);
}

static void fit_padded(const struct ntx_picture_rule *r, double w, double h, double *fw, double *fh)
{
    padded_content(r, w, h, fw, fh);
    *fw = align_up(*fw, r->factor);
    *fh = align_up(*fh, r->factor);
}

/* Of two scales at which a picture fits: the least that does not make it smaller, else the one that makes it least
 * smaller. They are floats, as the processor has them. */
static bool is_better_scale(float a, float b)
{
    if ((a >= 1) != (b >= 1))
        return a >= 1;
    return a >= 1 ? a < b : a > b;
}

/* Of equal scales the one with the fewest tiles. */
static void fit_tiles(const struct ntx_picture_rule *r, double w, double h, double *fw, double *fh)
{
    float best = 0;
    uint32_t fewest = 0;
    for (uint32_t down = 1; down <= r->tiles; down++)
        for (uint32_t across = 1; across * down <= r->tiles; across++) {
            const float scale = fminf((float)(across * r->size) / (float)w, (float)(down * r->size) / (float)h);
            if (fewest && !is_better_scale(scale, best) && (scale != best || across * down >= fewest))
                continue;
            best = scale;
            fewest = across * down;
            *fw = across * r->size;
            *fh = down * r->size;
        }
}

static void tiles_content(const struct ntx_picture_rule *r, double w, double h, double fw, double fh, double *cw,
                          double *ch)
{
    const double most_w = fmin(fmax(w, r->size), fw), most_h = fmin(fmax(h, r->size), fh), by_w = most_w / w,
                 by_h = most_h / h;
    *cw = by_w < by_h ? most_w : fmax(1, fmin(floor(w * by_h), most_w));
    *ch = by_w < by_h ? fmax(1, fmin(floor(h * by_w), most_h)) : most_h;
}

/* ---- DeepSeek V4 */

#define WIDE  8  /* times as wide as high: a wider picture is stretched */
#define LEAD  3  /* rows before a picture, at most, that belong to it */
#define LEAST 16 /* rows: fewer are not tried */

static uint64_t rows_of_size(const struct ntx_picture_rule *r, double w, double h)
{
    const double square = (double)r->factor * r->merge;
    return ntx_picture_rows((uint64_t)ceil(w / square), (uint64_t)ceil(h / square));
}

/* The largest sides of this shape that seem to have `rows` rows. */
static void fit_budget(const struct ntx_picture_rule *r, double w, double h, double rows, double *fw, double *fh)
{
    const double f = r->factor, square = f * r->merge, ratio = h / w, most_w = sqrt((rows - 2) / ratio + 0.25) - 0.5,
                 most_h = most_w * ratio;
    if (most_w < 1) {
        *fw = square;
        *fh = 2 * floor(floor((rows - 2) / 2) / 2) * square;
    } else if (most_h < 2) {
        *fw = fmax(floor((rows - 2) / 2) - 1, 2) * square;
        *fh = 2 * square;
    } else {
        const double by = fmin(floor(most_w) * square / w, 2 * floor(floor(most_h) / 2) * square / h);
        *fw = floor(w * by / f) * f;
        *fh = floor(h * by / f) * f;
    }
}

/* Sides are whole numbers after each step. */
static void fit_rows(const struct ntx_picture_rule *r, double w, double h, double *fw, double *fh)
{
    const uint32_t most = r->most_rows - LEAD;
    w = fmin(w, h * WIDE);
    if (w * h < (double)r->min_pixels) {
        const double by = sqrt((double)r->min_pixels / (w * h));
        w = floor(w * by);
        h = floor(h * by);
    }
    *fw = align_up(w, r->factor);
    *fh = align_up(h, r->factor);
    for (uint32_t rows = most; rows >= LEAST && rows_of_size(r, *fw, *fh) > most; rows--)
        fit_budget(r, w, h, rows, fw, fh);
    if (rows_of_size(r, *fw, *fh) > most)
        *fw = *fh = 0;
}

static void rows_content(double w, double h, double fw, double fh, double *cw, double *ch)
{
    if (w >= WIDE * h)
        return;
    if (w / h > fw / fh)
        *ch = fmin(fmax(1, nearbyint(h / w * fw)), fh);
    else if (w / h < fw / fh)
        *cw = fmin(fmax(1, nearbyint(w / h * fh)), fw);
}

void ntx__picture_content(const struct ntx_picture_rule *r, uint32_t width, uint32_t height,
                          const struct ntx_fitted *fit, uint32_t *own_width, uint32_t *own_height)
{
    double w = fit->width, h = fit->height;
    if (r->fit == NTX_FIT_CANVAS)
        canvas_content(r, width, height, fit->width, fit->height, &w, &h);
    else if (r->fit == NTX_FIT_PADDED)
        padded_content(r, width, height, &w, &h);
    else if (r->fit == NTX_FIT_TILES)
        tiles_content(r, width, height, fit->width, fit->height, &w, &h);
    else if (r->fit == NTX_FIT_ROWS)
        rows_content(width, height, fit->width, fit->height, &w, &h);
    *own_width = (uint32_t)w;
    *own_height = (uint32_t)h;
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

static void fit_by_rule(const struct ntx_picture_rule *r, double w, double h, double *fw, double *fh)
{
    *fw = *fh = r->size;
    if (r->fit == NTX_FIT_MULTIPLE)
        fit_multiple(r, w, h, fw, fh);
    else if (r->fit == NTX_FIT_FILL)
        fit_fill(r, w, h, fw, fh);
    else if (r->fit == NTX_FIT_CANVAS)
        fit_canvas(r, w, h, fw, fh);
    else if (r->fit == NTX_FIT_PADDED)
        fit_padded(r, w, h, fw, fh);
    else if (r->fit == NTX_FIT_LONGEST)
        fit_longest(r, w, h, fw, fh);
    else if (r->fit == NTX_FIT_TILES)
        fit_tiles(r, w, h, fw, fh);
    else if (r->fit == NTX_FIT_ROWS)
        fit_rows(r, w, h, fw, fh);
}

int ntx_picture_size(const struct ntx_picture_rule *r, uint32_t width, uint32_t height, struct ntx_fitted *out,
                     struct ntx_err *err)
{
    const double w = width, h = height;
    double fw, fh;
    if (!width || !height || width > NTX_PICTURE_SIDE || height > NTX_PICTURE_SIDE)
        return ntx_err_set(err, -EINVAL, "a picture of %u x %u pixels: a side has 1 to %u", width, height,
                           NTX_PICTURE_SIDE);
    if (r->fit == NTX_FIT_MULTIPLE && fmax(w, h) / fmin(w, h) > SHAPE_MOST)
        return ntx_err_set(
            err, -EINVAL,
            "a picture of %u x %u pixels is too narrow: the model takes pictures whose sides differ by a "
            "factor of at most %.0f; cut it into parts",
            width, height, SHAPE_MOST);
    fit_by_rule(r, w, h, &fw, &fh);
    if (!(fw >= 1 && fh >= 1 && fw * fh <= NTX_PICTURE_PIXELS))
        return ntx_err_set(err, -EINVAL, "a picture of %u x %u pixels does not become one that the projector takes",
                           width, height);
    *out = (struct ntx_fitted){.width = (uint32_t)fw, .height = (uint32_t)fh};
    if (r->fit == NTX_FIT_TILES && (out->width > r->size || out->height > r->size))
        out->over_width = out->over_height = r->size;
    return 0;
}
