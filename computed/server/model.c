/* SPDX-License-Identifier: Apache-2.0 */
/* The states of the model, in the main thread (server.h has the picture). Blocking work runs in a work thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/engine/machines.h"
#include "computed/engine/monitor.h"
#include "computed/engine/stats.h"
#include "computed/server/server_impl.h"

#define TICK_MS      10
#define PROGRESS_NS  100000000ull
#define FILL_LIMIT_S 60u /* as long as a pass waits for a chunk */

static void on_tick(uv_timer_t *t)
{
    struct ntx_server *s = t->data;
    ntx__model_tick(s);
    bool awaited = s->state == NTX_MODEL_WAITING || s->state == NTX_MODEL_FILLING || s->state == NTX_MODEL_UNLOADING;
    if (!awaited && !s->iod_owed && !s->policy_owed)
        uv_timer_stop(t);
}

static void keep_ticking(struct ntx_server *s)
{
    if (!uv_is_active((uv_handle_t *)&s->tick) && !s->closed)
        uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS);
}

void ntx__requester_clear(struct ntx_requester *a)
{
    ntx_reply_queue_unref(a->replies);
    *a = (struct ntx_requester){0};
}

void ntx__requester_tell(struct ntx_server *s, struct ntx_requester *a, const struct ntx_err *e)
{
    if (a->replies)
        ntx_mail_error(s->mail, a->replies, a->id, e->code, "%s", e->text);
    else
        ntx_log(NTX_LOG_ERR, "%s", e->text);
    ntx__requester_clear(a);
}

/* A failed load without a client: its error goes into the status. */
void ntx__load_untold(struct ntx_server *s, const Ntx__Load *failed, const struct ntx_err *e)
{
    const char *name = failed->n_names ? failed->names[0] : failed->path;
    const char *what = s->revived ? "the model that was served before ntx-computed ended could not be loaded again"
                                  : "the model could not be loaded";
    const bool named = !*name || strstr(e->text, name);
    ntx__health_set(s, NTX_MON_PART_LOAD, NTX_MON_STOPPED, "%s: %s%s%s; load a model (ntx load MODEL)", what,
                    named ? "" : name, named ? "" : ": ", e->text);
}

static void log_plain_types(const struct ntx_loaded *l)
{
    bool told[NTX_TYPE_LIMIT] = {0};
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(l->gguf); i++) {
        uint32_t type = ntx_gguf_tensor_at(l->gguf, i)->type;
        if (type != NTX_I8 && !l->ops->own[ntx_planes_whole(type)] && !told[type])
            ntx_log(NTX_LOG_INFO,
                    "%s has no kernel of its own in %s: it is multiplied from its plain unpacking, to the same bits "
                    "but slower",
                    ntx_type_info(type)->name, l->ops->name);
        told[type] = true;
    }
}

static bool keep_fds(struct ntx_kept *k, const int *fds, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        int fd = k->n_fds < NTX_MAX_FILES ? fcntl(fds[i], F_DUPFD_CLOEXEC, 0) : -1;
        if (fd < 0)
            return false;
        k->fds[k->n_fds++] = fd;
    }
    return true;
}

static bool keep_drafters(struct ntx_kept *k, const struct ntx_loaded *l)
{
    bool kept = true;
    for (unsigned i = 0; i < ntx_load_drafter_files(l) && kept; i++)
        kept = keep_fds(k, &l->drafter[i].fd, 1);
    return kept && keep_fds(k, l->left_out, l->n_left_out);
}

/* Keeps the loaded model, so that it can be loaded again: open files, and its present settings. */
static int keep_model(const struct ntx_server *s, struct ntx_kept *k)
{
    struct ntx_loaded *l = s->loaded;
    Ntx__Load m = *s->load;
    m.path = (char *)"";
    m.n_also = 0;
    m.names = l->names;
    m.n_names = l->n_fds;
    m.copies = l->n_fds / l->n_files;
    m.sidecar = l->sidecar_fd >= 0;
    m.projector = l->projector_fd >= 0;
    m.drafters = ntx_load_drafter_files(l) + l->n_left_out;
    m.ram_bytes = l->ram_bytes;
    m.beside_bytes = 0; /* ram_bytes is what they left */
    ntx_kept_free(k);
    if (!keep_fds(k, l->fds, l->n_fds) || (m.projector && !keep_fds(k, &l->projector_fd, 1)) || !keep_drafters(k, l) ||
        (m.sidecar && !keep_fds(k, &l->sidecar_fd, 1)) || !(k->load = ntx__load_copy(&m))) {
        ntx_kept_free(k);
        return -ENOMEM;
    }
    return 0;
}

