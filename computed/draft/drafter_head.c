/* SPDX-License-Identifier: Apache-2.0 */
/* drafter_head.c: drafters by states of the large model: keeping the states, and files of the EAGLE-3 and DFlash kinds.
 *
 * Such a file has two models (model/arch.h). The first makes of the states of several layers, for each position, one
 * state of its own width. The second is like a next-token block, or (DFlash) an ordinary model whose rows see one
 * another. An embedding or output that the file lacks is the large model's. The first model's rows have the positions
 * of the second one's; they leave nothing in the KV, or (DFlash) K and V of its layers. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/draft/drafter_impl.h"

/* ---- states */

static uint32_t shown_width(const struct ntx_hparams *hp)
{
    return hp->head.n_taps ? hp->head.n_taps * hp->head.width : hp->n_embd;
}
static uint64_t state_floats(const struct ntx_hparams *hp)
{
    return 2ull * hp->n_embd +
           NTX_DRAFTER_TEXTS * ((uint64_t)SHOWN * shown_width(hp) + (uint64_t)OWN_NODES * hp->n_embd);
}

uint64_t ntx__drafter_state_bytes(const struct ntx_model *m)
{
    return m->hp.by_state || m->hp.head.n_taps ? 4 * state_floats(&m->hp) : 0;
}

int ntx__drafter_state_room(struct ntx_drafter *d)
{
    const struct ntx_hparams *hp = &d->model->hp;
    const size_t n = hp->n_embd;
    d->ops = ntx_cpu_pick(NULL);
    d->shown_width = shown_width(hp);
    if (!(d->states = malloc(state_floats(hp) * sizeof *d->states)))
        return -ENOMEM;
    float *at = d->states + 2 * n;
    for (unsigned i = 0; i < NTX_DRAFTER_TEXTS; i++) {
        d->text[i].shown = at;
        d->text[i].left = at + (size_t)SHOWN * d->shown_width;
        at = d->text[i].left + OWN_NODES * n;
    }
    return 0;
}

void ntx__drafter_keep(const struct ntx_drafter *d, const float *state, float *to)
{
    if (d->norms)
        d->ops->rmsnorm(state, d->norms, d->model->hp.rms_eps, d->model->hp.n_embd, to);
    else
        memcpy(to, state, d->shown_width * sizeof *to);
}

void ntx__drafter_left(struct ntx_drafter *d, float *left)
{
    const struct ntx_hparams *hp = &d->model->hp;
    if (d->norms)
        d->ops->rmsnorm(left, d->norms + hp->n_embd, hp->rms_eps, hp->n_embd, left);
}

int ntx__drafter_states(struct ntx_drafter *d, struct ntx__drafter_text *t, uint32_t token, uint32_t n,
                        const float **out)
{
    struct ntx_row rows[READ];
    const bool block = ntx__drafter_block_of(d);
    const float *shown = t->shown + (size_t)(token - ntx__drafter_behind(d) - t->shown_at) * d->shown_width;
    *out = shown;
    if (!d->head)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct ntx_row){.pos = token - t->skip + i,
                                   .kv = t->kv,
                                   .state = shown + (size_t)i * d->shown_width,
                                   .left = block ? NULL : d->head->fused + (size_t)i * d->model->hp.n_embd};
    *out = d->head->fused;
    return ntx__drafter_run(d, d->head->f, rows, n);
}

const float *ntx__drafter_logits(struct ntx_drafter *d, const float *logits)
{
    const struct ntx_drafter_head *h = d->head;
    if (!h || !h->token)
        return logits;
    for (uint32_t i = 0; i < d->model->hp.head.n_out; i++)
        h->logits[h->token[i]] = logits[i];
    return h->logits;
}

/* ---- a block */

struct column { /* candidates of one position of the block */
    struct ntx_candidate kid[KIDS];
    uint32_t n;
};

static int draft_block(struct ntx_drafter *d, struct ntx__drafter_text *t, struct column *column)
{
    const uint32_t block = ntx__drafter_block_of(d), at = t->n - 1 - t->skip;
    struct ntx_row rows[BLOCK];
    for (uint32_t i = 0; i < block; i++)
        rows[i] = (struct ntx_row){.token = i ? (int32_t)d->model->hp.head.mask : t->node[0].token,
                                   .pos = at + i,
                                   .kv = t->kv,
                                   .ahead = d->model->hp.head.causal ? 0 : block - 1 - i,
                                   .logits = i ? d->logits + (size_t)(i - 1) * d->n_vocab : NULL};
    int rc = ntx__drafter_run(d, d->f, rows, block);
    for (uint32_t i = 1; i < block && rc > 0; i++) {
        ntx_sampler_take(t->sampler, ntx__drafter_logits(d, rows[i].logits));
        column[i].n = ntx_sampler_draft(t->sampler, t->n + i - 1, SHARP, column[i].kid, KIDS);
    }
    return rc;
}

