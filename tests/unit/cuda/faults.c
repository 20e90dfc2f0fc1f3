/* SPDX-License-Identifier: Apache-2.0 */
/* faults.c: the host's part of a pass on the fake device (argument: its path): when slots are released, that CPU and
 * GPU work at the same time, the share of copied chunks, the emulated link, and a device that is lost at any call or
 * too small. */
#include <errno.h>

#include "tests/unit/cuda/device_rig.h"

#include <time.h>

/* ---- events, in order */

enum { EVENTS = 4096 };
struct seen {
    char what; /* A acquired, R released, U an upload was carried out */
    const void *bytes;
    uint32_t chunk;
    uint64_t waiting; /* operations queued on the device then */
};

static struct {
    struct seen e[EVENTS];
    _Atomic uint32_t n;
    const struct ntx_weights_ops *ops; /* the rig's own */
    struct ntx_fake_control *fake;
    const struct ntx_plan_chunk *table;
} seen;

static void note(char what, const void *bytes, uint32_t chunk)
{
    uint32_t i = seen.n++;
    if (i < EVENTS)
        seen.e[i] = (struct seen){what, bytes, chunk, seen.fake->waiting};
}

static int acquire(struct ntx_weights *w, uint32_t chunk, const void **bytes)
{
    int rc = seen.ops->acquire(w, chunk, bytes);
    if (!rc)
        note('A', *bytes, chunk);
    return rc;
}

static void release(struct ntx_weights *w, uint32_t chunk)
{
    note('R', NULL, chunk);
    seen.ops->release(w, chunk);
}

static void ran_upload(const void *host) { note('U', host, UINT32_MAX); }

static struct ntx_weights_ops watch(struct world *w, struct rig *r)
{
    struct ntx_weights_ops ops = *r->w.w.ops;
    seen.ops = r->w.w.ops;
    seen.fake = w->fake;
    seen.table = w->table;
    seen.n = 0;
    ops.acquire = acquire;
    ops.release = release;
    w->fake->ran_upload = ran_upload;
    return ops;
}

/* Every streamed chunk is uploaded after it was acquired and before it is released; a later one is brought before an
 * earlier one is given back. */
static void check_slots(uint32_t in_flight)
{
    uint32_t held = 0, most = 0, streamed = 0;
    for (uint32_t i = 0; i < seen.n; i++) {
        const struct seen *a = &seen.e[i];
        if (a->what == 'U' || seen.table[a->chunk].placement != NTX_PLACE_STORAGE)
            continue;
        held += a->what == 'A';
        held -= a->what == 'R';
        most = held > most ? held : most;
        uint32_t up = i, down = i;
        while (a->what == 'A' && up < seen.n && !(seen.e[up].what == 'U' && seen.e[up].bytes == a->bytes))
            up++;
        while (a->what == 'A' && down < seen.n && !(seen.e[down].what == 'R' && seen.e[down].chunk == a->chunk))
            down++;
        CHECK_MSG(a->what != 'A' || (up < down && down < seen.n),
                  "chunk %u: acquired at %u, uploaded at %u, released at %u", a->chunk, i, up, down);
        streamed += a->what == 'A';
    }
    CHECK(streamed > 8);
    CHECK_EQ(held, 0);
    CHECK(most <= in_flight && most > (in_flight > 1)); /* the next is brought before the one before is let go */
}

/* The CPU takes its chunks of a step while the GPU's part of that step is queued and not yet done. */
static void check_overlap(void)
{
    uint32_t in_place = 0, together = 0;
    for (uint32_t i = 0; i < seen.n; i++)
        if (seen.e[i].what == 'A' && seen.table[seen.e[i].chunk].placement == NTX_PLACE_HOST) {
            in_place++;
            together += seen.e[i].waiting > 0;
        }
    CHECK(in_place > 8);
    CHECK_MSG(together == in_place, "the CPU began %u of %u chunks with nothing queued on the GPU", in_place - together,
              in_place);
}

