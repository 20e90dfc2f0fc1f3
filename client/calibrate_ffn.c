/* What the FFNs do, learned from a text: of a packed model which groups of neurons will be active, of any other which neurons are so together
 * (calibrate_order.c). Layers are looked at some at a time: states and energies of all tokens are kept of each. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/calibrate.h"
#include "common/util.h"

#define MEMORY (512u << 20) /* for the samples of the layers at hand */
#define LEVEL_VALUES (1u << 20) /* that a level is found by, about */

struct taken { /* of a reading of the text */
    const struct ntx_ffn_capture *f;
    uint32_t first, layers, width, n, room; /* width: of the energies that the daemons send, the most units that a layer has */
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

static int take_row(void *ctx, const Ntx__StatesRow *r, struct ntx_err *err)
{
    struct taken *t = ctx;
    size_t state = t->f->n_embd * sizeof(float), energy = t->width * sizeof(float);
    if (r->ffn_state.len != t->layers * state || r->ffn_energy.len != t->layers * energy)
        return ntx_err_set(err, -EPROTO, "the daemon sent FFNs of %zu and %zu bytes, expected %zu and %zu", r->ffn_state.len, r->ffn_energy.len, t->layers * state,
                           t->layers * energy);
    if (!r->row || t->n == t->room) /* the first token's state is like no other */
        return 0;
    for (uint32_t i = 0; i < t->layers; i++) {
        uint32_t units = t->f->units[t->first + i];
        memcpy(t->x[i] + (size_t)t->n * t->f->n_embd, r->ffn_state.data + i * state, state);
        memcpy(t->energy[i] + (size_t)t->n * units, r->ffn_energy.data + i * energy, units * sizeof(float));
    }
    t->n++;
    return 0;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

float ntx_calibrate_level(float *v, size_t n, float share)
{
    qsort(v, n, sizeof *v, by_value);
    float level = v[NTX_MIN((size_t)((1.0 - (double)share) * (double)n), n - 1)];
    return level > 0 ? level : 0;
}

static int level_of(const float *energy, size_t n, float share, float *level)
{
    size_t step = n / LEVEL_VALUES | 1, k = 0; /* odd, so that all units have their turn */
    float *v = malloc((n / step + 1) * sizeof *v);
    if (!v)
        return -ENOMEM;
    for (size_t i = 0; i < n; i += step)
        v[k++] = energy[i];
    *level = ntx_calibrate_level(v, k, share);
    free(v);
    return 0;
}

/* ---- how good predictions are, on what was held out */

/* The logit from which the share `recall` of the active ones lies above. */
static int limit_for(const float *logits, const uint8_t *y, uint32_t n, uint32_t units, float recall, float *limit)
{
    float *v = malloc((size_t)n * units * sizeof *v);
    size_t k = 0;
    if (!v)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t u = 0; u < units && ntx_sample_held_out(i); u++)
            if (y[(size_t)i * units + u])
                v[k++] = logits[(size_t)i * units + u];
    qsort(v, k, sizeof *v, by_value);
    *limit = k ? v[(size_t)((1.0 - (double)recall) * (double)(k - 1))] : 0;
    free(v);
    return 0;
}

static void score_limit(const float *logits, const uint8_t *y, uint32_t n, uint32_t units, float limit, struct ntx_ffn_score *s)
{
    double all = 0, active = 0, predicted = 0, right = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t u = 0; u < units && ntx_sample_held_out(i); u++) {
            size_t k = (size_t)i * units + u;
            all++;
            active += y[k];
            predicted += logits[k] >= limit;
            right += y[k] && logits[k] >= limit;
        }
    s->active = all > 0 ? active / all : 0;
    s->predicted = all > 0 ? predicted / all : 0;
    s->precision = predicted > 0 ? right / predicted : 1;
    s->recall = active > 0 ? right / active : 1;
}

/* The k-th largest of a row. scratch: [n] */
static float kth(const float *v, float *scratch, uint32_t n, uint32_t k)
{
    memcpy(scratch, v, n * sizeof *v);
    qsort(scratch, n, sizeof *v, by_value);
    return scratch[n - k];
}

