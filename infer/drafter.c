#include "infer/drafter.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/util.h"
#include "infer/forward.h"
#include "infer/weights_ram.h"
#include "model/gguf.h"
#include "model/share_file.h"
#include "model/state.h"

#define SLOTS 384u       /* of a tree, behind the text */
#define STEP 8u          /* nodes expanded together */
#define READ 64u         /* tokens of a text read together */
#define KIDS 8u          /* of a node, at most */
#define SPINE 64u        /* comes into order when it is longer */
#define DEEPEST 48u      /* SPINE + DEEPEST < NTX_PATH_MAX */
#define SHARP 0.75f      /* by simulation: the temperature at which the small model's chances are near the truth */
#define LEAST 0.0005f    /* a path of less chance is not followed */

#define SHOWN 128u       /* states that wait to be read, of a text */
#define OWN_NODES 128u   /* a block that foretells expands no more: each leaves a state */

struct node {
    int32_t token;
    uint32_t parent, depth, slot;
    float chance, path; /* of its own, and of all from node 0 on */
    bool expanded;      /* and has a slot */
};

struct text {
    uint64_t session, asked;
    bool used;
    int32_t *tokens;        /* [ctx] */
    uint32_t n, n_prompt;
    struct ntx_sampling sampling;
    struct ntx_sampler *sampler;
    struct ntx_kv_seq *kv;
    uint32_t kv_n;          /* tokens in order there */
    uint32_t spine[SPINE + 2], n_spine;
    struct node node[NTX_DRAFTER_NODES];
    uint32_t n_nodes, n_expanded;
    /* Of a block that foretells; else 0 and NULL */
    uint32_t skip;          /* tokens of the text before the first that it has read: its position 0 */
    uint32_t shown_at, n_shown;
    float *shown;           /* [SHOWN x n_embd] states of positions shown_at on, normed */
    float *left;            /* [OWN_NODES x n_embd] states that expanded nodes left, normed: by their slots behind kv_n */
};

struct ntx_drafter {
    struct ntx_gguf *gguf;
    struct ntx_model *model;
    struct ntx_chunks *chunks;
    struct ntx_ram_weights weights;
    struct ntx_forward *f;
    struct ntx_kv_pool *pool;
    uint32_t ctx, n_vocab;
    uint64_t pass, asked;
    float *logits;          /* [STEP x n_vocab] */
    float *norms;           /* [2 x n_embd] of a block that foretells: of the large model's states, and of its own; else NULL */
    const struct ntx_cpu_ops *ops;
    struct text text[NTX_DRAFTER_TEXTS];
};

/* ---- what suits, and what it takes */

static bool same_text(struct ntx_str a, struct ntx_str b) { return a.n == b.n && !memcmp(a.p, b.p, a.n); }

/* Why these files cannot be a pair, token by token. */
static int suits(const struct ntx_gguf *draft, const struct ntx_gguf *model, struct ntx_err *err)
{
    static const char key[] = "tokenizer.ggml.tokens", kind[] = "tokenizer.ggml.model";
    const struct ntx_gguf_kv *a = ntx_gguf_find(draft, key), *b = ntx_gguf_find(model, key);
    struct ntx_str x = {0}, y = {0};
    if (!a || !b || !a->strs || !b->strs || ntx_gguf_str(draft, kind, &x) || ntx_gguf_str(model, kind, &y))
        return ntx_err_set(err, -EINVAL, "it has no vocabulary");
    if (!same_text(x, y))
        return ntx_err_set(err, -EINVAL, "its vocabulary is of the kind '%.*s', the model's of '%.*s'", (int)NTX_MIN(x.n, (size_t)40), x.p, (int)NTX_MIN(y.n, (size_t)40), y.p);
    if (a->count != b->count)
        return ntx_err_set(err, -EINVAL, "its vocabulary has %llu tokens, the model's %llu: a drafter must have the very same", (unsigned long long)a->count, (unsigned long long)b->count);
    for (uint64_t i = 0; i < a->count; i++)
        if (!same_text(a->strs[i], b->strs[i]))
            return ntx_err_set(err, -EINVAL, "its token %llu is '%.*s', the model's '%.*s': a drafter must have the very same vocabulary", (unsigned long long)i,
                               (int)NTX_MIN(a->strs[i].n, (size_t)40), a->strs[i].p, (int)NTX_MIN(b->strs[i].n, (size_t)40), b->strs[i].p);
    return 0;
}

