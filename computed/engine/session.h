/* SPDX-License-Identifier: Apache-2.0 */
/* session.h: the tokens of one conversation and the request that works on it. Owned by the engine thread.
 *
 *           tokens found         gets KV           decodes a token            end, `keep`
 *   READING ------------> QUEUED -------> RUNNING -----------------> RUNNING ------------> IDLE: waits for a request
 *                            ^---------------'
 *                              `preempted`: its client takes no replies, and other sessions wait
 *
 * tokens[0..n_past) are in the KV cache, tokens[n_past..n_tokens) are still to be fed. A request adds tokens at the
 * end; a row of a pass feeds one. LOGITS, SCORE and STATES requests are sessions, too, but sample nothing. */
#ifndef NTX_COMPUTED_ENGINE_SESSION_H
#define NTX_COMPUTED_ENGINE_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "computed/pass/ffn_set.h"
#include "computed/state/kv.h"
#include "computed/sample/sampler.h"
#include "computed/engine/constraint.h"
#include "computed/engine/request.h"
#include "computed/engine/reply_queue.h"
#include "computed/engine/session_images.h"
#include "computed/engine/session_text.h"
#include "computed/engine/thought.h"
#include "proto/settings.h"
#include "computed/engine/run_stats.h"
#include "model/chat.h"
#include "model/tensors.h"
#include "model/tokenizer.h"

enum ntx_session_kind { NTX_SESSION_GENERATE, NTX_SESSION_LOGITS, NTX_SESSION_SCORE, NTX_SESSION_STATES };
enum ntx_session_state { NTX_SESSION_READING, NTX_SESSION_QUEUED, NTX_SESSION_RUNNING, NTX_SESSION_IDLE };

enum ntx_session_steps { NTX_STEPS_NONE, NTX_STEPS_DIGESTS, NTX_STEPS_VALUES, NTX_STEPS_KINDS }; /* LogitsReq.steps */

struct ntx_dialog {   /* where the conversation can be cut; its text is in the tokens only */
    uint32_t *begins; /* [n] tokens before the first message of each request; UINT32_MAX for its other messages */
    unsigned n, room;
};

struct ntx_session {
    struct ntx_session *next;
    struct ntx_reply_queue *replies; /* one reference */
    uint64_t id, request;
    uint64_t client; /* clients take turns: the connection, or the client behind it */
    enum ntx_session_kind kind;
    enum ntx_session_state state;
    bool keep, cancel;

    struct ntx_request *unread;  /* owned; while READING, until there is memory for its tokens; then NULL */
    uint64_t unread_ns;          /* when it was asked */
    struct ntx_reading *reading; /* while READING */
    uint32_t reading_tokens;     /* most tokens that it may give */
    struct ntx_kv_seq *kv;       /* NULL while queued, and after its KV was freed for others */
    uint32_t reserve;            /* tokens to reserve KV for */
    int32_t *tokens;             /* below -1: a row of an image (images.h) */
    uint32_t n_tokens, room, n_past;
    struct ntx_image_spans images; /* where these are */
    uint32_t n_exact;              /* tokens from the begin on that were fed as a prompt's */
    uint32_t n_kept;               /* their blocks that were kept for others (engine_prefix.c) */
    bool pinned;                   /* only its prompt is wanted (request.h, prefix) */
    uint64_t turn;                 /* its place in the queue, in the engine's turns */
    bool preempted;                /* while QUEUED: it has decoded, and its KV went to others */
    bool again;                    /* RUNNING after that: its KV is computed again, as a prompt's */
    bool waits;                    /* sits out this pass: another session is ahead in the same text */
    uint8_t adapter;               /* of its rows; 0: none */
    uint32_t take, first_row;      /* its rows in this pass */
    struct ntx_draft *draft;       /* its proposal there; NULL: the next token only */
    /* what prompt lookup would have proposed: not computed, only learned from; or NULL */
    const struct ntx_draft *shadow;

    uint32_t n_prompt, generated, max_tokens; /* of the request; n_prompt: tokens to feed first */
    struct ntx_sampling sampling;
    struct ntx_sampler *sampler;       /* while RUNNING */
    struct ntx_constraint *constraint; /* NULL: none */
    struct ntx_thought *thought;       /* NULL: no answer in a conversation */
    struct ntx_text *text;
    bool ignore_eos, skip_space; /* skip_space: the next token begins the text */
    uint32_t invented; /* the last tokens, which begin a turn that is not the model's: they go with the next request */
    struct ntx_dialog dialog;
    struct ntx_chat_view view; /* of the answer under way, or the last one */
    bool predictor_lost;
    const char *note;       /* about the form of its prompt, or NULL; not freed */
    const char *think_note; /* about thoughts, likewise */
    char *options;          /* JSON of the request's options, for the statistics */

