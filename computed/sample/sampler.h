/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.h: from logits to a token. Order: repeat penalty, presence and frequency penalties, the caller's changes
 * (a mask, a bias), top-k, typical, top-p and min-p at the temperature, draw. Mirostat replaces the four filters.
 * temp 0 is argmax (lowest id on ties), with everything before the filters applied.
 *
 * The draw is the largest of logit / temp + noise (noise.h) among the tokens that the filters leave. It depends on
 * logits, options, accepted tokens, seed and position, and not on the number or order of draws. With mirostat it
 * also depends on the surprise of the tokens written before (ntx_sampler_wrote, each after its draw). It is the same
 * on every machine. Pure: no global state. */
#ifndef NTX_COMPUTED_SAMPLE_SAMPLER_H
#define NTX_COMPUTED_SAMPLE_SAMPLER_H

#include <stdint.h>

struct ntx_sampling {
    float temp, top_p, min_p, repeat_penalty;
    float presence_penalty,
        frequency_penalty; /* subtracted from the logit of a generated token: once, and for each time */
    uint32_t top_k, repeat_last;
    uint64_t seed;
    float typical_p;                  /* surprise.h; 0 and from 1 on: off */
    uint32_t mirostat;                /* its version, 1 or 2; 0: off */
    float mirostat_tau, mirostat_eta; /* the surprise in bits that it aims at; how fast it follows */
};

struct ntx_candidate {
    float logit;
    int32_t id;
};
#define NTX_BEST_MAX 256u /* most candidates that a caller may preselect */

struct ntx_sampler;
int ntx_sampler_new(const struct ntx_sampling *s, uint32_t n_vocab, struct ntx_sampler **out);
void ntx_sampler_free(struct ntx_sampler *s);
void ntx_sampler_accept(struct ntx_sampler *s, int32_t token); /* prompt and generated tokens, for the repeat penalty */
/* A generated token: accepts it, and counts it for the other two penalties. */
void ntx_sampler_wrote(struct ntx_sampler *s, int32_t token);

/* The token for a position of the text: take and draw. logits [n_vocab] are not changed. */
int32_t ntx_sampler_next(struct ntx_sampler *s, uint64_t position, const float *logits);

/* The same in steps, for masks and biases. take applies the penalties. values [n_vocab] may then be changed (-INFINITY:
 * never drawn, unless all are; NaN is not allowed). draw filters and draws. */
void ntx_sampler_take(struct ntx_sampler *s, const float *logits);
float *ntx_sampler_values(struct ntx_sampler *s);
int32_t ntx_sampler_draw(struct ntx_sampler *s, uint64_t position);

/* After take: predicts the draw of a model with similar logits at a position. Gives the `most` likeliest tokens with
 * their chances: the softmax of (logit + temp x noise) / sharp over the tokens that the filters leave. Returns how
 * many. For drafts: its bits are not promised. */
uint32_t ntx_sampler_draft(struct ntx_sampler *s, uint64_t position, float sharp, struct ntx_candidate *out,
                           uint32_t most);

/* How many of the largest logits (of equal ones, those of least id) give the same next token as all logits, once `more`
 * tokens were accepted. 0: all are needed, or more than NTX_BEST_MAX. NaN counts as minus infinity. */
uint32_t ntx_sampler_enough(const struct ntx_sampler *s, uint32_t more);
/* best: in any order. */
int32_t ntx_sampler_next_of(struct ntx_sampler *s, uint64_t position, const struct ntx_candidate *best, uint32_t n);

#endif
