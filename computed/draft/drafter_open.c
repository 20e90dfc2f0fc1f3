/* SPDX-License-Identifier: Apache-2.0 */
/* drafter_open.c: checks whether a small model, or a model's own block, can draft for a model, finds its memory, and
 * opens it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/util.h"
#include "computed/draft/drafter_impl.h"
#include "model/gguf.h"
#include "model/share_file.h"
#include "model/state.h"

/* ---- checks and memory */

static bool same_text(struct ntx_str a, struct ntx_str b) { return a.n == b.n && !memcmp(a.p, b.p, a.n); }

/* Checks that both files have the same vocabulary, token by token. */
int ntx__drafter_suits(const struct ntx_gguf *draft, const struct ntx_gguf *model, struct ntx_err *err)
{
    static const char key[] = "tokenizer.ggml.tokens", kind[] = "tokenizer.ggml.model";
    const struct ntx_gguf_kv *a = ntx_gguf_find(draft, key), *b = ntx_gguf_find(model, key);
    struct ntx_str x = {0}, y = {0};
    if (!a || !b || !a->strs || !b->strs || ntx_gguf_str(draft, kind, &x) || ntx_gguf_str(model, kind, &y))
        return ntx_err_set(err, -EINVAL, "it has no vocabulary");
    if (!same_text(x, y))
        return ntx_err_set(err, -EINVAL, "its vocabulary is of the kind '%.*s', the model's of '%.*s'",
                           (int)NTX_MIN(x.n, (size_t)40), x.p, (int)NTX_MIN(y.n, (size_t)40), y.p);
    if (a->count != b->count)
        return ntx_err_set(err, -EINVAL,
                           "its vocabulary has %llu tokens, the model's %llu: a drafter must have the very same",
                           (unsigned long long)a->count, (unsigned long long)b->count);
    for (uint64_t i = 0; i < a->count; i++)
        if (!same_text(a->strs[i], b->strs[i]))
            return ntx_err_set(
                err, -EINVAL,
                "its token %llu is '%.*s', the model's '%.*s': a drafter must have the very same vocabulary",
                (unsigned long long)i, (int)NTX_MIN(a->strs[i].n, (size_t)40), a->strs[i].p,
                (int)NTX_MIN(b->strs[i].n, (size_t)40), b->strs[i].p);
    return 0;
}

/* A drafter by states cannot read a text anew, so each of its texts has its KV. Those of a small model share a pool. */
static bool by_states(const struct ntx_model *m) { return m->hp.by_state || m->hp.head.n_taps; }

static struct ntx_kv_shape kv_shape(const struct ntx_model *m, uint32_t ctx)
{
    return (struct ntx_kv_shape){.blocks = (by_states(m) ? NTX_DRAFTER_TEXTS : 1) *
                                           ((ctx + SLOTS + NTX_KV_BLOCK - 1) / NTX_KV_BLOCK)};
}

struct ntx_forward_config ntx__drafter_pass(const struct ntx_model *m, const struct ntx_chunks *c, uint32_t ctx,
                                            uint32_t threads)
{
    return (struct ntx_forward_config){
        .model = m, .chunks = c, .ops = ntx_cpu_pick(NULL), .threads = threads, .max_rows = READ, .ctx = ctx + SLOTS};
}

int ntx__drafter_chunks(const struct ntx_model *m, struct ntx_chunks **out, struct ntx_err *err)
{
    if (m->pack)
        return ntx_err_set(err, -ENOTSUP, "its FFNs are packed (`ntx pack`): a drafter cannot be");
    return ntx_chunks_make(m, 1 << 20, out, err);
}

int ntx__drafter_bytes(const struct ntx_model *m, uint64_t header_bytes, uint32_t ctx, uint32_t threads,
                       uint64_t *bytes, struct ntx_err *err)
{
    struct ntx_chunks *c;
    int rc = ntx__drafter_chunks(m, &c, err);
    if (rc)
        return rc;
    struct ntx_forward_config f = ntx__drafter_pass(m, c, ctx, threads);
    struct ntx_kv_shape kv = kv_shape(m, ctx);
    /* logits, samplers, tokens */
    *bytes = ntx_ram_weights_pick_bytes(c) + header_bytes + ntx__drafter_state_bytes(m) + ntx_forward_bytes(&f) +
             ntx_kv_shape_bytes(&m->hp, NTX_KV_F16, &kv) + sizeof(struct ntx_drafter) + c->n * sizeof *c->list +
             (uint64_t)m->hp.n_vocab * 4 * (NTX_MAX(STEP, m->hp.head.block) + 3 * NTX_DRAFTER_TEXTS) +
             8ull * ctx * NTX_DRAFTER_TEXTS;
    ntx_chunks_free(c);
    return 0;
}

