/* SPDX-License-Identifier: Apache-2.0 */
/* A pass over a part of the layers gives what rows give that skip the others, takes no chunk of these, and leaves the
 * usual weights alone; the passes after it are as without it, to the bit. A drafter of the model's own layers drafts
 * what such passes say; with all layers it is always right. */
#include <errno.h>

#include "computed/draft/drafter.h"
#include "tests/unit/pass/rig.h"

enum { PREFIX = 70, MORE = 4, CTX = 256 };
#define WITHOUT 0x6ull /* layers 1 and 2 */

struct resident { /* all chunks, but for those of layers that are left out */
    struct ntx_weights w;
    const struct rig *r;
    uint64_t without;
    uint8_t **copy;
    pthread_mutex_t lock;
};

static int begin(struct ntx_weights *w, uint64_t pass)
{
    (void)w, (void)pass;
    return 0;
}

static int acquire(struct ntx_weights *w, uint32_t chunk, const void **bytes)
{
    struct resident *s = (struct resident *)w;
    const struct ntx_chunk *c = &s->r->chunks->list[chunk];
    CHECK_MSG(c->layer >= s->r->n_layers || !(s->without >> c->layer & 1), "a chunk of layer %u is taken", c->layer);
    pthread_mutex_lock(&s->lock);
    if (!s->copy[chunk]) {
        s->copy[chunk] = malloc(c->bytes + 64);
        memcpy(s->copy[chunk], s->r->w.files[c->file] + c->offset, c->bytes);
    }
    *bytes = s->copy[chunk];
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static void ignore(struct ntx_weights *w, uint32_t number) { (void)w, (void)number; }
static void end(struct ntx_weights *w) { (void)w; }
static int entries(struct ntx_weights *w, uint32_t file, uint64_t offset, uint32_t entry_bytes, const int32_t *ids,
                   uint32_t n, void *out)
{
    const struct resident *s = (const struct resident *)w;
    for (uint32_t i = 0; i < n; i++)
        memcpy((uint8_t *)out + (size_t)i * entry_bytes,
               s->r->w.files[file] + offset + (uint64_t)(uint32_t)ids[i] * entry_bytes, entry_bytes);
    return 0;
}

static const struct ntx_weights_ops ops = {.begin = begin,
                                           .acquire = acquire,
                                           .release = ignore,
                                           .drop_layer = ignore,
                                           .skip = ignore,
                                           .end = end,
                                           .entries = entries};

static void make_resident(struct resident *s, const struct rig *r, uint64_t without)
{
    *s = (struct resident){.w.ops = &ops, .r = r, .without = without};
    s->copy = calloc(r->chunks->n, sizeof *s->copy);
    pthread_mutex_init(&s->lock, NULL);
}

static void free_resident(struct resident *s)
{
    for (uint32_t i = 0; i < s->r->chunks->n; i++)
        free(s->copy[i]);
    free(s->copy);
    pthread_mutex_destroy(&s->lock);
}

static void skip_layers(void *ctx, const struct ntx_batch *b, uint64_t *skip)
{
    (void)ctx;
    for (uint32_t i = 0; i < b->n_rows; i++)
        skip[(size_t)i * NTX_MAP_WORDS] = WITHOUT;
}

/* Logits of one row that skips the layers. */
static float *skipped_logits(const struct rig_options *o, const int32_t *ids)
{
    struct rig_options with = *o;
    struct rig r;
    with.skip = (struct ntx_skip_hooks){.decide = skip_layers};
    rig_open(&r, &with);
    float *logits = malloc(r.n_vocab * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, CTX);
    rig_feed(&r, kv, ids, PREFIX, 0, 32, NULL);
    struct ntx_row row = {.token = ids[PREFIX], .pos = PREFIX, .kv = kv, .may_skip = true, .logits = logits};
    CHECK(!rig_run(&r, &row, 1));
    ntx_kv_seq_free(kv);
    rig_close(&r);
    return logits;
}

/* A chain of drafts behind the text, in one pass over a part. */
static void draft_chain(struct rig *r, struct resident *s, struct ntx_kv_seq *kv, const int32_t *ids, uint32_t n,
                        float *logits)
{
    const uint64_t without[NTX_MAX_LAYERS / 64] = {s->without};
    struct ntx_row rows[MORE];
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct ntx_row){
            .token = ids[i], .pos = PREFIX + i, .kv = kv, .logits = logits + (size_t)i * r->n_vocab};
    const struct ntx_batch b = {.pass = 9999, .rows = rows, .n_rows = n};
    CHECK_EQ(ntx_forward_run_part(r->f, &b, &s->w, without), 0);
}

