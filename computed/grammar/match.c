/* SPDX-License-Identifier: Apache-2.0 */
/* match.c: the state of an answer: a set of stacks. Stacks are chains of shared frames. Sets are numbered, and each
 * has a table of the set that each class of bytes leads to, filled on demand. When too much has accumulated,
 * everything is rebuilt from the current set. */
#include "computed/grammar/match.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES_MOST (1u << 20)
#define ITEMS_MOST  4096u  /* most stacks of a set */
#define WORK_MOST   65536u /* most frames that one byte visits */
#define NONE        UINT32_MAX

static void *bigger(struct ntx_match *m, void *p, uint32_t *room, size_t size, size_t least)
{
    size_t want = *room ? 2 * (size_t)*room : least;
    if (m->bytes + want * size > m->c.memory) {
        m->failed = -E2BIG;
        return NULL;
    }
    void *q = realloc(p, want * size);
    if (!q) {
        m->failed = -ENOMEM;
        return NULL;
    }
    m->bytes += (want - *room) * size;
    *room = (uint32_t)want;
    return q;
}

#define GROW(m, list, n, room, least)                                                                                  \
    ((n) < (room) || ({                                                                                                \
         void *q_ = bigger(m, list, &(room), sizeof *(list), least);                                                   \
         if (q_)                                                                                                       \
             (list) = q_;                                                                                              \
         q_ != NULL;                                                                                                   \
     }))

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* ---- frames */

static bool rehash_frames(struct ntx_match *m)
{
    uint32_t n = m->frame_mask ? 2 * (m->frame_mask + 1) : 1024, *slots = calloc(n, sizeof *slots);
    if (!slots || m->bytes + n * sizeof *slots > m->c.memory) {
        free(slots);
        m->failed = slots ? -E2BIG : -ENOMEM;
        return false;
    }
    m->bytes += (n - (m->frame_mask ? m->frame_mask + 1 : 0)) * sizeof *slots;
    free(m->frame_slots);
    m->frame_slots = slots;
    m->frame_mask = n - 1;
    for (uint32_t i = 0; i < m->n_frames; i++) {
        uint32_t at = (uint32_t)mix(m->frames[i].state, m->frames[i].under) & m->frame_mask;
        while (slots[at])
            at = (at + 1) & m->frame_mask;
        slots[at] = i + 1;
    }
    return true;
}

/* The frame of this state on top of another; NONE: m has failed. */
static uint32_t frame(struct ntx_match *m, uint32_t state, uint32_t under)
{
    if (2 * (m->n_frames + 1) > m->frame_mask && !rehash_frames(m))
        return NONE;
    uint32_t at = (uint32_t)mix(state, under) & m->frame_mask;
    for (; m->frame_slots[at]; at = (at + 1) & m->frame_mask) {
        const struct frame *f = &m->frames[m->frame_slots[at] - 1];
        if (f->state == state && f->under == under)
            return m->frame_slots[at] - 1;
    }
    if (!GROW(m, m->frames, m->n_frames, m->frames_room, 512))
        return NONE;
    m->frames[m->n_frames] = (struct frame){
        .state = state, .under = under, .depth = under == NONE ? 0 : m->frames[under].depth + 1};
    m->frame_slots[at] = m->n_frames + 1;
    return m->n_frames++;
}

/* ---- states reachable without a byte: stacks whose top reads one */

static void push(struct ntx_match *m, uint32_t state, uint32_t under)
{
    uint32_t depth = under == NONE ? 0 : m->frames[under].depth + 1u;
    if (++m->steps > NTX__STEPS) {
        m->failed = -E2BIG;
        return;
    }
    if (depth + m->c.grammar->need[state] > NTX_GRAMMAR_DEPTH) /* it could never end */
        return;
    uint32_t f = frame(m, state, under);
    if (f == NONE || m->frames[f].seen == m->turn)
        return;
    m->frames[f].seen = m->turn;
    if (m->n_work == WORK_MOST)
        m->failed = -E2BIG;
    else if (GROW(m, m->work, m->n_work, m->work_room, 256))
        m->work[m->n_work++] = f;
}

