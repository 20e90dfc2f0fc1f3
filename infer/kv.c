/* kv.c: the pool is one anonymous mapping, advised to huge pages; blocks are handed out from a stack of free numbers.
 * A session's holes are one bitmap per layer, made with the session so that setting one cannot fail. */
#include "infer/kv.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/util.h"
#include "infer/kv_file.h"

enum { ALL, WINDOW, KINDS, NONE = KINDS };

struct space { /* blocks of one kind of layers */
    uint8_t *base;      /* [n_blocks x block_bytes], NTX_KV_CLUSTER blocks after the others (kv.h) */
    uint64_t bytes, block_bytes;
    uint32_t n_blocks, n_free;
    uint32_t n_promised; /* that sequences may still take */
    uint32_t n_spare;    /* that only the keeper has: given up for whoever takes */
    uint32_t *free;     /* [n_free] block numbers */
    uint32_t *users;    /* [n_blocks] */
    bool *kept;         /* [n_blocks] the keeper is one of them */
};

struct layer_kv { /* of a layer */
    size_t before;       /* bytes of a position that layers before it, of its kind, have */
    size_t row_k, row_v; /* bytes of a head's position */
    uint32_t heads;      /* 0: it reads what layer `of` keeps */
    uint16_t of;
    uint8_t kind;
};

struct ntx_kv_pool {
    struct space space[KINDS];
    enum ntx_kv_type type;
    uint32_t n_layers, window, ring; /* n_layers: with those of K of several positions */
    struct layer_kv *layer; /* [n_layers] */
    bool (*give_up)(void *keeper), (*give_up_mark)(void *keeper);
    void *keeper;
    struct ntx_recur_pool *recur;
    struct ntx_kv_file *file; /* NULL: all is in memory */
};

struct ntx_kv_seq {
    struct ntx_kv_pool *pool;
    uint32_t n_blocks[KINDS];
    uint32_t most;           /* of ALL; those that it has not yet are promised to it */
    uint32_t *blocks[KINDS]; /* [n_blocks], room for `most` */
    uint32_t oldest;    /* the first position that is there in all layers */
    struct ntx_recur *recur;
    uint32_t *n_holes;  /* [n_layers] */
    uint8_t *holes;     /* [n_layers x n_blocks * NTX_KV_BLOCK / 8] */
};

static const char *const type_names[NTX_N_KV] = {[NTX_KV_F16] = "f16", [NTX_KV_Q8_0] = "q8_0", [NTX_KV_Q4_0] = "q4_0"};

const char *ntx_kv_type_name(enum ntx_kv_type type) { return type_names[type]; }

int ntx_kv_type_of(const char *name, const struct ntx_hparams *hp, enum ntx_kv_type *type, struct ntx_err *err)
{
    int t = NTX_KV_F16;
    while (name && *name && t < NTX_N_KV && strcmp(name, type_names[t]))
        t++;
    if (t == NTX_N_KV)
        return ntx_err_set(err, -EINVAL, "'%.60s' is not a type of KV: there are f16, q8_0 and q4_0", name);
    if (t != NTX_KV_F16 && hp->v_is_k)
        return ntx_err_set(err, -ENOTSUP, "K of a %s model is its V, too, and is kept in f16 only: leave --kv-type out", hp->arch);
    if (t != NTX_KV_F16 && hp->kv_lora)
        return ntx_err_set(err, -ENOTSUP, "latent KV in %s would be no smaller, since V could not lie in K: leave --kv-type out", type_names[t]);
    for (uint32_t l = 0; t != NTX_KV_F16 && l < (hp->dims ? hp->n_layers : 1); l++) {
        struct ntx_dims w = ntx_dims_of(hp, l);
        if (w.head_k % 32 || w.head_v % 32)
            return ntx_err_set(err, -EINVAL, "KV in %s needs heads of a multiple of 32 values, this model's have %u and %u: leave --kv-type out", type_names[t], w.head_k, w.head_v);
        if (t == NTX_KV_Q4_0 && NTX_MAX(w.head_k, w.head_v) > NTX_KV_Q4_HEAD)
            return ntx_err_set(err, -EINVAL, "KV in q4_0 needs heads of at most %d values, this model's have %u and %u: q8_0 takes them", NTX_KV_Q4_HEAD, w.head_k, w.head_v);
    }
    *type = (enum ntx_kv_type)t;
    return 0;
}

_Static_assert(NTX_KV_BLOCK == NTX_KV_Q8_TOKENS, "blocks are cpu.h's");

/* Of one position. */
static size_t row_bytes(enum ntx_kv_type type, uint32_t n)
{
    return type == NTX_KV_F16 ? 2 * (size_t)n : (size_t)n / 32 * (type == NTX_KV_Q8_0 ? 34 : 18);
}

/* With those beyond the model's, of K of several positions. */
static uint32_t count_layers(const struct ntx_hparams *hp) { return hp->v_is_k ? 2 * hp->n_layers : hp->n_layers; }

