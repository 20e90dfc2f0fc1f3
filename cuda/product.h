/* SPDX-License-Identifier: Apache-2.0 */
/* product.h: y = W x for 1 to 8 rows of x (more rows: many.h), with the CPU kernels' order of accumulation and so
 * their bits (computed/cpu/cpu.h): integers of a block exactly, then lane b % 16, then the fixed tree.
 *
 *   simple blocks  half a warp for some outputs: thread l is lane l and takes blocks l, l + 16, ...
 *   super-blocks   a warp for one to four outputs. A step is four blocks, g = lane / 8, each by eight threads (part.h).
 *                  The eight threads have parts of the sums of several rows, outputs and steps; each keeps one of these
 *                  sums, so it has one, two or four lanes g + 4 step of an output's row
 *   floats         a warp per output: thread l is lane l and takes values l, l + 32, ...
 *
 * Weights are read once for all rows of a launch. ROWS is a constant; rows beyond n_rows use the last row's x, and
 * their results are dropped. */
#ifndef NTX_CUDA_PRODUCT_H
#define NTX_CUDA_PRODUCT_H

#include "cuda/fetch.h"

/* Sets *p to the matrix of the launch's block b, and returns the block's number in it. The launch's arguments are in
 * constant memory. */
DEV uint32_t matrix_of_block(const struct ntx_gpu_product *a, uint32_t b, struct ntx_gpu_product *p)
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
    p->routed = a->routed;
    p->tiles = a->tiles;
    if (!a->n_others || b < a->others[0].first_block)
        return b;
    while (i + 1 < a->n_others && b >= a->others[i + 1].first_block)
        i++;
    const struct ntx_gpu_another *o = &a->others[i];
    p->w = o->w;
    p->x = o->x;
    p->y = o->y;
    p->ldy = o->ldy;
    p->n_out = o->n_out;
    p->n_rows = o->n_rows;
    return b - o->first_block;
}

/* Sets *p to the matrix and rows of this block's tile. Returns 0 if the block has none. */
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

/* Sets *p to this block's rows, if there are more than a block takes (floats only). Returns 0 if there are none. */
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

/* Sets *p to the expert and rows of routed row c. */
DEV void take_routed(struct ntx_gpu_product *p, uint32_t c)
{
    if (!p->routed.n)
        return;
    p->w = (const uint8_t *)p->w + p->routed.expert[c] * p->routed.bytes;
    p->x = (const uint8_t *)p->x + c / p->routed.each * p->x_stride;
    p->y += c * p->ldy;
}

DEV const uint8_t *x_row(const struct ntx_gpu_product *p, uint32_t r)
{
    return (const uint8_t *)p->x + BZ * p->heads.x + (r < p->n_rows ? r : p->n_rows - 1) * p->x_stride;
}

/* The place in y of a launch's output i: the number of a matrix row or a neuron. */
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

DEV int is_output(const struct ntx_gpu_product *p, uint32_t i, uint32_t o)
{
    return i < p->n_out && (!p->groups.size || o < p->groups.n_neurons);
}

DEV uint32_t up16(uint32_t n) { return (n + 15) / 16 * 16; }

/* The sum of 16 adjacent threads' lanes by the fixed tree, in all of them. */
DEV float join_16_threads(float v)
{
    v += xor_f(v, 8);
    v += xor_f(v, 4);
    v += xor_f(v, 2);
    return v + xor_f(v, 1);
}

/* Adds part b of the outputs' rows, from the blocks at w. acc: [rows][outs] */
DEV void simple_block(const uint32_t type, const int rows, const int outs, const struct ntx_gpu_product *p,
                      const uint8_t *const *w, const uint32_t *off, uint32_t b, float *acc)
{
    const uint32_t nb16 = up16(p->n_in / 32), t = b % (block_values(type) / 32);
    uint32_t q[4][8];
    int32_t minus;
    float d[4], m[4];
    UNROLL
    for (int o = 0; o < outs; o++) {
        d[o] = simple_d(type, w[o]);
        m[o] = has_min(type) ? f16_at(w[o] + 2) : 0;
        simple_values(type, w[o], off[o], t, q[o], &minus);
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        const uint8_t *x = x_row(p, (uint32_t)r);
        const float dx = ((const float *)(const void *)(x + nb16 * 32))[b];
        const int32_t sx = ((const int32_t *)(const void *)(x + nb16 * 36))[b];
        const uint32_t *words = (const uint32_t *)(const void *)(x + b * 32);
        UNROLL
        for (int o = 0; o < outs; o++) {
            const int32_t i = dot_four(q[o], words) + dot_four(q[o] + 4, words + 4) - minus * sx;
            float *a = acc + r * outs + o;
            *a = fmaf((float)i, d[o] * dx, *a);
            if (has_min(type))
                *a = fmaf((float)sx, m[o] * dx, *a);
        }
    }
}

