/* session.h: one client's line of tokens and the request that is working on it. Owned by the engine thread.
 *
 *                 KV there          all fed, one sampled, again            end, `keep`
 *   QUEUED ----------------> RUNNING ------------------------> RUNNING ----------------> IDLE (waits for the next request)
 *
 * tokens[0..n_past) are in the KV cache, tokens[n_past..n_tokens) are still to be fed. A request adds tokens at the end; a row of
 * a pass feeds one. LOGITS, SCORE and STATES requests are sessions too, that sample nothing. */
#ifndef NTX_COMPUTED_SESSION_H
#define NTX_COMPUTED_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "computed/ffn_set.h"
#include "computed/kv.h"
#include "computed/sampler.h"
#include "computed/server_sink.h"
#include "computed/session_text.h"
#include "computed/stats.h"
#include "model/chat.h"
#include "model/tokenizer.h"

enum ntx_session_kind { NTX_SESSION_GENERATE, NTX_SESSION_LOGITS, NTX_SESSION_SCORE, NTX_SESSION_STATES };
enum ntx_session_state { NTX_SESSION_QUEUED, NTX_SESSION_RUNNING, NTX_SESSION_IDLE };

struct ntx_dialog { /* the conversation so far, as it was rendered */
    struct ntx_chat_msg *msgs; /* role and text malloc'd */
    uint32_t *begins;          /* tokens before a request's first message, UINT32_MAX at its others */
    unsigned n, room;
    bool reply_open; /* an answer has begun: what is generated belongs to the last message */
};

struct ntx_session {
    struct ntx_session *next;
    struct ntx_sink *sink;     /* one reference */
    uint64_t id, request;
    enum ntx_session_kind kind;
    enum ntx_session_state state;
    bool keep, cancel;

    struct ntx_kv_seq *kv;     /* NULL while queued, and after an idle session was pushed out */
    uint32_t reserve;          /* tokens to reserve KV for */
    int32_t *tokens;
    uint32_t n_tokens, room, n_past;
    uint32_t take, first_row;  /* rows in the pass that is being made */

    uint32_t n_prompt, generated, max_tokens; /* of the request; n_prompt: tokens that it had to feed first */
    struct ntx_sampler *sampler;
    struct ntx_text *text;
    bool ignore_eos, skip_space; /* skip_space: the next token begins the text */
    struct ntx_dialog dialog;
    struct ntx_chat_view view; /* of the answer under way, or the last one */
    bool chatting;
    bool predictor_lost;
    char *options;             /* JSON of the request's options, for the statistics */

    uint32_t decoded;          /* rows that were fed one by one, of the request */
    float *similar;            /* [n_layers] cosine of input and output as seen so far, or NULL: what the skip policy adapts to */
    uint32_t n_seen;           /* rows in it */
    struct ntx_ffn_set *ffn;   /* --ffn-sparse prompt, once it was admitted: the groups of neurons that it uses */
    uint32_t state_layer, ffn_first, ffn_layers; /* states */
    bool one_by_one;           /* logits, score: tokens from `from` on are fed like written ones */
    uint32_t from;             /* logits: rows from here on; score: tokens from here on */
    double nll;
    float *each;

    struct ntx_run_stats run;
};

/* What a request asks, checked against model and context; nothing of it is the session's before all is valid. */
struct ntx_session_env {
    const struct ntx_tokenizer *tok;
    const struct ntx_chat_template *chat; /* the model's own; NULL: none, or unknown (chat_known tells) */
    bool has_template;                    /* the model names a template */
    uint32_t n_vocab, ctx, n_layers, study_ffns;
};

int ntx_session_new(struct ntx_sink *sink, uint64_t id, struct ntx_session **out);
void ntx_session_free(struct ntx_session *s);

/* Makes s work on a request (s is new or idle). On failure s is as before, and err says what was wrong. */
int ntx_session_generate(struct ntx_session *s, const struct ntx_session_env *e, const Ntx__Generate *m, struct ntx_err *err);
int ntx_session_logits(struct ntx_session *s, const struct ntx_session_env *e, const Ntx__LogitsReq *m, struct ntx_err *err);
int ntx_session_score(struct ntx_session *s, const struct ntx_session_env *e, const Ntx__ScoreReq *m, struct ntx_err *err);

int ntx_session_states(struct ntx_session *s, const struct ntx_session_env *e, const Ntx__StatesReq *m, struct ntx_err *err);

static inline uint32_t ntx_session_todo(const struct ntx_session *s) { return s->n_tokens - s->n_past; }
/* With one_by_one: the first token that is fed alone. The first one scored is judged by the logits behind the one before it. */
static inline uint32_t ntx__session_single(const struct ntx_session *s) { return s->kind == NTX_SESSION_SCORE ? s->from - 1 : s->from; }
/* Its next token is fed alone, and may skip layers. */
static inline bool ntx_session_decoding(const struct ntx_session *s)
{
    return s->kind == NTX_SESSION_GENERATE ? s->generated > 0 : s->one_by_one && s->n_past >= ntx__session_single(s);
}
/* Tokens that one pass may take at most. */
static inline uint32_t ntx_session_ready(const struct ntx_session *s)
{
    if (s->one_by_one)
        return ntx_session_decoding(s) ? 1 : ntx__session_single(s) - s->n_past;
    return ntx_session_todo(s);
}
/* Takes what a row showed of each layer ([n_layers], NaN: nothing) into `similar`. */
int ntx_session_saw(struct ntx_session *s, const float *similar, uint32_t n_layers);
/* Whether the logits behind tokens[i] are wanted. */
bool ntx_session_wants_logits(const struct ntx_session *s, uint32_t i);

/* Takes the logits of row (or its best: forward.h), behind the last token fed; *token is the sampled one, *finish NULL or why the answer ends with it. text: what may
 * be shown now, good until the next call. */
struct ntx_row;
int ntx_session_sample(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_row *row, int32_t *token, const char **finish,
                       const char **text, size_t *text_len);
/* Scores tokens[i + 1] by the logits behind tokens[i]. */
void ntx_session_score_row(struct ntx_session *s, uint32_t i, const float *logits, uint32_t n_vocab);
/* The answer has ended: the session waits for its next request. */
void ntx_session_rest(struct ntx_session *s);

/* ---- session_prompt.c: the tokens that a Generate adds, and the conversation behind them. *ids malloc'd, returns their number. *chat:
 * the template that they were made by; untouched where there was none. */
int ntx__session_prompt(struct ntx_session *s, const struct ntx_session_env *e, const Ntx__Generate *m, const struct ntx_chat_template **chat,
                        int32_t **ids, struct ntx_err *err);
int ntx__dialog_add(struct ntx_dialog *d, const char *role, const char *text, size_t len);
int ntx__dialog_append(struct ntx_dialog *d, const char *text, size_t len); /* to the answer under way */
void ntx__dialog_cut(struct ntx_dialog *d, unsigned n);                     /* forgets messages from n on */
void ntx__dialog_free(struct ntx_dialog *d);

#endif
