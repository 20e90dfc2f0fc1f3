/* product.h: y = W x for 1 to 8 rows of x (many.h: for more), with the CPU kernels' order of accumulation and so their bits
 * (infer/cpu/cpu.h): integers of a block exactly, then lane b % 16, then the fixed tree.
 *
 *   simple blocks  half a warp per output: thread l is lane l and takes blocks l, l + 16, ...
 *   super-blocks   a warp per output: eight threads share a block (part.h), four blocks at a time; the threads of block g = lane / 8
 *                  all hold lanes g, g + 4, g + 8, g + 12
 *   floats         a warp per output: thread l is lane l and takes values l, l + 32, ...
 *
 * Weights are read once for all rows of a launch. ROWS is a constant; rows beyond n_rows compute with the last one's x and
 * are thrown away. */
#ifndef NTX_CUDA_PRODUCT_H
#define NTX_CUDA_PRODUCT_H

#include "cuda/fetch.h"

/* The matrix that block BX of a launch is of, and the block's number in that. All of the launch's arguments lie in constant memory. */
DEV uint32_t matrix_of_block(const struct ntx_gpu_product *a, struct ntx_gpu_product *p)
{
    uint32_t i = 0;
    p->w = a->w;
    p->x = a->x;
    p->y = a->y;
    p->groups = a->groups;
    p->heads = a->heads;
    p->row_bytes = a->row_bytes;
    p->x_stride = a->x_stride;
    p->ldy = a->ldy;
    p->n_out = a->n_out;
    p->n_in = a->n_in;
    p->n_rows = a->n_rows;
    p->chosen = a->chosen;
    p->tiles = a->tiles;
    if (!a->n_others || BX < a->others[0].first_block)
        return BX;
    while (i + 1 < a->n_others && BX >= a->others[i + 1].first_block)
        i++;
    const struct ntx_gpu_another *o = &a->others[i];
    p->w = o->w;
    p->x = o->x;
    p->y = o->y;
    p->ldy = o->ldy;
    p->n_out = o->n_out;
    p->n_rows = o->n_rows;
    return BX - o->first_block;
}

/* That of this block's tile, and its rows; 0: it has none. */
DEV int take_tile(struct ntx_gpu_product *p)
{
    if (!p->tiles.n)
        return 1;
    const struct ntx_gpu_tile t = p->tiles.of[BZ];
    p->w = (const uint8_t *)p->w + t.expert * p->tiles.bytes;
    p->x = (const uint8_t *)p->x + t.first * p->x_stride;
    p->y += t.first * p->ldy;
    p->n_rows = t.n;
    return t.n != 0;
}

/* Of more rows than a block takes, which only floats have here, this one's; 0: there are none. */
DEV int take_rows(struct ntx_gpu_product *p)
{
    const uint32_t first = BY * NTX_GPU_ROWS;
    if (first >= p->n_rows)
        return 0;
    p->x = (const uint8_t *)p->x + first * p->x_stride;
    p->y += first * p->ldy;
    p->n_rows = p->n_rows - first < NTX_GPU_ROWS ? p->n_rows - first : NTX_GPU_ROWS;
    return 1;
}

/* That of this block's choice, and its rows. */
DEV void take_choice(struct ntx_gpu_product *p)
{
    if (!p->chosen.n)
        return;
    p->w = (const uint8_t *)p->w + p->chosen.expert[BZ] * p->chosen.bytes;
    p->x = (const uint8_t *)p->x + BZ / p->chosen.each * p->x_stride;
    p->y += BZ * p->ldy;
}

DEV const uint8_t *x_row(const struct ntx_gpu_product *p, uint32_t r)
{
    return (const uint8_t *)p->x + BZ * p->heads.x + (r < p->n_rows ? r : p->n_rows - 1) * p->x_stride;
}

/* The place in y of a launch's output i: a row's number, or a neuron's. */
DEV uint32_t output_at(const struct ntx_gpu_product *p, uint32_t i)
{
    const struct ntx_gpu_groups *g = &p->groups;
    i = i < p->n_out ? i : p->n_out - 1;
    return g->size ? neuron_at(g, i) : i;
}

DEV const uint8_t *weights_of(const struct ntx_gpu_product *p, uint32_t o)
{
    const struct ntx_gpu_groups *g = &p->groups;
    return (const uint8_t *)p->w + BZ * p->heads.w + (g->size ? in_group(g, o, p->row_bytes) : o * p->row_bytes);
}

DEV int is_output(const struct ntx_gpu_product *p, uint32_t i, uint32_t o) { return i < p->n_out && (!p->groups.size || o < p->groups.n_neurons); }

DEV uint32_t up16(uint32_t n) { return (n + 15) / 16 * 16; }

/* 16 lanes of neighbouring threads to one, in all of them. */
DEV float join_16_threads(float v)
{
    v += xor_f(v, 8);
    v += xor_f(v, 4);
    v += xor_f(v, 2);
    return v + xor_f(v, 1);
}

