/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_write.c: writes the header from memory, then every tensor in pieces. */
#include "tests/mkmodel/gguf_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/mkmodel/blocks.h"
#include "model/quant.h"

#define ALIGN 32
#define PIECE (4u << 20) /* bytes per write */

void mk_put(struct mk_buf *b, const void *p, size_t n)
{
    if (b->n + n > b->room) {
        size_t room = NTX_MAX(b->room * 2, b->n + n + 4096);
        char *q = realloc(b->p, room);
        if (!q) {
            b->failed = true;
            return;
        }
        b->p = q;
        b->room = room;
    }
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
}

static void put_u16(struct mk_buf *b, uint16_t v) { mk_put(b, &v, sizeof v); }
static void put_u32(struct mk_buf *b, uint32_t v) { mk_put(b, &v, sizeof v); }
static void put_u64(struct mk_buf *b, uint64_t v) { mk_put(b, &v, sizeof v); }

static void put_str(struct mk_buf *b, const char *p, size_t n)
{
    put_u64(b, n);
    mk_put(b, p, n);
}

static struct mk_buf *start_kv(struct mk_file *f, const char *key, uint32_t type)
{
    f->n_kv++;
    put_str(&f->kv, key, strlen(key));
    put_u32(&f->kv, type);
    return &f->kv;
}

void mk_kv_u32(struct mk_file *f, const char *key, uint32_t v) { put_u32(start_kv(f, key, NTX_GGUF_U32), v); }

void mk_kv_f32(struct mk_file *f, const char *key, float v) { mk_put(start_kv(f, key, NTX_GGUF_F32), &v, sizeof v); }

void mk_kv_bool(struct mk_file *f, const char *key, bool v)
{
    uint8_t byte = v;
    mk_put(start_kv(f, key, NTX_GGUF_BOOL), &byte, 1);
}

void mk_kv_str(struct mk_file *f, const char *key, const char *v)
{
    put_str(start_kv(f, key, NTX_GGUF_STR), v, strlen(v));
}

void mk_kv_arr(struct mk_file *f, const char *key, uint32_t elem, const void *v, size_t n)
{
    struct mk_buf *b = start_kv(f, key, NTX_GGUF_ARR);
    put_u32(b, elem);
    put_u64(b, n);
    mk_put(b, v, n * ntx_gguf_scalar_bytes(elem));
}

void mk_kv_strs(struct mk_file *f, const char *key, const char *const *v, size_t n)
{
    struct mk_buf *b = start_kv(f, key, NTX_GGUF_ARR);
    put_u32(b, NTX_GGUF_STR);
    put_u64(b, n);
    for (size_t i = 0; i < n; i++)
        put_str(b, v[i], strlen(v[i]));
}

void mk_kv_copy(struct mk_file *f, const struct ntx_gguf_kv *kv)
{
    struct mk_buf *b = &f->kv;
    uint32_t leaf = kv->type == NTX_GGUF_ARR ? kv->elem : kv->type;
    f->n_kv++;
    put_str(b, kv->key.p, kv->key.n);
    put_u32(b, kv->type);
    if (kv->type == NTX_GGUF_ARR) {
        put_u32(b, kv->elem);
        put_u64(b, kv->count);
    }
    if (leaf == NTX_GGUF_STR)
        for (uint64_t i = 0; i < kv->count; i++)
            put_str(b, kv->strs[i].p, kv->strs[i].n);
    else
        mk_put(b, kv->data, kv->count * ntx_gguf_scalar_bytes(leaf));
}

