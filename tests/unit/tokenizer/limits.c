/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of an encoding; and splitting a text changes nothing: its pieces have the tokens of the whole, joined pair
 * by pair. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_impl.h"
#include "tests/lib/check.h"
#include "tests/unit/tokenizer/mem_gguf.h"

static uint64_t seed = 1;

static uint32_t rnd(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % n);
}

/* Tokens with a blank in front, one with a blank inside, runs of blanks; scores of which some are equal. */
static const char *const tokens[] = {"<unk>",
                                     "<s>",
                                     "</s>",
                                     "a",
                                     "b",
                                     "c",
                                     "\xe2\x96\x81",
                                     "ab",
                                     "bc",
                                     "abc",
                                     "\xe2\x96\x81"
                                     "a",
                                     "\xe2\x96\x81"
                                     "ab",
                                     "\xe2\x96\x81\xe2\x96\x81",
                                     "\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81",
                                     "c\xe2\x96\x81"
                                     "a",
                                     "ca",
                                     "aa",
                                     "aaaa",
                                     "\xc3\xa9",
                                     "\xc3\xa9"
                                     "a",
                                     "\n",
                                     "\n\n"};
enum { N = sizeof tokens / sizeof *tokens };
static float scores[N];

static struct ntx_tokenizer *spm(unsigned n_tokens)
{
    struct mem_gguf m = {0};
    struct ntx_tokenizer *t;
    struct ntx_err err = {0};
    int32_t types[N];
    for (unsigned i = 0; i < n_tokens; i++) {
        types[i] = i < 3 ? NTX__CONTROL : NTX__NORMAL;
        scores[i] = -(float)(i * 7 % 11);
    }
    types[0] = NTX__UNKNOWN;
    mem_str(&m, "tokenizer.ggml.model", "llama");
    mem_strs(&m, "tokenizer.ggml.tokens", tokens, n_tokens);
    mem_f32s(&m, "tokenizer.ggml.scores", scores, n_tokens);
    mem_i32s(&m, "tokenizer.ggml.token_type", types, n_tokens);
    mem_bool(&m, "tokenizer.ggml.add_bos_token", false);
    mem_finish(&m);
    CHECK_MSG(mem_open(&m, &t, &err) == 0, "%s", err.text);
    return t;
}

struct sym {
    size_t off, len;
};

/* The definition, on the whole text: of all neighbours that are a token, the best score, the leftmost of equals. */
static int by_definition(const struct ntx_tokenizer *t, const char *text, size_t len, int32_t *ids)
{
    struct sym s[400];
    int n = 0, n_ids = 0;
    for (size_t i = 0; i < len; n++) {
        s[n] = (struct sym){i, (unsigned char)text[i] == 0xc3 && i + 1 < len && (unsigned char)text[i + 1] == 0xa9 ? 2
                                                                                                                   : 1};
        i += s[n].len;
    }
    for (;;) {
        int best = -1;
        for (int i = 0; i + 1 < n; i++) {
            int32_t id = ntx__vocab_find(&t->v, text + s[i].off, s[i].len + s[i + 1].len);
            int32_t had = best < 0 ? -1 : ntx__vocab_find(&t->v, text + s[best].off, s[best].len + s[best + 1].len);
            if (id >= 0 && (best < 0 || scores[id] > scores[had]))
                best = i;
        }
        if (best < 0)
            break;
        s[best].len += s[best + 1].len;
        memmove(s + best + 1, s + best + 2, (size_t)(n - best - 2) * sizeof *s);
        n--;
    }
    for (int i = 0; i < n; i++) {
        int32_t id = ntx__vocab_find(&t->v, text + s[i].off, s[i].len);
        for (size_t k = 0; k < (id < 0 ? s[i].len : 1); k++)
            ids[n_ids++] = id < 0 ? t->v.unk : id;
    }
    return n_ids;
}

