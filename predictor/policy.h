/* SPDX-License-Identifier: Apache-2.0 */
/* policy.h: which layers a row may skip, as a pure function of the policy's text and the probe: no clock, no state, no
 * I/O.
 *
 *     text of PolicySet --ntx_policy_new--> policy --ntx_policy_decide(probe)--> a bit per layer
 *
 * Each policy is an entry of the table in policy.c. A build without tests has neither script nor random.
 *
 *   none                   skip nothing ("" and "off" are the same)
 *   script:PART[;PART...]  for tests and measurements. PART = LAYERS[@ROW], LAYERS = N or N-M, separated by commas.
 *                          That row of each pass skips the layers (ROW is its index, draft rows not counted); without @
 *                          every row does. "script:3,5@0;7": row 0 skips 3, 5 and 7, all others skip 7.
 *   random:P,FIRST-LAST[,SEED]
 *                          for measurements: each of these layers with probability P, by a hash of session, position
 *                          and seed
 *   static[:FIELDS]        for every token the layers whose input and output were alike for at least the share
 *                          `threshold` of the calibration's tokens
 *   predictive[:FIELDS]    per token the layers for which the sidecar's network (sidecar.h) gives at least `threshold`
 *
 * FIELDS = name=number, separated by commas: threshold=P (default: the sidecar's); max=N: most skipped layers in a row
 * (default: no limit); gain=G: logits by which a threshold moves for each standard deviation between the calibration's
 * mean similarity and the session's (default 0.5; only if the session has one).
 *
 * A policy can only skip layers after its probe layer, so never layer 0. */
#ifndef NTX_PREDICTOR_POLICY_H
#define NTX_PREDICTOR_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "shm/board.h"

struct ntx_policy_sidecar {
    int fd;            /* borrowed while the policy is made; -1: none */
    const char *model; /* digest of the loaded model (model/digest.h) */
};

struct ntx_policy_shape { /* of the loaded model */
    uint32_t n_layers, n_embd;
    const struct ntx_policy_sidecar *sidecar; /* NULL: none; used by ntx_policy_new only */
};

struct ntx_policy_input {
    const float *hidden; /* [n_embd], the residual stream after `layer` */
    uint32_t layer;
    uint32_t row; /* index in the pass, draft rows not counted */
    uint32_t pos; /* of the token in its session */
    uint64_t session;
    /* [n_layers] mean cosine of each layer's input and output in this session, NaN: not measured. May be NULL. */
    const float *similar;
};

struct ntx_policy;

struct ntx_policy_ops {
    const char *name; /* before the ':' */
    /* args: the text after the ':', or "". Sets all fields of *p but ops. */
    int (*open)(struct ntx_policy *p, const char *args, const struct ntx_policy_shape *shape, struct ntx_err *err);
    void (*decide)(const struct ntx_policy *p, const struct ntx_policy_input *in, uint64_t *skip);
    void (*close)(struct ntx_policy *p);
};

struct ntx_policy {
    const struct ntx_policy_ops *ops;
    struct ntx_policy_shape shape;
    void *data;
    bool skips;           /* false: decisions are always empty, so computed need not wait */
    uint32_t probe_layer; /* probes are the state after this layer */
};

/* -EINVAL with the reason in err: an unknown name, a bad text, a layer that the model does not have. */
int ntx_policy_new(const char *text, const struct ntx_policy_shape *shape, struct ntx_policy **out,
                   struct ntx_err *err);
void ntx_policy_free(struct ntx_policy *p);

/* skip: bit l % 64 of word l / 64 is set for each skipped layer l. All words are written. */
void ntx_policy_decide(const struct ntx_policy *p, const struct ntx_policy_input *in, uint64_t skip[NTX_MAP_WORDS]);

extern const struct ntx_policy_ops ntx_policy_script, ntx_policy_random, ntx_policy_static, ntx_policy_predictive;

#endif
