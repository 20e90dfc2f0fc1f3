/* SPDX-License-Identifier: Apache-2.0 */
/* grammar.c: grammars and schemas under libFuzzer. The first byte picks one of the two. Then come its text, up to a
 * NUL, and the bytes to match. A token that the mask allows is also accepted byte by byte; memory stays within its
 * limit. */
#include <errno.h>

#include "computed/grammar/grammar.h"
#include "tests/fuzz/fuzz.h"

static int byte_of(void *ctx, int32_t id, char *buf, size_t room)
{
    (void)ctx;
    MUST(room);
    buf[0] = (char)id;
    return 1;
}

static void go(const struct ntx_grammar *g, const struct ntx_tokens *tokens, const uint8_t *p, size_t n)
{
    struct ntx_match_config c = {.grammar = g, .tokens = tokens, .memory = 1 << 20};
    struct ntx_match *m;
    const uint32_t *mask;
    bool none;
    if (ntx_match_new(&c, &m))
        return;
    for (size_t i = 0; i < n && i < 200; i++) {
        if (ntx_match_mask(m, false, &mask, &none))
            break;
        MUST(!none || ntx_match_may_end(m)); /* every byte is a token: nothing dies */
        bool may = mask[p[i] / 32] >> (p[i] % 32) & 1;
        int rc = ntx_match_take(m, (const char *)p + i, 1);
        MUST(may ? rc != -EINVAL : rc != 0);
        MUST(ntx_match_bytes(m) <= 1 << 20);
    }
    ntx_match_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ntx_tokens *tokens;
    struct ntx_grammar *g;
    struct ntx_err err = {0};
    if (size < 2 || size > 4000)
        return 0;
    if (!tokens)
        MUST(!ntx_tokens_new(256, byte_of, NULL, &tokens));
    const uint8_t *end = memchr(data + 1, 0, size - 1);
    size_t len = end ? (size_t)(end - data) - 1 : size - 1;
    const char *text = (const char *)data + 1;
    if (data[0] & 1 ? ntx_grammar_compile(text, len, &g, &err) : ntx_grammar_of_schema(text, len, &g, &err)) {
        MUST(err.text[0]);
        return 0;
    }
    go(g, tokens, data + 1 + len, size - 1 - len);
    ntx_grammar_free(g);
    return 0;
}
