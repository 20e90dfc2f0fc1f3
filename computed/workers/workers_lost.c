/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that end again and again before they have done anything. After one death the next worker gets the region at
 * once. After three in a row without work done it waits for the region, each time twice as long. After ten (a
 * predictor: six), or when none comes at all, it is lost: that is reported, and nothing waits for it until it has done
 * something.
 *
 *   died: deaths++, if there was something to do and nothing was done
 *   admitted: lost? the region, now or later
 *
 * Only its parent knows how it ended, and leaves that in DIR/ntx-iod.end or DIR/ntx-predictor.end. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/workers/workers_impl.h"

#define AT_ONCE               2   /* deaths in a row after which the next one still gets the region at once */
#define PAUSE_MS              50u /* after one more death; then doubled */
#define PAUSE_MOST_MS         2000u
#define DEATHS_MOST           10     /* deaths in a row, after which it is lost */
#define DEATHS_MOST_PREDICTOR 6      /* fewer, since computing works without it */
#define FRUITLESS_S           30u    /* it is also lost after so long with three deaths */
#define ABSENT_MS             10000u /* or if none has come for so long */
#define LOST_MS               5000u  /* pause of a lost worker; one that has lived so long is not lost any more */
#define LOOK_MS               500u
#define SECOND                1000000000ull

static const char *name_of(enum ntx_role role) { return role == NTX_ROLE_IOD ? "ntx-iod" : "ntx-predictor"; }

static void end_path(const struct ntx_workers *w, enum ntx_role role, char *path, size_t n)
{
    snprintf(path, n, "%s/%s.end", w->dir, name_of(role));
}

void ntx__trials_forget_end(const struct ntx_workers *w, enum ntx_role role)
{
    char path[sizeof w->dir + 32];
    end_path(w, role, path, sizeof path);
    unlink(path);
}

bool ntx_workers_end(const struct ntx_workers *w, enum ntx_role role, char *buf, size_t n)
{
    char path[sizeof w->dir + 32], text[160];
    end_path(w, role, path, sizeof path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t k = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[k > 0 ? k : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    for (char *p = text; *p; p++)
        *p = *p >= ' ' && *p < 127 ? *p : '?';
    snprintf(buf, n, "%s", text);
    return *text;
}

const char *ntx_workers_lost(const struct ntx_workers *w, enum ntx_role role)
{
    return w->trials[role].lost ? w->trials[role].why : NULL;
}

static uint64_t done_by(const struct ntx_workers *w, enum ntx_role role, bool *wanted)
{
    uint64_t done = 0;
    *wanted = w->cb.done && w->cb.done(w->cb.ctx, role, &done);
    return done;
}

static void wait_ms(struct ntx_workers *w, enum ntx_role role, uint64_t ms);

static void declare_lost(struct ntx_workers *w, enum ntx_role role)
{
    struct ntx__trials *t = &w->trials[role];
    char how[160], last[200] = "";
    if (t->lost)
        return;
    if (ntx_workers_end(w, role, how, sizeof how))
        snprintf(last, sizeof last, " (the last time: %s)", how);
    if (w->worker[role])
        snprintf(t->why, sizeof t->why, "%s ended %u times in a row before it had %s anything%s", name_of(role),
                 t->deaths, role == NTX_ROLE_IOD ? "read" : "answered", last);
    else
        snprintf(t->why, sizeof t->why, "%s ended%s and did not come back within %u s", name_of(role), last,
                 ABSENT_MS / 1000);
    t->lost = true;
    if (w->cb.lost)
        w->cb.lost(w->cb.ctx, role, t->why);
}

static void on_found(struct ntx_workers *w, enum ntx_role role)
{
    struct ntx__trials *t = &w->trials[role];
    t->lost = false;
    t->deaths = 0;
    ntx_log(NTX_LOG_INFO, "%s works again", name_of(role));
    if (w->cb.found)
        w->cb.found(w->cb.ctx, role);
}

static void offer_region(struct ntx__peer *p)
{
    struct ntx_workers *w = p->w;
    const enum ntx_role role = p->role;
    w->trials[role].offered_ns = ntx_now_ns();
    ntx__peer_offer(p);
    if (w->trials[role].lost)
        wait_ms(w, role, LOOK_MS);
}

static void on_timer(uv_timer_t *h)
{
    struct ntx_workers *w = h->data;
    const enum ntx_role role = h == &w->trials[NTX_ROLE_IOD].timer ? NTX_ROLE_IOD : NTX_ROLE_PREDICTOR;
    struct ntx__trials *t = &w->trials[role];
    struct ntx__peer *p = w->worker[role];
    bool wanted;
    if (!w->offer.there || (p && p->leaving))
        return;
    if (!p)
        declare_lost(w, role);
    else if (!p->holds)
        offer_region(p);
    else if (t->lost && (done_by(w, role, &wanted) != t->done || ntx_now_ns() - t->offered_ns > LOST_MS * 1000000ull))
        on_found(w, role);
    else if (t->lost)
        wait_ms(w, role, LOOK_MS);
}

static void wait_ms(struct ntx_workers *w, enum ntx_role role, uint64_t ms)
{
    uv_timer_start(&w->trials[role].timer, on_timer, ms, 0);
}

void ntx__trials_begin(struct ntx_workers *w)
{
    bool wanted;
    for (enum ntx_role role = NTX_ROLE_IOD; role <= NTX_ROLE_PREDICTOR; role++) {
        struct ntx__trials *t = &w->trials[role];
        uv_timer_stop(&t->timer);
        t->deaths = 0;
        t->lost = false;
        t->done = done_by(w, role, &wanted);
    }
}

void ntx__trials_end(struct ntx_workers *w)
{
    for (enum ntx_role role = NTX_ROLE_IOD; role <= NTX_ROLE_PREDICTOR; role++)
        uv_timer_stop(&w->trials[role].timer);
}

/* Work up to now counts for the dead worker, even if only its successor reports it. */
void ntx__trials_died(struct ntx_workers *w, enum ntx_role role)
{
    struct ntx__trials *t = &w->trials[role];
    bool wanted;
    if (!w->offer.there)
        return;
    uint64_t done = done_by(w, role, &wanted);
    if (done != t->done) {
        t->done = done;
        t->deaths = 0;
    } else if (wanted && !t->deaths++) {
        t->since_ns = ntx_now_ns();
    }
    wait_ms(w, role, ABSENT_MS);
}

void ntx__trials_admitted(struct ntx__peer *p)
{
    struct ntx_workers *w = p->w;
    const enum ntx_role role = p->role;
    struct ntx__trials *t = &w->trials[role];
    uv_timer_stop(&t->timer);
    if (!w->offer.there)
        return;
    if (t->deaths >= (role == NTX_ROLE_IOD ? DEATHS_MOST : DEATHS_MOST_PREDICTOR) ||
        (t->deaths > AT_ONCE && ntx_now_ns() - t->since_ns > FRUITLESS_S * SECOND))
        declare_lost(w, role);
    else if (t->lost && t->deaths <= AT_ONCE) /* it was lost since none had come */
        on_found(w, role);
    if (!w->offer.there || w->worker[role] != p) /* the callback may have unloaded the model */
        return;
    if (t->lost)
        wait_ms(w, role, LOST_MS);
    else if (t->deaths > AT_ONCE)
        wait_ms(w, role, NTX_MIN(PAUSE_MS << (t->deaths - AT_ONCE - 1), PAUSE_MOST_MS));
    else
        offer_region(p);
}
