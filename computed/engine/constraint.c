/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/constraint.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/grammars.h"
#include "computed/plan/budget.h"

/* ---- the vocabulary */

struct ntx_words {
    struct ntx_tokens *tokens; /* NULL: it exceeds the memory; then */
    uint64_t wants;            /* bytes that it would need */
    struct ntx_grammars *grammars;
    int32_t *ends; /* [n] tokens that end an answer */
    uint32_t n;
    bool strips;   /* the space of a first token is not shown */
    int32_t *kept; /* [n_kept] tokens whose space would be shown: none begins an answer */
    uint32_t n_kept;
};

/* Bytes of a token for the grammar. Control tokens have their names after NTX_GRAMMAR_CONTROL; an ordinary token with
 * that byte is never allowed, and neither is an end token as text. */
static int token_bytes(void *ctx, int32_t id, char *buf, size_t room)
{
    const struct ntx_tokenizer *tok = ctx;
    if (ntx_tokenizer_is_eog(tok, id))
        return 0;
    int n = ntx_detokenize_one(tok, id, false, false, buf, room);
    if (n > 0 && memchr(buf, NTX_GRAMMAR_CONTROL, (size_t)n))
        return 0;
    if (n)
        return n;
    buf[0] = NTX_GRAMMAR_CONTROL;
    n = ntx_detokenize_one(tok, id, false, true, buf + 1, room - 1);
    return n > 0 ? n + 1 : 0;
}

/* Finds the tokens that lose their space in first place, and those that keep it. */
static int find_spaces(struct ntx_words *w, const struct ntx_tokenizer *tok)
{
    char a[NTX_TOKEN_MAX];
    for (uint32_t i = 0; i < ntx_tokenizer_n_vocab(tok); i++) {
        int n = ntx_detokenize_one(tok, (int32_t)i, false, false, a, sizeof a);
        if (n < 1 || a[0] != ' ')
            continue;
        if (ntx_detokenize_one(tok, (int32_t)i, true, false, a, sizeof a) < n) {
            w->strips = true;
            continue;
        }
        if (w->n_kept % 256 == 0) {
            int32_t *p = realloc(w->kept, (w->n_kept + 256) * sizeof *p);
            if (!p)
                return -ENOMEM;
            w->kept = p;
        }
        w->kept[w->n_kept++] = (int32_t)i;
    }
    return 0;
}

static int words_new(const struct ntx_tokenizer *tok, struct ntx_words **out)
{
    uint32_t n = ntx_tokenizer_n_vocab(tok);
    struct ntx_words *w = calloc(1, sizeof *w);
    int rc = w ? ntx_tokens_new(n, token_bytes, (void *)(uintptr_t)tok, &w->tokens) : -ENOMEM;
    if (!rc)
        rc = ntx_grammars_new(&w->grammars);
    for (uint32_t i = 0; !rc && i < n; i++)
        w->n += ntx_tokenizer_is_eog(tok, (int32_t)i);
    if (!rc && !(w->ends = malloc((w->n + 1) * sizeof *w->ends)))
        rc = -ENOMEM;
    if (!rc)
        rc = find_spaces(w, tok);
    if (rc) {
        ntx_words_free(w);
        return rc;
    }
    w->n = 0;
    for (uint32_t i = 0; i < n; i++)
        if (ntx_tokenizer_is_eog(tok, (int32_t)i))
            w->ends[w->n++] = (int32_t)i;
    *out = w;
    return 0;
}

void ntx_words_free(struct ntx_words *w)
{
    if (!w)
        return;
    ntx_grammars_free(w->grammars);
    ntx_tokens_free(w->tokens);
    free(w->ends);
    free(w->kept);
    free(w);
}

uint64_t ntx_words_bytes(const struct ntx_words *w)
{
    if (!w)
        return 0;
    return sizeof *w + (w->tokens ? ntx_tokens_bytes(w->tokens) + ntx_grammars_bytes(w->grammars) : 0);
}

bool ntx_words_trim(struct ntx_words *w) { return w && w->grammars && ntx_grammars_trim(w->grammars); }

void ntx_words_allow(struct ntx_words *w, uint64_t bytes)
{
    if (!w || !w->grammars)
        return;
    uint64_t others = sizeof *w + ntx_tokens_bytes(w->tokens);
    ntx_grammars_allow(w->grammars, bytes > others ? bytes - others : 0);
}

uint64_t ntx_words_idle(const struct ntx_words *w)
{
    return w && w->grammars ? ntx_masks_bytes(ntx_grammars_masks(w->grammars)) : 0;
}

uint64_t ntx_words_masks(const struct ntx_words *w)
{
    return w && w->grammars ? ntx_masks_computed(ntx_grammars_masks(w->grammars)) : 0;
}

