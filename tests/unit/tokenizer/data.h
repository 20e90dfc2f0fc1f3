/* SPDX-License-Identifier: Apache-2.0 */
/* data.h: opens a file of the reference data, or skips the test where there is none. */
#ifndef NTX_TESTS_UNIT_TOKENIZER_DATA_H
#define NTX_TESTS_UNIT_TOKENIZER_DATA_H

#include <fcntl.h>
#include <unistd.h>

#include "model/tokenizer.h"
#include "tests/lib/check.h"

static inline char *data_path(const char *name)
{
    char *path;
    const char *dir = getenv("NTX_DATA");
    if (!dir || access(dir, R_OK))
        SKIP("no reference data at %s", dir ? dir : "$NTX_DATA");
    CHECK(asprintf(&path, "%s/%s", dir, name) > 0);
    return path;
}

static inline struct ntx_tokenizer *open_vocabulary(const char *path)
{
    struct ntx_err err = {0};
    struct ntx_gguf *g = NULL;
    struct ntx_tokenizer *t = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK_MSG(fd >= 0, "%s", path);
    CHECK_MSG(ntx_gguf_open(&fd, 1, NULL, &g, &err) == 0, "%s: %s", path, err.text);
    CHECK_MSG(ntx_tokenizer_open(g, &t, &err) == 0, "%s: %s", path, err.text);
    ntx_gguf_free(g);
    close(fd);
    return t;
}

static inline struct ntx_tokenizer *open_tokenizer(const char *name)
{
    char *path = data_path(name);
    struct ntx_tokenizer *t = open_vocabulary(path);
    free(path);
    return t;
}

/* The text of ids; the caller frees. A leading BOS is passed over, as a reader of a stream does. */
static inline char *text_of(const struct ntx_tokenizer *t, const int32_t *ids, int n, bool special, size_t *len)
{
    size_t room = 64 + 600 * (size_t)(n > 0 ? n : 0);
    char *text = malloc(room);
    bool first = true;
    CHECK(text);
    *len = 0;
    for (int i = 0; i < n; i++) {
        if (i == 0 && ids[i] == ntx_tokenizer_bos(t))
            continue;
        int k = ntx_detokenize_one(t, ids[i], first, special, text + *len, room - *len);
        CHECK(k >= 0);
        *len += (size_t)k;
        first = false;
    }
    return text;
}

#endif
