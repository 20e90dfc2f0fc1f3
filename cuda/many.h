/* SPDX-License-Identifier: Apache-2.0 */
/* many.h: y = W x for more rows than product.h's kernels take, on the integer matrix units. The order of accumulation,
 * and so the bits, are the same: sums of integers are exact in any order, and lanes and their tree are kept.
 *
 * A block of threads computes MANY_OUTS outputs of MANY_ROWS rows. It goes through lane l's blocks l, l + 16, ..
 * before those of the next lane, so a thread keeps one sum per output, and the partial sums of the tree:
 *
 *   warps     MANY_LANES of lanes, 0 + n, 1 + n, .. for n = 0, 8, 4, 12, times MANY_QUARTERS of outputs
 *   a step    32 values of MANY_LANES adjacent blocks: some threads load the next step's weights or rows as bytes while
 *             this step's are multiplied
 *   the end   lanes n of a warp are one sum; the sums of the four warps are added */
#ifndef NTX_CUDA_MANY_H
#define NTX_CUDA_MANY_H

#include "cuda/persistent.h"

#define MANY_ROWS     NTX_GPU_MANY
#define MANY_OUTS     64u
#define MANY_LANES    4u
#define MANY_QUARTERS 4u
#define MANY_THREADS  (WARP * MANY_LANES * MANY_QUARTERS)
#define MANY_OUT_LD                                                                                                    \
    (MANY_OUTS * 8u + 8u) /* words from lane to lane: threads of adjacent lanes write to different banks */

/* Two steps: the one that is multiplied, and the next. Eight words are 32 values, with words k and k + 4 adjacent. d:
 * scale and minimum of simple blocks; d and dmin of super-blocks. */
struct many_memory {
    uint32_t x[2][MANY_LANES][MANY_ROWS * 8] __attribute__((aligned(16))),
        w[2][MANY_LANES][MANY_OUT_LD] __attribute__((aligned(16)));
    uint32_t scale[2][MANY_LANES][MANY_OUTS] __attribute__((aligned(8))); /* two scales of 16 bits */
    float d[2][MANY_LANES][MANY_OUTS][2], dx[2][MANY_LANES][MANY_ROWS];
    int32_t sum[2][MANY_LANES][MANY_ROWS];
};

/* A super-block's minima, and the sums of 16 values that they are multiplied by: sum s as bytes s / 16 (four words)
 * and s % 16. Written in a block's second step, read in its last. */
struct many_minima {
    uint32_t min[2][MANY_LANES][MANY_OUTS * 4], sum[MANY_LANES][MANY_ROWS * 8]; /* min: of two blocks; sum: of one */
};

/* Position of a block of threads: blocks first .. first + 3 of the lanes' n-th turn, part t of a super-block. */
struct many_at {
    uint32_t n, first, t;
};

struct many_state { /* of a thread: [16 rows][8 outputs] of its warp, in the matrix units' layout */
    float acc[2][2][4], one[2][2][4], two[2][2][4];
    int32_t i[2][2][4];
};

DEV uint32_t many_lane(uint32_t n) { return n % 2 * 8 + n / 2 * 4; }

DEV void many_next(struct many_at *at, uint32_t nb, const uint32_t parts)
{
    if (++at->t < parts)
        return;
    at->t = 0;
    at->first += 16;
    while (at->first >= nb && ++at->n < MANY_LANES)
        at->first = many_lane(at->n);
}

/* ---- 32 adjacent values of a block as signed bytes */

/* Subtracts `minus` from each byte of q; bytes must be below 128. */
DEV uint32_t less_bytes(uint32_t q, uint32_t minus) { return ((q | 0x80808080u) - minus * 0x01010101u) ^ 0x80808080u; }

