/* SPDX-License-Identifier: Apache-2.0 */
#include "model/share_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "model/chunk.h"
#include "model/digest.h"
#include "model/gguf_out.h"
#include "model/quant.h"

#define COPY_BYTES  (1u << 20)
#define CHUNK_BYTES (4u << 20)

/* ---- reading */

/* Reads the owner of each layer, if layers are dealt whole. */
static int read_owners(const struct ntx_gguf *g, struct ntx_share *s)
{
    const struct ntx_gguf_kv *owners = ntx_gguf_find(g, "ntx.share.owners");
    if (!owners)
        return 0;
    if (owners->type != NTX_GGUF_ARR || owners->elem != NTX_GGUF_U32 || owners->count >= NTX_SHARE_LAYERS)
        return -EINVAL;
    s->split = NTX_SPLIT_LAYERS;
    for (uint64_t l = 0; l < owners->count; l++) {
        uint32_t who;
        memcpy(&who, (const uint8_t *)owners->data + l * sizeof who, sizeof who);
        if (who >= s->n)
            return -EINVAL;
        s->owner[l] = (uint8_t)who;
    }
    s->owner[owners->count] = NTX_SHARE_ALL;
    return 0;
}

int ntx_share_file_of(const struct ntx_gguf *g, struct ntx_share *share, struct ntx_err *err)
{
    const struct ntx_gguf_kv *parts = ntx_gguf_find(g, "ntx.share.parts");
    struct ntx_share s = {0};
    struct ntx_str digest;
    uint64_t rank;
    *share = s;
    if (!parts && !ntx_gguf_find(g, "ntx.share.rank"))
        return 0;
    if (!parts || parts->type != NTX_GGUF_ARR || parts->elem != NTX_GGUF_U32 || parts->count < 2 ||
        parts->count > NTX_RANKS_MAX || ntx_gguf_u64(g, "ntx.share.rank", &rank) || rank >= parts->count ||
        ntx_gguf_str(g, "ntx.share.digest", &digest) || digest.n != NTX_DIGEST_TEXT - 1)
        return ntx_err_set(
            err, -EINVAL,
            "a file of a machine's share whose ntx.share keys make no sense: make it anew with ntx pack --share");
    s.n = (uint32_t)parts->count;
    s.rank = (uint32_t)rank;
    memcpy(s.part, parts->data, s.n * sizeof *s.part);
    uint64_t all = 0;
    for (uint32_t i = 0; i < s.n; i++)
        all += s.part[i];
    if (all > UINT32_MAX)
        return ntx_err_set(
            err, -EINVAL,
            "a file of a machine's share with parts that make no sense: make it anew with ntx pack --share");
    if (read_owners(g, &s))
        return ntx_err_set(
            err, -EINVAL,
            "a file of a machine's share with layers that are nobody's: make it anew with ntx pack --share");
    *share = s;
    return 0;
}

int ntx_share_file_refuse(const struct ntx_gguf *g, const char *name, struct ntx_err *err)
{
    struct ntx_share s;
    int rc = ntx_share_file_of(g, &s, err);
    if (rc || !s.n)
        return rc;
    return ntx_err_set(err, -EINVAL,
                       "%s is the share of machine %u of %u (ntx pack --share): only together with the others, started "
                       "by mpirun, is it a model; this needs the whole file",
                       name, s.rank + 1, s.n);
}

/* ---- what there is to deal */

static int weigh_layers(const struct ntx_model *m, uint64_t *bytes, struct ntx_err *err)
{
    struct ntx_share all = {.n = 2, .rank = 1, .split = NTX_SPLIT_LAYERS};
    const struct ntx_chunk_bounds b = {.most = NTX_CHUNKS_MAX, .count_only = true, .share = &all};
    struct ntx_chunks *c = NULL;
    memset(all.owner, 1, sizeof all.owner); /* as if another machine had every layer */
    int rc = ntx_chunks_make_bounded(m, CHUNK_BYTES, &b, &c, err);
    if (rc)
        return rc;
    for (uint32_t l = 0; l < m->hp.n_layers; l++) {
        bytes[l] = 0;
        for (uint32_t t = 0; t < NTX_N_TENSORS; t++) {
            const struct ntx_weight *w = &c->layers[l].of[t];
            if (w->tensor != NTX_NO_TENSOR && w->dealt && t != NTX_T_expert_gate_up) /* which is counted as gate and
                                                                                        up */
                bytes[l] += (uint64_t)w->n_out * w->row_bytes *
                            (ntx_tensor_kinds[t].use == NTX_USE_EXPERT ? m->hp.n_expert : 1);
        }
    }
    ntx_chunks_free(c);
    return 0;
}

