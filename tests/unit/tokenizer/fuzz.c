/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabularies with a few bytes changed: refused with a reason, or usable without a fault (the sanitizers' pass looks).
 * */
#include "tests/lib/check.h"
#include "tests/unit/tokenizer/mem_gguf.h"

static uint64_t seed = 7;

static uint32_t rnd(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % n);
}

/* Any text in, any id out. */
static void use(const struct ntx_tokenizer *t)
{
    static const char text[] = "<|im_start|>user\nhello  h\xff <0x41> \xe2\x96\x81 1234 hellohello<|im_end|>";
    char buf[512];
    int32_t *ids;
    int n = ntx_tokenize(t, text, sizeof(text) - 1, NTX_TOK_BOS | NTX_TOK_SPECIAL, &ids);
    CHECK(n >= 0);
    for (int i = 0; i < n; i++)
        CHECK(ids[i] >= 0 && (uint32_t)ids[i] < ntx_tokenizer_n_vocab(t));
    free(ids);
    for (uint32_t id = 0; id < ntx_tokenizer_n_vocab(t); id++)
        (void)ntx_detokenize_one(t, (int32_t)id, id & 1, id & 2, buf, sizeof(buf));
    CHECK(ntx_tokenizer_bytes(t) > 0);
}

/* 0 refused by the reader, 1 refused by the tokenizer, 2 used. */
static int try_bytes(const unsigned char *p, size_t n)
{
    struct ntx_gguf *g = NULL;
    struct ntx_tokenizer *t = NULL;
    struct ntx_err err = {0};
    if (ntx_gguf_parse(p, n, n, &g, &err))
        return 0;
    int rc = ntx_tokenizer_open(g, &t, &err);
    ntx_gguf_free(g);
    CHECK(!rc == !!t);
    CHECK(!rc || err.text[0]);
    if (t)
        use(t);
    ntx_tokenizer_free(t);
    return t ? 2 : 1;
}

static void mutate(const struct mem_gguf *m, unsigned rounds)
{
    unsigned seen[3] = {0};
    unsigned char *copy = malloc(m->n);
    CHECK(copy && try_bytes(m->p, m->n) == 2);
    while (rounds--) {
        memcpy(copy, m->p, m->n);
        for (uint32_t k = 1 + rnd(3); k > 0; k--)
            copy[rnd(12) ? 24 + rnd((uint32_t)m->n - 24) : rnd(200)] = (unsigned char)(rnd(2) ? rnd(256) : rnd(4));
        seen[try_bytes(copy, m->n)]++;
    }
    printf("%u refused by the reader, %u by the tokenizer, %u used\n", seen[0], seen[1], seen[2]);
    CHECK(seen[0] && seen[2]);
    free(copy);
}

static void fuzz_bpe(void)
{
    struct mem_gguf m = {0};
    int32_t first;
    mem_bpe_keys(&m, "llama-bpe", (const char *const[]){"<|im_start|>", "<|im_end|>"}, 2, &first);
    mem_finish(&m);
    mutate(&m, 6000);
    free(m.p);
}

static void fuzz_spm(void)
{
    static const char *const toks[] = {"<unk>", "<s>", "</s>", "<0x41>", "a", "b", "ab", "\xe2\x96\x81", "<tool>"};
    static const float scores[] = {0, 0, 0, 0, -3, -2, -1, -4, 0};
    static const int32_t types[] = {2, 3, 3, 6, 1, 1, 1, 1, 4};
    struct mem_gguf m = {0};
    mem_str(&m, "tokenizer.ggml.model", "llama");
    mem_u32(&m, "tokenizer.ggml.eos_token_id", 2);
    mem_bool(&m, "tokenizer.ggml.add_space_prefix", true);
    mem_strs(&m, "tokenizer.ggml.tokens", toks, 9);
    mem_f32s(&m, "tokenizer.ggml.scores", scores, 9);
    mem_i32s(&m, "tokenizer.ggml.token_type", types, 9);
    mem_finish(&m);
    mutate(&m, 30000);
    free(m.p);
}

int main(void)
{
    fuzz_bpe();
    fuzz_spm();
    return 0;
}