/* Q1_0 for few rows: x's words are transposed, so that bits n of four sign bytes belong to word n. The sum of x by
 * signs is twice the sum of the values with sign bit 1, less the sum of all. */
DEV void bits_block(const int rows, const int outs, const struct ntx_gpu_product *p, const uint8_t *const *w,
                    const uint32_t *off, uint32_t b, float *acc)
{
    const uint32_t nb16 = up16(p->n_in / 32);
    uint32_t bits[4];
    UNROLL
    for (int o = 0; o < outs; o++)
        words_at(w[o] + 2 + 4 * (b % 4), off[o] + 2, &bits[o], 1, 0);
    UNROLL
    for (int r = 0; r < rows; r++) {
        const uint8_t *x = x_row(p, (uint32_t)r);
        const float dx = ((const float *)(const void *)(x + nb16 * 32))[b];
        const int32_t sx = ((const int32_t *)(const void *)(x + nb16 * 36))[b];
        uint32_t words[8], turned[8];
        load_words4(x + b * 32, words);
        load_words4(x + b * 32 + 16, words + 4);
        transpose_words(words, turned);
        transpose_words(words + 1, turned + 4);
        UNROLL
        for (int o = 0; o < outs; o++) {
            float *a = acc + r * outs + o;
            int32_t less = 0;
            UNROLL
            for (uint32_t n = 0; n < 8; n++)
                less = dot4(signs_of_bytes(bits[o] << (7 - n)), turned[n], less);
            *a = fmaf((float)(-2 * less - sx), f16_at(w[o]) * dx, *a);
        }
    }
}

/* NVFP4: each 16 values have their scale. */
DEV void halves_block(const int rows, const int outs, const struct ntx_gpu_product *p, const uint8_t *const *w,
                      const uint32_t *off, uint32_t b, float *acc)
{
    const uint32_t nb16 = up16(p->n_in / 32), t = b % 2;
    uint32_t q[4][8];
    float low[4], high[4];
    UNROLL
    for (int o = 0; o < outs; o++) {
        low[o] = e4m3_half(w[o][2 * t]);
        high[o] = e4m3_half(w[o][2 * t + 1]);
        words_nvfp4(w[o], off[o], t, q[o]);
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        const uint8_t *x = x_row(p, (uint32_t)r);
        const float dx = ((const float *)(const void *)(x + nb16 * 32))[b];
        const uint32_t *words = (const uint32_t *)(const void *)(x + b * 32);
        UNROLL
        for (int o = 0; o < outs; o++) {
            float *a = acc + r * outs + o;
            *a = fmaf((float)dot_four(q[o], words), low[o] * dx, *a);
            *a = fmaf((float)dot_four(q[o] + 4, words + 4), high[o] * dx, *a);
        }
    }
}

