/* SPDX-License-Identifier: Apache-2.0 */
/* policy.h: which layers a row may skip, as a pure function of the policy's text and the probe: no clock, no state, no
 * I/O.
 *
 *     text of PolicySet --ntx_policy_new--> policy --ntx_policy_decide(probe)--> a bit per layer
 *
 * A policy is an entry of the table in policy.c. Those there are:
 *   none                   compute everything ("" and "off" are the same)
 *   script:PART[;PART...]  for tests and measurements. PART = LAYERS[@ROW], LAYERS = N or N-M, separated by commas.
 *                          The layers are skipped by that row of each pass (its index, guesses not counted), without @
 *                            by every row.
 *                          "script:3,5@0;7" : row 0 skips 3, 5 and 7, all others skip 7.
 *   random:P,FIRST-LAST[,SEED]
 *                          for measurements: each of these layers with probability P, by a hash of session, position
 *                            and seed.
 *   static[:FIELDS]        layers whose calibration called at least `threshold` of the tokens alike enough, for every
 *                          token
 *   predictive[:FIELDS]    per token, layers for which the network of the sidecar (sidecar.h) says at least `threshold`
 *                          FIELDS = name=number, separated by commas: threshold=P (default: the sidecar's), max=N
 *                            layers in a row at
 *                          most (default: no limit), gain=G logits by which a threshold moves for each standard
 *                            deviation
 *                          between the calibration's mean similarity and the session's (default 0.5; only where the
 *                            session has one)
 *
 * A policy can skip layers behind its probe layer only, so layer 0 never. */
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
    const struct ntx_policy_sidecar *sidecar; /* NULL: none; only looked at by ntx_policy_new */
};

struct ntx_policy_input {
    const float *hidden; /* [n_embd], the residual stream after `layer` */
    uint32_t layer;
    uint32_t row; /* of the pass, guesses not counted */
    uint32_t pos; /* of the token in its session */
    uint64_t session;
    const float *similar; /* [n_layers] cosine of input and output per layer as this session has seen it, NaN where it
                             has not; may be NULL */
};

struct ntx_policy;

struct ntx_policy_ops {
    const char *name; /* before the ':' */
    /* args: what follows the ':', "" when there is none. Sets everything of *p but ops. */
    int (*open)(struct ntx_policy *p, const char *args, const struct ntx_policy_shape *shape, struct ntx_err *err);
    void (*decide)(const struct ntx_policy *p, const struct ntx_policy_input *in, uint64_t *skip);
    void (*close)(struct ntx_policy *p);
};

struct ntx_policy {
    const struct ntx_policy_ops *ops;
    struct ntx_policy_shape shape;
    void *data;
    bool skips;           /* false: decisions are always empty, nobody needs to wait for them */
    uint32_t probe_layer; /* wants the state after this one */
};

/* -EINVAL with the reason in err: an unknown name, a bad text, a layer that the model does not have. */
int ntx_policy_new(const char *text, const struct ntx_policy_shape *shape, struct ntx_policy **out,
                   struct ntx_err *err);
void ntx_policy_free(struct ntx_policy *p);

/* skip: bit l % 64 of word l / 64 for each layer l left out; all words are written. */
void ntx_policy_decide(const struct ntx_policy *p, const struct ntx_policy_input *in, uint64_t skip[NTX_MAP_WORDS]);

extern const struct ntx_policy_ops ntx_policy_script, ntx_policy_random, ntx_policy_static, ntx_policy_predictive;

#endif
