/* SPDX-License-Identifier: Apache-2.0 */
/* load_drafter.c: drafters (--draft FILE): they must suit the model and are counted in the budget. Draft models then
 * run in ntx-predictor. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/engine/draft.h"
#include "computed/engine/load.h"
#include "computed/plan/draft_predict.h"
#include "computed/plan/draft_stats.h"
#include "model/digest.h"
#include "proto/frame.h"

/* A model that was opened by its path has its drafters' paths in ntx.conf. */
static int open_path(const struct ntx_load_request *r, unsigned i, int *fd, struct ntx_err *err)
{
    char file[NTX_OPTION_MAX];
    int rc = ntx_draft_file(r->set.draft, i, file, sizeof file, err);
    if (rc)
        return rc;
    if (!r->path)
        return ntx_err_set(
            err, -EINVAL,
            "--draft '%.100s': the drafter's file did not come with the request; there are also off and lookup", file);
    if (ntx_draft_self(file) && !ntx_drafter_file_self(r->path, file, sizeof file))
        return ntx_err_set(err, -ENAMETOOLONG, "--draft self: the model's path is too long");
    *fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    return *fd < 0 ? ntx_err_set(err, -errno, "%s: cannot open the drafter: %s", file, strerror(errno)) : 0;
}

/* Opens the drafter beside a model that was opened by its path, if there is one. */
static void open_found_drafter(const struct ntx_load_request *r, struct ntx_loaded *l)
{
    int fd = ntx_drafter_file_found(l->gguf, r->path);
    if (fd >= 0)
        l->drafter[l->n_drafters++] = (struct ntx_load_drafter){.fd = fd};
}

/* Adds the model's own next-token block, if it is named, or under --draft auto if it exists. */
static int open_nextn(const struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err)
{
    bool named = ntx_draft_nextn(r->set.draft);
    if (!named && (!ntx_draft_auto(r->set.draft) || !l->model->hp.n_nextn))
        return 0;
    if (l->n_drafters == NTX_DRAFT_FILES)
        return named ? ntx_err_set(err, -E2BIG, "--draft names more than %u files", NTX_DRAFT_FILES) : 0;
    l->drafter[l->n_drafters++] = (struct ntx_load_drafter){.fd = -1, .kind = NTX_DRAFTER_FILE_NEXTN};
    return 0;
}

/* Whether the i-th of n files is self without a copy: it did not come, or is not beside a model opened by its path. */
static bool is_without_copy(const struct ntx_load_request *r, unsigned i, unsigned n)
{
    char file[NTX_OPTION_MAX];
    struct ntx_err ignored = {0};
    if (ntx_draft_auto(r->set.draft) || ntx_draft_file(r->set.draft, i, file, sizeof file, &ignored) ||
        !ntx_draft_self(file))
        return false;
    if (!r->path || r->n_drafters)
        return r->n_drafters < n;
    return ntx_drafter_file_self(r->path, file, sizeof file) && access(file, F_OK) && errno == ENOENT;
}

/* Adds the model's layers in memory: --draft self without a copy. */
static void open_layers(struct ntx_loaded *l, unsigned named)
{
    l->drafter[l->n_drafters++] = (struct ntx_load_drafter){.fd = -1, .named = named, .kind = NTX_DRAFTER_FILE_LAYERS};
}

int ntx__load_drafters_open(struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err)
{
    bool automatic = ntx_draft_auto(r->set.draft);
    unsigned n = automatic ? r->n_drafters : ntx_draft_files(r->set.draft), came = 0, layers = n;
    if (automatic && !n && r->path)
        open_found_drafter(r, l);
    int rc = n > NTX_DRAFT_FILES ? ntx_err_set(err, -E2BIG, "--draft names more than %u files", NTX_DRAFT_FILES) : 0;
    for (unsigned i = 0; i < n && !rc; i++) {
        struct ntx_load_drafter *d = &l->drafter[l->n_drafters];
        if (is_without_copy(r, i, n)) {
            layers = i;
            continue;
        }
        *d = (struct ntx_load_drafter){.fd = came < r->n_drafters ? r->drafter_fd[came] : -1, .named = i};
        if (came < r->n_drafters)
            r->drafter_fd[came++] = -1;
        rc = d->fd < 0 ? open_path(r, i, &d->fd, err) : 0;
        l->n_drafters += !rc;
    }
    rc = rc ? rc : open_nextn(r, l, err);
    if (!rc && layers < n)
        open_layers(l, layers);
    return rc;
}

