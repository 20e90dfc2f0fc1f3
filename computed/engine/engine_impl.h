/* SPDX-License-Identifier: Apache-2.0 */
/* engine_impl.h: what the parts of the engine share; nobody else includes it. All of it belongs to the engine thread
 * but what the lock guards.
 *
 *   engine.c       the thread, its jobs, waiting
 *   engine_job.c   requests become sessions, wait for KV, end
 *   engine_pass.c  who has rows in the next pass; what becomes of its results
 *   engine_prefix.c  what sessions share of their texts' beginnings
 *   engine_prefix_store.c  which of them outlive the process
 *   engine_draft.c what decoding sessions propose; the path that holds
 *   engine_draft_stats.c what is learned of that outlives the load
 *   engine_progress.c  what the main thread tells of a pass that takes long
 *   engine_members.c  a pass that nobody wants any more is cut short */
#ifndef NTX_COMPUTED_ENGINE_ENGINE_IMPL_H
#define NTX_COMPUTED_ENGINE_ENGINE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "computed/engine/draft.h"
#include "computed/engine/draft_file.h"
#include "computed/engine/engine.h"
#include "computed/engine/reader.h"
#include "computed/engine/session.h"
#include "computed/engine/prefix_store.h"
#include "computed/pass/input_sums.h"
#include "computed/state/prefix.h"
#include "model/digest.h"

enum ntx_job_kind { NTX_JOB_REQUEST, NTX_JOB_GONE, NTX_JOB_CANCEL_ALL, NTX_JOB_QUIT };

struct ntx_job {
    struct ntx_job *next;
    enum ntx_job_kind kind;
    struct ntx_reply_queue *replies; /* one reference, or NULL */
    struct ntx_request *req;         /* owned, or NULL */
    uint64_t asked_ns;
};

struct ntx__member {
    struct ntx_reply_queue *replies; /* its session's: there as long as the pass lasts */
    uint64_t request, session;
    uint32_t prompt, todo, take; /* tokens: of the prompt, 0 when it writes; yet to be fed; in this pass */
};

struct ntx__ended;
#define NTX_PREFIX_STORE_ENDED 16 /* texts at most that wait to be written */

struct ntx_engine {
    struct ntx_engine_config c;
    struct ntx_loaded *l; /* c.loaded */
    pthread_t thread;
    struct ntx_reader *reader;

    pthread_mutex_t lock; /* guards jobs, poked, read, members, member_pass */
    pthread_cond_t wake;
    struct ntx_job *jobs, **last_job;
    bool poked;
    struct ntx_reading *read, **last_read; /* whose tokens were found */
    struct ntx__member
        *members; /* [max_sessions] those in the pass that runs, less those that were cancelled meanwhile */
    uint32_t n_members;
    uint64_t member_pass;             /* its number */
    uint64_t joined_ns, joined_bytes; /* when it began, and what had been read by then */
    atomic_uint n_working;            /* requests that were submitted and have not had their last reply */

    struct ntx_session *sessions; /* in the order of their requests */
    uint64_t last_session, last_turn;
    bool quit, was_busy;
    uint64_t pass;
    uint32_t max_rows, n_live, n_rows;
    struct ntx_session **live; /* [max_sessions] that may have rows in this pass */
    struct ntx_row *rows;      /* [max_rows] */
    float *logits;             /* [logits_rows x n_vocab] */
    float *left;               /* [max_rows x left_width] states for what guesses by them; NULL: nothing does */
    uint32_t left_width;
    struct ntx_draft_file *by_states;      /* that one, of `file`; or NULL */
    struct ntx_candidate *best;            /* [logits_rows x NTX_BEST_MAX] with a GPU */
    struct ntx_prefix *prefix;             /* NULL: nothing is shared */
    struct ntx_prefix_store *prefix_store; /* prefixes on disk; NULL: none */
    struct ntx__ended *ended;              /* [n_ended] texts that ended, and are to be written there */
    uint32_t n_ended;
    atomic_ullong saved;                         /* bytes of them that were written there */
    bool exact;                                  /* a generated token's K and V are those that a prompt's would be */
    bool drafting;                               /* --draft, but off: */
    bool automatic;                              /*   nobody asked for it, or for who guesses, */
    bool lookup;                                 /*   by look-up, */
    bool chains;                                 /* drafts do not branch: there are recurrent states */
    struct ntx_draft_file file[NTX_DRAFT_FILES]; /*   and by files */
    unsigned n_files;
    double draft_gain;              /* tokens that a pass with guesses brought beside the first, lately */
    struct ntx_draft_turn turn;     /* whether it is done now */
    uint32_t pass_tokens;           /* that were written by this pass */
    uint64_t stall_ns;              /* that weights were waited for, up to the last pass */
    struct ntx_draft *drafts;       /* [max_sessions] with it */
    struct ntx_draft *parts;        /* [NTX_DRAFT_SOURCES] what each of those proposes, where several do */
    struct ntx_draft_stats guesses; /* what was learned of them, by earlier loads, too */
    char digest[NTX_DIGEST_TEXT];   /* the model's; "": it is not kept */
    uint32_t draft_news;            /* passes since it was */
    struct ntx_pace pace;
    double last_ns; /* of the last pass in which nothing but writing happened */
    double row_ns;  /* arithmetic of a row where many are computed, in a pass of so many: */
    uint32_t row_ns_of;
    double expert_share; /* of the experts, that a row takes, where they are read; else 0 */
    double drafted;      /* nodes of a proposal, lately */
    struct ntx_draft_look look;
    struct ntx_capture *captures; /* [capture_rows], whose memory is capture_memory */
    float *capture_memory;
};