static struct ntx_kv_shape shape_of(uint32_t ctx)
{
    return (struct ntx_kv_shape){.blocks = NTX_DRAFTER_TEXTS * ((ctx + SLOTS + NTX_KV_BLOCK - 1) / NTX_KV_BLOCK)};
}

static struct ntx_forward_config pass_of(const struct ntx_model *m, const struct ntx_chunks *c, uint32_t ctx, uint32_t threads)
{
    return (struct ntx_forward_config){.model = m, .chunks = c, .ops = ntx_cpu_pick(NULL), .threads = threads, .max_rows = READ, .ctx = ctx + SLOTS};
}

static int chunks_of(const struct ntx_model *m, struct ntx_chunks **out, struct ntx_err *err)
{
    if (m->pack)
        return ntx_err_set(err, -ENOTSUP, "its FFNs are packed (`ntx pack`): a drafter cannot be");
    return ntx_chunks_make(m, 1 << 20, out, err);
}

static uint64_t state_floats(const struct ntx_hparams *hp) { return hp->foretells ? (uint64_t)hp->n_embd * (2 + NTX_DRAFTER_TEXTS * (SHOWN + OWN_NODES)) : 0; }

static int bytes_of(const struct ntx_model *m, uint64_t file_bytes, uint32_t ctx, uint32_t threads, uint64_t *bytes, struct ntx_err *err)
{
    struct ntx_chunks *c;
    int rc = chunks_of(m, &c, err);
    if (rc)
        return rc;
    struct ntx_forward_config f = pass_of(m, c, ctx, threads);
    struct ntx_kv_shape kv = shape_of(ctx);
    *bytes = (m->hp.foretells ? ntx_ram_weights_pick_bytes(c) : file_bytes) + 4 * state_floats(&m->hp) + ntx_forward_bytes(&f) + ntx_kv_shape_bytes(&m->hp, NTX_KV_F16, &kv) + sizeof(struct ntx_drafter) + c->n * sizeof *c->list +
             (uint64_t)m->hp.n_vocab * 4 * (STEP + 3 * NTX_DRAFTER_TEXTS) + 8ull * ctx * NTX_DRAFTER_TEXTS; /* logits, samplers, tokens */
    ntx_chunks_free(c);
    return 0;
}

/* Drafters that go by the states of the large model's inner layers, or fill a block of tokens at once: files of their own kinds. */
static int other_kind(const struct ntx_gguf *g, struct ntx_err *err)
{
    static const struct { const char *arch, *name; } kinds[] = {{"eagle3", "EAGLE-3"}, {"dflash", "DFlash"}, {"gemma4-assistant", "Gemma 4 assistant"}};
    struct ntx_str arch = {0};
    for (size_t i = 0; !ntx_gguf_str(g, "general.architecture", &arch) && i < sizeof kinds / sizeof *kinds; i++)
        if (same_text(arch, (struct ntx_str){kinds[i].arch, strlen(kinds[i].arch)}))
            return ntx_err_set(err, -ENOTSUP, "it is of the %s kind, which guesses by what happens inside the model: ntx has none such. Name a small model of the same vocabulary, "
                               "or nextn where the model has such a block", kinds[i].name);
    return 0;
}

int ntx_drafter_look(int fd, const struct ntx_gguf *model, uint32_t ctx, uint64_t *bytes, struct ntx_err *err)
{
    struct ntx_gguf *g = NULL;
    struct ntx_model *m = NULL;
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return ntx_err_set(err, -EINVAL, "the drafter: not a regular file");
    int rc = ntx_gguf_open(&fd, 1, NULL, &g, err);
    if (!rc)
        rc = other_kind(g, err);
    if (!rc)
        rc = ntx_share_file_refuse(g, "its file", err);
    if (!rc)
        rc = ntx_model_open(g, &m, err);
    if (!rc)
        rc = suits(g, model, err);
    if (!rc && !ntx_keeps_rows_only(&m->hp))
        rc = ntx_err_set(err, -ENOTSUP, "the recurrent state of a %s model does not go back to where its guesses part from the text", m->hp.arch);
    if (!rc)
        rc = bytes_of(m, (uint64_t)st.st_size + ntx_gguf_header_bytes(g), ctx, 1, bytes, err);
    ntx_model_free(m);
    ntx_gguf_free(g);
    if (rc)
        ntx_err_prefix(err, "the drafter");
    return rc;
}

