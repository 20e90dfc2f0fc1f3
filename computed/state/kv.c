/* SPDX-License-Identifier: Apache-2.0 */
/* kv.c: pools, sequences and snapshots, by the table of kinds (kv_impl.h). The units of a kind are one anonymous
 * mapping, advised to huge pages, and are handed out from a stack of free numbers. */
#include "computed/state/kv.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/util.h"
#include "computed/state/kv_impl.h"

enum { ALL = NTX__KV_ALL, WINDOW = NTX__KV_WINDOW, STATES = NTX__KV_STATES, KINDS = NTX__KV_KINDS };

const struct ntx__kv_ops *const ntx__kv_kinds[KINDS] = {
    [ALL] = &ntx__kv_all, [WINDOW] = &ntx__kv_window, [STATES] = &ntx__kv_recur_buffers};

/* ---- pools */

/* elsewhere: no memory, since the units are in a file, or other machines have all heads. */
static int make_space(struct ntx__kv_space *x, uint64_t bytes, uint32_t n, bool elsewhere)
{
    x->free = calloc(n, sizeof *x->free);
    x->users = calloc(n, sizeof *x->users);
    x->kept = calloc(n, sizeof *x->kept);
    x->bytes = bytes;
    x->unit_bytes = bytes / n;
    void *base = elsewhere ? NULL : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    x->base = base == MAP_FAILED ? NULL : base;
    if (base == MAP_FAILED || !x->free || !x->users || !x->kept)
        return -ENOMEM;
    if (base)
        madvise(base, bytes, MADV_HUGEPAGE); /* a refusal costs speed only */
    for (x->n = n; x->n_free < n; x->n_free++)
        x->free[x->n_free] = n - 1 - x->n_free; /* low blocks first, so that idle ones stay untouched */
    return 0;
}

static int make_spaces(struct ntx_kv_pool *p, const struct ntx_hparams *hp, const struct ntx_kv_shape *s)
{
    int rc = 0;
    for (uint32_t k = 0; k < KINDS && !rc; k++)
        if (k == ALL || (ntx__kv_kinds[k]->units(s) && ntx__kv_kinds[k]->unit_bytes(hp, p->type, s)))
            rc = make_space(&p->space[k], ntx__kv_kind_bytes(hp, p->type, s, k), ntx__kv_kinds[k]->units(s),
                            k == ALL && (s->ram || !ntx__kv_kind_bytes(hp, p->type, s, k)));
    return rc;
}

int ntx_kv_pool_new(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *s,
                    struct ntx_kv_pool **out, struct ntx_err *err)
{
    uint64_t bytes = ntx_kv_shape_bytes(hp, type, s);
    if (!s->blocks || bytes > SIZE_MAX / 2)
        return ntx_err_set(err, -EINVAL, "a KV pool of %u blocks of %llu bytes is not possible", s->blocks,
                           (unsigned long long)ntx_kv_block_bytes(hp, type));
    struct ntx_kv_pool *p = calloc(1, sizeof *p);
    int rc = p ? 0 : -ENOMEM;
    if (p)
        *p = (struct ntx_kv_pool){.type = type, .window = hp->window, .ring = s->ring};
    if (rc || (rc = ntx__kv_make_rows(p, hp)) || (rc = ntx__kv_make_floats(p, hp)) || (rc = make_spaces(p, hp, s))) {
        ntx_kv_pool_free(p);
        return ntx_err_set(err, rc, "no memory for a KV pool of %llu bytes", (unsigned long long)bytes);
    }
    *out = p;
    return 0;
}

void ntx_kv_pool_free(struct ntx_kv_pool *p)
{
    if (!p)
        return;
    ntx_kv_file_free(p->file); /* first, since reads into the blocks may be under way */
    for (uint32_t k = 0; k < KINDS; k++) {
        if (p->space[k].base)
            munmap(p->space[k].base, p->space[k].bytes);
        free(p->space[k].free);
        free(p->space[k].users);
        free(p->space[k].kept);
    }
    free(p->rated);
    free(p->rows);
    free(p->floats);
    free(p);
}

/* ---- in a file */

