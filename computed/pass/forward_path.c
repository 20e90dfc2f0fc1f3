/* SPDX-License-Identifier: Apache-2.0 */
/* forward_path.c: rows of a draft tree. Attention sums in the order of positions, in parts (cpu/cpu.h). So for a row
 * whose path is not at its positions, the blocks of the path are copied, a head at a time, with each slot at its
 * position. Then kernels and bits are those of plain rows. The size of the copy does not grow with the context. */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "computed/pass/forward_impl.h"

bool ntx__in_place(const struct ntx_row *r)
{
    for (uint32_t i = 0; i < r->n_path; i++)
        if (r->path[i] != r->pos + 1 - r->n_path + i)
            return false;
    return true;
}

int ntx__check_path(const struct ntx_row *r)
{
    uint32_t room = ntx_kv_seq_room(r->kv);
    if (r->n_path > NTX_PATH_MAX || r->n_path > r->pos + 1)
        return -EINVAL;
    for (uint32_t i = 0; i < r->n_path; i++) /* a slot before its position would be one that was committed */
        if (r->path[i] >= room || r->path[i] < r->pos + 1 - r->n_path + i || (i && r->path[i] <= r->path[i - 1]))
            return -EINVAL;
    return 0;
}

static void place_holes(const struct ntx_row *r, struct ntx__lane *lane, struct ntx_attn *a)
{
    const uint8_t *hole = a->hole;
    memcpy(lane->path_holes, hole, r->pos / 8 + 1);
    for (uint32_t i = 0; i < r->n_path; i++) {
        uint32_t p = r->pos + 1 - r->n_path + i, bit = hole[r->path[i] / 8] >> r->path[i] % 8 & 1;
        lane->path_holes[p / 8] = (uint8_t)((lane->path_holes[p / 8] & ~(1u << p % 8)) | bit << p % 8);
    }
    a->hole = lane->path_holes;
}

void ntx__attend_path(const struct ntx_forward *f, const struct ntx_row *r, uint32_t kv_head, struct ntx__lane *lane,
                      struct ntx_attn *a)
{
    uint32_t first = NTX_MAX(r->pos + 1 - r->n_path, ntx_attn_from(a, 0)), block = first / NTX_KV_BLOCK;
    size_t k_bytes = ntx_kv_k_bytes(r->kv, f->layer), v_bytes = ntx_kv_v_bytes(r->kv, f->layer);
    for (uint32_t b = block; b <= r->pos / NTX_KV_BLOCK; b++) {
        lane->k[b] = memcpy(lane->path_k + (b - block) * k_bytes, lane->k[b], k_bytes);
        lane->v[b] = memcpy(lane->path_v + (b - block) * v_bytes, lane->v[b], v_bytes);
    }
    for (uint32_t p = first; p <= r->pos; p++) {
        uint32_t slot = r->path[r->n_path - 1 - (r->pos - p)], to = p / NTX_KV_BLOCK - block;
        if (slot == p)
            continue;
        ntx_kv_copy_k(r->kv, f->layer, ntx_kv_k(r->kv, f->layer, kv_head, slot), slot % NTX_KV_BLOCK,
                      lane->path_k + to * k_bytes, p % NTX_KV_BLOCK);
        ntx_kv_copy_v(r->kv, f->layer, ntx_kv_v(r->kv, f->layer, kv_head, slot), slot % NTX_KV_BLOCK,
                      lane->path_v + to * v_bytes, p % NTX_KV_BLOCK);
    }
    if (a->hole)
        place_holes(r, lane, a);
}

/* ---- commit of a path */

static void move_slot(const struct ntx_kv_seq *kv, uint32_t layer, uint32_t head, uint32_t from, uint32_t to)
{
    ntx_kv_copy_k(kv, layer, ntx_kv_k(kv, layer, head, from), from % NTX_KV_BLOCK, ntx_kv_k(kv, layer, head, to),
                  to % NTX_KV_BLOCK);
    ntx_kv_copy_v(kv, layer, ntx_kv_v(kv, layer, head, from), from % NTX_KV_BLOCK, ntx_kv_v(kv, layer, head, to),
                  to % NTX_KV_BLOCK);
}

int ntx__cpu_move(struct ntx_forward *f, struct ntx_kv_seq *kv, const uint32_t *from, const uint32_t *to, uint32_t n)
{
    int rc = 0;
    for (uint32_t l = 0; l < f->hp->n_layers && !rc; l++)
        for (uint32_t i = 0, heads = ntx_kv_heads(kv, l); i < n && heads && !rc; i++) {
            if ((rc = ntx_kv_touch(kv, l, from[i], false)) || (rc = ntx_kv_touch(kv, l, to[i], true)))
                break;
            for (uint32_t h = 0; h < heads; h++)
                move_slot(kv, l, h, from[i], to[i]);
        }
    return rc ? ntx_err_set(&f->c.weights->error, rc, "K and V of drafts cannot be kept on the drive of --state: %s",
                            strerror(-rc))
              : 0;
}

int ntx_forward_commit(struct ntx_forward *f, struct ntx_kv_seq *kv, uint32_t pos, const uint32_t *slots, uint32_t n)
{
    const struct ntx_row last = {.pos = pos + n - 1, .n_path = n, .path = slots, .kv = kv};
    uint32_t from[NTX_PATH_MAX], to[NTX_PATH_MAX], moved = 0;
    int rc = n ? ntx__check_path(&last) : 0;
    for (uint32_t i = 0; i < n && !rc; i++)
        rc = ntx_kv_shared(kv, pos + i) && slots[i] != pos + i ? -EINVAL : 0;
    if (rc)
        return ntx_err_set(&f->c.weights->error, rc, "a path of %u slots from position %u on cannot be kept", n, pos);
    for (uint32_t i = 0; i < n;
         i++) /* none is written before it is read: slots ascend, and none is before its position */
        if (slots[i] != pos + i) {
            from[moved] = slots[i];
            to[moved++] = pos + i;
            ntx_kv_move_holes(kv, slots[i], pos + i);
        }
    ntx_kv_truncate(kv, pos + n);
    return moved ? f->back->move(f, kv, from, to, moved) : 0;
}