/* ---- the constraint of a request */

#define LEAST (256u << 10) /* bytes of a match, at least (grammar.h) */

struct ntx_constraint {
    const struct ntx_tokenizer *tok;
    const struct ntx_words *words;
    uint32_t n_vocab;
    struct ntx_shared_grammar *grammar; /* NULL: no constraint */
    struct ntx_match *match;
    uint64_t memory;
    struct ntx_request_bias *bias; /* [n_bias] */
    size_t n_bias;
    bool ignore_eos, over, logprobs;
    bool given; /* the last token was not drawn */
    uint32_t top;
    double max, log_sum; /* of the current logits */
    struct ntx_token_top token_top;
};

bool ntx_constraint_wanted(const struct ntx_request *m) { return m->constraint || m->n_bias || m->logprobs; }

static int compile_text(char *text, struct ntx_grammar **out, struct ntx_err *err)
{
    int rc = ntx_grammar_compile(text, strlen(text), out, err);
    free(text);
    return rc;
}

/* An ntx_grammar_make_fn. */
static int compile_constraint(void *ctx, struct ntx_grammar **out, struct ntx_err *err)
{
    const struct ntx_constraint_request *a = ctx;
    const char *text = a->m->constraint_text.len ? a->m->constraint_text.data : "";
    size_t len = a->m->constraint_text.len;
    char *made = NULL;
    int rc;
    if (!strcmp(a->m->constraint, "grammar"))
        return ntx_grammar_compile(text, len, out, err);
    const bool closest = !strcmp(a->m->constraint, "closest");
    if (closest || !strcmp(a->m->constraint, "schema"))
        rc = ntx__constraint_schema(closest, a->reply, a->chat, ntx_tokenizer_has_control(a->tok, "<|channel|>"), text,
                                    len, &made, err);
    else if (!strcmp(a->m->constraint, "calls"))
        rc = ntx__constraint_calls(a->reply, text, len, &made, err);
    else
        return ntx_err_set(err, -EINVAL, "a constraint is a grammar, a schema or calls, not '%s'", a->m->constraint);
    return rc ? rc : compile_text(made, out, err);
}

/* Keeps only the size of a vocabulary that is too large, so that it is not made again for every request. */
static int forget_words(struct ntx_words *w)
{
    w->wants = ntx_tokens_bytes(w->tokens);
    ntx_tokens_free(w->tokens);
    ntx_grammars_free(w->grammars);
    w->tokens = NULL;
    w->grammars = NULL;
    return 0;
}

const char *ntx_constraint_ram(uint32_t n_vocab, uint64_t from, const struct ntx_budget_refused *r, char *buf,
                               size_t room)
{
    uint64_t ram = from ? ntx_budget_with_room(n_vocab, from, r) : 0;
    if (ram)
        snprintf(buf, room, "load the model with --ram %lluM or more", (unsigned long long)ram >> 20);
    else
        snprintf(buf, room, from ? "no --ram leaves more for it" : "load the model with a larger --ram");
    return buf;
}

/* Gets the shared vocabulary. One that is too large would take memory from others for good, so the request is
 * refused. */
static int share_words(const struct ntx_constraint_request *a, struct ntx_words **out, struct ntx_err *err)
{
    struct ntx_words *w = atomic_load(a->words);
    int rc = w ? 0 : words_new(a->tok, &w);
    if (!rc && w->tokens && ntx_tokens_bytes(w->tokens) > a->words_most && !atomic_load(a->words))
        rc = forget_words(w);
    if (rc)
        return ntx_err_set(err, rc, "no memory for the vocabulary of a grammar");
    atomic_store(a->words, w);
    *out = w;
    if (w->tokens)
        return 0;
    struct ntx_grammar *g = NULL; /* the --ram in the error must fit the grammar, too */
    if ((rc = compile_constraint((void *)(uintptr_t)a, &g, err)))
        return rc;
    char ram[96];
    const struct ntx_budget_refused r = {.words = w->wants, .grammar = ntx_grammar_bytes(g)};
    ntx_grammar_free(g);
    return ntx_err_set(
        err, -EOVERFLOW,
        "a grammar, a schema or calls need %llu KiB for this model's vocabulary, and --ram leaves %llu KiB for it: %s",
        (unsigned long long)(w->wants + 1023) >> 10, (unsigned long long)a->words_most >> 10,
        ntx_constraint_ram(a->n_vocab, a->constrains_from, &r, ram, sizeof ram));
}