static int score_top(const float *logits, const float *energy, uint32_t n, uint32_t units, struct ntx_ffn_score *s)
{
    uint32_t k = (uint32_t)NTX_MIN(NTX_MAX(s->active * units + 0.5, 1.0), (double)units);
    float *scratch = malloc(units * sizeof *scratch);
    double right = 0, all = 0;
    if (!scratch)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        const float *p = logits + (size_t)i * units, *e = energy + (size_t)i * units;
        if (!ntx_sample_held_out(i))
            continue;
        float least_p = kth(p, scratch, units, k), least_e = kth(e, scratch, units, k);
        for (uint32_t u = 0; u < units; u++)
            right += p[u] >= least_p && e[u] >= least_e && e[u] > 0;
        all += k;
    }
    free(scratch);
    s->top = all > 0 ? right / all : 1;
    return 0;
}

/* ---- a layer */

static int on_epoch(void *ctx, uint32_t epoch, double loss)
{
    const struct ntx_learning *l = ctx;
    if (l->tell)
        fprintf(stderr, "\r\033[Ktraining for FFNs: epoch %u of %u, loss %.4f", epoch + 1, l->epochs, loss);
    return 0;
}

static int learn_groups(struct ntx_ffn_capture *f, uint32_t layer, float *x, const float *energy, uint32_t n, const struct ntx_options *o, const struct ntx_learning *l)
{
    uint32_t units = f->units[layer];
    struct ntx_net *net = &f->learned.net[layer];
    struct ntx_ffn_score *s = &f->score[layer];
    uint8_t *y = malloc((size_t)n * units);
    float *logits = malloc((size_t)n * units * sizeof *logits), level;
    *net = (struct ntx_net){.n_in = f->n_embd, .n_hidden = o->ffn_rank, .n_out = units};
    int rc = !y || !logits || ntx_net_alloc(net) ? -ENOMEM : level_of(energy, (size_t)n * units, o->ffn_active, &level);
    for (size_t i = 0; i < (size_t)n * units && !rc; i++)
        y[i] = energy[i] > level;
    if (!rc) {
        ntx_calibrate_standardize(net, x, n);
        rc = ntx_calibrate_train(l, x, y, n, on_epoch, net);
    }
    if (!rc && !(rc = ntx_calibrate_ask(net, x, n, logits)) && !(rc = limit_for(logits, y, n, units, o->ffn_recall, &f->learned.limit[layer]))) {
        score_limit(logits, y, n, units, f->learned.limit[layer], s);
        rc = score_top(logits, energy, n, units, s);
    }
    free(y);
    free(logits);
    return rc;
}

static int learn_order(struct ntx_ffn_capture *f, uint32_t layer, const float *energy, uint32_t n, const struct ntx_options *o)
{
    float level;
    int rc = level_of(energy, (size_t)n * f->n_ff, o->ffn_active, &level);
    return rc ? rc : ntx_calibrate_order(energy, n, f->n_ff, level, f->learned.order + (size_t)layer * f->n_ff, &f->score[layer]);
}

/* ---- all layers */

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

static int learn_range(struct ntx_ffn_capture *f, uint32_t first, struct ntx_calibrate_text text, const struct ntx_options *o, const struct ntx_learning *l,
                       struct ntx_err *err)
{
    struct taken t = {.f = f, .first = first, .layers = NTX_MIN(f->at_once, f->n_layers - first), .width = widest(f),
                      .room = NTX_MIN((uint32_t)text.n_ids, o->limit)};
    int rc = make_taken(&t) ? ntx_err_set(err, -ENOMEM, "no memory for what the FFNs of %u layers do: use --limit", t.layers) : 0;
    text.what = "FFNs: ";
    text.ffn_first = first;
    text.ffn_layers = t.layers;
    text.row = take_row;
    text.ctx = &t;
    if (!rc)
        rc = ntx_calibrate_text(&text, o, err);
    if (!rc && t.n < 320)
        rc = ntx_err_set(err, -EINVAL, "only %u tokens to learn from: give a longer text, some thousand words at least", t.n);
    for (uint32_t i = 0; i < t.layers && !rc; i++)
        if ((rc = f->packed ? learn_groups(f, first + i, t.x[i], t.energy[i], t.n, o, l) : learn_order(f, first + i, t.energy[i], t.n, o)))
            ntx_err_set(err, rc, "cannot learn what layer %u does: %s", first + i, strerror(-rc));
    free_taken(&t);
    return rc;
}

int ntx_calibrate_ffn(struct ntx_ffn_capture *f, struct ntx_calibrate_text text, const struct ntx_options *o, const struct ntx_learning *l, struct ntx_err *err)
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
