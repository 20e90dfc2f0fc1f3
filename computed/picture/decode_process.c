/* SPDX-License-Identifier: Apache-2.0 */
/* The process that decodes: it maps the file and the memory for pixels, gives up all other rights, and decodes. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sandbox.h"
#include "common/util.h"
#include "computed/picture/picture_impl.h"

/* Pixels, a copy with alpha or of the coefficients of a progressive JPEG, the file, and the libraries. */
#define MEMORY_MOST ((uint64_t)NTX_PICTURE_PIXELS * 16 + NTX_PICTURE_BYTES + (256u << 20))
#define CPU_MOST_S  20

int ntx__picture_begin(struct ntx__picture_read *p, uint64_t width, uint64_t height, struct ntx_err *err)
{
    if (!width || !height)
        return ntx_err_set(err, -EINVAL, "the picture has no pixels");
    if (width > NTX_PICTURE_SIDE || height > NTX_PICTURE_SIDE || width * height > NTX_PICTURE_PIXELS)
        return ntx_err_set(err, -EFBIG,
                           "the picture has %llu x %llu pixels: at most %u a side and %u million are decoded; make it "
                           "smaller",
                           (unsigned long long)width, (unsigned long long)height, NTX_PICTURE_SIDE,
                           NTX_PICTURE_PIXELS / 1000000u);
    p->rgb = p->room;
    memset(p->rgb, 255, 3 * (size_t)(width * height));
    p->width = (uint32_t)width;
    p->height = (uint32_t)height;
    return 0;
}

/* Where pixel (x, y) of the upright picture is in the file's: EXIF's orientations 1 to 8. */
static size_t source_of(const struct ntx__picture_read *p, uint32_t x, uint32_t y)
{
    const uint32_t right = p->width - 1, bottom = p->height - 1;
    const size_t w = p->width;
    switch (p->orientation) {
    case 2: return y * w + (right - x);
    case 3: return (bottom - y) * w + (right - x);
    case 4: return (bottom - y) * w + x;
    case 5: return x * w + y;
    case 6: return (bottom - x) * w + y;
    case 7: return (bottom - x) * w + (right - y);
    case 8: return x * w + (right - y);
    default: return y * w + x;
    }
}

/* Turns the picture upright. */
static int turn(const struct ntx__picture_read *p, struct ntx_picture *out, struct ntx_err *err)
{
    const size_t bytes = 3 * (size_t)p->width * p->height;
    const bool sideways = p->orientation >= 5;
    *out = (struct ntx_picture){sideways ? p->height : p->width, sideways ? p->width : p->height, p->rgb};
    if (p->orientation < 2)
        return 0;
    uint8_t *from = malloc(bytes), *to = p->rgb;
    if (!from)
        return ntx_err_set(err, -ENOMEM, "no memory to turn the picture");
    memcpy(from, p->rgb, bytes);
    for (uint32_t y = 0; y < out->height; y++)
        for (uint32_t x = 0; x < out->width; x++, to += 3)
            memcpy(to, from + 3 * source_of(p, x, y), 3);
    free(from);
    return 0;
}

static int read_kind(const struct ntx__picture_file *f, struct ntx__picture_read *p, struct ntx_err *err)
{
    switch (ntx_picture_kind(f->data, f->n)) {
    case NTX_PICTURE_JPEG: return ntx__picture_read_jpeg(f, p, err);
    case NTX_PICTURE_PNG: return ntx__picture_read_png(f, p, err);
    case NTX_PICTURE_WEBP: return ntx__picture_read_webp(f, p, err);
    case NTX_PICTURE_GIF: return ntx__picture_read_gif(f, p, err);
    case NTX_PICTURE_BMP: return ntx__picture_read_bmp(f, p, err);
    case NTX_PICTURE_NONE: break;
    }
    return ntx_picture_check(f->data, f->n, err);
}

int ntx__picture_read(const struct ntx__picture_file *f, uint8_t *room, struct ntx_picture *out, struct ntx_err *err)
{
    struct ntx__picture_read p = {.room = room};
    int rc = read_kind(f, &p, err);
    return rc ? rc : turn(&p, out, err);
}

/* Where memory runs out, this process ends rather than one that many use. */
static void offer_as_victim(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (write(fd, "1000", 4) != 4)
        ntx_log(NTX_LOG_DEBUG, "/proc/self/oom_score_adj: %s", strerror(errno));
    close(fd);
}

static int confine(struct ntx_err *err)
{
    const struct rlimit cpu = {CPU_MOST_S, CPU_MOST_S + 1}, none = {0, 0};
    const struct ntx_sandbox needs = {.bare = true};
    if (setrlimit(RLIMIT_CPU, &cpu) || setrlimit(RLIMIT_CORE, &none))
        return ntx_err_set(err, -errno, "cannot bound the process: %s", strerror(errno));
#ifndef NTX_SANITIZED /* their shadow takes terabytes of addresses */
    const struct rlimit memory = {MEMORY_MOST, MEMORY_MOST};
    if (setrlimit(RLIMIT_AS, &memory))
        return ntx_err_set(err, -errno, "cannot bound the process: %s", strerror(errno));
#endif
    return ntx_sandbox(&needs, "/", err);
}

/* Maps the file, confines the process, and decodes into the memory for pixels. */
static int decode(struct ntx__picture_verdict *v, struct ntx_err *err)
{
    struct stat st;
    struct ntx_picture p;
    const size_t room = 3 * (size_t)NTX_PICTURE_PIXELS;
    if (fstat(NTX__PICTURE_FILE, &st))
        return ntx_err_set(err, -errno, "no file");
    struct ntx__picture_file f = {NULL, (size_t)st.st_size};
    f.data = mmap(NULL, f.n, PROT_READ, MAP_PRIVATE, NTX__PICTURE_FILE, 0);
    uint8_t *to = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, NTX__PICTURE_OUT, 0);
    if (f.data == MAP_FAILED || to == MAP_FAILED)
        return ntx_err_set(err, -errno, "cannot map the file: %s", strerror(errno));
    int rc = confine(err);
    if (rc) {
        err->code = -ENOTSUP;
        return -ENOTSUP;
    }
    if ((rc = ntx__picture_read(&f, to, &p, err)))
        return rc;
    v->width = p.width;
    v->height = p.height;
    return 0;
}

int ntx_picture_process(void)
{
    struct ntx__picture_verdict v = {0};
    struct ntx_err err = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "ntx-picture");
    offer_as_victim();
    v.rc = decode(&v, &err);
    memcpy(v.text, err.text, sizeof v.text);
    const ssize_t n = write(NTX__PICTURE_SOCK, &v, sizeof v);
    _exit(n == sizeof v ? 0 : 1);
}
