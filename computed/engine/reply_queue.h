/* SPDX-License-Identifier: Apache-2.0 */
/* reply_queue.h: the mail from the engine thread to the main thread, and the back-pressure against it.
 *
 *   engine --reply, notice--> mailbox --eventfd---> main thread --bytes--> client
 *      ^                                                  |
 *      +--------------- reply_queue.pending --------------+
 *
 * A reply queue belongs to one client. The connection holds one reference, and so does every session and every reply in
 * flight: neither thread has to know whether the other is done with it. `pending` counts bytes that are encoded and not
 * yet taken by the socket. While the queue is full, the client's sessions have no rows and its requests are not read.
 *
 * The output budget bounds the sum of all queues. Half of NTX_OUTPUT_BUDGET_FULL is divided into a share for each
 * client that may connect. The queues of slow clients grow (to NTX_REPLY_QUEUE_FULL each) only while the other half is
 * free. So no client can take the room of another. Unsent replies take at most NTX_OUTPUT_BUDGET_FULL and one reply per
 * client, part of the 64 MiB that the daemons may take beyond --ram. */
#ifndef NTX_COMPUTED_ENGINE_REPLY_QUEUE_H
#define NTX_COMPUTED_ENGINE_REPLY_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* Bytes encoded for one client before its sessions pause. A single reply may go beyond it. */
#define NTX_REPLY_QUEUE_FULL   (4u << 20)
#define NTX_OUTPUT_BUDGET_FULL (12u << 20)
#define NTX_REPLY_QUEUE_FRAME  128u /* cost of a reply beyond its bytes: its structs and the allocator's rounding */

struct ntx_output_budget { /* shared by all reply queues; outlives them */
    atomic_size_t pending;
    size_t share;
};
void ntx_output_budget_init(struct ntx_output_budget *o, uint32_t max_clients);

struct ntx_reply_queue;

/* Holds one reference. NULL: out of memory. */
struct ntx_reply_queue *ntx_reply_queue_new(struct ntx_output_budget *o, uint64_t client);
struct ntx_reply_queue *ntx_reply_queue_ref(struct ntx_reply_queue *s);
void ntx_reply_queue_unref(struct ntx_reply_queue *s); /* NULL is fine */
uint64_t ntx_reply_queue_client(const struct ntx_reply_queue *s);
/* The user whose texts these are: prefixes are shared within a scope. Set before the first request; 0 by default. */
void ntx_reply_queue_whose(struct ntx_reply_queue *s, uint64_t scope);
uint64_t ntx_reply_queue_scope(const struct ntx_reply_queue *s);
void ntx_reply_queue_close(struct ntx_reply_queue *s); /* the client is gone: replies are discarded */
bool ntx_reply_queue_closed(const struct ntx_reply_queue *s);
void ntx_reply_queue_lose(struct ntx_reply_queue *s); /* a reply could not be encoded: closes the connection */
bool ntx_reply_queue_lost(const struct ntx_reply_queue *s);
size_t ntx_reply_queue_room(const struct ntx_reply_queue *s); /* bytes until it is full */
/* Main thread: whether replies wait and the socket has taken none for a while. */
void ntx_reply_queue_stall(struct ntx_reply_queue *s, bool stalls);
bool ntx_reply_queue_stalls(const struct ntx_reply_queue *s); /* also true where it is full */
/* Its preempted sessions rest until the socket has taken all replies. */
void ntx_reply_queue_rest(struct ntx_reply_queue *s);
bool ntx_reply_queue_rests(const struct ntx_reply_queue *s);
/* The socket took a reply of so many bytes, or it was discarded. True: a full queue has room again, or s no longer
 * rests. */
bool ntx_reply_queue_sent(struct ntx_reply_queue *s, size_t bytes);

enum ntx_mail_kind {
    NTX_MAIL_REPLY,      /* frame for a client */
    NTX_MAIL_PROBE,      /* a notice for the predictor */
    NTX_MAIL_IDLE,       /* the engine has nothing to do */
    NTX_MAIL_GPU_LOST,   /* no pass of this process will succeed any more */
    NTX_MAIL_RANKS_LOST, /* the same, since another machine is gone */
    NTX_MAIL_FOLLOWED,   /* the thread that follows another machine is about to end: it can be joined */
    NTX_MAIL_STOPPED,    /* the engine's thread is about to end: it can be joined */
};

