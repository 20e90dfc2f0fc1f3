/* SPDX-License-Identifier: Apache-2.0 */
/* prefixes.c: a file of the prefix store that another program wrote: a valid one with some changes, or any bytes. The
 * checksums are mended or not, so that wrong sizes and counts are reached, too. A file that is accepted without
 * mended checksums has the values that were written. */
#include <errno.h>
#include <fcntl.h>
#include <nettle/umac.h>

#include "common/util.h"
#include "computed/engine/prefix_store.h"
#include "tests/fuzz/fuzz.h"

#define DIR  "shelf" /* in the folder that run.sh made */
#define NAME DIR "/0123456789abcdef.prefix"
#define MOST (1u << 16)

enum { TEXT = 100, BLOCKS = 8, MARKED = 64, RAW = 2, HEAD_SUM = 4, BODY_SUM = 8, SIZED = 16 };

static struct world { /* a model that keeps all positions, and one with a recurrent state */
    struct ntx_hparams hp;
    struct ntx_kv_pool *pool;
    uint8_t file[MOST];
    size_t bytes;
} world[2];
static int32_t ids[TEXT];

struct pattern {
    uint32_t at, wrong;
};

static int fill(void *ctx, void *at, size_t bytes)
{
    struct pattern *p = ctx;
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)at)[i] = (uint8_t)(p->at++ * 2654435761u >> 24);
    return 0;
}

static int compare(void *ctx, void *at, size_t bytes)
{
    struct pattern *p = ctx;
    for (size_t i = 0; i < bytes; i++)
        p->wrong += ((uint8_t *)at)[i] != (uint8_t)(p->at++ * 2654435761u >> 24);
    return 0;
}

static struct ntx_prefix_store *open_prefix_store(const struct world *w)
{
    const struct ntx_prefix_store_config c = {.dir = DIR,
                                              .most = 1 << 20,
                                              .of = "the very model",
                                              .whole = ntx_kv_pool_snapshots(w->pool),
                                              .block_cost = 1,
                                              .token_cost = 0.001};
    struct ntx_prefix_store *s = NULL;
    struct ntx_err err = {0};
    MUST(!ntx_prefix_store_open(&c, &s, &err));
    return s;
}

static struct ntx_kv_seq *sequence(struct world *w, uint32_t n)
{
    struct ntx_kv_seq *kv = NULL;
    if (ntx_kv_seq_promise(w->pool, n, NULL, 0, &kv))
        return NULL;
    ntx_kv_seq_reach(kv, n - 1);
    return kv;
}

static void make(struct world *w, bool recurrent)
{
    const struct ntx_kv_shape shape = {.blocks = BLOCKS, .states = recurrent ? 4 : 0};
    struct pattern p = {0}, q = {0};
    struct ntx_kv_snapshot *mark = NULL;
    struct ntx_err err = {0};
    uint32_t file, n;
    w->hp = (struct ntx_hparams){.n_layers = 2, .n_head_kv = 1, .head_k = 4, .head_v = 4};
    if (recurrent) {
        w->hp.recurrent[0] = 2;
        w->hp.delta.taps = 2, w->hp.delta.head = w->hp.delta.keys = 16, w->hp.delta.heads = w->hp.delta.key_heads = 1;
    }
    MUST(!ntx_kv_pool_new(&w->hp, NTX_KV_F16, &shape, &w->pool, &err));
    struct ntx_kv_seq *kv = sequence(w, TEXT);
    struct ntx_prefix_store *s = open_prefix_store(w);
    MUST(kv && !ntx_kv_each_part(kv, TEXT, true, fill, &p));
    ntx_kv_restored(kv, TEXT);
    MUST(!recurrent ||
         (!ntx_kv_snapshot_blank(w->pool, MARKED, true, &mark) && !ntx_kv_snapshot_each_part(mark, true, fill, &q)));
    MUST(!ntx_prefix_store_write(s, 7, ids, TEXT, kv, &mark, recurrent) &&
         ntx_prefix_store_find(s, 7, ids, TEXT, true, &file, &n) == TEXT);
    MUST(ntx_prefix_store_find(s, 7, ids, TEXT - 1, true, &file, &n) == (recurrent ? MARKED : 0));
    ntx_kv_snapshot_free(mark);
    ntx_kv_seq_free(kv);
    ntx_prefix_store_free(s);
    FILE *f = popen("cat " DIR "/*.prefix && rm " DIR "/*.prefix", "r");
    MUST(f && (w->bytes = fread(w->file, 1, MOST, f)) > sizeof(struct ntx_prefix_store_head) && w->bytes < MOST &&
         !pclose(f));
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    ntx_log_init("fuzz", NTX_LOG_ERR);
    for (int i = 0; i < TEXT; i++)
        ids[i] = i * i % 97;
    make(&world[0], false);
    make(&world[1], true);
    if (!fuzz_seed_dir())
        return 0;
    static uint8_t raw[MOST + 3];
    const uint8_t changes[] = {0, 0, 0, 3, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 6, 0, 0, 3, 1, 0, 0, 0x80};
    for (uint8_t i = 0; i < 2; i++) {
        char name[] = "rightX";
        name[5] = (char)('0' + i);
        fuzz_seed(name, (const uint8_t[]){i, 0, 0}, 3);
        raw[0] = i | RAW | HEAD_SUM | BODY_SUM;
        memcpy(raw + 3, world[i].file, world[i].bytes);
        name[0] = 'w';
        fuzz_seed(name, raw, world[i].bytes + 3);
        name[0] = 'c';
        memcpy(raw, changes, sizeof changes);
        raw[0] = i | HEAD_SUM;
        fuzz_seed(name, raw, sizeof changes);
        raw[0] = i | SIZED;
        raw[2] = 1;
        name[0] = 't';
        fuzz_seed(name, raw, sizeof changes);
    }
    exit(0);
}

