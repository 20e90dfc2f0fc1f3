/* SPDX-License-Identifier: Apache-2.0 */
#include "common/util.h"
#include "computed/server/server_impl.h"

static size_t client_share(const struct ntx_server *s) { return NTX_ADMISSION_SHARES / NTX_MAX(s->c.max_clients, 1u); }

size_t ntx__admission_room(const struct ntx_conn *c)
{
    const struct ntx_server *s = c->server;
    size_t share = client_share(s), room = c->owed < share ? share - c->owed : 0;
    if (!s->big || s->big == c)
        room += s->admitted < NTX_ADMISSION_FULL ? NTX_ADMISSION_FULL - s->admitted : 0;
    return room;
}

/* Updates the totals after c->owed or c->part has changed. */
static void recount(struct ntx_conn *c)
{
    struct ntx_server *s = c->server;
    size_t share = client_share(s), beyond = c->owed > share ? c->owed - share : 0, before = s->admitted;
    const struct ntx_conn *big = s->big;
    s->admitted += beyond - c->beyond;
    c->beyond = beyond;
    if (c->part && beyond && !s->big) {
        s->big = c;
        c->part_ns = ntx__server_awake(s);
    } else if (s->big == c && !(c->part && beyond)) {
        s->big = NULL;
    }
    if (s->admitted < before || (big && !s->big)) /* others may read again */
        for (struct ntx_conn *o = s->conns; o; o = o->next)
            ntx__conn_update(o);
}

void ntx__admission_part(struct ntx_conn *c, size_t bytes)
{
    if (bytes && !c->part)
        c->part_ns = ntx__server_awake(c->server);
    c->owed += bytes - c->part;
    c->part = bytes;
    recount(c);
}

bool ntx__admission_has(const struct ntx_conn *c, uint64_t id)
{
    for (unsigned i = 0; i < NTX_MAX_REQUESTS; i++)
        if (c->under_way[i].bytes && c->under_way[i].id == id)
            return true;
    return false;
}

void ntx__admission_took(struct ntx_conn *c, uint64_t id, size_t bytes)
{
    for (unsigned i = 0; i < NTX_MAX_REQUESTS; i++)
        if (!c->under_way[i].bytes) {
            c->under_way[i].id = id;
            c->under_way[i].bytes = bytes;
            c->owed += bytes;
            break;
        }
    recount(c);
}

void ntx__admission_done(struct ntx_conn *c, uint64_t id)
{
    for (unsigned i = 0; i < NTX_MAX_REQUESTS; i++)
        if (c->under_way[i].bytes && c->under_way[i].id == id) {
            c->owed -= c->under_way[i].bytes;
            c->under_way[i].bytes = 0;
            break;
        }
    recount(c);
}

void ntx__admission_forget(struct ntx_conn *c)
{
    c->owed = c->part = 0;
    recount(c);
}
