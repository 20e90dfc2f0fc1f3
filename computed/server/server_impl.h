/* SPDX-License-Identifier: Apache-2.0 */
/* server_impl.h: internals that the server's files share.
 *
 *   server.c       life of the server: start, mail, timers, shutdown
 *   listen.c       the listening socket
 *   conn_slot.c         slots of connections, and clients over the limit
 *   client.c       a connection: frames in, frames out
 *   admission.c    bound on the bytes of requests, over all connections
 *   request.c      dispatch of requests
 *   text.c         tokenize and detokenize
 *   wire.c         messages as plain structs
 *   known.c        known models, and loads by name
 *   fd_receivers.c       processes that receive descriptors (receiver.h)
 *   open.c         pending loads: checked, opened, planned
 *   model.c        the states of the model
 *   warm_prefix.c  the warm prefix
 *   worker.c       messages from and to the workers
 *   health.c       what is wrong with the service
 *   watch.c        whether the model's files have changed
 *   keeper.c       the served model outlives the process
 *   status.c       the status object */
#ifndef NTX_COMPUTED_SERVER_SERVER_IMPL_H
#define NTX_COMPUTED_SERVER_SERVER_IMPL_H

#include "computed/engine/engine.h"
#include "computed/server/keeper.h"
#include "computed/engine/catalog.h"
#include "computed/engine/load.h"
#include "computed/server/server.h"
#include "computed/engine/reply.h"
#include "computed/server/wire.h"
#include "computed/workers/workers.h"
#include "proto/frame.h"

#define NTX_WORKERS_MS       10000 /* for both workers to be ready after a load */
#define NTX_DETACH_MS        8000  /* for both workers to detach from a region; workers.c expels them before */
#define NTX_MAX_NOTES        16
#define NTX_OVER_LIMIT_S     5   /* seconds for a client over the limit to send a request */
#define NTX_ACCEPT_MS        200 /* pause before accept is tried again without a free descriptor */

#define NTX_MAX_REQUESTS     16                           /* of a client, in progress */
#define NTX_ADMISSION_SHARES (2u << 20)                   /* divided into shares for all clients that may connect */
#define NTX_ADMISSION_FULL   (NTX_FRAME_MAX + (1u << 20)) /* beyond the shares, first come, first served */

struct ntx_out { /* a frame that waits for a client's socket */
    struct ntx_out *next;
    uint8_t *buf;
    size_t len, off;
};

struct ntx_conn {
    struct ntx_conn *next;
    struct ntx_server *server;
    struct ntx_reply_queue *replies;
    int fd;
    uid_t uid; /* user of the client */
    uv_poll_t poll;
    int events; /* events that poll waits for */
    struct ntx_frame_in in;
    struct ntx_fd_receiver *receiver; /* receives the next request, which comes with descriptors; or NULL */
    bool no_receiver;                 /* the request came with descriptors, and no receiver could be started */
    struct ntx_out *out, **last_out;
    uint64_t moved_ns; /* when output last began to wait, or moved, by ntx__server_awake */
    uint32_t requests; /* in progress */
    struct {
        uint64_t id;
        size_t bytes;
    } under_way[NTX_MAX_REQUESTS];
    size_t owed, beyond;   /* bytes of requests in progress and of a partial one; those beyond its share */
    size_t part;           /* of the partial request */
    uint64_t part_ns;      /* since when the rest of it could have come, by the same clock */
    uint64_t active_ns;    /* when it last sent or took bytes, by the same clock */
    bool closing;          /* no more input; closed once its output is sent */
    bool gone;             /* the handle is being closed */
    struct ntx_user *user; /* conn_slot.c */
    bool over_limit;       /* over the limit */
    bool counted;          /* it counts in the server's numbers */
    bool talks;            /* it has asked to keep a conversation */
    bool ours;             /* it belongs to the process that started us */
    uint64_t since_ns;
};

struct ntx_parked { /* a request that waits for a model that is being loaded */
    struct ntx_parked *next;
    struct ntx_reply_queue *replies;
    Ntx__Request *req;
};