static void run_row(struct rig *r, struct ntx_kv_seq *kv, uint32_t pos, float *logits)
{
    struct ntx_row row = {.token = 3, .pos = pos, .kv = kv, .logits = logits};
    CHECK_MSG(!rig_run(r, &row, 1), "%s", r->w.w.error.text);
}

static void order(struct world *w, const char *mix, uint32_t in_flight)
{
    struct rig r;
    struct rig_options o = {.make = rig_model(), .chunk_bytes = 20000, .window = in_flight + 1, .threads = 3};
    w->mix = mix;
    w->in_flight = in_flight;
    world_rig(w, &r, &o);
    const struct ntx_weights_ops ops = watch(w, &r);
    r.w.w.ops = &ops;
    float *logits = malloc(r.n_vocab * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, 2);
    run_row(&r, kv, 0, logits);
    CHECK(seen.n <= EVENTS);
    if (strchr(mix, 's'))
        check_slots(in_flight);
    if (strchr(mix, 'h'))
        check_overlap();
    w->fake->ran_upload = NULL;
    ntx_kv_seq_free(kv);
    world_close(w, &r);
    free(logits);
}

/* ---- the share of the host's bytes that is copied, and its rate */

static uint64_t uploaded(struct world *w, uint32_t share, double h2d_bps, double *seconds, uint64_t *host_bytes)
{
    struct rig r;
    struct rig_options o = {.make = rig_model(), .chunk_bytes = 8192};
    struct timespec from, to;
    w->mix = "h";
    w->in_flight = 2;
    w->share = share;
    w->h2d_bps = h2d_bps;
    world_rig(w, &r, &o);
    *host_bytes = r.chunks->matrix_bytes;
    float *logits = malloc(r.n_vocab * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, 2);
    uint64_t before = w->fake->uploaded;
    clock_gettime(CLOCK_MONOTONIC, &from);
    run_row(&r, kv, 0, logits);
    clock_gettime(CLOCK_MONOTONIC, &to);
    *seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    uint64_t bytes = w->fake->uploaded - before;
    ntx_kv_seq_free(kv);
    world_close(w, &r);
    free(logits);
    w->share = UINT32_MAX;
    w->h2d_bps = 0;
    return bytes;
}

static void shares(struct world *w)
{
    uint64_t host;
    double s;
    uint64_t none = uploaded(w, 0, 0, &s, &host), half = uploaded(w, 32, 0, &s, &host),
             all = uploaded(w, 64, 0, &s, &host);
    CHECK_EQ(all - none, host);
    double part = (double)(half - none) / (double)host;
    CHECK_MSG(part > 0.45 && part < 0.55, "a share of half copies %.3f", part);
    uploaded(w, 64, (double)host / 0.4, &s,
             &host); /* a link that takes 0.4 s for it; sleeping too long is made up for */
    CHECK_MSG(s >= 0.39, "the emulated link took %.3f s instead of 0.4", s);
    printf("half of the host's bytes: %.3f copied; 0.4 s of an emulated link: %.3f s\n", part, s);
}

/* ---- a device that is lost, or too small */

