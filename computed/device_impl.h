/* device_impl.h: what device.c (memory), device_mm.c (products by tier) and device_pass.c (the steps) share. */
#ifndef NTX_COMPUTED_DEVICE_IMPL_H
#define NTX_COMPUTED_DEVICE_IMPL_H

#include "common/util.h"
#include "computed/device.h"
#include "computed/forward_impl.h"

#define NTX__DENSE_ROWS 128u                /* rows of a product on the matrix units, always */
#define NTX__PARTIAL_BYTES (64ull << 20)    /* of attention's partial results, at most but for one row */
#define NTX__STAGES 4u
#define NTX__DEVICE_LD(n) NTX_ROUND_UP((size_t)(n), 16) /* floats from row to row of x, attn and gate: the CPU may multiply by them */

struct ntx__stage { /* device memory of one streamed chunk */
    uint8_t *bytes;
    struct ntx_gpu_event *copied, *used;
    uint32_t chunk;  /* held of the weights until `copied`; NTX__NO_CHUNK: none */
};
#define NTX__NO_CHUNK UINT32_MAX

/* On the device. R = max_rows, L = logits_rows. */
struct ntx__device_mem {
    float *h, *x, *q, *k, *v, *attn, *gate, *up, *y; /* [R x ...]; rows of x, attn and gate are NTX__DEVICE_LD apart */
    float *cs, *sn;                /* [R x rope_dim / 2] */
    float *logits;                 /* [L x n_vocab] */
    float *partial;                /* [attend_rows x n_head x splits x (head_v + 2)] */
    void *packed[NTX_N_ACTS];      /* [R x stride] */
    uint32_t *rows, *out_rows, *pos, *table_at; /* [R] */
    uint32_t *tables;              /* [kv_blocks] */
    uint16_t *x16, *w16;           /* [R padded x widest input], [largest chunk's values] */
    int32_t *exponents;            /* [R padded] */
    float *z;                      /* [NTX__DENSE_ROWS x most rows of a chunk] */
    uint8_t *kv, *stages, *weights;
};

/* On the host, locked: what goes up and comes down in every pass. */
struct ntx__device_host {
    float *h, *cs, *sn, *logits;
    void *packed[NTX_N_ACTS];      /* a step's input, for the CPU */
    uint32_t *rows, *out_rows, *pos, *table_at, *tables;
};

struct ntx_device {
    struct ntx_device_config c;
    const struct ntx_gpu_ops *ops;
    const struct ntx_hparams *hp;
    struct ntx_gpu_stream *compute, *copies;
    struct ntx_gpu_event *input;   /* the step's input is on the host */
    struct ntx__stage stages[NTX__STAGES];
    uint32_t n_stages, next_stage;
    uint64_t stage_bytes, kv_block_bytes, kv_layer_bytes, bytes;
    size_t stride[NTX_N_ACTS];     /* bytes from row to row of packed */
    uint32_t attend_rows;
    uint8_t **at;                  /* [chunks->n] on the device, NULL for those that are not */
    struct ntx__device_mem m;
    struct ntx__device_host host;
    void *arena, *host_arena;
    bool no_dense;                 /* cuBLAS is missing */

    /* the pass */
    struct ntx_forward *f;
    uint32_t n, n_exact;           /* rows; the first of them, of decoding */
};

struct ntx__device_product { /* y = W x */
    const struct ntx_weight *w;
    float *y;          /* device [n x ld_y] */
    size_t ld_y;       /* 0: w->n_out */
    float *host_y;     /* host [n x w->n_out], where the CPU multiplies */
};
/* x: device [n x NTX__DEVICE_LD(n_in)], its packed forms in m.packed; rows from n_exact on are prompts'. All chunks, wherever they are. */
int ntx__device_multiply(struct ntx_device *d, const struct ntx__device_product *p, unsigned n_products, const float *x, uint32_t n, uint32_t n_exact);
int ntx__device_settle(struct ntx_device *d); /* gives back what streamed chunks are still held; waits for their copies */

/* rc of the device, as the weights' error. */
int ntx__device_fail(struct ntx_device *d, int rc, const char *what);
uint32_t ntx__device_splits(const struct ntx_device *d); /* of the longest session */

#endif
