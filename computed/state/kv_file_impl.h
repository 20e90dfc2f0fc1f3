/* SPDX-License-Identifier: Apache-2.0 */
/* kv_file_impl.h: shared by kv_file.c (its life, and the calls of a pass), kv_file_turns.c (runs, and the thread that
 * reads them layer by layer) and kv_file_shape.c (bytes). */
#ifndef NTX_COMPUTED_STATE_KV_FILE_IMPL_H
#define NTX_COMPUTED_STATE_KV_FILE_IMPL_H

#include <pthread.h>

#include "common/util.h"
#include "computed/state/kv_file.h"
#include "computed/state/kv_io.h"
#include "computed/state/kv_slots.h"

enum {
    NTX__KV_AHEAD = 3,
    NTX__KV_LEAST_AHEAD = 2,
    NTX__KV_FAR = UINT32_MAX,
    NTX__KV_TOUCHED = 2,
    NTX__KV_NOBODY = UINT32_MAX
};
/* State of a run: in memory, or on its way; changed since it was in the file; stored in the file; selected by a top-k
 * and not yet read; its read failed. */
enum { NTX__KV_IN = 1, NTX__KV_CHANGED = 2, NTX__KV_STORED = 4, NTX__KV_WANTED = 8, NTX__KV_BAD = 16 };

struct ntx__kv_run {
    uint32_t part, i; /* the part's i-th run; part NTX__KV_NOBODY: none */
};

struct ntx_kv_file {
    int fd;
    struct ntx_kv_layout l; /* with own arrays */
    uint64_t most;
    uint32_t n_clusters;
    struct place {            /* [n_parts] */
        uint64_t at, bytes;   /* offset in the file; bytes of a run, there and in memory */
        uint32_t first, size; /* number of its first run among all; size of slots */
        uint32_t last;        /* the last layer that reads it */
    } * place;
    uint8_t *state; /* [all runs] */
    uint32_t *slot; /* [all runs] of those that are NTX__KV_IN */
    struct ntx__kv_slots *slots;
    uint32_t n_bad;
    uint32_t *age;          /* [n_clusters] blocks behind the youngest of a sequence; NTX__KV_FAR: not in this pass */
    bool *writes;           /* [n_clusters] the pass writes there */
    bool *joins;            /* [n_clusters] every layer reads keys there */
    bool *lost;             /* [n_clusters] could not be read; under the lock */
    uint32_t *list, n_list; /* clusters of the pass, youngest first, */
    uint32_t *in_file;      /* and in file order: neighbours are read together, also those of several texts */
    uint32_t keep;          /* how many of them stay in memory */
    bool early;             /* runs that are written must be read, or dropped, in their layer's turn */
    struct touched {
        uint32_t block, part[2];
    } touched[NTX__KV_TOUCHED];
    uint32_t next_touched;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct ntx__kv_io *io; /* the thread's */
    /* [n_layers + 1] reads under way for each turn, and for the top-k; the thread's. */
    uint32_t *pending;
    uint32_t cursor; /* in the turn that is being read: parts x clusters x blocks */
    struct batch {   /* runs that are neighbours in the file */
        struct ntx__kv_run first;
        uint32_t n, turn;
        uint64_t asked; /* bytes, where one run is several reads */
    } now;              /* being read; n 0: none */
    bool chooses;       /* the pass names its top-k */
    uint32_t attends;   /* layers that attend */
    /* [n_blocks] runs of the top-k; the engine's until it waits for them. */
    uint32_t *wanted, n_wanted, next_wanted, wanted_part;
    bool fetching; /* the engine waits for them */
    /* The thread's copies, as of its step's begin: fetching, and the turns that it may read. */
    bool serving;
    uint32_t until;
    /* turns: dropped <= done and loaded, loaded <= asked <= dropped + ahead. */
    uint32_t ahead, asked, loaded, done, dropped;
    bool started, paused, busy, stop;
    int error;
    struct ntx_kv_file_stats stats;
};
/* Counts of a turn. */
struct ntx__kv_moved {
    uint64_t taken, read, written, dropped;
    struct ntx__kv_run lost;
    uint32_t n_lost;
};

