/* SPDX-License-Identifier: Apache-2.0 */
/* device_rig.h: a forward pass (tests/unit/pass/rig.h) on the device of a plug-in library. */
#ifndef NTX_TESTS_UNIT_CUDA_DEVICE_RIG_H
#define NTX_TESTS_UNIT_CUDA_DEVICE_RIG_H

#include "computed/gpu/device.h"
#include "tests/lib/cuda_kit.h"
#include "tests/unit/cuda/fake.h"
#include "tests/unit/pass/rig.h"

struct world {
    struct gpu gpu;
    struct ntx_fake_control *fake; /* NULL: a real GPU */
    struct ntx_device *device;
    struct ntx_plan_chunk *table;
    /* Letters d (device), h (host) and s (storage). Matrix i is placed by mix[i % length], all neuron groups of layer l
     * by mix[l % length]. Experts with s are on the host. */
    const char *mix;
    uint32_t in_flight, share; /* share: 64ths of the host's bytes that are copied; UINT32_MAX: the default */
    double h2d_bps;
    uint32_t panel_outs; /* 0: the device's default */
    bool no_graphs;
    bool in_place; /* the GPU addresses all of the host's memory */
};

KIT int world_read(void *ctx, uint32_t chunk, void *to, struct ntx_err *err)
{
    const struct rig *r = ctx;
    const struct ntx_chunk *c = &r->chunks->list[chunk];
    (void)err;
    memcpy(to, r->w.files[c->file] + c->offset, c->bytes);
    return 0;
}

/* at: a letter of the mix. */
KIT uint32_t world_placement(const struct ntx_chunk *c, char at)
{
    if (at == 'd')
        return NTX_PLACE_DEVICE;
    if (c->on_demand)
        return NTX_PLACE_FRAME;
    return at == 'h' || c->expert ? NTX_PLACE_HOST : NTX_PLACE_STORAGE;
}

KIT void world_table(struct world *w, struct rig *r)
{
    uint32_t matrix = 0;
    w->table = calloc(r->chunks->n, sizeof *w->table);
    for (uint32_t i = 0; i < r->chunks->n; i++) {
        const struct ntx_chunk *c = &r->chunks->list[i];
        bool group = c->layer < r->chunks->n_layers && r->chunks->layers[c->layer].groups.tensor == c->tensor;
        char at = 'h';
        if (!c->fixed) {
            uint32_t index = group ? c->layer : matrix++;
            at = w->mix[index % strlen(w->mix)];
        }
        w->table[i].placement = world_placement(c, at);
    }
    mem_weights_table(&r->w, w->table);
}

KIT struct ntx_device_config world_config(struct world *w, struct rig *r, const struct rig_options *o,
                                          struct ntx_copy_share *share)
{
    memset(share->of, (int)w->share, sizeof share->of);
    return (struct ntx_device_config){
        .ops = w->gpu.ops,
        .gpu = w->gpu.g,
        .model = r->model,
        .chunks = r->chunks,
        .table = w->table,
        .max_rows = o->max_rows ? o->max_rows : 64,
        .ctx = o->ctx ? o->ctx : 512,
        .kv = r->kv,
        .logits_rows = 64,
        .in_flight = w->in_flight,
        .kv_type = o->kv_type,
        .ffn = r->ffn,
        .h2d_bps = w->h2d_bps,
        .panel_outs = w->panel_outs,
        .no_graphs = w->no_graphs,
        .share = w->share == UINT32_MAX ? NULL : share,
        .in_place = w->in_place ? (const void *)1 : NULL,
        .in_place_bytes = UINT64_MAX,
    };
}

KIT struct ntx_device *world_device(struct rig *r, const struct rig_options *o, void *ctx)
{
    struct world *w = ctx;
    struct ntx_err err = {0};
    struct ntx_copy_share share;
    world_table(w, r);
    r->w.slack = w->in_place ? NTX_GPU_SLACK : 0;
    struct ntx_device_config c = world_config(w, r, o, &share);
    CHECK_MSG(!ntx_backend_can(&ntx_device_backend, r->model, 0, &err), "%s", err.text);
    CHECK(ntx_device_bytes(&c) > 0);
    CHECK_MSG(!ntx_device_new(&c, &w->device, &err), "%s", err.text);
    CHECK_MSG(!ntx_device_fill(w->device, world_read, r, &err), "%s", err.text);
    return w->device;
}

/* w: NULL runs the pass on the CPU. */
KIT void world_rig(struct world *w, struct rig *r, struct rig_options *o)
{
    o->device = w ? world_device : NULL;
    o->device_ctx = w;
    o->backend = w ? &ntx_device_backend : NULL;
    rig_open(r, o);
}