/* Why the model's layers in memory cannot draft, or NULL. */
static const char *no_layers(const struct ntx_loaded *l, const struct ntx_load_settings *set)
{
    const char *why = ntx_drafter_layers_refused(l->model);
    if (!why && l->back.gpu)
        why = "a GPU computes them";
    if (!why && l->machines)
        why = "several machines share them";
    if (!why && (!ntx_skip_off(set->skip) || ntx_ffn_mode_groups(&l->ffn)))
        why = "--skip and --ffn-sparse already leave out a part of them";
    return !why && set->kv_ram ? "--kv-ram keeps their keys and values in a file" : why;
}

static int inspect_layers(const struct ntx_loaded *l, const struct ntx_load_settings *set, struct ntx_load_drafter *d,
                          uint32_t ctx, uint64_t *bytes, struct ntx_err *err)
{
    const char *why = no_layers(l, set);
    if (why)
        return ntx_err_set(err, -ENOTSUP,
                           "there is no copy of the model in fewer bits, and its layers in memory cannot draft: "
                           "%s; make a copy (ntx quantize MODEL.gguf MODEL.draft.gguf Q2_K), or leave it out",
                           why);
    *bytes = d->needs.bytes = ntx_drafter_layers_bytes(l->model, ctx);
    return 0;
}

/* Checks a drafter and finds its bytes. The model's own block has a copy of the output matrix; a drafter by states has
 * the states of a pass's rows. */
static int inspect_drafter(const struct ntx_loaded *l, const struct ntx_load_settings *set, struct ntx_load_drafter *d,
                           uint32_t ctx, uint32_t threads, uint64_t *bytes, struct ntx_err *err)
{
    const bool own = d->kind == NTX_DRAFTER_FILE_NEXTN;
    if (d->kind == NTX_DRAFTER_FILE_LAYERS)
        return inspect_layers(l, set, d, ctx, bytes, err);
    if (own)
        d->needs.n_taps = 1, d->needs.tap[0] = l->model->hp.n_layers;
    int rc = own ? ntx_drafter_nextn_look(l->gguf, ctx, threads, &d->needs.bytes, err)
                 : ntx_drafter_file_look(d->fd, l->gguf, ctx, threads, &d->kind, &d->needs, err);
    if (!rc && d->needs.lent && l->machines)
        rc = ntx_err_set(err, -ENOTSUP,
                         "each of several machines has the high bits of its own rows only; use --draft lookup");
    if (!rc && d->kind == NTX_DRAFTER_FILE_MODEL && set->sessions > 1) /* its texts share so much KV */
        rc = ntx_drafter_file_look(d->fd, l->gguf, ctx * set->sessions, threads, &d->kind, &d->needs, err);
    *bytes = d->needs.bytes + ntx_drafter_left_bytes(d->needs.n_taps * l->model->hp.n_embd, set->rows);
    return rc;
}

static bool in_this_process(const struct ntx_load_drafter *d)
{
    return d->needs.n_taps || d->kind == NTX_DRAFTER_FILE_LAYERS;
}

/* Refuses a second drafter by the model's states, or by its layers. */
static int check_states(const struct ntx_loaded *l, unsigned i, struct ntx_err *err)
{
    for (unsigned k = 0; k < i && in_this_process(&l->drafter[i]); k++)
        if (in_this_process(&l->drafter[k]))
            return ntx_err_set(err, -ENOTSUP,
                               "there is already a drafter by the model's states: name only one of nextn, self without "
                               "a copy, and files of the EAGLE-3 or DFlash kind");
    return 0;
}

static void close_drafter(struct ntx_loaded *l, unsigned i)
{
    if (l->drafter[i].fd >= 0)
        close(l->drafter[i].fd);
    memmove(l->drafter + i, l->drafter + i + 1, (--l->n_drafters - i) * sizeof *l->drafter);
}

