/* SPDX-License-Identifier: Apache-2.0 */
/* Vision towers of all kinds, made by ntx-mkmodel: rows beside llama.cpp's (tests/golden/towers.json, which towers.py
 * makes), the same bits for any number of threads, and what is refused. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "computed/picture/picture.h"
#include "computed/vision/need.h"
#include "computed/vision/vision.h"
#include "model/arch.h"
#include "model/quant.h"
#include "model/tower.h"
#include "tests/lib/check.h"
#include "tests/lib/stage_reader.h"
#include "tests/mkmodel/describe.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
enum { OUT = 64 };
#define NEAR_UNSCALED 1e-2 /* scores that are not scaled: K in half floats weighs more */
#define NEAR          2e-3 /* by the spread; llama.cpp rounds patches, and has a polynomial for GELU */

static const char *const kinds[] = {"qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger", "glm4v",   "glm5v",
                                    "kimik25",        "gemma3",           "gemma4v",        "pixtral", "llama4",
                                    "minimax_m3",     "mimovl",           "deepseek4v"};

static bool is_in(const char *kind, const char *list) { return strstr(list, kind); }

static void describe_tower(struct mk_file *f, const char *kind, const char *type)
{
    char arch[48];
    snprintf(arch, sizeof arch, "mmproj-%s", kind);
    const struct mk_options o = {
        .arch = arch, .type = type, .name = "test", .layers = 4, .embd = OUT, .version = 3, .seed = 1};
    *f = (struct mk_file){0};
    mk_describe_tower(f, &o);
}

/* A descriptor of the file. */
static int write_tower(struct mk_file *f)
{
    char path[] = "/tmp/ntx-tower-XXXXXX";
    struct ntx_err err = {0};
    uint64_t bytes;
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_MSG(!mk_write(f, path, 1, &bytes, &err), "%s", err.text);
    close(fd);
    CHECK((fd = open(path, O_RDONLY)) >= 0);
    unlink(path);
    mk_file_free(f);
    return fd;
}

static int make_tower(const char *kind, const char *type)
{
    struct mk_file f;
    describe_tower(&f, kind, type);
    return write_tower(&f);
}

/* The same as in towers.py. */
static struct ntx_pixels make_pixels(uint32_t w, uint32_t h)
{
    struct ntx_pixels p = {.size = {w, h, 0, 0}, .planes = malloc(3 * (size_t)w * h * sizeof *p.planes)};
    CHECK(p.planes);
    for (uint32_t c = 0; c < 3; c++)
        for (uint32_t y = 0; y < h; y++)
            for (uint32_t x = 0; x < w; x++)
                p.planes[((size_t)c * h + y) * w + x] = ((float)((x * 37 + y * 101 + c * 61 + x * y * 7) % 256) / 255 -
                                                         0.5f) /
                                                        0.5f;
    return p;
}

/* block: patches at a time; 0: as many as usual */
static struct ntx_vision_rows see_as(int fd, uint32_t threads, bool streams, uint32_t block, uint32_t w, uint32_t h)
{
    const struct ntx_vision_config c = {.fd = fd, .threads = threads, .streams = streams, .window = 1, .block = block};
    struct ntx_pixels p = make_pixels(w, h);
    struct ntx_vision_rows rows;
    struct ntx_vision *v;
    struct ntx_err err = {0};
    struct stage_reader reader;
    CHECK_MSG(!ntx_vision_open(&c, &v, &err), "%s", err.text);
    if (streams) {
        stage_reader_open(&reader, fd, ntx_vision_stage_bytes(v));
        ntx_vision_stage(v, ntx_stream_stage(reader.stream), 0);
    }
    CHECK_MSG(!ntx_vision_encode(v, &p, NULL, &rows, &err), "%s", err.text);
    ntx_vision_close(v);
    if (streams)
        stage_reader_close(&reader);
    free(p.planes);
    return rows;
}

static struct ntx_vision_rows see_made(int fd, uint32_t threads, uint32_t w, uint32_t h)
{
    return see_as(fd, threads, false, 0, w, h);
}

/* Squares of 8 x 8 pixels, and the learned rows of one kind. */
static uint64_t rows_of(const char *kind, uint32_t w, uint32_t h)
{
    const uint32_t across = (w + 7) / 8, down = (h + 7) / 8;
    return strcmp(kind, "deepseek4v") ? (uint64_t)across * down : NTX_TOWER_LEAD + ntx_picture_rows(across, down);
}

