/* SPDX-License-Identifier: Apache-2.0 */
/* fault.h: the rules of the fault source, parsed and matched (the grammar is in source.h). Pure. */
#ifndef NTX_IOD_FAULT_H
#define NTX_IOD_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "iod/read.h"
#include "shm/region.h"

#define NTX__FAULT_MAX_RULES 16

enum ntx__fault_what { NTX__FAULT_EIO, NTX__FAULT_SHORT, NTX__FAULT_DELAY, NTX__FAULT_STALL, NTX__FAULT_KILL };
enum ntx__fault_at { NTX__AT_READ, NTX__AT_DONE, NTX__AT_STATE }; /* events that rules can name */

struct ntx__fault_rule {
    enum ntx__fault_what what;
    enum ntx__fault_at at;
    uint64_t ns;    /* delay, stall */
    uint32_t chunk; /* UINT32_MAX: any */
    bool demand;
    enum ntx_state state;
    uint64_t every, nth, count; /* 0: no condition */
    double p;                   /* 1: always */
    uint32_t start;             /* 0: any */
    uint64_t seen, fired;       /* so far */
};

struct ntx__fault {
    struct ntx__fault_rule rule[NTX__FAULT_MAX_RULES];
    unsigned n;
    unsigned reorder; /* 0: off */
    uint64_t random;  /* state of the generator, never 0 */
    uint32_t start;
};

/* -EINVAL with the rule and what was expected. */
int ntx__fault_parse(const char *text, uint32_t start, struct ntx__fault *out, struct ntx_err *err);

/* Rules that fire at one event, as bits of enum ntx__fault_what. rd is for NTX__AT_READ, state for NTX__AT_STATE. Sets
 * *delay_ns and *stall_ns when such a rule fires. */
uint32_t ntx__fault_event(struct ntx__fault *f, enum ntx__fault_at at, const struct ntx_iod_read *rd,
                          enum ntx_state state, uint64_t *delay_ns, uint64_t *stall_ns);
uint32_t ntx__fault_random(struct ntx__fault *f, uint32_t below);

#endif
