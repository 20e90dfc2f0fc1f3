/* SPDX-License-Identifier: Apache-2.0 */
/* kv_impl.h: how what sessions keep lies in memory. A model's table of what its layers keep (model/state.h) is put into
 * spaces of units, which sequences take and give back; what a kind of unit has to be able to do is an entry of
 * ntx__kv_kinds, and kv.c does all else by going over them.
 *
 *   kind      a unit is                                             a sequence has
 *   ALL       a block of positions, of layers that keep all rows as many as its text is long, each promised first; some
 *             with others
 *   WINDOW    a block of positions, of layers with a window         a ring of them, its own
 *   SIDES     all tails and folds (recur.c)                         two, and one for each copy that a pass is to leave
 *
 * Files: kv.c pools, sequences, marks · kv_shape.c sizes · kv_rows.c ALL and WINDOW · recur.c SIDES. */
#ifndef NTX_COMPUTED_STATE_KV_IMPL_H
#define NTX_COMPUTED_STATE_KV_IMPL_H

#include "computed/state/kv.h"
#include "computed/state/kv_file.h"
#include "model/state.h"

enum ntx__kv_kind { NTX__KV_ALL, NTX__KV_WINDOW, NTX__KV_SIDES, NTX__KV_KINDS };

struct ntx__kv_space { /* units of a kind */
    uint8_t *base;     /* [n x unit_bytes], blocks NTX_KV_CLUSTER after the others (kv.h); NULL: they lie in a file */
    uint64_t bytes, unit_bytes;
    uint32_t n, n_free;
    uint32_t n_promised; /* that sequences may still take */
    uint32_t n_spare;    /* that only the keeper has: given up for whoever takes */
    uint32_t *free;      /* [n_free] their numbers */
    uint32_t *users;     /* [n] */
    bool *kept;          /* [n] the keeper is one of them */
};

struct ntx__kv_rows {    /* of a layer */
    size_t before;       /* bytes of a position that layers before it, of its kind, have */
    size_t row_k, row_v; /* bytes of a head's position */
    uint32_t heads;      /* 0: it keeps none */
    uint16_t of;         /* the layer whose these are that its attention reads */
    bool chosen;         /* it reads chosen ones of them, */
    bool keyed;          /* V being what they are chosen by, all of which it reads; else V are chosen with K */
    uint8_t run;         /* and in a file so many blocks' chosen ones are read together; else 0 */
    uint8_t kind;
};

struct ntx__kv_floats { /* of a layer, within a side */
    size_t tail, fold;
};

struct ntx_kv_pool {
    struct ntx__kv_space space[NTX__KV_KINDS];
    enum ntx_kv_type type;
    uint32_t n_layers; /* of `rows`: those behind the model's are of K of several positions */
    uint32_t n_turns;  /* layers of a pass */
    uint32_t window, ring;
    struct ntx__kv_rows *rows;     /* [n_layers] */
    struct ntx__kv_floats *floats; /* [the model's layers] */
    bool (*give_up)(void *keeper), (*give_up_snapshot)(void *keeper);
    void *keeper;
    struct ntx_kv_file *file;                                  /* NULL: all is in memory */
    void (*changed)(void *ctx, const struct ntx_kv_change *c); /* who watches; NULL: nobody */
    void *changed_ctx;
    uint16_t *rated; /* [clusters] scratch, with the file */
};

#define NTX__KV_NOWHERE UINT32_MAX

struct ntx__kv_stop {
    uint32_t at, unit;
    bool done; /* the pass that was to come by there did */
};

struct ntx_kv_seq {
    struct ntx_kv_pool *pool;
    uint32_t n_units[NTX__KV_KINDS];
    uint32_t *units[NTX__KV_KINDS]; /* [n_units], of ALL with room for `most` */
    uint32_t most;                  /* of ALL; those that it has not yet are promised to it */
    uint32_t oldest;                /* WINDOW: the first position that is there in all layers */
    uint32_t at[2];                 /* SIDES: tokens in each; NOWHERE: it is being written, or was when a pass failed */
    int now;
    uint32_t n_stops;
    struct ntx__kv_stop stop[NTX_RECUR_STOPS];
    uint32_t *n_holes; /* [n_layers] */
    uint8_t *holes;    /* [n_layers x most * NTX_KV_BLOCK / 8] */
};

