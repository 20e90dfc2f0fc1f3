/* pass.c: whole passes on a device (argument: the plug-in's path) against the CPU's: chunks on the device, on the host and streamed
 * through a short ring, in every mixture; decoding gives the CPU's bits, prompts its values within F16's rounding. */
#include "computed/device.h"
#include "tests/cuda/kit.h"
#include "tests/forward/rig.h"

enum { N = 11, LONG = 280 }; /* a fiber per thread of a card: small is long enough */

struct world {
    struct gpu gpu;
    struct ntx_device *device;
    struct ntx_plan_chunk *table;
    const char *mix; /* of "d", "h", "s": chunk i lives at mix[i % its length] */
    uint32_t in_flight, copy_rows;
};

static int read_chunk(void *ctx, uint32_t chunk, void *to, struct ntx_err *err)
{
    const struct rig *r = ctx;
    const struct ntx_chunk *c = &r->chunks->list[chunk];
    (void)err;
    memcpy(to, r->w.files[c->file] + c->offset, c->bytes);
    return 0;
}

static struct ntx_device *make_device(struct rig *r, const struct rig_options *o, void *ctx)
{
    struct world *w = ctx;
    struct ntx_err err = {0};
    uint32_t matrix = 0;
    w->table = calloc(r->chunks->n, sizeof *w->table);
    for (uint32_t i = 0; i < r->chunks->n; i++) {
        char at = r->chunks->list[i].fixed ? 'h' : w->mix[matrix++ % strlen(w->mix)];
        w->table[i].placement = at == 'd' ? NTX_PLACE_DEVICE : at == 'h' ? NTX_PLACE_HOST : NTX_PLACE_STORAGE;
    }
    mem_weights_table(&r->w, w->table);
    struct ntx_device_config c = {
        .ops = w->gpu.ops, .gpu = w->gpu.g, .model = r->model, .chunks = r->chunks, .table = w->table, .max_rows = o->max_rows ? o->max_rows : 64,
        .ctx = o->ctx ? o->ctx : 512, .kv_blocks = ntx_kv_pool_blocks(r->pool), .logits_rows = 64, .in_flight = w->in_flight, .copy_rows = w->copy_rows,
    };
    CHECK(!ntx_device_refuses(r->model));
    CHECK(ntx_device_bytes(&c) > 0);
    CHECK_MSG(!ntx_device_new(&c, &w->device, &err), "%s", err.text);
    CHECK_MSG(!ntx_device_fill(w->device, read_chunk, r, &err), "%s", err.text);
    return w->device;
}

static void open_on(struct world *w, struct rig *r, struct rig_options *o)
{
    o->device = make_device;
    o->device_ctx = w;
    rig_open(r, o);
}

static void close_on(struct world *w, struct rig *r)
{
    ntx_device_free(w->device);
    rig_close(r);
    free(w->table);
}

/* Passes of `step` rows; the CPU's where w is NULL. */
static float *logits_of(struct world *w, struct rig_options o, uint32_t n, uint32_t step, bool prompt, size_t *size)
{
    struct rig r;
    int32_t ids[LONG];
    struct ntx_row rows[64];
    if (w)
        open_on(w, &r, &o);
    else
        rig_open(&r, &o);
    rig_ids(&r, 5, ids, n);
    *size = (size_t)n * r.n_vocab;
    float *logits = malloc(*size * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, n);
    for (uint32_t i = 0; i < n; i += step) {
        uint32_t k = n - i < step ? n - i : step;
        for (uint32_t j = 0; j < k; j++)
            rows[j] = (struct ntx_row){.token = ids[i + j], .pos = i + j, .kv = kv, .logits = logits + (size_t)(i + j) * r.n_vocab, .prompt = prompt};
        CHECK_MSG(!rig_run(&r, rows, k), "%s", r.w.w.error.text);
    }
    ntx_kv_seq_free(kv);
    if (w)
        close_on(w, &r);
    else
        rig_close(&r);
    return logits;
}

static double worst(const float *got, const float *want, size_t n)
{
    double off = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        CHECK(!isnan(got[i]));
        off = fmax(off, fabs((double)got[i] - (double)want[i]));
        size = fmax(size, fabs((double)want[i]));
    }
    return off / size;
}

