/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/ranks/ranks.h"
#include "tests/lib/temporary.h"
#include "tests/unit/pass/rig.h"

#include <fcntl.h>
#include <unistd.h>

#include "model/pack_make.h"
#include "model/quant.h"

#define MODEL_FILES 8 /* at most */

struct mk_options rig_model(void)
{
    return (struct mk_options){.arch = "llama",
                               .type = "F32",
                               .name = "rig",
                               .rope_scaling = "none",
                               .layers = 4,
                               .embd = 256,
                               .ff = 512,
                               .heads = 8,
                               .kv = 2,
                               .ctx = 512,
                               .rope_base = 10000,
                               .rope_factor = 1,
                               .logit_scale = 3,
                               .experts_used = 2,
                               .version = 3,
                               .parts = 1,
                               .seed = 1};
}

struct mk_options rig_mla(void)
{
    struct mk_options o = rig_model();
    o.arch = "deepseek2";
    o.layers = 3;
    o.dense = 1;
    o.ff = 256;
    o.experts = 8;
    o.experts_used = 3;
    o.expert_groups = 4;
    o.expert_groups_used = 2;
    o.head_dim = 96;
    o.rotated = 32;
    o.value_dim = 64;
    o.kv_lora = 256;
    return o;
}

struct mk_options rig_kda(void)
{
    struct mk_options o = rig_mla();
    o.arch = "kimi-linear";
    o.layers = 4;
    o.expert_groups = o.expert_groups_used = 0;
    o.attention_every = 2;
    o.delta_head = 48;
    return o;
}

struct mk_options rig_streamed(void)
{
    struct mk_options o = rig_kda();
    o.arch = "glm5-next";
    o.rotated = 0;
    o.q_lora = 256;
    o.index_heads = 20;
    o.index_head = 48;
    o.index_pool = 3;
    o.index_most = 2;
    o.delta_bound = 5;
    return o;
}

struct mk_options rig_blocks(void)
{
    struct mk_options o = rig_model();
    o.arch = "qwen4exp";
    o.ff = 256;
    o.experts = 8;
    o.experts_used = 3;
    o.head_dim = 64;
    o.rotated = 16;
    o.attention_every = 2;
    o.delta_head = 48;
    o.delta_heads = 6;
    o.delta_keys = 3;
    o.index_heads = 20;
    o.index_head = 48;
    o.index_pool = 3;
    o.index_most = 2;
    o.low_rank = 32;
    o.gram_layer = 3;
    o.gram_heads = 4;
    return o;
}

struct mk_options rig_choosing(void)
{
    struct mk_options o = rig_mla();
    o.arch = "deepseek32";
    o.q_lora = 256;
    o.index_heads = 20;
    o.index_head = 48;
    o.index_most = 9;
    return o;
}

void rig_gemma4(struct mk_options *o, uint32_t i)
{
    o->arch = "gemma4";
    o->head_dim = 64;
    o->window_head = 32;
    o->full_kv = o->no_v = o->fused = i == 1;
    o->experts = i == 1 ? 6 : 0;
    o->shared_kv = i == 2 ? 3 : 0;
    o->layer_input = i == 2 ? 64 : 0;
}

struct mk_options rig_pooled(void)
{
    struct mk_options o = rig_model();
    o.arch = "deepseek4";
    o.layers = 3;
    o.heads = 4;
    o.kv = 1;
    o.head_dim = 128;
    o.rotated = 32;
    o.q_lora = 256;
    o.o_lora = 48;
    o.experts = 8;
    o.experts_used = 3;
    o.expert_ff = o.shared_ff = 96;
    o.window = 16;
    o.hashed = 1;
    o.index_most = 5;
    return o;
}

/* The same model packed, in its place. */
const char *rig_kernel(const char *name)
{
#ifdef __aarch64__
    if (name && !strcmp(name, "avx2"))
        return "neon";
    if (name && !strcmp(name, "avx512"))
        return "i8mm";
#endif
    return name;
}

