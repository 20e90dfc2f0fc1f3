/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/load.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/pass/input_sums.h"
#include "computed/pass/kv_form.h"
#include "computed/plan/budget.h"
#include "model/kind.h"
#include "model/numbers.h"
#include "model/override.h"
#include "model/share_file.h"
#include "model/state.h"
#include "proto/frame.h"

static uint32_t online_cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : (uint32_t)NTX_MAX(CPU_COUNT(&set), 1);
}

static uint32_t threads_of(const struct ntx_load_request *r)
{
    return r->set.threads ? NTX_MIN(r->set.threads, 256u) : online_cpus();
}

static uint64_t ram_of(const struct ntx_load_request *r)
{
    return r->set.ram ? r->set.ram : ntx_budget_default(r->reclaim_bytes);
}

static int pick_kernel(const struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err)
{
    bool forced = *r->set.kernel;
    if (!(l->ops = ntx_cpu_pick(forced ? r->set.kernel : NULL)))
        return ntx_err_set(err, -EINVAL, "kernel set '%s' is unknown, or this CPU lacks it: there are %s",
                           forced ? r->set.kernel : "", ntx_cpu_names());
    return 0;
}

/* Names the adapters as --lora does; as many must have come. */
static int name_adapters(struct ntx_loaded *l, const char *lora, struct ntx_err *err)
{
    char path[NTX_OPTION_MAX];
    const unsigned n = ntx_gguf_adapters(l->gguf);
    if (ntx_lora_files(lora) != n)
        return ntx_err_set(err, -EINVAL,
                           "%u adapters came with the model, and --lora names %u: a file for each "
                           "name must stand behind the model's",
                           n, ntx_lora_files(lora));
    l->env.n_adapters = n;
    for (unsigned i = 0; i < n; i++) {
        int rc = ntx_lora_file(lora, i, l->env.adapter[i], sizeof l->env.adapter[i], path, sizeof path, err);
        for (unsigned k = 0; k < i && !rc; k++)
            if (!strcmp(l->env.adapter[i], l->env.adapter[k]))
                rc = ntx_err_set(err, -EINVAL, "--lora %s: two adapters are called '%s'; give NAME=FILE", lora,
                                 l->env.adapter[i]);
        if (rc)
            return rc;
    }
    return 0;
}

/* shared: the machines that share the model; they check the share of the file (machines.c). */
static int read_model(struct ntx_loaded *l, const struct ntx_load_settings *set, const struct ntx_machines *shared,
                      struct ntx_err *err)
{
    int rc = ntx_gguf_open(l->fds, l->n_files, (const char *const *)l->names, &l->gguf, err);
    if (!rc)
        rc = ntx_gguf_override(l->gguf, set->override_kv, err);
    if (!rc)
        rc = ntx_kind_refuse(l->gguf, l->names[0], err);
    if (!rc && !shared)
        rc = ntx_share_file_refuse(l->gguf, l->names[0], err);
    if (!rc)
        rc = ntx_adapters_fit(l->gguf, l->fds, l->n_files, l->names, err);
    if (!rc)
        rc = ntx_model_open(l->gguf, &l->model, err);
    const bool chooses = !shared || ntx__load_is_first(shared); /* another machine's share has holes in its tables */
    for (unsigned copy = 0; !rc && chooses && copy < l->n_fds / l->n_files; copy++) /* every copy is read from */
        rc = ntx_numbers_check_files(l->model, l->fds + copy * l->n_files, err);
    if (!rc)
        rc = ntx_tokenizer_open(l->gguf, &l->tok, err);
    if (rc)
        return rc;
    if ((rc = name_adapters(l, set->lora, err)))
        return rc;
    l->env.tok = l->tok;
    l->env.n_vocab = l->model->hp.n_vocab;
    l->env.n_embd = l->model->hp.n_embd;
    l->env.n_layers = l->model->hp.n_layers;
    if ((rc = ntx__load_template(l, set, err)))
        return rc;
    if (ntx_tokenizer_n_vocab(l->tok) > l->env.n_vocab)
        return ntx_err_set(err, -EINVAL, "%s: the vocabulary has %u tokens, the output matrix %u rows", l->names[0],
                           ntx_tokenizer_n_vocab(l->tok), l->env.n_vocab);
    return 0;
}

/* Bytes of a captured row. */
static uint64_t capture_bytes(const struct ntx_loaded *l)
{
    return ntx_capture_floats(l->model, l->capture_ffns) * sizeof(float) + sizeof(struct ntx_capture);
}

