/* SPDX-License-Identifier: Apache-2.0 */
/* kv_file_turns.c: brings runs into memory, reads, writes and drops them; and the thread that does so step by step. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "computed/state/kv_file_impl.h"

/* ---- runs */

/* Gives a run memory; ntx__kv_file_turns has room for it. */
int ntx__kv_file_bring(struct ntx_kv_file *f, struct ntx__kv_run r, struct ntx__kv_moved *m)
{
    uint8_t *state = ntx__kv_file_state_of(f, r);
    const uint32_t slot = ntx__kv_slots_take(f->slots, f->place[r.part].size);
    if (slot == NTX__KV_NO_SLOT)
        return -ENOMEM;
    *ntx__kv_file_slot_of(f, r) = slot;
    *state = (uint8_t)((*state & ~NTX__KV_WANTED) | NTX__KV_IN);
    m->taken += ntx__kv_file_bytes_of(f, r);
    if (!(*state & NTX__KV_STORED))
        memset(ntx__kv_file_memory_of(f, r), 0,
               ntx__kv_file_bytes_of(f, r)); /* places that were never written do not matter, but must not be NaN */
    return 0;
}

void ntx__kv_file_give_up(struct ntx_kv_file *f, struct ntx__kv_run r, struct ntx__kv_moved *m)
{
    ntx__kv_slots_leave(f->slots, f->place[r.part].size, *ntx__kv_file_slot_of(f, r));
    *ntx__kv_file_state_of(f, r) &= (uint8_t)~NTX__KV_IN;
    m->dropped += ntx__kv_file_bytes_of(f, r);
}

/* A run that cannot be written stays. */
int ntx__kv_file_drop(struct ntx_kv_file *f, struct ntx__kv_run r, struct ntx__kv_moved *m)
{
    uint8_t *state = ntx__kv_file_state_of(f, r);
    if (!(*state & NTX__KV_IN))
        return 0;
    if (*state & NTX__KV_CHANGED) {
        int rc = ntx__kv_io_now(f->fd, true, ntx__kv_file_place_of(f, r), ntx__kv_file_bytes_of(f, r),
                                ntx__kv_file_memory_of(f, r));
        if (rc)
            return rc;
        m->written += ntx__kv_file_bytes_of(f, r);
        *state = (uint8_t)((*state & ~NTX__KV_CHANGED) | NTX__KV_STORED);
    }
    ntx__kv_file_give_up(f, r, m);
    return 0;
}

/* Drops all runs of a part in a cluster. */
int ntx__kv_file_drop_part(struct ntx_kv_file *f, uint32_t cluster, uint32_t part, struct ntx__kv_moved *m)
{
    struct ntx__kv_run r;
    uint32_t to;
    int rc = 0;
    for (ntx__kv_file_runs_of(f, cluster, part, &r, &to); r.i < to && !rc; r.i++)
        rc = ntx__kv_file_drop(f, r, m);
    return rc;
}

int ntx__kv_file_load_run(struct ntx_kv_file *f, struct ntx__kv_run r, struct ntx__kv_moved *m)
{
    const uint8_t state = *ntx__kv_file_state_of(f, r);
    int rc = state & NTX__KV_IN ? 0 : ntx__kv_file_bring(f, r, m);
    if (rc || state & NTX__KV_IN || !(state & NTX__KV_STORED))
        return rc;
    if (!(rc = ntx__kv_io_now(f->fd, false, ntx__kv_file_place_of(f, r), ntx__kv_file_bytes_of(f, r),
                              ntx__kv_file_memory_of(f, r)))) {
        m->read += ntx__kv_file_bytes_of(f, r);
        return 0;
    }
    ntx__kv_file_give_up(f, r, m);
    m->lost = r;
    m->n_lost = 1;
    return rc;
}

void ntx__kv_file_count(struct ntx_kv_file *f, const struct ntx__kv_moved *m)
{
    f->stats.read_bytes += m->read;
    f->stats.written_bytes += m->written;
    f->stats.held_bytes += m->taken - m->dropped;
    f->stats.held_most = NTX_MAX(f->stats.held_most, f->stats.held_bytes);
    for (uint32_t i = 0; i < m->n_lost; i++)
        f->lost[ntx__kv_file_cluster_of(f, (struct ntx__kv_run){m->lost.part, m->lost.i + i})] = true;
}

/* ---- turns, run by the thread without the lock: meanwhile nobody else changes the list, or what is in memory */