/* A block has room for one at least. */
static struct layer_kv pooled_kv(const struct ntx_hparams *hp, uint32_t l)
{
    const uint32_t every = hp->pool[l], n = !every ? 0 : NTX_MAX(NTX_KV_BLOCK / every, 1u);
    return (struct layer_kv){.row_k = 2 * (size_t)hp->head_k * n / NTX_KV_BLOCK, .row_v = ntx_chooses(hp, l) ? 2 * (size_t)hp->index.head * n / NTX_KV_BLOCK : 0, .heads = every != 0,
                             .of = (uint16_t)(hp->n_layers + l)};
}

static struct layer_kv layer_kv_of(const struct ntx_hparams *hp, enum ntx_kv_type type, uint32_t l)
{
    if (l >= hp->n_layers)
        return pooled_kv(hp, l - hp->n_layers);
    const uint32_t of = ntx_dims_of(hp, l).kv_of;
    return (struct layer_kv){.row_k = row_bytes(type, ntx_kept_k(hp, l)), .row_v = row_bytes(type, ntx_kept_v(hp, l)), .heads = of == l && !ntx_is_recurrent(hp, l) ? ntx_kept_heads(hp, l) : 0, .of = (uint16_t)of};
}

uint64_t ntx_kv_layer_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, uint32_t layer)
{
    struct layer_kv k = layer_kv_of(hp, type, layer);
    return (uint64_t)k.heads * NTX_KV_BLOCK * (k.row_k + k.row_v);
}

/* Of a block, what layers keep: all of them, or those with a window or without. */
enum { BOTH = KINDS };
static uint64_t layers_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, int kind)
{
    uint64_t n = 0;
    for (uint32_t l = 0; l < count_layers(hp); l++)
        if (kind == BOTH || ntx_windowed(hp, l) == (kind == WINDOW))
            n += ntx_kv_layer_bytes(hp, type, l);
    return n;
}

uint64_t ntx_kv_block_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type) { return layers_bytes(hp, type, BOTH); }

/* ---- what layers keep */

static uint32_t count_windowed(const struct ntx_hparams *hp)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < hp->n_layers; l++)
        n += ntx_windowed(hp, l);
    return n;
}

static uint64_t blocks_of(uint64_t tokens) { return (tokens + NTX_KV_BLOCK - 1) / NTX_KV_BLOCK; }

/* A ring more than there are sessions with a full context: so two short ones have room at once. */
struct ntx_kv_shape ntx_kv_shape_for(const struct ntx_hparams *hp, uint32_t ctx, uint32_t sessions, uint32_t rows, bool all)
{
    uint64_t blocks = blocks_of(ctx) * sessions, ring = NTX_MIN(blocks_of((uint64_t)hp->window + rows), blocks_of(ctx));
    struct ntx_kv_shape s = {.blocks = (uint32_t)NTX_MIN(blocks, (uint64_t)UINT32_MAX), .states = ntx_recur_bytes(hp) ? (uint32_t)NTX_MIN(2 * ((uint64_t)sessions + 1), (uint64_t)UINT32_MAX) : 0};
    uint32_t windowed = count_windowed(hp);
    if (!all && windowed && windowed < count_layers(hp) && ring * (sessions + 1) < s.blocks) {
        s.ring = (uint32_t)ring;
        s.window_blocks = (uint32_t)ring * (sessions + 1);
    }
    return s;
}

static uint64_t kind_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *s, int kind)
{
    uint64_t per_block = layers_bytes(hp, type, s->window_blocks ? kind : BOTH), bytes;
    return __builtin_mul_overflow(per_block, kind == WINDOW ? s->window_blocks : s->blocks, &bytes) ? UINT64_MAX : bytes;
}

uint64_t ntx_kv_shape_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *s)
{
    uint64_t bytes, states, all = kind_bytes(hp, type, s, ALL);
    return s->blocks == UINT32_MAX || __builtin_mul_overflow(ntx_recur_bytes(hp) / 2, s->states, &states) || __builtin_add_overflow(s->ram ? NTX_MIN(all, s->ram) : all, kind_bytes(hp, type, s, WINDOW), &bytes) ||
                   __builtin_add_overflow(bytes, states, &bytes) ? UINT64_MAX : bytes;
}

/* ---- pools */

static int make_space(struct space *x, uint64_t bytes, uint32_t n_blocks)
{
    x->free = calloc(n_blocks, sizeof *x->free);
    x->users = calloc(n_blocks, sizeof *x->users);
    x->kept = calloc(n_blocks, sizeof *x->kept);
    void *base = x->free && x->users && x->kept ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    if (base == MAP_FAILED)
        return -ENOMEM;
    madvise(base, bytes, MADV_HUGEPAGE); /* a refusal costs speed only */
    x->base = base;
    x->bytes = bytes;
    x->block_bytes = bytes / n_blocks;
    for (x->n_blocks = n_blocks; x->n_free < n_blocks; x->n_free++)
        x->free[x->n_free] = n_blocks - 1 - x->n_free; /* low blocks first, so that idle ones stay untouched */
    return 0;
}

static int make_places(struct ntx_kv_pool *p, const struct ntx_hparams *hp)
{
    size_t before[KINDS] = {0};
    if (!(p->layer = calloc(count_layers(hp), sizeof *p->layer)))
        return -ENOMEM;
    for (uint32_t l = 0; l < count_layers(hp); l++) {
        struct layer_kv *k = &p->layer[l];
        *k = layer_kv_of(hp, p->type, l);
        k->kind = p->ring && ntx_windowed(hp, l) ? WINDOW : ALL;
        k->before = before[k->kind];
        before[k->kind] += k->heads * (k->row_k + k->row_v);
    }
    return 0;
}

