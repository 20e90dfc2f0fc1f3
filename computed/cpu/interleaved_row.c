/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/cpu/interleaved_row.h"

#include "computed/cpu/interleaved.h"

#define PATTERN(TYPE, type, ...) [NTX_##TYPE] = &ntx__pattern_##type,

/* The inverse of ntx__place_head. */
static void take_head(const struct ntx__interleave_pattern *p, const uint8_t *heads, size_t output, uint8_t *head)
{
    const size_t front = ntx__head_bytes(p->block_bytes) - (p->fifth ? sizeof(uint32_t) : 0);
    memcpy(head, heads + front * output, front);
    if (!p->fifth)
        return;
    uint32_t by_columns, bits = 0;
    memcpy(&by_columns, heads + ntx__fifth_at(p->block_bytes) + sizeof bits * output, sizeof by_columns);
    for (unsigned k = 0; k < 32; k++)
        bits |= (by_columns >> (8 * (k % 4) + k / 4) & 1) << k;
    memcpy(head + front, &bits, sizeof bits);
}

static void take_block(const struct ntx__interleave_pattern *p, const uint8_t *slice, struct ntx__tile_at at,
                       uint32_t output, uint8_t *block)
{
    for (size_t k = 0; k < p->block_bytes / 16; k++) {
        uint8_t *to = block + ntx__behind_head(p) + 16 * (p->order ? p->order[k] : k);
        for (size_t i = 0; i < 4; i++)
            memcpy(to + 4 * i, slice + at.words + 64 * (4 * k + i) + 4 * (size_t)output, 4);
    }
    if (p->head_at >= 0)
        take_head(p, slice + at.head, output, block + p->head_at);
}

bool ntx_cpu_interleaved_row(uint32_t type, const void *slice, size_t row_bytes, uint32_t output, void *row)
{
    static const struct ntx__interleave_pattern *const patterns[NTX_TYPE_LIMIT] = {INTERLEAVED_TYPES(PATTERN)};
    const struct ntx__interleave_pattern *p = type < NTX_TYPE_LIMIT ? patterns[type] : NULL;
    if (!p)
        return false;
    const uint32_t blocks = (uint32_t)(row_bytes / p->block_bytes);
    for (uint32_t turn = 0, place = 0; turn < LANES; turn++)
        for (uint32_t b = ntx__lane_order[turn]; b < blocks; b += LANES, place++)
            take_block(p, slice, ntx__tile_at(blocks, place, p->block_bytes), output,
                       (uint8_t *)row + b * p->block_bytes);
    return true;
}
