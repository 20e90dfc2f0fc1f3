/* SPDX-License-Identifier: Apache-2.0 */
/* match.h: shared by match.c and mask.c; no other file includes it. */
#ifndef NTX_COMPUTED_GRAMMAR_MATCH_H
#define NTX_COMPUTED_GRAMMAR_MATCH_H

#include "computed/grammar/impl.h"

#define NTX__UNKNOWN UINT32_MAX       /* not computed yet */
#define NTX__STUCK   (UINT32_MAX - 1) /* no set: the byte is not allowed, or m has failed */
#define NTX__MASKS   24u
#define NTX__STEPS   (1u << 21)
#define NTX__MIXED   (UINT32_MAX - 2) /* the bytes lead to different sets */

struct frame {
    uint32_t state, under; /* the frame below; UINT32_MAX: none */
    uint32_t depth, seen;  /* seen: turn of the last visit */
};

struct stacks {
    uint32_t first, n; /* range of items: frames whose states read a byte, in order */
    bool ends;         /* the answer may end here */
    uint32_t all[2];   /* set that every plain ASCII character, and every non-ASCII one, leads to; NTX__STUCK: none
                          may come; NTX__MIXED; NTX__UNKNOWN */
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
    int failed;     /* error of the current call */
    uint32_t steps; /* steps of one call; beyond NTX__STEPS it fails with -E2BIG */
    struct frame *frames;
    uint32_t n_frames, frames_room, *frame_slots, frame_mask;
    struct stacks *sets;
    uint32_t n_sets, sets_room, *set_slots, set_mask;
    uint32_t *items, n_items, items_room;
    uint32_t *next, next_room; /* [sets x classes] */
    uint32_t *work, n_work, work_room, *found, n_found, found_room, turn;
    bool ends; /* the set being built */
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
