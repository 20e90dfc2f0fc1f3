/* SPDX-License-Identifier: Apache-2.0 */
/* record.c: what policy.c replays: texts, and what a drafter says at each place of them.
 *
 *   bench_record write MODEL TOKENS < prompts.txt > TEXTS
 *   bench_record drafts DRAFTER [LAYER,LAYER...] < TEXTS > DRAFTS
 *
 * write: the model answers each prompt ("== NAME", then its text; put into Qwen's chat template) at T 0 and at T 0.8,
 * up to TOKENS tokens. A text: its name, the number of prompt tokens, T, seed, all token ids, and a semicolon.
 * drafts: the drafter reads each text as it was written (teacher forcing). With a list of layers it is the model
 * without them, and has the whole model's K and V of all earlier tokens. For each place from the second token on: up to
 * 8 pairs of token and chance, likeliest first, then a semicolon; for a text first its name and its number of
 * places. Chances are computed as in computed/draft/drafter.c. On standard error: the share of places where the
 * likeliest token was the text's. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/draft/writer.h"
#include "common/util.h"
#include "computed/sample/sampler.h"
#include "shm/region.h"

enum { CTX = 1024, BATCH = 64, KIDS = 8 };
#define SHARP 0.75f /* computed/draft/drafter_impl.h */

static struct writer w;
static uint64_t skipped; /* bits of layers */

static void skip_layers(void *ctx, const struct ntx_batch *b, uint64_t *skip)
{
    (void)ctx;
    for (uint32_t i = 0; i < b->n_rows; i++)
        skip[(size_t)i * NTX_MAP_WORDS] = skipped;
}

static struct ntx_sampling sampling(float temp, uint64_t seed)
{
    return (struct ntx_sampling){.temp = temp,
                                 .top_k = 40,
                                 .top_p = 0.95f,
                                 .min_p = 0.05f,
                                 .repeat_penalty = 1,
                                 .repeat_last = 64,
                                 .seed = seed};
}

/* Runs tokens [from, to); logits [(to - from) x n_vocab], or of the last one alone. skips: without those layers. */
static void run_rows(struct ntx_kv_seq *kv, const int32_t *text, uint32_t from, uint32_t to, float *logits, bool all,
                     bool skips)
{
    static struct ntx_row rows[CTX];
    for (uint32_t i = from; i < to; i++) {
        float *at = all ? logits + (size_t)(i - from) * w.model->hp.n_vocab : logits;
        rows[i - from] = (struct ntx_row){
            .token = text[i], .pos = i, .kv = kv, .may_skip = skips, .logits = all || i + 1 == to ? at : NULL};
    }
    const struct ntx_batch b = {.pass = w.pass++, .rows = rows, .n_rows = to - from};
    must(ntx_forward_run(w.f, &b), ntx_forward_error(w.f));
}

static void run(struct ntx_kv_seq *kv, const int32_t *text, uint32_t from, uint32_t to, float *logits, bool all)
{
    run_rows(kv, text, from, to, logits, all, false);
}

/* The drafter has the other layers. All tokens before its own are verified, so their K and V are the model's. The last
 * token is first, since each leaves its own K and V; then the model writes them anew. */
static void run_skipped(struct ntx_kv_seq *kv, const int32_t *text, uint32_t from, uint32_t to, float *logits)
{
    run(kv, text, from, to, w.logits, false);
    for (uint32_t i = to; i-- > from;)
        run_rows(kv, text, i, i + 1, logits + (size_t)(i - from) * w.model->hp.n_vocab, false, true);
    run(kv, text, from, to, w.logits, false);
}

/* ---- write */

static uint32_t answer(const int32_t *ids, uint32_t n, uint32_t more, const struct ntx_sampling *how, int32_t *text)
{
    const struct ntx_err none = {0};
    struct ntx_kv_seq *kv;
    struct ntx_sampler *s;
    uint32_t end = n, at = 0;
    memcpy(text, ids, n * sizeof *ids);
    must(ntx_kv_seq_new(w.pool, CTX, &kv), &none);
    must(ntx_sampler_new(how, w.model->hp.n_vocab, &s), &none);
    do {
        run(kv, text, at, end, w.logits, false);
        at = end;
        text[end] = ntx_sampler_next(s, end, w.logits);
        end++;
    } while (end < n + more && !ntx_tokenizer_is_eog(w.tok, text[end - 1]));
    ntx_sampler_free(s);
    ntx_kv_seq_free(kv);
    return end;
}

static void write_prompt(const char *name, const char *prompt, uint32_t more)
{
    static char chat[1 << 15];
    static int32_t text[CTX];
    const struct ntx_err none = {0};
    int32_t *ids;
    snprintf(chat, sizeof chat,
             "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n%s<|im_end|>\n"
             "<|im_start|>assistant\n",
             prompt);
    int n = ntx_tokenize(w.tok, chat, strlen(chat), NTX_TOK_SPECIAL, &ids);
    must(n < 0 ? n : 0, &none);
    must((uint32_t)n + more > CTX ? -E2BIG : 0, &none);
    for (int warm = 0; warm < 2; warm++) {
        const struct ntx_sampling how = sampling(warm ? 0.8f : 0, 1);
        uint32_t end = answer(ids, (uint32_t)n, more, &how, text);
        printf("%s %d %.1f %llu\n", name, n, (double)how.temp, (unsigned long long)how.seed);
        for (uint32_t i = 0; i < end; i++)
            printf("%d ", text[i]);
        puts(";");
        fflush(stdout);
    }
    free(ids);
}

