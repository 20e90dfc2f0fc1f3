/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_vocab.c: reads the vocabulary of a GGUF into struct ntx__vocab. The file is not trusted: types and
 * counts of the arrays are checked, ids must be inside the vocabulary, and the hash has a new key each time, so that
 * no vocabulary can force collisions. No id depends on the key. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "model/tokenizer_impl.h"

#define EMPTY UINT32_MAX

/* Tokens that end a generation in known models, by name. "</s>" is missing because it is an ordinary piece of HTML
 * in some vocabularies; where it ends a text, it is the file's eos_token_id. */
static const char *const eog_names[] = {
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>", /* Llama 3 */
    "<|im_end|>",
    "<|endoftext|>", /* chatml, Qwen, GPT-2 */
    "<|end|>",       /* Phi; but see spare_end */
    "<|return|>",
    "<|call|>", /* gpt-oss */
    "<end_of_turn>",
    "<eos>",
    "<turn|>",
    "<|tool_response>", /* Gemma */
    "<EOT>",
    "<|EOT|>", /* code models */
    "<\xef\xbd\x9c"
    "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>", /* DeepSeek */
};

/* ---- texts */

static bool looks_like_control(const char *p, size_t n)
{
    static const char bar[] = "\xef\xbd\x9c"; /* DeepSeek's wide '|' */
    if (n < 5 || p[0] != '<' || p[n - 1] != '>')
        return false;
    return (p[1] == '|' && p[n - 2] == '|') || (n >= 9 && !memcmp(p + 1, bar, 3) && !memcmp(p + n - 4, bar, 3));
}

static bool ends_generation(const char *p, size_t n)
{
    for (size_t i = 0; i < sizeof(eog_names) / sizeof(eog_names[0]); i++)
        if (strlen(eog_names[i]) == n && !memcmp(eog_names[i], p, n))
            return true;
    return false;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "<0x0A>" -> 10; -1 for anything else. */
static int byte_value(struct ntx_str s)
{
    if (s.n != 6 || memcmp(s.p, "<0x", 3) || s.p[5] != '>' || hex(s.p[3]) < 0 || hex(s.p[4]) < 0)
        return -1;
    return hex(s.p[3]) << 4 | hex(s.p[4]);
}

size_t ntx__unescape_spaces(struct ntx_str s, char *out)
{
    char *o = out;
    for (size_t i = 0; i < s.n;) {
        if (s.n - i >= 3 && !memcmp(s.p + i, "\xe2\x96\x81", 3)) {
            *o++ = ' ';
            i += 3;
        } else {
            *o++ = s.p[i++];
        }
    }
    return (size_t)(o - out);
}

/* Writes the bytes of a token; may set bits of *attr. Returns their number, at most s.n. */
static size_t token_bytes(const struct ntx__alphabet *a, struct ntx_str s, uint8_t *attr, char *out)
{
    unsigned type = *attr & NTX__TYPE_MASK;
    if (type == NTX__BYTE) {
        *out = (char)byte_value(s);
        return 1;
    }
    if (type == NTX__NORMAL || type == NTX__UNUSED) {
        if (!a)
            return ntx__unescape_spaces(s, out);
        int64_t n = ntx__alphabet_decode(a, s.p, s.n, out);
        if (n >= 0)
            return (size_t)n;
        *attr |= NTX__LITERAL;
    }
    memcpy(out, s.p, s.n);
    return s.n;
}

/* The type of a token, and what its name adds. */
static uint8_t classify(struct ntx_str s, unsigned type)
{
    if (type < NTX__NORMAL || type > NTX__BYTE)
        type = NTX__NORMAL;
    if (ends_generation(s.p, s.n)) /* some files give these a wrong type */
        return NTX__CONTROL | NTX__EOG | NTX__GUARDED;
    if (type == NTX__CONTROL || type == NTX__UNKNOWN || (type == NTX__USER && looks_like_control(s.p, s.n)))
        return (uint8_t)(type | NTX__GUARDED);
    return (uint8_t)type;
}

static int load_texts(const struct ntx_gguf_kv *toks, const struct ntx_gguf_kv *types, bool byte_level,
                      struct ntx__vocab *v, struct ntx_err *err)
{
    struct ntx__alphabet alphabet;
    uint64_t total = 0;
    ntx__alphabet_init(&alphabet);
    for (uint32_t i = 0; i < v->n; i++)
        total += toks->strs[i].n + (toks->strs[i].n == 0);
    if (total > UINT32_MAX)
        return ntx_err_set(err, -EINVAL, "tokenizer.ggml.tokens is too large (%llu bytes)", (unsigned long long)total);
    v->pool = malloc(total + 1);
    v->off = malloc((v->n + 1u) * sizeof(*v->off));
    v->attr = malloc(v->n);
    if (!v->pool || !v->off || !v->attr)
        return -ENOMEM;
    uint32_t at = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        uint32_t type = NTX__NORMAL;
        if (types)
            memcpy(&type, (const char *)types->data + 4 * (size_t)i, 4);
        v->attr[i] = classify(toks->strs[i], type);
        if ((v->attr[i] & NTX__TYPE_MASK) == NTX__BYTE && byte_value(toks->strs[i]) < 0)
            return ntx_err_set(err, -EINVAL, "token %u has the type of a byte but not its form (<0x0A>)", i);
        v->off[i] = at;
        size_t n = token_bytes(byte_level ? &alphabet : NULL, toks->strs[i], &v->attr[i], v->pool + at);
        if (n > NTX_TOKEN_MAX)
            return ntx_err_set(err, -EINVAL, "token %u stands for %zu bytes; %d are possible", i, n, NTX_TOKEN_MAX);
        at += (uint32_t)n;
    }
    v->off[v->n] = at;
    char *fit = realloc(v->pool, at + 1); /* decoding escapes made it shorter */
    if (fit)
        v->pool = fit;
    return 0;
}

