/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers of a few tokens, made in memory: what each key and token type does, by value. */
#include <errno.h>

#include "tests/lib/check.h"
#include "tests/unit/tokenizer/mem_gguf.h"

static void check_ids(const struct ntx_tokenizer *t, const char *text, size_t len, int flags, const int32_t *want,
                      int n_want)
{
    int32_t *ids;
    int n = ntx_tokenize(t, text, len, flags, &ids);
    CHECK_MSG(n == n_want, "\"%s\" gives %d tokens, expected %d", text, n, n_want);
    for (int i = 0; i < n; i++)
        CHECK_MSG(ids[i] == want[i], "\"%s\": token %d is %d, expected %d", text, i, ids[i], want[i]);
    free(ids);
}
#define IDS(t, text, flags, ...)                                                                                       \
    do {                                                                                                               \
        const int32_t want_[] = {__VA_ARGS__};                                                                         \
        check_ids(t, text, sizeof(text) - 1, flags, want_, sizeof(want_) / sizeof(want_[0]));                          \
    } while (0)
#define NO_IDS(t, text, flags) check_ids(t, text, sizeof(text) - 1, flags, NULL, 0)

static void check_text(const struct ntx_tokenizer *t, int32_t id, bool first, bool special, const char *want)
{
    char buf[32];
    int n = ntx_detokenize_one(t, id, first, special, buf, sizeof(buf) - 1);
    CHECK(n >= 0);
    buf[n] = 0;
    CHECK_STR(buf, want);
}

/* ---- SentencePiece-like: <unk> <s> </s> 256 bytes, then pieces. "ab" wins over "bc" by its score. */
enum { A = 259, B, C, SP, AB, BC, ABC, SPA, USER, LOOK, MISTYPED, N_SPM };

static int open_spm(const char *extra_key, bool value, struct ntx_tokenizer **t, struct ntx_err *err)
{
    static const char *const pieces[] = {"a",
                                         "b",
                                         "c",
                                         "\xe2\x96\x81",
                                         "ab",
                                         "bc",
                                         "abc",
                                         "\xe2\x96\x81"
                                         "a",
                                         "<tool>",
                                         "<|role|>",
                                         "<end_of_turn>"};
    static const float scores[] = {-9, -9, -9, -9, -1, -2, -3, -4, 0, 0, 0};
    struct mem_gguf m = {0};
    char bytes[256][7];
    const char *toks[N_SPM] = {"<unk>", "<s>", "</s>"};
    float sc[N_SPM] = {0};
    int32_t types[N_SPM] = {2, 3, 3};
    for (unsigned i = 0; i < 256; i++) {
        snprintf(bytes[i], sizeof(bytes[i]), "<0x%02X>", i);
        toks[3 + i] = bytes[i];
        types[3 + i] = 6;
    }
    for (unsigned i = A; i < N_SPM; i++) {
        toks[i] = pieces[i - A];
        sc[i] = scores[i - A];
        types[i] = i == USER || i == LOOK ? 4 : 1;
    }
    mem_str(&m, "tokenizer.ggml.model", "llama");
    mem_strs(&m, "tokenizer.ggml.tokens", toks, N_SPM);
    mem_f32s(&m, "tokenizer.ggml.scores", sc, N_SPM);
    mem_i32s(&m, "tokenizer.ggml.token_type", types, N_SPM);
    if (extra_key)
        mem_bool(&m, extra_key, value);
    return mem_open(&m, t, err);
}