static void sum(const uint8_t *at, size_t n, const uint8_t *more, size_t k, uint8_t out[8])
{
    struct umac64_ctx u;
    umac64_set_key(&u, (const uint8_t *)"prefixes on disk");
    umac64_update(&u, n, at);
    umac64_update(&u, k, more);
    umac64_digest(&u, 8, out);
}

/* Mends the checksums for the present bytes. */
static void make_right(uint8_t *file, size_t bytes, uint8_t how)
{
    struct ntx_prefix_store_head h;
    if (bytes < sizeof h)
        return;
    memcpy(&h, file, sizeof h);
    size_t n = (size_t)h.n_tokens * sizeof(int32_t) + (size_t)h.n_snapshots * sizeof(struct ntx_prefix_store_snapshot),
           left = bytes - sizeof h;
    if (n > left)
        return;
    if (how & BODY_SUM)
        sum(file + sizeof h + n, h.body_bytes < left - n ? h.body_bytes : left - n, NULL, 0, h.body_sum);
    memset(h.head_sum, 0, sizeof h.head_sum);
    sum((const uint8_t *)&h, sizeof h, file + sizeof h, n, h.head_sum);
    memcpy(file, &h, sizeof h);
}

static void put_file(const uint8_t *file, size_t bytes)
{
    int fd = open(NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    MUST(fd >= 0 && write(fd, file, bytes) == (ssize_t)bytes && !close(fd));
}

static void meet(struct world *w, bool sums_made)
{
    struct ntx_prefix_store *s = open_prefix_store(w);
    uint32_t file = 0, n = 0, k = ntx_prefix_store_files(s);
    MUST(k + ntx_prefix_store_useless(s) <= 1);
    uint64_t scope;
    const int32_t *has = k ? ntx_prefix_store_ids(s, 0, &scope) : NULL;
    MUST(!k || (ntx_prefix_store_find(s, scope, has, UINT32_MAX, false, &file, &n) == n && n && file == 0));
    MUST(!k || sums_made || (n == TEXT && scope == 7 && !memcmp(has, ids, sizeof ids)));
    struct ntx_kv_snapshot *marks[NTX_PREFIX_STORE_SNAPSHOTS];
    uint32_t n_snapshots = 0;
    struct ntx_kv_seq *kv = k && n <= BLOCKS * NTX_KV_BLOCK ? sequence(w, n) : NULL;
    if (kv && !ntx_prefix_store_read(s, 0, w->pool, kv, MARKED, marks, &n_snapshots) && !sums_made) {
        struct pattern p = {0}, q = {0};
        MUST(!ntx_kv_each_part(kv, n, false, compare, &p) && !p.wrong);
        MUST(n_snapshots == ntx_kv_pool_snapshots(w->pool) &&
             (!n_snapshots || (!ntx_kv_snapshot_each_part(marks[0], false, compare, &q) && !q.wrong)));
    }
    while (n_snapshots)
        ntx_kv_snapshot_free(marks[--n_snapshots]);
    ntx_kv_seq_free(kv);
    MUST(!ntx_kv_pool_used(w->pool));
    ntx_prefix_store_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t file[MOST];
    if (size < 3)
        return 0;
    struct world *w = &world[data[0] & 1];
    const size_t rest = size - 3;
    const bool raw = data[0] & RAW;
    size_t bytes = raw ? rest : w->bytes;
    memcpy(file, raw ? data + 3 : w->file, bytes);
    if (!raw)
        fuzz_patch(file, bytes, data + 3, rest);
    if (data[0] & SIZED)
        bytes = (size_t)data[1] | (size_t)data[2] << 8;
    if (data[0] & (HEAD_SUM | BODY_SUM))
        make_right(file, bytes, data[0]);
    put_file(file, bytes);
    meet(w, data[0] & (RAW | HEAD_SUM | BODY_SUM));
    (void)unlink(NAME);
    return 0;
}