int ntx_kv_pool_spill(struct ntx_kv_pool *p, const char *dir, uint64_t ram, struct ntx_drive drive, struct ntx_err *err)
{
    const struct ntx__kv_space *x = &p->space[ALL];
    struct ntx_kv_layout l;
    p->rated = calloc(x->n / NTX_KV_CLUSTER + 1, sizeof *p->rated);
    int fd = ntx__kv_make_layout(p, x->n, &l) || !p->rated ? ntx_err_set(err, -ENOMEM, "no memory")
                                                           : ntx_kv_file_open(dir, ntx_kv_file_bytes(&l), err);
    int rc = fd < 0 ? fd : ntx_kv_file_new(fd, &l, ram, drive, &p->file, err);
    ntx__kv_free_layout(&l);
    return rc;
}

struct ntx_kv_file *ntx_kv_pool_file(const struct ntx_kv_pool *p) { return p->file; }

void ntx_kv_pass_add(const struct ntx_kv_seq *s, uint32_t joined, uint32_t from, uint32_t n_tokens)
{
    if (s->pool->file)
        ntx_kv_file_add(s->pool->file, s->units[ALL], NTX_MIN((uint32_t)ntx__kv_blocks_of(n_tokens), s->n_units[ALL]),
                        joined / NTX_KV_BLOCK, from / NTX_KV_BLOCK);
}

void ntx_kv_pass_begin(const struct ntx_kv_seq *any, uint32_t attends, bool chooses)
{
    if (any->pool->file)
        ntx_kv_file_begin(any->pool->file, attends, chooses);
}

bool ntx_kv_pass_requests_topk(const struct ntx_kv_seq *any)
{
    return any->pool->file && ntx_kv_file_has_topk(any->pool->file);
}

void ntx_kv_pass_set_topk(const struct ntx_kv_seq *s, uint32_t layer, uint32_t pos)
{
    ntx_kv_file_set_topk(s->pool->file, s->units[ALL][pos / NTX_KV_BLOCK], s->pool->rows[layer].of);
}

int ntx_kv_pass_topk(const struct ntx_kv_seq *any) { return ntx_kv_file_topk(any->pool->file); }

int ntx_kv_pass_starts(const struct ntx_kv_seq *any, uint32_t layer)
{
    return any->pool->file ? ntx_kv_file_starts(any->pool->file, layer) : 0;
}

int ntx_kv_pass_wants(const struct ntx_kv_seq *any, uint32_t layer)
{
    return any->pool->file ? ntx_kv_file_wants(any->pool->file, layer) : 0;
}

void ntx_kv_pass_done(const struct ntx_kv_seq *any, uint32_t layer)
{
    if (any->pool->file)
        ntx_kv_file_done(any->pool->file, layer);
}

void ntx_kv_pass_end(const struct ntx_kv_seq *any)
{
    if (any->pool->file)
        ntx_kv_file_end(any->pool->file);
}

int ntx_kv_touch(const struct ntx_kv_seq *s, uint32_t layer, uint32_t pos, bool written)
{
    const uint16_t of = s->pool->rows[layer].of;
    return s->pool->file && s->pool->rows[of].kind == ALL
               ? ntx_kv_file_touch(s->pool->file, s->units[ALL][pos / NTX_KV_BLOCK], of, ntx__kv_keys_part(s->pool, of),
                                   written)
               : 0;
}

bool ntx_kv_lost(const struct ntx_kv_pool *p, uint32_t block) { return p->file && ntx_kv_file_lost(p->file, block); }

/* Units that can still be promised. */
static uint32_t available(const struct ntx__kv_space *x) { return x->n_free + x->n_spare - x->n_promised; }

uint32_t ntx_kv_pool_blocks(const struct ntx_kv_pool *p) { return p->space[ALL].n; }
uint32_t ntx_kv_pool_used(const struct ntx_kv_pool *p) { return p->space[ALL].n - available(&p->space[ALL]); }

/* ---- units and their users */

static uint32_t cluster_blocks(const struct ntx__kv_space *x, uint32_t cluster)
{
    return NTX_MIN(x->n - cluster * NTX_KV_CLUSTER, (uint32_t)NTX_KV_CLUSTER);
}