DEV void product_simple(const uint32_t type, const int rows, const int outs, const struct ntx_gpu_product *p,
                        uint32_t block, uint8_t *ring)
{
    const uint32_t lane = TID % 16, first = (block * BLOCK_DIM + TID) / 16 * (uint32_t)outs, nb = p->n_in / 32,
                   parts = block_values(type) / 32;
    struct fetch f[4];
    uint32_t begin[4], off[4];
    float acc[2 * NTX_GPU_ROWS]; /* four outputs only for one row */
    UNROLL
    for (int o = 0; o < outs; o++) {
        const uint8_t *row = weights_of(p, output_at(p, first + (uint32_t)o));
        f[o] = fetch_of(type, row, nb / parts * block_size(type), ring, TID / 16 * (uint32_t)outs + (uint32_t)o, lane);
        begin[o] = ring_at(type, row, TID / 16 * (uint32_t)outs + (uint32_t)o) + lane / parts * block_size(type);
        off[o] = off_word(ring + begin[o]);
    }
    UNROLL
    for (int k = 0; k < rows * outs; k++)
        acc[k] = 0;
    begin_fetch(type, outs, f);
    for (uint32_t b0 = 0; b0 < nb; b0 += 32) {
        const uint32_t slot = fetched(type, outs, f, b0 / 32);
        UNROLL
        for (uint32_t at = lane; at < 32; at += 16) {
            const uint8_t *w[4];
            UNROLL
            for (int o = 0; o < outs; o++)
                w[o] = ring + begin[o] + slot + (at - lane) / parts * block_size(type);
            if (b0 + at < nb && rule_of(type) == NTX_RULE_HALVES)
                halves_block(rows, outs, p, w, off, b0 + at, acc);
            else if (b0 + at < nb && type == NTX_Q1_0 && rows <= 2)
                bits_block(rows, outs, p, w, off, b0 + at, acc);
            else if (b0 + at < nb)
                simple_block(type, rows, outs, p, w, off, b0 + at, acc);
        }
    }
    UNROLL
    for (int k = 0; k < rows * outs; k++) {
        const float y = join_16_threads(acc[k]);
        const uint32_t r = (uint32_t)(k / outs), i = first + (uint32_t)(k % outs), o = output_at(p, i);
        if (!lane && is_output(p, i, o) && r < p->n_rows)
            p->y[BZ * p->heads.y + r * p->ldy + o] = y;
    }
}

/* ---- super-blocks. Parts of the sums of one, two or four steps are joined at once: v[step + together * (row + rows *
 * output)]. A thread keeps sum TID % 8; for eight rows of two outputs it keeps one of each output. */

struct super {               /* of a thread of a warp */
    const uint8_t *w[4];     /* shared: its block in the first piece of each output; is_ternary(): of output i ^ out */
    uint32_t off[4];         /* off_word() of w */
    const uint8_t *kept[2];  /* the same of the outputs whose sums it keeps */
    uint32_t step, row, out; /* of these sums; out: the first */
};

struct super_scales { /* of a block whose sum is kept */
    float d, dmin;
    uint32_t digits; /* TQ1_0's last digits */
};

/* TQ1_0 for few rows uses ternary_step(); there a thread holds the output that it keeps first. */
DEV int is_ternary(const uint32_t type, const int rows) { return type == NTX_TQ1_0 && rows <= 2; }
DEV int steps_together(const int rows, const int outs)
{
    if (rows * outs >= 8)
        return 1;
    return rows * outs >= 4 ? 2 : 4;
}
DEV int sums_kept(const int rows, const int outs) { return rows * outs > 8 ? 2 : 1; }

/* Joins n <= 8 sums of which eight threads have parts; returns sum TID % n. From sum `own` on, threads hold the
 * sums that they keep first. */
DEV int32_t join_eight(int32_t *v, const int n, const int own)
{
    UNROLL
    for (int half = n / 2; half; half /= 2) {
        const int upper = half < own && TID & (uint32_t)half;
        UNROLL
        for (int j = 0; j < half; j++) {
            const int32_t low = v[j], high = v[j + half];
            v[j] = (upper ? high : low) + xor_i(upper ? low : high, (uint32_t)half);
        }
    }
    UNROLL
    for (int m = n; m < 8; m *= 2)
        v[0] += xor_i(v[0], (uint32_t)m);
    return v[0];
}

/* Transposes: before, group g of eight threads has part g of four words, w[word]; after, it has all parts of word g,
 * w[part]. */
DEV void transpose_groups(uint32_t *w)
{
    UNROLL
    for (uint32_t m = 1; m < 4; m *= 2) {
        const int upper = (TID / 8 & m) != 0;
        UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            if (i & m)
                continue;
            const uint32_t other = (uint32_t)xor_i((int32_t)(upper ? w[i] : w[i + m]), 8 * m);
            w[i] = upper ? other : w[i];
            w[i + m] = upper ? w[i + m] : other;
        }
    }
}

