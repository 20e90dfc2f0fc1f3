/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that generate no text: tokens of a text, and embeddings. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/gateway/request_fields.h"
#include "client/gateway/http.h"
#include "common/util.h"

enum { INPUTS_MOST = 256, WAIT_MS = 5000 };

static int fault_of(int rc, const struct ntx_err *err, struct ntx_fault *f)
{
    return ntx_fault(f, ntx_fault_of(rc), NULL, "%s", err->text[0] ? err->text : strerror(-rc));
}

/* Waits for the next event of a kind; skips progress. */
static int await_event(struct ntx_call *c, enum ntx_event_kind kind, struct ntx_event *e, struct ntx_fault *f)
{
    struct ntx_err err = {0};
    int rc;
    do
        rc = ntx_call_next(c, WAIT_MS, e, &err);
    while (rc == -ETIMEDOUT || (!rc && e->kind == NTX_EVENT_PROGRESS));
    if (!rc && e->kind != kind)
        rc = ntx_err_set(&err, -EPROTO, "ntx-computed sent an unexpected reply");
    return rc ? fault_of(rc, &err, f) : 0;
}

static int request_text(struct ntx_call *c, const struct ntx_call_text *t, struct ntx_event *e, struct ntx_fault *f)
{
    struct ntx_err err = {0};
    int rc = ntx_call_text(c, t, &err);
    return rc ? fault_of(rc, &err, f) : await_event(c, NTX_EVENT_WORDS, e, f);
}

static json_t *ids_json(const struct ntx_event *e)
{
    json_t *list = json_array();
    for (size_t i = 0; i < e->n_ids; i++)
        json_array_append_new(list, json_integer(e->ids[i]));
    return list;
}

/* [{"id", "piece"}], or the pieces alone. A piece that is no whole UTF-8 text is a list of bytes beside its id. */
static json_t *pieces_json(const struct ntx_event *e, bool ids)
{
    json_t *list = json_array();
    const unsigned char *p = (const unsigned char *)e->text;
    for (size_t i = 0; i < e->n_lengths; p += e->lengths[i++]) {
        json_t *piece = json_stringn((const char *)p, e->lengths[i]);
        if (!piece && ids) {
            piece = json_array();
            for (size_t k = 0; k < e->lengths[i]; k++)
                json_array_append_new(piece, json_integer(p[k]));
        }
        piece = piece ? piece : ntx_json_text((const char *)p, e->lengths[i]);
        json_array_append_new(list, ids ? json_pack("{s:i, s:o}", "id", e->ids[i], "piece", piece) : piece);
    }
    return list;
}

/* Reads the body and connects to ntx-computed: 0, or -1 with f. */
static int begin_words(struct ntx_request *q, bool slot, json_t **body, struct ntx_call **c, struct ntx_fault *f)
{
    struct ntx_err err = {0};
    *body = ntx__json_read(q->body.n ? q->body.p : "", q->body.n, f);
    ntx__http_body_done(q);
    bool keeps = false;
    int64_t keep_ms;
    if (!*body || ntx__request_keep(*body, &keeps, &keep_ms, f) ||
        ntx__http_turn(q, json_string_value(json_object_get(*body, "model")), -1, f))
        return -1;
    if (keeps && q->turn)
        ntx_turn_keep(q->turn, keep_ms);
    const struct ntx_caller by = ntx__http_caller(q);
    int rc = ntx_call_open(ntx__http_gate(q->http), ntx__http_place(q), &by, slot, c, &err);
    if (!rc && q->turn)
        ntx_call_for(*c, ntx_turn_model(q->turn));
    return rc ? fault_of(rc, &err, f) : 0;
}

/* made: the answer, or NULL with f. */
static enum MHD_Result end_request(struct ntx_request *q, json_t *body, struct ntx_call *c, json_t *made,
                                   const struct ntx_fault *f)
{
    json_decref(body);
    ntx_call_close(c);
    enum MHD_Result rc = made ? ntx__reply_json(q, MHD_HTTP_OK, made) : ntx__reply_fault(q, f);
    ntx__http_patience(q->http, q->conn, false);
    return rc;
}