enum ntx_model_state {
    NTX_MODEL_EMPTY,
    NTX_MODEL_UNLOADING,
    NTX_MODEL_BUILDING,
    NTX_MODEL_WAITING,
    NTX_MODEL_FILLING,
    NTX_MODEL_READY
};

struct ntx_requester { /* the client to tell the outcome; replies NULL: it is logged */
    struct ntx_reply_queue *replies;
    uint64_t id;
};

struct ntx_fd_receiver { /* fd_receivers.c */
    struct ntx_fd_receiver *next;
    struct ntx_server *server;
    pid_t pid;
    uid_t uid;       /* user whose descriptors it has */
    int sock, pidfd; /* sock -1: it is not read any more */
    uv_poll_t io, death;
    unsigned handles; /* of the two, those not yet closed */
    bool reaped;
    struct ntx_conn *conn;                 /* connection whose request it receives, until its order */
    struct ntx_pending_load *pending_load; /* the load that it checks then */
    bool asked;                            /* the request has come */
    uint32_t len;                          /* of the request */
    size_t have;
    uint8_t *body;
    uint64_t since_ns;
};

struct ntx_pending_load { /* open.c */
    struct ntx_pending_load *next;
    struct ntx_server *server;
    struct ntx_requester requester;
    Ntx__Load *load;                  /* with the configuration's defaults */
    struct ntx_fd_receiver *receiver; /* first step; then */
    uv_work_t work;
    struct ntx_load_request *request;
    struct ntx_loaded *loaded;
    struct ntx_err err;
    int rc;
    bool working, dropped;
    bool stuck;   /* working for too long: its requester knows */
    bool again;   /* reloads an earlier model, only if none is loaded */
    bool revived; /* that one was served before this process */
    uint64_t since_ns, work_ns;
    atomic_bool stop;
};

struct ntx_trouble { /* of one part (shm/monitor.h); health.c */
    enum ntx_mon_grade grade;
    char text[sizeof((struct ntx_mon_trouble *)0)->text];
};

struct ntx_server {
    struct ntx_server_config c;
    uv_loop_t *loop;
    struct ntx_counters *counters;
    int counters_fd;
    struct ntx_mailbox *mail;
    struct ntx_workers *workers;

    char socket_path[108];
    int listen_fd;
    uv_poll_t listen_poll;
    uv_timer_t again;               /* listening pauses without a free descriptor */
    uint64_t refused_ns, n_refused; /* when that was last logged; how often it happened since */
    struct ntx_conn *conns;
    uint32_t n_conns, n_over_limit; /* connections within and over the limit */
    struct ntx_user *users;
    uint64_t last_client;
    struct ntx_output_budget output_budget; /* of all reply queues */
    struct ntx_reply_queue *warm_prefix;    /* reply queue of the warm prefix's request, which has no client */
    size_t admitted;                        /* bytes beyond the shares, of all clients */
    struct ntx_conn *big;                   /* the client whose request comes in beyond its share, or NULL */
    struct ntx_parked *held, **last_parked;

