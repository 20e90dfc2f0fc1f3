/* share.c: rows in proportion, in whole slices, at least one slice each; and parts that take the same time. */
#include "model/share.h"

#include "common/util.h"

#define LEAST_SLICES 4u /* for each machine, or the matrix is not worth a message */

bool ntx_share_deals(const struct ntx_share *s, uint32_t n_out)
{
    return s && s->n > 1 && n_out / NTX_SHARE_UNIT >= LEAST_SLICES * s->n;
}

/* The first row of a rank's; n_out for the one behind the last. */
static uint32_t begin(const struct ntx_share *s, uint32_t n_out, uint32_t rank)
{
    uint64_t before = 0, all = 0, slices = n_out / NTX_SHARE_UNIT;
    if (rank >= s->n)
        return n_out;
    for (uint32_t i = 0; i < s->n; i++) {
        before += i < rank ? s->part[i] : 0;
        all += s->part[i];
    }
    uint64_t more = slices - s->n; /* than the one that each has at least */
    uint64_t at = rank + (all ? before * more / all : rank * more / s->n);
    return (uint32_t)at * NTX_SHARE_UNIT;
}

struct ntx_share_rows ntx_share_of(const struct ntx_share *s, uint32_t n_out, uint32_t rank)
{
    if (!ntx_share_deals(s, n_out))
        return (struct ntx_share_rows){0, rank ? 0 : n_out};
    uint32_t row0 = begin(s, n_out, rank);
    return (struct ntx_share_rows){row0, begin(s, n_out, rank + 1) - row0};
}

/* Bytes that a machine gets through in t seconds. */
static double bytes_in(const struct ntx_share_machine *m, double t) { return NTX_MIN(t * m->memory, m->keeps + t * m->drive); }

double ntx_share_even(const struct ntx_share_machine *m, uint32_t n, double bytes, struct ntx_share *out)
{
    double low = 0, high = 0, most = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!(m[i].memory > 0) || !(m[i].drive > 0) || !(m[i].keeps >= 0))
            return 0;
    for (uint32_t i = 0; i < n; i++)
        high = NTX_MAX(high, bytes / NTX_MIN(m[i].memory, m[i].drive));
    for (int step = 0; step < 100; step++) {
        double t = (low + high) / 2, sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += bytes_in(&m[i], t);
        *(sum < bytes ? &low : &high) = t;
    }
    for (uint32_t i = 0; i < n; i++)
        most = NTX_MAX(most, bytes_in(&m[i], high));
    out->n = n;
    for (uint32_t i = 0; i < n; i++)
        out->part[i] = (uint32_t)(1e6 * NTX_MAX(bytes_in(&m[i], high) / most, 0.01));
    return high;
}
