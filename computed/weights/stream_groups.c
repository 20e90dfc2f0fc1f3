/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of a packed model's neurons on demand (--ffn-sparse). A layer's groups that are not resident have places in a
 * window, in the order of the file, so that any run of them can come in one read. Layer l uses window l % n_windows;
 * there are two windows, or one where nothing is prefetched.
 *
 *   layer's tensor   | resident chunks | groups on demand ...            |
 *   window                             | their places, in the same order |
 *
 * Wanted groups become one read request, up to READ_MOST bytes, if they are neighbours, or so close that reading the
 * gap costs less than another read (read_gap). A window passes to another layer only when none of its reads is under
 * way or quarantined. So the death of iod needs nothing here: its reads are posted again for the same place
 * (stream_death.c), and its late DMA finds the same bytes there.
 *
 * Groups that the next layer is predicted to use are read into its window after those that this layer wants
 * (--prefetch). When that layer asks, only missing ones are requested; the others were read in vain. Which groups are
 * computed does not depend on it.
 *
 * All of this runs on the engine thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/weights/stream_impl.h"

#define READ_MOST (512u << 10)
#define NO_LAYER  UINT32_MAX

/* State of a group in its window: a request's number, or */
#define ABSENT    UINT32_MAX
#define CACHED    (UINT32_MAX - 1)

struct read { /* what a request reads; n 0: nothing */
    uint32_t window, first, n;
    bool done; /* its bytes are there, but a dead iod may still write them */
};

struct list {                          /* groups of a layer, counted from its first on demand; ascending */
    uint32_t layer, *group, n, posted; /* those before `posted` are in memory, or posted */
};

struct ntx__groups {
    const struct ntx_chunks *chunks;
    uint64_t at, window_bytes, gap;
    uint32_t n_windows, most; /* most: groups of a window */
    uint32_t *layer;          /* [n_windows] the layer whose groups it has */
    uint32_t *state;          /* [n_windows x most], by group from the layer's first on demand */
    struct read *reads;       /* [n_reads] */
    uint32_t n_reads, n_free, next;
    struct list wanted;    /* by the layer that is computed */
    struct list predicted; /* for the next one */
    bool *is_predicted;    /* [most] of predicted.layer */
};

static struct ntx_demand *demand_of(struct ntx_stream *s, uint32_t i)
{
    return &s->r->demand[s->r->hdr->n_demands + i];
}
static struct ntx_read_request *request_of(struct ntx_stream *s, uint32_t i)
{
    return &s->r->request[s->r->hdr->n_demands + i];
}

/* ---- a layer's part on demand */

static const struct ntx_weight *groups_of(const struct ntx__groups *x, uint32_t layer)
{
    return ntx_read_groups(&x->chunks->layers[layer]);
}

static uint32_t first_on_demand(const struct ntx_stream *s, uint32_t layer)
{
    const struct ntx_weight *w = groups_of(s->groups, layer);
    uint32_t c = 0;
    while (c < w->n_chunks && s->r->chunks[w->chunk0 + c].placement != NTX_PLACE_FRAME)
        c++;
    return NTX_MIN(c * w->chunk_outs, w->n_out);
}

static uint32_t *states(const struct ntx__groups *x, uint32_t window) { return x->state + (size_t)window * x->most; }

static uint64_t place_of(const struct ntx__groups *x, uint32_t layer, uint32_t group)
{
    return x->at + layer % x->n_windows * x->window_bytes + (uint64_t)group * groups_of(x, layer)->row_bytes;
}

/* ---- finished reads */

static void set_states(struct ntx__groups *x, const struct read *r, uint32_t state)
{
    for (uint32_t g = r->first; g < r->first + r->n; g++)
        states(x, r->window)[g] = state;
}

static uint32_t number_of(const struct ntx_stream *s, uint32_t i) { return s->r->hdr->n_demands + i; }

static void free_read(struct ntx_stream *s, uint32_t i)
{
    ntx__own_free_demand(s, number_of(s, i));
    s->groups->reads[i].n = 0;
    s->groups->n_free++;
}

