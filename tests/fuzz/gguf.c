/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.c: the GGUF reader, the architecture table and the chunk list under libFuzzer.
 *
 * Each accepted header is also written anew with other types, as ntx plan --type does. The input is the beginning of
 * a file. It is read once with nothing behind it and once with plenty, so that offsets can be valid. With the beginning
 * of a second file in it, it is also read as low and high bits (model/planes.h). */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "computed/plan/sketch.h"
#include "model/chunk.h"
#include "model/planes.h"
#include "model/quant.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use_chunks(struct ntx_model *m, uint64_t file_bytes)
{
    struct ntx_chunks *c;
    if (!ntx_chunks_make(m, 1 << 20, &c, NULL)) {
        for (uint32_t i = 0; i < c->n; i++)
            if (!c->list[i].bytes || c->list[i].offset + c->list[i].bytes > file_bytes)
                abort();
        ntx_chunks_free(c);
    }
    ntx_model_free(m);
}

static void use_model(const struct ntx_gguf *g, uint64_t file_bytes)
{
    struct ntx_model *m;
    if (!ntx_model_open(g, &m, NULL))
        use_chunks(m, file_bytes);
}

/* A projector file: numbers that memory and grids are computed from. */
static void use_tower(const struct ntx_gguf *g, uint64_t file_bytes)
{
    struct ntx_model *parts[NTX_TOWER_PARTS];
    struct ntx_err err = {0};
    if (ntx_tower_open(g, parts, &err)) {
        if (err.code >= 0 || !err.text[0])
            abort();
        return;
    }
    const struct ntx_tower *t = parts[NTX_TOWER_SEES]->hp.tower;
    const struct ntx_model *converts = parts[NTX_TOWER_CONVERTS], *projects = parts[NTX_TOWER_PROJECTS];
    if (!t->patch || !t->merge || t->patch * t->merge > t->size + NTX_TOWER_PATCH_MAX * NTX_TOWER_MERGE_MAX ||
        t->n_deep > NTX_TOWER_DEEP_MAX || !ntx_tower_in(parts[NTX_TOWER_SEES]) || !ntx_tower_in(projects) ||
        !converts != !t->converted || (converts && converts->hp.n_embd != t->state) ||
        projects->hp.n_embd != t->out * (1 + t->n_deep) ||
        (t->fit == NTX_TOWER_FIT_AREA && t->min_pixels > t->max_pixels) ||
        (t->table == NTX_TOWER_TABLE_EXACT && t->side * t->patch != t->size) || (t->marked && !t->most_rows))
        abort();
    for (int i = 0; t->marked && i < NTX_TOWER_MARKS; i++)
        if (t->marks[i] >= ntx_gguf_n_tensors(g) || ntx_gguf_tensor_at(g, t->marks[i])->bytes != t->out * sizeof(float))
            abort();
    for (int i = 0; i < NTX_TOWER_PARTS; i++)
        if (parts[i])
            use_chunks(parts[i], file_bytes);
}

/* Reads every byte that an accessor returns. */
static void use_keys(const struct ntx_gguf *g)
{
    volatile unsigned sum = 0;
    for (uint64_t i = 0; i < ntx_gguf_n_kv(g); i++) {
        const struct ntx_gguf_kv *kv = ntx_gguf_kv_at(g, i);
        for (uint64_t k = 0; kv->strs && k < kv->count; k++)
            if (kv->strs[k].n)
                sum += (unsigned char)kv->strs[k].p[0] + (unsigned char)kv->strs[k].p[kv->strs[k].n - 1];
        if (!kv->strs && kv->count)
            sum += *(const unsigned char *)kv->data;
    }
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(g); i++)
        if (ntx_gguf_tensor(g, ntx_gguf_tensor_at(g, i)->name) != ntx_gguf_tensor_at(g, i))
            abort();
}

/* The same tensors in floats of 32 bits, but for some. */
static void use_retyped(const struct ntx_gguf *g)
{
    uint64_t n = ntx_gguf_n_tensors(g);
    uint32_t *type = malloc(n * sizeof *type + 1);
    struct ntx_gguf *made;
    struct ntx_err err = {0};
    for (uint64_t i = 0; type && i < n; i++)
        type[i] = i % 3 ? NTX_F32 : ntx_gguf_tensor_at(g, i)->type;
    int rc = type ? ntx_sketch_retype(g, type, &made, &err) : -1;
    if (type && rc && !err.text[0])
        abort();
    for (uint64_t i = 0; !rc && i < n; i++) {
        const struct ntx_gguf_tensor *a = ntx_gguf_tensor_at(g, i), *b = ntx_gguf_tensor_at(made, i);
        if (ntx_gguf_n_tensors(made) != n || strcmp(a->name, b->name) || b->type != type[i] ||
            memcmp(a->ne, b->ne, sizeof a->ne))
            abort();
    }
    if (!rc)
        ntx_gguf_free(made);
    free(type);
}

/* A file in memory with room behind these bytes. */
static int memory_file(const uint8_t *data, size_t size, uint64_t file_bytes)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)file_bytes) || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    return fd;
}

/* Low and high bits, as two files: the input has the beginning of a second one. */
static void use_pair(const uint8_t *data, size_t size)
{
    const uint64_t file_bytes = 1u << 26;
    const uint8_t *second = size > 8 ? memmem(data + 8, size - 8, "GGUF\3", 5) : NULL;
    struct ntx_gguf *g;
    struct ntx_err err = {0};
    if (!second)
        return;
    const size_t n = (size_t)(second - data);
    const int fds[] = {memory_file(data, n, file_bytes), memory_file(second, size - n, file_bytes)};
    if (!ntx_gguf_open(fds, 2, NULL, &g, &err)) {
        use_keys(g);
        for (uint64_t i = 0; ntx_gguf_planes(g) && i < ntx_gguf_n_tensors(g); i++) {
            const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(g, i);
            if (ntx_planes_low(t->type) ? t->file || !t->high || t->high >= file_bytes : t->file != NTX_GGUF_HIGH_FILE)
                abort();
        }
        use_model(g, file_bytes);
        ntx_gguf_free(g);
    } else if (err.code >= 0 || !err.text[0]) {
        abort();
    }
    close(fds[0]);
    close(fds[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    use_pair(data, size);
    const uint64_t file_bytes[2] = {size, 1ull << 40};
    for (int i = 0; i < 2; i++) {
        struct ntx_gguf *g;
        struct ntx_err err = {0};
        if (ntx_gguf_parse(data, size, file_bytes[i], &g, &err)) {
            if (err.code >= 0 || !err.text[0])
                abort();
            continue;
        }
        use_keys(g);
        use_model(g, file_bytes[i]);
        use_tower(g, file_bytes[i]);
        use_retyped(g);
        ntx_gguf_free(g);
    }
    return 0;
}
