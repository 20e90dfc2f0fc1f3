/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/state/kv_file.h"
#include "computed/engine/load.h"
#include "computed/engine/machines.h"
#include "ntx_version.h"

static double seconds(uint64_t from, uint64_t to) { return to > from ? (double)(to - from) / 1e9 : 0; }

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

static const char *model_name(const struct ntx_loaded *l)
{
    const char *slash = strrchr(l->names[0], '/');
    if (l->model->hp.name[0])
        return l->model->hp.name;
    return slash ? slash + 1 : l->names[0];
}

static void set_int(json_t *j, const char *key, uint64_t v)
{
    json_object_set_new(j, key, json_integer((json_int_t)v));
}

static void set_str(json_t *j, const char *key, const char *v)
{
    json_t *s = json_string(v);
    json_object_set_new(j, key, s ? s : json_string("(not UTF-8)"));
}

static void set_real(json_t *j, const char *key, double v) { json_object_set_new(j, key, json_real(v)); }

/* For a KV cache with a file: its traffic since the model was loaded. */
static void add_kv_file(json_t *j, const struct ntx_loaded *l)
{
    if (!l->kv || !ntx_kv_pool_file(l->kv))
        return;
    const struct ntx_kv_file_stats s = ntx_kv_file_stats(ntx_kv_pool_file(l->kv));
    set_int(j, "kv_ram", l->plan->kv.ram);
    set_int(j, "kv_read_bytes", s.read_bytes);
    set_int(j, "kv_held_most", s.held_most);
    set_real(j, "kv_wait_s", (double)s.waited_ns / 1e9);
}

/* As lists of models show it. */
static void add_file(json_t *j, const struct ntx_loaded *l)
{
    char id[128];
    uint64_t bytes = 0;
    snprintf(id, sizeof id, "%s", model_name(l));
    ntx_facts_id(id);
    for (unsigned i = 0; i < l->n_files; i++)
        bytes += (uint64_t)l->stamps[i].st_size;
    set_str(j, "id", id);
    set_int(j, "file_bytes", bytes);
    set_int(j, "file_changed", (uint64_t)l->stamps[0].st_mtim.tv_sec);
    set_str(j, "type", l->facts.type);
    set_str(j, "digest", l->facts.digest);
    set_int(j, "parameters", l->facts.parameters);
}

int ntx_stats_add_model(json_t *j, const struct ntx_loaded *l)
{
    const struct ntx_plan *p = l->plan;
    struct ntx_err coming;
    json_t *lossy = json_array();
    if (l->skips) {
        char text[600];
        int n = snprintf(text, sizeof text, "skip:%.500s%s%s", l->set.skip, l->kv_propagate ? " kv=propagate" : "",
                         l->set.skip_adapt ? " adapt" : "");
        if (l->set.skip_verify)
            snprintf(text + n, sizeof text - (size_t)n, " verify=%u", l->set.skip_verify);
        json_array_append_new(lossy, json_string(text));
    }
    if (ntx_ffn_mode_lossy(&l->ffn))
        json_array_append_new(lossy, json_sprintf("ffn_sparse:%s", l->set.ffn_sparse));
    if (l->plan->kv_type != NTX_KV_F16)
        json_array_append_new(lossy, json_sprintf("kv_%s", ntx_kv_type_name(l->plan->kv_type)));
    if (l->model->delta.error > 0)
        json_array_append_new(lossy, json_sprintf("delta:error=%.4f", (double)l->model->delta.error));
    json_t *adapters = json_array();
    for (uint32_t i = 0; i < l->env.n_adapters; i++) {
        json_array_append_new(adapters, json_string(l->env.adapter[i]));
        if (l->model->delta.adapter_error[i + 1] > 0)
            json_array_append_new(lossy, json_sprintf("delta:%s:error=%.4f", l->env.adapter[i],
                                                      (double)l->model->delta.adapter_error[i + 1]));
    }
    json_object_set_new(j, "adapters", adapters);
    json_object_set_new(j, "images", json_boolean(l->images));
    set_str(j, "model", model_name(l));
    add_file(j, l);
    set_str(j, "arch", l->model->hp.arch);
    set_str(j, "backend", (l->back.kind ? l->back.kind : ntx_back_kinds)->name);
    if (*l->back_note)
        set_str(j, "backend_note", l->back_note);
    set_str(j, "kernel", l->ops->name);
    set_int(j, "threads", p->threads);
    set_int(j, "ctx", p->ctx);
    set_str(j, "kv_type", ntx_kv_type_name(p->kv_type));
    set_int(j, "bytes_kv", p->bytes_kv);
    add_kv_file(j, l);
    set_int(j, "bytes_model", p->bytes_model);
    set_int(j, "bytes_device", p->bytes_device);
    if (l->pageable)
        set_int(j, "bytes_unlocked", l->pageable);
    set_int(j, "bytes_host", p->bytes_host);
    set_int(j, "bytes_storage", p->bytes_storage);
    set_int(j, "bytes_rows", p->bytes_rows);
    set_real(j, "predicted_tok_s", p->predicted_tok_s);
    if (p->predicted_tok_s > 0)
        set_real(j, "profile_load", p->profile_load);
    set_str(j, "limit", p->limit ? p->limit : "");
    if (!ntx_load_arena(l, &coming))
        set_real(j, "huge_pages", l->region.huge_share);
    set_str(j, "commit", NTX_COMMIT);
    return json_object_set_new(j, "lossy", lossy);
}

