/* SPDX-License-Identifier: Apache-2.0 */
/* pull.c: the input that `ntx pull` reads from unknown servers, under libFuzzer: HTTP header lines, the header of a
 * remote GGUF, addresses and file names, lists of a repository, results of a search. The first byte picks the kind. */
#include "client/pull/web.c" /* on_header is its own */

#include "client/pull/header.h"
#include "client/pull/search.h"
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
    if (ntx_hub_url(url, &m, &err))
        MUST(err.code < 0 && err.text[0]);
    else
        for (unsigned i = 0; i < m.n; i++)
            MUST(*m.file[i].url && ntx_store_stem(m.file[i].name, stem, &no, &of) && no == i + 1 && of == m.n);
    ntx_hub_free(&m);
    free(url);
}

/* Whatever a list says: what is taken of it has safe names, and addresses below the repository's. */
static void use_list(const char *text, size_t size)
{
    struct ntx_hub_repo *r = NULL;
    struct ntx_err err = {0};
    char stem[256];
    unsigned n, no, of;
    if (ntx_hub_parse("http://hub", "some/Tiny", text, size, &r, &err)) {
        MUST(err.code < 0 && err.text[0]);
        return;
    }
    const struct ntx_hub_offer *o = ntx_hub_offers(r, &n), *picked;
    MUST(n);
    for (unsigned i = 0; i < n; i++) {
        struct ntx_hub_model m;
        MUST(*ntx_hub_label(r, &o[i]) && strncmp(o[i].folder, "../", 3) && strcmp(o[i].folder, ".."));
        MUST(o[i].bytes == NTX_WEB_UNKNOWN || o[i].bytes <= 1ull << 56);
        if (!ntx_hub_choose(r, ntx_hub_label(r, &o[i]), &picked, &err))
            MUST(picked >= o && picked < o + n);
        if (!ntx_hub_take(r, &o[i], &m, &err))
            for (unsigned k = 0; k < m.n; k++)
                MUST(!strncmp(m.file[k].url, "http://hub/some/Tiny/resolve/main/", 34) &&
                     !strstr(m.file[k].url, "/../") && ntx_store_stem(m.file[k].name, stem, &no, &of) && no == k + 1 &&
                     of == m.n);
        ntx_hub_free(&m);
    }
    ntx_hub_repo_free(r);
}

static void use_results(const char *text, size_t size)
{
    struct ntx_found found[NTX_SEARCH_MOST];
    struct ntx_err err = {0};
    unsigned n = 0;
    if (!ntx_search_parse(text, size, NTX_SEARCH_MOST, found, &n, &err))
        for (unsigned i = 0; i < n; i++)
            MUST(ntx_hub_is_name(found[i].name) && (!i || found[i].downloads <= found[i - 1].downloads));
    struct ntx_found one = {.name = "some/Tiny"};
    if (!ntx_search_parse_look("http://hub", text, size, &one, &err))
        MUST(one.looked && memchr(one.arch, 0, sizeof one.arch) && one.least <= one.most);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    if (data[0] % 5 == 0)
        use_lines(data + 1, size - 1);
    else if (data[0] % 5 == 1)
        use_gguf(data + 1, size - 1);
    else if (data[0] % 5 == 3)
        use_list((const char *)data + 1, size - 1);
    else if (data[0] % 5 == 4)
        use_results((const char *)data + 1, size - 1);
    else {
        char *text = strndup((const char *)data + 1, size - 1);
        MUST(text);
        use_texts(text);
        free(text);
    }
    return 0;
}