int ntx_drafter_nextn_look(const struct ntx_gguf *model, uint32_t ctx, uint32_t threads, uint64_t *bytes, struct ntx_err *err)
{
    struct ntx_model *m = NULL;
    int rc = ntx_share_file_refuse(model, "a block that foretells tokens", err);
    if (!rc)
        rc = ntx_model_open_nextn(model, &m, err);
    if (!rc)
        rc = bytes_of(m, 0, ctx, threads, bytes, err);
    ntx_model_free(m);
    return rc;
}

#define MOST_ROWS 512u /* of a pass */
uint64_t ntx_drafter_left_bytes(uint32_t n_embd, uint32_t rows) { return 4ull * (rows ? rows : MOST_ROWS) * n_embd; }

/* ---- making */

static int open_model(struct ntx_drafter *d, int fd, struct ntx_err *err)
{
    struct stat st;
    if (fstat(fd, &st))
        return ntx_err_set(err, -errno, "%s", strerror(errno));
    int rc = ntx_gguf_open(&fd, 1, NULL, &d->gguf, err);
    if (!rc)
        rc = ntx_model_open(d->gguf, &d->model, err);
    if (!rc)
        rc = chunks_of(d->model, &d->chunks, err);
    if (!rc)
        rc = ntx_ram_weights_read(&d->weights, fd, (uint64_t)st.st_size, d->chunks, err);
    return rc;
}

static int make_rest(struct ntx_drafter *d, uint32_t ctx, uint32_t threads, struct ntx_err *err)
{
    d->ctx = ctx;
    d->n_vocab = d->model->hp.n_vocab;
    struct ntx_forward_config c = pass_of(d->model, d->chunks, d->ctx, threads);
    struct ntx_kv_shape kv = shape_of(d->ctx);
    c.weights = &d->weights.w;
    int rc = ntx_kv_pool_new(&d->model->hp, NTX_KV_F16, &kv, &d->pool, err);
    if (!rc)
        rc = ntx_forward_new(&c, &d->f, err);
    d->logits = malloc((size_t)STEP * d->n_vocab * sizeof *d->logits);
    for (unsigned i = 0; !rc && i < NTX_DRAFTER_TEXTS; i++) {
        d->text[i].tokens = malloc(d->ctx * sizeof *d->text[i].tokens);
        rc = d->text[i].tokens ? ntx_kv_seq_new(d->pool, d->ctx + SLOTS, &d->text[i].kv) : -ENOMEM;
    }
    return rc || !d->logits ? ntx_err_set(err, rc ? rc : -ENOMEM, "%s", err->text[0] ? err->text : "no memory for a drafter") : 0;
}

int ntx_drafter_new(int fd, uint32_t ctx, struct ntx_drafter **out, struct ntx_err *err)
{
    struct ntx_drafter *d = calloc(1, sizeof *d);
    int rc = d ? open_model(d, fd, err) : ntx_err_set(err, -ENOMEM, "no memory for a drafter");
    if (!rc)
        rc = make_rest(d, ctx, 1, err);
    if (rc) {
        ntx_drafter_free(d);
        return rc;
    }
    *out = d;
    return 0;
}

/* A vector of the file that the block's chunks need not have. */
static int read_norm(const struct ntx_drafter *d, uint32_t tensor, float *out)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(d->model->gguf, tensor);
    const int32_t row = 0;
    return d->weights.w.ops->rows((struct ntx_weights *)&d->weights.w, t->file, t->offset, d->model->hp.n_embd * 4, &row, 1, out);
}

static int open_nextn(struct ntx_drafter *d, const struct ntx_gguf *model, const int *fds, struct ntx_err *err)
{
    int rc = ntx_model_open_nextn(model, &d->model, err);
    if (!rc)
        rc = chunks_of(d->model, &d->chunks, err);
    if (!rc)
        rc = ntx_ram_weights_pick(&d->weights, fds, d->chunks, err);
    if (rc)
        return rc;
    const uint32_t n = d->model->hp.n_embd;
    d->ops = ntx_cpu_pick(NULL);
    if (!(d->norms = malloc(state_floats(&d->model->hp) * sizeof *d->norms)))
        return ntx_err_set(err, -ENOMEM, "no memory for the states of what foretells tokens");
    for (unsigned i = 0; i < NTX_DRAFTER_TEXTS; i++) {
        d->text[i].shown = d->norms + (2 + (size_t)i * (SHOWN + OWN_NODES)) * n;
        d->text[i].left = d->text[i].shown + (size_t)SHOWN * n;
    }
    if ((rc = read_norm(d, d->model->trunk_norm, d->norms)) || (rc = read_norm(d, d->model->output_norm, d->norms + n)))
        return ntx_err_set(err, rc, "norms of states cannot be read: %s", strerror(-rc));
    return 0;
}

