/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <string.h>

#include "client/monitor/top_view.h"

static json_t *json_of_count(uint64_t v) { return json_integer((json_int_t)v); }

static json_t *json_of_layers(const struct ntx_top *t)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < t->n_layers; i++) {
        const struct ntx_top_layer *l = &t->layer[i];
        json_array_append_new(list, json_pack("{s:f,s:f,s:f,s:f,s:f}", "device", l->device, "host", l->host, "storage",
                                              l->storage, "skipped", l->skipped, "predicted", l->predicted));
    }
    return list;
}

static json_t *json_of_sessions(const struct ntx_top *t)
{
    static const char *const names[] = {"", "waiting", "reading", "writing", "kept"};
    json_t *list = json_array();
    for (unsigned i = 0; i < t->n_sessions; i++) {
        const struct ntx_top_session *s = &t->session[i];
        json_array_append_new(list, json_pack("{s:I,s:s,s:i,s:i,s:i,s:f,s:f,s:f}", "session", (json_int_t)s->id,
                                              "state", names[s->state], "prompt_tokens", (int)s->prompt,
                                              "generated_tokens", (int)s->generated, "context", (int)s->past, "ttft_s",
                                              s->ttft_s, "decode_tok_s", s->tok_s, "age_s", s->age_s));
    }
    return list;
}

static json_t *json_of_machines(const struct ntx_top *t)
{
    json_t *list = json_array();
    for (unsigned i = 1; i < t->n_ranks; i++) {
        json_t *name = json_stringn(t->rank[i].name, strnlen(t->rank[i].name, sizeof t->c->mon.rank->name));
        json_array_append_new(
            list, json_pack("{s:o,s:f,s:f,s:f,s:f,s:I,s:i,s:i}", "name", name ? name : json_string("?"), "drive_bps",
                            t->rank[i].drive_bps, "stall", t->rank[i].stall, "multiply", t->rank[i].multiply, "message",
                            t->rank[i].message, "bytes_kv", (json_int_t)t->rank[i].kv_bytes, "ring_ready",
                            (int)t->rank[i].ring_ready, "ring_slots", (int)t->rank[i].ring_slots));
    }
    return json_pack("{s:i,s:f,s:f,s:o}", "ranks", (int)t->n_ranks, "rank_bps", t->rank_bps, "wait", t->rank_wait,
                     "others", list);
}

static json_t *json_of_processes(const struct ntx_top *t)
{
    json_t *j = json_object();
    for (int i = 0; i < 3; i++)
        json_object_set_new(j, t->process[i].name,
                            json_pack("{s:I,s:I,s:f}", "pid", (json_int_t)t->process[i].pid, "memory",
                                      (json_int_t)t->process[i].memory, "cpu", t->process[i].cpu));
    return j;
}

static json_t *json_of_share(const struct ntx_top *t, enum ntx_counter part, double whole)
{
    return whole > 0 ? json_real((double)ntx_top_now(t, part) / whole) : json_null();
}

/* Shares since the start; null: no base to divide by. */
static json_t *json_of_experts(const struct ntx_top *t)
{
    double wanted = (double)(ntx_top_now(t, NTX_C_comp_expert_hits) + ntx_top_now(t, NTX_C_comp_expert_misses));
    return json_pack(
        "{s:o,s:o,s:o}", "hit_rate", json_of_share(t, NTX_C_comp_expert_hits, wanted), "prefetch_recall",
        json_of_share(t, NTX_C_comp_prefetch_right, (double)ntx_top_now(t, NTX_C_comp_prefetch_wanted)),
        "prefetch_hit_rate",
        json_of_share(t, NTX_C_comp_prefetch_used_bytes, (double)ntx_top_now(t, NTX_C_comp_prefetch_bytes)));
}

