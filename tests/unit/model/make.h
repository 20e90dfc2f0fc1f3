/* SPDX-License-Identifier: Apache-2.0 */
/* make.h: models in memory for the tests of model/: made by the model maker, then changed by hand. */
#ifndef NTX_TESTS_UNIT_MODEL_MAKE_H
#define NTX_TESTS_UNIT_MODEL_MAKE_H

#include "tests/lib/check.h"
#include "tests/mkmodel/describe.h"

/* A small llama model: 2 layers of 64, F32. Change what a test is about. */
struct mk_options make_options(void);

/* The file's bytes, malloc'd. */
uint8_t *make_bytes(const struct mk_options *o, size_t *n);
/* The same with more keys, added by `extra`. */
uint8_t *make_bytes_with(const struct mk_options *o, void (*extra)(struct mk_file *f), size_t *n);

/* Writes the model to a new temporary directory; `paths` are its parts (malloc'd as ntx_gguf_split_paths does).
 * Returns the number of parts. unmake() removes all. */
int make_files(const struct mk_options *o, char ***paths);
void unmake(char **paths, int n);

int open_path(const char *path);

/* Where the value of a key begins (its type word); fails the test when there is none. */
uint8_t *value_of(uint8_t *bytes, size_t n, const char *key);
void set_u32(uint8_t *bytes, size_t n, const char *key, uint32_t v);        /* the value of a U32 or F32 key */
void rename_in(uint8_t *bytes, size_t n, const char *from, const char *to); /* equal lengths, first place */

struct ntx_gguf *parse_ok(const void *bytes, size_t n);

/* Little-endian pieces of a header, by hand. */
void put32(struct mk_buf *b, uint32_t v);
void put64(struct mk_buf *b, uint64_t v);
void puts_len(struct mk_buf *b, const char *s);
void put_head(struct mk_buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_kv);

#endif
