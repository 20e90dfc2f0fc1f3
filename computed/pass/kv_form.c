/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/pass/kv_form.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/state/kv.h"
#include "model/quant.h"

/* Biases of pairs: smaller ones stay in K; larger ones that would have to stay make the type useless. */
#define BIAS_LEAST   4.0f
#define BIAS_HARMFUL 30.0f
/* A norm's smallest weights count as this share of its largest. */
#define NORM_LEAST   1e-3f

static int read_vector(const struct ntx_model *m, const int *fds, uint32_t tensor, uint32_t n, float *out,
                       struct ntx_err *err)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(m->gguf, tensor);
    const struct ntx_type_info *type = ntx_type_info(t->type);
    const size_t bytes = n / type->block * type->block_bytes;
    uint8_t *raw = malloc(bytes);
    int rc = raw ? ntx_read_at(fds[t->file], raw, bytes, t->offset) : -ENOMEM;
    if (!rc)
        type->dequant(raw, out, n / type->block);
    free(raw);
    return rc ? ntx_err_set(err, rc, "tensor '%s' cannot be read: %s", t->name, ntx_read_error(rc)) : 0;
}

static void *form_room(struct ntx_kv_form *form, size_t n, size_t each)
{
    form->bytes += n * each;
    return calloc(n, each);
}

/* ---- norms */

/* Root mean square of each pair's weights, for both of its values. */
static void pair_norms(float *w, uint32_t n, uint32_t apart)
{
    float most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(w[i]));
    for (uint32_t i = 0; i < n; i++)
        if (!(i & apart)) {
            const float x = sqrtf((w[i] * w[i] + w[i + apart] * w[i + apart]) / 2);
            w[i] = w[i + apart] = most > 0 ? fmaxf(x, NORM_LEAST * most) : 1;
        }
}

static bool is_power(uint32_t n) { return !(n & (n - 1)); }

static int scale_layer(struct ntx_kv_form *form, const struct ntx_model *m, const int *fds, uint32_t l, uint32_t n,
                       uint32_t apart, struct ntx_err *err)
{
    struct ntx_kv_form_layer *to = &form->layer[l];
    float q[NTX_MAX_HEAD], k[NTX_MAX_HEAD];
    int rc = read_vector(m, fds, m->layers[l].tensor[NTX_T_q_norm], n, q, err);
    if (!rc)
        rc = read_vector(m, fds, m->layers[l].tensor[NTX_T_k_norm], n, k, err);
    if (rc)
        return rc;
    to->by = form_room(form, n, sizeof *to->by);
    to->inverse = form_room(form, n, sizeof *to->inverse);
    if (!to->by || !to->inverse)
        return ntx_err_set(err, -ENOMEM, "no memory for the form of K");
    pair_norms(q, n, apart);
    pair_norms(k, n, apart);
    for (uint32_t i = 0; i < n; i++) {
        const float by = sqrtf(k[i] / q[i]);
        to->by[i] = by > 0 && by < INFINITY ? by : 1;
        to->inverse[i] = 1 / to->by[i];
    }
    form->n_scaled++;
    return 0;
}

/* ---- biases */

/* K's rotation, if K is a product and a bias, which are rotated and stored; NULL: something else is done to it. */
static const struct ntx_step *rotation_of(const struct ntx_model *m, uint32_t l)
{
    const struct ntx_step *s = m->layers[l].step, *end = s + m->layers[l].n_steps, *turn = NULL;
    bool biased = false;
    for (; s < end; s++) {
        if (s->op == NTX_OP_PUT && !s->put.keys)
            return turn && !turn->offset && !turn->rope.back && turn->rope.angles == NTX_ROTATION_ALL ? turn : NULL;
        if (s->out != NTX_BUF_K)
            continue;
        if (s->op == NTX_OP_BIAS && s->weight[0] == NTX_T_k_bias)
            biased = true;
        else if (s->op == NTX_OP_ROPE && biased && !turn)
            turn = s;
        else if (biased)
            return NULL;
    }
    return NULL;
}

static struct ntx_kv_pair pair_of(const struct ntx_step *s, uint32_t i, const float *bias)
{
    const bool halves = s->rope.pairs == NTX_ROPE_NEOX;
    struct ntx_kv_pair p = {.first = (uint16_t)(halves ? i : 2 * i),
                            .second = (uint16_t)(halves ? i + s->rope.rotated / 2 : 2 * i + 1),
                            .angle = (uint16_t)i};
    p.bias[0] = bias[p.first];
    p.bias[1] = bias[p.second];
    return p;
}

static float pair_size(const struct ntx_kv_pair *p) { return hypotf(p->bias[0], p->bias[1]); }

static int larger_pair(const void *a, const void *b)
{
    const float x = pair_size(a), y = pair_size(b);
    return (x < y) - (x > y);
}

