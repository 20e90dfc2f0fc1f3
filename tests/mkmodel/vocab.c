/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.c: a small SentencePiece-like vocabulary, or that of another file. The built-in one has: unknown, begin,
 * end; 256 bytes; single characters; for each of a few dozen common words all its beginnings, with the space before
 * it, so that it can be merged from letters; control tokens of the chat template; unused pieces up to the wanted
 * size. Scores fall with the number, as merges are ranked. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/mkmodel/describe.h"

#define MAX_PIECES 200000
#define SPACE      "\xe2\x96\x81" /* U+2581, which stands for a space */

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, UNUSED = 5, BYTE = 6 };

static const char *const words[] = {
    "the",  "and",   "to",    "of",   "in",   "is",    "it",     "that",  "was",      "for",    "you",   "with",
    "he",   "she",   "they",  "his",  "her",  "on",    "as",     "at",    "be",       "this",   "have",  "from",
    "one",  "had",   "not",   "but",  "what", "all",   "were",   "when",  "we",       "there",  "can",   "an",
    "your", "which", "their", "said", "if",   "do",    "will",   "each",  "about",    "how",    "up",    "out",
    "them", "then",  "many",  "some", "so",   "would", "make",   "like",  "him",      "into",   "time",  "look",
    "two",  "more",  "write", "go",   "see",  "no",    "way",    "could", "people",   "little", "day",   "once",
    "upon", "big",   "girl",  "boy",  "play", "happy", "friend", "model", "language", "hello",  "world",
};

struct chat {
    const char *name, *text;
    const char *tokens[8]; /* control tokens that it needs */
    const char *eot;       /* end of a turn; NULL: the end of sequence */
};

