/* SPDX-License-Identifier: Apache-2.0 */
/* Text -> ids -> text is the identity, for random characters, random bytes, and runs that tempt a tokenizer into
 * quadratic time. A small vocabulary made in memory is always tried; the reference vocabularies where they are at hand.
 * */
#include <time.h>

#include "tests/unit/tokenizer/data.h"
#include "tests/unit/tokenizer/mem_gguf.h"

static uint64_t seed = 1;

static uint32_t rnd(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % n);
}

static size_t put_char(char *p, uint32_t cp)
{
    if (cp < 0x80) {
        p[0] = (char)cp;
        return 1;
    }
    size_t n = 2 + (cp >= 0x800) + (cp >= 0x10000);
    for (size_t i = n - 1; i > 0; i--, cp >>= 6)
        p[i] = (char)(0x80 | (cp & 0x3F));
    p[0] = (char)((0xF00u >> n & 0xF0) | cp);
    return n;
}

/* Mostly what people write, with some of everything; blanks and punctuation in runs. */
static size_t random_text(char *buf, size_t n_chars, uint32_t max)
{
    static const char few[] = "     \n\n\t..,'s'll(){}=!?0123456789eeaatt";
    size_t n = 0;
    while (n_chars--) {
        uint32_t kind = rnd(10), cp;
        if (kind < 5)
            cp = (unsigned char)few[rnd(sizeof(few) - 1)];
        else if (kind < 8)
            cp = 'a' + rnd(26);
        else if (kind < 9)
            cp = 0xA0 + rnd(0x3000);
        else
            cp = 0x20 + rnd(max - 0x20);
        if (cp >= 0x7F && (cp < 0xA0 || (cp >= 0xD800 && cp < 0xE000)))
            cp = 0x4E00 + rnd(1000);
        n += put_char(buf + n, cp);
    }
    return n;
}

static void check_round(const struct ntx_tokenizer *t, const char *text, size_t len)
{
    int32_t *ids;
    size_t n_back;
    int n = ntx_tokenize(t, text, len, 0, &ids);
    CHECK(n >= 0);
    char *back = text_of(t, ids, n, false, &n_back);
    CHECK_MSG(n_back == len && !memcmp(back, text, len), "%s: %zu bytes came back as %zu: %.*s", ntx_tokenizer_kind(t),
              len, n_back, (int)(len < 200 ? len : 200), text);
    free(back);
    free(ids);
}

static void random_rounds(const struct ntx_tokenizer *t, bool any_bytes)
{
    char buf[4 * 200];
    for (int i = 0; i < 300; i++)
        check_round(t, buf, random_text(buf, rnd(200), any_bytes ? 0x10FFFF : 0x2FFFF));
    for (int i = 0; any_bytes && i < 300; i++) {
        size_t n = rnd(200);
        for (size_t k = 0; k < n; k++)
            buf[k] = (char)rnd(256);
        check_round(t, buf, n);
    }
}

/* 256 KiB of one pattern: minutes if anything here were quadratic. */
static void long_runs(const struct ntx_tokenizer *t)
{
    static const char *const patterns[] = {"a",
                                           " ",
                                           "\n",
                                           " \n",
                                           "!",
                                           "1",
                                           "ab",
                                           "\xe4\xb8\x80",
                                           "[",
                                           "'",
                                           " a",
                                           "\t ",
                                           "A",
                                           "A\xe4\xb8\x80",
                                           "a's",
                                           "\xcc\x81",
                                           "\xcc\x81"
                                           "A"};
    enum { size = 256 << 10 };
    static char text[size + 8];
    struct timespec a, b;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        size_t n = 0, len = strlen(patterns[i]);
        for (; n + len <= size; n += len)
            memcpy(text + n, patterns[i], len);
        text[n++] = 'x'; /* so that "blanks up to the end" fails at the last byte */
        check_round(t, text, n);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    double s = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    printf("%s: %zu KiB of runs in %.2f s\n", ntx_tokenizer_kind(t),
           sizeof(patterns) / sizeof(patterns[0]) * (size >> 10), s);
    CHECK(s < 20);
}

static void try_made(void)
{
    static const char *const pres[] = {"gpt-2",  "llama-bpe", "qwen2",  "tekken",
                                       "gpt-4o", "starcoder", "falcon", "deepseek-llm"};
    for (size_t i = 0; i < sizeof(pres) / sizeof(pres[0]); i++) {
        int32_t first;
        struct ntx_tokenizer *t = mem_bpe(pres[i], (const char *const[]){"<|im_end|>"}, 1, &first);
        random_rounds(t, true);
        long_runs(t);
        ntx_tokenizer_free(t);
    }
}

static void try_reference(void)
{
    static const struct {
        const char *name;
        bool any_bytes; /* the vocabulary has a token for each of the 256; the others lack those of no or rare
                           characters */
    } vocabs[] = {{"llama-spm", true},     {"gpt-2", true},   {"llama-bpe", true}, {"qwen2", true},
                  {"deepseek-llm", false}, {"falcon", false}, {"starcoder", false}};
    for (size_t i = 0; i < sizeof(vocabs) / sizeof(vocabs[0]); i++) {
        char file[64];
        snprintf(file, sizeof(file), "vocab/ggml-vocab-%s.gguf", vocabs[i].name);
        struct ntx_tokenizer *t = open_tokenizer(file);
        random_rounds(t, vocabs[i].any_bytes);
        long_runs(t);
        ntx_tokenizer_free(t);
    }
}

int main(void)
{
    const char *dir = getenv("NTX_DATA");
    try_made();
    if (dir && !access(dir, R_OK))
        try_reference();
    return 0;
}
