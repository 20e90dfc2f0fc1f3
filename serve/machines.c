#include "serve/machines.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/plugin.h"
#include "common/util.h"
#include "model/share_file.h"
#include "ntx_version.h"
#include "serve/load.h"

#define LIBRARY "libntx-mpi.so"
#define VARIABLE "NTX_MPI_LIBRARY"
#define CHUNK (4u << 20) /* for counting */

struct ntx_machines {
    void *library;
    const struct ntx_net_ops *ops;
    struct ntx_net *net;
    uint32_t rank, size;
    char name[NTX_RANKS_MAX][NTX_NET_NAME + 32]; /* "node7 (rank 2)" */
    const char *names[NTX_RANKS_MAX];
    enum ntx_machines_stage stage;
    bool over;        /* rank 0 has said so, or was told to */
    unsigned planned; /* times that rows were told */
    pthread_t thread;
    atomic_bool stop;
    struct ntx_loaded *loaded;
    void (*ended)(void *ctx, int rc, const char *text);
    void *ctx;
};

/* What machines tell each other before they share a model. */
struct hello {
    int32_t rc;
    char text[256];
    char digest[NTX_DIGEST_TEXT], commit[48];
    double keeps, memory, drive; /* struct ntx_share_machine */
    uint32_t rows;
    struct ntx_share file; /* n 0: it has the whole model */
};

static int open_plugin(struct ntx_machines *m, struct ntx_err *err)
{
    char path[PATH_MAX + 64];
    struct ntx_err why = {0};
    const struct ntx_net_ops *(*table)(void);
    if (ntx_plugin_open(LIBRARY, VARIABLE, NTX_NET_SYMBOL, true, path, sizeof path, &m->library, (void **)&table, &why))
        return ntx_err_set(err, -ENODEV, "several machines need MPI, and this build's plug-in for it cannot be loaded: %s; install libopenmpi-dev and build again", why.text);
    if (table()->abi != NTX_NET_ABI)
        return ntx_err_set(err, -ENODEV, "%s is not the MPI plug-in of this build", path);
    m->ops = table();
    return 0;
}

static int meet(struct ntx_machines *m, const void *mine, size_t n, void *all, struct ntx_err *err)
{
    int rc = m->ops->gather(m->net, mine, n, all);
    return rc ? ntx_err_set(err, rc, "the other machines cannot be reached: %s", m->ops->error(m->net)) : 0;
}

static int learn_names(struct ntx_machines *m, struct ntx_err *err)
{
    char mine[NTX_NET_NAME], all[NTX_RANKS_MAX][NTX_NET_NAME];
    snprintf(mine, sizeof mine, "%s", m->ops->name(m->net));
    int rc = meet(m, mine, sizeof mine, all, err);
    for (uint32_t i = 0; i < m->size && !rc; i++) {
        all[i][NTX_NET_NAME - 1] = 0;
        snprintf(m->name[i], sizeof m->name[i], "%.*s (rank %u)", (int)NTX_NET_NAME - 1, all[i], i);
        m->names[i] = m->name[i];
    }
    return rc;
}

int ntx_machines_join(struct ntx_machines **out, struct ntx_err *err)
{
    char why[256] = "";
    struct ntx_machines *m = calloc(1, sizeof *m);
    int rc = m ? open_plugin(m, err) : ntx_err_set(err, -ENOMEM, "no memory");
    if (!rc && (rc = m->ops->open(&m->net, why, sizeof why)))
        rc = ntx_err_set(err, rc, "%s: is this started by mpirun?", why);
    if (!rc) {
        m->rank = m->ops->rank(m->net);
        m->size = m->ops->size(m->net);
        rc = m->size > NTX_RANKS_MAX ? ntx_err_set(err, -E2BIG, "%u machines: at most %u can share a model", m->size, NTX_RANKS_MAX) : learn_names(m, err);
    }
    if (rc) {
        ntx_machines_leave(m, false);
        return rc;
    }
    *out = m;
    return 0;
}

void ntx_machines_leave(struct ntx_machines *m, bool together)
{
    if (!m)
        return;
    if (m->net)
        m->ops->close(m->net, together);
    free(m); /* the library stays: MPI's own threads may be in it */
}

