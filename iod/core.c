/* SPDX-License-Identifier: Apache-2.0 */
#include "iod/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "iod/core_impl.h"

#define RATE_WINDOW (32u << 20)

void ntx__iod_set_word(struct ntx_iod_core *c, _Atomic uint32_t *word, uint32_t gen, enum ntx_state s)
{
    /* Release: a thread that sees the state also sees the fields beside the word, and the bytes. */
    atomic_store_explicit(word, ntx_word(gen, s), memory_order_release);
    c->hooks.state(c->hooks.ctx, word, s);
}

/* Pieces are equal: a last piece of one block would cost as much as a whole one. */
void ntx__iod_job_range(const struct ntx_iod_core *c, struct ntx__job *j, uint32_t file, uint64_t offset,
                        uint64_t bytes, uint64_t dest)
{
    const uint64_t block = c->r->hdr->block;
    j->file = file;
    j->start = NTX_ROUND_DOWN(offset, block);
    j->end = NTX_ROUND_UP(offset + bytes, block);
    j->shift = (uint32_t)(offset - j->start);
    j->dest = dest;
    uint64_t len = j->end - j->start, n = (len + c->piece_bytes - 1) / c->piece_bytes;
    uint64_t piece = NTX_ROUND_UP((len + n - 1) / n, block);
    j->piece_bytes = (uint32_t)piece;
    j->n_pieces = (uint32_t)((len + piece - 1) / piece);
}

static struct ntx_iod_read piece_of(const struct ntx_iod_core *c, const struct ntx__job *j, uint32_t piece,
                                    uint32_t tries)
{
    uint64_t offset = j->start + (uint64_t)piece * j->piece_bytes, size = c->r->hdr->file_bytes[j->file];
    uint64_t len = NTX_MIN(j->piece_bytes, j->end - offset);
    return (struct ntx_iod_read){
        .tag = (uint64_t)j->kind << 62 | (uint64_t)tries << 60 | (uint64_t)j->index << 38 |
               (uint64_t)(j->gen & 0x3fffff) << 16 | piece,
        .offset = offset,
        .dest = j->dest + (offset - j->start),
        .len = (uint32_t)len,
        .expect = (uint32_t)NTX_MIN(len, size - offset),
        .file = j->file,
        .chunk = j->chunk,
    };
}

static struct ntx__job *find_job(struct ntx_iod_core *c, uint64_t tag)
{
    for (unsigned i = 0; i < NTX__MAX_JOBS; i++) {
        struct ntx__job *j = &c->jobs[i];
        if (j->used && j->kind == ntx_iod_tag_kind(tag) && j->index == ntx_iod_tag_index(tag))
            return j;
    }
    return NULL;
}

/* Its state is in `demand`. */
static bool is_request(const struct ntx__job *j) { return j->kind == NTX_IOD_FRAME || j->kind == NTX_IOD_STAGE; }

/* A free job always exists: see NTX__MAX_JOBS. */
static struct ntx__job *begin_job(struct ntx_iod_core *c, const struct ntx__job *from, uint64_t now)
{
    struct ntx__job *j = c->jobs;
    while (j->used)
        j++;
    *j = *from;
    j->used = true;
    j->began = now;
    if (j->kind == NTX_IOD_SLOT) {
        struct ntx_desc *d = j->desc;
        d->slot = j->index;
        d->chunk = j->chunk;
        d->sched = j->sched;
        d->pass = j->pass;
        d->shift = j->shift;
        d->err = 0;
        d->t_issue = now;
        d->t_ready = 0;
    } else if (is_request(j)) {
        c->r->demand[j->index].shift = j->shift;
        c->r->demand[j->index].err = 0;
    }
    if (!is_request(j)) /* requests were claimed before */
        ntx__iod_set_word(c, j->word, j->gen, NTX_FILLING);
    return j;
}

static void trace_read(struct ntx_iod_core *c, const struct ntx__job *j, uint64_t now)
{
    static const enum ntx_trace_to to[] = {[NTX_IOD_SLOT] = NTX_TR_TO_SLOT,
                                           [NTX_IOD_FRAME] = NTX_TR_TO_FRAME,
                                           [NTX_IOD_CHUNK] = NTX_TR_TO_ARENA,
                                           [NTX_IOD_STAGE] = NTX_TR_TO_STAGE};
    ntx_traced(c->counters, NTX_TRACE_IOD, NTX_TR_READ, j->began, now, j->index, j->chunk | (uint64_t)to[j->kind] << 32,
               NTX_MIN((uint64_t)j->next * j->piece_bytes, j->end - j->start));
}

