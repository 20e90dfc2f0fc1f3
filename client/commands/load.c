/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/out.h"
#include "client/progress.h"
#include "client/supervise.h"
#include "common/util.h"

int ntx_fail(const struct ntx_err *err)
{
    if (err->code == -EINTR && ntx_client_signalled())
        return 128 + ntx_client_signalled();
    if (err->text[0])
        ntx_say("%s", err->text);
    else
        ntx_say("%s", strerror(err->code ? -err->code : EIO));
    return NTX_EXIT_FAILED;
}

void ntx_clear_progress(void)
{
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

/* Reports the notes of the load; with --verbose also the context length, where it was chosen for the user. */
static void report_loaded(struct ntx_client *c, const struct ntx_options *o, const Ntx__Loaded *l)
{
    static const char on_cpu[] = "computing on the CPU:", predictor[] = "ntx-predictor ";
    json_t *info = json_loads(l->info_json, 0, NULL);
    json_int_t ctx = json_integer_value(json_object_get(info, "ctx"));
    if (o->verbose && !o->quiet && !o->load.ctx && ctx)
        ntx_say("context of %lld tokens (--ctx)", (long long)ctx);
    for (size_t i = 0; i < l->n_notes && !o->quiet; i++)
        /* why no GPU computes matters only to a user who asks for one */
        if (o->load.backend || strncmp(l->notes[i], on_cpu, sizeof on_cpu - 1))
            ntx_say("%s", l->notes[i]);
    for (size_t i = 0; i < l->n_notes && ntx_client_supervisor(c); i++)
        if (!strncmp(l->notes[i], predictor, sizeof predictor - 1))
            ntx_supervisor_tell_predictor(ntx_client_supervisor(c), true);
    for (size_t i = 0; i < l->n_details && o->verbose; i++)
        ntx_say("%s", l->details[i]);
    json_decref(info);
}

static int check_options(const struct ntx_options *o, struct ntx_err *err)
{
    if (o->load.vram && o->load.backend && !strcmp(o->load.backend, "cpu"))
        return ntx_err_set(err, -EINVAL, "--vram has no meaning with --backend cpu");
    if (o->load.link_h2d > 0 && o->load.backend && !strcmp(o->load.backend, "cpu"))
        return ntx_err_set(err, -EINVAL, "--link h2d has no meaning with --backend cpu");
    return 0;
}

/* A model runs beyond its training context, but its answers get worse and worse. */
static void warn_long_context(const struct ntx_options *o, const struct ntx_model_files *f)
{
    struct ntx_str arch;
    char key[128];
    uint64_t trained;
    if (o->quiet || !o->load.ctx || ntx_gguf_str(f->gguf, "general.architecture", &arch))
        return;
    snprintf(key, sizeof key, "%.*s.context_length", (int)NTX_MIN(arch.n, (size_t)64), arch.p);
    if (!ntx_gguf_u64(f->gguf, key, &trained) && o->load.ctx > trained)
        ntx_say("--ctx %u is beyond the %llu tokens that the model was trained for: later text may make no "
                "sense",
                o->load.ctx, (unsigned long long)trained);
}

static Ntx__When when_to_load(const struct ntx_options *o)
{
    if (o->when_force)
        return NTX__WHEN__FORCE;
    if (o->when_drain)
        return NTX__WHEN__DRAIN;
    return o->when_wait ? NTX__WHEN__WAIT : NTX__WHEN__REFUSE;
}

/* Sends the Load request with all descriptors: the model's, then those of its copies. */
static int send_load(struct ntx_client *c, const struct ntx_options *o, const struct ntx_model_files *f, uint64_t *id,
                     struct ntx_err *err)
{
    Ntx__Load load = NTX__LOAD__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    struct ntx_model_files copies;
    int fds[2 * sizeof f->fds / sizeof *f->fds + 1 + NTX_DRAFT_FILES + 1], sidecar = -1, projector = -1,
                                                                           drafter[NTX_DRAFT_FILES];
    unsigned drafters = 0;
    char mmproj[4096];
    char *names[2 * sizeof f->fds / sizeof *f->fds];
    int rc = ntx_model_copies_open(o, f, &copies, err);
    if (rc)
        return rc;
    unsigned n = f->n + copies.n;
    memcpy(fds, f->fds, f->n * sizeof *fds);
    memcpy(names, f->names, f->n * sizeof *names);
    memcpy(fds + f->n, copies.fds, copies.n * sizeof *fds);
    memcpy(names + f->n, copies.names, copies.n * sizeof *names);
    ntx_options_load(o, &load);
    load.when = when_to_load(o);
    rc = ntx_projector_open(o, f, &projector, mmproj, err);
    if (!rc)
        rc = ntx_drafters_open(o, f, drafter, &drafters, err);
    if (!rc && !(rc = ntx_sidecar_open(o, f, &sidecar, err))) {
        load.names = names;
        load.n_names = n;
        load.drafters = drafters;
        if ((load.projector = projector >= 0))
            fds[n++] = projector;
        if (load.projector && *load.mmproj) /* else it was found, and is not asked for */
            load.mmproj = mmproj;
        for (unsigned i = 0; i < drafters; i++)
            fds[n++] = drafter[i];
        if ((load.sidecar = sidecar >= 0))
            fds[n++] = sidecar;
        q.body_case = NTX__REQUEST__BODY_LOAD;
        q.load = &load;
        rc = ntx_client_send(c, &q, fds, n, id, err);
    }
    if (sidecar >= 0)
        close(sidecar);
    if (projector >= 0)
        close(projector);
    while (drafters)
        close(drafter[--drafters]);
    ntx_model_files_close(&copies);
    return rc;
}

/* Shows the progress of the load that w waits for. */
static int await_load(struct ntx_replies *w, const struct ntx_options *o, struct ntx_progress *p, int rc,
                      struct ntx_err *err)
{
    while (ntx_client_more(w, &rc, err)) {
        if (w->reply->body_case == NTX__REPLY__BODY_PROGRESS)
            ntx_progress_show(p, w->reply->progress);
        if (w->reply->body_case == w->last) {
            ntx_progress_clear(p);
            report_loaded(w->client, o, w->reply->loaded);
        }
    }
    ntx_progress_clear(p);
    return rc == -EINTR ? ntx_err_set(err, rc, "interrupted") : rc;
}

int ntx_load_named(struct ntx_client *c, const struct ntx_options *o, const char *name, struct ntx_err *err)
{
    struct ntx_replies w = {.client = c, .last = NTX__REPLY__BODY_LOADED};
    struct ntx_progress p = ntx_progress_begin(o);
    Ntx__Load m = NTX__LOAD__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    int rc = check_options(o, err);
    m.known = (char *)(uintptr_t)name;
    q.body_case = NTX__REQUEST__BODY_LOAD;
    q.load = &m;
    ntx_progress_say(&p, "planning where the model goes");
    rc = rc ? rc : ntx_client_send(c, &q, NULL, 0, &w.id, err);
    return await_load(&w, o, &p, rc, err);
}

int ntx_load_model(struct ntx_client *c, const struct ntx_options *o, const struct ntx_model_files *f,
                   struct ntx_err *err)
{
    struct ntx_replies w = {.client = c, .last = NTX__REPLY__BODY_LOADED};
    int rc = check_options(o, err);
    struct ntx_progress p = ntx_progress_begin(o);
    if (!rc) {
        warn_long_context(o, f);
        ntx_progress_say(&p, "planning where the model goes");
        rc = send_load(c, o, f, &w.id, err);
    }
    if (!(rc = await_load(&w, o, &p, rc, err)))
        ntx_projector_tell(o, f);
    return rc;
}

int ntx_captive_start(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_client **c,
                      struct ntx_err *err)
{
    struct ntx_client *k = NULL;
    int rc = check_options(o, err);
    if (!rc)
        rc = ntx_client_captive(!o->verbose, &k, err);
    if (!rc)
        rc = ntx_load_model(k, o, f, err);
    if (rc) {
        ntx_client_free(k);
        return rc;
    }
    if (!o->quiet && o->load.state)
        ntx_supervisor_tell(ntx_client_supervisor(k), o->load.state);
    *c = k;
    return 0;
}

int ntx_captive_model(const struct ntx_options *o, struct ntx_model_files *f, struct ntx_client **c,
                      struct ntx_err *err)
{
    int rc = check_options(o, err);
    if (rc || (rc = ntx_model_files_load(o, f, err)))
        return rc;
    if ((rc = ntx_captive_start(o, f, c, err)))
        ntx_model_files_close(f);
    return rc;
}