static void settle_read(struct ntx_stream *s, uint32_t i)
{
    struct ntx__groups *x = s->groups;
    struct ntx_demand *d = demand_of(s, i);
    uint32_t w = atomic_load_explicit(&d->word, memory_order_acquire);
    enum ntx_state st = ntx__demand_state(w);
    if (!ntx__settled(w, ntx__own_gen(s, number_of(s, i))))
        return;
    if (!x->reads[i].done)
        set_states(x, &x->reads[i], st == NTX_READY ? CACHED : ABSENT);
    x->reads[i].done = true;
    if (!atomic_load_explicit(&request_of(s, i)->quarantined, memory_order_acquire))
        free_read(s, i);
}

/* Waits until no read into the window is under way; withdraws those that iod has not begun. */
static int empty_window(struct ntx_stream *s, uint32_t window)
{
    struct ntx__groups *x = s->groups;
    struct ntx_patience patience = ntx_patience(s->limit_ns);
    for (uint32_t i = 0; i < x->n_reads; i++) {
        struct ntx_demand *d = demand_of(s, i);
        struct ntx_read_request *a = request_of(s, i);
        while (x->reads[i].n && x->reads[i].window == window) {
            uint32_t w = atomic_load_explicit(&d->word, memory_order_acquire);
            bool quarantined = atomic_load_explicit(&a->quarantined, memory_order_acquire);
            if (ntx_word_state(w) == NTX_POSTED && !quarantined) {
                if (ntx__own_take_back(s, number_of(s, i))) {
                    set_states(x, &x->reads[i],
                               ABSENT); /* the window stays this layer's if the pass fails before all have ended */
                    x->reads[i].n = 0;
                    x->n_free++;
                }
                continue;
            }
            settle_read(s, i);
            if (!x->reads[i].n)
                break;
            bool done = x->reads[i].done;
            int rc = ntx__stream_pause(s, done ? &a->quarantined : &d->word, done ? 1 : w, &patience,
                                       "the end of a read for layer", x->layer[window]);
            if (rc)
                return rc;
        }
    }
    memset(states(x, window), 0xff, x->most * sizeof *x->state); /* ABSENT */
    x->layer[window] = NO_LAYER;
    return 0;
}

/* ---- requests */

static uint32_t free_demand(struct ntx__groups *x)
{
    uint32_t i = x->next;
    while (x->reads[i].n)
        i = (i + 1) % x->n_reads;
    x->next = (i + 1) % x->n_reads; /* so they are read in the order of posting */
    x->n_free--;
    return i;
}

static void post_read(struct ntx_stream *s, uint32_t layer, uint32_t first, uint32_t n)
{
    struct ntx__groups *x = s->groups;
    const struct ntx_weight *w = groups_of(x, layer);
    const struct ntx_chunk *c = &x->chunks->list[w->chunk0];
    uint32_t i = free_demand(x), each = w->row_bytes;
    struct ntx_read_request *a = request_of(s, i);
    x->reads[i] = (struct read){.window = layer % x->n_windows, .first = first, .n = n};
    set_states(x, &x->reads[i], i);
    a->file = c->file;
    a->offset = c->offset + (uint64_t)(first + first_on_demand(s, layer)) * each;
    a->bytes = n * each;
    a->dest = place_of(x, layer, first);
    atomic_store_explicit(&a->early, NTX_DEMAND_READ, memory_order_relaxed);
    ntx__own_post(s, number_of(s, i));
}

/* Length of the run from the k-th group: the next ones in the list, across short gaps. *next: the first one not in
 * it. */
static uint32_t run_from(const struct ntx__groups *x, const struct list *l, uint32_t k, uint32_t *next,
                         uint64_t *between)
{
    const uint32_t *state = states(x, l->layer % x->n_windows);
    uint32_t each = groups_of(x, l->layer)->row_bytes, first = l->group[k], last = first;
    for (k++; k < l->n; k++) {
        uint32_t g = l->group[k];
        bool near = (uint64_t)(g - last - 1) * each <= x->gap && (uint64_t)(g - first + 1) * each <= READ_MOST;
        for (uint32_t b = last + 1; b <= g && near; b++)
            near = state[b] == ABSENT;
        if (!near)
            break;
        *between += (uint64_t)(g - last - 1) * each;
        last = g;
    }
    *next = k;
    return last - first + 1;
}

