/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of images in a pass: values instead of tokens, places of M-RoPE, values added after layers. */
#include <errno.h>
#include <string.h>

#include "computed/pass/rope.h"
#include "tests/unit/pass/rig.h"

enum { TOKENS = 24, FROM = 5, COLUMNS = 4, ROWS = 3, IMAGE = COLUMNS * ROWS, DEEP = 2 };

/* Expected axes as ggml_mrope_cache_init has them (llama.cpp, ggml-cpu/ops.cpp). */
static void axes(void)
{
    struct ntx_hparams hp = {.rope_dim = 16, .rope_sections = {4, 2, 2}};
    for (uint32_t i = 0; i < 16; i++) {
        const uint32_t want[] = {0, 0, 0, 0, 1, 1, 2, 2};
        CHECK_EQ(ntx_rope_axis(&hp, i), want[i % 8]);
    }
    hp.rope_interleaved = true;
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t want[] = {0, 1, 2, 0, 1, 2, 0, 0};
        CHECK_EQ(ntx_rope_axis(&hp, i), want[i]);
    }
    hp.rope_sections[0] = hp.rope_sections[1] = hp.rope_sections[2] = 0;
    CHECK_EQ(ntx_rope_axis(&hp, 4), 0u);

    const uint32_t place[] = {9, 4, 7};
    double freq[8];
    float cs[8], sn[8], other_cs[8], other_sn[8];
    hp = (struct ntx_hparams){.rope_dim = 16,
                              .rope_base = 10000,
                              .rope_factor = 1,
                              .rope_attn_factor = 1,
                              .rope_sections = {4, 2, 2},
                              .rope_interleaved = true};
    ntx_rope_frequencies(&hp, NTX_ROTATION_ALL, NULL, freq);
    ntx_rope_angles_at(&hp, NTX_ROTATION_ALL, freq, place, cs, sn);
    for (uint32_t i = 0; i < 8; i++) {
        ntx_rope_angles(&hp, NTX_ROTATION_ALL, freq, place[ntx_rope_axis(&hp, i)], other_cs, other_sn);
        CHECK(cs[i] == other_cs[i] && sn[i] == other_sn[i]);
    }
}

struct seen {
    struct rig *r;
    uint32_t layer; /* whose output is kept */
    float *embedded, *after;
};

static void keep_embedded(void *ctx, const struct ntx_row *row, const struct ntx_step_values *v)
{
    struct seen *s = ctx;
    if (!strcmp(v->name, "EMBED"))
        memcpy(s->embedded + (size_t)row->pos * v->width, v->values, v->width * sizeof *v->values);
}

static void keep_after(void *ctx, uint32_t layer, const float *hidden, uint32_t n_rows)
{
    struct seen *s = ctx;
    if (layer == s->layer)
        memcpy(s->after, hidden, (size_t)n_rows * s->r->n_embd * sizeof *hidden);
}

struct feed {
    const float *values; /* [IMAGE x n_embd x (1 + deep)] of rows from FROM on, or NULL */
    uint32_t deep, step;
    bool placed;               /* at their positions, */
    uint32_t columns, ahead_t; /* or in a grid of so many columns (0: none), times moved by so much */
    bool watched;
};

static struct ntx_row row_of(const struct rig *r, const struct feed *d, const int32_t *ids, uint32_t i)
{
    bool image = d->values && i >= FROM && i < FROM + IMAGE;
    struct ntx_row row = {.token = image ? 0 : ids[i], .pos = i, .watched = d->watched, .placed = d->placed};
    const uint32_t k = i - FROM;
    if (image) {
        row.values = d->values + (size_t)k * r->n_embd * (1 + d->deep);
        row.n_deep = d->deep;
    }
    for (uint32_t a = 0; a < 3; a++)
        row.place[a] = i;
    if (image && d->columns) {
        row.place[0] = FROM + d->ahead_t;
        row.place[1] = FROM + k / d->columns;
        row.place[2] = FROM + k % d->columns;
    }
    return row;
}

