/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_part.h: internal to gguf*.c: the header of one file, read and validated on its own.
 *
 *   source --pread, doubling--> header bytes --walk 1: check, count--> tables --walk 2: fill--> part
 *
 * The first walk brings the whole header into memory and may move it; the second meets only bytes that the first has
 * checked, and its pointers stay. gguf.c then joins the parts of a split model. */
#ifndef NTX_MODEL_GGUF_PART_H
#define NTX_MODEL_GGUF_PART_H

#include "model/gguf.h"

/* Limits far above any real model; they keep the cost of a hostile file small. */
#define NTX__GGUF_MAX_HEADER  (64u << 20)
#define NTX__GGUF_MAX_COUNT   65536u     /* keys, and tensors */
#define NTX__GGUF_MAX_STRINGS (2u << 20) /* in all arrays together */
#define NTX__GGUF_MAX_NAME    64         /* bytes of a tensor name */
#define NTX__GGUF_MAX_KEY     65535

struct ntx__gguf_source {
    int fd;          /* -1: memory */
    const void *mem; /* [mem_len], the first bytes of the file */
    size_t mem_len;
    uint64_t file_bytes;
};

struct ntx__gguf_part {
    uint8_t *header; /* kv and strs point into it */
    uint64_t header_bytes;
    uint32_t version;
    struct ntx_gguf_kv *kv;
    uint64_t n_kv;
    struct ntx_str *strs; /* every string value, in file order */
    uint64_t n_strs;
    struct ntx_gguf_tensor *tensors; /* absolute offsets; file is 0 */
    uint64_t n_tensors;
    char *names; /* the tensors' names, each terminated */
};

/* On an error *part needs no freeing. */
int ntx__gguf_part_read(const struct ntx__gguf_source *src, struct ntx__gguf_part *part, struct ntx_err *err);
/* gguf_apart.c: checks that tensors do not overlap; `shared`: tensors may have exactly the same bytes. */
int ntx__gguf_part_apart(const struct ntx__gguf_part *p, bool shared, struct ntx_err *err);
void ntx__gguf_part_free(struct ntx__gguf_part *part);

/* gguf.c: adds a key that is not in the file (override.h). Its text and value are in one block of memory, which g
 * owns from then on, even on an error. */
struct ntx__gguf_given {
    struct ntx__gguf_given *next;
    uint8_t value[8];
    struct ntx_str str;
    char text[];
};
int ntx__gguf_give(struct ntx_gguf *g, const struct ntx_gguf_kv *kv, struct ntx__gguf_given *what, struct ntx_err *err);

/* Any integer type. -EINVAL: another type, or negative. */
int ntx__gguf_kv_u64(const struct ntx_gguf_kv *kv, uint64_t *v);

#endif
