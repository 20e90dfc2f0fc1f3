/* SPDX-License-Identifier: Apache-2.0 */
/* scan_each.c: CPU seconds of a Mamba-1 scan, by the kernel and by plain C: Jamba 1.5 Mini's shape (8,192 values, a
 * state of 16 each) or scan_each [VALUES STATE [ROWS]]. One thread. The sides alternate; the least of several rounds
 * counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/util.h"
#include "computed/cpu/cpu.h"

enum { PANEL = 16, ROUNDS = 7, STATE_MOST = 256 };

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec / 1e6;
}

/* As before the kernel: exponentials of the whole panel, then the states. */
static void scan_plain(const struct ntx_cpu_ops *ops, const struct ntx_scan_each *a)
{
    float keeps[STATE_MOST * PANEL];
    for (uint32_t k = 0; k < a->n_keys; k++)
        for (uint32_t i = 0; i < PANEL; i++)
            keeps[k * PANEL + i] = a->t[i] * a->rates[k * PANEL + i];
    ops->exp_of(keeps, 0, a->n_keys * PANEL);
    memset(a->out, 0, PANEL * sizeof *a->out);
    for (uint32_t k = 0; k < a->n_keys; k++)
        for (uint32_t i = 0; i < PANEL; i++) {
            const float v = keeps[k * PANEL + i] * a->from[k * PANEL + i] + a->b[k] * a->tx[i];
            a->to[k * PANEL + i] = v;
            a->out[i] += v * a->c[k];
        }
}

static double seconds(const struct ntx_cpu_ops *ops, bool plain, struct ntx_scan_each *a, uint32_t panels,
                      uint32_t rows, float *states)
{
    const double from = cpu_seconds();
    for (uint32_t p = 0; p < panels; p++)
        for (uint32_t r = 0; r < rows; r++) {
            a->from = a->to = states + (size_t)p * a->n_keys * PANEL;
            if (plain)
                scan_plain(ops, a);
            else
                ops->scan_each(a);
        }
    return cpu_seconds() - from;
}

int main(int argc, char **argv)
{
    uint32_t values = 8192, keys = 16, rows = 256;
    uint32_t *const number[] = {&values, &keys, &rows};
    for (int i = 1; i < argc && i <= 3; i++)
        *number[i - 1] = (uint32_t)strtoul(argv[i], NULL, 10);
    const uint32_t panels = values / PANEL;
    const struct ntx_cpu_ops *ops = ntx_cpu_pick(NULL);
    float *x = malloc((size_t)(keys + 4) * PANEL * sizeof *x), *states = calloc((size_t)values * keys, sizeof *states),
          out[PANEL];
    double best[2] = {1e9, 1e9};
    if (!ops || !x || !states || !panels || !keys || keys > STATE_MOST || !rows)
        return 1;
    for (uint32_t i = 0; i < (keys + 4) * PANEL; i++)
        x[i] = (float)(i * 2654435761u % 1000) / 1000 - 1;
    struct ntx_scan_each a = {.t = states, .tx = x, .rates = x + PANEL, .b = x, .c = x + 7, .out = out, .n_keys = keys};
    float t[PANEL];
    for (uint32_t i = 0; i < PANEL; i++)
        t[i] = 0.1f + (float)i / 64;
    a.t = t;
    for (int round = 0; round < ROUNDS; round++)
        for (int plain = 0; plain < 2; plain++)
            best[plain] = NTX_MIN(best[plain], seconds(ops, plain, &a, panels, rows, states));
    printf("%s, %u values, %u keys, %u rows: kernel %.1f us a row, plain %.1f, ratio %.2f\n", ops->name, values, keys,
           rows, best[0] / rows * 1e6, best[1] / rows * 1e6, best[0] / best[1]);
    free(x), free(states);
    return 0;
}
