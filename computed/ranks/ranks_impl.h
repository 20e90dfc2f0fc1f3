/* SPDX-License-Identifier: Apache-2.0 */
/* ranks_impl.h: the messages, shared by ranks.c (rank 0), follow.c (the others) and kv.c (K and V by heads, both). */
#ifndef NTX_COMPUTED_RANKS_RANKS_IMPL_H
#define NTX_COMPUTED_RANKS_RANKS_IMPL_H

#include "computed/pass/forward_impl.h"
#include "computed/ranks/ranks.h"

enum ntx__message_type {
    NTX__MSG_BEGIN = 1,
    NTX__MSG_PRODUCTS,
    NTX__MSG_DROP,
    NTX__MSG_PREFETCH,
    NTX__MSG_END,
    NTX__MSG_QUIT,
    NTX__MSG_ATTEND
};

struct ntx__message_head { /* little-endian, as on all machines that ntx supports */
    uint32_t type;         /* enum ntx__message_type */
    /* DROP: the dropped layer, n_layers: the output. PRODUCTS: their layer. PREFETCH: the layer that will probably want
     * the experts that follow, n u32. */
    uint32_t layer;
    uint64_t pass;
    /* PRODUCTS: their number. END: 1: the pass has failed. BEGIN: number of struct ntx_kv_change, before the rows.
     * ATTEND: rows after the live ones that only leave K and V. */
    uint32_t n;
    uint32_t n_in, n_rows; /* for each form in the mask, ascending, n_rows rows of an input of n_in values follow */
    uint32_t forms;        /* bits of enum ntx_act */
    uint8_t buf, set;      /* struct ntx__input */
    uint8_t then;          /* enum ntx__then */
    uint8_t gate, up;      /* HIDDEN: buffers; only rows of `gate` come back; */
    /* and of struct ntx__glu: the layer's step, whose number is the same on all machines. */
    uint8_t step, of_shared;
    uint8_t flags; /* SUMMED: enum ntx__sum */
    uint8_t kept;  /* 1: the input is the kept output of earlier products */
    /* With repeated rows of choices: the number of rows sent, after n_rows indexes of them; 0: n_rows rows are sent. */
    uint32_t n_distinct;
    uint32_t n_live; /* SUMMED: rows of Y */
};

/* The use of the outputs before an answer. */
enum ntx__then {
    NTX__THEN_NOTHING,
    NTX__THEN_HIDDEN, /* gate = act(gate) * up */
    NTX__THEN_KEPT,   /* likewise, and kept as the input of the next products: there is no answer */
    NTX__THEN_STAY,   /* kept as Y, to which choices will be added: there is no answer */
    /* Outputs of choices are added to Y. After the products: a struct ntx__sent_routed for each, then with WEIGHS
     * n_live floats. With LAST the rows of Y come back, else there is no answer. */
    NTX__THEN_SUMMED,
};
enum ntx__sum {
    NTX__SUM_CLEARS = 1, /* Y is set to 0 before */
    NTX__SUM_WEIGHS = 2, /* Y is multiplied before */
    NTX__SUM_LAST = 4
};
struct ntx__sent_routed {
    uint32_t row;
    float weight;
};

struct ntx__message_product {
    uint16_t kind; /* struct ntx_weight; NTX_N_TENSORS: the output matrix */
    uint8_t to, pad;
    uint32_t expert;
    uint32_t at, row0, n_rows;
};

/* Followed, for each product that is answered, by its rows' outputs [n_rows x own rows], or Y's, as floats; after a
 * failure by NTX__ANSWER_TEXT bytes of text. */
struct ntx__answer {
    int32_t rc;
    uint16_t ring_ready, ring_slots;
    uint64_t bytes_read, stall_ns, multiply_ns;
    uint64_t begin_ns, end_ns; /* of this run, by the rank's own clock */
};
#define NTX__ANSWER_TEXT 224u