static void test_spm(void)
{
    struct ntx_tokenizer *t = NULL;
    struct ntx_err err = {0};
    CHECK_MSG(open_spm(NULL, false, &t, &err) == 0, "%s", err.text);
    CHECK_STR(ntx_tokenizer_kind(t), "llama");
    CHECK_EQ(ntx_tokenizer_n_vocab(t), N_SPM);
    CHECK_EQ(ntx_tokenizer_bos(t), 1);
    CHECK(ntx_tokenizer_is_eog(t, 2));
    NO_IDS(t, "", 0);
    IDS(t, "", NTX_TOK_BOS, 1);
    IDS(t, "a", NTX_TOK_BOS, 1, SPA);
    IDS(t, "abc", 0, SP, ABC); /* ab, then abc; the space is left alone */
    IDS(t, "bcb", 0, SP, BC, B);
    IDS(t, "bb b", 0, SP, B, B, SP, B);
    IDS(t, "\xc3\xa9", 0, SP, 3 + 0xC3, 3 + 0xA9);
    IDS(t, "b\xff", 0, SP, B, 3 + 0xFF);
    IDS(t, "b</s>", NTX_TOK_SPECIAL, SP, B, 2);
    IDS(t, "</s>b", NTX_TOK_SPECIAL, 2, SP, B);                /* a space after a control token */
    IDS(t, "</s>", 0, SP, 3 + '<', 3 + '/', 3 + 's', 3 + '>'); /* people's text is only text */
    IDS(t, "b<tool>b", 0, SP, B, USER, B);                     /* user-defined tokens match always */
    IDS(t, "<|role|>", NTX_TOK_SPECIAL, LOOK);
    CHECK(!ntx_tokenizer_is_eog(t, LOOK));
    IDS(t, "<|", 0, SP, 3 + '<', 3 + '|');
    check_text(t, SPA, true, false, "a");
    check_text(t, SPA, false, false, " a");
    check_text(t, 3 + 0x41, false, false, "A");
    check_text(t, 2, false, false, "");
    check_text(t, 2, false, true, "</s>");
    check_text(t, LOOK, false, false, "<|role|>");
    CHECK(ntx_tokenizer_is_eog(t, 2) && !ntx_tokenizer_is_eog(t, 1) && !ntx_tokenizer_is_eog(t, -1));
    CHECK(ntx_tokenizer_is_eog(t, MISTYPED)); /* by its name, though the file calls it ordinary */
    char buf[2];
    CHECK_EQ(ntx_detokenize_one(t, USER, false, false, buf, 2), -ERANGE);
    CHECK_EQ(ntx_detokenize_one(t, N_SPM, false, false, buf, 2), -EINVAL);
    ntx_tokenizer_free(t);

    CHECK_EQ(open_spm("tokenizer.ggml.add_space_prefix", false, &t, &err), 0);
    IDS(t, "ab", NTX_TOK_BOS, 1, AB);
    check_text(t, SPA, true, false, " a");
    ntx_tokenizer_free(t);
    CHECK_EQ(open_spm("tokenizer.ggml.add_bos_token", false, &t, &err), 0);
    IDS(t, "ab", NTX_TOK_BOS, SP, AB);
    ntx_tokenizer_free(t);
    CHECK_EQ(open_spm("tokenizer.ggml.add_eos_token", true, &t, &err), 0);
    IDS(t, "ab", NTX_TOK_BOS, 1, SP, AB, 2);
    ntx_tokenizer_free(t);
}

