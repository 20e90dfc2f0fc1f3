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
#define HY        ":opensource"
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
    {"seed",
     {.think = "<seed:think>",
      .think_end = "</seed:think>",
      .mark = "<seed:tool_call>",
      .open = "@\"<seed:tool_call>\" \"\\n<function=\"",
      .middle = "\">\\n\"",
      .close = "\"</function>\\n\" @\"</seed:tool_call>\"",
      .between = "\"\\n\"",
      .parameter = "\"<parameter=\"",
      .value = "\">\"",
      .parameter_end = "\"</parameter>\\n\"",
      .text_end = "</parameter>"}},
    {"command-a",
     {.think = "<|START_THINKING|>",
      .think_end = "<|END_THINKING|>",
      .mark = "<|START_ACTION|>",
      .text = "@\"<|START_RESPONSE|>\" ~\"<|END_RESPONSE|>\" @\"<|END_RESPONSE|>\" | "
              "@\"<|START_TEXT|>\" ~\"<|END_TEXT|>\" @\"<|END_TEXT|>\" | ~\"<|START_ACTION|>\"",
      .before = "@\"<|START_ACTION|>\" \"[\\n\"",
      .open = "\"    {\\\"tool_call_id\\\": \\\"\" [0-9] \"\\\", \\\"tool_name\\\": \\\"\"",
      .middle = "\"\\\", \\\"parameters\\\": \"",
      .close = "\"}\"",
      .between = "\",\\n\"",
      .after = "\"\\n]\" @\"<|END_ACTION|>\""}},
    {"lfm2",
     {THINK, .mark = "<|tool_call_start|>", .before = "@\"<|tool_call_start|>\" \"[\"", .open = "\"\"",
      .middle = "\"(\"", .close = "\")\"", .between = "\", \"", .after = "\"]\" @\"<|tool_call_end|>\"",
      .parameter = "\"\"", .value = "\"=\"", .parameter_end = "\"\"", .separator = "\", \""}},
    {"apertus",
     {.think = "<|inner_prefix|>",
      .think_end = "<|inner_suffix|>",
      .mark = "<|tools_prefix|>",
      .before = "@\"<|tools_prefix|>\" \"[\"",
      .open = "\"{\\\"\"",
      .middle = "\"\\\": \"",
      .close = "\"}\"",
      .between = "\", \"",
      .after = "\"]\" @\"<|tools_suffix|>\""}},
    {"nemotron-2",
     {THINK, .mark = "<TOOLCALL>", .before = "@\"<TOOLCALL>\" \"[\"", .open = NAMED, .middle = ARGUMENTS,
      .close = "\"}\"", .between = "\", \"", .after = "\"]\" @\"</TOOLCALL>\""}},
    {"jamba",
     {THINK, .mark = "<tool_calls>", .before = "@\"<tool_calls>\" \"[\\n\"", .open = NAMED, .middle = ARGUMENTS,
      .close = "\"}\"", .between = "\",\\n\"", .after = "\"\\n]\" @\"</tool_calls>\""}},
    {"hy-3",
     {.think = "<think" HY ">",
      .think_end = "</think" HY ">",
      .mark = "<tool_calls" HY ">",
      .before = "@\"<tool_calls" HY ">\" \"\\n\"",
      .open = "@\"<tool_call" HY ">\"",
      .middle = "@\"<tool_sep" HY ">\" \"\\n\"",
      .close = "@\"</tool_call" HY ">\" \"\\n\"",
      .after = "@\"</tool_calls" HY ">\"",
      .parameter = "@\"<arg_key" HY ">\"",
      .value = "@\"</arg_key" HY ">\" \"\\n\" @\"<arg_value" HY ">\"",
      .parameter_end = "@\"</arg_value" HY ">\" \"\\n\"",
      .text_end = "</arg_value" HY ">"}},
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
    if (!strcmp(ntx_reply_name(f), "minimax-m3"))
        *w = (struct ntx_reply_writing){.think = "<mm:think>", .think_end = "</mm:think>"};
    return false;
}