/* Posts as many groups of the list as there are free requests, except `reserve` of them. */
static void post_list(struct ntx_stream *s, struct list *l, uint32_t reserve)
{
    struct ntx__groups *x = s->groups;
    uint32_t posted = 0;
    uint64_t between = 0;
    while (l->posted < l->n && x->n_free > reserve) {
        uint32_t first = l->group[l->posted], next = l->posted + 1;
        if (states(x, l->layer % x->n_windows)[first] == ABSENT) {
            post_read(s, l->layer, first, run_from(x, l, l->posted, &next, &between));
            posted++;
        }
        l->posted = next;
    }
    ntx_count(s->counters, NTX_C_comp_ffn_between, between);
    if (!posted)
        return;
    atomic_fetch_add_explicit(&s->r->control->demand_posted, posted, memory_order_seq_cst);
    ntx__stream_wake(s);
}

static void post_wanted(struct ntx_stream *s) { post_list(s, &s->groups->wanted, 0); }

/* Gives the layer its window, and fills the list with its groups that are not resident. */
static int take_list(struct ntx_stream *s, struct list *l, uint32_t layer, const uint32_t *groups, uint32_t n)
{
    struct ntx__groups *x = s->groups;
    uint32_t window = layer % x->n_windows, first = first_on_demand(s, layer);
    int rc = x->layer[window] == layer ? 0 : empty_window(s, window);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < x->n_reads; i++) /* reads that have ended since, also those of a failed pass */
        if (x->reads[i].n)
            settle_read(s, i);
    x->layer[window] = l->layer = layer;
    l->n = l->posted = 0;
    for (uint32_t i = 0; i < n; i++)
        if (groups[i] >= first)
            l->group[l->n++] = groups[i] - first;
    return 0;
}

/* Counts how good the prediction for this layer was. */
static void count_predicted(struct ntx_stream *s)
{
    struct ntx__groups *x = s->groups;
    uint32_t right = 0;
    if (x->predicted.layer != x->wanted.layer)
        return;
    for (uint32_t i = 0; i < x->wanted.n; i++)
        right += x->is_predicted[x->wanted.group[i]];
    ntx_count(s->counters, NTX_C_comp_ffn_predicted, x->predicted.n);
    ntx_count(s->counters, NTX_C_comp_ffn_predicted_wanted, x->wanted.n);
    ntx_count(s->counters, NTX_C_comp_ffn_predicted_right, right);
    x->predicted.layer = NO_LAYER;
}

int ntx__stream_want_groups(struct ntx_weights *w, uint32_t layer, const uint32_t *groups, uint32_t n)
{
    struct ntx_stream *s = (struct ntx_stream *)w;
    if (!s->groups)
        return 0; /* all of them are resident */
    int rc = take_list(s, &s->groups->wanted, layer, groups, n);
    if (rc)
        return rc;
    count_predicted(s);
    post_wanted(s);
    return 0;
}

int ntx__stream_prefetch_groups(struct ntx_weights *w, uint32_t layer, const uint32_t *groups, uint32_t n)
{
    struct ntx_stream *s = (struct ntx_stream *)w;
    struct ntx__groups *x = s->groups;
    if (!x || x->wanted.posted < x->wanted.n || layer % x->n_windows == x->wanted.layer % x->n_windows)
        return 0;
    int rc = take_list(s, &x->predicted, layer, groups, n);
    if (rc)
        return rc;
    memset(x->is_predicted, 0, x->most * sizeof *x->is_predicted);
    for (uint32_t i = 0; i < x->predicted.n; i++)
        x->is_predicted[x->predicted.group[i]] = true;
    post_list(s, &x->predicted, x->n_reads / 4);
    return 0;
}

/* ---- acquire */

static int wait_read(struct ntx_stream *s, uint32_t i)
{
    struct ntx_demand *d = demand_of(s, i);
    const struct ntx_read_request *a = request_of(s, i);
    uint32_t word = 0;
    int rc = ntx__stream_wait(s, &d->word, ntx__own_gen(s, number_of(s, i)), NTX_WAIT_NEURONS, a->offset, &word);
    if (rc)
        return rc;
    bool shifted = d->shift != 0;
    int err = ntx__iod_errno(d->err);
    uint32_t file = a->file, bytes = a->bytes;
    uint64_t offset = a->offset;
    settle_read(s, i);
    post_wanted(s);
    if (ntx__demand_state(word) == NTX_FAILED)
        return ntx__stream_fail_read(s, NTX__NO_CHUNK, file, offset, bytes, err);
    return shifted ? ntx__stream_fail(s, -EPROTO, "ntx-iod delivered groups of neurons between blocks, which cannot be")
                   : 0;
}

