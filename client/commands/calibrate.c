/* SPDX-License-Identifier: Apache-2.0 */
/* ntx calibrate: runs a model over a text, records the effect of each layer on each token, and writes a skip
 * sidecar. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/calibrate.h"
#include "client/commands/commands.h"
#include "common/util.h"
#include "model/arch.h"

#define HIDDEN     256 /* hidden units of the network */
#define KL_CTX     128 /* tokens of a window that KL is measured on, the second half token by token */
#define KL_WINDOWS 4

static int alloc_samples(struct ntx_samples *a, uint32_t n)
{
    if (a->n + n <= a->room)
        return 0;
    uint32_t room = NTX_MAX(2 * a->room, a->n + n);
    float *x = realloc(a->x, (size_t)room * a->n_embd * sizeof *x);
    if (x)
        a->x = x;
    float *similar = realloc(a->similar, (size_t)room * 3 * a->n_layers * sizeof *similar);
    if (similar)
        a->similar = similar;
    if (!x || !similar)
        return -ENOMEM;
    a->room = room;
    return 0;
}

/* The first token of a window is left out: its state is the same for every text and unlike all others. */
static int add_sample(void *ctx, const Ntx__StatesRow *r, struct ntx_err *err)
{
    struct ntx_samples *a = ctx;
    size_t state = a->n_embd * sizeof(float), similar = 3 * (size_t)a->n_layers * sizeof(float);
    if (r->state.len != state || r->similar.len != similar)
        return ntx_err_set(err, -EPROTO, "the daemon sent a state of %zu and %zu bytes, expected %zu and %zu",
                           r->state.len, r->similar.len, state, similar);
    if (!r->row)
        return 0;
    if (alloc_samples(a, 1))
        return ntx_err_set(err, -ENOMEM, "no memory for %u states: use --limit", a->n);
    memcpy(a->x + (size_t)a->n * a->n_embd, r->state.data, state);
    memcpy(a->similar + (size_t)a->n * 3 * a->n_layers, r->similar.data, similar);
    a->n++;
    return 0;
}

/* The first layers do the coarse work and the last ones prepare the output: by default neither is skipped. */
static int choose_range(const struct ntx_options *o, const struct ntx_model *m, struct ntx_sidecar *s,
                        struct ntx_err *err)
{
    s->n_layers = m->hp.n_layers;
    s->n_embd = m->hp.n_embd;
    s->n_hidden = HIDDEN;
    s->first = o->first ? o->first : NTX_MAX(s->n_layers / 8, 1u);
    s->last = o->last ? o->last : s->n_layers - 2;
    if (s->n_layers < 3 || s->last < s->first || s->last >= s->n_layers)
        return ntx_err_set(err, -EINVAL, "layers %u to %u cannot be skipped in a model of %u (--first, --last)",
                           s->first, s->last, s->n_layers);
    return 0;
}

static int note_ffns(const struct ntx_model *m, struct ntx_ffn_capture *f, struct ntx_err *err)
{
    if (m->hp.n_expert)
        return ntx_err_set(err, -EINVAL,
                           "--ffn is for dense FFNs: of a model with experts its router says which are used");
    *f = (struct ntx_ffn_capture){
        .n_layers = m->hp.n_layers, .n_embd = m->hp.n_embd, .n_ff = m->hp.n_ff, .packed = m->pack};
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        f->units[l] = m->pack ? m->pack[l].n_groups : m->hp.n_ff;
    return 0;
}

