/* SPDX-License-Identifier: Apache-2.0 */
/* ntx pack: rewrites a model so that its FFN neurons can be read one group at a time (model/pack.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "client/commands/pack.h"
#include "client/out.h"
#include "common/nearest.h"
#include "common/util.h"
#include "computed/plan/hw.h"
#include "model/ffn_learned.h"
#include "model/pack_make.h"
#include "model/quant.h"
#include "model/share_file.h"

#define GROUP_DEFAULT (16u << 10) /* bytes, without a profile */
/* Share of the drive's best rate. Half of the gain of larger reads is lost on neurons that no token needs. */
#define WORTH         0.4
#define WORTH_BYTES   0.95 /* share of the FFNs' bytes above which reading sparse does not read less */

/* The smallest read that is worth its cost on this drive. */
static int group_bytes(const struct ntx_options *o, uint64_t *bytes, struct ntx_err *err)
{
    struct ntx_hw hw;
    int rc = 0;
    if (!o->group)
        rc = o->profile ? ntx_hw_load(o->profile, &hw, err) : ntx_hw_find(&hw, err);
    *bytes = o->group ? o->group : GROUP_DEFAULT;
    if (rc == -ENOENT && !o->profile)
        return 0;
    if (rc || o->group || !hw.n_reads)
        return rc;
    double best = 0;
    for (unsigned i = 0; i < hw.n_reads; i++)
        best = NTX_MAX(best, hw.reads[i].bps);
    for (*bytes = 4096; *bytes < 1u << 20 && ntx_hw_drive_bps(&hw, *bytes) < WORTH * best;)
        *bytes *= 2;
    return 0;
}

static int type_named(const char *name, uint32_t *type, struct ntx_err *err)
{
    *type = NTX_TYPE_LIMIT;
    for (uint32_t t = 0; name && t < NTX_TYPE_LIMIT; t++)
        if (ntx_type_info(t) && !strcasecmp(ntx_type_info(t)->name, name))
            *type = t;
    if (!name || *type != NTX_TYPE_LIMIT)
        return 0;
    struct ntx_near near;
    ntx_near_begin(&near, name, "");
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        if (ntx_type_info(t))
            ntx_near_offer(&near, ntx_type_info(t)->name, strlen(ntx_type_info(t)->name));
    return ntx_err_set(err, -EINVAL, "'%s' is no type of weights%s", name, near.hint);
}

static void show_layer(uint32_t layer, uint32_t n_layers)
{
    fprintf(stderr, "\r\033[Klayer %u of %u", layer + 1, n_layers);
}

static void print_touched(const struct ntx_pack_touched *t)
{
    puts("--ffn-sparse   groups that a token touches   bytes of its FFNs, of the original's");
    for (unsigned i = 0; i < NTX_PACK_MODES; i++)
        printf("%-14s %.3f                         %.3f\n", ntx_pack_modes[i].name, t->groups[i], t->bytes[i]);
}

/* Half of the neurons are the fewest that any published model was seen to keep its text with. */
static int refuse_touched(const struct ntx_options *o, const struct ntx_pack_touched *t, struct ntx_err *err)
{
    const double least = NTX_MIN(t->bytes[0], t->bytes[1]);
    if (o->force || least < WORTH_BYTES)
        return 0;
    return ntx_err_set(
        err, -EINVAL,
        "nothing was written: a token would read %.0f %% of the FFNs' bytes with --ffn-sparse threshold=0 "
        "and %.0f %% with topk=0.5, because nearly every group has a neuron that it uses; --force writes "
        "the file all the same (--ffn-sparse predicted and prompt leave out whole groups, at a loss)",
        100 * t->bytes[0], 100 * t->bytes[1]);
}

static int measure_touched(const struct ntx_options *o, const struct ntx_model_files *f, const struct ntx_model *m,
                           const struct ntx_pack_options *p, struct ntx_err *err)
{
    struct ntx_pack_layer *layers;
    struct ntx_pack_touched t;
    int rc = ntx_pack_choose(m, f->fds, p, &layers, err);
    if (rc)
        return rc;
    if (!(rc = ntx__pack_touched(o, m, layers, p->order, &t, err))) {
        if (!o->quiet && !o->json)
            print_touched(&t);
        rc = refuse_touched(o, &t, err);
    }
    free(layers);
    return rc;
}

