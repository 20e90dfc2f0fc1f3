/* SPDX-License-Identifier: Apache-2.0 */
/* ntx eval: counts the questions that a model answers exactly. Several questions share each pass; since a row's
 * value does not depend on its neighbours, the result does not depend on their number. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/out.h"
#include "common/util.h"
#include "model/tokenizer.h"

#define IN_FLIGHT    16u /* requests of one client that the daemon accepts at once */
#define ANSWER_SLACK 16  /* tokens beyond the most that the right answer can have (a byte each) */
#define FORM_TOKENS  256 /* the most tokens that a chat template adds: harmony's, even in a foreign vocabulary */

struct question {
    char *prompt, *answer;
    size_t prompt_len;
    char *got; /* the answer so far; trimmed at its end */
    size_t got_len;
    uint64_t id; /* id of its request */
    bool right;
};

struct eval {
    const struct ntx_options *o;
    struct ntx_client *c;
    struct question *q;
    size_t n, sent, done, right;
    uint64_t tokens;
    json_t *last; /* statistics of the latest answer */
};

/* ------------------------------------------------------------------------------------------------ questions */

/* Removes the white space around a text, in place. */
static void trim_text(char *s)
{
    size_t n = strlen(s), skip = 0;
    while (n && isspace((unsigned char)s[n - 1]))
        n--;
    while (skip < n && isspace((unsigned char)s[skip]))
        skip++;
    memmove(s, s + skip, n - skip);
    s[n - skip] = 0;
}

/* A continuation ends before the first '.' or newline, so an answer must not contain one, except at its end. */
static int take_answer(struct question *q, const char *answer)
{
    if (!(q->answer = strdup(answer)))
        return -ENOMEM;
    trim_text(q->answer);
    size_t n = strlen(q->answer);
    if (n && q->answer[n - 1] == '.')
        q->answer[n - 1] = 0;
    trim_text(q->answer);
    return *q->answer && !strpbrk(q->answer, ".\n") ? 0 : -EINVAL;
}

static int take_line(struct eval *e, const char *path, size_t line_no, const char *line, size_t len,
                     struct ntx_err *err)
{
    json_error_t je;
    const char *prompt, *answer;
    struct question *q = &e->q[e->n];
    json_t *j = json_loadb(line, len, JSON_REJECT_DUPLICATES, &je);
    int rc = 0;
    if (!j)
        return ntx_err_set(err, -EINVAL, "%s, line %zu: no JSON: %s", path, line_no, je.text);
    if (json_unpack(j, "{s:s%, s:s}", "prompt", &prompt, &q->prompt_len, "answer", &answer) || !q->prompt_len)
        rc = ntx_err_set(err, -EINVAL, "%s, line %zu: not of the form {\"prompt\": \"...\", \"answer\": \"...\"}", path,
                         line_no);
    e->n += !rc; /* from here on it is freed with the others */
    if (!rc && !(q->prompt = strdup(prompt)))
        rc = -ENOMEM;
    if (!rc)
        rc = take_answer(q, answer);
    if (rc == -ENOMEM)
        ntx_err_set(err, rc, "no memory for the questions");
    else if (rc && q->answer)
        ntx_err_set(err, rc,
                    "%s, line %zu: the answer '%.100s' is empty, or holds a newline or a '.' that is not its end: no "
                    "continuation could equal it",
                    path, line_no, q->answer);
    json_decref(j);
    return rc;
}

static bool blank_line(const char *s, size_t n)
{
    while (n && isspace((unsigned char)s[n - 1]))
        n--;
    return !n;
}

static int read_questions(struct eval *e, const char *path, struct ntx_err *err)
{
    char *text = NULL;
    size_t len = 0, lines = 1, line_no = 0;
    FILE *f = fopen(path, "rb");
    int rc = f ? ntx_read_stream(f, &text, &len) : -errno;
    if (f)
        fclose(f);
    if (rc)
        return ntx_err_set(err, rc, "%s: cannot read the questions: %s", path, strerror(-rc));
    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    if (!(e->q = calloc(lines, sizeof *e->q)))
        rc = ntx_err_set(err, -ENOMEM, "no memory for %zu questions", lines);
    for (char *p = text, *end = text + len; !rc && p < end;) {
        char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl ? nl : end) - p);
        line_no++;
        if (!blank_line(p, n))
            rc = take_line(e, path, line_no, p, n, err);
        p += n + 1;
    }
    free(text);
    if (!rc && !e->n)
        rc = ntx_err_set(err, -EINVAL,
                         "%s: no questions in it; each line is {\"prompt\": \"...\", \"answer\": \"...\"}", path);
    return rc;
}

static void free_questions(struct eval *e)
{
    for (size_t i = 0; i < e->n; i++) {
        free(e->q[i].prompt);
        free(e->q[i].answer);
        free(e->q[i].got);
    }
    free(e->q);
    json_decref(e->last);
}

static bool has_form(const struct ntx_options *o) { return o->chat_template || o->template_file; }

static uint32_t answer_tokens(const struct eval *e, const struct question *q)
{
    return e->o->n ? e->o->n : (uint32_t)strlen(q->answer) + ANSWER_SLACK;
}

