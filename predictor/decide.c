/* SPDX-License-Identifier: Apache-2.0 */
/* decide.c: from a probe to a decision: board, policy, faults, and the hint to iod. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "predictor/board.h"
#include "predictor/service_impl.h"

/* Within this time a sent message leaves the process, even on a busy machine: nanomsg has a sending thread. */
#define SENT_MS 200

struct decision {
    uint32_t index, gen, row;
    uint64_t pass;
    uint64_t skip[NTX_MAP_WORDS];
};

struct ntx__delayed {
    uv_timer_t timer;
    struct ntx__service *s;
    struct decision d;
    struct ntx__delayed *next;
};

/* Converts to bit l of byte l / 8, without the zero bytes at the end. Returns the number of bytes. */
static size_t to_bytes(const uint64_t *skip, uint8_t *bytes)
{
    size_t len = 0;
    for (size_t i = 0; i < 8 * NTX_MAP_WORDS; i++) {
        bytes[i] = (uint8_t)(skip[i / 8] >> 8 * (i % 8));
        if (bytes[i])
            len = i + 1;
    }
    return len;
}

static void die(uv_timer_t *t)
{
    (void)t;
    kill(getpid(), SIGKILL);
}

/* Hints at layers that every row of this pass may skip, as far as rows were seen. A lost hint costs nothing. */
static void send_hint(struct ntx__service *s, const struct decision *d)
{
    uint8_t bytes[8 * NTX_MAP_WORDS];
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__Hint h = NTX__HINT__INIT;
    bool same = s->hinted && s->hint_pass == d->pass;
    for (unsigned w = 0; w < NTX_MAP_WORDS; w++)
        s->hint[w] = same ? s->hint[w] & d->skip[w] : d->skip[w];
    s->hinted = true;
    s->hint_pass = d->pass;
    if (!s->w.other)
        return;
    m.body_case = NTX__PEER__BODY_HINT;
    m.hint = &h;
    h.pass = d->pass;
    h.skip.data = bytes;
    h.skip.len = to_bytes(s->hint, bytes);
    (void)ntx_link_send(s->w.other, &m);
}

/* computed asks again for a decision that could not be sent. */
static void send_decision(struct ntx__service *s, const struct decision *d)
{
    uint8_t bytes[8 * NTX_MAP_WORDS];
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__Decision b = NTX__DECISION__INIT;
    m.body_case = NTX__PEER__BODY_DECISION;
    m.decision = &b;
    b.index = d->index;
    b.gen = d->gen;
    b.pass = d->pass;
    b.row = d->row;
    b.skip.data = bytes;
    b.skip.len = to_bytes(d->skip, bytes);
    if (ntx_link_send(s->w.computed, &m))
        return;
    ntx_count(s->w.counters, NTX_C_pred_probes, 1);
    if (ntx_predictor_fault_sent(&s->fault))
        uv_timer_start(&s->death, die, SENT_MS, 0);
    if (s->policy->skips)
        send_hint(s, d);
}

static void free_delayed(uv_handle_t *h) { free(h->data); }

static void unlink_delayed(struct ntx__delayed *e)
{
    struct ntx__delayed **p = &e->s->delayed;
    while (*p != e)
        p = &(*p)->next;
    *p = e->next;
    uv_close((uv_handle_t *)&e->timer, free_delayed);
}

static void on_delay_over(uv_timer_t *t)
{
    struct ntx__delayed *e = t->data;
    send_decision(e->s, &e->d);
    unlink_delayed(e);
}

void ntx__service_drop_delayed(struct ntx__service *s)
{
    while (s->delayed)
        unlink_delayed(s->delayed);
}

static void send_later(struct ntx__service *s, const struct decision *d, uint64_t delay_ns)
{
    struct ntx__delayed *e = calloc(1, sizeof *e);
    if (!e)
        return; /* computed asks again */
    e->s = s;
    e->d = *d;
    e->timer.data = e;
    e->next = s->delayed;
    s->delayed = e;
    uv_timer_init(&s->w.loop, &e->timer);
    uv_update_time(&s->w.loop);
    uv_timer_start(&e->timer, on_delay_over, (delay_ns + 999999) / 1000000, 0);
}

void ntx__service_probe(struct ntx__service *s, const Ntx__ProbeNotice *m)
{
    struct decision d = {.index = m->index, .gen = m->gen};
    struct ntx_board_probe p;
    if (!s->policy || uv_is_active((uv_handle_t *)&s->death))
        return;
    struct ntx_predictor_fault_act act = ntx_predictor_fault_probe(&s->fault);
    if (act.kill)
        die(NULL);
    if (ntx_board_read(&s->board, m->index, m->gen, &p, s->hidden) || p.pass != m->pass)
        return; /* no longer wanted */
    struct ntx_policy_input in = {.hidden = s->hidden,
                                  .layer = p.layer,
                                  .row = p.row,
                                  .pos = p.pos,
                                  .session = p.session,
                                  .similar = s->hidden + s->board.n_embd};
    ntx_policy_decide(s->policy, &in, d.skip);
    d.row = p.row;
    d.pass = p.pass;
    if (act.mute)
        return;
    if (act.delay_ns)
        send_later(s, &d, act.delay_ns);
    else
        send_decision(s, &d);
}
