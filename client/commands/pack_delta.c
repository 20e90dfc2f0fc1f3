/* SPDX-License-Identifier: Apache-2.0 */
/* ntx pack --delta MODEL OUT: a base and layer deltas (client/delta/make.h). */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/commands/pack.h"
#include "client/delta/make.h"
#include "client/interrupt.h"
#include "client/out.h"
#include "client/progress.h"
#include "common/util.h"

#define ERROR_OF_LAYERS 0.1
#define ERROR_OF_TUNED  0.2

static void show_progress(void *ctx, uint32_t done, uint32_t total)
{
    ntx_progress_say(ctx, "%u of %u matrices", done, total);
}

static void report_json(const struct ntx_delta_report *r)
{
    json_t *j = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:f, s:f}",
                          "matrices", (int)r->n_matrices, "low_rank", (int)r->n_low, "few_bits", (int)r->n_typed,
                          "equal", (int)r->n_equal, "rank_least", (int)r->rank_least, "rank_most", (int)r->rank_most,
                          "layers", (int)r->n_layers, "distinct_layers", (int)r->n_distinct, "bytes",
                          (json_int_t)r->bytes, "alone_bytes", (json_int_t)r->alone_bytes, "base_bytes",
                          (json_int_t)r->base_bytes, "delta_bytes", (json_int_t)r->delta_bytes, "error", r->error,
                          "error_worst", r->worst, "worst", r->worst_name, "change", r->change, "rest", r->rest);
    ntx_out_json(j, JSON_COMPACT);
    json_decref(j);
}

static void report_text(const struct ntx_delta_report *r, bool tuned)
{
    char bytes[32], base[32], delta[32];
    ntx_format_size(r->bytes, bytes, sizeof bytes);
    ntx_format_size(r->base_bytes, base, sizeof base);
    ntx_format_size(r->delta_bytes, delta, sizeof delta);
    if (r->n_distinct < r->n_layers) {
        printf("%u layers are %u: their matrices take %s instead of %s, and nothing is lost\n", r->n_layers,
               r->n_distinct, base, bytes);
        return;
    }
    printf("%u matrices of %s: %s of differences, beside %s of %s that stay in memory\n", r->n_matrices, bytes, delta,
           base, tuned ? "the base's" : "bases");
    printf("%u by thin matrices of rank %u to %u, %u in few bits, %u by the base alone\n", r->n_low, r->rank_least,
           r->rank_most, r->n_typed, r->n_equal);
    if (tuned)
        ntx_out_format("the fine-tune differs by %.4f of the matrices' size; of that %.4f is lost; worst %.4f, %s\n",
                       r->change, r->error, r->worst, *r->worst_name ? r->worst_name : "none");
    else
        ntx_out_format("lost: %.4f of the matrices' size; worst %.4f, %s\n", r->error, r->worst,
                       *r->worst_name ? r->worst_name : "none");
    if (tuned && r->rest > 0)
        ntx_out_format("left as in the base: tensors outside of attention and FFN; they differ by %.5f at most, %s\n",
                       r->rest, r->rest_name);
}

int ntx__pack_delta(const struct ntx_options *o, const struct ntx_model_files *f, const struct ntx_model *m,
                    struct ntx_err *err)
{
    struct ntx_model_files base = {0};
    struct ntx_progress line = ntx_progress_begin(o);
    struct ntx_delta_report r;
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    struct ntx_delta_options q = {.rank = o->delta_rank,
                                  .error = o->delta_base ? ERROR_OF_TUNED : ERROR_OF_LAYERS,
                                  .force = o->force,
                                  .threads = (uint32_t)NTX_MAX(cpus, 1),
                                  .progress = show_progress,
                                  .ctx = &line,
                                  .stop = ntx_interrupt_catch()};
    if (o->delta_error > 0)
        q.error = (double)o->delta_error;
    int rc = o->delta_base ? ntx_model_files_open(o, o->delta_base, &base, err) : 0;
    if (!rc && o->delta_base)
        q.base = (struct ntx_delta_source){base.gguf, base.fds};
    if (!rc)
        rc = ntx_delta_make(m, f->fds, o->args[1], &q, &r, err);
    ntx_progress_clear(&line);
    ntx_model_files_close(&base);
    if (rc && *q.stop)
        return ntx_interrupt_end();
    if (!rc && o->json)
        report_json(&r);
    else if (!rc && !o->quiet)
        report_text(&r, o->delta_base);
    return rc;
}
