/* SPDX-License-Identifier: Apache-2.0 */
/* server_impl.h: what the parts of the server share; nobody else includes it.
 *
 *   server.c          life of the server: start, mail, timers, shutdown
 *   listen.c   the listening socket
 *   seat.c     who gets a connection when there are too few
 *   client.c   a connection: frames in, frames out
 *   admission.c    how much may come in, over all connections
 *   request.c  what a request does
 *   text.c     what the vocabulary says
 *   wire.c     messages as plain structs
 *   takers.c     processes that take what comes with descriptors
 *   open.c     loads on their way: looked at, opened, planned
 *   model.c    the states of the model
 *   worker.c   what the workers say
 *   health.c   what troubles it
 *   watch.c    whether the model's files are what was loaded
 *   status.c   the status object */
#ifndef NTX_COMPUTED_SERVER_SERVER_IMPL_H
#define NTX_COMPUTED_SERVER_SERVER_IMPL_H

#include "computed/engine/engine.h"
#include "computed/server/keeper.h"
#include "computed/engine/load.h"
#include "computed/server/server.h"
#include "computed/engine/reply.h"
#include "computed/server/wire.h"
#include "computed/workers/workers.h"
#include "proto/frame.h"

#define NTX_WORKERS_MS       10000 /* for both workers to be there after a load */
#define NTX_DETACH_MS        8000  /* for both workers to let go of a region: workers.c expels them before */
#define NTX_MAX_NOTES        16
#define NTX_GUEST_S          5   /* for a guest to ask */
#define NTX_ACCEPT_MS        200 /* until it is tried again, where there is no descriptor for a client */

#define NTX_MAX_REQUESTS     16                           /* of a client, under way */
#define NTX_ADMISSION_SHARES (2u << 20)                   /* shared out over all clients that may connect */
#define NTX_ADMISSION_FULL   (NTX_FRAME_MAX + (1u << 20)) /* beyond those, for whoever comes first */

struct ntx_out { /* a frame on its way to a client */
    struct ntx_out *next;
    uint8_t *buf;
    size_t len, off;
};

struct ntx_conn {
    struct ntx_conn *next;
    struct ntx_server *server;
    struct ntx_reply_queue *replies;
    int fd;
    uid_t uid; /* who connected */
    uv_poll_t poll;
    int events; /* what poll waits for */
    struct ntx_frame_in in;
    struct ntx_fd_receiver *receiver; /* has the next request, which comes with descriptors; NULL: nobody has */
    bool no_receiver;                 /* the request under way came with some, and nobody could take them */
    struct ntx_out *out, **last_out;
    uint64_t moved_ns; /* when output last began to wait, or moved, by ntx__server_awake */
    uint32_t requests; /* under way */
    struct {
        uint64_t id;
        size_t bytes;
    } under_way[NTX_MAX_REQUESTS];
    size_t owed, beyond;   /* bytes of requests under way and of one that has come in part; those beyond its share */
    size_t part;           /* of one that has come in part */
    uint64_t part_ns;      /* since when it could have come as a whole, by the same */
    uint64_t active_ns;    /* when it last asked or was answered, by the same */
    bool closing;          /* no more input; closed once its output is gone */
    bool gone;             /* the handle is being closed */
    struct ntx_user *user; /* seat.c */
    bool guest;            /* one too many */
    bool seated;           /* counted */
    bool talks;            /* it has asked for a conversation to be kept */
    bool ours;             /* of the process that started us */
    uint64_t since_ns;
};

