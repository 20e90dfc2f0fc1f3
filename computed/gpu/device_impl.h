/* SPDX-License-Identifier: Apache-2.0 */
/* device_impl.h: what the files of the pass on a device share; nobody else includes it.
 *
 *   device.c        memory: one layout, counted and placed
 *   rows.c   what comes in and goes out: rows, which layers they have, logits
 *   layer.c  the table of the back end; the operations of a layer's steps
 *   experts.c experts: who goes where, and their products
 *   mla.c attention over latents
 *   index_topk.c attention to chosen positions: which
 *   pool.c   K, and keys, that stand for several positions
 *   delta.c  layers that keep a recurrent state
 *   groups.c groups of a packed layer's neurons
 *   mm.c     a step that multiplies, each chunk where it lives
 *   tape.c   launches of a pass, as graphs where they are those of the pass before
 *   copy.c   chunks copied to the device: stages, events, the emulated link */
#ifndef NTX_COMPUTED_GPU_DEVICE_IMPL_H
#define NTX_COMPUTED_GPU_DEVICE_IMPL_H

#include "common/util.h"
#include "computed/gpu/device.h"
#include "computed/pass/forward_impl.h"

#define NTX__DENSE_ROWS    128u          /* rows of a product on the matrix units, always */
#define NTX__PARTIAL_BYTES (64ull << 20) /* of attention's partial results, at most but for one row */
#define NTX__STAGES        4u
#define NTX__TAPE_ROWS     8u  /* of a pass whose launches are kept, at most */
#define NTX__TAPE_PART     64u /* launches of a graph, at most; and at least */
#define NTX__TAPE_LEAST    4u
#define NTX__TAPE_PARTS    64u /* of a pass; what comes behind is launched as it is */
#define NTX__PANEL_BYTES                                                                                               \
    (16u << 20) /* of a panel of outputs, in F16, at most; and outputs that it has a multiple of \
                                        */
#define NTX__PANEL_OUTS 128u

struct ntx__stage { /* device memory of one streamed chunk */
    uint8_t *own;
    const uint8_t *bytes; /* `own`, or where the chunk is: then it is held until `used` */
    struct ntx_gpu_event *copied, *used;
    uint32_t chunk;                   /* held of the weights until `copied`; NTX__NO_CHUNK: none */
    uint64_t queued_ns, copied_bytes; /* for the trace */
};
#define NTX__NO_CHUNK UINT32_MAX

/* On the device. R = max_rows, L = logits_rows, A = max(R, n_expert_used) choices of a wave of experts. Rows of a
 * buffer and their forms are as far apart as on the host. Behind those of the pass there are `predict_rows` more, to
 * predict with. */
