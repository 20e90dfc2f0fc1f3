/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h: what `ntx bench` measured, and the forms in which it is told.
 *
 * A run is one request: a prompt of so many tokens, then so many generated ones. Its rates are of two tests, named as
 * llama-bench names them: "pp512" (reading a prompt) and "tg32 @ d512" (writing behind 512 tokens). */
#ifndef NTX_CLIENT_COMMANDS_BENCH_H
#define NTX_CLIENT_COMMANDS_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/commands/commands.h"

#define NTX_BENCH_RUNS 64

enum ntx_figure { NTX_FIG_PREFILL, NTX_FIG_DECODE, NTX_FIG_TTFT, NTX_FIG_IO, NTX_FIG_BYTES, NTX_N_FIGURES };
extern const char *const ntx_figure_name[NTX_N_FIGURES]; /* as in the statistics */

struct ntx_bench_case { /* of all its runs */
    uint32_t prompt, write;
    bool reads, writes; /* which tests it is for */
    unsigned runs;
    double v[NTX_N_FIGURES][NTX_BENCH_RUNS];
    json_t *last; /* statistics of the last one */
};

/* --json: an object for each case, the statistics with medians, least and greatest. Owned by the caller. */
json_t *ntx_bench_object(const struct ntx_bench_case *c);
/* A row for each test, in the form md, csv or json. */
void ntx_bench_report(const char *form, const struct ntx_bench_case *c, unsigned n, const struct ntx_gguf *g);

#endif
