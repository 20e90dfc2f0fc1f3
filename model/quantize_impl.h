/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_impl.h: shared by the files of the quantiser; no other file includes it.
 *
 *   quantize.c        the table of types; floats; blocks of 32 to 128 values
 *   quantize_fit.c    scales and minima by weighted least squares
 *   quantize_super.c  super-blocks, whose scales are integers, too
 *   quantize_codes.c  i-quants, whose values come from a list of codes */
#ifndef NTX_MODEL_QUANTIZE_IMPL_H
#define NTX_MODEL_QUANTIZE_IMPL_H

#include <math.h>

#include "common/util.h"
#include "model/quant.h"
#include "model/quantize.h"

/* Candidates are tried in parallel, one per lane. Each lane adds in the order of the values, so the result is the
 * same for every instruction set. */
#define NTX__LANES   16
/* Before a loop over lanes within a loop over values: gcc 12 unrolls it else, and may then vectorise the outer one. */
#define NOT_UNROLLED _Pragma("GCC unroll 1")

/* Possible integers of a value: all from least to most, or those of a list, where nearest[v + 128] is the one
 * nearest to v. */
struct ntx__levels {
    float least, most;
    const float *nearest;
};

static inline int ntx__clamp(float v, int least, int most)
{
    int i = (int)rintf(NTX_MAX(-1e6f, NTX_MIN(v, 1e6f)));
    i = i < least ? least : i;
    return i > most ? most : i;
}

/* Fits d of x = d * q; 0 if x is 0. */
float ntx__fit_scale(const float *x, const float *w, int n, struct ntx__levels l);

struct ntx__line { /* x = d * q - m, q from 0 to most, d and m >= 0 */
    float d, m;
};
struct ntx__line ntx__fit_line(const float *x, const float *w, int n, float most);

/* Errors of candidates: sum of w (x - d q + m)^2 with the nearest q. d 0: q is 0. */
struct ntx__lines {
    float d[NTX__LANES], m[NTX__LANES];
};
void ntx__line_errors(const float *x, const float *w, int n, const struct ntx__lines *c, float most,
                      float error[NTX__LANES]);
/* The same of scales alone (m is 0). */
#define NTX__FEW 8
void ntx__scale_errors(const float *x, const float *w, int n, const float d[NTX__FEW], struct ntx__levels l,
                       float error[NTX__FEW]);

/* q = (x + m) * inverse, rounded. inverse is finite. */
void ntx__round_all(const float *x, int n, float inverse, float m, float least, float most, int *q);
/* The d of x = d * q with the least error; 0 if all q are 0. n is a multiple of NTX__LANES. */
float ntx__scale_of(const float *x, const float *w, int n, const int *q);

/* Quantises one block. */
struct ntx__grid;
typedef void ntx__quantize_fn(const struct ntx__grid *g, const float *x, const float *w, void *block);
ntx__quantize_fn ntx__to_q2_k, ntx__to_q3_k, ntx__to_q4_k, ntx__to_q5_k, ntx__to_q6_k, ntx__to_iq4_xs;
ntx__quantize_fn ntx__to_iq2_xxs, ntx__to_iq2_xs, ntx__to_iq2_s, ntx__to_iq3_xxs, ntx__to_iq3_s, ntx__to_iq1_s,
    ntx__to_iq1_m;

/* Stretches a block of IQ1_M, whose half is stored in pieces. */
void ntx__enlarge_iq1_m(void *block, float by, uint16_t (*stretched)(uint16_t half, float by));

extern const int8_t ntx__iq4_value[16];
struct ntx__levels ntx__iq4_levels(const struct ntx__grid *g);
int ntx__iq4_nearest(float v); /* index of the value nearest to v */

/* Stores the low 4 bits of 32 integers in qs, and the fifth bits in qh if it is not NULL. */
void ntx__put_nibbles(const int *q, uint8_t qs[16], uint8_t *qh);

/* Tables of a type: the codes of an i-quant, and the codes near each pattern; empty for other types. NULL: no
 * memory. */
struct ntx__grid *ntx__grid_new(uint32_t type);
void ntx__grid_free(struct ntx__grid *g);

#endif
