/* calibrate.h: the parts of `ntx calibrate`.
 *
 *   text -> windows -> daemons (StatesReq) -> samples -> labels -> training -> report, sidecar
 *            cmd_calibrate.c                  calibrate_learn.c                calibrate_report.c */
#ifndef NTX_CLIENT_CALIBRATE_H
#define NTX_CLIENT_CALIBRATE_H

#include <stdbool.h>
#include <stdint.h>

#include "predictor/sidecar.h"

struct ntx_samples { /* a token each, in the order of the text */
    uint32_t n, room, n_embd, n_layers;
    float *x;       /* [n x n_embd] the state at the probe; later as the network sees it */
    float *similar; /* [n x 3 x n_layers] whole layer, attention, FFN */
    uint8_t *y;     /* [n x outputs] 1: alike enough to be skipped */
    float *p;       /* [n x outputs] the network's logits */
};

struct ntx_learning {
    float share;     /* of (token, layer) that count as alike enough */
    float precision; /* wanted of the threshold */
    uint32_t epochs, threads;
    uint64_t seed;
    bool tell;       /* progress on stderr */
};

static inline bool ntx_sample_held_out(uint32_t i) { return i / 64 % 5 == 4; } /* stretches of text, not scattered tokens: neighbours are alike */

/* Fills everything of s but `model`; s->n_layers, n_embd, n_hidden, first and last are set and its arrays made. Changes samples->x. */
int ntx_calibrate_learn(struct ntx_samples *samples, const struct ntx_learning *l, struct ntx_sidecar *s, struct ntx_err *err);

/* For people, and as one JSON object. */
void ntx_calibrate_report(const struct ntx_samples *samples, const struct ntx_sidecar *s);
int ntx_calibrate_json(const struct ntx_samples *samples, const struct ntx_sidecar *s);

void ntx_samples_free(struct ntx_samples *samples);

#endif
