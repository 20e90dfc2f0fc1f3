/* SPDX-License-Identifier: Apache-2.0 */
/* The model's own next-token block. Its chances are those of a model of one layer, whose embedding rows are the block's
 * inputs, computed here in double: from the token's own row and from the state that the token before it left. The same
 * holds for predictions from its own predictions. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "computed/draft/drafter.h"
#include "tests/lib/temporary.h"
#include "tests/unit/pass/rig.h"

enum { TEXT = 24, CTX = 128, SHARP = 75 /* hundredths: drafter.c */ };

static char *path_of(const char *what)
{
    static char path[2][4096];
    char *p = path[*what == 'b'];
    CHECK(!close(temporary_file(p, sizeof path[0], what)));
    return p;
}

struct model { /* with a block after its layers */
    int fd;
    struct ntx_gguf *gguf;
    uint32_t block, n_embd;
    const char *arch;
};

static void make(struct model *m, const struct mk_options *o)
{
    struct mk_file f = {0};
    struct ntx_err err = {0};
    float *freqs = NULL;
    uint64_t bytes;
    char *path = path_of("a");
    CHECK_MSG(!mk_describe(&f, o, &freqs, &err) && !mk_write(&f, path, 1, &bytes, &err), "%s", err.text);
    free(freqs);
    mk_file_free(&f);
    *m = (struct model){.fd = open(path, O_RDONLY | O_CLOEXEC), .block = o->layers, .n_embd = o->embd, .arch = o->arch};
    unlink(path);
    CHECK_MSG(!ntx_gguf_open(&m->fd, 1, NULL, &m->gguf, &err), "%s", err.text);
}

static float *floats(const struct model *m, const char *name)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor(m->gguf, name);
    CHECK_MSG(t, "no tensor %s", name);
    float *v = malloc(t->bytes);
    CHECK(v && pread(m->fd, v, t->bytes, (off_t)t->offset) == (ssize_t)t->bytes);
    return v;
}

static float *of_block(const struct model *m, const char *name)
{
    char full[80];
    snprintf(full, sizeof full, "blk.%u.nextn.%s.weight", m->block, name);
    return floats(m, full);
}

static bool ends_in(const struct ntx_str *s, const char *end)
{
    return s->n > strlen(end) && !memcmp(s->p + s->n - strlen(end), end, strlen(end));
}

static void say(struct mk_file *f, const struct model *m, const char *suffix, uint32_t v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->arch, suffix);
    mk_kv_u32(f, key, v);
}

static void take_keys(struct mk_file *f, const struct model *m)
{
    static const char *const others[] = {".block_count", ".nextn_predict_layers", ".leading_dense_block_count",
                                         ".full_attention_interval"};
    for (uint64_t i = 0; i < ntx_gguf_n_kv(m->gguf); i++) {
        const struct ntx_gguf_kv *kv = ntx_gguf_kv_at(m->gguf, i);
        bool other = false;
        for (unsigned k = 0; k < 4; k++)
            other |= ends_in(&kv->key, others[k]);
        if (!other)
            mk_kv_copy(f, kv);
    }
    say(f, m, "block_count", 1);
    if (strstr(m->arch, "qwen"))
        say(f, m, "full_attention_interval", 1);
}

/* Its name in the model of one layer; "": it has none there. */
static void name_of(const struct model *m, const char *name, char out[64])
{
    char block[16], norm[64];
    snprintf(block, sizeof block, "blk.%u.", m->block);
    snprintf(norm, sizeof norm, "%snextn.shared_head_norm.weight", block);
    *out = 0;
    if (!strcmp(name, norm))
        snprintf(out, 64, "output_norm.weight");
    else if (!strncmp(name, block, strlen(block)) && !strstr(name, "nextn"))
        snprintf(out, 64, "blk.0.%s", name + strlen(block));
    else if (!strcmp(name, "token_embd.weight") || !strcmp(name, "output.weight"))
        snprintf(out, 64, "%s", name);
}