/* TQ1_0: a thread multiplies a word (five digits) of each block's first 32 bytes; of every second output's block also
 * a word of the next 16 bytes. */
DEV void ternary_step(const int rows, const int outs, const struct ntx_gpu_product *p, const struct super *s,
                      uint32_t at, uint32_t b, int32_t *v, const int apart)
{
    const uint32_t t = TID % 8, nb = p->n_in / 256, nb4 = (nb + 3) / 4 * 4;
    uint32_t first[4], second[4];
    UNROLL
    for (int o = 0; o < outs; o++) {
        first[o] = one_word_at(s->w[o] + at + 4 * t, s->off[o]);
        if (2 * o < outs)
            second[o] = one_word_at(s->w[o] + at + 32 + t % 4 * 4, s->off[o]);
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        const uint8_t *x = x_row(p, (uint32_t)r);
        const uint32_t *words = (const uint32_t *)(const void *)(x + b * 256);
        const int16_t *s16 = (const int16_t *)(const void *)(x + nb4 * 256 + 4 * up16(nb)) + b * 16;
        const int32_t minus = s16[2 * t] + s16[2 * t + 1];
        uint32_t x_first[5], x_second[5], line[4];
        UNROLL
        for (uint32_t n = 0; n < 4; n++) { /* a row of x is padded to four blocks (vector.h) */
            x_first[n] = words[8 * n + t];
            line[n] = ((const uint32_t *)(const void *)(x + (b / 4 * 4 + n) * 256))[32 + TID % WARP];
        }
        transpose_groups(line); /* words 32 + 8 n + t of its block; they were loaded as lines of 128 bytes */
        x_first[4] = line[0];
        UNROLL
        for (uint32_t n = 0; n < 3; n++) {
            const uint32_t other = (uint32_t)xor_i((int32_t)line[n + 1], 4);
            x_second[2 * n] = t < 4 ? line[n + 1] : other;
            if (n < 2)
                x_second[2 * n + 1] = t < 4 ? other : line[n + 1];
        }
        UNROLL
        for (int o = 0; o < outs; o++) {
            int32_t sum = dot_digits(first[o], x_first, 5, -minus);
            if (2 * o < outs)
                sum = dot_digits(second[o], x_second, 5, sum);
            v[(r + rows * o) * apart] = sum;
        }
    }
}

/* Computes a thread's parts of the sums of a step: v[(row + rows * output) * apart], and minima likewise. at: the
 * step's offset in the ring; b: its block. */
DEV void super_step(const uint32_t type, const int rows, const int outs, const struct ntx_gpu_product *p,
                    const struct super *s, const struct codebook *codebook, uint32_t at, uint32_t b, int32_t *v,
                    int32_t *minima, const int apart, const int wide)
{
    const uint32_t t = TID % 8, nb = p->n_in / 256, nb4 = (nb + 3) / 4 * 4;
    struct unpacked u[4];
    if (is_ternary(type, rows)) {
        ternary_step(rows, outs, p, s, at, b, v, apart);
        return;
    }
    UNROLL
    for (int o = 0; o < outs; o++)
        unpack_part(type, codebook, s->w[o] + at, s->off[o], t, &u[o], wide);
    UNROLL
    for (int r = 0; r < rows; r++) {
        const uint8_t *x = x_row(p, (uint32_t)r);
        const int16_t *s16 = (const int16_t *)(const void *)(x + nb4 * 256 + 4 * up16(nb));
        UNROLL
        for (int o = 0; o < outs; o++) {
            const struct part sum = multiply_part(type, &u[o], t, (const uint32_t *)(const void *)(x + b * 256),
                                                  s16 + b * 16);
            v[(r + rows * o) * apart] = sum.i;
            if (has_min(type))
                minima[(r + rows * o) * apart] = sum.j;
        }
    }
}

DEV struct super_scales scales_of(const uint32_t type, const int rows, const uint8_t *b, uint32_t off)
{
    struct super_scales s = {super_scale(type, b), has_min(type) ? f16_at(b + super_d(type) + 2) : 0, 0};
    if (is_ternary(type, rows))
        s.digits = one_word_at(b + 48, off);
    return s;
}

