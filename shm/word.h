/* SPDX-License-Identifier: Apache-2.0 */
/* word.h: state words that processes share, and waiting on them. */
#ifndef NTX_SHM_WORD_H
#define NTX_SHM_WORD_H

#include <stdatomic.h>
#include <stdint.h>

/* A state word: the state in the low 4 bits, a generation (lap or use count) in the upper 28. */
enum ntx_state { NTX_FREE, NTX_FILLING, NTX_READY, NTX_FAILED, NTX_SKIPPED, NTX_POSTED };
static inline uint32_t ntx_word(uint32_t gen, enum ntx_state s) { return gen << 4 | (uint32_t)s; }
static inline enum ntx_state ntx_word_state(uint32_t w) { return (enum ntx_state)(w & 15); }
static inline uint32_t ntx_word_gen(uint32_t w) { return w >> 4; }

/* Futex wait on a shared word while it holds `seen`. Returns 0 when woken or changed, -ETIMEDOUT or -EINTR. timeout_ns
 * 0: no limit. */
int ntx_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns);
void ntx_futex_wake(_Atomic uint32_t *word);

#endif
