/* SPDX-License-Identifier: Apache-2.0 */
/* client.h: the library under the client programs: a connection to ntx-computed, with or without a private pipeline.
 *
 * Blocking, one thread, one client at a time. While it exists, the waiting calls take SIGINT and SIGTERM and return
 * -EINTR; before and afterwards the signals have their default effect. With a private pipeline the calls also notice
 * the end of ntx-computed: -EPIPE with the reason. */
#ifndef NTX_CLIENT_CLIENT_H
#define NTX_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "proto/frame.h"

struct ntx_client;
struct ntx_supervisor;

/* Connects to the daemons at `socket` (NULL: as where.h finds them). */
int ntx_client_connect(const char *socket, struct ntx_client **out, struct ntx_err *err);

/* Checks that the daemons answer, before the user is asked for input. Takes no signals. */
int ntx_client_there(const char *socket, struct ntx_err *err);

/* Starts a private pipeline in a temporary runtime directory, removed with the client. */
int ntx_client_captive(bool quiet, struct ntx_client **out, struct ntx_err *err);
/* The same for one machine of several (machines.h), whose socket only this process uses; its daemons log to stderr. */
int ntx_client_among(struct ntx_client **out, struct ntx_err *err);

/* Starts and supervises daemons in a known directory (`ntx up`). among: this is the first of several machines. */
int ntx_client_up(const char *dir, bool among, struct ntx_client **out, struct ntx_err *err);
struct ntx_supervisor *ntx_client_supervisor(struct ntx_client *c); /* NULL when only connected */
/* After a lost connection: connects to the same place, where daemons may run again. Requests and sessions are gone. */
int ntx_client_reconnect(struct ntx_client *c, struct ntx_err *err);

const char *ntx_client_dir(const struct ntx_client *c); /* runtime directory of the daemons that this process started */
void ntx_client_free(struct ntx_client *c);

/* Waits until fd is readable or at its end: 0, perhaps early; -EINTR at a signal, -ETIMEDOUT. timeout_ms -1: no
 * limit. */
int ntx_client_wait(int fd, int timeout_ms);
/* The signal that interrupted, 0 for none. */
int ntx_client_signalled(void);

/* Sends a request; sets m->id to a new number (also in *id unless NULL). */
int ntx_client_send(struct ntx_client *c, Ntx__Request *m, const int *fds, unsigned n_fds, uint64_t *id,
                    struct ntx_err *err);

/* The next reply to request `id` (others are dropped); free it with ntx__reply__free_unpacked(r, NULL). An Error
 * reply becomes a failure with its text. -EINTR: a signal came, the request still runs. timeout_ms -1: no limit;
 * -ETIMEDOUT. */
int ntx_client_next(struct ntx_client *c, uint64_t id, int timeout_ms, Ntx__Reply **out, struct ntx_err *err);

/* The replies to a request one after another, up to one of the kind `last`:
 *
 *     struct ntx_replies p = {.client = c, .last = NTX__REPLY__BODY_DONE};
 *     int rc = ntx_client_send(c, &q, NULL, 0, &p.id, err);
 *     while (ntx_client_more(&p, &rc, err))
 *         ... of p.reply, which it frees; rc other than 0 ends it
 */
struct ntx_replies {
    struct ntx_client *client;
    uint64_t id;
    Ntx__Reply__BodyCase last;
    Ntx__Reply *reply;
};
bool ntx_client_more(struct ntx_replies *p, int *rc, struct ntx_err *err);

/* The same for several concurrent requests: the next reply to any of them, Error replies included. */
int ntx_client_any(struct ntx_client *c, int timeout_ms, Ntx__Reply **out, struct ntx_err *err);

#endif
