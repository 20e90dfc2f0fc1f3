/* SPDX-License-Identifier: Apache-2.0 */
/* mem_gguf.h: writes a GGUF header into memory, so that a vocabulary of a dozen tokens can be tried without any file.
 * */
#ifndef NTX_TESTS_UNIT_TOKENIZER_MEM_GGUF_H
#define NTX_TESTS_UNIT_TOKENIZER_MEM_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/tokenizer.h"

struct mem_gguf { /* zero it first */
    unsigned char *p;
    size_t n, room;
    uint64_t n_kv;
};

void mem_str(struct mem_gguf *m, const char *key, const char *value);
void mem_u32(struct mem_gguf *m, const char *key, uint32_t value);
void mem_bool(struct mem_gguf *m, const char *key, bool value);
void mem_strs(struct mem_gguf *m, const char *key, const char *const *values, uint64_t n);
void mem_f32s(struct mem_gguf *m, const char *key, const float *values, uint64_t n);
void mem_i32s(struct mem_gguf *m, const char *key, const int32_t *values, uint64_t n);

/* The header is complete: m->p[0 .. m->n) is a file. */
void mem_finish(struct mem_gguf *m);

/* Opens the tokenizer of this header, and frees m. Returns the result of ntx_tokenizer_open. */
int mem_open(struct mem_gguf *m, struct ntx_tokenizer **t, struct ntx_err *err);

/* The keys of a small byte-level vocabulary: 256 bytes, a few merges, and the control tokens given (ids from
 * *first_control on; the first is BOS, the second EOS). */
void mem_bpe_keys(struct mem_gguf *m, const char *pre, const char *const *controls, unsigned n, int32_t *first_control);
struct ntx_tokenizer *mem_bpe(const char *pre, const char *const *controls, unsigned n, int32_t *first_control);

#endif
