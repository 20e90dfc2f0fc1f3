/* SPDX-License-Identifier: Apache-2.0 */
/* kv_shape.c: types of K and V; the bytes that a pool of a shape takes, and that its passes read. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/state/kv_impl.h"

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
        return ntx_err_set(err, -ENOTSUP, "K of a %s model is its V, too, and is kept in f16 only: leave --kv-type out",
                           hp->arch);
    if (t != NTX_KV_F16 && hp->index_beside)
        return ntx_err_set(err, -ENOTSUP,
                           "positions of a %s model are chosen, and their KV is kept in f16 only: leave --kv-type out",
                           hp->arch);
    if (t != NTX_KV_F16 && hp->kv_lora)
        return ntx_err_set(err, -ENOTSUP,
                           "latent KV in %s would be no smaller, since V could not lie in K: leave --kv-type out",
                           type_names[t]);
    for (uint32_t l = 0; t != NTX_KV_F16 && l < (hp->dims ? hp->n_layers : 1); l++) {
        struct ntx_dims w = ntx_dims_of(hp, l);
        if (w.head_k % 32 || w.head_v % 32)
            return ntx_err_set(
                err, -EINVAL,
                "KV in %s needs heads of a multiple of 32 values, this model's have %u and %u: leave --kv-type out",
                type_names[t], w.head_k, w.head_v);
        if (t == NTX_KV_Q4_0 && NTX_MAX(w.head_k, w.head_v) > NTX_KV_Q4_HEAD)
            return ntx_err_set(
                err, -EINVAL,
                "KV in q4_0 needs heads of at most %d values, this model's have %u and %u: q8_0 takes them",
                NTX_KV_Q4_HEAD, w.head_k, w.head_v);
    }
    *type = (enum ntx_kv_type)t;
    return 0;
}

uint64_t ntx_kv_block_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type)
{
    return ntx__kv_rows_bytes(hp, type, false) + ntx__kv_rows_bytes(hp, type, true);
}

/* One ring more than there are sessions with a full context, so that two short ones fit at once. */
struct ntx_kv_shape ntx_kv_shape_for(const struct ntx_hparams *hp, uint32_t ctx, uint32_t sessions, uint32_t rows,
                                     bool all)
{
    uint64_t blocks = ntx__kv_blocks_of(ctx) * sessions,
             ring = NTX_MIN(ntx__kv_blocks_of((uint64_t)hp->window + rows), ntx__kv_blocks_of(ctx));
    struct ntx_kv_shape s = {
        .blocks = (uint32_t)NTX_MIN(blocks, (uint64_t)UINT32_MAX),
        .states = ntx_recur_bytes(hp) ? (uint32_t)NTX_MIN(2 * ((uint64_t)sessions + 1), (uint64_t)UINT32_MAX) : 0};
    if (!all && ntx__kv_rows_bytes(hp, NTX_KV_F16, true) && ntx__kv_rows_bytes(hp, NTX_KV_F16, false) &&
        ring * (sessions + 1) < s.blocks) {
        s.ring = (uint32_t)ring;
        s.window_blocks = (uint32_t)ring * (sessions + 1);
    }
    return s;
}

static uint32_t snapshot_blocks(const struct ntx_hparams *hp, const struct ntx_kv_shape *s)
{
    return s->ring ? (uint32_t)NTX_MIN(ntx__kv_blocks_of(hp->window) + 1, (uint64_t)s->ring) : 0;
}

void ntx_kv_shape_snapshots(const struct ntx_hparams *hp, uint32_t n, struct ntx_kv_shape *s)
{
    s->states += s->states ? n : 0;
    s->window_blocks += snapshot_blocks(hp, s) * n;
}

uint64_t ntx_kv_snapshot_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *s)
{
    return (s->states ? ntx_recur_bytes(hp) / 2 : 0) + snapshot_blocks(hp, s) * ntx__kv_rows_bytes(hp, type, true);
}

uint64_t ntx__kv_kind_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *s,
                            uint32_t kind)
{
    uint64_t bytes;
    return __builtin_mul_overflow(ntx__kv_kinds[kind]->unit_bytes(hp, type, s), ntx__kv_kinds[kind]->units(s), &bytes)
               ? UINT64_MAX
               : bytes;
}

uint64_t ntx_kv_shape_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *s)
{
    uint64_t sum = 0;
    for (uint32_t k = 0; k < NTX__KV_KINDS; k++) {
        uint64_t bytes = ntx__kv_kind_bytes(hp, type, s, k);
        if (k == NTX__KV_ALL && s->ram)
            bytes = NTX_MIN(bytes, s->ram);
        if (__builtin_add_overflow(sum, bytes, &sum))
            return UINT64_MAX;
    }
    return s->blocks == UINT32_MAX ? UINT64_MAX : sum;
}

/* ---- in a file */

