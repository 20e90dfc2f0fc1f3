/* SPDX-License-Identifier: Apache-2.0 */
/* kv_impl.h: how session state is laid out in memory. A model's table of kept state (model/state.h) is mapped to spaces
 * of units, which sequences take and give back. Each kind of unit has an entry of operations in ntx__kv_kinds, and kv.c
 * does everything else by a loop over the kinds.
 *
 *   kind    a unit is                                              a sequence has
 *   ALL     a block of positions, of layers that keep all rows     as many as its text needs; some are shared
 *   WINDOW  a block of positions, of layers with a sliding window  a ring of its own
 *   STATES  a recurrent state buffer of all layers (recur.c)       two, and one for each copy that a pass leaves
 *
 * Files: kv.c pools, sequences, snapshots · kv_shape.c sizes · kv_rows.c ALL and WINDOW · recur.c STATES. */
#ifndef NTX_COMPUTED_STATE_KV_IMPL_H
#define NTX_COMPUTED_STATE_KV_IMPL_H

#include "computed/state/kv.h"
#include "computed/state/kv_file.h"
#include "model/state.h"

enum ntx__kv_kind { NTX__KV_ALL, NTX__KV_WINDOW, NTX__KV_STATES, NTX__KV_KINDS };

struct ntx__kv_space { /* units of a kind */
    /* [n x unit_bytes], blocks in clusters (kv.h); NULL: they are in a file. */
    uint8_t *base;
    uint64_t bytes, unit_bytes;
    uint32_t n, n_free;
    uint32_t n_promised; /* that sequences may still take */
    uint32_t n_spare;    /* that only the keeper has: evicted when a unit is wanted */
    uint32_t *free;      /* [n_free] their numbers */
    uint32_t *users;     /* [n] */
    bool *kept;          /* [n] the keeper is a user */
};

struct ntx__kv_rows {    /* of one layer */
    size_t before;       /* bytes of a position in earlier layers of the same kind */
    size_t row_k, row_v; /* bytes of one head's position */
    uint32_t heads;      /* 0: the layer keeps none */
    uint16_t of;         /* the layer whose rows its attention reads */
    bool topk;           /* attention reads the indexer top-k of the rows, */
    bool v_is_key;       /* and V holds the index keys, all of which are read; otherwise the top-k of V are read, too */
    uint8_t run;         /* blocks whose top-k rows are read together from a file; else 0 */
    uint8_t kind;
};

struct ntx__kv_floats { /* offsets of one layer's floats within a state buffer */
    size_t tail, fold;
};

struct ntx_kv_pool {
    struct ntx__kv_space space[NTX__KV_KINDS];
    enum ntx_kv_type type;
    uint32_t n_layers; /* of `rows`; the second half are pooled K */
    uint32_t n_turns;  /* layers of a pass */
    uint32_t window, ring;
    struct ntx__kv_rows *rows;     /* [n_layers] */
    struct ntx__kv_floats *floats; /* [the model's layers] */
    bool (*give_up)(void *keeper), (*give_up_snapshot)(void *keeper);
    void *keeper;
    struct ntx_kv_file *file;                                  /* NULL: all of it is in memory */
    void (*changed)(void *ctx, const struct ntx_kv_change *c); /* watcher of changes; NULL: none */
    void *changed_ctx;
    uint16_t *rated; /* [clusters] scratch, with a file */
};

#define NTX__KV_NOWHERE UINT32_MAX

struct ntx__kv_stop {
    uint32_t at, unit;
    bool done; /* the pass has come by there */
};

struct ntx_kv_seq {
    struct ntx_kv_pool *pool;
    uint32_t n_units[NTX__KV_KINDS];
    uint32_t *units[NTX__KV_KINDS]; /* [n_units]; ALL: with room for `most` */
    uint32_t most;                  /* blocks of ALL at most; those not yet taken are promised */
    uint32_t oldest;                /* WINDOW: the first position that all layers still have */
    /* STATES: tokens in each buffer; NOWHERE: being written, or left by a failed pass. */
    uint32_t at[2];
    int now;
    uint32_t n_stops;
    struct ntx__kv_stop stop[NTX_RECUR_STOPS];
    uint32_t *n_holes; /* [n_layers] */
    uint8_t *holes;    /* [n_layers x most * NTX_KV_BLOCK / 8] */
};