/* Rates each cluster by its free blocks, for the next block to take. A cluster with unreadable blocks of others is the
 * last resort. */
static void rate_clusters(struct ntx_kv_pool *p, uint32_t near)
{
    const struct ntx__kv_space *x = &p->space[ALL];
    memset(p->rated, 0, NTX_ROUND_UP(x->n, NTX_KV_CLUSTER) / NTX_KV_CLUSTER * sizeof *p->rated);
    for (uint32_t i = 0; i < x->n_free; i++)
        p->rated[x->free[i] / NTX_KV_CLUSTER]++;
    for (uint32_t c = 0; c * NTX_KV_CLUSTER < x->n; c++)
        if (p->rated[c] < cluster_blocks(x, c) && ntx_kv_file_lost(p->file, c * NTX_KV_CLUSTER))
            p->rated[c] = 0;
    if (near != UINT32_MAX && p->rated[near / NTX_KV_CLUSTER])
        p->rated[near / NTX_KV_CLUSTER] += NTX_KV_CLUSTER;
}

/* Moves a free block to the top of the stack: one in the cluster of the sequence's last block, or else in the cluster
 * with most free blocks. So a sequence's blocks share clusters, which are read in runs. */
static void choose_near(struct ntx_kv_pool *p, uint32_t near)
{
    struct ntx__kv_space *x = &p->space[ALL];
    uint32_t best = 0;
    rate_clusters(p, near);
    for (uint32_t i = 1; i < x->n_free; i++) {
        uint16_t a = p->rated[x->free[i] / NTX_KV_CLUSTER], b = p->rated[x->free[best] / NTX_KV_CLUSTER];
        best = a > b || (a == b && x->free[i] < x->free[best]) ? i : best;
    }
    uint32_t found = x->free[best];
    x->free[best] = x->free[x->n_free - 1];
    x->free[x->n_free - 1] = found;
    if (p->rated[found / NTX_KV_CLUSTER] == cluster_blocks(x, found / NTX_KV_CLUSTER))
        ntx_kv_file_forget(p->file, found); /* all of it is free */
}

static uint32_t last_block(const struct ntx_kv_seq *s)
{
    return s->n_units[ALL] ? s->units[ALL][s->n_units[ALL] - 1] : UINT32_MAX;
}

uint32_t ntx__kv_take(struct ntx_kv_pool *p, uint32_t kind, uint32_t near)
{
    struct ntx__kv_space *x = &p->space[kind];
    while (!x->n_free && p->give_up(p->keeper))
        ;
    if (kind == ALL && p->file)
        choose_near(p, near);
    uint32_t b = x->free[--x->n_free];
    x->users[b] = 1;
    return b;
}

static void add_user(struct ntx__kv_space *x, uint32_t b)
{
    x->n_spare -= x->users[b] == 1 && x->kept[b];
    x->users[b]++;
}

static void drop_user(struct ntx__kv_space *x, uint32_t b)
{
    if (!--x->users[b])
        x->free[x->n_free++] = b;
    x->n_spare += x->users[b] == 1 && x->kept[b];
}

void ntx__kv_leave(struct ntx_kv_pool *p, uint32_t kind, uint32_t unit) { drop_user(&p->space[kind], unit); }

static void drop_all_units(struct ntx_kv_seq *s)
{
    for (uint32_t k = 0; k < KINDS; k++) {
        while (s->n_units[k])
            drop_user(&s->pool->space[k], s->units[k][--s->n_units[k]]);
        free(s->units[k]);
    }
}

bool ntx__kv_find(struct ntx_kv_pool *p, uint32_t kind, uint32_t n)
{
    while (n > p->space[kind].n_free)
        if (!p->give_up_snapshot || !p->give_up_snapshot(p->keeper))
            return false;
    return true;
}

void ntx_kv_pool_keeper(struct ntx_kv_pool *p, bool (*give_up)(void *keeper), bool (*give_up_snapshot)(void *keeper),
                        void *keeper)
{
    p->give_up = give_up;
    p->give_up_snapshot = give_up_snapshot;
    p->keeper = keeper;
}