/* What a kind can do. A sequence that holds a mark has units of windows and sides only: as many as marks() says. */
struct ntx__kv_ops {
    uint64_t (*unit_bytes)(const struct ntx_hparams *hp, enum ntx_kv_type type,
                           const struct ntx_kv_shape *shape); /* 0: the model keeps nothing of the kind */
    uint32_t (*units)(const struct ntx_kv_shape *shape);
    uint32_t (*has_room)(const struct ntx_kv_pool *p,
                         uint32_t blocks); /* units that a sequence with room for so many blocks may come to have */
    uint32_t (*reach)(const struct ntx_kv_seq *s,
                      uint32_t n_tokens);                  /* to how many tokens it can go back, at most to so many */
    void (*back)(struct ntx_kv_seq *s, uint32_t n_tokens); /* goes back: to what it reaches, or to none */
    uint32_t (*snapshots)(const struct ntx_kv_seq *s,
                          uint32_t n_tokens); /* units that a mark of what it reaches takes */
    void (*copy)(struct ntx_kv_seq *s, uint32_t n_tokens,
                 struct ntx_kv_seq *to); /* `to` has its units: it becomes what s was with so many tokens, which it
                                            reaches. Either may be a mark */
    int (*each_part)(const struct ntx_kv_seq *s, uint32_t n_tokens, bool filled, ntx_kv_part_fn *part, void *ctx);
    void (*restored)(struct ntx_kv_seq *s, uint32_t n_tokens); /* its parts were filled */
    void (*writes)(struct ntx_kv_seq *s, uint32_t pos); /* a pass is about to write there, and may write behind it */
};
extern const struct ntx__kv_ops ntx__kv_all, ntx__kv_window, ntx__kv_recur_buffers;
extern const struct ntx__kv_ops *const ntx__kv_kinds[NTX__KV_KINDS];

static inline uint64_t ntx__kv_blocks_of(uint64_t tokens) { return (tokens + NTX_KV_BLOCK - 1) / NTX_KV_BLOCK; }

/* ---- kv.c */

bool ntx__kv_find(struct ntx_kv_pool *p, uint32_t kind,
                  uint32_t n); /* so many are free, or become so by giving up marks. Of windows and sides */
uint32_t ntx__kv_take(struct ntx_kv_pool *p, uint32_t kind,
                      uint32_t near); /* near: a block, in whose neighbourhood one is wanted, or UINT32_MAX; there is
                                         one: what is promised is free, or spare */
void ntx__kv_leave(struct ntx_kv_pool *p, uint32_t kind, uint32_t unit);

/* ---- kv_shape.c */

uint64_t ntx__kv_kind_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *s,
                            uint32_t kind); /* of all units; UINT64_MAX: more than that */
/* What layers read of ALL, be it another's. To be freed, also when it failed. */
static inline uint16_t ntx__kv_keys_part(const struct ntx_kv_pool *p, uint32_t layer)
{
    return p->rows[layer].keyed ? (uint16_t)(p->n_layers + layer) : NTX_KV_NO_PART;
}
int ntx__kv_make_layout(const struct ntx_kv_pool *p, uint32_t n_blocks, struct ntx_kv_layout *out);
void ntx__kv_free_layout(struct ntx_kv_layout *l);

/* ---- kv_rows.c */

uint64_t ntx__kv_rows_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type,
                            bool windowed); /* of a block, what layers with a window keep, or the others */
/* The layers' places, by the type and whether there are rings: rows and n_layers. */
int ntx__kv_make_rows(struct ntx_kv_pool *p, const struct ntx_hparams *hp);
int ntx__kv_copy_block(const struct ntx_kv_seq *from, const struct ntx_kv_seq *to, uint32_t kind,
                       uint32_t pos); /* that the position is in. Of windows it never fails */

/* ---- recur.c */

int ntx__kv_make_floats(struct ntx_kv_pool *p, const struct ntx_hparams *hp);

#endif
