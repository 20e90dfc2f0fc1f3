/* SPDX-License-Identifier: Apache-2.0 */
/* Prefixes on disk (prefix_store.h). The state of texts that end is written when the engine is idle. It is read when a
 * text begins of which a file has more than memory. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/engine_impl.h"
#include "ntx_version.h"

struct ntx__ended {
    uint64_t scope;
    uint32_t n;
    int32_t *ids;
};

/* Why nothing is kept: values depend on more than the file's key, such as a prompt's neurons or a GPU. NULL: it is. */
static const char *unkept_reason(const struct ntx_engine *e)
{
    if (!e->prefix)
        return "prefixes are not shared";
    return e->exact ? NULL : "layers or neurons are left out";
}

/* The key of a file. Values are the same for one model, KV type and build; RoPE may depend on the context. Files shared
 * by all users are not used once sharing is off. */
static int make_file_key(const struct ntx_loaded *l, bool share_all, char *of, size_t n, struct ntx_err *err)
{
    char digest[NTX_DIGEST_TEXT];
    int rc = ntx_model_digest(l->gguf, l->fds, digest, err);
    if (!rc)
        snprintf(of, n, "%s model %s-%016" PRIx64 " kv %s-%d ctx %u ring %u of %s", NTX_BUILD, digest,
                 ntx_model_keys(l->gguf), ntx_kv_type_name(l->plan->kv_type),
                 l->plan->kv_type == NTX_KV_F16 ? 1 : NTX_KV_LAYOUT, l->plan->ctx, l->plan->kv.ring,
                 share_all ? "all" : "each");
    return rc;
}

/* Files of other builds or models are no fault, but a user with no usable file may have expected them to be used. */
static void log_contents(const struct ntx_prefix_store *s, const char *dir)
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
    c.most -= e->l->images ? c.most / NTX_IMAGES_SHARE : 0;
    if (unkept_reason(e))
        ntx_log(NTX_LOG_WARN, "nothing is kept in %s: %s", c.dir, unkept_reason(e));
    else if (make_file_key(e->l, e->c.share_all, of, sizeof of, &err) ||
             ntx_prefix_store_open(&c, &e->prefix_store, &err))
        ntx_log(NTX_LOG_WARN, "prefixes are not kept over restarts: %s", err.text);
    else
        log_contents(e->prefix_store, c.dir);
}

void ntx__engine_prefix_store_free(struct ntx_engine *e)
{
    for (uint32_t i = 0; i < e->n_ended; i++)
        free(e->ended[i].ids);
    free(e->ended);
    ntx_prefix_store_free(e->prefix_store);
}

/* Restores a file into the prefix cache; the text goes on from `wanted` of its n tokens. Where memory lacks room, it is
 * computed instead. */
static void restore_prefix(struct ntx_engine *e, uint32_t file, uint32_t n, uint32_t wanted)
{
    struct ntx_kv_snapshot *snapshots[NTX_PREFIX_STORE_SNAPSHOTS];
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
        restore_prefix(e, file, n_tokens, most);
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
    if (e->n_ended == NTX_PREFIX_STORE_ENDED) { /* full: the text that ended first is the likeliest to be evicted */
        free(e->ended[0].ids);
        memmove(e->ended, e->ended + 1, --e->n_ended * sizeof *e->ended);
    }
    memcpy(copy, ids, n * sizeof *copy);
    e->ended[e->n_ended++] = (struct ntx__ended){scope, n, copy};
}

/* Writes x if all of its state is still there: a sequence with one token more takes it over. */
static void save_prefix(struct ntx_engine *e, const struct ntx__ended *x)
{
    struct ntx_kv_snapshot *snapshots[NTX_PREFIX_STORE_SNAPSHOTS];
    struct ntx_kv_seq *kv;
    uint32_t n_past;
    int32_t *ids = malloc((x->n + 1) * sizeof *ids);
    if (!ids)
        return;
    memcpy(ids, x->ids, x->n * sizeof *ids);
    ids[x->n] = -1;
    if (!ntx_prefix_begin(e->prefix, x->scope, ids, x->n + 1, x->n + 1, &kv, &n_past)) {
        /* it logs its errors */
        if (n_past == x->n)
            (void)ntx_prefix_store_write(
                e->prefix_store, x->scope, x->ids, x->n, kv, snapshots,
                ntx_prefix_snapshots(e->prefix, x->scope, x->ids, x->n, snapshots, NTX_PREFIX_STORE_SNAPSHOTS));
        ntx_kv_seq_free(kv);
    }
    free(ids);
}

bool ntx__engine_prefix_store_save(struct ntx_engine *e)
{
    if (!e->n_ended)
        return false;
    struct ntx__ended x = e->ended[--e->n_ended];
    save_prefix(e, &x);
    free(x.ids);
    return true;
}
