/* SPDX-License-Identifier: Apache-2.0 */
/* mem_gguf.c: see mem_gguf.h. */
#include "tests/unit/tokenizer/mem_gguf.h"

#include "model/gguf.h"
#include "tests/lib/check.h"

static void put(struct mem_gguf *m, const void *p, size_t n)
{
    if (m->n + n > m->room) {
        m->room = 2 * (m->n + n);
        CHECK((m->p = realloc(m->p, m->room)));
    }
    memcpy(m->p + m->n, p, n);
    m->n += n;
}

static void put_str(struct mem_gguf *m, const char *s)
{
    uint64_t n = strlen(s);
    put(m, &n, 8);
    put(m, s, n);
}

static void put_key(struct mem_gguf *m, const char *key, uint32_t type)
{
    if (!m->n)
        put(m, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0........",
            24); /* tensors: none; the number of keys is filled in at the end */
    put_str(m, key);
    put(m, &type, 4);
    m->n_kv++;
}

static void put_array(struct mem_gguf *m, const char *key, uint32_t elem, uint64_t n)
{
    put_key(m, key, NTX_GGUF_ARR);
    put(m, &elem, 4);
    put(m, &n, 8);
}

void mem_str(struct mem_gguf *m, const char *key, const char *value)
{
    put_key(m, key, NTX_GGUF_STR);
    put_str(m, value);
}

void mem_u32(struct mem_gguf *m, const char *key, uint32_t value)
{
    put_key(m, key, NTX_GGUF_U32);
    put(m, &value, 4);
}

void mem_bool(struct mem_gguf *m, const char *key, bool value)
{
    put_key(m, key, NTX_GGUF_BOOL);
    put(m, &value, 1);
}

void mem_strs(struct mem_gguf *m, const char *key, const char *const *values, uint64_t n)
{
    put_array(m, key, NTX_GGUF_STR, n);
    for (uint64_t i = 0; i < n; i++)
        put_str(m, values[i]);
}

void mem_f32s(struct mem_gguf *m, const char *key, const float *values, uint64_t n)
{
    put_array(m, key, NTX_GGUF_F32, n);
    put(m, values, 4 * n);
}

void mem_i32s(struct mem_gguf *m, const char *key, const int32_t *values, uint64_t n)
{
    put_array(m, key, NTX_GGUF_I32, n);
    put(m, values, 4 * n);
}

void mem_finish(struct mem_gguf *m)
{
    while (m->n % 32)
        put(m, "", 1);
    memcpy(m->p + 16, &m->n_kv, 8);
}

int mem_open(struct mem_gguf *m, struct ntx_tokenizer **t, struct ntx_err *err)
{
    struct ntx_gguf *g = NULL;
    mem_finish(m);
    CHECK_MSG(ntx_gguf_parse(m->p, m->n, m->n, &g, err) == 0, "%s", err->text);
    int rc = ntx_tokenizer_open(g, t, err);
    ntx_gguf_free(g);
    free(m->p);
    *m = (struct mem_gguf){0};
    return rc;
}

/* The character that byte-level BPE writes for a byte. */
static char *letter(unsigned b, char *out)
{
    unsigned moved = 67; /* 173 is the last of the 68 */
    if (b < 33)
        moved = b;
    else if (b >= 127 && b <= 160)
        moved = b - 127 + 33;
    unsigned cp = b < 33 || (b >= 127 && b <= 160) || b == 173 ? 256 + moved : b;
    if (cp < 0x80)
        snprintf(out, 3, "%c", (char)cp);
    else
        snprintf(out, 3, "%c%c", (char)(0xC0 | cp >> 6), (char)(0x80 | (cp & 0x3F)));
    return out;
}

void mem_bpe_keys(struct mem_gguf *m, const char *pre, const char *const *controls, unsigned n, int32_t *first_control)
{
    static const char *const words[] = {"he", "ll", "hell", "hello", "\xc4\xa0h", "oo"};
    static const char *const merges[] = {"h e", "l l", "he ll", "hell o", "o o"};
    enum { n_words = sizeof(words) / sizeof(words[0]), n_merges = sizeof(merges) / sizeof(merges[0]) };
    char letters[256][3];
    const char *toks[300];
    int32_t types[300];
    unsigned k = 0;
    CHECK(256 + n_words + n <= 300);
    for (; k < 256; k++)
        toks[k] = letter(k, letters[k]);
    for (unsigned i = 0; i < n_words; i++)
        toks[k++] = words[i];
    *first_control = (int32_t)k;
    for (unsigned i = 0; i < n; i++)
        toks[k++] = controls[i];
    for (unsigned i = 0; i < k; i++)
        types[i] = i < 256 + n_words ? 1 : 3;
    mem_str(m, "tokenizer.ggml.model", "gpt2");
    mem_str(m, "tokenizer.ggml.pre", pre);
    mem_strs(m, "tokenizer.ggml.tokens", toks, k);
    mem_i32s(m, "tokenizer.ggml.token_type", types, k);
    mem_strs(m, "tokenizer.ggml.merges", merges, n_merges);
    if (n)
        mem_u32(m, "tokenizer.ggml.bos_token_id", (uint32_t)*first_control);
    if (n > 1)
        mem_u32(m, "tokenizer.ggml.eos_token_id", (uint32_t)*first_control + 1);
}

struct ntx_tokenizer *mem_bpe(const char *pre, const char *const *controls, unsigned n, int32_t *first_control)
{
    struct mem_gguf m = {0};
    struct ntx_tokenizer *t = NULL;
    struct ntx_err err = {0};
    mem_bpe_keys(&m, pre, controls, n, first_control);
    CHECK_MSG(mem_open(&m, &t, &err) == 0, "%s", err.text);
    return t;
}
