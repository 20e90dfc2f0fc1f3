/* SPDX-License-Identifier: Apache-2.0 */
/* split.c: a model in several files is the same model; wrong sets of files are named. */
#include <errno.h>
#include <unistd.h>

#include "model/chunk.h"
#include "tests/unit/model/make.h"

static struct ntx_gguf *open_files(char **paths, const int *order, int n, const char *refusal)
{
    struct ntx_gguf *g = NULL;
    struct ntx_err err = {0};
    int fds[8] = {0};
    const char *names[8] = {0};
    for (int i = 0; i < n; i++) {
        names[i] = paths[order[i]];
        fds[i] = open_path(names[i]);
    }
    int rc = ntx_gguf_open(fds, (unsigned)n, names, &g, &err);
    for (int i = 0; i < n; i++)
        close(fds[i]);
    CHECK_MSG(refusal ? rc == -EINVAL : !rc, "%d %s", rc, err.text);
    if (refusal)
        CHECK_MSG(strstr(err.text, refusal), "'%s', expected '%s'", err.text, refusal);
    return g;
}

static void read_tensor(char **paths, const struct ntx_gguf_tensor *t, uint8_t *out)
{
    int fd = open_path(paths[t->file]);
    CHECK(pread(fd, out, t->bytes, (off_t)t->offset) == (ssize_t)t->bytes);
    close(fd);
}

/* The same seed, once whole and once in three parts. */
static void compare(char **whole, struct ntx_gguf *a, char **parts, struct ntx_gguf *b)
{
    uint32_t last = 0;
    CHECK_EQ(ntx_gguf_n_tensors(a), ntx_gguf_n_tensors(b));
    CHECK_EQ(ntx_gguf_n_kv(a) + 3, ntx_gguf_n_kv(b));
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(a); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(a, i), *u = ntx_gguf_tensor(b, t->name);
        CHECK(u == ntx_gguf_tensor_at(b, i) && u->bytes == t->bytes && u->type == t->type && t->file == 0 &&
              u->file >= last);
        last = u->file;
        uint8_t *x = malloc(t->bytes), *y = malloc(t->bytes);
        read_tensor(whole, t, x);
        read_tensor(parts, u, y);
        CHECK_MSG(!memcmp(x, y, t->bytes), "%s", t->name);
        free(x);
        free(y);
    }
    CHECK_EQ(last, 2);
}

static void check_chunks(const struct ntx_gguf *g)
{
    struct ntx_model *m;
    struct ntx_chunks *c;
    struct ntx_err err = {0};
    CHECK(!ntx_model_open(g, &m, &err) && !ntx_chunks_make(m, 4096, &c, &err));
    for (uint32_t i = 0; i < c->n; i++)
        CHECK_EQ(c->list[i].file, ntx_gguf_tensor_at(g, c->list[i].tensor)->file);
    ntx_chunks_free(c);
    ntx_model_free(m);
}

static void check_paths(void)
{
    char **paths;
    struct ntx_err err = {0};
    int n = ntx_gguf_split_paths("dir/x-00001-of-00012.gguf", &paths, &err);
    CHECK_EQ(n, 12);
    CHECK_STR(paths[0], "dir/x-00001-of-00012.gguf");
    CHECK_STR(paths[11], "dir/x-00012-of-00012.gguf");
    for (int i = 0; i < n; i++)
        free(paths[i]);
    free(paths);
    CHECK_EQ(ntx_gguf_split_paths("x-0001-of-0012.gguf", &paths, &err), 1);
    CHECK_STR(paths[0], "x-0001-of-0012.gguf");
    free(paths[0]);
    free(paths);
    CHECK_EQ(ntx_gguf_split_paths("x-00003-of-00012.gguf", &paths, &err), -EINVAL);
    CHECK(strstr(err.text, "part 3") && strstr(err.text, "-00001-of-00012.gguf"));
    CHECK_EQ(ntx_gguf_split_paths("x-00001-of-00000.gguf", &paths, &err), -EINVAL);
    CHECK_EQ(ntx_gguf_split_paths("x-00001-of-99999.gguf", &paths, &err), -EINVAL);
    CHECK_EQ(ntx_gguf_split_paths("-00001-of-00001.gguf", &paths, &err), 1);
    free(paths[0]);
    free(paths);
}

/* A link under another name finds the parts beside its target. */
static void check_link(char **parts)
{
    char link[256];
    char **paths;
    struct ntx_err err = {0};
    snprintf(link, sizeof link, "%s.link", parts[0]);
    CHECK(!symlink(parts[0], link));
    CHECK_EQ(ntx_gguf_split_paths(link, &paths, &err), 3);
    CHECK_STR(strrchr(paths[2], '/'), strrchr(parts[2], '/'));
    unlink(link);
    for (int i = 0; i < 3; i++)
        free(paths[i]);
    free(paths);
}

int main(void)
{
    struct mk_options o = make_options();
    char **whole, **parts;
    int n = make_files(&o, &whole);
    o.parts = 3;
    CHECK_EQ(make_files(&o, &parts), 3);
    struct ntx_gguf *a = open_files(whole, (int[]){0}, 1, NULL), *b = open_files(parts, (int[]){0, 1, 2}, 3, NULL);
    compare(whole, a, parts, b);
    check_chunks(b);
    open_files(parts, (int[]){0}, 1,
               "m-00001-of-00003.gguf: says that it is part 1 of 3 (split.count), but 1 were given");
    open_files(parts, (int[]){0, 1}, 2, "part 1 of 3");
    open_files(parts, (int[]){0, 2, 1}, 3,
               "m-00003-of-00003.gguf: says that it is part 3 of 3 (split.no), but was given as part 2");
    open_files(parts, (int[]){0, 1, 1}, 3, "was given as part 3");
    char *twice[] = {whole[0], whole[0]};
    open_files(twice, (int[]){0, 1}, 2, "is no part of a split model");
    check_paths();
    check_link(parts);
    ntx_gguf_free(a);
    ntx_gguf_free(b);
    unmake(whole, n);
    unmake(parts, 3);
    return 0;
}
