/* SPDX-License-Identifier: Apache-2.0 */
/* engine_impl.h: internals that the engine's files share. The engine thread owns all of it but what the lock guards.
 *
 *   engine.c               the thread, its jobs, waiting
 *   engine_submit.c        a request comes in, is checked, gets a session and tokens
 *   engine_admit.c         it waits, gets a slot and KV, and runs
 *   engine_pass.c          which sessions have rows in the next pass; its results
 *   engine_reply.c         replies: start, tokens, end, errors, statistics
 *   engine_members.c       a pass that no client wants any more is cut short
 *   engine_prefix.c        prefixes that sessions share
 *   engine_prefix_store.c  prefixes on disk
 *   engine_draft.c         drafts of decoding sessions, and their verification
 *   engine_draft_stats.c   draft statistics that outlive the load
 *   engine_heat.c          uses of experts that outlive the load, and preloading
 *   engine_steps.c         values of single steps, for LogitsReq.steps
 *   engine_progress.c      progress of long passes, sent by the main thread */
#ifndef NTX_COMPUTED_ENGINE_ENGINE_IMPL_H
#define NTX_COMPUTED_ENGINE_ENGINE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "computed/engine/draft.h"
#include "computed/engine/draft_file.h"
#include "computed/engine/draft_policy.h"
#include "computed/engine/engine.h"
#include "computed/engine/gap.h"
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
    struct ntx_reply_queue *replies; /* its session's: stays as long as the pass */
    uint64_t request, session;
    uint32_t prompt, todo, take; /* tokens: of the prompt (0 while decoding); yet to be fed; in this pass */
};

struct ntx__client_turn {
    uint64_t client, turn; /* the turn in which one of its sessions last began */
};
#define NTX_CLIENT_TURNS 64 /* clients whose turns are known; the rest count as new */

struct ntx__ended;
#define NTX_PREFIX_STORE_ENDED 16 /* most texts that wait to be written */

struct ntx_engine {
    struct ntx_engine_config c;
    struct ntx_loaded *l; /* c.loaded */
    pthread_t thread;
    struct ntx_reader *reader, *encoder; /* of prompts, and of their pictures */

    pthread_mutex_t lock; /* guards jobs, poked, read, members, member_pass */
    pthread_cond_t wake;
    struct ntx_job *jobs, **last_job;
    bool poked;
    struct ntx_reading *read, **last_read; /* prompts whose tokens were found */
    /* [max_sessions] sessions in the running pass, without those cancelled meanwhile */
    struct ntx__member *members;
    uint32_t n_members;
    uint64_t member_pass;             /* of the running pass */
    uint64_t joined_ns, joined_bytes; /* when it began, and bytes read until then */
    atomic_uint n_working;            /* requests submitted that have not had their last reply */

    struct ntx_session *sessions; /* in the order of their requests */
    uint64_t last_session, last_turn;
    struct ntx__client_turn client_turn[NTX_CLIENT_TURNS];
    bool quit, was_busy;
    uint64_t pass;
    uint32_t max_rows, n_live, n_rows;
    struct ntx_session **live; /* [max_sessions] that may have rows in this pass */
    struct ntx_row *rows;      /* [max_rows] */
    float *logits;             /* [logits_rows x n_vocab] */
    /* [n_few + max_sessions] for rows of drafts beyond these, and the row of each session, whose tokens are drawn from
     * few of their logits */
    struct ntx_best *few;
    uint32_t n_few;
    bool draws_few; /* the CPU computes all logits, so it can keep the largest only */
    /* [max_rows x left_width] states for a drafter that works by them; NULL: there is none */
    float *left;
    uint32_t left_width;
    struct ntx_draft_file *by_states;      /* that drafter, in `file`; or NULL */
    struct ntx_candidate *best;            /* [logits_rows x NTX_BEST_MAX] with a GPU */
    struct ntx_prefix *prefix;             /* NULL: nothing is shared */
    struct ntx_prefix_store *prefix_store; /* prefixes on disk; NULL: none */
    struct ntx__ended *ended;              /* [n_ended] texts that ended, whose state is to be written */
    uint32_t n_ended;
    atomic_ullong saved;                         /* bytes written to the store */
    bool exact;                                  /* K and V of a generated token equal those of a prompt's token */
    bool drafting;                               /* drafts are proposed */
    bool lookup;                                 /* prompt lookup is a source */
    bool chains;                                 /* drafts do not branch, because of recurrent states */
    struct ntx_draft_file file[NTX_DRAFT_FILES]; /* [n_files] drafters of --draft */
    unsigned n_files;
    struct ntx_draft_policy policy;     /* how many drafts a pass gets */
    uint32_t pass_tokens;               /* generated by this pass */
    uint64_t cpu_at_ns;                 /* when the process's CPU time was last counted */
    uint32_t pass_texts, pass_looked;   /* of so many sessions; draft tokens among them that look-up proposed */
    uint64_t stall_ns;                  /* time spent waiting for weights, up to the last pass */
    struct ntx_draft *drafts;           /* [max_sessions] proposals, if drafting */
    struct ntx_draft *parts;            /* [NTX_DRAFT_SOURCES] each source's proposal, where there are several */
    struct ntx_draft_stats draft_stats; /* acceptance statistics, with those of earlier loads */
    char digest[NTX_DIGEST_TEXT];       /* the model's; "": draft_stats are not kept */
    uint32_t draft_news;                /* passes since they were kept */
    struct ntx_heat *heat;              /* uses of experts, the stream's; NULL: they are not kept */
    char heat_digest[NTX_DIGEST_TEXT];  /* the model's */
    uint32_t heat_news;                 /* passes since they were kept */
    bool preloading;                    /* experts of earlier loads are being read */
    struct ntx_gap gap;                 /* rows of prompts beside answers */
    double last_ns;                     /* time of the last pass of decode rows alone */
    double looked_ns;                   /* time of the last search of a text */
    struct ntx_capture *captures;       /* [capture_rows], in capture_memory */
    float *capture_memory;
};

