/* SPDX-License-Identifier: Apache-2.0 */
/* pull.c: the input that `ntx pull` reads from unknown servers, under libFuzzer: HTTP header lines, the header of a
 * remote GGUF, addresses and file names. The first byte picks the kind. */
#include "client/pull/web.c" /* on_header is its own */

#include "client/pull/header.h"
#include "client/pull/store.h"
#include "tests/fuzz/fuzz.h"

/* Each line is passed as libcurl passes it: without a NUL at its end. */
static void use_lines(const uint8_t *data, size_t size)
{
    struct ntx_web w = {.home_now = size & 1, .a = {.size = NTX_WEB_UNKNOWN}};
    while (size) {
        const uint8_t *end = memchr(data, '\n', size);
        size_t n = end ? (size_t)(end - data) + 1 : size;
        char *line = malloc(n);
        MUST(line);
        memcpy(line, data, n);
        MUST(on_header(line, 1, n, &w) == n);
        free(line);
        data += n;
        size -= n;
    }
    MUST(memchr(w.a.etag, 0, sizeof w.a.etag) && (!*w.a.etag || *w.a.etag == '"'));
    MUST(!*w.a.sha256 || (w.home_now && strspn(w.a.sha256, "0123456789abcdef") == 64));
    MUST(!w.ranged || (w.a.from < w.part_end && w.part_end <= w.a.size && w.a.size < 1ull << 62));
}

/* The header's end lies within the bytes, and bytes behind it do not change the result. */
static void use_gguf(const uint8_t *data, size_t size)
{
    uint8_t *p = malloc(size ? size : 1);
    MUST(p);
    memcpy(p, data, size);
    uint64_t end = ntx_header_end(p, size);
    MUST(!end || end == UINT64_MAX || end <= size);
    if (end && end != UINT64_MAX) {
        MUST(ntx_header_end(p, end) == end);
        MUST(ntx_header_end(p, end - 1) == 0);
    }
    free(p);
}

static void use_texts(const char *text)
{
    char origin[300] = "", stem[256];
    unsigned no, of;
    struct ntx_hub_model m;
    struct ntx_err err = {0};
    if (ntx_web_origin(text, origin))
        MUST(!strncmp(origin, "http", 4) && !strchr(origin, '@'));
    if (ntx_store_stem(text, stem, &no, &of))
        MUST(*stem && *stem != '.' && !strchr(stem, '/') && no >= 1 && no <= of);
    MUST(strstr(text, ntx_store_type(text)));
    if (strncasecmp(text, "http", 4))
        return; /* anything else asks the hub */
    char *url = malloc(strlen(text) + 10);
    MUST(url && sprintf(url, "http://%s", text + 4) > 0);
    if (ntx_hub_find(NULL, NTX_HUB, url, &m, &err))
        MUST(err.code < 0 && err.text[0]);
    else
        for (unsigned i = 0; i < m.n; i++)
            MUST(*m.file[i].url && ntx_store_stem(m.file[i].name, stem, &no, &of) && no == i + 1 && of == m.n);
    ntx_hub_free(&m);
    free(url);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    if (data[0] % 3 == 0)
        use_lines(data + 1, size - 1);
    else if (data[0] % 3 == 1)
        use_gguf(data + 1, size - 1);
    else {
        char *text = strndup((const char *)data + 1, size - 1);
        MUST(text);
        use_texts(text);
        free(text);
    }
    return 0;
}
