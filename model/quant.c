/* quant.c: one function per type, each the definition of its type; one table. Speed does not matter here: the fast
 * kernels are elsewhere and are tested against these.
 *
 * Every loop writes its products in the order of the values, so that a reader can follow a block with a pencil. */
#include "model/quant.h"

#include <string.h>

_Static_assert(sizeof(struct ntx_block_q4_0) == 18 && sizeof(struct ntx_block_q4_1) == 20, "layout of files");
_Static_assert(sizeof(struct ntx_block_q5_0) == 22 && sizeof(struct ntx_block_q5_1) == 24, "layout of files");
_Static_assert(sizeof(struct ntx_block_q8_0) == 34 && sizeof(struct ntx_block_q2_k) == 84, "layout of files");
_Static_assert(sizeof(struct ntx_block_q3_k) == 110 && sizeof(struct ntx_block_q4_k) == 144, "layout of files");
_Static_assert(sizeof(struct ntx_block_mxfp4) == 17, "layout of files");
_Static_assert(sizeof(struct ntx_block_q5_k) == 176 && sizeof(struct ntx_block_q6_k) == 210, "layout of files");

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t to_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

float ntx_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
    if (e == 31)
        return from_bits(sign | 0x7f800000 | m << 13);
    if (e == 0) { /* zero and subnormals: m * 2^-24, exact */
        float f = (float)m * 0x1p-24f;
        return from_bits(sign | to_bits(f));
    }
    return from_bits(sign | (e + 112) << 23 | m << 13);
}

uint16_t ntx_f32_to_f16(float f)
{
    uint32_t x = to_bits(f), sign = x >> 16 & 0x8000;
    x &= 0x7fffffff;
    if (x > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (x >= 0x477ff000) /* 65520 and more: rounds to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (x < 0x38800000) { /* below 2^-14: the unit in the last place of 0.5 is 2^-24, the subnormals' step */
        float t = from_bits(x) + 0.5f;
        return (uint16_t)(sign | (to_bits(t) - 0x3f000000));
    }
    x += (x >> 13 & 1) + 0xfff; /* nearest even; a carry into the exponent is right */
    return (uint16_t)(sign | (x - (112u << 23)) >> 13);
}

static void dequant_f32(const void *blocks, float *out, size_t n)
{
    memcpy(out, blocks, n * sizeof *out);
}

static void dequant_f16(const void *blocks, float *out, size_t n)
{
    const uint16_t *x = blocks;
    for (size_t i = 0; i < n; i++)
        out[i] = ntx_f16_to_f32(x[i]);
}

static void dequant_bf16(const void *blocks, float *out, size_t n)
{
    const uint16_t *x = blocks;
    for (size_t i = 0; i < n; i++)
        out[i] = from_bits((uint32_t)x[i] << 16);
}

static void dequant_i8(const void *blocks, float *out, size_t n)
{
    const int8_t *x = blocks;
    for (size_t i = 0; i < n; i++)
        out[i] = x[i];
}

/* Simple blocks: byte j holds value j in its low nibble and value j + 16 in its high one. */

static void dequant_q4_0(const void *blocks, float *out, size_t n)
{
    const struct ntx_block_q4_0 *b = blocks;
    for (size_t i = 0; i < n; i++, b++, out += NTX_QK) {
        float d = ntx_f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) {
            out[j] = d * (float)((b->qs[j] & 15) - 8);
            out[j + 16] = d * (float)((b->qs[j] >> 4) - 8);
        }
    }
}

static void dequant_q4_1(const void *blocks, float *out, size_t n)
{
    const struct ntx_block_q4_1 *b = blocks;
    for (size_t i = 0; i < n; i++, b++, out += NTX_QK) {
        float d = ntx_f16_to_f32(b->d), m = ntx_f16_to_f32(b->m);
        for (int j = 0; j < 16; j++) {
            out[j] = d * (float)(b->qs[j] & 15) + m;
            out[j + 16] = d * (float)(b->qs[j] >> 4) + m;
        }
    }
}

/* Value v of a block with a fifth bit each: bit v of qh, read as one little-endian word, goes above the nibble. */
static int q5_at(const uint8_t qh[4], const uint8_t qs[16], int v)
{
    int nibble = v < 16 ? qs[v] & 15 : qs[v - 16] >> 4;
    return nibble | (qh[v / 8] >> v % 8 & 1) << 4;
}

static void dequant_q5_0(const void *blocks, float *out, size_t n)
{
    const struct ntx_block_q5_0 *b = blocks;
    for (size_t i = 0; i < n; i++, b++, out += NTX_QK) {
        float d = ntx_f16_to_f32(b->d);
        for (int v = 0; v < NTX_QK; v++)
            out[v] = d * (float)(q5_at(b->qh, b->qs, v) - 16);
    }
}

