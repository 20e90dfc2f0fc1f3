/* SPDX-License-Identifier: Apache-2.0 */
/* Layer skip: rows that leave layers out, what is announced and when, and holes in later attention. */
#include <math.h>

#include "shm/region.h" /* NTX_MAP_WORDS */
#include "tests/unit/pass/rig.h"

#define PROBE 1

struct script { /* the predictor's part */
    struct rig *r;
    uint64_t mask; /* layers that rows in `who` skip */
    uint32_t who;  /* bit per row of the batch */
    unsigned probes, decisions, rows_seen;
    float *seen;       /* [rows x n_embd] the state that was reported last */
    bool shown;        /* since the last decision */
    uint32_t acquired; /* chunks acquired when asked */
};

static void probe(void *ctx, const struct ntx_batch *b, const float *hidden)
{
    struct script *s = ctx;
    s->probes++;
    s->shown = true;
    s->rows_seen = b->n_rows;
    memcpy(s->seen, hidden, (size_t)b->n_rows * s->r->n_embd * sizeof *hidden);
}

static void decide(void *ctx, const struct ntx_batch *b, uint64_t *skip)
{
    struct script *s = ctx;
    CHECK(s->shown);
    s->shown = false;
    s->decisions++;
    s->acquired = s->r->w.n_acquired;
    for (uint32_t i = 0; i < b->n_rows; i++) {
        for (int w = 0; w < NTX_MAP_WORDS; w++)
            CHECK_EQ(skip[i * NTX_MAP_WORDS + w], 0);
        if (s->who >> i & 1)
            skip[i * NTX_MAP_WORDS] = s->mask;
    }
}

static void hook(struct rig_options *o, struct script *s, struct rig *r)
{
    *s = (struct script){.r = r, .seen = malloc(64 * 256 * sizeof(float))};
    o->skip = (struct ntx_skip_hooks){.ctx = s, .probe_layer = PROBE, .probe = probe, .decide = decide};
}

static uint32_t chunks_of(const struct rig *r, uint32_t layer)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->chunks->n; i++)
        n += r->chunks->list[i].layer == layer;
    return n;
}

/* Weights of K and V, and biases, which are taken together. */
static uint32_t feeding(const struct rig *r, uint32_t layer)
{
    const struct ntx_layer_weights *w = &r->chunks->layers[layer];
    return w->attn_norm.n_chunks + w->k.n_chunks + w->v.n_chunks + w->q_bias.n_chunks + w->k_bias.n_chunks +
           w->v_bias.n_chunks;
}

/* If layer 5 is the last one its end is announced separately. */
static uint32_t skips_last(const struct rig *r) { return r->n_layers == 6; }

/* Row 0 skips layers 3 and 5, row 1 none: each gives what it gives alone; nothing is dropped, and only row 0 has
 * holes. */
static void beside_another(const struct mk_options *make)
{
    struct rig r;
    struct script s;
    struct rig_options o = {.make = *make};
    hook(&o, &s, &r);
    rig_open(&r, &o);
    int32_t ids[12];
    size_t n = r.n_vocab;
    rig_ids(&r, 1, ids, 12);
    float *alone[2] = {malloc(n * 4), malloc(n * 4)}, *both[2] = {malloc(n * 4), malloc(n * 4)};
    struct ntx_kv_seq *kv[4];
    for (int i = 0; i < 4; i++) {
        kv[i] = rig_seq(&r, 64);
        rig_feed(&r, kv[i], ids + i % 2, 10, 0, 10, NULL);
    }
    CHECK_EQ(s.probes, 4);
    CHECK_EQ(s.decisions, 0); /* no row might skip */
    struct ntx_row row[2];
    s.mask = 1 << 3 | 1 << 5 | 1 << PROBE | 1; /* past layers cannot be skipped */
    s.decisions = s.probes = 0;
    for (uint32_t i = 0; i < 2; i++) {
        row[i] = (struct ntx_row){.token = ids[i], .pos = 10, .kv = kv[i], .logits = alone[i], .may_skip = true};
        s.who = i == 0;
        CHECK_EQ(rig_run(&r, &row[i], 1), 0);
        CHECK_EQ(r.w.n_drops, i == 0 ? 2 + skips_last(&r) : 0);
    }
    CHECK_EQ(ntx_forward_skipped(r.f), 2);
    s.who = 1;
    for (uint32_t i = 0; i < 2; i++)
        row[i] = (struct ntx_row){.token = ids[i], .pos = 10, .kv = kv[2 + i], .logits = both[i], .may_skip = true};
    CHECK_EQ(rig_run(&r, row, 2), 0);
    CHECK_EQ(r.w.n_drops, 0);
    CHECK_EQ(r.w.n_acquired, r.chunks->n);
    CHECK_EQ(ntx_forward_skipped(r.f), 4);
    CHECK_EQ(s.decisions, 3);
    CHECK_EQ(s.rows_seen, 2);
    CHECK_SAME(alone[0], both[0], n);
    CHECK_SAME(alone[1], both[1], n);
    CHECK(memcmp(both[0], both[1], n * 4));
    for (uint32_t l = 0; l < r.n_layers; l++) {
        const uint8_t *h = ntx_kv_holes(kv[2], l);
        CHECK_EQ(h != NULL, l == 3 || l == 5);
        CHECK(!h || (h[1] == 4 && h[0] == 0));
        CHECK(!ntx_kv_holes(kv[3], l));
    }
    for (int i = 0; i < 4; i++)
        ntx_kv_seq_free(kv[i]);
    rig_close(&r);
    free(alone[0]), free(alone[1]), free(both[0]), free(both[1]), free(s.seen);
}

