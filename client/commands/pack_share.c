/* SPDX-License-Identifier: Apache-2.0 */
/* ntx pack MODEL OUT --share I/N: writes the file of one machine's share (model/share_file.h). */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/pack.h"
#include "client/commands/plan.h"
#include "client/out.h"
#include "common/util.h"
#include "model/share_file.h"

/* Reads "2/3": machine 2 of 3, rank 1. */
static int read_share(const char *text, struct ntx_share *s, struct ntx_err *err)
{
    char *end;
    long i = strtol(text, &end, 10), n = *end == '/' ? strtol(end + 1, &end, 10) : 0;
    if (*end || i < 1 || n < 2 || n > (long)NTX_RANKS_MAX || i > n)
        return ntx_err_set(
            err, -EINVAL,
            "--share %s: write the number of the machine and of all, as 2/3; at most %u machines can share a model",
            text, NTX_RANKS_MAX);
    *s = (struct ntx_share){.n = (uint32_t)n, .rank = (uint32_t)i - 1};
    for (uint32_t k = 0; k < s->n; k++)
        s->part[k] = 1;
    return 0;
}

static int planned_share(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_share *s,
                         struct ntx_err *err)
{
    struct ntx_share parts;
    int rc = ntx__plan_parts(o, f->gguf, f->names[0], &parts, err);
    if (rc)
        return rc;
    if (parts.n != s->n)
        return ntx_err_set(err, -EINVAL, "--share %s is of %u machines, and %s has %u", o->of_machines, s->n,
                           o->machines, parts.n);
    parts.rank = s->rank;
    *s = parts;
    return 0;
}

static void show_bytes(uint64_t done, uint64_t all)
{
    static uint64_t told;
    if (done - told < all / 100 && done != all)
        return;
    told = done;
    fprintf(stderr, "\r\033[K%.0f %%", all ? 100.0 * (double)done / (double)all : 100.0);
}

static void print_share_report(const struct ntx_options *o, const struct ntx_share *s, uint64_t bytes)
{
    char text[32];
    ntx_clear_progress();
    if (o->json) {
        json_t *parts = json_array(), *j;
        for (uint32_t i = 0; i < s->n; i++)
            json_array_append_new(parts, json_integer(s->part[i]));
        j = json_pack("{s:s, s:i, s:i, s:I, s:o}", "split", ntx_split_names[s->split], "rank", (int)s->rank, "ranks",
                      (int)s->n, "bytes", (json_int_t)bytes, "parts", parts);
        ntx_out_json(j, JSON_COMPACT);
        json_decref(j);
    } else if (!o->quiet) {
        printf("machine %u of %u (rank %u), split by %s: %s of weights; the rest of the file is a hole: copy it with "
               "cp --sparse=always or rsync -S\n",
               s->rank + 1, s->n, s->rank, ntx_split_names[s->split], ntx_format_size(bytes, text, sizeof text));
    }
}

int ntx__pack_share(const struct ntx_options *o, const struct ntx_model_files *f, const struct ntx_model *m,
                    struct ntx_err *err)
{
    struct ntx_share s;
    uint64_t bytes = 0;
    int rc = read_share(o->of_machines, &s, err);
    if (!rc && o->machines)
        rc = planned_share(o, f, &s, err);
    else if (!rc && o->load.split && !strcmp(o->load.split, "layers"))
        rc = ntx_share_by_layers(m, &s, NULL, err);
    if (rc)
        return rc;
    if (s.split == NTX_SPLIT_HEADS)
        s.split = NTX_SPLIT_ROWS; /* the weights' shares are the same */
    if (m->pack)
        return ntx_err_set(
            err, -ENOTSUP,
            "%s: a packed model (ntx pack) runs on one machine only; share the file that it was made from",
            f->names[0]);
    rc = ntx_share_file_make(m, f->fds, &s, o->args[1], !o->quiet && isatty(STDERR_FILENO) ? show_bytes : NULL, &bytes,
                             err);
    if (!rc)
        print_share_report(o, &s, bytes);
    return rc;
}