int ntx_kv_pool_new(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *s, struct ntx_kv_pool **out, struct ntx_err *err)
{
    uint64_t bytes = ntx_kv_shape_bytes(hp, type, s);
    if (!s->blocks || bytes > SIZE_MAX / 2)
        return ntx_err_set(err, -EINVAL, "a KV pool of %u blocks of %llu bytes is not possible", s->blocks, (unsigned long long)ntx_kv_block_bytes(hp, type));
    struct ntx_kv_pool *p = calloc(1, sizeof *p);
    int rc = p ? 0 : -ENOMEM;
    if (p)
        *p = (struct ntx_kv_pool){.type = type, .n_layers = count_layers(hp), .window = hp->window, .ring = s->ring};
    if (rc || (rc = make_places(p, hp)) || (rc = make_space(&p->space[ALL], kind_bytes(hp, type, s, ALL), s->blocks)) ||
        (s->window_blocks && (rc = make_space(&p->space[WINDOW], kind_bytes(hp, type, s, WINDOW), s->window_blocks))) ||
        (ntx_recur_bytes(hp) && (rc = ntx_recur_pool_new(hp, s->states, &p->recur, err)))) {
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
    for (int k = 0; k < KINDS; k++) {
        if (p->space[k].base)
            munmap(p->space[k].base, p->space[k].bytes);
        free(p->space[k].free);
        free(p->space[k].users);
        free(p->space[k].kept);
    }
    ntx_kv_file_free(p->file);
    ntx_recur_pool_free(p->recur);
    free(p->layer);
    free(p);
}

/* ---- in a file */

/* What layers read that keep all positions, be it another's. */
static int make_layout(const struct ntx_kv_pool *p, uint32_t n_blocks, uint64_t block_bytes, struct ntx_kv_layout *out)
{
    size_t *before = calloc(p->n_layers, sizeof *before), *row = calloc(p->n_layers, sizeof *row);
    *out = (struct ntx_kv_layout){.block_bytes = block_bytes, .n_blocks = n_blocks, .cluster = NTX_KV_CLUSTER, .n_layers = p->n_layers, .before = before, .row = row};
    for (uint32_t l = 0; before && row && l < p->n_layers; l++) {
        const struct layer_kv *k = &p->layer[p->layer[l].of];
        before[l] = NTX_KV_BLOCK * k->before;
        row[l] = k->kind == ALL ? NTX_KV_BLOCK * k->heads * (k->row_k + k->row_v) : 0;
    }
    return before && row ? 0 : -ENOMEM;
}

static void free_layout(struct ntx_kv_layout *l)
{
    free((void *)l->before);
    free((void *)l->row);
}

/* Of a pool that is not there yet. */
static int layout_of(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *s, struct ntx_kv_layout *out)
{
    struct ntx_kv_pool p = {.type = type, .n_layers = count_layers(hp), .ring = s->ring};
    *out = (struct ntx_kv_layout){.block_bytes = 0};
    int rc = make_places(&p, hp);
    if (!rc)
        rc = make_layout(&p, s->blocks, layers_bytes(hp, type, s->window_blocks ? ALL : BOTH), out);
    free(p.layer);
    return rc;
}

int ntx_kv_shape_limit(const struct ntx_hparams *hp, enum ntx_kv_type type, uint64_t ram, struct ntx_kv_shape *s, struct ntx_err *err)
{
    struct ntx_kv_layout l;
    char have[32], need[32];
    if (!ram || s->blocks == UINT32_MAX || kind_bytes(hp, type, s, ALL) <= ram)
        return 0;
    if (hp->v_is_k)
        return ntx_err_set(err, -ENOTSUP, "--kv-ram: a %s model keeps K of several positions beside the others, all of it in memory: leave it out", hp->arch);
    int rc = layout_of(hp, type, s, &l);
    uint64_t least = rc ? 0 : ntx_kv_file_least(&l);
    free_layout(&l);
    if (rc)
        return ntx_err_set(err, rc, "no memory");
    if (least > ram)
        return ntx_err_set(err, -ENOSPC, "--kv-ram: %s is too little for this context: two layers' K and V and what is being written take %s (%llu bytes)", ntx_format_size(ram, have, sizeof have),
                           ntx_format_size(least, need, sizeof need), (unsigned long long)least);
    s->ram = ram;
    return 0;
}

uint64_t ntx_kv_shape_reads(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *s, uint32_t positions)
{
    struct ntx_kv_layout l;
    uint64_t bytes = s->ram && !layout_of(hp, type, s, &l) ? ntx_kv_file_reads(&l, (uint32_t)blocks_of(positions), s->ram) : 0;
    if (s->ram)
        free_layout(&l);
    return bytes;
}

int ntx_kv_pool_spill(struct ntx_kv_pool *p, const char *dir, uint64_t ram, struct ntx_err *err)
{
    const struct space *x = &p->space[ALL];
    struct ntx_kv_layout l;
    int fd = make_layout(p, x->n_blocks, x->block_bytes, &l) ? ntx_err_set(err, -ENOMEM, "no memory") : ntx_kv_file_open(dir, x->bytes, err);
    int rc = fd < 0 ? fd : ntx_kv_file_new(fd, x->base, &l, ram, &p->file, err);
    free_layout(&l);
    return rc;
}

struct ntx_kv_file *ntx_kv_pool_file(const struct ntx_kv_pool *p) { return p->file; }

void ntx_kv_pass_add(const struct ntx_kv_seq *s, uint32_t n_tokens)
{
    if (s->pool->file)
        ntx_kv_file_add(s->pool->file, s->blocks[ALL], NTX_MIN((uint32_t)blocks_of(n_tokens), s->n_blocks[ALL]));
}

void ntx_kv_pass_begin(const struct ntx_kv_seq *any)
{
    if (any->pool->file)
        ntx_kv_file_begin(any->pool->file);
}

int ntx_kv_pass_wants(const struct ntx_kv_seq *any, uint32_t layer) { return any->pool->file ? ntx_kv_file_wants(any->pool->file, layer) : 0; }

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

uint32_t ntx_kv_pool_blocks(const struct ntx_kv_pool *p)
{
    return p->space[ALL].n_blocks;
}

/* For a promise. */
static uint32_t available(const struct space *x) { return x->n_free + x->n_spare - x->n_promised; }

uint32_t ntx_kv_pool_used(const struct ntx_kv_pool *p)
{
    return p->space[ALL].n_blocks - available(&p->space[ALL]);
}

/* ---- blocks and their users */

/* There is one: what is promised is free, or spare. */
static uint32_t take_block(struct ntx_kv_pool *p, int kind)
{
    struct space *x = &p->space[kind];
    while (!x->n_free && p->give_up(p->keeper))
        ;
    uint32_t b = x->free[--x->n_free];
    x->users[b] = 1;
    return b;
}

static void join_block(struct space *x, uint32_t b)
{
    x->n_spare -= x->users[b] == 1 && x->kept[b];
    x->users[b]++;
}

static void leave_block(struct space *x, uint32_t b)
{
    if (!--x->users[b])
        x->free[x->n_free++] = b;
    x->n_spare += x->users[b] == 1 && x->kept[b];
}

void ntx_kv_pool_keeper(struct ntx_kv_pool *p, bool (*give_up)(void *keeper), bool (*give_up_mark)(void *keeper), void *keeper)
{
    p->give_up = give_up;
    p->give_up_mark = give_up_mark;
    p->keeper = keeper;
}

void ntx_kv_keep(struct ntx_kv_pool *p, uint32_t block)
{
    join_block(&p->space[ALL], block);
    p->space[ALL].kept[block] = true;
}

void ntx_kv_unkeep(struct ntx_kv_pool *p, uint32_t block)
{
    struct space *x = &p->space[ALL];
    x->n_spare -= x->users[block] == 1;
    x->kept[block] = false;
    leave_block(x, block);
}

/* So many window blocks are free, or become so by giving up marks. */
static bool find_windows(struct ntx_kv_pool *p, uint32_t n)
{
    while (n > p->space[WINDOW].n_free)
        if (!p->give_up_mark || !p->give_up_mark(p->keeper))
            return false;
    return true;
}

/* And so many sides of recurrent states. */
static bool find_states(struct ntx_kv_pool *p, uint32_t n)
{
    while (p->recur && n > ntx_recur_pool_left(p->recur))
        if (!p->give_up_mark || !p->give_up_mark(p->keeper))
            return false;
    return true;
}

bool ntx_kv_spare(const struct ntx_kv_pool *p, uint32_t block)
{
    return p->space[ALL].kept[block] && p->space[ALL].users[block] == 1;
}

/* ---- sessions */

static size_t hole_bytes(const struct ntx_kv_seq *s)
{
    return (size_t)s->most * (NTX_KV_BLOCK / 8);
}

static int make_tables(struct ntx_kv_seq *s, const struct ntx_kv_pool *p, const uint32_t *n)
{
    s->n_holes = calloc(p->n_layers, sizeof *s->n_holes);
    s->holes = calloc(p->n_layers, (size_t)n[ALL] * (NTX_KV_BLOCK / 8));
    for (int k = 0; k < KINDS; k++)
        if (!(s->blocks[k] = calloc(n[k] + 1, sizeof *s->blocks[k])))
            return -ENOMEM;
    return s->n_holes && s->holes ? 0 : -ENOMEM;
}

/* n_shared blocks are others', too; the rest of them is promised. Windows have all of theirs. */
static int make_seq(struct ntx_kv_pool *p, uint32_t blocks, const uint32_t *shared, uint32_t n_shared, struct ntx_kv_seq **out)
{
    uint32_t wants[KINDS] = {blocks, NTX_MIN(blocks, p->ring)}, spare = 0;
    struct space *x = &p->space[ALL];
    for (uint32_t i = 0; i < n_shared; i++)
        spare += x->users[shared[i]] == 1 && x->kept[shared[i]];
    if (blocks > x->n_blocks)
        return -ENOSPC;
    if (blocks - n_shared + spare > available(x) || !find_windows(p, wants[WINDOW]) || !find_states(p, 2))
        return -EAGAIN;
    struct ntx_kv_seq *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->pool = p;
    if (make_tables(s, p, wants) || (p->recur && ntx_recur_new(p->recur, &s->recur))) {
        ntx_kv_seq_free(s);
        return -ENOMEM;
    }
    s->most = blocks;
    x->n_promised += blocks;
    while (s->n_blocks[WINDOW] < wants[WINDOW])
        s->blocks[WINDOW][s->n_blocks[WINDOW]++] = take_block(p, WINDOW);
    for (uint32_t i = 0; i < n_shared; i++)
        ntx_kv_seq_join(s, shared[i]);
    *out = s;
    return 0;
}

static uint32_t blocks_for(uint32_t n_tokens) { return (uint32_t)NTX_MAX(blocks_of(n_tokens), (uint64_t)1); }

int ntx_kv_seq_promise(struct ntx_kv_pool *p, uint32_t n_tokens, const uint32_t *shared, uint32_t n_shared, struct ntx_kv_seq **out)
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
    for (; s->n_blocks[ALL] <= pos / NTX_KV_BLOCK; s->pool->space[ALL].n_promised--)
        s->blocks[ALL][s->n_blocks[ALL]++] = take_block(s->pool, ALL);
}