/* The largest pairs of a head, at most NTX_BIAS_PAIRS. *left: the largest bias that stays in K. */
static uint32_t head_pairs(const struct ntx_step *s, const float *bias, struct ntx_kv_pair *out, float *left)
{
    struct ntx_kv_pair all[NTX_MAX_HEAD / 2 + 1];
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->rope.rotated / 2; i++) {
        all[n] = pair_of(s, i, bias);
        n += pair_size(&all[n]) >= BIAS_LEAST;
    }
    qsort(all, n, sizeof *all, larger_pair);
    if (n > NTX_BIAS_PAIRS)
        *left = fmaxf(*left, pair_size(&all[NTX_BIAS_PAIRS]));
    n = NTX_MIN(n, (uint32_t)NTX_BIAS_PAIRS);
    memcpy(out, all, n * sizeof *out);
    return n;
}

/* The window's rotation, where there is one, overwrites the frequencies that the tables are made of. */
static bool has_window_rotation(const struct ntx_model *m)
{
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        for (uint32_t i = 0; i < m->layers[l].n_steps; i++)
            if (m->layers[l].step[i].op == NTX_OP_ROPE && m->layers[l].step[i].rope.angles != NTX_ROTATION_ALL)
                return true;
    return false;
}

/* Pairs of each head; *left as in head_pairs. */
static int keep_apart(struct ntx_kv_form *form, uint32_t l, const struct ntx_dims *w, const struct ntx_step *turn,
                      const float *bias, float *left)
{
    struct ntx_kv_form_layer *to = &form->layer[l];
    to->from = form_room(form, w->n_head_kv + 1, sizeof *to->from);
    to->pair = form_room(form, (size_t)w->n_head_kv * NTX_BIAS_PAIRS, sizeof *to->pair);
    if (!to->from || !to->pair)
        return -ENOMEM;
    for (uint32_t h = 0; h < w->n_head_kv; h++) {
        const uint32_t n = head_pairs(turn, bias + (size_t)h * w->head_k, to->pair + to->from[h], left);
        to->from[h + 1] = to->from[h] + n;
        form->most = n ? fmaxf(form->most, pair_size(to->pair + to->from[h])) : form->most;
    }
    form->n_pairs += to->from[w->n_head_kv];
    return 0;
}

static int bias_layer(struct ntx_kv_form *form, const struct ntx_model *m, const int *fds, uint32_t l,
                      enum ntx_kv_type type, struct ntx_err *err)
{
    const struct ntx_dims w = ntx_dims_of(&m->hp, l);
    const struct ntx_step *turn = has_window_rotation(m) ? NULL : rotation_of(m, l);
    const uint32_t n = w.n_head_kv * w.head_k;
    const bool normed = m->layers[l].tensor[NTX_T_k_norm] != NTX_NO_TENSOR; /* which bounds K */
    float *bias = malloc(n * sizeof *bias), left = 0;
    int rc = bias ? read_vector(m, fds, m->layers[l].tensor[NTX_T_k_bias], n, bias, err)
                  : ntx_err_set(err, -ENOMEM, "no memory for the form of K");
    if (!rc && turn && keep_apart(form, l, &w, turn, bias, &left))
        rc = ntx_err_set(err, -ENOMEM, "no memory for the form of K");
    for (uint32_t i = 0; !rc && !turn && !normed && i < n; i++)
        left = fmaxf(left, fabsf(bias[i]));
    if (!rc && left >= BIAS_HARMFUL)
        rc = ntx_err_set(err, -ENOTSUP,
                         "KV in %s would spoil this model's text: layer %u adds up to %.0f to K, in more places than "
                         "can be kept apart: leave --kv-type out",
                         ntx_kv_type_name(type), l, (double)left);
    free(bias);
    return rc;
}

/* ---- all layers */

/* Values that lie so far apart are rotated together. */
static uint32_t pair_distance(const struct ntx_model *m, uint32_t l)
{
    for (uint32_t i = 0; i < m->layers[l].n_steps; i++) {
        const struct ntx_step *s = &m->layers[l].step[i];
        if (s->op == NTX_OP_ROPE && s->out == NTX_BUF_K)
            return s->rope.pairs == NTX_ROPE_NEOX ? s->rope.rotated / 2 : 1;
    }
    return 1;
}

static int form_of_layer(struct ntx_kv_form *form, const struct ntx_model *m, const int *fds, uint32_t l,
                         enum ntx_kv_type type, struct ntx_err *err)
{
    const struct ntx_dims w = ntx_dims_of(&m->hp, l);
    const uint32_t *tensor = m->layers[l].tensor, apart = pair_distance(m, l);
    int rc = 0;
    if (w.kv_of != l || ntx_is_recurrent(&m->hp, l))
        return 0;
    if (tensor[NTX_T_k_bias] != NTX_NO_TENSOR)
        rc = bias_layer(form, m, fds, l, type, err);
    if (!rc && tensor[NTX_T_q_norm] != NTX_NO_TENSOR && tensor[NTX_T_k_norm] != NTX_NO_TENSOR &&
        w.head_k % (2 * apart) == 0 && is_power(apart))
        rc = scale_layer(form, m, fds, l, w.head_k, apart, err);
    return rc;
}

