/* SPDX-License-Identifier: Apache-2.0 */
/* throttle.c: emulates a slower drive over a faster one (shm/drive.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "iod/hold.h"
#include "iod/source.h"
#include "shm/drive.h"

struct throttle {
    struct ntx_source base;
    struct ntx_source *over;
    unsigned n_files; /* files of each drive */
    struct ntx_drive drive[NTX_IOD_MAX_DRIVES];
    _Atomic uint64_t until[NTX_IOD_MAX_DRIVES]; /* for drives that only ntx-iod reads */
    uint64_t credit;                            /* ns */
    struct ntx__hold hold;
};

static int throttle_submit(struct ntx_source *s, const struct ntx_iod_read *rd)
{
    struct throttle *t = (struct throttle *)s;
    struct ntx__held *i = ntx__hold_expect(&t->hold, rd->tag);
    if (!i)
        return -EAGAIN;
    int rc = t->over->ops->submit(t->over, rd);
    if (rc) {
        ntx__hold_forget(&t->hold, i);
        return rc;
    }
    i->due = ntx_drive_due(t->drive[rd->file / t->n_files % NTX_IOD_MAX_DRIVES], rd->len, ntx_now_ns(), t->credit);
    return 0;
}

static int throttle_flush(struct ntx_source *s)
{
    struct throttle *t = (struct throttle *)s;
    return t->over->ops->flush(t->over);
}

static void on_result_below(void *ctx, uint64_t tag, int32_t result)
{
    ntx__hold_came(&((struct throttle *)ctx)->hold, tag, result);
}

static void throttle_reap(struct ntx_source *s, ntx_source_cb *cb, void *ctx)
{
    struct throttle *t = (struct throttle *)s;
    struct ntx__held i;
    uint64_t now = ntx_now_ns(), late = 0;
    t->over->ops->reap(t->over, on_result_below, t);
    while (ntx__hold_take(&t->hold, now, &i)) {
        late = NTX_MAX(late, now - i.due);
        cb(ctx, i.tag, i.result);
    }
    t->credit = ntx_drive_credit(late);
    ntx__hold_arm(&t->hold);
}

static unsigned throttle_fds(const struct ntx_source *s, int *fds, unsigned n)
{
    const struct throttle *t = (const struct throttle *)s;
    n = t->over->ops->fds(t->over, fds, n);
    fds[n] = t->hold.timer;
    return n + 1;
}

static unsigned throttle_inflight(const struct ntx_source *s)
{
    const struct throttle *t = (const struct throttle *)s;
    return t->over->ops->inflight(t->over);
}

static struct ntx_source_ring throttle_ring(const struct ntx_source *s)
{
    const struct throttle *t = (const struct throttle *)s;
    return t->over->ops->ring(t->over);
}

static void throttle_close(struct ntx_source *s)
{
    struct throttle *t = (struct throttle *)s;
    ntx_source_close(t->over);
    ntx__hold_close(&t->hold);
    free(t);
}

static const struct ntx_source_ops throttle_ops = {
    .name = "throttle",
    .submit = throttle_submit,
    .flush = throttle_flush,
    .reap = throttle_reap,
    .fds = throttle_fds,
    .inflight = throttle_inflight,
    .ring = throttle_ring,
    .close = throttle_close,
};

int ntx_source_throttle(struct ntx_source *over, const double *bytes_per_s, unsigned n_drives, unsigned n_files,
                        _Atomic uint64_t *first, struct ntx_source **out, struct ntx_err *err)
{
    if (!n_drives || n_drives > NTX_IOD_MAX_DRIVES || !n_files)
        return ntx_err_set(err, -EINVAL, "%u drives: expected 1 to %d", n_drives, NTX_IOD_MAX_DRIVES);
    for (unsigned d = 0; d < n_drives; d++)
        if (!(bytes_per_s[d] >= 1))
            return ntx_err_set(err, -EINVAL, "rate of %g bytes per second: expected at least 1", bytes_per_s[d]);
    struct throttle *t = calloc(1, sizeof(*t));
    if (!t)
        return ntx_err_set(err, -ENOMEM, "no memory for a byte source");
    t->base.ops = &throttle_ops;
    t->over = over;
    t->n_files = n_files;
    for (unsigned d = 0; d < n_drives; d++)
        t->drive[d] = (struct ntx_drive){first && !d ? first : &t->until[d], 1e9 / bytes_per_s[d]};
    t->credit = NTX_DRIVE_CREDIT_NS;
    int rc = ntx__hold_open(&t->hold);
    if (rc) {
        free(t);
        return ntx_err_set(err, rc, "cannot make a timer: %s", strerror(-rc));
    }
    *out = &t->base;
    return 0;
}
