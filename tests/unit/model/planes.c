/* SPDX-License-Identifier: Apache-2.0 */
/* planes.c: high and low bits join to the blocks that they were split from, high bits alone stand for the middle, a
 * model in two files has the tensors of the whole one, machines that share it deal its high bits, and files that do not
 * belong together are refused. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/chunk.h"
#include "model/planes.h"
#include "model/planes_make.h"
#include "tests/unit/model/make.h"

enum { BLOCKS = 64 };
#define ROW(WHOLE, whole, low_bits, ...) {NTX_##WHOLE, low_bits},
static const struct {
    uint32_t whole, low_bits;
} ways[] = {NTX_PLANES(ROW)};

static uint32_t seed = 1;
static uint8_t next_byte(void) { return (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24); }

/* Any bytes join again. */
static void check_blocks(const struct ntx_planes *p)
{
    const struct ntx_type_info *w = ntx_type_info(p->whole), *h = ntx_type_info(p->high), *l = ntx_type_info(p->low);
    uint8_t *whole = malloc(BLOCKS * w->block_bytes), *high = malloc(BLOCKS * h->block_bytes),
            *low = malloc(BLOCKS * l->block_bytes), *back = malloc(BLOCKS * w->block_bytes);
    CHECK_EQ(h->block_bytes + l->block_bytes, w->block_bytes);
    CHECK(h->block == w->block && l->block == w->block && !l->dequant && h->rule == w->rule);
    for (size_t i = 0; i < BLOCKS * w->block_bytes; i++)
        whole[i] = next_byte();
    ntx_planes_split(p, whole, high, low, BLOCKS);
    ntx_planes_join(p->low, high, low, BLOCKS, back);
    CHECK_MSG(!memcmp(whole, back, BLOCKS * w->block_bytes), "%s", l->name);
    free(whole);
    free(high);
    free(low);
    free(back);
}

/* The middle of the interval of the values that have these high bits. One block: the scales are one number. */
static void check_middle(const struct ntx_planes *p)
{
    const struct ntx_type_info *w = ntx_type_info(p->whole), *h = ntx_type_info(p->high);
    uint8_t whole[256] = {0}, high[256], low[256];
    float most[256], least[256], middle[256];
    for (size_t i = 0; i < w->block_bytes; i++)
        whole[i] = next_byte();
    for (unsigned k = 0; k < w->n_halves; k++)
        memcpy(whole + w->half_at[k], &(uint16_t){0x2c00}, 2);
    ntx_planes_split(p, whole, high, low, 1);
    h->dequant(high, middle, 1);
    for (int turn = 0; turn < 2; turn++) { /* all low bits off, and on */
        memset(low, turn ? 0xff : 0, sizeof low);
        ntx_planes_join(p->low, high, low, 1, whole);
        w->dequant(whole, turn ? most : least, 1);
    }
    for (uint32_t k = 0; k < w->block; k++) {
        float from = least[k], to = most[k], most_off = 1e-5f * (fabsf(from) + fabsf(to)) + 1e-6f;
        CHECK_MSG(fabsf(middle[k] - (from + to) / 2) <= most_off, "%s, value %u: %g, of %g to %g", h->name, k,
                  (double)middle[k], (double)from, (double)to);
    }
}

static void check_numbers(void)
{
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        if (ntx_planes_of(t))
            CHECK(ntx_planes_from_file(ntx_planes_to_file(t)) == t && t >= NTX_PLANES_FIRST);
        else
            CHECK(ntx_planes_to_file(t) == NTX_TYPE_LIMIT && ntx_planes_whole(t) == t);
    CHECK(ntx_planes_from_file(NTX_PLANES_FILE_TYPE - 1) == NTX_TYPE_LIMIT &&
          ntx_planes_from_file(NTX_PLANES_FILE_TYPE + 2 * (uint32_t)(sizeof ways / sizeof *ways)) == NTX_TYPE_LIMIT &&
          ntx_planes_from_file(UINT32_MAX) == NTX_TYPE_LIMIT &&
          ntx_planes_from_file(NTX_PLANES_FIRST) == NTX_TYPE_LIMIT);
    CHECK(ntx_planes_for(NTX_Q4_K, 0)->low_bits == 1 && !ntx_planes_for(NTX_Q4_K, 3) && !ntx_planes_for(NTX_Q4_0, 0));
}

/* ---- files */