static void test_pieces(unsigned n_tokens)
{
    static const char *const parts[] = {"a", "b", "c", " ", "  ", "\xc3\xa9", "\n", "z", "\xc3", "\xa9", "aa"};
    struct ntx_tokenizer *t = spm(n_tokens);
    for (int round = 0; round < 20000; round++) {
        char text[256] = " "; /* the space before a text */
        int32_t want[400], *ids;
        size_t len = 1;
        for (uint32_t k = 1 + rnd(40); k; k--) {
            const char *p = parts[rnd(sizeof parts / sizeof *parts)];
            memcpy(text + len, p, strlen(p));
            len += strlen(p);
        }
        int n_want = by_definition(t, text, len, want), n = ntx_tokenize(t, text + 1, len - 1, 0, &ids);
        CHECK_MSG(n == n_want && !memcmp(ids, want, (size_t)n * sizeof *ids), "%d tokens, not %d: '%.*s'", n, n_want,
                  (int)len, text);
        free(ids);
    }
    ntx_tokenizer_free(t);
}

static void check_limits(const struct ntx_tokenizer *t)
{
    static char text[100000];
    atomic_bool cancel = false;
    struct ntx_tok_limits l = {.ids = SIZE_MAX, .memory = SIZE_MAX, .cancel = &cancel};
    int32_t *ids, *again;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 7 ? 'a' + (char)rnd(3) : ' ';
    int n = ntx_tokenize(t, text, sizeof text, 0, &ids);
    CHECK(n > 1000);
    l.ids = (size_t)n; /* just enough, with little memory, since the text can be split */
    l.memory = 65536;
    CHECK_EQ(ntx_tokenize_within(t, text, sizeof text, 0, &l, &again), n);
    CHECK(!memcmp(ids, again, (size_t)n * sizeof *ids));
    free(again);
    l.ids--;
    CHECK_EQ(ntx_tokenize_within(t, text, sizeof text, 0, &l, &again), -E2BIG);
    l.ids = sizeof text / t->v.longest - 1;
    cancel = true; /* refused at once: the bytes prove that it is too long */
    CHECK_EQ(ntx_tokenize_within(t, text, sizeof text, 0, &l, &again), -E2BIG);
    l.ids = SIZE_MAX;
    CHECK_EQ(ntx_tokenize_within(t, text, sizeof text, 0, &l, &again), -ECANCELED);
    cancel = false;
    memset(text, 'a', sizeof text); /* no place to split */
    CHECK_EQ(ntx_tokenize_within(t, text, sizeof text, 0, &l, &again), -ENOBUFS);
    free(ids);
}

/* A place is a token of its own; the texts before and behind it are cut together with what is around. */
static void check_places(const struct ntx_tokenizer *t)
{
    const struct ntx_tok_limits l = {
        .ids = SIZE_MAX, .memory = SIZE_MAX, .place = "MARK", .place_before = "b<s>", .place_behind = "a"};
    static const char text[] = "aMARK000001cMARK000020 MARK12";
    int32_t *ids, *part[3];
    int n = ntx_tokenize_within(t, text, sizeof text - 1, 0, &l, &ids), k[3], at = 0;
    k[0] = ntx_tokenize(t, "ab<s>", 5, NTX_TOK_SPECIAL, &part[0]);
    k[1] = ntx_tokenize(t, "acb<s>", 6, NTX_TOK_SPECIAL, &part[1]);
    k[2] = ntx_tokenize(t, "a MARK12", 8, 0, &part[2]);
    CHECK_EQ(n, k[0] + k[1] + k[2] + 2);
    for (int i = 0; i < 3; i++) {
        CHECK_MSG(!memcmp(ids + at, part[i], (size_t)k[i] * sizeof *ids), "part %d", i);
        at += k[i];
        CHECK(i == 2 || ids[at++] == (i ? -21 : -2));
        free(part[i]);
    }
    free(ids);
}

int main(void)
{
    static const char *const controls[] = {"<s>", "</s>"};
    int32_t c;
    test_pieces(N);
    test_pieces(14); /* without tokens that have a blank after a letter */
    struct ntx_tokenizer *t = spm(N), *b = mem_bpe("gpt-2", controls, 2, &c);
    check_limits(t);
    check_limits(b);
    check_places(b);
    ntx_tokenizer_free(t);
    ntx_tokenizer_free(b);
    return 0;
}