/* Why a drafter of --draft auto is not used, or NULL. */
static const char *left_out_reason(const struct ntx_loaded *l, const struct ntx_load_drafter *d, int rc, uint64_t bytes,
                                   const struct ntx_err *err)
{
    const bool weighed = d->kind == NTX_DRAFTER_FILE_MODEL && !l->machines && bytes < l->ram_bytes;
    if (rc)
        return err->text;
    if (ntx__load_undrafted(l))
        return "drafts of a file do not suit its recurrent state here";
    return weighed || ntx_drafter_file_small(bytes, l->ram_bytes) ? NULL : "it would take too much of --ram";
}

/* Without --ctx the plan may have 4096 tokens at most. */
int ntx__load_drafters_bytes(struct ntx_loaded *l, const struct ntx_load_settings *set, uint32_t threads,
                             uint64_t *bytes, struct ntx_err *err)
{
    bool unasked = ntx_draft_auto(set->draft);
    const uint32_t ctx = set->ctx ? set->ctx : NTX_MIN(l->model->hp.ctx_train, 4096u);
    *bytes = 0;
    for (unsigned i = 0; i < l->n_drafters;) {
        struct ntx_load_drafter *d = &l->drafter[i];
        uint64_t its = 0;
        bool own = d->kind == NTX_DRAFTER_FILE_NEXTN;
        int rc = inspect_drafter(l, set, d, ctx, threads, &its, err);
        rc = rc ? rc : check_states(l, i, err);
        if (rc && !unasked)
            return own ? ntx_err_prefix(err, "--draft nextn") : ntx_draft_blame(set->draft, d->named, err);
        its += d->kind == NTX_DRAFTER_FILE_MODEL ? ntx_drafts_bytes(ctx * NTX_MAX(set->sessions, 1u)) : 0;
        const char *why = unasked ? left_out_reason(l, d, rc, its, err) : NULL;
        if (why) {
            ntx_log(NTX_LOG_INFO, "%s is not used: %s",
                    own ? "the model's own next-token block" : "the drafter that the model's card names", why);
            *err = (struct ntx_err){0};
            close_drafter(l, i);
            continue;
        }
        l->drafters_unsure |= unasked && (d->needs.lent || !ntx_drafter_file_small(its, l->ram_bytes));
        *bytes += its;
        i++;
    }
    return 0;
}

int ntx_load_draft_stats(const struct ntx_loaded *l, struct ntx_draft_stats *g, char *digest, struct ntx_err *err)
{
    int rc = 0;
    for (unsigned i = 0; i < l->n_drafters && !rc; i++)
        if (l->drafter[i].kind == NTX_DRAFTER_FILE_NEXTN)
            memcpy(g->drafter[i], NTX_DRAFTER_FILE_NEXTN_DIGEST, NTX_DRAFTER_FILE_TEXT);
        else if (l->drafter[i].kind == NTX_DRAFTER_FILE_LAYERS)
            snprintf(g->drafter[i], sizeof g->drafter[i], NTX_DRAFTER_FILE_LAYERS_DIGEST, l->plan->n_without);
        else
            rc = ntx_drafter_file_digest(l->drafter[i].fd, g->drafter[i], err);
    *digest = 0;
    if (rc || (rc = ntx_model_digest(l->gguf, l->fds, digest, err))) {
        *digest = 0;
        return rc;
    }
    return ntx_draft_stats_load(digest, g, err);
}

/* Bytes that a token reads from the drive. */
static double stream_bytes_per_token(const struct ntx_loaded *l, const struct ntx_plan *p)
{
    struct ntx_load_bytes b;
    double sum = 0;
    if (!ntx_plan_load(l->model, p, 1, 1, ntx_plan_text(p), &b))
        return 0;
    for (unsigned t = 0; t < NTX_TYPE_LIMIT; t++)
        sum += b.bytes[NTX_TIER_STORAGE][t];
    return sum;
}

/* How much faster plain passes are without the drafters, with weights in their memory: as predicted, or by the bytes
 * read. */
static double speedup_without(const struct ntx_loaded *l, const struct ntx_plan *with, const struct ntx_plan *without)
{
    if (with->predicted_tok_s > 0 && without->predicted_tok_s > 0)
        return without->predicted_tok_s / with->predicted_tok_s;
    double a = stream_bytes_per_token(l, with), b = stream_bytes_per_token(l, without);
    return a > 0 ? NTX_MIN(a / NTX_MAX(b, 1.0), 8.0) : 1;
}