/* All pieces are done. */
static void finish_job(struct ntx_iod_core *c, struct ntx__job *j, uint64_t now)
{
    uint32_t gen = j->gen;
    if (j->kind == NTX_IOD_SLOT) {
        j->desc->err = j->err;
        j->desc->t_ready = now;
    } else if (is_request(j)) {
        c->r->demand[j->index].err = j->err;
        c->r->demand[j->index].got = j->got;
    } else if (j->err) {
        gen = (uint32_t)-j->err;
    }
    if (j->err && !j->cancelled) {
        struct ntx_iod_failure f = {
            .chunk = j->chunk, .file = j->file, .offset = j->err_offset, .bytes = j->err_bytes, .err = j->err};
        ntx_count(c->counters, NTX_C_iod_errors, 1);
        c->hooks.failed(c->hooks.ctx, &f);
    }
    trace_read(c, j, now);
    j->used = false;
    if (c->cur_demand == j)
        c->cur_demand = NULL;
    if (c->cur_bulk == j)
        c->cur_bulk = NULL;
    if (c->cur_early == j)
        c->cur_early = NULL;
    if (c->cur_stage == j)
        c->cur_stage = NULL;
    ntx__iod_set_word(c, j->word, gen, j->err ? NTX_FAILED : NTX_READY);
}

static bool fits_limit(const struct ntx_iod_core *c, uint32_t len, uint32_t times)
{
    return !c->inflight_reads || c->inflight_bytes + len <= times * c->limit_bytes;
}

/* A demand waits behind the reads in flight. So in models with bundles the ring gets only as many reads as keep the
 * drive busy. */
static bool ring_full(const struct ntx_iod_core *c)
{
    return c->r->hdr->n_bundle_demands && c->ring_reads >= NTX_IOD_RING_READS;
}

/* No layer waits for it yet. */
static bool is_early(const struct ntx_iod_core *c, const struct ntx__job *j)
{
    return j->kind == NTX_IOD_FRAME && ntx__iod_is_early(c, j->index);
}

static void issue_read(struct ntx_iod_core *c, struct ntx__job *j, const struct ntx_iod_read *rd, uint64_t now)
{
    bool early = is_early(c, j);
    j->early += early;
    c->early_reads += early;
    c->ring_reads += j->kind == NTX_IOD_SLOT;
    c->stage_reads += j->kind == NTX_IOD_STAGE;
    c->beside = j->kind == NTX_IOD_STAGE ? 0 : c->beside + rd->len;
    if (!c->inflight_reads++)
        c->busy_since = now;
    c->inflight_bytes += rd->len;
    j->inflight++;
    ntx_gauge(c->counters, NTX_C_iod_inflight, c->inflight_bytes);
}

enum step { STEP_NONE, STEP_FULL, STEP_READ };

static enum step next_retry(struct ntx_iod_core *c, uint64_t now, struct ntx_iod_read *out)
{
    if (!c->n_retry)
        return STEP_NONE;
    uint64_t tag = c->retry[0];
    struct ntx__job *j = find_job(c, tag);
    struct ntx_iod_read rd = piece_of(c, j, ntx_iod_tag_piece(tag), ntx_iod_tag_tries(tag));
    if (!fits_limit(c, rd.len, 1))
        return STEP_FULL;
    memmove(c->retry, c->retry + 1, --c->n_retry * sizeof(c->retry[0]));
    j->retries--;
    issue_read(c, j, &rd, now);
    *out = rd;
    return STEP_READ;
}

/* A part of a bundle that a layer waits for: the layer needs all parts before anything else. */
static bool is_wanted_bundle(const struct ntx_iod_core *c, const struct ntx__job *j)
{
    return j->kind == NTX_IOD_FRAME && j->index >= c->r->hdr->n_demands && !is_early(c, j);
}

/* The next piece of *cur, the class's current job. */
static enum step next_piece(struct ntx_iod_core *c, struct ntx__job **cur, uint64_t now, struct ntx_iod_read *out)
{
    struct ntx__job *j = *cur;
    struct ntx_iod_read rd = piece_of(c, j, j->next, 0);
    if (!fits_limit(c, rd.len, is_wanted_bundle(c, j) ? NTX_IOD_DEEPER : 1))
        return STEP_FULL;
    if (++j->next == j->n_pieces)
        *cur = NULL;
    issue_read(c, j, &rd, now);
    *out = rd;
    return STEP_READ;
}