/* ------------------------------------------------------------------------------------------------ loading */

/* Tokens of the longest question with its answer. */
static int longest_question(const struct eval *e, const struct ntx_model_files *f, uint32_t *ctx, struct ntx_err *err)
{
    struct ntx_tokenizer *t = NULL;
    uint32_t most = 0;
    int rc = ntx_tokenizer_open(f->gguf, &t, err);
    for (size_t i = 0; !rc && i < e->n; i++) {
        int32_t *ids = NULL;
        int n = ntx_tokenize(t, e->q[i].prompt, e->q[i].prompt_len, NTX_TOK_BOS, &ids);
        free(ids);
        if (n < 0)
            rc = ntx_err_set(err, n, "cannot tokenize question %zu: %s", i + 1, strerror(-n));
        else
            most = NTX_MAX(most, (uint32_t)n + answer_tokens(e, &e->q[i]) + (has_form(e->o) ? FORM_TOKENS : 0));
    }
    ntx_tokenizer_free(t);
    if (!rc)
        *ctx = most;
    return rc;
}

/* Reserves KV cache for all concurrent questions where the budget allows it, else for one. --ctx and --sessions win. */
static int load_model(struct eval *e, struct ntx_options *o, struct ntx_model_files *f, struct ntx_err *err)
{
    bool free_choice = !o->load.sessions && !o->load.ctx;
    int rc = ntx_model_files_load(o, f, err);
    if (!rc && !o->load.ctx)
        rc = longest_question(e, f, &o->load.ctx, err);
    if (!rc)
        rc = ntx_client_captive(true, &e->c, err);
    if (!rc && free_choice)
        o->load.sessions = (uint32_t)NTX_MIN(e->n, (size_t)IN_FLIGHT);
    if (!rc)
        rc = ntx_load_model(e->c, o, f, err);
    if (rc == -ENOMEM && free_choice && o->load.sessions > 1) {
        o->load.sessions = 1;
        *err = (struct ntx_err){0};
        rc = ntx_load_model(e->c, o, f, err);
    }
    ntx_clear_progress();
    return rc;
}

/* ------------------------------------------------------------------------------------------------ asking */

static int send_question(struct eval *e, struct question *q, struct ntx_err *err)
{
    static char *const ends[] = {"\n", "."};
    const struct ntx_options *o = e->o;
    Ntx__Generate m = NTX__GENERATE__INIT;
    Ntx__Sampling s = NTX__SAMPLING__INIT;
    Ntx__Request r = NTX__REQUEST__INIT;
    Ntx__Message msg[2] = {NTX__MESSAGE__INIT, NTX__MESSAGE__INIT}, *list[2] = {&msg[0], &msg[1]};
    char *stops[NTX_MAX_STOPS + 2];
    ntx_options_sampling(o, &s);
    s.temp = o->sampling.has_temp ? o->sampling.temp : 0;
    memcpy(stops, ends, sizeof ends);
    memcpy(stops + 2, o->stops, o->n_stops * sizeof *stops);
    m.stop = stops;
    m.n_stop = 2 + o->n_stops;
    m.sampling = &s;
    m.ignore_eos = o->ignore_eos;
    m.max_tokens = answer_tokens(e, q);
    m.raw = !has_form(o);
    m.think = o->think ? (char *)o->think : m.think;
    m.chat_template = (char *)(o->chat_template ? o->chat_template : "");
    ProtobufCBinaryData prompt = {q->prompt_len, (uint8_t *)q->prompt};
    if (m.raw) {
        m.prompt = prompt;
    } else {
        if (o->system)
            msg[m.n_messages++] = (Ntx__Message){
                .base = msg[0].base, .role = (char *)"system", .text = {strlen(o->system), (uint8_t *)o->system}};
        msg[m.n_messages] = (Ntx__Message){.base = msg[1].base, .role = (char *)"user", .text = prompt};
        m.n_messages++;
        m.messages = list;
    }
    r.body_case = NTX__REQUEST__BODY_GENERATE;
    r.generate = &m;
    return ntx_client_send(e->c, &r, NULL, 0, &q->id, err);
}

static int add_text(struct question *q, const ProtobufCBinaryData *text)
{
    char *p = realloc(q->got, q->got_len + text->len + 1);
    if (!p)
        return -ENOMEM;
    if (text->len)
        memcpy(p + q->got_len, text->data, text->len);
    q->got = p;
    q->got_len += text->len;
    p[q->got_len] = 0;
    return 0;
}

