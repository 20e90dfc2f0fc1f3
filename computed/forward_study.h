/* forward_study.h: what a pass saw of one row, layer by layer: how much each layer changed it. For calibration, for the thresholds of a
 * session's skip policy, and for its occasional full passes. Asked for per row (ntx_row.study); costs three dot
 * products of a row and layer. */
#ifndef NTX_COMPUTED_FORWARD_STUDY_H
#define NTX_COMPUTED_FORWARD_STUDY_H

#include <stddef.h>
#include <stdint.h>

struct ntx_study {
    uint32_t layer;  /* the state after this one is kept */
    float *state;    /* [n_embd], or NULL */
    float *before;   /* [n_embd] scratch: the layer's input */
    float *similar;  /* [3 x n_layers] cosine of input and output: of the whole layer, of its attention, of its FFN; NaN where skipped */
};

/* Floats that one study takes, and its pointers into that memory. */
size_t ntx_study_floats(uint32_t n_embd, uint32_t n_layers);
void ntx_study_place(struct ntx_study *s, float *memory, uint32_t layer, uint32_t n_embd, uint32_t n_layers);

/* The three places of a layer that a row goes through: its input; a part's result y before it is added to x; the layer's output. */
void ntx__study_begin(struct ntx_study *s, const float *x, uint32_t n);
void ntx__study_part(struct ntx_study *s, unsigned part /* 1 attention, 2 FFN */, uint32_t layer, uint32_t n_layers, const float *x, const float *y, uint32_t n);
void ntx__study_end(struct ntx_study *s, uint32_t layer, const float *x, uint32_t n);

#endif