static enum step next_demand(struct ntx_iod_core *c, uint64_t now, struct ntx_iod_read *out)
{
    struct ntx__job j;
    if (!c->cur_demand && !ntx__iod_pick_demand(c, &c->demands, &j))
        return STEP_NONE;
    if (!c->cur_demand)
        /* may precede room for its first piece: computed does not cancel demand reads */
        c->cur_demand = begin_job(c, &j, now);
    return next_piece(c, &c->cur_demand, now, out);
}

static void forget_retries(struct ntx_iod_core *c, struct ntx__job *j)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->n_retry; i++)
        if (find_job(c, c->retry[i]) != j)
            c->retry[kept++] = c->retry[i];
    c->n_retry = kept;
    j->retries = 0;
}

/* A cancelled prefetch, or read of the stage, with pieces that are not issued yet. */
static bool is_cancelled(const struct ntx_iod_core *c, const struct ntx__job *j)
{
    return is_request(j) && j->next < j->n_pieces &&
           atomic_load_explicit(&c->r->request[j->index].early, memory_order_relaxed) == NTX_CANCELLED;
}

/* The job ends with its last read in flight. */
static void drop_job(struct ntx_iod_core *c, struct ntx__job *j, uint64_t now)
{
    forget_retries(c, j);
    j->err = -ECANCELED;
    j->cancelled = true;
    if (c->cur_early == j)
        c->cur_early = NULL;
    if (c->cur_stage == j)
        c->cur_stage = NULL;
    if (!j->inflight)
        finish_job(c, j, now);
}

/* A layer now waits for the job that began as a prefetch. */
static bool early_is_awaited(const struct ntx_iod_core *c) { return c->cur_early && !is_early(c, c->cur_early); }

/* A prefetch is claimed only when its first piece may go. So a new demand waits behind few reads, and computed can
 * cancel the other prefetches. */
static enum step next_early(struct ntx_iod_core *c, uint64_t now, struct ntx_iod_read *out)
{
    struct ntx__job j;
    if (c->cur_early && is_cancelled(c, c->cur_early))
        drop_job(c, c->cur_early, now);
    if (c->early_reads >= NTX_IOD_EARLY_READS || !fits_limit(c, c->piece_bytes, 1))
        return STEP_FULL;
    if (!c->cur_early && !ntx__iod_pick_demand(c, &c->early, &j))
        return STEP_NONE;
    if (!c->cur_early)
        c->cur_early = begin_job(c, &j, now);
    return next_piece(c, &c->cur_early, now, out);
}

/* The stage's reads are claimed as late as prefetches are. */
static enum step next_stage(struct ntx_iod_core *c, uint64_t now, struct ntx_iod_read *out)
{
    struct ntx__job j;
    if (c->cur_stage && is_cancelled(c, c->cur_stage))
        drop_job(c, c->cur_stage, now);
    if (c->stage_reads >= NTX_IOD_STAGE_READS || !fits_limit(c, c->piece_bytes, 1))
        return STEP_FULL;
    if (!c->cur_stage && !ntx__iod_pick_demand(c, &c->stage, &j))
        return STEP_NONE;
    if (!c->cur_stage)
        c->cur_stage = begin_job(c, &j, now);
    return next_piece(c, &c->cur_stage, now, out);
}

/* The share of the stage while others always want something. */
static bool stage_is_owed(const struct ntx_iod_core *c)
{
    return c->stage.n && c->beside >= (uint64_t)NTX_IOD_STAGE_SHARE * c->piece_bytes;
}

/* Schedule and arena. A job begins only when its first piece fits: until then a drop map can still avoid the read. */
static enum step next_bulk(struct ntx_iod_core *c, uint64_t now, struct ntx_iod_read *out)
{
    if (!c->cur_bulk) {
        struct ntx__job j;
        if (!ntx__iod_pick_bulk(c, now, &j))
            return STEP_NONE;
        if (!fits_limit(c, piece_of(c, &j, 0, 0).len, 1) || (j.kind == NTX_IOD_SLOT && ring_full(c)))
            return STEP_FULL;
        c->cur_bulk = begin_job(c, &j, now);
    }
    return next_piece(c, &c->cur_bulk, now, out);
}