DEV void scales_k(const uint32_t type, const uint8_t *b, uint32_t t, struct unpacked *u)
{
    UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t g = 2 * t + h;
        u->min[h] = 0;
        if (type == NTX_Q2_K) {
            u->scale[h] = b[g] & 15;
            u->min[h] = b[g] >> 4;
        } else if (type == NTX_Q3_K) {
            u->scale[h] = ((b[96 + g % 8] >> (g / 8 * 4) & 15) | (b[104 + g % 4] >> (g / 4 * 2) & 3) << 4) - 32;
        } else if (type == NTX_Q6_K) {
            u->scale[h] = (int8_t)b[192 + g];
        } else {
            u->scale[h] = scale_k(b + 4, t);
            u->min[h] = min_k(b + 4, t);
        }
    }
}

/* The 32 bytes that hold the lower bits of part t, and the shift of these bits. */
DEV const uint8_t *many_low(const uint32_t type, const uint8_t *b, uint32_t t)
{
    if (type == NTX_Q6_K)
        return b + (t / 4 * 64 + t % 2 * 32);
    return b + low_bits_at(type) + (type == NTX_Q2_K || type == NTX_Q3_K ? t / 4 * 32 : t / 2 * 32);
}

DEV uint32_t many_low_shift(const uint32_t type, uint32_t t)
{
    if (type == NTX_Q2_K || type == NTX_Q3_K)
        return t % 4 * 2;
    return type == NTX_Q6_K ? t / 2 % 2 * 4 : t % 2 * 4;
}

/* The 32 bytes that hold the higher bits of part t. */
DEV const uint8_t *many_high(const uint32_t type, const uint8_t *b, uint32_t t)
{
    if (type == NTX_Q6_K)
        return b + (128 + t / 4 * 32);
    return type == NTX_Q3_K ? b : b + 16;
}
DEV void many_k(const uint32_t type, const uint8_t *b, uint32_t t, struct unpacked *u, const int wide)
{
    const int two = type == NTX_Q2_K || type == NTX_Q3_K, six = type == NTX_Q6_K, third = type == NTX_Q3_K,
              fifth = type == NTX_Q5_K;
    const uint8_t *low = many_low(type, b, t), *high = many_high(type, b, t);
    const uint32_t at = many_low_shift(type, t), mask = two ? 0x03030303u : 0x0f0f0f0fu;
    uint32_t h[8];
    sixteen_at(low, off_word(low), u->q, wide);
    sixteen_at(low + 16, off_word(low), u->q + 4, wide);
    if (six || third || fifth) {
        sixteen_at(high, off_word(high), h, wide);
        sixteen_at(high + 16, off_word(high), h + 4, wide);
    }
    UNROLL
    for (int i = 0; i < 8; i++) {
        u->q[i] = u->q[i] >> at & mask;
        if (six)
            u->q[i] = less_bytes(u->q[i] | (h[i] >> (t % 4 * 2) & 0x03030303u) << 4, 32);
        if (third)
            u->q[i] = less_bytes(u->q[i] | (h[i] >> t & 0x01010101u) << 2, 4);
        if (fifth)
            u->q[i] |= (h[i] >> t & 0x01010101u) << 4;
    }
    scales_k(type, b, t, u);
    u->d = f16_at(b + super_d(type));
    u->dmin = has_min(type) ? f16_at(b + super_d(type) + 2) : 0;
}

DEV int is_k(const uint32_t type) { return type >= NTX_Q2_K && type <= NTX_Q6_K; }

DEV void many_plain(const uint32_t type, const uint8_t *b, uint32_t t, struct unpacked *u)
{
    struct ntx_part p;
    plain_part(type, b, t, &p);
    plain_words(&p, u->q);
    u->scale[0] = p.scale[0];
    u->scale[1] = p.scale[1];
    u->d = p.d;
    u->dmin = 0;
}