static int set_grammar(struct ntx_constraint *c, const struct ntx_constraint_request *a, struct ntx_err *err)
{
    struct ntx_words *w = NULL;
    const struct ntx_grammar_key key = {a->m->constraint, a->reply, a->chat, a->m->constraint_text};
    int rc = share_words(a, &w, err);
    if (rc)
        return rc;
    c->words = w;
    if ((rc = ntx_grammars_take(w->grammars, &key, compile_constraint, (void *)(uintptr_t)a, &c->grammar, err)))
        return rc;
    size_t bytes = ntx_grammar_bytes(ntx_grammars_of(c->grammar));
    if (a->memory < LEAST || bytes > a->memory) {
        char ram[96];
        const struct ntx_budget_refused r = {.words = ntx_tokens_bytes(w->tokens), .grammar = bytes};
        return ntx_err_set(
            err, -EOVERFLOW,
            "the grammar or schema takes %zu KiB, and --ram leaves %llu KiB for one: make it smaller, or %s",
            (NTX_MAX(bytes, (size_t)LEAST) + 1023) >> 10, (unsigned long long)a->memory >> 10,
            ntx_constraint_ram(a->n_vocab, a->constrains_from, &r, ram, sizeof ram));
    }
    struct ntx_match_config m = {.grammar = ntx_grammars_of(c->grammar),
                                 .tokens = w->tokens,
                                 .masks = ntx_grammars_masks(w->grammars),
                                 .memory = a->memory,
                                 .thinking = a->thinks};
    rc = ntx_match_new(&m, &c->match);
    if (!rc)
        return 0;
    return ntx_err_set(err, rc, "%s", rc == -ENOMEM ? "no memory for the grammar" : ntx_constraint_why(rc));
}

static void release_grammar(struct ntx_constraint *c)
{
    ntx_match_free(c->match);
    if (c->grammar)
        ntx_grammars_give(c->words->grammars, c->grammar);
    c->match = NULL;
    c->grammar = NULL;
}

static int copy_biases(struct ntx_constraint *c, const struct ntx_constraint_request *a, struct ntx_err *err)
{
    for (size_t i = 0; i < a->m->n_bias; i++)
        if (a->m->bias[i].token < 0 || (uint32_t)a->m->bias[i].token >= a->n_vocab)
            return ntx_err_set(err, -EINVAL, "a bias is for token %d, which is not one of the vocabulary's %u",
                               a->m->bias[i].token, a->n_vocab);
    if (!a->m->n_bias)
        return 0;
    if (!(c->bias = malloc(a->m->n_bias * sizeof *c->bias)))
        return ntx_err_set(err, -ENOMEM, "no memory for the biases");
    memcpy(c->bias, a->m->bias, a->m->n_bias * sizeof *c->bias);
    c->n_bias = a->m->n_bias;
    return 0;
}

int ntx_constraint_new(const struct ntx_constraint_request *a, struct ntx_constraint **out, struct ntx_err *err)
{
    struct ntx_constraint *c = calloc(1, sizeof *c);
    if (!c)
        return ntx_err_set(err, -ENOMEM, "no memory for a request");
    *c = (struct ntx_constraint){.tok = a->tok,
                                 .n_vocab = a->n_vocab,
                                 .memory = a->memory,
                                 .ignore_eos = a->m->ignore_eos,
                                 .logprobs = a->m->logprobs,
                                 .top = NTX_MIN(a->m->top_logprobs, NTX_TOP_MOST)};
    int rc = a->m->constraint ? set_grammar(c, a, err) : 0;
    if (rc && rc != -ENOMEM && a->m->constraint_soft) {
        release_grammar(c);
        rc = 0;
    }
    if (!rc)
        rc = copy_biases(c, a, err);
    if (rc)
        ntx_constraint_free(c);
    else
        *out = c;
    return rc;
}

void ntx_constraint_free(struct ntx_constraint *c)
{
    if (!c)
        return;
    release_grammar(c);
    free(c->bias);
    free(c);
}

uint64_t ntx_constraint_bytes(const struct ntx_constraint *c)
{
    if (!c)
        return 0;
    return sizeof *c + c->n_bias * sizeof *c->bias + (c->match ? ntx_match_bytes(c->match) : 0);
}

uint64_t ntx_constraint_most(const struct ntx_constraint *c)
{
    if (!c)
        return 0;
    return sizeof *c + c->n_bias * sizeof *c->bias + (c->match ? c->memory : 0);
}

uint64_t ntx_constraint_shared(const struct ntx_constraint *c)
{
    return c && c->match ? ntx_tokens_bytes(c->words->tokens) + ntx_grammar_bytes(ntx_grammars_of(c->grammar)) : 0;
}

void ntx_constraint_rest(struct ntx_constraint *c)
{
    if (c && c->match)
        ntx_match_rest(c->match);
}

/* ---- log probabilities: log(exp(l) / sum(exp)), by sums of doubles in the order of the ids */