int ntx_iod_core_next(struct ntx_iod_core *c, uint64_t now, struct ntx_iod_read *out)
{
    c->idle = false;
    if (c->inflight_reads == NTX_IOD_MAX_READS) /* retries wait as well: they go before all else */
        return 0;
    if (atomic_load_explicit(&c->r->control->stop, memory_order_acquire)) {
        c->idle = true;
        return 0;
    }
    enum step s = next_retry(c, now, out);
    if (s == STEP_NONE && stage_is_owed(c) && next_stage(c, now, out) == STEP_READ)
        s = STEP_READ;
    if (s == STEP_NONE && early_is_awaited(c))
        s = next_piece(c, &c->cur_early, now, out);
    if (s == STEP_NONE)
        s = next_demand(c, now, out);
    if (s == STEP_NONE)
        s = next_bulk(c, now, out);
    if (s == STEP_NONE)
        s = next_early(c, now, out);
    if (s == STEP_NONE)
        s = next_stage(c, now, out);
    c->idle = s == STEP_NONE;
    return s == STEP_READ;
}

static void set_asleep(struct ntx_iod_core *c, bool asleep)
{
    if (c->asleep == asleep)
        return;
    c->asleep = asleep;
    /* seq_cst, as are the loads of the words that follow (core_pick.c). It pairs with computed, which stores a word
     * (FREE, POSTED) and then loads iod_asleep, both seq_cst: either we see its store, or it sees that we sleep and
     * writes the eventfd. */
    atomic_store_explicit(&c->r->ring->iod_asleep, asleep, memory_order_seq_cst);
}

int ntx_iod_core_next_read(struct ntx_iod_core *c, uint64_t now, struct ntx_iod_read *out)
{
    int got = ntx_iod_core_next(c, now, out);
    if (!got && c->idle && !c->asleep) {
        set_asleep(c, true);
        got = ntx_iod_core_next(c, now, out); /* finds work that came before computed saw iod_asleep */
    }
    if (!c->idle)
        set_asleep(c, false); /* reads are in flight: a result will wake us */
    return got;
}

static void count_read(struct ntx_iod_core *c, const struct ntx__job *j, uint32_t bytes)
{
    static const enum ntx_counter by_kind[] = {[NTX_IOD_SLOT] = NTX_C_iod_bytes_stream,
                                               [NTX_IOD_FRAME] = NTX_C_iod_bytes_demand,
                                               [NTX_IOD_CHUNK] = NTX_C_iod_bytes_host,
                                               [NTX_IOD_STAGE] = NTX_C_iod_bytes_projector};
    ntx_count(c->counters, NTX_C_iod_bytes_read, bytes);
    ntx_count(c->counters, by_kind[j->kind], bytes);
    if (is_early(c, j))
        ntx_count(c->counters, NTX_C_iod_bytes_early, bytes);
}

/* Best rate over a window, for monitors: the drive's ceiling as far as it was seen. */
static void watch_rate(struct ntx_iod_core *c, uint64_t bytes, uint64_t ns)
{
    c->window_bytes += bytes;
    c->window_ns += ns;
    if (c->window_bytes < RATE_WINDOW || !c->window_ns)
        return;
    uint64_t bps = (uint64_t)((double)c->window_bytes * 1e9 / (double)c->window_ns);
    if (bps > ntx_counter_get(c->counters, NTX_C_iod_best_bps))
        ntx_gauge(c->counters, NTX_C_iod_best_bps, bps);
    c->window_bytes = c->window_ns = 0;
}

static void piece_failed(struct ntx_iod_core *c, struct ntx__job *j, const struct ntx_iod_read *rd, int32_t result)
{
    uint32_t tries = ntx_iod_tag_tries(rd->tag) + 1;
    if (!j->err && tries < NTX_IOD_TRIES) {
        struct ntx_iod_read again = piece_of(c, j, ntx_iod_tag_piece(rd->tag), tries);
        c->retry[c->n_retry++] = again.tag;
        j->retries++;
        ntx_count(c->counters, NTX_C_iod_retries, 1);
    } else if (!j->err) {
        j->err = result < 0 ? result : -ENODATA;
        j->err_offset = rd->offset;
        j->err_bytes = rd->len;
        forget_retries(c, j);
    }
}