/* Shares of the weights' bytes that a token uses: a layer without its K and V, which are computed all the same. */
static void note_shares(const struct ntx_model *m, double *share)
{
    /* one row of it is read for a token, unless it is the output, too */
    const struct ntx_gguf_tensor *rows = ntx_end_tensor(m->gguf, NTX_END_output)
                                             ? ntx_end_tensor(m->gguf, NTX_END_token_embd)
                                             : NULL;
    double all = 0;
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(m->gguf); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(m->gguf, i);
        unsigned layer;
        char part[16] = "";
        const int n = sscanf(t->name, "blk.%u.%15[^.]", &layer, part);
        if (n == 2 && layer < m->hp.n_layers && strcmp(part, "attn_k") && strcmp(part, "attn_v"))
            share[layer] += (double)t->bytes;
        if (t != rows)
            all += (double)t->bytes;
    }
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        share[l] /= all;
}

static int note_model(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_sidecar *s,
                      struct ntx_ffn_capture *ffn, struct ntx_kl_text *kl, struct ntx_err *err)
{
    struct ntx_model *m;
    int rc = ntx_model_open(f->gguf, &m, err);
    if (rc)
        return rc;
    if (!(rc = choose_range(o, m, s, err)) && o->ffn)
        rc = note_ffns(m, ffn, err);
    note_shares(m, kl->share);
    kl->n_vocab = (uint32_t)ntx_end_tensor(m->gguf, NTX_END_token_embd)->ne[1];
    ntx_model_free(m);
    return rc ? rc : ntx_model_digest(f->gguf, f->fds, s->model, err);
}

/* Keeps the last windows of the text from learning. Returns how many tokens remain. */
static int hold_out(const struct ntx_options *o, const int32_t *ids, int n, int32_t bos, struct ntx_kl_text *kl,
                    struct ntx_err *err)
{
    const uint32_t end = NTX_MIN((uint32_t)n, o->limit);
    kl->ctx = NTX_MIN(o->load.ctx, KL_CTX);
    kl->windows = NTX_MIN(NTX_MAX(end / kl->ctx / 8, 2u), KL_WINDOWS);
    const uint32_t held = kl->windows * kl->ctx;
    if (kl->ctx < 8 || end < 2 * held)
        return ntx_err_set(err, -EINVAL,
                           "only %u tokens to learn from: give a longer text, some thousand words at least", end);
    if (!(kl->ids = malloc(held * sizeof *kl->ids)))
        return ntx_err_set(err, -ENOMEM, "no memory for %u tokens", held);
    memcpy(kl->ids, ids + (end - held), held * sizeof *ids);
    for (uint32_t w = 0; w < kl->windows && bos >= 0; w++)
        kl->ids[(size_t)w * kl->ctx] = bos; /* each window begins like a text */
    return (int)(end - held);
}

static int collect_samples(struct ntx_options *o, const struct ntx_learning *l, struct ntx_sidecar *s,
                           struct ntx_samples *a, struct ntx_ffn_capture *ffn, struct ntx_kl_text *kl,
                           struct ntx_err *err)
{
    struct ntx_model_files f = {0};
    struct ntx_client *c = NULL;
    int32_t *ids = NULL, bos = -1;
    int n = 0, rc;
    if ((rc = ntx_model_files_open(o, o->args[0], &f, err)))
        return rc;
    if (!(rc = note_model(o, &f, s, ffn, kl, err)))
        rc = ntx_tokens_of_file(&f, o->text, &ids, &n, &bos, err);
    ntx_model_files_close(&f);
    a->n_embd = s->n_embd;
    a->n_layers = s->n_layers;
    if (!rc && o->threshold < 0 && (n = hold_out(o, ids, n, bos, kl, err)) < 0)
        rc = n;
    o->load.capture = true;
    if (o->ffn)
        o->load.capture_ffns = ffn->at_once = ntx_calibrate_ffn_at_once(ffn, NTX_MIN((size_t)n, (size_t)o->limit));
    if (!rc)
        rc = ntx_captive_model(o, &f, &c, err);
    struct ntx_calibrate_text text = {.client = c,
                                      .ids = ids,
                                      .n_ids = n,
                                      .bos = bos,
                                      .layer = s->first - 1,
                                      .what = "",
                                      .row = add_sample,
                                      .ctx = a};
    if (!rc)
        rc = ntx_calibrate_text(&text, o, err);
    if (!rc && o->ffn)
        rc = ntx_calibrate_ffn(ffn, text, o, l, err);
    ntx_clear_progress();
    ntx_client_free(c); /* training needs its memory */
    ntx_model_files_close(&f);
    free(ids);
    return rc;
}