static float *logits_of(struct rig *r, const struct feed *d, struct seen *seen)
{
    int32_t ids[TOKENS];
    struct ntx_row rows[TOKENS];
    float *logits = malloc((size_t)TOKENS * r->n_vocab * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(r, TOKENS);
    rig_ids(r, 5, ids, TOKENS);
    ntx_forward_watch(r->f, seen ? keep_embedded : NULL, seen);
    ntx_forward_trace(r->f, seen && seen->after ? keep_after : NULL, seen);
    for (uint32_t i = 0; i < TOKENS; i += d->step) {
        uint32_t n = TOKENS - i < d->step ? TOKENS - i : d->step;
        for (uint32_t k = 0; k < n; k++) {
            rows[k] = row_of(r, d, ids, i + k);
            rows[k].kv = kv;
            rows[k].logits = logits + (size_t)(i + k) * r->n_vocab;
        }
        CHECK_MSG(!rig_run(r, rows, n), "%s", r->w.w.error.text);
    }
    ntx_kv_seq_free(kv);
    return logits;
}

static void check_same(struct rig *r, const struct feed *d, const float *want, bool same, const char *what)
{
    float *got = logits_of(r, d, NULL);
    const size_t image = (size_t)FROM * r->n_vocab;
    CHECK_MSG(!memcmp(got, want, image * sizeof *got), "%s: rows before the image", what);
    CHECK_MSG(!memcmp(got + image, want + image, (TOKENS - FROM) * (size_t)r->n_vocab * sizeof *got) == same, "%s",
              what);
    free(got);
}

/* Values that are a token's embedding give its logits; so do equal places. */
static void as_tokens(const struct mk_options *make, bool sections)
{
    struct rig r;
    rig_open(&r, &(struct rig_options){.make = *make});
    struct seen seen = {.r = &r, .embedded = calloc(TOKENS, r.n_embd * sizeof(float))};
    float *want = logits_of(&r, &(struct feed){.step = TOKENS, .watched = true}, &seen);
    const float *own = seen.embedded + (size_t)FROM * r.n_embd;
    check_same(&r, &(struct feed){.values = own, .step = TOKENS}, want, true, "a token's embedding as an image's");
    check_same(&r, &(struct feed){.values = own, .step = 7}, want, true, "the same in passes of 7 rows");
    check_same(&r, &(struct feed){.values = own, .step = 1}, want, true, "the same row by row");
    check_same(&r, &(struct feed){.values = own, .placed = true, .step = TOKENS}, want, true, "places at positions");
    /* a grid turns pairs by rows and columns; without sections all turn by the time */
    check_same(&r, &(struct feed){.values = own, .placed = true, .columns = COLUMNS, .step = TOKENS}, want, false,
               "a grid");
    struct feed grid = {.values = own, .placed = true, .columns = COLUMNS, .step = TOKENS};
    float *in_grid = logits_of(&r, &grid, NULL);
    grid.step = 5;
    check_same(&r, &grid, in_grid, true, "a grid in passes of 5 rows");
    grid.columns = 2;
    check_same(&r, &grid, in_grid, !sections, "another grid");
    free(in_grid), free(want), free(seen.embedded);
    rig_close(&r);
}

static void deep_values(const struct mk_options *make)
{
    struct rig r;
    rig_open(&r, &(struct rig_options){.make = *make});
    const size_t width = r.n_embd, n = (size_t)TOKENS * width;
    float *values = malloc(IMAGE * width * (1 + DEEP) * sizeof *values), *flat = malloc(IMAGE * width * sizeof *flat),
          *deep = calloc(n, sizeof *deep), *plain = calloc(n, sizeof *plain);
    for (size_t i = 0; i < IMAGE * width * (1 + DEEP); i++)
        values[i] = (float)(i * 2654435761u % 1000) / 1000 - 0.5f;
    for (size_t i = 0; i < IMAGE; i++)
        memcpy(flat + i * width, values + i * width * (1 + DEEP), width * sizeof *flat);
    struct seen seen = {.r = &r, .embedded = malloc(n * sizeof(float)), .after = deep};
    float *want = logits_of(&r, &(struct feed){.values = values, .deep = DEEP, .step = TOKENS}, &seen);
    seen.after = plain;
    free(logits_of(&r, &(struct feed){.values = flat, .step = TOKENS}, &seen));
    for (size_t i = 0; i < n; i++) {
        const size_t row = i / width, at = row - FROM;
        const float more = row >= FROM && at < IMAGE ? values[(at * (1 + DEEP) + 1) * width + i % width] : 0;
        CHECK_MSG(deep[i] == plain[i] + more, "row %zu after layer 0", row);
    }
    for (uint32_t step = 1; step < 9; step += 3)
        check_same(&r, &(struct feed){.values = values, .deep = DEEP, .step = step}, want, true, "other passes");
    check_same(&r, &(struct feed){.values = flat, .step = TOKENS}, want, false, "without what is added");
    struct ntx_kv_seq *kv = rig_seq(&r, 1);
    struct ntx_row bad = {.kv = kv, .values = values, .n_deep = r.n_layers + 1};
    CHECK_EQ(rig_run(&r, &bad, 1), -EINVAL);
    bad = (struct ntx_row){.kv = kv, .n_deep = 1};
    CHECK_EQ(rig_run(&r, &bad, 1), -EINVAL);
    ntx_kv_seq_free(kv);
    free(want), free(values), free(flat), free(deep), free(plain), free(seen.embedded);
    rig_close(&r);
}

/* ---- rows that see one another, where attention reads pooled K (DeepSeek V4) */

enum { NARROW = 4, CHANGED = FROM + IMAGE - 1 };

/* In passes that end at these positions; `changed`: the last row of the image has other values. */
static float *logits_together(struct rig *r, const uint32_t *ends, float *values, bool changed)
{
    int32_t ids[TOKENS];
    struct ntx_row rows[TOKENS];
    float *logits = malloc((size_t)TOKENS * r->n_vocab * sizeof *logits), *last = values + (IMAGE - 1) * r->n_embd;
    struct ntx_kv_seq *kv = rig_seq(r, TOKENS);
    rig_ids(r, 5, ids, TOKENS);
    for (uint32_t i = 0; changed && i < r->n_embd; i++)
        last[i] = -last[i];
    for (uint32_t i = 0, n; i < TOKENS; i += n, ends++) {
        n = *ends - i;
        for (uint32_t k = 0; k < n; k++) {
            rows[k] = row_of(r, &(struct feed){.values = values}, ids, i + k);
            rows[k].kv = kv;
            rows[k].logits = logits + (size_t)(i + k) * r->n_vocab;
            if (rows[k].values) {
                rows[k].behind = i + k - FROM;
                rows[k].ahead = CHANGED - i - k;
            }
        }
        CHECK_MSG(!rig_run(r, rows, n), "%s", r->w.w.error.text);
    }
    for (uint32_t i = 0; changed && i < r->n_embd; i++)
        last[i] = -last[i];
    ntx_kv_seq_free(kv);
    return logits;
}

static bool equal_row(const struct rig *r, const float *a, const float *b, uint32_t row)
{
    return !memcmp(a + (size_t)row * r->n_vocab, b + (size_t)row * r->n_vocab, r->n_vocab * sizeof *a);
}

static float *see_together(uint32_t threads)
{
    static const uint32_t once[] = {TOKENS}, apart[] = {3, FROM, FROM + IMAGE, TOKENS};
    struct mk_options o = rig_pooled();
    struct rig r;
    o.biases = true;
    o.window = NARROW; /* of which the image is three */
    rig_open(&r, &(struct rig_options){.make = o, .threads = threads});
    float *values = malloc(IMAGE * r.n_embd * sizeof *values);
    for (size_t i = 0; i < IMAGE * r.n_embd; i++)
        values[i] = (float)(i * 2654435761u % 1000) / 1000 - 0.5f;
    float *all = logits_together(&r, once, values, false), *parts = logits_together(&r, apart, values, false),
          *other = logits_together(&r, once, values, true);
    for (uint32_t i = 0; i < TOKENS; i++) {
        CHECK_MSG(equal_row(&r, all, parts, i), "row %u in other passes", i);
        CHECK_MSG(equal_row(&r, all, other, i) == (i < FROM), "row %u and the last one of the image", i);
    }
    struct ntx_kv_seq *kv = rig_seq(&r, 1);
    struct ntx_row bad = {.kv = kv, .values = values, .behind = 1};
    CHECK_EQ(rig_run(&r, &bad, 1), -EINVAL);
    ntx_kv_seq_free(kv);
    free(parts), free(other), free(values);
    rig_close(&r);
    return all;
}

static void together(void)
{
    float *two = see_together(2), *one = see_together(1);
    CHECK(!memcmp(two, one, (size_t)TOKENS * 548 * sizeof *two)); /* 548: the vocabulary */
    free(two), free(one);
}

/* Values that are a token's embedding: experts are another choice where rows of images have a bias of their own, or
 * where those of a text depend on the token. */
static void routed(bool biases, uint32_t hashed, bool same)
{
    struct mk_options o = rig_pooled();
    struct rig r;
    o.biases = biases;
    o.hashed = hashed;
    rig_open(&r, &(struct rig_options){.make = o});
    struct seen seen = {.r = &r, .embedded = calloc(TOKENS, r.n_embd * sizeof(float))};
    float *want = logits_of(&r, &(struct feed){.step = TOKENS, .watched = true}, &seen);
    const struct feed image = {.values = seen.embedded + (size_t)FROM * r.n_embd, .step = TOKENS};
    check_same(&r, &image, want, same, "a token's embedding as an image's, routed");
    free(want), free(seen.embedded);
    rig_close(&r);
}

int main(void)
{
    struct mk_options o = rig_model();
    axes();
    together();
    routed(false, 0, true);
    routed(true, 0, false);
    routed(false, 1, false);
    as_tokens(&o, false);
    deep_values(&o);
    o.arch = "gemma3"; /* scales the embeddings of tokens, not those of images */
    o.window = 16;
    as_tokens(&o, false);
    o = rig_model();
    o.type = "Q8_0";
    o.arch = "qwen3vl";
    as_tokens(&o, true);
    deep_values(&o);
    o.arch = "qwen35";
    o.attention_every = 2;
    o.delta_head = 48;
    as_tokens(&o, true);
    return 0;
}