static void mixtures(struct world *w, const struct mk_options *make)
{
    static const struct {
        const char *mix;
        uint32_t in_flight, window, step, copy_rows;
    } ways[] = {
        {"d", 1, 0, 4, 0}, {"h", 1, 0, 3, 0}, {"s", 1, 1, 2, 0}, {"s", 3, 4, 7, 0}, {"sdhhd", 1, 2, 3, 0}, {"ddhs", 4, 5, N, 100},
    };
    const struct rig_options o = {.make = *make, .chunk_bytes = 20000};
    size_t n;
    float *want = logits_of(NULL, o, N, N, false, &n);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct rig_options on = o;
        w->mix = ways[i].mix;
        w->in_flight = ways[i].in_flight;
        w->copy_rows = ways[i].copy_rows;
        on.window = ways[i].window;
        float *got = logits_of(w, on, N, ways[i].step, false, &n);
        CHECK_MSG(!memcmp(got, want, n * sizeof *got), "%s %s, mixture %s: not the CPU's bits (off by %g)", make->arch, make->type, w->mix, worst(got, want, n));
        free(got);
    }
    w->mix = "dhs";
    float *got = logits_of(w, o, N, 7, true, &n);
    double off = worst(got, want, n);
    CHECK_MSG(off < 0.05, "%s: prompts are off by %g of the largest logit", make->type, off);
    printf("%s %s: bits equal in all mixtures, prompts within %.2g\n", make->arch, make->type, off);
    free(got), free(want);
}

/* A row of decoding has the same bits whoever shares its pass: alone, or before a prompt's rows. */
static void in_company(struct world *w)
{
    struct rig r;
    struct rig_options o = {.make = rig_model()};
    o.make.type = "Q4_K_M";
    float *alone, *beside;
    struct ntx_row rows[12];
    int32_t ids[12];
    w->mix = "dhs";
    w->in_flight = 2;
    open_on(w, &r, &o);
    rig_ids(&r, 3, ids, 12);
    alone = malloc(r.n_vocab * sizeof *alone), beside = malloc(r.n_vocab * sizeof *beside);
    struct ntx_kv_seq *a = rig_seq(&r, 8), *b = rig_seq(&r, 8), *c = rig_seq(&r, 16);
    rows[0] = (struct ntx_row){.token = ids[0], .kv = a, .logits = alone};
    CHECK_EQ(rig_run(&r, rows, 1), 0);
    rows[0] = (struct ntx_row){.token = ids[0], .kv = b, .logits = beside};
    for (uint32_t i = 1; i < 12; i++)
        rows[i] = (struct ntx_row){.token = ids[i], .pos = i - 1, .kv = c, .prompt = true};
    CHECK_EQ(rig_run(&r, rows, 12), 0);
    CHECK_SAME(alone, beside, r.n_vocab);
    CHECK_EQ(rig_run(&r, rows + 1, 11), 0); /* no row wants logits: the output is skipped */
    ntx_kv_seq_free(a), ntx_kv_seq_free(b), ntx_kv_seq_free(c);
    close_on(w, &r);
    free(alone), free(beside);
}

/* More positions than one split of attention. */
static void long_context(struct world *w)
{
    struct rig_options o = {.make = rig_model()};
    o.make.type = "Q8_0";
    o.make.layers = 1;
    o.make.heads = 2;
    o.make.kv = 1;
    size_t n;
    float *want = logits_of(NULL, o, LONG, 60, false, &n);
    w->mix = "d";
    w->in_flight = 1;
    float *got = logits_of(w, o, LONG, 60, false, &n);
    size_t equal = (size_t)NTX_GPU_SPLIT * (n / LONG);
    CHECK_MSG(!memcmp(got, want, equal * sizeof *got), "positions of one split differ");
    double off = worst(got + equal, want + equal, n - equal);
    CHECK_MSG(off < 1e-4, "split attention is off by %g", off);
    free(got), free(want);
}

/* A chunk that cannot be read, then a pass that can. */
static void failing_read(struct world *w)
{
    struct rig r;
    struct rig_options o = {.make = rig_model()};
    w->mix = "s";
    w->in_flight = 2;
    open_on(w, &r, &o);
    float *logits = malloc(r.n_vocab * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, 4);
    struct ntx_row row = {.token = 1, .kv = kv, .logits = logits};
    r.w.fail_chunk = r.chunks->layers[2].up.chunk0;
    CHECK_EQ(rig_run(&r, &row, 1), -5);
    r.w.fail_chunk = UINT32_MAX;
    CHECK_MSG(!rig_run(&r, &row, 1), "%s", r.w.w.error.text);
    ntx_kv_seq_free(kv);
    close_on(w, &r);
    free(logits);
}

int main(int argc, char **argv)
{
    struct world w = {0};
    CHECK(argc == 2);
    gpu_open(&w.gpu, argv[1]);
    static const char *const types[] = {"Q8_0", "F16", "Q4_K_M"};
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned i = 0; i < 3; i++) {
        struct mk_options make = rig_model();
        make.type = types[i];
        make.arch = i == 1 ? "qwen3" : i == 2 ? "llama-relu" : "qwen2";
        make.layers = i ? 1 : 2;
        mixtures(&w, &make);
    }
    in_company(&w);
    long_context(&w);
    failing_read(&w);
    gpu_close(&w.gpu);
    return 0;
}
