/* SPDX-License-Identifier: Apache-2.0 */
/* session.h: one client's line of tokens and the request that is working on it. Owned by the engine thread.
 *
 *           tokens found         KV there          all fed, one sampled, again            end, `keep`
 *   READING ------------> QUEUED ----------> RUNNING ------------------------> RUNNING ----------------> IDLE (waits
 *     for the next request)
 *                            ^-----------------'
 *                              its client takes nothing, and others wait: it is `put_by` until the client does
 *
 * tokens[0..n_past) are in the KV cache, tokens[n_past..n_tokens) are still to be fed. A request adds tokens at the
 * end; a row of a pass feeds one. LOGITS, SCORE and STATES requests are sessions too, that sample nothing. */
#ifndef NTX_COMPUTED_ENGINE_SESSION_H
#define NTX_COMPUTED_ENGINE_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "computed/pass/ffn_set.h"
#include "computed/state/kv.h"
#include "computed/sample/sampler.h"
#include "computed/engine/constraint.h"
#include "computed/engine/request.h"
#include "computed/engine/reply_queue.h"
#include "computed/engine/session_text.h"
#include "proto/settings.h"
#include "computed/engine/run_stats.h"
#include "model/chat.h"
#include "model/tensors.h"
#include "model/tokenizer.h"

enum ntx_session_kind { NTX_SESSION_GENERATE, NTX_SESSION_LOGITS, NTX_SESSION_SCORE, NTX_SESSION_STATES };
enum ntx_session_state { NTX_SESSION_READING, NTX_SESSION_QUEUED, NTX_SESSION_RUNNING, NTX_SESSION_IDLE };

enum ntx_session_steps { NTX_STEPS_NONE, NTX_STEPS_DIGESTS, NTX_STEPS_VALUES, NTX_STEPS_KINDS }; /* LogitsReq.steps */

struct ntx_dialog {   /* the conversation so far: where it can be cut. Its text is in the tokens, and nowhere else */
    uint32_t *begins; /* [n] of each message: tokens before a request's first one, UINT32_MAX at its others */
    unsigned n, room;
};

struct ntx_session {
    struct ntx_session *next;
    struct ntx_reply_queue *replies; /* one reference */
    uint64_t id, request;
    enum ntx_session_kind kind;
    enum ntx_session_state state;
    bool keep, cancel;

    struct ntx_request *unread;  /* owned; while READING: its tokens have no memory yet. NULL: they have */
    uint64_t unread_ns;          /* when that was asked */
    struct ntx_reading *reading; /* while READING */
    uint32_t reading_tokens;     /* that it may give, at most */
    struct ntx_kv_seq *kv;       /* NULL while queued, and after an idle session was pushed out */
    uint32_t reserve;            /* tokens to reserve KV for */
    int32_t *tokens;
    uint32_t n_tokens, room, n_past;
    uint32_t n_exact;               /* of n_past, those from the begin on that were fed as a prompt's */
    uint32_t n_kept;                /* blocks of them that were kept for others (engine_prefix.c) */
    bool pinned;                    /* its prompt is all that is wanted (request.h, prefix) */
    uint64_t turn;                  /* when it stood in line, in the order of the engine's turns */
    bool put_by;                    /* while QUEUED: it has written, and gave its KV to others */
    bool again;                     /* RUNNING: what it had of KV then is computed again, as a prompt's */
    bool waits;                     /* in the pass that is being made: for another that is ahead in the same text */
    uint8_t adapter;                /* that its rows have; 0: none */
    uint32_t take, first_row;       /* rows in the pass that is being made */
    struct ntx_draft *draft;        /* what it proposes there; NULL: the next token only, */
    const struct ntx_draft *shadow; /*   and what look-up would have guessed, which is not computed: its chances learn
                                       of it. NULL: nothing */

    uint32_t n_prompt, generated, max_tokens; /* of the request; n_prompt: tokens that it had to feed first */
    struct ntx_sampling sampling;
    struct ntx_sampler *sampler;       /* while RUNNING */
    struct ntx_constraint *constraint; /* NULL: nothing is asked of its tokens but sampling */
    struct ntx_text *text;
    bool ignore_eos, skip_space; /* skip_space: the next token begins the text */
    struct ntx_dialog dialog;
    struct ntx_chat_view view; /* of the answer under way, or the last one */
    bool predictor_lost;
    const char *note; /* on the form of its prompt, or NULL; not freed */
    char *options;    /* JSON of the request's options, for the statistics */

    uint32_t decoded; /* rows that were fed one by one, of the request */
    float *similar;  /* [n_layers] cosine of input and output as seen so far, or NULL: what the skip policy adapts to */
    uint32_t n_seen; /* rows in it */
    struct ntx_ffn_set *ffn; /* --ffn-sparse prompt, once it was admitted: the groups of neurons that it uses */
    uint32_t state_layer, ffn_first, ffn_layers; /* states */
    enum ntx_session_steps steps;                /* logits: what is told of each step */
    float *pool;                                 /* [n_embd] logits: the sum of its states, or NULL: nobody wants it */
    bool one_by_one;                             /* logits, score: tokens from `from` on are fed like generated ones */
    uint32_t from;                               /* logits: rows from here on; score: tokens from here on */
    double nll;
    float *each;

    struct ntx_run_stats run;
};

