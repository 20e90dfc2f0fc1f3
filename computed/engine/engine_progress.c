/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of the running pass and of pictures, for the clients that wait for it. The engine thread only reports the
 * layer; the main thread derives the rest from the counters, a few times a second. Short passes are not reported. */
#include "common/util.h"
#include "computed/engine/engine_impl.h"

#define PROMPT_NS  250000000ull /* a prompt's first report comes soon */
#define WRITING_NS 1000000000ull
#define KNOWN      0.05 /* share of a pass from which its own pace predicts its end; before, the plan does */

struct pace {                             /* of the running pass */
    double elapsed_s, bps, share, left_s; /* share of its work that is done; left_s < 0: unknown */
    /* bytes of its stream. total 0: none; then done counts bytes read on demand */
    uint64_t done, total;
    uint32_t layer, layers;
};

static uint64_t get(const _Atomic uint64_t *v)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)v, memory_order_relaxed);
}

/* iod reads ahead, even for the next pass: so `read` is clamped to the bounds of the current layer. */
static void bytes_so_far(const struct ntx_engine *e, struct pace *p, uint64_t read)
{
    const struct ntx_monitor *m = &e->c.counters->mon;
    uint64_t before = 0, here = 0;
    for (uint32_t i = 0; i < NTX_MIN(p->layers, (uint32_t)NTX_MON_LAYERS); i++) {
        uint64_t bytes = get(&m->layer[i].storage);
        before += i + 1 < p->layer ? bytes : 0;
        here += i + 1 == p->layer ? bytes : 0;
        p->total += bytes;
    }
    p->done = p->total ? NTX_MIN(NTX_MAX(read, before), before + here) : read;
}

static struct pace pace_of(const struct ntx_engine *e, uint64_t now)
{
    struct pace p = {
        .elapsed_s = (double)(now - e->joined_ns) / 1e9, .layers = e->l->model->hp.n_layers + 1, .left_s = -1};
    uint64_t read = ntx_counter_get(e->c.counters, NTX_C_iod_bytes_read) - e->joined_bytes;
    double predicted = e->l->plan->predicted_tok_s;
    p.layer = (uint32_t)NTX_MAX(ntx_counter_get(e->c.counters, NTX_C_comp_pass_layer), (uint64_t)1);
    bytes_so_far(e, &p, read);
    p.bps = p.elapsed_s > 0 ? (double)read / p.elapsed_s : 0;
    p.share = p.total ? (double)p.done / (double)p.total : (double)(p.layer - 1) / p.layers;
    if (p.share >= KNOWN)
        p.left_s = p.elapsed_s * (1 - p.share) / p.share;
    else if (predicted > 0)
        p.left_s = NTX_MAX(1 / predicted - p.elapsed_s, 0.0);
    return p;
}

static void send_progress(struct ntx_engine *e, const struct ntx__member *r, const struct pace *p)
{
    /* passes until its first token */
    uint32_t later = r->todo > r->take ? (r->todo - r->take + r->take - 1) / r->take : 0;
    struct ntx_how_far m = {.phase = "pass",
                            .done = p->done,
                            .total = p->total,
                            .bytes_per_s = p->bps,
                            .layer = p->layer,
                            .layers = p->layers,
                            .prompt_done = r->prompt - NTX_MIN(r->todo, r->prompt),
                            .prompt_total = r->prompt};
    if (p->left_s >= 0)
        m.left_s = p->left_s + later * (p->elapsed_s + p->left_s);
    ntx_mail_how_far(e->c.mail, r->replies, r->request, &m);
}

/* Of a prompt whose pictures are being encoded. */
static void tell_encoding(void *ctx, struct ntx_reading *r)
{
    struct ntx_engine *e = ctx;
    const struct ntx_prompt *p = &r->prompt;
    const uint64_t all = 1000ull * atomic_load(&p->n_pictures),
                   done = 1000ull * atomic_load(&p->n_seen) + (e->l->vision ? ntx_vision_done(e->l->vision) : 0);
    if (ntx_now_ns() - r->began_ns >= PROMPT_NS && ntx_reply_queue_room(r->replies) > NTX_REPLY_QUEUE_FULL / 2)
        ntx_mail_progress(e->c.mail, r->replies, r->req->id, "picture", NTX_MIN(done, all), all);
}

void ntx_engine_tell_progress(struct ntx_engine *e)
{
    uint64_t now = ntx_now_ns();
    ntx_reader_now(e->encoder, tell_encoding, e);
    pthread_mutex_lock(&e->lock);
    uint64_t since = e->n_members ? now - e->joined_ns : 0;
    if (since >= PROMPT_NS) {
        struct pace p = pace_of(e, now);
        for (uint32_t i = 0; i < e->n_members; i++)
            if (since >= (e->members[i].prompt ? PROMPT_NS : WRITING_NS) &&
                ntx_reply_queue_room(e->members[i].replies) > NTX_REPLY_QUEUE_FULL / 2)
                send_progress(e, &e->members[i], &p);
    }
    pthread_mutex_unlock(&e->lock);
}