static void beside_llama(void)
{
    json_error_t bad;
    json_t *cases = json_load_file(NTX_SOURCE "/tests/golden/towers.json", 0, &bad), *c;
    size_t i, k;
    CHECK_MSG(cases, "%s", bad.text);
    CHECK_EQ(json_array_size(cases), sizeof kinds / sizeof *kinds);
    json_array_foreach(cases, i, c) {
        const char *kind = json_string_value(json_object_get(c, "kind"));
        const uint32_t w = (uint32_t)json_integer_value(json_object_get(c, "width")),
                       h = (uint32_t)json_integer_value(json_object_get(c, "height"));
        const size_t every = (size_t)json_integer_value(json_object_get(c, "every"));
        json_t *values = json_object_get(c, "values"), *value;
        int fd = make_tower(kind, "F32");
        struct ntx_vision_rows rows = see_made(fd, 2, w, h);
        double square = 0, off = 0;
        CHECK_EQ(ntx_vision_grid_rows(&rows.grid), rows_of(kind, w, h));
        CHECK_EQ(rows.width, OUT * (1 + rows.deep));
        CHECK_EQ(json_array_size(values), (ntx_vision_grid_rows(&rows.grid) * rows.width + every - 1) / every);
        json_array_foreach(values, k, value) {
            const double want = json_number_value(value), got = (double)rows.values[k * every];
            square += want * want;
            off += (got - want) * (got - want);
        }
        CHECK_MSG(sqrt(off / square) < (strcmp(kind, "gemma4v") ? NEAR : NEAR_UNSCALED), "%s: %g of the spread", kind,
                  sqrt(off / square));
        ntx_vision_rows_free(&rows);
        close(fd);
    }
    json_decref(cases);
}

/* Also odd grids, large ones, of quantised matrices, of weights that are read for each picture, of patches in blocks of
 * any size. */
static void same_bits(void)
{
    static const uint32_t size[][2] = {{8, 8}, {72, 8}, {8, 136}, {56, 40}, {176, 136}};
    static const char *const types[] = {"F32", "Q8_0", "F16"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int type = 0; type < 3; type++) {
            int fd = make_tower(kinds[k], types[type]);
            const bool small = is_in(kinds[k], "gemma3 pixtral llama4");
            const bool large = type == 2 && (!strncmp(kinds[k], "qwen", 4) || is_in(kinds[k], "glm4v mimovl"));
            for (int i = 0; i < (large ? 5 : 4); i++) {
                const uint32_t odd = strcmp(kinds[k], "deepseek4v") ? 0 : 4; /* half a square */
                const uint32_t w = small ? 24 : size[i][0] + odd, h = small ? 24 : size[i][1] + odd;
                struct ntx_vision_rows one = see_as(fd, 1, false, UINT32_MAX, w, h),
                                       more = see_as(fd, 3 + (uint32_t)i, i % 2, i < 2 ? 5 : 64 * (uint32_t)i, w, h);
                CHECK_EQ(ntx_vision_grid_rows(&one.grid), rows_of(kinds[k], w, h));
                const size_t n = ntx_vision_grid_rows(&one.grid) * one.width;
                CHECK_MSG(!memcmp(one.values, more.values, n * sizeof(float)), "%s: bits depend on threads or blocks",
                          kinds[k]);
                for (size_t j = 0; j < n; j++)
                    CHECK(isfinite(one.values[j]));
                ntx_vision_rows_free(&one);
                ntx_vision_rows_free(&more);
            }
            close(fd);
        }
}

static uint64_t bytes_for(const struct ntx_vision *v, uint32_t width, uint32_t height)
{
    return ntx_vision_bytes(v, &(struct ntx_fitted){.width = width, .height = height});
}

/* Peak memory of this process since `reset`, in bytes. */
static uint64_t peak_bytes(bool reset)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *in = fopen("/proc/self/clear_refs", "w");
    CHECK(in);
    CHECK(!reset || fputs("5", in) > 0);
    fclose(in);
    CHECK((in = fopen("/proc/self/status", "r")));
    while (fgets(line, sizeof line, in) && sscanf(line, "VmHWM: %llu", &kib) != 1)
        continue;
    fclose(in);
    return kib << 10;
}

/* Of a large picture, all patches have states, q, K and V of one layer, and pixels; the rest is that of a block. An
 * encode takes no more than that. */