static void keep_old(struct ntx_server *s)
{
    if (keep_model(s, &s->old))
        ntx_log(NTX_LOG_WARN,
                "if the new model fails, the old one is not loaded again: no memory, or too few descriptors");
}

/* The model is served now: keeps it for the next ntx-computed, should this one die. */
static void keep_served(struct ntx_server *s)
{
    struct ntx_kept k = {0};
    struct ntx_err err = {0};
    if (!s->c.keep || s->c.machines)
        return;
    int rc = keep_model(s, &k)
                 ? ntx_err_set(&err, -ENOMEM,
                               "if ntx-computed dies, its model is not loaded again: no memory, or too few descriptors")
                 : ntx_keeper_put(s->c.keep, &k, &err);
    if (rc)
        ntx_log(NTX_LOG_WARN, "%s", err.text);
    ntx_kept_free(&k);
}

static void tell_loaded(struct ntx_server *s)
{
    Ntx__Loaded m = NTX__LOADED__INIT;
    Ntx__Reply r = NTX__REPLY__INIT;
    struct ntx_requester *a = &s->loader;
    ntx_kept_free(&s->old);
    s->revived = false;
    ntx__health_well(s, NTX_MON_PART_LOAD);
    keep_served(s);
    ntx_log(NTX_LOG_INFO, "%s is loaded: %u tokens of context, %s", s->loaded->names[0], s->loaded->env.ctx,
            s->loaded->ops->name);
    log_plain_types(s->loaded);
    if (!s->loaded->env.chat && !s->loaded->env.has_template)
        ntx_log(NTX_LOG_INFO, "it has no chat template: a single prompt is continued as a text");
    if (a->replies && (m.info_json = ntx_stats_info(s->loaded))) {
        char *notes[NTX_MAX_NOTES], *detail = s->loaded->note;
        m.notes = notes;
        m.details = &detail;
        m.n_details = *detail != 0;
        for (unsigned i = 0; i < s->n_notes; i++)
            if (strcmp(s->notes[i], detail))
                notes[m.n_notes++] = s->notes[i];
        r.id = a->id;
        r.body_case = NTX__REPLY__BODY_LOADED;
        r.loaded = &m;
        ntx_mail_reply(s->mail, a->replies, &r, true);
        free(m.info_json);
    }
    ntx__requester_clear(a);
}

void ntx__model_note(struct ntx_server *s, const char *text)
{
    for (unsigned i = 0; i < s->n_notes; i++)
        if (!strcmp(s->notes[i], text))
            return;
    if (!*text || s->n_notes == NTX_MAX_NOTES)
        return;
    ntx_log(NTX_LOG_INFO, "%s", text);
    char *copy = strdup(text);
    if (copy)
        s->notes[s->n_notes++] = copy;
}

static void forget_notes(struct ntx_server *s)
{
    while (s->n_notes)
        free(s->notes[--s->n_notes]);
}

/* ---- building */

static void build_model(struct ntx_server *s);

void ntx__model_switch(struct ntx_server *s, const struct ntx_requester *requester, struct ntx_loaded *next,
                       Ntx__Load *load)
{
    s->loader = *requester;
    s->next = next;
    s->next_load = load;
    if (!s->loaded) {
        build_model(s);
        return;
    }
    keep_old(s);
    ntx__model_unload(s);
}

static void build_work(uv_work_t *w)
{
    struct ntx_server *s = w->data;
    s->work_rc = ntx_load_build(s->loaded, s->epoch, s->counters, &s->work_err);
}