/* Refuses drafters of kinds that ntx does not compute. */
static int refuse_kind(const struct ntx_gguf *g, struct ntx_err *err)
{
    static const struct {
        const char *arch, *name;
    } kinds[] = {{"gemma4-assistant", "Gemma 4 assistant"}};
    struct ntx_str arch = {0};
    for (size_t i = 0; !ntx_gguf_str(g, "general.architecture", &arch) && i < sizeof kinds / sizeof *kinds; i++)
        if (same_text(arch, (struct ntx_str){kinds[i].arch, strlen(kinds[i].arch)}))
            return ntx_err_set(
                err, -ENOTSUP,
                "it is of the %s kind, which drafts by inner states of the model, and which ntx does not "
                "compute. Name a small model of the same vocabulary, "
                "a drafter of the EAGLE-3 or DFlash kind, or nextn where the model has such a block",
                kinds[i].name);
    return 0;
}

/* Weights that the model has in memory are not counted. */
static int leave_out_weights(const struct ntx_model *m, uint64_t *bytes, struct ntx_err *err)
{
    struct ntx_chunks *c;
    int rc = ntx__drafter_chunks(m, &c, err);
    if (rc)
        return rc;
    *bytes -= ntx_ram_weights_pick_bytes(c) - ntx_ram_weights_lent_bytes(c);
    ntx_chunks_free(c);
    return 0;
}

int ntx_drafter_look(int fd, const struct ntx_gguf *model, uint32_t ctx, struct ntx_drafter_needs *needs,
                     struct ntx_err *err)
{
    struct ntx_drafter_needs n = {0};
    struct ntx_gguf *g = NULL;
    struct ntx_model *m = NULL;
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return ntx_err_set(err, -EINVAL, "the drafter: not a regular file");
    int rc = ntx_gguf_open(&fd, 1, NULL, &g, err);
    if (!rc)
        rc = refuse_kind(g, err);
    if (!rc)
        rc = ntx_share_file_refuse(g, "its file", err);
    if (!rc)
        rc = ntx_model_open(g, &m, err);
    if (!rc)
        rc = ntx__drafter_suits(g, model, err);
    if (!rc && !ntx_keeps_rows_only(&m->hp))
        rc = ntx_err_set(err, -ENOTSUP,
                         "the recurrent state of a %s model cannot go back to where its drafts leave the text",
                         m->hp.arch);
    if (!rc)
        rc = ntx__drafter_bytes(m, ntx_gguf_header_bytes(g), ctx, 1, &n.bytes, err);
    n.lent = !rc && ntx_gguf_planes(model) && ntx_gguf_planes_pair(g, model);
    if (n.lent)
        rc = leave_out_weights(m, &n.bytes, err);
    ntx_model_free(m);
    ntx_gguf_free(g);
    if (rc)
        ntx_err_prefix(err, "the drafter");
    else
        *needs = n;
    return rc;
}

int ntx_drafter_nextn_look(const struct ntx_gguf *model, uint32_t ctx, uint32_t threads, uint64_t *bytes,
                           struct ntx_err *err)
{
    struct ntx_model *m = NULL;
    int rc = ntx_share_file_refuse(model, "a next-token block", err);
    if (!rc)
        rc = ntx_model_open_nextn(model, &m, err);
    if (!rc)
        rc = ntx__drafter_bytes(m, 0, ctx, threads, bytes, err);
    ntx_model_free(m);
    return rc;
}

#define MOST_ROWS 512u /* of a pass */
uint64_t ntx_drafter_left_bytes(uint32_t n_embd, uint32_t rows) { return 4ull * (rows ? rows : MOST_ROWS) * n_embd; }

/* ---- opening */

static int open_model(struct ntx_drafter *d, int fd, const struct ntx_drafter_lent *lent, struct ntx_err *err)
{
    d->fd = fd;
    int rc = ntx_gguf_open(&fd, 1, NULL, &d->gguf, err);
    if (!rc)
        rc = ntx_model_open(d->gguf, &d->model, err);
    if (!rc)
        rc = ntx__drafter_chunks(d->model, &d->chunks, err);
    if (!rc)
        rc = lent ? ntx_ram_weights_lent(&d->weights, &d->fd, d->chunks, lent->at, lent->bytes, err)
                  : ntx_ram_weights_pick(&d->weights, &d->fd, d->chunks, err);
    return rc;
}

static int make_buffers(struct ntx_drafter *d, uint32_t ctx, uint32_t threads, struct ntx_err *err)
{
    d->ctx = ctx;
    d->n_vocab = d->model->hp.n_vocab;
    struct ntx_forward_config c = ntx__drafter_pass(d->model, d->chunks, d->ctx, threads);
    struct ntx_kv_shape kv = kv_shape(d->model, d->ctx);
    c.weights = &d->weights.w;
    int rc = ntx_kv_pool_new(&d->model->hp, NTX_KV_F16, &kv, &d->pool, err);
    if (!rc)
        rc = ntx_forward_new(&c, &d->f, err);
    d->step = STEP;
    d->logits = malloc((size_t)NTX_MAX(STEP, d->model->hp.head.block) * d->n_vocab * sizeof *d->logits);
    for (unsigned i = 0; !rc && i < NTX_DRAFTER_TEXTS; i++) {
        d->text[i].tokens = malloc(d->ctx * sizeof *d->text[i].tokens);
        rc = d->text[i].tokens ? 0 : -ENOMEM;
    }
    if (!rc && d->logits)
        return 0;
    return ntx_err_set(err, rc ? rc : -ENOMEM, "%s", err->text[0] ? err->text : "no memory for a drafter");
}

