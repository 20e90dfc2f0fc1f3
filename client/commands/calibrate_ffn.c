/* SPDX-License-Identifier: Apache-2.0 */
/* Learns the activity of FFN neurons from a text: for a packed model, which groups will be active; for any other,
 * which neurons are active together (predictor/learn/learn.h). Some layers are captured at a time, because the
 * states and energies of all tokens are kept for each of them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/calibrate.h"
#include "common/util.h"

#define MEMORY (512u << 20) /* for the samples of the layers captured at once */

struct taken { /* one run over the text */
    const struct ntx_ffn_capture *f;
    uint32_t first, layers, width, n,
        room;                      /* width: the most units of any layer, the width of the energies that the daemons
                                    * send */
    float *x[NTX_MAX_LAYERS];      /* [room x n_embd] each */
    float *energy[NTX_MAX_LAYERS]; /* [room x units of the layer] */
};

static uint32_t widest(const struct ntx_ffn_capture *f)
{
    uint32_t most = 0;
    for (uint32_t l = 0; l < f->n_layers; l++)
        most = NTX_MAX(most, f->units[l]);
    return most;
}

uint32_t ntx_calibrate_ffn_at_once(const struct ntx_ffn_capture *f, size_t tokens)
{
    uint64_t layer = (uint64_t)tokens * (f->n_embd + widest(f)) * sizeof(float);
    return (uint32_t)NTX_MAX(NTX_MIN(MEMORY / (layer + 1), (uint64_t)f->n_layers), 1u);
}

static int add_capture(void *ctx, const Ntx__StatesRow *r, struct ntx_err *err)
{
    struct taken *t = ctx;
    size_t state = t->f->n_embd * sizeof(float), energy = t->width * sizeof(float);
    if (r->ffn_state.len != t->layers * state || r->ffn_energy.len != t->layers * energy)
        return ntx_err_set(err, -EPROTO, "the daemon sent FFNs of %zu and %zu bytes, expected %zu and %zu",
                           r->ffn_state.len, r->ffn_energy.len, t->layers * state, t->layers * energy);
    if (!r->row || t->n == t->room) /* the first token's state is unlike all others */
        return 0;
    for (uint32_t i = 0; i < t->layers; i++) {
        uint32_t units = t->f->units[t->first + i];
        memcpy(t->x[i] + (size_t)t->n * t->f->n_embd, r->ffn_state.data + i * state, state);
        memcpy(t->energy[i] + (size_t)t->n * units, r->ffn_energy.data + i * energy, units * sizeof(float));
    }
    t->n++;
    return 0;
}

static void free_taken(struct taken *t)
{
    for (uint32_t i = 0; i < t->layers; i++) {
        free(t->x[i]);
        free(t->energy[i]);
    }
}

static int make_taken(struct taken *t)
{
    for (uint32_t i = 0; i < t->layers; i++) {
        t->x[i] = malloc((size_t)t->room * t->f->n_embd * sizeof(float));
        t->energy[i] = malloc((size_t)t->room * t->f->units[t->first + i] * sizeof(float));
        if (!t->x[i] || !t->energy[i])
            return -ENOMEM;
    }
    return 0;
}

static int learn_range(struct ntx_ffn_capture *f, uint32_t first, struct ntx_calibrate_text text,
                       const struct ntx_options *o, const struct ntx_learning *l, struct ntx_err *err)
{
    struct taken t = {.f = f,
                      .first = first,
                      .layers = NTX_MIN(f->at_once, f->n_layers - first),
                      .width = widest(f),
                      .room = NTX_MIN((uint32_t)text.n_ids, o->limit)};
    int rc = make_taken(&t)
                 ? ntx_err_set(err, -ENOMEM, "no memory for the samples of %u layers' FFNs: use --limit", t.layers)
                 : 0;
    text.what = "FFNs: ";
    text.ffn_first = first;
    text.ffn_layers = t.layers;
    text.row = add_capture;
    text.ctx = &t;
    if (!rc)
        rc = ntx_calibrate_text(&text, o, err);
    if (!rc && t.n < 320)
        rc = ntx_err_set(err, -EINVAL, "only %u tokens to learn from: give a longer text, some thousand words at least",
                         t.n);
    for (uint32_t i = 0; i < t.layers && !rc; i++)
        if ((rc = ntx_learn_ffn(f, first + i, t.x[i], t.energy[i], t.n, l)))
            ntx_err_set(err, rc, "cannot train the predictor of layer %u: %s", first + i, strerror(-rc));
    free_taken(&t);
    return rc;
}

int ntx_calibrate_ffn(struct ntx_ffn_capture *f, struct ntx_calibrate_text text, const struct ntx_options *o,
                      const struct ntx_learning *l, struct ntx_err *err)
{
    int rc = 0;
    f->learned = (struct ntx_ffn_learned){.n_layers = f->n_layers, .n_ff = f->n_ff};
    f->score = calloc(f->n_layers, sizeof *f->score);
    if (f->packed) {
        f->learned.net = calloc(f->n_layers, sizeof *f->learned.net);
        f->learned.limit = calloc(f->n_layers, sizeof *f->learned.limit);
    } else {
        f->learned.order = calloc((size_t)f->n_layers * f->n_ff, sizeof *f->learned.order);
    }
    if (!f->score || (f->packed ? !f->learned.net || !f->learned.limit : !f->learned.order))
        return ntx_err_set(err, -ENOMEM, "no memory for %u layers", f->n_layers);
    for (uint32_t first = 0; first < f->n_layers && !rc; first += f->at_once)
        rc = learn_range(f, first, text, o, l, err);
    if (l->tell)
        fputs("\r\033[K", stderr);
    return rc;
}

void ntx_ffn_capture_free(struct ntx_ffn_capture *f)
{
    ntx_ffn_learned_free(&f->learned);
    free(f->score);
    f->score = NULL;
}
