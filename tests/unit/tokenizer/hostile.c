/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile vocabularies: colliding ones, and one with an endless token. Time is CPU time. */
#include <errno.h>
#include <time.h>

#include "tests/lib/check.h"
#include "tests/unit/tokenizer/mem_gguf.h"

#define CHAIN 500
#define N     (CHAIN * 1000u)

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The old, unkeyed hash of a first word: for each result the second word that leads to the same `end` is known. */
static uint64_t second_word(uint64_t first, uint64_t end)
{
    uint64_t h = (0x9e3779b97f4a7c15u ^ 16 ^ first) * 0xff51afd7ed558ccdu;
    return (h ^ h >> 32) ^ end;
}

/* The slot of the whole text, in a table of at least N slots. */
static uint32_t slot(uint64_t end)
{
    uint64_t h = end * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 32) * 0xff51afd7ed558ccdu;
    return (uint32_t)(h ^ h >> 29) & ((1u << 20) - 1);
}

/* An end with 1024 free slots after it. */
static uint64_t free_end(uint8_t *used)
{
    static uint64_t x = 7;
    for (;;) {
        uint64_t end = x = x * 6364136223846793005u + 1442695040888963407u;
        if (slot(end) % 1024 >= 256 || used[slot(end) / 1024])
            continue;
        used[slot(end) / 1024] = 1;
        return end;
    }
}

static bool has_zero(uint64_t w) { return (w - 0x0101010101010101u) & ~w & 0x8080808080808080u; }

/* [N] texts of 16 bytes; with `collide` in chains of CHAIN that the old hash put into one slot. */
static const char **make_texts(bool collide, char *room)
{
    const char **texts = malloc(N * sizeof *texts);
    uint8_t used[1024] = {0};
    uint64_t x = 1, end = free_end(used);
    CHECK(texts);
    for (uint32_t i = 0; i < N;) {
        uint64_t w[2];
        x = x * 6364136223846793005u + 1442695040888963407u;
        w[0] = x ^ x >> 29;
        w[1] = collide ? second_word(w[0], end) : w[0] * 0x2545f4914f6cdd1du;
        if (has_zero(w[0]) || has_zero(w[1]))
            continue;
        memcpy(room + 17 * (size_t)i, w, 16);
        texts[i] = room + 17 * (size_t)i;
        if (++i % CHAIN == 0 && i < N)
            end = free_end(used);
    }
    return texts;
}

static int open_texts(const char *const *texts, const int32_t *types, uint32_t n, double *seconds, struct ntx_err *err)
{
    struct mem_gguf m = {0};
    struct ntx_tokenizer *t = NULL;
    struct ntx_gguf *g = NULL;
    float *scores = calloc(n, sizeof *scores);
    CHECK(scores);
    mem_str(&m, "tokenizer.ggml.model", "llama");
    mem_strs(&m, "tokenizer.ggml.tokens", texts, n);
    mem_f32s(&m, "tokenizer.ggml.scores", scores, n);
    if (types)
        mem_i32s(&m, "tokenizer.ggml.token_type", types, n);
    mem_finish(&m);
    CHECK(!ntx_gguf_parse(m.p, m.n, m.n, &g, err));
    double start = cpu_seconds();
    int rc = ntx_tokenizer_open(g, &t, err);
    *seconds = cpu_seconds() - start;
    ntx_tokenizer_free(t);
    ntx_gguf_free(g);
    free(scores);
    free(m.p);
    return rc;
}

static void collisions(void)
{
    char *room = calloc(N, 17);
    struct ntx_err err = {0};
    double took[2] = {1e9, 1e9};
    CHECK(room);
    for (int collide = 0; collide < 2; collide++) {
        const char **texts = make_texts(collide, room);
        for (int i = 0; i < 3; i++) { /* the machine may be busy */
            double s;
            CHECK_MSG(!open_texts(texts, NULL, N, &s, &err), "%s", err.text);
            took[collide] = s < took[collide] ? s : took[collide];
        }
        free(texts);
    }
    printf("%u tokens: %.3f s, made to collide %.3f s\n", N, took[0], took[1]);
    CHECK_MSG(took[1] < 2 * took[0] + 0.02, "%.3f s, ordinary tokens take %.3f", took[1], took[0]);
    free(room);
}

static void long_tokens(void)
{
    char longest[NTX_TOKEN_MAX + 2];
    const char *texts[] = {"a", longest, "b"};
    struct ntx_err err = {0};
    double s;
    memset(longest, 'x', sizeof longest - 1);
    longest[NTX_TOKEN_MAX] = 0;
    CHECK_MSG(!open_texts(texts, NULL, 3, &s, &err), "%s", err.text);
    longest[NTX_TOKEN_MAX] = 'x';
    longest[NTX_TOKEN_MAX + 1] = 0;
    CHECK_EQ(open_texts(texts, NULL, 3, &s, &err), -EINVAL);
    CHECK_STR(err.text, "token 1 stands for 4097 bytes; 4096 are possible");
}

int main(void)
{
    collisions();
    long_tokens();
    return 0;
}
