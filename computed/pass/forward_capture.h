/* SPDX-License-Identifier: Apache-2.0 */
/* forward_capture.h: captures how much each layer changed one row. For calibration, for the thresholds of a session's
 * skip policy, and for its occasional full passes. Asked for per row (ntx_row.capture); costs three dot products per
 * row and layer. */
#ifndef NTX_COMPUTED_PASS_FORWARD_CAPTURE_H
#define NTX_COMPUTED_PASS_FORWARD_CAPTURE_H

#include <stddef.h>
#include <stdint.h>

#include "model/arch.h"

struct ntx_capture {
    uint32_t layer; /* the state after this one is kept */
    float *state;   /* [n_embd], or NULL */
    float *before;  /* [n_embd] scratch: the layer's input */
    /* [3 x n_layers] cosine of input and output: of the whole layer, its attention, its FFN; NaN where skipped. */
    float *similar;
    uint32_t ffn_first, ffn_layers; /* of these layers, 0: none: */
    float *ffn_state;               /* [ffn_layers x n_embd] the state before the FFN of the layer before */
    float *ffn_energy;              /* [ffn_layers x units] energy of each unit */
    uint32_t units;
};

/* Floats that one capture takes, with the FFNs of so many layers; and its pointers into that memory. */
size_t ntx_capture_floats(const struct ntx_model *m, uint32_t ffn_layers);
void ntx_capture_place(struct ntx_capture *s, float *memory, uint32_t layer, const struct ntx_model *m,
                       uint32_t ffn_layers);

/* A row's three stages in a layer: its input; a part's result y before it is added to x; the layer's output. */
void ntx__capture_begin(struct ntx_capture *s, const float *x, uint32_t n);
void ntx__capture_part(struct ntx_capture *s, unsigned part /* 1 attention, 2 FFN */, uint32_t layer, uint32_t n_layers,
                       const float *x, const float *y, uint32_t n);
void ntx__capture_end(struct ntx_capture *s, uint32_t layer, const float *x, uint32_t n);

/* The state x [n] before the FFN of layer - 1. */
void ntx__capture_ffn_state(struct ntx_capture *s, uint32_t layer, const float *x, uint32_t n);
/* Where to put the energies of a layer's units, or NULL: not wanted. */
float *ntx__capture_ffn(struct ntx_capture *s, uint32_t layer);

#endif
