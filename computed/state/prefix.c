/* SPDX-License-Identifier: Apache-2.0 */
/* prefix.c: a node is found by the number of its block, so none is ever allocated. Siblings are a list, since few texts
 * diverge at one place. */
#include "computed/state/prefix.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"

#define NONE UINT32_MAX

struct node {
    uint64_t scope;
    uint32_t parent, child, next;     /* block numbers; parent NONE: the root */
    uint32_t depth;                   /* blocks before it */
    uint32_t n;                       /* tokens in it; 0: the block is no node */
    double worth;                     /* the clock at its last use, plus its cost */
    uint64_t wanted;                  /* number of its last use */
    struct ntx_kv_snapshot *snapshot; /* at its end, or NULL */
    double snapshot_clock;            /* the clock at the snapshot's last use */
    bool pinned;                      /* evicted last */
    /* parts: a text diverged here and found no snapshot, so the next one leaves one. parted: one was left. */
    bool parts, parted;
    int32_t ids[NTX_KV_BLOCK];
};

struct ntx_prefix {
    struct ntx_prefix_config c;
    struct node *node; /* [blocks of the pool] */
    uint32_t first;    /* the first node at the root */
    uint32_t n_kept;
    double clock, snapshot_clock; /* the most that anything evicted was worth */
    uint64_t wants;
    uint32_t *path; /* [blocks of the pool] scratch */
    bool snapshots;
    uint32_t held; /* the node whose snapshot is about to be used */
};

uint64_t ntx_prefix_block_bytes(void) { return sizeof(struct node) + sizeof(uint32_t); }
uint32_t ntx_prefix_blocks(const struct ntx_prefix *p) { return p->n_kept; }

/* ---- the tree */

static uint32_t *children_of(struct ntx_prefix *p, uint32_t parent)
{
    return parent == NONE ? &p->first : &p->node[parent].child;
}

/* Nodes of NTX_PREFIX_ALL are for all. */
static bool for_scope(const struct node *x, uint64_t scope) { return x->scope == scope || x->scope == NTX_PREFIX_ALL; }

/* Removes a node without children. */
static void remove_node(struct ntx_prefix *p, uint32_t b)
{
    struct node *x = &p->node[b];
    uint32_t *at = children_of(p, x->parent);
    while (*at != b)
        at = &p->node[*at].next;
    *at = x->next;
    ntx_kv_snapshot_free(x->snapshot);
    x->snapshot = NULL;
    x->n = 0;
    p->n_kept--;
    ntx_kv_unkeep(p->c.pool, b);
}

static bool worth_less(const struct node *a, const struct node *b)
{
    if (a->pinned != b->pinned)
        return b->pinned;
    return a->worth < b->worth || (a->worth <= b->worth && a->wanted < b->wanted);
}

static bool evict_block(void *keeper)
{
    struct ntx_prefix *p = keeper;
    uint32_t least = NONE;
    for (uint32_t b = 0; b < ntx_kv_pool_blocks(p->c.pool); b++)
        if (p->node[b].n && p->node[b].child == NONE && ntx_kv_spare(p->c.pool, b) &&
            (least == NONE || worth_less(&p->node[b], &p->node[least])))
            least = b;
    if (least == NONE)
        return false;
    p->clock = NTX_MAX(p->clock, p->node[least].worth);
    remove_node(p, least);
    return true;
}

static double cost_to(const struct ntx_prefix *p, uint32_t b)
{
    const double blocks = b == NONE ? 0 : p->node[b].depth + p->node[b].n / (double)NTX_KV_BLOCK;
    return blocks * (p->c.block_cost + p->c.token_cost * NTX_KV_BLOCK * blocks / 2);
}

/* Cost of computing again what is behind the snapshot before it. More where texts diverged before, since more will. */
static double snapshot_worth(const struct ntx_prefix *p, uint32_t b)
{
    uint32_t up = p->node[b].parent;
    while (up != NONE && !p->node[up].snapshot)
        up = p->node[up].parent;
    return p->node[b].snapshot_clock + (p->node[b].parted ? 2 : 1) * (cost_to(p, b) - cost_to(p, up));
}

