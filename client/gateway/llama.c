/* SPDX-License-Identifier: Apache-2.0 */
/* llama-server's shape of a completion: content, and at the end the reason. */
#include <string.h>

#include "client/gateway/answer.h"

static json_t *json_of_text(const struct ntx_answer *a, const char *text, size_t len)
{
    const struct ntx_choice *c = &a->choice[0];
    json_t *j = json_pack("{s:o, s:b, s:i}", "content", ntx_json_text(text, len), "stop", c->finish != NULL, "index",
                          0);
    if (!j || !c->finish)
        return j;
    const char *why = c->stop ? "word" : "eos";
    json_t *end = json_pack("{s:o, s:I, s:I, s:I, s:s, s:o, s:b}", "model", ntx_json_text(a->model, strlen(a->model)),
                            "tokens_predicted", (json_int_t)c->tokens, "tokens_evaluated", (json_int_t)a->prompt_tokens,
                            "tokens_cached", (json_int_t)a->cached_tokens, "stop_type",
                            *c->finish == 'l' ? "limit" : why, "stopping_word",
                            ntx_json_text(c->stop ? c->stop : "", c->stop ? strlen(c->stop) : 0), "truncated", 0);
    json_object_update(j, end);
    json_decref(end);
    ntx_answer_add_timings(a, j);
    ntx_answer_add_kept(a, j);
    return j;
}

static void send_one(struct ntx_buf *out, json_t *j)
{
    ntx_buf_text(out, "data: ");
    ntx_buf_json(out, j);
    ntx_buf_text(out, "\n\n");
}

static void send_piece(struct ntx_answer *a, unsigned choice, bool thought, const char *text, size_t len,
                       struct ntx_buf *out)
{
    (void)choice;
    (void)thought;
    send_one(out, json_of_text(a, text, len));
}

static void end_choice(struct ntx_answer *a, unsigned choice, struct ntx_buf *out)
{
    (void)choice;
    send_one(out, json_of_text(a, "", 0));
}

static void llama_whole(struct ntx_answer *a, struct ntx_buf *out)
{
    ntx_buf_json(out, json_of_text(a, a->choice[0].text.p, a->choice[0].text.n));
}

static void send_progress(struct ntx_answer *a, const struct ntx_event *e, struct ntx_buf *out)
{
    ntx_openai_text.alive(a, e, out);
}
static void llama_fault(const struct ntx_fault *f, struct ntx_buf *out) { ntx_openai_text.fault(f, out); }
static void llama_error(const struct ntx_fault *f, struct ntx_buf *out) { ntx_openai_text.broken(f, out); }

const struct ntx_shape ntx_llama = {"infill-",   "text/event-stream", false, NULL,          send_piece,
                                    NULL,        end_choice,          NULL,  send_progress, llama_whole,
                                    llama_fault, llama_error};
