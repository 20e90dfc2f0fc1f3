/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/engine_skip.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/util.h"

#define RESEND_NS 100000000ull
#define WAIT_MS   5000

struct asked { /* a place on the probe board, by its index */
    uint32_t gen;
    uint32_t row, seat; /* row of the pass; its number for the predictor */
    bool waiting;
    uint64_t skip[NTX_MAP_WORDS];
};

struct ntx_skip {
    struct ntx_skip_config c;
    uint32_t n_embd, room;
    size_t floats;        /* floats of a row of the board */
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t answered;
    uint64_t pass;
    struct asked *asked; /* [room] */
    uint32_t n_asked, n_waiting;
    bool given_up, away;
    uint64_t cancelled; /* 1 + the cancelled pass; 0: none */
    uint32_t *layers;   /* [max_rows] of the last pass; engine thread only */
    bool *lost;         /* [max_rows] */
};

int ntx_skip_new(const struct ntx_skip_config *c, struct ntx_skip **out)
{
    struct ntx_skip *s = calloc(1, sizeof *s);
    pthread_condattr_t attr;
    if (!s)
        return -ENOMEM;
    s->c = *c;
    if (!s->c.wait_ms)
        s->c.wait_ms = WAIT_MS;
    s->n_embd = c->region->board.n_embd;
    s->floats = ntx_board_floats(&c->region->board);
    s->room = NTX_MIN(c->region->board.n_probes, c->max_rows);
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->answered, &attr);
    pthread_condattr_destroy(&attr);
    s->asked = calloc(s->room + 1, sizeof *s->asked);
    s->layers = calloc(c->max_rows, sizeof *s->layers);
    s->lost = calloc(c->max_rows, sizeof *s->lost);
    if (!s->asked || !s->layers || !s->lost) {
        ntx_skip_free(s);
        return -ENOMEM;
    }
    *out = s;
    return 0;
}

void ntx_skip_free(struct ntx_skip *s)
{
    if (!s)
        return;
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->answered);
    free(s->asked);
    free(s->layers);
    free(s->lost);
    free(s);
}

/* Writes one row to the board. The word leaves READY before the data changes (acquire of the exchange) and returns to
 * it afterwards (release). The predictor reads the word before and after the data, so it takes no torn row. */
static void show_row(struct ntx_skip *s, uint32_t i, const struct ntx_batch *b, uint32_t row, const float *hidden)
{
    struct ntx_probe *p = &s->c.region->board.probe[i];
    uint32_t gen = (ntx_word_gen(atomic_load_explicit(&p->word, memory_order_relaxed)) + 1) & 0x0fffffff;
    atomic_exchange_explicit(&p->word, ntx_word(gen, NTX_FREE), memory_order_acq_rel);
    float *floats = s->c.region->board.data + i * s->floats;
    memcpy(floats, hidden, s->n_embd * sizeof *hidden);
    for (uint32_t l = 0; l < s->c.region->board.n_layers; l++)
        floats[s->n_embd + l] = b->rows[row].similar ? b->rows[row].similar[l] : NAN;
    p->row = b->rows[row].seat;
    p->pass = b->pass;
    p->session = b->rows[row].session;
    p->layer = s->c.probe_layer;
    p->pos = b->rows[row].pos;
    atomic_store_explicit(&p->word, ntx_word(gen, NTX_READY), memory_order_release);
    s->asked[i] = (struct asked){.gen = gen, .row = row, .seat = b->rows[row].seat, .waiting = true};
}

static void request_decisions(struct ntx_skip *s)
{
    for (uint32_t i = 0; i < s->n_asked; i++)
        if (s->asked[i].waiting)
            ntx_mail_probe(s->c.mail, i, s->asked[i].gen, s->pass);
}

static void probe_rows(void *ctx, const struct ntx_batch *b, const float *hidden)
{
    struct ntx_skip *s = ctx;
    memset(s->layers, 0, s->c.max_rows * sizeof *s->layers);
    memset(s->lost, 0, s->c.max_rows * sizeof *s->lost);
    pthread_mutex_lock(&s->lock);
    s->pass = b->pass;
    s->n_asked = 0;
    for (uint32_t r = 0; r < b->n_rows && s->n_asked < s->room; r++)
        if (b->rows[r].may_skip)
            show_row(s, s->n_asked++, b, r, hidden + (size_t)r * s->n_embd);
    s->n_waiting = s->n_asked;
    request_decisions(s);
    pthread_mutex_unlock(&s->lock);
}

