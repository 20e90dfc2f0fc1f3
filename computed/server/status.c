/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/server/server_impl.h"
#include "computed/engine/stats.h"
#include "ntx_version.h"

/* state: of the service. serving: whether a request is answered now. reasons: each trouble, and its remedy. */
static void add_state(json_t *j, struct ntx_server *s)
{
    json_t *reasons = json_array();
    json_object_set_new(j, "state", json_string(ntx_mon_service_name[ntx__health_look(s)]));
    json_object_set_new(j, "serving", json_boolean(ntx__health_serves(s)));
    for (int i = 0; i < NTX_MON_N_PARTS; i++)
        if (s->trouble[i].grade != NTX_MON_WELL)
            json_array_append_new(reasons, json_string(s->trouble[i].text));
    json_object_set_new(j, "reasons", reasons);
}

static void add_workers(json_t *j, struct ntx_server *s)
{
    struct ntx_counters *c = s->counters;
    json_object_set_new(j, "iod", json_boolean(ntx_workers_present(s->workers, NTX_ROLE_IOD)));
    json_object_set_new(j, "predictor", json_boolean(ntx_workers_present(s->workers, NTX_ROLE_PREDICTOR)));
    for (enum ntx_role role = NTX_ROLE_IOD; role <= NTX_ROLE_PREDICTOR; role++)
        if (ntx_workers_lost(s->workers, role))
            json_object_set_new(j, role == NTX_ROLE_IOD ? "iod_lost" : "predictor_lost",
                                json_string(ntx_workers_lost(s->workers, role)));
    json_object_set_new(j, "iod_pid", json_integer((json_int_t)ntx_counter_get(c, NTX_C_iod_pid)));
    json_object_set_new(j, "predictor_pid", json_integer((json_int_t)ntx_counter_get(c, NTX_C_pred_pid)));
    json_object_set_new(j, "iod_starts", json_integer((json_int_t)ntx_counter_get(c, NTX_C_iod_starts)));
    json_object_set_new(j, "predictor_starts", json_integer((json_int_t)ntx_counter_get(c, NTX_C_pred_starts)));
}

/* Totals since the model was loaded. */
static void add_totals(json_t *j, struct ntx_server *s)
{
    struct ntx_counters *c = s->counters;
    struct ntx_counts now;
    pid_t pids[] = {(pid_t)ntx_counter_get(c, NTX_C_comp_pid), (pid_t)ntx_counter_get(c, NTX_C_iod_pid),
                    (pid_t)ntx_counter_get(c, NTX_C_pred_pid)};
    ntx_counts_now(c, &now);
    json_object_set_new(j, "passes", json_integer((json_int_t)(now.passes - s->at_load.passes)));
    json_object_set_new(j, "bytes_read", json_integer((json_int_t)(now.bytes_read - s->at_load.bytes_read)));
    json_object_set_new(j, "io_stall_s", json_real((double)(now.stall_ns - s->at_load.stall_ns) / 1e9));
    json_object_set_new(j, "generated_tokens", json_integer((json_int_t)ntx_counter_get(c, NTX_C_comp_tokens)));
    json_object_set_new(j, "prompt_tokens", json_integer((json_int_t)ntx_counter_get(c, NTX_C_comp_prompt_tokens)));
    json_object_set_new(j, "cached_tokens", json_integer((json_int_t)ntx_counter_get(c, NTX_C_comp_cached_tokens)));
    json_object_set_new(j, "peak_bytes", json_integer((json_int_t)ntx_stats_memory(pids, 3)));
}

static void add_notes(json_t *j, struct ntx_server *s)
{
    json_t *notes = json_array();
    for (unsigned i = 0; i < s->n_notes; i++)
        json_array_append_new(notes, json_string(s->notes[i]));
    json_object_set_new(j, "notes", notes);
}

#define NAMES_MOST 256u

static void add_name(void *arg, const char *p, size_t n)
{
    json_t *seen = arg;
    char name[64];
    if (n >= sizeof name || json_object_size(seen) >= NAMES_MOST)
        return;
    memcpy(name, p, n);
    name[n] = 0;
    json_object_set_new(seen, name, json_true());
}

