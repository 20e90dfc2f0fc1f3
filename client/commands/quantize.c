/* SPDX-License-Identifier: Apache-2.0 */
/* ntx quantize: rewrites a model in other types (client/quantize/job.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/interrupt.h"
#include "client/out.h"
#include "client/progress.h"
#include "client/quantize/job.h"
#include "common/nearest.h"
#include "common/util.h"
#include "model/arch.h"
#include "model/kind.h"
#include "model/quant.h"
#include "model/share_file.h"

#define TELL_EVERY_NS 100000000u

struct told {
    const struct ntx_options *o;
    struct ntx_progress line;
    uint64_t began, last;
    json_t *tensors; /* for --json */
};

static void show_progress(void *ctx, const struct ntx_quantize_progress *p)
{
    struct told *t = ctx;
    char done[32], total[32];
    uint64_t now = ntx_now_ns();
    if (now - t->last < TELL_EVERY_NS)
        return;
    t->last = now;
    if (p->looking) {
        t->began = now;
        ntx_progress_say(&t->line, "looking at %s, %llu of %llu", p->name, (unsigned long long)p->done + 1,
                         (unsigned long long)p->total);
        return;
    }
    double left = p->done ? (double)(now - t->began) * 1e-9 * (double)(p->total - p->done) / (double)p->done : 0;
    ntx_progress_say(&t->line, "tensor %u of %u, %s of %s, %.0f %s left", p->tensor + 1, p->n_tensors,
                     ntx_format_size(p->done, done, sizeof done), ntx_format_size(p->total, total, sizeof total),
                     left < 120 ? left : left / 60, left < 120 ? "s" : "min");
}

static void on_type(void *ctx, const struct ntx_gguf_tensor *t, uint32_t type, double error)
{
    struct told *k = ctx;
    const char *from = ntx_type_info(t->type)->name, *to = ntx_type_info(type)->name;
    if (k->tensors) {
        json_t *j = json_pack("{s:s, s:s, s:s}", "name", t->name, "from", from, "type", to);
        if (error >= 0)
            json_object_set_new(j, "error", json_real(error));
        json_array_append_new(k->tensors, j);
    } else if (k->o->verbose || k->o->dry_run) {
        ntx_progress_clear(&k->line);
        printf("%-40s %-8s %-8s", t->name, from, to);
        printf(error >= 0 ? " %.5f\n" : "\n", error);
    }
}

static int read_fit(const char *text, uint64_t *bytes, struct ntx_err *err)
{
    static const struct ntx_setting size = {.name = "fit", .kind = NTX_SET_SIZE};
    struct ntx_err why = {0};
    int rc = ntx_setting_read(&size, text, bytes, &why);
    return rc ? ntx_err_set(err, rc, "fit:SIZE: %s", why.text) : 0;
}

/* Reads TYPE. */
static int take_type(const char *type, struct ntx_quantize_options *q, struct ntx_err *err)
{
    char names[1024];
    if (!strncasecmp(type, "fit:", 4))
        return read_fit(type + 4, &q->fit, err);
    if ((q->mix = ntx_mix_named(type)))
        return 0;
    struct ntx_near near;
    ntx_mix_names(names, sizeof names);
    ntx_near_begin(&near, type, "");
    ntx_near_offer_list(&near, names);
    return ntx_err_set(err, -EINVAL, "'%.40s' is no type; there are fit:SIZE, %s%s", type, names, near.hint);
}

/* Reads "REGEX=TYPE"; the last '=' separates them. */
static int take_rules(const struct ntx_options *o, struct ntx_quantize_options *q, char *patterns[],
                      struct ntx_err *err)
{
    for (unsigned i = 0; i < o->n_tensors; i++) {
        const char *at = strrchr(o->tensors[i], '=');
        uint32_t type = at ? ntx_writable_type(at + 1) : NTX_TYPE_LIMIT;
        if (!at || at == o->tensors[i] || type == NTX_TYPE_LIMIT)
            return ntx_err_set(err, -EINVAL, "--tensor '%s': write it as REGEX=TYPE, such as 'attn_v=Q6_K'",
                               o->tensors[i]);
        if (!(patterns[i] = strndup(o->tensors[i], (size_t)(at - o->tensors[i]))))
            return ntx_err_set(err, -ENOMEM, "no memory");
        q->rules[q->n_rules++] = (struct ntx_quantize_rule){patterns[i], type};
    }
    return 0;
}

static void report_json(const struct ntx_quantize_report *r, struct told *t)
{
    json_t *j = json_pack("{s:I, s:I, s:f, s:f, s:s, s:f, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o}", "bytes_in",
                          (json_int_t)r->bytes_in, "bytes_out", (json_int_t)r->bytes_out, "bits_per_weight",
                          (double)r->bytes_out * 8 / (double)NTX_MAX(r->values, 1u), "error", r->error, "worst_tensor",
                          r->worst_name, "worst_error", r->worst, "parts", (int)r->parts, "other_types",
                          (int)r->n_other, "lossy_twice", (int)r->n_twice, "without_importance", (int)r->n_unknown,
                          "unseen_experts", (int)r->n_unseen, "experts", (int)r->n_experts, "nextn", (int)r->n_nextn,
                          "tensors", json_incref(t->tensors));
    ntx_out_json(j, JSON_COMPACT);
    json_decref(j);
}

