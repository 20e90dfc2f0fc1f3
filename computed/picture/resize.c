/* SPDX-License-Identifier: Apache-2.0 */
/* Resampling of 8-bit samples in integers, with the weights and the rounding of Pillow's Image.resize (its
 * src/libImaging/Resample.c is the reference): first along the lines, then along the columns. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/picture/picture_impl.h"

enum { GREY = 127 };

#define WEIGHT_BITS 22 /* behind the point: 32 less 8 of a sample, and 2 for sums that overshoot */

/* The inputs of each output along one direction. */
struct taps {
    uint32_t most;       /* inputs of an output */
    uint32_t *first, *n; /* [outputs] */
    int32_t *weights;    /* [outputs][most] */
};

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* Keys' kernel with a = -0.5. */
static double cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static void free_taps(struct taps *t)
{
    free(t->first);
    free(t->weights);
}

static int alloc_taps(struct taps *t, uint32_t out, uint32_t most)
{
    t->most = most;
    t->first = malloc(2 * sizeof *t->first * out);
    t->n = t->first ? t->first + out : NULL;
    t->weights = calloc((size_t)out * most, sizeof *t->weights);
    if (t->first && t->weights)
        return 0;
    free_taps(t);
    return -ENOMEM;
}

static int32_t fixed_weight(double w) { return (int32_t)(w * (1 << WEIGHT_BITS) + (w < 0 ? -0.5 : 0.5)); }

/* The weights of output i, which `w` has room for. */
static void find_taps(struct taps *t, uint32_t i, double scale, uint32_t in, enum ntx_picture_filter filter, double *w)
{
    const double wide = fmax(scale, 1), reach = (filter == NTX_FILTER_BICUBIC ? 2 : 1) * wide;
    const double center = (i + 0.5) * scale, narrow = 1 / wide;
    const double from = center - reach + 0.5, to = center + reach + 0.5;
    const uint32_t first = from < 0 ? 0 : (uint32_t)from, end = to > in ? in : (uint32_t)to;
    double sum = 0;
    for (uint32_t k = 0; k < end - first; k++) {
        const double x = ((double)k + first - center + 0.5) * narrow;
        w[k] = filter == NTX_FILTER_BICUBIC ? cubic(x) : triangle(x);
        sum += w[k];
    }
    for (uint32_t k = 0; k < end - first; k++)
        t->weights[(size_t)i * t->most + k] = fixed_weight(sum != 0 ? w[k] / sum : w[k]);
    t->first[i] = first;
    t->n[i] = end - first;
}

static int make_taps(struct taps *t, uint32_t in, uint32_t out, enum ntx_picture_filter filter)
{
    const double scale = (double)in / out, reach = (filter == NTX_FILTER_BICUBIC ? 2 : 1) * fmax(scale, 1);
    int rc = alloc_taps(t, out, (uint32_t)ceil(reach) * 2 + 1);
    if (rc)
        return rc;
    double *w = malloc(t->most * sizeof *w);
    for (uint32_t i = 0; w && i < out; i++)
        find_taps(t, i, scale, in, filter, w);
    free(w);
    if (!w)
        free_taps(t);
    return w ? 0 : -ENOMEM;
}

static uint8_t round_sum(int32_t sum)
{
    const int32_t v = sum >> WEIGHT_BITS;
    return (uint8_t)NTX_MIN(NTX_MAX(v, 0), 255);
}

static void resize_line(const struct taps *t, const uint8_t *in, uint32_t out_width, uint8_t *out)
{
    for (uint32_t x = 0; x < out_width; x++) {
        const int32_t *w = t->weights + (size_t)x * t->most;
        const uint8_t *from = in + 3 * (size_t)t->first[x];
        int32_t sum[3] = {1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1)};
        for (uint32_t k = 0; k < t->n[x]; k++)
            for (unsigned c = 0; c < 3; c++)
                sum[c] += from[3 * k + c] * w[k];
        for (unsigned c = 0; c < 3; c++)
            out[3 * x + c] = round_sum(sum[c]);
    }
}

static void resize_column(const struct taps *t, const uint8_t *in, size_t stride, uint32_t y, int32_t *sums,
                          uint8_t *out)
{
    const int32_t *w = t->weights + (size_t)y * t->most;
    for (size_t i = 0; i < stride; i++)
        sums[i] = 1 << (WEIGHT_BITS - 1);
    for (uint32_t k = 0; k < t->n[y]; k++) {
        const uint8_t *line = in + (t->first[y] + (size_t)k) * stride;
        for (size_t i = 0; i < stride; i++)
            sums[i] += line[i] * w[k];
    }
    for (size_t i = 0; i < stride; i++)
        out[i] = round_sum(sums[i]);
}

static int resize_width(const struct ntx_picture *p, uint32_t width, enum ntx_picture_filter filter, uint8_t *out)
{
    struct taps t;
    int rc = make_taps(&t, p->width, width, filter);
    if (rc)
        return rc;
    for (uint32_t y = 0; y < p->height; y++)
        resize_line(&t, p->rgb + 3 * (size_t)p->width * y, width, out + 3 * (size_t)width * y);
    free_taps(&t);
    return 0;
}