/* Adds block b's sums to its lane. */
DEV void super_add(const uint32_t type, const int rows, const struct ntx_gpu_product *p, const struct super *s,
                   const struct super_scales *scales, uint32_t b, int32_t i, int32_t minimum, float *acc)
{
    const uint32_t nb = p->n_in / 256, nb4 = (nb + 3) / 4 * 4;
    const uint8_t *x = x_row(p, s->row);
    const float dx = ((const float *)(const void *)(x + nb4 * 256))[b];
    if (is_ternary(type, rows)) {
        uint32_t words[4];
        load_words4(x + b * 256 + 240, words);
        i = dot_digits(scales->digits, words, 4, i);
    }
    *acc = fmaf((float)i, scales->d * dx, *acc);
    if (has_min(type))
        *acc = fmaf((float)-minimum, scales->dmin * dx, *acc);
}

/* Adds blocks b0 .. b0 + 15. acc: [sums kept][steps / together] */
DEV void super_turn(const uint32_t type, const int rows, const int outs, const struct ntx_gpu_product *p,
                    const struct super *s, struct fetch *f, const struct codebook *codebook, uint32_t b0, float *acc,
                    const int wide)
{
    const uint32_t g = TID % WARP / 8, size = 4 * block_size(type);
    const int together = steps_together(rows, outs), kept = sums_kept(rows, outs), n = rows * outs * together / kept;
    uint32_t slot = 0;
    UNROLL
    for (int first = 0; first < 4; first += together) {
        int32_t v[16], minima[16];
        struct super_scales scales[2];
        UNROLL
        for (int j = 0; j < together; j++) {
            const int k = first + j;
            if (k % 2 == 0)
                slot = fetched(type, outs, f, b0 / 8 + (uint32_t)k / 2);
            super_step(type, rows, outs, p, s, codebook, slot + (uint32_t)k % 2 * size, b0 + 4 * (uint32_t)k + g, v + j,
                       minima + j, together, wide);
            UNROLL
            for (int h = 0; h < kept; h++) /* for a piece's two steps at once */
                if (together == 1 || (k % 2 == 0 && (together == 2 || s->step / 2 == (uint32_t)k / 2)))
                    scales[h] = scales_of(
                        type, rows, s->kept[h] + slot + (together == 1 ? (uint32_t)k : s->step) % 2 * size, s->off[0]);
        }
        UNROLL
        for (int h = 0; h < kept; h++) {
            const int32_t i = join_eight(v + h * n, n, is_ternary(type, rows) ? rows * together : n),
                          minimum = has_min(type) ? join_eight(minima + h * n, n, n) : 0;
            super_add(type, rows, p, s, &scales[h], b0 + 4 * ((uint32_t)first + s->step) + g, i, minimum,
                      acc + h * (4 / together) + first / together);
        }
    }
}

/* Adds blocks from b0 on, a step at a time. Beyond the row's last block, stale bytes are multiplied and not added,
 * since shuffles need the whole warp. */
