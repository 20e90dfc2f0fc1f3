/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/monitor.h"

const struct ntx_hist_info ntx_hist_info[NTX_N_HISTOGRAMS] = {
#define X(name, first, unit, help) {#name, unit, help, first},
    NTX_HISTOGRAMS(X)
#undef X
};

#define X(name, text) text,
const char *const ntx_mon_service_name[NTX_MON_N_SERVICES] = {NTX_MON_SERVICES(X)};
const char *const ntx_mon_part_name[NTX_MON_N_PARTS] = {NTX_MON_PARTS(X)};
#undef X

uint64_t ntx_hist_bound(enum ntx_histogram h, unsigned i)
{
    static const uint64_t tenths[] = {10, 25, 50};
    uint64_t v = ntx_hist_info[h].first * tenths[i % 3];
    for (unsigned k = i / 3; k; k--)
        v *= 10;
    return v / 10;
}

void ntx_hist_add(struct ntx_hist *h, enum ntx_histogram which, uint64_t value)
{
    unsigned i = 0;
    while (i < NTX_HIST_BOUNDS && value > ntx_hist_bound(which, i))
        i++;
    atomic_fetch_add_explicit(&h->sum, value, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->bucket[i], 1, memory_order_relaxed);
}

static uint64_t load_bucket(const struct ntx_hist *h, unsigned i)
{
    return atomic_load_explicit(&((struct ntx_hist *)(uintptr_t)h)->bucket[i], memory_order_relaxed);
}

uint64_t ntx_hist_count(const struct ntx_hist *h)
{
    uint64_t n = 0;
    for (unsigned i = 0; i <= NTX_HIST_BOUNDS; i++)
        n += load_bucket(h, i);
    return n;
}

double ntx_hist_quantile(const struct ntx_hist *h, enum ntx_histogram which, double q)
{
    double want = q * (double)ntx_hist_count(h), seen = 0;
    for (unsigned i = 0; want > 0 && i < NTX_HIST_BOUNDS; i++) {
        double here = (double)load_bucket(h, i), low = i ? (double)ntx_hist_bound(which, i - 1) : 0,
               high = (double)ntx_hist_bound(which, i);
        if (here > 0 && seen + here >= want)
            return (low + (high - low) * (want - seen) / here) / 1e6;
        seen += here;
    }
    return want > 0 ? (double)ntx_hist_bound(which, NTX_HIST_BOUNDS - 1) / 1e6 : 0;
}