struct ntx_mail {
    struct ntx_mail *next;
    enum ntx_mail_kind kind;
    struct ntx_reply_queue *replies; /* one reference */
    uint8_t *frame;                  /* malloc'd, length included */
    size_t len;
    bool last;   /* the last reply of this request */
    uint64_t id; /* the request */
    uint32_t probe_index, probe_gen;
    uint64_t pass;
};

/* Main thread, for each mail in the order of posting. The mail is freed afterwards; set frame to NULL to keep it. */
typedef void ntx_mail_cb(void *ctx, struct ntx_mail *m);

struct ntx_mailbox;
int ntx_mailbox_new(uv_loop_t *loop, ntx_mail_cb *cb, void *ctx, struct ntx_mailbox **out);
/* Main thread, when no thread posts any more. The memory is freed once the loop has closed the handle. */
void ntx_mailbox_free(struct ntx_mailbox *b);

void ntx_mailbox_flush(struct ntx_mailbox *b); /* main thread: delivers at once what has been posted */

/* Contents of replies, as in ntx.proto. */
struct ntx_how_far {
    const char *phase;
    uint64_t done, total;
    double bytes_per_s, left_s;
    uint32_t layer, layers;
    uint64_t prompt_done, prompt_total;
};
struct ntx_started {
    uint64_t session, seed;
    uint32_t prompt_tokens, context, ctx;
    const char *note, *think_note; /* or NULL */
};
struct ntx_floats {
    const float *v;
    size_t n;
};
struct ntx_states_row {
    uint32_t row;
    struct ntx_floats state, similar, ffn_state, ffn_energy;
};

/* Any thread. Without memory the reply is lost, and its client is then dropped. */
void ntx_mail_error(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, int err, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Of a request that was not begun. */
void ntx_mail_refusal(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, int err, const char *text);
void ntx_mail_done(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, const char *finish,
                   const char *stats_json);
/* The same for an answer. stop: the request's stop string that ended it, "" or NULL for none; stats_json: or NULL. */
struct ntx_answered {
    const char *finish, *stop, *stats_json;
    uint32_t cached_tokens;
};
void ntx_mail_answered(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id,
                       const struct ntx_answered *a);
void ntx_mail_progress(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, const char *phase,
                       uint64_t done, uint64_t total);
void ntx_mail_how_far(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, const struct ntx_how_far *p);
void ntx_mail_started(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, const struct ntx_started *m);
/* A token's probability and the n likeliest in top; own: the token's bytes. */
struct ntx_token_probs {
    struct ntx_token_prob {
        int32_t token;
        float logprob;
        const char *own;
        size_t len;
    } it, *top;
    unsigned n;
};
/* probs: or NULL. */
void ntx_mail_token(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, int32_t token,
                    const char *text, size_t len, const struct ntx_token_probs *probs);
struct ntx_scores {
    double nll; /* sum of each */
    /* [n] negative log-likelihood of each token, the least that any token had there, and that token */
    const float *each, *best;
    const int32_t *best_token;
    uint32_t n;
};
void ntx_mail_score(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id,
                    const struct ntx_scores *scores, const char *stats_json);
void ntx_mail_logits(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, uint32_t row,
                     const float *logits, uint32_t n);
void ntx_mail_states(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id,
                     const struct ntx_states_row *m);
struct ntx_step_row { /* StepRow in ntx.proto */
    uint32_t row, layer, step, width;
    const char *name, *buffer;
    uint64_t digest;
    float min, max;
    double mean;
    const float *values; /* [width], or NULL: not asked for */
};
void ntx_mail_step(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, const struct ntx_step_row *s);
void ntx_mail_probe(struct ntx_mailbox *b, uint32_t index, uint32_t gen, uint64_t pass);
void ntx_mail_note(struct ntx_mailbox *b, enum ntx_mail_kind kind);

#endif