    enum ntx_model_state state;
    struct ntx_loaded *loaded;  /* from BUILDING on, until a thread frees it */
    struct ntx_loaded *leaving; /* being freed by a thread */
    uint64_t loaded_bytes;      /* bytes of either */
    struct ntx_skip *skip;
    struct ntx_engine *engine; /* from FILLING on, until it has stopped */
    bool following;            /* instead, a thread follows the first machine */
    int followed_rc;           /* its result */
    char followed_why[256];
    Ntx__Load *load, *next_load; /* messages of loaded and next */
    uint64_t loading_ns;         /* since when the last one is being loaded */
    struct ntx_loaded *next;     /* opened; waits until the old model is unloaded */
    bool revived;                /* the model being loaded was served by an ntx-computed that died */
    struct ntx_kept old;         /* the replaced model, which is loaded again if the new one fails */
    struct ntx_pending_load *pending_loads;
    struct ntx_fd_receiver *receivers;
    char *known_list; /* known.c: the list, its latest scan, and defaults of loads by name (NULL: c.defaults) */
    Ntx__Load *known_defaults;
    struct ntx_catalog known;
    bool on_request;          /* the sender of the list loads no model itself */
    bool each_state;          /* each known model has a prefix store of its own */
    struct ntx_parked *asked; /* requests that wait for a scan that has not begun */
    struct known_scan *scan;  /* that is under way, since scan_ns */
    uint64_t scan_ns;
    bool had_load;                /* the first load was begun */
    bool scan_hangs, was_scanned; /* was_scanned: `known` is the result of one */
    struct {
        unsigned waiting;
        char next[NTX_KNOWN_NAME];
        uint64_t since_ns, told_ns;
    } queue;      /* of a gateway, as it said last */
    bool closing; /* a load waits for the end of the present answers: new requests are parked */
    struct ntx_requester loader, unloader, stopper;
    struct ntx_err load_err; /* why the model that is being unloaded failed to load */
    uv_work_t work;
    struct ntx_err work_err;
    int work_rc;
    uint64_t awake_ns, looked_ns; /* of ntx__server_awake */
    uint64_t epoch;
    uint64_t deadline_ns, progress_ns, full_ticks, filling_ns;
    uint64_t filled; /* FILLING: bytes that have come, and how long none may come */
    struct ntx_patience fill_patience;
    bool iod_ready, policy_ready;
    bool iod_owed, policy_owed; /* a configuration could not be sent yet */
    bool attached;              /* the workers have the region */
    char refused[3][300];       /* by enum ntx_role: why the last one was refused for good; "" once one was accepted */
    bool had_iod;               /* one was accepted before */
    bool no_iod; /* passes are aborted: the only ntx-iod was refused, or all ended before they had read anything */
    bool spoilt; /* passes are aborted: nothing can be read into this region any more */
    unsigned failed_ticks; /* checks of an arena that has failed, before ntx-iod said why */
    struct ntx_trouble trouble[NTX_MON_N_PARTS];
    uint64_t heard_ns[3];    /* by enum ntx_role: when it last sent something or connected, by ntx__server_awake */
    struct ntx_watch *watch; /* of the loaded model's files, or NULL */
    char iod_text[256];      /* the last failure that ntx-iod reported */
    char *notes[NTX_MAX_NOTES];
    unsigned n_notes;
    struct ntx_counts at_load;

    uv_timer_t tick;  /* while something is awaited */
    uv_timer_t pulse; /* while the engine is busy: reports its progress */
    uv_timer_t slow;  /* every second: health, and clients that do not read */
    uv_timer_t grace, hard;
    uint64_t saved; /* ntx_engine_saved when `hard` was last extended */
    bool draining, ending, closed, stuck;
    const char *lost; /* of ntx_server_lost */
    uint64_t started_ns;
};

/* ---- server.c */
void ntx__server_pulse(struct ntx_server *s); /* the engine has work now */
void ntx__server_step(struct ntx_server *s);  /* something changed: continues a shutdown or a pending load */

/* ---- listen.c */
int ntx__listen(struct ntx_server *s, struct ntx_err *err);
void ntx__unlisten(struct ntx_server *s);
void ntx__clear_links(const char *dir);

/* ---- conn_slot.c */
bool ntx__conn_slot_take(struct ntx_conn *c); /* gives a new connection a slot, or one over the limit; false: neither */
void ntx__conn_slot_leave(struct ntx_conn *c);
void ntx__conn_slot_refuse(struct ntx_conn *c, uint64_t id); /* tells a client over the limit why, and closes it */

/* ---- client.c */
void ntx__conn_new(struct ntx_server *s, int fd);
struct ntx_conn *ntx__conn_of(struct ntx_server *s, const struct ntx_reply_queue *replies);
void ntx__conn_send(struct ntx_conn *c, uint8_t *frame, size_t len); /* takes frame over */
/* closes now; frees everything that it held */
void ntx__conn_close(struct ntx_conn *c);
void ntx__conn_finish(struct ntx_conn *c);                                 /* closes once its output is sent */
void ntx__conn_taken(struct ntx_conn *c, const uint8_t *body, size_t len); /* the request that c's receiver took */
/* A reply was sent or discarded. */
void ntx__conn_sent(struct ntx_server *s, struct ntx_reply_queue *replies, size_t len);
/* Time that this process has run. Time while it was stopped (SIGSTOP, a paused container) does not count, since its
 * clients may have been stopped, too. */
