/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h: the results of `ntx bench` and the forms in which they are printed. A run is one request: a prompt of
 * some tokens, then some generated tokens. Its two rates are those of two tests, named as llama-bench names them:
 * "pp512" (read a prompt of 512 tokens) and "tg32 @ d512" (generate 32 tokens after 512). */
#ifndef NTX_CLIENT_COMMANDS_BENCH_H
#define NTX_CLIENT_COMMANDS_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/commands/commands.h"

#define NTX_BENCH_RUNS 64

enum ntx_figure { NTX_FIG_PREFILL, NTX_FIG_DECODE, NTX_FIG_TTFT, NTX_FIG_IO, NTX_FIG_BYTES, NTX_N_FIGURES };
extern const char *const ntx_figure_name[NTX_N_FIGURES]; /* the keys in the statistics */

struct ntx_bench_case { /* one case with all its runs */
    uint32_t prompt, write;
    bool reads, writes; /* which of the two tests are reported */
    unsigned runs;
    double v[NTX_N_FIGURES][NTX_BENCH_RUNS];
    json_t *last; /* statistics of the last run */
};

/* For --json: an object for each case, with median, least and greatest of each figure. The caller owns it. */
json_t *ntx_bench_object(const struct ntx_bench_case *c);
/* Prints a row for each test, in the form md, csv or json. */
void ntx_bench_report(const char *form, const struct ntx_bench_case *c, unsigned n, const struct ntx_gguf *g);

#endif