/* The block as a model of its own, in a rig. */
static void open_alone(struct rig *r, const struct model *m)
{
    struct mk_file f = {.version = 3};
    struct ntx_err err = {0};
    uint64_t bytes;
    float *values[64];
    unsigned n = 0;
    char *path = path_of("b"), name[64];
    take_keys(&f, m);
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(m->gguf); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(m->gguf, i);
        name_of(m, t->name, name);
        if (!*name)
            continue;
        CHECK(t->type == NTX_F32 && n < 64);
        struct mk_tensor *to = mk_tensor_add(&f, name, NTX_F32, t->ne[0], t->n_dims > 1 ? t->ne[1] : 0, 0);
        to->n_dims = t->n_dims;
        memcpy(to->ne, t->ne, sizeof to->ne);
        to->values = values[n++] = floats(m, t->name);
    }
    CHECK_MSG(!mk_write(&f, path, 1, &bytes, &err), "%s", err.text);
    while (n)
        free(values[--n]);
    mk_file_free(&f);
    rig_open(r, &(struct rig_options){.path = path});
    unlink(path);
}

static void norm(const float *x, const float *w, uint32_t n, double *out)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    for (uint32_t i = 0; i < n; i++)
        out[i] = (double)x[i] / sqrt(sum / n + 1e-5) * (double)w[i];
}

/* Writes the layer's input for a token and a state, which is first normed by `first`, to row `row` of the table of the
 * one-layer model. */
static void put_input(struct rig *r, const struct model *m, uint32_t row, int32_t token, const float *state,
                      const float *first)
{
    const uint32_t n = m->n_embd;
    float *embd = floats(m, "token_embd.weight"), *enorm = of_block(m, "enorm"), *hnorm = of_block(m, "hnorm"),
          *eh = of_block(m, "eh_proj");
    double x[2 * 512], y[512];
    float f[512];
    CHECK(n <= 512);
    norm(state, first, n, y);
    for (uint32_t i = 0; i < n; i++)
        f[i] = (float)y[i];
    norm(embd + (size_t)token * n, enorm, n, x);
    norm(f, hnorm, n, x + n);
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor(r->gguf, "token_embd.weight");
    float *out = (float *)(void *)(r->w.files[0] + t->offset) + (size_t)row * n;
    for (uint32_t k = 0; k < n; k++) {
        double sum = 0;
        for (uint32_t i = 0; i < 2 * n; i++)
            sum += (double)eh[(size_t)k * 2 * n + i] * x[i];
        out[k] = (float)sum;
    }
    free(embd), free(enorm), free(hnorm), free(eh);
}

static uint32_t likeliest(const struct ntx_draft_node *g, uint32_t n, uint32_t parent)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (g[i].parent == parent && (!best || g[i].chance > g[best].chance))
            best = i;
    return best;
}

/* Its children's chances have the ratios of these logits; the likeliest token is the same. */
static void check_children(const struct model *m, const struct ntx_draft_node *g, uint32_t n, uint32_t parent,
                           const float *logits, uint32_t n_vocab)
{
    uint32_t k = 0, best = likeliest(g, n, parent);
    CHECK_EQ(g[best].token, (int32_t)rig_argmax(logits, n_vocab));
    for (uint32_t i = 1; i < n; i++)
        if (g[i].parent == parent) {
            double c = (double)g[best].chance *
                       exp(((double)logits[g[i].token] - (double)logits[g[best].token]) * 100 / SHARP);
            CHECK_MSG(fabs((double)g[i].chance - c) < 0.01 * c, "%s: token %d below node %u has the chance %g, not %g",
                      m->arch, g[i].token, parent, (double)g[i].chance, c);
            k++;
        }
    CHECK_MSG(k > 1, "%s: %u drafts below node %u", m->arch, k, parent);
}

static uint32_t grown(struct ntx_drafter *d, const struct ntx_drafter_text *t, struct ntx_draft_node *out)
{
    int i = ntx_drafter_follow(d, t), rc;
    CHECK(i >= 0);
    while ((rc = ntx_drafter_grow(d, (unsigned)i, 12)) > 0)
        ;
    CHECK_EQ(rc, 0);
    return ntx_drafter_tree(d, (unsigned)i, out);
}

static struct ntx_drafter *block_of(const struct model *m)
{
    struct ntx_drafter *d;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_drafter_nextn_new(m->gguf, &m->fd, CTX, 2, &d, &err), "%s", err.text);
    return d;
}

