/* plan_predict.c: how fast a plan will be, by the cost model of plan/predict.h, from the placement of every chunk. */
#include "computed/plan_impl.h"

#include "common/util.h"
#include "computed/kv.h"
#include "plan/place.h"

void ntx__plan_predict(const struct ntx_model *m, const struct ntx_hw *hw, struct ntx_plan *p)
{
    struct ntx_load_bytes l = {.rows = 1, .n_layers = m->hp.n_layers, .threads = p->threads};
    struct ntx_forecast f;
    double streamed = 0, used = m->hp.n_expert ? (double)m->hp.n_expert_used / m->hp.n_expert : 1;
    double framed = 0; /* as if choices were random */
    uint32_t bundles = 0;
    for (uint32_t i = 0; i < p->chunks->n; i++)
        bundles += p->table[i].placement == NTX_PLACE_FRAME;
    if (bundles)
        framed = NTX_MIN((double)p->frames.n * NTX_EXPERT_PARTS / bundles, 1.0);
    p->predicted_tok_s = 0;
    p->limit = "";
    if (p->n_windows) /* how much of it rows will use, nobody knows before */
        return;
    for (uint32_t i = 0; i < p->chunks->n; i++) {
        const struct ntx_chunk *c = &p->chunks->list[i];
        bool storage = p->table[i].placement == NTX_PLACE_STORAGE;
        double bytes = (double)c->bytes * (c->expert ? used : 1);
        uint32_t type = ntx_gguf_tensor_at(m->gguf, c->tensor)->type;
        if (type == NTX_I8) /* groups of neurons, mostly of one type */
            type = m->pack[c->layer].type[NTX_PACK_UP];
        if (p->table[i].placement == NTX_PLACE_FRAME) {
            l.bytes[NTX_TIER_HOST][type] += bytes * framed;
            l.bytes[NTX_TIER_STORAGE][type] += bytes * (1 - framed);
            l.late_bytes += bytes * (1 - framed);
            continue;
        }
        l.bytes[c->device ? NTX_TIER_DEVICE : storage ? NTX_TIER_STORAGE : NTX_TIER_HOST][type] += bytes;
        streamed += storage ? (double)c->bytes : 0;
    }
    uint64_t each = p->geo.n_sched ? (uint64_t)streamed / p->geo.n_sched : p->piece_bytes;
    l.read_bytes = NTX_MIN(each, p->piece_bytes);
    l.kv_on_device = p->bytes_device > 0;
    l.kv_bytes = (double)NTX_MIN(p->ctx, NTX_PLACE_TEXT) / NTX_KV_BLOCK * (double)ntx_kv_block_bytes(&m->hp, p->kv_type);
    if (!hw || ntx_predict(hw, &l, &f))
        return;
    p->predicted_tok_s = 1 / f.pass_s;
    p->limit = f.limit;
}
