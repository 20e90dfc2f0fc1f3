/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/temporary.h"
#include "tests/unit/model/make.h"

#include <fcntl.h>
#include <unistd.h>

struct mk_options make_options(void)
{
    return (struct mk_options){.arch = "llama",
                               .type = "F32",
                               .name = "tiny",
                               .rope_scaling = "none",
                               .layers = 2,
                               .embd = 64,
                               .ff = 96,
                               .heads = 4,
                               .kv = 2,
                               .ctx = 128,
                               .rope_base = 10000,
                               .rope_factor = 1,
                               .logit_scale = 3,
                               .experts_used = 2,
                               .version = 3,
                               .parts = 1,
                               .seed = 1};
}

/* path: [128], gets a new directory's name with /m.gguf behind it */
#define PATH_ROOM 160
static void write_model(const struct mk_options *o, void (*extra)(struct mk_file *f), char *path)
{
    struct mk_file f = {0};
    struct ntx_err err = {0};
    float *freqs = NULL;
    uint64_t bytes;
    temporary_dir(path, PATH_ROOM - sizeof "/m-00001-of-00001.gguf", "test");
    strcat(path, "/m.gguf");
    CHECK_MSG(!mk_describe(&f, o, &freqs, &err), "%s", err.text);
    if (extra)
        extra(&f);
    CHECK_MSG(!mk_write(&f, path, o->parts, &bytes, &err), "%s", err.text);
    free(freqs);
    mk_file_free(&f);
}

int make_files(const struct mk_options *o, char ***paths)
{
    char path[PATH_ROOM];
    struct ntx_err err = {0};
    write_model(o, NULL, path);
    if (o->parts > 1)
        sprintf(strrchr(path, '.'), "-00001-of-%05u.gguf", o->parts);
    int n = ntx_gguf_split_paths(path, paths, &err);
    CHECK_MSG(n > 0, "%s", err.text);
    return n;
}

void unmake(char **paths, int n)
{
    for (int i = 0; i < n; i++) {
        unlink(paths[i]);
        *strrchr(paths[i], '/') = 0;
        rmdir(paths[i]);
        free(paths[i]);
    }
    free(paths);
}

int open_path(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK_MSG(fd >= 0, "%s", path);
    return fd;
}

uint8_t *make_bytes_with(const struct mk_options *o, void (*extra)(struct mk_file *f), size_t *n)
{
    char path[PATH_ROOM];
    write_model(o, extra, path);
    int fd = open_path(path);
    off_t size = lseek(fd, 0, SEEK_END);
    uint8_t *p = malloc((size_t)size);
    CHECK(p && pread(fd, p, (size_t)size, 0) == size);
    close(fd);
    unlink(path);
    *strrchr(path, '/') = 0;
    rmdir(path);
    *n = (size_t)size;
    return p;
}

uint8_t *make_bytes(const struct mk_options *o, size_t *n) { return make_bytes_with(o, NULL, n); }

static uint8_t *place_of(uint8_t *bytes, size_t n, const char *text)
{
    uint8_t *p = memmem(bytes, n, text, strlen(text));
    CHECK_MSG(p, "no '%s'", text);
    return p;
}

uint8_t *value_of(uint8_t *bytes, size_t n, const char *key) { return place_of(bytes, n, key) + strlen(key); }

void set_u32(uint8_t *bytes, size_t n, const char *key, uint32_t v)
{
    memcpy(value_of(bytes, n, key) + 4, &v, sizeof v);
}

void rename_in(uint8_t *bytes, size_t n, const char *from, const char *to)
{
    CHECK_EQ(strlen(from), strlen(to));
    memcpy(place_of(bytes, n, from), to, strlen(to));
}

struct ntx_gguf *parse_ok(const void *bytes, size_t n)
{
    struct ntx_gguf *g;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_gguf_parse(bytes, n, n, &g, &err), "%s", err.text);
    return g;
}

void put32(struct mk_buf *b, uint32_t v) { mk_put(b, &v, sizeof v); }

void put64(struct mk_buf *b, uint64_t v) { mk_put(b, &v, sizeof v); }

void puts_len(struct mk_buf *b, const char *s)
{
    put64(b, strlen(s));
    mk_put(b, s, strlen(s));
}

void put_head(struct mk_buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    mk_put(b, "GGUF", 4);
    put32(b, version);
    put64(b, n_tensors);
    put64(b, n_kv);
}
