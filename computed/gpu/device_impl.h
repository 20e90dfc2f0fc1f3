/* SPDX-License-Identifier: Apache-2.0 */
/* device_impl.h: declarations that the files of the pass on a device share. No other file includes it.
 *
 *   device.c      memory: one layout, counted and placed
 *   rows.c        rows, their lists for each layer, and logits: to and from the device
 *   layer.c       the back end's table; the operations of a layer's steps
 *   experts.c     experts: routing and products
 *   mla.c         attention over MLA latents
 *   index_topk.c  sparse attention: the choice of positions (indexer top-k)
 *   pool.c        K, and indexer keys, that stand for several positions
 *   delta.c       layers with a recurrent state
 *   groups.c      groups of a packed layer's neurons
 *   mm.c          matrix products, each chunk where it is placed
 *   tape.c        launches of a pass, as CUDA graphs where they repeat the pass before
 *   copy.c        copies of chunks to the device: stages, events, the emulated link */
#ifndef NTX_COMPUTED_GPU_DEVICE_IMPL_H
#define NTX_COMPUTED_GPU_DEVICE_IMPL_H

#include "common/util.h"
#include "computed/gpu/device.h"
#include "computed/pass/forward_impl.h"

#define NTX__DENSE_ROWS    128u          /* rows of each product on the matrix units */
#define NTX__PARTIAL_BYTES (64ull << 20) /* most bytes of attention's partial results, unless one row needs more */
#define NTX__STAGES        4u
#define NTX__TAPE_ROWS     8u          /* most rows of a pass whose launches are kept */
#define NTX__TAPE_PART     64u         /* most launches of a graph */
#define NTX__TAPE_LEAST    4u          /* fewest launches of a graph */
#define NTX__TAPE_PARTS    64u         /* graphs of a pass; later launches are issued one by one */
#define NTX__PANEL_BYTES   (16u << 20) /* most bytes of a panel of outputs in F16 */
#define NTX__PANEL_OUTS    128u        /* the outputs of a panel are a multiple of this */

struct ntx__stage { /* device memory of one streamed chunk */
    uint8_t *own;
    const uint8_t *bytes; /* `own`; or the chunk's place in host memory, which is held until `used` */
    struct ntx_gpu_event *copied, *used;
    uint32_t chunk;                   /* chunk whose slot is held until `copied`; NTX__NO_CHUNK: none */
    uint64_t queued_ns, copied_bytes; /* for the trace */
};
#define NTX__NO_CHUNK UINT32_MAX

/* Device memory. R = max_rows, L = logits_rows, A = max(R, n_expert_used): routed rows of a wave of experts. Rows of a
 * buffer have the same stride as on the host. `predict_rows` more rows, used for prediction, follow the pass's rows in
 * a buffer. */
struct ntx__device_mem {
    float *buf[NTX__N_BUFS];                  /* [R x ...]; routed rows: [A x ...]; logits: [L x n_vocab] */
    void *quantized[NTX__N_SETS][NTX_N_ACTS]; /* the same rows */
    float *cs[NTX_N_TURNS], *sn[NTX_N_TURNS]; /* [R x half of the rotated values] cosines and sines */
    double *freq[NTX_N_TURNS];                /* [half] frequencies for pooled K and keys, where the model has them */
    float *input_entry;                       /* [R x n_layers * n_input] per-layer token embeddings */
    float *mla_q;                             /* [attend_rows x n_head x kept K] q for MLA latents */
    float *mla_out;                           /* [attend_rows x n_head x kv_lora] attention's result */
    float *mla_rows;                          /* [attend_rows x n_head x head_k] q without padding between rows */
    void *mla_x;                              /* [attend_rows x n_head] inputs of the heads' matrices, in their form */
    struct ntx_gpu_candidate *best, *best_some;     /* [L x NTX_BEST_MAX] of all logits; of each part of them */
    float *partial;                                 /* [attend_rows x n_head x splits x (head_v + 2)] */
    uint32_t *rows;                                 /* [n_layers x R] rows of the pass in a layer, live rows first */
    uint32_t *all_rows, *out_rows, *pos, *table_at; /* [R] */
    uint32_t *path_from, *path_at;                  /* [R] */
    uint32_t *paths;                                /* [R x NTX_PATH_MAX] */
    uint32_t *tiles;                                /* [2][2 x R] prompt tiles: of the pass, of the last layer */
    uint32_t *tables[2]; /* [kv.blocks] KV block tables: of layers without a window ring, and with one */
    uint32_t *holes;     /* [n_layers x kv.blocks] */
    /* NULL in models without an indexer. most: ntx__most_topk */
    float *scores;           /* [score_rows x ctx] */
    uint32_t *n_topk, *topk; /* [R], [R x most] indexer top-k by row of the pass (struct ntx_gpu_index_topk) */
    uint32_t *n_left, *left; /* the same without this layer's KV holes */
    struct {
        float *weight;                  /* [R x n_expert_used] */
        uint32_t *place, *row, *expert; /* the same size */
        uint32_t *routed;               /* the same size: experts before they are sorted */
        struct ntx_gpu_tile *tiles;     /* of all waves; a wave has at most as many tiles as routed rows */
    } moe;
    uint32_t *groups;    /* [n_groups] groups of a packed layer that rows use */
    uint8_t *uses;       /* [R x n_groups] 1: the row uses the group */
    uint16_t *x16, *w16; /* [R padded x widest input] rows in F16; [largest panel] weights in F16 */
    int32_t *exponents;  /* [R padded] powers of 2 that the rows in F16 are divided by */
    float *z;            /* [NTX__DENSE_ROWS x most outputs of a panel] results of the matrix units */
    /* [states] recurrent states, in the same order as on the host (computed/state/recur.h) */
    uint8_t *states;
    struct ntx_gpu_turn *turns;        /* [R] */
    uint32_t *turn_rows, *turn_places; /* [R] rows of the pass by turn; their places in the last layer */
    uint8_t *kv[2], *stages, *weights; /* kv: as `tables` */
};