static void pack(const struct rig_options *o, const char *path)
{
    struct ntx_err err = {0};
    struct ntx_gguf *g;
    struct ntx_model *m;
    struct ntx_pack_report report;
    const struct ntx_pack_options p = {.group_bytes = o->pack,
                                       .gate_in_bundle = o->pack_gate,
                                       .down_type = o->down_type ? o->down_type : NTX_TYPE_LIMIT};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_MSG(!ntx_gguf_open(&fd, 1, NULL, &g, &err) && !ntx_model_open(g, &m, &err), "%s", err.text);
    CHECK_MSG(!ntx_pack_make(m, &fd, &p, path, &report, &err), "%s", err.text);
    ntx_model_free(m);
    ntx_gguf_free(g);
    close(fd);
}

#define DIR_ROOM 96
/* dir: [DIR_ROOM]; returns the number of parts, and their paths like ntx_gguf_split_paths. */
static int make(const struct rig_options *r, char *dir, char ***paths)
{
    const struct mk_options *o = &r->make;
    struct mk_file f = {0};
    struct ntx_err err = {0};
    float *freqs = NULL;
    uint64_t bytes;
    char path[128];
    temporary_dir(dir, DIR_ROOM, "test");
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    CHECK_MSG(!mk_describe(&f, o, &freqs, &err), "%s", err.text);
    CHECK_MSG(!mk_write(&f, path, o->parts, &bytes, &err), "%s", err.text);
    free(freqs);
    mk_file_free(&f);
    if (r->pack)
        pack(r, path);
    if (o->parts > 1)
        snprintf(path, sizeof path, "%s/m-00001-of-%05u.gguf", dir, o->parts);
    return ntx_gguf_split_paths(path, paths, &err);
}

/* The files made last, still open: most models are opened again and again, in different circumstances. */
static struct {
    pthread_mutex_t lock;
    struct mk_options make; /* the options that they were made by, */
    struct made_packed {
        uint64_t group_bytes;
        bool gate;
        uint32_t down_type;
    } packed; /* and packed by */
    int n, fds[MODEL_FILES];
} made = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int open_parts(char **paths, int n, int *fds)
{
    for (int i = 0; i < n; i++) {
        fds[i] = open(paths[i], O_RDONLY | O_CLOEXEC);
        CHECK_MSG(fds[i] >= 0, "%s", paths[i]);
    }
    return n;
}

static void close_parts(const int *fds, int n)
{
    for (int i = 0; i < n; i++)
        close(fds[i]);
}

static void free_paths(char **paths, int n)
{
    for (int i = 0; i < n; i++)
        free(paths[i]);
    free(paths);
}

/* Makes sure that `made` has the files for o. */
static void make_once(const struct rig_options *o)
{
    struct made_packed packed;
    memset(&packed, 0, sizeof packed);
    packed.group_bytes = o->pack;
    packed.gate = o->pack_gate;
    packed.down_type = o->down_type;
    if (made.n && !memcmp(&made.make, &o->make, sizeof made.make) && !memcmp(&made.packed, &packed, sizeof packed))
        return;
    close_parts(made.fds, made.n);
    char dir[DIR_ROOM], **paths;
    int n = make(o, dir, &paths);
    CHECK(n > 0 && n <= MODEL_FILES);
    made.n = open_parts(paths, n, made.fds);
    memcpy(&made.make, &o->make, sizeof made.make);
    memcpy(&made.packed, &packed, sizeof packed);
    for (int i = 0; i < n; i++)
        unlink(paths[i]);
    rmdir(dir);
    free_paths(paths, n);
}

static void open_fds(struct rig *r, const int *fds, int n)
{
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_gguf_open(fds, (unsigned)n, NULL, &r->gguf, &err), "%s", err.text);
    mem_weights_init(&r->w, fds, (unsigned)n);
}

static void open_files(struct rig *r, const struct rig_options *o)
{
    if (!o->path) {
        pthread_mutex_lock(&made.lock);
        make_once(o);
        open_fds(r, made.fds, made.n);
        pthread_mutex_unlock(&made.lock);
        return;
    }
    struct ntx_err err = {0};
    char **paths = NULL;
    int fds[MODEL_FILES], n = ntx_gguf_split_paths(o->path, &paths, &err);
    CHECK_MSG(n > 0 && n <= MODEL_FILES, "%s", err.text);
    open_parts(paths, n, fds);
    free_paths(paths, n);
    open_fds(r, fds, n);
    close_parts(fds, n);
}

