/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of a lookup table (an embedding, n-grams) on demand. They are posted to as many frames as there are, and each
 * is copied out when it has come: an entry is some kilobytes, and a frame is free again at once. Entries that are known
 * ahead (computed/pass/grams.c) are asked for by one call and collected as they come. */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "computed/weights/stream_impl.h"

static uint64_t entry_offset(const struct ntx__entry_query *q, uint32_t entry)
{
    return q->offset + (uint64_t)(uint32_t)q->ids[entry] * q->entry_bytes;
}

static int check_query(struct ntx_stream *s, const struct ntx__entry_query *q)
{
    const struct ntx_region_hdr *h = s->r->hdr;
    uint64_t size = q->file < h->n_files ? h->file_bytes[q->file] : 0;
    for (uint32_t i = 0; i < q->n; i++) {
        uint64_t at = entry_offset(q, i);
        if (q->ids[i] < 0 || q->offset > size || at > size || size - at < q->entry_bytes)
            return ntx__stream_fail(s, -EINVAL, "entry %d of %u bytes lies outside file %u", q->ids[i], q->entry_bytes,
                                    q->file);
        if (at % h->block + q->entry_bytes > h->frame_bytes)
            return ntx__stream_fail(s, -EINVAL, "an entry of %u bytes does not fit the frames of %llu", q->entry_bytes,
                                    (unsigned long long)h->frame_bytes);
    }
    return 0;
}

static uint32_t first_equal(const struct ntx__entry_query *q, uint32_t entry)
{
    uint32_t i = 0;
    while (q->ids[i] != q->ids[entry])
        i++;
    return i;
}

static bool has_come(const struct ntx_stream *s, uint32_t frame)
{
    return ntx_word_state(s->said[frame]) == NTX_POSTED &&
           ntx__settled(atomic_load_explicit(&s->r->demand[frame].word, memory_order_acquire), ntx__own_gen(s, frame));
}

/* Called while no frame is ours: READY or FAILED was left over by a call that failed. */
static bool frame_free(struct ntx_stream *s, uint32_t i)
{
    if (atomic_load_explicit(&s->r->request[i].quarantined, memory_order_acquire))
        return false;
    if (has_come(s, i))
        ntx__own_free_demand(s, i);
    return ntx_word_state(s->said[i]) == NTX_FREE;
}

static void post_entry(struct ntx_stream *s, uint32_t i, const struct ntx__entry_query *q, uint32_t entry)
{
    struct ntx_read_request *a = &s->r->request[i];
    a->file = q->file;
    a->offset = entry_offset(q, entry);
    a->bytes = q->entry_bytes;
    ntx__own_post(s, i);
}

/* Posts the next entry into frame i, if there is one and the frame is free. */
static uint32_t post_into(struct ntx_stream *s, struct ntx__entry_query *q, uint32_t i)
{
    if (q->next == q->n || !frame_free(s, i))
        return 0;
    s->entry_frame[i] = q->next;
    post_entry(s, i, q, q->next++);
    return 1;
}

static void announce_posts(struct ntx_stream *s, uint32_t n)
{
    atomic_fetch_add_explicit(&s->r->control->demand_posted, n, memory_order_seq_cst);
    if (n)
        ntx__stream_wake(s);
}

static uint32_t post_some(struct ntx_stream *s, struct ntx__entry_query *q)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->r->hdr->n_demands; i++) {
        s->entry_frame[i] = UINT32_MAX;
        while (q->next < q->n && first_equal(q, q->next) != q->next)
            q->next++;
        n += post_into(s, q, i);
    }
    announce_posts(s, n);
    return n;
}

static int collect_entry(struct ntx_stream *s, const struct ntx__entry_query *q, uint32_t frame)
{
    const struct ntx_region_hdr *h = s->r->hdr;
    struct ntx_demand *d = &s->r->demand[frame];
    uint32_t entry = s->entry_frame[frame], gen = ntx__own_gen(s, frame), word = 0;
    int rc = ntx__stream_wait(s, &d->word, gen, NTX_WAIT_ENTRY, (uint64_t)q->ids[entry], &word);
    if (rc)
        return rc;
    if (ntx__demand_state(word) == NTX_FAILED)
        rc = ntx__stream_fail_read(s, NTX__NO_CHUNK, q->file, entry_offset(q, entry), q->entry_bytes,
                                   ntx__iod_errno(d->err));
    else if (d->shift != entry_offset(q, entry) % h->block)
        rc = ntx__stream_fail(s, -EPROTO, "ntx-iod delivered an entry at %u, which cannot be", d->shift);
    else
        memcpy(q->out + (size_t)entry * q->entry_bytes,
               ntx_region_frame(s->r, frame) + entry_offset(q, entry) % h->block, q->entry_bytes);
    ntx__own_free_demand(s, frame); /* the copy is made */
    return rc;
}

