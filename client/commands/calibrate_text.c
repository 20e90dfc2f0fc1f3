/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the text to the daemons in windows and receives the states of each token. */
#include <stdio.h>
#include <unistd.h>

#include "client/commands/calibrate.h"
#include "client/commands/commands.h"
#include "common/util.h"

static int run_window(const struct ntx_calibrate_text *t, int32_t *ids, size_t n, uint32_t *rows, struct ntx_err *err)
{
    Ntx__StatesReq m = NTX__STATES_REQ__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    struct ntx_replies p = {.client = t->client, .last = NTX__REPLY__BODY_DONE};
    m.tokens = ids;
    m.n_tokens = n;
    m.layer = t->layer;
    m.ffn_first = t->ffn_first;
    m.ffn_layers = t->ffn_layers;
    q.body_case = NTX__REQUEST__BODY_STATES;
    q.states = &m;
    int rc = ntx_client_send(t->client, &q, NULL, 0, &p.id, err);
    while (ntx_client_more(&p, &rc, err))
        if (p.reply->body_case == NTX__REPLY__BODY_STATES) {
            rc = t->row(t->ctx, p.reply->states, err);
            ++*rows;
        }
    return rc;
}

int ntx_calibrate_text(const struct ntx_calibrate_text *t, const struct ntx_options *o, struct ntx_err *err)
{
    size_t end = NTX_MIN((size_t)t->n_ids, (size_t)o->limit);
    uint32_t rows = 0;
    for (size_t i = 0; i + 2 <= end; i += o->load.ctx) {
        size_t len = NTX_MIN(end - i, (size_t)o->load.ctx);
        if (t->bos >= 0)
            t->ids[i] = t->bos; /* each window begins like a text */
        int rc = run_window(t, t->ids + i, len, &rows, err);
        if (rc)
            return rc;
        if (!o->quiet && isatty(STDERR_FILENO))
            fprintf(stderr, "\r\033[K%s%u of %zu tokens", t->what, rows, end);
    }
    return 0;
}
