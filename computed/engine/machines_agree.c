/* SPDX-License-Identifier: Apache-2.0 */
/* machines_agree.c: checks that all machines have the same model. Then the first one measures the network, decides the
 * shares (computed/plan/machines.h), and tells the others. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/machines_impl.h"
#include "computed/plan/machines.h"
#include "model/planes.h"
#include "model/share_file.h"
#include "ntx_version.h"

#define CHUNK    (4u << 20) /* only to count bytes */
#define LIMIT_MS 60000u

/* Message of each machine before they share a model. */
struct hello {
    int32_t rc;
    char text[256];
    char digest[NTX_DIGEST_TEXT], commit[48];
    uint64_t keys; /* ntx_model_keys */
    struct ntx_share_machine can;
    char split[8]; /* the first machine's --split, or "" */
    struct ntx_machines_pass pass;
    struct ntx_share file; /* n 0: the file has the whole model */
};

/* The first failure becomes everybody's. */
static int first_failure(const struct ntx_machines *m, const struct hello *all, struct ntx_err *err)
{
    for (uint32_t i = 0; i < m->size; i++)
        if (all[i].rc)
            return ntx_err_set(err, all[i].rc, "%s: %.*s", m->names[i], (int)sizeof all[i].text - 1, all[i].text);
    return 0;
}

static struct hello hello_of(const struct ntx_err *mine)
{
    struct hello h = {.rc = mine->code};
    snprintf(h.text, sizeof h.text, "%.*s", (int)sizeof h.text - 1, mine->text);
    snprintf(h.commit, sizeof h.commit, "%s", NTX_VERSION " " NTX_COMMIT);
    return h;
}

static int check_same(const struct ntx_machines *m, const struct hello *all, struct ntx_err *err)
{
    for (uint32_t i = 1; i < m->size; i++) {
        if (memcmp(all[i].commit, all[0].commit, sizeof all[i].commit))
            return ntx_err_set(err, -EPROTO, "%s runs ntx %.47s, %s ntx %.47s: install the same on all machines",
                               m->names[i], all[i].commit, m->names[0], all[0].commit);
        if (memcmp(all[i].digest, all[0].digest, sizeof all[i].digest))
            return ntx_err_set(err, -EINVAL,
                               "%s has another model than %s under this name (digests %.32s and %.32s): copy the same "
                               "file to all machines",
                               m->names[i], m->names[0], all[i].digest, all[0].digest);
        if (all[i].keys != all[0].keys)
            return ntx_err_set(err, -EINVAL,
                               "%s has other settings than %s in its model file (keys beside the same weights): copy "
                               "the same file to all machines",
                               m->names[i], m->names[0]);
    }
    return 0;
}

/* Sets this machine's rates. If any machine has none, all get equal shares. */
static void set_rates(const struct ntx_loaded *l, const struct ntx_load_settings *set, const struct ntx_hw *hw,
                      struct hello *h)
{
    const char *split = set->split ? set->split : "";
    snprintf(h->split, sizeof h->split, "%s", set->sum_inputs ? "rows" : split);
    if (hw)
        h->can = ntx_machines_can(l->model, hw, l->ram_bytes);
    else if (set->link_nvme > 0) /* emulated drive: nothing else is known, and memory is faster */
        h->can = (struct ntx_share_machine){
            .keeps = NTX_SHARE_KEEPS * (double)l->ram_bytes, .drive = set->link_nvme, .memory = 100 * set->link_nvme};
}

/* Why K and V stay with the first machine; NULL: they can be split by heads. */
static const char *kv_stays_reason(const struct ntx_loaded *l, const struct ntx_load_settings *set)
{
    if (set->state && *set->state)
        return "--state keeps texts on the first machine's drive";
    if (set->kv_ram)
        return "--kv-ram keeps them on the first machine's drive";
    if (set->skip && *set->skip && !l->kv_propagate)
        return "tokens have none of them in layers that they skip (--skip-kv holes)";
    if (l->kv_form)
        return "K in --kv-type q8_0 and q4_0 is kept by the first machine, which reads the model's biases and norms";
    return ntx_heads_refuse(l->model);
}

