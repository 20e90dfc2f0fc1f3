/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/doctor/doctor.h"
#include "client/out.h"
#include "common/util.h"
#include "computed/state/kv.h"
#include "model/quant.h"

static void show_progress(void *ctx, const char *what)
{
    (void)ctx;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[Kmeasuring: %s", what);
}

static void print_kernels(const struct ntx_hw *hw)
{
    puts("kernels, GB/s of weights from memory, and GFLOP/s (interleaved: of those that stay there):");
    for (unsigned i = 0; i < hw->n_kernels; i++) {
        const struct ntx_hw_kernel *k = &hw->kernels[i];
        const struct ntx_type_info *t = ntx_type_info(k->type);
        const struct ntx_hw_kernel *before = i ? k - 1 : NULL, *next = i + 1 < hw->n_kernels ? k + 1 : NULL;
        bool first = !before || before->type != k->type || before->interleaved != k->interleaved,
             last = !next || next->type != k->type || next->interleaved != k->interleaved;
        if (first)
            printf("  %-5s%s", t->name, k->interleaved ? " interleaved" : "            ");
        printf("  %u row%s %6.2f GB/s %5.0f", k->rows, k->rows == 1 ? " " : "s", k->bps / 1e9,
               2.0 * k->rows * t->block / t->block_bytes * k->bps / 1e9);
        if (last)
            putchar('\n');
    }
}

static void print_doctor_report(const struct ntx_doctor_report *r)
{
    const struct ntx_hw *hw = &r->hw;
    char size[32];
    printf("cpu      %s, %u threads, kernels: %s\n", hw->cpu, hw->threads, hw->kernel);
    printf("memory   %s, read at %.1f GB/s with one thread, %.1f with all\n",
           ntx_format_size(hw->ram_bytes, size, sizeof size), hw->ram_bps_1 / 1e9, hw->ram_bps / 1e9);
    printf("drive    ");
    for (unsigned i = 0; i < hw->n_reads; i++)
        printf("%s%u KiB %.2f", i ? ", " : "", hw->reads[i].bytes >> 10, hw->reads[i].bps / 1e9);
    printf(" GB/s; one 4-KiB read alone takes %.0f us\n         multiplied as it comes: ", hw->read_s * 1e6);
    for (unsigned i = 0; i < hw->n_streams; i++)
        printf("%s%u KiB %.2f", i ? ", " : "", hw->streams[i].bytes >> 10, hw->streams[i].bps / 1e9);
    printf(" GB/s\n         %s\n", r->drive_note);
    print_kernels(hw);
    printf("steps    %.0f us per layer; of a row: %.2f ns a value, %.2f ns an output\n", hw->layer_s * 1e6,
           hw->value_s * 1e9, hw->dot_s * 1e9);
    for (unsigned i = 0; i < hw->n_prompts; i++)
        printf("%s%.2f in models %u wide%s", i ? ", " : "prompts  whole layers take ", hw->prompts[i].times,
               hw->prompts[i].width, i + 1 < hw->n_prompts ? "" : ", times what these rates give\n");
    for (int t = 0; t < NTX_N_KV; t++)
        printf("%s %-4s  one row %.1f GFLOP/s and %.2f ns a score, several %.1f and %.2f\n",
               t ? "                  " : "attention over K,V", ntx_kv_type_name((enum ntx_kv_type)t),
               hw->attend[t][0].flops / 1e9, hw->attend[t][0].score_s * 1e9, hw->attend[t][1].flops / 1e9,
               hw->attend[t][1].score_s * 1e9);
    for (unsigned i = 0; i < r->n_findings; i++)
        ntx_out_format("%s %s\n", i ? "       -" : "to fix -", r->findings[i]);
    if (!r->n_findings)
        puts("nothing to fix");
}

/* Writes the profile for this user; root also writes the service's, where the service is installed. */
static int store_profile(const struct ntx_hw *hw, const char *json, char *where, size_t n, bool *kept,
                         struct ntx_err *err)
{
    bool its = false;
    int none = ntx_hw_user_path(where, (unsigned)n), service = -ENOENT;
    int rc = none ? none : ntx_hw_store_measured(where, hw, json, kept, err);
    if (!geteuid() && !access("/var/lib/ntx", W_OK))
        service = ntx_hw_store_measured(NTX_HW_SERVICE_PATH, hw, json, &its, err);
    if (rc && !service)
        *kept = its;
    if (rc && !service)
        snprintf(where, n, "%s", NTX_HW_SERVICE_PATH);
    if (none && service)
        return ntx_err_set(
            err, rc,
            "neither XDG_CACHE_HOME nor HOME is a path that can be used: there is no place to store the profile");
    return service ? rc : 0;
}

int ntx_cmd_doctor(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_doctor_config c = {
        .dir = o->dir ? o->dir : ".", .seconds = (double)o->seconds, .progress = show_progress};
    struct ntx_doctor_report *r = calloc(1, sizeof *r);
    const char *findings[NTX_DOCTOR_FINDINGS];
    char path[4096], line[4096];
    if (!r)
        return NTX_EXIT_FAILED;
    ntx_log_init("ntx", NTX_LOG_WARN); /* the report says how reads are done */
    int rc = ntx_doctor_run(&c, r, &err);
    ntx_clear_progress();
    for (unsigned i = 0; !rc && i < r->n_findings; i++)
        findings[i] = r->findings[i];
    char *json = rc ? NULL : ntx_hw_dump(&r->hw, findings, r->n_findings);
    if (!rc && !json)
        rc = ntx_err_set(&err, -ENOMEM, "no memory");
    if (!rc && o->json)
        ntx_out_json_text(json);
    else if (!rc)
        print_doctor_report(r);
    bool kept = false;
    if (!rc && !(rc = store_profile(&r->hw, json, path, sizeof path, &kept, &err)) && (kept || !o->json))
        fprintf(o->json ? stderr : stdout,
                kept ? "not stored: the machine was busy, and %s was measured while it was quiet\n" : "stored in %s\n",
                ntx_out_line(path, line, sizeof line));
    free(json);
    free(r);
    return rc ? ntx_fail(&err) : 0;
}