int ntx_drafter_nextn_new(const struct ntx_gguf *model, const int *fds, uint32_t ctx, uint32_t threads, struct ntx_drafter **out, struct ntx_err *err)
{
    struct ntx_drafter *d = calloc(1, sizeof *d);
    int rc = d ? open_nextn(d, model, fds, err) : ntx_err_set(err, -ENOMEM, "no memory for what foretells tokens");
    if (!rc)
        rc = make_rest(d, ctx, threads, err);
    if (rc) {
        ntx_drafter_free(d);
        return rc;
    }
    *out = d;
    return 0;
}

void ntx_drafter_free(struct ntx_drafter *d)
{
    if (!d)
        return;
    for (unsigned i = 0; i < NTX_DRAFTER_TEXTS; i++) {
        ntx_sampler_free(d->text[i].sampler);
        ntx_kv_seq_free(d->text[i].kv);
        free(d->text[i].tokens);
    }
    ntx_forward_free(d->f);
    ntx_kv_pool_free(d->pool);
    ntx_ram_weights_free(&d->weights);
    ntx_chunks_free(d->chunks);
    ntx_model_free(d->model);
    ntx_gguf_free(d->gguf);
    free(d->norms);
    free(d->logits);
    free(d);
}

/* ---- following a text */

/* The tree is its first node; the spine must be in order. */
static void begin_anew(struct text *t)
{
    t->n_nodes = 1;
    t->n_expanded = 0;
    t->node[0] = (struct node){.token = t->tokens[t->n - 1], .chance = 1, .path = 1};
}

static int order_spine(struct ntx_drafter *d, struct text *t)
{
    int rc = t->n_spine ? ntx_forward_commit(d->f, t->kv, t->kv_n, t->spine, t->n_spine) : 0;
    t->kv_n += rc ? 0 : t->n_spine;
    t->n_spine = 0;
    return rc;
}

static uint32_t child(const struct text *t, uint32_t node, int32_t token)
{
    for (uint32_t i = node + 1; i < t->n_nodes; i++)
        if (t->node[i].parent == node && t->node[i].token == token)
            return i;
    return 0;
}

/* What lies below node `root` is the tree. Parents stand before their children, and so it stays. */
static void replant(struct text *t, uint32_t root)
{
    uint32_t n = 0, depth = t->node[root].depth, to[NTX_DRAFTER_NODES];
    float path = t->node[root].path;
    t->n_expanded = 0;
    for (uint32_t i = root; i < t->n_nodes; i++) {
        struct node x = t->node[i];
        to[i] = UINT32_MAX;
        if (i != root && (x.parent < root || to[x.parent] == UINT32_MAX))
            continue;
        x.parent = i == root ? 0 : to[x.parent];
        x.depth -= depth;
        x.path /= path;
        t->n_expanded += x.expanded;
        to[i] = n;
        t->node[n++] = x;
    }
    t->n_nodes = n;
}

/* The text's last token was read with a state of the large model's, and lies where it belongs; what was guessed below it does not. */
static int go_on_anew(struct text *t, const int32_t *tokens, uint32_t n)
{
    t->kv_n += n > t->n && t->node[0].expanded;
    for (uint32_t i = t->n; i < n; i++) {
        t->tokens[i] = tokens[i];
        ntx_sampler_wrote(t->sampler, tokens[i]);
    }
    if (n > t->n || !t->n_nodes) {
        t->n = n;
        begin_anew(t);
    }
    return 0;
}