static int collect_entries(struct ntx_stream *s, const struct ntx__entry_query *q)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && i < s->r->hdr->n_demands; i++)
        if (s->entry_frame[i] != UINT32_MAX)
            rc = collect_entry(s, q, i);
    return rc;
}

/* Every frame is quarantined, or still busy for a call that failed. */
static int wait_for_frame(struct ntx_stream *s, const struct ntx__entry_query *q, struct ntx_patience *patience)
{
    _Atomic uint32_t *t = &s->r->request[0].quarantined;
    return ntx__stream_pause(s, t, atomic_load_explicit(t, memory_order_relaxed), patience, "a free frame for entry",
                             (uint64_t)q->ids[q->next]);
}

/* ---- ahead of use */

static int check_frames(struct ntx_stream *s, const struct ntx__entry_query *q)
{
    int rc = check_query(s, q);
    return rc || !q->n || s->r->hdr->n_demands ? rc
                                               : ntx__stream_fail(s, -EINVAL, "the region has no frames for entries");
}

int ntx__stream_request_entries(struct ntx_weights *w, uint32_t file, uint64_t offset, uint32_t entry_bytes,
                                const int32_t *ids, uint32_t n, void *out)
{
    struct ntx_stream *s = (struct ntx_stream *)w;
    s->asked = (struct ntx__entry_query){
        .file = file, .entry_bytes = entry_bytes, .n = n, .offset = offset, .ids = ids, .out = out, .left = n};
    for (uint32_t i = 0; i < s->r->hdr->n_demands; i++)
        s->entry_frame[i] = UINT32_MAX;
    int rc = check_frames(s, &s->asked);
    return rc ? rc : ntx__stream_more_entries(w);
}

static int take_frame(struct ntx_stream *s, uint32_t frame)
{
    int rc = collect_entry(s, &s->asked, frame);
    s->entry_frame[frame] = UINT32_MAX;
    s->asked.left -= !rc;
    return rc;
}

int ntx__stream_more_entries(struct ntx_weights *w)
{
    struct ntx_stream *s = (struct ntx_stream *)w;
    uint32_t n = 0;
    int rc = 0;
    for (uint32_t i = 0; i < s->r->hdr->n_demands && s->asked.left && !rc; i++) {
        if (s->entry_frame[i] != UINT32_MAX && has_come(s, i))
            rc = take_frame(s, i);
        if (!rc && s->entry_frame[i] == UINT32_MAX)
            n += post_into(s, &s->asked, i);
    }
    if (n)
        announce_posts(s, n);
    return rc;
}

/* The frame whose entry was posted first, or UINT32_MAX. */
static uint32_t oldest_frame(const struct ntx_stream *s)
{
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < s->r->hdr->n_demands; i++)
        if (s->entry_frame[i] != UINT32_MAX && (first == UINT32_MAX || s->entry_frame[i] < s->entry_frame[first]))
            first = i;
    return first;
}

int ntx__stream_entries_there(struct ntx_weights *w)
{
    struct ntx_stream *s = (struct ntx_stream *)w;
    struct ntx_patience patience = ntx_patience(s->limit_ns);
    int rc = ntx__stream_more_entries(w);
    while (!rc && s->asked.left) {
        const uint32_t frame = oldest_frame(s);
        if (frame != UINT32_MAX) {
            rc = take_frame(s, frame);
            patience = ntx_patience(s->limit_ns);
        } else {
            rc = wait_for_frame(s, &s->asked, &patience);
        }
        if (!rc)
            rc = ntx__stream_more_entries(w);
    }
    s->asked = (struct ntx__entry_query){0};
    return rc;
}

int ntx__stream_entries(struct ntx_weights *w, uint32_t file, uint64_t offset, uint32_t entry_bytes, const int32_t *ids,
                        uint32_t n, void *out)
{
    struct ntx_stream *s = (struct ntx_stream *)w;
    struct ntx__entry_query q = {
        .file = file, .entry_bytes = entry_bytes, .n = n, .offset = offset, .ids = ids, .out = out};
    int rc = check_frames(s, &q);
    struct ntx_patience patience = ntx_patience(s->limit_ns);
    while (!rc && q.next < n) {
        if (post_some(s, &q)) {
            rc = collect_entries(s, &q);
            patience = ntx_patience(s->limit_ns);
        } else if (q.next < n) {
            rc = wait_for_frame(s, &q, &patience);
        }
    }
    for (uint32_t i = 0; !rc && i < n; i++) {
        uint32_t first = first_equal(&q, i);
        if (first != i)
            memcpy(q.out + (size_t)i * entry_bytes, q.out + (size_t)first * entry_bytes, entry_bytes);
    }
    return rc;
}