/* Locked host memory for copies in each pass. The host's own buffers (ntx_forward_memory) are locked by their owner. */
struct ntx__device_host {
    double *freq[NTX_N_TURNS];
    float *logits;
    struct ntx_gpu_candidate *best;
    uint32_t *rows, *all_rows, *out_rows, *pos, *table_at, *path_from, *path_at, *paths, *tiles, *tables[2], *holes,
        *groups, *turn_places;
    uint8_t *uses;
    struct ntx_gpu_turn *turns;
};

/* Rows of a layer or of the whole pass. Live rows come first, and decode rows first among them. */
struct ntx__device_rows {
    const uint32_t *list; /* device */
    /* n_exact: live decode rows; n_all: with rows of which only K and V are computed */
    uint32_t n_live, n_exact, n_all;
};

struct ntx__tape_part;
struct ntx__tape { /* for passes of one number of rows */
    struct ntx__tape_part *part[NTX__TAPE_PARTS];
};
struct ntx__tapes {
    struct ntx__tape of[NTX__TAPE_ROWS], *now;
    uint32_t part, at;      /* position of the pass: its part, and the launch in it */
    bool possible, refused; /* possible: model and options allow graphs; refused: the device cannot record them (why) */
    bool on;                /* this pass is recorded */
    bool same;              /* the part so far equals that of the pass before; nothing of it is launched yet */
    int rc;                 /* first error of launches that ntx__queue flushed */
    char why[200];
};

struct ntx_device {
    struct ntx_device_config c;
    const struct ntx_gpu_ops *ops;
    const struct ntx_hparams *hp;
    struct ntx_copy_share share;
    struct ntx_gpu_stream *compute, *copies;
    struct ntx_gpu_event *input; /* the step's input has reached the host */
    struct ntx_gpu_event *lists; /* host.groups and host.uses may be written again */
    struct ntx__stage stages[NTX__STAGES];
    uint32_t n_stages, next_stage, choices; /* choices: A, routed rows of a wave */
    uint32_t predict_rows;                  /* rows whose use of groups is predicted */
    uint64_t stage_bytes, kv_block_bytes[2], bytes;
    uint64_t *kv_at; /* [2 x n_layers] offsets in a KV block: of a layer's K and V; of its pooled K or indexer keys */
    uint32_t attend_rows, score_rows, max_topk;
    /* [n_layers] stride of experts where the device has all of the layer's and routes rows itself; 0: the host
     * routes */
    uint64_t *expert_bytes;
    uint8_t **at;   /* [chunks->n] address in device memory; NULL: not there */
    uint8_t *where; /* [chunks->n] of a step: enum ntx__where */
    struct ntx__device_mem m;
    struct ntx__device_host host;
    void *arena, *host_arena;
    const uint8_t *in_place; /* device address of c.in_place; NULL: everything is copied */
    uint64_t copied_ns;      /* for the trace: when the last copy was seen to be finished */
    uint64_t link_free_ns;   /* when the emulated link will have finished its copies */
    bool no_dense;           /* cuBLAS is missing */
    bool tiled;              /* prompts' attention works in tiles */
    bool lost;