static void give_up_drafters(struct ntx_loaded *l)
{
    for (unsigned i = 0; i < l->n_drafters; i++)
        if (l->drafter[i].fd >= 0)
            l->left_out[l->n_left_out++] = l->drafter[i].fd;
    l->n_drafters = 0;
    l->drafters_left_out = true;
}

void ntx__load_drafters_unfit(struct ntx_loaded *l, uint64_t bytes, uint64_t needed)
{
    char size[32];
    give_up_drafters(l);
    if (l->drafters_unsure)
        return;
    l->drafters_unfit = true;
    ntx_log(NTX_LOG_WARN,
            "--draft: its small model takes %s, which do not fit beside the model: the text itself drafts instead, as "
            "with --draft lookup; --ram %lluM has room for both, and `ntx quantize` makes the small model smaller",
            ntx_format_size(bytes, size, sizeof size), (unsigned long long)((needed + (1u << 20) - 1) >> 20));
}

static void leave_drafters_out(struct ntx_loaded *l)
{
    give_up_drafters(l);
    ntx_log(NTX_LOG_INFO, "the drafters of --draft are left out: here weights in their memory gain more; after some "
                          "loads they are tried again (--draft-nodes N uses them in any case)");
}

/* Whether drafters that nobody named are predicted to gain more than weights in their memory. */
static bool drafters_pay(const struct ntx_loaded *l, const struct ntx_hw *hw, const struct ntx_draft_stats *g,
                         const struct ntx_plan *without)
{
    struct ntx_draft_request with = {.stats = g, .kind = 2}, looked = {.stats = g, .learned = true};
    struct ntx_draft_forecast a = {0}, b = {0};
    if (!hw || without->predicted_tok_s <= 0)
        return false;
    for (unsigned i = 0; i < l->n_drafters; i++)
        if (l->drafter[i].kind == NTX_DRAFTER_FILE_MODEL)
            with.row_s += ntx_draft_row_s(hw, l->drafter[i].fd);
        else if (l->drafter[i].kind == NTX_DRAFTER_FILE_LAYERS)
            with.layers = true;
    struct ntx_load_bytes load;
    struct ntx_forecast plain;
    if (with.layers && (!ntx_plan_load(l->model, without, 1, 1, ntx_plan_text(without), &load) ||
                        ntx_predict(hw, &load, &plain) || !ntx_draft_layers_free(&plain)))
        return false;
    ntx_draft_predict(hw, l->model, l->plan, &with, &a);
    ntx_draft_predict(hw, l->model, without, &looked, &b);
    return a.tok_s > NTX_DRAFT_PAYS * NTX_MAX(without->predicted_tok_s, b.tok_s);
}

void ntx__load_drafters_weigh(struct ntx_loaded *l, const struct ntx_load_settings *set, const struct ntx_hw *hw,
                              struct ntx_plan *without)
{
    struct ntx_draft_stats g;
    struct ntx_err err = {0};
    char digest[NTX_DIGEST_TEXT];
    const struct ntx_draft_stats_place *at;
    bool lookup = ntx_draft_looks_up(set->draft) && !ntx__load_undrafted(l), leave = false, predicted = false;
    ntx_draft_stats_begin(&g, ntx_draft_believed);
    if (!ntx_load_draft_stats(l, &g, digest, &err) && !set->draft_nodes &&
        (at = ntx_draft_stats_place(&g, lookup ? 2 : 1, l->plan->threads, l->plan->bytes_storage))) {
        struct ntx_draft_stats_place p = *at;
        leave = ntx_draft_stats_leave_out(&p, speedup_without(l, l->plan, without));
        if (p.away != at->away) {
            ntx_draft_stats_settle(&g, &p);
            /* if the count cannot be stored, they would stay left out for ever */
            leave &= !ntx_draft_stats_store(digest, &g, &err);
        }
    } else if (l->drafters_unsure) {
        leave = predicted = !drafters_pay(l, hw, &g, without);
    }
    struct ntx_plan *other = leave ? l->plan : without;
    l->plan = leave ? without : l->plan;
    ntx_plan_free(other);
    if (leave && predicted && ntx__load_drafters_layers(l))
        l->n_drafters = 0; /* nobody asked for it, and nothing was lost */
    else if (leave)
        leave_drafters_out(l);
}

