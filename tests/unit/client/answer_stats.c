/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics in words: rates that were measured over no time, or for cached tokens, are left out. */
#include "client/commands/answer_stats.h"
#include "tests/lib/check.h"

static json_t *stats_of(const char *text)
{
    json_t *j = json_loads(text, 0, NULL);
    CHECK(j);
    return j;
}

static void line(const char *stats, const char *want)
{
    char buf[512];
    json_t *j = stats_of(stats);
    ntx_stats_line(j, buf, sizeof buf);
    CHECK_STR(buf, want);
    json_decref(j);
}

static void account(const char *stats, const char *want)
{
    json_t *j = stats_of(stats);
    char *text = ntx_stats_account(j);
    CHECK(text);
    CHECK_STR(text, want);
    free(text);
    json_decref(j);
}

int main(void)
{
    line("{\"generated_tokens\": 1, \"peak_bytes\": 1048576, \"seed\": 7, \"decode_tok_s\": 0}",
         "1 token; peak 1 MiB; seed 7");
    line("{\"generated_tokens\": 41, \"decode_tok_s\": 20.0, \"prompt_tokens\": 30, \"prefill_tok_s\": 100.0,"
         " \"bytes_read_per_token\": 2500000, \"io_gb_s\": 1.5, \"peak_bytes\": 104857600, \"seed\": 8,"
         " \"finish\": \"length\", \"lossy\": [\"kv_q8_0\", \"x\"]}",
         "41 tokens at 20.0 tokens/s; prompt of 30 tokens at 100.0 tokens/s; 2.5 MB read per token at 1.50 GB/s; peak "
         "100 MiB; seed 8; ended by length; lossy: kv_q8_0, x");
    /* two tokens in a microsecond, and a prompt of which all but one token were cached */
    line("{\"generated_tokens\": 2, \"decode_tok_s\": 1e6, \"prompt_tokens\": 500, \"cached_tokens\": 499,"
         " \"prefill_tok_s\": 1e6, \"peak_bytes\": 1048576, \"seed\": 9}",
         "2 tokens; prompt of 500 tokens (499 cached); peak 1 MiB; seed 9");
    account("{\"generated_tokens\": 2, \"decode_tok_s\": 1e9, \"prompt_tokens\": 5, \"cached_tokens\": 5,"
            " \"prefill_tok_s\": 1e9, \"peak_bytes\": 1048576, \"seed\": 9, \"model\": \"m\", \"finish\": \"stop\"}",
            "The last answer has 2 tokens. It came to its end.\n"
            "Its prompt had 5 tokens, of which 5 were cached.\n"
            "The drive was not read for the tokens: all that they needed was in memory.\n"
            "The daemons took 1 MiB of memory at most.\n"
            "The model is m; the seed was 9.\n");
    account(
        "{\"generated_tokens\": 41, \"decode_tok_s\": 20.0, \"prompt_tokens\": 30, \"cached_tokens\": 10,"
        " \"prefill_tok_s\": 10.0, \"ttft_s\": 2.25, \"bytes_read_per_token\": 2500000, \"io_gb_s\": 1.5,"
        " \"predicted_tok_s\": 21.5, \"limit\": \"drive\", \"peak_bytes\": 104857600, \"seed\": 8, \"model\": \"m\","
        " \"finish\": \"length\", \"lossy\": [\"kv_q8_0\"]}",
        "The last answer has 41 tokens, written in 2.0 s: 20.0 tokens/s. It was cut: -n or the context allowed no "
        "more.\n"
        "Its prompt had 30 tokens, of which 10 were cached; 20 were computed in 2.00 s: 10.0 tokens/s.\n"
        "The first token came after 2.25 s.\n"
        "2.5 MB were read from the drive for each token at 1.50 GB/s.\n"
        "The plan predicted 21.5 tokens/s; the limit is: drive.\n"
        "The daemons took 100 MiB of memory at most.\n"
        "The model is m; the seed was 8.\n"
        "Lossy: kv_q8_0.\n");
    return 0;
}