/* The text went on with tokens[t->n .. n). */
static int go_on(struct ntx_drafter *d, struct text *t, const int32_t *tokens, uint32_t n)
{
    uint32_t at = 0;
    bool lost = false;
    if (d->norms)
        return go_on_anew(t, tokens, n);
    for (uint32_t i = t->n; i < n; i++) {
        uint32_t next = lost || !t->node[at].expanded || t->n_spine > SPINE ? 0 : child(t, at, tokens[i]);
        if (!lost && t->node[at].expanded && t->n_spine <= SPINE)
            t->spine[t->n_spine++] = t->node[at].slot;
        lost |= !next;
        at = next;
        t->tokens[i] = tokens[i];
        ntx_sampler_wrote(t->sampler, tokens[i]);
    }
    t->n = n;
    if (!lost && t->n_spine <= SPINE) {
        replant(t, at);
        return 0;
    }
    int rc = order_spine(d, t);
    begin_anew(t);
    return rc;
}

static int take_up(struct text *t, const struct ntx_drafter_text *x, uint32_t common, uint32_t n_vocab)
{
    ntx_sampler_free(t->sampler);
    t->sampler = NULL;
    memcpy(t->tokens, x->tokens, x->n * sizeof *t->tokens);
    t->n = x->n;
    t->n_prompt = x->n_prompt;
    t->sampling = x->sampling;
    common = NTX_MIN(common, x->n - 1);
    t->kv_n = NTX_MIN(t->kv_n, common - NTX_MIN(common, t->skip));
    t->n_spine = 0;
    begin_anew(t);
    int rc = ntx_sampler_new(&t->sampling, n_vocab, &t->sampler);
    for (uint32_t i = 0; !rc && i < t->n; i++)
        if (i < t->n_prompt)
            ntx_sampler_accept(t->sampler, t->tokens[i]);
        else
            ntx_sampler_wrote(t->sampler, t->tokens[i]);
    return rc;
}

static struct text *place_for(struct ntx_drafter *d, uint64_t session)
{
    struct text *t = &d->text[0];
    for (unsigned i = 0; i < NTX_DRAFTER_TEXTS; i++) {
        if ((d->text[i].used || d->text[i].n_shown) && d->text[i].session == session)
            return &d->text[i];
        if (d->text[i].asked < t->asked)
            t = &d->text[i];
    }
    t->used = false;
    t->session = session;
    t->n = t->kv_n = t->n_spine = t->skip = t->shown_at = t->n_shown = 0;
    return t;
}

static bool as_before(const struct text *t, const struct ntx_drafter_text *x)
{
    const struct ntx_sampling *a = &t->sampling, *b = &x->sampling;
    return t->used && t->n_prompt == x->n_prompt && a->temp == b->temp && a->top_k == b->top_k && a->top_p == b->top_p && a->min_p == b->min_p && a->seed == b->seed &&
           a->repeat_penalty == b->repeat_penalty && a->repeat_last == b->repeat_last && a->presence_penalty == b->presence_penalty && a->frequency_penalty == b->frequency_penalty;
}

/* Whether what was shown goes from what has been read up to the last token but one; else it is read from where it begins, if that is before. */
static bool states_there(struct text *t, uint32_t n)
{
    if (t->shown_at + t->n_shown + 1 < n || t->shown_at + 2 > n)
        return false;
    if (t->shown_at + 1 > t->skip + t->kv_n || t->skip + 1 > n) {
        t->skip = t->shown_at + 1;
        t->kv_n = 0;
        begin_anew(t);
    }
    return true;
}

int ntx_drafter_follow(struct ntx_drafter *d, const struct ntx_drafter_text *x)
{
    if (!x->n || x->n >= d->ctx)
        return -E2BIG;
    for (uint32_t i = 0; i < x->n; i++)
        if (x->tokens[i] < 0 || (uint32_t)x->tokens[i] >= d->n_vocab)
            return -EINVAL;
    struct text *t = place_for(d, x->session);
    uint32_t common = 0;
    t->asked = ++d->asked;
    while (common < NTX_MIN(t->n, x->n) && t->tokens[common] == x->tokens[common])
        common++;
    int rc = as_before(t, x) && common == t->n ? go_on(d, t, x->tokens, x->n) : take_up(t, x, common, d->n_vocab);
    t->session = x->session;
    t->used = !rc;
    if (!rc && d->norms && !states_there(t, t->n))
        return -EAGAIN;
    return rc ? rc : (int)(t - d->text);
}

/* ---- growing */