/* ---- llama-server's, and vLLM's under the same paths: llama-server says content, vLLM prompt; the answer's form
 * follows */

static json_t *json_of_counted(const struct ntx_event *e, const json_t *status)
{
    return json_pack("{s:I, s:I, s:o, s:o}", "count", (json_int_t)e->n_ids, "max_model_len",
                     json_integer_value(json_object_get(status, "ctx")), "tokens", ids_json(e), "token_strs",
                     e->n_lengths ? pieces_json(e, false) : json_null());
}

static json_t *tokenize_text(struct ntx_request *q, struct ntx_call *c, const json_t *body, struct ntx_fault *f)
{
    const json_t *content = json_object_get(body, "content"), *prompt = json_object_get(body, "prompt"),
                 *text = content ? content : prompt;
    struct ntx_api_request_tokenize t = {.special = true, .bos = !content}; /* the defaults of each server */
    struct ntx_err err = {0};
    struct ntx_event e;
    json_t *status = NULL, *made;
    if (ntx_fields_read(NTX_FIELDS_TOKENIZE, body, &t, &q->ignored, f))
        return NULL;
    if (!json_is_string(text) || (content && prompt)) {
        ntx_fault(f, NTX_FAULT_INVALID, "content", "'content' must be a string ('prompt' instead: as vLLM has it)");
        return NULL;
    }
    struct ntx_call_text request = {.text = json_string_value(text),
                                    .len = json_string_length(text),
                                    .bos = t.bos,
                                    .special = t.special,
                                    .pieces = t.pieces};
    if (request_text(c, &request, &e, f))
        return NULL;
    if (content)
        return json_pack("{s:o}", "tokens", t.pieces ? pieces_json(&e, true) : ids_json(&e));
    int rc = ntx_gate_look(ntx__http_gate(q->http), ntx__http_place(q), &status, &err);
    if (rc)
        fault_of(rc, &err, f);
    made = rc ? NULL : json_of_counted(&e, status);
    json_decref(status);
    return made;
}

/* The request does not say which of the two it wants. */
static json_t *json_of_both(json_t *text)
{
    json_t *made = text ? json_pack("{s:O, s:O}", "content", text, "prompt", text) : NULL;
    json_decref(text);
    return made;
}

static json_t *detokenize_ids(struct ntx_request *q, struct ntx_call *c, const json_t *body, struct ntx_fault *f)
{
    struct ntx_api_request a = {0};
    struct ntx_event e;
    json_t *made = NULL;
    const json_t *list = json_object_get(body, "tokens");
    if (ntx_fields_read(NTX_FIELDS_DETOKENIZE, body, NULL, &q->ignored, f))
        return NULL;
    (void)q;
    if (json_is_array(list) && !json_array_size(list))
        return json_of_both(json_string(""));
    if (!json_is_array(list) || !json_is_integer(json_array_get(list, 0))) {
        ntx_fault(f, NTX_FAULT_INVALID, "tokens", "'tokens' must be a list of tokens");
        return NULL;
    }
    if (!ntx__request_prompts(&a, list, f)) {
        struct ntx_call_text request = {.tokens = a.prompts->tokens, .n_tokens = a.prompts->n_tokens};
        made = request_text(c, &request, &e, f) ? NULL : json_of_both(ntx_json_text(e.text, e.len));
    }
    ntx_api_request_clear(&a);
    return made;
}

static enum MHD_Result serve_words(struct ntx_request *q, bool slot,
                                   json_t *(*answer)(struct ntx_request *q, struct ntx_call *c, const json_t *body,
                                                     struct ntx_fault *f))
{
    struct ntx_fault f = {0};
    struct ntx_call *c = NULL;
    json_t *body = NULL;
    ntx__http_patience(q->http, q->conn, true);
    json_t *made = begin_words(q, slot, &body, &c, &f) ? NULL : answer(q, c, body, &f);
    if (!made && !f.kind)
        ntx_fault(&f, NTX_FAULT_MEMORY, NULL, "no memory");
    return end_request(q, body, c, made, &f);
}

