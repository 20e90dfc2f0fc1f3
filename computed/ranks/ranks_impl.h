/* SPDX-License-Identifier: Apache-2.0 */
/* ranks_impl.h: what ranks.c (rank 0), follow.c (the others) and kv.c (K and V by heads, both) share: the messages. */
#ifndef NTX_COMPUTED_RANKS_RANKS_IMPL_H
#define NTX_COMPUTED_RANKS_RANKS_IMPL_H

#include "computed/pass/forward_impl.h"
#include "computed/ranks/ranks.h"

enum ntx__said {
    NTX__SAID_BEGIN = 1,
    NTX__SAID_PRODUCTS,
    NTX__SAID_DROP,
    NTX__SAID_PREFETCH,
    NTX__SAID_END,
    NTX__SAID_QUIT,
    NTX__SAID_ATTEND
};

struct ntx__said_head { /* little-endian, as all that ntx runs on */
    uint32_t said;      /* enum ntx__said */
    uint32_t layer;     /* DROP: that layer, n_layers: the output. PRODUCTS: theirs. PREFETCH: it will probably want the
                           experts that follow, n u32 */
    uint64_t pass;
    uint32_t n; /* PRODUCTS: so many follow. END: 1: the pass has failed. BEGIN: struct ntx_kv_change, and then rows.
                   ATTEND: rows behind the live ones that only leave K and V */
    uint32_t n_in, n_rows; /* and of each form in the mask, ascending, n_rows rows of an input of n_in values */
    uint32_t forms;        /* bits of enum ntx_act */
    uint8_t buf, set;      /* struct ntx__input */
    uint8_t then;          /* enum ntx__then */
    uint8_t gate, up;      /* HIDDEN: buffers; rows of `gate` alone are answered; */
    uint8_t step,
        of_shared; /*   and struct ntx__glu: which of the layer's steps, whose numbers are the same on all machines */
    uint8_t flags; /* SUMMED: enum ntx__sum */
    uint8_t kept;  /* 1: the input is what products before them have kept */
    uint32_t n_distinct; /* choices' rows: so many come, behind n_rows numbers of them; 0: n_rows come */
    uint32_t n_live;     /* SUMMED: rows of Y */
};

/* What becomes of the outputs before they are answered. */
enum ntx__then {
    NTX__THEN_NOTHING,
    NTX__THEN_HIDDEN, /* gate = act(gate) * up */
    NTX__THEN_KEPT,   /* likewise, and it stays, being what the next products take: there is no answer */
    NTX__THEN_STAY,   /* they are Y, to which choices will be added: there is no answer */
    NTX__THEN_SUMMED, /* choices' outputs are added to Y; behind the products: a struct ntx__sent_routed for each, then
                         with WEIGHS n_live floats. With LAST rows of Y are answered, else there is no answer */
};
enum ntx__sum {
    NTX__SUM_CLEARS = 1 /* Y is 0 before */,
    NTX__SUM_WEIGHS = 2 /* and is multiplied before */,
    NTX__SUM_LAST = 4
};
struct ntx__sent_routed {
    uint32_t row;
    float weight;
};

struct ntx__said_product {
    uint16_t kind; /* struct ntx_weight; NTX_N_TENSORS: the output matrix */
    uint8_t to, pad;
    uint32_t expert;
    uint32_t at, row0, n_rows;
};

struct ntx__answer { /* then for each product that is answered its rows' outputs [n_rows x own rows], or Y's, floats;
                        after a failure NTX__ANSWER_TEXT bytes of words */
    int32_t rc;
    uint16_t ring_ready, ring_slots;
    uint64_t bytes_read, stall_ns, multiply_ns;
    uint64_t begin_ns, end_ns; /* of this run, by its own clock */
};
#define NTX__ANSWER_TEXT 224u

