/* SPDX-License-Identifier: Apache-2.0 */
#include "client/commands/steps.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"

#define MAX_ROWS (1u << 24)

struct ntx_step_line *ntx_steps_new(struct ntx_steps *s)
{
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 256;
        struct ntx_step_line *p = realloc(s->step, room * sizeof *p);
        if (!p)
            return NULL;
        s->step = p;
        s->room = room;
    }
    s->step[s->n] = (struct ntx_step_line){.min = INFINITY, .max = -INFINITY};
    return &s->step[s->n++];
}

static bool is_step(const struct ntx_step_line *t, uint32_t layer, uint32_t step, const char *buffer)
{
    return t->layer == layer && t->step == step && !strcmp(t->buffer, buffer);
}

struct ntx_step_line *ntx_steps_find(struct ntx_steps *s, uint32_t layer, uint32_t step, const char *buffer)
{
    for (size_t i = 0; i < s->n; i++) {
        size_t at = (s->last + 1 + i) % s->n; /* usually the next one */
        if (is_step(&s->step[at], layer, step, buffer)) {
            s->last = at;
            return &s->step[at];
        }
    }
    return NULL;
}

static int grow_rows(struct ntx_step_line *t, uint32_t n_rows)
{
    uint32_t room = NTX_MAX(n_rows, 2 * t->n_rows);
    struct ntx_step_row *p = n_rows > t->n_rows ? realloc(t->row, room * sizeof *p) : t->row;
    if (!p)
        return -ENOMEM;
    if (n_rows > t->n_rows) {
        memset(p + t->n_rows, 0, (room - t->n_rows) * sizeof *p);
        t->n_rows = room;
    }
    t->row = p;
    return 0;
}

static int take_values(struct ntx_step_row *r, const Ntx__StepRow *m)
{
    if (!m->values.len)
        return 0;
    if (!(r->values = malloc(m->values.len)))
        return -ENOMEM;
    memcpy(r->values, m->values.data, m->values.len);
    return 0;
}

int ntx_steps_add(struct ntx_steps *s, const Ntx__StepRow *m, struct ntx_err *err)
{
    struct ntx_step_line *t = s->n ? ntx_steps_find(s, m->layer, m->step, m->buffer) : NULL;
    if (!t && (t = ntx_steps_new(s))) {
        t->layer = m->layer;
        t->step = m->step;
        t->width = m->width;
        snprintf(t->name, sizeof t->name, "%s", m->name);
        snprintf(t->buffer, sizeof t->buffer, "%s", m->buffer);
        s->last = s->n - 1;
    }
    if (!t || m->row >= MAX_ROWS || grow_rows(t, m->row + 1))
        return ntx_err_set(err, -ENOMEM, "no memory for the steps' values");
    if (t->width != m->width || t->row[m->row].there)
        return ntx_err_set(err, -EPROTO, "the daemon sent step %u of layer %u twice for one token, or of two widths",
                           m->step, m->layer);
    if (take_values(&t->row[m->row], m))
        return ntx_err_set(err, -ENOMEM, "no memory for the values of the steps");
    t->row[m->row].there = true;
    t->row[m->row].digest = m->digest;
    t->min = fminf(t->min, m->min);
    t->max = fmaxf(t->max, m->max);
    t->sum += m->mean;
    t->n_there++;
    return 0;
}

void ntx_steps_free(struct ntx_steps *s)
{
    for (size_t i = 0; i < s->n; i++) {
        for (uint32_t r = 0; r < s->step[i].n_rows; r++)
            free(s->step[i].row[r].values);
        free(s->step[i].row);
    }
    free(s->step);
    *s = (struct ntx_steps){0};
}