/* Part b of a row, which is in the block at w. */
DEV void simple_block(const uint32_t type, const int rows, const struct ntx_gpu_product *p, const uint8_t *w, uint32_t b, float *acc)
{
    uint32_t nb16 = up16(p->n_in / 32), q[8];
    int32_t minus;
    float d = simple_d(type, w), m = has_min(type) ? f16_at(w + 2) : 0;
    simple_values(type, w, b % (block_values(type) / 32), q, &minus);
    UNROLL
    for (int r = 0; r < rows; r++) {
        const uint8_t *x = x_row(p, (uint32_t)r);
        float dx = ((const float *)(const void *)(x + nb16 * 32))[b];
        int32_t sx = ((const int32_t *)(const void *)(x + nb16 * 36))[b];
        const uint32_t *words = (const uint32_t *)(const void *)(x + b * 32);
        int32_t i = dot_four(q, words) + dot_four(q + 4, words + 4) - minus * sx;
        acc[r] = fmaf((float)i, d * dx, acc[r]);
        if (has_min(type))
            acc[r] = fmaf((float)sx, m * dx, acc[r]);
    }
}

/* Each 16 values for themselves: NVFP4. */
DEV void halves_block(const uint32_t type, const int rows, const struct ntx_gpu_product *p, const uint8_t *w, uint32_t b, float *acc)
{
    const uint32_t nb16 = up16(p->n_in / 32);
    const uint32_t t = b % (block_values(type) / 32);
    const float low = ntx_e4m3_half_float(w[2 * t]), high = ntx_e4m3_half_float(w[2 * t + 1]);
    uint32_t q[8];
    words_nvfp4(w, t, q);
    UNROLL
    for (int r = 0; r < rows; r++) {
        const uint8_t *x = x_row(p, (uint32_t)r);
        float dx = ((const float *)(const void *)(x + nb16 * 32))[b];
        const uint32_t *words = (const uint32_t *)(const void *)(x + b * 32);
        acc[r] = fmaf((float)dot_four(q, words), low * dx, acc[r]);
        acc[r] = fmaf((float)dot_four(q + 4, words + 4), high * dx, acc[r]);
    }
}