void ntx_kv_seq_join(struct ntx_kv_seq *s, uint32_t block)
{
    join_block(&s->pool->space[ALL], block);
    s->blocks[ALL][s->n_blocks[ALL]++] = block;
    s->pool->space[ALL].n_promised--;
}

void ntx_kv_seq_swap(struct ntx_kv_seq *s, uint32_t i, uint32_t block)
{
    join_block(&s->pool->space[ALL], block);
    leave_block(&s->pool->space[ALL], s->blocks[ALL][i]);
    s->blocks[ALL][i] = block;
}

void ntx_kv_seq_free(struct ntx_kv_seq *s)
{
    if (!s)
        return;
    s->pool->space[ALL].n_promised -= s->most - s->n_blocks[ALL];
    for (int k = 0; k < KINDS; k++) {
        struct space *x = &s->pool->space[k];
        while (s->n_blocks[k])
            leave_block(x, s->blocks[k][--s->n_blocks[k]]);
        free(s->blocks[k]);
    }
    ntx_recur_free(s->recur);
    free(s->n_holes);
    free(s->holes);
    free(s);
}

const uint32_t *ntx_kv_seq_blocks(const struct ntx_kv_seq *s, uint32_t *n)
{
    *n = s->n_blocks[ALL];
    return s->blocks[ALL];
}

