/* SPDX-License-Identifier: Apache-2.0 */
/* Parses replies of every format: whole, byte by byte, and in threes, always with the same result. */
#include "model/reply/reply.h"
#include "tests/lib/check.h"

struct got {
    char text[4096];
    size_t n;
    enum ntx_reply_kind last;
};

static int part(void *arg, const struct ntx_reply_part *p)
{
    struct got *g = arg;
    static const char *const open[] = {"T:", "H:", "C:"};
    bool goes_on = g->n && p->kind != NTX_REPLY_CALL && g->last == p->kind;
    CHECK(p->kind == NTX_REPLY_CALL || p->len);
    g->n += (size_t)snprintf(g->text + g->n, sizeof g->text - g->n, "%s%s", goes_on || !g->n ? "" : "|",
                             goes_on ? "" : open[p->kind]);
    if (p->kind == NTX_REPLY_CALL)
        g->n += (size_t)snprintf(g->text + g->n, sizeof g->text - g->n, "%s%s%s%s ", p->name, *p->id ? "#" : "", p->id,
                                 p->cut ? " cut" : "");
    CHECK(g->n + p->len < sizeof g->text);
    memcpy(g->text + g->n, p->text, p->len);
    g->n += p->len;
    g->text[g->n] = 0;
    g->last = p->kind;
    return 0;
}

static bool zip_is_string(void *arg, const char *tool, const char *parameter)
{
    (void)arg;
    return !strcmp(tool, "f") && !strcmp(parameter, "zip");
}

static bool is_offered(void *arg, const char *name, size_t n)
{
    (void)arg;
    return n == 1 && (*name == 'f' || *name == 'g');
}

static bool bare; /* calls without marks are looked for */

static void check_to(int (*end)(struct ntx_reply *r), const char *format, bool thinks, const char *reply,
                     const char *want)
{
    const size_t sizes[] = {1, 3, strlen(reply)};
    for (int k = 0; k < 3 && (k == 0 || sizes[k] <= strlen(reply)); k++) {
        const size_t size = sizes[k];
        struct got g = {.n = 0};
        struct ntx_reply *r;
        struct ntx_reply_options options = {
            .format = ntx_reply_by_name(format), .thinks = thinks, .is_string = zip_is_string, .part = part, .arg = &g};
        options.offers = bare ? is_offered : NULL;
        CHECK_MSG(options.format, "%s", format);
        CHECK(!ntx_reply_new(&options, &r));
        for (size_t i = 0, n = strlen(reply); i < n; i += size)
            CHECK(!ntx_reply_feed(r, reply + i, n - i < size ? n - i : size));
        CHECK(!end(r));
        CHECK_MSG(!strcmp(g.text, want), "%s, %zu bytes at a time: %s\n gives  %s\n wanted %s", format, size, reply,
                  g.text, want);
        ntx_reply_free(r);
    }
}

static void check_as(const char *format, bool thinks, const char *reply, const char *want)
{
    check_to(ntx_reply_end, format, thinks, reply, want);
}
static void check(const char *format, const char *reply, const char *want) { check_as(format, false, reply, want); }
static void check_cut(const char *format, const char *reply, const char *want)
{
    check_to(ntx_reply_cut, format, false, reply, want);
}

#define DS(words) "<\xef\xbd\x9c" words "\xef\xbd\x9c>"
#define LOW       "\xe2\x96\x81"
#define DSML                                                                                                           \
    "\xef\xbd\x9c"                                                                                                     \
    "DSML"                                                                                                             \
    "\xef\xbd\x9c"

static void check_thoughts(void)
{
    check("plain", "Hello, world.\n", "T:Hello, world.\n");
    check("plain", "<think>\nHm.\n\nWell.\n</think>\n\nYes.", "H:Hm.\n\nWell.|T:Yes.");
    check("plain", "\n <think></think> a", "T:a");
    check("plain", "a <think>b</think>", "T:a <think>b</think>");
    check("plain", "<thin", "T:<thin");
    check("plain", "<think>never done ", "H:never done ");
    check("plain", "a < b <", "T:a < b <");
    check_as("plain", true, "so\n</think>\n\nyes", "H:so|T:yes");
    check_as("plain", true, "so <think>\nis </think>it", "H:so <think>\nis|T:it");
    check_as("plain", true, "<think>\nso\n</think>\nyes", "H:so|T:yes");
    check("mistral", "[THINK]a[/THINK]b", "H:a|T:b");
}