static void dequant_q5_1(const void *blocks, float *out, size_t n)
{
    const struct ntx_block_q5_1 *b = blocks;
    for (size_t i = 0; i < n; i++, b++, out += NTX_QK) {
        float d = ntx_f16_to_f32(b->d), m = ntx_f16_to_f32(b->m);
        for (int v = 0; v < NTX_QK; v++)
            out[v] = d * (float)q5_at(b->qh, b->qs, v) + m;
    }
}

static void dequant_q8_0(const void *blocks, float *out, size_t n)
{
    const struct ntx_block_q8_0 *b = blocks;
    for (size_t i = 0; i < n; i++, b++, out += NTX_QK) {
        float d = ntx_f16_to_f32(b->d);
        for (int v = 0; v < NTX_QK; v++)
            out[v] = d * (float)b->qs[v];
    }
}

/* Half of 2^(e - 127), as the values are doubled; the two least are subnormal. */
static float mxfp4_scale(uint8_t e)
{
    return from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

static void dequant_mxfp4(const void *blocks, float *out, size_t n)
{
    static const int8_t value[16] = {NTX_MXFP4_VALUES};
    const struct ntx_block_mxfp4 *b = blocks;
    for (size_t i = 0; i < n; i++, b++, out += NTX_QK) {
        float d = mxfp4_scale(b->e);
        for (int j = 0; j < 16; j++) {
            out[j] = d * (float)value[b->qs[j] & 15];
            out[j + 16] = d * (float)value[b->qs[j] >> 4];
        }
    }
}

/* Two-bit planes of Q2_K and Q3_K: each half of 128 values has 32 bytes; its values 32 s .. 32 s + 31 are bits
 * 2 s, 2 s + 1 of those bytes. */
static int q2_at(const uint8_t qs[64], int v)
{
    return qs[v / 128 * 32 + v % 32] >> (v % 128 / 32 * 2) & 3;
}

static void dequant_q2_k(const void *blocks, float *out, size_t n)
{
    const struct ntx_block_q2_k *b = blocks;
    for (size_t i = 0; i < n; i++, b++, out += NTX_QKK) {
        float d = ntx_f16_to_f32(b->d), dmin = ntx_f16_to_f32(b->dmin);
        for (int v = 0; v < NTX_QKK; v++) {
            uint8_t s = b->scales[v / 16]; /* low nibble scale, high nibble minimum */
            float a = d * (float)(s & 15), m = dmin * (float)(s >> 4);
            out[v] = a * (float)q2_at(b->qs, v) - m;
        }
    }
}

/* Six-bit scale g (0..15) of Q3_K, stored with 32 added: low nibbles in bytes 0..7, high pairs of bits in 8..11. */
static int q3_scale(const uint8_t s[12], int g)
{
    int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
    int high = s[8 + g % 4] >> g / 4 * 2 & 3;
    return (low | high << 4) - 32;
}

static void dequant_q3_k(const void *blocks, float *out, size_t n)
{
    const struct ntx_block_q3_k *b = blocks;
    for (size_t i = 0; i < n; i++, b++, out += NTX_QKK) {
        float d = ntx_f16_to_f32(b->d);
        for (int v = 0; v < NTX_QKK; v++) {
            float a = d * (float)q3_scale(b->scales, v / 16);
            int third = b->hmask[v % 32] >> v / 32 & 1; /* clear means minus four */
            out[v] = a * (float)(q2_at(b->qs, v) - (third ? 0 : 4));
        }
    }
}

/* Six-bit scale and minimum g (0..7) of Q4_K and Q5_K out of twelve bytes. */
static void k4_scale(const uint8_t s[12], int g, int *scale, int *min)
{
    if (g < 4) {
        *scale = s[g] & 63;
        *min = s[g + 4] & 63;
    } else {
        *scale = (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
        *min = s[g + 4] >> 4 | s[g] >> 6 << 4;
    }
}

/* Nibble of value v: groups of 64 values share 32 bytes, low nibbles first. */
static int k4_nibble(const uint8_t qs[128], int v)
{
    return qs[v / 64 * 32 + v % 32] >> v % 64 / 32 * 4 & 15;
}

static void dequant_q4_k(const void *blocks, float *out, size_t n)
{
    const struct ntx_block_q4_k *b = blocks;
    for (size_t i = 0; i < n; i++, b++, out += NTX_QKK) {
        float d = ntx_f16_to_f32(b->d), dmin = ntx_f16_to_f32(b->dmin);
        for (int v = 0; v < NTX_QKK; v++) {
            int scale, min;
            k4_scale(b->scales, v / 32, &scale, &min);
            float a = d * (float)scale, m = dmin * (float)min;
            out[v] = a * (float)k4_nibble(b->qs, v) - m;
        }
    }
}

static void dequant_q5_k(const void *blocks, float *out, size_t n)
{
    const struct ntx_block_q5_k *b = blocks;
    for (size_t i = 0; i < n; i++, b++, out += NTX_QKK) {
        float d = ntx_f16_to_f32(b->d), dmin = ntx_f16_to_f32(b->dmin);
        for (int v = 0; v < NTX_QKK; v++) {
            int scale, min, fifth = b->qh[v % 32] >> v / 32 & 1;
            k4_scale(b->scales, v / 32, &scale, &min);
            float a = d * (float)scale, m = dmin * (float)min;
            out[v] = a * (float)(k4_nibble(b->qs, v) | fifth << 4) - m;
        }
    }
}

/* Value v of Q6_K: within each half of 128, four runs of 32; runs 0 and 1 are the low nibbles of 64 bytes, 2 and 3 the
 * high ones; run s has its upper two bits in bits 2 s, 2 s + 1 of 32 bytes. */
static int q6_at(const struct ntx_block_q6_k *b, int v)
{
    int half = v / 128, run = v % 128 / 32, j = v % 32;
    int low = b->ql[half * 64 + run % 2 * 32 + j] >> run / 2 * 4 & 15;
    int high = b->qh[half * 32 + j] >> run * 2 & 3;
    return (low | high << 4) - 32;
}

static void dequant_q6_k(const void *blocks, float *out, size_t n)
{
    const struct ntx_block_q6_k *b = blocks;
    for (size_t i = 0; i < n; i++, b++, out += NTX_QKK) {
        float d = ntx_f16_to_f32(b->d);
        for (int v = 0; v < NTX_QKK; v++) {
            float a = d * (float)b->scales[v / 16];
            out[v] = a * (float)q6_at(b, v);
        }
    }
}

static const struct ntx_type_info types[NTX_TYPE_LIMIT] = {
    [NTX_F32] = {"F32", 1, 4, dequant_f32},
    [NTX_F16] = {"F16", 1, 2, dequant_f16},
    [NTX_I8] = {"I8", 1, 1, dequant_i8},
    [NTX_BF16] = {"BF16", 1, 2, dequant_bf16},
    [NTX_Q4_0] = {"Q4_0", NTX_QK, sizeof(struct ntx_block_q4_0), dequant_q4_0},
    [NTX_Q4_1] = {"Q4_1", NTX_QK, sizeof(struct ntx_block_q4_1), dequant_q4_1},
    [NTX_Q5_0] = {"Q5_0", NTX_QK, sizeof(struct ntx_block_q5_0), dequant_q5_0},
    [NTX_Q5_1] = {"Q5_1", NTX_QK, sizeof(struct ntx_block_q5_1), dequant_q5_1},
    [NTX_Q8_0] = {"Q8_0", NTX_QK, sizeof(struct ntx_block_q8_0), dequant_q8_0},
    [NTX_MXFP4] = {"MXFP4", NTX_QK, sizeof(struct ntx_block_mxfp4), dequant_mxfp4},
    [NTX_Q2_K] = {"Q2_K", NTX_QKK, sizeof(struct ntx_block_q2_k), dequant_q2_k},
    [NTX_Q3_K] = {"Q3_K", NTX_QKK, sizeof(struct ntx_block_q3_k), dequant_q3_k},
    [NTX_Q4_K] = {"Q4_K", NTX_QKK, sizeof(struct ntx_block_q4_k), dequant_q4_k},
    [NTX_Q5_K] = {"Q5_K", NTX_QKK, sizeof(struct ntx_block_q5_k), dequant_q5_k},
    [NTX_Q6_K] = {"Q6_K", NTX_QKK, sizeof(struct ntx_block_q6_k), dequant_q6_k},
};

const struct ntx_type_info *ntx_type_info(uint32_t type)
{
    return type < NTX_TYPE_LIMIT && types[type].name ? &types[type] : NULL;
}

size_t ntx_row_bytes(uint32_t type, uint64_t n)
{
    const struct ntx_type_info *t = ntx_type_info(type);
    size_t bytes;
    if (!t || n % t->block || __builtin_mul_overflow(n / t->block, t->block_bytes, &bytes))
        return 0;
    return bytes;
}
