/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c: CPU seconds of a Mamba-2 layer's products and of its scan, for a prompt: the shapes of Nemotron 3 Super
 * (default) or of any layer: scan [EMBD HEADS HEAD STATE GROUPS [ROWS]]. One thread, Q4_K weights as the drive brings
 * them. The sides alternate; the least of several rounds counts. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "computed/cpu/cpu.h"
#include "common/util.h"
#include "model/quant.h"

enum { PANEL = 32, ROUNDS = 5, AT_ONCE = 512 /* outputs */ };

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec / 1e6;
}

struct shape {
    uint32_t embd, heads, head, state, groups, rows;
};

static float *some_floats(size_t n)
{
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; x && i < n; i++)
        x[i] = (float)(i * 2654435761u % 1000) / 1000 - 0.5f;
    return x;
}

/* Seconds of a product with n_out outputs. */
static double product_seconds(const struct ntx_cpu_ops *ops, uint32_t n_in, uint32_t n_out, uint32_t rows,
                              const float *x, float *y)
{
    const struct ntx_type_info *t = ntx_type_info(NTX_Q4_K);
    const enum ntx_act form = ntx_act_for(NTX_Q4_K);
    const size_t row = (size_t)n_in / t->block * t->block_bytes, stride = ntx_act_row_bytes(form, n_in);
    uint8_t *w = calloc(n_out, row), *q = aligned_alloc(64, rows * stride);
    double from = 0;
    if (w && q) {
        for (uint32_t r = 0; r < rows; r++)
            ops->act_quantize[form](x, q + r * stride, n_in);
        from = cpu_seconds();
        for (uint32_t o = 0; o < n_out; o += AT_ONCE)
            ops->matmul[NTX_Q4_K](w + o * row, row, NTX_MIN(n_out - o, (uint32_t)AT_ONCE), n_in, q, stride, rows, y,
                                  AT_ONCE);
        from = cpu_seconds() - from;
    }
    free(w), free(q);
    return from;
}

/* Seconds of the scan of all heads, panel by panel, each over all rows. */
static double scan_seconds(const struct ntx_cpu_ops *ops, const struct shape *s, const float *x, float *states)
{
    float out[PANEL], seen[PANEL], d[PANEL];
    const double from = cpu_seconds();
    for (uint32_t p = 0; p < s->heads * s->head / PANEL; p++) {
        float *state = states + (size_t)p * PANEL * s->state;
        for (uint32_t r = 0; r < s->rows; r++) {
            for (uint32_t i = 0; i < PANEL; i++)
                d[i] = 0.1f * x[i];
            ops->delta(&(struct ntx_delta_net){.from = state,
                                               .to = state,
                                               .n_keys = s->state,
                                               .n_values = PANEL,
                                               .decay = 0.9f,
                                               .k = x,
                                               .q = x + s->state,
                                               .next_k = x,
                                               .d = d,
                                               .out = out,
                                               .seen = seen});
        }
    }
    return cpu_seconds() - from;
}

int main(int argc, char **argv)
{
    struct shape s = {4096, 128, 64, 128, 8, 256};
    uint32_t *const number[] = {&s.embd, &s.heads, &s.head, &s.state, &s.groups, &s.rows};
    for (int i = 1; i < argc && i <= 6; i++)
        *number[i - 1] = (uint32_t)strtoul(argv[i], NULL, 10);
    const struct ntx_cpu_ops *ops = ntx_cpu_pick(NULL);
    const uint32_t inner = s.heads * s.head, in = 2 * inner + 2 * s.groups * s.state + s.heads;
    float *x = some_floats(NTX_MAX(NTX_MAX(s.embd, inner), 2 * s.state)), *y = some_floats((size_t)s.rows * AT_ONCE),
          *states = calloc((size_t)inner * s.state, sizeof *states);
    double products = 1e9, scans = 1e9;
    if (!x || !y || !states || s.embd % 256 || inner % 256 || s.head % PANEL)
        return 1;
    for (int i = 0; i < ROUNDS; i++) {
        const double made = product_seconds(ops, s.embd, in, s.rows, x, y) +
                            product_seconds(ops, inner, s.embd, s.rows, x, y);
        products = NTX_MIN(products, made);
        scans = NTX_MIN(scans, scan_seconds(ops, &s, x, states));
    }
    printf("%s, %u rows: products %.1f us a row, scan %.1f us a row: the layer takes %.2f of its products\n", ops->name,
           s.rows, products / s.rows * 1e6, scans / s.rows * 1e6, 1 + scans / products);
    free(x), free(y), free(states);
    return 0;
}