struct ntx__device_mem {
    float *buf[NTX__N_BUFS];                  /* [R x ...], of choices [A x ...], of logits [L x n_vocab] */
    void *quantized[NTX__N_SETS][NTX_N_ACTS]; /* [the same] */
    float *cs[NTX_N_TURNS], *sn[NTX_N_TURNS]; /* [R x half of what it turns] */
    double *freq[NTX_N_TURNS];                /* [half] of what stands for several positions, where there is such */
    float *input_entry; /* [R x n_layers * n_input] what layers get of the token: the entries of its table */
    float *mla_q,
        *mla_out;    /* attention over latents: [attend_rows x n_head x kept K], [attend_rows x n_head x kv_lora] */
    float *mla_rows; /* [attend_rows x n_head x head_k] q, close up */
    void *mla_x;     /* [attend_rows x n_head] what their heads' matrices are multiplied by, in its form */
    struct ntx_gpu_candidate *best, *best_some;     /* [L x NTX_BEST_MAX], [the same of each part] */
    float *partial;                                 /* [attend_rows x n_head x splits x (head_v + 2)] */
    uint32_t *rows;                                 /* [n_layers x R] of the pass, of a layer: live ones first */
    uint32_t *all_rows, *out_rows, *pos, *table_at; /* [R] */
    uint32_t *path_from, *path_at;                  /* [R] */
    uint32_t *paths;                                /* [R x NTX_PATH_MAX] */
    uint32_t *tiles;                                /* [2][2 x R] of the pass; of the last layer */
    uint32_t *tables[2]; /* [kv.blocks], of layers without a window and with one, where those have rings */
    uint32_t *holes;     /* [n_layers x kv.blocks] */
    /* Where positions are chosen, else NULL; most: ntx__most_topk */
    float *scores;             /* [score_rows x ctx] */
    uint32_t *n_topk, *chosen; /* [R], [R x most] by row of the pass (struct ntx_gpu_index_topk) */
    uint32_t *n_left, *left;   /* the same without this layer's holes */
    struct {
        float *weight;                  /* [R x n_expert_used] */
        uint32_t *place, *row, *expert; /* the same */
        uint32_t *chosen;               /* the same, before they are sorted */
        struct ntx_gpu_tile *tiles;     /* of waves; no wave has more than choices */
    } moe;
    uint32_t *groups;                  /* [n_groups] of a packed layer, that rows use */
    uint8_t *uses;                     /* [R x n_groups] which row uses which */
    uint16_t *x16, *w16;               /* [R padded x widest input], [largest panel's values] */
    int32_t *exponents;                /* [R padded] */
    float *z;                          /* [NTX__DENSE_ROWS x most outputs of a panel] */
    uint8_t *states;                   /* [states] sessions' recurrent states, in the places that they have on the host
                                          (computed/state/recur.h) */
    struct ntx_gpu_turn *turns;        /* [R] */
    uint32_t *turn_rows, *turn_places; /* [R] rows of the pass; of the last layer, where these lie in it */
    uint8_t *kv[2], *stages, *weights; /* kv: as tables */
};

/* On the host, locked: what goes up and comes down in every pass besides the host's own buffers (ntx_forward_memory,
 * which its owner locks). */
struct ntx__device_host {
    double *freq[NTX_N_TURNS];
    float *logits;
    struct ntx_gpu_candidate *best;
    uint32_t *rows, *all_rows, *out_rows, *pos, *table_at, *path_from, *path_at, *paths, *tiles, *tables[2], *holes,
        *groups, *turn_places;
    uint8_t *uses;
    struct ntx_gpu_turn *turns;
};

/* Rows of a layer, or of the whole pass: `list` names them. Those of decoding come first of the live ones. */
struct ntx__device_rows {
    const uint32_t *list;            /* device */
    uint32_t n_live, n_exact, n_all; /* n_exact: live ones of decoding; n_all: with those that leave K and V only */
};

struct ntx__tape_part;
struct ntx__tape { /* of passes of so many rows */
    struct ntx__tape_part *part[NTX__TAPE_PARTS];
};
struct ntx__tapes {
    struct ntx__tape of[NTX__TAPE_ROWS], *now;
    uint32_t part, at;      /* where the pass stands */
    bool possible, refused; /* by the model and the options; refused: nothing can be recorded, and why */
    bool on, same; /* this pass; the part so far is that of the pass before, and nothing of it is launched yet */
    int rc;        /* of what was launched before something else was queued */
    char why[200];
};

struct ntx_device {
    struct ntx_device_config c;
    const struct ntx_gpu_ops *ops;
    const struct ntx_hparams *hp;
    struct ntx_copy_share share;
    struct ntx_gpu_stream *compute, *copies;
    struct ntx_gpu_event *input; /* the step's input is on the host */
    struct ntx_gpu_event *lists; /* host.groups and host.uses may be written again */
    struct ntx__stage stages[NTX__STAGES];
    uint32_t n_stages, next_stage, choices; /* choices: A */
    uint32_t predict_rows;                  /* rows whose use of groups is predicted */
    uint64_t stage_bytes, kv_block_bytes[2], bytes;
    uint64_t *kv_at; /* [2 x n_layers] where a layer's K and V begin in a block; and what it keeps beside them */
    uint32_t attend_rows, score_rows, max_topk;
    uint64_t *expert_bytes; /* [n_layers] from an expert to the next, where the layer's are all here, and rows may
                               choose here; 0: they may not */
    uint8_t **at;           /* [chunks->n] on the device, NULL for those that are not */
    uint8_t *where;         /* [chunks->n] of a step: enum ntx__where */
    struct ntx__device_mem m;
    struct ntx__device_host host;
    void *arena, *host_arena;
    const uint8_t *in_place; /* where kernels find c.in_place; NULL: everything is copied */
    uint64_t copied_ns;      /* for the trace: when a copy was seen to be over */
    uint64_t link_free_ns;   /* when the emulated link is through with what it has */
    bool no_dense;           /* cuBLAS is missing */
    bool tiled;              /* prompts' attention takes tiles */
    bool lost;

