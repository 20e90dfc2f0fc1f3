/* SPDX-License-Identifier: Apache-2.0 */
/* Control tokens in texts, in the vocabularies of published models, as llama_tokenize of llama.cpp (of October 2026)
 * has them with and without parse_special; with the token that begins a text. $NTX_REAL has the models. "</s>" is
 * left out: llama.cpp takes it for a control token everywhere, but Qwen's and Gemma's vocabularies have it as a
 * piece of HTML. */
#include <jansson.h>

#include "tests/unit/tokenizer/data.h"

static void check_text(const struct ntx_tokenizer *t, const char *model, const json_t *c, const char *key, int flags)
{
    const json_t *text = json_object_get(c, "text"), *want = json_object_get(c, key);
    int32_t *ids;
    const int n = ntx_tokenize(t, json_string_value(text), json_string_length(text), NTX_TOK_BOS | flags, &ids);
    CHECK_MSG(n == (int)json_array_size(want), "%s, %s, '%s': %d tokens", model, key, json_string_value(text), n);
    for (int i = 0; i < n; i++)
        CHECK_MSG(ids[i] == json_integer_value(json_array_get(want, (size_t)i)), "%s, %s, '%s': token %d is %d", model,
                  key, json_string_value(text), i, ids[i]);
    free(ids);
}

int main(void)
{
    json_t *all = json_load_file(NTX_SPECIAL, 0, NULL), *list, *one;
    const char *dir = getenv("NTX_REAL"), *model;
    unsigned n = 0;
    size_t i;
    CHECK_EQ(json_object_size(all), 4);
    json_object_foreach(all, model, list) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s.gguf", dir ? dir : "", model);
        if (!dir || access(path, R_OK))
            continue;
        struct ntx_tokenizer *t = open_vocabulary(path);
        json_array_foreach(list, i, one) {
            check_text(t, model, one, "special", NTX_TOK_SPECIAL);
            check_text(t, model, one, "plain", 0);
        }
        ntx_tokenizer_free(t);
        n++;
    }
    json_decref(all);
    if (!n)
        SKIP("no published models at %s", dir ? dir : "$NTX_REAL");
    printf("%u vocabularies\n", n);
    return 0;
}