static struct ntx_gguf *open_two(const char *a, const char *b, const char *refusal)
{
    struct ntx_gguf *g = NULL;
    struct ntx_err err = {0};
    const int fds[] = {open_path(a), b ? open_path(b) : -1};
    int rc = ntx_gguf_open(fds, b ? 2 : 1, NULL, &g, &err);
    close(fds[0]);
    if (b)
        close(fds[1]);
    CHECK_MSG(refusal ? rc == -EINVAL && strstr(err.text, refusal) : !rc, "%d '%s'", rc, err.text);
    return refusal ? NULL : g;
}

static uint8_t *read_file(const char *path, size_t *n)
{
    int fd = open_path(path);
    *n = (size_t)lseek(fd, 0, SEEK_END);
    uint8_t *p = malloc(*n + 1);
    CHECK(p && pread(fd, p, *n, 0) == (ssize_t)*n);
    close(fd);
    return p;
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "we");
    CHECK(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
}

static void split(const char *from, uint32_t low_bits, const char *low, const char *high)
{
    struct ntx_gguf *g = open_two(from, NULL, NULL);
    struct ntx_model *m;
    struct ntx_planes_report r;
    struct ntx_err err = {0};
    int fd = open_path(from);
    CHECK(!ntx_model_open(g, &m, &err));
    CHECK_MSG(!ntx_planes_make(m, &fd, low_bits, low, high, &r, &err), "%s", err.text);
    CHECK(r.same_file && r.low && r.high > r.low && !r.whole);
    ntx_model_free(m);
    ntx_gguf_free(g);
    close(fd);
}

/* Counts for each byte of the high bits how many machines keep it: one, of the embedding also the first. */
static void check_dealt(const struct ntx_gguf *g, const struct ntx_model *m, uint32_t split, size_t file_bytes)
{
    struct ntx_share share = {.n = 2, .part = {1, 1}, .split = split};
    struct ntx_planes_range r;
    struct ntx_err err = {0};
    uint8_t *kept = calloc(file_bytes, 1);
    uint64_t bytes[2];
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        share.owner[l] = (uint8_t)(l % 2);
    share.owner[m->hp.n_layers] = NTX_SHARE_ALL;
    for (share.rank = 0; share.rank < 2; share.rank++) {
        const struct ntx_chunk_bounds b = {.most = NTX_CHUNKS_MAX, .share = &share};
        struct ntx_chunks *c;
        CHECK(kept && !ntx_chunks_make_bounded(m, 65536, &b, &c, &err));
        for (uint32_t i = 0; i < ntx_planes_places(m, c); i++)
            if (ntx_planes_stays(m, c, i, &r)) {
                CHECK(r.offset + r.bytes <= file_bytes && ntx_planes_low(ntx_gguf_tensor_at(g, r.tensor)->type));
                for (uint64_t k = 0; k < r.bytes; k++)
                    kept[r.offset + k] += share.rank ? 16 : 1;
            }
        bytes[share.rank] = ntx_planes_bytes(m, c);
        ntx_chunks_free(c);
    }
    for (uint32_t i = 0; i < ntx_gguf_n_tensors(g); i++)
        if (ntx_planes_low(ntx_gguf_tensor_at(g, i)->type)) {
            CHECK(ntx_planes_stays(m, NULL, i, &r) && r.tensor == i);
            for (uint64_t k = 0; k < r.bytes; k++)
                CHECK(kept[r.offset + k] == 1 || kept[r.offset + k] == (i == m->token_embd ? 17 : 16));
        }
    const uint64_t all = ntx_planes_bytes(m, NULL);
    CHECK_MSG(bytes[0] < all && bytes[1] < all && bytes[1] > all / 8, "%llu and %llu of %llu",
              (unsigned long long)bytes[0], (unsigned long long)bytes[1], (unsigned long long)all);
    free(kept);
}

