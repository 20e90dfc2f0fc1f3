/* SPDX-License-Identifier: Apache-2.0 */
/* see PROJECTOR WIDTH HEIGHT PIXELS ROWS [THREADS]: runs a vision tower over fitted pixels, floats
 * [3][HEIGHT][WIDTH] in the file PIXELS, and writes its rows, floats, to the file ROWS. tests/golden/towers.py uses
 * it. */
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

int main(int argc, char **argv)
{
    struct ntx_err err = {0};
    struct ntx_vision *v;
    struct ntx_vision_rows rows;
    if (argc < 6)
        return fail("PROJECTOR WIDTH HEIGHT PIXELS ROWS [THREADS]");
    const struct ntx_vision_config c = {.fd = open(argv[1], O_RDONLY),
                                        .threads = argc > 6 ? (uint32_t)atoi(argv[6]) : 2};
    struct ntx_pixels p = {.width = (uint32_t)atoi(argv[2]), .height = (uint32_t)atoi(argv[3])};
    const size_t n = 3 * (size_t)p.width * p.height;
    FILE *in = fopen(argv[4], "rb"), *out = fopen(argv[5], "wb");
    if (!in || !out || !(p.planes = malloc(n * sizeof *p.planes)) || fread(p.planes, sizeof *p.planes, n, in) != n)
        return fail("the files cannot be read or written");
    if (ntx_vision_open(&c, &v, &err) || ntx_vision_encode(v, &p, NULL, &rows, &err))
        return fail(err.text);
    const size_t values = (size_t)rows.columns * rows.rows * rows.width;
    const bool written = fwrite(rows.values, sizeof *rows.values, values, out) == values;
    printf("%u %u %u %u\n", rows.columns, rows.rows, rows.width, rows.deep);
    ntx_vision_rows_free(&rows);
    ntx_vision_close(v);
    free(p.planes);
    fclose(in);
    return fclose(out) || !written ? fail("ROWS cannot be written") : 0;
}