static int run(struct ntx_drafter *d, struct ntx_row *rows, uint32_t n)
{
    const struct ntx_batch b = {.pass = d->pass++, .rows = rows, .n_rows = n};
    int rc = ntx_forward_run(d->f, &b);
    return rc ? rc : (int)n;
}

/* That comes with a token of the text. */
static const float *state_of(const struct ntx_drafter *d, const struct text *t, uint32_t token)
{
    return d->norms ? t->shown + (size_t)(token - 1 - t->shown_at) * d->model->hp.n_embd : NULL;
}

static int read_text(struct ntx_drafter *d, struct text *t)
{
    struct ntx_row rows[READ];
    uint32_t from = t->skip + t->kv_n, n = NTX_MIN(t->n - 1 - from, READ);
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct ntx_row){.token = t->tokens[from + i], .pos = t->kv_n + i, .kv = t->kv, .state = state_of(d, t, from + i)};
    int rc = run(d, rows, n);
    t->kv_n += rc > 0 ? n : 0;
    return rc;
}

/* The likeliest nodes that are not expanded, in the order of their numbers. */
static uint32_t choose(const struct ntx_drafter *d, const struct text *t, uint32_t most, uint32_t *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        const struct node *x = &t->node[i];
        if (x->expanded || x->path < LEAST || x->depth >= DEEPEST || t->n + x->depth + 1 >= d->ctx)
            continue;
        uint32_t k = n;
        while (k && t->node[out[k - 1]].path < x->path)
            k--;
        if (k == most)
            continue;
        n += n < most;
        memmove(&out[k + 1], &out[k], (n - 1 - k) * sizeof *out);
        out[k] = i;
    }
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t k = i; k && out[k - 1] > out[k]; k--) {
            uint32_t x = out[k];
            out[k] = out[k - 1];
            out[k - 1] = x;
        }
    return n;
}

/* Slots for nodes that are about to be expanded: behind their parents', ascending, and none that the spine or another node has. What the text left behind is free. */
static bool find_slots(const struct text *t, const uint32_t *node, uint32_t n, uint32_t *slot)
{
    bool taken[SLOTS] = {false};
    uint32_t next = 0;
    for (uint32_t i = 0; i < t->n_spine; i++)
        taken[t->spine[i] - t->kv_n] = true;
    for (uint32_t i = 0; i < t->n_nodes; i++)
        if (t->node[i].expanded)
            taken[t->node[i].slot - t->kv_n] = true;
    for (uint32_t i = 0; i < n; i++) {
        const struct node *up = &t->node[t->node[node[i]].parent];
        uint32_t behind = node[i] ? up->slot + 1 - t->kv_n : t->n_spine ? t->spine[t->n_spine - 1] + 1 - t->kv_n : 0;
        next = NTX_MAX(next, behind);
        while (next < SLOTS && taken[next])
            next++;
        if (next == SLOTS)
            return false;
        slot[i] = t->kv_n + next++;
    }
    return true;
}

static struct ntx_row row_of(struct ntx_drafter *d, struct text *t, uint32_t node, uint32_t *path, float *logits)
{
    const struct node *x = &t->node[node];
    uint32_t n = t->n_spine + x->depth + 1;
    memcpy(path, t->spine, t->n_spine * sizeof *path);
    for (uint32_t i = node, k = n; k-- > t->n_spine; i = t->node[i].parent)
        path[k] = t->node[i].slot;
    struct ntx_row row = {.token = x->token, .pos = t->n - 1 - t->skip + x->depth, .n_path = n, .path = path, .kv = t->kv, .logits = logits};
    if (d->norms) {
        const size_t width = d->model->hp.n_embd;
        row.state = node ? t->left + (t->node[x->parent].slot - t->kv_n) * width : state_of(d, t, t->n - 1);
        row.left = t->left + (x->slot - t->kv_n) * width;
    }
    return row;
}

static void norm_left(struct ntx_drafter *d, float *left)
{
    const struct ntx_hparams *hp = &d->model->hp;
    d->ops->rmsnorm(left, d->norms + hp->n_embd, hp->rms_eps, hp->n_embd, left);
}