void ntx_kv_keep(struct ntx_kv_pool *p, uint32_t block)
{
    add_user(&p->space[ALL], block);
    p->space[ALL].kept[block] = true;
}

void ntx_kv_unkeep(struct ntx_kv_pool *p, uint32_t block)
{
    struct ntx__kv_space *x = &p->space[ALL];
    x->n_spare -= x->users[block] == 1;
    x->kept[block] = false;
    drop_user(x, block);
}

bool ntx_kv_spare(const struct ntx_kv_pool *p, uint32_t block)
{
    return p->space[ALL].kept[block] && p->space[ALL].users[block] == 1;
}

/* ---- sequences */

static int make_tables(struct ntx_kv_seq *s, const struct ntx_kv_pool *p, const uint32_t *room)
{
    s->n_holes = calloc(p->n_layers, sizeof *s->n_holes);
    s->holes = calloc(p->n_layers, (size_t)room[ALL] * (NTX_KV_BLOCK / 8));
    for (uint32_t k = 0; k < KINDS; k++)
        if (!(s->units[k] = calloc(room[k] + 1, sizeof *s->units[k])))
            return -ENOMEM;
    return s->n_holes && s->holes ? 0 : -ENOMEM;
}

/* Whether n[k] units of WINDOW and STATES can be taken at once. */
static bool can_take_own(struct ntx_kv_pool *p, const uint32_t *n)
{
    bool found = true;
    for (uint32_t k = 0; k < KINDS && found; k++)
        found = k == ALL || ntx__kv_find(p, k, n[k]);
    return found;
}

static void take_own(struct ntx_kv_seq *s, const uint32_t *n)
{
    for (uint32_t k = 0; k < KINDS; k++)
        while (k != ALL && s->n_units[k] < n[k])
            s->units[k][s->n_units[k]++] = ntx__kv_take(s->pool, k, UINT32_MAX);
}

/* n_shared blocks are shared; the rest are promised. Units of WINDOW and STATES are all its own. */
static int make_seq(struct ntx_kv_pool *p, uint32_t blocks, const uint32_t *shared, uint32_t n_shared,
                    struct ntx_kv_seq **out)
{
    uint32_t room[KINDS], spare = 0;
    struct ntx__kv_space *x = &p->space[ALL];
    for (uint32_t k = 0; k < KINDS; k++)
        room[k] = ntx__kv_kinds[k]->has_room(p, blocks);
    for (uint32_t i = 0; i < n_shared; i++)
        spare += x->users[shared[i]] == 1 && x->kept[shared[i]];
    if (blocks > x->n)
        return -ENOSPC;
    if (blocks - n_shared + spare > available(x) || !can_take_own(p, room))
        return -EAGAIN;
    struct ntx_kv_seq *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    *s = (struct ntx_kv_seq){.pool = p, .at = {0, NTX__KV_NOWHERE}};
    if (make_tables(s, p, room)) {
        ntx_kv_seq_free(s);
        return -ENOMEM;
    }
    s->most = blocks;
    x->n_promised += blocks;
    take_own(s, room);
    for (uint32_t i = 0; i < n_shared; i++)
        ntx_kv_seq_join(s, shared[i]);
    *out = s;
    return 0;
}

static uint32_t blocks_for(uint32_t n_tokens) { return (uint32_t)NTX_MAX(ntx__kv_blocks_of(n_tokens), (uint64_t)1); }

int ntx_kv_seq_promise(struct ntx_kv_pool *p, uint32_t n_tokens, const uint32_t *shared, uint32_t n_shared,
                       struct ntx_kv_seq **out)
{
    return make_seq(p, blocks_for(n_tokens), shared, n_shared, out);
}

int ntx_kv_seq_new(struct ntx_kv_pool *p, uint32_t n_tokens, struct ntx_kv_seq **out)
{
    int rc = ntx_kv_seq_promise(p, n_tokens, NULL, 0, out);
    if (!rc)
        ntx_kv_seq_reach(*out, ntx_kv_seq_room(*out) - 1);
    return rc;
}