static void set_log_sum(struct ntx_constraint *c, const float *logits)
{
    double max = logits[0], sum = 0;
    for (uint32_t i = 1; i < c->n_vocab; i++)
        max = logits[i] > max ? logits[i] : max;
    for (uint32_t i = 0; i < c->n_vocab; i++)
        sum += exp((double)logits[i] - max);
    c->max = max;
    c->log_sum = log(sum);
}

static float logprob(const struct ntx_constraint *c, float logit)
{
    return (float)((double)logit - c->max - c->log_sum);
}

/* Finds the likeliest tokens; of equal ones, those of least id. */
static void find_top(struct ntx_constraint *c, const float *logits)
{
    struct ntx_candidate *top = c->token_top.top;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_vocab && c->top; i++) {
        if (n == c->top && !(logits[i] > top[n - 1].logit))
            continue;
        uint32_t at = n < c->top ? n++ : n - 1;
        for (; at > 0 && logits[i] > top[at - 1].logit; at--)
            top[at] = top[at - 1];
        top[at] = (struct ntx_candidate){logits[i], (int32_t)i};
    }
    for (uint32_t i = 0; i < n; i++)
        top[i].logit = logprob(c, top[i].logit);
    c->token_top.n = n;
}

const struct ntx_token_top *ntx_constraint_token_top(const struct ntx_constraint *c)
{
    return c && c->logprobs && !c->given ? &c->token_top : NULL;
}

/* ---- the draw */

static int apply_mask(struct ntx_constraint *c, float *values, bool lead)
{
    const uint32_t *bits;
    bool none, ends = ntx_match_may_end(c->match);
    int rc = ntx_match_mask(c->match, lead && c->words->strips, &bits, &none);
    uint32_t n = ntx_tokenizer_n_vocab(c->tok);
    if (rc)
        return rc;
    if (none && (!ends || !c->words->n))
        return -EILSEQ;
    float kept[64];
    for (uint32_t i = 0; i < c->words->n && i < 64; i++)
        kept[i] = values[c->words->ends[i]];
    for (uint32_t i = 0; i < c->n_vocab; i++)
        if (i >= n || !(bits[i / 32] >> (i % 32) & 1))
            values[i] = -INFINITY;
    for (uint32_t i = 0; i < c->words->n_kept && lead && c->words->strips; i++)
        values[c->words->kept[i]] = -INFINITY;
    for (uint32_t i = 0; i < c->words->n && i < 64 && ends && (none || !c->ignore_eos); i++)
        values[c->words->ends[i]] = kept[i];
    return 0;
}

/* Advances the match by the token that was drawn. */
static int advance_match(struct ntx_constraint *c, int32_t token, bool lead)
{
    char buf[NTX_TOKEN_MAX + 1];
    if (ntx_tokenizer_is_eog(c->tok, token)) {
        c->over = true;
        return ntx_match_may_end(c->match) ? 0 : -EILSEQ;
    }
    int n = lead && c->words->strips ? ntx_detokenize_one(c->tok, token, true, false, buf, sizeof buf) : 0;
    if (!n)
        n = token_bytes((void *)(uintptr_t)c->tok, token, buf, sizeof buf);
    if (lead && n == 1 && buf[0] == ' ' && c->words->strips) /* a lone space is not shown */
        n = 0;
    int rc = n < 0 ? n : ntx_match_take(c->match, buf, (size_t)n);
    c->over = !rc && ntx_match_must_end(c->match);
    return rc == -EINVAL ? -EILSEQ : rc;
}

int ntx_constraint_draw(struct ntx_constraint *c, struct ntx_sampler *s, uint64_t position, const float *logits,
                        bool lead, int32_t *token)
{
    int rc = 0;
    c->given = false;
    if (c->logprobs) {
        set_log_sum(c, logits);
        find_top(c, logits);
    }
    ntx_sampler_take(s, logits);
    float *values = ntx_sampler_values(s);
    for (size_t i = 0; i < c->n_bias; i++)
        values[c->bias[i].token] += c->bias[i].add;
    if (c->match)
        rc = apply_mask(c, values, lead);
    if (rc)
        return rc;
    *token = ntx_sampler_draw(s, position);
    if (c->logprobs)
        c->token_top.logprob = logprob(c, logits[*token]);
    return c->match ? advance_match(c, *token, lead) : 0;
}

int ntx_constraint_take(struct ntx_constraint *c, int32_t token, bool lead)
{
    c->given = true;
    return c->match ? advance_match(c, token, lead) : 0;
}

bool ntx_constraint_over(const struct ntx_constraint *c) { return c && c->over; }

const char *ntx_constraint_why(int rc)
{
    if (rc == -EILSEQ)
        return "the grammar allows nothing here that this model's vocabulary can write";
    if (rc == -E2BIG)
        return "the grammar is too ambiguous: what it may mean here takes more memory or work than there is for it";
    return strerror(-rc);
}