void ntx_machines_over(struct ntx_machines *m, struct ntx_ranks *r)
{
    if (!m->rank)
        m->over = !ntx_ranks_quit(r);
}

bool ntx_machines_ended(const struct ntx_machines *m) { return m && m->over; }
uint32_t ntx_machines_rank(const struct ntx_machines *m) { return m->rank; }
const char *ntx_machines_name(const struct ntx_machines *m, uint32_t rank) { return m->names[rank]; }
uint32_t ntx_machines_size(const struct ntx_machines *m) { return m->size; }

const char *ntx_machines_refusal(const struct ntx_machines *m, const struct ntx_load_settings *set, bool packed, bool deltas)
{
    if (m->stage != NTX_MACHINES_JOINED)
        return "machines that share a model have it for as long as they run: start them again for another one";
    if (packed)
        return "a packed model (ntx pack) runs on one machine only";
    if (deltas)
        return "a model whose layers share matrices, or add to them, runs on one machine only";
    return *set->backend && strcmp(set->backend, "cpu") && strcmp(set->backend, "auto") ? "several machines compute on their CPUs only: --backend cpu" : NULL;
}

/* The first that failed speaks for all. */
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
            return ntx_err_set(err, -EPROTO, "%s runs ntx %.47s, %s ntx %.47s: install the same on all machines", m->names[i], all[i].commit, m->names[0], all[0].commit);
        if (memcmp(all[i].digest, all[0].digest, sizeof all[i].digest))
            return ntx_err_set(err, -EINVAL, "%s has another model than %s under this name (digests %.32s and %.32s): copy the same file to all machines", m->names[i], m->names[0], all[i].digest,
                               all[0].digest);
    }
    return 0;
}

/* Where a profile is missing anywhere, all get the same part. */
static void tell_rates(const struct ntx_loaded *l, const struct ntx_load_settings *set, const struct ntx_hw *hw, struct hello *h)
{
    h->keeps = NTX_SHARE_KEEPS * (double)l->ram_bytes;
    h->drive = hw ? ntx_hw_stream_bps(hw, ntx_hw_read_bytes(hw)) : 0;
    h->memory = hw ? ntx_hw_ram_bps(hw, 0) : 0;
    if (!hw && set->link_nvme > 0) { /* played: that is all that is known, and memory is faster */
        h->drive = set->link_nvme;
        h->memory = 100 * h->drive;
    }
}

static void make_share(const struct ntx_machines *m, const struct hello *all, const struct ntx_share_work *work, struct ntx_share *share)
{
    struct ntx_share_machine of[NTX_RANKS_MAX];
    for (uint32_t i = 0; i < m->size; i++)
        of[i] = (struct ntx_share_machine){all[i].keeps, all[i].memory, all[i].drive};
    *share = (struct ntx_share){.n = m->size, .rank = m->rank};
    for (uint32_t i = 0; i < m->size; i++)
        share->part[i] = 1;
    if (m->size > 1)
        ntx_share_even(of, m->size, work, share);
    share->rank = m->rank;
}

static int work_of(const struct ntx_model *model, struct ntx_share_work *work, struct ntx_err *err)
{
    const struct ntx_chunk_bounds b = {.most = NTX_CHUNKS_MAX, .count_only = true};
    const struct ntx_hparams *hp = &model->hp;
    struct ntx_chunks *c = NULL;
    int rc = ntx_chunks_make_bounded(model, CHUNK, &b, &c, err);
    if (rc)
        return rc;
    *work = (struct ntx_share_work){.used = hp->n_expert ? (double)hp->n_expert_used / hp->n_expert : 0};
    for (uint32_t l = 0; l < hp->n_layers; l++)
        for (int part = 0; part < NTX_EXPERT_PARTS; part++)
            work->experts += (double)c->layers[l].expert[part].n_out * c->layers[l].expert[part].row_bytes * hp->n_expert;
    work->dense = (double)c->matrix_bytes + (double)c->fixed_bytes - work->experts;
    ntx_chunks_free(c);
    return 0;
}