static void check_joined(const char *from, const char *low, const char *high, const char *to)
{
    struct ntx_gguf *g = open_two(low, high, NULL), *was = open_two(from, NULL, NULL);
    struct ntx_err err = {0};
    struct ntx_model *m;
    const int fds[] = {open_path(low), open_path(high)};
    size_t n, k;
    uint64_t halves = 0;
    CHECK(ntx_gguf_planes(g) && !ntx_gguf_planes(was) && ntx_gguf_n_tensors(g) == ntx_gguf_n_tensors(was));
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(g); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(g, i), *u = ntx_gguf_tensor_at(was, i);
        CHECK_STR(t->name, u->name);
        CHECK(!memcmp(t->ne, u->ne, sizeof t->ne) && ntx_gguf_tensor(g, t->name) == t);
        CHECK(ntx_planes_low(t->type) ? !t->file && t->high && ntx_planes_whole(t->type) == u->type
                                      : t->file == NTX_GGUF_HIGH_FILE && t->type == u->type);
        halves += ntx_planes_low(t->type);
    }
    CHECK(halves > 4 && !ntx_model_open(g, &m, &err) && ntx_planes_bytes(m, NULL) > 0);
    free(read_file(high, &n));
    check_dealt(g, m, NTX_SPLIT_ROWS, n);
    check_dealt(g, m, NTX_SPLIT_LAYERS, n);
    ntx_model_free(m);
    CHECK_MSG(!ntx_planes_whole_make(g, fds, to, &err), "%s", err.text);
    uint8_t *x = read_file(from, &n), *y = read_file(to, &k);
    CHECK(n == k && !memcmp(x, y, n));
    free(x);
    free(y);
    close(fds[0]);
    close(fds[1]);
    ntx_gguf_free(g);
    ntx_gguf_free(was);
}

/* The first place of `what` in the file becomes `with`, of equal length. */
static void spoil(const char *path, const char *to, const char *what, const char *with)
{
    size_t n;
    uint8_t *p = read_file(path, &n), *at = memmem(p, n, what, strlen(what));
    CHECK(at);
    memcpy(at, with, strlen(with));
    write_file(to, p, n);
    free(p);
}

static void check_files(void)
{
    struct mk_options o = make_options();
    char dir[] = "/tmp/ntx-planes-XXXXXX", path[8][64];
    static const char *const names[] = {"x.gguf",         "low.gguf",  "low.draft.gguf", "two.gguf",
                                        "two.draft.gguf", "back.gguf", "bad.gguf",       "bad.draft.gguf"};
    enum { WHOLE, LOW, HIGH, LOW2, HIGH2, BACK, BAD, BAD_HIGH };
    size_t n;
    char **paths;
    struct ntx_err err = {0};
    CHECK(mkdtemp(dir));
    for (int i = 0; i < 8; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", dir, names[i]);
    o.embd = 256;
    o.ff = 512;
    o.type = "Q4_K";
    uint8_t *bytes = make_bytes(&o, &n);
    write_file(path[WHOLE], bytes, n);
    free(bytes);
    split(path[WHOLE], 1, path[LOW], path[HIGH]);
    check_joined(path[WHOLE], path[LOW], path[HIGH], path[BACK]);
    split(path[WHOLE], 2, path[LOW2], path[HIGH2]);
    check_joined(path[WHOLE], path[LOW2], path[HIGH2], path[BACK]);

    ntx_gguf_free(open_two(path[HIGH], NULL, NULL)); /* a model of its own */
    open_two(path[LOW], NULL, "has only the low bits");
    open_two(path[LOW], path[HIGH2], "is not of one model with it");
    open_two(path[LOW], path[LOW], "is not of one model with it");
    open_two(path[LOW], path[WHOLE], "is not of one model with it");
    open_two(path[HIGH], path[LOW], "split.count");
    spoil(path[LOW], path[BAD], "ntx.planes.part", "ntx.planes.lost");
    open_two(path[BAD], NULL, "has low bits only");
    spoil(path[LOW], path[BAD], "blk.1.attn_q.weight", "blk.1.attn_x.weight");
    open_two(path[BAD], path[HIGH], "low bits are missing");
    spoil(path[HIGH], path[BAD_HIGH], "blk.1.attn_q.weight", "blk.1.attn_x.weight");
    open_two(path[LOW], path[BAD_HIGH], "low bits are missing");

    CHECK_EQ(ntx_gguf_split_paths(path[LOW], &paths, &err), 2);
    CHECK_STR(paths[1], path[HIGH]);
    free(paths[0]);
    free(paths[1]);
    free(paths);
    CHECK_EQ(ntx_gguf_split_paths(path[HIGH], &paths, &err), 1);
    free(paths[0]);
    free(paths);
    unlink(path[HIGH]);
    CHECK(ntx_gguf_split_paths(path[LOW], &paths, &err) == -ENOENT && strstr(err.text, ".draft.gguf"));
    for (int i = 0; i < 8; i++)
        unlink(path[i]);
    rmdir(dir);
}

int main(void)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        check_blocks(ntx_planes_for(ways[i].whole, ways[i].low_bits));
        check_middle(ntx_planes_for(ways[i].whole, ways[i].low_bits));
    }
    check_numbers();
    check_files();
    return 0;
}
