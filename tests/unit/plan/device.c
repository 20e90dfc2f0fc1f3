/* SPDX-License-Identifier: Apache-2.0 */
/* The planner's use of a GPU: never more than the budget; matrices in order, then whole layers of experts or of a
 * packed model's groups. */
#include "computed/plan/plan.h"
#include "tests/unit/pass/rig.h"

#define EXTRA 512u /* NTX_DEVICE_CHUNK_EXTRA */

/* Chunks [first, first + n) on the device: all of them or none. Returns whether they are. */
static bool together(const struct ntx_plan *p, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++)
        CHECK_EQ(p->table[i].placement == NTX_PLACE_DEVICE, p->table[first].placement == NTX_PLACE_DEVICE);
    return p->table[first].placement == NTX_PLACE_DEVICE;
}

static uint64_t on_device(const struct ntx_plan *p)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->chunks->n; i++)
        if (p->table[i].placement == NTX_PLACE_DEVICE)
            bytes += p->table[i].bytes + EXTRA;
    return bytes;
}

/* Bundles of the first layers are on the device, more with a larger budget, and none before all other matrices. */
static void sweep(struct rig *r, const char *what)
{
    uint32_t before = 0;
    for (uint64_t budget = 0; budget < r->chunks->matrix_bytes * 5 / 4; budget += r->chunks->matrix_bytes / 64) {
        struct ntx_plan_request q = {.ram_bytes = 64 << 20,
                                     .threads = 2,
                                     .ctx = 64,
                                     .max_rows = 4,
                                     .chunk_bytes = 8192,
                                     .device_bytes = budget,
                                     .ffn = r->ffn};
        struct ntx_plan *p;
        struct ntx_err err = {0};
        uint32_t layers = 0;
        CHECK_MSG(!ntx_plan_make(r->model, &q, &p, &err), "%s: %s", what, err.text);
        CHECK(on_device(p) <= budget);
        for (uint32_t l = 0; l < p->chunks->n_layers; l++) {
            const struct ntx_layer_weights *w = &p->chunks->layers[l];
            bool there = w->expert[NTX_EXPERT_GATE].tensor != NTX_NO_TENSOR
                             ? together(p, w->expert[NTX_EXPERT_GATE].chunk0, p->chunks->n_expert * NTX_EXPERT_PARTS)
                             : together(p, w->groups.chunk0, w->groups.n_chunks);
            CHECK(!there || layers == l);
            layers += there;
            for (uint32_t c = w->q.chunk0; layers && c < w->o.chunk0 + w->o.n_chunks; c++)
                CHECK(p->chunks->list[c].fixed || p->table[c].placement == NTX_PLACE_DEVICE);
        }
        CHECK(layers >= before);
        before = layers;
        CHECK(!p->n_windows || layers < p->chunks->n_layers);
        ntx_plan_free(p);
    }
    CHECK_EQ(before, r->chunks->n_layers);
    printf("%s: whole layers, in order, within the budget\n", what);
}

int main(void)
{
    static const char *const modes[] = {NULL, "threshold=0.1", "predicted=0.5"};
    for (size_t i = 0; i < 4; i++) {
        struct rig_options o = {.make = rig_model()};
        struct rig r;
        o.make.type = "Q8_0";
        if (i < 3) {
            o.pack = 8000;
            o.down_type = NTX_Q8_0; /* in columns: rows of blocks stay with the host */
            o.ffn = modes[i];
        } else {
            o.make.arch = "qwen3moe";
            o.make.experts = 5;
            o.make.experts_used = 2;
        }
        rig_open(&r, &o);
        const char *packed = i < 3 && modes[i] ? modes[i] : "packed";
        sweep(&r, i == 3 ? "experts" : packed);
        rig_close(&r);
    }
    return 0;
}
