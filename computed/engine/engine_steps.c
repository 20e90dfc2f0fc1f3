/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the values of each step for the rows of a LogitsReq that asks for them, while the pass runs. If the pass fails,
 * the client gets an error and discards them. */
#include <math.h>
#include <string.h>

#include "computed/engine/engine_impl.h"

/* A hash of the bits. */
static uint64_t digest_of(const float *v, uint32_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &v[i], sizeof bits);
        h = (h ^ bits) * 0x100000001b3u;
        h ^= h >> 29;
    }
    return h;
}

static void set_values(struct ntx_step_row *m, const float *v, uint32_t n)
{
    double sum = 0;
    m->min = INFINITY;
    m->max = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        m->min = fminf(m->min, v[i]);
        m->max = fmaxf(m->max, v[i]);
        sum += (double)v[i];
    }
    m->mean = sum / n;
    m->digest = digest_of(v, n);
}

static const struct ntx_session *session_of_row(const struct ntx_engine *e, uint32_t row)
{
    uint32_t i = 0;
    while (i < e->n_live && row - e->live[i]->first_row >= e->live[i]->take)
        i++;
    return i < e->n_live ? e->live[i] : NULL;
}

void ntx__engine_step(void *ctx, const struct ntx_row *row, const struct ntx_step_values *v)
{
    struct ntx_engine *e = ctx;
    const struct ntx_session *s = session_of_row(e, (uint32_t)(row - e->rows));
    if (!s)
        return;
    struct ntx_step_row m = {.row = row->pos,
                             .layer = v->layer,
                             .step = v->step,
                             .width = v->width,
                             .name = v->name,
                             .buffer = v->buffer,
                             .values = s->steps == NTX_STEPS_VALUES ? v->values : NULL};
    set_values(&m, v->values, v->width);
    ntx_mail_step(e->c.mail, s->replies, s->request, &m);
}

size_t ntx__engine_steps_bytes(const struct ntx_engine *e, const struct ntx_session *s)
{
    enum { SHOWN = 24, EACH = 200 }; /* most steps of a layer; bytes of a reply without values */
    const struct ntx_hparams *hp = &e->l->model->hp;
    size_t layer = 8 * (size_t)hp->n_embd + 3 * (size_t)hp->n_head * (hp->head_k + hp->head_v) + 3 * (size_t)hp->n_ff;
    if (!s->steps)
        return 0;
    size_t values = s->steps == NTX_STEPS_VALUES ? (hp->n_layers * layer + hp->n_vocab) * sizeof(float) : 0;
    return (hp->n_layers + 1) * (size_t)SHOWN * EACH + values;
}