_Static_assert(NTX_DRAFTERS >= NTX_DRAFT_FILES, "");
static unsigned models_that_draft(const struct ntx_loaded *l, int fds[NTX_DRAFTERS][NTX_DRAFTER_FDS])
{
    unsigned n = 0;
    for (unsigned i = 0; i < l->n_drafters; i++) {
        const struct ntx_load_drafter *d = &l->drafter[i];
        if (d->kind == NTX_DRAFTER_FILE_MODEL)
            memcpy(fds[n++],
                   (const int[NTX_DRAFTER_FDS]){d->drafts.part[0].fd, d->drafts.part[1].fd, d->fd,
                                                d->needs.lent ? l->high.fd : -1},
                   sizeof *fds);
    }
    return n;
}

static void set_gauges(struct ntx_server *s)
{
    const struct ntx_plan *p = s->loaded ? s->loaded->plan : NULL;
    ntx_gauge(s->counters, NTX_C_comp_bytes_model, p ? p->bytes_model : 0);
    ntx_gauge(s->counters, NTX_C_comp_bytes_host, p ? p->bytes_host : 0);
    ntx_gauge(s->counters, NTX_C_comp_bytes_device, p ? p->bytes_device : 0);
    ntx_gauge(s->counters, NTX_C_comp_bytes_storage, p ? p->bytes_storage : 0);
    ntx_gauge(s->counters, NTX_C_comp_kv_blocks, p ? p->kv.blocks : 0);
    ntx_gauge(s->counters, NTX_C_comp_bytes_unlocked, p ? s->loaded->pageable : 0);
    ntx_gauge(s->counters, NTX_C_comp_ring_slots, p ? p->geo.n_desc : 0);
    ntx_gauge(s->counters, NTX_C_comp_ceiling_bps, p ? (uint64_t)s->loaded->set.link_nvme : 0);
    ntx_monitor_model(s->counters, s->loaded);
}

static void after_build(uv_work_t *w, int status)
{
    struct ntx_server *s = w->data;
    struct ntx_loaded *l = s->loaded;
    (void)status;
    s->state = NTX_MODEL_WAITING;
    s->deadline_ns = ntx_now_ns() + NTX_WORKERS_MS * 1000000ull;
    s->progress_ns = s->full_ticks = 0;
    s->iod_ready = s->policy_ready = s->iod_owed = s->policy_owed = false;
    if (!s->work_rc && s->draining)
        s->work_rc = ntx_err_set(&s->work_err, -ESHUTDOWN, "ntx-computed is shutting down");
    if (!s->work_rc) {
        ntx_counts_now(s->counters, &s->at_load);
        if (ntx_tokenizer_note(l->tok))
            ntx__model_note(s, ntx_tokenizer_note(l->tok));
        ntx__model_note(s, l->back_note);
        ntx__model_note(s, l->graph_note);
        int drafter[NTX_DRAFTERS][NTX_DRAFTER_FDS], files[NTX_MAX_FILES];
        unsigned drafters = models_that_draft(l, drafter);
        ntx_workers_sidecar(s->workers, l->sidecar_fd);
        ntx_workers_drafters(s->workers, drafter, drafters);
        s->work_rc = ntx_workers_attach(s->workers, &l->region, l->wake_fd, files, ntx_loaded_files(l, files));
        s->attached = !s->work_rc;
        char who[64];
        if (s->work_rc == -EBUSY && ntx_workers_holder(s->workers, who, sizeof who))
            ntx_err_set(&s->work_err, s->work_rc,
                        "%s waits for a drive that does not answer, and the system cannot end it (see dmesg): models "
                        "can be loaded again when that drive answers",
                        who);
        else if (s->work_rc)
            ntx_err_set(&s->work_err, s->work_rc, "cannot hand the region to the workers: %s", strerror(-s->work_rc));
    }
    if (!s->work_rc && ntx__worker_unfit(s))
        s->work_rc = ntx_err_set(&s->work_err, -EPROTO, "%s", ntx__worker_unfit(s));
    if (s->work_rc)
        ntx__model_fail(s, s->work_err.code, "%s", s->work_err.text);
    else
        keep_ticking(s);
}

/* The old model is unloaded, if there was one. */
static void build_model(struct ntx_server *s)
{
    s->loaded = s->next;
    s->loaded_bytes = s->loaded->plan->bytes_total;
    s->load = s->next_load;
    s->next = NULL;
    s->next_load = NULL;
    s->epoch++;
    forget_notes(s);
    s->iod_text[0] = 0;
    s->failed_ticks = 0;
    s->no_iod = s->spoilt = false;
    s->state = NTX_MODEL_BUILDING;
    s->work_err = (struct ntx_err){0};
    s->work.data = s;
    uv_queue_work(s->loop, &s->work, build_work, after_build);
}