static bool captures_rows(const struct ntx_load_request *r)
{
    return r->set.capture || r->set.skip_adapt || r->set.skip_verify;
}

/* Rows that a pass may capture beside two for each session, with some for calibration. */
static uint32_t capture_rows(const struct ntx_load_request *r)
{
    if (!captures_rows(r))
        return 0;
    return (r->set.rows ? r->set.rows : 512) / 8 + (r->set.capture ? 32 : 0);
}

/* Takes the limits that the plan found room for. */
static void take_client_limits(const struct ntx_load_request *r, struct ntx_loaded *l)
{
    const struct ntx_budget_clients *c = &l->plan->clients;
    l->max_sessions = c->sessions;
    l->logits_rows = c->logits_rows;
    l->few_rows = c->few_rows;
    l->kept_bytes = c->kept_bytes + 2 * l->sight.image;
    l->capture_rows = captures_rows(r) ? capture_rows(r) + 2 * c->sessions : 0;
    l->env.read_bytes = c->read_bytes;
    ntx_budget_constraint(l->model->hp.n_vocab, c, &l->env.words_most, &l->env.constraint_bytes);
    l->env.words = &l->words;
    l->starts.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    l->env.starts = &l->starts;
    l->env.ctx = l->plan->ctx;
    l->env.capture_ffns = l->capture_ffns;
}

static uint64_t sums_bytes(const struct ntx_load_request *r, const struct ntx_loaded *l)
{
    return r->set.sum_inputs ? ntx_input_sums_bytes(l->model) : 0;
}