/* Every row skips layers 3 and 5: they are announced right after the probe, their chunks are skipped, and the state
 * passes unchanged. A row that may not skip keeps all. */
static float *trace_state;
static void keep_state(void *ctx, uint32_t layer, const float *hidden, uint32_t n_rows)
{
    struct rig *r = ctx;
    memcpy(trace_state + (size_t)layer * 64 * r->n_embd, hidden, (size_t)n_rows * r->n_embd * sizeof *hidden);
}

static void all_skip(const struct mk_options *make)
{
    struct rig r;
    struct script s;
    struct rig_options o = {.make = *make, .window = 3};
    hook(&o, &s, &r);
    rig_open(&r, &o);
    trace_state = calloc((size_t)r.n_layers * 64 * r.n_embd, sizeof *trace_state);
    ntx_forward_trace(r.f, keep_state, &r);
    struct ntx_kv_seq *kv[2] = {rig_seq(&r, 8), rig_seq(&r, 8)};
    float *logits = malloc(r.n_vocab * 2 * sizeof *logits);
    struct ntx_row row[2] = {{.token = 3, .kv = kv[0], .logits = logits, .may_skip = true},
                             {.token = 4, .kv = kv[1], .logits = logits + r.n_vocab, .may_skip = true}};
    s.mask = 1 << 3 | 1 << 5;
    s.who = 3;
    CHECK_EQ(rig_run(&r, row, 2), 0);
    CHECK_EQ(r.w.n_drops, 2 + skips_last(&r));
    CHECK_EQ(r.w.drops[0], 3);
    CHECK_EQ(r.w.drops[1], 5);
    CHECK(!skips_last(&r) || r.w.drops[2] == NTX_END_OF_LAST(r.n_layers));
    uint32_t before = r.chunks->layers[PROBE + 1].attn_norm.chunk0; /* all chunks up to the probe, none after */
    CHECK_EQ(s.acquired, before);
    CHECK_EQ(r.w.drop_at[0], before);
    CHECK_EQ(r.w.drop_at[1], before);
    CHECK_EQ(r.w.n_skipped, chunks_of(&r, 3) + chunks_of(&r, 5));
    size_t layer = 64 * (size_t)r.n_embd;
    CHECK_SAME(trace_state + 2 * layer, trace_state + 3 * layer, 2 * r.n_embd);
    CHECK(memcmp(trace_state + 3 * layer, trace_state + 4 * layer, r.n_embd * 4));
    CHECK_SAME(trace_state + 4 * layer, trace_state + 5 * layer, 2 * r.n_embd);
    CHECK_SAME(trace_state + PROBE * layer, s.seen, 2 * r.n_embd);
    row[1].may_skip = false;
    row[0].pos = row[1].pos = 1;
    CHECK_EQ(rig_run(&r, row, 2), 0);
    CHECK_EQ(r.w.n_drops, 0);
    CHECK_EQ(ntx_forward_skipped(r.f), 4 + 2);
    ntx_kv_seq_free(kv[0]);
    ntx_kv_seq_free(kv[1]);
    rig_close(&r);
    free(logits), free(s.seen), free(trace_state);
}