static inline uint32_t ntx__kv_file_run_blocks(const struct ntx_kv_layout *l, uint32_t part)
{
    return l->part[part].run ? l->part[part].run : l->cluster;
}
static inline uint64_t ntx__kv_file_run_bytes(const struct ntx_kv_layout *l, uint32_t part)
{
    return NTX_ROUND_UP((uint64_t)l->part[part].row * ntx__kv_file_run_blocks(l, part), ntx_page_bytes());
}
static inline uint32_t ntx__kv_file_clusters(const struct ntx_kv_layout *l, uint32_t n_blocks)
{
    return (n_blocks + l->cluster - 1) / l->cluster;
}
static inline uint16_t ntx__kv_file_part_of(const struct ntx_kv_layout *l, uint32_t layer, uint32_t i)
{
    return l->reads[layer][i];
}

static inline struct ntx__kv_run ntx__kv_file_run_at(const struct ntx_kv_file *f, uint32_t block, uint32_t part)
{
    return (struct ntx__kv_run){part, block / ntx__kv_file_run_blocks(&f->l, part)};
}
static inline uint8_t *ntx__kv_file_state_of(const struct ntx_kv_file *f, struct ntx__kv_run r)
{
    return &f->state[f->place[r.part].first + r.i];
}
static inline uint32_t *ntx__kv_file_slot_of(const struct ntx_kv_file *f, struct ntx__kv_run r)
{
    return &f->slot[f->place[r.part].first + r.i];
}
static inline uint64_t ntx__kv_file_bytes_of(const struct ntx_kv_file *f, struct ntx__kv_run r)
{
    return f->place[r.part].bytes;
}
static inline uint64_t ntx__kv_file_place_of(const struct ntx_kv_file *f, struct ntx__kv_run r)
{
    return f->place[r.part].at + r.i * ntx__kv_file_bytes_of(f, r);
}
static inline uint8_t *ntx__kv_file_memory_of(const struct ntx_kv_file *f, struct ntx__kv_run r)
{
    return ntx__kv_slots_at(f->slots, f->place[r.part].size, *ntx__kv_file_slot_of(f, r));
}
static inline uint32_t ntx__kv_file_cluster_of(const struct ntx_kv_file *f, struct ntx__kv_run r)
{
    return r.i * ntx__kv_file_run_blocks(&f->l, r.part) / f->l.cluster;
}
/* The runs of a part in a cluster: [from, to). */
static inline void ntx__kv_file_runs_of(const struct ntx_kv_file *f, uint32_t cluster, uint32_t part,
                                        struct ntx__kv_run *from, uint32_t *to)
{
    const uint32_t n = f->l.cluster / ntx__kv_file_run_blocks(&f->l, part);
    *from = (struct ntx__kv_run){part, cluster * n};
    *to = f->l.part[part].row ? from->i + n : from->i;
}
static inline bool ntx__kv_file_flying(const struct ntx_kv_file *f) { return f->io && ntx__kv_io_flying(f->io); }

/* ---- kv_file_shape.c */
uint64_t ntx__kv_file_all_parts(const struct ntx_kv_layout *l); /* bytes of all parts of a cluster */
uint32_t ntx__kv_file_turns(const struct ntx_kv_layout *l, uint32_t n_clusters, uint64_t most, uint32_t *keep);

/* ---- kv_file_turns.c */
int ntx__kv_file_bring(struct ntx_kv_file *f, struct ntx__kv_run r, struct ntx__kv_moved *m);
void ntx__kv_file_give_up(struct ntx_kv_file *f, struct ntx__kv_run r, struct ntx__kv_moved *m);
int ntx__kv_file_drop_part(struct ntx_kv_file *f, uint32_t cluster, uint32_t part, struct ntx__kv_moved *m);
int ntx__kv_file_drop(struct ntx_kv_file *f, struct ntx__kv_run r, struct ntx__kv_moved *m);
int ntx__kv_file_load_run(struct ntx_kv_file *f, struct ntx__kv_run r, struct ntx__kv_moved *m);
void ntx__kv_file_count(struct ntx_kv_file *f, const struct ntx__kv_moved *m);
int ntx__kv_file_drop_turn(struct ntx_kv_file *f, uint32_t layer, struct ntx__kv_moved *m);
void *ntx__kv_file_work(void *arg);

#endif