int ntx_share_by_layers(const struct ntx_model *m, struct ntx_share *s, uint64_t *bytes, struct ntx_err *err)
{
    uint64_t own[NTX_SHARE_LAYERS], *of = bytes ? bytes : own;
    int rc = weigh_layers(m, of, err);
    if (!rc)
        ntx_share_layers(s, of, m->hp.n_layers);
    return rc;
}

/* ---- writing */

struct maker {
    const struct ntx_model *m;
    const int *fds;
    const struct ntx_share *share;
    struct ntx_chunks *chunks;
    uint32_t *first, *of; /* chunks of tensor t: of[ */
    bool *away;           /* by tensor: another machine has it whole */
    uint64_t done, all;
    void (*tell)(uint64_t done, uint64_t all);
};

/* Tensors that rank 0 has whole: those that are not dealt, and the tables of tokens' rows. */
static bool is_whole(const struct maker *k, uint32_t tensor)
{
    bool looked_up = false;
    for (int t = 0; t < NTX_N_ENDS; t++)
        looked_up |= ntx_end_kinds[t].use == NTX_USE_LOOKUP && tensor == k->m->end[t];
    return !k->share->rank && ((k->first[tensor] == k->first[tensor + 1] && !k->away[tensor]) || looked_up);
}

static int copy_bytes(struct maker *k, const struct ntx_gguf_tensor *t, uint64_t at, uint64_t bytes, int out,
                      uint64_t to, uint8_t *buf, struct ntx_err *err)
{
    for (uint64_t i = 0, n; i < bytes; i += n) {
        n = NTX_MIN(bytes - i, (uint64_t)COPY_BYTES);
        ssize_t got = pread(k->fds[t->file], buf, n, (off_t)(at + i));
        if (got <= 0)
            return ntx_err_set(err, got ? -errno : -ENODATA, "tensor '%s' cannot be read: %s", t->name,
                               got ? strerror(errno) : "the file ends");
        n = (uint64_t)got;
        for (uint64_t put = 0; put < n;) {
            ssize_t some = pwrite(out, buf + put, n - put, (off_t)(to + i + put));
            if (some <= 0)
                return some ? -errno : -EIO;
            put += (uint64_t)some;
        }
        k->done += n;
        if (k->tell)
            k->tell(k->done, k->all);
    }
    return 0;
}

static int write_share(void *ctx, uint32_t tensor, int fd, struct ntx_err *err)
{
    struct maker *k = ctx;
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(k->m->gguf, tensor);
    off_t at = lseek(fd, 0, SEEK_CUR);
    uint8_t *buf = malloc(COPY_BYTES);
    int rc = buf ? 0 : ntx_err_set(err, -ENOMEM, "no memory");
    if (!rc && ftruncate(fd, at + (off_t)t->bytes))
        rc = -errno;
    if (!rc && is_whole(k, tensor))
        rc = copy_bytes(k, t, t->offset, t->bytes, fd, (uint64_t)at, buf, err);
    else
        for (uint32_t i = k->first[tensor]; i < k->first[tensor + 1] && !rc; i++) {
            const struct ntx_chunk *c = &k->chunks->list[k->of[i]];
            rc = copy_bytes(k, t, c->offset, c->bytes, fd, (uint64_t)at + (c->offset - t->offset), buf, err);
        }
    free(buf);
    if (!rc && lseek(fd, at + (off_t)t->bytes, SEEK_SET) < 0)
        rc = -errno;
    return rc;
}

/* Marks matrices of layers that another machine has whole. */
static void find_away(struct maker *k)
{
    for (uint32_t l = 0; l < k->m->hp.n_layers; l++)
        for (int t = 0; t < NTX_N_TENSORS; t++) {
            const struct ntx_weight *w = &k->chunks->layers[l].of[t];
            if (w->tensor != NTX_NO_TENSOR && w->dealt && !w->n_chunks)
                k->away[w->tensor] = true;
        }
}

