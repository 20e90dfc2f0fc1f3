/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/plan/predict.h"

#include <errno.h>
#include <stdbool.h>

#include "common/util.h"
#include "computed/plan/estimates.h"

#define SHARES 64 /* steps in which the share of the CPU's bytes that is copied to the GPU is tried */

static double sum_bytes(const double *bytes)
{
    double n = 0;
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        n += bytes[t];
    return n;
}

/* Bytes per second of the type's kernel: as measured, with one row; for a few rows at most the estimate for so many.
 * More rows are limited by arithmetic. */
static double kernel_bps(const struct ntx_hw *hw, uint32_t type, uint32_t rows)
{
    double measured = hw->gpu.type_bps[type], few = rows <= NTX_ESTIMATE_ROWS ? ntx_estimate_bps(type, rows) : 0;
    if (measured <= 0)
        return few > 0 ? few : hw->gpu.bps;
    return rows > 1 && few > 0 ? NTX_MIN(measured, few) : measured;
}

/* Seconds of one byte of a type on the GPU: its kernel's read rate, unless arithmetic takes longer. */
static double device_byte_s(const struct ntx_hw *hw, uint32_t type, uint32_t rows)
{
    const struct ntx_type_info *i = ntx_type_info(type);
    double read = hw->gpu.bps > 0 ? 1 / NTX_MIN(hw->gpu.bps, kernel_bps(hw, type, rows)) : 0;
    double math = hw->gpu.flops > 0 ? 2.0 * rows * i->block / i->block_bytes / hw->gpu.flops : 0;
    return NTX_MAX(read, math);
}

/* sums over the types that occur; a type without a rate makes it unknown */
struct costs {
    double device, cpu, copied; /* bytes in VRAM; the rest on the CPU; the rest on the GPU after a copy */
    double bytes;               /* those in the GPU's memory: to tell reading from arithmetic */
    bool unknown, estimated;
};

/* Adds a type's bytes that so many rows are multiplied by. */
static void add_costs(struct costs *c, const struct ntx_hw *hw, const struct ntx_load_bytes *l, uint32_t t,
                      uint32_t rows, const double *bytes)
{
    double rest = bytes[NTX_TIER_HOST] + bytes[NTX_TIER_STORAGE], device = bytes[NTX_TIER_DEVICE];
    if (rest + device <= 0)
        return;
    double cpu = ntx_hw_byte_s(hw, t, rows, l->threads, false),
           stays = ntx_hw_byte_s(hw, t, rows, l->threads, !hw->gpu.bytes);
    double gpu = device_byte_s(hw, t, rows);
    c->unknown |= rest > 0 && l->multiply != NTX_MULTIPLY_GPU && cpu <= 0;
    c->unknown |= device > 0 && gpu <= 0;
    c->device += device * gpu;
    c->bytes += device + (hw->gpu.unified ? rest : 0);
    c->cpu += bytes[NTX_TIER_STORAGE] * cpu + bytes[NTX_TIER_HOST] * stays; /* beside a GPU nothing is interleaved */
    c->copied += rest * gpu;
    c->estimated |= hw->gpu.bps > 0 && (hw->gpu.type_bps[t] <= 0 || (rows > 1 && rows <= NTX_ESTIMATE_ROWS));
}

static struct costs all_costs(const struct ntx_hw *hw, const struct ntx_load_bytes *l)
{
    struct costs c = {0};
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++) {
        double dense[NTX_N_TIERS], experts[NTX_N_TIERS], end[NTX_N_TIERS];
        for (int tier = 0; tier < NTX_N_TIERS; tier++) {
            experts[tier] = l->expert_bytes[tier][t];
            dense[tier] = NTX_MAX(l->bytes[tier][t] - experts[tier] - l->end_bytes[tier][t], 0);
            end[tier] = l->end_bytes[tier][t];
        }
        add_costs(&c, hw, l, t, l->rows, dense);
        add_costs(&c, hw, l, t, l->expert_rows ? l->expert_rows : l->rows, experts);
        add_costs(&c, hw, l, t, l->asked, end);
    }
    return c;
}

static void name_limit(const struct ntx_hw *hw, const struct costs *c, struct ntx_forecast *f)
{
    const char *device_memory = hw->gpu.unified ? "memory" : "vram";
    bool reads_vram = f->device_s > f->cpu_s && c->bytes > f->device_s * hw->gpu.bps / 2;
    const struct {
        const char *name;
        double s;
    } terms[] = {{"drive", f->drive_s + f->late_s},
                 {"memory", f->memory_s},
                 {"h2d", f->h2d_s},
                 {reads_vram ? device_memory : "compute", f->compute_s}};
    double most = 0;
    f->limit = "";
    for (unsigned i = 0; i < sizeof terms / sizeof *terms; i++)
        if (terms[i].s > most) {
            most = terms[i].s;
            f->limit = terms[i].name;
        }
}

/* Seconds of the CPU for attention: reading K and V, and arithmetic, which the reads hardly hide. attend: bytes per
 * second. */
static double attend_s(const struct ntx_hw *hw, const struct ntx_load_bytes *l, double attend)
{
    double part = l->threads && l->threads < hw->threads ? (double)l->threads / hw->threads : 1,
           read = attend > 0 ? l->kv_bytes / attend : 0,
           math = ntx_hw_attend_s(hw, l->kv_type, l->rows, l->attend_ops, l->scores) / part;
    return read + math;
}

/* Seconds for outputs of narrow matrices that a few rows are multiplied by. */
static double few_dots_s(const struct ntx_hw *hw, const struct ntx_load_bytes *l)
{
    double s = 0;
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        s += NTX_MAX(l->few_dots[NTX_TIER_HOST][t], 0.0) * ntx_hw_dot_s(hw, t, !hw->gpu.bytes) +
             NTX_MAX(l->few_dots[NTX_TIER_STORAGE][t], 0.0) * ntx_hw_dot_s(hw, t, false);
    return s;
}