static int model_work(const struct ntx_loaded *of, const struct ntx_load_settings *set, struct ntx_share_work *work,
                      struct ntx_err *err)
{
    const struct ntx_model *model = of->model;
    enum ntx_kv_type type = NTX_KV_F16;
    const struct ntx_chunk_bounds b = {.most = NTX_CHUNKS_MAX, .count_only = true};
    const struct ntx_hparams *hp = &model->hp;
    struct ntx_chunks *c = NULL;
    int rc = ntx_chunks_make_bounded(model, CHUNK, &b, &c, err);
    if (rc)
        return rc;
    *work = (struct ntx_share_work){.used = hp->n_expert ? (double)hp->n_expert_used / hp->n_expert : 0};
    for (uint32_t l = 0; l < hp->n_layers; l++)
        for (int part = 0; part < NTX_EXPERT_PARTS; part++)
            work->experts += (double)c->layers[l].expert[part].n_out * c->layers[l].expert[part].row_bytes *
                             hp->n_expert;
    work->dense = (double)c->matrix_bytes + (double)c->fixed_bytes - work->experts +
                  (double)ntx_planes_bytes(model, NULL); /* high bits stay in memory before all else */
    ntx_chunks_free(c);
    if ((rc = ntx_kv_type_of(set->kv_type, hp, &type, err)))
        return rc;
    ntx_machines_text(hp, type, set->ctx, NTX_MAX(set->sessions, 1u), work);
    return 0;
}

/* ---- the network, between the first machine and each other */

enum { SHORT = 9, LONG = 3, LONG_BYTES = 256 << 10 };

/* Sends n bytes there and back; *least: shortest time, seconds. */
static int echo(struct ntx_machines *m, uint32_t to, uint8_t *buf, size_t n, double *least, struct ntx_err *err)
{
    uint64_t t0 = ntx_now_ns();
    int rc = m->ops->send(m->net, to, buf, n);
    if (!rc && !(rc = m->ops->wait(m->net, LIMIT_MS)) && !(rc = m->ops->take(m->net, to, buf, n)))
        rc = m->ops->wait(m->net, LIMIT_MS);
    double took = (double)(ntx_now_ns() - t0) / 1e9;
    *least = *least > 0 ? NTX_MIN(*least, took) : took;
    return rc ? ntx_err_set(err, rc, "%s cannot be reached: %s", m->names[to], m->ops->error(m->net)) : 0;
}

/* Measures all links: *link has the slowest values. */
static int measure_links(struct ntx_machines *m, uint8_t *buf, struct ntx_machines_link *link, struct ntx_err *err)
{
    int rc = 0;
    *link = (struct ntx_machines_link){0};
    for (uint32_t to = 1; to < m->size && !rc; to++) {
        double brief = 0, longer = 0;
        for (int i = 0; i < SHORT && !rc; i++)
            rc = echo(m, to, buf, 8, &brief, err);
        for (int i = 0; i < LONG && !rc; i++)
            rc = echo(m, to, buf, LONG_BYTES, &longer, err);
        double rate = 2 * LONG_BYTES / NTX_MAX(longer - brief, 1e-9);
        link->latency_s = NTX_MAX(link->latency_s, brief / 2);
        link->bytes_per_s = to == 1 ? rate : NTX_MIN(link->bytes_per_s, rate);
    }
    return rc;
}

static int echo_back(struct ntx_machines *m, struct ntx_err *err)
{
    int rc = 0;
    for (int i = 0; i < SHORT + LONG && !rc; i++) {
        const void *bytes;
        size_t n;
        if (!(rc = m->ops->next(m->net, 0, &bytes, &n, LIMIT_MS, NULL)) && !(rc = m->ops->send(m->net, 0, bytes, n)))
            rc = m->ops->wait(m->net, LIMIT_MS);
    }
    return rc ? ntx_err_set(err, rc, "%s cannot be reached: %s", m->names[0], m->ops->error(m->net)) : 0;
}

/* ---- the shares: the first machine decides for all */

struct decided {
    int32_t rc;
    char text[256];
    struct ntx_share share;
    bool again, last; /* all plan again with this share; no further deal follows */
};

/* Whether the rates of all machines are known. Else they get equal shares. */
static bool rates_known(const struct ntx_machines *m, const struct hello *all)
{
    for (uint32_t i = 0; i < m->size; i++)
        if (!(all[i].can.memory > 0) || !(all[i].can.drive > 0))
            return false;
    return true;
}

/* heads: why K and V cannot be split by heads, or NULL. */
static int share_by_rates(const struct ntx_machines *m, const struct hello *all, const struct ntx_model *model,
                          const struct ntx_machines_link *link, const char *heads, struct ntx_share *share,
                          struct ntx_err *err)
{
    struct ntx_machines_forecast by[NTX_SPLITS];
    int rc = 0;
    for (int s = NTX_SPLIT_ROWS; s < NTX_SPLITS && !rc; s++)
        rc = ntx_machines_predict(model, &m->work, m->can, m->size, link, (enum ntx_split)s, &by[s], err);
    if (!rc)
        *share = by[ntx_machines_choose(all[0].split, by, !heads)].parts;
    return rc;
}

static int equal_parts(const struct ntx_machines *m, const struct hello *all, const struct ntx_model *model,
                       struct ntx_share *share, struct ntx_err *err)
{
    for (uint32_t i = 0; i < m->size; i++)
        share->part[i] = 1;
    share->split = strcmp(all[0].split, "heads") ? NTX_SPLIT_ROWS : NTX_SPLIT_HEADS;
    return strcmp(all[0].split, "layers") ? 0 : ntx_share_by_layers(model, share, NULL, err);
}