static void beside_passes(const struct rig_options *o)
{
    int32_t ids[PREFIX + MORE], other[MORE] = {3, 1, 4, 1};
    struct resident s;
    struct rig r;
    size_t n;
    rig_open(&r, o);
    CHECK(!o->windows || r.kv.ring);
    rig_ids(&r, 5, ids, PREFIX + MORE);
    make_resident(&s, &r, WITHOUT);
    struct ntx_kv_seq *kv = rig_seq(&r, CTX);
    float *want = rig_logits(o, PREFIX + MORE, 32, &n), *skipped = skipped_logits(o, ids),
          *got = malloc(MORE * r.n_vocab * sizeof *got);
    rig_feed(&r, kv, ids, PREFIX, 0, 32, NULL);
    const unsigned begins = r.w.begins;
    draft_chain(&r, &s, kv, ids + PREFIX, 1, got);
    CHECK_SAME(got, skipped, r.n_vocab);
    draft_chain(&r, &s, kv, other, MORE, got);
    CHECK_EQ(r.w.begins, begins);
    for (uint32_t i = 0; i < MORE; i++) {
        if (i)
            draft_chain(&r, &s, kv, other, 1, got); /* behind, and over, verified positions */
        rig_feed(&r, kv, ids + PREFIX, i + 1, PREFIX, 32, got);
        CHECK_SAME(got + (size_t)i * r.n_vocab, want + (size_t)(PREFIX + i) * r.n_vocab, r.n_vocab);
    }
    free(want);
    free(skipped);
    free(got);
    ntx_kv_seq_free(kv);
    free_resident(&s);
    rig_close(&r);
}

static struct ntx_drafter *layers_drafter(struct rig *r, struct resident *s, uint32_t max_rows)
{
    struct ntx_drafter *d;
    struct ntx_err err = {0};
    const struct ntx_drafter_layers of = {.model = r->model,
                                          .forward = r->f,
                                          .weights = &s->w,
                                          .without = {s->without},
                                          .ctx = CTX,
                                          .max_rows = max_rows};
    CHECK_MSG(!ntx_drafter_layers_new(&of, &d, &err), "%s", err.text);
    return d;
}

/* The chain of each node's first child. */
static uint32_t first_children(const struct ntx_draft_node *node, uint32_t n, int32_t *out)
{
    uint32_t depth = 0, at = 0;
    for (uint32_t i = 1; i < n; i++)
        if (node[i].parent == at) {
            out[depth++] = node[i].token;
            at = i;
        }
    return depth;
}

/* Greedy, so that the answer is a chain; each text goes on by one token, then by three. */
static void drafts_itself(const struct rig_options *o, uint64_t without, uint32_t *same, uint32_t *of)
{
    static struct ntx_draft_node node[NTX_DRAFTER_NODES];
    int32_t ids[CTX], want[MORE + 1], said[NTX_DRAFTER_NODES];
    struct resident s;
    struct rig r;
    rig_open(&r, o);
    make_resident(&s, &r, without);
    struct ntx_drafter *d = layers_drafter(&r, &s, 32);
    struct ntx_kv_seq *kv = rig_seq(&r, CTX);
    float *logits = malloc(r.n_vocab * sizeof *logits);
    uint32_t deepest = 0;
    *same = *of = 0;
    rig_ids(&r, 5, ids, PREFIX + 1);
    rig_feed(&r, kv, ids, PREFIX, 0, 32, NULL);
    for (uint32_t n = PREFIX + 1, step = 0; n + MORE < 120; n += step % 2 ? 3 : 1, step++) {
        const struct ntx_drafter_text t = {
            .session = 1, .tokens = ids, .n = n, .n_prompt = PREFIX, .sampling = {.temp = 0, .top_p = 1}, .kv = kv};
        int rc, text = ntx_drafter_follow(d, &t);
        CHECK_EQ(text, 0);
        while ((rc = ntx_drafter_grow(d, (unsigned)text, 6)) > 0)
            ;
        CHECK_EQ(rc, 0);
        const uint32_t deep = first_children(node, ntx_drafter_tree(d, (unsigned)text, node), said);
        CHECK(ntx_drafter_expanded(d, (unsigned)text) <= 6 && deep);
        for (uint32_t i = 0; i < 3; i++) { /* as the model goes on */
            struct ntx_row row = {.token = ids[n - 1 + i], .pos = n - 1 + i, .kv = kv, .logits = logits};
            CHECK(!rig_run(&r, &row, 1));
            want[i] = ids[n + i] = (int32_t)rig_argmax(logits, r.n_vocab);
        }
        *same += said[0] == want[0];
        *of += 1;
        for (uint32_t i = 0; i < NTX_MIN(deep, 3u) && !without; i++)
            CHECK_EQ(said[i], want[i]);
        deepest = NTX_MAX(deepest, deep);
    }
    CHECK(deepest > 1);
    free(logits);
    ntx_drafter_free(d);
    ntx_kv_seq_free(kv);
    free_resident(&s);
    rig_close(&r);
}