static void print_quantize_report(const struct ntx_options *o, const struct ntx_quantize_report *r)
{
    char in[32], out[32];
    printf("%s to %s, %.2f bits per weight", ntx_format_size(r->bytes_in, in, sizeof in),
           ntx_format_size(r->bytes_out, out, sizeof out), (double)r->bytes_out * 8 / (double)NTX_MAX(r->values, 1u));
    if (r->parts > 1)
        printf(", in %u parts", r->parts);
    puts(o->dry_run ? "; nothing was written" : "");
    if (r->error > 0)
        ntx_out_format("relative error %.4f; worst %.4f, %s\n", r->error, r->worst, r->worst_name);
}

static void print_imatrix(const struct ntx_options *o, const struct ntx_imatrix *m)
{
    const char *text = ntx_imatrix_dataset(m);
    if (!o->json)
        ntx_out_format("importance matrix from %u tokens%s%s\n", ntx_imatrix_tokens(m), *text ? " of " : "", text);
    if (ntx_imatrix_tokens(m) < NTX_IMATRIX_FEW)
        ntx_say("%s was made from few tokens: %u; some hundred thousand make a good importance matrix", o->imatrix,
                ntx_imatrix_tokens(m));
}

/* Warnings that the user should read before using the file. */
static void print_warnings(const struct ntx_quantize_report *r)
{
    if (r->n_twice)
        ntx_say("%u tensors were quantised before: their losses add to this one; take the "
                "model in F16 or BF16 where there is one",
                r->n_twice);
    if (r->n_other)
        ntx_say("%u tensors have rows that do not divide into the blocks of their type, and got another one",
                r->n_other);
    if (r->n_unknown)
        ntx_say("of %u tensors the importance matrix says nothing; their values count by their own size", r->n_unknown);
    if (r->n_nextn)
        ntx_say("%u tensors of next-token blocks, which no importance matrix knows, got types of two and three bits "
                "that do without",
                r->n_nextn);
    if (r->n_unseen)
        ntx_say("%u of %u experts were never chosen while the importance matrix was made; their values count by their "
                "own size. A longer text would reach more",
                r->n_unseen, r->n_experts);
}

static uint32_t count_cpus(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return (uint32_t)NTX_MAX(n, 1);
}

/* Files of other kinds are converted, too, if they have matrices: other programs run them. */
static int check_kind(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_err *err)
{
    struct ntx_err why = {0};
    int rc = ntx_head_kind(f->gguf) ? 0 : ntx_kind_refuse(f->gguf, o->args[0], &why);
    if (rc == -EINVAL)
        return ntx_err_set(err, rc, "%s", why.text);
    if (rc && !o->quiet)
        ntx_say("%s", why.text);
    return 0;
}

static int quantize(struct ntx_options *o, struct ntx_quantize_options *q, struct told *t, struct ntx_err *err)
{
    struct ntx_model_files f = {0};
    struct ntx_quantize_report r = {0};
    struct ntx_imatrix *imatrix = NULL;
    int rc = o->imatrix ? ntx_imatrix_read(o->imatrix, &imatrix, err) : 0;
    q->imatrix = imatrix;
    if (!rc && !(rc = ntx_model_files_any(o, o->args[0], &f, err)) && !(rc = check_kind(o, &f, err)) &&
        !(rc = ntx_share_file_refuse(f.gguf, f.names[0], err))) {
        q->stop = ntx_interrupt_catch();
        t->began = ntx_now_ns();
        rc = ntx_quantize_model(f.gguf, f.fds, o->args[1], q, &r, err);
        ntx_progress_clear(&t->line);
    }
    if (!rc && o->json)
        report_json(&r, t);
    else if (!rc && !o->quiet)
        print_quantize_report(o, &r);
    if (!rc && !o->quiet && imatrix)
        print_imatrix(o, imatrix);
    if (!rc && !o->quiet)
        print_warnings(&r);
    ntx_model_files_close(&f);
    ntx_imatrix_free(imatrix);
    return rc;
}

int ntx_cmd_quantize(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct told t = {.o = o, .line = ntx_progress_begin(o), .tensors = o->json ? json_array() : NULL};
    struct ntx_quantize_options q = {.imatrix_path = o->imatrix,
                                     .pure = o->pure,
                                     .dry = o->dry_run,
                                     .split = o->split,
                                     .threads = o->load.threads ? o->load.threads : count_cpus(),
                                     .progress = show_progress,
                                     .on_type = on_type,
                                     .ctx = &t};
    char *patterns[NTX_MAX_TENSORS] = {NULL};
    int rc = take_type(o->args[2], &q, &err);
    if (!rc && !(rc = take_rules(o, &q, patterns, &err)))
        rc = quantize(o, &q, &t, &err);
    for (unsigned i = 0; i < o->n_tensors; i++)
        free(patterns[i]);
    json_decref(t.tensors);
    if (rc && q.stop && *q.stop)
        return ntx_interrupt_end();
    return rc ? ntx_fail(&err) : 0;
}
