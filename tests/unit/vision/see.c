/* SPDX-License-Identifier: Apache-2.0 */
/* see PROJECTOR WIDTH HEIGHT PIXELS ROWS [THREADS [SIDE]]: runs a vision tower over fitted pixels, floats
 * [3][HEIGHT][WIDTH] in the file PIXELS, behind them those of the whole picture, [3][SIDE][SIDE], if WIDTH x HEIGHT is
 * cut into tiles. Writes its rows, floats, to the file ROWS. tests/golden/towers.py uses it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "computed/picture/picture.h"
#include "computed/vision/vision.h"

static int fail(const char *what)
{
    fprintf(stderr, "see: %s\n", what);
    return 1;
}

static float *read_planes(FILE *in, uint32_t width, uint32_t height)
{
    const size_t n = 3 * (size_t)width * height;
    float *planes = malloc(n * sizeof *planes);
    if (planes && fread(planes, sizeof *planes, n, in) == n)
        return planes;
    free(planes);
    return NULL;
}

int main(int argc, char **argv)
{
    struct ntx_err err = {0};
    struct ntx_vision *v;
    struct ntx_vision_rows rows;
    if (argc < 6)
        return fail("PROJECTOR WIDTH HEIGHT PIXELS ROWS [THREADS]");
    const struct ntx_vision_config c = {.fd = open(argv[1], O_RDONLY),
                                        .threads = argc > 6 ? (uint32_t)atoi(argv[6]) : 2};
    const uint32_t side = argc > 7 ? (uint32_t)atoi(argv[7]) : 0;
    struct ntx_pixels p = {.size = {(uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]), side, side}};
    FILE *in = fopen(argv[4], "rb"), *out = fopen(argv[5], "wb");
    if (!in || !out || !(p.planes = read_planes(in, p.size.width, p.size.height)) ||
        (side && !(p.over = read_planes(in, side, side))))
        return fail("the files cannot be read or written");
    if (ntx_vision_open(&c, &v, &err) || ntx_vision_encode(v, &p, NULL, &rows, &err))
        return fail(err.text);
    const size_t n = ntx_vision_grid_rows(&rows.grid), values = n * rows.width;
    const bool written = fwrite(rows.values, sizeof *rows.values, values, out) == values;
    printf("%zu %u %u\n", n, rows.width, rows.grid.columns);
    ntx_vision_rows_free(&rows);
    ntx_vision_close(v);
    free(p.planes);
    free(p.over);
    fclose(in);
    return fclose(out) || !written ? fail("ROWS cannot be written") : 0;
}