    uint32_t decoded; /* rows of the request that were fed one by one */
    /* [n_layers] mean cosine of each layer's input and output, which the skip policy adapts to; or NULL */
    float *similar;
    uint32_t n_seen;                             /* rows in it */
    struct ntx_ffn_set *ffn;                     /* --ffn-sparse prompt: its groups of neurons, once it was admitted */
    uint32_t state_layer, ffn_first, ffn_layers; /* states */
    enum ntx_session_steps steps;                /* logits: values of single steps to report */
    float *pool;                                 /* [n_embd] logits: the sum of its states, or NULL: not wanted */
    bool one_by_one;                             /* logits, score: tokens from `from` on are fed like generated ones */
    uint32_t from;                               /* logits: rows from here on; score: tokens from here on */
    double nll;
    float *each;         /* [n] negative log-likelihoods of tokens from `from` on */
    float *best;         /* [n] the least that any token had there (part of each) */
    int32_t *best_token; /* [n] that token (part of each) */

    struct ntx_run_stats run;
};

/* The model and its limits: requests are checked against them. */
struct ntx_session_env {
    const struct ntx_tokenizer *tok;
    const struct ntx_chat_template *chat;          /* the model's own; NULL: none, or it cannot be executed */
    bool has_template;                             /* the model names a template */
    struct ntx_think think;                        /* the load's default */
    char adapter[NTX_ADAPTERS_MAX][NTX_LORA_NAME]; /* names of the model's adapters */
    uint32_t n_adapters;
    struct ntx_err chat_err; /* why it cannot be executed */
    uint32_t n_vocab, ctx, n_layers, n_embd, capture_ffns;
    uint64_t read_bytes;                   /* memory for finding a prompt's tokens */
    uint64_t constraint_bytes, words_most; /* memory for a constraint; for the vocabulary that all constraints share */
    uint64_t constrains_from;              /* least --ram with room for one; 0: unknown */
    ntx_words_slot *words;                 /* the vocabulary, for masks */
    struct ntx_starts *starts;             /* when conversations began; NULL: all of them now */
    struct ntx_images *images;             /* NULL: the model was loaded without a projector, or has no use for one, */
    const char *blind;                     /* why; NULL: without a projector */
    uint32_t rows_together;                /* most rows of an image that a pass may have to have at once */
};

/* The prompt of a generate, before its tokens are found: this may take long and needs nothing of the session. */
struct ntx_prompt {
    const struct ntx_tokenizer *tok;
    const struct ntx_request *m;          /* borrowed */
    const struct ntx_chat_template *chat; /* NULL: a text, or tokens */
    bool follows;                         /* chat: an answer comes before it */
    const char *note;                     /* about its form, or NULL; not freed */
    struct ntx_chat_more more;            /* chat: in- and output of the model's own template */
    struct ntx_think think;               /* chat: what holds for thoughts */
    char think_variables[NTX_THINK_VARIABLES];
    const char *think_note;      /* or NULL; not freed */
    struct ntx_thought *thought; /* owned until a session takes it */
    int flags;                   /* flags of the tokenizer */
    uint32_t ctx, n_vocab;
    struct ntx_tok_limits limits;
    uint64_t constraint_bytes, words_most, constrains_from;
    ntx_words_slot *words;
    struct ntx_starts *starts;
    struct ntx_images *images;         /* or NULL, */
    const char *blind;                 /* as in the env */
    uint64_t scope;                    /* of the images, as of prefixes (prefix.h) */
    struct ntx_image_spans spans;      /* of images among ids; owned until a session takes them */
    bool unseen;                       /* it has pictures that must be encoded */
    atomic_uint n_seen, n_pictures;    /* pictures that have become rows, of so many; */
    uint32_t n_encoded;                /* so many of them were encoded, */
    uint64_t encode_ns;                /* in this time */
    char place[32];                    /* limits.place, if there are any */
    const char *reply;                 /* a name of model/reply/reply.h */
    struct ntx_constraint *constraint; /* owned until a session takes it */
    int32_t *ids;                      /* owned */
    int n;                             /* tokens in ids, or a negative errno with err */
    struct ntx_err err;
};

/* Prepares p to read the generate m for s, which is idle. Cuts the conversation where m says so. p is to be freed in
 * any case. */
int ntx_session_prompt(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m,
                       const atomic_bool *unwanted, struct ntx_prompt *p, struct ntx_err *err);
/* The reader's thread. unseen: all is done but that ntx_prompt_encode makes rows of its pictures. */
void ntx_prompt_read(struct ntx_prompt *p);
void ntx_prompt_encode(struct ntx_prompt *p); /* the encoder's thread */
void ntx_prompt_free(struct ntx_prompt *p);