struct ntx_ranks {
    struct ntx_ranks_config c;
    uint32_t rank, size;
    struct ntx_backend table;
    _Atomic uint64_t messages;
    uint64_t multiply_ns;               /* of another than rank 0 */
    uint64_t begin_ns;                  /* of another than rank 0: of the run under way */
    uint64_t sent_ns, waited_ns;        /* of rank 0: when it began to send; how long it has waited last */
    const struct ntx__said_head *asked; /* of another than rank 0: what is being taken */
    const struct ntx__glu *glu;         /* that the products under way are for, */
    struct ntx_share_range own;         /* of these outputs of this machine's */
    bool due;                           /* of rank 0: the answers at hand are rows of Y */
    bool added;                         /* of rank 0: the wave's choices are added to Y elsewhere, all of it */
    bool kept;                          /* of rank 0: the next products' input is where they are multiplied */
    bool heard[NTX_RANKS_MAX];          /* of rank 0: that machine has answered once */
    uint8_t *rows;                      /* of rank 0: scratch, numbers of rows */
    size_t rows_bytes;
    struct {
        uint64_t least_ns;
        int64_t ahead_ns;
        uint64_t stall_ns;
    } clock[NTX_RANKS_MAX];   /* the shortest exchange so far, 0: none; its clock before ours by that; stalls so far */
    struct ntx_kv_pool *pool; /* K and V of own heads; NULL: rank 0 has all */
    struct ntx__ranks_kv *kv; /* of another than rank 0: the pass's rows */
    struct ntx_kv_change *changes; /* of rank 0: since the last pass */
    uint32_t n_changes, most_changes;
    bool changes_lost;
    int broken; /* the network is: errno */
    char why[256];
    uint8_t *out; /* what is sent */
    size_t out_bytes;
    uint8_t *in[NTX_RANKS_MAX]; /* rank 0: from each; others: in[0] is their logits */
    size_t in_bytes[NTX_RANKS_MAX];
};

static inline bool ntx__is_expert(uint16_t kind) { return kind >= NTX_T_expert_gate && kind <= NTX_T_expert_down; }
/* The GLU of the own rows of gate and up, in place. */
void ntx__ranks_hide(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__glu *glu, struct ntx_share_range own,
                     uint32_t n_rows);
bool ntx__answered(const struct ntx__said_head *h,
                   uint8_t to); /* outputs of a product into this buffer are sent back */
/* There is an answer at all. What fails where there is none is told by the next one. */
static inline bool ntx__has_answer(const struct ntx__said_head *h)
{
    if (h->said == NTX__SAID_ATTEND)
        return h->n_rows;
    return h->then != NTX__THEN_KEPT && h->then != NTX__THEN_STAY &&
           (h->then != NTX__THEN_SUMMED || h->flags & NTX__SUM_LAST);
}
/* Rank 0: the network is lost; what was begun has been sent and has come; counters, clock and failure of an answer that
 * is in r->in. */
int ntx__ranks_broken(struct ntx_ranks *r, struct ntx_forward *f, int rc);
int ntx__ranks_wait(struct ntx_ranks *r, struct ntx_forward *f);
int ntx__ranks_see(struct ntx_ranks *r, struct ntx_forward *f, uint32_t from, uint64_t now);

/* ---- kv.c */
void ntx__ranks_kv_table(struct ntx_backend *table);
int ntx__ranks_kv_begin(struct ntx_ranks *r, struct ntx_forward *f, struct ntx__said_head *h,
                        size_t *bytes); /* the message of a pass's begin, in r->out */
struct ntx__ranks_kv *ntx__ranks_kv_new(const struct ntx_ranks *r, const struct ntx_forward *f);
void ntx__ranks_kv_free(struct ntx__ranks_kv *k);
/* Another rank, of what came. 0, or what is answered. */
int ntx__ranks_kv_take_pass(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__said_head *h,
                            const uint8_t *bytes, size_t n);
int ntx__ranks_kv_attend(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__said_head *h,
                         const uint8_t *bytes, size_t n);
size_t ntx__ranks_kv_floats(const struct ntx_ranks *r, const struct ntx_forward *f, const struct ntx__said_head *h);
void ntx__ranks_kv_write(const struct ntx_ranks *r, const struct ntx_forward *f, const struct ntx__said_head *h,
                         float *y);

/* At least so many bytes; -ENOMEM. */
int ntx__ranks_room(uint8_t **p, size_t *has, size_t bytes);
static inline uint32_t ntx__product_rows(const struct ntx__product *p, const struct ntx__input *in)
{
    return p->n_rows ? p->n_rows : in->n_rows;
}

#endif