DEV void super_rest(const uint32_t type, const int rows, const int outs, const struct ntx_gpu_product *p,
                    const struct super *s, struct fetch *f, const struct codebook *codebook, uint32_t b0, float *acc,
                    const int wide)
{
    const uint32_t g = TID % WARP / 8, size = 4 * block_size(type), nb = p->n_in / 256;
    const int together = steps_together(rows, outs), kept = sums_kept(rows, outs), n = rows * outs * together / kept;
    int32_t v[16], minima[16];
    struct super_scales scales[2];
    uint32_t slot = 0;
    UNROLL
    for (int e = 0; e < 16; e++)
        v[e] = minima[e] = 0;
    for (uint32_t k = 0; b0 + 4 * k < nb; k++) {
        const uint32_t b = b0 + 4 * k + g < nb ? b0 + 4 * k + g : nb - 1, now = k % (uint32_t)together;
        int32_t one[16], minimum[16];
        if (k % 2 == 0)
            slot = fetched(type, outs, f, b0 / 8 + k / 2);
        super_step(type, rows, outs, p, s, codebook, slot + k % 2 * size, b, one, minimum, 1, wide);
        UNROLL
        for (int e = 0; e < rows * outs * together; e++) {
            if ((uint32_t)(e % together) != now)
                continue;
            v[e] = one[e / together];
            if (has_min(type))
                minima[e] = minimum[e / together];
        }
        UNROLL
        for (int h = 0; h < kept; h++)
            if (s->step == now)
                scales[h] = scales_of(type, rows, s->kept[h] + slot + k % 2 * size, s->off[0]);
        if (now + 1 < (uint32_t)together && b0 + 4 * k + 4 < nb)
            continue;
        UNROLL
        for (int h = 0; h < kept; h++) {
            const int32_t i = join_eight(v + h * n, n, is_ternary(type, rows) ? rows * together : n),
                          least = has_min(type) ? join_eight(minima + h * n, n, n) : 0;
            const uint32_t mine = b0 + 4 * (k - now + s->step) + g, c = k % 4 / (uint32_t)together;
            float sum = 0; /* no index: acc would move from registers to memory */
            UNROLL
            for (uint32_t m = 0; m < 4 / (uint32_t)together; m++)
                if (c == m)
                    sum = acc[(uint32_t)h * (4 / (uint32_t)together) + m];
            if (mine < nb)
                super_add(type, rows, p, s, &scales[h], mine, i, least, &sum);
            UNROLL
            for (uint32_t m = 0; m < 4 / (uint32_t)together; m++)
                if (c == m)
                    acc[(uint32_t)h * (4 / (uint32_t)together) + m] = sum;
        }
    }
}

/* A thread's block in the first piece of output first + o. */
DEV const uint8_t *super_at(const uint32_t type, const struct ntx_gpu_product *p, const uint8_t *rings, uint32_t first,
                            uint32_t outs, uint32_t o)
{
    return rings + ring_at(type, weights_of(p, output_at(p, first + o)), TID / WARP * outs + o) +
           TID % WARP / 8 * block_size(type);
}

/* A warp's outputs from `first` on. brought: the codebook, if it is loaded; else it is loaded to `table`. */
DEV void product_super(const uint32_t type, const int rows, const int outs, const struct ntx_gpu_product *p,
                       uint32_t first, uint8_t *ring, const struct codebook *brought, uint32_t *table, const int wide)
{
    const int together = steps_together(rows, outs), kept = sums_kept(rows, outs), each = 4 / together;
    const uint32_t t = TID % 8 % (uint32_t)(rows * outs * together), nb = p->n_in / 256;
    struct super s = {{0},
                      {0},
                      {0},
                      t % (uint32_t)together,
                      t / (uint32_t)together % (uint32_t)rows,
                      kept > 1 ? 0 : t / (uint32_t)(together * rows)};
    struct fetch f[4];
    float acc[8];
    UNROLL
    for (int o = 0; o < outs; o++)
        f[o] = fetch_of(type, weights_of(p, output_at(p, first + (uint32_t)o)), nb * block_size(type), ring,
                        TID / WARP * (uint32_t)outs + (uint32_t)o, TID % WARP);
    begin_fetch(type, outs, f);
    const struct codebook codebook = brought ? *brought
                                             : load_codebook(type, CODEBOOK_COPIES(codebook_words(type)), table);
    UNROLL
    for (uint32_t o = 0; o < (uint32_t)outs; o++) {
        s.w[o] = super_at(type, p, ring, first, (uint32_t)outs, is_ternary(type, rows) ? o ^ s.out : o);
        s.off[o] = off_word(s.w[o]);
    }
    UNROLL
    for (uint32_t h = 0; h < (uint32_t)kept; h++)
        s.kept[h] = super_at(type, p, ring, first, (uint32_t)outs, s.out + h);
    UNROLL
    for (int k = 0; k < kept * each; k++)
        acc[k] = 0;
    uint32_t b0 = 0;
    for (; rows * outs <= 4 && b0 + 16 <= nb; b0 += 16) /* for more sums a step is long enough */
        super_turn(type, rows, outs, p, &s, f, &codebook, b0, acc, wide);
    super_rest(type, rows, outs, p, &s, f, &codebook, b0, acc, wide);
    UNROLL
    for (int h = 0; h < kept; h++) { /* adds lanes 8 apart, then 4, 2, 1 */
        float *l = acc + h * each, y;
        if (together == 4)
            y = l[0] + xor_f(l[0], 2);
        else
            y = together == 2 ? l[0] + l[1] : (l[0] + l[2]) + (l[1] + l[3]);
        if (together > 1)
            y += xor_f(y, 1);
        y += xor_f(y, 16);
        y += xor_f(y, 8);
        const uint32_t i = first + (kept > 1 ? (uint32_t)h : s.out), o = output_at(p, i);
        if (TID % WARP < 8 && !s.step && is_output(p, i, o) && s.row < p->n_rows)
            p->y[BZ * p->heads.y + s.row * p->ldy + o] = y;
    }
}

