/* SPDX-License-Identifier: Apache-2.0 */
/* `ntx plan` and the daemons agree. For every model by name, its header is written as a file, opened and planned as
 * computed/engine/load.c does. And a header that ntx-mkmodel made has the tensors of a sketch of the same numbers. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "model/gguf_out.h"
#include "computed/plan/place.h"
#include "computed/plan/sketch.h"
#include "tests/lib/check.h"
#include "tests/lib/temporary.h"
#include "tests/unit/plan/shape.h"

#define MIB (1ull << 20)

static const struct ntx_hw hw = {.threads = 2,
                                 .ram_bps = 30e9,
                                 .reads = {{65536, 2e9}, {1 << 20, 3.2e9}},
                                 .n_reads = 2,
                                 .kernels = {{.type = NTX_HW_ANY, .rows = 1, .bps = 20e9}},
                                 .n_kernels = 1,
                                 .ram_bytes = 64ull << 30,
                                 .gpu = {.bytes = 24ull << 30, .bps = 900e9, .flops = 100e12, .h2d_bps = 20e9}};

/* A file of holes with this header. */
static struct ntx_gguf *as_file(const struct ntx_gguf *g)
{
    char path[512];
    struct ntx_gguf_out *o = ntx_gguf_out_new();
    struct ntx_gguf *out = NULL;
    struct ntx_err err = {0};
    size_t n = 0;
    CHECK(o);
    for (uint64_t i = 0; i < ntx_gguf_n_kv(g); i++)
        ntx_gguf_out_copy(o, ntx_gguf_kv_at(g, i));
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(g); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(g, i);
        ntx_gguf_out_data(o, t->name, t->type, t->ne, t->n_dims, NULL, NULL, 0);
    }
    void *header = ntx_gguf_out_header(o, &n);
    int fd = temporary_file(path, sizeof path, "agree");
    CHECK_MSG(!unlink(path), "%s", path);
    CHECK(header && write(fd, header, n) == (ssize_t)n && !ftruncate(fd, (off_t)ntx_gguf_out_bytes(o)));
    CHECK_MSG(!ntx_gguf_open(&fd, 1, NULL, &out, &err), "%s", err.text);
    close(fd);
    free(header);
    ntx_gguf_out_free(o);
    return out;
}

/* Bytes of each tensor, by name, that a plan has in each place. */
static void same_places(const char *name, const struct ntx_plan *a, const struct ntx_gguf *ga, const struct ntx_plan *b,
                        const struct ntx_gguf *gb)
{
    CHECK_EQ(a->chunks->n, b->chunks->n);
    for (uint32_t i = 0; i < a->chunks->n; i++) {
        CHECK_STR(ntx_gguf_tensor_at(ga, a->chunks->list[i].tensor)->name,
                  ntx_gguf_tensor_at(gb, b->chunks->list[i].tensor)->name);
        CHECK_MSG(a->table[i].placement == b->table[i].placement && a->table[i].bytes == b->table[i].bytes,
                  "%s: chunk %u", name, i);
    }
}

static void compare(const struct ntx_outline *o, const struct ntx_model *m, uint64_t ram, uint64_t vram)
{
    const struct ntx_plan_clients clients = {.least_rows = 0};
    struct ntx_place_request r = {.plan = {.ram_bytes = ram, .threads = 2}, .vram = vram};
    struct ntx_plan_request q = {.ram_bytes = ram,
                                 .threads = 2,
                                 .hw = &hw,
                                 .other_bytes = o->held_bytes,
                                 .clients = &clients}; /* as computed/engine/load.c */
    struct ntx_layout l;
    struct ntx_plan *p = NULL, *named = NULL;
    struct ntx_err err = {0}, other = {0};
    int rc = ntx_place(&hw, o, &r, &l, &err);
    q.vram_bytes = rc ? 0 : l.vram;
    CHECK_EQ(ntx_plan_make(m, &q, &p, &other), rc);
    CHECK_STR(other.text, err.text);
    if (rc)
        return;
    CHECK(l.bytes[NTX_TIER_DEVICE] == p->bytes_device && l.bytes[NTX_TIER_HOST] == p->bytes_host &&
          l.bytes[NTX_TIER_STORAGE] == p->bytes_storage);
    CHECK_EQ(l.rows_bytes, p->bytes_rows);
    CHECK(l.ctx == p->ctx && l.rows == p->max_rows && l.kv_bytes == p->bytes_kv && l.on_device == p->on_device);
    CHECK_MSG(!l.predicted || 1 / l.decode.pass_s == p->predicted_tok_s, "%s: %g and %g tokens a second", o->name,
              1 / l.decode.pass_s, p->predicted_tok_s);
    CHECK_EQ(l.bytes[NTX_TIER_DEVICE] + l.bytes[NTX_TIER_HOST] + l.bytes[NTX_TIER_STORAGE], ntx_outline_model_bytes(o));
    CHECK(!ntx_plan_make(o->model, &q, &named, &err));
    same_places(o->name, named, o->model->gguf, p, m->gguf);
    ntx_plan_free(named);
    ntx_plan_free(p);
}