/* Near the end of the session's room, and with passes of few rows. */
static void keeps_within_room(const struct rig_options *o)
{
    int32_t ids[CTX];
    struct resident s;
    struct rig r;
    rig_open(&r, o);
    make_resident(&s, &r, WITHOUT);
    struct ntx_kv_seq *kv = rig_seq(&r, 64);
    const uint32_t room = ntx_kv_seq_room(kv);
    rig_ids(&r, 5, ids, room + 1);
    rig_feed(&r, kv, ids, room - 1, 0, 32, NULL);
    for (uint32_t rows = 1; rows <= 8; rows += 7)
        for (uint32_t n = room - 4; n <= room; n++) {
            struct ntx_drafter *d = layers_drafter(&r, &s, rows);
            const struct ntx_drafter_text t = {
                .session = 1, .tokens = ids, .n = n, .n_prompt = 9, .sampling = {.temp = 0, .top_p = 1}, .kv = kv};
            int rc;
            CHECK_EQ(ntx_drafter_follow(d, &t), 0);
            while ((rc = ntx_drafter_grow(d, 0, 100)) > 0)
                ;
            CHECK_EQ(rc, 0);
            CHECK_EQ(ntx_drafter_expanded(d, 0), NTX_MIN(rows, room - n + 1) - 1);
            ntx_drafter_free(d);
        }
    struct ntx_drafter *d = layers_drafter(&r, &s, 8);
    const struct ntx_drafter_text t = {.session = 1, .tokens = ids, .n = room + 1, .sampling.top_p = 1, .kv = kv};
    CHECK_EQ(ntx_drafter_follow(d, &t), -E2BIG);
    ntx_drafter_free(d);
    ntx_kv_seq_free(kv);
    free_resident(&s);
    rig_close(&r);
}

static void is_refused(struct mk_options make, const char *word)
{
    const struct rig_options o = {.make = make};
    struct rig r;
    rig_open(&r, &o);
    const char *why = ntx_forward_parts(r.model);
    CHECK_MSG(why && strstr(why, word), "%s: %s", make.arch, why ? why : "allowed");
    rig_close(&r);
}

int main(void)
{
    struct rig_options o = {.make = rig_model(), .ctx = CTX};
    struct mk_options shared = rig_model();
    uint32_t same, of, whole;
    beside_passes(&o);
    drafts_itself(&o, 0, &whole, &of);
    CHECK_EQ(whole, of);
    drafts_itself(&o, 0x4, &same, &of);
    CHECK_MSG(same && same < of, "%u of %u tokens are the model's", same, of);
    keeps_within_room(&o);
    o.kv_type = NTX_KV_Q8_0;
    beside_passes(&o);
    struct rig_options windows = {.make = rig_model(), .ctx = CTX, .max_rows = 32, .windows = true};
    windows.make.arch = "gemma3";
    windows.make.window = 16;
    windows.make.layers = 7; /* of which the sixth has no window */
    beside_passes(&windows);
    rig_gemma4(&shared, 2);
    shared.layers = 6;
    shared.window = 11;
    is_refused(rig_kda(), "recurrent");
    is_refused(rig_mla(), "experts");
    is_refused(rig_pooled(), "recurrent");
    is_refused(shared, "keys of other layers");
    return 0;
}