enum MHD_Result ntx__serve_tokenize(struct ntx_request *q) { return serve_words(q, true, tokenize_text); }
enum MHD_Result ntx__serve_detokenize(struct ntx_request *q) { return serve_words(q, true, detokenize_ids); }

/* ---- embeddings: the mean of the last layer's states, scaled to length 1 */

static json_t *json_of_base64(const float *v, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)v; /* little-endian, as the API specifies */
    struct ntx_buf b = {0};
    size_t bytes = n * sizeof *v;
    for (size_t i = 0; i < bytes; i += 3) {
        unsigned left = (unsigned)NTX_MIN(bytes - i, (size_t)3),
                 x = p[i] << 16 | (left > 1 ? p[i + 1] << 8 : 0) | (left > 2 ? p[i + 2] : 0);
        char four[4] = {digits[x >> 18], digits[x >> 12 & 63], left > 1 ? digits[x >> 6 & 63] : '=',
                        left > 2 ? digits[x & 63] : '='};
        ntx_buf_add(&b, four, 4);
    }
    json_t *j = b.bad ? NULL : json_stringn(b.p, b.n);
    ntx_buf_free(&b);
    return j;
}

static json_t *json_of_vector(const struct ntx_event *e, bool coded)
{
    float *v = malloc(e->n_floats * sizeof *v + 1);
    double sum = 0;
    json_t *j = v && !coded ? json_array() : NULL;
    if (!v)
        return NULL;
    memcpy(v, e->floats, e->n_floats * sizeof *v);
    for (size_t i = 0; i < e->n_floats; i++)
        sum += (double)v[i] * (double)v[i];
    for (size_t i = 0; i < e->n_floats; i++) {
        v[i] = sum > 0 ? (float)(v[i] / sqrt(sum)) : 0;
        if (j)
            json_array_append_new(j, json_real((double)v[i]));
    }
    j = coded ? json_of_base64(v, e->n_floats) : j;
    free(v);
    return j;
}

/* A copy of a text's tokens; *n of them, or NULL with f. */
static int32_t *tokens_of(struct ntx_call *c, const struct ntx_api_request_prompt *p, size_t *n, struct ntx_fault *f)
{
    struct ntx_event e = {.ids = p->tokens, .n_ids = p->n_tokens};
    struct ntx_call_text t = {.text = p->text, .len = p->len, .bos = true};
    if (!p->tokens && request_text(c, &t, &e, f))
        return NULL;
    int32_t *ids = malloc((e.n_ids + 1) * sizeof *ids);
    if (!ids || !e.n_ids) {
        free(ids);
        ntx_fault(f, ids ? NTX_FAULT_INVALID : NTX_FAULT_MEMORY, "input", ids ? "an input has no tokens" : "no memory");
        return NULL;
    }
    memcpy(ids, e.ids, (*n = e.n_ids) * sizeof *ids);
    return ids;
}

struct embedding {
    bool coded;
    size_t most;   /* tokens of a text, the rest is cut off; 0: no limit */
    size_t tokens; /* of all texts */
};

static json_t *embed_text(struct ntx_call *c, const struct ntx_api_request_prompt *p, struct embedding *as,
                          struct ntx_fault *f)
{
    struct ntx_err err = {0};
    struct ntx_event e;
    size_t n = 0;
    json_t *v = NULL;
    int32_t *ids = tokens_of(c, p, &n, f);
    n = as->most ? NTX_MIN(n, as->most) : n;
    int rc = ids ? ntx_call_pool(c, ids, n, &err) : -1;
    if (ids && rc)
        fault_of(rc, &err, f);
    if (!rc)
        rc = await_event(c, NTX_EVENT_STATE, &e, f);
    if (!rc)
        v = json_of_vector(&e, as->coded);
    if (!rc && await_event(c, NTX_EVENT_DONE, &e, f)) {
        json_decref(v);
        v = NULL;
    }
    free(ids);
    as->tokens += n;
    return v;
}