/* Each layer that keeps all positions is a part of the file. A layer with top-k has a part of its K, and another behind
 * all layers' parts, for index keys in V's place. A layer reads its own part, or another layer's, and beside it pooled
 * K, or index keys. */
int ntx__kv_make_layout(const struct ntx_kv_pool *p, uint32_t n_blocks, struct ntx_kv_layout *out)
{
    struct ntx_kv_part *part = calloc(2 * p->n_layers, sizeof *part);
    uint16_t(*reads)[NTX_KV_READS] = calloc(p->n_turns, sizeof *reads);
    *out = (struct ntx_kv_layout){.n_blocks = n_blocks,
                                  .cluster = NTX_KV_CLUSTER,
                                  .n_layers = p->n_turns,
                                  .n_parts = 2 * p->n_layers,
                                  .part = part,
                                  .reads = (const uint16_t(*)[NTX_KV_READS])reads};
    if (!part || !reads)
        return -ENOMEM;
    for (uint32_t l = 0; l < p->n_layers; l++) {
        const struct ntx__kv_rows *k = &p->rows[l];
        const size_t all = k->kind == NTX__KV_ALL ? NTX_KV_BLOCK * k->heads * (k->row_k + k->row_v) : 0,
                     topk = k->v_is_key ? NTX_KV_BLOCK * k->row_k : all;
        part[l] = (struct ntx_kv_part){.row = k->topk ? topk : all, .run = k->run, .topk = k->topk};
        part[p->n_layers + l] = (struct ntx_kv_part){.row = k->topk ? all - topk : 0};
    }
    for (uint32_t l = 0; l < p->n_turns; l++) {
        const uint16_t own = p->rows[l].of, pooled = (uint16_t)(l + p->n_turns);
        reads[l][0] = part[own].row ? own : NTX_KV_NO_PART;
        reads[l][1] = pooled < p->n_layers && part[pooled].row ? pooled : NTX_KV_NO_PART;
        reads[l][2] = ntx__kv_keys_part(p,
                                        reads[l][1] != NTX_KV_NO_PART && p->rows[reads[l][1]].topk ? reads[l][1] : own);
    }
    return 0;
}

void ntx__kv_free_layout(struct ntx_kv_layout *l)
{
    free((void *)l->part);
    free((void *)l->reads);
}

/* For a pool that does not exist yet. */
static int layout_of(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *s,
                     struct ntx_kv_layout *out)
{
    struct ntx_kv_pool p = {.type = type, .ring = s->ring};
    *out = (struct ntx_kv_layout){.n_blocks = 0};
    int rc = ntx__kv_make_rows(&p, hp);
    if (!rc)
        rc = ntx__kv_make_layout(&p, s->blocks, out);
    free(p.rows);
    out->topk = hp->index.most;
    if (hp->index.block)
        out->topk *= hp->index.heads * ((hp->index.block + NTX_KV_BLOCK - 1) / NTX_KV_BLOCK);
    return rc;
}

/* Top-k reads pay only if rows select at most a quarter: they are known late, and come in small pieces while the layer
 * waits. */
bool ntx_kv_pass_has_topk(const struct ntx_hparams *hp, uint32_t rows, uint64_t positions)
{
    const uint64_t heads = hp->index.block ? hp->index.heads : 1;
    return hp->index.head && 4 * rows * heads * ntx_index_reach(hp) < positions;
}

int ntx_kv_shape_limit(const struct ntx_hparams *hp, enum ntx_kv_type type, uint64_t ram, struct ntx_kv_shape *s,
                       struct ntx_err *err)
{
    struct ntx_kv_layout l;
    char have[32], need[32];
    if (!ram || s->blocks == UINT32_MAX || ntx__kv_kind_bytes(hp, type, s, NTX__KV_ALL) <= ram)
        return 0;
    int rc = layout_of(hp, type, s, &l);
    uint64_t least = rc ? 0 : ntx_kv_file_least(&l);
    ntx__kv_free_layout(&l);
    if (rc)
        return ntx_err_set(err, rc, "no memory");
    if (least > ram)
        return ntx_err_set(err, -ENOSPC,
                           "--kv-ram: %s is too little for this context: two layers' K and V and what is being written "
                           "take %s (%llu bytes)",
                           ntx_format_size(ram, have, sizeof have), ntx_format_size(least, need, sizeof need),
                           (unsigned long long)least);
    s->ram = ram;
    return 0;
}

uint64_t ntx_kv_shape_reads(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *s,
                            uint32_t positions, uint32_t rows, bool asked)
{
    struct ntx_kv_layout l;
    uint64_t bytes = 0;
    if (!s->ram)
        return 0;
    const uint32_t topk_rows = ntx_kv_pass_has_topk(hp, rows, positions) ? rows : 0;
    if (!layout_of(hp, type, s, &l))
        bytes = ntx_kv_file_reads(&l, (uint32_t)ntx__kv_blocks_of(positions), s->ram, hp->n_layers - !asked, topk_rows);
    ntx__kv_free_layout(&l);
    return bytes;
}