uint64_t ntx__server_awake(struct ntx_server *s);
void ntx__conns_check(struct ntx_server *s); /* closes clients that were lost or do not read */
/* drops its requests, wherever they are */
void ntx__conns_drop_queue(struct ntx_server *s, struct ntx_reply_queue *replies);

void ntx__conn_update(struct ntx_conn *c); /* sets the events that poll waits for */

/* ---- admission.c: requests take memory from their first byte to their last reply. Each client has a share of
 * NTX_ADMISSION_SHARES. Beyond it, one client at a time may send a big request, while less than NTX_ADMISSION_FULL is
 * taken. The rest waits in the kernel: so no client can fill our memory, and small requests (a cancel, a status) always
 * get through. */
size_t ntx__admission_room(const struct ntx_conn *c);           /* bytes that may be read from it now */
void ntx__admission_part(struct ntx_conn *c, size_t bytes);     /* so many bytes of its next request have come */
bool ntx__admission_has(const struct ntx_conn *c, uint64_t id); /* a request with that id is in progress */
void ntx__admission_took(struct ntx_conn *c, uint64_t id, size_t bytes);
void ntx__admission_done(struct ntx_conn *c, uint64_t id); /* its last reply was sent */
void ntx__admission_forget(struct ntx_conn *c);            /* the client is gone */

/* ---- text.c: takes req over */
void ntx__text_request(struct ntx_conn *c, Ntx__Request *req);

/* ---- request.c: takes req over */
void ntx__request(struct ntx_conn *c, Ntx__Request *req, size_t bytes); /* bytes: memory of the request */
/* why no model may be loaded or unloaded now; NULL: it may, once no other is in transit */
const char *ntx__load_refusal(const struct ntx_server *s);
bool ntx__answers_run(const struct ntx_server *s); /* which is one such reason */
#define NTX_STATE_ROOM 1200
/* The directory for the texts of a model that is loaded at start: m->state, or the model's own folder in it, in buf. It
 * looks at the files of all known models. */
char *ntx__first_state(const struct ntx_server *s, const Ntx__Load *m, char buf[NTX_STATE_ROOM]);
/* Begins to load a known model. 0, or a negative errno with err. */
int ntx__load_known(struct ntx_conn *c, const Ntx__Request *req, const struct ntx_catalog_model *m,
                    struct ntx_err *err);
bool ntx__in_transit(const struct ntx_server *s); /* a model is being loaded or unloaded */
void ntx__release_parked(struct ntx_server *s);   /* the model is loaded, or will not be */

/* ---- known.c */
void ntx__known_request(struct ntx_conn *c, Ntx__Request *req); /* a Models, or a Load by name; takes req over */
const char *ntx__known_loaded(const struct ntx_server *s); /* id of the loaded model; "": it is not known, or none */
bool ntx__known_other(const struct ntx_server *s, const Ntx__Request *req); /* req is for another known model */
/* Adds how many requests wait for models in a gateway, and which model is being loaded, to the status. */
void ntx__known_queue(struct ntx_server *s, json_t *status);
void ntx__known_tick(struct ntx_server *s);  /* every second: a scan that hangs keeps nobody waiting */
void ntx__known_clear(struct ntx_server *s); /* the list */
void ntx__known_free(struct ntx_server *s);

/* ---- model.c */
/* Loads `next`; takes next, load and requester over. Only while ntx__load_refusal is NULL and nothing is in transit. */
void ntx__model_switch(struct ntx_server *s, const struct ntx_requester *requester, struct ntx_loaded *next,
                       Ntx__Load *load);