static int read_form(const json_t *body, bool *coded, struct ntx_fault *f)
{
    const json_t *form = json_object_get(body, "encoding_format");
    const char *word = json_string_value(form);
    *coded = word && !strcmp(word, "base64");
    if (form && !json_is_null(form) && !*coded && !(word && !strcmp(word, "float")))
        return ntx_fault(f, NTX_FAULT_INVALID, "encoding_format", "'encoding_format' must be float or base64");
    return 0;
}

/* [vector], or NULL with f. */
static json_t *embed_all(struct ntx_call *c, const struct ntx_api_request *a, struct embedding *as, struct ntx_fault *f)
{
    json_t *list = json_array();
    for (size_t i = 0; i < a->n_prompts; i++)
        if (json_array_append_new(list, embed_text(c, &a->prompts[i], as, f))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* Takes list. */
static json_t *json_of_numbered(json_t *list)
{
    json_t *all = json_array(), *v;
    size_t i;
    json_array_foreach(list, i, v)
        json_array_append_new(
            all, json_pack("{s:s, s:I, s:O}", "object", "embedding", "index", (json_int_t)i, "embedding", v));
    json_decref(list);
    return all;
}

static json_t *openai_embeddings(struct ntx_request *q, struct ntx_call *c, const json_t *body, struct ntx_fault *f)
{
    struct ntx_api_request a = {0};
    struct embedding as = {0};
    const json_t *model = json_object_get(body, "model");
    json_t *list = NULL;
    (void)q;
    if (model && !json_is_null(model) && !json_is_string(model))
        ntx_fault(f, NTX_FAULT_INVALID, "model", "'model' must be a string");
    else if (!ntx_fields_read(NTX_FIELDS_EMBEDDINGS, body, NULL, &q->ignored, f) && !read_form(body, &as.coded, f) &&
             !ntx__request_texts(&a, json_object_get(body, "input"), "input", INPUTS_MOST, f))
        list = embed_all(c, &a, &as, f);
    ntx_api_request_clear(&a);
    if (!list)
        return NULL;
    return json_pack("{s:s, s:o, s:s, s:{s:I, s:I}}", "object", "list", "data", json_of_numbered(list), "model",
                     json_is_string(model) ? json_string_value(model) : "", "usage", "prompt_tokens",
                     (json_int_t)as.tokens, "total_tokens", (json_int_t)as.tokens);
}

enum MHD_Result ntx__serve_embeddings(struct ntx_request *q) { return serve_words(q, true, openai_embeddings); }

/* Ollama's fields on sampling and loading have no meaning here. A text that is too long is cut unless `truncate`
 * says otherwise; an empty text has no embedding. */

static bool is_nothing(const json_t *v)
{
    return (json_is_string(v) && !json_string_length(v)) || (json_is_array(v) && !json_array_size(v));
}

/* The context length in tokens. */
static int read_most(struct ntx_request *q, size_t *most, struct ntx_fault *f)
{
    struct ntx_err err = {0};
    json_t *status = NULL;
    int rc = ntx_gate_look(ntx__http_gate(q->http), ntx__http_place(q), &status, &err);
    *most = (size_t)json_integer_value(json_object_get(status, "ctx"));
    json_decref(status);
    return rc ? fault_of(rc, &err, f) : 0;
}

static json_t *ollama_embed(struct ntx_request *q, struct ntx_call *c, const json_t *body, struct ntx_fault *f)
{
    const json_t *input = json_object_get(body, "input");
    struct ntx_api_request a = {0};
    struct embedding as = {0};
    bool cut = true;
    char model[128];
    json_t *list = NULL;
    uint64_t since = ntx_now_ns();
    if (ntx_fields_read(NTX_FIELDS_OLLAMA_EMBED, body, &cut, &q->ignored, f) || (cut && read_most(q, &as.most, f)))
        return NULL;
    if (!input || json_is_null(input) || is_nothing(input)) /* it loads the model */
        list = json_array();
    else if (!ntx__request_texts(&a, input, "input", INPUTS_MOST, f))
        list = embed_all(c, &a, &as, f);
    ntx_api_request_clear(&a);
    ntx__http_model(q, model);
    return list ? json_pack("{s:o, s:o, s:I, s:i, s:I}", "model", ntx_json_text(model, strlen(model)), "embeddings",
                            list, "total_duration", (json_int_t)(ntx_now_ns() - since), "load_duration", 0,
                            "prompt_eval_count", (json_int_t)as.tokens)
                : NULL;
}

static json_t *ollama_embeddings(struct ntx_request *q, struct ntx_call *c, const json_t *body, struct ntx_fault *f)
{
    json_t *prompt = json_object_get(body, "prompt"), *one = NULL, *made;
    if (ntx_fields_read(NTX_FIELDS_OLLAMA_EMBEDDINGS, body, NULL, &q->ignored, f))
        return NULL;
    if (prompt && !json_is_null(prompt) && !json_is_string(prompt)) {
        ntx_fault(f, NTX_FAULT_INVALID, "prompt", "'prompt' must be a string");
        return NULL;
    }
    if (!json_string_length(prompt))
        return json_pack("{s:[]}", "embedding");
    json_t *request = json_pack("{s:O}", "input", prompt), *all = ollama_embed(q, c, request, f);
    one = json_array_get(json_object_get(all, "embeddings"), 0);
    made = one ? json_pack("{s:O}", "embedding", one) : NULL;
    json_decref(request);
    json_decref(all);
    return made;
}

/* Ollama's unload: no text, and keep_alive 0. Otherwise the model would be loaded first. */
static bool is_unload(const struct ntx_request *q, const char *field)
{
    struct ntx_fault ignored;
    json_t *body = ntx__json_read(q->body.n ? q->body.p : "", q->body.n, &ignored);
    const json_t *text = json_object_get(body, field);
    bool keeps = false;
    int64_t keep_ms = 0;
    const bool is = body && (!text || json_is_null(text) || is_nothing(text)) &&
                    !ntx__request_keep(body, &keeps, &keep_ms, &ignored) && keeps && !keep_ms;
    json_decref(body);
    return is;
}

static enum MHD_Result serve_unload(struct ntx_request *q, const char *field, enum ntx_fields of)
{
    struct ntx_fault f = {0};
    char model[NTX_KNOWN_NAME] = "";
    json_t *body = ntx__json_read(q->body.n ? q->body.p : "", q->body.n, &f);
    bool cut;
    int rc = body ? ntx_fields_read(of, body, &cut, &q->ignored, &f) : -1;
    rc = rc ? rc : ntx__models_unload(q, json_string_value(json_object_get(body, "model")), model, &f);
    json_decref(body);
    if (rc)
        return ntx__reply_fault(q, &f);
    return ntx__reply_json(q, MHD_HTTP_OK, json_pack("{s:s, s:[]}", "model", model, field));
}

enum MHD_Result ntx__serve_ollama_embed(struct ntx_request *q)
{
    return is_unload(q, "input") ? serve_unload(q, "embeddings", NTX_FIELDS_OLLAMA_EMBED)
                                 : serve_words(q, true, ollama_embed);
}

enum MHD_Result ntx__serve_ollama_embeddings(struct ntx_request *q)
{
    return is_unload(q, "prompt") ? serve_unload(q, "embedding", NTX_FIELDS_OLLAMA_EMBEDDINGS)
                                  : serve_words(q, true, ollama_embeddings);
}
