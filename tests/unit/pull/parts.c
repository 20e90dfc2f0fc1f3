/* SPDX-License-Identifier: Apache-2.0 */
/* The parsers of names and headers that come from elsewhere: what they make of right ones, and that nothing becomes of
 * wrong ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/pull/header.h"
#include "client/pull/store.h"
#include "tests/lib/check.h"

static void check_stem(const char *file, const char *stem, unsigned no, unsigned of)
{
    char got[256] = "";
    unsigned a = 0, b = 0;
    CHECK_MSG(ntx_store_stem(file, got, &a, &b) == (stem != NULL), "%s", file);
    if (!stem)
        return;
    CHECK_STR(got, stem);
    CHECK_EQ(a, no);
    CHECK_EQ(b, of);
}

static void test_stems(void)
{
    static const char *const bad[] = {"",         ".gguf",      ".x.gguf",   "-x.gguf",       "x",      "x.gguf.part",
                                      "a/b.gguf", "..\\x.gguf", "a\nb.gguf", "\xc3\xa4.gguf", "x.gguf "};
    char longest[300];
    check_stem("Tiny-Q8_0.gguf", "Tiny-Q8_0", 1, 1);
    check_stem("x.GGUF", "x", 1, 1);
    check_stem("Big-Q4_0-00002-of-00003.gguf", "Big-Q4_0", 2, 3);
    check_stem("Big-00004-of-00003.gguf", "Big-00004-of-00003", 1, 1); /* not one of three parts */
    check_stem("Big-00000-of-00003.gguf", "Big-00000-of-00003", 1, 1);
    check_stem("-00001-of-00003.gguf", NULL, 0, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_stem(bad[i], NULL, 0, 0);
    memset(longest, 'a', sizeof longest);
    memcpy(longest + 246, ".gguf", 6);
    check_stem(longest, NULL, 0, 0);
}

static void test_types(void)
{
    static const char *const types[][2] = {{"llama-3-8b-Q4_K_M", "Q4_K_M"},
                                           {"x-IQ2_XXS", "IQ2_XXS"},
                                           {"x-UD-Q4_K_XL", "UD-Q4_K_XL"},
                                           {"x.f16", "f16"},
                                           {"x-BF16", "BF16"},
                                           {"x-MXFP4", "MXFP4"},
                                           {"x-TQ1_0", "TQ1_0"},
                                           {"Q8_0", ""},
                                           {"x-instruct", ""},
                                           {"x-Quick", ""},
                                           {"x-7b", ""},
                                           {"x-Q4 M", ""},
                                           {"", ""}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        CHECK_STR(ntx_store_type(types[i][0]), types[i][1]);
}

static void put(unsigned char **p, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        *(*p)++ = (unsigned char)(v >> (8 * i));
}

static void put_text(unsigned char **p, const char *text)
{
    put(p, strlen(text), 8);
    memcpy(*p, text, strlen(text));
    *p += strlen(text);
}

/* A header with a value of each type, and its end. */
static size_t make_header(unsigned char *buf)
{
    unsigned char *p = buf;
    put(&p, 0x46554747, 4);
    put(&p, 3, 4);
    put(&p, 1, 8);
    put(&p, 3, 8);
    put_text(&p, "a.number");
    put(&p, 4, 4);
    put(&p, 7, 4);
    put_text(&p, "a.text");
    put(&p, 8, 4);
    put_text(&p, "words");
    put_text(&p, "a.list");
    put(&p, 9, 4);
    put(&p, 8, 4);
    put(&p, 2, 8);
    put_text(&p, "one");
    put_text(&p, "two");
    put_text(&p, "a.weight");
    put(&p, 2, 4);
    put(&p, 64, 8);
    put(&p, 64, 8);
    put(&p, 0, 4);
    put(&p, 0, 8);
    return (size_t)(p - buf);
}

static void test_headers(void)
{
    unsigned char buf[512] = {0};
    size_t n = make_header(buf);
    CHECK_EQ(ntx_header_end(buf, sizeof buf), n);
    CHECK_EQ(ntx_header_end(buf, n), n);
    for (size_t i = 0; i < n; i++) { /* copies, so that a sanitizer notices a read beyond the end */
        unsigned char *cut = malloc(i + 1);
        memcpy(cut, buf, i);
        CHECK_EQ(ntx_header_end(cut, i), 0);
        free(cut);
    }
    srand(1);
    for (int k = 0; k < 200000;
         k++) { /* with any byte changed: the end is within the bytes, or unknown, never beyond */
        unsigned char bent[sizeof buf];
        memcpy(bent, buf, n);
        for (int i = 0; i < 1 + k % 3; i++)
            bent[(unsigned)rand() % n] = (unsigned char)(k % 5 ? rand() : 255);
        uint64_t end = ntx_header_end(bent, n);
        CHECK(end <= n || end == UINT64_MAX);
    }
    buf[0] = 'g';
    CHECK_EQ(ntx_header_end(buf, n), UINT64_MAX);
}

static void test_origins(void)
{
    static const char *const urls[][2] = {{"https://Host.example/a?b", "https://host.example:443"},
                                          {"http://127.0.0.1:8080/x", "http://127.0.0.1:8080"},
                                          {"http://[::1]/x", "http://[::1]:80"},
                                          {"ftp://host/x", NULL},
                                          {"file:///etc/passwd", NULL},
                                          {"https://me@host/x", NULL},
                                          {"https://me:pw@host/x", NULL},
                                          {"nonsense", NULL},
                                          {"", NULL}};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        char origin[300] = "";
        CHECK_MSG(ntx_web_origin(urls[i][0], origin) == (urls[i][1] != NULL), "%s: %s", urls[i][0], origin);
        if (urls[i][1])
            CHECK_STR(origin, urls[i][1]);
    }
}

int main(void)
{
    test_stems();
    test_types();
    test_headers();
    test_origins();
    return 0;
}