/* From READY, FILLING or WAITING. Calls ntx__server_step at the end. */
void ntx__model_unload(struct ntx_server *s);
/* A load that no client waits for has failed. */
void ntx__load_untold(struct ntx_server *s, const Ntx__Load *failed, const struct ntx_err *e);
void ntx__warm_prefix_begin(struct ntx_server *s); /* warm_prefix.c: a model is loaded */
void ntx__warm_prefix_reply(struct ntx_server *s, const uint8_t *body, size_t n);
void ntx__model_tick(struct ntx_server *s); /* progress and deadlines */
void ntx__model_engine_stopped(struct ntx_server *s);
void ntx__model_followed(struct ntx_server *s);
void ntx__model_detached(struct ntx_server *s);
void ntx__model_workers_ready(struct ntx_server *s);
void ntx__model_fail(struct ntx_server *s, int err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4))); /* the load in WAITING fails */
void ntx__model_note(struct ntx_server *s, const char *text);
void ntx__requester_clear(struct ntx_requester *a);
/* Sends an error and clears the requester. */
void ntx__requester_tell(struct ntx_server *s, struct ntx_requester *a, const struct ntx_err *e);

/* ---- fd_receivers.c */
int ntx__fd_receiver_new(
    struct ntx_server *s, struct ntx_conn *c,
    struct ntx_fd_receiver **out); /* c: its next request comes with descriptors. -EBUSY: too many for one user. */
/* Orders t to check a load; t then belongs to o. */
int ntx__fd_receiver_order(struct ntx_fd_receiver *t, struct ntx_pending_load *o, const Ntx__Load *m, bool foreign);
void ntx__fd_receiver_end(struct ntx_fd_receiver *t); /* kills it; NULL is fine */
void ntx__fd_receivers_check(struct ntx_server *s);   /* ends those that take too long */
void ntx__fd_receivers_close(struct ntx_server *s);

/* ---- open.c */
/* With the connection's receiver, if it has one. c NULL: for no client. */
int ntx__pending_load_new(struct ntx_server *s, struct ntx_conn *c, uint64_t id, const Ntx__Load *m);
/* Loads an earlier model again from its descriptors, which it takes over. revived: a dead ntx-computed served it. */
void ntx__pending_load_again(struct ntx_server *s, const Ntx__Load *m, const int *fds, unsigned n_fds, bool revived);
void ntx__pending_load_verdict(struct ntx_pending_load *o, int rc, const char *text, const int *fds, unsigned n_fds);
bool ntx__pending_load_of(const struct ntx_server *s, const struct ntx_reply_queue *replies); /* NULL: of any client */
void ntx__pending_loads_drop(struct ntx_server *s, const struct ntx_reply_queue *replies);
void ntx__pending_loads_check(struct ntx_server *s); /* gives up one whose files do not answer */
/* Switches to a load that is ready, if no model is in transit. */
void ntx__pending_loads_go(struct ntx_server *s);
void ntx__pending_loads_stop(struct ntx_server *s);

Ntx__Load *ntx__load_copy(const Ntx__Load *m); /* NULL: no memory */

/* ---- worker.c */
struct ntx_workers_cb ntx__worker_callbacks(struct ntx_server *s);
void ntx__worker_owed(struct ntx_server *s); /* tries again to send configurations */
/* In WAITING: goes on without a predictor that keeps dying. False: something else is missing. */
bool ntx__worker_do_without(struct ntx_server *s);
/* Why a worker will not come, or NULL: it is connected, or may yet come. */
const char *ntx__worker_unfit(const struct ntx_server *s);

/* ---- health.c */
void ntx__health_set(struct ntx_server *s, enum ntx_mon_part part, enum ntx_mon_grade grade, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void ntx__health_well(struct ntx_server *s, enum ntx_mon_part part);
enum ntx_mon_service ntx__health_look(struct ntx_server *s); /* checks the workers and updates the monitors */
bool ntx__health_serves(const struct ntx_server *s);         /* a request would be answered soon */
void ntx__health_tick(struct ntx_server *s);                 /* every second */
void ntx__health_heard(struct ntx_server *s, enum ntx_role role);

/* ---- watch.c */
void ntx__files_begin(struct ntx_server *s, bool again);
void ntx__files_look(struct ntx_server *s);
void ntx__files_end(struct ntx_server *s);

/* ---- status.c: malloc'd JSON */
char *ntx__status(struct ntx_server *s);

#endif
