/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/monitor.h"

#include <stdio.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/load.h"
#include "computed/engine/machines.h"

static void store64(_Atomic uint64_t *to, uint64_t v) { atomic_store_explicit(to, v, memory_order_relaxed); }
static void store32(_Atomic uint32_t *to, uint32_t v) { atomic_store_explicit(to, v, memory_order_relaxed); }

static void put_layers(struct ntx_monitor *m, const struct ntx_plan *p, uint32_t n)
{
    for (uint32_t i = 0; i < NTX_MON_LAYERS; i++) {
        struct ntx_mon_layer *l = &m->layer[i];
        store64(&l->device, 0);
        store64(&l->host, 0);
        store64(&l->storage, 0);
        store64(&l->skipped, 0);
        store64(&l->predicted, 0);
    }
    for (uint32_t i = 0; i < p->chunks->n; i++) {
        const struct ntx_plan_chunk *c = &p->table[i];
        struct ntx_mon_layer *l = &m->layer[c->layer < n ? c->layer : n - 1];
        _Atomic uint64_t *to = &l->device;
        if (c->placement == NTX_PLACE_STORAGE)
            to = &l->storage;
        else if (c->placement == NTX_PLACE_HOST)
            to = &l->host;
        atomic_fetch_add_explicit(to, c->bytes, memory_order_relaxed);
    }
}

_Static_assert(NTX_MON_RANKS >= NTX_RANKS_MAX, "a row for each machine");

static void put_ranks(struct ntx_monitor *m, const struct ntx_loaded *l)
{
    store32(&m->n_ranks, 0);
    for (uint32_t i = 1; l->machines && i < l->machine_share.n; i++) {
        const char *name = ntx_machines_name(l->machines, i);
        snprintf(m->rank[i].name, sizeof m->rank[i].name, "%.*s", (int)sizeof m->rank[i].name - 1, name);
        atomic_store_explicit(&m->rank[i].kv_bytes, ntx_machines_kv_bytes(l->machines, i), memory_order_relaxed);
    }
    if (l->machines && !ntx_machines_rank(l->machines))
        store32(&m->n_ranks, l->machine_share.n);
}

void ntx_monitor_model(struct ntx_counters *c, const struct ntx_loaded *l)
{
    if (!c)
        return;
    struct ntx_monitor *m = &c->mon;
    store32(&m->n_layers, 0);
    if (!l)
        return;
    const char *slash = strrchr(l->names[0], '/');
    const char *name = slash ? slash + 1 : l->names[0];
    if (l->model->hp.name[0])
        name = l->model->hp.name;
    snprintf(m->model, sizeof m->model, "%.*s", (int)sizeof m->model - 1, name);
    snprintf(m->arch, sizeof m->arch, "%.*s", (int)sizeof m->arch - 1, l->model->hp.arch);
    snprintf(m->kernel, sizeof m->kernel, "%.*s", (int)sizeof m->kernel - 1, l->ops->name);
    put_ranks(m, l);
    uint32_t n = NTX_MIN(l->model->hp.n_layers + 1, (uint32_t)NTX_MON_LAYERS);
    put_layers(m, l->plan, n);
    atomic_store_explicit(&m->n_layers, n, memory_order_release);
}

static enum ntx_mon_state state_of(const struct ntx_session *s)
{
    if (s->state != NTX_SESSION_RUNNING)
        return s->state == NTX_SESSION_IDLE ? NTX_MON_KEPT : NTX_MON_WAITING;
    return ntx_session_decoding(s) ? NTX_MON_WRITING : NTX_MON_READING;
}

void ntx_monitor_sessions(struct ntx_counters *c, const struct ntx_session *s)
{
    if (!c)
        return;
    for (unsigned i = 0; i < NTX_MON_SESSIONS; i++) {
        struct ntx_mon_session *to = &c->mon.session[i];
        if (!s) {
            store32(&to->state, NTX_MON_NONE);
            continue;
        }
        store64(&to->id, s->id);
        store32(&to->prompt, s->run.prompt_tokens);
        store32(&to->past, s->n_past);
        store32(&to->generated, s->run.generated);
        store64(&to->asked_ns, s->run.asked_ns);
        store64(&to->first_ns, s->run.first_ns);
        store64(&to->last_ns, s->run.last_ns);
        store32(&to->state, state_of(s));
        s = s->next;
    }
}

void ntx_monitor_token(struct ntx_counters *c, const struct ntx_session *s, uint64_t before_ns)
{
    uint64_t since = before_ns ? before_ns : s->run.asked_ns, now = s->run.last_ns;
    ntx_observe(c, before_ns ? NTX_H_inter_token : NTX_H_ttft, now > since ? (now - since) / 1000 : 0);
    ntx_traced(c, NTX_TRACE_COMPUTED, NTX_TR_TOKEN, since, now, 0, s->id, s->run.generated);
}

void ntx_monitor_answer(struct ntx_counters *c, const struct ntx_session *s)
{
    uint64_t ns = s->run.last_ns - s->run.first_ns;
    if (s->kind == NTX_SESSION_GENERATE && s->run.generated > 1 && s->run.first_ns && ns)
        ntx_observe(c, NTX_H_throughput, (uint64_t)((double)(s->run.generated - 1) * 1e15 / (double)ns));
}