/* u->d and u->dmin: a simple block's scale and minimum, or the scales of 16 values each. */
DEV void many_simple(const uint32_t type, const uint8_t *b, uint32_t t, struct unpacked *u)
{
    int32_t minus;
    if (rule_of(type) == NTX_RULE_HALVES) {
        struct ntx_part v;
        plain_part(type, b, t, &v);
        plain_words(&v, u->q);
        u->d = v.d;
        u->dmin = v.m;
        return;
    }
    simple_values(type, b, off_word(b), t, u->q, &minus);
    UNROLL
    for (int i = 0; i < 8 && minus; i++)
        u->q[i] = less_bytes(u->q[i], (uint32_t)minus);
    u->d = simple_d(type, b);
    u->dmin = has_min(type) ? f16_at(b + 2) : 0;
}

/* Unpacks part b of a row. */
DEV void many_unpack(const uint32_t type, const uint8_t *row, uint32_t b, struct unpacked *u, const int wide)
{
    const uint32_t parts = block_values(type) / 32, t = b % parts;
    row += (uint64_t)(b / parts) * block_size(type);
    if (rule_of(type) != NTX_RULE_SUPER)
        many_simple(type, row, t, u);
    else if (is_k(type))
        many_k(type, row, t, u, wide);
    else
        many_plain(type, row, t, u);
}

/* Value c of word i of unpacked values, as model/unpack.h and model/quant.h define it. */
DEV float unpacked_value(const uint32_t type, const struct unpacked *u, uint32_t i, uint32_t c)
{
    const float q = (float)(int8_t)(u->q[i] >> 8 * c);
    if (rule_of(type) == NTX_RULE_SUPER) {
        const float v = u->d * (float)u->scale[i / 4] * q;
        return has_min(type) ? v - u->dmin * (float)u->min[i / 4] : v;
    }
    if (rule_of(type) == NTX_RULE_HALVES)
        return (i < 4 ? u->d : u->dmin) * q;
    return has_min(type) ? u->d * q + u->dmin : u->d * q;
}

DEV int lie_at_16(const void *w, uint64_t apart) { return !(((uintptr_t)w | apart) & 15); }

/* ---- loading */

DEV void store_pairs(uint32_t *to, const uint32_t *v)
{
    const uint32_t first[4] = {v[0], v[4], v[1], v[5]}, second[4] = {v[2], v[6], v[3], v[7]};
    store_words4(to, first);
    store_words4(to + 4, second);
}

DEV int is_super(const uint32_t type) { return rule_of(type) == NTX_RULE_SUPER; }

/* A thread loads 32 values of output i, for lane TID % MANY_LANES. */
DEV void load_weights(const uint32_t type, const uint8_t *row, uint32_t b, uint32_t t, uint32_t buf, uint32_t block,
                      struct many_memory *m, struct many_minima *mins, const int wide)
{
    const uint32_t lane = TID % MANY_LANES, i = TID / MANY_LANES;
    struct unpacked u;
    many_unpack(type, row, is_super(type) ? b * 8 + t : b, &u, wide);
    store_pairs(m->w[buf][lane] + i * 8, u.q);
    m->d[buf][lane][i][0] = u.d;
    m->d[buf][lane][i][1] = u.dmin;
    if (is_super(type))
        m->scale[buf][lane][i] = ((uint32_t)u.scale[0] & 0xffff) | (uint32_t)u.scale[1] << 16;
    if (is_super(type) && has_min(type)) {
        uint8_t *min = (uint8_t *)&mins->min[block % 2][lane][i * 4] + 2 * t;
        min[0] = (uint8_t)u.min[0];
        min[1] = (uint8_t)u.min[1];
    }
}

