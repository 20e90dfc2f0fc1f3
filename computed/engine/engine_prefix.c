/* SPDX-License-Identifier: Apache-2.0 */
/* Prefixes that sessions share (computed/state/prefix.h). A session begins with the kept state of its tokens, and its
 * own state is kept for others after each pass. A session that reads its prompt while another is ahead in the same text
 * waits for that one and takes over its blocks (not where this needs a snapshot).
 *
 * Only state that every text with that prefix would have is shared: rows of prompts, and generated rows where they have
 * the same values. Under a layer skip, or where groups of neurons are left out, they have others. */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/engine_impl.h"

/* Why prefixes are not shared: rows leave more than K and V behind, or K and V are elsewhere. NULL: they are. */
static const char *unshared_reason(const struct ntx_loaded *l)
{
    if (l->set.no_prefix_cache)
        return "--prefix-cache off";
    if (l->device)
        return "K and V are in a GPU's memory";
    if (l->skips && l->set.skip_adapt)
        return "--skip-adapt learns from each prompt";
    return l->ffn.kind == NTX_FFN_PROMPT ? "--ffn-sparse prompt learns from each prompt" : NULL;
}

int ntx__engine_prefix_new(struct ntx_engine *e)
{
    const struct ntx_plan *p = e->l->plan;
    const struct ntx_prefix_config c = {
        .pool = e->l->kv, .block_cost = p->block_s > 0 ? p->block_s : 1, .token_cost = p->block_token_s};
    const char *why = unshared_reason(e->l);
    e->exact = !e->l->skips && !ntx_ffn_mode_groups(&e->l->ffn);
    if (why)
        ntx_log(NTX_LOG_INFO, "prefixes are not shared: %s", why);
    return why ? 0 : ntx_prefix_new(&c, &e->prefix);
}

/* The user and the adapter of a text: values under one adapter serve no other. */
static uint64_t scope_of(const struct ntx_session *s)
{
    const uint64_t scope = ntx_reply_queue_scope(s->replies);
    return s->adapter ? (scope + 1) * 0x9e3779b97f4a7c15u + s->adapter : scope;
}

static bool may_share(const struct ntx_engine *e, const struct ntx_session *s)
{
    return e->prefix && s->kind == NTX_SESSION_GENERATE && s->kv;
}

/* s has the state of n tokens without computing them. */
static void take_over_tokens(struct ntx_engine *e, struct ntx_session *s, uint32_t n)
{
    uint32_t begin = s->n_tokens - NTX_MIN(s->run.prompt_tokens, s->n_tokens), from = NTX_MAX(s->n_past, begin);
    uint32_t new = n > from ? n - from : 0;
    if (!s->generated) { /* else it takes its own state back */
        s->run.cached_tokens += new;
        ntx_count(e->c.counters, NTX_C_comp_cached_tokens, new);
    }
    s->n_past = s->n_exact = n;
    s->n_kept = n / NTX_KV_BLOCK;
}

/* Tokens before n of an image whose rows see all of it, whatever a window hides: its K are kept no longer than the
 * window's, so a text cannot go on within it. */
static uint32_t begun_image(const struct ntx_session *s, uint32_t n)
{
    return s->images.lead ? ntx_image_spans_before(&s->images, n) : 0;
}

/* Takes over what is kept of the text, but for an image that this ends in. */
static int begin_shared(struct ntx_engine *e, struct ntx_session *s, uint32_t *n_past)
{
    uint32_t n = s->n_tokens, k;
    int rc;
    while (!(rc = ntx_prefix_begin(e->prefix, scope_of(s), s->tokens, n, s->reserve, &s->kv, n_past)) &&
           (k = begun_image(s, *n_past))) {
        ntx_kv_seq_free(s->kv);
        s->kv = NULL;
        n = *n_past - k + 1;
    }
    return rc;
}

static void return_to(struct ntx_session *s, uint32_t n)
{
    s->n_past = ntx_kv_return(s->kv, n);
    for (uint32_t k = begun_image(s, s->n_past); k; k = begun_image(s, s->n_past))
        s->n_past = ntx_kv_return(s->kv, s->n_past - k);
    s->n_exact = NTX_MIN(s->n_exact, s->n_past);
}

/* Goes on from its KV. Others may share the block where it was cut back: it is copied, or computed again if there is no
 * room for a copy. */
