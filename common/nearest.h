/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.h: the name that the user may have meant: the one with the smallest edit distance (characters left out,
 * inserted, changed or swapped, ignoring case), if no more than a third of the letters differ, rounded up. A search
 * (struct ntx_near) also takes a name that begins with the word. */
#ifndef NTX_COMMON_NEAREST_H
#define NTX_COMMON_NEAREST_H

#include <stddef.h>

/* A search: names are offered one by one. */
struct ntx_near {
    const char *word; /* borrowed */
    size_t few;       /* a name with fewer edits is nearer */
    const char *head; /* put before the name in the hint: "--" */
    char hint[320];   /* "; did you mean NAME?" or "" */
};
void ntx_near_begin(struct ntx_near *n, const char *word, const char *head);
void ntx_near_offer(struct ntx_near *n, const char *name, size_t len);
/* Offers all words of a list "a|b|c" or "a, b, c". */
void ntx_near_offer_list(struct ntx_near *n, const char *words);

/* The nearest of `count` names (at(i) is the i-th); NULL: none is near. */
const char *ntx_nearest(const char *word, const char *(*at)(size_t i), size_t count);
const char *ntx_nearest_of(const char *word, const char *const *names, size_t count);

#endif