static const struct chat chats[] = {
    {"llama-2",
     "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ '[INST] <<SYS>>\\n' + m['content'] + "
     "'\\n<</SYS>>\\n\\n' }}"
     "{% elif m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}{% else %}{{ ' ' + m['content'] + ' ' + "
     "eos_token }}"
     "{% endif %}{% endfor %}",
     {NULL},
     NULL},
    {"llama-3",
     "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + "
     "m['content'] + '<|eot_id|>' }}"
     "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
     {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     "<|eot_id|>"},
    {"chatml",
     "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
     {"<|im_start|>", "<|im_end|>"},
     "<|im_end|>"},
    {"mistral",
     "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}"
     "{% else %}{{ m['content'] + eos_token }}{% endif %}{% endfor %}",
     {NULL},
     NULL},
    {"harmony",
     "{{ '<|start|>system<|message|>You are a model.<|end|>' }}{% for m in messages %}{% if m['role'] == 'assistant' %}"
     "{{ '<|start|>assistant<|channel|>final<|message|>' + m['content'] + '<|end|>' }}{% else %}"
     "{{ '<|start|>' + m['role'] + '<|message|>' + m['content'] + '<|end|>' }}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}",
     {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>"},
     "<|return|>"},
};

static const struct chat *find_chat(const char *name)
{
    for (size_t i = 0; name && i < sizeof chats / sizeof *chats; i++)
        if (!strcmp(chats[i].name, name))
            return &chats[i];
    return NULL;
}

struct pieces {
    char **text;
    int32_t *type;
    float *score;
    uint32_t n, room;
    bool failed;
};

/* An existing piece is not added again. */
static void add(struct pieces *v, const char *text, int32_t type)
{
    if (type == NORMAL)
        for (uint32_t i = 0; i < v->n; i++)
            if (!strcmp(v->text[i], text))
                return;
    if (v->n == v->room || !(v->text[v->n] = strdup(text))) {
        v->failed = true;
        return;
    }
    v->type[v->n] = type;
    v->score[v->n] = type == NORMAL ? -(float)v->n : 0;
    v->n++;
}

static void add_characters(struct pieces *v)
{
    char buf[8];
    add(v, "<unk>", UNKNOWN);
    add(v, "<s>", CONTROL);
    add(v, "</s>", CONTROL);
    for (int i = 0; i < 256; i++) {
        snprintf(buf, sizeof buf, "<0x%02X>", i);
        add(v, buf, BYTE);
    }
    add(v, SPACE, NORMAL);
    for (char c = '!'; c <= '~'; c++) {
        buf[0] = c;
        buf[1] = 0;
        add(v, buf, NORMAL);
    }
}

/* " t", " th", " the": each is made of the one before it and a letter. */
static void add_word(struct pieces *v, const char *word)
{
    char buf[32];
    for (size_t n = 1; n <= strlen(word); n++) {
        snprintf(buf, sizeof buf, SPACE "%.*s", (int)n, word);
        add(v, buf, NORMAL);
    }
}

static void add_unused(struct pieces *v, uint32_t size)
{
    char buf[24];
    while (v->n < size && !v->failed) {
        snprintf(buf, sizeof buf, "[unused%u]", v->n);
        add(v, buf, UNUSED);
    }
}

static int32_t find(const struct pieces *v, const char *text)
{
    for (uint32_t i = 0; text && i < v->n; i++)
        if (!strcmp(v->text[i], text))
            return (int32_t)i;
    return -1;
}

static void put_keys(struct mk_file *f, const struct pieces *v, const struct chat *chat)
{
    int32_t eot = chat ? find(v, chat->eot) : -1;
    mk_kv_str(f, "tokenizer.ggml.model", "llama");
    mk_kv_str(f, "tokenizer.ggml.pre", "default");
    mk_kv_strs(f, "tokenizer.ggml.tokens", (const char *const *)v->text, v->n);
    mk_kv_arr(f, "tokenizer.ggml.scores", NTX_GGUF_F32, v->score, v->n);
    mk_kv_arr(f, "tokenizer.ggml.token_type", NTX_GGUF_I32, v->type, v->n);
    mk_kv_u32(f, "tokenizer.ggml.bos_token_id", 1);
    mk_kv_u32(f, "tokenizer.ggml.eos_token_id", 2);
    mk_kv_u32(f, "tokenizer.ggml.unknown_token_id", 0);
    if (eot >= 0)
        mk_kv_u32(f, "tokenizer.ggml.eot_token_id", (uint32_t)eot);
    mk_kv_bool(f, "tokenizer.ggml.add_bos_token", true);
    mk_kv_bool(f, "tokenizer.ggml.add_eos_token", false);
    if (chat)
        mk_kv_str(f, "tokenizer.chat_template", chat->text);
}

static int built_in(struct mk_file *f, const struct mk_options *o, uint32_t *n, struct ntx_err *err)
{
    const struct chat *chat = find_chat(o->chat_template);
    uint32_t room = MAX_PIECES;
    struct pieces v = {
        calloc(room, sizeof(char *)), calloc(room, sizeof(int32_t)), calloc(room, sizeof(float)), 0, room, false};
    int rc = 0;
    if (!v.text || !v.type || !v.score)
        v.failed = true;
    if (!v.failed) {
        add_characters(&v);
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            add_word(&v, words[i]);
        for (size_t i = 0; chat && i < 8 && chat->tokens[i]; i++)
            add(&v, chat->tokens[i], CONTROL);
        add_unused(&v, o->vocab_size);
    }
    if (v.failed)
        rc = ntx_err_set(err, -ENOMEM, "no room for the vocabulary");
    else if (o->vocab_size && o->vocab_size != v.n)
        rc = ntx_err_set(err, -EINVAL, "the built-in vocabulary has %u tokens; --vocab-size %u is too small", v.n,
                         o->vocab_size);
    else
        put_keys(f, &v, chat);
    *n = v.n;
    for (uint32_t i = 0; v.text && i < v.n; i++)
        free(v.text[i]);
    free(v.text);
    free(v.type);
    free(v.score);
    return rc;
}

static int copied(struct mk_file *f, const struct mk_options *o, uint32_t *n, struct ntx_err *err)
{
    const struct chat *chat = find_chat(o->chat_template);
    const char *path = o->vocab_from;
    struct ntx_gguf *g;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return ntx_err_set(err, -errno, "%s: %s", path, strerror(errno));
    int rc = ntx_gguf_open(&fd, 1, &path, &g, err);
    close(fd);
    if (rc)
        return rc;
    const struct ntx_gguf_kv *tokens = ntx_gguf_find(g, "tokenizer.ggml.tokens");
    if (!tokens || !tokens->strs)
        rc = ntx_err_set(err, -EINVAL, "%s: it has no vocabulary", path);
    for (uint64_t i = 0; i < ntx_gguf_n_kv(g) && !rc; i++) {
        const struct ntx_gguf_kv *kv = ntx_gguf_kv_at(g, i);
        static const char template[] = "tokenizer.chat_template";
        if (kv->key.n < 10 || memcmp(kv->key.p, "tokenizer.", 10))
            continue;
        if (!chat || kv->key.n != sizeof template - 1 || memcmp(kv->key.p, template, kv->key.n))
            mk_kv_copy(f, kv);
    }
    if (!rc && chat)
        mk_kv_str(f, "tokenizer.chat_template", chat->text);
    if (!rc)
        *n = (uint32_t)tokens->count;
    ntx_gguf_free(g);
    return rc;
}

int mk_vocab(struct mk_file *f, const struct mk_options *o, uint32_t *n, struct ntx_err *err)
{
    if (o->chat_template && !find_chat(o->chat_template))
        return ntx_err_set(err, -EINVAL,
                           "chat template '%s' is not known; known are llama-2, llama-3, chatml, mistral, harmony",
                           o->chat_template);
    return o->vocab_from ? copied(f, o, n, err) : built_in(f, o, n, err);
}
