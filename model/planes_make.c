/* SPDX-License-Identifier: Apache-2.0 */
#include "model/planes_make.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/new_file.h"
#include "common/util.h"
#include "model/digest.h"
#include "model/gguf_out.h"
#include "model/planes.h"

#define PIECE       (1u << 20)
#define LEAST_SPLIT 0.8 /* of the matrices' bytes */
#define BLOCK_MOST  sizeof(struct ntx_block_q6_k)
enum part { LOW, HIGH, WHOLE };

struct maker {
    const struct ntx_gguf *g;
    const int *fds;
    const struct ntx_planes **way; /* [tensors] how each is split; NULL: it is not */
    enum part part;                /* that is written */
    uint8_t *from, *low, *back;    /* [PIECE] */
};

static int read_all(int fd, uint8_t *to, size_t n, uint64_t at, struct ntx_err *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t some = pread(fd, to + done, n - done, (off_t)(at + done));
        if (some < 0 && errno == EINTR)
            continue;
        if (some <= 0)
            return ntx_err_set(err, some ? -errno : -EIO, "cannot read the model: %s",
                               some ? strerror(errno) : "the file is shorter than it was");
        done += (size_t)some;
    }
    return 0;
}

static int copy_tensor(const struct maker *k, const struct ntx_gguf_tensor *t, int fd, struct ntx_err *err)
{
    int rc = 0;
    for (uint64_t at = 0, n; at < t->bytes && !rc; at += n) {
        n = NTX_MIN(t->bytes - at, (uint64_t)PIECE);
        rc = read_all(k->fds[t->file], k->from, n, t->offset + at, err);
        rc = rc ? rc : ntx_write_all(fd, k->from, n);
    }
    return rc;
}

/* Joins n blocks again, which are the original's. */
static int check_blocks(const struct maker *k, const struct ntx_planes *p, const uint8_t *high, const uint8_t *low,
                        size_t n, const struct ntx_gguf_tensor *t, struct ntx_err *err)
{
    const size_t block = ntx_type_info(p->whole)->block_bytes;
    uint8_t whole[BLOCK_MOST];
    const size_t h = ntx_type_info(p->high)->block_bytes, l = ntx_type_info(p->low)->block_bytes;
    for (size_t i = 0; i < n; i++) {
        ntx_planes_join(p->low, high + i * h, low + i * l, 1, whole);
        if (memcmp(whole, k->from + i * block, block))
            return ntx_err_set(err, -EIO, "tensor '%s': block %zu does not join to what it was", t->name, i);
    }
    return 0;
}

static int split_tensor(const struct maker *k, const struct ntx_gguf_tensor *t, const struct ntx_planes *p, int fd,
                        struct ntx_err *err)
{
    const size_t block = ntx_type_info(p->whole)->block_bytes, h = ntx_type_info(p->high)->block_bytes,
                 l = ntx_type_info(p->low)->block_bytes;
    const uint64_t blocks = t->bytes / block;
    int rc = 0;
    for (uint64_t at = 0, n; at < blocks && !rc; at += n) {
        n = NTX_MIN(blocks - at, PIECE / block);
        if ((rc = read_all(k->fds[t->file], k->from, n * block, t->offset + at * block, err)))
            break;
        ntx_planes_split(p, k->from, k->back, k->low, n);
        rc = check_blocks(k, p, k->back, k->low, n, t, err);
        if (!rc)
            rc = k->part == LOW ? ntx_write_all(fd, k->low, n * l) : ntx_write_all(fd, k->back, n * h);
    }
    return rc;
}

static int join_tensor(const struct maker *k, const struct ntx_gguf_tensor *t, const struct ntx_planes *p, int fd,
                       struct ntx_err *err)
{
    const size_t block = ntx_type_info(p->whole)->block_bytes, h = ntx_type_info(p->high)->block_bytes,
                 l = ntx_type_info(p->low)->block_bytes;
    const uint64_t blocks = t->bytes / l;
    int rc = 0;
    for (uint64_t at = 0, n; at < blocks && !rc; at += n) {
        n = NTX_MIN(blocks - at, PIECE / block);
        rc = read_all(k->fds[t->file], k->low, n * l, t->offset + at * l, err);
        if (!rc)
            rc = read_all(k->fds[NTX_GGUF_HIGH_FILE], k->from, n * h, t->high + at * h, err);
        if (rc)
            break;
        ntx_planes_join(p->low, k->from, k->low, n, k->back);
        rc = ntx_write_all(fd, k->back, n * block);
    }
    return rc;
}

static int write_tensor(void *ctx, uint32_t tensor, int fd, struct ntx_err *err)
{
    const struct maker *k = ctx;
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(k->g, tensor);
    const struct ntx_planes *p = k->way[tensor];
    if (!p)
        return copy_tensor(k, t, fd, err);
    return k->part == WHOLE ? join_tensor(k, t, p, fd, err) : split_tensor(k, t, p, fd, err);
}

