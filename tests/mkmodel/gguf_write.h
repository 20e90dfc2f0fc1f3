/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_write.h: builds and streams GGUF files, split ones included. Any failure is remembered; mk_write reports it. */
#ifndef NTX_TESTS_MKMODEL_GGUF_WRITE_H
#define NTX_TESTS_MKMODEL_GGUF_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "model/gguf.h"

struct mk_tensor {
    char name[64];
    uint32_t type, n_dims;
    uint64_t ne[4]; /* unused ones are 1 */
    float mean, std;
    uint32_t below;      /* I32: integers below it, consecutive in a row. I64: ascending ones */
    bool unit;           /* F32: an identity matrix */
    const float *values; /* NULL: random; F32 otherwise, owned by whoever set it */
};

struct mk_buf {
    char *p;
    size_t n, room;
    bool failed; /* out of memory */
};

struct mk_file {
    uint32_t version; /* 2 or 3 */
    uint64_t seed;
    struct mk_buf kv; /* encoded keys and values */
    uint64_t n_kv;
    bool repeat; /* later layers have the bytes of the first equal tensor: a large shape in a small file */
    bool holes;  /* weights are not written: the file has holes, which read as zeros */
    struct mk_tensor *tensors;
    size_t n_tensors, room;
    bool failed;
};

void mk_put(struct mk_buf *b, const void *p, size_t n);

void mk_kv_u32(struct mk_file *f, const char *key, uint32_t v);
void mk_kv_f32(struct mk_file *f, const char *key, float v);
void mk_kv_bool(struct mk_file *f, const char *key, bool v);
void mk_kv_str(struct mk_file *f, const char *key, const char *v);
void mk_kv_arr(struct mk_file *f, const char *key, uint32_t elem, const void *v, size_t n); /* of scalars */
void mk_kv_strs(struct mk_file *f, const char *key, const char *const *v, size_t n);
void mk_kv_copy(struct mk_file *f, const struct ntx_gguf_kv *kv);

/* A matrix has n_out > 0. Returns NULL when out of memory. */
struct mk_tensor *mk_tensor_add(struct mk_file *f, const char *name, uint32_t type, uint64_t n_in, uint64_t n_out,
                                float std);

/* Writes path, or with parts > 1 path's stem with "-00001-of-0000N.gguf" for each. *bytes of all files together. */
int mk_write(const struct mk_file *f, const char *path, unsigned parts, uint64_t *bytes, struct ntx_err *err);
void mk_file_free(struct mk_file *f);

#endif
