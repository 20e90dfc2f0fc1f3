/* server_sink.h: the mail from the engine thread to the main thread, and the back-pressure against it.
 *
 *   engine --reply, notice--> mailbox --uv_async--> main thread --bytes--> client
 *      ^                                                  |
 *      +---------------- sink.pending ---------------------+
 *
 * A sink stands for one client. It is shared: the connection holds one reference, every session and every reply in flight
 * another, so that neither thread has to know whether the other is done with it. `pending` counts what is packed but
 * not yet taken by the socket: the engine lets a session rest while its client's sink is full, and its requests are not read.
 *
 * All sinks drain into one outlet, which bounds the sum: those of slow clients grow (to NTX_SINK_FULL each) only while half of NTX_OUTLET_FULL
 * is free, the other half is divided into a share for each client that may connect. So no client can take the room of another, and
 * unsent replies are at most NTX_OUTLET_FULL and a reply per client: part of the 64 MiB that the daemons may take beyond --ram. */
#ifndef NTX_COMPUTED_SERVER_SINK_H
#define NTX_COMPUTED_SERVER_SINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "proto/ntx.pb-c.h"

/* Bytes packed for one client before its sessions rest. A single reply may go beyond it. */
#define NTX_SINK_FULL (4u << 20)
#define NTX_OUTLET_FULL (12u << 20)
#define NTX_SINK_FRAME 128u /* what a reply costs beyond its bytes: the structs that carry it, the allocator's rounding */

struct ntx_outlet { /* shared by all sinks; it outlives them */
    atomic_size_t pending;
    size_t share;
};
void ntx_outlet_init(struct ntx_outlet *o, uint32_t max_clients);

struct ntx_sink;

struct ntx_sink *ntx_sink_new(struct ntx_outlet *o, uint64_t client); /* one reference; NULL: out of memory */
struct ntx_sink *ntx_sink_ref(struct ntx_sink *s);
void ntx_sink_unref(struct ntx_sink *s); /* NULL is fine */
uint64_t ntx_sink_client(const struct ntx_sink *s);
void ntx_sink_close(struct ntx_sink *s);       /* the client is gone: replies are thrown away */
bool ntx_sink_closed(const struct ntx_sink *s);
void ntx_sink_lose(struct ntx_sink *s);        /* a reply could not be packed: the connection is to be closed */
bool ntx_sink_lost(const struct ntx_sink *s);
size_t ntx_sink_room(const struct ntx_sink *s); /* bytes until it is full; 0: it is */
/* The socket took a reply of so many bytes, or it was thrown away. True: there is room again for some sink that was full. */
bool ntx_sink_sent(struct ntx_sink *s, size_t bytes);

enum ntx_mail_kind {
    NTX_MAIL_REPLY,   /* frame for sink */
    NTX_MAIL_PROBE,   /* tell the predictor */
    NTX_MAIL_IDLE,    /* the engine has nothing to do any more */
    NTX_MAIL_GPU_LOST, /* no pass of this process will succeed any more */
    NTX_MAIL_STOPPED, /* the engine's thread is about to end: it can be joined */
};

struct ntx_mail {
    struct ntx_mail *next;
    enum ntx_mail_kind kind;
    struct ntx_sink *sink; /* one reference */
    uint8_t *frame;        /* malloc'd, length included */
    size_t len;
    bool last;             /* nothing more comes for this request */
    uint64_t id;           /* the request */
    uint32_t probe_index, probe_gen;
    uint64_t pass;
};

/* Main thread, for each piece of mail in the order of posting; the mail is freed afterwards (set frame to NULL to keep it). */
typedef void ntx_mail_cb(void *ctx, struct ntx_mail *m);

struct ntx_mailbox;
int ntx_mailbox_new(uv_loop_t *loop, ntx_mail_cb *cb, void *ctx, struct ntx_mailbox **out);
void ntx_mailbox_free(struct ntx_mailbox *b); /* main thread, no poster left; the memory goes when the loop has closed the handle */

void ntx_mailbox_flush(struct ntx_mailbox *b); /* main thread: delivers at once what has been posted */

/* Any thread. A message that finds no memory is lost; its client is then dropped. */
void ntx_mail_reply(struct ntx_mailbox *b, struct ntx_sink *sink, const Ntx__Reply *r, bool last);
void ntx_mail_error(struct ntx_mailbox *b, struct ntx_sink *sink, uint64_t id, int err, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void ntx_mail_refusal(struct ntx_mailbox *b, struct ntx_sink *sink, uint64_t id, int err, const char *text); /* of a request that was not begun */
void ntx_mail_done(struct ntx_mailbox *b, struct ntx_sink *sink, uint64_t id, const char *finish, const char *stats_json);
void ntx_mail_progress(struct ntx_mailbox *b, struct ntx_sink *sink, uint64_t id, const char *phase, uint64_t done, uint64_t total);
void ntx_mail_how_far(struct ntx_mailbox *b, struct ntx_sink *sink, uint64_t id, const Ntx__Progress *p);
void ntx_mail_probe(struct ntx_mailbox *b, uint32_t index, uint32_t gen, uint64_t pass);
void ntx_mail_note(struct ntx_mailbox *b, enum ntx_mail_kind kind);

#endif
