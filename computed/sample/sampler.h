/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.h: from logits to a token. Order: repeat penalty, presence and frequency penalties, whoever changes the
 * values (a mask, a bias), top-k, top-p and min-p at the temperature, draw. temp 0 is argmax (lowest id on ties), with
 * all that comes before the filters applied.
 *
 * The draw is the largest of logit / temp + noise among what the filters leave: noise.h. It depends on logits, options,
 * what was accepted, seed and position, and not on how often or in which order anything was drawn; the same on every
 * machine. Pure: no global state. */
#ifndef NTX_COMPUTED_SAMPLE_SAMPLER_H
#define NTX_COMPUTED_SAMPLE_SAMPLER_H

#include <stdint.h>

struct ntx_sampling {
    float temp, top_p, min_p, repeat_penalty;
    float presence_penalty,
        frequency_penalty; /* taken from the logit of a token that was written: once, and for each time */
    uint32_t top_k, repeat_last;
    uint64_t seed;
};

struct ntx_candidate {
    float logit;
    int32_t id;
};
#define NTX_BEST_MAX 256u /* candidates that somebody may choose for a sampler */

struct ntx_sampler;
int ntx_sampler_new(const struct ntx_sampling *s, uint32_t n_vocab, struct ntx_sampler **out);
void ntx_sampler_free(struct ntx_sampler *s);
void ntx_sampler_accept(struct ntx_sampler *s, int32_t token); /* prompt and generated tokens, for the repeat penalty */
void ntx_sampler_wrote(struct ntx_sampler *s,
                       int32_t token); /* a generated one: accepts it, and counts it for the other two */

/* The token for a position of its session's text: take and draw. logits [n_vocab] are not changed. */
int32_t ntx_sampler_next(struct ntx_sampler *s, uint64_t position, const float *logits);

/* By steps, for who masks or biases. take applies the penalties; values are then [n_vocab] to be changed at will
 * (-INFINITY: never drawn, unless all are; a NaN must not come in); draw filters them and draws. */
void ntx_sampler_take(struct ntx_sampler *s, const float *logits);
float *ntx_sampler_values(struct ntx_sampler *s);
int32_t ntx_sampler_draw(struct ntx_sampler *s, uint64_t position);

/* After take: what somebody whose logits are only like these would probably draw at a position. The `most` likeliest,
 * with their chances for logits: the softmax of (logit + temp x noise) / sharp over what the filters leave. Returns how
 * many. For guesses: its bits are not promised. */
uint32_t ntx_sampler_draft(struct ntx_sampler *s, uint64_t position, float sharp, struct ntx_candidate *out,
                           uint32_t most);

/* How many of the largest logits (of equal ones those of least id) give the same next token as all do, once `more`
 * tokens were accepted; 0: all are needed, or more than NTX_BEST_MAX. NaN counts as minus infinity. */
uint32_t ntx_sampler_enough(const struct ntx_sampler *s, uint32_t more);
int32_t ntx_sampler_next_of(struct ntx_sampler *s, uint64_t position, const struct ntx_candidate *best,
                            uint32_t n); /* in any order */

#endif
