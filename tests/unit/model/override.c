/* SPDX-License-Identifier: Apache-2.0 */
/* override.c: keys that are given for a file's own (--override-kv): what each pair gives, and how the getters see it.
 * */
#include "model/override.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gguf.h"
#include "tests/unit/model/make.h"

/* The file has `llama.block_count` and other keys of a small model. */
static struct ntx_gguf *with(const char *pairs)
{
    struct mk_options o = make_options();
    struct ntx_err err = {0};
    static uint8_t *bytes; /* of the last one, which its file is read from */
    size_t n;
    free(bytes);
    bytes = make_bytes(&o, &n);
    struct ntx_gguf *g = parse_ok(bytes, n);
    CHECK_MSG(!ntx_gguf_override(g, pairs, &err), "%s: %s", pairs, err.text);
    return g;
}

static uint64_t u64_of(const char *pairs, const char *key)
{
    struct ntx_gguf *g = with(pairs);
    uint64_t v = 0;
    CHECK_MSG(!ntx_gguf_u64(g, key, &v), "%s of %s", key, pairs ? pairs : "nothing");
    ntx_gguf_free(g);
    return v;
}

static void text_is(const char *pairs, const char *key, const char *want)
{
    struct ntx_gguf *g = with(pairs);
    struct ntx_str s;
    CHECK_EQ(ntx_gguf_str(g, key, &s), 0);
    CHECK_MSG(s.n == strlen(want) && !memcmp(s.p, want, s.n), "%s: '%.*s'", pairs, (int)s.n, s.p);
    ntx_gguf_free(g);
}

static void test_whole_numbers(void)
{
    uint64_t layers = u64_of(NULL, "llama.block_count");
    CHECK_EQ(layers, 2);
    CHECK_EQ(u64_of("", "llama.block_count"), 2);
    CHECK_EQ(u64_of("llama.block_count=int:7", "llama.block_count"), 7);
    CHECK_EQ(u64_of("llama.block_count=int:+7", "llama.block_count"), 7);
    CHECK_EQ(u64_of("x=int:9223372036854775807", "x"), INT64_MAX);
    CHECK_EQ(u64_of("llama.block_count=int:7,llama.block_count=int:8", "llama.block_count"), 8); /* the last counts */
    CHECK_EQ(u64_of("x=int:1,x=int:3", "x"), 3);
    CHECK_EQ(u64_of("x=int:1,llama.block_count=int:5,y=int:2", "llama.block_count"), 5);
    CHECK_EQ(u64_of("x=int:1", "llama.block_count"), 2); /* no other key */
    struct ntx_gguf *g = with("llama.block_count=int:-1");
    uint64_t v;
    CHECK(ntx_gguf_u64(g, "llama.block_count", &v) < 0);
    ntx_gguf_free(g);
}

static void test_numbers(void)
{
    struct ntx_gguf *g = with("f=float:2.5,llama.rope.freq_base=float:-1e6,t=bool:true,n=bool:false");
    float f;
    bool b;
    CHECK(!ntx_gguf_f32(g, "f", &f) && f == 2.5f);
    CHECK(!ntx_gguf_f32(g, "llama.rope.freq_base", &f) && f == -1e6f);
    CHECK(!ntx_gguf_bool(g, "t", &b) && b);
    CHECK(!ntx_gguf_bool(g, "n", &b) && !b);
    CHECK(ntx_gguf_bool(g, "f", &b) < 0); /* another type */
    ntx_gguf_free(g);
}

/* A comma is a text's own unless a pair stands behind it. */
static void test_texts(void)
{
    text_is("general.name=str:a, b=c", "general.name", "a, b=c");
    text_is("general.name=str:a,b=int:5", "general.name", "a");
    text_is("x=str:", "x", "");
    text_is("x=str:1,y=str:b,,c", "x", "1");
    text_is("x=str:1,y=str:b,,c", "y", "b,,c");
    text_is("x=int:1,x=str:now a text", "x", "now a text");
    CHECK_EQ(u64_of("general.name=str:a,b=int:5", "b"), 5);
}

static void refused(const char *pairs, const char *why)
{
    struct ntx_override o;
    struct ntx_err err = {0};
    const char *at = pairs;
    int rc;
    while ((rc = ntx_override_next(&at, &o, &err)) > 0)
        ;
    CHECK_MSG(rc == -EINVAL && strstr(err.text, why), "%s: %d %s", pairs, rc, err.text);
}

static void test_refused(void)
{
    char key[NTX_OVERRIDE_KEY + 16];
    refused("x", "write KEY=TYPE:VALUE");
    refused("=int:1", "write KEY=TYPE:VALUE");
    refused("x=u32:1", "write KEY=TYPE:VALUE");
    refused("x=int:1,y", "no whole number");
    refused("x=str:a,b=int:5,c", "of key 'b' is no whole number");
    refused("x=int:", "no whole number");
    refused("x=int: 1", "no whole number");
    refused("x=int:9223372036854775808", "no whole number");
    refused("x=float:1e999", "no number");
    refused("x=float:2,5", "no number");
    refused("x=bool:1", "true or false");
    refused("a b=int:1", "no spaces");
    refused("a\xc3\xa9=int:1", "printable characters of ASCII");
    refused("general.alignment=int:64", "how the file is read");
    refused("split.count=int:2", "how the file is read");
    snprintf(key, sizeof key, "%0*d=int:1", NTX_OVERRIDE_KEY, 0);
    refused(key, "write KEY=TYPE:VALUE");
    char longest[NTX_OVERRIDE_KEY];
    snprintf(longest, sizeof longest, "%0*d", NTX_OVERRIDE_KEY - 1, 0);
    CHECK_EQ(u64_of(key + 1, longest), 1); /* a byte less */
}

int main(void)
{
    test_whole_numbers();
    test_numbers();
    test_texts();
    test_refused();
    return 0;
}