    struct ntx__tapes tapes;

    /* the pass */
    struct ntx_forward *f;
    struct ntx__device_rows all, now,
        pending;                    /* of the pass; of the layer; whose y is yet to be added to h (n_live 0: none) */
    struct ntx__device_rows *layer; /* [n_layers] after the probe */
    uint32_t n_tiles, n_end_tiles;
    uint32_t n_paths;               /* slots in m.paths */
    bool with_holes, decided, ends; /* decided: `layer` counts; ends: that of the last one does, in which some rows
                                       leave K, V and state alone */
    bool masked;                    /* m.uses counts */
    uint32_t tile_rows; /* of the layer's choices, which the device has sorted by expert; 0: they are as the rows are */
    bool copied, over;  /* something was queued on `copies`; nothing is on `compute` */
};

/* Outputs of a panel, which the matrix units multiply together: of a matrix all panels have as many, whatever its
 * chunks are. */
static inline uint32_t ntx__device_panel(const struct ntx_device *d, const struct ntx_weight *w)
{
    const uint64_t room = d->c.panel_outs ? d->c.panel_outs : NTX__PANEL_BYTES / 2 / NTX_MAX(w->n_in, 1u),
                   most = NTX_MAX(room / NTX__PANEL_OUTS, 1u) * NTX__PANEL_OUTS, panels = (w->n_out + most - 1) / most;
    return panels ? (uint32_t)NTX_ROUND_UP((w->n_out + panels - 1) / panels, NTX__PANEL_OUTS) : 0;
}

/* ---- mm.c */
int ntx__device_multiply(struct ntx_forward *f, const struct ntx__product *p, unsigned n, const struct ntx__input *in);

/* ---- tape.c: all that is queued on `compute` in a pass goes through these three. The device's error */
int ntx__device_launch(struct ntx_device *d, enum ntx_gpu_kernel k, const void *args);
int ntx__device_zero(struct ntx_device *d, void *dev, uint64_t bytes);
struct ntx_gpu_stream *ntx__queue(
    struct ntx_device *d); /* `compute`, with all launches before queued; an error of theirs is tape_end's */
void ntx__device_tape_begin(struct ntx_device *d);      /* of a pass; d->all counts */
int ntx__device_tape_end(struct ntx_device *d, int rc); /* rc: the pass's so far */
int ntx__device_tape_try(struct ntx_device *d);         /* once; the device's error */
void ntx__device_tape_free(struct ntx_device *d);

/* ---- copy.c */
/* Brings a chunk to a stage; what is queued on `compute` after this finds it in *bytes. part: only these of its groups,
 * ascending, each in its place; NULL, or its list NULL: all. */
struct ntx__device_part {
    const uint32_t *list; /* [n] groups of the tensor; NULL: the whole chunk */
    uint32_t n;
    uint64_t each;
};
int ntx__device_bring(struct ntx_device *d, uint32_t chunk, const struct ntx__device_part *part,
                      struct ntx__stage **stage);
int ntx__device_used(struct ntx_device *d, struct ntx__stage *s); /* everything that reads it is queued */
int ntx__device_settle(
    struct ntx_device *d); /* gives back what streamed chunks are still held; waits for their copies */

/* ---- layer.c */
int ntx__device_attend(struct ntx_forward *f, const struct ntx__run *r); /* as struct ntx_backend says */
int ntx__device_add_pending(struct ntx_device *d);
int ntx__device_output_norm(struct ntx_device *d, uint32_t n); /* of rows m.out_rows into x */
const float *ntx__device_vector(const struct ntx_device *d,
                                const struct ntx_weight *w); /* or rows of floats; NULL where the model has none */

