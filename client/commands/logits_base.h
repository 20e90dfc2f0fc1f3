/* SPDX-License-Identifier: Apache-2.0 */
/* logits_base.h: a file of one model's probabilities for every scored token of a text, with which another run is
 * compared (`ntx perplexity --save-logits BASE`, then `--kl BASE`). Blocking, one thread, little-endian.
 *
 *   0     magic "ntxlogit", then uint32: version 1, n_vocab, ctx, windows, scored tokens per window, 0
 *   32    the model's name, zero-padded to 224 bytes
 *   256   int32 tokens[windows * ctx], as they were fed
 *   then, for each scored token of each window in order, one row:
 *         double nll of the token itself (exact); float step; uint32 likeliest token; uint16 q[n_vocab]
 *
 * A row's logits are rounded to 16 bits, counted downwards from the largest: logit[v] = max - step * q[v], over a range
 * of at most 32 (lower logits have no weight: e^-32). The compared run is rounded in the same way, so that equal runs
 * differ by exactly 0. For others, rounding changes the divergence by at most half a step (2.4e-4) times the difference
 * of the two distributions, and far less on average. */
#ifndef NTX_CLIENT_COMMANDS_LOGITS_BASE_H
#define NTX_CLIENT_COMMANDS_LOGITS_BASE_H

#include <stdint.h>

#include "common/err.h"

struct ntx_base_head {
    uint32_t n_vocab, ctx, windows, scored; /* scored: rows per window, ctx - (ctx / 2 + 1) */
    char model[224];
};

struct ntx_base_row {
    double nll;
    float step;
    uint32_t top;
    uint16_t *q; /* [n_vocab] */
};

/* q is allocated for n_vocab and freed with free(). */
int ntx_base_row_new(uint32_t n_vocab, struct ntx_base_row *r);
/* Rounds one row of logits; `token` is the token that followed in the text. -EDOM: they are not finite. */
int ntx_base_round(struct ntx_base_row *r, const float *logits, uint32_t n_vocab, int32_t token);
/* KL(base || run) in nats, of two rounded rows; at least -1e-12. */
double ntx_base_kl(const struct ntx_base_row *base, const struct ntx_base_row *run, uint32_t n_vocab);

struct ntx_base_writer;
int ntx_base_create(const char *path, const struct ntx_base_head *h, const int32_t *tokens,
                    struct ntx_base_writer **out, struct ntx_err *err);
int ntx_base_write(struct ntx_base_writer *w, const struct ntx_base_row *r, struct ntx_err *err);
/* Closes and frees. A file that lacks rows (keep false, or an error) is removed. */
int ntx_base_finish(struct ntx_base_writer *w, int keep, struct ntx_err *err);

struct ntx_base_reader;
/* Checks the header and the file's size, so that a truncated or foreign file is refused at once. */
int ntx_base_open(const char *path, struct ntx_base_reader **out, struct ntx_err *err);
const struct ntx_base_head *ntx_base_head(const struct ntx_base_reader *b);
const int32_t *ntx_base_tokens(const struct ntx_base_reader *b); /* [windows * ctx] */
int ntx_base_read(struct ntx_base_reader *b, struct ntx_base_row *r,
                  struct ntx_err *err); /* reads the next row into r->q of n_vocab */
void ntx_base_close(struct ntx_base_reader *b);

#endif
