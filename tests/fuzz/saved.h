/* SPDX-License-Identifier: Apache-2.0 */
/* saved.h: the words of a valid region, which are restored before each input. */
#ifndef NTX_TESTS_FUZZ_SAVED_H
#define NTX_TESTS_FUZZ_SAVED_H

#include "shm/region.h"
#include "tests/fuzz/fuzz.h"

static const enum ntx_region_part fuzz_words[] = {NTX_REGION_CONTROL, NTX_REGION_RING};

struct fuzz_saved {
    void *copy[2];
};

static inline void fuzz_save(struct fuzz_saved *s, const struct ntx_region *r)
{
    for (int i = 0; i < 2; i++) {
        const struct ntx_segment *p = &r->part[fuzz_words[i]];
        MUST((s->copy[i] = malloc(p->bytes)));
        memcpy(s->copy[i], p->at, p->bytes);
    }
}

static inline void fuzz_put_back(const struct fuzz_saved *s, const struct ntx_region *r)
{
    for (int i = 0; i < 2; i++)
        memcpy(r->part[fuzz_words[i]].at, s->copy[i], r->part[fuzz_words[i]].bytes);
}

#endif
