/* SPDX-License-Identifier: Apache-2.0 */
/* Plans become regions: the smallest and some larger ones are made, filled as computed fills them, and accepted when
 * attached; the forward pass and the KV pool fit the plan's figures. */

#include "computed/pass/forward.h"
#include "computed/plan/plan.h"
#include "computed/state/kv.h"
#include "tests/lib/check.h"
#include "tests/unit/plan/shape.h"
#include "tests/unit/shm/attach_to.h"

static uint64_t file_bytes(const struct shape *s)
{
    uint64_t end = 0;
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(s->gguf); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(s->gguf, i);
        end = t->offset + t->bytes > end ? t->offset + t->bytes : end;
    }
    return end;
}

static void make_region(const struct shape *s, const struct ntx_plan *p)
{
    struct ntx_region r, worker;
    struct ntx_err err = {0};
    char note[512];
    CHECK_MSG(!ntx_region_create(&p->geo, &r, note, sizeof note, &err), "%s", err.text);
    CHECK(r.bytes <= p->bytes_region);
    memcpy(r.sched, p->sched, p->geo.n_sched * sizeof *r.sched);
    for (uint32_t i = 0; i < p->geo.n_chunks; i++) {
        r.chunks[i] = p->table[i];
        if (p->table[i].placement == NTX_PLACE_HOST)
            r.chunks[i].where += r.hdr->off_arena;
    }
    r.hdr->file_bytes[0] = file_bytes(s);
    CHECK_MSG(!attach_to(&r, &worker, &err), "%s", err.text);
    ntx_region_close(&worker);
    ntx_region_close(&r);
}

static void use(const struct shape *s, const struct ntx_plan *p)
{
    struct ntx_err err = {0};
    struct ntx_forward *f;
    struct ntx_kv_pool *kv;
    struct ntx_weights none = {0};
    const struct ntx_forward_config c = {.model = s->model,
                                         .chunks = p->chunks,
                                         .ops = ntx_cpu_pick(NULL),
                                         .weights = &none,
                                         .threads = p->threads,
                                         .max_rows = p->max_rows,
                                         .ctx = p->ctx};
    CHECK_MSG(!ntx_forward_new(&c, &f, &err), "%s", err.text);
    CHECK_MSG(!ntx_kv_pool_new(&s->model->hp, NTX_KV_F16, &p->kv, &kv, &err), "%s", err.text);
    CHECK_EQ(ntx_kv_pool_blocks(kv), p->kv.blocks);
    ntx_kv_pool_free(kv);
    ntx_forward_free(f);
}

/* Returns the memory that a refusal names, or 0. */
static uint64_t try(const struct shape *s, uint64_t ram)
{
    const struct ntx_plan_request r = {.ram_bytes = ram, .threads = 2};
    struct ntx_plan *p;
    struct ntx_err err = {0};
    unsigned long long n;
    if (ntx_plan_make(s->model, &r, &p, &err)) {
        CHECK_MSG(sscanf(strchr(err.text, '('), "(%llu bytes)", &n) == 1, "%s", err.text);
        return n;
    }
    make_region(s, p);
    use(s, p);
    ntx_plan_free(p);
    return 0;
}

int main(void)
{
    static const int which[] = {SHAPE_TINY, SHAPE_1B, SHAPE_8B, SHAPE_13B};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        struct shape s;
        shape_open(&s, which[i]);
        uint64_t least = try(&s, 1);
        CHECK(least > 0);
        CHECK_EQ(try(&s, least), 0);
        CHECK_EQ(try(&s, least + (20 << 20)), 0);
        CHECK_EQ(try(&s, 2 * least), 0);
        shape_close(&s);
    }
    return 0;
}
