/* SPDX-License-Identifier: Apache-2.0 */
/* reference.c: every reference model is read, and its quantised weights are near those of its F32 twin.
 *
 * The bounds are what each type loses on weights like these, with a little room; a wrong layout loses everything. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "model/chunk.h"
#include "model/quant.h"
#include "tests/unit/model/make.h"

struct file {
    int fd;
    struct ntx_gguf *g;
};

static struct file open_file(const char *dir, const char *name)
{
    char path[1024];
    const char *p = path;
    struct ntx_err err = {0};
    struct file f;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    f.fd = open_path(path);
    CHECK_MSG(!ntx_gguf_open(&f.fd, 1, &p, &f.g, &err), "%s", err.text);
    return f;
}

static void close_file(struct file *f)
{
    close(f->fd);
    ntx_gguf_free(f->g);
}

static float *values(const struct file *f, const struct ntx_gguf_tensor *t, size_t *n)
{
    const struct ntx_type_info *info = ntx_type_info(t->type);
    *n = t->bytes / info->block_bytes * info->block;
    void *raw = malloc(t->bytes);
    float *v = malloc(*n * sizeof *v);
    CHECK(raw && v && pread(f->fd, raw, t->bytes, (off_t)t->offset) == (ssize_t)t->bytes);
    info->dequant(raw, v, *n / info->block);
    free(raw);
    return v;
}

/* Root mean square of the difference over that of the truth. */
static double distance(const struct file *f, const struct ntx_gguf_tensor *t, const struct file *truth)
{
    const struct ntx_gguf_tensor *u = ntx_gguf_tensor(truth->g, t->name);
    size_t n, m;
    CHECK_MSG(u && u->type == NTX_F32, "%s", t->name);
    float *a = values(f, t, &n), *b = values(truth, u, &m);
    double diff = 0, sum = 0;
    CHECK_EQ(n, m);
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        diff += d * d;
        sum += (double)b[i] * (double)b[i];
    }
    free(a);
    free(b);
    return sqrt(diff / sum);
}

static double bound(uint32_t type)
{
    switch (type) {
    case NTX_F32: return 0;
    case NTX_F16: return 0.0005;
    case NTX_Q8_0: return 0.01;
    case NTX_Q6_K: return 0.025;
    case NTX_Q5_0:
    case NTX_Q5_K: return 0.06;
    default: return 0.12;
    }
}

static void compare(const char *dir, const char *name, const char *truth_name)
{
    struct file f = open_file(dir, name), truth = open_file(dir, truth_name);
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(f.g); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(f.g, i);
        double d = distance(&f, t, &truth);
        CHECK_MSG(d <= bound(t->type) && (t->type == NTX_F32 || d > 0), "%s %s (%s): %g", name, t->name,
                  ntx_type_info(t->type)->name, d);
    }
    close_file(&f);
    close_file(&truth);
}

/* Every model opens and is cut into chunks. */
static void open_all(const char *dir)
{
    DIR *d = opendir(dir);
    unsigned n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        struct ntx_model *m;
        struct ntx_chunks *c;
        struct ntx_err err = {0};
        if (!strstr(e->d_name, ".gguf"))
            continue;
        struct file f = open_file(dir, e->d_name);
        int rc = ntx_model_open(f.g, &m, &err);
        CHECK_MSG(!rc && !ntx_chunks_make(m, 1 << 20, &c, &err), "%s: %s", e->d_name, err.text);
        CHECK(c->n && c->matrix_bytes);
        CHECK(!strstr(e->d_name, "moe") == !m->hp.n_expert);
        ntx_chunks_free(c);
        ntx_model_free(m);
        close_file(&f);
        n++;
    }
    closedir(d);
    CHECK_MSG(n >= 20, "%u", n);
}

int main(void)
{
    static const char *const nano[] = {"f16", "q4_0", "q4_k_m", "q5_k_m", "q6_k", "q8_0"}, *const s260k[] = {"f16",
                                                                                                             "q4_k_m"};
    char dir[512], name[64];
    const char *data = getenv("NTX_DATA");
    snprintf(dir, sizeof dir, "%s/models", data ? data : "");
    if (!data || access(dir, R_OK))
        SKIP("no reference models (NTX_DATA)");
    open_all(dir);
    for (size_t i = 0; i < sizeof nano / sizeof *nano; i++) {
        snprintf(name, sizeof name, "nano.%s.gguf", nano[i]);
        compare(dir, name, "nano.f32.gguf");
    }
    for (size_t i = 0; i < sizeof s260k / sizeof *s260k; i++) {
        snprintf(name, sizeof name, "s260k.%s.gguf", s260k[i]);
        compare(dir, name, "s260k.f32.gguf");
    }
    return 0;
}
