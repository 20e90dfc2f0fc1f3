/* SPDX-License-Identifier: Apache-2.0 */
/* match.h: what match.c and mask.c share; nobody else includes it. */
#ifndef NTX_COMPUTED_GRAMMAR_MATCH_H
#define NTX_COMPUTED_GRAMMAR_MATCH_H

#include "computed/grammar/impl.h"

#define NTX__UNKNOWN UINT32_MAX       /* not looked for yet */
#define NTX__STUCK   (UINT32_MAX - 1) /* no set: the byte may not come, or m has failed */
#define NTX__MASKS   24u
#define NTX__STEPS   (1u << 21)
#define NTX__MIXED   (UINT32_MAX - 2) /* not all bytes that are asked for lead to one set */

struct frame {
    uint32_t state, under; /* the one below; UINT32_MAX: none */
    uint32_t depth, seen;  /* seen: in this turn */
};

struct stacks {
    uint32_t first, n; /* of items: frames whose states read a byte, in order */
    bool ends;         /* it may end here */
    uint32_t all[2];   /* the set that every plain character leads to, and that every one of Unicode does: NTX__STUCK:
                          none may come; NTX__MIXED; NTX__UNKNOWN */
};

struct mask;

struct kept_mask {
    struct mask *mask; /* NULL: none is here */
    uint32_t set;
    uint64_t used;
    bool lead;
};

struct ntx_match {
    struct ntx_match_config c;
    size_t bytes;
    int failed;     /* the work at hand */
    uint32_t steps; /* of one mask, or of bytes that are taken at once; beyond NTX__STEPS it is given up, with -E2BIG */
    struct frame *frames;
    uint32_t n_frames, frames_room, *frame_slots, frame_mask;
    struct stacks *sets;
    uint32_t n_sets, sets_room, *set_slots, set_mask;
    uint32_t *items, n_items, items_room;
    uint32_t *next, next_room; /* [sets x classes] */
    uint32_t *work, n_work, work_room, *found, n_found, found_room, turn;
    bool ends; /* of what is found */
    uint32_t now;
    struct kept_mask masks[NTX__MASKS];
    uint64_t uses;
};

uint32_t ntx__match_find(struct ntx_match *m, uint32_t set, unsigned class);
int ntx__match_again(struct ntx_match *m, int rc);
void ntx__match_drop_mask(struct ntx_match *m, struct kept_mask *k);

static inline uint32_t ntx__match_step(struct ntx_match *m, uint32_t set, uint8_t byte)
{
    unsigned class = m->c.grammar->class_of[byte];
    uint32_t to = m->next[(size_t)set * m->c.grammar->n_classes + class];
    return to == NTX__UNKNOWN ? ntx__match_find(m, set, class) : to;
}

#endif
