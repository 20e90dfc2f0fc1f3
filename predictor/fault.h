/* SPDX-License-Identifier: Apache-2.0 */
/* fault.h: injected faults of the predictor, for tests (PolicySet.fault). Pure: it counts probes and returns actions.
 * Rules are separated by ';', each "what" or "what@condition,condition":
 *
 *   delay=TIME    the decision is sent later by TIME (50ms, 2s, 300us)
 *   mute          no decision is sent; computed asks again
 *   kill          SIGKILL to this process, with one of
 *     probe=N       when the Nth probe came, before its decision
 *     decision=N    when the Nth decision has left the process
 *
 * Conditions:
 *
 *   every=N       each Nth probe (delay, mute); without it all
 *   start=N       only in the Nth predictor process that attached (counter pred_starts) */
#ifndef NTX_PREDICTOR_FAULT_H
#define NTX_PREDICTOR_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define NTX_PREDICTOR_FAULT_RULES 8

struct ntx_predictor_fault_rule {
    enum { NTX_FAULT_DELAY, NTX_FAULT_MUTE, NTX_FAULT_KILL_PROBE, NTX_FAULT_KILL_DECISION } what;
    uint64_t n; /* every, probe, decision */
    uint64_t delay_ns;
};

struct ntx_predictor_fault {
    unsigned n_rules;
    struct ntx_predictor_fault_rule rule[NTX_PREDICTOR_FAULT_RULES];
    uint64_t probes, decisions; /* counted so far */
};

struct ntx_predictor_fault_act { /* action for one probe */
    bool kill, mute;
    uint64_t delay_ns;
};

/* start: number of this process, from 1; rules for other processes are left out. -EINVAL with the reason. */
int ntx_predictor_fault_parse(const char *text, uint64_t start, struct ntx_predictor_fault *out, struct ntx_err *err);

struct ntx_predictor_fault_act ntx_predictor_fault_probe(struct ntx_predictor_fault *f);
bool ntx_predictor_fault_sent(struct ntx_predictor_fault *f); /* a decision was sent; true: kill this process */

#endif