/* Networks of 16 hidden units with arbitrary answers. */
static struct ntx_ffn_nets *make_nets(const struct ntx_model *m)
{
    struct ntx_ffn_nets *x = calloc(1, sizeof *x);
    uint32_t seed = 3;
    x->n_layers = m->hp.n_layers;
    x->mlp = calloc(x->n_layers, sizeof *x->mlp);
    x->limit = calloc(x->n_layers, sizeof *x->limit);
    for (uint32_t l = 0; l < x->n_layers; l++) {
        struct ntx_mlp_weights n = {.n_in = m->hp.n_embd, .n_hidden = 16, .n_out = m->pack[l].n_groups};
        CHECK(!ntx_mlp_weights_alloc(&n));
        for (uint32_t i = 0; i < n.n_in; i++)
            n.scale[i] = 1;
        for (uint32_t i = 0; i < n.n_in * 16; i++)
            n.w1[i] = (float)((seed = seed * 1664525 + 1013904223) >> 8) / (1 << 23) - 1;
        for (uint32_t i = 0; i < n.n_out * 16; i++)
            n.w2[i] = (float)((seed = seed * 1664525 + 1013904223) >> 8) / (1 << 23) - 1;
        CHECK(!ntx_mlp_new(&n, NULL, &x->mlp[l]));
        ntx_mlp_weights_free(&n);
    }
    return x;
}

void rig_open(struct rig *r, const struct rig_options *o)
{
    struct ntx_err err = {0};
    uint32_t ctx = o->ctx ? o->ctx : 512, kv_tokens = o->kv_tokens ? o->kv_tokens : 8 * ctx;
    memset(r, 0, sizeof *r);
    open_files(r, o);
    CHECK_MSG(!ntx_model_open(r->gguf, &r->model, &err), "%s", err.text);
    const bool dealt = o->share && o->share->split == NTX_SPLIT_HEADS && !ntx_heads_refuse(r->model);
    r->model->hp.kv_share = dealt ? o->share : NULL;
    const struct ntx_chunk_bounds bounds = {.most = NTX_CHUNKS_MAX, .share = o->share};
    CHECK_MSG(!ntx_chunks_make_bounded(r->model, o->chunk_bytes ? o->chunk_bytes : 64 << 10, &bounds, &r->chunks, &err),
              "%s", err.text);
    r->kv = (struct ntx_kv_shape){.blocks = (kv_tokens + NTX_KV_BLOCK - 1) / NTX_KV_BLOCK, .states = 16};
    if (o->windows)
        r->kv = ntx_kv_shape_for(&r->model->hp, ctx, 8, o->max_rows ? o->max_rows : 64, false);
    CHECK_MSG(!ntx_kv_pool_new(&r->model->hp, o->kv_type, &r->kv, &r->pool, &err), "%s", err.text);
    CHECK_MSG(!ntx_ffn_mode_parse(o->ffn, r->model, &r->ffn, &err), "%s", err.text);
    if (r->ffn.learned)
        r->ffn.nets = r->nets = make_nets(r->model);
    if (r->ffn.kind != NTX_FFN_ALL)
        ntx_chunks_on_demand(r->chunks);
    mem_weights_chunks(&r->w, r->chunks);
    r->w.window = o->window;
    r->w.stay_every = o->stay_every;
    struct ntx_forward_config c = {
        .model = r->model,
        .chunks = r->chunks,
        .ops = ntx_cpu_pick(o->kernel),
        .weights = &r->w.w,
        .counters = r->counters = calloc(1, sizeof *r->counters),
        .threads = o->threads ? o->threads : 2,
        .max_rows = o->max_rows ? o->max_rows : 64,
        .ctx = ctx,
        .skip = o->skip,
        .ffn = r->ffn,
    };
    CHECK(c.ops);
    c.n_taps = o->n_taps;
    c.taps = o->taps;
    if (dealt)
        ntx_ranks_keep(o->ranks, r->pool);
    c.backend = o->backend;
    c.ranks = o->ranks;
    if (o->device)
        c.device = o->device(r, o, o->device_ctx);
    CHECK_MSG(!ntx_forward_new(&c, &r->f, &err), "%s", err.text);
    r->n_vocab = r->model->hp.n_vocab;
    r->n_embd = r->model->hp.n_embd;
    r->n_layers = r->model->hp.n_layers;
}