/* Opens the sidecar of a model that was opened by its path: it lies beside it, with .skip.gguf for .gguf. */
static int open_sidecar(struct ntx_load_request *r, const struct ntx_ffn_mode *ffn, struct ntx_err *err)
{
    char path[4096];
    size_t len = strlen(r->path);
    if (!ntx_skip_learned(r->set.skip) && !ffn->learned)
        return 0;
    if (len > 5 && !strcmp(r->path + len - 5, ".gguf"))
        len -= 5;
    if (snprintf(path, sizeof path, "%.*s.skip.gguf", (int)len, r->path) >= (int)sizeof path)
        return ntx_err_set(err, -ENAMETOOLONG, "%s: the path is too long for a sidecar beside it", r->path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return ntx_err_set(err, -errno, "%s: cannot open the sidecar: %s; make it with ntx calibrate", path,
                           strerror(errno));
    r->sidecar_fd = fd;
    return 0;
}

/* Takes the sidecar. The predictor reads its part about layers; the digest says which model it must belong to. */
static int take_sidecar(struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err)
{
    l->kv_propagate = *r->set.skip_kv ? !strcmp(r->set.skip_kv, "propagate")
                                      : ntx_skip_learned(r->set.skip); /* measured: docs/log/skip.md */
    int rc = r->path && r->sidecar_fd < 0 ? open_sidecar(r, &l->ffn, err) : 0;
    if (!rc && r->sidecar_fd < 0 && ntx_skip_learned(r->set.skip))
        rc = ntx_err_set(
            err, -ENOENT,
            "skip '%.100s' needs a sidecar, and none came: make one with ntx calibrate, and send it (--sidecar)",
            r->set.skip);
    if (!rc && r->sidecar_fd >= 0 && !ntx_skip_learned(r->set.skip) && !l->ffn.learned)
        rc = ntx_err_set(err, -EINVAL,
                         "a sidecar came, and nothing uses it: it serves --skip static or predictive, and --ffn-sparse "
                         "predicted where that is learned");
    if (rc)
        return rc;
    l->sidecar_fd = r->sidecar_fd;
    r->sidecar_fd = -1;
    return l->sidecar_fd < 0 ? 0 : ntx_model_digest(l->gguf, l->fds, l->digest, err);
}

/* Reads the sidecar's networks for FFNs. */
static int take_nets(struct ntx_loaded *l, struct ntx_err *err)
{
    if (!l->ffn.learned)
        return 0;
    if (l->sidecar_fd < 0)
        return ntx_err_set(err, -ENOENT,
                           "--ffn-sparse predicted needs a sidecar here: make it with ntx calibrate MODEL --ffn --text "
                           "FILE -o SIDECAR");
    int rc = ntx_ffn_nets_read(l->sidecar_fd, l->model, l->digest, &l->nets, err);
    l->ffn.nets = l->nets;
    return rc;
}

/* A conversation that is cut back further than its windows reach is computed again. Under these modes that would
 * give other values, so all KV is kept. (A GPU rounds such answers as prompts, like those of a session whose KV was
 * freed.) */
static bool keeps_all_kv(const struct ntx_load_request *r, const struct ntx_loaded *l)
{
    return !ntx_skip_off(r->set.skip) || ntx_ffn_mode_groups(&l->ffn);
}

const char *ntx__load_undrafted(const struct ntx_loaded *l)
{
    if (ntx_keeps_rows_only(&l->model->hp))
        return NULL;
    if (l->back.gpu)
        return "a GPU's does not go back to where a pass began";
    return ntx_ffn_mode_groups(&l->ffn) ? "rows that are computed again would use other neurons" : NULL;
}

/* A recurrent state takes every token, so none may be skipped. */
static int check_recurrent(const struct ntx_load_request *r, const struct ntx_loaded *l, struct ntx_err *err)
{
    const char *named = !ntx_skip_off(r->set.skip) ? "--skip" : NULL,
               *never = l->n_drafters && !ntx_draft_auto(r->set.draft) ? ntx__load_undrafted(l) : NULL;
    if (never)
        return ntx_err_set(
            err, -ENOTSUP,
            "--draft FILE or nextn: layers of a %s model keep a recurrent state, and %s: such a model runs without",
            l->model->hp.arch, never);
    if (named && l->model->hp.streams.n && ntx_keeps_rows_only(&l->model->hp))
        return ntx_err_set(err, -ENOTSUP,
                           "%s: a %s model has several residual streams, in which no layer's part is predicted: such a "
                           "model runs without",
                           named, l->model->hp.arch);
    if (named && l->model->hp.no_output_norm)
        return ntx_err_set(err, -ENOTSUP,
                           "%s: the last layer of a %s model also norms the output: such a model runs without", named,
                           l->model->hp.arch);
    if (!named || ntx_keeps_rows_only(&l->model->hp))
        return 0;
    return ntx_err_set(
        err, -ENOTSUP,
        "%s: layers of a %s model keep a recurrent state, which every token changes: such a model runs without", named,
        l->model->hp.arch);
}

static struct ntx_plan_clients without_trees(const struct ntx_load_settings *set, const struct ntx_plan_clients *c)
{
    struct ntx_plan_clients fewer = *c;
    fewer.trees = false;
    fewer.least_rows = ntx_draft_looks_up(set->draft) ? fewer.least_rows : 0;
    return fewer;
}

/* Drafters are only worth their memory where drafts pay. */
static int weigh_drafters(struct ntx_loaded *l, const struct ntx_load_settings *set, struct ntx_plan_request *q,
                          struct ntx_plan_clients *clients, uint64_t bytes, struct ntx_err *err)
{
    struct ntx_plan_clients fewer = without_trees(set, q->clients);
    struct ntx_plan_request less = *q;
    struct ntx_plan *without;
    less.clients = &fewer;
    less.layers = false;
    less.other_bytes -= bytes;
    int rc = ntx_plan_make(l->model, &less, &without, err);
    if (rc)
        return rc;
    ntx__load_drafters_weigh(l, set, q->hw, without);
    if (l->drafters_left_out) {
        *clients = fewer;
        q->layers = false;
        q->other_bytes = less.other_bytes;
    }
    return 0;
}

/* Drafters are not streamed, so the error names their part of a budget that is too small. */
static int no_room_to_draft(const struct ntx_loaded *l, uint64_t bytes, struct ntx_err *err)
{
    char text[sizeof err->text], size[32];
    bool own = false;
    for (unsigned i = 0; i < l->n_drafters; i++)
        own |= l->drafter[i].kind == NTX_DRAFTER_FILE_NEXTN;
    memcpy(text, err->text, sizeof text);
    return ntx_err_set(err, err->code, "%s, or --draft off: drafters stay in memory whole and take %s of it%s", text,
                       ntx_format_size(bytes, size, sizeof size),
                       own ? " (the model's next-token block, with a copy of the output matrix)" : "");
}

/* A small model that does not fit beside the model is left out, since drafts only save time: the text itself drafts
 * instead. What the model has of its own and files by its states were asked for by their kind, so they are refused. */
static int plan_without_drafters(struct ntx_loaded *l, const struct ntx_load_settings *set, struct ntx_plan_request *q,
                                 struct ntx_plan_clients *clients, uint64_t bytes, struct ntx_err *err)
{
    bool models = !l->machines;
    for (unsigned i = 0; i < l->n_drafters; i++)
        models &= l->drafter[i].kind == NTX_DRAFTER_FILE_MODEL || l->drafter[i].kind == NTX_DRAFTER_FILE_LAYERS;
    if (!models)
        return no_room_to_draft(l, bytes, err);
    struct ntx_err why = {0};
    const uint64_t needed = ntx_plan_smallest(l->model, q);
    *clients = without_trees(set, clients);
    q->layers = false;
    q->other_bytes -= bytes;
    if (ntx_plan_make(l->model, q, &l->plan, &why))
        return no_room_to_draft(l, bytes, err);
    *err = (struct ntx_err){0};
    ntx__load_drafters_unfit(l, bytes, needed);
    return 0;
}

/* --draft auto without a drafter: where the model streams, its layers in memory draft if that is predicted to pay, or
 * is known to. */
static void weigh_layers(struct ntx_loaded *l, const struct ntx_load_settings *set, const struct ntx_plan_request *q)
{
    struct ntx_plan_request with = *q;
    struct ntx_plan *without = l->plan, *plan = NULL;
    struct ntx_err ignored = {0};
    const uint64_t bytes = l->plan->geo.n_sched && q->hw ? ntx__load_layers_offer(l, set) : 0;
    if (!bytes)
        return;
    with.layers = true;
    with.other_bytes += bytes;
    if (ntx_plan_make(l->model, &with, &plan, &ignored) || !plan->n_without) {
        ntx_plan_free(plan);
        l->n_drafters = 0;
        return;
    }
    l->plan = plan;
    ntx__load_drafters_weigh(l, set, q->hw, without);
}

/* Finds the hardware profile, for predictions. False: there is none. */
static bool find_profile(const struct ntx_load_request *r, struct ntx_hw *hw)
{
    struct ntx_err why = {0};
    if (ntx_hw_find(hw, &why)) {
        bool bad = why.code && why.code != -ENOENT;
        ntx_log(bad ? NTX_LOG_WARN : NTX_LOG_INFO, "no prediction: %s",
                bad ? why.text : "there is no hardware profile of this machine (ntx doctor measures one)");
        return false;
    }
    ntx_hw_cap(hw, r->set.link_nvme, r->set.link_h2d);
    if (ntx_hw_busy(hw))
        ntx_log(NTX_LOG_INFO,
                "the hardware profile is of a busy machine (a load of %.1f per processor): predictions may be too low",
                hw->load);
    return true;
}

/* Least --ram with room for a constrained answer that is refused now; 0: unknown. A tight plan left out a part of the
 * clients' share, which comes first. */
static uint64_t constrains_from(const struct ntx_loaded *l, const struct ntx_plan_request *q)
{
    const struct ntx_plan_clients *c = q->clients;
    if (l->machines)
        return 0;
    if (!l->plan->clients.constrains)
        return ntx_plan_constrains_from(l->model, q);
    struct ntx_budget_clients all = ntx_budget_clients(l->model->hp.n_vocab, c->choosing_bytes, c->least_rows, c->trees,
                                                       q->ram_bytes);
    uint64_t lacks = all.bytes - NTX_MIN(all.bytes, l->plan->clients.bytes);
    return q->ram_bytes + lacks + lacks / 16 + 1;
}

/* Warns at load, so that users do not learn it from their first request. */
static void warn_unconstrained(struct ntx_loaded *l, const struct ntx_plan_request *q)
{
    char has[32];
    l->env.constrains_from = constrains_from(l, q);
    if (l->env.constrains_from && !l->plan->clients.constrains)
        ntx_log(NTX_LOG_WARN,
                "grammars, schemas and tool calls are refused: --ram %s has no room for their tables of %u tokens; "
                "--ram %lluM or more has",
                ntx_format_size(q->ram_bytes, has, sizeof has), l->model->hp.n_vocab,
                (unsigned long long)NTX_ROUND_UP(l->env.constrains_from, 1ull << 20) >> 20);
}

/* A plan beside models of other daemons, which take beside_bytes of the budget: with the context that the model would
 * have alone, and all of it in memory. An automatic budget is measured, so that theirs is left out already. */
static int plan_beside(const struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_plan_request *q,
                       struct ntx_err *err)
{
    char need[32], has[32];
    struct ntx_plan *alone = NULL;
    int rc = ntx_plan_make(l->model, q, &alone, err);
    if (rc)
        return rc;
    const uint64_t total = alone->bytes_total;
    q->ctx = alone->ctx;
    ntx_plan_free(alone);
    if (r->set.ram)
        q->ram_bytes = l->ram_bytes = r->set.ram - NTX_MIN(r->set.ram, r->beside_bytes);
    rc = q->ram_bytes ? ntx_plan_make(l->model, q, &l->plan, err) : -ENOMEM;
    if (!rc && !l->plan->bytes_storage && !l->plan->geo.n_desc)
        return 0;
    if (rc && rc != -ENOMEM)
        return rc;
    ntx_plan_free(l->plan);
    l->plan = NULL;
    return ntx_err_set(err, -EDQUOT, "beside the other loaded models %s are left, and this one takes %s",
                       ntx_format_size(q->ram_bytes, has, sizeof has), ntx_format_size(total, need, sizeof need));
}

/* Reads from the model's biases and norms how K is kept. Other machines than the first keep none of it then
 * (machines_agree.c). */
static int take_kv_form(const struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err)
{
    enum ntx_kv_type type;
    int rc = ntx_kv_type_of(r->set.kv_type, &l->model->hp, &type, err);
    if (!rc)
        rc = ntx_kv_form_read(l->model, l->fds, type, &l->kv_form, err);
    if (!rc && l->kv_form)
        ntx_log(
            NTX_LOG_INFO,
            "K in %s: %u pairs of values with biases of up to %.0f are kept apart, the norms of %u layers are levelled",
            ntx_kv_type_name(type), l->kv_form->n_pairs, (double)l->kv_form->most, l->kv_form->n_scaled);
    return rc;
}

static int plan_any(const struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_plan_request *q,
                    struct ntx_err *err)
{
    if (r->beside_bytes && !l->machines)
        return plan_beside(r, l, q, err);
    return l->machines ? ntx__load_plan_shared(l, q, err) : ntx_plan_make(l->model, q, &l->plan, err);
}

/* Pictures take less memory, first of the projector's weights, where there is too little for the model. */
static int plan_with_pictures(const struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_plan_request *q,
                              struct ntx_err *err)
{
    int rc = plan_any(r, l, q, err);
    for (int step = 0; step < 2 && (rc == -ENOMEM || (!rc && !step)); step++) {
        const uint64_t before = ntx__load_vision_bytes(l) - q->stage_bytes;
        if (!(step ? ntx__load_vision_shrink(l) : ntx__load_vision_stream(l)))
            continue;
        q->stage_bytes = ntx_vision_need_stage(&l->sight);
        q->other_bytes -= before - (ntx__load_vision_bytes(l) - q->stage_bytes);
        ntx_plan_free(l->plan);
        l->plan = NULL;
        *err = (struct ntx_err){0};
        rc = plan_any(r, l, q, err);
    }
    return rc;
}

static int make_plan(const struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err)
{
    int rc = check_recurrent(r, l, err);
    if (rc)
        return rc;
    l->ram_bytes = ram_of(r);
    if (!l->ram_bytes)
        return ntx_budget_nothing(err);
    if (r->set.kv_ram && !*r->set.state)
        return ntx_err_set(err, -EINVAL,
                           "--kv-ram keeps older keys and values in a file: say in which directory with --state DIR "
                           "(ntx.conf: state under [prefix])");
    struct ntx_hw hw;
    const bool have = find_profile(r, &hw);
    const uint32_t threads = threads_of(r);
    uint64_t held = ntx_gguf_header_bytes(l->gguf) + ntx_tokenizer_bytes(l->tok) + (l->nets ? l->nets->bytes : 0),
             drafter = 0;
    enum ntx_kv_type kv_type;
    rc = ntx_kv_type_of(r->set.kv_type, &l->model->hp, &kv_type, err);
    held += l->kv_form ? l->kv_form->bytes : 0;
    if (!rc)
        rc = ntx__load_drafters_bytes(l, &r->set, threads, &drafter, err);
    held += drafter;
    if (rc)
        return rc;
    held += ntx__load_vision_bytes(l);
    l->capture_ffns = r->set.capture ? NTX_MIN(r->set.capture_ffns, l->model->hp.n_layers) : 0;
    struct ntx_plan_clients clients = {
        .choosing_bytes = l->ffn.kind == NTX_FFN_PROMPT ? ntx_ffn_set_bytes(l->model) : 0,
        .watched_bytes = captures_rows(r) ? 2 * capture_bytes(l) : 0,
        .least_rows = ntx_draft_rows(r->set.draft, r->set.draft_nodes),
        /* layers draft few tokens at a time */
        .trees = ntx_draft_trees(r->set.draft, r->set.draft_nodes) &&
                 !(l->n_drafters == 1 && ntx__load_drafters_layers(l)),
    };
    struct ntx_plan_request q = {
        .kv_type = kv_type,
        .kv_all = keeps_all_kv(r, l),
        .no_prefixes = r->set.no_prefix_cache,
        .kv_ram = r->set.kv_ram,
        .ffn = l->ffn,
        .prefetch = !r->set.no_prefetch,
        .layers = ntx__load_drafters_layers(l) != NULL,
        .ram_bytes = l->ram_bytes,
        .other_bytes = held + capture_rows(r) * capture_bytes(l) + sums_bytes(r, l),
        .clients = &clients,
        .vram_bytes = ntx__load_vram(r, l),
        .unified = l->back.info.integrated,
        .ctx = r->set.ctx,
        .sessions = r->set.sessions,
        .threads = threads,
        .max_rows = r->set.rows,
        .least_rows = l->sight.rows_together,
        .chunk_bytes = r->set.chunk,
        .ring_slots = r->set.ring,
        .hw = have ? &hw : NULL,
        .stop = r->stop,
    };
    rc = plan_with_pictures(r, l, &q, err);
    if (rc == -ENOMEM && drafter)
        rc = plan_without_drafters(l, &r->set, &q, &clients, drafter, err);
    if (rc == -ENOMEM && l->vision && l->projector_found) {
        q.other_bytes -= ntx__load_vision_bytes(l) - q.stage_bytes;
        q.stage_bytes = 0;
        ntx__load_vision_drop(l, "its projector does not fit in memory beside it: give it more (--ram)");
        q.least_rows = 0;
        rc = plan_any(r, l, &q, err);
    }
    if (rc)
        return rc == -ENOMEM && l->vision ? ntx__load_vision_no_room(l, err) : rc;
    if (ntx__load_drafters_layers(l) && !l->plan->n_without)
        ntx__load_drafters_layers_drop(l);
    if (l->n_drafters && drafter && (!r->set.draft_nodes || l->drafters_unsure) && !l->machines &&
        (rc = weigh_drafters(l, &r->set, &q, &clients, drafter, err)))
        return rc;
    weigh_layers(l, &r->set, &q);
    struct ntx_kv_shape kv = l->plan->kv;
    if ((rc = ntx_kv_shape_limit(&l->model->hp, kv_type, r->set.kv_ram, &kv, err)))
        return rc;
    take_client_limits(r, l);
    warn_unconstrained(l, &q);
    return ntx__load_plan_gpu(r, l, &q, err);
}

static char *take_string(char **p)
{
    char *s = *p;
    *p = NULL;
    return s;
}

int ntx_load_open(struct ntx_load_request *r, struct ntx_loaded **out, struct ntx_err *err)
{
    struct ntx_loaded *l = calloc(1, sizeof *l);
    if (!l)
        return ntx_err_set(err, -ENOMEM, "no memory");
    l->wake_fd = -1;
    l->high = NTX_NO_SEGMENT;
    l->sidecar_fd = l->projector_fd = -1;
    int rc = ntx__load_files(r, l, err);
    if (!rc)
        rc = pick_kernel(r, l, err);
    if (!rc)
        rc = read_model(l, &r->set, r->machines, err);
    if (!rc)
        ntx_facts_read(l->gguf, l->fds, &l->facts);
    if (!rc)
        rc = ntx_ffn_mode_parse(r->set.ffn_sparse, l->model, &l->ffn, err);
    if (!rc)
        rc = take_sidecar(r, l, err);
    if (!rc)
        rc = take_nets(l, err);
    if (!rc && (!r->machines || ntx__load_is_first(r->machines))) /* the others keep no texts */
        rc = ntx__load_drafters_open(r, l, err);
    if (!rc && (!r->machines || ntx__load_is_first(r->machines)))
        rc = take_kv_form(r, l, err);
    if (!rc && !r->machines)
        rc = ntx__load_pick_gpu(r, l, err);
    if (!rc && r->machines)
        rc = ntx__load_share(r, l, err);
    if (!rc)
        rc = ntx__load_vision_open(r, l, threads_of(r), ram_of(r), err);
    if (!rc)
        rc = make_plan(r, l, err);
    if (rc && r->machines)
        ntx__load_unshared(r->machines, l, err);
    if (rc) {
        ntx_loaded_free(l);
        return rc;
    }
    l->set = r->set;
    r->set = (struct ntx_load_settings){0};
    l->iod_fault = take_string(&r->iod_fault);
    l->predictor_fault = take_string(&r->predictor_fault);
    if ((rc = ntx__load_vision_start(l, err))) {
        ntx_loaded_free(l);
        return rc;
    }
    *out = l;
    return 0;
}

/* Chunks of K and V of a skipped layer are read all the same: no drop map leaves them out. */
static void keep_kv_chunks(struct ntx_loaded *l, uint32_t layer)
{
    const struct ntx_layer *y = &l->model->layers[layer];
    for (const struct ntx_step *s = y->step; s < y->step + y->n_steps; s++)
        for (uint8_t i = 0; i < s->n_weights && s->feeds; i++) {
            const struct ntx_weight *w = &l->plan->chunks->layers[layer].of[s->weight[i]];
            for (uint32_t c = 0; c < w->n_chunks; c++)
                l->region.chunks[w->chunk0 + c].layer = NTX_NEVER_DROPPED;
        }
}

/* Writes the plan, of which ntx-iod gets a copy: once, before the region is handed over. */
static void fill_tables(struct ntx_loaded *l)
{
    struct ntx_region_hdr *h = l->region.hdr;
    memcpy(l->region.sched, l->plan->sched, l->plan->geo.n_sched * sizeof *l->plan->sched);
    for (uint32_t i = 0; i < h->n_chunks; i++) {
        l->region.chunks[i] = l->plan->table[i];
        if (l->region.chunks[i].placement == NTX_PLACE_HOST)
            l->region.chunks[i].where += h->off_arena;
        /* left out of passes that need no logits */
        if (l->region.chunks[i].placement == NTX_PLACE_STORAGE && l->plan->chunks->list[i].end)
            l->region.chunks[i].layer = NTX_END_OF_LAST(h->n_layers);
    }
    for (uint32_t i = 0; l->kv_propagate && i < h->n_layers; i++)
        keep_kv_chunks(l, i);
    for (unsigned i = 0; i < l->n_files; i++)
        h->file_bytes[i] = (uint64_t)l->stamps[i].st_size;
    if (h->n_stage_reads)
        h->file_bytes[h->n_files - 1] = l->projector_size;
}

int ntx_load_build(struct ntx_loaded *l, uint64_t epoch, struct ntx_counters *counters, struct ntx_err *err)
{
    l->plan->geo.epoch = epoch;
    l->counters = counters;
    bool by_parts = !l->back.gpu; /* a GPU needs all of it locked */
    int rc = by_parts ? ntx__load_begin_region(l, err)
                      : ntx_region_create(&l->plan->geo, &l->region, l->note, sizeof l->note, err);
    if (rc)
        return rc;
    fill_tables(l);
    if ((rc = ntx_region_publish(&l->region, err)))
        return rc;
    if ((l->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0)
        return ntx_err_set(err, -errno, "cannot make an eventfd: %s", strerror(errno));
    const struct ntx_plan *p = l->plan;
    struct ntx_stream_config c = {
        .region = &l->region,
        .counters = counters,
        .wake_fd = l->wake_fd,
        .wait_limit_s = 60,
        .names = (const char *const *)l->names,
        .chunks = p->chunks,
        .frames = &p->frames,
        .prefetch = !l->set.no_prefetch,
        .windows_at = l->region.hdr->off_arena + p->geo.arena_bytes - p->n_windows * p->window_bytes,
        .window_bytes = p->window_bytes,
        .n_windows = p->n_windows,
        .read_gap = p->read_gap,
        .frames_at = l->region.hdr->off_arena + p->geo.arena_bytes - ntx_frames_bytes(&p->frames),
    };
    if ((rc = ntx_stream_new(&c, &l->stream)))
        return ntx_err_set(err, rc, "cannot prepare the stream: %s", strerror(-rc));
    ntx__load_vision_build(l);
    if (by_parts && (rc = ntx__load_arena_start(l, err)))
        return rc;
    if ((rc = ntx__load_planes(l, err)) || (rc = ntx__load_drafters_build(l, epoch, err)))
        return rc;
    if ((rc = ntx_kv_pool_new(&l->model->hp, l->plan->kv_type, &l->plan->kv, &l->kv, err)))
        return rc;
    if (l->model->hp.kv_share)
        ntx_ranks_keep(l->ranks, l->kv);
    const struct ntx_drive drive = {l->set.link_nvme > 0 ? &l->region.ring->drive_until : NULL,
                                    1e9 / NTX_MAX(l->set.link_nvme, 1.0)};
    if (l->plan->kv.ram && (rc = ntx_kv_pool_spill(l->kv, l->set.state, l->plan->kv.ram, drive, err)))
        return rc;
    return ntx__load_build_gpu(l, err);
}

int ntx_load_start(struct ntx_loaded *l, const struct ntx_skip_hooks *skip, struct ntx_err *err)
{
    if (l->set.sum_inputs && (l->device || !(l->sums = ntx_input_sums_new(l->model))))
        return ntx_err_set(err, l->device ? -ENOTSUP : -ENOMEM,
                           l->device ? "sums of inputs are made by the CPU: --backend cpu"
                                     : "no memory for sums of inputs");
    struct ntx_forward_config c = {
        .model = l->model,
        .chunks = l->plan->chunks,
        .ops = l->ops,
        .weights = l->weights = ntx_stream_weights(l->stream),
        .threads = l->plan->threads,
        .max_rows = l->plan->max_rows,
        .ctx = l->plan->ctx,
        .skip = *skip,
        .ffn = l->ffn,
        .counters = l->counters,
        .trace_experts = l->set.trace_experts,
        .backend = l->back.kind ? l->back.kind->table : NULL,
        .device = l->device,
        .ranks = l->ranks,
        .sums = l->sums,
        .kv_form = l->device ? NULL : l->kv_form,
        .high = l->high.at,
    };
    for (unsigned i = 0; i < l->n_drafters; i++)
        if (l->drafter[i].needs.n_taps) {
            c.n_taps = l->drafter[i].needs.n_taps;
            c.taps = l->drafter[i].needs.tap;
        }
    if (l->ranks && ntx__load_is_first(l->machines))
        c.backend = ntx_ranks_backend(l->ranks);
    /* a GPU pass pays for showing states, and without a policy they serve nothing */
    if (l->device && !l->skips)
        c.skip = (struct ntx_skip_hooks){0};
    int rc = ntx_forward_new(&c, &l->forward, err);
    if (!rc)
        rc = ntx__load_drafters_start(l, err);
    if (!rc)
        ntx__load_start_gpu(l);
    return rc;
}

void ntx_loaded_free(struct ntx_loaded *l)
{
    if (!l)
        return;
    ntx__load_arena_free(l);
    ntx__load_free_gpu(l);
    if (l->ranks && l->forward)
        ntx__load_over(l);
    ntx_forward_free(l->forward);
    ntx_ranks_free(l->ranks);
    ntx_input_sums_free(l->sums);
    ntx_kv_pool_free(l->kv);
    ntx_stream_free(l->stream);
    ntx_region_close(&l->region);
    ntx_segment_close(&l->high);
    if (l->wake_fd >= 0)
        close(l->wake_fd);
    ntx_plan_free(l->plan);
    ntx_words_free(l->words);
    ntx_chat_free(l->chat);
    ntx_tokenizer_free(l->tok);
    ntx_ffn_nets_free(l->nets);
    ntx_kv_form_free(l->kv_form);
    ntx_model_free(l->model);
    ntx_gguf_free(l->gguf);
    for (unsigned i = 0; i < l->n_fds; i++) {
        close(l->fds[i]);
        free(l->names[i]);
    }
    if (l->sidecar_fd >= 0)
        close(l->sidecar_fd);
    ntx__load_drafters_free(l);
    ntx__load_vision_free(l);
    ntx_settings_drop(&ntx_load_settings, &l->set);
    free(l->iod_fault);
    free(l->predictor_fault);
    free(l);
}

static bool same_time(struct timespec a, struct timespec b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

bool ntx_loaded_changed(const struct stat *was, const struct stat *now)
{
    /* Adding or removing a link changes ctime, too, but no byte of the file. */
    bool renamed = now->st_nlink != was->st_nlink;
    return now->st_size != was->st_size || !same_time(now->st_mtim, was->st_mtim) ||
           (!renamed && !same_time(now->st_ctim, was->st_ctim));
}

int ntx_loaded_check(const struct ntx_loaded *l, struct ntx_err *err)
{
    struct stat now;
    for (unsigned i = 0; i < l->n_fds; i++) {
        const struct stat *was = &l->stamps[i];
        if (fstat(l->fds[i], &now))
            return ntx_err_set(err, -errno, "%s: %s", l->names[i], strerror(errno));
        if (ntx_loaded_changed(was, &now))
            return ntx_err_set(err, -ESTALE, "%s: the file has been changed while it was loaded: load the model again",
                               l->names[i]);
    }
    return 0;
}
