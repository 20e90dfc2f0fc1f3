/* SPDX-License-Identifier: Apache-2.0 */
/* A session with a template of channels and a scripted model: the text that a client sees of an answer, and the tokens
 * that the next request adds to the KV. */
#include "computed/engine/session.h"
#include "computed/pass/forward.h"
#include "tests/lib/check.h"
#include "tests/unit/tokenizer/mem_gguf.h"

static const char *const controls[] = {"<|startoftext|>", "<|return|>",  "<|call|>",   "<|end|>",
                                       "<|start|>",       "<|channel|>", "<|message|>"};

struct stage {
    struct ntx_output_budget output_budget;
    struct ntx_reply_queue *replies;
    struct ntx_kv_pool *pool;
    struct ntx_session_env env;
    struct ntx_session *s;
    struct ntx_tokenizer *tok;
    uint32_t answer; /* where the answer begins in the tokens */
};

static void open_stage(struct stage *g, const char *chat)
{
    static const struct ntx_hparams hp = {.n_layers = 1, .n_head_kv = 1, .head_k = 32, .head_v = 32};
    struct ntx_err err = {0};
    int32_t c;
    *g = (struct stage){.tok = mem_bpe("gpt-4o", controls, sizeof controls / sizeof *controls, &c)};
    ntx_output_budget_init(&g->output_budget, 1);
    CHECK((g->replies = ntx_reply_queue_new(&g->output_budget, 1)));
    CHECK_MSG(ntx_kv_pool_new(&hp, NTX_KV_F16, &(struct ntx_kv_shape){.blocks = 64}, &g->pool, &err) == 0, "%s",
              err.text);
    g->env = (struct ntx_session_env){.tok = g->tok,
                                      .chat = ntx_chat_by_name(chat),
                                      .has_template = true,
                                      .n_vocab = ntx_tokenizer_n_vocab(g->tok),
                                      .ctx = 1024,
                                      .n_layers = 1,
                                      .read_bytes = 1 << 20};
    CHECK_EQ(ntx_session_new(g->replies, 1, &g->s), 0);
    CHECK_EQ(ntx_kv_seq_new(g->pool, 1024, &g->s->kv), 0);
}

static void close_stage(struct stage *g)
{
    ntx_session_free(g->s);
    ntx_kv_pool_free(g->pool);
    ntx_reply_queue_unref(g->replies);
    ntx_tokenizer_free(g->tok);
}

/* Checks the text of the session's tokens from `from` on, control tokens included. */
static void check_tokens(const struct stage *g, uint32_t from, const char *want)
{
    char text[2048];
    size_t n = 0;
    for (uint32_t i = from; i < g->s->n_tokens; i++)
        n += (size_t)ntx_detokenize_one(g->tok, g->s->tokens[i], false, true, text + n, sizeof text - n);
    text[n] = 0;
    CHECK_STR(text, want);
}

static void generate(struct stage *g, const struct ntx_request *m)
{
    struct ntx_prompt p;
    struct ntx_err err = {0};
    CHECK_MSG(ntx_session_prompt(g->s, &g->env, m, NULL, &p, &err) == 0, "%s", err.text);
    ntx_prompt_read(&p);
    CHECK_MSG(ntx_session_generate(g->s, &g->env, m, &p, &err) == 0, "%s", err.text);
    CHECK_EQ(ntx_session_start(g->s, &g->env), 0);
    ntx_prompt_free(&p);
}

/* A user's message. In the first request nothing comes before it. All prompt tokens are fed. */
static void send_text(struct stage *g, const char *text, uint32_t max_tokens)
{
    const struct ntx_request_message msg = {.role = "user", .text = {text, strlen(text)}};
    struct ntx_request m = {.sampling = {.top_p = 1, .repeat_penalty = 1, .repeat_last = 64}};
    m.messages = &msg;
    m.n_messages = 1;
    m.keep = true;
    m.max_tokens = max_tokens;
    generate(g, &m);
    g->s->n_past = g->answer = g->s->n_tokens;
}

/* The model writes `script`: the client sees `shown`, and the answer ends by `finish`. The last token is not fed. */
static void answer(struct stage *g, const char *script, const char *shown, const char *finish)
{
    float logits[300] = {0};
    struct ntx_row row = {.logits = logits};
    char seen[512];
    size_t n = 0;
    int32_t *ids;
    const char *why = NULL;
    int n_ids = ntx_tokenize(g->tok, script, strlen(script), NTX_TOK_SPECIAL, &ids);
    CHECK(g->env.n_vocab <= 300 && n_ids > 0);
    for (int i = 0; i < n_ids; i++) {
        const char *text;
        size_t len;
        int32_t got;
        CHECK(!why);
        g->s->n_past = g->s->n_tokens;
        logits[ids[i]] = 1;
        CHECK_EQ(ntx_session_sample(g->s, &g->env, &row, &got, &why, &text, &len), 0);
        logits[ids[i]] = 0;
        CHECK_EQ(got, ids[i]);
        CHECK(n + len < sizeof seen);
        memcpy(seen + n, text, len);
        n += len;
    }
    seen[n] = 0;
    free(ids);
    CHECK_STR(seen, shown);
    CHECK_STR(why ? why : "none", finish);
    ntx_session_rest(g->s);
}