/* A hole is masked: later tokens give the same with any other values in that place; it is gone when the position is
 * written again. */
static void holes_are_masked(const struct mk_options *make)
{
    struct rig r;
    struct script s;
    struct rig_options o = {.make = *make};
    hook(&o, &s, &r);
    rig_open(&r, &o);
    const struct ntx_hparams *hp = &r.model->hp;
    int32_t ids[10];
    size_t n = r.n_vocab;
    float *a = malloc(n * 4), *b = malloc(n * 4), *plain = malloc(10 * n * 4), *again = malloc(10 * n * 4);
    rig_ids(&r, 7, ids, 10);
    struct ntx_kv_seq *kv = rig_seq(&r, 40);
    rig_feed(&r, kv, ids, 10, 0, 10, plain);
    struct ntx_row row = {.token = ids[5], .pos = 5, .kv = kv, .logits = a, .may_skip = true};
    s.mask = 1 << 4;
    s.who = 1;
    CHECK_EQ(rig_run(&r, &row, 1), 0); /* position 5 again, without layer 4 */
    s.who = 0;
    rig_feed(&r, kv, ids + 6, 1, 6, 1, a);
    for (uint32_t h = 0; h < hp->n_head_kv; h++) {
        memset((uint16_t *)ntx_kv_k(kv, 4, h, 5) + 5 * hp->head_k, 0x7b, hp->head_k * 2);
        memset((uint16_t *)ntx_kv_v(kv, 4, h, 5) + 5 * hp->head_v, 0xff, hp->head_v * 2); /* NaN */
    }
    CHECK(ntx_kv_holes(kv, 4) && ntx_kv_holes(kv, 4)[0] == 1 << 5);
    rig_feed(&r, kv, ids + 6, 1, 6, 1, b);
    CHECK_SAME(a, b, n);
    CHECK(memcmp(a, plain + 6 * n, n * 4));
    rig_feed(&r, kv, ids + 5, 5, 5, 5, again);
    CHECK(!ntx_kv_holes(kv, 4));
    CHECK_SAME(again, plain + 5 * n, 5 * n);
    ntx_kv_seq_free(kv);
    rig_close(&r);
    free(a), free(b), free(plain), free(again), free(s.seen);
}

/* With propagation a row that skips a layer leaves there the K and V of its state, in the cache's type, bit for bit
 * those of a row that computes the layer. Alone it reads nothing else of the layer; beside another row it does not
 * affect that one. */
static void propagated(const struct mk_options *make, enum ntx_kv_type kv_type)
{
    struct rig r;
    struct script s;
    struct rig_options o = {.make = *make, .kv_type = kv_type};
    hook(&o, &s, &r);
    o.skip.propagate = true;
    rig_open(&r, &o);
    const struct ntx_hparams *hp = &r.model->hp;
    int32_t ids[12];
    size_t n = r.n_vocab, block_bytes = 32 * (size_t)(kv_type == NTX_KV_F16 ? hp->head_k * 2 : hp->head_k / 32 * 34);
    rig_ids(&r, 5, ids, 12);
    float *alone = malloc(n * 4), *both = malloc(n * 4);
    struct ntx_kv_seq *kv[3];
    struct ntx_row row[2];
    for (int i = 0; i < 3; i++) {
        kv[i] = rig_seq(&r, 40);
        rig_feed(&r, kv[i], ids, 5, 0, 5, NULL);
    }
    s.mask = 1 << 4;
    s.who = 0;
    row[0] = (struct ntx_row){.token = ids[5], .pos = 5, .kv = kv[0], .logits = alone, .may_skip = true};
    CHECK_EQ(rig_run(&r, row, 1), 0);
    s.who = 1;
    row[0].kv = kv[1];
    row[0].logits = NULL;
    CHECK_EQ(rig_run(&r, row, 1), 0);
    CHECK_EQ(r.w.n_drops, 3); /* the output that nobody wants, and the last layer's end, and then the layer */
    CHECK(r.w.drops[0] == r.n_layers && r.w.drops[1] == NTX_END_OF_LAST(r.n_layers) && r.w.drops[2] == 4);
    const uint32_t end = chunks_of(&r, r.n_layers - 1) - feeding(&r, r.n_layers - 1);
    CHECK_EQ(r.w.n_skipped, chunks_of(&r, 4) - feeding(&r, 4) + end + chunks_of(&r, r.n_layers));
    CHECK(!ntx_kv_holes(kv[1], 4));
    s.who = 2;
    row[0] = (struct ntx_row){.token = ids[5], .pos = 5, .kv = kv[0], .logits = both, .may_skip = true};
    row[1] = (struct ntx_row){.token = ids[5], .pos = 5, .kv = kv[2], .may_skip = true};
    CHECK_EQ(rig_run(&r, row, 2), 0);
    CHECK_SAME(alone, both, n);
    for (uint32_t h = 0; h < hp->n_head_kv; h++)
        for (int i = 1; i < 3; i++) {
            CHECK(!memcmp(ntx_kv_k(kv[0], 4, h, 5), ntx_kv_k(kv[i], 4, h, 5), block_bytes));
            CHECK(!memcmp(ntx_kv_v(kv[0], 4, h, 5), ntx_kv_v(kv[i], 4, h, 5), block_bytes));
            CHECK(!memcmp(ntx_kv_k(kv[1], 5, h, 5), ntx_kv_k(kv[2], 5, h, 5), block_bytes));
        }
    CHECK(memcmp(ntx_kv_k(kv[0], 5, 0, 5), ntx_kv_k(kv[1], 5, 0, 5), block_bytes));
    for (int i = 0; i < 3; i++)
        ntx_kv_seq_free(kv[i]);
    rig_close(&r);
    free(alone), free(both), free(s.seen);
}