struct ntx_ranks {
    struct ntx_ranks_config c;
    uint32_t rank, size;
    struct ntx_backend table;
    _Atomic uint64_t messages;
    uint64_t multiply_ns;                  /* other ranks */
    uint64_t begin_ns;                     /* other ranks: of the current run */
    uint64_t sent_ns, waited_ns;           /* rank 0: when it began to send; how long it waited last */
    const struct ntx__message_head *asked; /* other ranks: the current message */
    const struct ntx__glu *glu;            /* the GLU of the current products, */
    struct ntx_share_range own;            /* for these of this machine's outputs */
    bool due;                              /* rank 0: the next answers are rows of Y */
    bool added;                            /* rank 0: the wave's choices are added to Y on the other ranks */
    bool kept;                             /* rank 0: the next products' input is kept there */
    bool heard[NTX_RANKS_MAX];             /* rank 0: that machine has answered once */
    uint8_t *rows;                         /* rank 0: scratch, numbers of rows */
    size_t rows_bytes;
    struct {
        uint64_t least_ns; /* the shortest exchange so far, 0: none */
        int64_t ahead_ns;  /* its clock minus ours */
        uint64_t stall_ns; /* stalls so far */
    } clock[NTX_RANKS_MAX];
    struct ntx_kv_pool *pool;      /* K and V of own heads; NULL: rank 0 has all */
    struct ntx__ranks_kv *kv;      /* other ranks: the pass's rows */
    struct ntx_kv_change *changes; /* rank 0: since the last pass */
    uint32_t n_changes, most_changes;
    bool changes_lost;
    int broken; /* errno of the network's failure */
    char why[256];
    uint8_t *out; /* buffer for sending */
    size_t out_bytes;
    uint8_t *in[NTX_RANKS_MAX]; /* rank 0: from each rank; others: in[0] has their logits */
    size_t in_bytes[NTX_RANKS_MAX];
};

static inline bool ntx__is_expert(uint16_t kind) { return kind >= NTX_T_expert_gate && kind <= NTX_T_expert_down; }
/* The GLU of the own rows of gate and up, in place. */
void ntx__ranks_hide(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__glu *glu, struct ntx_share_range own,
                     uint32_t n_rows);
/* Outputs of a product into this buffer are sent back. */
bool ntx__answered(const struct ntx__message_head *h, uint8_t to);
/* Whether there is an answer at all. A failure without an answer is reported by the next one. */
static inline bool ntx__has_answer(const struct ntx__message_head *h)
{
    if (h->type == NTX__MSG_ATTEND)
        return h->n_rows;
    return h->then != NTX__THEN_KEPT && h->then != NTX__THEN_STAY &&
           (h->then != NTX__THEN_SUMMED || h->flags & NTX__SUM_LAST);
}
/* Rank 0. broken: the network failed. wait: until everything begun was sent and received. see: takes counters, clock
 * and failure from an answer in r->in. */
int ntx__ranks_broken(struct ntx_ranks *r, struct ntx_forward *f, int rc);
int ntx__ranks_wait(struct ntx_ranks *r, struct ntx_forward *f);
/* Rank 0 begins to receive an answer of `floats` numbers into r->in[from]. */
int ntx__ranks_expect(struct ntx_ranks *r, struct ntx_forward *f, uint32_t from, size_t floats);
int ntx__ranks_see(struct ntx_ranks *r, struct ntx_forward *f, uint32_t from, uint64_t now);

/* ---- kv.c */
void ntx__ranks_kv_table(struct ntx_backend *table);
/* Writes the message of a pass's begin to r->out. */
int ntx__ranks_kv_begin(struct ntx_ranks *r, struct ntx_forward *f, struct ntx__message_head *h, size_t *bytes);
struct ntx__ranks_kv *ntx__ranks_kv_new(const struct ntx_ranks *r, const struct ntx_forward *f);
void ntx__ranks_kv_free(struct ntx__ranks_kv *k);
/* Another rank: handles a received message. 0, or the error to be answered. */
int ntx__ranks_kv_take_pass(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__message_head *h,
                            const uint8_t *bytes, size_t n);
int ntx__ranks_kv_attend(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__message_head *h,
                         const uint8_t *bytes, size_t n);
size_t ntx__ranks_kv_floats(const struct ntx_ranks *r, const struct ntx_forward *f, const struct ntx__message_head *h);
void ntx__ranks_kv_write(const struct ntx_ranks *r, const struct ntx_forward *f, const struct ntx__message_head *h,
                         float *y);

/* Makes room for so many bytes; -ENOMEM. */
int ntx__ranks_room(uint8_t **p, size_t *has, size_t bytes);
static inline uint32_t ntx__product_rows(const struct ntx__product *p, const struct ntx__input *in)
{
    return p->n_rows ? p->n_rows : in->n_rows;
}

#endif