/* Likewise; the names are those of a request's statistics. */
static json_t *json_of_drafts(const struct ntx_top *t)
{
    double passes = (double)ntx_top_now(t, NTX_C_comp_draft_passes),
           held = (double)ntx_top_now(t, NTX_C_comp_draft_hits);
    return json_pack("{s:o,s:o,s:f,s:{s:o,s:o}}", "accepted_per_pass",
                     passes > 0 ? json_real(1 + held / passes) : json_null(), "draft_nodes_per_pass",
                     json_of_share(t, NTX_C_comp_draft_nodes, passes), "draft_s",
                     (double)ntx_top_now(t, NTX_C_comp_draft_wait_ns) / 1e9, "draft_hits", "lookup",
                     json_of_count(ntx_top_now(t, NTX_C_comp_draft_hits_lookup)), "file",
                     json_of_count(ntx_top_now(t, NTX_C_comp_draft_hits_file)));
}

/* Since the start. buckets: [upper bound, null for none; values up to it and above the one before]. */
static json_t *json_of_histogram(const struct ntx_top *t, enum ntx_histogram which)
{
    const struct ntx_hist *h = &t->c->mon.hist[which];
    json_t *buckets = json_array();
    for (unsigned i = 0; i <= NTX_HIST_BOUNDS; i++) {
        json_t *bound = i < NTX_HIST_BOUNDS ? json_real((double)ntx_hist_bound(which, i) / 1e6) : json_null();
        uint64_t n = atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)&h->bucket[i], memory_order_relaxed);
        json_array_append_new(buckets, json_pack("[o,o]", bound, json_of_count(n)));
    }
    return json_pack("{s:o,s:f,s:f,s:f,s:o}", "count", json_of_count(ntx_hist_count(h)), "p50",
                     ntx_hist_quantile(h, which, 0.5), "p90", ntx_hist_quantile(h, which, 0.9), "p99",
                     ntx_hist_quantile(h, which, 0.99), "buckets", buckets);
}

static json_t *json_of_reasons(const struct ntx_top *t)
{
    json_t *list = json_array();
    for (int i = 0; i < NTX_MON_N_PARTS; i++) {
        json_t *text = t->trouble[i].grade != NTX_MON_WELL ? json_string(t->trouble[i].text) : NULL;
        if (text)
            json_array_append_new(list, text);
    }
    return list;
}

char *ntx_top_json(const struct ntx_top *t)
{
    json_t *counters = json_object();
    for (int i = 0; i < NTX_N_COUNTERS; i++)
        json_object_set_new(counters, ntx_counter_info[i].name, json_of_count(t->b.v[i]));
    json_t *model = json_stringn(t->c->mon.model, t->n_layers ? strnlen(t->c->mon.model, sizeof t->c->mon.model) : 0);
    json_t *j = json_pack("{s:o,s:f,s:s,s:f,s:f,s:b,s:f,s:f,s:f,s:f,s:f,s:f,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "model",
                          model ? model : json_string("?"), "uptime_s", t->uptime_s, "limit", t->limit, "drive_bps",
                          t->drive_bps, "drive_ceiling_bps", t->drive_ceiling_bps, "emulated", t->emulated, "ring_bps",
                          t->ring_bps, "ram_bps", t->ram_bps, "tok_s", t->tok_s, "prompt_tok_s", t->prompt_s, "stall",
                          t->stall, "decisions_s", t->decisions_s, "layers", json_of_layers(t), "sessions",
                          json_of_sessions(t), "processes", json_of_processes(t), "experts", json_of_experts(t),
                          "machines", json_of_machines(t), "drafts", json_of_drafts(t), "counters", counters);
    json_object_set_new(j, "state", json_string(ntx_mon_service_name[t->service]));
    for (int h = 0; h < NTX_N_HISTOGRAMS; h++)
        json_object_set_new(j, ntx_hist_info[h].name, json_of_histogram(t, (enum ntx_histogram)h));
    json_object_set_new(j, "reasons", json_of_reasons(t));
    const uint64_t loading_ns = atomic_load(&t->c->mon.loading_ns), now = ntx_now_ns();
    if (loading_ns) {
        json_t *loading = json_stringn(t->c->mon.loading, strnlen(t->c->mon.loading, sizeof t->c->mon.loading));
        json_object_set_new(j, "loading", loading ? loading : json_string("?"));
        json_object_set_new(j, "loading_s", json_real((double)(now - NTX_MIN(loading_ns, now)) / 1e9));
    }
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    return text;
}