bool ntx__device_has_ring(const struct ntx_device *d, uint32_t layer); /* its K and V are of the last positions only */
struct ntx_gpu_kv ntx__device_kv(const struct ntx_device *d,
                                 uint32_t row); /* of f->layer, for live rows from `row` on */
int ntx__device_step(struct ntx_device *d, const struct ntx_gpu_step *g);
uint32_t ntx__device_most_pos(const struct ntx_device *d);     /* positions of the pass, and 1 */
uint32_t ntx__device_whole_splits(const struct ntx_device *d); /* no fewer, and as many splits of attention: the same
                                                                  for many passes, so that launches are */

int ntx__device_glu(struct ntx_forward *f, const struct ntx__glu *s); /* as struct ntx_backend says */

/* ---- experts.c: as struct ntx_backend says */
void ntx__device_find_experts(struct ntx_device *d); /* d->expert_bytes */
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
struct ntx_gpu_kv ntx__device_keys(const struct ntx_device *d,
                                   uint32_t row); /* of f->layer: what positions are chosen by, as K */
int ntx__device_index_topk(struct ntx_forward *f, const struct ntx__run *r); /* as struct ntx_backend says */
int ntx__device_forget(struct ntx_device *d); /* of a pass: nobody has chosen; the device's error */
int ntx__device_drop_holes(struct ntx_device *d, const struct ntx_step *s); /* before an ATTEND */
void ntx__device_lists(const struct ntx_device *d, const struct ntx_step *s,
                       struct ntx_gpu_attend *g); /* what the layer's rows have chosen */

/* ---- pool.c */
bool ntx__device_pools(const struct ntx_hparams *hp); /* positions together, with rotations of their own */
int ntx__device_bring_freq(struct ntx_device *d);     /* of a pass; the device's error */
int ntx__device_join_keys(struct ntx_device *d, const struct ntx_step *s); /* of a CHOOSE */
int ntx__device_pool(struct ntx_forward *f, const struct ntx__run *r);     /* as struct ntx_backend says */
struct ntx_gpu_kv ntx__device_pooled(const struct ntx_device *d);          /* of f->layer */
void ntx__device_attend_pooled(const struct ntx_device *d, const struct ntx_step *s,
                               struct ntx_gpu_attend *g); /* attention to them, beside the window */

/* ---- delta.c */
int ntx__device_turns(struct ntx_device *d);                            /* of the pass; the device's error */
const uint32_t *ntx__device_turn_places(const struct ntx_device *d);    /* where the rows of turns lie in this layer */
int ntx__device_grams(struct ntx_forward *f, const struct ntx__run *r); /* as struct ntx_backend says */
int ntx__device_conv(struct ntx_forward *f, const struct ntx__run *r);  /* these as struct ntx_backend says */
int ntx__device_delta(struct ntx_forward *f, const struct ntx__run *r);

/* ---- groups.c */
int ntx__device_groups(struct ntx_forward *f, bool all, uint32_t n); /* these as struct ntx_backend says */
bool ntx__device_leaves_groups(const struct ntx_forward *f);

/* ---- rows.c */
/* Queues copies, up or down. The device's error. */
int ntx__device_copy_rows(struct ntx_device *d, const struct ntx__rows *r, bool to_device);
/* rc of the device, as the weights' error. */
int ntx__device_fail(struct ntx_device *d, int rc, const char *what);
int ntx__device_begin(struct ntx_forward *f); /* these as struct ntx_backend says */
void ntx__device_enter(struct ntx_forward *f);
int ntx__device_let_go(struct ntx_forward *f);
int ntx__device_fetch(struct ntx_forward *f, const struct ntx__rows *r, unsigned n);
int ntx__device_send(struct ntx_forward *f, const struct ntx__rows *r);
int ntx__device_decided(struct ntx_forward *f);
int ntx__device_output(struct ntx_forward *f);
int ntx__device_move(struct ntx_forward *f, struct ntx_kv_seq *kv, const uint32_t *from, const uint32_t *to,
                     uint32_t n);
int ntx__device_end(struct ntx_forward *f, int rc);
int ntx__device_go(struct ntx_device *d, enum ntx_gpu_kernel k, const void *args, const char *what);

#endif
