/* SPDX-License-Identifier: Apache-2.0 */
/* masks.c: answers of one grammar share their masks, whatever numbers each gave to its states; the memory of masks that
 * no answer has is bounded; and bits are the same as without sharing. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/check.h"
#include "tests/unit/grammar/walk.h"

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"tags\":{\"type\":\"array\","
    "\"items\":{\"enum\":[\"red\",\"green\",\"abc\"]}},\"n\":{\"type\":\"integer\"}},"
    "\"required\":[\"name\",\"tags\",\"n\"],\"additionalProperties\":false}";
static const char text[] = "{\"name\":\"a \\n caf\xc3\xa9\",\"tags\":[\"red\",\"abc\"],\"n\":-12}";

enum { WORDS = 32 };

struct answer {
    struct ntx_match_config c;
    size_t from; /* this many bytes are taken at once, without masks between them */
    uint32_t bits[sizeof text][WORDS];
};

/* The masks at each byte of the text. */
static void *write_answer(void *p)
{
    struct answer *a = p;
    struct ntx_match *m;
    size_t bytes = (walk_vocabulary() + 31) / 32 * sizeof(uint32_t);
    CHECK(bytes <= sizeof a->bits[0]);
    CHECK_EQ(ntx_match_new(&a->c, &m), 0);
    for (size_t i = 0; i < sizeof text; i++) {
        const uint32_t *mask;
        bool none;
        CHECK_EQ(i && i <= a->from ? 0 : ntx_match_mask(m, false, &mask, &none), 0);
        if (!i || i > a->from)
            memcpy(a->bits[i], mask, bytes);
        CHECK(ntx_match_bytes(m) <= a->c.memory);
        CHECK_EQ(i + 1 < sizeof text ? ntx_match_take(m, text + i, 1) : 0, 0);
    }
    ntx_match_free(m);
    return NULL;
}

static struct ntx_grammar *compile(void)
{
    struct ntx_grammar *g;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_grammar_of_schema(schema, sizeof schema - 1, &g, &err), "%s", err.text);
    return g;
}

static struct answer *answer_of(const struct ntx_match_config *c, size_t from)
{
    struct answer *a = calloc(1, sizeof *a);
    CHECK(a);
    a->c = *c;
    a->from = from;
    write_answer(a);
    return a;
}

static void same_bits(const struct answer *a, const struct answer *b)
{
    for (size_t i = 0; i < sizeof text; i++)
        CHECK_MSG((a->from && i && i <= a->from) || !memcmp(a->bits[i], b->bits[i], sizeof a->bits[i]), "at byte %zu",
                  i);
}

/* The second answer finds all masks of the first; so does one that took half of the text at once, and so gave its
 * states other numbers. */
static void test_shared(const struct ntx_match_config *alone)
{
    struct ntx_masks *k;
    CHECK_EQ(ntx_masks_new(&k), 0);
    ntx_masks_allow(k, 1 << 20);
    struct ntx_match_config c = *alone;
    struct answer *want = answer_of(alone, 0);
    CHECK_EQ(ntx_masks_bytes(k), 0);
    c.masks = k;
    struct answer *first = answer_of(&c, 0);
    uint64_t computed = ntx_masks_computed(k);
    CHECK(computed > 10);
    CHECK(ntx_masks_bytes(k) > computed * WORDS);
    struct answer *second = answer_of(&c, 0), *third = answer_of(&c, 24);
    CHECK_EQ(ntx_masks_computed(k), computed);
    same_bits(first, want);
    same_bits(second, want);
    same_bits(third, want);
    ntx_masks_forget(k, c.grammar);
    CHECK_EQ(ntx_masks_bytes(k), 0);
    free(first);
    free(second);
    free(third);
    free(want);
    ntx_masks_free(k);
}

/* Within what is allowed, some stay. */
static void test_bounded(const struct ntx_match_config *alone)
{
    enum { MOST = 2000 };
    struct ntx_masks *k;
    CHECK_EQ(ntx_masks_new(&k), 0);
    struct ntx_match_config c = *alone;
    c.masks = k;
    free(answer_of(&c, 0));
    CHECK_EQ(ntx_masks_bytes(k), 0); /* nothing is allowed at first */
    uint64_t computed = ntx_masks_computed(k);
    ntx_masks_allow(k, MOST);
    free(answer_of(&c, 0));
    CHECK_EQ(ntx_masks_computed(k), 2 * computed);
    size_t bytes = ntx_masks_bytes(k);
    CHECK(bytes && bytes <= MOST);
    ntx_masks_allow(k, bytes - 1);
    CHECK(ntx_masks_bytes(k) && ntx_masks_bytes(k) < bytes);
    ntx_masks_allow(k, 0);
    CHECK_EQ(ntx_masks_bytes(k), 0);
    ntx_masks_free(k);
}

