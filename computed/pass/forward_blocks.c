/* SPDX-License-Identifier: Apache-2.0 */
/* forward_blocks.c: layers of a vision tower, some rows at a time. All rows of a picture see one another, so each layer
 * has two parts: what makes K and V, for all blocks of rows, and then attention and the FFN, for all blocks. Buffers
 * have the rows of a block, except the state and q, which live from one part to the other. The chunks of a part are
 * held until its last block. A row's values do not depend on the other rows of its block, so the bits are those of all
 * rows at once. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "computed/pass/forward_impl.h"

/* The run that the second part begins with; all->n: the layer has no attention. */
static uint32_t second_part(const struct ntx__runs *all)
{
    uint32_t k = 0;
    while (k < all->n && all->run[k].op != NTX_OP_ATTEND)
        k++;
    return k;
}

/* The first layer begins with the rows' pixels. */
static void enter_block(struct ntx_forward *f, uint32_t first, uint32_t n)
{
    const size_t in = ntx_tower_in(f->c.model);
    f->n_live = f->n_exact = n;
    f->buf[NTX_BUF_Q].at = f->m.q + first * f->buf[NTX_BUF_Q].ld;
    for (uint32_t i = 0; i < n; i++) {
        f->m.live[i] = first + i;
        if (!f->layer)
            memcpy(f->m.normed + i * f->buf[NTX_BUF_NORMED].ld, f->b->rows[first + i].state, in * sizeof *f->m.normed);
    }
}

static int run_part(struct ntx_forward *f, uint32_t from, uint32_t to)
{
    const struct ntx__runs *all = &f->runs[f->layer];
    const uint32_t n = f->b->n_rows, block = ntx__block(&f->c), chunk = f->next_chunk;
    int rc = 0;
    for (uint32_t first = 0; first < n && !rc; first += block) {
        enter_block(f, first, NTX_MIN(block, n - first));
        f->next_chunk = chunk;
        f->keeps = n - first > block;
        for (uint32_t k = from; k < to && !rc; k++) {
            f->run = &all->run[k];
            rc = ntx__do_run(f, f->run);
        }
    }
    f->keeps = false;
    return rc;
}

int ntx__run_blocks(struct ntx_forward *f)
{
    const uint32_t second = second_part(&f->runs[f->layer]);
    int rc = run_part(f, 0, second);
    return rc ? rc : run_part(f, second, f->runs[f->layer].n);
}

int ntx_forward_spans(const struct ntx_model *m, const struct ntx_chunks *c, uint32_t *span)
{
    struct ntx__runs *runs = ntx__runs_of(m, c);
    if (!runs)
        return -ENOMEM;
    uint32_t number = 0, i = 0;
    for (uint32_t l = 0; l < m->hp.n_layers; l++) {
        const uint32_t second = second_part(&runs[l]), last = runs[l].n - 1,
                       from = second <= last ? runs[l].run[second].chunk0 : runs[l].run[last].end;
        while (i < from)
            span[i++] = number;
        number++;
        while (i < runs[l].run[last].end)
            span[i++] = number;
        number++;
    }
    while (i < c->n)
        span[i++] = number;
    free(runs);
    return 0;
}