/* A thread loads 32 values of row i of x. */
DEV void load_row(const uint32_t type, const uint8_t *x, uint32_t nb, uint32_t i, uint32_t b, uint32_t t, uint32_t buf,
                  struct many_memory *m, struct many_minima *mins)
{
    const uint32_t lane = TID % MANY_LANES, values = is_super(type) ? 256 : 32,
                   padded = is_super(type) ? (nb + 3) / 4 * 4 : up16(nb);
    const uint8_t *from = x + b * values + t * 32, *dx = x + padded * values;
    uint32_t v[8];
    load_words4(from, v);
    load_words4(from + 16, v + 4);
    store_pairs(m->x[buf][lane] + i * 8, v);
    m->dx[buf][lane][i] = ((const float *)(const void *)dx)[b];
    if (!is_super(type) && has_min(type))
        m->sum[buf][lane][i] = ((const int32_t *)(const void *)(dx + padded * 4))[b];
    if (is_super(type) && has_min(type) && t == 1) {
        uint32_t s[8], *to = mins->sum[lane] + i * 8, high[4], low[4];
        load_words4(dx + 4 * up16(nb) + b * 32, s);
        load_words4(dx + 4 * up16(nb) + b * 32 + 16, s + 4);
        UNROLL
        for (int k = 0; k < 4; k++) {
            high[k] = pick_bytes(s[2 * k] >> 4, s[2 * k + 1] >> 4, 0x6420u);
            low[k] = pick_bytes(s[2 * k] & 0x000f000fu, s[2 * k + 1] & 0x000f000fu, 0x6420u);
        }
        store_words4(to, high);
        store_words4(to + 4, low);
    }
}

/* ---- products: thread (g, q) of a warp has rows 16 i + g, + 8 and outputs 8 j + 2 q, + 1 */

/* Exact for |i| < 2^22. */
DEV float small_float(int32_t i) { return bits_f(0x4b400000u + (uint32_t)i) - 12582912.0f; }

DEV void many_sums(const uint32_t type, const struct many_memory *m, uint32_t buf, uint32_t i, uint32_t j, int32_t *low,
                   int32_t *high)
{
    const uint32_t lane = TID / WARP % MANY_LANES, out = TID / WARP / MANY_LANES * 16 + 8 * j, g = TID % WARP / 4,
                   q = TID % 4;
    const uint32_t *x = m->x[buf][lane] + (16 * i + g) * 8 + 2 * q;
    uint32_t up[2], down[2], b[2];
    load_words2(x, up);
    load_words2(x + 64, down);
    load_words2(m->w[buf][lane] + (out + g) * 8 + 2 * q, b);
    UNROLL
    for (int k = 0; k < 4; k++)
        low[k] = high[k] = 0;
    if (by_sixteen(type)) {
        matrix_units_16(low, up[0], down[0], b[0]);
        matrix_units_16(high, up[1], down[1], b[1]);
    } else {
        const uint32_t a[4] = {up[0], down[0], up[1], down[1]};
        matrix_units_32(low, a, b);
    }
}

/* The minimum's sum of a super-block: 16 minima times sums of 16 values. */
DEV void many_minimum(const struct many_minima *m, uint32_t block, uint32_t i, uint32_t j, int32_t *sum)
{
    const uint32_t lane = TID / WARP % MANY_LANES, out = TID / WARP / MANY_LANES * 16 + 8 * j, g = TID % WARP / 4,
                   q = TID % 4;
    const uint32_t *s = m->sum[lane] + (16 * i + g) * 8 + q, b = m->min[block % 2][lane][(out + g) * 4 + q];
    int32_t high[4] = {0, 0, 0, 0}, low[4] = {0, 0, 0, 0};
    matrix_units_16(high, s[0], s[64], b);
    matrix_units_16(low, s[4], s[68], b);
    UNROLL
    for (int k = 0; k < 4; k++)
        sum[k] = 16 * high[k] + low[k];
}