/* Sets the threshold: the user's, or the one that keeps the KL divergence. -EINVAL: skipping is not worth it. */
static int choose_threshold(const struct ntx_options *o, const struct ntx_kl_text *text, struct ntx_sidecar *s,
                            struct ntx_kl_table *kl, struct ntx_err *err)
{
    const struct ntx_kl_point *p = &kl->predictive[NTX_KL_AIM];
    s->threshold = o->threshold;
    if (o->threshold >= 0)
        return 0;
    const int rc = ntx_calibrate_kl(o, text, s, kl, err);
    if (rc)
        return rc;
    s->threshold = p->threshold > 0 ? p->threshold : 1; /* 1: no layer */
    if (o->force || o->ffn || p->bytes >= NTX_KL_BYTES)
        return 0;
    if (!o->quiet && !o->json)
        ntx_calibrate_print_kl(kl);
    return ntx_err_set(
        err, -EINVAL,
        "nothing was written: at a KL divergence of %g layer skip saves %.1f %% of a token's bytes, less "
        "than the %.0f %% that are worth a changed text; --force writes the sidecar all the same",
        ntx_kl_levels[NTX_KL_AIM], 100 * p->bytes, 100 * NTX_KL_BYTES);
}

int ntx_cmd_calibrate(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_samples a = {0};
    struct ntx_sidecar s = {0};
    struct ntx_ffn_capture ffn = {0};
    struct ntx_kl_text text = {.ids = NULL};
    struct ntx_kl_table measured = {.windows = 0};
    const struct ntx_kl_table *kl = o->threshold < 0 ? &measured : NULL;
    if (!o->text || !o->out)
        return fputs("ntx calibrate: --text FILE and -o SIDECAR are needed; see ntx calibrate --help\n", stderr),
               NTX_EXIT_USAGE;
    if (!o->load.ctx)
        o->load.ctx = 512;
    if (!o->limit)
        o->limit = 32768;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    struct ntx_learning l = {.share = o->share,
                             .ffn_active = o->ffn_active,
                             .ffn_recall = o->ffn_recall,
                             .ffn_rank = o->ffn_rank,
                             .epochs = o->epochs,
                             .seed = o->sampling.has_seed ? o->sampling.seed : 1,
                             .threads = o->load.threads ? o->load.threads : (uint32_t)NTX_MAX(cpus, 1),
                             .tell = !o->quiet && isatty(STDERR_FILENO)};
    int rc = collect_samples(o, &l, &s, &a, &ffn, &text, &err);
    if (!rc)
        rc = ntx_sidecar_alloc(&s) ? ntx_err_set(&err, -ENOMEM, "no memory for the sidecar")
                                   : ntx_learn_layers(&a, &l, &s, &err);
    s.ffn = NULL; /* only the sidecar to be written has it */
    if (!rc)
        rc = choose_threshold(o, &text, &s, &measured, &err);
    s.ffn = o->ffn ? &ffn.learned : NULL;
    if (!rc)
        rc = ntx_sidecar_write(&s, o->out, &err);
    if (!rc && o->json)
        rc = ntx_calibrate_json(&a, &s, o->ffn ? &ffn : NULL, kl);
    else if (!rc && !o->quiet)
        ntx_calibrate_report(&a, &s, o->ffn ? &ffn : NULL, kl);
    free(text.ids);
    ntx_sidecar_free(&s);
    ntx_samples_free(&a);
    ntx_ffn_capture_free(&ffn);
    return rc ? ntx_fail(&err) : 0;
}