static void test_bpe(void)
{
    static const char *const controls[] = {"<|begin|>", "<|im_end|>"};
    int32_t c;
    struct ntx_tokenizer *t = mem_bpe("gpt-2", controls, 2, &c);
    CHECK_STR(ntx_tokenizer_kind(t), "gpt2/gpt-2");
    IDS(t, "hello", NTX_TOK_BOS, 259); /* gpt-2 has no BOS by default */
    IDS(t, "hell", 0, 258);
    IDS(t, " he", 0, ' ', 256); /* tokens without a merge are never made */
    IDS(t, "llhe", 0, 257, 256);
    IDS(t, "ooo", 0, 261, 'o'); /* leftmost first */
    IDS(t, "\xf0\x9f", 0, 0xf0, 0x9f);
    IDS(t, "o<|im_end|>", NTX_TOK_SPECIAL, 'o', c + 1);
    IDS(t, "<|im", NTX_TOK_SPECIAL, '<', '|', 'i', 'm');
    IDS(t, "<|im_end|>", 0, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>');
    CHECK(ntx_tokenizer_is_eog(t, c + 1) && !ntx_tokenizer_is_eog(t, c));
    check_text(t, 260, true, false, " h");
    check_text(t, 0xf0, false, false, "\xf0");
    check_text(t, c, false, false, "");
    ntx_tokenizer_free(t);
    t = mem_bpe("llama3", controls, 2, &c);
    IDS(t, " h", NTX_TOK_BOS, c, 260); /* a whole word that is a token, and a BOS */
    IDS(t, "1234", 0, '1', '2', '3', '4');
    ntx_tokenizer_free(t);
}

/* The tokens that end a generation, by their names: one bit each, the first the lowest. */
static unsigned ends(const char *const *controls, unsigned n, uint32_t eot)
{
    struct mem_gguf m = {0};
    struct ntx_tokenizer *t = NULL;
    struct ntx_err err = {0};
    int32_t c;
    unsigned set = 0;
    mem_bpe_keys(&m, "gpt-4o", controls, n, &c);
    mem_u32(&m, "tokenizer.ggml.eot_token_id", (uint32_t)c + eot);
    CHECK_MSG(mem_open(&m, &t, &err) == 0, "%s", err.text);
    for (unsigned i = 0; i < n; i++)
        set |= (unsigned)ntx_tokenizer_is_eog(t, c + (int32_t)i) << i;
    ntx_tokenizer_free(t);
    return set;
}

/* "<|end|>" ends an answer of Phi, but only a message of gpt-oss, which has the two others. */
static void test_ends(void)
{
    static const char *const names[] = {"<|startoftext|>", "<|return|>", "<|call|>",
                                        "<|end|>",         "<|start|>",  "<|channel|>"};
    static const char *const phi[] = {"<s>", "</s>", "<|call|>", "<|end|>"}; /* the second is the file's EOS */
    CHECK_EQ(ends(names, 6, 1), 0x06);
    CHECK_EQ(ends(names, 6, 3), 0x06); /* whatever the file's EOT is */
    CHECK_EQ(ends(phi, 4, 1), 0x0e);
}

static void test_refusals(void)
{
    static const char *const two[] = {"a", "b"};
    struct mem_gguf m = {0};
    struct ntx_tokenizer *t = NULL;
    struct ntx_err err = {0};
    mem_str(&m, "tokenizer.ggml.model", "rwkv");
    CHECK_EQ(mem_open(&m, &t, &err), -ENOTSUP);
    CHECK_STR(err.text, "tokenizer \"rwkv\" is not known; known are: llama, gpt2");
    mem_str(&m, "tokenizer.ggml.model", "gpt2");
    mem_str(&m, "tokenizer.ggml.pre", "no-such");
    mem_strs(&m, "tokenizer.ggml.tokens", two, 2);
    CHECK_EQ(mem_open(&m, &t, &err), -ENOTSUP);
    CHECK(strstr(err.text, "\"no-such\""));
    mem_str(&m, "tokenizer.ggml.model", "gpt2");
    mem_strs(&m, "tokenizer.ggml.tokens", two, 2);
    CHECK_EQ(mem_open(&m, &t, &err), -EINVAL); /* no merges; a missing pre-tokenizer is not the reason */
    mem_str(&m, "tokenizer.ggml.model", "gpt2");
    mem_u32(&m, "tokenizer.ggml.pre", 1);
    mem_strs(&m, "tokenizer.ggml.tokens", two, 2);
    CHECK_EQ(mem_open(&m, &t, &err), -EINVAL);
    CHECK_STR(err.text, "tokenizer.ggml.pre is not a string");
    mem_str(&m, "tokenizer.ggml.model", "llama");
    CHECK_EQ(mem_open(&m, &t, &err), -EINVAL);
    mem_str(&m, "tokenizer.ggml.model", "llama");
    mem_strs(&m, "tokenizer.ggml.tokens", two, 2);
    CHECK_EQ(mem_open(&m, &t, &err), -EINVAL); /* no scores */
    mem_str(&m, "tokenizer.ggml.model", "llama");
    mem_strs(&m, "tokenizer.ggml.tokens", two, 2);
    mem_f32s(&m, "tokenizer.ggml.scores", (const float[]){0, 0}, 2);
    mem_u32(&m, "tokenizer.ggml.eos_token_id", 2);
    CHECK_EQ(mem_open(&m, &t, &err), -EINVAL); /* outside the vocabulary */
    mem_str(&m, "tokenizer.ggml.model", "gpt2");
    mem_str(&m, "tokenizer.ggml.pre", "gpt-2");
    mem_strs(&m, "tokenizer.ggml.tokens", two, 2);
    mem_strs(&m, "tokenizer.ggml.merges", two, 2);
    CHECK_EQ(mem_open(&m, &t, &err), -EINVAL);
    CHECK_STR(err.text, "tokenizer.ggml.merges: entry 0 is not a pair");
    CHECK(!t);
}

static void test_hold(void)
{
    CHECK_EQ(ntx_utf8_hold("", 0), 0);
    CHECK_EQ(ntx_utf8_hold("abc", 3), 0);
    CHECK_EQ(ntx_utf8_hold("a\xc3", 2), 1);
    CHECK_EQ(ntx_utf8_hold("a\xc3\xa9", 3), 0);
    CHECK_EQ(ntx_utf8_hold("\xe2\x82", 2), 2);
    CHECK_EQ(ntx_utf8_hold("\xe2\x82\xac", 3), 0);
    CHECK_EQ(ntx_utf8_hold("x\xf0\x9f\x98", 4), 3);
    CHECK_EQ(ntx_utf8_hold("\xf0\x9f\x98\x80", 4), 0);
    CHECK_EQ(ntx_utf8_hold("\xf0\x9f\x98\x80\xf0", 5), 1);
    CHECK_EQ(ntx_utf8_hold("\x80\x80\x80\x80", 4), 0); /* never becomes a character */
    CHECK_EQ(ntx_utf8_hold("\xc0", 1), 0);
    CHECK_EQ(ntx_utf8_hold("\xe0\x80", 2), 0);
    CHECK_EQ(ntx_utf8_hold("\xed\xa0", 2), 0); /* a surrogate */
    CHECK_EQ(ntx_utf8_hold("\xf4\x90", 2), 0);
    CHECK_EQ(ntx_utf8_hold("\xff", 1), 0);
}

int main(void)
{
    test_spm();
    test_bpe();
    test_ends();
    test_refusals();
    test_hold();
    return 0;
}