static int sort_chunks(struct maker *k)
{
    uint32_t n = (uint32_t)ntx_gguf_n_tensors(k->m->gguf);
    k->first = calloc(n + 2, sizeof *k->first);
    k->of = calloc(k->chunks->n + 1, sizeof *k->of);
    k->away = calloc(n + 1, sizeof *k->away);
    if (!k->first || !k->of || !k->away)
        return -ENOMEM;
    find_away(k);
    for (uint32_t c = 0; c < k->chunks->n; c++)
        k->first[k->chunks->list[c].tensor + 1]++;
    for (uint32_t t = 0; t < n; t++)
        k->first[t + 1] += k->first[t];
    for (uint32_t c = k->chunks->n; c-- > 0;) { /* from the end: each chunk moves to the start of its tensor's list */
        uint32_t t = k->chunks->list[c].tensor;
        k->of[--k->first[t + 1]] = c;
    }
    for (uint32_t t = 0; t < n; t++)
        k->first[t] = k->first[t + 1];
    k->first[n] = k->chunks->n;
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t i = k->first[t]; i < k->first[t + 1]; i++)
            k->all += is_whole(k, t) ? 0 : k->chunks->list[k->of[i]].bytes;
    for (uint32_t t = 0; t < n; t++)
        k->all += is_whole(k, t) ? ntx_gguf_tensor_at(k->m->gguf, t)->bytes : 0;
    return 0;
}

static bool replaced_key(struct ntx_str key)
{
    return (key.n == 17 && !memcmp(key.p, "general.alignment", 17)) || (key.n > 6 && !memcmp(key.p, "split.", 6));
}

static int write_share_file(struct maker *k, const char *digest, const char *path, struct ntx_err *err)
{
    const struct ntx_gguf *from = k->m->gguf;
    struct ntx_gguf_out *g = ntx_gguf_out_new();
    uint64_t align = 32;
    if (!g)
        return ntx_err_set(err, -ENOMEM, "no memory");
    for (uint64_t i = 0; i < ntx_gguf_n_kv(from); i++)
        if (!replaced_key(ntx_gguf_kv_at(from, i)->key))
            ntx_gguf_out_copy(g, ntx_gguf_kv_at(from, i));
    ntx_gguf_u64(from, "general.alignment", &align);
    ntx_gguf_out_align(g, (uint32_t)align);
    ntx_gguf_out_u32(g, "ntx.share.rank", k->share->rank);
    ntx_gguf_out_u32s(g, "ntx.share.parts", k->share->part, k->share->n);
    if (k->share->split == NTX_SPLIT_LAYERS) {
        uint32_t owners[NTX_SHARE_LAYERS];
        for (uint32_t l = 0; l < k->m->hp.n_layers; l++)
            owners[l] = k->share->owner[l];
        ntx_gguf_out_u32s(g, "ntx.share.owners", owners, k->m->hp.n_layers);
    }
    ntx_gguf_out_str(g, "ntx.share.digest", digest);
    for (uint32_t i = 0; i < ntx_gguf_n_tensors(from); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(from, i);
        ntx_gguf_out_data(g, t->name, t->type, t->ne, t->n_dims, write_share, k, i);
    }
    int rc = ntx_gguf_out_write(g, path, err);
    ntx_gguf_out_free(g);
    return rc;
}

int ntx_share_file_make(const struct ntx_model *m, const int *fds, const struct ntx_share *share, const char *path,
                        void (*tell)(uint64_t done, uint64_t all), uint64_t *bytes, struct ntx_err *err)
{
    struct maker k = {.m = m, .fds = fds, .share = share, .tell = tell};
    const struct ntx_chunk_bounds b = {.most = NTX_CHUNKS_MAX, .share = share};
    char digest[NTX_DIGEST_TEXT];
    int rc = ntx_model_digest(m->gguf, fds, digest, err);
    if (!rc && !(rc = ntx_chunks_make_bounded(m, CHUNK_BYTES, &b, &k.chunks, err)) && (rc = sort_chunks(&k)))
        ntx_err_set(err, rc, "no memory");
    if (!rc)
        rc = write_share_file(&k, digest, path, err);
    *bytes = k.done;
    ntx_chunks_free(k.chunks);
    free(k.first);
    free(k.of);
    free(k.away);
    return rc;
}
