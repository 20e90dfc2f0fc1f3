/* rope.c: see rope.h. */
#include "infer/rope.h"

#include <math.h>

/* The pair that makes `turns` full turns within the original context, as a real number (YaRN, section 3.2). */
static double pair_of_turns(const struct ntx_hparams *hp, double base, double turns)
{
    const double two_pi = 6.283185307179586;
    return hp->rope_dim * log(hp->rope_ctx_orig / (turns * two_pi)) / (2 * log(base));
}

/* How much of pair i keeps its plain frequency: 1 for fast pairs, 0 for slow ones. */
static double kept_share(const struct ntx_hparams *hp, double base, uint32_t i)
{
    double low = floor(pair_of_turns(hp, base, hp->yarn_beta_fast)), high = ceil(pair_of_turns(hp, base, hp->yarn_beta_slow));
    low = fmax(low, 0);
    high = fmin(high, hp->rope_dim - 1.0);
    double ramp = (i - low) / fmax(0.001, high - low);
    return 1 - fmin(1, fmax(0, ramp));
}

static double base_of(const struct ntx_hparams *hp, enum ntx_turn turn) { return turn == NTX_TURN_WINDOW ? hp->rope_base_window : hp->rope_base; }
static double factor_of(const struct ntx_hparams *hp, enum ntx_turn turn) { return turn == NTX_TURN_WINDOW ? hp->rope_factor_window : hp->rope_factor; }

void ntx_rope_frequencies(const struct ntx_hparams *hp, enum ntx_turn turn, const float *factors, double *freq)
{
    bool yarn = hp->rope_scaling == NTX_ROPE_SCALE_YARN;
    double base = base_of(hp, turn);
    for (uint32_t i = 0; i < hp->rope_dim / 2; i++) {
        double plain = pow(base, -2.0 * i / hp->rope_dim) / (factors ? factors[i] : 1);
        double keep = yarn ? kept_share(hp, base, i) * hp->yarn_ext_factor : 0;
        freq[i] = plain / factor_of(hp, turn) * (1 - keep) + plain * keep;
    }
}

void ntx_rope_angles(const struct ntx_hparams *hp, enum ntx_turn turn, const double *freq, uint32_t pos, float *cs, float *sn)
{
    double magnitude = hp->rope_attn_factor;
    if (hp->rope_scaling == NTX_ROPE_SCALE_YARN && hp->yarn_ext_factor != 0)
        magnitude *= 1 + 0.1 * log(factor_of(hp, turn));
    for (uint32_t i = 0; i < hp->rope_dim / 2; i++) {
        cs[i] = (float)(cos(pos * freq[i]) * magnitude);
        sn[i] = (float)(sin(pos * freq[i]) * magnitude);
    }
}