static void memory(void)
{
    enum { SIDE = 256, PATCH = 4, EMBD = 48, SLACK = 1 << 20 /* stacks of threads, files */ };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (!is_in(kinds[k], "qwen2vl_merger qwen2.5vl_merger qwen3vl_merger glm4v kimik25 mimovl"))
            continue; /* their pictures are smaller */
        int fd = make_tower(kinds[k], "F16");
        struct ntx_pixels p = make_pixels(SIDE, SIDE);
        struct ntx_vision_rows rows;
        struct ntx_vision *v;
        struct ntx_err err = {0};
        CHECK_MSG(!ntx_vision_open(&(struct ntx_vision_config){.fd = fd, .threads = 2}, &v, &err), "%s", err.text);
        const uint64_t patches = SIDE / PATCH * (SIDE / PATCH), deep = 1 + ntx_vision_deep(v),
                       state = EMBD * sizeof(float),
                       of_patch = (bytes_for(v, SIDE, SIDE) - bytes_for(v, SIDE, SIDE / 2)) * 2 / patches,
                       whole = deep * state + 2 * state + state + 2 * 3 * PATCH * PATCH * sizeof(float),
                       small = 1024; /* rows of the pass, places, the projector's block */
        CHECK_MSG(of_patch < whole + small, "%s: %llu bytes a patch", kinds[k], (unsigned long long)of_patch);
        const uint64_t before = peak_bytes(true);
        CHECK_MSG(!ntx_vision_encode(v, &p, NULL, &rows, &err), "%s: %s", kinds[k], err.text);
        const uint64_t took = peak_bytes(false) - before,
                       told = bytes_for(v, SIDE, SIDE) - ntx_vision_weights(v, false);
        CHECK_MSG(SANITIZED || took <= told + SLACK, "%s: %llu bytes, not %llu", kinds[k], (unsigned long long)took,
                  (unsigned long long)told);
        ntx_vision_rows_free(&rows);
        ntx_vision_close(v);
        free(p.planes);
        close(fd);
    }
}

/* A picture in tiles has the rows that each tile has alone, and then those of the whole. */
static void tiles(void)
{
    enum { SIDE = 24, ACROSS = 3, DOWN = 2, N = 9 /* rows of a tile */ };
    int fd = make_tower("llama4", "F32");
    struct ntx_pixels all = make_pixels(ACROSS * SIDE, DOWN * SIDE), whole = make_pixels(SIDE, SIDE), tile = whole;
    struct ntx_vision_rows got, rows;
    struct ntx_vision *v;
    struct ntx_err err = {0};
    tile.planes = malloc(sizeof(float) * 3 * SIDE * SIDE);
    CHECK(tile.planes);
    CHECK(!ntx_vision_open(&(struct ntx_vision_config){.fd = fd, .threads = 3}, &v, &err));
    CHECK_EQ(ntx_vision_encode(v, &all, NULL, &got, &err), -EINVAL); /* the whole picture is missing */
    all.over = whole.planes;
    all.size.over_width = all.size.over_height = SIDE;
    CHECK_MSG(!ntx_vision_encode(v, &all, NULL, &got, &err), "%s", err.text);
    CHECK_EQ(ntx_vision_grid_rows(&got.grid), (ACROSS * DOWN + 1) * N);
    CHECK_EQ(ntx_vision_tokens(v, &got.grid), (ACROSS * DOWN + 1) * N + (ACROSS - 1) * DOWN + DOWN + 1);
    for (uint32_t t = 0; t <= ACROSS * DOWN; t++) {
        for (uint32_t i = 0; i < 3 * SIDE * SIDE; i++) {
            const uint32_t x = t % ACROSS * SIDE + i % SIDE, y = t / ACROSS * SIDE + i / SIDE % SIDE;
            tile.planes[i] = t == ACROSS * DOWN
                                 ? whole.planes[i]
                                 : all.planes[((size_t)i / SIDE / SIDE * DOWN * SIDE + y) * ACROSS * SIDE + x];
        }
        CHECK(!ntx_vision_encode(v, &tile, NULL, &rows, &err));
        CHECK_EQ(ntx_vision_grid_rows(&rows.grid), N);
        for (size_t i = 0; i < N * OUT; i++) /* attention adds in another order where a tile lies elsewhere */
            CHECK(fabsf(rows.values[i] - got.values[t * N * OUT + i]) < 1e-4f);
        ntx_vision_rows_free(&rows);
    }
    all.size.width = 17 * SIDE; /* more tiles than there may be; no pixel is read */
    all.size.height = SIDE;
    CHECK_EQ(ntx_vision_encode(v, &all, NULL, &rows, &err), -EINVAL);
    ntx_vision_rows_free(&got);
    ntx_vision_close(v);
    free(all.planes);
    free(whole.planes);
    free(tile.planes);
    close(fd);
}