/* Equal grammars that are not one have masks of their own. */
static void test_apart(const struct ntx_match_config *alone)
{
    struct ntx_masks *k;
    struct ntx_grammar *other = compile();
    CHECK_EQ(ntx_masks_new(&k), 0);
    ntx_masks_allow(k, 1 << 20);
    struct ntx_match_config c = *alone;
    c.masks = k;
    free(answer_of(&c, 0));
    uint64_t computed = ntx_masks_computed(k);
    size_t bytes = ntx_masks_bytes(k);
    c.grammar = other;
    free(answer_of(&c, 0));
    CHECK_EQ(ntx_masks_computed(k), 2 * computed);
    CHECK_EQ(ntx_masks_bytes(k), 2 * bytes);
    ntx_masks_forget(k, other);
    CHECK_EQ(ntx_masks_bytes(k), bytes);
    ntx_grammar_free(other);
    ntx_masks_free(k);
}

/* Two answers that come to the same set of stacks, whose frames they numbered in different orders: by "p" the
 * alternatives of `a` are met first, by "q" those of `b`. */
static void test_numbers(const struct ntx_tokens *tokens)
{
    static const char rules[] = "root ::= \"p\" (\"s\" a | \"s\" b) | \"q\" (\"s\" b | \"s\" a)\na ::= [0-9] \"x\" a | "
                                "\"e\"\nb ::= [a-d] \"y\" b | \"f\"\n";
    struct ntx_masks *k;
    struct ntx_grammar *g;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_grammar_compile(rules, sizeof rules - 1, &g, &err), "%s", err.text);
    CHECK_EQ(ntx_masks_new(&k), 0);
    ntx_masks_allow(k, 1 << 20);
    const struct ntx_match_config c = {.grammar = g, .tokens = tokens, .masks = k, .memory = 256 << 10};
    uint32_t bits[2][WORDS];
    for (int i = 0; i < 2; i++) {
        struct ntx_match *m;
        const uint32_t *mask;
        bool none;
        CHECK_EQ(ntx_match_new(&c, &m), 0);
        CHECK_EQ(ntx_match_take(m, i ? "qs" : "ps", 2), 0);
        CHECK_EQ(ntx_match_mask(m, false, &mask, &none), 0);
        memcpy(bits[i], mask, (walk_vocabulary() + 31) / 32 * sizeof **bits);
        ntx_match_free(m);
    }
    CHECK_EQ(ntx_masks_computed(k), 1);
    CHECK(!memcmp(bits[0], bits[1], (walk_vocabulary() + 31) / 32 * sizeof **bits));
    ntx_masks_free(k);
    ntx_grammar_free(g);
}

/* Simultaneous answers, while the allowance changes. */
static void test_threads(const struct ntx_match_config *alone)
{
    enum { THREADS = 4, TURNS = 20 };
    struct ntx_masks *k;
    struct answer *want = answer_of(alone, 0), *a = calloc(THREADS, sizeof *a);
    CHECK(a);
    CHECK_EQ(ntx_masks_new(&k), 0);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        pthread_t id[THREADS];
        for (unsigned i = 0; i < THREADS; i++) {
            memset(&a[i], 0, sizeof a[i]);
            a[i].c = *alone;
            a[i].c.masks = k;
            CHECK_EQ(pthread_create(&id[i], NULL, write_answer, &a[i]), 0);
        }
        ntx_masks_allow(k, turn % 2 ? 1 << 20 : 3000);
        for (unsigned i = 0; i < THREADS; i++) {
            CHECK_EQ(pthread_join(id[i], NULL), 0);
            same_bits(&a[i], want);
        }
    }
    free(a);
    free(want);
    ntx_masks_free(k);
}

int main(void)
{
    struct ntx_tokens *tokens = walk_tokens();
    struct ntx_grammar *g = compile();
    const struct ntx_match_config c = {.grammar = g, .tokens = tokens, .memory = 256 << 10};
    test_shared(&c);
    test_bounded(&c);
    test_apart(&c);
    test_numbers(tokens);
    test_threads(&c);
    ntx_grammar_free(g);
    ntx_tokens_free(tokens);
    return 0;
}