static struct timespec to_timespec(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

/* Waits, with the lock held, until all are answered, no answer can come, or the daemon ends. */
static void wait_for_answers(struct ntx_skip *s)
{
    struct ntx_patience patience = ntx_patience(s->c.wait_ms * 1000000ull);
    uint64_t now = ntx_now_ns(), again = now + RESEND_NS;
    while (s->n_waiting && !s->given_up && !s->away && s->cancelled != s->pass + 1 && !ntx_patience_over(&patience)) {
        struct timespec t = to_timespec(now + NTX_MIN(again - now, patience.left_ns));
        pthread_cond_timedwait(&s->answered, &s->lock, &t);
        now = ntx_now_ns();
        if (now >= again) {
            request_decisions(s);
            again = now + RESEND_NS;
        }
    }
}

static void take_decisions(void *ctx, const struct ntx_batch *b, uint64_t *skip)
{
    struct ntx_skip *s = ctx;
    (void)b;
    if (!s->c.skips)
        return;
    uint64_t t0 = ntx_now_ns();
    uint32_t left_out = 0;
    pthread_mutex_lock(&s->lock);
    wait_for_answers(s);
    for (uint32_t i = 0; i < s->n_asked; i++) {
        const struct asked *a = &s->asked[i];
        struct ntx_probe *p = &s->c.region->board.probe[i];
        s->lost[a->row] = a->waiting;
        atomic_store_explicit(&p->word, ntx_word((a->gen + 1) & 0x0fffffff, NTX_FREE), memory_order_release);
        for (unsigned w = 0; w < NTX_MAP_WORDS && !a->waiting; w++) {
            skip[(size_t)a->row * NTX_MAP_WORDS + w] = a->skip[w];
            s->layers[a->row] += (uint32_t)__builtin_popcountll(a->skip[w]);
        }
        left_out += s->layers[a->row];
    }
    uint64_t now = ntx_now_ns();
    ntx_count(s->c.counters, NTX_C_comp_decision_wait_ns, now - t0);
    ntx_traced(s->c.counters, NTX_TRACE_COMPUTED, NTX_TR_DECISION, t0, now, left_out, s->pass, s->n_asked);
    s->n_asked = s->n_waiting = 0;
    pthread_mutex_unlock(&s->lock);
}

struct ntx_skip_hooks ntx_skip_hooks(struct ntx_skip *s)
{
    return (struct ntx_skip_hooks){.ctx = s,
                                   .probe_layer = s->c.probe_layer,
                                   .propagate = s->c.propagate,
                                   .probe = probe_rows,
                                   .decide = take_decisions};
}

uint32_t ntx_skip_layers(const struct ntx_skip *s, uint32_t row) { return s->layers[row]; }
bool ntx_skip_lost(const struct ntx_skip *s, uint32_t row) { return s->lost[row]; }
uint32_t ntx_skip_room(const struct ntx_skip *s) { return s->room; }

/* Takes a decision. Only layers after the probe, and never the output, can be skipped, whatever the message says. */
static void take_bits(const struct ntx_skip *s, const struct ntx_skip_answer *m, uint64_t *skip)
{
    for (uint32_t l = s->c.probe_layer + 1; l < s->c.n_layers && l / 8 < m->n_skip; l++)
        if (m->skip[l / 8] >> (l % 8) & 1) {
            skip[l / 64] |= 1ull << (l % 64);
            if (s->c.counters)
                atomic_fetch_add_explicit(&s->c.counters->mon.layer[l].predicted, 1, memory_order_relaxed);
        }
}

void ntx_skip_decision(struct ntx_skip *s, const struct ntx_skip_answer *m)
{
    ntx_count(s->c.counters, NTX_C_comp_decisions, 1);
    pthread_mutex_lock(&s->lock);
    struct asked *a = m->index < s->n_asked ? &s->asked[m->index] : NULL;
    if (a && a->waiting && a->gen == m->gen && s->pass == m->pass && a->seat == m->row) {
        take_bits(s, m, a->skip);
        a->waiting = false;
        if (!--s->n_waiting)
            pthread_cond_signal(&s->answered);
    } else {
        ntx_count(s->c.counters, NTX_C_comp_decisions_late, 1);
    }
    pthread_mutex_unlock(&s->lock);
}

void ntx_skip_resend(struct ntx_skip *s)
{
    pthread_mutex_lock(&s->lock);
    if (s->c.skips)
        request_decisions(s);
    pthread_mutex_unlock(&s->lock);
}

void ntx_skip_away(struct ntx_skip *s, bool away)
{
    pthread_mutex_lock(&s->lock);
    s->away = away;
    pthread_cond_signal(&s->answered);
    pthread_mutex_unlock(&s->lock);
}

bool ntx_skip_waits(struct ntx_skip *s)
{
    pthread_mutex_lock(&s->lock);
    bool waits = s->c.skips && s->n_waiting;
    pthread_mutex_unlock(&s->lock);
    return waits;
}

void ntx_skip_cancel(struct ntx_skip *s, uint64_t pass)
{
    pthread_mutex_lock(&s->lock);
    s->cancelled = pass + 1;
    pthread_cond_signal(&s->answered);
    pthread_mutex_unlock(&s->lock);
}

void ntx_skip_give_up(struct ntx_skip *s)
{
    pthread_mutex_lock(&s->lock);
    s->given_up = true;
    pthread_cond_signal(&s->answered);
    pthread_mutex_unlock(&s->lock);
}