static void rules(void)
{
    static const struct {
        const char *begin, *end, *row_end;
        enum ntx_picture_fit fit;
        bool mrope, bidirectional;
        uint32_t deep, least, most; /* rows of a picture of any shape */
    } want[] = {{"<|vision_start|>", "<|vision_end|>", NULL, NTX_FIT_MULTIPLE, true, false, 0, 8, 4096},
                {"<|vision_start|>", "<|vision_end|>", NULL, NTX_FIT_MULTIPLE, true, false, 0, 8, 4096},
                {"<|vision_start|>", "<|vision_end|>", NULL, NTX_FIT_MULTIPLE, true, false, 1, 8, 4096},
                {"<|begin_of_image|>", "<|end_of_image|>", NULL, NTX_FIT_MULTIPLE, true, false, 0, 8, 4096},
                {"<|begin_of_image|>", "<|end_of_image|>", NULL, NTX_FIT_CANVAS, false, false, 0, 0, 0},
                {"<|media_begin|>image<|media_content|>", "<|media_end|>", NULL, NTX_FIT_PADDED, false, false, 0, 0, 0},
                {"\n\n<start_of_image>", "<end_of_image>\n\n", NULL, NTX_FIT_SQUARE, false, true, 0, 0, 0},
                {"<|image>", "<image|>", NULL, NTX_FIT_FILL, false, true, 0, 0, 0},
                {"", "[IMG_END]", "[IMG_BREAK]", NTX_FIT_LONGEST, false, false, 0, 0, 0},
                {"<|image_start|>", "<|image_end|>", NULL, NTX_FIT_TILES, false, false, 0, 0, 0},
                {"]<]start of image[>[", "]<]end of image[>[", NULL, NTX_FIT_MULTIPLE, false, false, 0, 4, 576},
                {"<|vision_start|>", "<|vision_end|>", NULL, NTX_FIT_MULTIPLE, false, false, 0, 1, 1024},
                {"", "", NULL, NTX_FIT_ROWS, false, true, 0, 0, 0}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int fd = make_tower(kinds[k], "F32");
        struct ntx_vision *v;
        struct ntx_err err = {0};
        CHECK(!ntx_vision_open(&(struct ntx_vision_config){.fd = fd, .look = true}, &v, &err));
        const struct ntx_vision_text *t = ntx_vision_text(v);
        const struct ntx_picture_rule *r = ntx_vision_rule(v);
        CHECK_STR(t->begin, want[k].begin);
        CHECK_STR(t->end, want[k].end);
        CHECK(!t->row_end == !want[k].row_end && (!t->row_end || !strcmp(t->row_end, want[k].row_end)));
        CHECK_EQ(t->mrope, want[k].mrope);
        CHECK_EQ(t->bidirectional, want[k].bidirectional);
        CHECK_EQ(r->fit, want[k].fit);
        CHECK_EQ(r->factor, t->lead ? 4 : 8);
        CHECK_EQ(t->lead, strcmp(kinds[k], "deepseek4v") ? 0 : NTX_TOWER_LEAD);
        CHECK_EQ(r->filter, is_in(kinds[k], "gemma3 llama4") ? NTX_FILTER_BILINEAR : NTX_FILTER_BICUBIC);
        CHECK_EQ(ntx_vision_deep(v), want[k].deep);
        CHECK_EQ(ntx_vision_n_embd(v), OUT);
        CHECK(bytes_for(v, 24, 24) < bytes_for(v, 48, 48));
        if (r->fit == NTX_FIT_MULTIPLE)
            CHECK(r->min_pixels == want[k].least * 64 && r->max_pixels == want[k].most * 64);
        ntx_vision_close(v);
        close(fd);
    }
}

