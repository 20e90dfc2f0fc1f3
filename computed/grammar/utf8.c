/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.c: ranges of characters as bytes. A range is split where the length of its characters changes, and then so
 * that each byte has a range that does not depend on earlier bytes (like RE2; R. Cox, "Regular Expression Matching
 * in the Wild"). Overlong forms and surrogates never come. */
#include "computed/grammar/impl.h"

#include <string.h>

struct part {
    uint8_t lo[4], hi[4];
    unsigned n;
};

struct out {
    struct ntx_grammar *g;
    uint32_t next, tails[4], start; /* tails[k]: k bytes from 0x80 to 0xbf, then next; 0: not made yet */
};

static struct set span(unsigned lo, unsigned hi)
{
    struct set s = {{0}};
    for (unsigned b = lo; b <= hi; b++)
        s.bit[b >> 6] |= 1ull << (b & 63);
    return s;
}

static uint32_t tail(struct out *o, unsigned k)
{
    struct set any = span(0x80, 0xbf);
    if (!k)
        return o->next;
    if (!o->tails[k])
        o->tails[k] = ntx__build_bytes(o->g, &any, tail(o, k - 1));
    return o->tails[k];
}

static void add_part(struct out *o, const struct part *p)
{
    unsigned full = 0;
    while (full + 1 < p->n && p->lo[p->n - 1 - full] == 0x80 && p->hi[p->n - 1 - full] == 0xbf)
        full++;
    uint32_t at = tail(o, full);
    for (unsigned i = p->n - full; i-- > 0;) {
        struct set s = span(p->lo[i], p->hi[i]);
        at = ntx__build_bytes(o->g, &s, at);
    }
    o->start = o->start ? ntx__build_state(o->g, S_SPLIT, at, o->start) : at;
}

static void encode(uint32_t c, unsigned n, uint8_t out[4])
{
    for (unsigned i = n; i-- > 1; c >>= 6)
        out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)((0xf00u >> n & 0xf0) | c);
}

/* Splits a range of characters of n bytes. */
static void split_range(struct out *o, uint32_t lo, uint32_t hi, unsigned n)
{
    for (unsigned k = 1; k < n; k++) {
        uint32_t m = (1u << (6 * k)) - 1; /* the last k bytes */
        if ((lo & ~m) == (hi & ~m))
            continue;
        if (lo & m) {
            split_range(o, lo, lo | m, n);
            split_range(o, (lo | m) + 1, hi, n);
            return;
        }
        if ((hi & m) != m) {
            split_range(o, lo, (hi & ~m) - 1, n);
            split_range(o, hi & ~m, hi, n);
            return;
        }
    }
    struct part p = {.n = n};
    encode(lo, n, p.lo);
    encode(hi, n, p.hi);
    add_part(o, &p);
}

static void ascii(struct out *o, const struct range *r, uint32_t n)
{
    struct set s = {{0}};
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = r[i].lo; c <= r[i].hi && c < 0x80; c++)
            s.bit[c >> 6] |= 1ull << (c & 63);
    if (s.bit[0] | s.bit[1])
        o->start = ntx__build_bytes(o->g, &s, o->next);
}

/* ---- many ranges, like \p{L}: characters of two and three bytes as a tree, so that few states read a first byte */

enum { DENSE = 16, CELLS = 1024 };

/* cell[c >> 6] has bit c & 63 for each character c of at most 0xffff. */
static void fill_cells(const struct range *r, uint32_t n, uint64_t cell[CELLS])
{
    memset(cell, 0, CELLS * sizeof *cell);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = r[i].lo < 0x80 ? 0x80 : r[i].lo; c <= r[i].hi && c <= 0xffff; c = (c | 63) + 1) {
            const uint32_t last = r[i].hi < (c | 63) ? r[i].hi : c | 63;
            cell[c >> 6] |= (~0ull >> (63 - (last - c))) << (c & 63);
        }
}

/* Adds to `to` the choice of the cells from..to, by a byte from `first` on, each distinct content once. */
static uint32_t add_cells(struct out *o, uint64_t cell[CELLS], uint32_t from, uint32_t end, unsigned first, uint32_t to)
{
    for (uint32_t i = from; i < end; i++) {
        const uint64_t content = cell[i];
        struct set lead = {{0}}, last = {{0, 0, content, 0}}; /* the bytes 0x80 to 0xbf */
        if (!content)
            continue;
        for (uint32_t k = i; k < end; k++)
            if (cell[k] == content) {
                const unsigned byte = first + (k - from);
                lead.bit[byte >> 6] |= 1ull << (byte & 63);
                cell[k] = 0;
            }
        const uint32_t at = ntx__build_bytes(o->g, &lead, ntx__build_bytes(o->g, &last, o->next));
        to = to ? ntx__build_state(o->g, S_SPLIT, at, to) : at;
    }
    return to;
}

static void build_dense(struct out *o, const struct range *r, uint32_t n)
{
    uint64_t cell[CELLS];
    fill_cells(r, n, cell);
    o->start = add_cells(o, cell, 2, 32, 0xc2, o->start);
    for (unsigned lead = 0; lead < 16; lead++) {
        const uint32_t inner = add_cells(o, cell, 64 * lead, 64 * lead + 64, 0x80, 0);
        const struct set byte = span(0xe0 + lead, 0xe0 + lead);
        const uint32_t at = inner ? ntx__build_bytes(o->g, &byte, inner) : 0;
        if (at)
            o->start = o->start ? ntx__build_state(o->g, S_SPLIT, at, o->start) : at;
    }
}

uint32_t ntx__utf8_build(struct ntx_grammar *g, const struct range *r, uint32_t n, uint32_t next)
{
    static const struct range of[] = {{0x80, 0x7ff}, {0x800, 0xffff}, {0x10000, 0x10ffff}};
    struct out o = {.g = g, .next = next};
    ascii(&o, r, n);
    if (n > DENSE)
        build_dense(&o, r, n);
    for (uint32_t i = 0; i < n; i++)
        for (unsigned k = n > DENSE ? 2 : 0; k < 3; k++) {
            uint32_t lo = r[i].lo > of[k].lo ? r[i].lo : of[k].lo, hi = r[i].hi < of[k].hi ? r[i].hi : of[k].hi;
            if (lo <= hi)
                split_range(&o, lo, hi, k + 2);
        }
    return o.start;
}
