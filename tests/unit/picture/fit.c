/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes by the models' rules, and resampling with Pillow's bits. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "computed/picture/picture_impl.h"
#include "tests/unit/picture/golden.h"

/* The generator of tests/golden/pictures.py. */
static struct ntx_picture noise(uint32_t width, uint32_t height)
{
    const size_t n = 3 * (size_t)width * height;
    struct ntx_picture p = {width, height, malloc(n)};
    uint32_t x = 1;
    for (size_t i = 0; i < n; i++) {
        x = (x * 1103515245u + 12345u) & 0x7fffffff;
        p.rgb[i] = (uint8_t)(x >> 16);
    }
    return p;
}

static uint32_t side(const json_t *j, const char *name, size_t i)
{
    return (uint32_t)json_integer_value(json_array_get(json_object_get(j, name), i));
}

static void check_resize(const json_t *j)
{
    const bool cubic = !strcmp(golden_text(j, "filter"), "bicubic");
    const uint32_t width = side(j, "to", 0), height = side(j, "to", 1);
    struct ntx_picture p = noise(side(j, "from", 0), side(j, "from", 1));
    size_t n;
    uint8_t *rgb = golden_bytes(j, "rgb", &n), *out = malloc(n);
    CHECK_EQ(n, 3 * (size_t)width * height);
    CHECK_EQ(ntx__picture_resize(&p, width, height, cubic ? NTX_FILTER_BICUBIC : NTX_FILTER_BILINEAR, out), 0);
    if (memcmp(out, rgb, n))
        printf("%u x %u to %u x %u, %s\n", p.width, p.height, width, height, golden_text(j, "filter"));
    CHECK(!memcmp(out, rgb, n));
    free(out);
    free(rgb);
    free(p.rgb);
}

static void check_size(const struct ntx_picture_rule *r, uint32_t w, uint32_t h, uint32_t fit_w, uint32_t fit_h)
{
    struct ntx_fitted got;
    struct ntx_err err = {0};
    CHECK_EQ(ntx_picture_size(r, w, h, &got, &err), 0);
    CHECK_EQ(got.width, fit_w);
    CHECK_EQ(got.height, fit_h);
    const bool cut = r->fit == NTX_FIT_TILES && (fit_w > r->size || fit_h > r->size);
    CHECK(got.over_width == (cut ? r->size : 0) && got.over_height == got.over_width);
}

static void check_content(const struct ntx_picture_rule *r, uint32_t w, uint32_t h, uint32_t fit_w, uint32_t fit_h,
                          uint32_t own_w, uint32_t own_h)
{
    uint32_t got_w, got_h;
    check_size(r, w, h, fit_w, fit_h);
    ntx__picture_content(r, w, h, &(struct ntx_fitted){.width = fit_w, .height = fit_h}, &got_w, &got_h);
    CHECK_EQ(got_w, own_w);
    CHECK_EQ(got_h, own_h);
}

/* A picture on a canvas: its own pixels, and black ones. */
static void test_canvas(void)
{
    const struct ntx_picture_rule r = {.fit = NTX_FIT_PADDED,
                                       .factor = 4,
                                       .patch = 2,
                                       .size = 64,
                                       .max_pixels = 4096,
                                       .mean = {0.5f, 0.5f, 0.5f},
                                       .deviation = {0.5f, 0.5f, 0.5f}};
    struct ntx_picture p = noise(5, 3);
    struct ntx_pixels x;
    struct ntx_err err = {0};
    CHECK_EQ(ntx_picture_pixels(&r, &p, &x, &err), 0);
    CHECK(x.size.width == 8 && x.size.height == 4);
    for (unsigned c = 0; c < 3; c++)
        for (unsigned i = 0; i < 32; i++) {
            const unsigned column = i % 8, row = i / 8;
            const bool own = column < 5 && row < 3;
            const double value = own ? p.rgb[3 * (5 * row + column) + c] : 0;
            CHECK(fabs(x.planes[32 * c + i] - (value / 255.0 - 0.5) / 0.5) < 1e-5);
        }
    ntx_pixels_free(&x);
    free(p.rgb);
}

/* In the middle of a grey canvas. */
static void test_middle(void)
{
    const struct ntx_picture_rule r = {
        .fit = NTX_FIT_ROWS, .factor = 4, .merge = 2, .most_rows = 384, .deviation = {1, 1, 1}};
    struct ntx_picture p = noise(12, 9);
    struct ntx_pixels x;
    struct ntx_err err = {0};
    CHECK_EQ(ntx_picture_pixels(&r, &p, &x, &err), 0);
    CHECK(x.size.width == 12 && x.size.height == 12);
    for (unsigned i = 0; i < 144; i++) {
        const unsigned column = i % 12, row = i / 12;
        const double value = row < 2 || row > 10 ? 127 : p.rgb[3 * (12 * (row - 2) + column)];
        CHECK(fabs(x.planes[i] - value / 255.0) < 1e-5);
    }
    ntx_pixels_free(&x);
    free(p.rgb);
}