/* Rank 0 chooses the share. Files of shares have decided it, if there are any, but not where K and V are. */
static int choose_share(struct ntx_machines *m, const struct hello *all, const struct ntx_loaded *l,
                        const struct ntx_load_settings *set, const struct ntx_machines_link *link,
                        struct ntx_share *share, struct ntx_err *err)
{
    const char *heads = kv_stays_reason(l, set);
    int rc = 0;
    if (heads && !strcmp(all[0].split, "heads"))
        return ntx_err_set(err, -ENOTSUP,
                           "--split heads: keys and values stay with the first machine, for %s: use --split rows",
                           heads);
    if (share->part[0] && share->split == NTX_SPLIT_ROWS && !strcmp(all[0].split, "heads"))
        share->split = NTX_SPLIT_HEADS;
    if (share->part[0])
        return 0;
    if (!link)
        return equal_parts(m, all, l->model, share, err);
    return (rc = model_work(l, set, &m->work, err)) ? rc : share_by_rates(m, all, l->model, link, heads, share, err);
}

/* files: the shares of the files; n 0: whole files. */
static int decide_share(struct ntx_machines *m, const struct hello *all, const struct ntx_loaded *l,
                        const struct ntx_load_settings *set, const struct ntx_share *files, struct ntx_share *share,
                        struct ntx_err *err)
{
    const bool known = !files->n && m->size > 1 && rates_known(m, all);
    struct decided d = {.share = {.n = m->size}}, told[NTX_RANKS_MAX];
    struct ntx_machines_link link = {0};
    struct ntx_err why = {0};
    uint8_t *buf = m->rank || !known ? NULL : calloc(1, LONG_BYTES);
    int rc = 0;
    m->by_rates = known;
    for (uint32_t i = 0; i < m->size; i++)
        m->can[i] = all[i].can;
    if (files->n)
        d.share = *files;
    if (known && m->rank)
        rc = echo_back(m, err);
    else if (known)
        rc = buf ? measure_links(m, buf, &link, err) : ntx_err_set(err, -ENOMEM, "no memory");
    free(buf);
    if (rc)
        return rc;
    if (!m->rank && choose_share(m, all, l, set, known ? &link : NULL, &d.share, &why)) {
        d.rc = why.code;
        snprintf(d.text, sizeof d.text, "%.*s", (int)sizeof d.text - 1, why.text);
    }
    if ((rc = ntx__machines_meet(m, &d, sizeof d, told, err)))
        return rc;
    if (told[0].rc)
        return ntx_err_set(err, told[0].rc, "%s: %.*s", m->names[0], (int)sizeof told[0].text - 1, told[0].text);
    *share = told[0].share;
    share->rank = m->rank;
    if (known && !m->rank)
        ntx_log(NTX_LOG_INFO, "%u machines, %.0f MB/s and %.0f us between them: split by %s", m->size,
                link.bytes_per_s / 1e6, link.latency_s * 1e6, ntx_split_names[share->split]);
    return 0;
}

/* Checks the files of shares, which decide the shares. *parts->n 0: all have the whole model. */
static int shares_of_files(const struct ntx_machines *m, const struct hello *all, struct ntx_share *parts,
                           struct ntx_err *err)
{
    parts->n = 0;
    for (uint32_t i = 0; i < m->size; i++) {
        const struct ntx_share *s = &all[i].file;
        if (!s->n)
            continue;
        if (s->n != m->size || s->rank != i)
            return ntx_err_set(err, -EINVAL,
                               "%s has the file of machine %u of %u, and is machine %u of %u: start the machines in "
                               "the order of their files (ntx pack --share)",
                               m->names[i], s->rank + 1, s->n, i + 1, m->size);
        if (parts->n && (memcmp(s->part, parts->part, sizeof s->part) || s->split != parts->split ||
                         memcmp(s->owner, parts->owner, sizeof s->owner)))
            return ntx_err_set(err, -EINVAL,
                               "%s has a file of other parts than another machine: make them all with the same ntx "
                               "pack --share ... --machines FILE",
                               m->names[i]);
        *parts = *s;
    }
    return 0;
}

enum ntx_machines_stage ntx_machines_stage(const struct ntx_machines *m) { return m->stage; }