/* ---- text -> id */

/* Draws a secret key for the hash. The time will do if the kernel has no random bytes yet. */
static void draw_key(struct ntx__vocab *v)
{
    if (getrandom(v->key, sizeof(v->key), GRND_NONBLOCK) != (ssize_t)sizeof(v->key)) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        v->key[0] = (uint64_t)t.tv_nsec * 0x9e3779b97f4a7c15u;
        v->key[1] = (uint64_t)t.tv_sec ^ (uint64_t)(uintptr_t)v << 20;
    }
    v->key[1] |= 1;
}

/* Mixes both halves of a product with a secret factor, so collisions depend on the key. */
static uint64_t fold(uint64_t a, uint64_t b)
{
    unsigned __int128 p = (unsigned __int128)a * b;
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static uint64_t hash(const struct ntx__vocab *v, const char *p, size_t n)
{
    uint64_t h = v->key[0] ^ n, w;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&w, p, 8);
        h = fold(h ^ w, v->key[1]);
    }
    w = 0;
    memcpy(&w, p, n);
    return fold(h ^ w, v->key[1]);
}

static bool same(const struct ntx__vocab *v, uint32_t id, const char *text, size_t len)
{
    return v->off[id + 1] - v->off[id] == len && !memcmp(v->pool + v->off[id], text, len);
}

int32_t ntx__vocab_find(const struct ntx__vocab *v, const char *text, size_t len)
{
    if (len == 0 || len > v->max_len)
        return -1;
    for (uint32_t i = (uint32_t)hash(v, text, len) & v->mask;; i = (i + 1) & v->mask) {
        if (v->slots[i] == EMPTY)
            return -1;
        if (same(v, v->slots[i], text, len))
            return (int32_t)v->slots[i];
    }
}

static bool from_text(const struct ntx__vocab *v, uint32_t id)
{
    unsigned type = v->attr[id] & (NTX__TYPE_MASK | NTX__LITERAL);
    return (type == NTX__NORMAL || type == NTX__UNUSED) && v->off[id + 1] > v->off[id];
}

static void insert(struct ntx__vocab *v, uint32_t id)
{
    size_t len;
    const char *text = ntx__vocab_text(v, id, &len);
    uint32_t i = (uint32_t)hash(v, text, len) & v->mask;
    for (; v->slots[i] != EMPTY; i = (i + 1) & v->mask)
        if (same(v, v->slots[i], text, len))
            return; /* the first of equal tokens counts */
    v->slots[i] = id;
    v->max_len = len > v->max_len ? (uint32_t)len : v->max_len;
}

static int index_texts(struct ntx__vocab *v)
{
    uint32_t size = 1024;
    while (size < 2 * v->n)
        size *= 2;
    v->slots = malloc(size * sizeof(*v->slots));
    if (!v->slots)
        return -ENOMEM;
    memset(v->slots, 0xff, size * sizeof(*v->slots));
    v->mask = size - 1;
    draw_key(v);
    for (uint32_t i = 0; i < v->n; i++)
        if (from_text(v, i))
            insert(v, i);
    return 0;
}