/* Seconds for the values of rows between matrices, and for outputs of narrow ones. A row's values are one thread's. */
static double values_s(const struct ntx_hw *hw, const struct ntx_load_bytes *l)
{
    const double all = NTX_MAX(hw->threads, 1u), part = l->threads && l->threads < all ? l->threads / all : 1,
                 busy = NTX_MIN(part, NTX_MAX(l->rows, 1u) / all);
    return l->values * hw->value_s / busy + (NTX_MAX(l->dots, 0.0) * hw->dot_s + few_dots_s(hw, l)) / part;
}

static struct ntx_forecast with_share(const struct ntx_hw *hw, const struct ntx_load_bytes *l, const struct costs *c,
                                      double share)
{
    double host = sum_bytes(l->bytes[NTX_TIER_HOST]), storage = sum_bytes(l->bytes[NTX_TIER_STORAGE]),
           streamed = NTX_MAX(storage - l->late_bytes, 0);
    const uint64_t read_bytes = l->read_bytes ? l->read_bytes : ntx_hw_read_bytes(hw);
    double drive = ntx_hw_stream_bps(hw, read_bytes);
    double late = ntx_hw_stream_bps(hw, l->late_read_bytes ? l->late_read_bytes : read_bytes);
    double ram = hw->gpu.unified && l->kv_on_device
                     ? NTX_MAX(ntx_hw_ram_bps(hw, 0), hw->gpu.bps)
                     : ntx_hw_ram_bps(hw, 0); /* such a GPU uses more of it than all cores */
    double attend = l->kv_on_device ? hw->gpu.bps : ntx_hw_ram_bps(hw, l->threads);
    struct ntx_forecast f = {.copied = share};
    f.drive_s = (streamed > 1 ? streamed / drive : 0) +
                (drive > 0 ? l->kv_read_bytes / drive : 0); /* one byte of weights is rounding */
    f.late_s = l->late_bytes > 0 ? l->late_bytes / late : 0;
    const double kv = l->kv_on_device ? 0 : l->kv_bytes;
    f.memory_s = ram > 0 ? (host + 2 * storage + kv) / ram : 0;
    f.h2d_s = share > 0 && !hw->gpu.unified ? share * (host + storage) / hw->gpu.h2d_bps : 0;
    f.device_s = c->device + share * c->copied + (l->kv_on_device && attend > 0 ? l->kv_bytes / attend : 0);
    f.cpu_s = ((1 - share) * c->cpu + (l->kv_on_device ? 0 : values_s(hw, l))) * ntx_hw_times(hw, l->width, l->rows) +
              (l->kv_on_device ? 0 : attend_s(hw, l, attend));
    f.compute_s = f.device_s + f.cpu_s + hw->layer_s * l->n_layers + hw->token_s;
    f.pass_s = NTX_MAX(NTX_MAX(f.drive_s, f.memory_s), NTX_MAX(f.h2d_s, f.compute_s)) + f.late_s;
    f.estimated = c->estimated && f.device_s > 0;
    name_limit(hw, c, &f);
    return f;
}

int ntx_predict(const struct ntx_hw *hw, const struct ntx_load_bytes *l, struct ntx_forecast *out)
{
    struct costs c = all_costs(hw, l);
    double rest = sum_bytes(l->bytes[NTX_TIER_HOST]) + sum_bytes(l->bytes[NTX_TIER_STORAGE]);
    bool can_copy = hw->gpu.bytes && (hw->gpu.h2d_bps > 0 || hw->gpu.unified) && hw->gpu.bps > 0 &&
                    l->multiply != NTX_MULTIPLY_CPU && rest > 0;
    bool all = l->multiply == NTX_MULTIPLY_GPU || hw->gpu.unified; /* such a GPU multiplies all of it */
    if (c.unknown || (sum_bytes(l->bytes[NTX_TIER_STORAGE]) > 0 && !hw->n_reads && !hw->n_streams) ||
        (l->multiply == NTX_MULTIPLY_GPU && rest > 0 && !can_copy))
        return -ENODATA;
    struct ntx_forecast best = with_share(hw, l, &c, can_copy && all ? 1 : 0);
    for (int i = 1; can_copy && !all && i <= SHARES; i++) {
        struct ntx_forecast f = with_share(hw, l, &c, (double)i / SHARES);
        if (f.pass_s < best.pass_s)
            best = f;
    }
    if (best.pass_s <= 0)
        return -ENODATA;
    *out = best;
    return 0;
}

double ntx_predict_times(const struct ntx_hw *hw, const struct ntx_load_bytes *l, double measured_s)
{
    const struct costs c = all_costs(hw, l);
    const double rates = c.cpu + values_s(hw, l),
                 rest = attend_s(hw, l, ntx_hw_ram_bps(hw, l->threads)) + hw->layer_s * l->n_layers + hw->token_s;
    return c.unknown || rates <= 0 ? 0 : NTX_MAX(measured_s - rest, 0.0) / rates;
}

double ntx_predict_share(const struct ntx_hw *hw, uint32_t type, uint32_t rows, uint32_t threads)
{
    struct ntx_load_bytes l = {.rows = rows, .threads = threads};
    struct ntx_forecast f;
    struct ntx_hw free_of_charge = *hw;
    free_of_charge.layer_s = free_of_charge.token_s = 0;
    l.bytes[NTX_TIER_HOST][type] = 1e9;
    if (hw->gpu.h2d_bps <= 0 || hw->gpu.bps <= 0 || ntx_predict(&free_of_charge, &l, &f))
        return -1;
    return f.copied;
}
