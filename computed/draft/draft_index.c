/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/draft/draft_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/draft/drafter_file_impl.h"

#define LIKE_MOST 32u  /* most tokens that are compared */
#define PLACES    8u   /* most places that are followed */
#define LOOKED    256u /* places searched on each side of the text's own place in the order */
#define FAR       48u  /* most tokens after a place */

struct head {
    char magic[8];
    uint32_t version, n_vocab;
    uint64_t vocab, n;
};

struct index {
    uint8_t *bytes;
    const int32_t *tokens;
    const uint32_t *order;
    uint32_t n;
};

int ntx_draft_index_vocab(const struct ntx_gguf *model, uint32_t *n, uint64_t *digest, struct ntx_err *err)
{
    const struct ntx_gguf_kv *v = ntx_gguf_find(model, "tokenizer.ggml.tokens");
    uint64_t sum = 0xcbf29ce484222325u;
    if (!v || !v->strs || v->count > INT32_MAX)
        return ntx_err_set(err, -EINVAL, "the model has no vocabulary");
    for (uint64_t i = 0; i < v->count; i++)
        for (size_t k = 0; k <= v->strs[i].n; k++)
            sum = (sum ^ (k < v->strs[i].n ? (unsigned char)v->strs[i].p[k] : 256u)) * 0x100000001b3u;
    *n = (uint32_t)v->count;
    *digest = sum;
    return 0;
}

/* ---- writing */

/* Compares the tokens before a and b, the nearest first; the begin of a text sorts first. */
static int compare_pasts(const void *a, const void *b, void *ctx)
{
    const int32_t *tokens = ctx;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    for (uint32_t k = 0; k < LIKE_MOST; k++) {
        int32_t s = x > k ? tokens[x - 1 - k] : -1, t = y > k ? tokens[y - 1 - k] : -1;
        if (s != t)
            return s < t ? -1 : 1;
        if (s < 0)
            break;
    }
    return x < y ? -1 : x > y;
}

int ntx_draft_index_write(FILE *to, const int32_t *tokens, uint32_t n, uint32_t n_vocab, uint64_t vocab,
                          struct ntx_err *err)
{
    struct head h = {.version = NTX_DRAFT_INDEX_VERSION, .n_vocab = n_vocab, .vocab = vocab, .n = n};
    uint32_t *order = malloc(n * sizeof *order + 1);
    if (!order || n > NTX_DRAFT_INDEX_MOST) {
        free(order);
        return ntx_err_set(err, order ? -E2BIG : -ENOMEM, order ? "more than %u tokens" : "no memory",
                           NTX_DRAFT_INDEX_MOST);
    }
    memcpy(h.magic, NTX_DRAFT_INDEX_MAGIC, sizeof h.magic);
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    qsort_r(order, n, sizeof *order, compare_pasts, (void *)(uintptr_t)tokens);
    bool good = fwrite(&h, sizeof h, 1, to) == 1 && fwrite(tokens, sizeof *tokens, n, to) == n &&
                fwrite(order, sizeof *order, n, to) == n && !fflush(to);
    free(order);
    if (good)
        return 0;
    const int code = errno ? errno : EIO;
    return ntx_err_set(err, -code, "%s", strerror(code));
}

/* ---- search */

static int open_index(uint8_t *bytes, size_t n, uint32_t n_vocab, uint64_t vocab, void **self, struct ntx_err *err)
{
    struct head h;
    struct index *x;
    if (n < sizeof h)
        return ntx_err_set(err, -EINVAL, "an index that is cut off");
    memcpy(&h, bytes, sizeof h);
    if (h.version != NTX_DRAFT_INDEX_VERSION)
        return ntx_err_set(err, -EINVAL, "an index of version %u: make it anew with ntx draft-index", h.version);
    if (h.n > NTX_DRAFT_INDEX_MOST || n != sizeof h + h.n * 8)
        return ntx_err_set(err, -EINVAL, "an index that is cut off, or longer than it says");
    if (h.n_vocab != n_vocab || h.vocab != vocab)
        return ntx_err_set(err, -EINVAL,
                           "the index was made for another vocabulary: make it anew with ntx draft-index MODEL");
    const int32_t *tokens = (const int32_t *)(bytes + sizeof h);
    const uint32_t *order = (const uint32_t *)(tokens + h.n);
    for (uint64_t i = 0; i < h.n; i++)
        if (tokens[i] < -1 || (tokens[i] >= 0 && (uint32_t)tokens[i] >= n_vocab) || order[i] >= h.n)
            return ntx_err_set(err, -EINVAL, "an index with numbers that are out of bounds");
    if (!(x = calloc(1, sizeof *x)))
        return ntx_err_set(err, -ENOMEM, "no memory");
    *x = (struct index){bytes, tokens, order, (uint32_t)h.n};
    *self = x;
    return 0;
}