/* In a type that divides its rows. */
static void outline(const char *model, struct ntx_outline *o)
{
    static const char *const types[] = {"q4_k_m", "mxfp4", "q8_0"};
    struct ntx_err err = {0};
    char name[96];
    int rc = -1;
    for (int i = 0; i < 3 && rc; i++) {
        snprintf(name, sizeof name, "%s@%s", model, types[i]);
        rc = ntx_outline_named(name, o, &err);
    }
    CHECK_MSG(!rc, "%s: %s", name, err.text);
}

static void built_in(void)
{
    for (size_t i = 0; ntx_outline_model(i); i++) {
        struct ntx_outline o;
        struct ntx_model *m;
        struct ntx_err err = {0};
        outline(ntx_outline_model(i), &o);
        struct ntx_gguf *g = as_file(o.model->gguf);
        CHECK_MSG(!ntx_model_open(g, &m, &err), "%s", err.text);
        uint64_t all = ntx_outline_model_bytes(&o);
        compare(&o, m, all / 10 * 4, UINT64_MAX);
        compare(&o, m, 2 * all + 1024 * MIB, 0);
        compare(&o, m, all / 10 * 6, 4096 * MIB);
        compare(&o, m, 20 * MIB, UINT64_MAX);
        ntx_model_free(m);
        ntx_gguf_free(g);
        ntx_outline_free(&o);
    }
}

/* For real headers: the smallest budget that is named is the one that succeeds. */
static void at_hand(const struct shape *s, uint32_t ctx)
{
    struct ntx_outline o;
    struct ntx_layout l;
    struct ntx_err err = {0};
    struct ntx_place_request r = {.plan = {.threads = 2, .ctx = ctx}, .vram = UINT64_MAX, .smallest = true};
    CHECK_MSG(!ntx_outline_gguf(s->gguf, s->name, &o, &err) && !*o.why, "%s%s", err.text, o.why);
    for (unsigned tenths = 3; tenths <= 14; tenths += 4)
        compare(&o, s->model, ntx_outline_model_bytes(&o) / 10 * tenths, UINT64_MAX);
    r.plan.ram_bytes = ntx_outline_model_bytes(&o);
    CHECK(!ntx_place(&hw, &o, &r, &l, &err));
    r.plan.ram_bytes = l.smallest;
    CHECK_MSG(!ntx_place(&hw, &o, &r, &l, &err), "%s", err.text);
    CHECK_EQ(l.smallest, r.plan.ram_bytes);
    r.plan.ram_bytes--;
    CHECK_EQ(ntx_place(&hw, &o, &r, &l, &err), -ENOMEM);
    ntx_outline_free(&o);
}