uint32_t ntx_kv_seq_room(const struct ntx_kv_seq *s)
{
    return s->most * NTX_KV_BLOCK;
}

enum ntx_kv_type ntx_kv_seq_type(const struct ntx_kv_seq *s)
{
    return s->pool->type;
}

/* K, or V behind it. */
static void *block_of(const struct ntx_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos, bool value)
{
    const struct ntx_kv_pool *p = s->pool;
    const struct layer_kv *l = &p->layer[p->layer[layer].of];
    uint32_t kind = l->kind, at = pos / NTX_KV_BLOCK;
    const struct space *x = &p->space[kind];
    uint32_t block = s->blocks[kind][kind == WINDOW ? at % s->n_blocks[WINDOW] : at], first = NTX_ROUND_DOWN(block, NTX_KV_CLUSTER);
    size_t tokens = (size_t)NTX_MIN(x->n_blocks - first, (uint32_t)NTX_KV_CLUSTER) * NTX_KV_BLOCK; /* of the cluster */
    uint8_t *to = x->base + first * x->block_bytes + tokens * (l->before + head * (l->row_k + l->row_v));
    return to + (value ? tokens * l->row_k : 0) + (size_t)(block - first) * NTX_KV_BLOCK * (value ? l->row_v : l->row_k);
}

void *ntx_kv_k(const struct ntx_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos)
{
    return block_of(s, layer, head, pos, false);
}

void *ntx_kv_v(const struct ntx_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos)
{
    return block_of(s, layer, head, pos, true);
}

/* ---- one position (layouts: cpu/cpu.h) */

size_t ntx_kv_k_bytes(const struct ntx_kv_seq *s, uint32_t layer) { return NTX_KV_BLOCK * s->pool->layer[layer].row_k; }
size_t ntx_kv_v_bytes(const struct ntx_kv_seq *s, uint32_t layer) { return NTX_KV_BLOCK * s->pool->layer[layer].row_v; }
uint32_t ntx_kv_heads(const struct ntx_kv_seq *s, uint32_t layer) { return s->pool->layer[layer].heads; }

/* Of integers: a byte of a position has so many, and a row of so many bytes so many values. */
static uint32_t per_byte(enum ntx_kv_type type) { return type == NTX_KV_Q8_0 ? 1 : 2; }
static size_t values_of(enum ntx_kv_type type, size_t row) { return row / row_bytes(type, 32) * 32; }

