/* SPDX-License-Identifier: Apache-2.0 */
/* scan_each.c: Mamba-1 scans (SCANEACH): each value of a row has a state of its own, whose parts decay at rates of
 * their own. Panels of 16 values go in parallel; the tokens of a session go one after the other, in one order, so that
 * values do not depend on the split of a text into passes. A panel's state is [keys][16]. */
#include <math.h>
#include <string.h>

#include "common/util.h"
#include "computed/pass/forward_impl.h"

enum { PANEL = NTX_DELTA_HEAD_STEP };

struct panel {
    const struct ntx_step *step;
    uint32_t first;                         /* value of a row */
    float rates[NTX_SCAN_STATE_MAX][PANEL]; /* A of the panel's values */
};

static void take_rates(struct panel *p, const float *a)
{
    const uint32_t keys = p->step->scan.keys;
    for (uint32_t i = 0; i < PANEL; i++)
        for (uint32_t s = 0; s < keys; s++)
            p->rates[s][i] = a[(size_t)(p->first + i) * keys + s];
}

static void scan_row(struct ntx_forward *f, const struct panel *p, uint32_t row, const float *from, float *to)
{
    const struct ntx_step *s = p->step;
    const float *x = ntx__of_batch(f, s->in[0], row) + p->first, *low = ntx__of_batch(f, NTX_BUF_A, row) + p->first,
                *dt = f->vec[s->weight[0]] + p->first, *skip = f->vec[s->weight[2]] + p->first;
    float *y = ntx__of_batch(f, s->out, row) + p->first, t[PANEL], tx[PANEL], out[PANEL];
    const float *b = ntx__of_batch(f, s->in[1], row);
    for (uint32_t i = 0; i < PANEL; i++) {
        t[i] = (float)ntx__softplus((double)low[i] + (double)dt[i]);
        tx[i] = t[i] * x[i];
    }
    f->c.ops->scan_each(&(struct ntx_scan_each){.t = t,
                                                .tx = tx,
                                                .rates = p->rates[0],
                                                .b = b,
                                                .c = b + s->scan.keys,
                                                .from = from,
                                                .to = to,
                                                .out = out,
                                                .n_keys = s->scan.keys});
    for (uint32_t i = 0; i < PANEL; i++)
        y[i] = out[i] + skip[i] * x[i];
}

static void scan_panel(struct ntx_forward *f, uint32_t item, unsigned thread)
{
    (void)thread;
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const uint32_t panels = s->width / PANEL;
    struct panel p = {.step = s, .first = item % panels * PANEL};
    const struct ntx__turn t = ntx__turn_of(f, item / panels);
    const size_t at = (size_t)p.first * s->scan.keys, bytes = (size_t)s->scan.keys * PANEL * sizeof(float);
    const float *from = ntx_recur_fold(t.kv, f->layer);
    const uint32_t pos = ntx_recur_at(t.kv);
    float *to = ntx_recur_next_fold(t.kv, f->layer) + at;
    take_rates(&p, f->vec[s->weight[1]]);
    if (!from)
        memset(to, 0, bytes);
    from = from ? from + at : to;
    for (uint32_t i = 0; i < t.n; i++, from = to) {
        scan_row(f, &p, t.row[i], from, to);
        float *stop = ntx_recur_stop_fold(t.kv, pos + i + 1, f->layer);
        if (stop)
            memcpy(stop + at, to, bytes);
    }
}

int ntx__cpu_scaneach(struct ntx_forward *f, const struct ntx__run *r)
{
    const struct ntx_step *s = ntx__steps_of(f, r);
    int rc = ntx__take_run(f, r);
    if (rc)
        return rc;
    ntx__each(f, scan_panel, f->n_turns * (s->width / PANEL));
    ntx__give_run(f, r);
    return 0;
}