static bool begins(struct ntx_str key, const char *with)
{
    size_t n = strlen(with);
    return key.n >= n && !memcmp(key.p, with, n);
}

/* Keys and tensors of a part. A split model becomes one file. */
static struct ntx_gguf_out *describe(struct maker *k, enum part part, const char *pair)
{
    struct ntx_gguf_out *o = ntx_gguf_out_new();
    k->part = part;
    if (!o)
        return NULL;
    if (part != WHOLE) {
        ntx_gguf_out_str(o, NTX_PLANES_PART, part == LOW ? "low" : "high");
        ntx_gguf_out_str(o, NTX_PLANES_PAIR, pair);
    }
    for (uint64_t i = 0; i < ntx_gguf_n_kv(k->g); i++) {
        const struct ntx_gguf_kv *kv = ntx_gguf_kv_at(k->g, i);
        if (!begins(kv->key, "split.") && !begins(kv->key, "ntx.planes."))
            ntx_gguf_out_copy(o, kv);
    }
    for (uint32_t i = 0; i < ntx_gguf_n_tensors(k->g); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(k->g, i);
        const struct ntx_planes *p = k->way[i];
        if (part == LOW && !p)
            continue;
        uint32_t type = t->type;
        if (p)
            type = (const uint32_t[]){[LOW] = p->low, [HIGH] = p->high, [WHOLE] = p->whole}[part];
        ntx_gguf_out_data(o, t->name, type, t->ne, t->n_dims, write_tensor, k, i);
    }
    return o;
}

static int open_maker(struct maker *k, const struct ntx_gguf *g, const int *fds, struct ntx_err *err)
{
    *k = (struct maker){.g = g, .fds = fds, .way = calloc(ntx_gguf_n_tensors(g) + 1, sizeof *k->way)};
    k->from = malloc(PIECE);
    k->low = malloc(PIECE);
    k->back = malloc(PIECE);
    return k->way && k->from && k->low && k->back ? 0 : ntx_err_set(err, -ENOMEM, "no memory");
}

static void close_maker(struct maker *k)
{
    free(k->way);
    free(k->from);
    free(k->low);
    free(k->back);
}

/* ---- which tensors are split */

enum uses { MULTIPLIED = 1, OTHER = 2 };

static void add_use(uint8_t *uses, uint32_t tensor, enum ntx_use use)
{
    if (tensor != NTX_NO_TENSOR)
        uses[tensor] |= use == NTX_USE_MATRIX || use == NTX_USE_EXPERT ? MULTIPLIED : OTHER;
}

/* Matrices and experts are split; the embedding is if it is also the output matrix. */
static int choose(struct maker *k, const struct ntx_model *m, uint32_t low_bits, struct ntx_planes_report *r,
                  struct ntx_err *err)
{
    uint8_t *uses = calloc(ntx_gguf_n_tensors(k->g) + 1, 1);
    uint64_t split = 0;
    if (!uses)
        return ntx_err_set(err, -ENOMEM, "no memory");
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        for (int t = 0; t < NTX_N_TENSORS; t++)
            add_use(uses, m->layers[l].tensor[t], (enum ntx_use)ntx_tensor_kinds[t].use);
    for (int e = 0; e < NTX_N_ENDS; e++)
        if (m->end[e] != m->output || e == NTX_END_output)
            add_use(uses, m->end[e], (enum ntx_use)ntx_end_kinds[e].use);
    for (uint32_t i = 0; i < ntx_gguf_n_tensors(k->g); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(k->g, i);
        const struct ntx_planes *p = ntx_planes_for(t->type, t->type == NTX_Q4_K ? low_bits : 0);
        k->way[i] = uses[i] == MULTIPLIED ? p : NULL;
        const uint64_t low = k->way[i]
                                 ? t->bytes / ntx_type_info(t->type)->block_bytes * ntx_type_info(p->low)->block_bytes
                                 : 0;
        split += k->way[i] ? t->bytes : 0;
        r->whole += uses[i] == MULTIPLIED && !p ? t->bytes : 0;
        r->low += low;
        r->high += t->bytes - low;
    }
    free(uses);
    if ((double)split >= LEAST_SPLIT * (double)(split + r->whole) && split)
        return 0;
    return ntx_err_set(err, -ENOTSUP,
                       "only %.0f %% of the matrices' bytes are of types that have high and low bits (Q4_K, Q5_K, "
                       "Q6_K, Q5_0, Q8_0): take the model in another type, as Q4_K_M",
                       split ? 100.0 * (double)split / (double)(split + r->whole) : 0.0);
}

static int refuse(const struct ntx_model *m, struct ntx_err *err)
{
    if (ntx_gguf_planes(m->gguf) || ntx_gguf_find(m->gguf, NTX_PLANES_PAIR))
        return ntx_err_set(err, -EINVAL,
                           "it is already split in high and low bits: give the model that it was made of");
    if (m->pack || m->delta.base || m->delta.any)
        return ntx_err_set(err, -ENOTSUP,
                           "a packed model, or one of a base and differences (ntx pack), is not split in high and low "
                           "bits: give the model that it was made of");
    return 0;
}

