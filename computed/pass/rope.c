/* SPDX-License-Identifier: Apache-2.0 */
/* rope.c: see rope.h. */
#include "computed/pass/rope.h"

#include <math.h>

struct table { /* two tables of a model may differ in these */
    uint32_t dim;
    double base, factor;
    bool plain; /* of magnitude 1 */
};

static struct table rope_table(const struct ntx_hparams *hp, enum ntx_rotation turn)
{
    if (turn == NTX_ROTATION_WINDOW)
        return (struct table){hp->rope_dim_window, hp->rope_base_window, hp->rope_factor_window, hp->plain_window};
    return (struct table){hp->rope_dim, hp->rope_base, hp->rope_factor, false};
}

uint32_t ntx_rope_dim(const struct ntx_hparams *hp, enum ntx_rotation turn) { return rope_table(hp, turn).dim; }

/* The pair that makes `turns` full turns within the original context, as a real number (YaRN, section 3.2). */
static double pair_of_turns(const struct ntx_hparams *hp, const struct table *t, double turns)
{
    const double two_pi = 6.283185307179586;
    return t->dim * log(hp->rope_ctx_orig / (turns * two_pi)) / (2 * log(t->base));
}

/* The share of pair i that keeps its plain frequency: 1 for fast pairs, 0 for slow ones. */
static double kept_share(const struct ntx_hparams *hp, const struct table *t, uint32_t i)
{
    double low = pair_of_turns(hp, t, hp->yarn_beta_fast), high = pair_of_turns(hp, t, hp->yarn_beta_slow);
    if (!hp->yarn_exact) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, t->dim - 1.0);
    double ramp = (i - low) / fmax(0.001, high - low);
    return 1 - fmin(1, fmax(0, ramp));
}

/* The number of pair i's frequency: both halves of a tower's pairs begin again, or have every second one. */
static uint32_t frequency_of(const struct ntx_hparams *hp, uint32_t dim, uint32_t i)
{
    const uint32_t half = dim / 4;
    if (!hp->tower || hp->tower->turn == NTX_TOWER_TURN_NONE)
        return i;
    return 2 * (i % half) + (hp->tower->turn == NTX_TOWER_TURN_WOVEN && i >= half);
}

void ntx_rope_frequencies(const struct ntx_hparams *hp, enum ntx_rotation turn, const float *factors, double *freq)
{
    const struct table t = rope_table(hp, turn);
    bool yarn = hp->rope_scaling == NTX_ROPE_SCALE_YARN;
    for (uint32_t i = 0; i < t.dim / 2; i++) {
        double plain = pow(t.base, -2.0 * frequency_of(hp, t.dim, i) / t.dim) / (factors ? factors[i] : 1);
        double keep = yarn ? kept_share(hp, &t, i) * hp->yarn_ext_factor : 0;
        freq[i] = plain / t.factor * (1 - keep) + plain * keep;
    }
}

double ntx_rope_magnitude(const struct ntx_hparams *hp, enum ntx_rotation turn)
{
    const struct table t = rope_table(hp, turn);
    double magnitude = t.plain ? 1 : (double)hp->rope_attn_factor;
    if (hp->rope_scaling == NTX_ROPE_SCALE_YARN && hp->yarn_ext_factor != 0)
        magnitude *= 1 + 0.1 * log(t.factor);
    return magnitude;
}

uint32_t ntx_rope_axis(const struct ntx_hparams *hp, uint32_t i)
{
    const uint32_t *n = hp->rope_sections, all = n[0] + n[1] + n[2];
    if (!all)
        return 0;
    i %= all;
    if (hp->rope_interleaved)
        return i < 3 * n[i % 3] ? i % 3 : 0;
    return (uint32_t)(i >= n[0]) + (uint32_t)(i >= n[0] + n[1]);
}

void ntx_rope_angles_at(const struct ntx_hparams *hp, enum ntx_rotation turn, const double *freq,
                        const uint32_t place[3], float *cs, float *sn)
{
    const struct table t = rope_table(hp, turn);
    const double magnitude = ntx_rope_magnitude(hp, turn);
    for (uint32_t i = 0; i < t.dim / 2; i++) {
        const uint32_t pos = place[ntx_rope_axis(hp, i)];
        cs[i] = (float)(cos(pos * freq[i]) * magnitude);
        sn[i] = (float)(sin(pos * freq[i]) * magnitude);
    }
}

void ntx_rope_angles(const struct ntx_hparams *hp, enum ntx_rotation turn, const double *freq, uint32_t pos, float *cs,
                     float *sn)
{
    ntx_rope_angles_at(hp, turn, freq, (const uint32_t[]){pos, pos, pos}, cs, sn);
}
