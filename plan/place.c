#include "plan/place.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/util.h"
#include "infer/kv.h"

#define RING_BYTES (36ull << 20)  /* slots and spares of a ring that keeps a drive busy */
#define RING_LEAST 5u             /* slots */
#define SLOT_MORE (8u << 10)
#define CHUNK_MIN (64u << 10)
#define CHUNK_MAX (4u << 20)
#define CHUNK_LISTS 256u          /* of each chunk, in the lists of region and computed */
#define TOKEN_BYTES 100u          /* of the vocabulary, with header and tokenizer */
#define ALWAYS (1u << 20)
#define CTX_MOST 4096u
#define CTX_LEAST 128u
#define PARTS_PLACED 3            /* DENSE, HEAD, EXPERT, in this order */
#define EXPERT_READ (1u << 20)

static const enum ntx_part order[PARTS_PLACED] = {NTX_PART_DENSE, NTX_PART_HEAD, NTX_PART_EXPERT};

/* Activations of one row: as computed's forward pass has them (floats of each width, their packed forms, a probe, an embedding row). */
static uint64_t row_bytes(const struct ntx_outline *o)
{
    uint64_t q = (uint64_t)o->n_head * o->head_k, kv = (uint64_t)o->n_head_kv * o->head_k, ff = (uint64_t)o->n_ff * NTX_MAX(o->n_used, 1u);
    return 4 * (3ull * o->n_embd + 2 * q + 2 * kv + 2 * ff) + (ff + q + o->n_embd) * 5 / 4 + 4ull * o->n_embd + 8192;
}

uint32_t ntx_place_ctx_least(uint32_t ctx_train) { return ctx_train ? NTX_MIN(ctx_train, CTX_LEAST) : CTX_LEAST; }

uint32_t ntx_place_ctx(uint64_t ram, double block_bytes, uint32_t ctx_train, uint32_t sessions)
{
    uint32_t most = ctx_train ? NTX_MIN(ctx_train, CTX_MOST) : CTX_MOST;
    double blocks = floor((double)(ram / 4) / block_bytes / NTX_MAX(sessions, 1u));
    return (uint32_t)NTX_MAX(NTX_MIN(blocks * NTX_KV_BLOCK, (double)most), (double)ntx_place_ctx_least(ctx_train));
}

/* Takes of each part as much as fits into `room`; returns the bytes taken. */
static uint64_t fill(const struct ntx_outline *o, struct ntx_layout *p, enum ntx_tier tier, uint64_t room)
{
    uint64_t used = 0;
    for (int i = 0; i < PARTS_PLACED; i++) {
        uint64_t all = ntx_outline_bytes(o, order[i]);
        double left = 1;
        for (int t = 0; t < (int)tier; t++)
            left -= p->share[order[i]][t];
        if (!all || left <= 0)
            continue;
        uint64_t want = (uint64_t)((double)all * left), take = NTX_MIN(want, room - used);
        p->share[order[i]][tier] = take == want ? left : (double)take / (double)all;
        used += take;
    }
    return p->bytes[tier] = used;
}

/* Of the lists that go with a model in chunks of `size`. */
static uint64_t lists_bytes(const struct ntx_outline *o, uint64_t size) { return (ntx_outline_model_bytes(o) / size + o->n_matrices) * CHUNK_LISTS; }

/* Of the smallest ring of such chunks, which have one row at least: about a byte a weight. */
static uint64_t ring_bytes(const struct ntx_outline *o, uint64_t size) { return RING_LEAST * (NTX_MAX(size, (uint64_t)NTX_MAX(o->n_embd, o->n_ff)) + SLOT_MORE); }

/* Nothing but what is always there stays in memory: vectors and routers, a row's activations, KV, experts of one row, what the fewest clients take. */
static uint64_t smallest(const struct ntx_outline *o, uint64_t kv, uint64_t rest)
{
    uint64_t fixed = o->bytes[NTX_PART_DENSE][NTX_F32], clients = 4 * (16ull * o->n_vocab + (64u << 10)) + 16ull * o->n_vocab;
    uint64_t experts = o->n_experts ? ntx_outline_bytes(o, NTX_PART_EXPERT) / NTX_MAX(o->n_expert_layers, 1u) / o->n_experts * o->n_used : 0, best = UINT64_MAX;
    for (uint64_t size = CHUNK_MIN; size <= CHUNK_MAX; size *= 2)
        best = NTX_MIN(best, lists_bytes(o, size) + NTX_MIN(rest, fixed + experts + ring_bytes(o, size)));
    return best + kv + row_bytes(o) + clients + (uint64_t)o->n_vocab * TOKEN_BYTES + ALWAYS;
}

static int refuse(const struct ntx_layout *p, struct ntx_err *err)
{
    char need[32], have[32];
    return ntx_err_set(err, -ENOMEM, "the smallest memory budget that would do is about %s; the budget is %s: use --ram with at least that, or a smaller --ctx",
                       ntx_format_size(p->smallest, need, sizeof need), ntx_format_size(p->ram, have, sizeof have));
}

