/* SPDX-License-Identifier: Apache-2.0 */
#include "client/commands/answer_stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHORTEST_S 0.01 /* a rate over less time says nothing */

static double number_of(const json_t *j, const char *key) { return json_number_value(json_object_get(j, key)); }
static const char *text_of(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

/* Seconds that `tokens` took at a rate of tok_s; 0: too short to speak of, or unknown. */
static double time_of(double tokens, double tok_s)
{
    double s = tokens > 0 && tok_s > 0 ? tokens / tok_s : 0;
    return s >= SHORTEST_S ? s : 0;
}

static int decimals_of(double rate)
{
    if (rate < 0.1)
        return 3;
    return rate < 10 ? 2 : rate < 1000;
}

static const char *plural(double n) { return n == 1 ? "" : "s"; }

/* " at 40.0 tokens/s" where the rate means something. */
static void put_rate(FILE *f, double tokens, double tok_s)
{
    if (time_of(tokens, tok_s) > 0)
        fprintf(f, " at %.*f tokens/s", decimals_of(tok_s), tok_s);
}

static void put_drive_rate(FILE *f, double bps)
{
    if (bps >= 1e9)
        fprintf(f, " at %.2f GB/s", bps / 1e9);
    else if (bps >= 5e5)
        fprintf(f, " at %.0f MB/s", bps / 1e6);
}

static double computed_prompt(const json_t *j)
{
    double n = number_of(j, "prompt_tokens") - number_of(j, "cached_tokens");
    return n > 0 ? n : 0;
}

static void put_lossy(FILE *f, const json_t *j, const char *before)
{
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(j, "lossy"), i, v)
        fprintf(f, "%s%s", i ? ", " : before, json_string_value(v));
}

static void put_line(FILE *f, const json_t *j)
{
    double n = number_of(j, "generated_tokens"), prompt = number_of(j, "prompt_tokens"),
           cached = number_of(j, "cached_tokens"), read = number_of(j, "bytes_read_per_token");
    fprintf(f, "%.0f token%s", n, plural(n));
    put_rate(f, n - 1, number_of(j, "decode_tok_s"));
    if (prompt > 0) {
        fprintf(f, "; prompt of %.0f token%s", prompt, plural(prompt));
        if (cached > 0)
            fprintf(f, " (%.0f cached)", cached);
        put_rate(f, computed_prompt(j), number_of(j, "prefill_tok_s"));
    }
    if (read >= 1e5) {
        fprintf(f, "; %.1f MB read per token", read / 1e6);
        put_drive_rate(f, number_of(j, "io_gb_s") * 1e9);
    }
    if (number_of(j, "draft_nodes_per_pass") > 0)
        fprintf(f, "; %.1f tokens per pass", number_of(j, "accepted_per_pass"));
    fprintf(f, "; peak %.0f MiB; seed %.0f", number_of(j, "peak_bytes") / (1 << 20), number_of(j, "seed"));
    if (!strcmp(text_of(j, "finish"), "length"))
        fputs("; ended by length", f);
    put_lossy(f, j, "; lossy: ");
}

void ntx_stats_line(const json_t *stats, char *buf, size_t n)
{
    FILE *f = fmemopen(buf, n, "w");
    *buf = 0;
    if (!f)
        return;
    put_line(f, stats);
    fclose(f);
    buf[n - 1] = 0;
}

/* ---- the account */

static const char *end_of(const json_t *j)
{
    const char *finish = text_of(j, "finish");
    if (!strcmp(finish, "length"))
        return "It was cut: -n or the context allowed no more.";
    if (!strcmp(finish, "cancel"))
        return "It was stopped before its end.";
    return "It came to its end.";
}

static void put_answer(FILE *f, const json_t *j)
{
    double n = number_of(j, "generated_tokens"), rate = number_of(j, "decode_tok_s"), s = time_of(n - 1, rate);
    fprintf(f, "The last answer has %.0f token%s", n, plural(n));
    if (s > 0)
        fprintf(f, ", written in %.*f s: %.*f tokens/s", s < 10, s, decimals_of(rate), rate);
    fprintf(f, ". %s\n", end_of(j));
    if (number_of(j, "draft_nodes_per_pass") > 0)
        fprintf(f, "Drafts gave %.1f tokens per pass.\n", number_of(j, "accepted_per_pass"));
}

static void put_prompt(FILE *f, const json_t *j)
{
    double n = number_of(j, "prompt_tokens"), cached = number_of(j, "cached_tokens"), ttft = number_of(j, "ttft_s"),
           rate = number_of(j, "prefill_tok_s"), s = time_of(computed_prompt(j), rate);
    fprintf(f, "Its prompt had %.0f token%s", n, plural(n));
    if (cached > 0)
        fprintf(f, ", of which %.0f were cached", cached);
    if (s > 0 && cached > 0)
        fprintf(f, "; %.0f were", computed_prompt(j));
    if (s > 0)
        fprintf(f, "%s computed in %.*f s: %.*f tokens/s", cached > 0 ? "" : ",", s < 10 ? 2 : 0, s, decimals_of(rate),
                rate);
    fputs(".\n", f);
    if (ttft >= SHORTEST_S)
        fprintf(f, "The first token came after %.2f s.\n", ttft);
}

static void put_machine(FILE *f, const json_t *j)
{
    double read = number_of(j, "bytes_read_per_token"), predicted = number_of(j, "predicted_tok_s");
    const char *limit = text_of(j, "limit");
    if (read >= 1e5) {
        fprintf(f, "%.1f MB were read from the drive for each token", read / 1e6);
        put_drive_rate(f, number_of(j, "io_gb_s") * 1e9);
        fputs(".\n", f);
    } else {
        fputs("The drive was not read for the tokens: all that they needed was in memory.\n", f);
    }
    if (predicted > 0)
        fprintf(f, "The plan predicted %.*f tokens/s; the limit is: %s.\n", decimals_of(predicted), predicted, limit);
    fprintf(f, "The daemons took %.0f MiB of memory at most.\n", number_of(j, "peak_bytes") / (1 << 20));
    fprintf(f, "The model is %s; the seed was %.0f.\n", text_of(j, "model"), number_of(j, "seed"));
    if (json_array_size(json_object_get(j, "lossy"))) {
        put_lossy(f, j, "Lossy: ");
        fputs(".\n", f);
    }
}

char *ntx_stats_account(const json_t *stats)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return NULL;
    put_answer(f, stats);
    put_prompt(f, stats);
    put_machine(f, stats);
    if (!fclose(f))
        return text;
    free(text);
    return NULL;
}