int ntx__drafter_made(struct ntx_drafter *d, int rc, uint32_t ctx, uint32_t threads, struct ntx_drafter **out,
                      struct ntx_err *err)
{
    if (!rc)
        rc = make_buffers(d, ctx, threads, err);
    if (rc)
        ntx_drafter_free(d);
    else
        *out = d;
    return rc;
}

int ntx_drafter_new(int fd, uint32_t ctx, const struct ntx_drafter_lent *lent, struct ntx_drafter **out,
                    struct ntx_err *err)
{
    struct ntx_drafter *d = calloc(1, sizeof *d);
    int rc = d ? open_model(d, fd, lent, err) : ntx_err_set(err, -ENOMEM, "no memory for a drafter");
    return ntx__drafter_made(d, rc, ctx, 1, out, err);
}

/* Reads a vector of the file, which may be outside the block's chunks. */
static int read_norm(const struct ntx_drafter *d, uint32_t tensor, float *out)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(d->model->gguf, tensor);
    const int32_t first = 0;
    return d->weights.w.ops->entries((struct ntx_weights *)&d->weights.w, t->file, t->offset, d->model->hp.n_embd * 4,
                                     &first, 1, out);
}

static int open_nextn(struct ntx_drafter *d, const struct ntx_gguf *model, const int *fds, struct ntx_err *err)
{
    int rc = ntx_model_open_nextn(model, &d->model, err);
    if (!rc)
        rc = ntx__drafter_chunks(d->model, &d->chunks, err);
    if (!rc)
        rc = ntx_ram_weights_pick(&d->weights, fds, d->chunks, err);
    if (rc)
        return rc;
    const uint32_t n = d->model->hp.n_embd;
    if (ntx__drafter_state_room(d))
        return ntx_err_set(err, -ENOMEM, "no memory for the states of the next-token block");
    float *norms = d->states;
    d->norms = norms;
    if ((rc = read_norm(d, d->model->trunk_norm, norms)) || (rc = read_norm(d, d->model->output_norm, norms + n)))
        return ntx_err_set(err, rc, "norms of states cannot be read: %s", strerror(-rc));
    return 0;
}

int ntx_drafter_nextn_new(const struct ntx_gguf *model, const int *fds, uint32_t ctx, uint32_t threads,
                          struct ntx_drafter **out, struct ntx_err *err)
{
    struct ntx_drafter *d = calloc(1, sizeof *d);
    int rc = d ? open_nextn(d, model, fds, err) : ntx_err_set(err, -ENOMEM, "no memory for the next-token block");
    return ntx__drafter_made(d, rc, ctx, threads, out, err);
}

const char *ntx_drafter_layers_refused(const struct ntx_model *m) { return ntx_forward_parts(m); }

/* Logits, samplers, tokens. */
uint64_t ntx_drafter_layers_bytes(const struct ntx_model *m, uint32_t ctx)
{
    return sizeof(struct ntx_drafter) + (uint64_t)m->hp.n_vocab * 4 * (FEW + 3 * NTX_DRAFTER_TEXTS) +
           8ull * ctx * NTX_DRAFTER_TEXTS;
}

int ntx_drafter_layers_new(const struct ntx_drafter_layers *of, struct ntx_drafter **out, struct ntx_err *err)
{
    struct ntx_drafter *d = calloc(1, sizeof *d);
    bool made = d != NULL;
    if (d) {
        d->layers = *of;
        d->f = of->forward;
        d->ctx = of->ctx;
        d->n_vocab = of->model->hp.n_vocab;
        d->step = NTX_MIN(FEW, of->max_rows);
        made = (d->logits = malloc((size_t)FEW * d->n_vocab * sizeof *d->logits)) != NULL;
    }
    for (unsigned i = 0; made && i < NTX_DRAFTER_TEXTS; i++)
        made = (d->text[i].tokens = malloc(d->ctx * sizeof *d->text[i].tokens)) != NULL;
    if (!made) {
        ntx_drafter_free(d);
        return ntx_err_set(err, -ENOMEM, "no memory for drafts by the model's layers");
    }
    *out = d;
    return 0;
}

void ntx_drafter_free(struct ntx_drafter *d)
{
    if (!d)
        return;
    const bool own = !ntx__drafter_by_layers(d);
    for (unsigned i = 0; i < NTX_DRAFTER_TEXTS; i++) {
        ntx_sampler_free(d->text[i].sampler);
        ntx_kv_seq_free(own ? d->text[i].kv : NULL);
        free(d->text[i].tokens);
    }
    ntx_forward_free(own ? d->f : NULL);
    ntx_kv_pool_free(d->pool);
    ntx_ram_weights_free(&d->weights);
    ntx_chunks_free(d->chunks);
    ntx_model_free(d->model);
    ntx_gguf_free(d->gguf);
    free(d->states);
    ntx__drafter_head_free(d->head);
    free(d->logits);
    free(d);
}