/* ---- up */

/* Called by the follower's thread. */
static void on_followed(void *ctx, int rc, const char *text)
{
    struct ntx_server *s = ctx;
    s->followed_rc = rc;
    snprintf(s->followed_why, sizeof s->followed_why, "%.*s", (int)sizeof s->followed_why - 1, text);
    ntx_mail_note(s->mail, NTX_MAIL_FOLLOWED);
}

static int start_model(struct ntx_server *s, struct ntx_err *err)
{
    struct ntx_loaded *l = s->loaded;
    struct ntx_skip_config k = {
        .region = &l->region,
        .counters = s->counters,
        .mail = s->mail,
        .probe_layer = l->probe_layer,
        .n_layers = l->model->hp.n_layers,
        .max_rows = l->plan->max_rows,
        .skips = l->skips,
        .propagate = l->kv_propagate,
    };
    int rc = ntx_skip_new(&k, &s->skip);
    if (rc)
        return ntx_err_set(err, rc, "no memory for the probe board");
    /* a policy that skips nothing is not asked: three threads would wake up for every token */
    struct ntx_skip_hooks hooks = l->skips ? ntx_skip_hooks(s->skip) : (struct ntx_skip_hooks){0};
    if ((rc = ntx_load_start(l, &hooks, err)))
        return rc;
    if (l->ranks && ntx_machines_rank(s->c.machines)) {
        rc = ntx_machines_follow(s->c.machines, l, on_followed, s);
        s->following = !rc;
        return rc ? ntx_err_set(err, rc, "cannot start a thread: %s", strerror(-rc)) : 0;
    }
    struct ntx_engine_config e = {.loaded = l,
                                  .skip = s->skip,
                                  .counters = s->counters,
                                  .mail = s->mail,
                                  .share_all = s->c.share_all,
                                  .max_queue = s->c.max_queue};
    return ntx_engine_new(&e, &s->engine, err);
}

void ntx__model_workers_ready(struct ntx_server *s)
{
    struct ntx_err err = {0};
    if (s->state != NTX_MODEL_WAITING || !s->iod_ready || !s->policy_ready)
        return;
    if (start_model(s, &err)) {
        ntx__model_fail(s, err.code, "%s", err.text);
        return;
    }
    s->state = NTX_MODEL_FILLING;
    s->filling_ns = ntx_now_ns();
    s->fill_patience = ntx_patience(FILL_LIMIT_S * 1000000000ull);
    ntx__files_begin(s, s->revived);
    ntx__model_note(s, s->loaded->lock_note);
    set_gauges(s);
    ntx__release_parked(s);
    ntx__model_tick(s);
}

void ntx__model_fail(struct ntx_server *s, int err, const char *fmt, ...)
{
    va_list ap;
    s->load_err.code = err;
    va_start(ap, fmt);
    vsnprintf(s->load_err.text, sizeof s->load_err.text, fmt, ap);
    va_end(ap);
    ntx__model_unload(s);
}

static void check_workers(struct ntx_server *s, uint64_t now)
{
    if (now < s->deadline_ns)
        return;
    if (ntx__worker_do_without(s))
        return;
    const char *who = s->iod_ready ? "ntx-predictor" : "ntx-iod";
    char how[160];
    if (ntx_workers_end(s->workers, s->iod_ready ? NTX_ROLE_PREDICTOR : NTX_ROLE_IOD, how, sizeof how))
        ntx__model_fail(s, -ETIMEDOUT, "%s did not get ready within %d s: it ended, the last time %s", who,
                        NTX_WORKERS_MS / 1000, how);
    else
        ntx__model_fail(s, -ETIMEDOUT, "%s did not get ready within %d s: is it running, with --runtime %s?", who,
                        NTX_WORKERS_MS / 1000, s->c.dir);
}

/* Bytes of the arena's chunks that could not be read. */
static uint64_t arena_failed(const struct ntx_loaded *l)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < l->region.hdr->n_chunks; i++)
        if (l->region.chunks[i].placement == NTX_PLACE_HOST &&
            ntx_word_state(atomic_load(&l->region.state[i])) == NTX_FAILED)
            bytes += l->region.chunks[i].bytes;
    return bytes;
}