/* Every call fails from the n-th on. True: the run made fewer calls. */
static bool lost_at(struct world *w, const struct rig_options *given, uint64_t n)
{
    struct rig r;
    struct rig_options o = *given;
    struct ntx_copy_share share;
    struct ntx_err err = {0};
    rig_open(&r, &o); /* only for its model and chunks */
    world_table(w, &r);
    struct ntx_device_config c = world_config(w, &r, &o, &share);
    w->fake->calls = 0;
    w->fake->fail_at = n;
    w->device = NULL;
    int rc = ntx_device_new(&c, &w->device, &err);
    if (!rc && (rc = ntx_device_fill(w->device, world_read, &r, &err)))
        CHECK(strstr(err.text, "fake GPU is lost"));
    else if (rc)
        CHECK_MSG(strstr(err.text, "fake GPU is lost") && strstr(err.text, "iB of this model"), "%s", err.text);
    if (!rc) {
        struct ntx_forward_config f = {.model = r.model,
                                       .chunks = r.chunks,
                                       .ops = ntx_cpu_pick(NULL),
                                       .weights = &r.w.w,
                                       .threads = 2,
                                       .max_rows = 8,
                                       .ctx = 64,
                                       .backend = &ntx_device_backend,
                                       .device = w->device};
        struct ntx_forward *forward;
        CHECK_MSG(!ntx_forward_new(&f, &forward, &err), "%s", err.text);
        struct ntx_kv_seq *kv = rig_seq(&r, 4);
        float *logits = malloc(2 * r.n_vocab * sizeof *logits);
        struct ntx_row rows[2] = {{.token = 3, .kv = kv, .logits = logits},
                                  {.token = 4, .pos = 1, .kv = kv, .logits = logits + r.n_vocab}};
        struct ntx_batch b = {.rows = rows, .n_rows = 2};
        r.w.forgive = true;
        rc = ntx_forward_run(forward, &b);
        CHECK_EQ(ntx_device_lost(w->device), rc != 0);
        CHECK_MSG(!rc || strstr(r.w.w.error.text, "fake GPU is lost since call"), "%s", r.w.w.error.text);
        if (rc) { /* and the next pass says so again */
            b.pass = 1;
            CHECK_EQ(ntx_forward_run(forward, &b), -5);
        }
        ntx_kv_seq_free(kv);
        ntx_forward_free(forward);
        free(logits);
    }
    bool through = !rc && w->fake->calls < n;
    ntx_device_free(w->device);
    w->fake->fail_at = UINT64_MAX;
    rig_close(&r);
    free(w->table);
    return through;
}

/* Every call of a small run fails once. */
static void lost_anywhere(struct world *w, const struct mk_options *make, const char *mix)
{
    const struct rig_options o = {.make = *make, .max_rows = 8, .ctx = 64};
    uint64_t n = 1;
    w->mix = mix;
    w->in_flight = 2;
    w->share = 32;
    while (!lost_at(w, &o, n))
        n++;
    CHECK(n > 60);
    w->share = UINT32_MAX;
    printf("%s: lost at each of %llu calls, told each time\n", mix, (unsigned long long)n - 1);
}

static void too_small(struct world *w)
{
    struct rig r;
    struct rig_options o = {.make = rig_model()};
    struct ntx_copy_share share;
    struct ntx_err err = {0};
    uint64_t total = w->fake->total;
    rig_open(&r, &o);
    w->mix = "d";
    world_table(w, &r);
    struct ntx_device_config c = world_config(w, &r, &o, &share);
    w->fake->total = 100000;
    CHECK_EQ(ntx_device_new(&c, &w->device, &err), -12);
    CHECK_MSG(strstr(err.text, "of 100000 are free") && strstr(err.text, "no memory for "), "%s", err.text);
    w->fake->total = total;
    CHECK_MSG(!ntx_device_new(&c, &w->device, &err), "%s", err.text); /* nothing of the first try is left */
    ntx_device_free(w->device);
    rig_close(&r);
    free(w->table);
}

/* A chunk that cannot be read, then a pass that can. */
static void failing_read(struct world *w)
{
    struct rig r;
    struct rig_options o = {.make = rig_model()};
    w->mix = "s";
    w->in_flight = 2;
    world_rig(w, &r, &o);
    float *logits = malloc(r.n_vocab * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, 4);
    struct ntx_row row = {.token = 1, .kv = kv, .logits = logits};
    r.w.fail_chunk = r.chunks->layers[2].up.chunk0;
    CHECK_EQ(rig_run(&r, &row, 1), -5);
    CHECK(!ntx_device_lost(w->device));
    r.w.fail_chunk = UINT32_MAX;
    run_row(&r, kv, 0, logits);
    ntx_kv_seq_free(kv);
    world_close(w, &r);
    free(logits);
}

/* A step that takes a weight out of turn reports it at once, wherever chunks are placed. The device works as before
 * afterwards. */