static int judge_answer(struct eval *e, struct question *q, const Ntx__Done *d, struct ntx_err *err)
{
    json_decref(e->last);
    if (!(e->last = json_loads(d->stats_json, 0, NULL)))
        return ntx_err_set(err, -EPROTO, "the daemon sent statistics that are no JSON");
    if (!q->got && !(q->got = strdup("")))
        return ntx_err_set(err, -ENOMEM, "no memory");
    trim_text(q->got);
    q->right = !strcmp(q->got, q->answer);
    q->id = 0;
    e->tokens += (uint64_t)json_integer_value(json_object_get(e->last, "generated_tokens"));
    e->right += q->right;
    e->done++;
    if (!e->o->quiet && isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K%zu of %zu questions, %zu right", e->done, e->n, e->right);
    return 0;
}

static int take_reply(struct eval *e, const Ntx__Reply *r, struct ntx_err *err)
{
    struct question *q = NULL;
    for (size_t i = e->sent; i > 0 && !q; i--) /* the questions under way are among the last */
        if (e->q[i - 1].id == r->id)
            q = &e->q[i - 1];
    if (!q)
        return 0;
    if (r->body_case == NTX__REPLY__BODY_ERROR)
        return ntx_err_set(err, r->error->err < 0 ? r->error->err : -EIO, "question %zu: %s", (size_t)(q - e->q) + 1,
                           r->error->text);
    if (r->body_case == NTX__REPLY__BODY_TOKEN && add_text(q, &r->token->text))
        return ntx_err_set(err, -ENOMEM, "no memory");
    return r->body_case == NTX__REPLY__BODY_DONE ? judge_answer(e, q, r->done, err) : 0;
}

static int request_all(struct eval *e, struct ntx_err *err)
{
    int rc = 0;
    while (!rc && e->done < e->n) {
        Ntx__Reply *r;
        while (!rc && e->sent < e->n && e->sent - e->done < IN_FLIGHT)
            rc = send_question(e, &e->q[e->sent++], err);
        if (rc || (rc = ntx_client_any(e->c, -1, &r, err)))
            break;
        rc = take_reply(e, r, err);
        ntx__reply__free_unpacked(r, NULL);
    }
    ntx_clear_progress();
    return rc;
}

/* ------------------------------------------------------------------------------------------------ reporting */

static json_t *wrong_answers(const struct eval *e)
{
    json_t *list = json_array();
    for (size_t i = 0; i < e->n; i++)
        if (!e->q[i].right)
            json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "prompt", e->q[i].prompt, "answer", e->q[i].answer,
                                                  "got", e->q[i].got));
    return list;
}

/* The results, and those statistics that hold for all answers. */
static json_t *json_of_results(const struct eval *e, double seconds)
{
    static const char *const same[] = {"model",       "arch",       "backend",       "kernel", "threads",
                                       "bytes_model", "bytes_host", "bytes_storage", "lossy",  "commit"};
    json_t *j = json_pack("{s:f, s:I, s:I, s:I, s:f}", "accuracy", (double)e->right / e->n, "correct",
                          (json_int_t)e->right, "questions", (json_int_t)e->n, "generated_tokens",
                          (json_int_t)e->tokens, "seconds", seconds);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        json_t *v = json_object_get(e->last, same[i]);
        if (v)
            json_object_set(j, same[i], v);
    }
    if (e->o->verbose)
        json_object_set_new(j, "wrong", wrong_answers(e));
    return j;
}

static void print_wrong(const struct question *q)
{
    const char *const head[] = {"wrong: ", "\n  answer: ", "\n  got:    "}, *const text[] = {q->prompt, q->answer,
                                                                                             q->got};
    for (int i = 0; i < 3; i++) {
        fputs(head[i], stdout);
        ntx_out_text(text[i], strlen(text[i]));
    }
    putchar('\n');
}

static int report_results(const struct eval *e, double seconds, struct ntx_err *err)
{
    json_t *j = json_of_results(e, seconds);
    if (!j)
        return ntx_err_set(err, -ENOMEM, "no memory");
    for (size_t i = 0; i < e->n && e->o->verbose && !e->o->json; i++)
        if (!e->q[i].right)
            print_wrong(&e->q[i]);
    if (e->o->json)
        ntx_out_json(j, JSON_COMPACT);
    else
        printf("accuracy %.4f: %zu of %zu answers are exact (%.1f s)\n", (double)e->right / e->n, e->right, e->n,
               seconds);
    int rc = ntx_write_stats(e->o, j, err);
    json_decref(j);
    return rc;
}

int ntx_cmd_eval(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_model_files f = {0};
    struct eval e = {.o = o};
    if (!o->questions)
        return fputs("ntx eval: --questions FILE is needed; see ntx eval --help\n", stderr), NTX_EXIT_USAGE;
    if (o->prompt_file)
        return fputs("ntx eval: -f has no meaning here: the prompts are in --questions FILE\n", stderr), NTX_EXIT_USAGE;
    if (o->system && !has_form(o))
        return fputs("ntx eval: --system has a meaning only with --chat-template\n", stderr), NTX_EXIT_USAGE;
    int rc = read_questions(&e, o->questions, &err);
    if (!rc)
        rc = load_model(&e, o, &f, &err);
    uint64_t t0 = ntx_now_ns();
    if (!rc)
        rc = request_all(&e, &err);
    if (!rc)
        rc = report_results(&e, (double)(ntx_now_ns() - t0) / 1e9, &err);
    ntx_client_free(e.c);
    ntx_model_files_close(&f);
    free_questions(&e);
    return rc ? ntx_fail(&err) : 0;
}