int ntx_session_new(struct ntx_reply_queue *replies, uint64_t id, struct ntx_session **out);
void ntx_session_free(struct ntx_session *s);

/* Gives a request to s, which is new or idle. On an error s is unchanged, and err says why. */
int ntx_session_generate(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m,
                         struct ntx_prompt *p, struct ntx_err *err);
int ntx_session_logits(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m,
                       struct ntx_err *err);
int ntx_session_score(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m,
                      struct ntx_err *err);

int ntx_session_states(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m,
                       struct ntx_err *err);

static inline uint32_t ntx_session_todo(const struct ntx_session *s) { return s->n_tokens - s->n_past; }
/* With one_by_one: the first token that is fed alone. The logits after the token before it score the first one. */
static inline uint32_t ntx__session_single(const struct ntx_session *s)
{
    return s->kind == NTX_SESSION_SCORE ? s->from - 1 : s->from;
}
/* Whether its next token is fed alone, and may skip layers. */
static inline bool ntx_session_decoding(const struct ntx_session *s)
{
    if (s->again)
        return ntx_session_todo(s) == 1;
    return s->kind == NTX_SESSION_GENERATE ? s->generated > 0 : s->one_by_one && s->n_past >= ntx__session_single(s);
}
/* Most tokens that one pass may take. */
static inline uint32_t ntx_session_ready(const struct ntx_session *s)
{
    if (s->one_by_one)
        return ntx_session_decoding(s) ? 1 : ntx__session_single(s) - s->n_past;
    /* the last one is fed alone, as without the preemption */
    return s->again && !ntx_session_decoding(s) ? ntx_session_todo(s) - 1 : ntx_session_todo(s);
}
/* Adds a row's cosines of each layer to `similar` ([n_layers], NaN: none). */
int ntx_session_saw(struct ntx_session *s, const float *similar, uint32_t n_layers);
/* Whether the logits after tokens[i] are wanted. */
bool ntx_session_wants_logits(const struct ntx_session *s, uint32_t i);

/* Samples from the logits of row (or its best: forward.h), after the last token fed. *token: the sampled one. *finish:
 * NULL, or why the answer ends with it. text: the text to show now, valid until the next call. */
struct ntx_row;
int ntx_session_sample(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_row *row,
                       int32_t *token, const char **finish, const char **text, size_t *text_len);
/* The token that must come next, without logits: the end of a thought. False: none. */
bool ntx_session_is_due(const struct ntx_session *s);
int ntx_session_add_due(struct ntx_session *s, const struct ntx_session_env *e, int32_t *token, const char **finish,
                        const char **text, size_t *text_len);
/* Scores tokens[i + 1] by the logits after tokens[i]. */
void ntx_session_score_row(struct ntx_session *s, uint32_t i, const float *logits, uint32_t n_vocab);
/* Makes what s needs to run, once it has KV. Not before, since it is large and many sessions may wait. */
int ntx_session_start(struct ntx_session *s, const struct ntx_session_env *e);
/* Bytes that it holds, or may hold while it is read. While it runs, its constraint counts with its most bytes. */
uint64_t ntx_session_bytes(const struct ntx_session *s, const struct ntx_session_env *e);
uint64_t ntx_session_more(const struct ntx_session *s); /* further bytes that it will hold when it runs */
/* Most further bytes that a session will hold for m, before m's tokens are known. */
uint64_t ntx_session_wants(const struct ntx_session_env *e, const struct ntx_request *m);
/* The answer has ended; the session waits for its next request. */
void ntx_session_rest(struct ntx_session *s);

/* ---- prompt_pictures.c. check: whether the request's pictures may be read; engine thread. The rest: the thread that
 * reads. */
int ntx__pictures_check(const struct ntx_prompt *p, struct ntx_err *err);
/* Puts a mark into the messages' texts (or the only text) for each picture. *marked: copies that they point to. */
int ntx__pictures_mark(struct ntx_prompt *p, struct ntx_chat_msg *msgs, char ***marked);
void ntx__pictures_unmark(char **marked, size_t n);
/* The tokens of marks become rows of images. Returns how many tokens there are. Unless `encode`, -EAGAIN and no change
 * where a picture must be encoded. */
int ntx__pictures_place(struct ntx_prompt *p, bool encode);

/* ---- session_prompt.c: the conversation behind the tokens */
/* Adds a request of n messages, and its answer, which begin after so many tokens. */
int ntx__dialog_add(struct ntx_dialog *d, size_t n, uint32_t tokens);
/* Whether the last token is not to be fed when the conversation goes on with m. */
bool ntx__session_ends(const struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m);

#endif
