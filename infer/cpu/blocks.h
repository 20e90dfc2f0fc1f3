/* blocks.h: a weight block as small integers, in plain C. The oracle multiplies from this form.
 *
 * Simple blocks: w[k] = d * q[k] (+ m).   Super-blocks: w[k] = d * scale[k / 16] * q[k] - dmin * min[k / 16]. */
#ifndef NTX_COMPUTED_CPU_BLOCKS_H
#define NTX_COMPUTED_CPU_BLOCKS_H

#include "infer/cpu/kern.h"

struct simple {
    float d, m;
    int8_t q[NTX_QK];
};

struct super {
    float d, dmin;
    int32_t scale[16], min[16];
    int8_t q[NTX_QKK];
};

/* 4 bits in qs (low nibbles first), the fifth, if any, in the bits of qh. */
INLINE void unpack_nibbles(const uint8_t qs[16], uint32_t qh, int minus, int8_t q[NTX_QK])
{
    for (int i = 0; i < 16; i++) {
        q[i] = (int8_t)(((qs[i] & 15) | (qh >> i & 1) << 4) - minus);
        q[i + 16] = (int8_t)(((qs[i] >> 4) | (qh >> (i + 16) & 1) << 4) - minus);
    }
}

INLINE uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

INLINE void unpack_q4_0(const void *p, struct simple *s)
{
    const struct ntx_block_q4_0 *b = p;
    s->d = f16_to_f32(b->d);
    unpack_nibbles(b->qs, 0, 8, s->q);
}

INLINE void unpack_q4_1(const void *p, struct simple *s)
{
    const struct ntx_block_q4_1 *b = p;
    s->d = f16_to_f32(b->d);
    s->m = f16_to_f32(b->m);
    unpack_nibbles(b->qs, 0, 0, s->q);
}

INLINE void unpack_q5_0(const void *p, struct simple *s)
{
    const struct ntx_block_q5_0 *b = p;
    s->d = f16_to_f32(b->d);
    unpack_nibbles(b->qs, load_u32(b->qh), 16, s->q);
}

INLINE void unpack_q5_1(const void *p, struct simple *s)
{
    const struct ntx_block_q5_1 *b = p;
    s->d = f16_to_f32(b->d);
    s->m = f16_to_f32(b->m);
    unpack_nibbles(b->qs, load_u32(b->qh), 0, s->q);
}

INLINE void unpack_q8_0(const void *p, struct simple *s)
{
    const struct ntx_block_q8_0 *b = p;
    s->d = f16_to_f32(b->d);
    memcpy(s->q, b->qs, NTX_QK);
}

INLINE void unpack_mxfp4(const void *p, struct simple *s)
{
    static const int8_t value[16] = {NTX_MXFP4_VALUES};
    const struct ntx_block_mxfp4 *b = p;
    s->d = mxfp4_scale(b->e);
    for (int i = 0; i < 16; i++) {
        s->q[i] = value[b->qs[i] & 15];
        s->q[i + 16] = value[b->qs[i] >> 4];
    }
}

INLINE void unpack_q2_k(const void *p, struct super *s)
{
    const struct ntx_block_q2_k *b = p;
    s->d = f16_to_f32(b->d);
    s->dmin = f16_to_f32(b->dmin);
    for (int i = 0; i < 16; i++) {
        s->scale[i] = b->scales[i] & 15;
        s->min[i] = b->scales[i] >> 4;
    }
    for (int i = 0; i < NTX_QKK; i++) /* each 32 bytes hold 4 runs of 32 values, 2 bits each */
        s->q[i] = b->qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

/* 16 scales of 6 bits: low 4 bits in bytes 0..7 (two per byte), high 2 bits in bytes 8..11 (four per byte); minus 32. */
INLINE void unpack_q3_k(const void *p, struct super *s)
{
    const struct ntx_block_q3_k *b = p;
    s->d = f16_to_f32(b->d);
    for (int i = 0; i < 16; i++) {
        int low = b->scales[i % 8] >> (i / 8 * 4) & 15, high = b->scales[8 + i % 4] >> (i / 4 * 2) & 3;
        s->scale[i] = (low | high << 4) - 32;
    }
    for (int i = 0; i < NTX_QKK; i++) {
        int low = b->qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        s->q[i] = (int8_t)(low - (b->hmask[i % 32] >> (i / 32) & 1 ? 0 : 4));
    }
}

/* 8 scales and 8 minima of 6 bits in 12 bytes: the first four whole in bytes 0..3 and 4..7, the others split. */
INLINE void unpack_scales_k(const uint8_t p[12], struct super *s)
{
    for (int j = 0; j < 8; j++) {
        int sc = j < 4 ? p[j] & 63 : (p[j + 4] & 15) | (p[j - 4] >> 6) << 4;
        int mn = j < 4 ? p[j + 4] & 63 : (p[j + 4] >> 4) | (p[j] >> 6) << 4;
        s->scale[2 * j] = s->scale[2 * j + 1] = sc;
        s->min[2 * j] = s->min[2 * j + 1] = mn;
    }
}

INLINE void unpack_q4_k(const void *p, struct super *s)
{
    const struct ntx_block_q4_k *b = p;
    s->d = f16_to_f32(b->d);
    s->dmin = f16_to_f32(b->dmin);
    unpack_scales_k(b->scales, s);
    for (int i = 0; i < NTX_QKK; i++)
        s->q[i] = b->qs[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
}

INLINE void unpack_q5_k(const void *p, struct super *s)
{
    const struct ntx_block_q5_k *b = p;
    s->d = f16_to_f32(b->d);
    s->dmin = f16_to_f32(b->dmin);
    unpack_scales_k(b->scales, s);
    for (int i = 0; i < NTX_QKK; i++) {
        int low = b->qs[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
        s->q[i] = (int8_t)(low | (b->qh[i % 32] >> (i / 32) & 1) << 4);
    }
}

/* Each half of 128 values: low nibbles of 64 bytes, then high nibbles; 2 upper bits in 32 bytes of qh. */
INLINE void unpack_q6_k(const void *p, struct super *s)
{
    const struct ntx_block_q6_k *b = p;
    s->d = f16_to_f32(b->d);
    for (int i = 0; i < 16; i++)
        s->scale[i] = b->scales[i];
    for (int i = 0; i < NTX_QKK; i++) {
        int low = b->ql[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
        int high = b->qh[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        s->q[i] = (int8_t)((low | high << 4) - 32);
    }
}

#endif