DEV void many_add(const uint32_t type, const struct many_memory *m, const struct many_minima *mins, uint32_t buf,
                  uint32_t block, uint32_t last, uint32_t i, uint32_t j, struct many_state *s)
{
    const uint32_t lane = TID / WARP % MANY_LANES, out = TID / WARP / MANY_LANES * 16 + 8 * j + 2 * (TID % 4),
                   row = 16 * i + TID % WARP / 4;
    int32_t low[4], high[4], minimum[4] = {0, 0, 0, 0};
    many_sums(type, m, buf, i, j, low, high);
    UNROLL
    for (uint32_t k = 0; k < 4 && is_super(type); k++) {
        const uint32_t scale = m->scale[buf][lane][out + k % 2];
        s->i[i][j][k] += (int16_t)scale * low[k] + (by_sixteen(type) ? ((int32_t)scale >> 16) * high[k] : 0);
    }
    if (!last)
        return;
    if (is_super(type) && has_min(type))
        many_minimum(mins, block, i, j, minimum);
    UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        const float *d = m->d[buf][lane][out + k % 2], dx = m->dx[buf][lane][row + k / 2 * 8];
        float *acc = &s->acc[i][j][k];
        if (is_super(type)) {
            *acc = fmaf((float)s->i[i][j][k], d[0] * dx, *acc);
            if (has_min(type))
                *acc = fmaf((float)-minimum[k], d[1] * dx, *acc);
            s->i[i][j][k] = 0;
        } else {
            *acc = fmaf(small_float(low[k]), d[0] * dx, *acc);
            if (rule_of(type) == NTX_RULE_HALVES)
                *acc = fmaf(small_float(high[k]), d[1] * dx, *acc);
            else if (has_min(type))
                *acc = fmaf((float)m->sum[buf][lane][row + k / 2 * 8], d[1] * dx, *acc);
        }
    }
}

/* Lane n of the warp's four is complete. Sums of the tree: one = 0 or 4, two = (0 + 8) + (4 + 12). */
DEV void many_fold(struct many_state *s, uint32_t n)
{
    UNROLL
    for (uint32_t e = 0; e < 16; e++) {
        float *acc = &s->acc[e / 8][e / 4 % 2][e % 4], *one = &s->one[e / 8][e / 4 % 2][e % 4],
              *two = &s->two[e / 8][e / 4 % 2][e % 4];
        const float sum = *one + *acc;
        const float both = n == 3 ? *two + sum : *two;
        *two = n == 1 ? sum : both;
        *one = *acc;
        *acc = 0;
    }
}

/* ---- the end: adds lanes 0 + 2 and 1 + 3, then these two */

DEV void many_store(const struct ntx_gpu_product *p, uint32_t out0, uint32_t row0, uint32_t rows, uint32_t *between,
                    struct many_state *s)
{
    const uint32_t lane = TID / WARP % MANY_LANES, quarter = TID / WARP / MANY_LANES;
    for (uint32_t half = 2; half; half /= 2) {
        UNROLL
        for (uint32_t e = 0; e < 16; e++)
            if (lane >= half && lane < 2 * half)
                between[((lane - half) * 16 + e) * (MANY_QUARTERS * WARP) + quarter * WARP + TID % WARP] = f_bits(
                    s->two[e / 8][e / 4 % 2][e % 4]);
        SYNC();
        UNROLL
        for (uint32_t e = 0; e < 16; e++)
            if (lane < half)
                s->two[e / 8][e / 4 % 2][e % 4] += bits_f(
                    between[(lane * 16 + e) * (MANY_QUARTERS * WARP) + quarter * WARP + TID % WARP]);
        SYNC();
    }
    UNROLL
    for (uint32_t e = 0; e < 16; e++) {
        const uint32_t r = e / 8 * 16 + TID % WARP / 4 + e % 4 / 2 * 8,
                       i = out0 + quarter * 16 + e / 4 % 2 * 8 + 2 * (TID % 4) + e % 2, o = output_at(p, i);
        if (!lane && r < rows && is_output(p, i, o))
            p->y[BZ * p->heads.y + (uint64_t)(row0 + r) * p->ldy + o] = s->two[e / 8][e / 4 % 2][e % 4];
    }
}

