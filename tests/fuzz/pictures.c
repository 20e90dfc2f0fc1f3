/* SPDX-License-Identifier: Apache-2.0 */
/* pictures.c: files of pictures under libFuzzer, in this process: the readers of every format, without the sandbox. A
 * file becomes a picture within the bounds, or gets an error. Its size as two models see it is then within theirs. */
#include <stdlib.h>
#include <sys/mman.h>

#include "computed/picture/picture_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Large pictures only cost time and memory here. */
int __wrap_ntx__picture_begin(struct ntx__picture_read *p, uint64_t width, uint64_t height, struct ntx_err *err);
int __real_ntx__picture_begin(struct ntx__picture_read *p, uint64_t width, uint64_t height, struct ntx_err *err);

int __wrap_ntx__picture_begin(struct ntx__picture_read *p, uint64_t width, uint64_t height, struct ntx_err *err)
{
    if (width < NTX_PICTURE_SIDE && height < NTX_PICTURE_SIDE && width * height > 4u << 20)
        return ntx_err_set(err, -1, "large");
    return __real_ntx__picture_begin(p, width, height, err);
}

static void check_fit(const struct ntx_picture *p)
{
    static const struct ntx_picture_rule rules[] = {
        {.fit = NTX_FIT_MULTIPLE, .factor = 28, .min_pixels = 56 * 56, .max_pixels = 28 * 28 * 64},
        {.fit = NTX_FIT_LONGEST, .factor = 16, .size = 128},
        {.fit = NTX_FIT_TILES, .factor = 64, .size = 64, .tiles = 16},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct ntx_fitted s;
        uint32_t own_width, own_height;
        if (ntx_picture_size(&rules[i], p->width, p->height, &s, NULL))
            continue;
        ntx__picture_content(&rules[i], p->width, p->height, &s, &own_width, &own_height);
        if (!s.width || !s.height || s.width % rules[i].factor || s.height % rules[i].factor || !own_width ||
            !own_height || own_width > s.width || own_height > s.height)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t *room;
    const struct ntx__picture_file f = {data, size};
    struct ntx_picture p;
    struct ntx_err err = {0};
    if (!room)
        room = mmap(NULL, 3 * (size_t)NTX_PICTURE_PIXELS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        abort();
    if (ntx__picture_read(&f, room, 3 * (size_t)NTX_PICTURE_PIXELS, &p, &err)) {
        if (!err.text[0])
            abort();
        return 0;
    }
    if (!p.width || !p.height || (uint64_t)p.width * p.height > NTX_PICTURE_PIXELS)
        abort();
    check_fit(&p);
    /* pages of a large picture go back */
    if ((uint64_t)p.width * p.height > 1u << 20)
        madvise(room, 3 * (size_t)NTX_PICTURE_PIXELS, MADV_DONTNEED);
    return 0;
}