static void add_times(json_t *j, const struct ntx_run_stats *r)
{
    uint32_t later = r->generated > 1 ? r->generated - 1 : 0;
    uint64_t read = r->at_end.bytes_read - r->at_start.bytes_read,
             decode = r->at_end.bytes_read - r->at_first.bytes_read;
    uint64_t prefill_end = r->first_ns ? r->first_ns : r->last_ns;
    uint64_t stall = r->at_end.stall_ns - r->at_start.stall_ns, pass = r->at_end.pass_ns - r->at_start.pass_ns;
    set_real(j, "queue_s", r->admitted_ns ? seconds(r->asked_ns, r->admitted_ns) : 0);
    set_real(j, "prefill_s", r->admitted_ns ? seconds(r->admitted_ns, prefill_end) : 0);
    set_real(j, "decode_s", seconds(r->first_ns, r->last_ns));
    set_real(j, "ttft_s", r->first_ns ? seconds(r->asked_ns, r->first_ns) : 0);
    set_real(j, "prefill_tok_s",
             r->admitted_ns ? ratio(r->prompt_tokens - NTX_MIN(r->cached_tokens, r->prompt_tokens),
                                    seconds(r->admitted_ns, prefill_end))
                            : 0);
    set_real(j, "decode_tok_s", ratio(later, seconds(r->first_ns, r->last_ns)));
    set_int(j, "passes", r->at_end.passes - r->at_start.passes);
    set_int(j, "bytes_read", read);
    set_real(j, "bytes_read_per_token", later ? (double)decode / later : (double)read);
    set_real(j, "reads_per_token",
             later ? (double)(r->at_end.reads - r->at_first.reads) / later
                   : (double)(r->at_end.reads - r->at_start.reads));
    set_real(j, "io_gb_s", ratio((double)read / 1e9, seconds(r->at_start.busy_ns, r->at_end.busy_ns)));
    set_real(j, "io_stall_s", (double)stall / 1e9);
    set_real(j, "compute_s", pass > stall ? (double)(pass - stall) / 1e9 : 0);
}

static void add_pictures(json_t *j, const struct ntx_run_stats *r)
{
    if (!r->pictures)
        return;
    set_int(j, "pictures", r->pictures);
    set_int(j, "pictures_encoded", r->pictures_encoded);
    set_int(j, "picture_tokens", r->picture_tokens);
    set_real(j, "picture_s", (double)r->encode_ns / 1e9);
}

/* Recall: predicted experts among those that layers wanted. Hit rate: wanted bytes among those read on predictions. */
static void add_prefetch(json_t *j, const struct ntx_run_stats *r)
{
    const struct ntx_counts *a = &r->at_start, *b = &r->at_end;
    uint64_t read = b->prefetch_bytes - a->prefetch_bytes, used = b->prefetch_used_bytes - a->prefetch_used_bytes;
    set_real(j, "prefetch_recall",
             ratio((double)(b->prefetch_right - a->prefetch_right), (double)(b->prefetch_wanted - a->prefetch_wanted)));
    set_real(j, "prefetch_hit_rate", ratio((double)used, (double)read));
    set_int(j, "prefetch_bytes", read);
    set_int(j, "prefetch_wasted_bytes", read > used ? read - used : 0);
    set_int(j, "prefetch_experts", b->prefetch_hits - a->prefetch_hits);
}

/* The hit rate of the expert cache; 1 where all experts are in RAM. */
static void add_experts(json_t *j, const struct ntx_run_stats *r, const struct ntx_loaded *l)
{
    uint64_t hits = r->at_end.expert_hits - r->at_start.expert_hits,
             misses = r->at_end.expert_misses - r->at_start.expert_misses;
    if (!l->model->hp.n_expert)
        return;
    set_real(j, "expert_hit_rate", l->plan->frames.n ? ratio((double)hits, (double)(hits + misses)) : 1);
    set_int(j, "expert_frames", l->plan->frames.n);
    if (l->plan->frames.n && !l->set.no_prefetch)
        add_prefetch(j, r);
}

