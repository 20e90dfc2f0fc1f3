/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_merge.c: the heap of pairs (tokenizer_merge.h). */
#include "model/tokenizer_merge.h"

#include <errno.h>
#include <stdlib.h>

#define CANCEL_EVERY 65536 /* joins between two checks for cancellation */

/* Room: one symbol per byte; one pair for each at first, and one more for each join. */
int ntx__merge_begin(struct ntx__merge *m, size_t n_bytes)
{
    m->n_syms = m->n_heap = 0;
    m->most_pairs = 2 * n_bytes + 1;
    return n_bytes > m->out->limits->memory / (sizeof(*m->syms) + 2 * sizeof(*m->heap)) ? -ENOBUFS : 0;
}

void ntx__merge_free(struct ntx__merge *m)
{
    free(m->syms);
    free(m->heap);
}

static int grow_array(void **p, size_t *room, size_t size, size_t most)
{
    size_t more = *room ? *room * 2 : 64;
    if (more > most && *room < most)
        more = most;
    void *q = realloc(*p, more * size);
    if (!q)
        return -ENOMEM;
    *p = q;
    *room = more;
    return 0;
}

int ntx__merge_add(struct ntx__merge *m, uint32_t off, uint32_t len, int32_t id)
{
    if (m->n_syms == m->room_syms && grow_array((void **)&m->syms, &m->room_syms, sizeof(*m->syms), m->most_pairs / 2))
        return -ENOMEM;
    int32_t i = (int32_t)m->n_syms++;
    m->syms[i] = (struct ntx__sym){.off = off, .len = len, .id = id, .prev = i - 1, .next = -1};
    if (i > 0)
        m->syms[i - 1].next = i;
    return 0;
}

static int heap_push(struct ntx__merge *m, struct ntx__pair e)
{
    if (m->n_heap == m->room_heap && grow_array((void **)&m->heap, &m->room_heap, sizeof(*m->heap), m->most_pairs))
        return -ENOMEM;
    size_t i = m->n_heap++;
    for (; i && e.order < m->heap[(i - 1) / 2].order; i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = e;
    return 0;
}

static struct ntx__pair heap_pop(struct ntx__merge *m)
{
    struct ntx__pair top = m->heap[0], last = m->heap[--m->n_heap];
    size_t i = 0;
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= m->n_heap)
            break;
        if (c + 1 < m->n_heap && m->heap[c + 1].order < m->heap[c].order)
            c++;
        if (last.order <= m->heap[c].order)
            break;
        m->heap[i] = m->heap[c];
        i = c;
    }
    m->heap[i] = last;
    return top;
}

static int push_pair(struct ntx__merge *m, const struct ntx_tokenizer *t, const char *text, ntx__join_fn *join,
                     int32_t left)
{
    if (left < 0 || m->syms[left].next < 0)
        return 0;
    const struct ntx__sym *a = &m->syms[left], *b = &m->syms[a->next];
    uint32_t key;
    int32_t id;
    if (!join(t, text, a, b, &key, &id))
        return 0;
    return heap_push(
        m, (struct ntx__pair){.order = (uint64_t)key << 32 | (uint32_t)left, .len = a->len + b->len, .id = id});
}

int ntx__merge_run(struct ntx__merge *m, const struct ntx_tokenizer *t, const char *text, ntx__join_fn *join)
{
    for (size_t i = 0; i + 1 < m->n_syms; i++)
        if (push_pair(m, t, text, join, (int32_t)i))
            return -ENOMEM;
    for (size_t n = 1; m->n_heap; n++) {
        if (n % CANCEL_EVERY == 0 && ntx__ids_wanted(m->out))
            return -ECANCELED;
        struct ntx__pair e = heap_pop(m);
        int32_t left = (int32_t)(uint32_t)e.order;
        struct ntx__sym *a = &m->syms[left];
        /* Symbols only grow to the right, so the sum of lengths is unchanged only if both symbols are. */
        if (!a->len || a->next < 0 || a->len + m->syms[a->next].len != e.len)
            continue;
        struct ntx__sym *b = &m->syms[a->next];
        a->len = e.len;
        a->id = e.id;
        a->next = b->next;
        b->len = 0;
        if (a->next >= 0)
            m->syms[a->next].prev = left;
        if (push_pair(m, t, text, join, a->prev) || push_pair(m, t, text, join, left))
            return -ENOMEM;
    }
    return 0;
}