void ntx_kv_seq_reach(struct ntx_kv_seq *s, uint32_t pos)
{
    for (; s->n_units[ALL] <= pos / NTX_KV_BLOCK; s->pool->space[ALL].n_promised--)
        s->units[ALL][s->n_units[ALL]++] = ntx__kv_take(s->pool, ALL, last_block(s));
}

void ntx_kv_seq_join(struct ntx_kv_seq *s, uint32_t block)
{
    add_user(&s->pool->space[ALL], block);
    s->units[ALL][s->n_units[ALL]++] = block;
    s->pool->space[ALL].n_promised--;
}

void ntx_kv_seq_swap(struct ntx_kv_seq *s, uint32_t i, uint32_t block)
{
    add_user(&s->pool->space[ALL], block);
    drop_user(&s->pool->space[ALL], s->units[ALL][i]);
    s->units[ALL][i] = block;
}

void ntx_kv_seq_free(struct ntx_kv_seq *s)
{
    if (!s)
        return;
    s->pool->space[ALL].n_promised -= s->most - s->n_units[ALL];
    ntx_kv_snapshot_passed(s);
    drop_all_units(s);
    free(s->n_holes);
    free(s->holes);
    free(s);
}

const uint32_t *ntx_kv_seq_blocks(const struct ntx_kv_seq *s, uint32_t *n)
{
    *n = s->n_units[ALL];
    return s->units[ALL];
}

const uint32_t *ntx_kv_seq_ring(const struct ntx_kv_seq *s, uint32_t *n)
{
    *n = s->n_units[WINDOW];
    return s->units[WINDOW];
}

uint32_t ntx_kv_seq_room(const struct ntx_kv_seq *s) { return s->most * NTX_KV_BLOCK; }

enum ntx_kv_type ntx_kv_seq_type(const struct ntx_kv_seq *s) { return s->pool->type; }

/* ---- shared blocks */

int ntx_kv_seq_fork(struct ntx_kv_seq *s, uint32_t n_tokens, uint32_t n_room, struct ntx_kv_seq **out)
{
    struct ntx_kv_seq *t;
    if (ntx_kv_reach(s, n_tokens) < n_tokens)
        return -ENODATA;
    if (s->pool->file)
        return -ENOTSUP;
    int rc = make_seq(s->pool, blocks_for(NTX_MAX(n_room, n_tokens)), s->units[ALL], n_tokens / NTX_KV_BLOCK, &t);
    if (rc)
        return rc;
    ntx_kv_seq_reach(t, ntx_kv_seq_room(t) - 1);
    for (uint32_t k = 0; k < KINDS; k++)
        ntx__kv_kinds[k]->copy(s, n_tokens, t);
    *out = t;
    return 0;
}

bool ntx_kv_shared(const struct ntx_kv_seq *s, uint32_t pos)
{
    uint32_t b = pos / NTX_KV_BLOCK;
    return b < s->n_units[ALL] && s->pool->space[ALL].users[s->units[ALL][b]] > 1;
}

/* A sequence of this one block. */
static struct ntx_kv_seq one_block_seq(struct ntx_kv_pool *p, uint32_t *block)
{
    return (struct ntx_kv_seq){.pool = p, .units = {block}, .n_units = {1}, .most = 1};
}

int ntx_kv_seq_copy(struct ntx_kv_seq *s, uint32_t block)
{
    uint32_t own = ntx__kv_take(s->pool, ALL, last_block(s));
    const struct ntx_kv_seq before = one_block_seq(s->pool, &block), after = one_block_seq(s->pool, &own);
    int rc = 0;
    if (own != block) /* the keeper may have evicted this very block for it */
        rc = ntx__kv_copy_block(&before, &after, ALL, 0);
    if (rc) {
        drop_user(&s->pool->space[ALL], own);
        return rc;
    }
    s->units[ALL][s->n_units[ALL]++] = own;
    s->pool->space[ALL].n_promised--;
    return 0;
}