/* All requests are taken, none by a group before this one: by reads for another layer, or by a quarantine. */
static int wait_any(struct ntx_stream *s)
{
    struct ntx__groups *x = s->groups;
    for (uint32_t i = 0; i < x->n_reads; i++)
        if (x->reads[i].n && !x->reads[i].done)
            return wait_read(s, i);
    struct ntx_patience patience = ntx_patience(s->limit_ns);
    while (!x->n_free) {
        int rc = ntx__stream_pause(s, &request_of(s, 0)->quarantined, 1, &patience, "a free demand for layer",
                                   x->wanted.layer);
        if (rc)
            return rc;
        for (uint32_t i = 0; i < x->n_reads; i++)
            settle_read(s, i);
    }
    post_wanted(s);
    return 0;
}

static int wait_group(struct ntx_stream *s, uint32_t window, uint32_t group)
{
    uint32_t *state = &states(s->groups, window)[group];
    int rc = 0;
    while (!rc && *state != CACHED)
        rc = *state == ABSENT ? wait_any(s) : wait_read(s, *state);
    return rc;
}

int ntx__stream_acquire_groups(struct ntx_stream *s, uint32_t chunk, const struct ntx_plan_chunk *c, const void **bytes)
{
    struct ntx__groups *x = s->groups;
    const struct ntx_chunk *k = &x->chunks->list[chunk];
    if (x->wanted.layer != c->layer)
        return ntx__stream_fail(s, -EINVAL, "chunk %u is of layer %u, whose groups nobody has asked for", chunk,
                                c->layer);
    uint32_t first = k->out0 - first_on_demand(s, c->layer);
    int rc = 0;
    for (uint32_t i = 0; i < x->wanted.n && !rc && x->wanted.group[i] < first + k->n_out; i++)
        if (x->wanted.group[i] >= first)
            rc = wait_group(s, c->layer % x->n_windows, x->wanted.group[i]);
    if (!rc)
        *bytes = s->r->base + place_of(x, c->layer, first);
    return rc;
}

/* ---- making */

int ntx__groups_new(struct ntx_stream *s, const struct ntx_stream_config *c, struct ntx__groups **out)
{
    struct ntx__groups *x = calloc(1, sizeof *x);
    uint32_t n = s->r->hdr->n_bundle_demands;
    if (!x)
        return -ENOMEM;
    *x = (struct ntx__groups){.chunks = c->chunks,
                              .at = c->windows_at,
                              .window_bytes = c->window_bytes,
                              .gap = c->read_gap,
                              .n_windows = c->n_windows,
                              .n_reads = n,
                              .n_free = n,
                              .wanted.layer = NO_LAYER,
                              .predicted.layer = NO_LAYER};
    for (uint32_t l = 0; l < c->chunks->n_layers; l++)
        x->most = NTX_MAX(x->most, c->chunks->layers[l].pack.n_groups);
    x->layer = malloc(x->n_windows * sizeof *x->layer);
    x->state = malloc((size_t)x->n_windows * x->most * sizeof *x->state);
    x->wanted.group = calloc(x->most, sizeof *x->wanted.group);
    x->predicted.group = calloc(x->most, sizeof *x->predicted.group);
    x->is_predicted = calloc(x->most, sizeof *x->is_predicted);
    x->reads = calloc(n + 1, sizeof *x->reads);
    if (!x->layer || !x->state || !x->wanted.group || !x->predicted.group || !x->is_predicted || !x->reads || !n) {
        ntx__groups_free(x);
        return -ENOMEM;
    }
    memset(x->layer, 0xff, x->n_windows * sizeof *x->layer);
    memset(x->state, 0xff, (size_t)x->n_windows * x->most * sizeof *x->state);
    *out = x;
    return 0;
}

void ntx__groups_free(struct ntx__groups *x)
{
    if (!x)
        return;
    free(x->layer);
    free(x->state);
    free(x->wanted.group);
    free(x->predicted.group);
    free(x->is_predicted);
    free(x->reads);
    free(x);
}