/* Behind NTX_KV_BLOCK * ints bytes of integers. */
static void copy_scales(const uint8_t *block, uint32_t from, uint8_t *to_block, uint32_t to, size_t n, size_t ints)
{
    for (size_t b = 0; b < n / 32; b++)
        memcpy(to_block + NTX_KV_BLOCK * ints + 2 * (b * NTX_KV_BLOCK + to), block + NTX_KV_BLOCK * ints + 2 * (b * NTX_KV_BLOCK + from), 2);
}

void ntx_kv_copy_k(const struct ntx_kv_seq *s, uint32_t layer, const void *block, uint32_t from, void *to_block, uint32_t to)
{
    const enum ntx_kv_type type = s->pool->type;
    const uint8_t *x = block;
    uint8_t *y = to_block;
    size_t row = s->pool->layer[layer].row_k, n = values_of(type, row);
    if (type == NTX_KV_F16) {
        memcpy(y + to * row, x + from * row, row);
        return;
    }
    for (size_t i = 0; i < n / 4 / per_byte(type); i++)
        memcpy(y + 4 * (i * NTX_KV_BLOCK + to), x + 4 * (i * NTX_KV_BLOCK + from), 4);
    copy_scales(x, from, y, to, n, n / per_byte(type));
}

void ntx_kv_copy_v(const struct ntx_kv_seq *s, uint32_t layer, const void *block, uint32_t from, void *to_block, uint32_t to)
{
    const enum ntx_kv_type type = s->pool->type;
    const uint8_t *x = block;
    uint8_t *y = to_block;
    size_t row = s->pool->layer[layer].row_v, n = values_of(type, row), most = NTX_KV_Q8_PANEL / per_byte(type), all = n / per_byte(type);
    if (type == NTX_KV_F16) {
        memcpy(y + to * row, x + from * row, row);
        return;
    }
    for (size_t i = 0; i < all; i++) {
        size_t panel = i / most * most, width = NTX_MIN(all - panel, most), at = NTX_KV_BLOCK * panel + 4 * (i - panel);
        y[at + to / 4 * 4 * width + to % 4] = x[at + from / 4 * 4 * width + from % 4];
    }
    copy_scales(x, from, y, to, n, all);
}

void ntx_kv_move_holes(struct ntx_kv_seq *s, uint32_t from, uint32_t to)
{
    for (uint32_t l = 0; l < s->pool->n_layers; l++) {
        uint8_t *map = s->holes + l * hole_bytes(s), *byte = map + to / 8, bit = (uint8_t)(1u << to % 8);
        bool had = *byte & bit, has = map[from / 8] >> from % 8 & 1;
        if (had != has)
            *byte ^= bit;
        s->n_holes[l] += (uint32_t)has - (uint32_t)had;
    }
}

void ntx_kv_set_hole(struct ntx_kv_seq *s, uint32_t layer, uint32_t pos)
{
    uint8_t *byte = s->holes + layer * hole_bytes(s) + pos / 8, bit = (uint8_t)(1u << pos % 8);
    s->n_holes[layer] += !(*byte & bit);
    *byte |= bit;
}

static uint32_t count_bits(const uint8_t *p, size_t n)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < n; i++)
        bits += (uint32_t)__builtin_popcount(p[i]);
    return bits;
}

void ntx_kv_truncate(struct ntx_kv_seq *s, uint32_t n_tokens)
{
    size_t n = hole_bytes(s), first = n_tokens / 8;
    if (first >= n)
        return;
    for (uint32_t l = 0; l < s->pool->n_layers; l++) {
        uint8_t *map = s->holes + l * n;
        if (!s->n_holes[l])
            continue;
        map[first] &= (uint8_t)((1u << n_tokens % 8) - 1);
        memset(map + first + 1, 0, n - first - 1);
        s->n_holes[l] = count_bits(map, n);
    }
}

/* ---- blocks that several have */

/* The block of position pos of one kind of layers. */
static void copy_block(const struct ntx_kv_seq *from, const struct ntx_kv_seq *to, uint32_t kind, uint32_t pos)
{
    const struct ntx_kv_pool *p = from->pool;
    for (uint32_t l = 0; l < p->n_layers; l++)
        for (uint32_t h = 0; h < p->layer[l].heads && p->layer[l].kind == kind; h++) {
            memcpy(block_of(to, l, h, pos, false), block_of(from, l, h, pos, false), NTX_KV_BLOCK * p->layer[l].row_k);
            memcpy(block_of(to, l, h, pos, true), block_of(from, l, h, pos, true), NTX_KV_BLOCK * p->layer[l].row_v);
        }
}

static void copy_holes(const struct ntx_kv_seq *from, struct ntx_kv_seq *to, uint32_t n_tokens)
{
    for (uint32_t l = 0; l < from->pool->n_layers; l++) {
        memcpy(to->holes + l * hole_bytes(to), from->holes + l * hole_bytes(from), blocks_of(n_tokens) * (NTX_KV_BLOCK / 8));
        to->n_holes[l] = count_bits(to->holes + l * hole_bytes(to), hole_bytes(to));
    }
    ntx_kv_truncate(to, n_tokens);
}