int ntx_machines_agree(struct ntx_machines *m, const struct ntx_loaded *l, const struct ntx_load_settings *set,
                       const struct ntx_hw *hw, const struct ntx_err *mine, struct ntx_share *share,
                       struct ntx_err *err)
{
    struct hello h = hello_of(mine), all[NTX_RANKS_MAX];
    struct ntx_err failed = {0};
    if (m->stage != NTX_MACHINES_JOINED)
        return ntx_err_set(err, mine->code, "%s", mine->text);
    if (!h.rc && ntx_model_digest(l->gguf, l->fds, h.digest, &failed))
        h = hello_of(&failed);
    h.keys = ntx_model_keys(l->gguf);
    if (!h.rc && ntx_share_file_of(l->gguf, &h.file, &failed))
        h = hello_of(&failed);
    if (!h.rc)
        set_rates(l, set, hw, &h);
    int rc = ntx__machines_meet(m, &h, sizeof h, all, err);
    m->stage = NTX_MACHINES_MET;
    if (rc || (rc = first_failure(m, all, err)) || (rc = check_same(m, all, err)))
        return rc;
    m->stage = NTX_MACHINES_AGREED;
    const struct ntx_net_link link = {.bytes_per_s = set->link_net, .latency_s = set->link_delay / 1e6};
    m->ops->link(m->net, &link);
    struct ntx_share parts;
    if ((rc = shares_of_files(m, all, &parts, err)))
        return rc;
    return decide_share(m, all, l, set, &parts, share, err);
}

int ntx_machines_pass(struct ntx_machines *m, struct ntx_machines_pass *pass, const struct ntx_err *mine,
                      struct ntx_err *err)
{
    struct hello h = hello_of(mine), all[NTX_RANKS_MAX];
    h.pass = *pass;
    int rc = ntx__machines_meet(m, &h, sizeof h, all, err);
    if (rc || (rc = first_failure(m, all, err)) || ++m->planned == 2)
        m->stage = NTX_MACHINES_MET;
    if (rc)
        return rc;
    *pass = all[0].pass;
    pass->of = h.pass.of;
    for (uint32_t i = 0; i < m->size; i++)
        m->planned_of[i] = all[i].pass.of;
    return 0;
}

/* ---- dealing again */

#define DEAL_GAIN  1.02 /* least gain for which all plan again */
#define MOST_DEALS 3

/* Seconds a token, by the slowest machine's drive or memory. */
static double token_s(const struct ntx_machines *m, const struct ntx_share *s)
{
    double all = 0, most = 0;
    for (uint32_t i = 0; i < s->n; i++)
        all += s->part[i];
    for (uint32_t i = 0; i < s->n; i++) {
        const double part = s->part[i] / all;
        most = NTX_MAX(most, NTX_MAX(ntx_share_reads(&m->can[i], &m->work, part) / m->can[i].drive,
                                     part * ntx_share_taken(&m->work) / m->can[i].memory));
    }
    return most;
}

/* A machine that streams has reported how much it keeps. One that does not keeps everything that it has. */
static void learn_keeps(struct ntx_machines *m)
{
    for (uint32_t i = 0; i < m->size; i++)
        if (m->planned_of[i].streams)
            m->can[i].keeps = (double)m->planned_of[i].keeps;
        else
            m->can[i].keeps = NTX_MAX(m->can[i].keeps, (double)m->planned_of[i].keeps);
}

static bool same_parts(const struct ntx_share *a, const struct ntx_share *b)
{
    return !memcmp(a->part, b->part, sizeof a->part);
}

/* Rank 0, when all have planned with this share. An estimate that was too high shows only once its machine has got too
 * much: then another deal follows. */
static void deal_better(struct ntx_machines *m, struct decided *d)
{
    struct ntx_share better = d->share;
    learn_keeps(m);
    if (!m->deals++ || token_s(m, &d->share) <= token_s(m, &m->best))
        m->best = d->share;
    if (m->deals <= MOST_DEALS && ntx_share_even(m->can, m->size, &m->work, &better) > 0 &&
        token_s(m, &better) * DEAL_GAIN < token_s(m, &m->best)) {
        d->share = better;
        d->again = true;
    } else if (!same_parts(&m->best, &d->share)) {
        d->share = m->best;
        d->again = d->last = true;
    }
}

/* With K and V by heads, memory beside the weights goes by the share; whole layers are too coarse to be dealt again. So
 * only rows are dealt again. */
int ntx_machines_deal_again(struct ntx_machines *m, struct ntx_share *share, bool *again, struct ntx_err *err)
{
    struct decided d = {.share = *share}, told[NTX_RANKS_MAX];
    *again = false;
    if (!m->by_rates || share->split != NTX_SPLIT_ROWS)
        return 0;
    if (!m->rank)
        deal_better(m, &d);
    int rc = ntx__machines_meet(m, &d, sizeof d, told, err);
    m->by_rates = !rc && told[0].again && !told[0].last;
    if (rc || !told[0].again)
        return rc;
    *share = told[0].share;
    share->rank = m->rank;
    *again = true;
    m->stage = NTX_MACHINES_AGREED;
    m->planned = 0;
    return 0;
}