/* Whether all super-blocks of a launch are 16-aligned. */
DEV int lie_wide(const uint32_t type, const struct ntx_gpu_product *p)
{
    return block_size(type) % 16 == 0 && !((uintptr_t)p->w & 15) && !(p->groups.size && p->groups.bytes & 15);
}

DEV void product_super_any(const uint32_t type, const int rows, const int outs, const struct ntx_gpu_product *p,
                           uint32_t block, uint8_t *ring, uint32_t *table)
{
    const uint32_t first = (block * BLOCK_DIM + TID) / WARP * (uint32_t)outs;
    if (lie_wide(type, p))
        product_super(type, rows, outs, p, first, ring, NULL, table, 1);
    else
        product_super(type, rows, outs, p, first, ring, NULL, table, 0);
}

DEV float float_value(const uint32_t type, const uint8_t *w, uint32_t k)
{
    if (type == NTX_F32)
        return bits_f(float_bits_at(w + 4 * (uint64_t)k));
    return type == NTX_F16 ? f16_at(w + 2 * (uint64_t)k) : bits_f(half_at(w + 2 * (uint64_t)k) << 16);
}

/* Loads of a warp are adjacent without shared memory. */
DEV void product_float(const uint32_t type, const int rows, const struct ntx_gpu_product *p, uint32_t block)
{
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

#define PRODUCT(kind, type, rows)                                                                                      \
    KERNEL(product_##type##_##rows, struct ntx_gpu_product)                                                            \
    {                                                                                                                  \
        struct ntx_gpu_product p;                                                                                      \
        const uint32_t block = matrix_of_block(&a, BX, &p);                                                            \
        if (rows == 1)                                                                                                 \
            take_routed(&p, BZ);                                                                                       \
        if (!take_tile(&p) || (rows == NTX_GPU_ROWS && !take_rows(&p)))                                                \
            return;                                                                                                    \
        PRODUCT_##kind(type, rows)                                                                                     \
    }
#define PRODUCT_FLOAT(type, rows) product_float(NTX_##type, rows, &p, block);
#define PRODUCT_SIMPLE(type, rows)                                                                                     \
    SHARED ALIGNED16 uint8_t ring[RINGS_OF(type, rows)];                                                               \
    product_simple(NTX_##type, rows, OUTS_OF(type, rows), &p, block, ring);
#define PRODUCT_HALVES(type, rows) PRODUCT_SIMPLE(type, rows)
#define PRODUCT_SUPER(type, rows)                                                                                      \
    SHARED ALIGNED16 uint8_t ring[RINGS_OF(type, rows)];                                                               \
    SHARED ALIGNED16 uint32_t table[CODEBOOK_##type * CODEBOOK_COPIES(CODEBOOK_##type) + 2 * CODEBOOK_BYTES];          \
    product_super_any(NTX_##type, rows, OUTS_OF(type, rows), &p, block, ring, table);
#define PRODUCTS_OF(rule, TYPE, ...)                                                                                   \
    PRODUCT(rule, TYPE, 1) PRODUCT(rule, TYPE, 2) PRODUCT(rule, TYPE, 4) PRODUCT(rule, TYPE, 8)
NTX_TYPES(PRODUCTS_OF)

#endif
