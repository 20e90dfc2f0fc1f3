/* SPDX-License-Identifier: Apache-2.0 */
/* kv.h: the KV cache on the device: addresses and stores. A block holds a head's rows one after another. A row of n
 * values is F16 (uint16 [n]), or Q8_0: for each 32 values an F16 scale (max|x| / 127) and int8 [32]. The CPU has
 * another layout; nothing is copied between the two. */
#ifndef NTX_CUDA_KV_H
#define NTX_CUDA_KV_H

#include "cuda/vector.h"

#define Q8_ROW_BYTES 34u /* bytes of 32 values: an F16 scale, int8 [32] */

/* The row of the pass that is row i of the launch. */
DEV uint32_t row_of_pass(const struct ntx_gpu_kv *kv, uint32_t i) { return kv->rows ? kv->rows[i] : i; }

/* Whether some positions before `end` are not stored in the slots of their numbers (draft trees). */
DEV int has_path(const struct ntx_gpu_kv *kv, uint32_t row, uint32_t end)
{
    return kv->paths && end > kv->path_from[row];
}

DEV uint32_t slot_of(const struct ntx_gpu_kv *kv, uint32_t row, uint32_t pos)
{
    return has_path(kv, row, pos + 1) ? kv->paths[kv->path_at[row] + pos - kv->path_from[row]] : pos;
}

/* The index in `tables` of the slot's block. */
DEV uint32_t table_slot(const struct ntx_gpu_kv *kv, uint32_t row, uint32_t slot)
{
    return kv->table_at[row] + slot / kv->block_tokens;
}

DEV uint64_t kv_row_bytes(const struct ntx_gpu_kv *kv, uint32_t n)
{
    return kv->q8 ? (uint64_t)(n / 32) * Q8_ROW_BYTES : 2ull * n;
}

DEV uint64_t v_row_bytes(const struct ntx_gpu_kv *kv) { return kv_row_bytes(kv, kv->v_in_k ? kv->head_k : kv->head_v); }

DEV uint8_t *kv_block(const struct ntx_gpu_kv *kv, uint32_t row, uint32_t slot)
{
    return kv->base + kv->tables[table_slot(kv, row, slot)] * kv->block_bytes + kv->layer_offset;
}

/* K and V by slot. */
DEV uint8_t *k_in(const struct ntx_gpu_kv *kv, uint32_t row, uint32_t head, uint32_t slot)
{
    return kv_block(kv, row, slot) +
           ((uint64_t)head * kv->block_tokens + slot % kv->block_tokens) * kv_row_bytes(kv, kv->head_k);
}

DEV uint8_t *v_in(const struct ntx_gpu_kv *kv, uint32_t row, uint32_t head, uint32_t slot)
{
    uint64_t keys = kv->v_in_k ? 0 : (uint64_t)kv->n_head_kv * kv->block_tokens * kv_row_bytes(kv, kv->head_k);
    return kv_block(kv, row, slot) + keys +
           ((uint64_t)head * kv->block_tokens + slot % kv->block_tokens) * v_row_bytes(kv);
}

/* K and V by position. */
DEV uint8_t *k_at(const struct ntx_gpu_kv *kv, uint32_t row, uint32_t head, uint32_t pos)
{
    return k_in(kv, row, head, slot_of(kv, row, pos));
}
DEV uint8_t *v_at(const struct ntx_gpu_kv *kv, uint32_t row, uint32_t head, uint32_t pos)
{
    return v_in(kv, row, head, slot_of(kv, row, pos));
}

/* Pooled K or key number `number`, which stands for `every` positions. It is stored in the block of the last of
 * them. */
DEV uint8_t *pooled_in(const struct ntx_gpu_kv *kv, uint32_t row, uint32_t number, uint32_t every)
{
    const uint32_t slot = (number + 1) * every - 1;
    return kv_block(kv, row, slot) + slot % kv->block_tokens / every * kv_row_bytes(kv, kv->head_k);
}

DEV int is_hole_in(const struct ntx_gpu_kv *kv, uint32_t row, uint32_t slot)
{
    return kv->holes[table_slot(kv, row, slot)] >> (slot % kv->block_tokens) & 1;
}

DEV int is_hole(const struct ntx_gpu_kv *kv, uint32_t row, uint32_t pos)
{
    return kv->holes && is_hole_in(kv, row, slot_of(kv, row, pos));
}

/* The first position that a row at pos sees. */
DEV uint32_t seen_from(uint32_t window, uint32_t pos) { return window && window <= pos ? pos + 1 - window : 0; }

DEV float kv_value(const struct ntx_gpu_kv *kv, const uint8_t *row, uint32_t e)
{
    if (!kv->q8)
        return f16_at(row + 2 * e);
    const uint8_t *b = row + e / 32 * Q8_ROW_BYTES;
    return (float)(int8_t)b[2 + e % 32] * f16_at(b);
}

/* A value of q, rounded to the form that K of this type is multiplied by. Q8: a warp must have 32 adjacent values. */
DEV float query_value(const struct ntx_gpu_kv *kv, float x)
{
    if (!kv->q8)
        return x;
    float inverse, scale = scale_of(top_of_warp(x), &inverse);
    return (float)quantised(x, inverse) * scale;
}

/* Stores value e of a row. Q8: the 32 threads of a warp must have 32 values that share a scale. */
DEV void kv_store(const struct ntx_gpu_kv *kv, uint8_t *row, uint32_t e, float x)
{
    if (!kv->q8) {
        *(uint16_t *)(void *)(row + 2 * e) = f16_bits(x);
        return;
    }
    uint8_t *b = row + e / 32 * Q8_ROW_BYTES;
    float inverse;
    uint16_t scale = f16_bits(scale_of(top_of_warp(x), &inverse));
    b[2 + e % 32] = (uint8_t)(int8_t)quantised(x, inverse);
    if (e % 32 == 0)
        *(uint16_t *)(void *)b = scale;
}

#define MOVE_THREADS 128u

/* A block of threads moves K or V of a head in a layer. Slots are moved one after another; each byte always has the
 * same thread. */
KERNEL(move_slots, struct ntx_gpu_move)
{
    struct ntx_gpu_kv kv = a.kv;
    kv.layer_offset += BY * a.layer_bytes;
    uint64_t n = kv_row_bytes(&kv, BZ ? kv.head_v : kv.head_k) / 2;
    for (uint32_t i = 0; i < a.n; i++) {
        const uint16_t *from = (const uint16_t *)(const void *)(BZ ? v_in(&kv, 0, BX, a.slots[2 * i])
                                                                   : k_in(&kv, 0, BX, a.slots[2 * i]));
        uint16_t *to = (uint16_t *)(void *)(BZ ? v_in(&kv, 0, BX, a.slots[2 * i + 1])
                                               : k_in(&kv, 0, BX, a.slots[2 * i + 1]));
        for (uint32_t k = TID; k < n; k += MOVE_THREADS)
            to[k] = from[k];
    }
}

int ntx__launch_move(struct ntx_gpu_stream *s, const struct ntx_gpu_move *p)
{
    if (!p->n)
        return 0;
    RETURN_LAUNCH(s, move_slots, p->kv.n_head_kv, p->n_layers, p->kv.v_in_k ? 1 : 2, MOVE_THREADS, *p);
}

#endif
