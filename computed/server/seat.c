/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets a connection when there are fewer than people want. A user has only so many of them where the socket serves
 * several users. Where all are taken, a connection that nobody uses gives its place to the newcomer; where there is
 * none, the newcomer is a guest: it may ask for the status and for the end, and anything else is answered with the
 * reason why it cannot be had. Of guests, too, who says nothing makes room. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/server/server_impl.h"

#define QUIET_S 10 /* without a request under way and without a conversation: then its place may be taken */

struct ntx_user {
    struct ntx_user *next;
    uid_t uid;
    uint32_t n, guests;
};

static struct ntx_user *user_of(struct ntx_server *s, uid_t uid)
{
    struct ntx_user *u = s->users;
    while (u && u->uid != uid)
        u = u->next;
    if (u || !(u = calloc(1, sizeof *u)))
        return u;
    u->uid = uid;
    u->next = s->users;
    s->users = u;
    return u;
}

static void forget_user(struct ntx_server *s, struct ntx_user *u)
{
    struct ntx_user **p = &s->users;
    if (u->n || u->guests)
        return;
    while (*p != u)
        p = &(*p)->next;
    *p = u->next;
    free(u);
}

/* Nobody waits for anything of it; ns: for how long. Whoever started us is not asked to go: we would end with it. */
static bool idle(struct ntx_server *s, const struct ntx_conn *c, uint64_t now, uint64_t *ns)
{
    uint64_t least = c->guest ? 0 : (c->talks ? s->c.idle_s : QUIET_S) * 1000000000ull;
    if ((!c->guest && (c->requests || c->out)) || c->closing ||
        c->ours) /* a guest is answered at once, or takes none of it */
        return false;
    *ns = now - c->active_ns;
    return *ns >= least;
}

/* Its client is gone, and the loop has not come to that yet: the newcomer's event was before it. */
static bool hung_up(const struct ntx_conn *c)
{
    struct pollfd p = {.fd = c->fd};
    return poll(&p, 1, 0) > 0 && (p.revents & POLLHUP);
}

/* Of the idle ones, the one that has been so for longest, of the user who has most; before those, one whose client is
 * gone. only: of this user. */
static struct ntx_conn *most_idle(struct ntx_server *s, const struct ntx_user *only, bool guests)
{
    uint64_t now = ntx__server_awake(s), longest = 0, ns;
    struct ntx_conn *best = NULL;
    for (struct ntx_conn *c = s->conns; c; c = c->next) {
        if (c->guest != guests || (only && c->user != only))
            continue;
        if (hung_up(c))
            return c;
        if (!idle(s, c, now, &ns))
            continue;
        uint32_t has = guests ? c->user->guests : c->user->n, had = !best    ? 0
                                                                    : guests ? best->user->guests
                                                                             : best->user->n;
        if (has > had || (has == had && ns > longest)) {
            best = c;
            longest = ns;
        }
    }
    return best;
}

static bool make_room(struct ntx_server *s, const struct ntx_user *only, bool guests)
{
    struct ntx_conn *c = most_idle(s, only, guests);
    if (!c)
        return false;
    ntx_log(NTX_LOG_DEBUG, "client %llu of user %u was idle: another one takes its place",
            (unsigned long long)ntx_reply_queue_client(c->replies), c->user->uid);
    ntx__conn_close(c);
    return true;
}

bool ntx__seat_take(struct ntx_conn *c)
{
    struct ntx_server *s = c->server;
    struct ucred who;
    socklen_t len = sizeof who;
    if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &who, &len) || !(c->user = user_of(s, who.uid)))
        return false;
    c->uid = who.uid;
    ntx_reply_queue_whose(c->replies, s->c.share_all ? 0 : (uint64_t)who.uid + 1);
    c->ours = !s->c.service && who.pid && who.pid == getppid();
    c->user->n++; /* so that making room does not forget the user */
    bool crowd = c->user->n > s->c.max_per_user;
    c->guest = (crowd || s->n_conns >= s->c.max_clients) && !make_room(s, crowd ? c->user : NULL, false);
    if (c->guest) {
        c->user->n--;
        c->user->guests++;
    }
    if (c->guest && s->n_guests >= NTX_MAX_GUESTS && !make_room(s, NULL, true)) {
        ntx__seat_leave(c);
        return false;
    }
    *(c->guest ? &s->n_guests : &s->n_conns) += 1;
    c->seated = true;
    return true;
}

void ntx__seat_leave(struct ntx_conn *c)
{
    if (!c->user)
        return;
    *(c->guest ? &c->user->guests : &c->user->n) -= 1;
    if (c->seated)
        *(c->guest ? &c->server->n_guests : &c->server->n_conns) -= 1;
    c->seated = false;
    forget_user(c->server, c->user);
    c->user = NULL;
}

/* Why it is a guest. */
void ntx__seat_refuse(struct ntx_conn *c, uint64_t id)
{
    struct ntx_server *s = c->server;
    if (c->user->n >= s->c.max_per_user)
        ntx_mail_error(s->mail, c->replies, id, -EUSERS,
                       "too many clients of one user: %u are connected, the limit; try again later", c->user->n);
    else
        ntx_mail_error(s->mail, c->replies, id, -EUSERS,
                       "too many clients: %u are connected, the limit; try again later", s->n_conns);
    ntx_mailbox_flush(s->mail);
    ntx__conn_finish(c);
}