uint64_t ntx__load_layers_offer(struct ntx_loaded *l, const struct ntx_load_settings *set)
{
    if (!ntx_draft_auto(set->draft) || l->n_drafters || l->drafters_left_out || l->drafters_unfit || no_layers(l, set))
        return 0;
    open_layers(l, 0);
    l->drafters_unsure = true;
    return ntx_drafter_layers_bytes(l->model, l->plan->ctx);
}

unsigned ntx_load_drafter_files(const struct ntx_loaded *l)
{
    unsigned n = l->n_drafters;
    while (n && (l->drafter[n - 1].kind == NTX_DRAFTER_FILE_NEXTN || l->drafter[n - 1].kind == NTX_DRAFTER_FILE_LAYERS))
        n--;
    return n;
}

struct ntx_load_drafter *ntx__load_drafters_layers(struct ntx_loaded *l)
{
    struct ntx_load_drafter *last = l->n_drafters ? &l->drafter[l->n_drafters - 1] : NULL;
    return last && last->kind == NTX_DRAFTER_FILE_LAYERS ? last : NULL;
}

void ntx__load_drafters_layers_drop(struct ntx_loaded *l)
{
    close_drafter(l, l->n_drafters - 1);
    l->drafters_unfit = true;
    ntx_log(NTX_LOG_WARN, "--draft self: %s: the text itself drafts instead, as with --draft lookup",
            l->plan->geo.n_sched ? "fewer than a third of the layers are in memory, too few to draft"
                                 : "all of the model is in memory, where its layers draft for nothing");
}

int ntx__load_drafters_start(struct ntx_loaded *l, struct ntx_err *err)
{
    struct ntx_load_drafter *d = ntx__load_drafters_layers(l);
    struct ntx_drafter_layers of = {.model = l->model,
                                    .forward = l->forward,
                                    .weights = ntx_stream_resident(l->stream),
                                    .ctx = l->plan->ctx,
                                    .max_rows = l->plan->max_rows};
    memcpy(of.without, l->plan->without, sizeof of.without);
    return d ? ntx_drafter_layers_new(&of, &d->by_states, err) : 0;
}

static int build_drafter(struct ntx_loaded *l, struct ntx_load_drafter *d, uint64_t epoch, struct ntx_err *err)
{
    switch (d->kind) {
    case NTX_DRAFTER_FILE_MODEL:
        return ntx_drafts_make(epoch, l->plan->ctx * NTX_MAX(l->set.sessions, 1u), &d->drafts, err);
    case NTX_DRAFTER_FILE_NEXTN:
        return ntx_drafter_nextn_new(l->gguf, l->fds, l->plan->ctx, l->plan->threads, &d->by_states, err);
    case NTX_DRAFTER_FILE_LAYERS: return 0; /* once there is a pass */
    case NTX_DRAFTER_FILE_STATES:
        return ntx_drafter_head_new(d->fd, l->gguf, l->fds, l->n_files, l->plan->ctx, l->plan->threads, &d->by_states,
                                    err);
    default: return ntx_drafter_file_new(d->fd, l->gguf, &d->drafter_file, err);
    }
}

int ntx__load_drafters_build(struct ntx_loaded *l, uint64_t epoch, struct ntx_err *err)
{
    int rc = 0;
    for (unsigned i = 0; i < l->n_drafters && !rc; i++)
        rc = build_drafter(l, &l->drafter[i], epoch, err);
    return rc;
}

void ntx__load_drafters_free(struct ntx_loaded *l)
{
    for (unsigned i = 0; i < l->n_drafters; i++) {
        struct ntx_load_drafter *d = &l->drafter[i];
        if (d->fd >= 0)
            close(d->fd);
        ntx_drafter_file_free(d->drafter_file);
        ntx_drafter_free(d->by_states);
        if (d->drafts.requests)
            ntx_drafts_close(&d->drafts);
    }
    for (unsigned i = 0; i < l->n_left_out; i++)
        close(l->left_out[i]);
}