/* The values of transformers 5: smart_resize(h, w, 28, 56 * 56, 28 * 28 * 1280) and (h, w, 32, 65536, 16777216);
 * Pixtral's get_resize_output_image_size with a longest edge of 1024 and patches of 16; what the processors of Gemma 4
 * (get_aspect_ratio_preserving_size), GLM-5.3-Flash (smart_resize), Kimi K2.5 (navit_resize) and Llama 4 (get_best_fit,
 * get_max_res_without_distortion) compute; for DeepSeek V4, llama.cpp's solver and Pillow's ImageOps.contain. */
static void test_sizes(void)
{
    const struct ntx_picture_rule qwen2 = {.factor = 28, .min_pixels = 56 * 56, .max_pixels = 28 * 28 * 1280};
    const struct ntx_picture_rule qwen3 = {.factor = 32, .min_pixels = 65536, .max_pixels = 16777216};
    const struct ntx_picture_rule gemma = {.fit = NTX_FIT_SQUARE, .size = 896};
    const struct ntx_picture_rule pixtral = {.fit = NTX_FIT_LONGEST, .factor = 16, .size = 1024};
    const struct ntx_picture_rule gemma4 = {.fit = NTX_FIT_FILL, .factor = 48, .max_pixels = 280 * 48 * 48};
    const struct ntx_picture_rule glm = {
        .fit = NTX_FIT_CANVAS, .factor = 28, .min_pixels = 16 * 28 * 28, .max_pixels = 8000 * 28 * 28};
    const struct ntx_picture_rule kimi = {
        .fit = NTX_FIT_PADDED, .factor = 28, .patch = 14, .size = 7168, .max_pixels = 16384 * 14 * 14};
    const struct ntx_picture_rule llama4 = {.fit = NTX_FIT_TILES, .size = 336, .tiles = 16};
    const struct ntx_picture_rule deepseek = {
        .fit = NTX_FIT_ROWS, .factor = 14, .merge = 3, .most_rows = 384, .min_pixels = 65536};
    struct ntx_fitted size;
    struct ntx_err err = {0};
    check_content(&deepseek, 1, 1, 266, 266, 266, 266);
    check_content(&deepseek, 3000, 17, 728, 98, 728, 98);
    check_content(&deepseek, 17, 3000, 28, 3402, 19, 3402);
    check_content(&deepseek, 640, 480, 644, 490, 644, 483);
    check_content(&deepseek, 1024, 1024, 756, 756, 756, 756);
    check_content(&deepseek, 8192, 8192, 756, 756, 756, 756);
    check_content(&deepseek, 2000, 900, 1120, 504, 1120, 504);
    check_content(&deepseek, 500, 1400, 448, 1260, 448, 1254);
    check_content(&deepseek, 1601, 201, 1610, 210, 1610, 202);
    check_content(&deepseek, 300, 16000, 84, 4480, 84, 4480);
    check_content(&llama4, 1, 1, 336, 336, 336, 336);
    check_content(&llama4, 336, 336, 336, 336, 336, 336);
    check_content(&llama4, 337, 336, 672, 336, 337, 336);
    check_content(&llama4, 640, 480, 672, 672, 640, 480);
    check_content(&llama4, 1024, 1024, 1344, 1344, 1024, 1024);
    check_content(&llama4, 3000, 17, 3024, 336, 3000, 17);
    check_content(&llama4, 17, 3000, 336, 3024, 17, 3000);
    check_content(&llama4, 8192, 8192, 1344, 1344, 1344, 1344);
    check_content(&llama4, 1344, 672, 1344, 672, 1344, 672);
    check_content(&llama4, 100, 3, 336, 336, 336, 10);
    check_content(&llama4, 2000, 900, 1680, 1008, 1680, 756);
    check_content(&llama4, 500, 1400, 672, 1680, 500, 1400);
    check_size(&gemma4, 1, 1, 768, 768);
    check_size(&gemma4, 3000, 17, 10656, 48);
    check_size(&gemma4, 640, 480, 912, 672);
    check_size(&gemma4, 17, 3000, 48, 10656);
    check_size(&gemma4, 8192, 8192, 768, 768);
    check_size(&gemma4, 100, 3, 4608, 96);
    check_size(&gemma4, 32000, 16, 13440, 48); /* a side would vanish */
    check_content(&glm, 1, 1, 112, 112, 112, 112);
    check_content(&glm, 3000, 17, 3024, 28, 3000, 17);
    check_content(&glm, 1024, 1024, 1036, 1036, 1024, 1024);
    check_content(&glm, 640, 480, 644, 504, 640, 480);
    check_content(&glm, 8192, 8192, 2492, 2492, 2492, 2492);
    check_content(&glm, 100, 3, 672, 28, 672, 20);
    check_content(&kimi, 1, 1, 28, 28, 1, 1);
    check_content(&kimi, 3000, 17, 3024, 28, 3000, 17);
    check_content(&kimi, 640, 480, 644, 504, 640, 480);
    check_content(&kimi, 8192, 8192, 1792, 1792, 1792, 1792);
    check_content(&kimi, 32000, 16, 7168, 28, 7168, 3);
    check_size(&qwen2, 1, 1, 56, 56);
    check_size(&qwen2, 1024, 1024, 980, 980);
    check_size(&qwen2, 640, 480, 644, 476);
    check_size(&qwen2, 3000, 17, 2996, 28);
    check_size(&qwen2, 8192, 8192, 980, 980);
    check_size(&qwen2, 42, 70, 56, 56); /* halves: 1.5 and 2.5 become 2 */
    check_size(&qwen3, 1024, 1024, 1024, 1024);
    check_size(&qwen3, 100, 3, 1504, 64);
    check_size(&gemma, 3000, 17, 896, 896);
    check_size(&pixtral, 2048, 1024, 1024, 512);
    check_size(&pixtral, 500, 333, 512, 336);
    check_size(&pixtral, 3000, 1, 1024, 16);
    CHECK_EQ(ntx_picture_size(&qwen2, 3000, 14, &size, &err), -EINVAL);
    CHECK(strstr(err.text, "too narrow"));
    CHECK_EQ(ntx_picture_size(&gemma, 0, 4, &size, &err), -EINVAL);
}

