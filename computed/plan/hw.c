/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/plan/hw.h"

#include <math.h>

#include "common/util.h"
#include "model/quant.h"
#include "model/planes.h"

/* Time of a product with blocks that are joined first, of few and of many rows. Measured: docs/log/drafts.md */
#define JOIN_FEW  1.4
#define JOIN_MANY 1.1
#define JOIN_ROWS 8u

/* Products of so many rows at most are as fast as their rates; from so many on a prompt's factor counts. */
#define FEW_ROWS  8u
#define MANY_ROWS 64u
#define BLOCK     256u

/* Interpolates between measured sizes by the logarithm of the size; beyond them takes the nearest; 0: there are
 * none. */
static double rate(const struct ntx_hw_read *r, unsigned n, uint64_t bytes)
{
    unsigned i = 0;
    if (!n)
        return 0;
    while (i < n && r[i].bytes < bytes)
        i++;
    if (i == 0 || i == n)
        return r[i ? n - 1 : 0].bps;
    double t = log((double)bytes / r[i - 1].bytes) / log((double)r[i].bytes / r[i - 1].bytes);
    return r[i - 1].bps + t * (r[i].bps - r[i - 1].bps);
}

double ntx_hw_drive_bps(const struct ntx_hw *hw, uint64_t read_bytes)
{
    return rate(hw->reads, hw->n_reads, read_bytes);
}

double ntx_hw_stream_bps(const struct ntx_hw *hw, uint64_t read_bytes)
{
    const struct ntx_hw_read *s = hw->streams;
    if (!hw->n_streams)
        return ntx_hw_drive_bps(hw, read_bytes);
    uint64_t known = NTX_MAX(NTX_MIN(read_bytes, (uint64_t)s[hw->n_streams - 1].bytes), (uint64_t)s[0].bytes);
    double bps = rate(s, hw->n_streams, known), plain = ntx_hw_drive_bps(hw, known);
    return plain > 0 ? bps * ntx_hw_drive_bps(hw, read_bytes) / plain : bps;
}

uint64_t ntx_hw_read_bytes(const struct ntx_hw *hw)
{
    static const uint64_t half = 512 << 10, whole = 1 << 20;
    if (!hw)
        return half;
    const struct ntx_hw_read *r = hw->n_streams ? hw->streams : hw->reads;
    unsigned n = hw->n_streams ? hw->n_streams : hw->n_reads;
    bool known = n && r[0].bytes <= half && r[n - 1].bytes >= whole;
    return known && rate(r, n, half) <= rate(r, n, whole) ? whole : half;
}

uint64_t ntx_hw_read_gap(const struct ntx_hw *hw)
{
    double best = 0;
    for (unsigned i = 0; i < hw->n_reads; i++)
        best = NTX_MAX(best, hw->reads[i].bps);
    if (best <= 0)
        return 0;
    double small = hw->reads[0].bytes,
           s = small / hw->reads[0].bps - small / best; /* cost of the smallest read beside its bytes */
    return s > 0 ? (uint64_t)(s * best / 2) : 0;
}

double ntx_hw_attend_s(const struct ntx_hw *hw, enum ntx_kv_type type, uint32_t rows, double ops, double scores)
{
    const bool many = rows > 1;
    const struct ntx_hw_attend *const of[] = {&hw->attend[type][many], &hw->attend[NTX_KV_F16][many],
                                              &hw->attend[NTX_KV_F16][1]};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i]->flops > 0)
            return ops / of[i]->flops + scores * of[i]->score_s;
    return 0;
}

double ntx_hw_times(const struct ntx_hw *hw, uint32_t width, uint32_t rows)
{
    const struct ntx_hw_prompt *below = NULL, *above = NULL;
    for (unsigned i = 0; i < hw->n_prompts; i++) {
        const struct ntx_hw_prompt *p = &hw->prompts[i];
        if (!(p->width % BLOCK) != !(width % BLOCK))
            continue;
        below = p->width <= width ? p : below;
        above = p->width >= width && !above ? p : above;
    }
    if ((!below && !above) || !width || rows <= FEW_ROWS)
        return 1;
    double times = below ? below->times : above->times;
    if (below && above && below != above)
        times += (above->times - times) * log((double)width / below->width) / log((double)above->width / below->width);
    return rows < MANY_ROWS ? pow(times, log((double)rows / FEW_ROWS) / log((double)MANY_ROWS / FEW_ROWS)) : times;
}

