/* SPDX-License-Identifier: Apache-2.0 */
/* Thoughts in an answer: which tokens belong to them, and the end that is written at their limit, in each format. */
#include "computed/engine/thought.h"
#include "model/chat.h"
#include "tests/lib/check.h"
#include "tests/unit/tokenizer/mem_gguf.h"

static const char *const controls[] = {"<s>",         "</s>",     "<think>",     "</think>",   "<|start|>",
                                       "<|channel|>", "<|end|>",  "<|message|>", "<|channel>", "<channel|>",
                                       "[THINK]",     "[/THINK]", "<|im_end|>"};
static struct ntx_tokenizer *tok;

struct run {
    char text[1024]; /* of the answer, marks included */
    size_t n;
    uint32_t tokens; /* in thoughts */
};

static void add_token(struct run *r, struct ntx_thought *t, int32_t id)
{
    int n = ntx_detokenize_one(tok, id, false, true, r->text + r->n, sizeof r->text - r->n);
    CHECK(n >= 0);
    r->n += (size_t)n;
    r->text[r->n] = 0;
    ntx_thought_take(t, id);
}

/* A model that writes `says`. Tokens that are due come before its next one. */
static struct run run_answer(const char *format, bool calls, bool begun, const char *think, const char *says)
{
    struct ntx_thought_config c = {.format = ntx_reply_by_name(format), .tok = tok, .calls = calls, .begun = begun};
    struct ntx_thought *t;
    struct ntx_err err = {0};
    struct run r = {.n = 0};
    int32_t *ids, due;
    CHECK_MSG(!ntx_think_read(think, &c.think, &err), "%s", err.text);
    CHECK(!ntx_thought_new(&c, &t));
    int n = ntx_tokenize(tok, says, strlen(says), NTX_TOK_SPECIAL, &ids);
    CHECK(n > 0);
    for (int i = 0; i < n; i++) {
        while ((due = ntx_thought_due(t)) >= 0)
            add_token(&r, t, due);
        add_token(&r, t, ids[i]);
    }
    while ((due = ntx_thought_due(t)) >= 0)
        add_token(&r, t, due);
    r.tokens = ntx_thought_tokens(t);
    free(ids);
    ntx_thought_free(t);
    return r;
}

static void check_run(const char *format, bool calls, bool begun, const char *think, const char *says, const char *want,
                      uint32_t tokens)
{
    struct run r = run_answer(format, calls, begun, think, says);
    CHECK_MSG(!strcmp(r.text, want) && r.tokens == tokens, "%s, %s: %s\n gives  %s, %u tokens\n wanted %s, %u", format,
              think, says, r.text, r.tokens, want, tokens);
}

static void test_marks(void)
{
    /* without a limit nothing is written, and thoughts are counted without their marks */
    check_run("plain", false, true, "", "abc</think>def", "abc</think>def", 3);
    check_run("plain", false, false, "on", "\n<think>abc</think>def", "\n<think>abc</think>def", 3);
    check_run("plain", false, false, "", "x<think>abc</think>", "x<think>abc</think>", 0); /* not at the begin */
    check_run("mistral", false, false, "", "[THINK]ab[/THINK]c", "[THINK]ab[/THINK]c", 2);
    /* at the limit the end comes; the model's own text goes on behind it */
    check_run("plain", false, true, "2", "abXY", "ab\n</think>\n\nXY", 2);
    check_run("plain", false, true, "2", "ab</think>c", "ab\n</think>\n\n</think>c", 2);
    check_run("plain", false, true, "3", "ab</think>c", "ab</think>c", 2);
    check_run("plain", false, false, "off", "<think>XY", "<think>\n</think>\n\nXY", 0);
    check_run("plain", false, false, "off", "XY<think>", "XY<think>", 0);
    check_run("gemma-4", false, false, "1", "<|channel>thoughtaXY", "<|channel>thoughta\n<channel|>XY", 1);
    check_run("mistral", false, true, "1", "aXY", "a[/THINK]XY", 1);
    /* a character is not cut in two */
    check_run("plain", false, true, "1", "\xc3\xa9XY", "\xc3\xa9\n</think>\n\nXY", 2);
}

static void test_channels(void)
{
#define ANALYSIS "<|channel|>analysis<|message|>"
#define FINAL    "<|channel|>final<|message|>"
    check_run("harmony", false, false, "", ANALYSIS "abc<|end|><|start|>assistant" FINAL "d",
              ANALYSIS "abc<|end|><|start|>assistant" FINAL "d", 3);
    check_run("harmony", false, false, "2", ANALYSIS "abXY", ANALYSIS "ab<|end|><|start|>assistant" FINAL "XY", 2);
    check_run("harmony", false, false, "off", ANALYSIS "XY", ANALYSIS "<|end|><|start|>assistant" FINAL "XY", 0);
    /* with tools the model chooses its channel; a second thought ends in the one for calls */
    check_run("harmony", true, false, "1", ANALYSIS "a" FINAL "X", ANALYSIS "a<|end|><|start|>assistant" FINAL "X", 1);
    check_run("harmony", true, false, "1", ANALYSIS "a" ANALYSIS " to=f",
              ANALYSIS "a<|end|><|start|>assistant" ANALYSIS "<|end|><|start|>assistant<|channel|>commentary to=f", 1);
}

/* Marks of other formats are shown as <think>, however their tokens come; with tools they stay. */
static void test_view(void)
{
    static const char gemma[] = "{{ '<|channel>thought' }}{{ '<channel|>' }}{{ messages[0].content }}",
                      mistral[] = "{{ '[TOOL_CALLS][THINK]' }}{{ messages[0].content }}";
    static const struct {
        const char *form, *says, *shown;
        bool marks;
    } cases[] = {
        {gemma, "<|channel>thought\nab<channel|>c", "<think>\nab</think>c", false},
        {gemma, "<|channel>thought\nab<channel|>c", "<|channel>thought\nab<channel|>c", true},
        {gemma, "<|channel>other", "other", false},
        {mistral, "[THINK]ab[/THINK]c", "<think>ab</think>c", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ntx_chat_template *t;
        struct ntx_err err = {0};
        char shown[NTX_TOKEN_MAX + 256];
        size_t n = 0;
        int32_t *ids;
        CHECK_MSG(!ntx_chat_open(cases[i].form, strlen(cases[i].form), tok, &t, &err), "%s", err.text);
        struct ntx_chat_view v = {.chat = t, .marks = cases[i].marks};
        int k = ntx_tokenize(tok, cases[i].says, strlen(cases[i].says), NTX_TOK_SPECIAL, &ids);
        for (int j = 0; j < k; j++)
            n += (size_t)ntx_chat_view_token(&v, tok, ids[j], false, shown + n, sizeof shown - n);
        shown[n] = 0;
        if (strcmp(cases[i].says, "<|channel>other"))
            CHECK_STR(shown, cases[i].shown);
        else
            CHECK_MSG(!strstr(shown, "<think>"), "%s", shown);
        free(ids);
        ntx_chat_free(t);
    }
}

int main(void)
{
    int32_t first;
    tok = mem_bpe("qwen2", controls, sizeof controls / sizeof *controls, &first);
    test_marks();
    test_channels();
    test_view();
    ntx_tokenizer_free(tok);
    return 0;
}