static void add_children(struct text *t, uint32_t node, const float *logits)
{
    struct ntx_candidate kid[KIDS];
    ntx_sampler_take(t->sampler, logits);
    uint32_t n = ntx_sampler_guess(t->sampler, t->n + t->node[node].depth, SHARP, kid, KIDS);
    for (uint32_t i = 0; i < n && t->n_nodes < NTX_DRAFTER_NODES; i++) {
        float path = t->node[node].path * kid[i].logit;
        if (path >= LEAST / 8)
            t->node[t->n_nodes++] = (struct node){.token = kid[i].id, .parent = node, .depth = t->node[node].depth + 1, .chance = kid[i].logit, .path = path};
    }
}

int ntx_drafter_grow(struct ntx_drafter *d, unsigned text, uint32_t most)
{
    struct text *t = &d->text[text];
    struct ntx_row rows[STEP];
    uint32_t node[STEP + 1], slot[STEP], path[STEP][NTX_PATH_MAX];
    if (!t->used)
        return 0;
    if (t->skip + t->kv_n + t->n_spine + 1 < t->n)
        return read_text(d, t);
    most = d->norms ? NTX_MIN(most, OWN_NODES) : most;
    uint32_t n = t->n_expanded < most ? choose(d, t, NTX_MIN(STEP, most - t->n_expanded), node) : 0;
    if (n && !find_slots(t, node, n, slot)) {
        int rc = order_spine(d, t);
        begin_anew(t);
        return rc ? rc : 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        t->node[node[i]].slot = slot[i];
        rows[i] = row_of(d, t, node[i], path[i], d->logits + (size_t)i * d->n_vocab);
    }
    int rc = n ? run(d, rows, n) : 0;
    for (uint32_t i = 0; rc > 0 && i < n; i++) {
        if (rows[i].left)
            norm_left(d, rows[i].left);
        t->node[node[i]].expanded = true;
        t->n_expanded++;
        add_children(t, node[i], rows[i].logits);
    }
    return rc;
}

/* ---- being shown states */

/* Those that have been read are let go. */
static void let_go(const struct ntx_drafter *d, struct text *t, uint32_t n)
{
    const size_t width = d->model->hp.n_embd;
    n = NTX_MIN(n, t->n_shown);
    memmove(t->shown, t->shown + n * width, (t->n_shown - n) * width * sizeof *t->shown);
    t->shown_at += n;
    t->n_shown -= n;
}

/* All that is shown but the last, as far as the text goes. */
static int read_shown(struct ntx_drafter *d, const struct ntx_drafter_text *x)
{
    struct ntx_drafter_text known = *x;
    struct text *t = place_for(d, x->session);
    known.n = NTX_MIN(x->n, t->shown_at + t->n_shown + 1);
    int rc = ntx_drafter_follow(d, &known);
    while (rc >= 0 && t->skip + t->kv_n + 1 < t->n)
        rc = read_text(d, t);
    uint32_t next = t->skip + t->kv_n; /* the token that is to be read: its state is the first that is still wanted */
    if (rc >= 0 && next > t->shown_at + 1)
        let_go(d, t, next - 1 - t->shown_at);
    return rc < 0 ? rc : 0;
}

int ntx_drafter_saw(struct ntx_drafter *d, const struct ntx_drafter_text *x, uint32_t pos, const float *state, bool read)
{
    struct text *t = place_for(d, x->session);
    const struct ntx_hparams *hp = &d->model->hp;
    int rc = 0;
    t->asked = ++d->asked;
    if (pos < t->shown_at || pos > t->shown_at + t->n_shown) { /* something was left out, or it goes back far */
        t->shown_at = pos;
        t->n_shown = 0;
    }
    t->n_shown = pos - t->shown_at;
    if (t->n_shown == SHOWN && read && (rc = read_shown(d, x)) && rc != -EAGAIN)
        return rc;
    if (t->n_shown == SHOWN)
        let_go(d, t, SHOWN / 2);
    d->ops->rmsnorm(state, d->norms, hp->rms_eps, hp->n_embd, t->shown + (size_t)t->n_shown++ * hp->n_embd);
    return 0;
}

uint32_t ntx_drafter_expanded(const struct ntx_drafter *d, unsigned text) { return d->text[text].n_expanded; }

uint32_t ntx_drafter_tree(const struct ntx_drafter *d, unsigned text, struct ntx_guess *out)
{
    const struct text *t = &d->text[text];
    for (uint32_t i = 0; i < t->n_nodes; i++)
        out[i] = (struct ntx_guess){t->node[i].token, t->node[i].parent, t->node[i].chance};
    return t->n_nodes;
}
