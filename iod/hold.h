/* SPDX-License-Identifier: Apache-2.0 */
/* hold.h: results that a filter delivers later than they came. One entry per unfinished read. */
#ifndef NTX_IOD_HOLD_H
#define NTX_IOD_HOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "iod/source.h"

struct ntx__held {
    uint64_t tag;
    uint64_t due;   /* ns, CLOCK_MONOTONIC: not to be delivered before */
    int32_t result; /* once it came */
    bool came;
    uint32_t flags; /* for the filter's use */
};

struct ntx__hold {
    int timer;      /* timerfd, readable when something is due */
    uint64_t armed; /* expiry time, 0: off */
    unsigned n;
    struct ntx__held item[NTX_SOURCE_DEPTH];
};

int ntx__hold_open(struct ntx__hold *h); /* 0, negative errno */
void ntx__hold_close(struct ntx__hold *h);
/* Adds an entry for a read; NULL when there are NTX_SOURCE_DEPTH. The entry is valid until the next take. */
struct ntx__held *ntx__hold_expect(struct ntx__hold *h, uint64_t tag);
void ntx__hold_forget(struct ntx__hold *h, struct ntx__held *i);
/* Stores a read's result in its entry. NULL: no such entry. */
struct ntx__held *ntx__hold_came(struct ntx__hold *h, uint64_t tag, int32_t result);
/* Takes out the first due result, if it is due at `now`. */
bool ntx__hold_take(struct ntx__hold *h, uint64_t now, struct ntx__held *out);
/* Sets the timer for the next due result. */
void ntx__hold_arm(struct ntx__hold *h);

#endif