static void write_texts(uint32_t more)
{
    static char prompt[1 << 14], name[32], line[4096];
    while (fgets(line, sizeof line, stdin)) {
        if (strncmp(line, "== ", 3)) {
            strncat(prompt, line, sizeof prompt - strlen(prompt) - 1);
            continue;
        }
        if (*name)
            write_prompt(name, prompt, more);
        *prompt = 0;
        must(sscanf(line, "== %31s", name) == 1 ? 0 : -EINVAL, &(struct ntx_err){0});
    }
    if (*name)
        write_prompt(name, prompt, more);
}

/* ---- drafts */

static uint32_t say(struct ntx_sampler *s, const int32_t *text, uint32_t at, const float *logits)
{
    struct ntx_candidate kid[KIDS];
    ntx_sampler_take(s, logits);
    uint32_t n = ntx_sampler_draft(s, at, SHARP, kid, KIDS);
    for (uint32_t i = 0; i < n; i++)
        printf("%d %.4f ", kid[i].id, (double)kid[i].logit);
    puts(";");
    ntx_sampler_wrote(s, text[at]);
    return n && kid[0].id == text[at];
}

static uint32_t say_text(const int32_t *text, uint32_t n_prompt, uint32_t n, const struct ntx_sampling *how)
{
    const struct ntx_err none = {0};
    const size_t vocab = w.model->hp.n_vocab;
    float *logits = malloc(BATCH * vocab * sizeof *logits);
    struct ntx_kv_seq *kv;
    struct ntx_sampler *s;
    uint32_t same = 0;
    must(logits ? 0 : -ENOMEM, &none);
    must(ntx_kv_seq_new(w.pool, CTX, &kv), &none);
    must(ntx_sampler_new(how, (uint32_t)vocab, &s), &none);
    for (uint32_t i = 0; i < n_prompt; i++)
        ntx_sampler_accept(s, text[i]);
    ntx_sampler_wrote(s, text[n_prompt]);
    run(kv, text, 0, n_prompt, w.logits, false);
    for (uint32_t at = n_prompt, to; at + 1 < n; at = to) {
        to = NTX_MIN(at + BATCH, n - 1);
        if (skipped)
            run_skipped(kv, text, at, to, logits);
        else
            run(kv, text, at, to, logits, true);
        for (uint32_t i = at; i < to; i++)
            same += say(s, text, i + 1, logits + (i - at) * vocab);
    }
    ntx_sampler_free(s);
    ntx_kv_seq_free(kv);
    free(logits);
    return same;
}

static void say_texts(void)
{
    static int32_t text[CTX];
    char name[32];
    uint32_t n_prompt, same[2] = {0}, all[2] = {0};
    unsigned long long seed;
    float temp;
    while (scanf("%31s %u %f %llu", name, &n_prompt, &temp, &seed) == 4) {
        uint32_t n = 0;
        while (n < CTX && scanf("%d", &text[n]) == 1)
            n++;
        must(scanf(" ;") == EOF || n <= n_prompt ? -EINVAL : 0, &(struct ntx_err){.text = "a text is cut"});
        const struct ntx_sampling how = sampling(temp, seed);
        printf("%s %u\n", name, n - n_prompt - 1);
        uint32_t its = say_text(text, n_prompt, n, &how);
        same[temp > 0] += its;
        all[temp > 0] += n - n_prompt - 1;
        fprintf(stderr, "%s,%.1f,%u,%.3f\n", name, (double)temp, n - n_prompt - 1, its / (n - n_prompt - 1.0));
        fflush(stdout);
    }
    for (int warm = 0; warm < 2; warm++)
        fprintf(stderr, "all,%.1f,%u,%.3f\n", warm ? 0.8 : 0, all[warm], same[warm] / (double)all[warm]);
}

int main(int argc, char **argv)
{
    const struct ntx_skip_hooks hooks = {.decide = skip_layers};
    bool writes = argc == 4 && !strcmp(argv[1], "write");
    if (!writes && (argc < 3 || argc > 4 || strcmp(argv[1], "drafts"))) {
        fprintf(stderr, "usage: bench_record write MODEL TOKENS < PROMPTS\n"
                        "       bench_record drafts DRAFTER [LAYER,LAYER...] < TEXTS\n");
        return 100;
    }
    for (char *at = writes || argc < 4 ? NULL : strtok(argv[3], ","); at; at = strtok(NULL, ","))
        skipped |= 1ull << (strtoul(at, NULL, 10) & 63);
    open_writer(&w, argv[2], CTX, 2, skipped ? &hooks : NULL);
    if (writes)
        write_texts((uint32_t)strtoul(argv[3], NULL, 10));
    else
        say_texts();
    close_writer(&w);
    return 0;
}