static void out_of_order(struct world *w, const char *mix)
{
    struct rig r;
    struct rig_options o = {.make = rig_model()};
    w->mix = mix;
    w->in_flight = 2;
    world_rig(w, &r, &o);
    float *logits = malloc(r.n_vocab * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, 4);
    struct ntx_row row = {.token = 1, .kv = kv, .logits = logits};
    struct ntx_step *gate = r.model->layers[2].step;
    while (!gate->n_weights || gate->weight[0] != NTX_T_gate)
        gate++;
    gate->weight[0] = NTX_T_up;
    r.w.forgive = true; /* the pass ends with chunks that nobody took */
    CHECK_EQ(rig_run(&r, &row, 1), -EPROTO);
    CHECK_STR(r.w.w.error.text, "layer 2 takes tensor 'blk.2.ffn_up.weight' when it is the turn of "
                                "'blk.2.ffn_gate.weight': weights are read in the order of the steps");
    CHECK(!ntx_device_lost(w->device));
    gate->weight[0] = NTX_T_gate;
    run_row(&r, kv, 0, logits);
    ntx_kv_seq_free(kv);
    world_close(w, &r);
    free(logits);
}

/* An operation that the device lacks is reported at load, with the layer and its steps. */
static void lacking(void)
{
    struct rig r;
    const struct rig_options o = {.make = rig_model()};
    struct ntx_err why = {0};
    rig_open(&r, &o);
    CHECK_EQ(ntx_backend_can(&ntx_device_backend, r.model, 0, &why), 0);
    CHECK_EQ(ntx_backend_can(NULL, r.model, 0, &why), 0); /* the CPU */
    struct ntx_step *step = &r.model->layers[1].step[2];
    const uint8_t op = step->op;
    step->op = NTX_N_OPS; /* what no row of the table of operations says that a device does */
    CHECK_EQ(ntx_backend_can(&ntx_device_backend, r.model, 0, &why), -ENOTSUP);
    CHECK_STR(why.text, "what layer 1 does (UNKNOWN) is computed on the CPU only");
    step->op = op;
    CHECK_EQ(ntx_backend_can(&ntx_device_backend, r.model, 0, &why), 0);
    r.model->hp.ctx_plain = 8191;
    CHECK_EQ(ntx_backend_can(&ntx_device_backend, r.model, 8191, &why), 0);
    CHECK_EQ(ntx_backend_can(NULL, r.model, 8192, &why), 0);
    CHECK_EQ(ntx_backend_can(&ntx_device_backend, r.model, 8192, &why), -ENOTSUP);
    CHECK_STR(why.text, "attention of a llama model in a context of more than 8191 tokens is computed on the CPU only");
    r.model->hp.head_k = NTX_GPU_HEAD_MAX + 1;
    CHECK_EQ(ntx_backend_can(&ntx_device_backend, r.model, 0, &why), -ENOTSUP);
    CHECK_STR(why.text, "what layer 0 does (ATTEND) is computed on the CPU only");
    rig_close(&r);
}

int main(int argc, char **argv)
{
    struct world w;
    struct mk_options small = rig_model(), experts;
    CHECK(argc == 2);
    setvbuf(stdout, NULL, _IOLBF, 0);
    world_open(&w, argv[1]);
    if (!w.fake)
        SKIP("this is about the fake device");
    order(&w, "s", 1);
    order(&w, "sd", 3);
    order(&w, "hds", 2);
    order(&w, "dh", 2);
    shares(&w);
    small.layers = 1;
    small.type = "Q8_0";
    lost_anywhere(&w, &small, "dhs");
    experts = small;
    experts.arch = "qwen3moe";
    experts.experts = 3;
    experts.experts_used = 2;
    lost_anywhere(&w, &experts, "dh");
    too_small(&w);
    failing_read(&w);
    out_of_order(&w, "d");
    out_of_order(&w, "h");
    out_of_order(&w, "s");
    lacking();
    gpu_close(&w.gpu);
    return 0;
}
