/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_special.c: finds the longest special token at a place of the text, in time that does not depend on their
 * number: they are sorted, and each byte narrows the range of those that match so far. */
#include "model/tokenizer_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_special(const struct ntx__vocab *v, uint32_t id)
{
    unsigned type = v->attr[id] & NTX__TYPE_MASK;
    return v->off[id + 1] > v->off[id] && (type == NTX__CONTROL || type == NTX__UNKNOWN || type == NTX__USER);
}

static int by_text(const void *a, const void *b, void *vocab)
{
    const struct ntx__vocab *v = vocab;
    uint32_t ia = *(const uint32_t *)a, ib = *(const uint32_t *)b;
    size_t na, nb;
    const char *pa = ntx__vocab_text(v, ia, &na), *pb = ntx__vocab_text(v, ib, &nb);
    int c = memcmp(pa, pb, na < nb ? na : nb);
    if (c)
        return c;
    if (na != nb)
        return na < nb ? -1 : 1;
    return ia < ib ? -1 : ia > ib;
}

int ntx__specials_open(const struct ntx__vocab *v, struct ntx__specials *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n; i++)
        n += is_special(v, i);
    s->ids = malloc((n + 1) * sizeof(*s->ids));
    if (!s->ids)
        return -ENOMEM;
    for (uint32_t i = 0; i < v->n; i++)
        if (is_special(v, i))
            s->ids[s->n++] = i;
    qsort_r(s->ids, s->n, sizeof(*s->ids), by_text, (void *)v);
    uint32_t k = 0;
    for (unsigned c = 0; c <= 256; c++) {
        while (k < s->n && (unsigned char)v->pool[v->off[s->ids[k]]] < c)
            k++;
        s->first[c] = k;
    }
    return 0;
}

void ntx__specials_free(struct ntx__specials *s) { free(s->ids); }

/* The first of ids[lo..hi) whose byte at `depth` is >= c. All of them are longer than depth and equal before it. */
static uint32_t lower(const struct ntx__vocab *v, const uint32_t *ids, uint32_t lo, uint32_t hi, size_t depth,
                      unsigned c)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if ((unsigned char)v->pool[v->off[ids[mid]] + depth] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int32_t ntx__specials_match(const struct ntx__vocab *v, const struct ntx__specials *s, const char *text, size_t len,
                            bool all)
{
    int32_t best = -1;
    uint32_t lo = s->first[(unsigned char)text[0]], hi = s->first[(unsigned char)text[0] + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        for (; lo < hi && v->off[s->ids[lo] + 1] - v->off[s->ids[lo]] == depth; lo++)
            if (all || !(v->attr[s->ids[lo]] & NTX__GUARDED))
                best = (int32_t)s->ids[lo];
        if (depth == len)
            break;
        unsigned c = (unsigned char)text[depth];
        lo = lower(v, s->ids, lo, hi, depth, c);
        hi = lower(v, s->ids, lo, hi, depth, c + 1);
    }
    return best;
}
