/* SPDX-License-Identifier: Apache-2.0 */
#include "iod/hold.h"

#include <errno.h>
#include <stddef.h>
#include <sys/timerfd.h>
#include <unistd.h>

int ntx__hold_open(struct ntx__hold *h)
{
    h->n = 0;
    h->armed = 0;
    h->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return h->timer < 0 ? -errno : 0;
}

void ntx__hold_close(struct ntx__hold *h)
{
    if (h->timer >= 0)
        close(h->timer);
    h->timer = -1;
}

struct ntx__held *ntx__hold_expect(struct ntx__hold *h, uint64_t tag)
{
    if (h->n == NTX_SOURCE_DEPTH)
        return NULL;
    struct ntx__held *i = &h->item[h->n++];
    *i = (struct ntx__held){.tag = tag};
    return i;
}

void ntx__hold_forget(struct ntx__hold *h, struct ntx__held *i) { *i = h->item[--h->n]; }

struct ntx__held *ntx__hold_came(struct ntx__hold *h, uint64_t tag, int32_t result)
{
    for (unsigned k = 0; k < h->n; k++) {
        struct ntx__held *i = &h->item[k];
        if (i->tag == tag && !i->came) {
            i->came = true;
            i->result = result;
            return i;
        }
    }
    return NULL;
}

static struct ntx__held *first_due(struct ntx__hold *h)
{
    struct ntx__held *f = NULL;
    for (unsigned k = 0; k < h->n; k++)
        if (h->item[k].came && (!f || h->item[k].due < f->due))
            f = &h->item[k];
    return f;
}

bool ntx__hold_take(struct ntx__hold *h, uint64_t now, struct ntx__held *out)
{
    struct ntx__held *f = first_due(h);
    if (!f || f->due > now)
        return false;
    *out = *f;
    ntx__hold_forget(h, f);
    return true;
}

void ntx__hold_arm(struct ntx__hold *h)
{
    const struct ntx__held *f = first_due(h);
    uint64_t due = 0;
    if (f)
        due = f->due ? f->due : 1;
    if (!due && !h->armed)
        return; /* else set it, even to the same time: that clears a fired timer's descriptor */
    struct itimerspec t = {.it_value = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)}};
    timerfd_settime(h->timer, TFD_TIMER_ABSTIME, &t, NULL);
    h->armed = due;
}
