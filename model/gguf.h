/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.h: reads the header of a GGUF file (version 2 or 3, split files included) and validates all of it.
 *
 * Only the header is read (pread, in pieces); tensor data is never touched here. Everything that the file says is
 * checked once, with overflow-checked arithmetic, before this returns: counts, string lengths, UTF-8 of keys and names,
 * known value and tensor types, alignment, duplicate names, every tensor's [offset, offset + bytes) inside its file and
 * apart from all others'. After that the accessors cannot fail on malformed input. Hostile input costs one clear error
 * and under 100 ms. Source: the GGUF specification. Little-endian only (a big-endian file is refused with that reason).
 * */
#ifndef NTX_MODEL_GGUF_H
#define NTX_MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

enum ntx_gguf_vtype {
    NTX_GGUF_U8,
    NTX_GGUF_I8,
    NTX_GGUF_U16,
    NTX_GGUF_I16,
    NTX_GGUF_U32,
    NTX_GGUF_I32,
    NTX_GGUF_F32,
    NTX_GGUF_BOOL,
    NTX_GGUF_STR,
    NTX_GGUF_ARR,
    NTX_GGUF_U64,
    NTX_GGUF_I64,
    NTX_GGUF_F64,
};

struct ntx_gguf; /* immutable once open; any thread may read */

struct ntx_str { /* bytes inside the header, not terminated */
    const char *p;
    size_t n;
};

struct ntx_gguf_kv {
    struct ntx_str key;
    enum ntx_gguf_vtype type;
    enum ntx_gguf_vtype elem;   /* of an array; arrays of arrays are refused */
    uint64_t count;             /* elements of an array, else 1 */
    const void *data;           /* raw little-endian bytes; for strings and arrays of strings use the accessors */
    const struct ntx_str *strs; /* for STR and arrays of STR: `count` of them */
};

struct ntx_gguf_tensor {
    const char *name; /* terminated */
    uint32_t type;    /* ggml type number, one that model/quant.h knows */
    uint32_t n_dims;  /* 1..4 */
    uint64_t ne[4];   /* dimensions behind n_dims are 1 */
    uint32_t file;    /* part number, 0 for a single file */
    uint64_t offset;  /* of the first byte in that file */
    uint64_t bytes;
    uint64_t high; /* of low bits (planes.h): offset of its high bits, in file NTX_GGUF_HIGH_FILE */
};
#define NTX_GGUF_HIGH_FILE 1u

/* A tensor as a matrix: values of a row, and rows. Of one with four dimensions (a convolution's) the last one has the
 * rows, and the others are one row. */
static inline uint64_t ntx_gguf_row(const struct ntx_gguf_tensor *t)
{
    return t->ne[3] > 1 ? t->ne[0] * t->ne[1] * t->ne[2] : t->ne[0];
}
static inline uint64_t ntx_gguf_rows(const struct ntx_gguf_tensor *t) { return t->ne[3] > 1 ? t->ne[3] : t->ne[1]; }

/* Opens a model. fds: its parts in order (one for a plain file); the caller owns them and may close them afterwards.
 * The keys split.no and split.count of the parts must agree with this order and number. names: a name for each part,
 * for error texts only; or NULL. */
int ntx_gguf_open(const int *fds, unsigned n_fds, const char *const *names, struct ntx_gguf **out, struct ntx_err *err);

/* Two files of `ntx pack --planes` (planes.h), the low bits first, are a model, too: tensors of low bits have the place
 * of their high bits. The low bits alone are refused; the high bits alone are an ordinary model. */
bool ntx_gguf_planes(const struct ntx_gguf *g);
/* Both have the same key ntx.planes.pair. */
bool ntx_gguf_planes_pair(const struct ntx_gguf *a, const struct ntx_gguf *b);

/* Files after the parts may be adapters (LoRA: key general.type is "adapter"), at most NTX_ADAPTERS_MAX (tensors.h).
 * The tensors of adapter k, counted from 1, are in the list with ".k" appended to their names. adapter.type must be
 * "lora", and general.architecture the model's. An adapter that is opened alone is read as an ordinary file. */
unsigned ntx_gguf_adapters(const struct ntx_gguf *g);
const struct ntx_gguf_kv *ntx_gguf_adapter_find(const struct ntx_gguf *g, unsigned k, const char *key);
void ntx_gguf_free(struct ntx_gguf *g);

/* Opens a header in memory, as a single file of `file_bytes` whose first `len` bytes are `buf` (fuzzing, tests). */
int ntx_gguf_parse(const void *buf, size_t len, uint64_t file_bytes, struct ntx_gguf **out, struct ntx_err *err);

/* Lends g tensors of another file, which must live longer than g. A tensor that g has already is not replaced. Each
 * is listed as `name`, with a file number behind those of g's own files. Call this before other threads have g. */
struct ntx_gguf_loan {
    const char *name, *of;
};
int ntx_gguf_lend(struct ntx_gguf *g, const struct ntx_gguf *from, const struct ntx_gguf_loan *loans, unsigned n,
                  struct ntx_err *err);

/* Lists the files of a split model from the path of its first part ("x-00001-of-00003.gguf"), for clients that open
 * files. If that file says by its keys that it is whole, it is the only one. Low bits ("x.gguf") are followed by their
 * high bits ("x.draft.gguf"). Returns the number of parts (1 for a
 * plain file) and malloc'd paths in *paths, or a negative errno. */
int ntx_gguf_split_paths(const char *path, char ***paths, struct ntx_err *err);

uint64_t ntx_gguf_n_kv(const struct ntx_gguf *g);
const struct ntx_gguf_kv *ntx_gguf_kv_at(const struct ntx_gguf *g, uint64_t i);
const struct ntx_gguf_kv *ntx_gguf_find(const struct ntx_gguf *g, const char *key); /* NULL when absent */
uint64_t ntx_gguf_n_tensors(const struct ntx_gguf *g);
const struct ntx_gguf_tensor *ntx_gguf_tensor_at(const struct ntx_gguf *g, uint64_t i);
const struct ntx_gguf_tensor *ntx_gguf_tensor(const struct ntx_gguf *g, const char *name);
uint32_t ntx_gguf_version(const struct ntx_gguf *g);
uint64_t ntx_gguf_header_bytes(const struct ntx_gguf *g); /* memory that the parsed header takes */

/* Bytes of a scalar value of this type (in ntx_gguf_kv.data); 0 for strings, arrays and unknown types. */
size_t ntx_gguf_scalar_bytes(uint32_t type);

/* Scalars, converted between integer types. -ENOENT: the key is absent; -EINVAL: it has another type, or is out of
 * range. */
int ntx_gguf_u64(const struct ntx_gguf *g, const char *key, uint64_t *v);
int ntx_gguf_f32(const struct ntx_gguf *g, const char *key, float *v);
int ntx_gguf_bool(const struct ntx_gguf *g, const char *key, bool *v);
int ntx_gguf_str(const struct ntx_gguf *g, const char *key, struct ntx_str *v);

#endif