static void check_json(void)
{
    check("hermes",
          "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": "
          "\"</x>\"}]}}\n</tool_call>\n<tool_call>\n{\"name\":\"g\",\"arguments\":{}}\n</tool_call>",
          "T:Let me see.|C:f {\"a\": [1, {\"b\": \"</x>\"}]}|C:g {}");
    check("hermes", "<think>\nx\n</think>\n\n<tool_call>{\"arguments\": {\"k\": 1}, \"name\": \"f\"}</tool_call> done",
          "H:x|C:f {\"k\": 1}|T:done");
    check("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}}", "C:f {}"); /* the reply ended before the mark */
    check("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}, }</tool_call>",
          "T:<tool_call>{\"name\": \"f\", \"arguments\": {}, }</tool_call>");
    check("hermes", "a <tool_call>nonsense", "T:a<tool_call>nonsense");
    check("llama-3", " {\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "C:f {\"a\": \"b\"}");
    check("llama-3", "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}", "C:f {}|C:g {}");
    check("llama-3", "{\"name\": 1}", "T:{\"name\": 1}");
    check("llama-3", "It is {\"name\"}.", "T:It is {\"name\"}.");
    check("llama-3", "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "C:f {}");
    check("mistral",
          "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abc123\"}, {\"name\": \"g\", "
          "\"arguments\": {}}]",
          "C:f#abc123 {\"a\": 1}|C:g {}");
    check("mistral", "Ok.[TOOL_CALLS]f[CALL_ID]x9[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}",
          "T:Ok.|C:f#x9 {\"a\": 1}|C:g {}");
}

/* Formats of the families of 2026, with replies as their publishers show them. */
static void check_families(void)
{
    check("seed",
          "<seed:think>a</seed:think>Ok.<seed:tool_call>\n<function=f>\n<parameter=a>x</parameter>\n</function>\n"
          "</seed:tool_call>",
          "H:a|T:Ok.|C:f {\"a\": \"x\"}");
    check("command-a",
          "<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
          "\"parameters\": {\"a\": 1}},\n {\"tool_call_id\": \"1\", \"tool_name\": \"g\", \"parameters\": {}}\n]"
          "<|END_ACTION|>",
          "H:a|C:f#0 {\"a\": 1}|C:g#1 {}");
    check("command-a", "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>Yes.<|END_RESPONSE|>", "H:a|T:Yes.");
    check_cut("command-a", "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a",
              "C:f#0 cut {\"a");
    check("apertus",
          "<|inner_prefix|>a<|inner_suffix|>b<|tools_prefix|>[{\"f\": {\"a\": 1}}, {\"g\": {}}]<|tools_suffix|>",
          "H:a|T:b|C:f {\"a\": 1}|C:g {}");
    check("apertus", "<|tools_prefix|>[{\"f\": 1}]<|tools_suffix|>", "T:<|tools_prefix|>[{\"f\": 1}]<|tools_suffix|>");
    check("nemotron-2", "<think>\na\n</think>\n\n<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]</TOOLCALL>",
          "H:a|C:f {\"a\": 1}");
    check("hy-3",
          "<think:opensource>a</think:opensource>Ok.<tool_calls:opensource>\n<tool_call:opensource>f"
          "<tool_sep:opensource>\n<arg_key:opensource>a</arg_key:opensource>\n<arg_value:opensource>[1]"
          "</arg_value:opensource>\n</tool_call:opensource>\n<tool_call:opensource>g<tool_sep:opensource>\n"
          "</tool_call:opensource>\n</tool_calls:opensource>",
          "H:a|T:Ok.|C:f {\"a\": [1]}|C:g {}");
#define M3 "]<]minimax[>[<"
    check("minimax-m3",
          "<mm:think>a</mm:think>" M3 "tool_call>\n" M3 "invoke name=\"f\">" M3 "a>x y" M3 "/a>" M3 "o>" M3 "k>1" M3
          "/k>" M3 "o>z" M3 "/o>" M3 "/o>" M3 "l>" M3 "item>true" M3 "/item>" M3 "item>" M3 "k>v" M3 "/k>" M3
          "/item>" M3 "/l>" M3 "/invoke>\n" M3 "invoke name=\"g\">" M3 "/invoke>\n" M3 "/tool_call>",
          "H:a|C:f {\"a\": \"x y\", \"o\": {\"k\": 1, \"o\": \"z\"}, \"l\": [true, {\"k\": \"v\"}]}|C:g {}");
    check("minimax-m3", M3 "tool_call>" M3 "invoke name=\"f\">" M3 "a>x" M3 "/invoke>" M3 "/tool_call>",
          "T:" M3 "tool_call>" M3 "invoke name=\"f\">" M3 "a>x" M3 "/invoke>" M3 "/tool_call>");
    check("jamba", "Ok.<tool_calls>[\n{\"name\": \"f\", \"arguments\": {}}\n]</tool_calls>", "T:Ok.|C:f {}");
}

/* LFM2 writes calls as Python does. */
static void check_python(void)
{
    check("lfm2", "Ok.<|tool_call_start|>[f(a=\"x\", b=-1.5, c=True, d=None), g()]<|tool_call_end|>Done",
          "T:Ok.|C:f {\"a\": \"x\", \"b\": -1.5, \"c\": true, \"d\": null}|C:g {}|T:Done");
    check(
        "lfm2",
        "<|tool_call_start|>[f(a=['p', \"q\"], o={'k': (1, 2), \"l\": {}}, s='it\\'s \\n \"\\w\"',)]<|tool_call_end|>",
        "C:f {\"a\": [\"p\", \"q\"], \"o\": {\"k\": [1, 2], \"l\": {}}, \"s\": \"it's \\n \\\"\\\\w\\\"\"}");
    check("lfm2", "<|tool_call_start|>[f(a={}, b=\"\\u00e9\\ud83d\\ude00\\u12\")]<|tool_call_end|>",
          "C:f {\"a\": {}, \"b\": \"\xc3\xa9\xf0\x9f\x98\x80\\\\u12\"}");
    check("lfm2", "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {}}]<|tool_call_end|>", "C:f {}");
    static const char *const bad[] = {"[f(a=b)]",  "[f(1)]", "[f(a=1]",       "f(a=1)",
                                      "[f(a='x)]", "[]",     "[f(a={1: 2})]", "[f(a=1) g()]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char reply[96], want[100];
        snprintf(reply, sizeof reply, "<|tool_call_start|>%s<|tool_call_end|>", bad[i]);
        snprintf(want, sizeof want, "T:%s", reply);
        check("lfm2", reply, want);
    }
    check_cut("lfm2", "<|tool_call_start|>[f(a=1), g(b=", "C:f {\"a\": 1}");
    check_cut("lfm2", "<|tool_call_start|>[f(a", "");
}

static void check_marks(void)
{
    check("deepseek",
          "a" DS("tool" LOW "calls" LOW "begin")
              DS("tool" LOW "call" LOW "begin") "f" DS("tool" LOW "sep") "{\"a\": 1}" DS("tool" LOW "call" LOW "end")
                  DS("tool" LOW "call" LOW "begin") "g" DS("tool" LOW "sep") "{}" DS("tool" LOW "call" LOW "end")
                      DS("tool" LOW "calls" LOW "end"),
          "T:a|C:f {\"a\": 1}|C:g {}");
    check("deepseek",
          DS("tool" LOW "calls" LOW "begin") DS("tool" LOW "call" LOW "begin") "function" DS(
              "tool" LOW "sep") "f\n```json\n{\"a\": 1}\n```" DS("tool" LOW "call" LOW "end"),
          "C:f {\"a\": 1}");
    check("deepseek-v3.2",
          "<" DSML "function_calls>\n<" DSML "invoke name=\"f\">\n<" DSML
          "parameter name=\"a\" string=\"true\">12</" DSML "parameter>\n<" DSML
          "parameter name=\"b\" string=\"false\">[1]</" DSML "parameter>\n</" DSML "invoke>\n</" DSML "function_calls>",
          "C:f {\"a\": \"12\", \"b\": [1]}");
    check("deepseek-v4",
          "<think>h</think>\n\n<" DSML "tool_calls>\n<" DSML "invoke name=\"f\">\n<" DSML
          "parameter name=\"a\" string=\"false\">12</" DSML "parameter>\n</" DSML "invoke>\n</" DSML "tool_calls>",
          "H:h|C:f {\"a\": 12}");
    check("kimi",
          "x<|tool_calls_section_begin|><|tool_call_begin|>functions.get:it:0<|tool_call_argument_begin|>{\"a\": "
          "1}<|tool_call_end|><|tool_calls_section_end|>",
          "T:x|C:get:it#functions.get:it:0 {\"a\": 1}");
    check("harmony",
          "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
          "<|constrain|>json<|message|>{\"a\": 1}<|call|>",
          "H:Hm.|C:f {\"a\": 1}");
    check("harmony", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello\n",
          "H:Hm.|T:Hello");
}

static void check_xml(void)
{
    check("qwen3-coder",
          "Ok\n<tool_call>\n<function=f>\n<parameter=a>\n12\n</parameter>\n<parameter=zip>\n12\n</"
          "parameter>\n<parameter=t>\nline\n\"two\"\n</parameter>\n</function>\n</tool_call>",
          "T:Ok|C:f {\"a\": 12, \"zip\": \"12\", \"t\": \"line\\n\\\"two\\\"\"}");
    check("qwen3-coder", "<tool_call><function=now></function></tool_call>", "C:now {}");
    check("qwen3-coder", "<tool_call><function=f><parameter=a>1</function></tool_call>",
          "T:<tool_call><function=f><parameter=a>1</function></tool_call>");
    check("glm",
          "<think>t</think>\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>{\"x\": "
          "1}</arg_value>\n<arg_key>b</arg_key>\n<arg_value>New York</arg_value>\n</tool_call>",
          "H:t|C:f {\"a\": {\"x\": 1}, \"b\": \"New York\"}");
    check("glm", "<tool_call>now\n</tool_call>", "C:now {}");
    check("minimax",
          "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1.5</parameter>\n</invoke>\n<invoke "
          "name=\"g\">\n</invoke>\n</minimax:tool_call>",
          "C:f {\"a\": 1.5}|C:g {}");
    check("minimax", "<minimax:tool_call>\n<invoke name=\"f\">\n</invoke>\n<invoke x>\n</minimax:tool_call>",
          "T:<minimax:tool_call>\n<invoke name=\"f\">\n</invoke>\n<invoke x>\n</minimax:tool_call>");
}

/* Replies cut inside a call: the known part of it, or nothing if the tool is unknown. */
static void check_cuts(void)
{
    check_cut("plain", "<think>so ", "H:so ");
    check_cut("plain", "a < b <", "T:a < b <");
    check_cut("hermes", "Ok\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"Gr", "T:Ok|C:f cut {\"a\": \"Gr");
    check_cut("hermes", "Ok <tool_c", "T:Ok");
    check_cut("hermes", "Ok <to", "T:Ok <to"); /* it may be anything */
    check_cut("hermes", "Ok <tool_call>", "T:Ok");
    check_cut("hermes", "Ok <tool_call>{\"name\": \"wea", "T:Ok");
    check_cut("hermes", "<tool_call>{\"name\": \"f\"", "C:f cut ");
    check_cut("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}",
              "C:f {\"a\": 1}"); /* only the end is missing */
    check_cut("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> and", "C:f {}|T:and");
    check_cut("hermes", "<tool_call>{oops", "");
    check_cut("llama-3", " {\"name\": \"f\", \"parameters\": {\"a\"", "C:f cut {\"a\"");
    check_cut("llama-3", "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g", "C:f {}");
    check_cut("llama-3", "{\"nam", "");
    check_cut("llama-3", "{\"sum\": 1, \"of", "T:{\"sum\": 1, \"of");
    check_cut(
        "mistral",
        "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}, \"id\": \"abc\"}, {\"name\": \"g\", \"arguments\": {\"x\"",
        "C:f#abc {}|C:g cut {\"x\"");
    check_cut("mistral", "Ok.[TOOL_CALLS]f[CALL_ID]x9[ARGS]{\"a\": [1, ", "T:Ok.|C:f#x9 cut {\"a\": [1,");
    check_cut("mistral", "Ok.[TOOL_CALLS]weat", "T:Ok.");
    check_cut("deepseek",
              DS("tool" LOW "calls" LOW "begin") DS("tool" LOW "call" LOW "begin") "f" DS("tool" LOW "sep") "{\"a\": 1",
              "C:f cut {\"a\": 1");
    check_cut("deepseek", DS("tool" LOW "call" LOW "begin") "function" DS("tool" LOW "sep") "f\n```json\n{\"a\"",
              "C:f cut {\"a\"");
    check_cut("deepseek", DS("tool" LOW "call" LOW "begin") "function" DS("tool" LOW "sep") "wea", "");
    check_cut("deepseek-v3.2",
              "<" DSML "function_calls>\n<" DSML "invoke name=\"f\">\n<" DSML
              "parameter name=\"a\" string=\"true\">12</" DSML "parameter>\n<" DSML "parameter name=\"b\" string=\"fa",
              "C:f cut {\"a\": \"12\"");
    check_cut("kimi", "x<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{",
              "T:x|C:get#functions.get:0 cut {");
    check_cut("kimi", "x<|tool_calls_section_begin|><|tool_call_begin|>functions.ge", "T:x");
    check_cut("harmony",
              "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
              "<|constrain|>json<|message|>{\"a",
              "H:Hm.|C:f cut {\"a");
    check_cut("harmony",
              "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f",
              "H:Hm.");
    check_cut("harmony", "<|channel|>anal", "");
    check_cut("qwen3-coder", "Ok\n<tool_call>\n<function=f>\n<parameter=a>\n12\n</parameter>\n<parameter=b>\nlong te",
              "T:Ok|C:f cut {\"a\": 12");
    check_cut("qwen3-coder", "<tool_call>\n<function=f>\n<parameter=a>\n12\n</parameter>\n</function>\n",
              "C:f {\"a\": 12}");
    check_cut("qwen3-coder", "<tool_call>\n<function=wea", "");
    check_cut("glm", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_k", "C:f cut {\"a\": 1");
    check_cut("glm", "<tool_call>f\n<arg", "C:f cut {");
    check_cut("glm", "<tool_call>wea", "");
    check_cut("minimax",
              "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1.5</parameter>\n</invoke>\n<invoke "
              "name=\"g\">\n<parameter name=\"b\">te",
              "C:f {\"a\": 1.5}|C:g cut {");
    check_cut("minimax", "<minimax:tool_call>\n<invoke name=\"f\">\n</invoke>\n<invoke na", "C:f {}");
    static const struct {
        const char *text;
        size_t n;
    } whole[] = {{"", 0},
                 {"x", 0},
                 {"{", 1},
                 {"{\"a", 1},
                 {"{\"a\": 12", 1},
                 {"{\"a\": 12, ", 8},
                 {"{\"a\": [1], \"b\": \"x", 9},
                 {"{\"a\": {}, \"b\": \"x\"", 18},
                 {"{\"a\": tru", 1},
                 {"{\"a\": null", 10}};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        CHECK_EQ(ntx_reply_whole(whole[i].text, strlen(whole[i].text)), whole[i].n);
}

/* Calls without marks, of the tools f and g. */
static void check_bare(void)
{
    static const char *const formats[] = {"hermes", "plain", "mistral", "qwen3-coder", "glm", "gemma-4"};
    bare = true;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const char *in = formats[i];
        check(in, "{\"name\": \"f\", \"arguments\": {\"a\": \"}\"}}", "C:f {\"a\": \"}\"}");
        check(in, "Ok.\n\n```json\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n```\nDone",
              "T:Ok.|C:f {\"a\": 1}|T:Done");
        check(in, "```\n{\"name\": \"f\", \"parameters\": {}}\n{\"name\": \"g\", \"parameters\": {}}\n```",
              "C:f {}|C:g {}");
        check(in, "So:\n {\"arguments\": {}, \"name\": \"g\"}\n{\"name\":\"f\",\"arguments\":{}}",
              "T:So:|C:g {}|C:f {}");
        check(in, "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]", "C:f {}|C:g {}");
        static const char *const texts[] = {
            "{\"name\": \"h\", \"arguments\": {}}",                     /* not offered */
            "{\"name\": \"f\"}",                                        /* no arguments */
            "{\"name\": \"f\", \"arguments\": 3}",                      /* no object */
            "{\"name\": \"f\", \"arguments\": {}, }",                   /* no JSON */
            "Say {\"name\": \"f\", \"arguments\": {}}",                 /* inside a line */
            "```python\n{\"name\": \"f\", \"arguments\": {}}\n```\nso", /* another language */
            "```json\n{\"name\": \"h\", \"arguments\": {}}\n```",
            "```json\n[1, 2]\n```\n{\"a\": 1}\n[x]",
            "[1] a\n{b}\n``",
        };
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            char want[200];
            snprintf(want, sizeof want, "T:%s", texts[k]);
            check(in, texts[k], want);
        }
        check_cut(in, "So:\n```json\n{\"name\": \"f\", \"arguments\": {\"a\": [1,", "T:So:|C:f cut {\"a\": [1,");
        check_cut(in, "{\"name\": \"f\", \"arguments\": {}}", "C:f {}");
        check_cut(in, "{\"name\": \"h\", \"argu", "T:{\"name\": \"h\", \"argu");
    }
    check("hermes", "<think>{\"name\": \"f\", \"arguments\": {}}</think>{\"name\": \"g\", \"arguments\": {}}",
          "H:{\"name\": \"f\", \"arguments\": {}}|C:g {}");
    check("hermes", "{\"name\": \"f\", \"arguments\": {}}\n<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>",
          "C:f {}|C:g {}");
    check("llama-3", "So:\n{\"name\": \"f\", \"parameters\": {}}", "T:So:|C:f {}");
    bare = false;
    check("hermes", "{\"name\": \"f\", \"arguments\": {}}", "T:{\"name\": \"f\", \"arguments\": {}}");
}

static void check_told(const char *jinja, const char *want)
{
    CHECK_STR(ntx_reply_name(ntx_reply_by_template(jinja, strlen(jinja))), want);
}

static void check_templates(void)
{
    check_told("", "plain");
    check_told("{{ '<|im_start|>' }}", "plain");
    check_told("<tool_call>{\"name\"", "hermes");
    check_told("<tool_call>\n<function=example>\n<parameter=a>", "qwen3-coder");
    check_told("<tool_call>{name}<arg_key>", "glm");
    check_told("{%- set HYTK = ':opensource' %}<tool_call{}><tool_sep{}><arg_key{}>", "hy-3");
    check_told("{%- set ns_token = ']<]minimax[>[' -%}<tool_call><invoke name=", "minimax-m3");
    check_told("<minimax:tool_call> <invoke name=", "minimax");
    check_told("<|tool_calls_section_begin|><|tool_call_begin|>", "kimi");
    check_told(DS("tool" LOW "call" LOW "begin"), "deepseek");
    check_told("'" DSML "'", "deepseek-v3.2");
    check_told("'" DSML "' + 'function_calls>' tool_calls", "deepseek-v3.2");
    check_told("'<' + '" DSML "' + 'tool_calls>'", "deepseek-v4");
    check_told("[TOOL_CALLS]", "mistral");
    check_told("<seed:think> <seed:tool_call><function=", "seed");
    check_told("<|START_THINKING|> <|START_ACTION|>", "command-a");
    check_told("<|tool_list_start|> <|tool_call_start|>", "lfm2");
    check_told("<|inner_prefix|> <|tools_prefix|>", "apertus");
    check_told("<AVAILABLE_TOOLS> <TOOLCALL>", "nemotron-2");
    check_told("<|bom|> <tool_calls>", "jamba");
    check_told("<tool_call>\n<function=example_function_name>\n<parameter=example> <think>",
               "qwen3-coder"); /* Nemotron 3 */
    check_told("<|start_header_id|> {\"name\": function name, \"parameters\": ", "llama-3");
    check_told("<|start|><|channel|><|message|>", "harmony");
    const struct ntx_reply_format *kimi = ntx_reply_by_name("kimi");
    CHECK(ntx_reply_is_mark(kimi, "<|tool_call_end|>", 17) &&
          ntx_reply_is_mark(kimi, "<|tool_call_argument_begin|>", 28) && ntx_reply_is_mark(kimi, "<think>", 7));
    CHECK(!ntx_reply_is_mark(kimi, "<|im_end|>", 10) && !ntx_reply_is_mark(ntx_reply_by_name("plain"), "[ARGS]", 6) &&
          !ntx_reply_by_name("none"));
}

static int refuse(void *arg, const struct ntx_reply_part *p)
{
    (void)arg;
    (void)p;
    return 7;
}

int main(void)
{
    struct ntx_reply *r;
    struct ntx_reply_options options = {.format = ntx_reply_by_name("plain"), .part = refuse};
    check_thoughts();
    check_json();
    check_marks();
    check_xml();
    check_cuts();
    check_bare();
    bare = true; /* the marks of the formats mean the same then */
    check_thoughts();
    check_families();
    check_python();
    check_marks();
    check_xml();
    bare = false;
    check_templates();
    CHECK(!ntx_reply_new(&options, &r));
    CHECK_EQ(ntx_reply_feed(r, "x", 1), 7);
    ntx_reply_free(r);
    return 0;
}