/* The memory that is set aside holds pictures of every shape; a short budget those that are enlarged, too. */
static void needs(void)
{
    static const uint32_t shapes[][2] = {{3000, 3000}, {3000, 2000}, {2000, 3000}, {3000, 500}, {70, 3000}, {40, 30}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int fd = make_tower(kinds[k], "F32");
        struct ntx_vision *v;
        struct ntx_err err = {0};
        struct ntx_vision_need ample, little;
        CHECK(!ntx_vision_open(&(struct ntx_vision_config){.fd = fd, .look = true}, &v, &err));
        CHECK(!ntx_vision_need_of(v, 1ull << 40, &ample, &err) && !ntx_vision_need_of(v, 0, &little, &err));
        const struct ntx_vision_need *least = ntx_vision_rule(v)->fit == NTX_FIT_FILL
                                                  ? &little
                                                  : &ample; /* whatever its size, it is as large */
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            struct ntx_fitted size;
            CHECK(!ntx_picture_size(ntx_vision_rule(v), shapes[i][0], shapes[i][1], &size, &err));
            const struct ntx_vision_grid grid = ntx_vision_grid_of(v, &size);
            const uint64_t rows = ntx_vision_grid_rows(&grid),
                           image = rows * OUT * (1 + ntx_vision_deep(v)) * sizeof(float);
            CHECK_MSG(ntx_vision_bytes(v, &size) - ntx_vision_weights(v, false) <= least->encode &&
                          image <= least->image && (!least->rows_together || rows <= least->rows_together),
                      "%s, %u x %u", kinds[k], size.width, size.height);
        }
        ntx_vision_close(v);
        close(fd);
    }
}

/* Opens, and expects an error with this text. */
static void refuse(int fd, const struct ntx_model *text, uint64_t ram, int rc, const char *says)
{
    struct ntx_vision *v = NULL;
    struct ntx_err err = {0};
    CHECK_EQ(ntx_vision_open(&(struct ntx_vision_config){.fd = fd, .text = text, .ram = ram}, &v, &err), rc);
    CHECK_MSG(strstr(err.text, says), "'%s' does not say '%s'", err.text, says);
    CHECK(!v);
}

static void refusals(void)
{
    static const char *const others[] = {"internvl", "idefics3", "lfm2", "resampler"};
    struct mk_file f;
    int fd = make_tower("qwen3vl_merger", "F32");
    struct ntx_model text = {.hp = {.arch = "qwen3vl", .n_embd = OUT, .n_layers = 1}};
    struct ntx_vision *v;
    struct ntx_err err = {0};
    CHECK(!ntx_vision_open(&(struct ntx_vision_config){.fd = fd, .text = &text}, &v, &err));
    ntx_vision_close(v);
    close(fd);
    fd = make_tower("kimik25", "F32");
    text.hp.n_layers = 4;
    snprintf(text.hp.arch, sizeof text.hp.arch, "glm-dsa");
    CHECK(!ntx_vision_open(&(struct ntx_vision_config){.fd = fd, .text = &text, .look = true}, &v, &err));
    CHECK_STR(ntx_vision_text(v)->begin, "<|begin_of_image|>");
    ntx_vision_close(v);
    close(fd);
    fd = make_tower("gemma4v", "F32");
    text.hp.n_input = 16;
    CHECK(!ntx_vision_open(&(struct ntx_vision_config){.fd = fd, .text = &text, .look = true}, &v, &err));
    CHECK(!ntx_vision_text(v)->bidirectional);
    ntx_vision_close(v);
    close(fd);
    fd = make_tower("qwen3vl_merger", "F32");
    snprintf(text.hp.arch, sizeof text.hp.arch, "qwen3vl");
    text.hp.n_embd = 128;
    refuse(fd, &text, 0, -EINVAL, "it makes rows of 64 values, and the model 'qwen3vl' takes rows of 128");
    text.hp.n_embd = OUT;
    text.hp.n_layers = 0;
    refuse(fd, &text, 0, -EINVAL, "it adds to the states after 1 layers, and the model has 0");
    refuse(fd, NULL, 1000, -ENOMEM, "its weights need");
    close(fd);

    describe_tower(&f, "qwen2vl_merger", "F32");
    snprintf(f.tensors[3].name, sizeof f.tensors[3].name, "v.blk.0.else");
    fd = write_tower(&f);
    refuse(fd, NULL, 0, -EINVAL, "tensor 'v.blk.0.ln1.bias' is missing; a qwen2vl_merger model needs it");
    close(fd);
    describe_tower(&f, "pixtral", "F32");
    mk_tensor_add(&f, "v.blk.0.else", NTX_F32, 4, 0, 1);
    fd = write_tower(&f);
    refuse(fd, NULL, 0, -ENOTSUP, "tensor 'v.blk.0.else' has no place in a tower of the kind pixtral");
    close(fd);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char says[128];
        f = (struct mk_file){.version = 3};
        mk_kv_str(&f, "general.architecture", "clip");
        mk_kv_str(&f, "clip.projector_type", others[i]);
        fd = write_tower(&f);
        snprintf(says, sizeof says, "it is of the kind '%s', which is not computed; these are: qwen2vl_merger, ",
                 others[i]);
        refuse(fd, NULL, 0, -ENOTSUP, says);
        close(fd);
    }
    f = (struct mk_file){.version = 3};
    mk_kv_str(&f, "general.architecture", "llama");
    fd = write_tower(&f);
    refuse(fd, NULL, 0, -EINVAL, "it is no projector file");
    close(fd);
}

