/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.c: a vocabulary and a chat template of an untrusted GGUF, and untrusted text, under libFuzzer. The input is
 * a GGUF, followed by the text; the last byte is the length of the text in units of four bytes. Token ids are within
 * the vocabulary, and detokenizing gives the bytes back. */
#include "model/chat.h"
#include "model/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static void use_text(const struct ntx_tokenizer *t, const char *text, size_t len)
{
    char buf[1024];
    for (int flags = 0; flags < 4; flags++) {
        int32_t *ids;
        int n = ntx_tokenize(t, text, len, flags, &ids);
        MUST(n >= 0);
        for (int i = 0; i < n; i++) {
            MUST(ids[i] >= 0 && (uint32_t)ids[i] < ntx_tokenizer_n_vocab(t));
            int k = ntx_detokenize_one(t, ids[i], i == 0, flags & NTX_TOK_SPECIAL, buf, sizeof buf);
            MUST(k <= (int)sizeof buf);
            MUST(k < 0 || ntx_utf8_hold(buf, (size_t)k) <= 3);
        }
        free(ids);
    }
}

/* Runs the chat template of the file. */
static void use_own(const struct ntx_gguf *g, const struct ntx_tokenizer *t, const struct ntx_chat_msg *msgs)
{
    struct ntx_str jinja;
    struct ntx_chat_template *own;
    struct ntx_err err = {0};
    if (ntx_gguf_str(g, "tokenizer.chat_template", &jinja) || jinja.n > 4096 ||
        ntx_chat_open(jinja.p, jinja.n, t, &own, &err))
        return;
    for (unsigned from = 0; from <= 3; from += 3) {
        int32_t *ids;
        int k = ntx_chat_tokens(own, t, msgs, from, 4, &ids, &err);
        MUST(k >= 0 || err.text[0]);
        for (int i = 0; i < k; i++)
            MUST(ids[i] >= 0 && (uint32_t)ids[i] < ntx_tokenizer_n_vocab(t));
        if (k >= 0)
            free(ids);
    }
    ntx_chat_free(own);
}

static void use_chat(const struct ntx_gguf *g, const struct ntx_tokenizer *t, const char *text, size_t len)
{
    struct ntx_str jinja;
    const struct ntx_chat_template *shape = ntx_chat_by_shape(text, len);
    if (!shape && !ntx_gguf_str(g, "tokenizer.chat_template", &jinja))
        shape = ntx_chat_by_shape(jinja.p, jinja.n);
    if (!shape)
        shape = ntx_chat_by_name("plain");
    const struct ntx_chat_msg msgs[] = {{"system", text, len / 2, NULL, 0},
                                        {"user", text + len / 2, len - len / 2, NULL, 0},
                                        {"assistant", text, len / 3, NULL, 0},
                                        {"user", text, len, NULL, 0}};
    use_own(g, t, msgs);
    for (unsigned n = 1; n <= 4; n++)
        for (unsigned from = 0; from < n; from++) {
            struct ntx_err err = {0};
            int32_t *ids;
            int k = ntx_chat_tokens(shape, t, msgs, from, n, &ids, &err);
            MUST(k >= 0 || err.text[0]);
            struct ntx_chat_view view = {.chat = shape};
            for (int i = 0; i < k; i++) {
                char buf[1024];
                MUST(ids[i] >= 0 && (uint32_t)ids[i] < ntx_tokenizer_n_vocab(t));
                MUST(ntx_chat_view_token(&view, t, ids[i], i == 0, buf, sizeof buf) <= (int)sizeof buf);
            }
            if (k >= 0)
                free(ids);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ntx_gguf *g;
    struct ntx_tokenizer *t;
    struct ntx_err err = {0};
    if (!size)
        return 0;
    size_t len = 4u * data[--size];
    len = len < size ? len : size;
    const char *text = (const char *)data + size - len;
    (void)ntx_chat_by_shape(text, len);
    /* as if the tensors lay behind it */
    if (ntx_gguf_parse(data, size - len, 1ull << 40, &g, &err))
        return 0;
    if (ntx_tokenizer_open(g, &t, &err)) {
        MUST(err.code < 0 && err.text[0]);
    } else {
        MUST(ntx_tokenizer_n_vocab(t) && ntx_tokenizer_bytes(t));
        use_text(t, text, len);
        use_chat(g, t, text, len);
        ntx_tokenizer_free(t);
    }
    ntx_gguf_free(g);
    return 0;
}
