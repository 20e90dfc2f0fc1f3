/* SPDX-License-Identifier: Apache-2.0 */
/* service_impl.h: state shared by service.c and decide.c. */
#ifndef NTX_PREDICTOR_SERVICE_IMPL_H
#define NTX_PREDICTOR_SERVICE_IMPL_H

#include <uv.h>

#include "predictor/drafting.h"
#include "predictor/fault.h"
#include "predictor/policy.h"
#include "predictor/service.h"
#include "proto/worker.h"
#include "shm/board.h"

struct ntx__delayed; /* a decision that a fault delays */

struct ntx__service {
    struct ntx_worker w;
    uv_timer_t tick, death;
    uint64_t cpu_ns; /* counted so far */

    /* State of the attached region; all zero: none is attached. */
    uint64_t epoch;
    struct ntx_board board;
    struct ntx_policy *policy;
    struct ntx_predictor_fault fault;
    char policy_text[256], policy_error[256];
    bool configured;                             /* PolicySet came: send no more Hello */
    bool state_pending;                          /* PolicyState is still to be sent */
    float *hidden;                               /* [n_embd] state of the current probe, then [n_layers] similarities */
    int sidecar;                                 /* descriptor, -1: none */
    struct ntx_drafting *drafting[NTX_DRAFTERS]; /* NULL: there are no more drafters */
    struct ntx__delayed *delayed;
    uint64_t hint_pass, hint[NTX_MAP_WORDS];
    bool hinted;
};

/* decide.c */
void ntx__service_probe(struct ntx__service *s, const Ntx__ProbeNotice *m);
void ntx__service_drop_delayed(struct ntx__service *s);

#endif
