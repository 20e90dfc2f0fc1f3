/* sampler.h: from logits to a token, reproducible from a seed. Order: repeat penalty, presence and frequency penalties, top-k, softmax at temperature, top-p, min-p, draw.
 * temp 0 is argmax (lowest id on ties), with the penalties applied. Pure: no global state. */
#ifndef NTX_COMPUTED_SAMPLER_H
#define NTX_COMPUTED_SAMPLER_H

#include <stdint.h>

struct ntx_sampling {
    float temp, top_p, min_p, repeat_penalty;
    float presence_penalty, frequency_penalty; /* taken from the logit of a token that was written: once, and for each time */
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
void ntx_sampler_accept(struct ntx_sampler *s, int32_t token);       /* prompt and generated tokens, for the repeat penalty */
void ntx_sampler_wrote(struct ntx_sampler *s, int32_t token);        /* a generated one: accepts it, and counts it for the other two */
int32_t ntx_sampler_next(struct ntx_sampler *s, const float *logits); /* logits are not changed */
/* How many of the largest logits (of equal ones those of least id) give the same next token as all do, once `more` tokens were accepted; 0: all are
 * needed, or more than NTX_BEST_MAX. NaN counts as minus infinity. */
uint32_t ntx_sampler_enough(const struct ntx_sampler *s, uint32_t more);
int32_t ntx_sampler_next_of(struct ntx_sampler *s, const struct ntx_candidate *best, uint32_t n); /* in any order */

#endif
