/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/gap.h"

#include <math.h>

#include "common/util.h"

#define FORGET     0.8  /* weight of the passes before */
#define BASE_FRESH 0.2  /* weight of the latest pass in `base` */
#define BASE_EVERY 64u  /* passes beside answers after which base is measured again */
#define FIRST      8u   /* rows of the first pass, while nothing is known */
#define FIRST_MOST 64u  /* likewise, once the cost of rows is known */
#define DISTINCT   1e-3 /* least relative determinant for which both costs are told apart */

void ntx_gap_begin(struct ntx_gap *g, double seconds)
{
    *g = (struct ntx_gap){.target = (seconds > 0 ? seconds : NTX_GAP_S) * 1e9};
    if (seconds >= NTX_GAP_NEVER)
        g->target = 0;
}

/* Rows whose predicted time is `room` ns, from the position `depth` on: row p + deep (p depth + p^2 / 2) = room. */
static double affordable_rows(const struct ntx_gap *g, double depth, double room)
{
    double b = g->row + g->deep * depth, root = b + sqrt(b * b + 2 * g->deep * room);
    return root > 0 ? 2 * room / root : HUGE_VAL;
}

uint32_t ntx_gap_rows(struct ntx_gap *g, double depth, uint32_t most)
{
    if (!g->target)
        return most;
    g->allowed = 0;
    if (!g->base || g->since >= BASE_EVERY)
        return 0;
    double target = NTX_MAX(g->target, 2 * g->base), rows = affordable_rows(g, depth, target - g->base);
    uint32_t first = g->rr > 0 ? FIRST_MOST : FIRST, limit = g->last ? 2 * g->last : first;
    limit = NTX_MIN(limit, most);
    g->allowed = rows < limit ? (uint32_t)NTX_MAX(rows, 1.0) : limit;
    return g->allowed;
}

/* Least squares through the origin, a pass weighted by 1 / its rows. Where all passes had their rows at one depth,
 * `deep` stays as it was. */
static void fit_costs(struct ntx_gap *g)
{
    double det = g->rr * g->dd - g->rd * g->rd;
    if (det > DISTINCT * g->rr * g->dd)
        g->deep = NTX_MAX((g->rr * g->dy - g->rd * g->ry) / det, 0.0);
    g->row = (g->ry - g->deep * g->rd) / g->rr;
    if (g->row < 0) {
        g->row = 0;
        g->deep = g->dd > 0 ? NTX_MAX(g->dy / g->dd, 0.0) : 0;
    }
}

void ntx_gap_pass(struct ntx_gap *g, uint32_t rows, double depths, bool answers, double ns)
{
    if (!g->target)
        return;
    if (!rows) {
        g->base = g->base > 0 ? g->base + BASE_FRESH * (ns - g->base) : ns;
        g->since = 0;
        return;
    }
    double y = ns - g->base;
    g->since += answers;
    g->rr = FORGET * g->rr + rows;
    g->rd = FORGET * g->rd + depths;
    g->dd = FORGET * g->dd + depths * depths / rows;
    g->ry = FORGET * g->ry + y;
    g->dy = FORGET * g->dy + depths * y / rows;
    fit_costs(g);
    /* the end of a prompt has fewer rows than it might have, and says nothing of the next prompt */
    if (answers && (rows == g->allowed || g->allowed < g->last))
        g->last = g->allowed;
}