static void budgets(const struct ntx_hw *hw, const struct ntx_place_request *r, struct ntx_layout *p)
{
    p->ram = r->ram ? r->ram : hw->ram_bytes - hw->ram_bytes * 15 / 100;
    p->vram = r->vram == UINT64_MAX ? 0 : r->vram ? NTX_MIN(r->vram, hw->gpu.bytes) : hw->gpu.bytes - hw->gpu.bytes * 8 / 100;
}

/* The GPU first takes the KV, then weights. */
static void use_device(const struct ntx_outline *o, struct ntx_layout *p)
{
    uint64_t work = 64 * row_bytes(o);
    if (p->vram <= work)
        return;
    uint64_t room = p->vram - work;
    p->kv_on_device = p->kv_bytes <= room / 4;
    fill(o, p, NTX_TIER_DEVICE, room - (p->kv_on_device ? p->kv_bytes : 0));
}

int ntx_place(const struct ntx_hw *hw, const struct ntx_outline *o, const struct ntx_place_request *r, struct ntx_layout *out, struct ntx_err *err)
{
    struct ntx_layout p = {.multiply = r->multiply, .threads = r->threads ? r->threads : hw->threads};
    uint64_t model = ntx_outline_model_bytes(o), row = row_bytes(o);
    p.kv_token_bytes = (double)ntx_outline_kv_values(o) * (r->kv_value_bytes > 0 ? r->kv_value_bytes : 2);
    budgets(hw, r, &p);
    if (o->latent) { /* is computed on the CPU only */
        p.vram = 0;
        p.multiply = NTX_MULTIPLY_CPU;
    }
    if (!p.ram)
        return ntx_err_set(err, -EINVAL, "the profile does not say how much memory the machine has: give --ram");
    p.ctx = r->ctx ? r->ctx : ntx_place_ctx(p.ram, p.kv_token_bytes * NTX_KV_BLOCK, o->ctx_train, 1);
    p.kv_bytes = (uint64_t)(p.ctx * p.kv_token_bytes) + 2 * o->state_bytes; /* and as much for snapshots */
    use_device(o, &p);
    uint64_t kv = p.kv_on_device ? 0 : p.kv_bytes, rest = model - p.bytes[NTX_TIER_DEVICE];
    p.rows = (uint32_t)NTX_MAX(NTX_MIN(NTX_MIN(p.ram / 8 / row, (uint64_t)NTX_PLACE_ROWS), (uint64_t)p.ctx), (uint64_t)1);
    p.work_bytes = p.rows * row;
    p.smallest = r->smallest ? r->smallest : smallest(o, (uint64_t)((r->ctx ? r->ctx : ntx_place_ctx_least(o->ctx_train)) * p.kv_token_bytes) + 2 * o->state_bytes, rest);
    if (p.smallest > p.ram)
        return refuse(&p, err);
    uint64_t room = p.ram > kv + p.work_bytes ? p.ram - kv - p.work_bytes : 0;
    if (room < rest) {
        uint64_t ring = NTX_MIN(RING_BYTES, NTX_MAX(room / 2, RING_BYTES / 3));
        room -= NTX_MIN(ring, room);
        p.work_bytes += ring;
    }
    fill(o, &p, NTX_TIER_HOST, room);
    fill(o, &p, NTX_TIER_STORAGE, UINT64_MAX);
    *out = p;
    return 0;
}

/* The part of the experts that a pass of so many rows needs, if each row chooses freely. */
static double experts_share(const struct ntx_outline *o, uint32_t rows)
{
    return 1 - pow(1 - (double)o->n_used / o->n_experts, rows);
}

void ntx_place_load(const struct ntx_outline *o, const struct ntx_layout *p, uint32_t rows, uint32_t positions, struct ntx_load_bytes *out)
{
    struct ntx_load_bytes l = {.rows = rows, .n_layers = o->n_layers, .threads = p->threads, .multiply = p->multiply, .kv_on_device = p->kv_on_device,
                               .late_read_bytes = EXPERT_READ};
    for (int i = 0; i < PARTS_PLACED; i++) {
        enum ntx_part part = order[i];
        double touched = part == NTX_PART_EXPERT && o->n_experts ? experts_share(o, rows) : 1;
        for (uint32_t type = 0; type < NTX_TYPE_LIMIT; type++)
            for (int t = 0; t < NTX_N_TIERS; t++)
                l.bytes[t][type] += (double)o->bytes[part][type] * p->share[part][t] * touched;
        if (part == NTX_PART_EXPERT && touched < NTX_PLACE_NEARLY_ALL)
            l.late_bytes = (double)ntx_outline_bytes(o, part) * p->share[part][NTX_TIER_STORAGE] * touched;
    }
    l.kv_bytes = p->kv_token_bytes * positions + (double)o->state_bytes;
    *out = l;
}