struct ntx_parked { /* a request that waits for a model on its way */
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

struct ntx_requester { /* who is told how it ended; writer NULL: nobody, it is logged */
    struct ntx_reply_queue *replies;
    uint64_t id;
};

struct ntx_fd_receiver { /* takers.c */
    struct ntx_fd_receiver *next;
    struct ntx_server *server;
    pid_t pid;
    uid_t uid;       /* whose descriptors it has */
    int sock, pidfd; /* sock -1: nobody listens to it any more */
    uv_poll_t io, death;
    unsigned handles; /* of the two, those that are not closed yet */
    bool reaped;
    struct ntx_conn *conn;                 /* whose request it takes; until it is ordered to look */
    struct ntx_pending_load *pending_load; /* for which it then looks */
    bool asked;                            /* the request is here */
    uint32_t len;                          /* of it */
    size_t have;
    uint8_t *body;
    uint64_t since_ns;
};

struct ntx_pending_load { /* open.c */
    struct ntx_pending_load *next;
    struct ntx_server *server;
    struct ntx_requester requester;
    Ntx__Load *load;                  /* with the configuration's values */
    struct ntx_fd_receiver *receiver; /* first; then */
    uv_work_t work;
    struct ntx_load_request *request;
    struct ntx_loaded *loaded;
    struct ntx_err err;
    int rc;
    bool working, dropped;
    bool again;   /* a model that was there before: only if none is */
    bool revived; /* and before this process */
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
    uv_timer_t again;               /* listening rests for want of a descriptor */
    uint64_t refused_ns, n_refused; /* when that was last said; how often it was so since */
    struct ntx_conn *conns;
    uint32_t n_conns, n_guests; /* n_conns without guests */
    struct ntx_user *users;
    uint64_t last_client;
    struct ntx_output_budget output_budget; /* of the writers, guests' too */
    struct ntx_reply_queue *warm_prefix;    /* who asks for [prefix]'s text: nobody that is connected */
    size_t admitted;                        /* bytes beyond the shares, of all clients */
    struct ntx_conn *big;                   /* whose request is coming in beyond its share; NULL: nobody's */
    struct ntx_parked *held, **last_parked;

    enum ntx_model_state state;
    struct ntx_loaded *loaded;  /* from BUILDING on, until a thread frees it */
    struct ntx_loaded *leaving; /* a thread frees it */
    uint64_t loaded_bytes;      /* what either takes */
    struct ntx_skip *skip;
    struct ntx_engine *engine; /* from FILLING on, until it has stopped */
    bool following;            /* or a thread that follows the first machine */
    int followed_rc;           /* how it ended */
    char followed_why[256];
    Ntx__Load *load, *next_load; /* by which loaded and next came */
    struct ntx_loaded *next;     /* opened, waits for the old model to go */
    bool revived;                /* the one on its way was served by an ntx-computed that died */
    struct ntx_kept old;         /* the model that the one on its way replaces: it comes back if that one fails */
    struct ntx_pending_load *pending_loads;
    struct ntx_fd_receiver *receivers;
    struct ntx_requester loader, unloader, stopper;
    struct ntx_err load_err; /* why the model that is being unloaded did not come up */
    uv_work_t work;
    struct ntx_err work_err;
    int work_rc;
    uint64_t awake_ns, looked_ns; /* ntx__server_awake's */
    uint64_t epoch;
    uint64_t deadline_ns, progress_ns, full_ticks, filling_ns;
    uint64_t filled; /* FILLING: a measure of what has come, and how long nothing more may come */
    struct ntx_patience fill_patience;
    bool iod_ready, policy_ready;
    bool iod_owed, policy_owed; /* a configuration could not be sent yet */
    bool attached;              /* the region is the workers' */
    char refused[3][300]; /* by enum ntx_role: why the last one that came was refused for good; "" where one was taken
                             since */
    bool had_iod;         /* one was taken once */
    bool no_iod; /* passes are aborted, since the only ntx-iod there is was refused, or all there were ended before they
                    had read anything */
    bool spoilt; /* passes are aborted: nothing can be read into this region any more */
    unsigned failed_ticks; /* looks at an arena that has failed, before iod said why */
    struct ntx_trouble trouble[NTX_MON_N_PARTS];
    uint64_t heard_ns[3];    /* by enum ntx_role: when it last said something, or came, by ntx__server_awake */
    struct ntx_watch *watch; /* of the loaded model's files; NULL: none is */
    char iod_text[256];      /* the last failure that iod told */
    char *notes[NTX_MAX_NOTES];
    unsigned n_notes;
    struct ntx_counts at_load;

