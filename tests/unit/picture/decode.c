/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of each format become the pixels that Pillow sees. */
#include <stdio.h>
#include <string.h>

#include "computed/picture/picture.h"
#include "tests/unit/picture/golden.h"

/* Versions of libjpeg-turbo and libwebp may round colours differently. */
static int difference_allowed(const char *name) { return !strncmp(name, "jpeg", 4) || !strcmp(name, "webp") ? 2 : 0; }

static void check_file(const json_t *j)
{
    const char *name = golden_text(j, "name");
    struct ntx_picture p;
    struct ntx_err err = {0};
    size_t n, n_rgb;
    uint8_t *file = golden_bytes(j, "file", &n), *rgb = golden_bytes(j, "rgb", &n_rgb);
    int rc = ntx_picture_decode(file, n, 0, &p, &err), most = 0;
    if (rc)
        printf("%s: %s\n", name, err.text);
    CHECK_EQ(rc, 0);
    CHECK_EQ(p.width, golden_number(j, "width"));
    CHECK_EQ(p.height, golden_number(j, "height"));
    for (size_t i = 0; i < n_rgb; i++)
        most = abs(p.rgb[i] - rgb[i]) > most ? abs(p.rgb[i] - rgb[i]) : most;
    if (most > difference_allowed(name))
        printf("%s: pixels differ by up to %d\n", name, most);
    CHECK(most <= difference_allowed(name));
    ntx_picture_free(&p);
    free(rgb);
    free(file);
}

int main(int argc, char **argv)
{
    size_t i;
    json_t *one;
    if (argc == 2 && !strcmp(argv[1], NTX_PICTURE_PROCESS))
        return ntx_picture_process();
    json_t *j = read_golden(argv[1]);
    CHECK(json_array_size(json_object_get(j, "decode")) > 30);
    json_array_foreach(json_object_get(j, "decode"), i, one)
        check_file(one);
    json_decref(j);
    return 0;
}