/* Variables that the template reads: a client sees which options (such as thinking) it supports. */
static json_t *template_names(const struct ntx_chat_template *t)
{
    json_t *seen = json_object(), *list = json_array(), *v;
    const char *name;
    ntx_chat_reads(t, add_name, seen);
    json_object_foreach(seen, name, v)
        json_array_append_new(list, json_string(name));
    json_decref(seen);
    return list;
}

/* The part of Generate.think that has an effect with this model. */
static json_t *thinking(const struct ntx_chat_template *t)
{
    const struct ntx_think_facts *f = ntx_chat_think(t);
    json_t *levels = json_array();
    for (int i = 1; i < NTX_N_LEVELS; i++)
        if (ntx_think_levels(f) >> i & 1)
            json_array_append_new(levels, json_string(ntx_level_names[i]));
    return json_pack("{s:b, s:b, s:o}", "thinks", ntx_think_thinks(f), "switch", ntx_think_switches(f), "levels",
                     levels);
}

/* The text of a special token; nothing if the vocabulary has none. */
static void add_token(json_t *j, const char *key, const struct ntx_tokenizer *t, int32_t id)
{
    char text[NTX_TOKEN_MAX];
    int n = id < 0 ? 0 : ntx_detokenize_one(t, id, false, true, text, sizeof text);
    json_t *said = n > 0 ? json_stringn(text, (size_t)n) : NULL;
    if (said)
        json_object_set_new(j, key, said);
}

static void add_model(json_t *j, const struct ntx_loaded *l)
{
    ntx_stats_add_model(j, l);
    json_object_set_new(j, "bytes_total", json_integer((json_int_t)l->plan->bytes_total));
    json_object_set_new(j, "ram_bytes", json_integer((json_int_t)l->ram_bytes));
    json_object_set_new(j, "max_sessions", json_integer((json_int_t)l->max_sessions));
    json_object_set_new(j, "reply_format", json_string(ntx_chat_reply(l->env.chat)));
    json_object_set_new(j, "template_names", template_names(l->env.chat));
    json_object_set_new(j, "thinking", thinking(l->env.chat));
    add_token(j, "bos_token", l->env.tok, ntx_tokenizer_bos(l->env.tok));
    add_token(j, "eos_token", l->env.tok, ntx_tokenizer_eos(l->env.tok));
}

char *ntx__status(struct ntx_server *s)
{
    struct ntx_counters *c = s->counters;
    json_t *j = json_object();
    if (!j)
        return NULL;
    add_state(j, s);
    json_object_set_new(j, "build", json_string(NTX_BUILD));
    json_object_set_new(j, "pid", json_integer((json_int_t)ntx_counter_get(c, NTX_C_comp_pid)));
    json_object_set_new(j, "uptime_s", json_real((double)(ntx_now_ns() - s->started_ns) / 1e9));
    json_object_set_new(j, "clients", json_integer(s->n_conns));
    json_object_set_new(j, "sessions", json_integer((json_int_t)ntx_counter_get(c, NTX_C_comp_sessions)));
    json_object_set_new(j, "queued", json_integer((json_int_t)ntx_counter_get(c, NTX_C_comp_queued)));
    json_object_set_new(j, "kv_blocks", json_integer((json_int_t)ntx_counter_get(c, NTX_C_comp_kv_blocks)));
    json_object_set_new(j, "kv_blocks_kept", json_integer((json_int_t)ntx_counter_get(c, NTX_C_comp_kv_blocks_kept)));
    json_object_set_new(j, "kv_blocks_used", json_integer((json_int_t)ntx_counter_get(c, NTX_C_comp_kv_blocks_used)));
    add_workers(j, s);
    ntx__known_queue(s, j);
    if (s->loaded && s->engine)
        add_model(j, s->loaded);
    add_totals(j, s);
    add_notes(j, s);
    char *text = json_dumps(j, JSON_COMPACT);
    json_decref(j);
    return text;
}