struct mk_tensor *mk_tensor_add(struct mk_file *f, const char *name, uint32_t type, uint64_t n_in, uint64_t n_out,
                                float std)
{
    if (f->n_tensors == f->room) {
        size_t room = f->room ? f->room * 2 : 64;
        struct mk_tensor *t = realloc(f->tensors, room * sizeof *t);
        if (!t) {
            f->failed = true;
            return NULL;
        }
        f->tensors = t;
        f->room = room;
    }
    struct mk_tensor *t = &f->tensors[f->n_tensors++];
    *t = (struct mk_tensor){.type = type, .n_dims = n_out ? 2 : 1, .ne = {n_in, n_out ? n_out : 1, 1, 1}, .std = std};
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

static uint64_t tensor_bytes(const struct mk_tensor *t)
{
    return (uint64_t)ntx_row_bytes(t->type, t->ne[0]) * t->ne[1] * t->ne[2] * t->ne[3];
}

/* The part of a tensor's name after "blk.N."; NULL: it belongs to no layer. */
static const char *part_of_layer(const struct mk_tensor *t)
{
    return strncmp(t->name, "blk.", 4) ? NULL : strchr(t->name + 4, '.');
}

/* The tensor (from `from` on) that has the bytes of tensor i: itself, or an equal one of an earlier layer. */
static size_t bytes_of(const struct mk_file *f, size_t from, size_t i)
{
    const struct mk_tensor *t = &f->tensors[i];
    const char *part = f->repeat ? part_of_layer(t) : NULL;
    for (size_t k = from; part && k < i; k++) {
        const struct mk_tensor *o = &f->tensors[k];
        const char *other = part_of_layer(o);
        if (other && !strcmp(other, part) && o->type == t->type && !memcmp(o->ne, t->ne, sizeof t->ne))
            return k;
    }
    return i;
}

static void put_split_keys(struct mk_buf *b, unsigned part, unsigned parts, size_t n_tensors)
{
    put_str(b, "split.no", 8);
    put_u32(b, NTX_GGUF_U16);
    put_u16(b, (uint16_t)part);
    put_str(b, "split.count", 11);
    put_u32(b, NTX_GGUF_U16);
    put_u16(b, (uint16_t)parts);
    put_str(b, "split.tensors.count", 19);
    put_u32(b, NTX_GGUF_I32);
    put_u32(b, (uint32_t)n_tensors);
}

/* Header of a file that holds tensors [from, to), padded to where their data begins. */
static struct mk_buf make_header(const struct mk_file *f, size_t from, size_t to, unsigned part, unsigned parts)
{
    static const char zeros[ALIGN];
    struct mk_buf b = {0};
    uint64_t end = 0, *offset = calloc(to - from + 1, sizeof *offset);
    b.failed = !offset;
    if (b.failed)
        return b;
    mk_put(&b, "GGUF", 4);
    put_u32(&b, f->version);
    put_u64(&b, to - from);
    put_u64(&b, (part ? 0 : f->n_kv) + (parts > 1 ? 3 : 0));
    if (!part)
        mk_put(&b, f->kv.p, f->kv.n);
    if (parts > 1)
        put_split_keys(&b, part, parts, f->n_tensors);
    for (size_t i = from; i < to; i++) {
        const struct mk_tensor *t = &f->tensors[i];
        put_str(&b, t->name, strlen(t->name));
        put_u32(&b, t->n_dims);
        for (uint32_t d = 0; d < t->n_dims; d++)
            put_u64(&b, t->ne[d]);
        put_u32(&b, t->type);
        size_t same = bytes_of(f, from, i);
        offset[i - from] = same < i ? offset[same - from] : end;
        put_u64(&b, offset[i - from]);
        end += same < i ? 0 : NTX_ROUND_UP(tensor_bytes(t), (uint64_t)ALIGN);
    }
    free(offset);
    mk_put(&b, zeros, NTX_ROUND_UP(b.n, (size_t)ALIGN) - b.n);
    return b;
}

static void put_unit(const struct mk_tensor *t, uint64_t first, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (first + i) / t->ne[0] == (first + i) % t->ne[0];
}

static void put_numbers(const struct mk_tensor *t, uint64_t first, size_t n, int32_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (int32_t)(((first + i) / t->ne[0] * 5 + (first + i) % t->ne[0]) % t->below);
}

static void put_long_numbers(const struct mk_tensor *t, uint64_t first, size_t n, int64_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (int64_t)((first + i) * t->below / t->ne[0]);
}

/* The random bytes of tensor i, the same whatever file it goes to. piece: [PIECE] */
static int write_tensor(int fd, const struct mk_file *f, size_t i, char *piece)
{
    static const char zeros[ALIGN];
    const struct mk_tensor *t = &f->tensors[i];
    const struct ntx_type_info *info = ntx_type_info(t->type);
    struct mk_rng rng = {f->seed * 0x2545f4914f6cdd1du + i * 0x9fb21c651e98df25u};
    uint64_t bytes = tensor_bytes(t), blocks = bytes / info->block_bytes;
    int rc = 0;
    for (uint64_t done = 0; done < blocks && !rc;) {
        size_t n = (size_t)NTX_MIN(blocks - done, (uint64_t)PIECE / info->block_bytes);
        if (t->values)
            memcpy(piece, t->values + done, n * sizeof(float));
        else if (t->unit)
            put_unit(t, done, n, (float *)(void *)piece);
        else if (t->type == NTX_I64)
            put_long_numbers(t, done, n, (int64_t *)(void *)piece);
        else if (t->below)
            put_numbers(t, done, n, (int32_t *)(void *)piece);
        else
            mk_blocks(&rng, t->type, n, t->mean, t->std, piece);
        rc = ntx_write_all(fd, piece, n * info->block_bytes);
        done += n;
    }
    return rc ? rc : ntx_write_all(fd, zeros, NTX_ROUND_UP(bytes, (uint64_t)ALIGN) - bytes);
}

/* Extends the file by the tensor's bytes without writing them. */
static int leave_hole(int fd, const struct mk_tensor *t)
{
    off_t end = lseek(fd, (off_t)NTX_ROUND_UP(tensor_bytes(t), (uint64_t)ALIGN), SEEK_CUR);
    return end < 0 || ftruncate(fd, end) ? -errno : 0;
}

/* One file with tensors [from, to). */
static int write_part(const struct mk_file *f, const char *path, size_t from, size_t to, unsigned part, unsigned parts,
                      uint64_t *bytes, struct ntx_err *err)
{
    struct mk_buf head = make_header(f, from, to, part, parts);
    char *piece = aligned_alloc(4096, PIECE);
    int fd = -1, rc = -ENOMEM;
    if (head.failed || !piece)
        goto done;
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    rc = fd < 0 ? -errno : ntx_write_all(fd, head.p, head.n);
    for (size_t i = from; i < to && !rc; i++)
        if (bytes_of(f, from, i) == i)
            rc = f->holes && f->tensors[i].type != NTX_I32 /* tables are read */ ? leave_hole(fd, &f->tensors[i])
                                                                                 : write_tensor(fd, f, i, piece);
    off_t end = rc ? 0 : lseek(fd, 0, SEEK_END);
    *bytes += (uint64_t)end;
done:
    if (fd >= 0 && close(fd) && !rc)
        rc = -errno;
    free(piece);
    free(head.p);
    return rc ? ntx_err_set(err, rc, "%s: cannot write: %s", path, strerror(-rc)) : 0;
}

/* The first tensor of a part; parts have equal numbers of tensors. */
static size_t part_start(const struct mk_file *f, unsigned part, unsigned parts) { return f->n_tensors * part / parts; }

int mk_write(const struct mk_file *f, const char *path, unsigned parts, uint64_t *bytes, struct ntx_err *err)
{
    char name[4096];
    size_t stem = strlen(path);
    uint64_t total = 0;
    if (f->failed || f->kv.failed)
        return ntx_err_set(err, -ENOMEM, "out of memory");
    if (stem > 5 && !strcmp(path + stem - 5, ".gguf"))
        stem -= 5;
    for (unsigned p = 0; p < parts; p++) {
        int n = parts == 1 ? snprintf(name, sizeof name, "%s", path)
                           : snprintf(name, sizeof name, "%.*s-%05u-of-%05u.gguf", (int)stem, path, p + 1, parts);
        if (n >= (int)sizeof name)
            return ntx_err_set(err, -ENAMETOOLONG, "%s: the path is too long", path);
        int rc = write_part(f, name, part_start(f, p, parts), part_start(f, p + 1, parts), p, parts, &total, err);
        if (rc)
            return rc;
    }
    *bytes = total;
    return 0;
}

void mk_file_free(struct mk_file *f)
{
    free(f->kv.p);
    free(f->tensors);
    memset(f, 0, sizeof *f);
}