/* What a request asks, checked against model and context; nothing of it is the session's before all is valid. */
struct ntx_session_env {
    const struct ntx_tokenizer *tok;
    const struct ntx_chat_template *chat;          /* the model's own; NULL: none, or none that can be executed */
    bool has_template;                             /* the model names a template */
    char adapter[NTX_ADAPTERS_MAX][NTX_LORA_NAME]; /* names of the model's adapters, */
    uint32_t n_adapters;                           /*   so many */
    struct ntx_err chat_err;                       /* why it cannot be executed */
    uint32_t n_vocab, ctx, n_layers, n_embd, capture_ffns;
    uint64_t read_bytes;                   /* for finding a prompt's tokens */
    uint64_t constraint_bytes, words_most; /* for a constraint; for the vocabulary that all of them need */
    uint64_t constrains_from;              /* no smaller --ram has room for one; 0: unknown */
    ntx_words_slot *words;                 /* the vocabulary, for masks */
};

/* What a generate adds, before its tokens are found: which may take a while, and needs nothing of the session. */
struct ntx_prompt {
    const struct ntx_tokenizer *tok;
    const struct ntx_request *m;          /* borrowed */
    const struct ntx_chat_template *chat; /* NULL: a text, or tokens */
    bool follows;                         /* chat: an answer stands before it */
    const char *note;                     /* on its form, or NULL; not freed */
    struct ntx_chat_more more;            /* chat: what a model's own template gets and tells */
    int flags;                            /* of the text */
    uint32_t ctx, n_vocab;
    struct ntx_tok_limits limits;
    uint64_t constraint_bytes, words_most, constrains_from;
    ntx_words_slot *words;
    const char *reply;                 /* a name of model/reply/reply.h */
    struct ntx_constraint *constraint; /* owned, once it was read, until a session takes it */
    int32_t *ids;                      /* owned */
    int n;                             /* or a negative errno, with err */
    struct ntx_err err;
};

/* How the generate m is to be read for s, which is idle; what m cuts of the conversation is cut. p is to be freed in
 * any case. */
int ntx_session_prompt(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m,
                       const atomic_bool *unwanted, struct ntx_prompt *p, struct ntx_err *err);
void ntx_prompt_read(struct ntx_prompt *p); /* any thread */
void ntx_prompt_free(struct ntx_prompt *p);

int ntx_session_new(struct ntx_reply_queue *replies, uint64_t id, struct ntx_session **out);
void ntx_session_free(struct ntx_session *s);

/* Makes s work on a request (s is new or idle). On failure s is as before, and err says what was wrong. */
int ntx_session_generate(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m,
                         struct ntx_prompt *p, struct ntx_err *err);
int ntx_session_logits(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m,
                       struct ntx_err *err);
int ntx_session_score(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m,
                      struct ntx_err *err);

int ntx_session_states(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m,
                       struct ntx_err *err);

static inline uint32_t ntx_session_todo(const struct ntx_session *s) { return s->n_tokens - s->n_past; }
/* With one_by_one: the first token that is fed alone. The first one scored is judged by the logits behind the one
 * before it. */
static inline uint32_t ntx__session_single(const struct ntx_session *s)
{
    return s->kind == NTX_SESSION_SCORE ? s->from - 1 : s->from;
}
/* Its next token is fed alone, and may skip layers. */
static inline bool ntx_session_decoding(const struct ntx_session *s)
{
    if (s->again)
        return ntx_session_todo(s) == 1;
    return s->kind == NTX_SESSION_GENERATE ? s->generated > 0 : s->one_by_one && s->n_past >= ntx__session_single(s);
}
/* Tokens that one pass may take at most. */
static inline uint32_t ntx_session_ready(const struct ntx_session *s)
{
    if (s->one_by_one)
        return ntx_session_decoding(s) ? 1 : ntx__session_single(s) - s->n_past;
    return s->again && !ntx_session_decoding(s)
               ? ntx_session_todo(s) - 1
               : ntx_session_todo(s); /* the last one is fed alone, as it would have been */
}
/* Takes what a row showed of each layer ([n_layers], NaN: nothing) into `similar`. */
int ntx_session_saw(struct ntx_session *s, const float *similar, uint32_t n_layers);
/* Whether the logits behind tokens[i] are wanted. */
bool ntx_session_wants_logits(const struct ntx_session *s, uint32_t i);

/* Takes the logits of row (or its best: forward.h), behind the last token fed; *token is the sampled one, *finish NULL
 * or why the answer ends with it. text: what may be shown now, good until the next call. */
struct ntx_row;
int ntx_session_sample(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_row *row,
                       int32_t *token, const char **finish, const char **text, size_t *text_len);
/* Scores tokens[i + 1] by the logits behind tokens[i]. */
void ntx_session_score_row(struct ntx_session *s, uint32_t i, const float *logits, uint32_t n_vocab);
/* Its KV is there: what it needs to run is made. Not before, since it is large, and many may wait. */
int ntx_session_start(struct ntx_session *s, const struct ntx_session_env *e);
/* Bytes that it holds, whatever its state, or may come to hold while it is read; of what only a running session holds,
 * its choice's memory is counted. */
uint64_t ntx_session_bytes(const struct ntx_session *s, const struct ntx_session_env *e);
uint64_t ntx_session_more(const struct ntx_session *s); /* that it will hold beyond those when it runs */
/* Bytes that a session will hold for m at most beyond what it holds, as long as m's tokens are not known. */
uint64_t ntx_session_wants(const struct ntx_session_env *e, const struct ntx_request *m);
/* The answer has ended: the session waits for its next request. */
void ntx_session_rest(struct ntx_session *s);

/* ---- session_prompt.c: the conversation behind the tokens */
/* A request of n messages, and its answer, begin after so many tokens. */
int ntx__dialog_add(struct ntx_dialog *d, size_t n, uint32_t tokens);
/* Whether the last token is not to be fed when the conversation goes on with m. */
bool ntx__session_ends(const struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m);

#endif
