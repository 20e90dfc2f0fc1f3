/* SPDX-License-Identifier: Apache-2.0 */
/* Prefixes on disk (prefix_store.h): what texts that end leave is written when nobody waits, and read when a text
 * begins so that memory has less of it than a file. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/engine_impl.h"
#include "ntx_version.h"

struct ntx__ended { /* a text whose state is to be written */
    uint64_t scope;
    uint32_t n;
    int32_t *ids;
};

/* Where values depend on more than what the files say: on what a prompt showed, on a GPU's ways. */
static const char *unkept(const struct ntx_engine *e)
{
    return !e->prefix ? "prefixes are not shared" : !e->exact ? "layers or neurons are left out" : NULL;
}

/* Values are the same for the same model, KV type and build; rotations may depend on the context. What was everybody's
 * is nobody's once users share no more. */
static int describe(const struct ntx_loaded *l, bool share_all, char *of, size_t n, struct ntx_err *err)
{
    char digest[NTX_DIGEST_TEXT];
    int rc = ntx_model_digest(l->gguf, l->fds, digest, err);
    if (!rc)
        snprintf(of, n, "%s model %s-%016" PRIx64 " kv %s ctx %u ring %u of %s", NTX_BUILD, digest,
                 ntx_model_keys(l->gguf), ntx_kv_type_name(l->plan->kv_type), l->plan->ctx, l->plan->kv.ring,
                 share_all ? "all" : "each");
    return rc;
}

/* Files of others are no fault, but who has none of the own may have thought of those. */
static void say_what_there_is(const struct ntx_prefix_store *s, const char *dir)
{
    const struct ntx_prefix_store_others o = ntx_prefix_store_others(s);
    char size[32];
    ntx_log(NTX_LOG_INFO, "%s has the state of %u texts, and %u files of no use here", dir, ntx_prefix_store_files(s),
            ntx_prefix_store_useless(s));
    if (o.build + o.model + o.options)
        ntx_log(ntx_prefix_store_files(s) ? NTX_LOG_INFO : NTX_LOG_WARN,
                "%s has %u files of another build of ntx, %u of another model and %u of other options (--kv-type, "
                "--ctx, [clients] share), %s: they are of no use here and are left alone, "
                "but count for --state-max, and go first. Remove them, or give each its own directory",
                dir, o.build, o.model, o.options, ntx_format_size(o.bytes, size, sizeof size));
}

void ntx__engine_prefix_store_new(struct ntx_engine *e)
{
    const struct ntx_plan *p = e->l->plan;
    char of[200];
    struct ntx_err err = {0};
    struct ntx_prefix_store_config c = {.dir = e->l->set.state,
                                        .most = e->l->set.state_max ? e->l->set.state_max : NTX_STATE_MAX,
                                        .of = of,
                                        .whole = ntx_kv_pool_snapshots(e->l->kv),
                                        .block_cost = p->block_s > 0 ? p->block_s : 1,
                                        .token_cost = p->block_token_s,
                                        .written = &e->saved};
    if (!c.dir || !*c.dir)
        return;
    if (unkept(e))
        ntx_log(NTX_LOG_WARN, "nothing is kept in %s: %s", c.dir, unkept(e));
    else if (describe(e->l, e->c.share_all, of, sizeof of, &err) || ntx_prefix_store_open(&c, &e->prefix_store, &err))
        ntx_log(NTX_LOG_WARN, "prefixes are not kept over restarts: %s", err.text);
    else
        say_what_there_is(e->prefix_store, c.dir);
}

void ntx__engine_prefix_store_free(struct ntx_engine *e)
{
    for (uint32_t i = 0; i < e->n_ended; i++)
        free(e->ended[i].ids);
    free(e->ended);
    ntx_prefix_store_free(e->prefix_store);
}

/* What the file has becomes what is kept; `wanted` of its n tokens are to be gone on from. Without room for it now, it
 * is computed. */