    struct ntx__tapes tapes;

    /* the pass */
    struct ntx_forward *f;
    struct ntx__device_rows all, now; /* of the pass, of the layer */
    struct ntx__device_rows pending;  /* rows whose y is not yet added to h; n_live 0: none */
    struct ntx__device_rows *layer;   /* [n_layers] for layers after the probe layer */
    uint32_t n_tiles, n_end_tiles;
    uint32_t n_paths;   /* used slots of m.paths */
    bool with_holes;    /* some rows have KV holes */
    bool decided;       /* skips are decided: `layer` is valid */
    bool ends;          /* `layer` of the last layer is valid: some rows leave only K, V and state there */
    bool masked;        /* m.uses is valid */
    uint32_t tile_rows; /* rows of a tile of the layer's routed rows, sorted by expert; 0: not sorted */
    bool copied, over;  /* copied: a copy was queued on `copies`; over: nothing is left on `compute` */
};

/* Outputs that the matrix units multiply together. All panels of a matrix have the same number, however it is cut into
 * chunks. */
static inline uint32_t ntx__device_panel(const struct ntx_device *d, const struct ntx_weight *w)
{
    const uint64_t room = d->c.panel_outs ? d->c.panel_outs : NTX__PANEL_BYTES / 2 / NTX_MAX(w->n_in, 1u),
                   most = NTX_MAX(room / NTX__PANEL_OUTS, 1u) * NTX__PANEL_OUTS, panels = (w->n_out + most - 1) / most;
    return panels ? (uint32_t)NTX_ROUND_UP((w->n_out + panels - 1) / panels, NTX__PANEL_OUTS) : 0;
}

/* ---- mm.c */
int ntx__device_multiply(struct ntx_forward *f, const struct ntx__product *p, unsigned n, const struct ntx__input *in);

/* ---- tape.c: every command on `compute` in a pass goes through these three. They return the device's error. */
int ntx__device_launch(struct ntx_device *d, enum ntx_gpu_kernel k, const void *args);
int ntx__device_zero(struct ntx_device *d, void *dev, uint64_t bytes);
/* `compute`, after all earlier launches are queued; ntx__device_tape_end returns their error */
struct ntx_gpu_stream *ntx__queue(struct ntx_device *d);
void ntx__device_tape_begin(struct ntx_device *d);      /* a pass begins; d->all is set */
int ntx__device_tape_end(struct ntx_device *d, int rc); /* rc: the pass's error so far */
int ntx__device_tape_try(struct ntx_device *d);         /* at load; the device's error */
void ntx__device_tape_free(struct ntx_device *d);

/* ---- copy.c */
/* Copies a chunk to a stage. Work that is queued on `compute` afterwards finds it in stage->bytes. part: copies only
 * these of its groups, each to its place; NULL, or a NULL list: the whole chunk. */
struct ntx__device_part {
    const uint32_t *list; /* [n] groups of the tensor, ascending; NULL: the whole chunk */
    uint32_t n;
    uint64_t each;
};
int ntx__device_bring(struct ntx_device *d, uint32_t chunk, const struct ntx__device_part *part,
                      struct ntx__stage **stage);
int ntx__device_used(struct ntx_device *d, struct ntx__stage *s); /* all its readers are queued */
int ntx__device_settle(struct ntx_device *d); /* waits for copies, and releases the chunks that are still held */

/* ---- layer.c */
int ntx__device_attend(struct ntx_forward *f, const struct ntx__run *r); /* see struct ntx_backend */
int ntx__device_add_pending(struct ntx_device *d);
int ntx__device_output_norm(struct ntx_device *d, uint32_t n); /* x = norm of n rows m.out_rows */
/* A vector, or rows of floats; NULL: the model has none */
const float *ntx__device_vector(const struct ntx_device *d, const struct ntx_weight *w);

bool ntx__device_has_ring(const struct ntx_device *d, uint32_t layer); /* it keeps K and V of the last positions only */
struct ntx_gpu_kv ntx__device_kv(const struct ntx_device *d, uint32_t row); /* of f->layer, live rows from `row` on */
int ntx__device_step(struct ntx_device *d, const struct ntx_gpu_step *g);
uint32_t ntx__device_most_pos(const struct ntx_device *d); /* 1 + the largest position of the pass */
/* The same, rounded up to attention splits: it stays equal over many passes, and so do the launches */
uint32_t ntx__device_whole_splits(const struct ntx_device *d);

int ntx__device_glu(struct ntx_forward *f, const struct ntx__glu *s); /* see struct ntx_backend */