/* The positions of a block are drafted independently: all nodes of a depth have the same children. */
int ntx__drafter_block(struct ntx_drafter *d, struct ntx__drafter_text *t, uint32_t most)
{
    struct column column[BLOCK] = {0};
    const uint32_t block = ntx__drafter_block_of(d);
    if (t->node[0].expanded)
        return 0;
    int rc = draft_block(d, t, column);
    for (uint32_t best = 0; rc > 0 && best != UINT32_MAX && t->n_expanded < most;) {
        const uint32_t depth = t->node[best].depth + 1;
        t->node[best].expanded = true;
        t->n_expanded++;
        for (uint32_t k = 0; k < column[depth].n && t->n_nodes < NTX_DRAFTER_NODES; k++)
            t->node[t->n_nodes++] = (struct ntx__drafter_node){.token = column[depth].kid[k].id,
                                                               .parent = best,
                                                               .depth = depth,
                                                               .chance = column[depth].kid[k].logit,
                                                               .path = t->node[best].path * column[depth].kid[k].logit};
        best = UINT32_MAX;
        for (uint32_t i = 1; i < t->n_nodes; i++)
            if (!t->node[i].expanded && t->node[i].depth + 1 < block && t->node[i].path >= LEAST &&
                (best == UINT32_MAX || t->node[i].path > t->node[best].path))
                best = i;
    }
    return rc;
}

/* ---- a file */

/* Lends the file the embedding and the output that it lacks; the model's output may be its embedding. */
static int lend_tensors(struct ntx_gguf *g, const struct ntx_gguf *model, struct ntx_err *err)
{
    const char *embd = ntx_end_kinds[NTX_END_token_embd].name, *output = ntx_end_kinds[NTX_END_output].name;
    const struct ntx_gguf_loan loans[] = {
        {embd, embd}, {output, ntx_gguf_tensor(model, output) ? output : embd}, {"output.scale", "output.scale"}};
    return ntx_gguf_lend(g, model, loans, ntx_gguf_tensor(g, output) ? 1 : 3, err);
}

/* Checks widths and layers, before its tensors are checked. */
static int check_fit(const struct ntx_gguf *g, const struct ntx_gguf *model, struct ntx_err *err)
{
    struct ntx_model *d = NULL, *m = NULL;
    int rc = ntx_model_open_keys(g, &d, err);
    if (!rc)
        rc = ntx_model_open_keys(model, &m, err);
    if (!rc && d->hp.head.width != m->hp.n_embd)
        rc = ntx_err_set(err, -EINVAL, "it works by states of %u values, the model's have %u: it is another model's",
                         d->hp.head.width, m->hp.n_embd);
    if (!rc && d->hp.head.tap[d->hp.head.n_taps - 1] > m->hp.n_layers)
        rc = ntx_err_set(err, -EINVAL, "it works by the state at layer %u, the model has %u: it is another model's",
                         d->hp.head.tap[d->hp.head.n_taps - 1], m->hp.n_layers);
    ntx_model_free(d);
    ntx_model_free(m);
    return rc;
}

struct parts { /* models of a file that is being checked */
    struct ntx_gguf *g;
    struct ntx_model *first, *second;
};

static void parts_free(struct parts *p)
{
    ntx_model_free(p->first);
    ntx_model_free(p->second);
    ntx_gguf_free(p->g);
    *p = (struct parts){0};
}

static int parts_open(struct parts *p, int fd, const struct ntx_gguf *model, struct ntx_err *err)
{
    *p = (struct parts){0};
    int rc = ntx_gguf_open(&fd, 1, NULL, &p->g, err);
    if (!rc)
        rc = ntx__drafter_suits(p->g, model, err);
    if (!rc)
        rc = lend_tensors(p->g, model, err);
    if (!rc)
        rc = check_fit(p->g, model, err);
    if (!rc)
        rc = ntx_model_open_head(p->g, true, &p->first, err);
    if (!rc)
        rc = ntx_model_open_head(p->g, false, &p->second, err);
    if (rc)
        parts_free(p);
    return rc;
}

static uint64_t more_bytes(const struct ntx_hparams *hp)
{
    return 4ull * READ * hp->n_embd + 4ull * hp->head.n_out + 4ull * hp->n_vocab;
}

int ntx_drafter_head_look(int fd, const struct ntx_gguf *model, uint32_t ctx, uint32_t threads,
                          struct ntx_drafter_needs *out, struct ntx_err *err)
{
    struct parts p;
    struct ntx_chunks *c = NULL;
    uint64_t bytes = 0;
    int rc = parts_open(&p, fd, model, err);
    if (!rc)
        rc = ntx__drafter_bytes(p.second, 0, ctx, threads, &bytes, err);
    if (!rc)
        rc = ntx__drafter_chunks(p.first, &c, err);
    if (!rc) {
        const struct ntx_forward_config f = ntx__drafter_pass(p.first, c, ctx, threads);
        const struct ntx_hparams *hp = &p.first->hp;
        *out = (struct ntx_drafter_needs){.bytes = bytes + ntx_gguf_header_bytes(p.g) + ntx_ram_weights_pick_bytes(c) +
                                                   c->n * sizeof *c->list + ntx_forward_bytes(&f) + more_bytes(hp),
                                          .n_taps = hp->head.n_taps};
        memcpy(out->tap, hp->head.tap, sizeof out->tap);
    }
    ntx_chunks_free(c);
    parts_free(&p);
    return rc;
}