KIT void world_close(struct world *w, struct rig *r)
{
    if (w)
        ntx_device_free(w->device);
    rig_close(r);
    if (w)
        free(w->table);
}

KIT void world_open(struct world *w, const char *library)
{
    struct ntx_fake_control *(*control)(void);
    *w = (struct world){.mix = "d", .in_flight = 1, .share = UINT32_MAX};
    gpu_open(&w->gpu, library);
    *(void **)&control = dlsym(dlopen(library, RTLD_NOW | RTLD_LOCAL), "ntx_fake_control");
    w->fake = control ? control() : NULL;
}

/* Largest difference, as a part of the largest value. */
KIT double worst(const float *got, const float *want, size_t n)
{
    double off = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        CHECK(!isnan(got[i]));
        off = fmax(off, fabs((double)got[i] - (double)want[i]));
        size = fmax(size, fabs((double)want[i]));
    }
    return off / size;
}

/* ---- logits of passes */

enum { N = 7, LONG = 260 };

/* Logits [n][n_vocab] of passes of `step` rows; w: NULL runs them on the CPU. The caller frees them. */
KIT float *logits_of(struct world *w, struct rig_options o, uint32_t n, uint32_t step, bool prompt, size_t *size)
{
    struct rig r;
    int32_t ids[LONG];
    struct ntx_row rows[64];
    world_rig(w, &r, &o);
    rig_ids(&r, 5, ids, n);
    *size = (size_t)n * r.n_vocab;
    float *logits = malloc(*size * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, n);
    for (uint32_t i = 0; i < n; i += step) {
        uint32_t k = n - i < step ? n - i : step;
        for (uint32_t j = 0; j < k; j++)
            rows[j] = (struct ntx_row){.token = ids[i + j],
                                       .pos = i + j,
                                       .kv = kv,
                                       .logits = logits + (size_t)(i + j) * r.n_vocab,
                                       .rounded = prompt,
                                       .all_groups = prompt};
        CHECK_MSG(!rig_run(&r, rows, k), "%s", r.w.w.error.text);
    }
    ntx_kv_seq_free(kv);
    world_close(w, &r);
    return logits;
}

/* The model is small because the fake runs each GPU thread as a fiber: one super-block wide, or four blocks of 32. */
KIT struct mk_options small_model(const char *type, uint32_t layers)
{
    struct mk_options make = rig_model();
    make.type = type;
    make.layers = layers;
    make.embd = make.ff = strstr(type, "_K") ? 256 : 128;
    make.heads = 4;
    return make;
}

/* Most matrices of a small model have several chunks of this size. */
KIT uint32_t small_chunk(const struct mk_options *make) { return make->embd < 256 ? 6000 : 20000; }

struct mixture {
    const char *arch, *type;
    uint32_t n, used, shared;
};

KIT struct mk_options small_mixture(const struct mixture *m, uint32_t layers, bool scales)
{
    struct mk_options make = small_model(m->type, layers);
    make.arch = m->arch;
    make.experts = m->n;
    make.experts_used = m->used;
    make.shared_ff = m->shared;
    make.window = 3;
    make.scales = scales;
    make.dense = !strcmp(m->arch, "glm4moe");
    return make;
}

struct way {
    const char *mix;
    uint32_t in_flight, window, step, share;
};

/* Rows without logits do not change the logits of the others, in a prompt or not. */
KIT void asked_alone(struct world *w, struct rig_options o, bool prompt, const float *want, const char *what)
{
    struct rig r;
    world_rig(w, &r, &o);
    rig_check_asked(&r, N, N, N, prompt, want, what);
    rig_check_asked(&r, N, 4, 3, prompt, want, what);
    world_close(w, &r);
}

/* Checks that the device gives the CPU's logits bit for bit in each of these configurations; returns the logits. */
KIT float *same_every_way(struct world *w, const struct rig_options *o, const struct way *ways, size_t n_ways,
                          const char *what, const char *which)
{
    size_t n;
    float *want = logits_of(NULL, *o, N, N, false, &n);
    for (size_t i = 0; i < n_ways; i++) {
        struct rig_options on = *o;
        w->mix = ways[i].mix;
        w->in_flight = ways[i].in_flight;
        w->share = ways[i].share;
        on.window = ways[i].window;
        float *got = logits_of(w, on, N, ways[i].step, false, &n);
        CHECK_MSG(!memcmp(got, want, n * sizeof *got), "%s %s, mixture %s: not the CPU's bits (off by %g)", what, which,
                  w->mix, worst(got, want, n));
        free(got);
        if (!i && !o->ffn)
            asked_alone(w, on, false, want, what);
    }
    return want;
}

#endif