/* turn: 11 bits, part: 13, runs less one: 7, the first run: 32 */
static uint64_t tag_of(const struct batch *b)
{
    return b->turn | (uint64_t)b->first.part << 11 | (uint64_t)(b->n - 1) << 24 | (uint64_t)b->first.i << 32;
}
static struct batch batch_of(uint64_t tag)
{
    return (struct batch){.first = {(uint32_t)(tag >> 11 & 0x1fff), (uint32_t)(tag >> 32)},
                          .n = (uint32_t)(tag >> 24 & 0x7f) + 1,
                          .turn = (uint32_t)(tag & 0x7ff)};
}

/* False: no more reads may be under way. */
static bool post_batch(struct ntx_kv_file *f)
{
    struct batch *b = &f->now;
    struct iovec to[NTX__KV_IO_PARTS];
    while (b->n) {
        const uint64_t bytes = ntx__kv_file_bytes_of(f, b->first), piece = NTX_MIN(bytes - b->asked, NTX__KV_IO_PIECE);
        if (!ntx__kv_io_room(f->io))
            return false;
        for (uint32_t i = 0; i < b->n; i++)
            to[i] = (struct iovec){
                ntx__kv_file_memory_of(f, (struct ntx__kv_run){b->first.part, b->first.i + i}) + b->asked, piece};
        ntx__kv_io_read(f->io, ntx__kv_file_place_of(f, b->first) + b->asked, to, b->n, tag_of(b));
        f->pending[b->turn]++;
        if ((b->asked += piece) == bytes)
            b->n = 0;
    }
    return true;
}

/* The next run of the top-k that is not in memory. */
static struct ntx__kv_run next_of_topk(struct ntx_kv_file *f)
{
    for (; f->next_wanted < f->n_wanted; f->next_wanted++) {
        const struct ntx__kv_run r = {f->wanted_part, f->wanted[f->next_wanted]};
        if (!(*ntx__kv_file_state_of(f, r) & NTX__KV_IN))
            return r;
    }
    return (struct ntx__kv_run){NTX__KV_NOBODY, 0};
}

/* The next run of the turn, part by part. */
static struct ntx__kv_run next_of_turn(struct ntx_kv_file *f)
{
    const uint32_t cluster = f->l.cluster, each = f->n_list * cluster;
    while (f->cursor < NTX_KV_READS * each) {
        const uint32_t part = ntx__kv_file_part_of(&f->l, f->asked, f->cursor / each),
                       c = f->in_file[f->cursor % each / cluster], block = c * cluster + f->cursor % cluster;
        if (part == NTX_KV_NO_PART) {
            f->cursor = NTX_ROUND_DOWN(f->cursor, each) + each;
            continue;
        }
        const bool whole = f->asked < f->attends && !(f->chooses && f->l.part[part].topk);
        const bool joined = f->joins[c] && !f->l.part[part].topk;
        if (block >= f->l.n_blocks || (!whole && !joined && !f->writes[c])) {
            f->cursor = NTX_ROUND_DOWN(f->cursor, cluster) + cluster;
            continue;
        }
        const struct ntx__kv_run r = ntx__kv_file_run_at(f, block, part);
        if (!(*ntx__kv_file_state_of(f, r) & NTX__KV_IN))
            return r;
        f->cursor += ntx__kv_file_run_blocks(&f->l, part);
    }
    return (struct ntx__kv_run){NTX__KV_NOBODY, 0};
}

static bool continues_batch(const struct ntx_kv_file *f, const struct batch *b, struct ntx__kv_run r, bool stored)
{
    return stored && r.part == b->first.part && r.i == b->first.i + b->n && b->n < NTX__KV_IO_PARTS &&
           (b->n + 1) * ntx__kv_file_bytes_of(f, r) <= NTX__KV_IO_PIECE;
}

/* The next run, and the neighbours that fit into one read; gives them memory. Runs never written are complete at
 * once. */
static int begin_batch(struct ntx_kv_file *f, bool topk, struct ntx__kv_moved *m)
{
    struct batch b = {.turn = topk ? f->l.n_layers : f->asked};
    struct ntx__kv_run r;
    int rc = 0;
    while ((r = topk ? next_of_topk(f) : next_of_turn(f)).part != NTX__KV_NOBODY) {
        const bool stored = *ntx__kv_file_state_of(f, r) & NTX__KV_STORED;
        if ((b.n && !continues_batch(f, &b, r, stored)) || (rc = ntx__kv_file_bring(f, r, m)))
            break;
        if (!stored)
            continue;
        b.first = b.n++ ? b.first : r;
        m->read += ntx__kv_file_bytes_of(f, r);
    }
    f->now = b;
    return b.n ? 1 : rc;
}