/* The first threads load weights, the next ones rows; the others only multiply. */
DEV void many_load(const uint32_t type, const uint8_t *from, uint32_t nb, const struct many_at *at, uint32_t buf,
                   uint32_t block, struct many_memory *m, struct many_minima *mins, const int wide)
{
    const uint32_t b = at->first + TID % MANY_LANES < nb ? at->first + TID % MANY_LANES
                                                         : nb - 1; /* values beyond the last block are not used */
    if (TID < MANY_OUTS * MANY_LANES)
        load_weights(type, from, b, at->t, buf, block, m, mins, wide);
    else if (TID < (MANY_OUTS + MANY_ROWS) * MANY_LANES)
        load_row(type, from, nb, TID / MANY_LANES - MANY_OUTS, b, at->t, buf, m, mins);
}

DEV void many_rows(const uint32_t type, const struct ntx_gpu_product *p, uint32_t block, struct many_memory *m,
                   struct many_minima *mins)
{
    const uint32_t tiles = (p->n_rows + MANY_ROWS - 1) / MANY_ROWS, out0 = block / tiles * MANY_OUTS,
                   row0 = block % tiles * MANY_ROWS;
    const uint32_t rows = p->n_rows - row0 < MANY_ROWS ? p->n_rows - row0 : MANY_ROWS, parts = is_super(type) ? 8 : 1,
                   nb = p->n_in / (parts * 32);
    const uint32_t lane = TID / WARP % MANY_LANES;
    const uint8_t *from = TID < MANY_OUTS * MANY_LANES ? weights_of(p, output_at(p, out0 + TID / MANY_LANES))
                                                       : x_row(p, row0 + TID / MANY_LANES - MANY_OUTS);
    const int wide = block_size(type) % 16 == 0 && lie_wide(type, p);
    struct many_at at = {0, 0, 0}, next = at;
    struct many_state s;
    UNROLL
    for (uint32_t e = 0; e < 16; e++) {
        s.acc[e / 8][e / 4 % 2][e % 4] = s.one[e / 8][e / 4 % 2][e % 4] = s.two[e / 8][e / 4 % 2][e % 4] = 0;
        s.i[e / 8][e / 4 % 2][e % 4] = 0;
    }
    many_load(type, from, nb, &at, 0, 0, m, mins, wide);
    SYNC();
    for (uint32_t i = 0; at.n < MANY_LANES; i++) {
        many_next(&next, nb, parts);
        if (next.n < MANY_LANES)
            many_load(type, from, nb, &next, (i + 1) % 2, (i + 1) / parts, m, mins, wide);
        if (at.first + lane < nb) {
            UNROLL
            for (uint32_t half = 0; half < 2; half++)
                if (16 * half < rows) {
                    many_add(type, m, mins, i % 2, i / parts, at.t + 1 == parts, half, 0, &s);
                    many_add(type, m, mins, i % 2, i / parts, at.t + 1 == parts, half, 1, &s);
                }
        }
        for (; at.n < next.n; at.n++)
            many_fold(&s, at.n);
        at = next;
        SYNC();
    }
    many_store(p, out0, row0, rows, m->w[0][0], &s);
}

