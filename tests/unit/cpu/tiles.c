/* SPDX-License-Identifier: Apache-2.0 */
/* tiles.c: computed/cpu/amx.c with matrix tiles done one number at a time, so that what it does with them is tested on
 * every machine with AVX-512. Linked before the library, whose amx.c is left out then. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

enum { TILES = 8, MOST_ROWS = 16, ROW_BYTES = 64 };

static struct {
    uint8_t rows[TILES];
    uint16_t row_bytes[TILES];
    uint8_t at[TILES][MOST_ROWS][ROW_BYTES];
} emulated;

/* Byte offsets of the 64-byte configuration: 16 row lengths from 16 on, 16 numbers of rows from 48 on. */
static void tiles_configure(const void *config)
{
    memset(&emulated, 0, sizeof emulated);
    memcpy(emulated.row_bytes, (const uint8_t *)config + 16, sizeof emulated.row_bytes);
    memcpy(emulated.rows, (const uint8_t *)config + 48, sizeof emulated.rows);
}

static void tiles_load(int t, const void *from, size_t stride)
{
    memset(emulated.at[t], 0, sizeof emulated.at[t]);
    for (size_t r = 0; r < emulated.rows[t]; r++)
        memcpy(emulated.at[t][r], (const uint8_t *)from + r * stride, emulated.row_bytes[t]);
}

static void tiles_store(int t, void *to, size_t stride)
{
    for (size_t r = 0; r < emulated.rows[t]; r++)
        memcpy((uint8_t *)to + r * stride, emulated.at[t][r], emulated.row_bytes[t]);
}

/* c += a * b: bytes of a signed; of b, too, or unsigned. Within `emulated`, by the hundred million: no work for
 * sanitizers. */
__attribute__((no_sanitize("address", "undefined"))) static void tiles_multiply(int c, int a, int b, int b_signed)
{
    int16_t bytes[MOST_ROWS][4][ROW_BYTES / 4]; /* of b: [k / 4][k % 4][n] */
    for (size_t k = 0; k < MOST_ROWS; k++)
        for (size_t i = 0; i < ROW_BYTES; i++)
            bytes[k][i % 4][i / 4] = b_signed ? (int8_t)emulated.at[b][k][i] : emulated.at[b][k][i];
    for (size_t m = 0; m < emulated.rows[c]; m++) {
        int32_t sums[ROW_BYTES / 4];
        memcpy(sums, emulated.at[c][m], sizeof sums);
        for (size_t k = 0; k < emulated.row_bytes[a]; k++)
            for (size_t n = 0; n < ROW_BYTES / 4; n++)
                sums[n] += (int8_t)emulated.at[a][m][k] * bytes[k / 4][k % 4][n];
        memcpy(emulated.at[c][m], sums, sizeof sums);
    }
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbssd
#undef _tile_dpbsud
#define _tile_loadconfig             tiles_configure
#define _tile_release()              memset(&emulated, 0, sizeof emulated)
#define _tile_loadd(t, from, stride) tiles_load(t, from, stride)
#define _tile_stored(t, to, stride)  tiles_store(t, to, stride)
#define _tile_zero(t)                memset(emulated.at[t], 0, sizeof emulated.at[t])
#define _tile_dpbssd(c, a, b)        tiles_multiply(c, a, b, 1)
#define _tile_dpbsud(c, a, b)        tiles_multiply(c, a, b, 0)

#include "computed/cpu/amx.c"