    uv_timer_t tick;  /* while something is awaited */
    uv_timer_t pulse; /* while the engine is busy: how far it is */
    uv_timer_t slow;  /* every second: clients that do not read */
    uv_timer_t grace, hard;
    uint64_t saved; /* ntx_engine_saved's, when `hard` was put off last */
    bool draining, ending, closed, stuck;
    const char *lost; /* ntx_server_lost */
    uint64_t started_ns;
};

/* ---- server.c */
void ntx__server_pulse(struct ntx_server *s); /* the engine has got something to do */
void ntx__server_step(struct ntx_server *s);  /* something changed: on with the shutdown, where there is one */

/* ---- listen.c */
int ntx__listen(struct ntx_server *s, struct ntx_err *err);
void ntx__unlisten(struct ntx_server *s);
void ntx__clear_links(const char *dir);

/* ---- seat.c */
bool ntx__seat_take(struct ntx_conn *c); /* a place for a new connection, or a guest's; false: neither */
void ntx__seat_leave(struct ntx_conn *c);
void ntx__seat_refuse(struct ntx_conn *c, uint64_t id); /* tells a guest why, and closes it */

/* ---- client.c */
void ntx__conn_new(struct ntx_server *s, int fd);
struct ntx_conn *ntx__conn_of(struct ntx_server *s, const struct ntx_reply_queue *replies);
void ntx__conn_send(struct ntx_conn *c, uint8_t *frame, size_t len);       /* takes frame over */
void ntx__conn_close(struct ntx_conn *c);                                  /* now; frees what it held */
void ntx__conn_finish(struct ntx_conn *c);                                 /* once its output is gone */
void ntx__conn_taken(struct ntx_conn *c, const uint8_t *body, size_t len); /* the request that c's taker took */
void ntx__conn_sent(struct ntx_server *s, struct ntx_reply_queue *replies,
                    size_t len); /* a reply went out, or was thrown away */
/* Time that this process has run so far: what it was stopped for (SIGSTOP, a paused container) is left out, as its
 * clients may have been, too. */
uint64_t ntx__server_awake(struct ntx_server *s);
void ntx__conns_check(struct ntx_server *s); /* drops clients that were lost or do not read */
void ntx__conns_drop_queue(struct ntx_server *s, struct ntx_reply_queue *replies); /* its requests, wherever they are */

void ntx__conn_update(struct ntx_conn *c); /* what is waited for, anew */

/* ---- admission.c: requests take memory from their first byte to their last reply. Each client has a share of
 * NTX_ADMISSION_SHARES; beyond it, one client at a time may send a big request, as long as less than NTX_ADMISSION_FULL
 * is taken. What there is no room for waits in the kernel, so no client can fill our memory, and small requests (a
 * cancel, a status) always come through. */
size_t ntx__admission_room(const struct ntx_conn *c);           /* bytes that may be read from it now */
void ntx__admission_part(struct ntx_conn *c, size_t bytes);     /* so much of its next request is here */
bool ntx__admission_has(const struct ntx_conn *c, uint64_t id); /* a request of that number is under way */
void ntx__admission_took(struct ntx_conn *c, uint64_t id, size_t bytes);
void ntx__admission_done(struct ntx_conn *c, uint64_t id); /* its last reply */
void ntx__admission_forget(struct ntx_conn *c);            /* the client is gone */

/* ---- text.c: takes req over */
void ntx__text_request(struct ntx_conn *c, Ntx__Request *req);

/* ---- request.c: takes req over */
void ntx__request(struct ntx_conn *c, Ntx__Request *req, size_t bytes); /* bytes: that it takes */
const char *ntx__load_refusal(const struct ntx_server *s); /* why no model may come or go; NULL: it may, at the latest
                                                              when nothing is in transit */
bool ntx__in_transit(const struct ntx_server *s);          /* a model is coming or going */
void ntx__release_parked(struct ntx_server *s);            /* the model is there, or will not be */

/* ---- model.c */
/* Takes the loaded and the load over; the requester, too. Only while nothing is on its way or under way
 * (ntx__load_refusal). */
void ntx__model_switch(struct ntx_server *s, const struct ntx_requester *requester, struct ntx_loaded *next,
                       Ntx__Load *load);
void ntx__model_unload(
    struct ntx_server *s); /* of READY, FILLING or WAITING; ntx__server_step is called when it is gone */
void ntx__load_untold(struct ntx_server *s, const Ntx__Load *failed,
                      const struct ntx_err *e);    /* a load that nobody waits for has failed */
void ntx__warm_prefix_begin(struct ntx_server *s); /* warm_prefix.c: a model is there */
void ntx__warm_prefix_reply(struct ntx_server *s, const uint8_t *body, size_t n);
void ntx__model_tick(struct ntx_server *s); /* progress and deadlines */
void ntx__model_engine_stopped(struct ntx_server *s);
void ntx__model_followed(struct ntx_server *s);
void ntx__model_detached(struct ntx_server *s);
void ntx__model_workers_ready(struct ntx_server *s);
void ntx__model_fail(struct ntx_server *s, int err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4))); /* in WAITING */
void ntx__model_note(struct ntx_server *s, const char *text);
void ntx__requester_clear(struct ntx_requester *a);
void ntx__requester_tell(struct ntx_server *s, struct ntx_requester *a,
                         const struct ntx_err *e); /* an error; then it is cleared */