/* Files of shares decide who has what. *parts->n 0: all have the whole. */
static int of_files(const struct ntx_machines *m, const struct hello *all, struct ntx_share *parts, struct ntx_err *err)
{
    parts->n = 0;
    for (uint32_t i = 0; i < m->size; i++) {
        const struct ntx_share *s = &all[i].file;
        if (!s->n)
            continue;
        if (s->n != m->size || s->rank != i)
            return ntx_err_set(err, -EINVAL, "%s has the file of machine %u of %u, and is machine %u of %u: start the machines in the order of their files (ntx pack --share)", m->names[i], s->rank + 1,
                               s->n, i + 1, m->size);
        if (parts->n && memcmp(s->part, parts->part, sizeof s->part))
            return ntx_err_set(err, -EINVAL, "%s has a file of other parts than another machine: make them all with the same ntx pack --share ... --machines FILE", m->names[i]);
        *parts = *s;
    }
    return 0;
}

enum ntx_machines_stage ntx_machines_stage(const struct ntx_machines *m) { return m->stage; }

int ntx_machines_agree(struct ntx_machines *m, const struct ntx_loaded *l, const struct ntx_load_settings *set, const struct ntx_hw *hw, const struct ntx_err *mine, struct ntx_share *share,
                       struct ntx_err *err)
{
    struct hello h = hello_of(mine), all[NTX_RANKS_MAX];
    struct ntx_err failed = {0};
    if (m->stage != NTX_MACHINES_JOINED)
        return ntx_err_set(err, mine->code, "%s", mine->text);
    if (!h.rc && ntx_model_digest(l->gguf, l->fds, h.digest, &failed))
        h = hello_of(&failed);
    if (!h.rc && ntx_share_file_of(l->gguf, &h.file, &failed))
        h = hello_of(&failed);
    if (!h.rc)
        tell_rates(l, set, hw, &h);
    int rc = meet(m, &h, sizeof h, all, err);
    m->stage = NTX_MACHINES_MET;
    if (rc || (rc = first_failure(m, all, err)) || (rc = check_same(m, all, err)))
        return rc;
    m->stage = NTX_MACHINES_AGREED;
    struct ntx_share_work work;
    struct ntx_share parts;
    if ((rc = work_of(l->model, &work, err)) || (rc = of_files(m, all, &parts, err)))
        return rc;
    make_share(m, all, &work, share);
    if (parts.n)
        memcpy(share->part, parts.part, sizeof share->part);
    const struct ntx_net_link link = {.bytes_per_s = set->link_net, .latency_s = set->link_delay / 1e6};
    m->ops->link(m->net, &link);
    return 0;
}

int ntx_machines_rows(struct ntx_machines *m, uint32_t *rows, const struct ntx_err *mine, struct ntx_err *err)
{
    struct hello h = hello_of(mine), all[NTX_RANKS_MAX];
    h.rows = *rows;
    int rc = meet(m, &h, sizeof h, all, err);
    if (rc || (rc = first_failure(m, all, err)) || ++m->planned == 2)
        m->stage = NTX_MACHINES_MET;
    if (rc)
        return rc;
    *rows = all[0].rows;
    return 0;
}

int ntx_machines_ranks(struct ntx_machines *m, struct ntx_ranks **out)
{
    const struct ntx_ranks_config c = {.ops = m->ops, .net = m->net, .names = m->names};
    return ntx_ranks_new(&c, out);
}

static void *follow(void *arg)
{
    struct ntx_machines *m = arg;
    int rc = ntx_ranks_follow(m->loaded->ranks, m->loaded->forward, &m->stop);
    m->over = !rc;
    m->ended(m->ctx, rc, rc ? m->loaded->weights->error.text : "");
    return NULL;
}

int ntx_machines_follow(struct ntx_machines *m, struct ntx_loaded *l, void (*ended)(void *ctx, int rc, const char *text), void *ctx)
{
    m->loaded = l;
    m->ended = ended;
    m->ctx = ctx;
    atomic_store(&m->stop, false);
    return -pthread_create(&m->thread, NULL, follow, m);
}

void ntx_machines_stop(struct ntx_machines *m) { atomic_store(&m->stop, true); }
void ntx_machines_joined(struct ntx_machines *m) { pthread_join(m->thread, NULL); }
