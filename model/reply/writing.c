/* SPDX-License-Identifier: Apache-2.0 */
/* writing.c: the syntax of calls in each format, for grammars that constrain them; calls.c parses the same. */
#include <string.h>

#include "model/reply/impl.h"

#define DS(words) "\"<\xef\xbd\x9c" words "\xef\xbd\x9c>\""
#define LOW       "\xe2\x96\x81"
#define DSML                                                                                                           \
    "\xef\xbd\x9c"                                                                                                     \
    "DSML"                                                                                                             \
    "\xef\xbd\x9c"
#define THINK     .think = "<think>", .think_end = "</think>"
#define NAMED     "\"{\\\"name\\\": \\\"\""
#define ARGUMENTS "\"\\\", \\\"arguments\\\": \""

/* The format with blocks of this name. */
#define DSML_FORMAT(block)                                                                                             \
    {                                                                                                                  \
        THINK, .mark = "<" DSML block ">", .before = "@\"<" DSML block ">\" \"\\n\"",                                  \
               .open = "\"<" DSML "invoke name=\\\"\"", .middle = "\"\\\">\\n\"", .close = "\"</" DSML "invoke>\\n\"", \
               .after = "@\"</" DSML block ">\"", .parameter = "\"<" DSML "parameter name=\\\"\"",                     \
               .value = "\"\\\" string=\\\"false\\\">\"", .text_value = "\"\\\" string=\\\"true\\\">\"",               \
               .parameter_end = "\"</" DSML "parameter>\\n\"", .text_end = "</" DSML "parameter>"                      \
    }

static const struct {
    const char *format;
    struct ntx_reply_writing w;
} table[] = {
    {"harmony",
     {.open = "@\"<|channel|>\" \"commentary to=functions.\"",
      .middle = "\" \" @\"<|constrain|>\" \"json\" @\"<|message|>\"",
      .close = "\"\""}},
    {"deepseek-v4", DSML_FORMAT("tool_calls")},
    {"deepseek-v3.2", DSML_FORMAT("function_calls")},
    {"deepseek",
     {THINK, .mark = "<\xef\xbd\x9ctool" LOW "calls" LOW "begin\xef\xbd\x9c>",
      .before = "@" DS("tool" LOW "calls" LOW "begin"), .open = "@" DS("tool" LOW "call" LOW "begin"),
      .middle = "@" DS("tool" LOW "sep"), .close = "@" DS("tool" LOW "call" LOW "end"),
      .after = "@" DS("tool" LOW "calls" LOW "end")}},
    {"kimi",
     {THINK, .mark = "<|tool_calls_section_begin|>", .before = "@\"<|tool_calls_section_begin|>\"",
      .open = "@\"<|tool_call_begin|>\" \"functions.\"", .middle = "\":\" [0-9] @\"<|tool_call_argument_begin|>\"",
      .close = "@\"<|tool_call_end|>\"", .after = "@\"<|tool_calls_section_end|>\""}},
    {"minimax",
     {THINK, .mark = "<minimax:tool_call>", .before = "@\"<minimax:tool_call>\" \"\\n\"",
      .open = "\"<invoke name=\\\"\"", .middle = "\"\\\">\\n\"", .close = "\"</invoke>\\n\"",
      .after = "@\"</minimax:tool_call>\"", .parameter = "\"<parameter name=\\\"\"", .value = "\"\\\">\"",
      .parameter_end = "\"</parameter>\\n\"", .text_end = "</parameter>"}},
    {"glm",
     {THINK, .mark = "<tool_call>", .open = "@\"<tool_call>\"", .middle = "\"\\n\"", .close = "@\"</tool_call>\"",
      .between = "\"\\n\"", .parameter = "@\"<arg_key>\"", .value = "@\"</arg_key>\" \"\\n\" @\"<arg_value>\"",
      .parameter_end = "@\"</arg_value>\" \"\\n\"", .text_end = "</arg_value>"}},
    {"qwen3-coder",
     {THINK, .mark = "<tool_call>", .open = "@\"<tool_call>\" \"\\n<function=\"", .middle = "\">\\n\"",
      .close = "\"</function>\\n\" @\"</tool_call>\"", .between = "\"\\n\"", .parameter = "\"<parameter=\"",
      .value = "\">\\n\"", .parameter_end = "\"\\n</parameter>\\n\"", .text_end = "</parameter>"}},
    {"mistral",
     {.think = "[THINK]",
      .think_end = "[/THINK]",
      .mark = "[TOOL_CALLS]",
      .open = "@\"[TOOL_CALLS]\"",
      .middle = "@\"[ARGS]\"",
      .close = "\"\""}},
    {"hermes",
     {THINK, .mark = "<tool_call>", .open = "@\"<tool_call>\" \"\\n\" " NAMED, .middle = ARGUMENTS,
      .close = "\"}\\n\" @\"</tool_call>\"", .between = "\"\\n\""}},
    {"llama-3",
     {THINK, .open = NAMED, .middle = "\"\\\", \\\"parameters\\\": \"", .close = "\"}\"", .between = "\"; \""}},
};

bool ntx_reply_writing(const struct ntx_reply_format *f, struct ntx_reply_writing *w)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(ntx_reply_name(f), table[i].format)) {
            *w = table[i].w;
            return true;
        }
    *w = (struct ntx_reply_writing){THINK};
    return false;
}