static float state_at(uint32_t pos, uint32_t i) { return sinf((float)(pos * 7919 + i * 104729) * 1e-3f) * 3; }

static void show(struct ntx_drafter *d, const struct model *m, const struct ntx_drafter_text *t, uint32_t from,
                 uint32_t to)
{
    float state[512];
    for (uint32_t pos = from; pos < to; pos++) {
        for (uint32_t i = 0; i < m->n_embd; i++)
            state[i] = state_at(pos, i);
        CHECK_EQ(ntx_drafter_saw(d, t, pos, state, true), 0);
    }
}

static void same_tree(const struct ntx_draft_node *a, uint32_t n, const struct ntx_draft_node *b, uint32_t k)
{
    CHECK_EQ(n, k);
    for (uint32_t i = 0; i < n; i++)
        CHECK(a[i].token == b[i].token && a[i].parent == b[i].parent && a[i].chance == b[i].chance);
}

/* It was not shown the states of the first `from` tokens: it reads from there. */
static void as_alone(const struct model *m, uint32_t from)
{
    static struct ntx_draft_node g[NTX_DRAFTER_NODES];
    int32_t tokens[TEXT], rows[TEXT];
    struct rig r;
    struct ntx_drafter *d = block_of(m);
    float *first = floats(m, "output_norm.weight"), *own = of_block(m, "shared_head_norm"), state[512], left[512];
    const struct ntx_drafter_text t = {.session = 1,
                                       .tokens = tokens,
                                       .n = TEXT,
                                       .n_prompt = TEXT,
                                       .sampling = {.temp = 0, .top_p = 1, .repeat_penalty = 1}};
    open_alone(&r, m);
    for (uint32_t i = 0; i < TEXT; i++)
        tokens[i] = (int32_t)(i * 37 % 500);
    CHECK_EQ(ntx_drafter_follow(d, &t), -EAGAIN);
    show(d, m, &t, from, TEXT - 1);
    uint32_t n = grown(d, &t, g), n_rows = TEXT - 1 - from;
    for (uint32_t i = 0; i < n_rows; i++) {
        for (uint32_t k = 0; k < m->n_embd; k++)
            state[k] = state_at(from + i, k);
        put_input(&r, m, i, tokens[from + i + 1], state, first);
        rows[i] = (int32_t)i;
    }
    float *logits = malloc(r.n_vocab * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, CTX);
    rig_feed(&r, kv, rows, n_rows - 1, 0, 16, NULL);
    struct ntx_row row = {.token = (int32_t)n_rows - 1, .pos = n_rows - 1, .kv = kv, .logits = logits, .left = left};
    CHECK_EQ(rig_run(&r, &row, 1), 0);
    check_children(m, g, n, 0, logits, r.n_vocab);
    uint32_t node = likeliest(g, n, 0);
    put_input(&r, m, n_rows, g[node].token, left, own); /* with its own state */
    row = (struct ntx_row){.token = (int32_t)n_rows, .pos = n_rows, .kv = kv, .logits = logits};
    CHECK_EQ(rig_run(&r, &row, 1), 0);
    check_children(m, g, n, node, logits, r.n_vocab);
    free(logits), free(first), free(own);
    ntx_kv_seq_free(kv);
    rig_close(&r);
    ntx_drafter_free(d);
}

/* Shown piece by piece, with accepted drafts between, or all at once; and again where the text was cut. Long texts are
 * read as they are shown. */
static void goes_along(const struct model *m)
{
    static struct ntx_draft_node a[NTX_DRAFTER_NODES], b[NTX_DRAFTER_NODES];
    int32_t tokens[CTX];
    struct ntx_drafter *along = block_of(m);
    struct ntx_drafter_text t = {.session = 1,
                                 .tokens = tokens,
                                 .n = 20,
                                 .n_prompt = 20,
                                 .sampling = {.temp = 0.8f, .top_k = 40, .top_p = 1, .seed = 9, .repeat_penalty = 1}};
    uint32_t shown = 0;
    for (uint32_t i = 0; i < CTX; i++)
        tokens[i] = (int32_t)(i * 41 % 500);
    for (uint32_t round = 0; round < 12; round++) {
        show(along, m, &t, shown, t.n - 1);
        uint32_t n = grown(along, &t, a);
        struct ntx_drafter *fresh = block_of(m);
        show(fresh, m, &t, 0, t.n - 1);
        same_tree(a, n, b, grown(fresh, &t, b));
        ntx_drafter_free(fresh);
        shown = t.n - 1;
        uint32_t at = likeliest(a, n, 0), then = likeliest(a, n, at);
        if (round == 7) { /* cut: other tokens come, with states from there on */
            t.n -= 15;
            shown = t.n - 1;
            tokens[t.n++] = 77;
        } else if (round % 3 == 1)
            t.n += 9;
        else {
            tokens[t.n++] = a[at].token;
            tokens[t.n++] = then && round % 2 ? a[then].token : 11;
        }
    }
    ntx_drafter_free(along);
}

