/* SPDX-License-Identifier: Apache-2.0 */
/* Every text of the seven reference vocabularies gives the expected ids, and comes back unchanged. */
#include <time.h>

#include "tests/unit/tokenizer/data.h"

static char *slurp(const char *name, const char *suffix)
{
    char file[200];
    snprintf(file, sizeof(file), "vocab/ggml-vocab-%s.gguf%s", name, suffix);
    char *path = data_path(file);
    FILE *f = fopen(path, "rb");
    CHECK_MSG(f, "%s", path);
    char *text = calloc(1, 65536);
    CHECK(text && fread(text, 1, 65535, f) > 0);
    fclose(f);
    free(path);
    return text;
}

static void check_ids(const char *name, const char *text, const int32_t *ids, int n, char *want)
{
    char *next = want;
    int k = 0;
    for (;; k++) {
        char *end;
        long id = strtol(next, &end, 10);
        if (end == next)
            break;
        next = end;
        CHECK_MSG(k < n && ids[k] == id, "%s: \"%s\": token %d is %d, expected %ld", name, text, k, k < n ? ids[k] : -1,
                  id);
    }
    CHECK_MSG(k == n, "%s: \"%s\": %d tokens, expected %d", name, text, n, k);
}

/* Texts are separated by "\n__ggml_vocab_test__\n", their ids by lines. */
static int check_vocabulary(const char *name, bool whole)
{
    static const char mark[] = "\n__ggml_vocab_test__\n";
    char file[200];
    snprintf(file, sizeof(file), "vocab/ggml-vocab-%s.gguf", name);
    struct ntx_tokenizer *t = open_tokenizer(file);
    char *texts = slurp(name, ".inp"), *ids_text = slurp(name, ".out"), *text = texts, *line = ids_text;
    int count = 0;
    while (text && *line) { /* the file ends with a mark */
        char *next = strstr(text, mark), *eol = strchr(line, '\n');
        CHECK(eol);
        *eol = 0;
        if (next)
            *next = 0;
        int32_t *ids;
        size_t len;
        int n = ntx_tokenize(t, text, strlen(text), 0, &ids);
        CHECK(n >= 0);
        check_ids(name, text, ids, n, line);
        char *back = text_of(t, ids, n, false, &len);
        CHECK(!whole || (len == strlen(text) && !memcmp(back, text, len)));
        free(back);
        free(ids);
        count++;
        line = eol + 1;
        text = next ? next + sizeof(mark) - 1 : NULL;
    }
    CHECK_MSG(ntx_tokenizer_bytes(t) < 24u * ntx_tokenizer_n_vocab(t) + 5000000u, "%s: %zu bytes", name,
              ntx_tokenizer_bytes(t));
    printf("%s (%s): %d texts, %u tokens, %.1f MB\n", name, ntx_tokenizer_kind(t), count, ntx_tokenizer_n_vocab(t),
           (double)ntx_tokenizer_bytes(t) / 1e6);
    free(texts);
    free(ids_text);
    ntx_tokenizer_free(t);
    return count;
}

int main(void)
{
    int n = check_vocabulary("llama-spm", true);
    CHECK(n > 30);
    CHECK_EQ(check_vocabulary("gpt-2", true), n);
    CHECK_EQ(check_vocabulary("llama-bpe", true), n);
    CHECK_EQ(check_vocabulary("qwen2", true), n);
    CHECK_EQ(check_vocabulary("deepseek-llm", true), n);
    CHECK_EQ(check_vocabulary("falcon", true), n);
    CHECK_EQ(check_vocabulary("starcoder", true), n);
    return 0;
}
