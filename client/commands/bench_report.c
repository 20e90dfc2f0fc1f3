/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/commands/bench.h"
#include "client/commands/plan.h"
#include "client/out.h"
#include "common/util.h"
#include "model/quant.h"

const char *const ntx_figure_name[NTX_N_FIGURES] = {"prefill_tok_s", "decode_tok_s", "ttft_s", "io_gb_s",
                                                    "bytes_read_per_token"};

struct summary {
    double mean, deviation, median, least, greatest;
};

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct summary summarize(const double *values, unsigned n)
{
    double v[NTX_BENCH_RUNS], sum = 0, squares = 0;
    memcpy(v, values, n * sizeof *v);
    qsort(v, n, sizeof *v, compare_doubles);
    for (unsigned i = 0; i < n; i++)
        sum += v[i];
    for (unsigned i = 0; i < n; i++)
        squares += (v[i] - sum / n) * (v[i] - sum / n);
    return (struct summary){sum / n, n > 1 ? sqrt(squares / (n - 1)) : 0,
                            n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2, v[0], v[n - 1]};
}

json_t *ntx_bench_object(const struct ntx_bench_case *c)
{
    json_t *j = json_copy(c->last);
    for (unsigned k = 0; k < NTX_N_FIGURES; k++) {
        char name[64];
        if (k == NTX_FIG_DECODE && c->write < 2) { /* a single token comes with its prompt and has no rate */
            json_object_del(j, ntx_figure_name[k]);
            continue;
        }
        struct summary s = summarize(c->v[k], c->runs);
        json_object_set_new(j, ntx_figure_name[k], json_real(s.median));
        snprintf(name, sizeof name, "%s_min", ntx_figure_name[k]);
        json_object_set_new(j, name, json_real(s.least));
        snprintf(name, sizeof name, "%s_max", ntx_figure_name[k]);
        json_object_set_new(j, name, json_real(s.greatest));
    }
    json_object_set_new(j, "runs", json_integer(c->runs));
    char busy[300];
    if (ntx_plan_busy(json_number_value(json_object_get(j, "profile_load")), busy, sizeof busy))
        json_object_set_new(j, "warning", json_string(busy));
    return j;
}