static void print_pack_report(const struct ntx_options *o, const struct ntx_pack_report *r)
{
    char bytes[32], padding[32];
    ntx_clear_progress();
    if (o->json) {
        json_t *j = json_pack("{s:f, s:f, s:i, s:i, s:i, s:s, s:b, s:I}", "down_error", r->error, "down_error_worst",
                              r->worst, "worst_layer", (int)r->worst_layer, "group", (int)r->group, "group_bytes",
                              (int)r->group_bytes, "down_type", ntx_type_info(r->down_type)->name, "down_rows",
                              r->down_rows, "padding", (json_int_t)r->padding);
        ntx_out_json(j, JSON_COMPACT);
        json_decref(j);
    } else if (!o->quiet) {
        printf("groups of %u neurons, %s each (%s of padding in all)\n", r->group,
               ntx_format_size(r->group_bytes, bytes, sizeof bytes),
               ntx_format_size(r->padding, padding, sizeof padding));
        if (r->error > 0)
            printf("down matrices, now %s by columns: relative error %.4f; worst %.4f, layer %u\n",
                   ntx_type_info(r->down_type)->name, r->error, r->worst, r->worst_layer);
        else
            puts("no weight was changed");
    }
}

static int read_order(const struct ntx_options *o, const struct ntx_model *m, const struct ntx_model_files *f,
                      uint32_t **order, struct ntx_err *err)
{
    char digest[NTX_DIGEST_TEXT];
    int fd = open(o->order, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return ntx_err_set(err, -errno, "%s: %s", o->order, strerror(errno));
    int rc = ntx_model_digest(f->gguf, f->fds, digest, err);
    if (!rc)
        rc = ntx_ffn_order_read(fd, m, digest, order, err);
    close(fd);
    return rc;
}

static int pack_groups(const struct ntx_options *o, const struct ntx_model_files *f, const struct ntx_model *m,
                       struct ntx_err *err)
{
    struct ntx_model_files precise = {0};
    struct ntx_pack_report r;
    uint32_t *order = NULL;
    struct ntx_pack_options p = {.gate_in_bundle = o->gate_in_bundle,
                                 .tell = !o->quiet && isatty(STDERR_FILENO) ? show_layer : NULL};
    int rc = group_bytes(o, &p.group_bytes, err);
    if (!rc)
        rc = type_named(o->down_type, &p.down_type, err);
    if (!rc && o->from && !(rc = ntx_model_files_open(o, o->from, &precise, err)))
        p.precise = (struct ntx_pack_source){precise.gguf, precise.fds};
    if (!rc && o->order)
        rc = read_order(o, m, f, &order, err);
    p.order = order;
    if (!rc && !(o->force && o->quiet)) /* nothing would be said, and nothing refused */
        rc = measure_touched(o, f, m, &p, err);
    if (!rc)
        rc = ntx_pack_make(m, f->fds, &p, o->args[1], &r, err);
    if (!rc)
        print_pack_report(o, &r);
    free(order);
    ntx_model_files_close(&precise);
    return rc;
}

int ntx_cmd_pack(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_model_files f = {0};
    struct ntx_model *m = NULL;
    int rc = ntx_model_files_open(o, o->args[0], &f, &err);
    if (!rc && !(rc = ntx_share_file_refuse(f.gguf, f.names[0], &err)))
        rc = ntx_model_open(f.gguf, &m, &err);
    if (!rc && ntx_gguf_planes(f.gguf) && !o->join)
        rc = ntx_err_set(&err, -ENOTSUP,
                         "%s: it is split in high and low bits: give the model that it was made of, or make that again "
                         "by ntx pack %s OUT --join",
                         f.names[0], f.names[0]);
    if (!rc && o->join)
        rc = ntx__pack_join(o, &f, &err);
    else if (!rc && o->planes)
        rc = ntx__pack_planes(o, &f, m, &err);
    else if (!rc && o->delta)
        rc = ntx__pack_delta(o, &f, m, &err);
    else if (!rc && o->of_machines)
        rc = ntx__pack_share(o, &f, m, &err);
    else if (!rc)
        rc = pack_groups(o, &f, m, &err);
    ntx_model_free(m);
    ntx_model_files_close(&f);
    return rc ? ntx_fail(&err) : 0;
}