DEV void product_simple(const uint32_t type, const int rows, const struct ntx_gpu_product *p, uint32_t block, uint8_t *ring)
{
    const uint32_t lane = TID % 16, i = (block * BLOCK_DIM + TID) / 16, o = output_at(p, i), nb = p->n_in / 32, parts = block_values(type) / 32;
    struct fetch f = begin_fetch(type, weights_of(p, o), nb / parts * block_size(type), ring + TID / 16 * ring_bytes(type), lane);
    float acc[NTX_GPU_ROWS] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (uint32_t b0 = 0; b0 < nb; b0 += 32) {
        const uint8_t *blocks = fetched(type, &f, b0 / 32);
        UNROLL
        for (uint32_t at = lane; at < 32; at += 16) {
            const uint8_t *w = blocks + at / parts * block_size(type);
            if (b0 + at < nb && rule_of(type) == NTX_RULE_HALVES)
                halves_block(type, rows, p, w, b0 + at, acc);
            else if (b0 + at < nb)
                simple_block(type, rows, p, w, b0 + at, acc);
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        float y = join_16_threads(acc[r]);
        if (!lane && is_output(p, i, o) && (uint32_t)r < p->n_rows)
            p->y[BZ * p->heads.y + (uint32_t)r * p->ldy + o] = y;
    }
}

/* Super-block b, of which w points to this thread's; the row's last again where there is no more, whose sums are thrown away: shuffles need the whole warp. */
DEV void super_block(const uint32_t type, const int rows, const struct ntx_gpu_product *p, const uint8_t *w, uint32_t b, uint32_t t, float *acc, const int wide)
{
    const uint32_t nb = p->n_in / 256, nb4 = (nb + 3) / 4 * 4, at = b < nb ? b : nb - 1;
    struct unpacked u;
    unpack_part(type, w, t, &u, wide);
    UNROLL
    for (int r = 0; r < rows; r++) {
        const uint8_t *x = x_row(p, (uint32_t)r);
        const int16_t *s16 = (const int16_t *)(const void *)(x + nb4 * 256 + 4 * up16(nb));
        const float dx = ((const float *)(const void *)(x + nb4 * 256))[at];
        struct part v = multiply_part(type, &u, t, (const uint32_t *)(const void *)(x + at * 256), s16 + at * 16);
        UNROLL
        for (uint32_t m = 1; m < 8; m *= 2) {
            v.i += xor_i(v.i, m);
            if (has_min(type))
                v.j += xor_i(v.j, m);
        }
        if (b >= nb)
            continue;
        acc[4 * r] = fmaf((float)v.i, u.d * dx, acc[4 * r]);
        if (has_min(type))
            acc[4 * r] = fmaf((float)-v.j, u.dmin * dx, acc[4 * r]);
    }
}

DEV void product_super(const uint32_t type, const int rows, const struct ntx_gpu_product *p, uint32_t block, uint8_t *ring, const int wide)
{
    const uint32_t t = TID % 8, g = TID % WARP / 8, i = (block * BLOCK_DIM + TID) / WARP, o = output_at(p, i), nb = p->n_in / 256;
    struct fetch f = begin_fetch(type, weights_of(p, o), nb * block_size(type), ring + TID / WARP * ring_bytes(type), TID % WARP);
    float acc[4 * NTX_GPU_ROWS]; /* [rows][lane / 4] */
    UNROLL
    for (int k = 0; k < 4 * rows; k++)
        acc[k] = 0;
    for (uint32_t b0 = 0; b0 < nb; b0 += 16) {
        UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t first = b0 + 4 * k;
            if (first >= nb)
                continue;
            const uint8_t *blocks = fetched(type, &f, first / 4);
            super_block(type, rows, p, blocks + (first + g < nb ? g : nb - 1 - first) * block_size(type), first + g, t, acc + k, wide);
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        float *l = acc + 4 * r, y = (l[0] + l[2]) + (l[1] + l[3]); /* lanes + 8, then + 4 */
        y += xor_f(y, 16);
        y += xor_f(y, 8);
        if (!(TID % WARP) && is_output(p, i, o) && (uint32_t)r < p->n_rows)
            p->y[BZ * p->heads.y + (uint32_t)r * p->ldy + o] = y;
    }
}

/* Whether all super-blocks of a launch lie 16-aligned. */
DEV int lie_wide(const uint32_t type, const struct ntx_gpu_product *p)
{
    return block_size(type) % 16 == 0 && !((uintptr_t)p->w & 15) && !(p->groups.size && p->groups.bytes & 15);
}

DEV void product_super_any(const uint32_t type, const int rows, const struct ntx_gpu_product *p, uint32_t block, uint8_t *ring)
{
    if (lie_wide(type, p))
        product_super(type, rows, p, block, ring, 1);
    else
        product_super(type, rows, p, block, ring, 0);
}

DEV float float_value(const uint32_t type, const uint8_t *w, uint32_t k)
{
    if (type == NTX_F32)
        return bits_f(float_bits_at(w + 4 * (uint64_t)k));
    return type == NTX_F16 ? f16_at(w + 2 * (uint64_t)k) : bits_f(half_at(w + 2 * (uint64_t)k) << 16);
}

DEV void product_float(const uint32_t type, const int rows, const struct ntx_gpu_product *p, uint32_t block, uint8_t *ring)
{
    (void)ring; /* whose loads are side by side as they are */
    uint32_t lane = TID % WARP, i = (block * BLOCK_DIM + TID) / WARP, o = output_at(p, i);
    const uint8_t *w = weights_of(p, o);
    float acc[NTX_GPU_ROWS] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (uint32_t k = lane; k < p->n_in; k += WARP) {
        float v = float_value(type, w, k);
        UNROLL
        for (int r = 0; r < rows; r++)
            acc[r] = fmaf(v, ((const float *)(const void *)x_row(p, (uint32_t)r))[k], acc[r]);
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        float y = join_16_threads(acc[r] + xor_f(acc[r], 16));
        if (!lane && is_output(p, i, o) && (uint32_t)r < p->n_rows)
            p->y[BZ * p->heads.y + (uint32_t)r * p->ldy + o] = y;
    }
}

#define PRODUCT(kind, type, rows)                                  \
    KERNEL(product_##type##_##rows, struct ntx_gpu_product)        \
    {                                                              \
        struct ntx_gpu_product p;                                  \
        SHARED ALIGNED16 uint8_t ring[RINGS_##type];               \
        const uint32_t block = matrix_of_block(&a, &p);            \
        if (rows == 1)                                             \
            take_choice(&p);                                       \
        if (!take_tile(&p) || (rows == NTX_GPU_ROWS && !take_rows(&p))) \
            return;                                                \
        product_##kind(NTX_##type, rows, &p, block, ring);         \
    }
#define PRODUCTS(kind, type) PRODUCT(kind, type, 1) PRODUCT(kind, type, 2) PRODUCT(kind, type, 4) PRODUCT(kind, type, 8)

#define PRODUCTS_FLOAT(TYPE) PRODUCTS(float, TYPE)
#define PRODUCTS_SIMPLE(TYPE) PRODUCTS(simple, TYPE)
#define PRODUCTS_HALVES(TYPE) PRODUCTS(simple, TYPE)
#define PRODUCTS_SUPER(TYPE) PRODUCTS(super_any, TYPE)
#define PRODUCTS_OF(rule, TYPE, ...) PRODUCTS_##rule(TYPE)
NTX_TYPES(PRODUCTS_OF)

#endif
