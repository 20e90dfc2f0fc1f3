/* kv.h: paged KV: one pool of blocks of NTX_KV_BLOCK tokens, a block table per session. F16.
 * Block layout, per layer: K [n_head_kv][NTX_KV_BLOCK][head_k], then V [n_head_kv][NTX_KV_BLOCK][head_v].
 * A session reserves all blocks that it may need when it is admitted; nothing is preempted. Not thread-safe: the engine thread calls,
 * compute threads only read addresses. */
#ifndef NTX_COMPUTED_KV_H
#define NTX_COMPUTED_KV_H

#include <stdint.h>

#include "common/err.h"
#include "model/arch.h"

#define NTX_KV_BLOCK 32

struct ntx_kv_pool;
struct ntx_kv_seq; /* one session's table, with its holes (positions without KV in a layer, DESIGN section 9) */

uint64_t ntx_kv_block_bytes(const struct ntx_hparams *hp);                      /* over all layers */
int ntx_kv_pool_new(const struct ntx_hparams *hp, uint32_t n_blocks, struct ntx_kv_pool **out, struct ntx_err *err);
void ntx_kv_pool_free(struct ntx_kv_pool *p);
uint32_t ntx_kv_pool_blocks(const struct ntx_kv_pool *p);
uint32_t ntx_kv_pool_used(const struct ntx_kv_pool *p);

/* -EAGAIN when the pool has not that many blocks free now, -ENOSPC when it never can. */
int ntx_kv_seq_new(struct ntx_kv_pool *p, uint32_t n_tokens, struct ntx_kv_seq **out);
void ntx_kv_seq_free(struct ntx_kv_seq *s);
uint32_t ntx_kv_seq_room(const struct ntx_kv_seq *s); /* tokens */
uint16_t *ntx_kv_k(const struct ntx_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos);
uint16_t *ntx_kv_v(const struct ntx_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos);
void ntx_kv_set_hole(struct ntx_kv_seq *s, uint32_t layer, uint32_t pos);
void ntx_kv_truncate(struct ntx_kv_seq *s, uint32_t n_tokens); /* forget holes of positions >= n_tokens */
/* bit per position, NULL when the layer has no hole */
const uint8_t *ntx_kv_holes(const struct ntx_kv_seq *s, uint32_t layer);

#endif