/* Operations of a kind. The sequence of a snapshot has units of WINDOW and STATES only: as many as snapshots() says. */
struct ntx__kv_ops {
    /* 0: the model keeps nothing of the kind. */
    uint64_t (*unit_bytes)(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *shape);
    uint32_t (*units)(const struct ntx_kv_shape *shape);
    /* Units that a sequence with room for so many blocks may have. */
    uint32_t (*has_room)(const struct ntx_kv_pool *p, uint32_t blocks);
    /* The largest number of tokens, at most n_tokens, that it can go back to. */
    uint32_t (*reach)(const struct ntx_kv_seq *s, uint32_t n_tokens);
    /* Goes back to n_tokens, which it reaches, or to 0. */
    void (*back)(struct ntx_kv_seq *s, uint32_t n_tokens);
    /* Units that a snapshot at n_tokens takes. */
    uint32_t (*snapshots)(const struct ntx_kv_seq *s, uint32_t n_tokens);
    /* `to`, which has its units, becomes what s was at n_tokens, which s reaches. Either may be a snapshot's. */
    void (*copy)(struct ntx_kv_seq *s, uint32_t n_tokens, struct ntx_kv_seq *to);
    int (*each_part)(const struct ntx_kv_seq *s, uint32_t n_tokens, bool filled, ntx_kv_part_fn *part, void *ctx);
    void (*restored)(struct ntx_kv_seq *s, uint32_t n_tokens); /* its parts were filled */
    /* A pass is about to write at pos, and perhaps later positions. */
    void (*writes)(struct ntx_kv_seq *s, uint32_t pos);
};
extern const struct ntx__kv_ops ntx__kv_all, ntx__kv_window, ntx__kv_recur_buffers;
extern const struct ntx__kv_ops *const ntx__kv_kinds[NTX__KV_KINDS];

static inline uint64_t ntx__kv_blocks_of(uint64_t tokens) { return (tokens + NTX_KV_BLOCK - 1) / NTX_KV_BLOCK; }

/* ---- kv.c */

/* Makes n units of WINDOW or STATES free, if need be by freeing snapshots. */
bool ntx__kv_find(struct ntx_kv_pool *p, uint32_t kind, uint32_t n);
/* Takes a unit; there is one, as promised units are free or spare. near: a block in whose neighbourhood it is wanted,
 * or UINT32_MAX. */
uint32_t ntx__kv_take(struct ntx_kv_pool *p, uint32_t kind, uint32_t near);
void ntx__kv_leave(struct ntx_kv_pool *p, uint32_t kind, uint32_t unit);

/* ---- kv_shape.c */

/* Bytes of all units; UINT64_MAX: more than that. */
uint64_t ntx__kv_kind_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *s,
                            uint32_t kind);
/* The layout of the file's parts; to be freed, also after a failure. */
static inline uint16_t ntx__kv_keys_part(const struct ntx_kv_pool *p, uint32_t layer)
{
    return p->rows[layer].v_is_key ? (uint16_t)(p->n_layers + layer) : NTX_KV_NO_PART;
}
int ntx__kv_make_layout(const struct ntx_kv_pool *p, uint32_t n_blocks, struct ntx_kv_layout *out);
void ntx__kv_free_layout(struct ntx_kv_layout *l);

/* ---- kv_rows.c */

/* Bytes of a block, over the layers with a window, or the others. */
uint64_t ntx__kv_rows_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, bool windowed);
/* Makes p->rows and p->n_layers, from the type and whether there are rings. */
int ntx__kv_make_rows(struct ntx_kv_pool *p, const struct ntx_hparams *hp);
/* Copies the block of position pos. Never fails for WINDOW. */
int ntx__kv_copy_block(const struct ntx_kv_seq *from, const struct ntx_kv_seq *to, uint32_t kind, uint32_t pos);

/* ---- recur.c */

int ntx__kv_make_floats(struct ntx_kv_pool *p, const struct ntx_hparams *hp);

#endif