/* Blocks that going back to pos loses, since others use them, and one for a copy. */
static uint32_t lost_from(const struct ntx_kv_seq *s, uint32_t pos)
{
    const struct ntx__kv_space *x = &s->pool->space[ALL];
    uint32_t n = 0;
    for (uint32_t i = pos / NTX_KV_BLOCK; i < s->n_units[ALL]; i++) {
        uint32_t b = s->units[ALL][i], users = x->users[b] - x->kept[b];
        n += users > 1 || (x->users[b] > 1 && i * NTX_KV_BLOCK < pos);
    }
    return n;
}

int ntx_kv_own(struct ntx_kv_seq *s, uint32_t pos)
{
    struct ntx__kv_space *x = &s->pool->space[ALL];
    uint32_t n = (uint32_t)ntx__kv_blocks_of(pos), part = pos % NTX_KV_BLOCK ? pos / NTX_KV_BLOCK : UINT32_MAX;
    if (lost_from(s, pos) > available(x))
        return -EAGAIN;
    for (; s->n_units[ALL] > n; x->n_promised++)
        drop_user(x, s->units[ALL][--s->n_units[ALL]]);
    if (part < s->n_units[ALL] && ntx_kv_shared(s, pos)) {
        uint32_t old = s->units[ALL][part];
        s->n_units[ALL]--;
        x->n_promised++;
        int rc = ntx_kv_seq_copy(s, old);
        drop_user(x, old);
        return rc;
    }
    return 0;
}

/* ---- all kinds */

uint32_t ntx_kv_reach(const struct ntx_kv_seq *s, uint32_t n_tokens)
{
    uint32_t k = 0;
    while (k < KINDS) {
        const uint32_t n = ntx__kv_kinds[k]->reach(s, n_tokens);
        k = n < n_tokens ? 0 : k + 1; /* fewer: the kinds before may not reach that */
        n_tokens = n;
    }
    return n_tokens;
}

uint32_t ntx_kv_return(struct ntx_kv_seq *s, uint32_t n_tokens)
{
    n_tokens = ntx_kv_reach(s, n_tokens);
    for (uint32_t k = 0; k < KINDS; k++)
        ntx__kv_kinds[k]->back(s, n_tokens);
    return n_tokens;
}

void ntx_kv_written(struct ntx_kv_seq *s, uint32_t pos)
{
    for (uint32_t k = 0; k < KINDS; k++)
        ntx__kv_kinds[k]->writes(s, pos);
}

static int count_bytes(void *ctx, void *at, size_t bytes)
{
    (void)at;
    *(uint64_t *)ctx += bytes;
    return 0;
}

uint64_t ntx_kv_parts_bytes(const struct ntx_kv_seq *s, uint32_t n_tokens)
{
    uint64_t block = 0, sum = 0;
    for (uint32_t l = 0; l < s->pool->n_layers; l++)
        block += s->pool->rows[l].kind == ALL ? s->pool->rows[l].heads * NTX_KV_BLOCK *
                                                    (uint64_t)(s->pool->rows[l].row_k + s->pool->rows[l].row_v)
                                              : 0;
    for (uint32_t k = 0; k < KINDS; k++) /* ALL: without a look at its blocks, which may be in a file */
        if (k != ALL)
            (void)ntx__kv_kinds[k]->each_part(s, n_tokens, false, count_bytes, &sum);
    return sum + ntx__kv_blocks_of(n_tokens) * block;
}

int ntx_kv_each_part(const struct ntx_kv_seq *s, uint32_t n_tokens, bool filled, ntx_kv_part_fn *part, void *ctx)
{
    int rc = 0;
    for (uint32_t k = 0; k < KINDS && !rc; k++)
        rc = ntx__kv_kinds[k]->each_part(s, n_tokens, filled, part, ctx);
    return rc;
}

void ntx_kv_restored(struct ntx_kv_seq *s, uint32_t n_tokens)
{
    for (uint32_t k = 0; k < KINDS; k++)
        ntx__kv_kinds[k]->restored(s, n_tokens);
}

/* ---- snapshots */

struct ntx_kv_snapshot {
    struct ntx_kv_seq has; /* units of WINDOW and STATES; those that go on from it share the blocks */
    uint32_t n_tokens;
};

