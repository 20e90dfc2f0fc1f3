/* SPDX-License-Identifier: Apache-2.0 */
/* mask.c: the cost of a token mask: bench_mask MODEL.gguf [SEED]. The vocabulary is the model's; texts are drawn at
 * random under the masks of some schemas. CSV: schema, tokens, masks per token; median, 90th and 99th percentile and
 * maximum in microseconds; milliseconds to sort the vocabulary. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/grammar/grammar.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

enum { TOKENS = 2000 };

static const char *const schemas[][2] = {
    {"person",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\",\"minimum\":0,"
     "\"maximum\":150},\"mail\":{\"type\":\"string\",\"format\":\"email\"}},\"required\":[\"name\",\"age\"]}"},
    {"short strings", "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":40}}"},
    {"long strings", "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":4000}}"},
    {"any", "{}"},
    {"steps", "{\"type\":\"object\",\"properties\":{\"steps\":{\"type\":\"array\",\"items\":{\"type\":\"object\","
              "\"properties\":{\"explanation\":{\"type\":\"string\"},\"output\":{\"type\":\"string\"}},"
              "\"required\":[\"explanation\",\"output\"]}},\"answer\":{\"enum\":[\"yes\",\"no\",\"perhaps\"]}},"
              "\"required\":[\"steps\",\"answer\"]}"},
};

static int bytes_of(void *ctx, int32_t id, char *buf, size_t room)
{
    return ntx_tokenizer_is_eog(ctx, id) ? 0 : ntx_detokenize_one(ctx, id, false, false, buf, room);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static uint64_t next(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return *s >> 33;
}

/* The first token from a random one on that the mask allows; -1: none. */
static int32_t pick(const struct ntx_tokenizer *tok, const uint32_t *mask, uint64_t *seed)
{
    uint32_t n = ntx_tokenizer_n_vocab(tok), from = (uint32_t)(next(seed) % n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = (from + i) % n;
        if (mask[id / 32] >> (id % 32) & 1)
            return (int32_t)id;
    }
    return -1;
}

static void measure(const struct ntx_tokenizer *tok, const struct ntx_tokens *tokens, const char *name,
                    const char *schema, uint64_t seed)
{
    static double us[TOKENS];
    struct ntx_grammar *g;
    struct ntx_match *m = NULL;
    struct ntx_err err = {0};
    unsigned n = 0;
    if (ntx_grammar_of_schema(schema, strlen(schema), &g, &err)) {
        fprintf(stderr, "%s: %s\n", name, err.text);
        exit(111);
    }
    struct ntx_match_config c = {.grammar = g, .tokens = tokens, .memory = 6 << 20};
    while (n < TOKENS) {
        const uint32_t *mask;
        char buf[NTX_TOKEN_MAX];
        bool none = false;
        if (!m && ntx_match_new(&c, &m))
            exit(111);
        uint64_t t = ntx_now_ns();
        if (ntx_match_mask(m, false, &mask, &none))
            exit(111);
        double taken = (double)(ntx_now_ns() - t) / 1e3;
        int32_t id = none ? -1 : pick(tok, mask, &seed);
        if (id < 0) {
            ntx_match_free(m);
            m = NULL;
            continue;
        }
        int len = bytes_of((void *)(uintptr_t)tok, id, buf, sizeof buf);
        t = ntx_now_ns();
        ntx_match_take(m, buf, (size_t)len);
        us[n++] = taken + (double)(ntx_now_ns() - t) / 1e3;
    }
    qsort(us, n, sizeof *us, by_size);
    printf("%s,%u,%.1f,%.1f,%.1f,%.1f\n", name, n, us[n / 2], us[n * 9 / 10], us[n * 99 / 100], us[n - 1]);
    ntx_match_free(m);
    ntx_grammar_free(g);
}

int main(int argc, char **argv)
{
    struct ntx_err err = {0};
    struct ntx_gguf *gguf;
    struct ntx_tokenizer *tok;
    struct ntx_tokens *tokens;
    int fd = argc > 1 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
    const char *const name[] = {argc > 1 ? argv[1] : ""};
    if (fd < 0 || ntx_gguf_open(&fd, 1, name, &gguf, &err) || ntx_tokenizer_open(gguf, &tok, &err)) {
        fprintf(stderr, "%s\n", err.text[0] ? err.text : "usage: bench_mask MODEL.gguf [SEED]");
        return argc < 2 ? 100 : 111;
    }
    uint64_t t = ntx_now_ns();
    if (ntx_tokens_new(ntx_tokenizer_n_vocab(tok), bytes_of, tok, &tokens))
        return 111;
    fprintf(stderr, "%u tokens, sorted in %.1f ms, %.2f MB\n", ntx_tokenizer_n_vocab(tok),
            (double)(ntx_now_ns() - t) / 1e6, (double)ntx_tokens_bytes(tokens) / 1e6);
    puts("schema,tokens,median_us,p90_us,p99_us,longest_us");
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
        measure(tok, tokens, schemas[i][0], schemas[i][1], argc > 2 ? strtoull(argv[2], NULL, 10) : 1);
    ntx_tokens_free(tokens);
    ntx_tokenizer_free(tok);
    ntx_gguf_free(gguf);
    return 0;
}