/* ---- engine_job.c */
void ntx__engine_job(struct ntx_engine *e, struct ntx_job *job); /* may keep job->req, which is NULL then */
void ntx__engine_read(struct ntx_engine *e, struct ntx_reading *r);
void ntx__engine_read_more(struct ntx_engine *e); /* requests whose tokens have memory now are read */
void ntx__engine_admit(struct ntx_engine *e);     /* queued sessions whose KV is free begin to run */
/* The request of s ends with an answer, or with an error; s is freed unless it is kept. */
void ntx__engine_finish(struct ntx_engine *e, struct ntx_session *s, const char *finish);
void ntx__engine_fail(struct ntx_engine *e, struct ntx_session *s, int err, const char *text);
void ntx__engine_drop(struct ntx_engine *e, struct ntx_session *s);
void ntx__engine_gauges(struct ntx_engine *e);
void ntx__engine_send_token(struct ntx_engine *e, struct ntx_session *s, int32_t token, const char *text, size_t len);

/* ---- engine_members.c */
bool ntx__engine_join(struct ntx_engine *e); /* before a pass; false: jobs that wait have made it pointless */
bool ntx__engine_leave(
    struct ntx_engine *e); /* after it; false: nobody wanted it any more, so it may have been cut short */
void ntx__engine_unwanted(struct ntx_engine *e, const struct ntx_job *j); /* main thread, with the lock: j was queued */

/* ---- engine_prefix.c */
int ntx__engine_prefix_new(struct ntx_engine *e);
int ntx__engine_begin(
    struct ntx_engine *e,
    struct ntx_session *s); /* it gets KV for what it may need, with what is kept of its tokens. -EAGAIN: not now */
void ntx__engine_keep(struct ntx_engine *e, struct ntx_session *s,
                      bool last);                        /* what it has computed; last: its KV is about to be freed */
void ntx__engine_prepare_prefixes(struct ntx_engine *e); /* before a pass, when it is known who has how many rows */
void ntx__engine_follow(
    struct ntx_engine *e); /* before a pass: of those live, who has been overtaken, and who waits for another */

/* ---- engine_prefix_store.c */
void ntx__engine_prefix_store_new(struct ntx_engine *e); /* behind ntx__engine_prefix_new */
void ntx__engine_prefix_store_free(struct ntx_engine *e);
void ntx__engine_prefix_store_find(struct ntx_engine *e, uint64_t scope, const int32_t *ids,
                                   uint32_t n); /* a text is about to begin: what files have of it is brought in */
void ntx__engine_prefix_store_ended(struct ntx_engine *e, uint64_t scope, const int32_t *ids,
                                    uint32_t n);          /* what was computed of it is kept, and no more comes */
bool ntx__engine_prefix_store_save(struct ntx_engine *e); /* one of those that ended; false: none waits */

/* ---- engine_draft.c */
/* live[i], which writes, proposes in this pass: at most so many rows, its next token's among them. Returns how many. */
uint32_t ntx__engine_propose(struct ntx_engine *e, uint32_t i, uint32_t most);
void ntx__engine_draft_ahead(struct ntx_engine *e,
                             struct ntx_session *s); /* whose prompt is being read: the drafter may read it, too */
/* The results of a session's rows of a pass: tokens are drawn along its proposal, and what holds is kept. It may be
 * gone afterwards. */
void ntx__engine_verify(struct ntx_engine *e, struct ntx_session *s);
void ntx__engine_give_token(struct ntx_engine *e, struct ntx_session *s,
                            const struct ntx_row *row); /* behind a prompt */
void ntx__engine_show(struct ntx_engine *e, struct ntx_session *s, const struct ntx_row *rows,
                      uint32_t n);                         /* states that rows left, to what guesses by them */
void ntx__engine_paced(struct ntx_engine *e, uint64_t ns); /* a pass took so long */
void ntx__engine_turn(struct ntx_engine *e, uint64_t ns);  /* and so long with all that was done for it */

/* ---- engine_draft_stats.c */
void ntx__engine_draft_stats_new(struct ntx_engine *e);  /* begins with what earlier loads of the model learned */
void ntx__engine_draft_stats_keep(struct ntx_engine *e); /* for later ones; nothing where nothing is new */
unsigned ntx__engine_draft_place(const struct ntx_engine *e);

/* ---- engine_steps.c */
void ntx__engine_step(void *ctx, const struct ntx_row *row,
                      const struct ntx_step_values *v); /* a ntx_watch_fn; ctx: the engine */
size_t ntx__engine_steps_bytes(const struct ntx_engine *e,
                               const struct ntx_session *s); /* of replies for a row, about; 0: it asks for none */

/* ---- engine_pass.c */
void ntx__engine_learn(struct ntx_engine *e, struct ntx_session *s, const struct ntx_row *rows, uint32_t n,
                       bool decoding);
int ntx__engine_finite(struct ntx_engine *e, struct ntx_session *s, const struct ntx_row *rows,
                       uint32_t n);          /* else the session has failed */
bool ntx__engine_pass(struct ntx_engine *e); /* false: nobody has anything to compute now */

#endif