/* Finds byte tokens: by type, or in a byte-level vocabulary the ordinary tokens of one byte. */
static void index_bytes(struct ntx__vocab *v, bool byte_level)
{
    for (unsigned b = 0; b < 256; b++) {
        char c = (char)b;
        v->byte_id[b] = byte_level ? ntx__vocab_find(v, &c, 1) : -1;
    }
    for (uint32_t i = v->n; i-- > 0;)
        if ((v->attr[i] & NTX__TYPE_MASK) == NTX__BYTE)
            v->byte_id[(unsigned char)v->pool[v->off[i]]] = (int32_t)i;
}

/* Every byte becomes a token, its own or the unknown one. */
static bool none_lost(const struct ntx__vocab *v)
{
    for (unsigned b = 0; b < 256; b++)
        if (v->byte_id[b] < 0 && v->unk < 0)
            return false;
    return true;
}

static uint32_t longest(const struct ntx__vocab *v)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < v->n; i++)
        most = v->off[i + 1] - v->off[i] > most ? v->off[i + 1] - v->off[i] : most;
    return most;
}

/* ---- special ids and switches */

/* An absent key leaves *id; some writers mean "none" by the largest 32-bit number. */
static int token_key(const struct ntx_gguf *g, const char *key, uint32_t n, int32_t *id, struct ntx_err *err)
{
    uint64_t x;
    int rc = ntx_gguf_u64(g, key, &x);
    if (rc == -ENOENT)
        return 0;
    if (rc || (x >= n && x != UINT32_MAX))
        return ntx_err_set(err, -EINVAL, "%s is not a token of the vocabulary (%u tokens)", key, n);
    *id = x == UINT32_MAX ? -1 : (int32_t)x;
    return 0;
}

static int bool_key(const struct ntx_gguf *g, const char *key, bool *value, struct ntx_err *err)
{
    int rc = ntx_gguf_bool(g, key, value);
    if (rc && rc != -ENOENT)
        return ntx_err_set(err, -EINVAL, "%s is not a boolean", key);
    return 0;
}

static void mark_eog(struct ntx__vocab *v, int32_t id)
{
    if (id >= 0)
        v->attr[id] |= NTX__EOG;
}

/* In vocabularies with "<|return|>" and "<|call|>" (OpenAI's harmony), "<|end|>" ends a message of an answer, and
 * another follows: it does not end the generation, even if the file's keys say so. */
static void spare_end(struct ntx__vocab *v)
{
    static const char *const names[] = {"<|return|>", "<|call|>", "<|end|>"};
    int32_t id[3] = {-1, -1, -1};
    for (uint32_t i = 0; i < v->n; i++)
        for (unsigned k = 0; k < 3 && v->attr[i] & NTX__EOG; k++)
            if (same(v, i, names[k], strlen(names[k])))
                id[k] = (int32_t)i;
    if (id[0] >= 0 && id[1] >= 0 && id[2] >= 0)
        v->attr[id[2]] &= (uint8_t)~NTX__EOG;
}

/* Names in known models: prefix, suffix, middle. */
static const char *const fim_names[][3] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, /* Qwen, Gemma */
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},       /* StarCoder, Granite */
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},       /* GLM */
    {"\xe2\x96\x81<PRE>", "\xe2\x96\x81<SUF>", "\xe2\x96\x81<MID>"}, /* Code Llama */
    {" <PRE>", " <SUF>", " <MID>"},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "begin\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81hole\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "end\xef\xbd\x9c>"}, /* DeepSeek */
};

static void find_fim(struct ntx__vocab *v)
{
    for (uint32_t i = 0; i < v->n; i++) {
        size_t len = v->off[i + 1] - v->off[i];
        if (len < 5 || len > 24 || v->pool[v->off[i + 1] - 1] != '>') /* none of the names is like that */
            continue;
        for (size_t f = 0; f < sizeof fim_names / sizeof *fim_names; f++)
            for (unsigned k = 0; k < 3; k++)
                if (v->fim[k] < 0 && same(v, i, fim_names[f][k], strlen(fim_names[f][k])))
                    v->fim[k] = (int32_t)i;
    }
}

static int load_fim(const struct ntx_gguf *g, struct ntx__vocab *v, struct ntx_err *err)
{
    static const char *const keys[3][2] = {{"tokenizer.ggml.prefix_token_id", "tokenizer.ggml.fim_pre_token_id"},
                                           {"tokenizer.ggml.suffix_token_id", "tokenizer.ggml.fim_suf_token_id"},
                                           {"tokenizer.ggml.middle_token_id", "tokenizer.ggml.fim_mid_token_id"}};
    int rc = 0;
    for (unsigned k = 0; k < 3 && !rc; k++) {
        v->fim[k] = -1;
        rc = token_key(g, keys[k][0], v->n, &v->fim[k], err);
        rc = rc ? rc : token_key(g, keys[k][1], v->n, &v->fim[k], err);
    }
    if (!rc)
        find_fim(v);
    return rc;
}