static void restore(struct ntx_engine *e, uint32_t file, uint32_t n, uint32_t wanted)
{
    struct ntx_kv_snapshot *snapshots[NTX_PREFIX_STORE_MARKS];
    struct ntx_kv_seq *kv;
    uint64_t scope;
    uint32_t n_snapshots;
    if (ntx_kv_seq_promise(e->l->kv, n, NULL, 0, &kv))
        return;
    ntx_kv_seq_reach(kv, n - 1);
    const int32_t *ids = ntx_prefix_store_ids(e->prefix_store, file, &scope);
    if (!ntx_prefix_store_read(e->prefix_store, file, e->l->kv, kv, wanted, snapshots, &n_snapshots))
        ntx_prefix_keep(e->prefix, scope, kv, ids, n, NTX_PREFIX_LAST);
    for (uint32_t i = 0; i < n_snapshots; i++)
        ntx_prefix_put_snapshot(e->prefix, scope, ids, snapshots[i]);
    ntx_kv_seq_free(kv);
}

void ntx__engine_prefix_store_find(struct ntx_engine *e, uint64_t scope, const int32_t *ids, uint32_t n)
{
    uint32_t file, n_tokens,
        most = e->prefix_store && n ? ntx_prefix_store_find(e->prefix_store, scope, ids, n - 1,
                                                            ntx_kv_pool_snapshots(e->l->kv), &file, &n_tokens)
                                    : 0;
    if (most && most >= ntx_prefix_found(e->prefix, scope, ids, n) + NTX_KV_BLOCK)
        restore(e, file, n_tokens, most);
}

void ntx__engine_prefix_store_ended(struct ntx_engine *e, uint64_t scope, const int32_t *ids, uint32_t n)
{
    int32_t *copy = e->prefix_store && n >= NTX_PREFIX_STORE_LEAST ? malloc(n * sizeof *copy) : NULL;
    struct ntx__ended *more = copy ? realloc(e->ended, NTX_PREFIX_STORE_ENDED * sizeof *more) : NULL;
    if (!more) {
        free(copy);
        return;
    }
    e->ended = more;
    if (e->n_ended == NTX_PREFIX_STORE_ENDED) { /* nobody had time: what ended first is the likeliest to be gone */
        free(e->ended[0].ids);
        memmove(e->ended, e->ended + 1, --e->n_ended * sizeof *e->ended);
    }
    memcpy(copy, ids, n * sizeof *copy);
    e->ended[e->n_ended++] = (struct ntx__ended){scope, n, copy};
}

/* All of it must be there: a sequence for it is one that would have one token more. */
static void save(struct ntx_engine *e, const struct ntx__ended *x)
{
    struct ntx_kv_snapshot *snapshots[NTX_PREFIX_STORE_MARKS];
    struct ntx_kv_seq *kv;
    uint32_t n_past;
    int32_t *ids = malloc((x->n + 1) * sizeof *ids);
    if (!ids)
        return;
    memcpy(ids, x->ids, x->n * sizeof *ids);
    ids[x->n] = -1;
    if (!ntx_prefix_begin(e->prefix, x->scope, ids, x->n + 1, x->n + 1, &kv, &n_past)) {
        if (n_past == x->n)
            (void)ntx_prefix_store_write(e->prefix_store, x->scope, x->ids, x->n, kv, snapshots,
                                         ntx_prefix_snapshots(e->prefix, x->scope, x->ids, x->n, snapshots,
                                                              NTX_PREFIX_STORE_MARKS)); /* it says what is wrong */
        ntx_kv_seq_free(kv);
    }
    free(ids);
}

bool ntx__engine_prefix_store_save(struct ntx_engine *e)
{
    if (!e->n_ended)
        return false;
    struct ntx__ended x = e->ended[--e->n_ended];
    save(e, &x);
    free(x.ids);
    return true;
}