/* --ffn-sparse, while decoding: shares of neurons (per row) and groups (per pass) used, and bytes read in between. */
static void add_neurons(json_t *j, const struct ntx_run_stats *r, const struct ntx_loaded *l)
{
    const struct ntx_counts *a = r->generated > 1 ? &r->at_first : &r->at_start, *b = &r->at_end;
    if (l->ffn.kind == NTX_FFN_ALL)
        return;
    set_str(j, "ffn_sparse", l->set.ffn_sparse);
    set_real(j, "active_neurons",
             ratio((double)(b->ffn_active - a->ffn_active), (double)(b->ffn_neurons - a->ffn_neurons)));
    set_real(j, "active_groups",
             ratio((double)(b->ffn_groups_used - a->ffn_groups_used), (double)(b->ffn_groups - a->ffn_groups)));
    uint64_t predicted = b->ffn_predicted - a->ffn_predicted,
             wanted = b->ffn_predicted_wanted - a->ffn_predicted_wanted;
    uint64_t right = b->ffn_predicted_right - a->ffn_predicted_right;
    /* of prefetched groups; 0 without predictions */
    set_real(j, "ffn_precision", ratio((double)right, (double)predicted));
    set_real(j, "ffn_recall", ratio((double)right, (double)wanted));
    set_real(j, "ffn_bytes_between_per_token",
             ratio((double)(b->ffn_between - a->ffn_between), r->generated > 1 ? r->generated - 1 : 1));
}

/* Tokens that decode passes gave, and drafts among them. */
static void add_drafts(json_t *j, const struct ntx_run_stats *r, const struct ntx_loaded *l)
{
    unsigned files = ntx_load_drafter_files(l);
    bool file = files > 0, lookup = ntx_draft_looks_up(l->set.draft);
    const char *own = NULL; /* of the model */
    if (l->n_drafters > files)
        own = l->drafter[files].kind == NTX_DRAFTER_FILE_NEXTN ? "nextn" : "layers";
    char who[32];
    snprintf(who, sizeof who, "%s%s%s%s", lookup ? "+lookup" : "", file ? "+file" : "", own ? "+" : "", own ? own : "");
    const char *sources = *who ? who + 1 : "off";
    set_str(j, "draft", ntx_draft_auto(l->set.draft) ? "auto" : sources);
    if (l->drafters_left_out)
        json_object_set_new(j, "draft_left_out", json_true());
    json_t *hits = json_object();
    if (lookup)
        set_int(hits, "lookup", r->draft_hits[NTX_DRAFT_BY_LOOKUP]);
    if (file)
        set_int(hits, "file", r->draft_file_hits);
    for (unsigned i = 0; l->n_drafters > 1 && i < l->n_drafters; i++) { /* which of the files */
        char name[16];
        if (i == files)
            break;
        snprintf(name, sizeof name, "file%u", i + 1);
        set_int(hits, name, r->draft_hits[NTX_DRAFT_BY_FILE + i]);
    }
    if (own)
        set_int(hits, own, r->draft_hits[NTX_DRAFT_BY_FILE + files]);
    if (file || lookup || own)
        json_object_set(j, "draft_hits", hits);
    json_decref(hits);
    set_int(j, "draft_tokens", r->draft_nodes);
    set_int(j, "draft_accepted", r->committed > r->written_passes ? r->committed - r->written_passes : 0);
    set_real(j, "accepted_per_pass", ratio(r->committed, r->written_passes));
    set_real(j, "draft_nodes_per_pass", ratio(r->draft_nodes, r->written_passes));
    set_real(j, "draft_s", (double)r->draft_ns / 1e9);
}

/* Several machines: traffic between them, and how long the first one waited for the others. For each other machine
 * since the load: bytes from its drive, waits for it, multiply time, waits for its messages, and its KV memory. */