/* Posts as many reads as may be under way: the top-k before reads ahead. *whole: the turn has no more. */
static int post_reads(struct ntx_kv_file *f, bool *whole, struct ntx__kv_moved *m)
{
    int rc;
    for (;;) {
        if (!post_batch(f))
            return 0;
        if (f->serving && (rc = begin_batch(f, true, m))) {
            if (rc < 0)
                return rc;
            continue;
        }
        if (f->asked >= f->until)
            return 0;
        if ((rc = begin_batch(f, false, m)) <= 0) {
            f->cursor = 0;
            *whole = !rc;
            return rc;
        }
    }
}

/* Runs whose read failed keep their memory until no read is under way. */
static int await_read(struct ntx_kv_file *f, struct ntx__kv_moved *m)
{
    uint64_t tag;
    int rc = ntx__kv_io_wait(f->io, &tag);
    const struct batch b = batch_of(tag);
    f->pending[b.turn]--;
    if (!rc)
        return 0;
    for (uint32_t i = 0; i < b.n; i++) {
        uint8_t *state = ntx__kv_file_state_of(f, (struct ntx__kv_run){b.first.part, b.first.i + i});
        f->n_bad += !(*state & NTX__KV_BAD);
        *state |= NTX__KV_BAD;
    }
    m->lost = b.first;
    m->n_lost = b.n;
    return rc;
}

int ntx__kv_file_drop_turn(struct ntx_kv_file *f, uint32_t layer, struct ntx__kv_moved *m)
{
    int rc = 0;
    for (uint32_t i = f->keep; i < f->n_list; i++)
        for (uint32_t k = 0; k < NTX_KV_READS; k++) {
            const uint32_t part = ntx__kv_file_part_of(&f->l, layer, k);
            int failed = part == NTX_KV_NO_PART || f->place[part].last != layer
                             ? 0
                             : ntx__kv_file_drop_part(f, f->list[i], part, m);
            rc = rc ? rc : failed;
        }
    return rc;
}

/* No read is under way into what is dropped, also of a layer that did not wait. */
static bool may_drop(const struct ntx_kv_file *f)
{
    return !f->paused && !f->error && f->dropped < NTX_MIN(f->done, f->loaded);
}

static uint32_t turn_limit(const struct ntx_kv_file *f)
{
    return f->paused || f->error ? 0 : NTX_MIN(f->l.n_layers, f->dropped + f->ahead);
}
static bool has_topk_to_read(const struct ntx_kv_file *f)
{
    return f->fetching && !f->error && f->next_wanted < f->n_wanted;
}

/* A batch that was begun is finished. */
static bool may_read(const struct ntx_kv_file *f)
{
    return f->io && ntx__kv_io_room(f->io) && (f->now.n || has_topk_to_read(f) || f->asked < turn_limit(f));
}

static void run_step(struct ntx_kv_file *f)
{
    const bool drops = may_drop(f), reads = !drops && may_read(f);
    struct ntx__kv_moved m = {0};
    bool whole = false;
    int rc = 0;
    f->busy = true;
    f->serving = has_topk_to_read(f);
    f->until = turn_limit(f);
    pthread_mutex_unlock(&f->lock);
    if (drops)
        rc = ntx__kv_file_drop_turn(f, f->dropped, &m);
    else if (reads)
        rc = post_reads(f, &whole, &m);
    else
        rc = await_read(f, &m);
    pthread_mutex_lock(&f->lock);
    f->busy = false;
    f->dropped += drops;
    f->asked += whole;
    f->error = f->error ? f->error : rc;
    while (f->loaded < f->asked && !f->pending[f->loaded])
        f->loaded++;
    f->fetching = f->fetching && (f->next_wanted < f->n_wanted || f->pending[f->l.n_layers] ||
                                  (f->now.n && f->now.turn == f->l.n_layers));
    ntx__kv_file_count(f, &m);
    pthread_cond_broadcast(&f->changed);
}

void *ntx__kv_file_work(void *arg)
{
    struct ntx_kv_file *f = arg;
    pthread_mutex_lock(&f->lock);
    while (!f->stop || ntx__kv_file_flying(f))
        if (may_drop(f) || may_read(f) || ntx__kv_file_flying(f))
            run_step(f);
        else
            pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
    return NULL;
}