bool ntx_kv_pool_snapshots(const struct ntx_kv_pool *p) { return p->space[WINDOW].n || p->space[STATES].n; }

static struct ntx_kv_snapshot *make_snapshot(struct ntx_kv_pool *p, const uint32_t *n, uint32_t n_tokens)
{
    struct ntx_kv_snapshot *m = calloc(1, sizeof *m);
    bool made = m;
    if (m)
        *m = (struct ntx_kv_snapshot){.has = {.pool = p}, .n_tokens = n_tokens};
    for (uint32_t k = 0; k < KINDS && made; k++)
        made = (m->has.units[k] = calloc(n[k] + 1, sizeof *m->has.units[k]));
    if (made) {
        take_own(&m->has, n);
        return m;
    }
    ntx_kv_snapshot_free(m);
    return NULL;
}

int ntx_kv_snapshot_new(struct ntx_kv_seq *s, uint32_t n_tokens, struct ntx_kv_snapshot **out)
{
    struct ntx_kv_pool *p = s->pool;
    uint32_t n[KINDS];
    if (!n_tokens || ntx_kv_reach(s, n_tokens) < n_tokens)
        return -ENODATA;
    for (uint32_t k = 0; k < KINDS; k++)
        n[k] = ntx__kv_kinds[k]->snapshots(s, n_tokens);
    if (n[WINDOW] > p->space[WINDOW].n || !can_take_own(p, n))
        return -EAGAIN;
    struct ntx_kv_snapshot *m = make_snapshot(p, n, n_tokens);
    if (!m)
        return -ENOMEM;
    for (uint32_t k = 0; k < KINDS; k++)
        ntx__kv_kinds[k]->copy(s, n_tokens, &m->has);
    *out = m;
    return 0;
}

uint32_t ntx_kv_snapshot_tokens(const struct ntx_kv_snapshot *m) { return m->n_tokens; }

int ntx_kv_snapshot_blank(struct ntx_kv_pool *p, uint32_t n_tokens, bool must, struct ntx_kv_snapshot **out)
{
    const struct ntx_kv_seq any = {.pool = p,
                                   .n_units = {[STATES] = p->space[STATES].n > 0}}; /* gives the shape of a sequence */
    uint32_t n[KINDS];
    bool free = true;
    for (uint32_t k = 0; k < KINDS; k++) {
        n[k] = ntx__kv_kinds[k]->snapshots(&any, n_tokens);
        free = free && (k == ALL || n[k] <= p->space[k].n_free);
    }
    if (!free && (!must || n[WINDOW] > p->space[WINDOW].n || !can_take_own(p, n)))
        return -EAGAIN;
    *out = make_snapshot(p, n, n_tokens);
    return *out ? 0 : -ENOMEM;
}

int ntx_kv_snapshot_each_part(struct ntx_kv_snapshot *m, bool filled, ntx_kv_part_fn *part, void *ctx)
{
    int rc = 0;
    for (uint32_t k = 0; k < KINDS && !rc; k++)
        rc = k == ALL ? 0 : ntx__kv_kinds[k]->each_part(&m->has, m->n_tokens, filled, part, ctx);
    for (uint32_t k = 0; k < KINDS && filled && !rc; k++)
        if (k != ALL)
            ntx__kv_kinds[k]->restored(&m->has, m->n_tokens);
    return rc;
}

uint64_t ntx_kv_snapshot_bytes_of(struct ntx_kv_snapshot *m)
{
    uint64_t sum = 0;
    (void)ntx_kv_snapshot_each_part(m, false, count_bytes, &sum);
    return sum;
}

void ntx_kv_snapshot_put(struct ntx_kv_snapshot *m, struct ntx_kv_seq *s)
{
    for (uint32_t k = 0; k < KINDS; k++)
        ntx__kv_kinds[k]->copy(&m->has, m->n_tokens, s);
}

void ntx_kv_snapshot_free(struct ntx_kv_snapshot *m)
{
    if (!m)
        return;
    drop_all_units(&m->has);
    free(m);
}