#define MANY(type)                                                                                                     \
    KERNEL_OF(MANY_THREADS, many_##type, struct ntx_gpu_product)                                                       \
    {                                                                                                                  \
        SHARED struct many_memory m;                                                                                   \
        SHARED struct many_minima mins; /* the compiler removes it in types without minima */                          \
        struct ntx_gpu_product p;                                                                                      \
        const uint32_t block = matrix_of_block(&a, BX, &p);                                                            \
        if (!take_tile(&p))                                                                                            \
            return;                                                                                                    \
        many_rows(NTX_##type, &p, block, &m, &mins);                                                                   \
    }
#define MANY_FLOAT(TYPE)
#define MANY_SIMPLE(TYPE)        MANY(TYPE)
#define MANY_HALVES(TYPE)        MANY(TYPE)
#define MANY_SUPER(TYPE)         MANY(TYPE)
#define MANY_OF(rule, TYPE, ...) MANY_##rule(TYPE)
NTX_TYPES(MANY_OF)

/* ---- launching */

/* Launches the kernel for this number of rows or the next larger one. Floats would not be exact on the matrix units,
 * so they take eight rows per block. */
#define LAUNCH_MANY_FLOAT(type) (void)0
#define LAUNCH_MANY_SIMPLE(type)                                                                                       \
    do {                                                                                                               \
        if (rows > NTX_GPU_ROWS)                                                                                       \
            RETURN_LAUNCH(s, many_##type, many_blocks(&a), 1, heads, MANY_THREADS, a);                                 \
    } while (0)
#define LAUNCH_MANY_HALVES(type) LAUNCH_MANY_SIMPLE(type)
#define LAUNCH_MANY_SUPER(type)  LAUNCH_MANY_SIMPLE(type)
#define LAUNCH_ROWS(type, n, times)                                                                                    \
    RETURN_LAUNCH(s, product_##type##_##n,                                                                             \
                  count_blocks(&a, PRODUCT_THREADS(type) / THREADS_OF_##type * OUTS_OF(type, n)), times, heads,        \
                  PRODUCT_THREADS(type), a)
#define PRODUCT_CASE(rule, type, ...)                                                                                  \
    case NTX_##type:                                                                                                   \
        LAUNCH_MANY_##rule(type);                                                                                      \
        if (rows == 1)                                                                                                 \
            LAUNCH_ROWS(type, 1, 1);                                                                                   \
        if (rows == 2)                                                                                                 \
            LAUNCH_ROWS(type, 2, 1);                                                                                   \
        if (rows <= 4)                                                                                                 \
            LAUNCH_ROWS(type, 4, 1);                                                                                   \
        LAUNCH_ROWS(type, 8, (rows + NTX_GPU_ROWS - 1) / NTX_GPU_ROWS);

/* Numbers the blocks of all matrices consecutively. */
static uint32_t count_blocks(struct ntx_gpu_product *p, uint32_t outputs_of_block)
{
    uint32_t blocks = (p->n_out + outputs_of_block - 1) / outputs_of_block;
    for (uint32_t i = 0; i < p->n_others; i++) {
        p->others[i].first_block = blocks;
        blocks += (p->others[i].n_out + outputs_of_block - 1) / outputs_of_block;
    }
    return blocks;
}

static uint32_t many_tiles(uint32_t n_out, uint32_t n_rows)
{
    return (n_out + MANY_OUTS - 1) / MANY_OUTS * ((n_rows + MANY_ROWS - 1) / MANY_ROWS);
}

static uint32_t many_blocks(struct ntx_gpu_product *p)
{
    uint32_t blocks = many_tiles(p->n_out, p->n_rows);
    for (uint32_t i = 0; i < p->n_others; i++) {
        p->others[i].first_block = blocks;
        blocks += many_tiles(p->others[i].n_out, p->others[i].n_rows);
    }
    return blocks;
}

static uint32_t most_rows(const struct ntx_gpu_product *p)
{
    uint32_t most = p->n_rows;
    for (uint32_t i = 0; i < p->n_others; i++)
        most = p->others[i].n_rows > most ? p->others[i].n_rows : most;
    return most;
}

/* Least weights per multiprocessor for a persistent block: 256 times 1,024. By the model of bench/slots.py, loading
 * the codebook costs what is saved on 150 times 1,024; the model does not count the wait for it. */
#define PERSISTENT_LEAST (256u * 1024u)
#define PERSISTENT_CASE(TYPE)                                                                                          \
    case NTX_##TYPE: return card.shared >= PERSISTENT_BYTES(TYPE, 1);

static bool is_persistent(struct ntx_gpu_stream *s, const struct ntx_gpu_product *p)
{
    const struct ntx_card card = ntx__card(s);
    uint64_t outputs = p->n_out;
    for (uint32_t i = 0; i < p->n_others; i++)
        outputs += p->others[i].n_out;
    if (most_rows(p) > 2 || p->heads.n || p->tiles.n ||
        outputs * p->n_in * (p->routed.n ? p->routed.n : 1) < (uint64_t)PERSISTENT_LEAST * card.processors)
        return false;
    switch (p->type) {
        PERSISTENT_TYPES(PERSISTENT_CASE)
    default: return false;
    }
}

#define LAUNCH_PERSISTENT(TYPE, rows)                                                                                  \
    static int launch_persistent_##TYPE##_##rows(struct ntx_gpu_stream *s, const struct ntx_gpu_product *p)            \
    {                                                                                                                  \
        struct ntx_gpu_product a = *p;                                                                                 \
        const int rc = ALLOW_SHARED(s, persistent_##TYPE##_##rows, PERSISTENT_BYTES(TYPE, rows));                      \
        if (rc)                                                                                                        \
            return rc;                                                                                                 \
        count_blocks(&a, OUTS_OF(TYPE, rows));                                                                         \
        RETURN_LAUNCH_WITH(s, persistent_##TYPE##_##rows, ntx__card(s).processors, 1, 1, PERSISTENT_THREADS,           \
                           PERSISTENT_BYTES(TYPE, rows), a);                                                           \
    }
#define LAUNCH_PERSISTENT_BOTH(TYPE) LAUNCH_PERSISTENT(TYPE, 1) LAUNCH_PERSISTENT(TYPE, 2)
PERSISTENT_TYPES(LAUNCH_PERSISTENT_BOTH)

#define LAUNCH_PERSISTENT_CASE(TYPE)                                                                                   \
    case NTX_##TYPE: return most_rows(p) == 1 ? launch_persistent_##TYPE##_1(s, p) : launch_persistent_##TYPE##_2(s, p);

static int launch_persistent(struct ntx_gpu_stream *s, const struct ntx_gpu_product *p)
{
    switch (p->type) {
        PERSISTENT_TYPES(LAUNCH_PERSISTENT_CASE)
    default: return -EINVAL;
    }
}

/* Blocks in z: one for each routed row, tile or head. */
static uint32_t product_depth(const struct ntx_gpu_product *p)
{
    if (p->routed.n)
        return p->routed.n;
    if (p->tiles.n)
        return p->tiles.n;
    return p->heads.n ? p->heads.n : 1;
}

static int product_rows(struct ntx_gpu_stream *s, const struct ntx_gpu_product *p)
{
    struct ntx_gpu_product a = *p;
    const uint32_t rows = most_rows(p), heads = product_depth(p);
    switch (p->type) {
        NTX_TYPES(PRODUCT_CASE)
    default: return -EINVAL;
    }
}

/* clang-format off */
#define IS_FLOAT_CASE(rule, TYPE, ...) case NTX_##TYPE: return NTX_RULE_##rule == NTX_RULE_FLOAT;
/* clang-format on */
static bool is_float(uint32_t type)
{
    switch (type) {
        NTX_TYPES(IS_FLOAT_CASE)
    default: return false;
    }
}

int ntx__launch_product(struct ntx_gpu_stream *s, const struct ntx_gpu_product *p)
{
    if (p->routed.n && (!p->routed.each || most_rows(p) != 1 || p->groups.size || p->heads.n))
        return -EINVAL;
    if (p->tiles.n && (p->routed.n || p->groups.size || p->heads.n ||
                       most_rows(p) > (is_float(p->type) ? NTX_GPU_ROWS : NTX_GPU_MANY)))
        return -EINVAL;
    if (p->n_others && (p->n_others >= NTX_GPU_TOGETHER || p->groups.size || p->heads.n))
        return -EINVAL;
    return is_persistent(s, p) ? launch_persistent(s, p) : product_rows(s, p);
}

#endif