/* If it does not read for long, only the latest states are kept, and it reads from there. */
static void forgets(const struct model *m)
{
    static struct ntx_draft_node a[NTX_DRAFTER_NODES], b[NTX_DRAFTER_NODES];
    int32_t tokens[CTX * 3];
    float state[512];
    struct ntx_drafter *d, *fresh;
    struct ntx_err err = {0};
    const struct ntx_drafter_text t = {.session = 3,
                                       .tokens = tokens,
                                       .n = 300,
                                       .n_prompt = 300,
                                       .sampling = {.temp = 0, .top_p = 1, .repeat_penalty = 1}};
    CHECK(!ntx_drafter_nextn_new(m->gguf, &m->fd, 3 * CTX, 1, &d, &err) &&
          !ntx_drafter_nextn_new(m->gguf, &m->fd, 3 * CTX, 1, &fresh, &err));
    for (uint32_t i = 0; i < t.n; i++)
        tokens[i] = (int32_t)(i * 43 % 500);
    for (uint32_t pos = 0; pos + 1 < t.n; pos++) {
        for (uint32_t i = 0; i < m->n_embd; i++)
            state[i] = state_at(pos, i);
        CHECK_EQ(ntx_drafter_saw(d, &t, pos, state, false), 0);
    }
    uint32_t n = grown(d, &t, a);
    show(fresh, m, &t, 192, t.n - 1); /* at most 128 are kept; 64 are dropped at a time */
    same_tree(a, n, b, grown(fresh, &t, b));
    ntx_drafter_free(d);
    ntx_drafter_free(fresh);
}

static struct mk_options options(const char *arch)
{
    struct mk_options o = rig_model();
    o.arch = arch;
    o.nextn = 1;
    o.layers = 2;
    o.head_dim = 64;
    o.attention_every = 2;
    o.logit_scale = 1;
    return o;
}

static void none(void)
{
    struct mk_options o = rig_model();
    struct ntx_err err = {0};
    struct model m;
    uint64_t bytes;
    make(&m, &o);
    CHECK_EQ(ntx_drafter_nextn_look(m.gguf, CTX, 1, &bytes, &err), -ENOENT);
    CHECK_MSG(strstr(err.text, "no next-token block"), "%s", err.text);
    ntx_gguf_free(m.gguf);
    close(m.fd);
}

int main(void)
{
    struct mk_options of[] = {options("glm4moe"), options("deepseek2"), options("qwen35"), options("qwen35moe"),
                              options("qwen3next")};
    of[0].dense = 1;
    of[0].experts = 6, of[0].experts_used = 2, of[0].expert_ff = 64, of[0].shared_ff = 64, of[0].rotated = 32;
    of[1] = rig_mla();
    of[1].nextn = 1;
    of[1].layers = 2;
    of[1].logit_scale = 1;
    of[3].experts = of[4].experts = 6;
    of[3].experts_used = of[4].experts_used = 2;
    of[3].expert_ff = of[4].expert_ff = of[3].shared_ff = of[4].shared_ff = 64;
    for (unsigned i = 0; i < sizeof of / sizeof *of; i++) {
        struct model m;
        make(&m, &of[i]);
        as_alone(&m, 0);
        as_alone(&m, 7);
        if (i < 2)
            goes_along(&m);
        if (!i)
            forgets(&m);
        ntx_gguf_free(m.gguf);
        close(m.fd);
    }
    none();
    return 0;
}
