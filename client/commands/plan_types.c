/* SPDX-License-Identifier: Apache-2.0 */
/* plan_types.c: how fast another type of a model would be, from the header of one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/commands/plan.h"
#include "common/util.h"

/* Mixes by their usual bits a weight, for files whose type is not one: dynamic mixes, MXFP4. */
static const struct {
    double bits;
    const char *mix;
} usual[] = {{3.0, "Q2_K"}, {3.9, "Q3_K_M"}, {4.8, "Q4_K_M"}, {5.7, "Q5_K_M"},
             {6.6, "Q6_K"}, {8.5, "Q8_0"},   {16, "F16"}};

static double weights_of(const struct ntx_outline *m)
{
    double n = 0;
    for (int part = 0; part < NTX_N_PARTS; part++)
        n += (double)ntx_outline_values(m, (enum ntx_part)part);
    return n;
}

/* The mix that makes about such a file. */
static const struct ntx_mix *mix_of(const struct ntx_plan_answer *a, const char *type, uint64_t bytes)
{
    const struct ntx_mix *mix = ntx_mix_named(strncasecmp(type, "UD-", 3) ? type : type + 3);
    double bits = bytes == UINT64_MAX ? 4.8 : (double)bytes * 8 / weights_of(&a->model);
    const char *near = usual[0].mix;
    for (size_t i = 1; i < sizeof usual / sizeof *usual; i++)
        if (bits > (usual[i - 1].bits + usual[i].bits) / 2)
            near = usual[i].mix;
    return mix ? mix : ntx_mix_named(near);
}

/* Bytes of a file of this model, by the mix. */
static double file_bytes(const struct ntx_outline *m)
{
    return (double)ntx_outline_model_bytes(m) + (double)ntx_outline_bytes(m, NTX_PART_EMBED);
}

/* A file that is larger than its mix would make it is planned as that mix with as much less memory, and takes as much
 * longer. */
double ntx__plan_type_rate(const struct ntx_plan_answer *a, const struct ntx_gguf *g, const char *type, uint64_t bytes,
                           double *streamed)
{
    struct ntx_outline as;
    struct ntx_layout l;
    struct ntx_err ignored = {0};
    uint32_t n_other;
    *streamed = 0;
    if (ntx_outline_retyped(g, mix_of(a, type, bytes), false, type, &n_other, &as, &ignored))
        return 0;
    double scale = bytes == UINT64_MAX ? 1 : (double)bytes / NTX_MAX(file_bytes(&as), 1);
    scale = scale > 0.25 && scale < 4 ? scale : 1;
    struct ntx_place_request r = {.plan = {.ram_bytes = (uint64_t)((double)a->place.ram / scale),
                                           .ctx = a->place.ctx,
                                           .kv_type = a->place.kv_type,
                                           .prefetch = true,
                                           .multiply = NTX_MULTIPLY_BEST}};
    bool known = !ntx_place(&a->hw, &as, &r, &l, &ignored) && l.predicted && l.decode.pass_s > 0;
    if (known)
        *streamed = (double)l.bytes[NTX_TIER_STORAGE] / (double)NTX_MAX(ntx_outline_model_bytes(&as), 1u);
    ntx_outline_free(&as);
    return known ? 1 / (l.decode.pass_s * scale) : 0;
}

double ntx__plan_size_rate(const struct ntx_hw *hw, uint64_t ram, uint64_t bytes, double *streamed)
{
    double memory = ntx_hw_ram_bps(hw, hw->threads), drive = ntx_hw_stream_bps(hw, 524288);
    double held = (double)NTX_MIN(ram, bytes), rest = (double)bytes - held;
    *streamed = bytes ? rest / (double)bytes : 0;
    if (bytes == UINT64_MAX || !bytes || memory <= 0 || (rest > 0 && drive <= 0))
        return 0;
    return 1 / NTX_MAX((double)bytes / memory, rest > 0 ? rest / drive : 0);
}