/* A client that loads gets the error and may load again. A service that loads by itself stays up, and the next request
 * has the failed parts read again (stream.c, begin). */
static void on_arena_failed(struct ntx_server *s, bool settled)
{
    char why[sizeof s->iod_text] = "a part of the model could not be read";
    if (s->iod_text[0])
        snprintf(why, sizeof why, "%s", s->iod_text);
    else
        ntx_stream_host_failure(s->loaded->stream, why, sizeof why);
    if (s->loader.replies) {
        ntx__model_fail(s, -EIO, "%s", why);
    } else if (settled) {
        ntx_log(NTX_LOG_ERR, "%s; it is tried again when a request needs it", why);
        s->state = NTX_MODEL_READY;
        tell_loaded(s);
        ntx__server_step(s);
    }
}

static void tell_filling(struct ntx_server *s, uint64_t done, uint64_t total, double elapsed_s)
{
    struct ntx_how_far p = {.phase = "load"};
    p.done = done;
    p.total = total;
    p.bytes_per_s = elapsed_s > 0.05 ? (double)done / elapsed_s : 0; /* sooner it tells of copies in memory alone */
    p.left_s = p.bytes_per_s > 0 ? (double)(total - done) / p.bytes_per_s : 0;
    ntx_mail_how_far(s->mail, s->loader.replies, s->loader.id, &p);
}

/* Whether filling hangs: no pass waits for a chunk yet that would notice. A service stays up, since its requests get
 * the error. */
static bool fill_hangs(struct ntx_server *s, uint64_t done, bool all_memory)
{
    uint64_t filled = done + ntx_counter_get(s->counters, NTX_C_iod_bytes_read);
    if (filled != s->filled || !all_memory || !s->loader.replies)
        s->fill_patience = ntx_patience(FILL_LIMIT_S * 1000000000ull);
    s->filled = filled;
    return ntx_patience_over(&s->fill_patience);
}

static void check_arena(struct ntx_server *s, uint64_t now)
{
    struct ntx_err err = {0};
    int rc = ntx_load_arena(s->loaded, &err);
    if (rc && rc != -EAGAIN) {
        ntx__model_fail(s, err.code, "%s", err.text);
        return;
    }
    uint64_t total = s->loaded->plan->bytes_at_load, done = NTX_MIN(ntx_stream_host_ready(s->loaded->stream), total);
    /* the second time, so that ntx-iod's messages about the files have arrived, too */
    if (done == total && !rc && s->full_ticks++) {
        s->state = NTX_MODEL_READY;
        ntx__model_note(s, s->loaded->note);
        tell_loaded(s);
        ntx__warm_prefix_begin(s);
        ntx__server_step(s);
    } else if (done < total && fill_hangs(s, done, !rc)) {
        ntx__model_fail(s, -ETIMEDOUT, "no byte of the model came within %u s: the drive hangs, or ntx-iod does",
                        FILL_LIMIT_S);
    } else if (done < total && now - s->progress_ns >= PROGRESS_NS) {
        uint64_t failed = arena_failed(s->loaded);
        s->progress_ns = now;
        if (failed && (s->iod_text[0] || s->failed_ticks++)) /* ntx-iod's message comes another way, perhaps later */
            on_arena_failed(s, !rc && done + failed == total);
        else if (s->loader.replies)
            tell_filling(s, done, total, (double)(now - s->filling_ns) / 1e9);
    }
}

void ntx__model_tick(struct ntx_server *s)
{
    uint64_t now = ntx_now_ns();
    if (s->iod_owed || s->policy_owed)
        ntx__worker_owed(s);
    if (s->state == NTX_MODEL_WAITING)
        check_workers(s, now);
    else if (s->state == NTX_MODEL_FILLING)
        check_arena(s, now);
    else if (s->state == NTX_MODEL_UNLOADING && !s->engine && !s->following && s->loaded && now > s->deadline_ns) {
        ntx_log(NTX_LOG_WARN, "a worker has not let go of the region within %d s; going on without it",
                NTX_DETACH_MS / 1000);
        ntx__model_detached(s);
    }
    keep_ticking(s);
}

/* ---- down */

