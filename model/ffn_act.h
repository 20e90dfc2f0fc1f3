/* SPDX-License-Identifier: Apache-2.0 */
/* ffn_act.h: the activations of gated FFNs, for the CPU and for GPUs. */
#ifndef NTX_MODEL_FFN_ACT_H
#define NTX_MODEL_FFN_ACT_H

/* hidden = act(gate) * up.
 *   SILU_CLAMPED  g / (1 + e^(-ALPHA g)) * (u + 1), g = min(gate, LIMIT), u = up clamped to +-LIMIT (gpt-oss)
 *   GELU          tanh form: g / 2 * (1 + tanh(z)) = g / (1 + e^(-2z)), z = sqrt(2 / pi) (g + 0.044715 g^3) (gemma)
 *   SITU          a tanh(g / a) / (1 + e^(-g)) * b tanh(u / b), with two numbers of the model (Kimi K3; not on GPUs) */
enum ntx_ffn_act { NTX_FFN_SILU, NTX_FFN_RELU, NTX_FFN_SILU_CLAMPED, NTX_FFN_GELU, NTX_FFN_SITU, NTX_N_FFN_ACTS };
#define NTX_SWIGLU_ALPHA 1.702f
#define NTX_SWIGLU_LIMIT 7.0f
#define NTX_GELU_SCALE   0.797884560802865f /* sqrt(2 / pi) */
#define NTX_GELU_CUBE    0.044715f

#endif