bool ntx_iod_core_done(struct ntx_iod_core *c, uint64_t now, uint64_t tag, int32_t result, struct ntx_iod_read *rd)
{
    struct ntx__job *j = find_job(c, tag);
    if (!j || !j->inflight || ntx_iod_tag_piece(tag) >= j->next)
        return false; /* unknown tag: no source returns one */
    struct ntx_iod_read piece = piece_of(c, j, ntx_iod_tag_piece(tag), ntx_iod_tag_tries(tag));
    bool good = result >= 0 && (uint32_t)result >= piece.expect;
    j->inflight--;
    c->early_reads -= j->early > 0;
    j->early -= j->early > 0;
    c->inflight_reads--;
    c->ring_reads -= j->kind == NTX_IOD_SLOT;
    c->stage_reads -= j->kind == NTX_IOD_STAGE;
    c->inflight_bytes -= piece.len;
    ntx_gauge(c->counters, NTX_C_iod_inflight, c->inflight_bytes);
    ntx_count(c->counters, NTX_C_iod_reads, 1);
    ntx_count(c->counters, NTX_C_iod_busy_ns, now - c->busy_since);
    watch_rate(c, good ? (uint32_t)result : 0, now - c->busy_since);
    c->busy_since = now;
    if (good) {
        count_read(c, j, (uint32_t)result);
        j->got += (uint32_t)result;
        *rd = piece;
    } else {
        piece_failed(c, j, &piece, result);
    }
    if (!j->err && is_cancelled(c, j))
        drop_job(c, j, now);
    else if (!j->inflight && !j->retries && (j->err || j->next == j->n_pieces))
        finish_job(c, j, now);
    return good;
}

bool ntx_iod_core_idle(const struct ntx_iod_core *c) { return c->idle; }
uint64_t ntx_iod_core_inflight(const struct ntx_iod_core *c) { return c->inflight_bytes; }

void ntx_iod_core_hint(struct ntx_iod_core *c, uint64_t pass, const uint8_t *skip, size_t n)
{
    struct ntx__hint *h = &c->hints[pass % NTX_PASS_MAPS];
    h->pass = pass;
    memset(h->skip, 0, sizeof(h->skip));
    for (size_t i = 0; i < NTX_MIN(n, sizeof(h->skip)); i++)
        h->skip[i / 8] |= (uint64_t)skip[i] << (i % 8 * 8);
}

/* ntx_region_attach has validated the plan. A tag's index field limits the counts. */
static int check_tags(const struct ntx_region_hdr *h, struct ntx_err *err)
{
    if (NTX_MAX(h->n_chunks, NTX_MAX(h->n_slots, ntx_region_all_demands(h))) >> 22)
        return ntx_err_set(err, -E2BIG, "region: %u chunks, %u slots, %u demands: at most 4194303 of each can be read",
                           h->n_chunks, h->n_slots, ntx_region_all_demands(h));
    return 0;
}

int ntx_iod_core_new(const struct ntx_region *r, struct ntx_counters *counters, const struct ntx_iod_limits *limits,
                     const struct ntx_iod_hooks *hooks, struct ntx_iod_core **out, struct ntx_err *err)
{
    int rc = check_tags(r->hdr, err);
    if (rc)
        return rc;
    struct ntx_iod_core *c = calloc(1, sizeof(*c));
    uint8_t *held = calloc(r->hdr->n_slots + 1, 1);
    if (!c || !held) {
        free(c);
        free(held);
        return ntx_err_set(err, -ENOMEM, "no memory for the reading state");
    }
    uint64_t piece = limits->piece_bytes ? limits->piece_bytes : 512u << 10;
    c->r = r;
    c->counters = counters;
    c->hooks = *hooks;
    c->held = held;
    c->limit_bytes = limits->inflight_bytes ? limits->inflight_bytes : 4u << 20;
    c->piece_bytes = (uint32_t)NTX_MIN(NTX_ROUND_UP(NTX_MAX(piece, 65536), r->hdr->block), 1u << 30);
    c->demands = c->early = (struct ntx__scan){.n = ntx_region_first_stage(r->hdr), .wanted = true};
    c->stage = (struct ntx__scan){
        .first = ntx_region_first_stage(r->hdr), .n = r->hdr->n_stage_reads, .wanted = r->hdr->n_stage_reads > 0};
    c->cursor = r->hdr->n_sched && r->hdr->n_desc ? ntx__iod_find_cursor(r) : 0;
    for (unsigned i = 0; i < NTX_PASS_MAPS; i++)
        c->hints[i].pass = UINT64_MAX;
    *out = c;
    return 0;
}

void ntx_iod_core_free(struct ntx_iod_core *c)
{
    if (!c)
        return;
    free(c->held);
    free(c);
}