static int read_tokens(struct ntx_drafter_head *h, int fd, uint32_t n_vocab, struct ntx_err *err)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor(h->gguf, "d2t");
    int64_t some[512];
    if (!t)
        return 0;
    h->token = malloc(t->ne[0] * sizeof *h->token);
    h->logits = malloc(n_vocab * sizeof *h->logits);
    if (!h->token || !h->logits)
        return ntx_err_set(err, -ENOMEM, "no memory for the tokens that it knows");
    for (uint32_t i = 0; i < n_vocab; i++)
        h->logits[i] = -INFINITY;
    for (uint64_t i = 0, n; i < t->ne[0]; i += n) {
        n = NTX_MIN(t->ne[0] - i, sizeof some / sizeof *some);
        if (pread(fd, some, n * sizeof *some, (off_t)(t->offset + i * sizeof *some)) != (ssize_t)(n * sizeof *some))
            return ntx_err_set(err, -EIO, "tensor 'd2t' cannot be read");
        for (uint64_t k = 0; k < n; k++) {
            if (some[k] < 0 || some[k] >= n_vocab)
                return ntx_err_set(err, -EINVAL, "tensor 'd2t' has token %lld, of %u that there are",
                                   (long long)some[k], n_vocab);
            h->token[i + k] = (int32_t)some[k];
        }
    }
    return 0;
}

static int make_first(struct ntx_drafter *d, uint32_t ctx, uint32_t threads, struct ntx_err *err)
{
    struct ntx_drafter_head *h = d->head;
    int rc = ntx__drafter_chunks(h->model, &h->chunks, err);
    if (!rc)
        rc = ntx_ram_weights_pick(&h->weights, h->fds, h->chunks, err);
    if (rc)
        return rc;
    struct ntx_forward_config c = ntx__drafter_pass(h->model, h->chunks, ctx, threads);
    c.weights = &h->weights.w;
    h->fused = malloc((size_t)READ * h->model->hp.n_embd * sizeof *h->fused);
    return h->fused ? ntx_forward_new(&c, &h->f, err) : ntx_err_set(err, -ENOMEM, "no memory for states");
}

static int make_second(struct ntx_drafter *d, struct ntx_err *err)
{
    int rc = ntx__drafter_chunks(d->model, &d->chunks, err);
    if (!rc)
        rc = ntx_ram_weights_pick(&d->weights, d->head->fds, d->chunks, err);
    if (!rc && ntx__drafter_state_room(d))
        rc = ntx_err_set(err, -ENOMEM, "no memory for states");
    return rc;
}

static int open_parts(struct ntx_drafter *d, int fd, const struct ntx_gguf *model, const int *fds, unsigned n_fds,
                      struct ntx_err *err)
{
    struct parts p;
    struct ntx_drafter_head *h = d->head = calloc(1, sizeof *h);
    if (!h || !(h->fds = malloc((n_fds + 1) * sizeof *h->fds)))
        return ntx_err_set(err, -ENOMEM, "no memory for a drafter");
    h->fds[0] = fd;
    memcpy(h->fds + 1, fds, n_fds * sizeof *fds);
    int rc = parts_open(&p, fd, model, err);
    if (rc)
        return rc;
    h->gguf = p.g;
    h->model = p.first;
    d->model = p.second;
    return read_tokens(h, fd, d->model->hp.n_vocab, err);
}

int ntx_drafter_head_new(int fd, const struct ntx_gguf *model, const int *fds, unsigned n_fds, uint32_t ctx,
                         uint32_t threads, struct ntx_drafter **out, struct ntx_err *err)
{
    struct ntx_drafter *d = calloc(1, sizeof *d);
    int rc = d ? open_parts(d, fd, model, fds, n_fds, err) : ntx_err_set(err, -ENOMEM, "no memory for a drafter");
    if (!rc)
        rc = make_first(d, ctx, threads, err);
    if (!rc)
        rc = make_second(d, err);
    return ntx__drafter_made(d, rc, ctx, threads, out, err);
}

void ntx__drafter_head_free(struct ntx_drafter_head *h)
{
    if (!h)
        return;
    ntx_forward_free(h->f);
    ntx_ram_weights_free(&h->weights);
    ntx_chunks_free(h->chunks);
    ntx_model_free(h->model);
    ntx_gguf_free(h->gguf);
    free(h->fds);
    free(h->fused);
    free(h->token);
    free(h->logits);
    free(h);
}