void rig_close(struct rig *r)
{
    ntx_forward_free(r->f);
    CHECK_EQ(ntx_kv_pool_used(r->pool), 0);
    ntx_kv_pool_free(r->pool);
    mem_weights_done(&r->w);
    free(r->counters);
    ntx_ffn_nets_free(r->nets);
    ntx_chunks_free(r->chunks);
    ntx_model_free(r->model);
    ntx_gguf_free(r->gguf);
}

struct ntx_kv_seq *rig_seq(struct rig *r, uint32_t n_tokens)
{
    struct ntx_kv_seq *s;
    CHECK_EQ(ntx_kv_seq_new(r->pool, n_tokens, &s), 0);
    return s;
}

int rig_run(struct rig *r, struct ntx_row *rows, uint32_t n)
{
    struct ntx_batch b = {.pass = r->pass++, .rows = rows, .n_rows = n};
    return ntx_forward_run(r->f, &b);
}

void rig_feed(struct rig *r, struct ntx_kv_seq *kv, const int32_t *ids, uint32_t n, uint32_t pos, uint32_t step,
              float *logits)
{
    struct ntx_row rows[512];
    for (uint32_t i = 0; i < n; i += step) {
        uint32_t k = n - i < step ? n - i : step;
        for (uint32_t j = 0; j < k; j++)
            rows[j] = (struct ntx_row){.token = ids[i + j],
                                       .pos = pos + i + j,
                                       .kv = kv,
                                       .logits = logits ? logits + (size_t)(i + j) * r->n_vocab : NULL};
        CHECK_MSG(!rig_run(r, rows, k), "%s", r->w.w.error.text);
    }
}

uint32_t rig_argmax(const float *v, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (v[i] > v[best])
            best = i;
    return best;
}

void rig_ids(const struct rig *r, uint32_t seed, int32_t *ids, uint32_t n)
{
    uint32_t x = seed * 2654435761u + 12345;
    for (uint32_t i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        ids[i] = (int32_t)((x >> 8) % r->n_vocab);
    }
}

float *rig_logits(const struct rig_options *o, uint32_t tokens, uint32_t step, size_t *n)
{
    struct rig r;
    rig_open(&r, o);
    int32_t *ids = malloc((size_t)tokens * sizeof *ids);
    rig_ids(&r, 5, ids, tokens);
    *n = (size_t)tokens * r.n_vocab;
    float *logits = malloc(*n * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, tokens);
    rig_feed(&r, kv, ids, tokens, 0, step, logits);
    ntx_kv_seq_free(kv);
    rig_close(&r);
    free(ids);
    return logits;
}

void rig_check_asked(struct rig *r, uint32_t tokens, uint32_t step, uint32_t every, bool rounded, const float *want,
                     const char *what)
{
    int32_t *ids = malloc((size_t)tokens * sizeof *ids);
    float *got = malloc((size_t)step * r->n_vocab * sizeof *got);
    struct ntx_row *rows = calloc(step, sizeof *rows);
    struct ntx_kv_seq *kv = rig_seq(r, tokens);
    uint64_t before = ntx_counter_get(r->counters, NTX_C_comp_rows_unasked);
    uint32_t without_logits = 0;
    rig_ids(r, 5, ids, tokens);
    for (uint32_t i = 0; i < tokens; i += step) {
        uint32_t n = tokens - i < step ? tokens - i : step;
        for (uint32_t k = 0; k < n; k++) {
            bool with_logits = (i + k + 1) % every == 0 || i + k + 1 == tokens;
            rows[k] = (struct ntx_row){.token = ids[i + k],
                                       .pos = i + k,
                                       .kv = kv,
                                       .logits = with_logits ? got + (size_t)k * r->n_vocab : NULL,
                                       .rounded = rounded,
                                       .all_groups = rounded};
            without_logits += !with_logits;
        }
        CHECK_MSG(!rig_run(r, rows, n), "%s", r->w.w.error.text);
        for (uint32_t k = 0; k < n; k++) {
            const float *of = want + (size_t)(i + k) * r->n_vocab;
            CHECK_MSG(!rows[k].logits || !memcmp(rows[k].logits, of, r->n_vocab * sizeof *of),
                      "%s: row %u in passes of %u, of which every %uth is asked, differs", what, i + k, step, every);
        }
    }
    CHECK_EQ(ntx_counter_get(r->counters, NTX_C_comp_rows_unasked) - before, without_logits);
    ntx_kv_seq_free(kv);
    free(rows), free(got), free(ids);
}
