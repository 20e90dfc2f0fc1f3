/* SPDX-License-Identifier: Apache-2.0 */
/* rope.h: rotary positions: from hyper-parameters to the cosines and sines of a position. Pure functions.
 *
 * Dimension pair i of rope_dim / 2 turns by pos * freq[i]. Plain: freq[i] = base^(-2i / rope_dim), divided by the
 * model's own factor where it carries rope_freqs. Linear scaling divides all by rope_factor. YaRN (Peng et al. 2023,
 * arXiv 2309.00071) divides only slow pairs, leaves fast ones, blends between (by the number of turns within the
 * original context: beta_fast and beta_slow), and scales the magnitude by 1 + 0.1 ln(rope_factor). All in double; the
 * results are rounded to float once. */
#ifndef NTX_COMPUTED_PASS_ROPE_H
#define NTX_COMPUTED_PASS_ROPE_H

#include "model/arch.h"

uint32_t ntx_rope_dim(const struct ntx_hparams *hp, enum ntx_rotation turn);
/* freq: [rope_dim / 2] out, radians per position. factors: [rope_dim / 2] divisors, or NULL; NTX_ROTATION_WINDOW has
 * none. */
void ntx_rope_frequencies(const struct ntx_hparams *hp, enum ntx_rotation turn, const float *factors, double *freq);
/* The factor of cosines and sines. */
double ntx_rope_magnitude(const struct ntx_hparams *hp, enum ntx_rotation turn);
/* M-RoPE (Bai et al. 2025, arXiv 2502.13923): which of a place's three numbers (time, row, column) turns pair i. Its
 * sections have so many pairs each, and begin again behind the last. Interleaved (Qwen3-VL): the pairs 3k, 3k + 1 and
 * 3k + 2 belong to time, row and column, as long as their sections last, and later ones to time. */
uint32_t ntx_rope_axis(const struct ntx_hparams *hp, uint32_t i);
/* As ntx_rope_angles, for a row at this place; three equal numbers are a position. */
void ntx_rope_angles_at(const struct ntx_hparams *hp, enum ntx_rotation turn, const double *freq,
                        const uint32_t place[3], float *cs, float *sn);
/* cs, sn: [rope_dim / 2] out. */
void ntx_rope_angles(const struct ntx_hparams *hp, enum ntx_rotation turn, const double *freq, uint32_t pos, float *cs,
                     float *sn);

#endif