#define THOUGHT "<|channel|>analysis<|message|>hm<|end|>"
#define NEXT    "<|end|><|start|>user<|message|>more<|end|><|start|>assistant"

static void test_turns(void)
{
    struct stage g;
    open_stage(&g, "harmony");
    send_text(&g, "hello", 0);
    answer(&g, THOUGHT "<|start|>assistant<|channel|>final<|message|>hi<|return|>", "<think>\nhm\n</think>\n\nhi",
           "stop");
    uint32_t first = g.answer;
    send_text(&g, "more", 0); /* <|return|> is not fed, <|end|> replaces it; the thoughts stay */
    check_tokens(&g, first, THOUGHT "<|start|>assistant<|channel|>final<|message|>hi" NEXT);
    first = g.answer;
    answer(&g, "<|channel|>final<|message|>hello<|return|>", "hello", "stop"); /* a new answer begins with a new view */
    send_text(&g, "more", 0);
    check_tokens(&g, first, "<|channel|>final<|message|>hello" NEXT);
    close_stage(&g);
}

/* The answer is cut after so many tokens, and the conversation goes on. */
static void check_cut(const char *script, uint32_t n, const char *shown, const char *kept)
{
    struct stage g;
    open_stage(&g, "harmony");
    send_text(&g, "hello", n);
    uint32_t first = g.answer;
    answer(&g, script, shown, "length");
    send_text(&g, "more", 0);
    check_tokens(&g, first, kept);
    close_stage(&g);
}

static void test_cut(void)
{
    check_cut("<|channel|>analysis<|message|>h", 11, "<think>\nh", "<|channel|>analysis<|message|>h" NEXT);
    check_cut(THOUGHT, 13, "<think>\nhm\n</think>\n\n", "<|channel|>analysis<|message|>hm" NEXT); /* one end, not two */
}

/* Without a template the same tokens have no meaning. */
static void test_raw(void)
{
    struct ntx_request m = {.sampling = {.top_p = 1, .repeat_penalty = 1, .repeat_last = 64}};
    struct stage g;
    open_stage(&g, "harmony");
    m.raw = true;
    m.prompt.data = "hello";
    m.prompt.len = 5;
    generate(&g, &m);
    check_tokens(&g, 0, "hello");
    answer(&g, THOUGHT "<|return|>", "analysishm", "stop");
    close_stage(&g);
}

/* With tools, the view shows the model's headers, which name the called tool. */
static void test_tools(void)
{
    static const char own[] = "{% for m in messages %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' "
                              "}}{% endfor %}{{ '<|start|>assistant' }}{# <|channel|> #}";
    static const char call[] = THOUGHT
        "<|start|>assistant<|channel|>commentary to=functions.f json<|message|>{}<|call|>";
    const struct ntx_request_message msg = {.role = "user", .text = {"hello", 5}};
    struct ntx_request m = {.sampling = {.top_p = 1, .repeat_penalty = 1, .repeat_last = 64},
                            .messages = &msg,
                            .n_messages = 1,
                            .variables = {"{\"tools\": []}", 13}};
    struct ntx_chat_template *t;
    struct ntx_err err = {0};
    struct stage g;
    open_stage(&g, "harmony");
    CHECK_MSG(ntx_chat_open(own, sizeof own - 1, g.tok, &t, &err) == 0, "%s", err.text);
    CHECK_STR(ntx_chat_reply(t), "harmony");
    g.env.chat = t;
    generate(&g, &m);
    answer(&g, call,
           "<|channel|>analysis<|message|>hm<|start|>assistant<|channel|>commentary to=functions.f json<|message|>{}",
           "stop");
    m.variables.len = 0;
    generate(&g, &m);
    answer(&g, THOUGHT "<|start|>assistant<|channel|>final<|message|>hi<|return|>", "<think>\nhm\n</think>\n\nhi",
           "stop");
    close_stage(&g);
    ntx_chat_free(t);
}

int main(void)
{
    test_tools();
    test_turns();
    test_cut();
    test_raw();
    return 0;
}
