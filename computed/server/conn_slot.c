/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of connections. On a socket for several users, each user has a limit, too. If all slots are taken, a newcomer
 * takes the slot of an idle connection. Without one it is over the limit: it may ask for the status and for a stop, and
 * any other request is refused with the reason. Idle clients over the limit make room in the same way. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/server/server_impl.h"

#define QUIET_S 10 /* seconds without a request, for a client without a conversation: then its slot may be taken */

struct ntx_user {
    struct ntx_user *next;
    uid_t uid;
    uint32_t n, over_limit;
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
    if (u->n || u->over_limit)
        return;
    while (*p != u)
        p = &(*p)->next;
    *p = u->next;
    free(u);
}

/* Whether no request or reply of it is open; ns: for how long. The process that started us keeps its slot, since we end
 * with it. */
static bool is_idle(struct ntx_server *s, const struct ntx_conn *c, uint64_t now, uint64_t *ns)
{
    uint64_t least = (c->talks ? s->c.idle_s : QUIET_S) * 1000000000ull;
    if (c->over_limit)
        least = 0;
    /* one over the limit gets its answer at once, or takes none */
    if ((!c->over_limit && (c->requests || c->out)) || c->closing || c->ours)
        return false;
    *ns = now - c->active_ns;
    return *ns >= least;
}

/* Its client has hung up, but the loop handles the newcomer's event first. */
static bool hung_up(const struct ntx_conn *c)
{
    struct pollfd p = {.fd = c->fd};
    return poll(&p, 1, 0) > 0 && (p.revents & POLLHUP);
}

/* The connection idle for longest, of the user with most connections; a client that has hung up goes first. only: of
 * this user. */
static struct ntx_conn *most_idle(struct ntx_server *s, const struct ntx_user *only, bool over_limit)
{
    uint64_t now = ntx__server_awake(s), longest = 0, ns;
    struct ntx_conn *best = NULL;
    for (struct ntx_conn *c = s->conns; c; c = c->next) {
        if (c->over_limit != over_limit || (only && c->user != only))
            continue;
        if (hung_up(c))
            return c;
        if (!is_idle(s, c, now, &ns))
            continue;
        uint32_t has = over_limit ? c->user->over_limit : c->user->n, had = 0;
        if (best)
            had = over_limit ? best->user->over_limit : best->user->n;
        if (has > had || (has == had && ns > longest)) {
            best = c;
            longest = ns;
        }
    }
    return best;
}

static bool close_idle(struct ntx_server *s, const struct ntx_user *only, bool over_limit)
{
    struct ntx_conn *c = most_idle(s, only, over_limit);
    if (!c)
        return false;
    ntx_log(NTX_LOG_DEBUG, "client %llu of user %u was idle: another one takes its place",
            (unsigned long long)ntx_reply_queue_client(c->replies), c->user->uid);
    ntx__conn_close(c);
    return true;
}

bool ntx__conn_slot_take(struct ntx_conn *c)
{
    struct ntx_server *s = c->server;
    struct ucred who;
    socklen_t len = sizeof who;
    if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &who, &len) || !(c->user = user_of(s, who.uid)))
        return false;
    c->uid = who.uid;
    ntx_reply_queue_whose(c->replies, s->c.share_all ? 0 : (uint64_t)who.uid + 1);
    c->ours = !s->c.service && who.pid && who.pid == getppid();
    c->user->n++; /* so that close_idle does not free the user */
    bool crowd = c->user->n > s->c.max_per_user;
    c->over_limit = (crowd || s->n_conns >= s->c.max_clients) && !close_idle(s, crowd ? c->user : NULL, false);
    if (c->over_limit) {
        c->user->n--;
        c->user->over_limit++;
    }
    if (c->over_limit && s->n_over_limit >= NTX_MAX_OVER_LIMIT && !close_idle(s, NULL, true)) {
        ntx__conn_slot_leave(c);
        return false;
    }
    *(c->over_limit ? &s->n_over_limit : &s->n_conns) += 1;
    c->counted = true;
    return true;
}

void ntx__conn_slot_leave(struct ntx_conn *c)
{
    if (!c->user)
        return;
    *(c->over_limit ? &c->user->over_limit : &c->user->n) -= 1;
    if (c->counted)
        *(c->over_limit ? &c->server->n_over_limit : &c->server->n_conns) -= 1;
    c->counted = false;
    forget_user(c->server, c->user);
    c->user = NULL;
}

/* Tells why it is over the limit. */
void ntx__conn_slot_refuse(struct ntx_conn *c, uint64_t id)
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