int ntx_kv_seq_fork(const struct ntx_kv_seq *s, uint32_t n_tokens, uint32_t n_room, struct ntx_kv_seq **out)
{
    struct ntx_kv_pool *p = s->pool;
    uint32_t from = n_tokens > p->window ? n_tokens - p->window : 0;
    struct ntx_kv_seq *t;
    if (n_tokens > s->n_blocks[ALL] * NTX_KV_BLOCK || (s->n_blocks[WINDOW] && from < s->oldest))
        return -ENODATA;
    int rc = make_seq(p, blocks_for(NTX_MAX(n_room, n_tokens)), s->blocks[ALL], n_tokens / NTX_KV_BLOCK, &t);
    if (!rc && s->recur && (rc = ntx_recur_copy(s->recur, n_tokens, t->recur))) {
        ntx_kv_seq_free(t);
        return rc;
    }
    if (rc)
        return rc;
    ntx_kv_seq_reach(t, ntx_kv_seq_room(t) - 1);
    if (n_tokens % NTX_KV_BLOCK)
        copy_block(s, t, ALL, n_tokens);
    for (uint32_t b = from / NTX_KV_BLOCK; p->ring && b < blocks_of(n_tokens); b++)
        copy_block(s, t, WINDOW, b * NTX_KV_BLOCK);
    t->oldest = p->ring ? from : 0;
    copy_holes(s, t, n_tokens);
    *out = t;
    return 0;
}

bool ntx_kv_shared(const struct ntx_kv_seq *s, uint32_t pos)
{
    uint32_t b = pos / NTX_KV_BLOCK;
    return b < s->n_blocks[ALL] && s->pool->space[ALL].users[s->blocks[ALL][b]] > 1;
}

/* The block as if it were all that a sequence has. */
static struct ntx_kv_seq alone(struct ntx_kv_pool *p, uint32_t *block) { return (struct ntx_kv_seq){.pool = p, .blocks = {block}, .n_blocks = {1}, .most = 1}; }

void ntx_kv_seq_copy(struct ntx_kv_seq *s, uint32_t block)
{
    uint32_t own = take_block(s->pool, ALL);
    const struct ntx_kv_seq before = alone(s->pool, &block), after = alone(s->pool, &own);
    if (own != block) /* taking it may have made the keeper give up this very one */
        copy_block(&before, &after, ALL, 0);
    s->blocks[ALL][s->n_blocks[ALL]++] = own;
    s->pool->space[ALL].n_promised--;
}

/* Blocks that it cannot simply have again: others go on with them. And one for a copy. */
static uint32_t lost_from(const struct ntx_kv_seq *s, uint32_t pos)
{
    const struct space *x = &s->pool->space[ALL];
    uint32_t n = 0;
    for (uint32_t i = pos / NTX_KV_BLOCK; i < s->n_blocks[ALL]; i++) {
        uint32_t b = s->blocks[ALL][i], users = x->users[b] - x->kept[b];
        n += users > 1 || (x->users[b] > 1 && i * NTX_KV_BLOCK < pos);
    }
    return n;
}

int ntx_kv_own(struct ntx_kv_seq *s, uint32_t pos)
{
    struct space *x = &s->pool->space[ALL];
    uint32_t n = (uint32_t)blocks_of(pos), part = pos % NTX_KV_BLOCK ? pos / NTX_KV_BLOCK : UINT32_MAX;
    if (lost_from(s, pos) > available(x))
        return -EAGAIN;
    for (; s->n_blocks[ALL] > n; x->n_promised++)
        leave_block(x, s->blocks[ALL][--s->n_blocks[ALL]]);
    if (part < s->n_blocks[ALL] && ntx_kv_shared(s, pos)) {
        uint32_t old = s->blocks[ALL][part];
        s->n_blocks[ALL]--;
        x->n_promised++;
        ntx_kv_seq_copy(s, old);
        leave_block(x, old);
    }
    return 0;
}

/* ---- marks */

struct ntx_kv_mark {
    struct ntx_kv_seq has; /* blocks of windows only, enough for its tokens */
    uint32_t from, n_tokens;
    struct ntx_recur_snap *recur;
};

bool ntx_kv_pool_marks(const struct ntx_kv_pool *p) { return p->ring || p->recur; }

void ntx_kv_mark_ahead(struct ntx_kv_seq *s, uint32_t n_tokens)
{
    if (s->recur && find_states(s->pool, 1))
        ntx_recur_stop(s->recur, n_tokens); /* without it, there will be no mark */
}

void ntx_kv_mark_passed(struct ntx_kv_seq *s)
{
    if (s->recur)
        ntx_recur_unstop(s->recur);
}

/* Its blocks of windows, so many. */
static struct ntx_kv_mark *make_mark(struct ntx_kv_pool *p, uint32_t n, uint32_t from, uint32_t n_tokens)
{
    struct ntx_kv_mark *m = calloc(1, sizeof *m);
    uint32_t *blocks = calloc(n + 1, sizeof *blocks);
    if (!m || !blocks) {
        free(m);
        free(blocks);
        return NULL;
    }
    *m = (struct ntx_kv_mark){.has = {.pool = p, .blocks = {[WINDOW] = blocks}}, .from = from, .n_tokens = n_tokens};
    while (m->has.n_blocks[WINDOW] < n)
        blocks[m->has.n_blocks[WINDOW]++] = take_block(p, WINDOW);
    return m;
}