int ntx_kv_form_read(const struct ntx_model *m, const int *fds, enum ntx_kv_type type, struct ntx_kv_form **out,
                     struct ntx_err *err)
{
    *out = NULL;
    if (type == NTX_KV_F16)
        return 0;
    struct ntx_kv_form *form = calloc(1, sizeof *form);
    if (!form)
        return ntx_err_set(err, -ENOMEM, "no memory for the form of K");
    form->n_layers = m->hp.n_layers;
    form->n_angles = m->hp.rope_dim / 2;
    form->layer = form_room(form, form->n_layers, sizeof *form->layer);
    int rc = form->layer ? 0 : ntx_err_set(err, -ENOMEM, "no memory for the form of K");
    for (uint32_t l = 0; l < form->n_layers && !rc; l++)
        rc = form_of_layer(form, m, fds, l, type, err);
    if (!rc && form->n_pairs && !(form->turns = form_room(form, form->n_angles, sizeof *form->turns)))
        rc = ntx_err_set(err, -ENOMEM, "no memory for the form of K");
    if (rc || (!form->n_pairs && !form->n_scaled)) {
        ntx_kv_form_free(form);
        return rc;
    }
    *out = form;
    return 0;
}

void ntx_kv_form_free(struct ntx_kv_form *form)
{
    if (!form)
        return;
    for (uint32_t l = 0; form->layer && l < form->n_layers; l++) {
        free(form->layer[l].by);
        free(form->layer[l].inverse);
        free(form->layer[l].pair);
        free(form->layer[l].from);
    }
    free(form->layer);
    free(form->turns);
    free(form);
}

void ntx_kv_form_turn(struct ntx_kv_form *form, const double *freq)
{
    if (form->turned || !form->turns)
        return;
    for (uint32_t i = 0; i < form->n_angles; i++) {
        struct ntx_turns *t = &form->turns[i];
        t->freq = freq[i];
        for (int k = 0; k < NTX_TURNS_FAR; k++) {
            t->far[k][0] = cos(k * NTX_KV_Q8_TOKENS * freq[i]);
            t->far[k][1] = sin(k * NTX_KV_Q8_TOKENS * freq[i]);
        }
        for (int k = 0; k < NTX_KV_Q8_TOKENS; k++) {
            t->near[0][k] = (float)cos(k * freq[i]);
            t->near[1][k] = (float)sin(k * freq[i]);
        }
    }
    form->turned = true;
}

void ntx_kv_form_key(const struct ntx_kv_form *form, const struct ntx_cpu_ops *ops, enum ntx_kv_type type,
                     uint32_t layer, uint32_t head, const float *cs, const float *sn, const float *k, uint32_t n,
                     float *out)
{
    const struct ntx_kv_form_layer *l = &form->layer[layer];
    memcpy(out, k, n * sizeof *out);
    for (uint32_t i = l->from ? l->from[head] : 0; l->from && i < l->from[head + 1]; i++) {
        const struct ntx_kv_pair *p = &l->pair[i];
        out[p->first] -= p->bias[0] * cs[p->angle] - p->bias[1] * sn[p->angle];
        out[p->second] -= p->bias[0] * sn[p->angle] + p->bias[1] * cs[p->angle];
    }
    if (l->inverse)
        ops->mul(out, l->inverse, n);
    if (type == NTX_KV_Q8_0)
        ops->turn(out, n);
}

/* q . bias of pair i, as factors of its cosine and its sine. */
static void bias_factors(const struct ntx_kv_pair *p, const float *q, float by, float *x)
{
    x[0] = (q[p->first] * p->bias[0] + q[p->second] * p->bias[1]) * by;
    x[1] = (q[p->second] * p->bias[0] - q[p->first] * p->bias[1]) * by;
}

void ntx_kv_form_query(const struct ntx_kv_form *form, const struct ntx_cpu_ops *ops, enum ntx_kv_type type,
                       uint32_t layer, uint32_t head, float magnitude, struct ntx_kv_query *room, struct ntx_attn *a)
{
    const struct ntx_kv_form_layer *l = &form->layer[layer];
    const uint32_t n = l->from ? l->from[head + 1] - l->from[head] : 0;
    const struct ntx_kv_pair *pair = n ? l->pair + l->from[head] : NULL;
    for (uint32_t i = 0; i < n; i++)
        room->angle[i] = pair[i].angle;
    for (uint32_t m = 0; m < a->n_rows * a->n_q; m++) {
        const float *q = a->q + m / a->n_q * a->ld_q + (size_t)(m % a->n_q) * a->head_k;
        float *to = room->q + (size_t)m * a->head_k;
        for (uint32_t i = 0; i < n; i++)
            bias_factors(&pair[i], q, a->scale * magnitude, room->x + 2 * (m * (size_t)n + i));
        memcpy(to, q, a->head_k * sizeof *to);
        if (l->by)
            ops->mul(to, l->by, a->head_k);
        if (type == NTX_KV_Q8_0)
            ops->turn(to, a->head_k);
    }
    room->bias = (struct ntx_attn_bias){.n = n, .x = room->x, .angle = room->angle, .turns = form->turns};
    a->bias = n ? &room->bias : NULL;
    a->q = room->q;
    a->ld_q = (size_t)a->n_q * a->head_k;
}