static void refused_pictures(void)
{
    int fd = make_tower("qwen2.5vl_merger", "F32");
    const atomic_bool unwanted = true;
    struct ntx_vision *v;
    struct ntx_vision_rows rows;
    struct ntx_err err = {0};
    struct ntx_pixels p = make_pixels(24, 16);
    CHECK(!ntx_vision_open(&(struct ntx_vision_config){.fd = fd, .threads = 2}, &v, &err));
    CHECK_EQ(ntx_vision_encode(v, &p, &unwanted, &rows, &err), -ECANCELED);
    CHECK_MSG(strstr(err.text, "nobody waits"), "%s", err.text);
    p.size.width = 23;
    CHECK_EQ(ntx_vision_encode(v, &p, NULL, &rows, &err), -EINVAL);
    p.size.width = 24;
    CHECK_EQ(ntx_vision_encode(v, &p, NULL, &rows, &err), 0); /* it goes on after a failure */
    ntx_vision_rows_free(&rows);
    const uint64_t ram = bytes_for(v, 24, 16) - 1;
    ntx_vision_close(v);
    CHECK(!ntx_vision_open(&(struct ntx_vision_config){.fd = fd, .threads = 2, .ram = ram}, &v, &err));
    CHECK_EQ(ntx_vision_encode(v, &p, NULL, &rows, &err), -ENOMEM);
    CHECK_MSG(strstr(err.text, "a picture of 24 x 16 pixels needs"), "%s", err.text);
    p.size.height = 8;
    CHECK_EQ(ntx_vision_encode(v, &p, NULL, &rows, &err), 0);
    ntx_vision_rows_free(&rows);
    ntx_vision_close(v);
    free(p.planes);
    close(fd);
}

/* Weights that nobody reads, or that cannot be read; then the next picture is encoded. */
static void failed_reads(void)
{
    int fd = make_tower("qwen2.5vl_merger", "F32");
    const struct ntx_vision_config c = {.fd = fd, .threads = 2, .streams = true, .window = 1};
    struct stage_reader reader;
    struct ntx_vision *v;
    struct ntx_vision_rows rows;
    struct ntx_err err = {0};
    struct ntx_pixels p = make_pixels(24, 16);
    CHECK(!ntx_vision_open(&c, &v, &err));
    CHECK_EQ(ntx_vision_encode(v, &p, NULL, &rows, &err), -EINVAL);
    CHECK_MSG(strstr(err.text, "nobody to read them"), "%s", err.text);
    const int its = dup(fd), none = open("/dev/null", O_WRONLY | O_CLOEXEC); /* which nobody can read */
    CHECK(its >= 0 && none >= 0);
    stage_reader_open(&reader, its, ntx_vision_stage_bytes(v));
    ntx_vision_stage(v, ntx_stream_stage(reader.stream), 0);
    CHECK_EQ(dup2(none, its), its);
    CHECK_EQ(ntx_vision_encode(v, &p, NULL, &rows, &err), -EBADF);
    CHECK_STR(err.text, "the projector's weights cannot be read: Bad file descriptor");
    CHECK_EQ(dup2(fd, its), its);
    CHECK_EQ(ntx_vision_encode(v, &p, NULL, &rows, &err), 0);
    ntx_vision_rows_free(&rows);
    ntx_vision_close(v);
    stage_reader_close(&reader);
    free(p.planes);
    close(none);
    close(its);
    close(fd);
}

int main(void)
{
    memory();
    rules();
    needs();
    refusals();
    refused_pictures();
    failed_reads();
    tiles();
    same_bits();
    beside_llama();
    return 0;
}
