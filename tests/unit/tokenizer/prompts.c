/* SPDX-License-Identifier: Apache-2.0 */
/* The prompts of the reference data, with BOS, in its two SentencePiece-like vocabularies. */
#include <jansson.h>

#include "tests/unit/tokenizer/data.h"

static void check_prompt(const struct ntx_tokenizer *t, const char *name, json_t *prompt, const char *key)
{
    json_t *text = json_object_get(prompt, "text"), *want = json_object_get(prompt, key);
    if (!want)
        return;
    int32_t *ids;
    size_t len;
    int n = ntx_tokenize(t, json_string_value(text), json_string_length(text), NTX_TOK_BOS, &ids);
    CHECK_EQ(n, json_array_size(want));
    for (int i = 0; i < n; i++)
        CHECK_MSG(ids[i] == json_integer_value(json_array_get(want, (size_t)i)), "%s in %s: token %d is %d", name, key,
                  i, ids[i]);
    char *back = text_of(t, ids, n, false, &len);
    CHECK(len == json_string_length(text) && !memcmp(back, json_string_value(text), len));
    free(back);
    free(ids);
}

int main(void)
{
    struct ntx_tokenizer *tok512 = open_tokenizer("models/s260k.f32.gguf"),
                         *spm = open_tokenizer("models/mini.q4_k_m.gguf");
    char *path = data_path("golden/prompts.json");
    json_t *all = json_load_file(path, 0, NULL), *prompt;
    const char *name;
    CHECK(json_object_size(all) >= 5);
    CHECK_EQ(ntx_tokenizer_n_vocab(tok512), 512);
    CHECK_EQ(ntx_tokenizer_n_vocab(spm), 32000);
    json_object_foreach(all, name, prompt) {
        check_prompt(tok512, name, prompt, "tok512");
        check_prompt(spm, name, prompt, "spm");
    }
    printf("%zu prompts\n", json_object_size(all));
    json_decref(all);
    free(path);
    ntx_tokenizer_free(tok512);
    ntx_tokenizer_free(spm);
    return 0;
}