static int continue_kv(struct ntx_session *s)
{
    /* after rejected drafts, state goes back to the begin of their pass */
    return_to(s, s->n_past);
    uint32_t whole = NTX_ROUND_DOWN(s->n_past, NTX_KV_BLOCK);
    int rc = ntx_kv_own(s->kv, s->n_past);
    if (rc != -EAGAIN || whole == s->n_past)
        return rc;
    return_to(s, whole);
    return ntx_kv_own(s->kv, s->n_past);
}

int ntx__engine_begin(struct ntx_engine *e, struct ntx_session *s)
{
    uint32_t n_past;
    if (s->kv && s->n_past)
        return continue_kv(s);
    ntx_kv_seq_free(s->kv);
    s->kv = NULL;
    s->n_exact = s->n_kept = 0;
    if (!e->prefix || s->kind != NTX_SESSION_GENERATE)
        return ntx_kv_seq_promise(e->l->kv, s->reserve, NULL, 0, &s->kv);
    ntx__engine_prefix_store_find(e, scope_of(s), s->tokens, s->n_tokens);
    int rc = begin_shared(e, s, &n_past);
    if (!rc)
        take_over_tokens(e, s, n_past);
    return rc;
}

void ntx__engine_prepare_prefixes(struct ntx_engine *e)
{
    for (uint32_t i = 0; i < e->n_live; i++) {
        struct ntx_session *s = e->live[i];
        if (s->take && may_share(e, s) && !ntx_session_decoding(s))
            ntx_prefix_prepare(e->prefix, scope_of(s), s->kv, s->tokens, s->n_past, s->n_past + s->take);
    }
}

static void keep_prefix(struct ntx_engine *e, struct ntx_session *s, bool last)
{
    uint32_t n = e->exact ? s->n_past : NTX_MIN(s->n_past, s->n_exact);
    if (n / NTX_KV_BLOCK == s->n_kept && !last)
        return;
    enum ntx_prefix_when when = s->generated > 1 ? NTX_PREFIX_ON : NTX_PREFIX_PROMPT;
    if (last)
        when = NTX_PREFIX_LAST;
    ntx_prefix_keep(e->prefix, scope_of(s), s->kv, s->tokens, n, when);
    if (s->pinned)
        ntx_prefix_pin(e->prefix, scope_of(s), s->tokens, n);
    s->n_kept = n / NTX_KV_BLOCK;
    if (last)
        ntx__engine_prefix_store_ended(e, scope_of(s), s->tokens, n);
}

void ntx__engine_keep(struct ntx_engine *e, struct ntx_session *s, bool last)
{
    if (!may_share(e, s))
        return;
    keep_prefix(e, s, last);
    ntx_kv_snapshot_passed(s->kv);
}

/* ---- sessions that wait for another */

/* s reads its prompt, and its state is that of any text with this prefix. */
static bool shares_prompt(const struct ntx_engine *e, const struct ntx_session *s)
{
    return may_share(e, s) && !ntx_session_decoding(s) && (e->exact || s->n_exact == s->n_past);
}

/* o computes the next block that s needs, and computes it first. Sessions are in the order of their requests. */
static bool leads_prompt(const struct ntx_session *o, const struct ntx_session *s, bool before)
{
    uint32_t end = NTX_ROUND_DOWN(s->n_past, NTX_KV_BLOCK) + NTX_KV_BLOCK;
    return (o->n_past > s->n_past || (o->n_past == s->n_past && before)) && scope_of(o) == scope_of(s) &&
           end < s->n_tokens && end <= o->n_tokens && !memcmp(o->tokens, s->tokens, end * sizeof *s->tokens);
}

/* No session waits where one pass takes all their rows and streams weights: another pass would cost more. */
void ntx__engine_follow(struct ntx_engine *e)
{
    uint64_t todo = 0;
    for (uint32_t i = 0; i < e->n_live; i++) {
        struct ntx_session *s = e->live[i];
        s->waits = false;
        if (!shares_prompt(e, s))
            continue;
        uint32_t n = ntx_prefix_follow(e->prefix, scope_of(s), s->kv, s->tokens, s->n_tokens, s->n_past);
        if (n > s->n_past)
            take_over_tokens(e, s, n);
        todo += ntx_session_todo(s);
    }
    if (!e->prefix || ntx_kv_pool_snapshots(e->l->kv) || (todo <= e->max_rows && e->l->plan->bytes_storage))
        return;
    for (uint32_t i = 0; i < e->n_live; i++)
        for (uint32_t k = 0; k < e->n_live && shares_prompt(e, e->live[i]) && !e->live[i]->waits; k++)
            e->live[i]->waits = k != i && shares_prompt(e, e->live[k]) && leads_prompt(e->live[k], e->live[i], k < i);
}
