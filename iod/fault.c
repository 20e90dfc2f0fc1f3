/* SPDX-License-Identifier: Apache-2.0 */
/* fault.c: injects faults over another source, for tests. Rules are matched when a read is submitted and applied when
 * its result comes. The bytes are always really read; only the reported result changes. */
#include "iod/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "iod/hold.h"
#include "iod/source.h"

struct fault {
    struct ntx_source base;
    struct ntx_source *over;
    struct ntx__fault rules;
    uint32_t block;
    bool doomed;           /* a kill rule fired for a read that is not yet flushed */
    uint64_t stall_until;  /* ns */
    struct ntx__hold hold; /* flags: bits of enum ntx__fault_what; due: the delay, until the result comes */
    struct ntx__held ready[NTX_IOD_MAX_READS]; /* due, kept for reordering */
    unsigned n_ready;
};

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static int fault_submit(struct ntx_source *s, const struct ntx_iod_read *rd)
{
    struct fault *f = (struct fault *)s;
    struct ntx__held *i = ntx__hold_expect(&f->hold, rd->tag);
    if (!i)
        return -EAGAIN;
    int rc = f->over->ops->submit(f->over, rd);
    if (rc) {
        ntx__hold_forget(&f->hold, i);
        return rc;
    }
    uint64_t stall = 0;
    i->flags = ntx__fault_event(&f->rules, NTX__AT_READ, rd, NTX_FREE, &i->due, &stall);
    if (stall)
        f->stall_until = ntx_now_ns() + stall;
    f->doomed |= i->flags >> NTX__FAULT_KILL & 1;
    return 0;
}

static int fault_flush(struct ntx_source *s)
{
    struct fault *f = (struct fault *)s;
    int rc = f->over->ops->flush(f->over);
    if (!rc && f->doomed)
        die();
    return rc;
}

static void on_result_below(void *ctx, uint64_t tag, int32_t result)
{
    struct fault *f = ctx;
    struct ntx__held *i = ntx__hold_came(&f->hold, tag, result);
    if (!i)
        return;
    if (ntx__fault_event(&f->rules, NTX__AT_DONE, NULL, NTX_FREE, NULL, NULL))
        die();
    if (i->flags >> NTX__FAULT_EIO & 1)
        i->result = -EIO;
    else if (i->flags >> NTX__FAULT_SHORT & 1 && result > 0)
        i->result = (int32_t)((uint32_t)result / 2 / f->block * f->block);
    uint64_t now = ntx_now_ns();
    i->due = NTX_MAX(i->due ? now + i->due : 0, f->stall_until > now ? f->stall_until : 0);
}

/* Delivers due results: at once, or in random order when enough of them are here or no more can come. */
static void deliver_results(struct fault *f, ntx_source_cb *cb, void *ctx)
{
    bool more = f->hold.n > 0;
    if (f->rules.reorder && f->n_ready < f->rules.reorder && more)
        return;
    while (f->n_ready) {
        unsigned k = f->rules.reorder ? ntx__fault_random(&f->rules, f->n_ready) : 0;
        struct ntx__held i = f->ready[k];
        f->n_ready--;
        memmove(&f->ready[k], &f->ready[k + 1], (f->n_ready - k) * sizeof(i));
        cb(ctx, i.tag, i.result);
    }
}

static void fault_reap(struct ntx_source *s, ntx_source_cb *cb, void *ctx)
{
    struct fault *f = (struct fault *)s;
    f->over->ops->reap(f->over, on_result_below, f);
    while (f->n_ready < NTX_IOD_MAX_READS && ntx__hold_take(&f->hold, ntx_now_ns(), &f->ready[f->n_ready]))
        f->n_ready++;
    deliver_results(f, cb, ctx);
    ntx__hold_arm(&f->hold);
}

static unsigned fault_fds(const struct ntx_source *s, int *fds, unsigned n)
{
    const struct fault *f = (const struct fault *)s;
    n = f->over->ops->fds(f->over, fds, n);
    fds[n] = f->hold.timer;
    return n + 1;
}

static unsigned fault_inflight(const struct ntx_source *s)
{
    const struct fault *f = (const struct fault *)s;
    return f->over->ops->inflight(f->over);
}

static struct ntx_source_ring fault_ring(const struct ntx_source *s)
{
    const struct fault *f = (const struct fault *)s;
    return f->over->ops->ring(f->over);
}

static void fault_state(struct ntx_source *s, enum ntx_state state)
{
    struct fault *f = (struct fault *)s;
    if (ntx__fault_event(&f->rules, NTX__AT_STATE, NULL, state, NULL, NULL))
        die();
}

static void fault_close(struct ntx_source *s)
{
    struct fault *f = (struct fault *)s;
    ntx_source_close(f->over);
    ntx__hold_close(&f->hold);
    free(f);
}

static const struct ntx_source_ops fault_ops = {
    .name = "fault",
    .submit = fault_submit,
    .flush = fault_flush,
    .reap = fault_reap,
    .fds = fault_fds,
    .inflight = fault_inflight,
    .ring = fault_ring,
    .state = fault_state,
    .close = fault_close,
};

int ntx_source_fault(struct ntx_source *over, const char *rules, uint32_t start, uint32_t block,
                     struct ntx_source **out, struct ntx_err *err)
{
    struct fault *f = calloc(1, sizeof(*f));
    if (!f)
        return ntx_err_set(err, -ENOMEM, "no memory for a byte source");
    f->base.ops = &fault_ops;
    f->over = over;
    f->block = block;
    int rc = ntx__fault_parse(rules, start, &f->rules, err);
    if (!rc && (rc = ntx__hold_open(&f->hold)))
        ntx_err_set(err, rc, "cannot make a timer: %s", strerror(-rc));
    if (rc) {
        free(f);
        return rc;
    }
    *out = &f->base;
    return 0;
}