/* ntx-mkmodel has its own keys, order and mixes. */
static void sketched(const struct shape *s, const char *mix)
{
    const struct mk_options *o = &s->make;
    char keys[512];
    struct ntx_gguf *g;
    struct ntx_outline out;
    struct ntx_err err = {0};
    uint32_t n_other;
    snprintf(keys, sizeof keys,
             "block_count=%u embedding_length=%u vocab_size=%u feed_forward_length=%u attention.head_count=%u "
             "attention.head_count_kv=%u context_length=%u",
             o->layers, o->embd, s->model->hp.n_vocab, o->ff, o->heads, o->kv, o->ctx);
    CHECK_MSG(!ntx_sketch_make("llama", keys, "", &g, &err), "%s", err.text);
    CHECK_MSG(!ntx_outline_retyped(g, ntx_mix_named(mix), false, s->name, &n_other, &out, &err), "%s", err.text);
    CHECK_EQ(ntx_gguf_n_tensors(s->gguf), ntx_gguf_n_tensors(out.model->gguf));
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(s->gguf); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(s->gguf, i),
                                     *like = ntx_gguf_tensor(out.model->gguf, t->name);
        CHECK_MSG(like && like->type == t->type && like->bytes == t->bytes && like->n_dims == t->n_dims, "%s of %s",
                  t->name, s->name);
    }
    ntx_outline_free(&out);
    ntx_gguf_free(g);
}

/* An unknown architecture: all of it is estimated; impossible ones are refused. */
static void foreign(void)
{
    struct ntx_outline known, o;
    struct ntx_layout l;
    struct ntx_err err = {0};
    struct ntx_gguf_out *g = ntx_gguf_out_new();
    struct ntx_gguf *header;
    size_t n;
    CHECK(!ntx_outline_named("olmoe-7b@q4_k_m", &known, &err));
    ntx_gguf_out_str(g, "general.architecture", "lxama");
    ntx_gguf_out_u32(g, "lxama.block_count", 16);
    ntx_gguf_out_u32(g, "lxama.embedding_length", 2048);
    ntx_gguf_out_u32(g, "lxama.attention.head_count", 16);
    ntx_gguf_out_u32(g, "lxama.expert_count", 64);
    ntx_gguf_out_u32(g, "lxama.expert_used_count", 8);
    ntx_gguf_out_u32(g, "lxama.expert_feed_forward_length", 1024);
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(known.model->gguf); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(known.model->gguf, i);
        ntx_gguf_out_data(g, t->name, t->type, t->ne, t->n_dims, NULL, NULL, 0);
    }
    void *bytes = ntx_gguf_out_header(g, &n);
    CHECK(bytes && !ntx_gguf_parse(bytes, n, ntx_gguf_out_bytes(g), &header, &err));
    CHECK_MSG(!ntx_outline_gguf(header, "x", &o, &err), "%s", err.text);
    CHECK(strstr(o.why, "lxama") && ntx_outline_model_bytes(&o) == ntx_outline_model_bytes(&known));
    CHECK_EQ(ntx_outline_bytes(&o, NTX_PART_EXPERT), ntx_outline_bytes(&known, NTX_PART_EXPERT));
    struct ntx_place_request r = {.plan = {.ram_bytes = 2048 * MIB}, .vram = UINT64_MAX};
    CHECK_MSG(!ntx_place(&hw, &o, &r, &l, &err), "%s", err.text);
    CHECK_EQ(l.bytes[NTX_TIER_HOST] + l.bytes[NTX_TIER_STORAGE], ntx_outline_model_bytes(&known));
    ntx_outline_free(&o);
    ntx_gguf_free(header);
    ntx_gguf_out_u32(g, "lxama.nextn_predict_layers", 16); /* no layer is left */
    free(bytes);
    bytes = ntx_gguf_out_header(g, &n);
    CHECK(bytes && !ntx_gguf_parse(bytes, n, ntx_gguf_out_bytes(g), &header, &err));
    CHECK(ntx_outline_gguf(header, "x", &o, &err) && strstr(err.text, "block_count"));
    ntx_gguf_free(header);
    ntx_gguf_out_free(g);
    free(bytes);
    ntx_outline_free(&known);
}

int main(void)
{
    for (int i = SHAPE_1B; i < N_SHAPES; i++) {
        struct shape s;
        shape_open(&s, i);
        at_hand(&s, 0);
        at_hand(&s, 4096);
        if (i != SHAPE_70B) /* the quantizer gives its V more bits */
            sketched(&s, i == SHAPE_1B ? "Q8_0" : "Q4_K_M");
        shape_close(&s);
    }
    foreign();
    built_in();
    return 0;
}