static void follow(struct ntx_match *m, uint32_t f)
{
    const struct frame top = m->frames[f];
    const struct state *s = &m->c.grammar->states[top.state];
    switch (s->kind) {
    case S_END:
        if (top.under == NONE)
            m->ends = true;
        else
            push(m, m->frames[top.under].state, m->frames[top.under].under);
        return;
    case S_DEAD: return;
    case S_SPLIT:
        push(m, s->x, top.under);
        push(m, s->next, top.under);
        return;
    case S_BYTES:
        if (m->n_found == ITEMS_MOST)
            m->failed = -E2BIG;
        else if (GROW(m, m->found, m->n_found, m->found_room, 64))
            m->found[m->n_found++] = f;
        return;
    case S_CALL:
        if (!s->next) {
            push(m, s->x, top.under);
            return;
        }
        uint32_t back = frame(m, s->next, top.under);
        if (back != NONE)
            push(m, s->x, back);
    }
}

static void begin_match(struct ntx_match *m)
{
    m->turn++;
    m->n_work = m->n_found = 0;
    m->ends = false;
}

/* Processes the work in its order, so that the result depends on nothing else. */
static void close_set(struct ntx_match *m)
{
    for (uint32_t i = 0; i < m->n_work && !m->failed; i++)
        follow(m, m->work[i]);
}

/* ---- sets */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t hash_of(const uint32_t *items, uint32_t n, bool ends)
{
    uint64_t h = ends;
    for (uint32_t i = 0; i < n; i++)
        h = mix(h, items[i] + 1ull);
    return h;
}

static bool rehash_sets(struct ntx_match *m)
{
    uint32_t n = m->set_mask ? 2 * (m->set_mask + 1) : 256, *slots = calloc(n, sizeof *slots);
    if (!slots || m->bytes + n * sizeof *slots > m->c.memory) {
        free(slots);
        m->failed = slots ? -E2BIG : -ENOMEM;
        return false;
    }
    m->bytes += (n - (m->set_mask ? m->set_mask + 1 : 0)) * sizeof *slots;
    free(m->set_slots);
    m->set_slots = slots;
    m->set_mask = n - 1;
    for (uint32_t i = 0; i < m->n_sets; i++) {
        const struct stacks *s = &m->sets[i];
        uint32_t at = (uint32_t)hash_of(m->items + s->first, s->n, s->ends) & m->set_mask;
        while (slots[at])
            at = (at + 1) & m->set_mask;
        slots[at] = i + 1;
    }
    return true;
}

static bool room_for_set(struct ntx_match *m)
{
    while (m->n_items + m->n_found > m->items_room)
        if (!GROW(m, m->items, m->items_room, m->items_room, 1024))
            return false;
    if (!GROW(m, m->sets, m->n_sets, m->sets_room, 64))
        return false;
    uint64_t lists = (uint64_t)m->c.grammar->n_classes * (m->n_sets + 1);
    while (lists > m->next_room)
        if (!GROW(m, m->next, m->next_room, m->next_room, 4096))
            return false;
    return true;
}

/* The number of the set in `found`. */
static uint32_t number_of_set(struct ntx_match *m)
{
    if (m->failed || (2 * (m->n_sets + 1) > m->set_mask && !rehash_sets(m)))
        return NTX__STUCK;
    if (m->n_found)
        qsort(m->found, m->n_found, sizeof *m->found, by_number);
    uint32_t at = (uint32_t)hash_of(m->found, m->n_found, m->ends) & m->set_mask;
    for (; m->set_slots[at]; at = (at + 1) & m->set_mask) {
        const struct stacks *s = &m->sets[m->set_slots[at] - 1];
        if (s->n == m->n_found && s->ends == m->ends &&
            (!s->n || !memcmp(m->items + s->first, m->found, s->n * sizeof *m->found)))
            return m->set_slots[at] - 1;
    }
    if (!room_for_set(m))
        return NTX__STUCK;
    m->sets[m->n_sets] = (struct stacks){
        .first = m->n_items, .n = m->n_found, .ends = m->ends, .all = {NTX__UNKNOWN, NTX__UNKNOWN}};
    if (m->n_found)
        memcpy(m->items + m->n_items, m->found, m->n_found * sizeof *m->found);
    m->n_items += m->n_found;
    memset(m->next + (size_t)m->n_sets * m->c.grammar->n_classes, 0xff,
           m->c.grammar->n_classes * sizeof *m->next); /* NTX__UNKNOWN */
    m->set_slots[at] = m->n_sets + 1;
    return m->n_sets++;
}