/* ---- experts.c: see struct ntx_backend */
void ntx__device_find_experts(struct ntx_device *d); /* sets d->expert_bytes */
bool ntx__device_routes(const struct ntx_forward *f);
int ntx__device_route(struct ntx_forward *f);
int ntx__device_multiply_routed(struct ntx_forward *f, const enum ntx_expert_part *parts, unsigned n);
int ntx__device_routed(struct ntx_forward *f);
int ntx__device_gather(struct ntx_forward *f);
int ntx__device_combine(struct ntx_forward *f);
int ntx__device_clear(struct ntx_forward *f, enum ntx_buf b);

/* ---- mla.c */
int ntx__device_attend_mla(struct ntx_device *d, const struct ntx_step *s);
uint64_t ntx__device_mla_form(const struct ntx_device *d); /* bytes of a head's row in m.mla_x */

/* ---- index_topk.c */
struct ntx_gpu_kv ntx__device_keys(const struct ntx_device *d, uint32_t row); /* indexer keys of f->layer, as K */
int ntx__device_index_topk(struct ntx_forward *f, const struct ntx__run *r);  /* see struct ntx_backend */
int ntx__device_forget(struct ntx_device *d); /* clears all rows' top-k lists; the device's error */
int ntx__device_drop_holes(struct ntx_device *d, const struct ntx_step *s); /* removes KV holes from the lists */
/* Sets the top-k lists of the layer's rows in g */
void ntx__device_lists(const struct ntx_device *d, const struct ntx_step *s, struct ntx_gpu_attend *g);

/* ---- pool.c */
bool ntx__device_pools(const struct ntx_hparams *hp); /* pooled K or keys exist, and are rotated by themselves */
int ntx__device_bring_freq(struct ntx_device *d);     /* uploads rotation frequencies; the device's error */
int ntx__device_join_keys(struct ntx_device *d, const struct ntx_step *s); /* pools keys of an INDEX_TOPK step */
int ntx__device_pool(struct ntx_forward *f, const struct ntx__run *r);     /* see struct ntx_backend */
struct ntx_gpu_kv ntx__device_pooled(const struct ntx_device *d);          /* pooled K of f->layer */
/* Sets attention to pooled K, besides the window, in g */
void ntx__device_attend_pooled(const struct ntx_device *d, const struct ntx_step *s, struct ntx_gpu_attend *g);

/* ---- delta.c */
int ntx__device_turns(struct ntx_device *d);                            /* uploads the turns; the device's error */
const uint32_t *ntx__device_turn_places(const struct ntx_device *d);    /* places of the turns' rows in this layer */
int ntx__device_grams(struct ntx_forward *f, const struct ntx__run *r); /* these: see struct ntx_backend */
int ntx__device_conv(struct ntx_forward *f, const struct ntx__run *r);
int ntx__device_delta(struct ntx_forward *f, const struct ntx__run *r);

/* ---- groups.c */
int ntx__device_groups(struct ntx_forward *f, bool all, uint32_t n); /* these: see struct ntx_backend */
bool ntx__device_leaves_groups(const struct ntx_forward *f);

/* ---- rows.c */
/* Queues copies to or from the device. Returns the device's error. */
int ntx__device_copy_rows(struct ntx_device *d, const struct ntx__rows *r, bool to_device);
/* Returns rc, and sets the weights' error to the device's message. */
int ntx__device_fail(struct ntx_device *d, int rc, const char *what);
int ntx__device_begin(struct ntx_forward *f); /* these: see struct ntx_backend */
void ntx__device_enter(struct ntx_forward *f);
int ntx__device_let_go(struct ntx_forward *f);
int ntx__device_fetch(struct ntx_forward *f, const struct ntx__rows *r, unsigned n);
int ntx__device_send(struct ntx_forward *f, const struct ntx__rows *r);
int ntx__device_decided(struct ntx_forward *f);
int ntx__device_output(struct ntx_forward *f);
int ntx__device_move(struct ntx_forward *f, struct ntx_kv_seq *kv, const uint32_t *from, const uint32_t *to,
                     uint32_t n);
int ntx__device_end(struct ntx_forward *f, int rc);
/* ntx__device_launch, with ntx__device_fail on an error */
int ntx__device_go(struct ntx_device *d, enum ntx_gpu_kernel k, const void *args, const char *what);

/* The weights of the current layer. */
static inline const struct ntx_layer_weights *ntx__device_layer(const struct ntx_device *d)
{
    return &d->c.chunks->layers[d->f->layer];
}

#endif
