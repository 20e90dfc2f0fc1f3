/* forward_mem.c: where everything of a pass lies. One function walks the plan, once to count and once to place. */
#include "common/util.h"
#include "computed/forward_impl.h"

struct cursor {
    uint8_t *base; /* NULL while counting */
    uint64_t at;
};

static void *place(struct cursor *c, uint64_t bytes)
{
    uint64_t at = c->at;
    c->at += NTX_ROUND_UP(bytes, 64);
    return c->base ? c->base + at : NULL;
}

static float *place_rows(struct cursor *c, uint64_t rows, uint64_t width)
{
    return place(c, rows * ntx_act_row_bytes(NTX_ACT_F32, (uint32_t)width));
}

uint32_t ntx__forms(const struct ntx_weight *const *w, unsigned n)
{
    uint32_t forms = 0;
    for (unsigned i = 0; i < n; i++)
        forms |= 1u << ntx_act_for(w[i]->type);
    return forms;
}

/* Bytes of the widest packed row in this form that any matrix of the model multiplies by. */
static size_t packed_row(const struct ntx_chunks *chunks, uint32_t n_layers, enum ntx_act form)
{
    size_t most = ntx_act_for(chunks->output.type) == form ? ntx_act_row_bytes(form, chunks->output.n_in) : 0;
    for (uint32_t l = 0; l < n_layers; l++) {
        const struct ntx_layer_weights *w = &chunks->layers[l];
        const struct ntx_weight *const all[] = {&w->q, &w->k, &w->v, &w->o, &w->gate, &w->up, &w->down};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (ntx_act_for(all[i]->type) == form)
                most = NTX_MAX(most, ntx_act_row_bytes(form, all[i]->n_in));
    }
    return most;
}

static void place_lanes(struct cursor *c, const struct ntx_forward_config *cfg, struct ntx__mem *m)
{
    uint64_t blocks = ((uint64_t)cfg->ctx + NTX_KV_BLOCK - 1) / NTX_KV_BLOCK;
    m->lanes = place(c, cfg->threads * sizeof *m->lanes);
    for (uint32_t t = 0; t < cfg->threads; t++) {
        struct ntx__lane lane = {
            .scores = place(c, NTX_ROUND_UP((uint64_t)cfg->ctx, 16) * sizeof(float)),
            .k = place(c, blocks * sizeof *lane.k),
            .v = place(c, blocks * sizeof *lane.v),
            .logits = place(c, (uint64_t)cfg->max_rows * NTX__LOGIT_TILE * sizeof(float)),
        };
        if (c->base)
            m->lanes[t] = lane;
    }
}

/* Attention's buffers and the FFN's are never in use together. */
static void place_layer(struct cursor *c, const struct ntx_hparams *hp, uint64_t rows, struct ntx__mem *m)
{
    uint64_t start = c->at;
    m->q = place_rows(c, rows, (uint64_t)hp->n_head * hp->head_k);
    m->k = place_rows(c, rows, (uint64_t)hp->n_head_kv * hp->head_k);
    m->v = place_rows(c, rows, (uint64_t)hp->n_head_kv * hp->head_v);
    m->attn = place_rows(c, rows, (uint64_t)hp->n_head * hp->head_v);
    uint64_t attention_end = c->at;
    c->at = start;
    m->gate = place_rows(c, rows, hp->n_ff);
    m->up = place_rows(c, rows, hp->n_ff);
    c->at = NTX_MAX(c->at, attention_end);
}

uint64_t ntx__forward_layout(const struct ntx_forward_config *cfg, uint8_t *base, struct ntx__mem *m)
{
    const struct ntx_hparams *hp = &cfg->model->hp;
    struct cursor c = {.base = base};
    uint64_t rows = cfg->max_rows;
    m->h = place(&c, rows * hp->n_embd * sizeof *m->h);
    m->x = place_rows(&c, rows, hp->n_embd);
    place_layer(&c, hp, rows, m);
    m->y = place(&c, rows * hp->n_embd * sizeof *m->y);
    m->packed[NTX_ACT_F32] = NULL;
    for (int form = NTX_ACT_F32 + 1; form < NTX_N_ACTS; form++)
        m->packed[form] = place(&c, rows * packed_row(cfg->chunks, hp->n_layers, (enum ntx_act)form));
    m->cs = place(&c, rows * (hp->rope_dim / 2) * sizeof *m->cs);
    m->sn = place(&c, rows * (hp->rope_dim / 2) * sizeof *m->sn);
    m->freq = place(&c, hp->rope_dim / 2 * sizeof *m->freq);
    m->skip = place(&c, rows * NTX_MAP_WORDS * sizeof *m->skip);
    m->live = place(&c, rows * sizeof *m->live);
    m->ids = place(&c, rows * sizeof *m->ids);
    m->logits = place(&c, rows * sizeof *m->logits);
    m->embd = place(&c, rows * cfg->chunks->token_embd.row_bytes);
    m->tiles = place(&c, (uint64_t)cfg->chunks->n * sizeof *m->tiles);
    place_lanes(&c, cfg, m);
    return NTX_ROUND_UP(c.at, 4096);
}