uint32_t ntx__match_find(struct ntx_match *m, uint32_t set, unsigned class)
{
    const struct ntx_grammar *g = m->c.grammar;
    uint8_t byte = g->sample[class];
    begin_match(m);
    m->steps += m->sets[set].n / 8; /* visiting a stack costs less than making one */
    for (uint32_t i = 0; i < m->sets[set].n && !m->failed; i++) {
        const struct frame f = m->frames[m->items[m->sets[set].first + i]];
        if (ntx__set_has(&g->sets[g->states[f.state].x], byte))
            push(m, g->states[f.state].next, f.under);
    }
    close_set(m);
    uint32_t to = !m->failed && !m->n_found && !m->ends ? NTX__STUCK : number_of_set(m);
    if (!m->failed)
        m->next[(size_t)set * g->n_classes + class] = to;
    return to;
}

/* ---- making it anew */

static void free_tables(struct ntx_match *m)
{
    free(m->frames);
    free(m->frame_slots);
    free(m->work);
    free(m->found);
    free(m->items);
    free(m->sets);
    free(m->set_slots);
    free(m->next);
    for (unsigned i = 0; i < NTX__MASKS; i++)
        ntx__match_drop_mask(m, &m->masks[i]);
}

static void clear(struct ntx_match *m) { *m = (struct ntx_match){.c = m->c, .bytes = sizeof *m}; }

/* Copies the stack of a frame of `old` into m. */
static uint32_t copy_stack(struct ntx_match *m, const struct ntx_match *old, uint32_t f)
{
    uint32_t chain[NTX_GRAMMAR_DEPTH + 2], n = 0, at = NONE;
    for (; f != NONE && n < NTX_GRAMMAR_DEPTH + 2; f = old->frames[f].under)
        chain[n++] = old->frames[f].state;
    while (n-- > 0 && !m->failed)
        at = frame(m, chain[n], at);
    return at;
}

static int renew(struct ntx_match *m)
{
    struct ntx_match old = *m;
    clear(m);
    begin_match(m);
    for (uint32_t i = 0; i < old.sets[old.now].n && !m->failed; i++) {
        uint32_t f = copy_stack(m, &old, old.items[old.sets[old.now].first + i]);
        if (!m->failed && GROW(m, m->found, m->n_found, m->found_room, 64))
            m->found[m->n_found++] = f;
    }
    m->ends = old.sets[old.now].ends;
    m->now = number_of_set(m);
    if (m->failed) {
        int rc = m->failed;
        free_tables(m);
        *m = old;
        m->failed = 0;
        return rc;
    }
    free_tables(&old);
    return 0;
}

/* ---- */

int ntx_match_new(const struct ntx_match_config *c, struct ntx_match **out)
{
    struct ntx_match *m = calloc(1, sizeof *m);
    if (!m)
        return -ENOMEM;
    m->c = *c;
    m->bytes = sizeof *m;
    begin_match(m);
    push(m, c->thinking ? c->grammar->thinking : c->grammar->root, NONE);
    close_set(m);
    m->now = number_of_set(m);
    int rc = m->failed;
    if (rc)
        ntx_match_free(m);
    else
        *out = m;
    return rc;
}

void ntx_match_free(struct ntx_match *m)
{
    if (!m)
        return;
    free_tables(m);
    free(m);
}

size_t ntx_match_bytes(const struct ntx_match *m) { return m->bytes; }

static int take_bytes(struct ntx_match *m, const char *bytes, size_t n)
{
    uint32_t at = m->now;
    for (size_t i = 0; i < n; i++) {
        at = ntx__match_step(m, at, (uint8_t)bytes[i]);
        if (m->failed)
            return m->failed;
        if (at == NTX__STUCK)
            return -EINVAL;
    }
    m->now = at;
    return 0;
}

/* Retries with empty caches after an excess of memory; an excess of work would only recur. */
int ntx__match_again(struct ntx_match *m, int rc)
{
    m->failed = 0;
    return rc == -E2BIG && m->steps <= NTX__STEPS ? renew(m) : rc;
}

void ntx_match_rest(struct ntx_match *m)
{
    renew(m);
    m->failed = 0;
}

int ntx_match_take(struct ntx_match *m, const char *bytes, size_t n)
{
    m->steps = 0;
    int rc = take_bytes(m, bytes, n);
    if (rc && rc != -EINVAL && !(rc = ntx__match_again(m, rc)))
        rc = take_bytes(m, bytes, n);
    m->failed = 0;
    return rc;
}

bool ntx_match_may_end(const struct ntx_match *m) { return m->sets[m->now].ends; }
bool ntx_match_must_end(struct ntx_match *m) { return m->sets[m->now].ends && !m->sets[m->now].n; }