double ntx_hw_ram_bps(const struct ntx_hw *hw, uint32_t threads)
{
    if (!threads || threads >= hw->threads || hw->ram_bps_1 <= 0)
        return hw->ram_bps;
    return NTX_MIN(hw->ram_bps_1 * threads, hw->ram_bps);
}

/* A kernel's seconds per byte of `type`. Fewer threads than measured have their proportion, or the rate of one thread
 * for each: that is more where all threads together wait for memory. */
static double kernel_byte_s(const struct ntx_hw *hw, const struct ntx_hw_kernel *k, uint32_t type, uint32_t threads)
{
    const struct ntx_type_info *t = ntx_type_info(type);
    double s = 0;
    if (k->bps > 0)
        s = 1 / k->bps;
    else if (t && k->flops > 0)
        s = 2.0 * k->rows * t->block / t->block_bytes / k->flops;
    if (!threads || threads >= hw->threads)
        return s;
    return k->bps > 0 && k->bps_1 > 0 ? 1 / NTX_MIN(k->bps_1 * threads, k->bps) : s * hw->threads / threads;
}

/* For one kernel entry list: a type's own, or the general one. */
static double interpolate(const struct ntx_hw *hw, uint32_t entry, bool interleaved, uint32_t type, uint32_t rows,
                          uint32_t threads)
{
    const struct ntx_hw_kernel *below = NULL, *above = NULL;
    for (unsigned i = 0; i < hw->n_kernels; i++) {
        const struct ntx_hw_kernel *k = &hw->kernels[i];
        if (k->type != entry || k->interleaved != interleaved)
            continue;
        if (k->rows <= rows && (!below || k->rows > below->rows))
            below = k;
        if (k->rows >= rows && (!above || k->rows < above->rows))
            above = k;
    }
    if (!below && !above)
        return 0;
    if (!above)
        return kernel_byte_s(hw, below, type, threads) * rows / below->rows;
    if (!below || above == below)
        return kernel_byte_s(hw, above, type, threads);
    double a = kernel_byte_s(hw, below, type, threads), b = kernel_byte_s(hw, above, type, threads);
    return a + (b - a) * (rows - below->rows) / (above->rows - below->rows);
}

double ntx_hw_byte_s(const struct ntx_hw *hw, uint32_t type, uint32_t rows, uint32_t threads, bool stays)
{
    double ram = ntx_hw_ram_bps(hw, threads), least = ram > 0 ? 1 / ram : 0;
    const uint32_t whole = ntx_planes_whole(type);
    if (whole != type) /* the blocks that are joined are multiplied, never interleaved */
        return (rows < JOIN_ROWS ? JOIN_FEW : JOIN_MANY) * ntx_hw_byte_s(hw, whole, rows, threads, false) *
               ntx_type_info(whole)->block_bytes / ntx_type_info(type)->block_bytes;
    double s = stays ? interpolate(hw, type, true, type, rows, threads) : 0;
    if (s <= 0)
        s = interpolate(hw, type, false, type, rows, threads);
    if (s <= 0)
        s = interpolate(hw, NTX_HW_ANY, false, type, rows, threads);
    return NTX_MAX(s, least);
}

double ntx_hw_dot_s(const struct ntx_hw *hw, uint32_t type, bool stays)
{
    const struct ntx_hw_kernel *found = NULL;
    for (unsigned i = 0; i < hw->n_kernels; i++) {
        const struct ntx_hw_kernel *k = &hw->kernels[i];
        if (k->type == type && k->rows == 1 && (!k->interleaved || stays) && (!found || k->interleaved))
            found = k;
    }
    return found ? found->dot_s : 0;
}

void ntx_hw_cap(struct ntx_hw *hw, double nvme_bps, double h2d_bps)
{
    for (unsigned i = 0; nvme_bps > 0 && i < hw->n_reads; i++)
        hw->reads[i].bps = NTX_MIN(hw->reads[i].bps, nvme_bps);
    for (unsigned i = 0; nvme_bps > 0 && i < hw->n_streams; i++)
        hw->streams[i].bps = NTX_MIN(hw->streams[i].bps, nvme_bps);
    if (nvme_bps > 0 && !hw->n_reads)
        hw->reads[hw->n_reads++] = (struct ntx_hw_read){1u << 20, nvme_bps};
    if (h2d_bps > 0 && hw->gpu.bytes)
        hw->gpu.h2d_bps = hw->gpu.h2d_bps > 0 ? NTX_MIN(hw->gpu.h2d_bps, h2d_bps) : h2d_bps;
}