/* Tiles, and behind them the whole picture; both are rounded as torch rounds them in bfloat16. */
static void test_tiles(void)
{
    const struct ntx_picture_rule r = {.fit = NTX_FIT_TILES,
                                       .size = 4,
                                       .tiles = 2,
                                       .bfloat = true,
                                       .mean = {0.5f, 0.5f, 0.5f},
                                       .deviation = {0.5f, 0.5f, 0.5f}};
    struct ntx_picture p = noise(8, 4);
    uint8_t whole[3 * 4 * 4];
    struct ntx_pixels x;
    struct ntx_err err = {0};
    CHECK_EQ(ntx__picture_resize(&p, 4, 4, r.filter, whole), 0);
    CHECK_EQ(ntx_picture_pixels(&r, &p, &x, &err), 0);
    CHECK(x.size.width == 8 && x.size.height == 4 && x.size.over_width == 4 && x.size.over_height == 4);
    for (unsigned c = 0; c < 3; c++) {
        for (unsigned i = 0; i < 32; i++)
            CHECK(fabs(x.planes[32 * c + i] - (p.rgb[3 * i + c] / 255.0 - 0.5) / 0.5) < 4e-3);
        for (unsigned i = 0; i < 16; i++)
            CHECK(fabs(x.over[16 * c + i] - (whole[3 * i + c] / 255.0 - 0.5) / 0.5) < 4e-3);
    }
    ntx_pixels_free(&x);
    p.rgb[0] = 77; /* 77 / 255 is 0.3019608, and 0.302734375 in bfloat16 */
    CHECK_EQ(ntx_picture_pixels(&r, &p, &x, &err), 0);
    CHECK(x.planes[0] == -0.39453125f);
    ntx_pixels_free(&x);
    free(p.rgb);
}

static void test_planes(void)
{
    const struct ntx_picture_rule r = {
        .fit = NTX_FIT_SQUARE, .size = 4, .mean = {0.5f, 0.4f, 0.3f}, .deviation = {0.5f, 0.2f, 0.1f}};
    struct ntx_picture p = noise(4, 4);
    struct ntx_pixels x;
    struct ntx_err err = {0};
    CHECK_EQ(ntx_picture_pixels(&r, &p, &x, &err), 0);
    CHECK_EQ(x.size.width, 4);
    for (unsigned c = 0; c < 3; c++)
        for (unsigned i = 0; i < 16; i++)
            CHECK(fabs(x.planes[16 * c + i] - (p.rgb[3 * i + c] / 255.0 - r.mean[c]) / r.deviation[c]) < 1e-5);
    ntx_pixels_free(&x);
    free(p.rgb);
}

int main(int argc, char **argv)
{
    size_t i;
    json_t *one, *j = read_golden(argv[argc - 1]);
    CHECK(json_array_size(json_object_get(j, "resize")) == 14);
    json_array_foreach(json_object_get(j, "resize"), i, one)
        check_resize(one);
    test_sizes();
    test_planes();
    test_tiles();
    test_canvas();
    test_middle();
    json_decref(j);
    return 0;
}