int ntx_kv_mark_new(const struct ntx_kv_seq *s, uint32_t n_tokens, struct ntx_kv_mark **out)
{
    struct ntx_kv_pool *p = s->pool;
    uint32_t from = p->ring && n_tokens > p->window ? n_tokens - p->window : 0, n = p->ring ? (uint32_t)blocks_of(n_tokens) - from / NTX_KV_BLOCK : 0;
    bool copies = false;
    if (from < s->oldest || !n_tokens || (s->recur && !ntx_recur_has(s->recur, n_tokens, &copies)))
        return -ENODATA;
    if (n > p->space[WINDOW].n_blocks || !find_windows(p, n) || !find_states(p, copies))
        return -EAGAIN;
    struct ntx_kv_mark *m = make_mark(p, n, from, n_tokens);
    int rc = !m ? -ENOMEM : s->recur ? ntx_recur_snap_new(s->recur, n_tokens, &m->recur) : 0;
    if (rc) {
        ntx_kv_mark_free(m);
        return rc;
    }
    for (uint32_t b = from / NTX_KV_BLOCK; n && b < blocks_of(n_tokens); b++)
        copy_block(s, &m->has, WINDOW, b * NTX_KV_BLOCK);
    *out = m;
    return 0;
}

void ntx_kv_mark_put(const struct ntx_kv_mark *m, struct ntx_kv_seq *s)
{
    for (uint32_t b = m->from / NTX_KV_BLOCK; s->pool->ring && b < blocks_of(m->n_tokens); b++)
        copy_block(&m->has, s, WINDOW, b * NTX_KV_BLOCK);
    s->oldest = m->from;
    if (m->recur)
        ntx_recur_snap_put(m->recur, s->recur);
}

void ntx_kv_mark_free(struct ntx_kv_mark *m)
{
    if (!m)
        return;
    struct space *x = &m->has.pool->space[WINDOW];
    while (m->has.n_blocks[WINDOW])
        leave_block(x, m->has.blocks[WINDOW][--m->has.n_blocks[WINDOW]]);
    free(m->has.blocks[WINDOW]);
    ntx_recur_snap_free(m->recur);
    free(m);
}

/* ---- as memory */

static uint32_t window_from(const struct ntx_kv_pool *p, uint32_t n_tokens) { return p->ring && n_tokens > p->window ? n_tokens - p->window : 0; }

static int block_parts(const struct ntx_kv_seq *s, uint32_t kind, uint32_t pos, ntx_kv_part_fn *part, void *ctx)
{
    const struct ntx_kv_pool *p = s->pool;
    int rc = 0;
    for (uint32_t l = 0; l < p->n_layers && !rc; l++)
        for (uint32_t h = 0; h < p->layer[l].heads && p->layer[l].kind == kind && !rc; h++)
            if (!(rc = part(ctx, block_of(s, l, h, pos, false), NTX_KV_BLOCK * p->layer[l].row_k)))
                rc = part(ctx, block_of(s, l, h, pos, true), NTX_KV_BLOCK * p->layer[l].row_v);
    return rc;
}

int ntx_kv_each_part(const struct ntx_kv_seq *s, uint32_t n_tokens, ntx_kv_part_fn *part, void *ctx)
{
    int rc = 0;
    size_t bytes;
    for (uint32_t b = 0; b < blocks_of(n_tokens) && !rc; b++)
        rc = block_parts(s, ALL, b * NTX_KV_BLOCK, part, ctx);
    for (uint32_t b = window_from(s->pool, n_tokens) / NTX_KV_BLOCK; s->pool->ring && b < blocks_of(n_tokens) && !rc; b++)
        rc = block_parts(s, WINDOW, b * NTX_KV_BLOCK, part, ctx);
    if (s->recur && !rc) {
        void *at = ntx_recur_memory(s->recur, &bytes);
        rc = part(ctx, at, bytes);
    }
    return rc;
}

void ntx_kv_restored(struct ntx_kv_seq *s, uint32_t n_tokens)
{
    s->oldest = window_from(s->pool, n_tokens);
    if (s->recur)
        ntx_recur_restored(s->recur, n_tokens);
}

/* ---- where a window is not there any more */

void ntx_kv_written(struct ntx_kv_seq *s, uint32_t pos)
{
    uint32_t ring = s->n_blocks[WINDOW] * NTX_KV_BLOCK;
    if (ring && pos >= ring)
        s->oldest = NTX_MAX(s->oldest, pos + 1 - ring);
}

uint32_t ntx_kv_return(struct ntx_kv_seq *s, uint32_t n_tokens)
{
    uint32_t from = n_tokens > s->pool->window ? n_tokens - s->pool->window : 0;
    if (s->n_blocks[WINDOW] && from < s->oldest)
        n_tokens = s->oldest = 0;
    if (s->recur && n_tokens)
        n_tokens = ntx_recur_return(s->recur, n_tokens);
    ntx_kv_truncate(s, n_tokens);
    return n_tokens;
}

struct ntx_recur *ntx_kv_recur(const struct ntx_kv_seq *s) { return s->recur; }

const uint8_t *ntx_kv_holes(const struct ntx_kv_seq *s, uint32_t layer)
{
    layer = s->pool->layer[layer].of;
    return s->n_holes[layer] ? s->holes + layer * hole_bytes(s) : NULL;
}