static int resize_height(const uint8_t *in, uint32_t width, uint32_t in_height, uint32_t height,
                         enum ntx_picture_filter filter, uint8_t *out)
{
    const size_t stride = 3 * (size_t)width;
    struct taps t;
    int rc = make_taps(&t, in_height, height, filter);
    if (rc)
        return rc;
    int32_t *sums = malloc(stride * sizeof *sums);
    for (uint32_t y = 0; sums && y < height; y++)
        resize_column(&t, in, stride, y, sums, out + stride * y);
    free(sums);
    free_taps(&t);
    return sums ? 0 : -ENOMEM;
}

/* A direction that keeps its length is left alone. */
int ntx__picture_resize(const struct ntx_picture *p, uint32_t width, uint32_t height, enum ntx_picture_filter filter,
                        uint8_t *out)
{
    if (height == p->height && width != p->width)
        return resize_width(p, width, filter, out);
    if (height == p->height) {
        memcpy(out, p->rgb, 3 * (size_t)width * height);
        return 0;
    }
    if (width == p->width)
        return resize_height(p->rgb, width, p->height, height, filter, out);
    uint8_t *half = malloc(3 * (size_t)width * p->height);
    int rc = half ? resize_width(p, width, filter, half) : -ENOMEM;
    if (!rc)
        rc = resize_height(half, width, p->height, height, filter, out);
    free(half);
    return rc;
}

/* To the nearest bfloat16, halves to even. */
static float to_bfloat(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

static float normalise_one(const struct ntx_picture_rule *r, uint8_t value, unsigned c)
{
    if (!r->bfloat)
        return ((float)value / 255 - r->mean[c]) / r->deviation[c];
    return to_bfloat(to_bfloat(to_bfloat((float)value * (float)(1 / 255.0)) - to_bfloat(r->mean[c])) /
                     to_bfloat(r->deviation[c]));
}

static void normalise(const struct ntx_picture_rule *r, const uint8_t *rgb, size_t pixels, float *planes)
{
    for (unsigned c = 0; c < 3; c++)
        for (size_t i = 0; i < pixels; i++)
            planes[c * pixels + i] = normalise_one(r, rgb[3 * i + c], c);
}

/* Resizes a picture into the upper left corner of a black one, or into the middle of a grey one. */
static int resize_into(const struct ntx_picture_rule *r, const struct ntx_picture *p, const struct ntx_fitted *fit,
                       uint8_t *rgb)
{
    uint32_t own_width, own_height;
    ntx__picture_content(r, p->width, p->height, fit, &own_width, &own_height);
    if (own_width == fit->width && own_height == fit->height)
        return ntx__picture_resize(p, own_width, own_height, r->filter, rgb);
    const size_t line = 3 * (size_t)own_width;
    uint8_t *own = malloc(line * own_height);
    const int rc = own ? ntx__picture_resize(p, own_width, own_height, r->filter, own) : -ENOMEM;
    const bool middle = r->fit == NTX_FIT_ROWS;
    const uint32_t left = middle ? (uint32_t)nearbyint((fit->width - own_width) * 0.5) : 0,
                   top = middle ? (uint32_t)nearbyint((fit->height - own_height) * 0.5) : 0;
    memset(rgb, middle ? GREY : 0, 3 * (size_t)fit->width * fit->height);
    for (uint32_t y = 0; !rc && y < own_height; y++)
        memcpy(rgb + 3 * ((size_t)fit->width * (top + y) + left), own + line * y, line);
    free(own);
    return rc;
}

/* `whole`: of the picture beside its tiles. */
static int make_planes(const struct ntx_picture_rule *r, const struct ntx_picture *p, const struct ntx_fitted *fit,
                       bool whole, float **out)
{
    const size_t pixels = whole ? (size_t)fit->over_width * fit->over_height : (size_t)fit->width * fit->height;
    uint8_t *rgb = malloc(3 * pixels);
    float *planes = malloc(3 * pixels * sizeof *planes);
    int rc = rgb && planes ? 0 : -ENOMEM;
    if (!rc)
        rc = whole ? ntx__picture_resize(p, fit->over_width, fit->over_height, r->filter, rgb)
                   : resize_into(r, p, fit, rgb);
    if (!rc)
        normalise(r, rgb, pixels, planes);
    free(rgb);
    if (rc)
        free(planes);
    else
        *out = planes;
    return rc;
}

int ntx_picture_pixels(const struct ntx_picture_rule *r, const struct ntx_picture *p, struct ntx_pixels *out,
                       struct ntx_err *err)
{
    struct ntx_pixels x = {0};
    int rc = ntx_picture_size(r, p->width, p->height, &x.size, err);
    if (rc)
        return rc;
    rc = make_planes(r, p, &x.size, false, &x.planes);
    if (!rc && x.size.over_width)
        rc = make_planes(r, p, &x.size, true, &x.over);
    if (rc) {
        ntx_pixels_free(&x);
        return ntx_err_set(err, rc, "no memory to fit a picture of %u x %u pixels", p->width, p->height);
    }
    *out = x;
    return 0;
}

void ntx_pixels_free(struct ntx_pixels *p)
{
    free(p->planes);
    free(p->over);
    p->planes = p->over = NULL;
}