static bool evict_snapshot(void *keeper)
{
    struct ntx_prefix *p = keeper;
    uint32_t least = NONE;
    double worth, least_worth = 0;
    for (uint32_t b = 0; b < ntx_kv_pool_blocks(p->c.pool); b++) {
        if (!p->node[b].n || !p->node[b].snapshot || b == p->held)
            continue;
        worth = snapshot_worth(p, b);
        if (least != NONE && worth >= least_worth)
            continue;
        least = b;
        least_worth = worth;
    }
    if (least == NONE)
        return false;
    p->snapshot_clock = NTX_MAX(p->snapshot_clock, least_worth);
    ntx_kv_snapshot_free(p->node[least].snapshot);
    p->node[least].snapshot = NULL;
    return true;
}

static void note_use(struct ntx_prefix *p, uint32_t b)
{
    p->node[b].worth = p->clock + p->c.block_cost + p->c.token_cost * NTX_KV_BLOCK * p->node[b].depth;
    p->node[b].wanted = ++p->wants;
}

static void note_snapshot_use(struct ntx_prefix *p, uint32_t b) { p->node[b].snapshot_clock = p->snapshot_clock; }

static uint32_t common_tokens(const int32_t *a, const int32_t *b, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* Of two nodes with the same tokens prefer the scope's own: a text must not leave its own path, or nodes below would be
 * in use, and their parent not. */
static bool is_preferred(const struct node *a, const struct node *b, uint64_t scope)
{
    return a->scope != b->scope ? a->scope == scope : a->n < b->n;
}

/* The child that has most of ids[0 .. n), *same of them; NONE: none has any. */
static uint32_t closest(struct ntx_prefix *p, uint64_t scope, uint32_t parent, const int32_t *ids, uint32_t n,
                        uint32_t *same)
{
    uint32_t best = NONE;
    *same = 0;
    for (uint32_t b = *children_of(p, parent); b != NONE; b = p->node[b].next) {
        uint32_t k = for_scope(&p->node[b], scope) && !ntx_kv_lost(p->c.pool, b)
                         ? common_tokens(p->node[b].ids, ids, NTX_MIN(n, p->node[b].n))
                         : 0;
        if (k > *same || (k && k == *same && is_preferred(&p->node[b], &p->node[best], scope))) {
            *same = k;
            best = b;
        }
    }
    return best;
}

/* Puts the kept blocks among those that ids[0 .. n) fill into p->path; the last one in *last. */
static uint32_t descend(struct ntx_prefix *p, uint64_t scope, const int32_t *ids, uint32_t n, uint32_t *last)
{
    uint32_t k = 0, same, b;
    for (*last = NONE; (k + 1) * NTX_KV_BLOCK <= n; *last = p->path[k++] = b) {
        b = closest(p, scope, *last, ids + k * NTX_KV_BLOCK, NTX_KV_BLOCK, &same);
        if (same < NTX_KV_BLOCK)
            break;
        note_use(p, b);
    }
    return k;
}

/* Removes nodes whose tokens the new one has all of. */
static void drop_covered(struct ntx_prefix *p, uint64_t scope, uint32_t parent, const int32_t *ids, uint32_t n)
{
    uint32_t next;
    for (uint32_t b = *children_of(p, parent); b != NONE; b = next) {
        next = p->node[b].next;
        if (p->node[b].scope == scope && p->node[b].n < n && !p->node[b].snapshot &&
            common_tokens(p->node[b].ids, ids, p->node[b].n) == p->node[b].n)
            remove_node(p, b);
    }
}

static bool put_in(struct ntx_prefix *p, uint64_t scope, uint32_t parent, uint32_t b, uint32_t depth,
                   const int32_t *ids, uint32_t n)
{
    struct node *x = &p->node[b];
    if (x->n)
        return false;
    drop_covered(p, scope, parent, ids, n);
    uint32_t *first = children_of(p, parent);
    *x = (struct node){.scope = scope, .parent = parent, .child = NONE, .next = *first, .depth = depth, .n = n};
    memcpy(x->ids, ids, n * sizeof *ids);
    *first = b;
    note_use(p, b);
    p->n_kept++;
    ntx_kv_keep(p->c.pool, b);
    return true;
}

/* ---- for sequences */

/* kv has the blocks down to `last`. Takes some more tokens, from a kept block that begins with what comes, as a
 * copy. */
static uint32_t take_part(struct ntx_prefix *p, uint64_t scope, struct ntx_kv_seq *kv, uint32_t last,
                          const int32_t *ids, uint32_t n)
{
    uint32_t same, b = closest(p, scope, last, ids, NTX_MIN(n, (uint32_t)NTX_KV_BLOCK), &same);
    if (!same)
        return 0;
    note_use(p, b);
    return ntx_kv_seq_copy(kv, b) ? 0 : same; /* a block that cannot be read is computed */
}

/* The furthest snapshot on the path down to p->path[k]: returns the node that it is at the end of, *tokens and *whole
 * blocks from the root. */
static uint32_t furthest_snapshot(struct ntx_prefix *p, uint64_t scope, const int32_t *ids, uint32_t n, uint32_t k,
                                  uint32_t *whole, uint32_t *tokens)
{
    for (*whole = k;; --*whole) {
        uint32_t up = *whole ? p->path[*whole - 1] : NONE, at = *whole * NTX_KV_BLOCK, best = NONE;
        for (uint32_t b = *children_of(p, up); b != NONE; b = p->node[b].next) {
            const struct node *x = &p->node[b];
            if (for_scope(x, scope) && x->n < NTX_KV_BLOCK && x->snapshot && !ntx_kv_lost(p->c.pool, b) &&
                x->n <= n - at && common_tokens(x->ids, ids + at, x->n) == x->n &&
                (best == NONE || x->n > p->node[best].n))
                best = b;
        }
        if (best == NONE && up != NONE && p->node[up].snapshot)
            best = up;
        *tokens = best == NONE || best == up ? at : at + p->node[best].n;
        if (best != NONE || !*whole)
            return best;
    }
}

static int begin_at_snapshot(struct ntx_prefix *p, uint64_t scope, const int32_t *ids, uint32_t n, uint32_t n_room,
                             struct ntx_kv_seq **out, uint32_t *n_past)
{
    uint32_t last, k = descend(p, scope, ids, n, &last), whole, tokens,
                   b = furthest_snapshot(p, scope, ids, n, k, &whole, &tokens);
    p->held = b;
    if (b != NONE) {
        note_use(p, b);
        note_snapshot_use(p, b);
    }
    int rc = ntx_kv_seq_promise(p->c.pool, n_room, p->path, whole, out);
    if (rc == -EAGAIN && b != NONE) { /* the snapshot may be in the way */
        p->held = b = NONE;
        tokens = 0;
        rc = ntx_kv_seq_promise(p->c.pool, n_room, NULL, 0, out);
    }
    p->held = NONE;
    if (rc)
        return rc;
    if (tokens < k * NTX_KV_BLOCK)
        p->node[last].parts = true;
    if (b != NONE)
        ntx_kv_snapshot_put(p->node[b].snapshot, *out);
    if (tokens % NTX_KV_BLOCK && (rc = ntx_kv_seq_copy(*out, b)))
        ntx_kv_seq_free(*out);
    else
        *n_past = tokens;
    return rc;
}

uint32_t ntx_prefix_found(struct ntx_prefix *p, uint64_t scope, const int32_t *ids, uint32_t n)
{
    uint32_t last, same, whole, tokens, most = n ? n - 1 : 0, k = descend(p, scope, ids, most, &last),
                                        at = k * NTX_KV_BLOCK;
    if (p->snapshots) {
        furthest_snapshot(p, scope, ids, most, k, &whole, &tokens);
        return tokens;
    }
    closest(p, scope, last, ids + at, NTX_MIN(most - at, (uint32_t)NTX_KV_BLOCK), &same);
    return at + same;
}

int ntx_prefix_begin(struct ntx_prefix *p, uint64_t scope, const int32_t *ids, uint32_t n, uint32_t n_room,
                     struct ntx_kv_seq **out, uint32_t *n_past)
{
    uint32_t last, most = n ? n - 1 : 0;
    if (p->snapshots)
        return begin_at_snapshot(p, scope, ids, most, n_room, out, n_past);
    uint32_t k = descend(p, scope, ids, most, &last), has = k * NTX_KV_BLOCK;
    int rc = ntx_kv_seq_promise(p->c.pool, n_room, p->path, k, out);
    if (!rc)
        *n_past = has + take_part(p, scope, *out, last, ids + has, most - has);
    return rc;
}

uint32_t ntx_prefix_follow(struct ntx_prefix *p, uint64_t scope, struct ntx_kv_seq *kv, const int32_t *ids, uint32_t n,
                           uint32_t n_past)
{
    uint32_t has, last, whole = n_past / NTX_KV_BLOCK, part = n_past % NTX_KV_BLOCK > 0;
    const uint32_t *own = ntx_kv_seq_blocks(kv, &has);
    if (has != whole + part || !n || p->snapshots)
        return n_past;
    uint32_t k = descend(p, scope, ids, n - 1, &last), at = k * NTX_KV_BLOCK;
    if (k < whole + part || memcmp(own, p->path, whole * sizeof *own))
        return n_past;
    if (part)
        ntx_kv_seq_swap(kv, whole, p->path[whole]);
    for (uint32_t i = has; i < k; i++)
        ntx_kv_seq_join(kv, p->path[i]);
    return at + take_part(p, scope, kv, last, ids + at, n - 1 - at);
}

/* ---- keeping */

/* Keeps the block that ids end in: returns the node that has them, or NONE. */
static uint32_t keep_part(struct ntx_prefix *p, uint64_t scope, uint32_t parent, uint32_t b, uint32_t depth,
                          const int32_t *ids, uint32_t n)
{
    uint32_t same, has = closest(p, scope, parent, ids, n, &same);
    if (same == n && (!p->snapshots || p->node[has].n == n))
        return has;
    return put_in(p, scope, parent, b, depth, ids, n) ? b : NONE;
}

static void put_snapshot(struct ntx_prefix *p, struct ntx_kv_seq *kv, uint32_t b)
{
    struct node *x = &p->node[b];
    uint32_t held = p->held;
    note_use(p, b);
    p->held = b;
    if (!x->snapshot && !ntx_kv_snapshot_new(kv, x->depth * NTX_KV_BLOCK + x->n, &x->snapshot)) {
        x->parted |= x->parts;
        x->parts = false;
        note_snapshot_use(p, b);
    }
    p->held = held;
}

/* Puts snapshots where texts diverge, and where this one is. kv has the blocks down to `at`. */
static void put_snapshots(struct ntx_prefix *p, struct ntx_kv_seq *kv, uint32_t at, enum ntx_prefix_when when)
{
    for (uint32_t b = at; b != NONE; b = p->node[b].parent)
        if (p->node[b].parts)
            put_snapshot(p, kv, b);
    if (at != NONE && when != NTX_PREFIX_ON && !p->node[at].snapshot)
        put_snapshot(p, kv, at);
}

void ntx_prefix_keep(struct ntx_prefix *p, uint64_t scope, struct ntx_kv_seq *kv, const int32_t *ids, uint32_t n,
                     enum ntx_prefix_when when)
{
    uint32_t has, at, k = descend(p, scope, ids, n, &at);
    const uint32_t *own = ntx_kv_seq_blocks(kv, &has);
    for (uint32_t i = 0; i < k; i++)
        if (own[i] != p->path[i])
            ntx_kv_seq_swap(kv, i, p->path[i]);
    for (; (k + 1) * NTX_KV_BLOCK <= n; at = own[k++])
        if (!put_in(p, scope, at, own[k], k, ids + k * NTX_KV_BLOCK, NTX_KV_BLOCK))
            return;
    if (when == NTX_PREFIX_LAST && n % NTX_KV_BLOCK) {
        uint32_t part = keep_part(p, scope, at, own[k], k, ids + k * NTX_KV_BLOCK, n % NTX_KV_BLOCK);
        at = part != NONE ? part : at;
    }
    if (p->snapshots)
        put_snapshots(p, kv, at, when);
}

uint32_t ntx_prefix_snapshots(struct ntx_prefix *p, uint64_t scope, const int32_t *ids, uint32_t n,
                              struct ntx_kv_snapshot **out, uint32_t most)
{
    uint32_t last, found = 0, k = descend(p, scope, ids, n, &last);
    for (uint32_t i = 0; i < k && found < most; i++)
        if (p->node[p->path[i]].snapshot && (i + 1) * NTX_KV_BLOCK < n)
            out[found++] = p->node[p->path[i]].snapshot;
    return found;
}

void ntx_prefix_put_snapshot(struct ntx_prefix *p, uint64_t scope, const int32_t *ids, struct ntx_kv_snapshot *m)
{
    const uint32_t n = ntx_kv_snapshot_tokens(m);
    uint32_t last, k = descend(p, scope, ids, n, &last);
    if (!k || k * NTX_KV_BLOCK != n || p->node[last].snapshot) {
        ntx_kv_snapshot_free(m);
        return;
    }
    p->node[last].snapshot = m;
    note_snapshot_use(p, last);
}

void ntx_prefix_prepare(struct ntx_prefix *p, uint64_t scope, struct ntx_kv_seq *kv, const int32_t *ids,
                        uint32_t n_past, uint32_t to)
{
    uint32_t last, whole = NTX_ROUND_DOWN(to, NTX_KV_BLOCK);
    if (!p->snapshots)
        return;
    if (whole > n_past && whole < to)
        ntx_kv_snapshot_ahead(kv, whole);
    for (uint32_t k = descend(p, scope, ids, to, &last); k && k * NTX_KV_BLOCK > n_past; k--)
        if (p->node[p->path[k - 1]].parts && k * NTX_KV_BLOCK < whole)
            ntx_kv_snapshot_ahead(kv, k * NTX_KV_BLOCK);
}

static bool is_scope_pin(const struct ntx_prefix *p, uint32_t b)
{
    return p->node[b].n && p->node[b].pinned && p->node[b].scope != NTX_PREFIX_ALL;
}

static bool leads_to_pinned(const struct ntx_prefix *p, uint32_t b)
{
    for (b = p->node[b].child; b != NONE; b = p->node[b].next)
        if (p->node[b].pinned)
            return true;
    return false;
}

/* Pins of scopes are limited to a share of the pool, or one client could pin all of it: beyond that the end of the path
 * used longest ago is unpinned. */
static void bound_pins(struct ntx_prefix *p)
{
    uint32_t n = 0, blocks = ntx_kv_pool_blocks(p->c.pool);
    for (uint32_t b = 0; b < blocks; b++)
        n += is_scope_pin(p, b);
    for (; n > blocks / NTX_PREFIX_PINS; n--) {
        uint32_t least = NONE;
        for (uint32_t b = 0; b < blocks; b++)
            if (is_scope_pin(p, b) && !leads_to_pinned(p, b) &&
                (least == NONE || p->node[b].wanted < p->node[least].wanted))
                least = b;
        if (least == NONE)
            return;
        p->node[least].pinned = false;
    }
}

void ntx_prefix_pin(struct ntx_prefix *p, uint64_t scope, const int32_t *ids, uint32_t n)
{
    uint32_t last, k = descend(p, scope, ids, n, &last);
    while (k--)
        p->node[p->path[k]].pinned = true;
    bound_pins(p);
}

/* ---- life */

int ntx_prefix_new(const struct ntx_prefix_config *c, struct ntx_prefix **out)
{
    struct ntx_prefix *p = calloc(1, sizeof *p);
    uint32_t n = ntx_kv_pool_blocks(c->pool);
    if (!p)
        return -ENOMEM;
    p->c = *c;
    p->node = calloc(n, sizeof *p->node);
    p->path = calloc(n, sizeof *p->path);
    if (!p->node || !p->path) {
        ntx_prefix_free(p);
        return -ENOMEM;
    }
    p->snapshots = ntx_kv_pool_snapshots(c->pool);
    p->held = p->first = NONE;
    ntx_kv_pool_keeper(c->pool, evict_block, evict_snapshot, p);
    *out = p;
    return 0;
}

void ntx_prefix_free(struct ntx_prefix *p)
{
    if (!p)
        return;
    for (uint32_t b = 0; p->node && b < ntx_kv_pool_blocks(p->c.pool); b++)
        if (p->node[b].n) {
            ntx_kv_snapshot_free(p->node[b].snapshot);
            ntx_kv_unkeep(p->c.pool, b);
        }
    ntx_kv_pool_keeper(p->c.pool, NULL, NULL, NULL);
    free(p->node);
    free(p->path);
    free(p);
}