static void free_index(void *self)
{
    struct index *x = self;
    free(x->bytes);
    free(x);
}

/* Length of the common end of the tokens before `at` and of the text. *less: whether the place sorts before the text
 * (compare_pasts). */
static uint32_t common_end(const struct index *x, const struct ntx_drafter_file_text *t, uint32_t at, bool *less)
{
    uint32_t k = 0;
    for (*less = false; k < LIKE_MOST; k++) {
        int32_t a = at > k ? x->tokens[at - 1 - k] : -1, b = t->n > k ? t->tokens[t->n - 1 - k] : -1;
        *less = a < b;
        if (a != b || a < 0)
            break;
    }
    return k;
}

struct place {
    uint32_t at, alike;
};

/* Keeps the longest matches first, each with another next token. */
static uint32_t keep_place(const struct index *x, struct place *places, uint32_t n, struct place w)
{
    uint32_t i = n;
    for (uint32_t k = 0; k < n; k++)
        if (x->tokens[places[k].at] == x->tokens[w.at]) {
            if (places[k].alike >= w.alike)
                return n;
            memmove(&places[k], &places[k + 1], (--n - k) * sizeof *places);
            i = n;
        }
    while (i && places[i - 1].alike < w.alike)
        i--;
    if (i == PLACES)
        return n;
    n = NTX_MIN(n, PLACES - 1);
    memmove(&places[i + 1], &places[i], (n - i) * sizeof *places);
    places[i] = w;
    return n + 1;
}

static uint32_t find_places(const struct index *x, const struct ntx_drafter_file_text *t, struct place *places)
{
    uint32_t low = 0, high = x->n, n = 0;
    bool less;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        common_end(x, t, x->order[mid], &less);
        low = less ? mid + 1 : low;
        high = less ? high : mid;
    }
    for (uint32_t side = 0; side < 2; side++)
        for (uint32_t k = 0; k < LOOKED && (side ? low + k < x->n : low > k); k++) {
            struct place w = {.at = x->order[side ? low + k : low - 1 - k]};
            w.alike = common_end(x, t, w.at, &less);
            if (!w.alike || (n == PLACES && w.alike < places[n - 1].alike))
                break;
            if (x->tokens[w.at] >= 0)
                n = keep_place(x, places, n, w);
        }
    return n;
}

/* Prior chance of a match; the engine learns how many hold (computed/engine/draft.h). */
static float place_chance(uint32_t alike, uint32_t place)
{
    static const float first[] = {0, 0.15f, 0.35f, 0.5f, 0.6f, 0.65f, 0.7f, 0.75f};
    float s = alike < 16 ? 0.82f : 0.93f;
    if (alike < sizeof first / sizeof *first)
        s = first[alike];
    return place ? (1 - s) / 3 : s;
}

static uint32_t index_tree(const void *self, const struct ntx_drafter_file_text *t, struct ntx_draft_node *out)
{
    const struct index *x = self;
    struct place places[PLACES + 1];
    uint32_t n = 1, n_places = find_places(x, t, places);
    for (uint32_t w = 0; w < n_places; w++) {
        uint32_t up = 0;
        for (uint32_t k = 0; k < FAR && places[w].at + k < x->n && x->tokens[places[w].at + k] >= 0; k++) {
            uint32_t next = n;
            n = ntx__draft_node_add(out, n, up, x->tokens[places[w].at + k],
                                    place_chance(places[w].alike + k, k ? 0 : w));
            up = next;
        }
    }
    return n;
}

const struct ntx_drafter_file_ops ntx__draft_index = {open_index, index_tree, free_index};