static int load_specials(const struct ntx_gguf *g, const struct ntx__tok_kind *kind, struct ntx__vocab *v,
                         struct ntx_err *err)
{
    int32_t eot = -1, eom = -1;
    int rc;
    v->bos = v->eos = v->unk = -1;
    if (!kind->byte_level && v->n > 2) { /* SentencePiece's own ids, if the file has no keys */
        v->unk = (v->attr[0] & NTX__TYPE_MASK) == NTX__UNKNOWN ? 0 : -1;
        v->bos = (v->attr[1] & NTX__TYPE_MASK) == NTX__CONTROL ? 1 : -1;
        v->eos = (v->attr[2] & NTX__TYPE_MASK) == NTX__CONTROL ? 2 : -1;
    }
    if ((rc = token_key(g, "tokenizer.ggml.bos_token_id", v->n, &v->bos, err)) ||
        (rc = token_key(g, "tokenizer.ggml.eos_token_id", v->n, &v->eos, err)) ||
        (rc = token_key(g, "tokenizer.ggml.unknown_token_id", v->n, &v->unk, err)) ||
        (rc = token_key(g, "tokenizer.ggml.eot_token_id", v->n, &eot, err)) ||
        (rc = token_key(g, "tokenizer.ggml.eom_token_id", v->n, &eom, err)))
        return rc;
    mark_eog(v, v->eos);
    mark_eog(v, eot);
    mark_eog(v, eom);
    spare_end(v);
    if ((rc = load_fim(g, v, err)))
        return rc;
    v->add_bos = kind->add_bos;
    v->add_prefix = kind->add_prefix;
    if ((rc = bool_key(g, "tokenizer.ggml.add_bos_token", &v->add_bos, err)) ||
        (rc = bool_key(g, "tokenizer.ggml.add_eos_token", &v->add_eos, err)))
        return rc;
    return kind->byte_level ? 0 : bool_key(g, "tokenizer.ggml.add_space_prefix", &v->add_prefix, err);
}

/* ---- open */

/* An array of n elements (any number when n is 0) of the given kind, or an error. */
static int array_key(const struct ntx_gguf *g, const char *key, enum ntx_gguf_vtype elem, uint64_t n,
                     const struct ntx_gguf_kv **out, struct ntx_err *err)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, key);
    if (!kv)
        return -ENOENT;
    bool number = elem == NTX_GGUF_I32 && kv->elem == NTX_GGUF_U32;
    if (kv->type != NTX_GGUF_ARR || (kv->elem != elem && !number) || (n && kv->count != n))
        return ntx_err_set(err, -EINVAL, "%s is not an array of the right kind and length", key);
    *out = kv;
    return 0;
}

int ntx__vocab_open(const struct ntx_gguf *g, const struct ntx__tok_kind *kind, struct ntx__vocab *v,
                    struct ntx_err *err)
{
    const struct ntx_gguf_kv *toks = NULL, *types = NULL;
    int rc = array_key(g, "tokenizer.ggml.tokens", NTX_GGUF_STR, 0, &toks, err);
    if (rc == -ENOENT || (!rc && toks->count == 0))
        return ntx_err_set(err, -EINVAL, "the file has no vocabulary (tokenizer.ggml.tokens)");
    if (rc)
        return rc;
    if (toks->count > NTX__MAX_VOCAB)
        return ntx_err_set(err, -EINVAL, "a vocabulary of %llu tokens is more than ntx takes (%u)",
                           (unsigned long long)toks->count, NTX__MAX_VOCAB);
    v->n = (uint32_t)toks->count;
    rc = array_key(g, "tokenizer.ggml.token_type", NTX_GGUF_I32, v->n, &types, err);
    if (rc && rc != -ENOENT)
        return rc;
    if ((rc = load_texts(toks, types, kind->byte_level, v, err)) || (rc = index_texts(v)))
        return rc;
    index_bytes(v, kind->byte_level);
    rc = load_specials(g, kind, v, err);
    v->longest = none_lost(v) ? longest(v) : 0;
    return rc;
}

void ntx__vocab_free(struct ntx__vocab *v)
{
    free(v->pool);
    free(v->off);
    free(v->attr);
    free(v->slots);
}

size_t ntx__vocab_bytes(const struct ntx__vocab *v)
{
    return v->off[v->n] + (v->n + 1u) * sizeof(*v->off) + v->n + (v->mask + 1u) * sizeof(*v->slots);
}