/* ---- engine_submit.c */
void ntx__engine_job(struct ntx_engine *e, struct ntx_job *job);    /* may keep job->req, and sets it to NULL then */
void ntx__engine_read(struct ntx_engine *e, struct ntx_reading *r); /* the reader has found r's tokens */
void ntx__engine_read_more(struct ntx_engine *e); /* reads the prompts for whose tokens there is memory now */
void ntx__engine_append(struct ntx_engine *e, struct ntx_session *s); /* to the end of e->sessions */
void ntx__engine_unlink(struct ntx_engine *e, struct ntx_session *s);
/* The client of a request of this connection, which may name one behind it (0: none). */
uint64_t ntx__engine_client(const struct ntx_reply_queue *replies, uint64_t named);
uint32_t ntx__engine_count(const struct ntx_engine *e, enum ntx_session_state state);

/* ---- engine_admit.c */
void ntx__engine_enqueue(struct ntx_engine *e, struct ntx_session *s, uint64_t asked_ns); /* s knows its tokens */
void ntx__engine_admit(struct ntx_engine *e); /* runs the queued sessions that get a slot and KV now */
/* Makes room for so many bytes more: idle sessions and grammars that nobody uses are dropped, and idle masks do not
 * count (allow_masks). False: the memory is in use. */
bool ntx__engine_make_room(struct ntx_engine *e, uint64_t more);
/* Lets masks that no answer uses take the memory that sessions leave, less `more` bytes. */
void ntx__engine_allow_masks(struct ntx_engine *e, uint64_t more);
/* s gave up its KV since its client took no replies, and the client still takes none. */
static inline bool ntx__session_rests(const struct ntx_session *s)
{
    return s->preempted && ntx_reply_queue_rests(s->replies);
}

/* ---- engine_reply.c */
void ntx__engine_refuse(struct ntx_engine *e, const struct ntx_job *j, int err, const char *text); /* no session yet */
void ntx__engine_confirm(struct ntx_engine *e, const struct ntx_job *j);
/* Ends the request of s with an error. What the session held before stays. */
void ntx__engine_refuse_session(struct ntx_engine *e, struct ntx_session *s, int err, const char *text);
void ntx__engine_leave_request(struct ntx_engine *e, struct ntx_session *s); /* s works on no request any more */
void ntx__engine_send_started(struct ntx_engine *e, struct ntx_session *s);
void ntx__engine_send_token(struct ntx_engine *e, struct ntx_session *s, int32_t token, const char *text, size_t len);
/* Ends the request of s with an answer, or with an error; frees s unless its client keeps it. */
void ntx__engine_finish(struct ntx_engine *e, struct ntx_session *s, const char *finish);
void ntx__engine_fail(struct ntx_engine *e, struct ntx_session *s, int err, const char *text);
void ntx__engine_drop(struct ntx_engine *e, struct ntx_session *s);
void ntx__engine_gauges(struct ntx_engine *e);

