/* calibrate.h: the parts of `ntx calibrate`.
 *
 *   text -> windows -> daemons (StatesReq) -> samples -> labels -> training -> report, sidecar
 *            calibrate_text.c                 calibrate_learn.c (layers)       calibrate_report.c
 *                                             calibrate_ffn.c (groups), calibrate_order.c (neurons)   calibrate_net.c trains for both */
#ifndef NTX_CLIENT_CALIBRATE_H
#define NTX_CLIENT_CALIBRATE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/client.h"
#include "client/options.h"
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

/* ---- calibrate_text.c */
struct ntx_calibrate_text {
    struct ntx_client *client;
    int32_t *ids;
    int n_ids;
    int32_t bos;           /* -1: none */
    uint32_t layer, ffn_first, ffn_layers; /* StatesReq */
    const char *what;      /* for progress: "" or "FFNs: " */
    int (*row)(void *ctx, const Ntx__StatesRow *r, struct ntx_err *err);
    void *ctx;
};
int ntx_calibrate_text(const struct ntx_calibrate_text *t, const struct ntx_options *o, struct ntx_err *err);

/* ---- calibrate_net.c: a network from n samples x [n x n_in] */
void ntx_calibrate_standardize(const struct ntx_net *net, float *x, uint32_t n); /* sets mean and scale; x becomes what the network sees */
/* y: [n x n_out]; learns from those that are not held out. */
int ntx_calibrate_train(const struct ntx_learning *l, const float *x, const uint8_t *y, uint32_t n, int (*progress)(void *ctx, uint32_t epoch, double loss),
                        const struct ntx_net *net);
int ntx_calibrate_ask(const struct ntx_net *net, const float *x, uint32_t n, float *logits); /* of standardised samples, as at run time; [n x n_out] */

/* Fills everything of s but `model`; s->n_layers, n_embd, n_hidden, first and last are set and its arrays made. Changes samples->x. */
int ntx_calibrate_learn(struct ntx_samples *samples, const struct ntx_learning *l, struct ntx_sidecar *s, struct ntx_err *err);

/* ---- calibrate_ffn.c, calibrate_order.c: what the FFNs do */
struct ntx_ffn_score { /* of a layer, on what was held out */
    double active;            /* share of units that are */
    double predicted, precision, recall; /* at the limit that is written: share of groups, and of those */
    double top;               /* of the share `active` of a token's groups that did most, those among as many that were predicted to */
    double before[3], after[3]; /* shares of groups of 4, 8 and 16 neurons that a token uses: in the model's order, and in the one learned */
};
struct ntx_ffn_capture {
    uint32_t n_layers, n_embd, n_ff;
    uint32_t units[NTX_MAX_LAYERS]; /* groups of a packed model, or neurons */
    bool packed;
    uint32_t at_once;         /* layers looked at in one reading of the text */
    struct ntx_ffn_learned learned;
    struct ntx_ffn_score *score; /* [n_layers] */
};
/* How many layers fit into what the capture may take in memory, for so many tokens. */
uint32_t ntx_calibrate_ffn_at_once(const struct ntx_ffn_capture *f, size_t tokens);
/* Reads the text as often as it takes; t: what to feed it to, its ffn fields and row are set here. */
int ntx_calibrate_ffn(struct ntx_ffn_capture *f, struct ntx_calibrate_text t, const struct ntx_options *o, const struct ntx_learning *l, struct ntx_err *err);
void ntx_ffn_capture_free(struct ntx_ffn_capture *f);
/* Value above which the share `share` of n values lies; never below 0, which is never active. Changes v's order. */
float ntx_calibrate_level(float *v, size_t n, float share);
/* energy: [n_tokens x n] of one layer; fills order [n] from what is not held out, and before and after of the score from what is. -ENOMEM. */
int ntx_calibrate_order(const float *energy, uint32_t n_tokens, uint32_t n, float level, uint32_t *order, struct ntx_ffn_score *score);

/* For people, and as one JSON object. ffn: NULL where nobody asked for it. */
void ntx_calibrate_report(const struct ntx_samples *samples, const struct ntx_sidecar *s, const struct ntx_ffn_capture *ffn);
int ntx_calibrate_json(const struct ntx_samples *samples, const struct ntx_sidecar *s, const struct ntx_ffn_capture *ffn);

void ntx_samples_free(struct ntx_samples *samples);

#endif