/* Joining writes the file's very bytes. */
static bool is_same_file(struct maker *k)
{
    struct ntx_gguf_out *o = describe(k, WHOLE, NULL);
    size_t n = 0;
    uint8_t *head = o ? ntx_gguf_out_header(o, &n) : NULL, *was = malloc(n + 1);
    struct ntx_err ignored;
    uint64_t at = n, align = 32;
    ntx_gguf_u64(k->g, "general.alignment", &align);
    bool same = head && was && !read_all(k->fds[0], was, n, 0, &ignored) && !memcmp(head, was, n) &&
                lseek(k->fds[0], 0, SEEK_END) == (off_t)ntx_gguf_out_bytes(o);
    for (uint32_t i = 0; i < ntx_gguf_n_tensors(k->g) && same; i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(k->g, i);
        same = !t->file && t->offset == at;
        at += NTX_ROUND_UP(t->bytes, align);
    }
    free(head);
    free(was);
    ntx_gguf_out_free(o);
    return same;
}

static int write_part(struct maker *k, enum part part, const char *pair, const char *path, struct ntx_err *err)
{
    struct ntx_gguf_out *o = describe(k, part, pair);
    int rc = o ? ntx_gguf_out_write(o, path, err) : ntx_err_set(err, -ENOMEM, "no memory");
    ntx_gguf_out_free(o);
    return rc;
}

int ntx_planes_make(const struct ntx_model *m, const int *fds, uint32_t low_bits, const char *path,
                    const char *high_path, struct ntx_planes_report *report, struct ntx_err *err)
{
    struct maker k;
    struct ntx_planes_report r = {0};
    char digest[NTX_DIGEST_TEXT], pair[NTX_DIGEST_TEXT + 8];
    int rc = refuse(m, err);
    if (rc)
        return rc;
    if (!(rc = open_maker(&k, m->gguf, fds, err)) && !(rc = choose(&k, m, low_bits, &r, err)) &&
        !(rc = ntx_model_digest(m->gguf, fds, digest, err))) {
        snprintf(pair, sizeof pair, "%s-%u", digest, low_bits);
        rc = write_part(&k, HIGH, pair, high_path, err);
        rc = rc ? rc : write_part(&k, LOW, pair, path, err);
        r.same_file = !rc && is_same_file(&k);
    }
    close_maker(&k);
    if (!rc)
        *report = r;
    return rc;
}

static int sketch_part(struct maker *k, enum part part, int *fd, struct ntx_err *err)
{
    size_t n = 0;
    struct ntx_gguf_out *o = describe(k, part, "sketch");
    void *header = o ? ntx_gguf_out_header(o, &n) : NULL;
    int f = header ? memfd_create("ntx-planes", MFD_CLOEXEC) : -1, rc = 0;
    if (f < 0)
        rc = ntx_err_set(err, header ? -errno : -ENOMEM, "no memory for a model's header");
    else if (!(rc = ntx_write_all(f, header, n)) && ftruncate(f, (off_t)ntx_gguf_out_bytes(o)))
        rc = ntx_err_set(err, -errno, "no memory for a model's header: %s", strerror(errno));
    free(header);
    ntx_gguf_out_free(o);
    if (!rc)
        *fd = f;
    else if (f >= 0)
        close(f);
    return rc;
}

int ntx_planes_sketch(const struct ntx_model *m, uint32_t low_bits, int fd[2], struct ntx_err *err)
{
    struct ntx_planes_report ignored = {0};
    struct maker k = {.g = m->gguf, .way = calloc(ntx_gguf_n_tensors(m->gguf) + 1, sizeof *k.way)};
    int f[2] = {-1, -1}, rc = k.way ? refuse(m, err) : ntx_err_set(err, -ENOMEM, "no memory");
    rc = rc ? rc : choose(&k, m, low_bits, &ignored, err);
    rc = rc ? rc : sketch_part(&k, LOW, &f[0], err);
    rc = rc ? rc : sketch_part(&k, HIGH, &f[1], err);
    free(k.way);
    if (!rc)
        memcpy(fd, f, sizeof f);
    else if (f[0] >= 0)
        close(f[0]);
    return rc;
}

int ntx_planes_whole_make(const struct ntx_gguf *g, const int *fds, const char *path, struct ntx_err *err)
{
    struct maker k;
    int rc = open_maker(&k, g, fds, err);
    for (uint32_t i = 0; i < ntx_gguf_n_tensors(g) && !rc; i++)
        if (ntx_planes_low(ntx_gguf_tensor_at(g, i)->type))
            k.way[i] = ntx_planes_of(ntx_gguf_tensor_at(g, i)->type);
    rc = rc ? rc : write_part(&k, WHOLE, NULL, path, err);
    close_maker(&k);
    return rc;
}