/* ---- engine_members.c */
bool ntx__engine_join(struct ntx_engine *e); /* before a pass. False: queued jobs have made it pointless */
/* After a pass. False: nobody wanted it any more, so it may have been cut short. */
bool ntx__engine_leave(struct ntx_engine *e);
void ntx__engine_unwanted(struct ntx_engine *e, const struct ntx_job *j); /* main thread, with the lock: j was queued */

/* ---- engine_prefix.c */
int ntx__engine_prefix_new(struct ntx_engine *e);
/* Gives s the KV that it may need, with the kept prefix of its tokens. -EAGAIN: not now. */
int ntx__engine_begin(struct ntx_engine *e, struct ntx_session *s);
/* Keeps the state that s has computed. last: its KV is about to be freed. */
void ntx__engine_keep(struct ntx_engine *e, struct ntx_session *s, bool last);
void ntx__engine_prepare_prefixes(struct ntx_engine *e); /* before a pass, once each session's rows are known */
/* Before a pass: live sessions take over blocks that others have computed meanwhile, or wait for them. */
void ntx__engine_follow(struct ntx_engine *e);

/* ---- engine_prefix_store.c */
void ntx__engine_prefix_store_new(struct ntx_engine *e); /* after ntx__engine_prefix_new */
void ntx__engine_prefix_store_free(struct ntx_engine *e);
/* A text is about to begin: restores the prefix of it that a file has. */
void ntx__engine_prefix_store_find(struct ntx_engine *e, uint64_t scope, const int32_t *ids, uint32_t n);
/* A text has ended: its state is to be written. */
void ntx__engine_prefix_store_ended(struct ntx_engine *e, uint64_t scope, const int32_t *ids, uint32_t n);
bool ntx__engine_prefix_store_save(struct ntx_engine *e); /* writes one of them. False: none waits */

/* ---- engine_draft.c */
/* live[i] decodes, and proposes rows for this pass: `most` at most, with its next token's. Returns how many. */
uint32_t ntx__engine_propose(struct ntx_engine *e, uint32_t i, uint32_t most);
/* The prompt of s is being read: the drafter may read it, too. */
void ntx__engine_draft_ahead(struct ntx_engine *e, struct ntx_session *s);
void ntx__engine_draft_end(struct ntx_engine *e, const struct ntx_session *s); /* s wants no drafts any more */
/* Takes the results of a session's rows: draws tokens along its proposal and keeps the path that holds. s may be freed
 * afterwards. */
void ntx__engine_verify(struct ntx_engine *e, struct ntx_session *s);
/* The first token, after a prompt. */
void ntx__engine_give_token(struct ntx_engine *e, struct ntx_session *s, const struct ntx_row *row);
/* Shows the states of rows to the drafter that works by them. */
void ntx__engine_show(struct ntx_engine *e, struct ntx_session *s, const struct ntx_row *rows, uint32_t n);
void ntx__engine_paced(struct ntx_engine *e, uint64_t ns); /* a pass took so long */
void ntx__engine_turn(struct ntx_engine *e, uint64_t ns);  /* so long with all that was done for it */

/* ---- engine_draft_stats.c */
void ntx__engine_draft_stats_new(struct ntx_engine *e);  /* loads the statistics of earlier loads of the model */
void ntx__engine_draft_stats_keep(struct ntx_engine *e); /* keeps them for later loads, if there is news */
unsigned ntx__engine_draft_place(const struct ntx_engine *e);

/* ---- engine_heat.c */
void ntx__engine_heat_new(struct ntx_engine *e);  /* loads the uses of experts by earlier loads of the model */
void ntx__engine_heat_keep(struct ntx_engine *e); /* keeps them for later loads, if there is news */
/* While the engine is idle: reads more of the hottest experts, and waits a moment. False: none are left. */
bool ntx__engine_preload(struct ntx_engine *e);

/* ---- engine_steps.c */
/* An ntx_watch_fn; ctx: the engine. */
void ntx__engine_step(void *ctx, const struct ntx_row *row, const struct ntx_step_values *v);
/* Bytes of replies for a row, about. 0: s asks for no steps. */
size_t ntx__engine_steps_bytes(const struct ntx_engine *e, const struct ntx_session *s);

/* ---- engine_pass.c */
void ntx__engine_learn(struct ntx_engine *e, struct ntx_session *s, const struct ntx_row *rows, uint32_t n,
                       bool decoding);
/* 0: all values are finite. Else s has failed. */
int ntx__engine_finite(struct ntx_engine *e, struct ntx_session *s, const struct ntx_row *rows, uint32_t n);
bool ntx__engine_pass(struct ntx_engine *e); /* false: there is nothing to compute now */

#endif