/* ---- takers.c */
int ntx__fd_receiver_new(
    struct ntx_server *s, struct ntx_conn *c,
    struct ntx_fd_receiver **out); /* c: its next request comes with descriptors. -EBUSY: too many for one user */
int ntx__fd_receiver_order(struct ntx_fd_receiver *t, struct ntx_pending_load *o, const Ntx__Load *m,
                           bool foreign);             /* it is to look; t is o's from here on */
void ntx__fd_receiver_end(struct ntx_fd_receiver *t); /* whatever it does; NULL is fine */
void ntx__fd_receivers_check(struct ntx_server *s);   /* those that take too long */
void ntx__fd_receivers_close(struct ntx_server *s);

/* ---- open.c */
int ntx__pending_load_new(struct ntx_server *s, struct ntx_conn *c, uint64_t id,
                          const Ntx__Load *m); /* with the connection's taker, if it has one. c NULL: for nobody */
/* Of descriptors that were a model's before; takes them over. revived: of an ntx-computed's that died. */
void ntx__pending_load_again(struct ntx_server *s, const Ntx__Load *m, const int *fds, unsigned n_fds, bool revived);
void ntx__pending_load_verdict(struct ntx_pending_load *o, int rc, const char *text, const int *fds, unsigned n_fds);
bool ntx__pending_load_of(const struct ntx_server *s, const struct ntx_reply_queue *replies); /* NULL: anybody's */
void ntx__pending_loads_drop(struct ntx_server *s, const struct ntx_reply_queue *replies);
void ntx__pending_loads_go(
    struct ntx_server *s); /* nothing may be on its way any more: one that is ready is switched to */
void ntx__pending_loads_stop(struct ntx_server *s);

Ntx__Load *ntx__load_copy(const Ntx__Load *m); /* NULL: no memory */

/* ---- worker.c */
struct ntx_workers_cb ntx__worker_callbacks(struct ntx_server *s);
void ntx__worker_owed(struct ntx_server *s); /* tries again what could not be sent */
bool ntx__worker_do_without(
    struct ntx_server *s); /* in WAITING: all that is missing is a predictor that keeps ending. False: it is not so */
const char *ntx__worker_unfit(
    const struct ntx_server *s); /* why a worker will not come, or NULL: it is there, or may yet come */

/* ---- health.c */
void ntx__health_set(struct ntx_server *s, enum ntx_mon_part part, enum ntx_mon_grade grade, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void ntx__health_well(struct ntx_server *s, enum ntx_mon_part part);
enum ntx_mon_service ntx__health_look(struct ntx_server *s); /* at the workers; tells monitors */
bool ntx__health_serves(const struct ntx_server *s);         /* a request is answered, and soon */
void ntx__health_tick(struct ntx_server *s);                 /* every second */
void ntx__health_heard(struct ntx_server *s, enum ntx_role role);

/* ---- watch.c */
void ntx__files_begin(struct ntx_server *s, bool again);
void ntx__files_look(struct ntx_server *s);
void ntx__files_end(struct ntx_server *s);

/* ---- status.c: malloc'd JSON */
char *ntx__status(struct ntx_server *s);

#endif