static void free_work(uv_work_t *w)
{
    struct ntx_server *s = w->data;
    ntx_loaded_free(s->leaving);
}

/* The load failed although all checks had passed: loads the replaced model again. */
static void on_load_failed(struct ntx_server *s, const Ntx__Load *failed)
{
    bool again = s->old.load && !s->draining;
    size_t n = strlen(s->load_err.text);
    if (again)
        snprintf(s->load_err.text + n, sizeof s->load_err.text - n,
                 "; the model that was there before is loaded again");
    if (!s->loader.replies && !s->draining)
        ntx__load_untold(s, failed, &s->load_err);
    ntx__requester_tell(s, &s->loader, &s->load_err);
    s->revived = false;
    if (!again)
        return;
    ntx_log(NTX_LOG_WARN, "the new model failed; loading %s again", s->old.load->names[0]);
    ntx__pending_load_again(s, s->old.load, s->old.fds, s->old.n_fds, false);
    s->old.n_fds = 0; /* the pending load has them */
}

static void after_free(uv_work_t *w, int status)
{
    struct ntx_server *s = w->data;
    (void)status;
    s->leaving = NULL;
    s->loaded_bytes = 0;
    Ntx__Load *was = s->load;
    s->load = NULL;
    s->state = NTX_MODEL_EMPTY;
    set_gauges(s);
    if (s->unloader.replies)
        ntx_mail_done(s->mail, s->unloader.replies, s->unloader.id, "", NULL);
    ntx__requester_clear(&s->unloader);
    if (s->next && s->draining) {
        ntx_loaded_free(s->next);
        ntx__load__free_unpacked(s->next_load, NULL);
        s->next = NULL;
        s->next_load = NULL;
        ntx_err_set(&s->load_err, -ESHUTDOWN, "ntx-computed is shutting down");
    }
    if (s->load_err.code && !s->next)
        on_load_failed(s, was);
    ntx__load__free_unpacked(was, NULL);
    if (s->next) {
        build_model(s);
        return;
    }
    s->load_err = (struct ntx_err){0};
    ntx_kept_free(&s->old);
    ntx__release_parked(s);
    ntx__server_step(s);
}

void ntx__model_detached(struct ntx_server *s)
{
    if (s->state != NTX_MODEL_UNLOADING || s->engine || s->following || !s->loaded)
        return;
    s->leaving = s->loaded;
    s->loaded = NULL;
    ntx_skip_free(s->skip);
    s->skip = NULL;
    s->work.data = s;
    uv_queue_work(s->loop, &s->work, free_work, after_free);
}

/* Computing has ended: the workers detach from the region. */
static void detach_workers(struct ntx_server *s)
{
    s->deadline_ns = ntx_now_ns() + NTX_DETACH_MS * 1000000ull;
    keep_ticking(s);
    if (s->loaded->region.base) {
        atomic_store(&s->loaded->region.control->stop, 1);
        if (s->loaded->wake_fd >= 0)
            eventfd_write(s->loaded->wake_fd, 1);
    }
    if (s->attached)
        ntx_workers_detach(s->workers);
    else
        ntx__model_detached(s);
    s->attached = false;
}

void ntx__model_engine_stopped(struct ntx_server *s)
{
    ntx_engine_free(s->engine);
    s->engine = NULL;
    detach_workers(s);
}

/* The first machine has ended, or cannot be reached: ends, too. */
void ntx__model_followed(struct ntx_server *s)
{
    ntx_machines_joined(s->c.machines);
    s->following = false;
    if (s->state == NTX_MODEL_UNLOADING) {
        detach_workers(s);
        return;
    }
    if (s->followed_rc)
        s->lost = s->followed_why;
    else
        ntx_log(NTX_LOG_INFO, "the first machine is done");
    ntx_server_shutdown(s, 0);
}

void ntx__model_unload(struct ntx_server *s)
{
    s->state = NTX_MODEL_UNLOADING;
    ntx__files_end(s);
    s->iod_owed = s->policy_owed = false;
    if (s->following) {
        ntx_machines_stop(s->c.machines);
        ntx_stream_abort(s->loaded->stream, -ESHUTDOWN, "this machine is shutting down");
    } else if (s->engine)
        ntx_engine_quit(s->engine);
    else
        detach_workers(s);
}