static void add_ranks(json_t *j, const struct ntx_run_stats *r, const struct ntx_loaded *l,
                      const struct ntx_counters *c)
{
    if (!l->machines || !c)
        return;
    json_t *others = json_array();
    for (uint32_t i = 1; i < l->machine_share.n; i++) {
        const struct ntx_mon_rank *s = &c->mon.rank[i];
        json_t *o = json_object();
        set_str(o, "name", ntx_machines_name(l->machines, i));
        set_int(o, "bytes_read", atomic_load(&s->bytes_read));
        set_real(o, "io_stall_s", (double)atomic_load(&s->stall_ns) / 1e9);
        set_real(o, "multiply_s", (double)atomic_load(&s->multiply_ns) / 1e9);
        set_real(o, "message_s", (double)atomic_load(&s->message_ns) / 1e9);
        set_int(o, "bytes_kv", atomic_load(&s->kv_bytes));
        json_array_append_new(others, o);
    }
    set_int(j, "ranks", l->machine_share.n);
    set_str(j, "split", ntx_split_names[l->machine_share.split]);
    set_int(j, "rank_bytes", r->at_end.rank_bytes - r->at_start.rank_bytes);
    set_real(j, "rank_wait_s", (double)(r->at_end.rank_wait_ns - r->at_start.rank_wait_ns) / 1e9);
    json_object_set_new(j, "other_ranks", others);
}

/* Chunks of skipped layers: skipped before their read began, or too late; and the bytes read in vain. */
static void add_skips(json_t *j, const struct ntx_run_stats *r)
{
    set_int(j, "skip_early_chunks", r->at_end.skip_early - r->at_start.skip_early);
    set_int(j, "skip_late_chunks", r->at_end.skip_late - r->at_start.skip_late);
    set_int(j, "skip_wasted_bytes", r->at_end.skip_wasted - r->at_start.skip_wasted);
}

char *ntx_stats_run(const struct ntx_run_stats *r, const struct ntx_loaded *l, const struct ntx_counters *c)
{
    json_t *j = json_object(), *options = r->options ? json_loads(r->options, 0, NULL) : NULL;
    pid_t pids[] = {(pid_t)ntx_counter_get(c, NTX_C_comp_pid), (pid_t)ntx_counter_get(c, NTX_C_iod_pid),
                    (pid_t)ntx_counter_get(c, NTX_C_pred_pid)};
    if (!j)
        return NULL;
    ntx_stats_add_model(j, l);
    set_int(j, "prompt_tokens", r->prompt_tokens);
    set_int(j, "cached_tokens", r->cached_tokens);
    set_int(j, "generated_tokens", r->generated);
    set_int(j, "thinking_tokens", r->thinking);
    add_pictures(j, r);
    add_times(j, r);
    set_int(j, "peak_bytes", ntx_stats_memory(pids, 3));
    set_str(j, "finish", r->finish ? r->finish : "");
    set_int(j, "seed", r->seed);
    json_object_set_new(j, "options", options ? options : json_object());
    set_real(j, "skipped_layers_per_token", ratio((double)r->skipped_layers, r->generated));
    add_experts(j, r, l);
    add_ranks(j, r, l, c);
    add_drafts(j, r, l);
    add_neurons(j, r, l);
    if (l->skips)
        add_skips(j, r);
    if (l->skips || l->predictor_lost)
        json_object_set_new(j, "predictor_lost", json_boolean(r->predictor_lost || l->predictor_lost));
    char *text = json_dumps(j, JSON_COMPACT);
    json_decref(j);
    return text;
}

char *ntx_stats_info(const struct ntx_loaded *l)
{
    const struct ntx_plan *p = l->plan;
    json_t *j = json_object();
    if (!j)
        return NULL;
    ntx_stats_add_model(j, l);
    set_int(j, "ram_bytes", l->ram_bytes);
    set_int(j, "bytes_kv", p->bytes_kv);
    set_int(j, "bytes_activations", p->bytes_activations);
    set_int(j, "bytes_region", p->bytes_region);
    set_int(j, "bytes_total", p->bytes_total);
    if (l->vision) {
        set_int(j, "bytes_pictures", ntx_vision_need_bytes(&l->sight));
        json_object_set_new(j, "projector_streams", json_boolean(l->sight.streams));
    }
    set_int(j, "chunk_bytes", p->chunk_bytes);
    set_int(j, "ring_slots", p->geo.n_desc);
    set_int(j, "max_rows", p->max_rows);
    set_int(j, "max_sessions", l->max_sessions);
    set_int(j, "kv_blocks", p->kv.blocks);
    set_int(j, "n_layers", l->model->hp.n_layers);
    set_int(j, "n_embd", l->model->hp.n_embd);
    set_int(j, "n_vocab", l->model->hp.n_vocab);
    set_int(j, "ctx_train", l->model->hp.ctx_train);
    set_str(j, "tokenizer", ntx_tokenizer_kind(l->tok));
    if (l->env.chat)
        set_str(j, "chat_template", ntx_chat_name(l->env.chat));
    else
        set_str(j, "chat_template", l->env.has_template ? "unknown" : "");
    set_str(j, "reply_format", ntx_chat_reply(l->env.chat));
    char *text = json_dumps(j, JSON_COMPACT);
    json_decref(j);
    return text;
}