/* The file's own name of its type (general.file_type, in ggml's numbers), else the type of most of its bytes. */
static const char *type_of(const struct ntx_gguf *g)
{
    static const char *const names[] = {
        [0] = "F32",     [1] = "F16",     [2] = "Q4_0",    [3] = "Q4_1",    [7] = "Q8_0",    [8] = "Q5_0",
        [9] = "Q5_1",    [10] = "Q2_K",   [11] = "Q3_K_S", [12] = "Q3_K_M", [13] = "Q3_K_L", [14] = "Q4_K_S",
        [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M", [18] = "Q6_K",   [32] = "BF16",   [38] = "MXFP4"};
    uint64_t type, bytes[NTX_TYPE_LIMIT] = {0};
    unsigned most = 0;
    if (!ntx_gguf_u64(g, "general.file_type", &type) && type < sizeof names / sizeof *names && names[type])
        return names[type];
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(g); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(g, i);
        bytes[t->type] += t->bytes;
    }
    for (unsigned i = 0; i < NTX_TYPE_LIMIT; i++)
        most = bytes[i] > bytes[most] ? i : most;
    return ntx_type_info(most)->name;
}

/* One test as an object; all forms are printed from it. */
static json_t *make_row(const struct ntx_bench_case *c, bool writes, const char *type)
{
    char test[48];
    const double *v = c->v[writes ? NTX_FIG_DECODE : NTX_FIG_PREFILL];
    struct summary s = summarize(v, c->runs);
    double bytes = writes ? summarize(c->v[NTX_FIG_BYTES], c->runs).median : 0;
    snprintf(test, sizeof test, writes ? "tg%u @ d%u" : "pp%u", writes ? c->write : c->prompt, c->prompt);
    json_t *samples = json_array(), *j = json_object();
    for (unsigned i = 0; i < c->runs; i++)
        json_array_append_new(samples, json_real(v[i]));
    static const char *const same[] = {"model", "bytes_model", "backend", "threads", "commit"};
    for (unsigned i = 0; i < sizeof same / sizeof *same; i++)
        json_object_set(j, same[i], json_object_get(c->last, same[i]));
    json_object_update_missing_new(
        j, json_pack("{s:s,s:s,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:o,s:f,s:f}", "type", type, "test", test, "prompt_tokens",
                     (json_int_t)c->prompt, "generated_tokens", (json_int_t)(writes ? c->write : 0), "tok_s", s.mean,
                     "tok_s_stddev", s.deviation, "tok_s_median", s.median, "tok_s_min", s.least, "tok_s_max",
                     s.greatest, "tok_s_samples", samples, "bytes_read_per_token", bytes, "io_gb_s",
                     summarize(c->v[NTX_FIG_IO], c->runs).median));
    return j;
}

static const char *row_text(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

static double row_number(const json_t *j, const char *key) { return json_number_value(json_object_get(j, key)); }

static void print_md(const json_t *rows)
{
    size_t i;
    json_t *j;
    int wide = 5;
    json_array_foreach(rows, i, j)
        wide = NTX_MAX(wide, (int)NTX_MIN(strlen(row_text(j, "model")), (size_t)40));
    printf("| %-*s | %10s | %-6s | %-7s | %7s | %15s | %22s |\n", wide, "model", "size", "type", "backend", "threads",
           "test", "tok/s");
    printf("| %.*s | ---------: | ------ | ------- | ------: | --------------: | ---------------------: |\n", wide,
           "----------------------------------------");
    json_array_foreach(rows, i, j) {
        char size[32], rate[64];
        int digits = row_number(j, "tok_s") < 1 ? 4 : 2;
        snprintf(rate, sizeof rate, "%.*f ± %.*f", digits, row_number(j, "tok_s"), digits,
                 row_number(j, "tok_s_stddev"));
        ntx_out_format("| %-*.40s | %10s | %-6s | %-7s | %7.0f | %15s | %23s |\n", wide, row_text(j, "model"),
                       ntx_format_size((uint64_t)row_number(j, "bytes_model"), size, sizeof size), row_text(j, "type"),
                       row_text(j, "backend"), row_number(j, "threads"), row_text(j, "test"),
                       rate); /* ± has two bytes */
    }
    json_array_foreach(rows, i, j)
        if (row_number(j, "bytes_read_per_token") >= 1e5)
            printf("\n%s: %.1f MB read per token at %.2f GB/s", row_text(j, "test"),
                   row_number(j, "bytes_read_per_token") / 1e6, row_number(j, "io_gb_s"));
    if (json_array_size(rows) &&
        row_number(json_array_get(rows, json_array_size(rows) - 1), "bytes_read_per_token") >= 1e5)
        putchar('\n');
}

/* Texts are quoted as in RFC 4180, numbers are not. */
static void print_field(const json_t *v)
{
    if (json_is_integer(v)) {
        printf("%lld", (long long)json_integer_value(v));
    } else if (!json_is_string(v)) {
        printf("%.9g", json_number_value(v));
    } else {
        putchar('"');
        for (const char *p = json_string_value(v); *p; p++)
            fputs(*p == '"' ? "\"\"" : (char[]){*p, 0}, stdout);
        putchar('"');
    }
}

static void print_csv(const json_t *rows)
{
    size_t i, n;
    json_t *j, *v;
    const char *key;
    json_array_foreach(rows, i, j) {
        n = 0;
        if (!i) {
            json_object_foreach(j, key, v)
                if (!json_is_array(v))
                    printf("%s%s", n++ ? "," : "", key);
            putchar('\n');
            n = 0;
        }
        json_object_foreach(j, key, v) {
            if (json_is_array(v))
                continue;
            if (n++)
                putchar(',');
            print_field(v);
        }
        putchar('\n');
    }
}

void ntx_bench_report(const char *form, const struct ntx_bench_case *c, unsigned n, const struct ntx_gguf *g)
{
    json_t *rows = json_array();
    for (unsigned i = 0; i < n; i++)
        if (c[i].reads)
            json_array_append_new(rows, make_row(&c[i], false, type_of(g)));
    for (unsigned i = 0; i < n; i++)
        if (c[i].writes)
            json_array_append_new(rows, make_row(&c[i], true, type_of(g)));
    if (!strcmp(form, "csv"))
        print_csv(rows);
    else if (!strcmp(form, "json"))
        ntx_out_json(rows, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    else
        print_md(rows);
    json_decref(rows);
}