/* A capture agrees with the traced states; a skipped layer gives nothing. */
static void captured(const struct mk_options *make)
{
    struct rig r;
    struct script s;
    struct rig_options o = {.make = *make};
    hook(&o, &s, &r);
    rig_open(&r, &o);
    trace_state = calloc((size_t)r.n_layers * 64 * r.n_embd, sizeof *trace_state);
    ntx_forward_trace(r.f, keep_state, &r);
    float *memory = calloc(ntx_capture_floats(r.model, 0), sizeof(float));
    struct ntx_capture capture;
    struct ntx_kv_seq *kv = rig_seq(&r, 8);
    ntx_capture_place(&capture, memory, 2, r.model, 0);
    struct ntx_row row = {.token = 3, .kv = kv, .may_skip = true, .capture = &capture};
    s.mask = 1 << 5;
    s.who = 1;
    CHECK_EQ(rig_run(&r, &row, 1), 0);
    size_t layer = 64 * (size_t)r.n_embd;
    CHECK_SAME(capture.state, trace_state + 2 * layer, r.n_embd);
    for (uint32_t l = 1; l < r.n_layers; l++) {
        const float *in = trace_state + (l - 1) * layer, *out = trace_state + l * layer;
        double ab = 0, aa = 0, bb = 0;
        for (uint32_t i = 0; i < r.n_embd; i++) {
            ab += (double)in[i] * (double)out[i];
            aa += (double)in[i] * (double)in[i];
            bb += (double)out[i] * (double)out[i];
        }
        for (int part = 0; part < 3; part++) {
            double c = (double)capture.similar[(uint32_t)part * r.n_layers + l];
            if (l == 5)
                CHECK(c != c);
            else
                CHECK_MSG(part ? c > -1.001 && c < 1.001 : fabs(c - ab / sqrt(aa * bb)) < 1e-5, "layer %u, part %d: %g",
                          l, part, c);
        }
    }
    ntx_kv_seq_free(kv);
    rig_close(&r);
    free(memory), free(trace_state), free(s.seen);
}

int main(void)
{
    struct mk_options make = rig_model();
    make.layers = 7;
    make.type = "Q4_0";
    beside_another(&make);
    all_skip(&make);
    holes_are_masked(&make);
    propagated(&make, NTX_KV_F16);
    propagated(&make, NTX_KV_Q8_0);
    captured(&make);
    make.arch = "gpt-oss"; /* windows, and sinks between the weights of K and V and the rest */
    make.layers = 6;
    make.type = "Q8_0";
    make.experts = make.experts_used = 4; /* all are acquired */
    make.window = 3;
    beside_another(&make);
    all_skip(&make);
    holes_are_masked(&make);
    propagated(&make, NTX_KV_Q8_0);
    return 0;
}
