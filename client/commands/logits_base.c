/* SPDX-License-Identifier: Apache-2.0 */
#include "client/commands/logits_base.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"

#define MAGIC      "ntxlogit"
#define VERSION    1
#define HEAD_BYTES 256
#define ROW_HEAD   16
#define SPAN       32.0 /* logits further below the largest are rounded to this distance */
#define LEVELS     65535.0
#define MAX_VOCAB  (1u << 24)
#define MAX_TOKENS (1u << 30)

/* ------------------------------------------------------------------------------------------------ rows */

int ntx_base_row_new(uint32_t n_vocab, struct ntx_base_row *r)
{
    *r = (struct ntx_base_row){.q = calloc(n_vocab, sizeof *r->q)};
    return r->q ? 0 : -ENOMEM;
}

int ntx_base_round(struct ntx_base_row *r, const float *logits, uint32_t n_vocab, int32_t token)
{
    float max = logits[0], min = logits[0];
    double sum = 0;
    uint32_t top = 0;
    for (uint32_t v = 0; v < n_vocab; v++) {
        if (!isfinite(logits[v]))
            return -EDOM;
        if (logits[v] > max) {
            max = logits[v];
            top = v;
        }
        min = NTX_MIN(min, logits[v]);
    }
    float step = (float)(NTX_MIN((double)max - min, SPAN) / LEVELS);
    for (uint32_t v = 0; v < n_vocab; v++) {
        double down = (double)max - logits[v];
        sum += exp(-down);
        r->q[v] = step > 0 ? (uint16_t)NTX_MIN(down / step + 0.5, LEVELS) : 0;
    }
    r->nll = log(sum) + max - logits[token];
    r->step = step;
    r->top = top;
    return 0;
}

static double log_sum(const struct ntx_base_row *r, uint32_t n_vocab)
{
    double sum = 0;
    for (uint32_t v = 0; v < n_vocab; v++)
        sum += exp(-(double)r->step * r->q[v]);
    return log(sum);
}

double ntx_base_kl(const struct ntx_base_row *base, const struct ntx_base_row *run, uint32_t n_vocab)
{
    double zb = log_sum(base, n_vocab), zr = log_sum(run, n_vocab), kl = 0;
    for (uint32_t v = 0; v < n_vocab; v++) {
        double b = -(double)base->step * base->q[v] - zb, r = -(double)run->step * run->q[v] - zr;
        kl += exp(b) * (b - r);
    }
    return kl;
}

/* ------------------------------------------------------------------------------------------------ writing */

struct ntx_base_writer {
    FILE *f;
    char *path;
    uint32_t n_vocab;
    uint64_t left; /* rows still to come */
};

static void put32(uint8_t *p, uint32_t v) { memcpy(p, &v, sizeof v); }

static uint32_t get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static int write_failed(struct ntx_base_writer *w, struct ntx_err *err)
{
    int e = errno ? errno : EIO;
    return ntx_err_set(err, -e, "%s: cannot write the logits: %s", w->path, strerror(e));
}

static bool write_head(FILE *f, const struct ntx_base_head *h, const int32_t *tokens)
{
    uint8_t head[HEAD_BYTES] = MAGIC;
    size_t n = (size_t)h->windows * h->ctx;
    put32(head + 8, VERSION);
    put32(head + 12, h->n_vocab);
    put32(head + 16, h->ctx);
    put32(head + 20, h->windows);
    put32(head + 24, h->scored);
    memcpy(head + 32, h->model, sizeof h->model);
    return fwrite(head, sizeof head, 1, f) == 1 && fwrite(tokens, sizeof *tokens, n, f) == n;
}

int ntx_base_create(const char *path, const struct ntx_base_head *h, const int32_t *tokens,
                    struct ntx_base_writer **out, struct ntx_err *err)
{
    struct ntx_base_writer *w = calloc(1, sizeof *w);
    char *copy = strdup(path);
    int rc = 0;
    if (!w || !copy) {
        rc = ntx_err_set(err, -ENOMEM, "no memory");
        goto fail;
    }
    *w = (struct ntx_base_writer){
        .f = fopen(path, "wbe"), .path = copy, .n_vocab = h->n_vocab, .left = (uint64_t)h->windows * h->scored};
    if (!w->f) {
        rc = ntx_err_set(err, -errno, "%s: %s", path, strerror(errno));
        goto fail;
    }
    errno = 0;
    if (!write_head(w->f, h, tokens)) {
        rc = write_failed(w, err);
        ntx_base_finish(w, false, NULL);
        return rc;
    }
    *out = w;
    return 0;
fail:
    free(copy);
    free(w);
    return rc;
}

int ntx_base_write(struct ntx_base_writer *w, const struct ntx_base_row *r, struct ntx_err *err)
{
    uint8_t head[ROW_HEAD];
    memcpy(head, &r->nll, 8);
    memcpy(head + 8, &r->step, 4);
    put32(head + 12, r->top);
    errno = 0;
    if (!w->left || fwrite(head, sizeof head, 1, w->f) != 1 ||
        fwrite(r->q, sizeof *r->q, w->n_vocab, w->f) != w->n_vocab)
        return write_failed(w, err);
    w->left--;
    return 0;
}

int ntx_base_finish(struct ntx_base_writer *w, int keep, struct ntx_err *err)
{
    int rc = 0;
    struct stat st;
    if (!w)
        return 0;
    errno = 0;
    if ((fclose(w->f) && keep) || (keep && w->left))
        rc = write_failed(w, err);
    if ((rc || !keep) && !lstat(w->path, &st) && S_ISREG(st.st_mode)) /* remove an incomplete file, but never a
                                                                       * device or a link */
        unlink(w->path);
    free(w->path);
    free(w);
    return rc;
}

/* ------------------------------------------------------------------------------------------------ reading */

struct ntx_base_reader {
    FILE *f;
    char *path;
    struct ntx_base_head head;
    int32_t *tokens;
    uint64_t row; /* index of the next row */
};

static int refuse_base(const struct ntx_base_reader *b, struct ntx_err *err, const char *what)
{
    return ntx_err_set(err, -EINVAL, "%s: %s; write it again with ntx perplexity --save-logits", b->path, what);
}

static int read_head(struct ntx_base_reader *b, uint64_t size, struct ntx_err *err)
{
    uint8_t p[HEAD_BYTES];
    struct ntx_base_head *h = &b->head;
    if (size < sizeof p || fread(p, sizeof p, 1, b->f) != 1 || memcmp(p, MAGIC, 8))
        return refuse_base(b, err, "not a file of logits");
    if (get32(p + 8) != VERSION)
        return refuse_base(b, err, "logits of another version of ntx");
    *h = (struct ntx_base_head){
        .n_vocab = get32(p + 12), .ctx = get32(p + 16), .windows = get32(p + 20), .scored = get32(p + 24)};
    memcpy(h->model, p + 32, sizeof h->model - 1);
    for (char *c = h->model; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
    if (!h->n_vocab || h->n_vocab > MAX_VOCAB || h->ctx < 4 || h->ctx > MAX_TOKENS || !h->windows ||
        h->windows > MAX_TOKENS / h->ctx || h->scored != h->ctx - (h->ctx / 2 + 1))
        return refuse_base(b, err, "its header is damaged");
    uint64_t rows = (uint64_t)h->windows * h->scored; /* below 2^29, times a row below 2^26 bytes: no overflow */
    uint64_t want = HEAD_BYTES + 4ull * h->windows * h->ctx + rows * (ROW_HEAD + 2ull * h->n_vocab);
    if (size != want)
        return refuse_base(b, err, size < want ? "the file is cut short" : "the file is longer than its header says");
    return 0;
}

static int read_tokens(struct ntx_base_reader *b, struct ntx_err *err)
{
    size_t n = (size_t)b->head.windows * b->head.ctx;
    if (!(b->tokens = malloc(n * sizeof *b->tokens)))
        return ntx_err_set(err, -ENOMEM, "%s: no memory for %zu tokens", b->path, n);
    if (fread(b->tokens, sizeof *b->tokens, n, b->f) != n)
        return refuse_base(b, err, "the file is cut short");
    for (size_t i = 0; i < n; i++)
        if (b->tokens[i] < 0 || (uint32_t)b->tokens[i] >= b->head.n_vocab)
            return refuse_base(b, err, "its tokens are damaged");
    return 0;
}

int ntx_base_open(const char *path, struct ntx_base_reader **out, struct ntx_err *err)
{
    struct stat st;
    struct ntx_base_reader *b = calloc(1, sizeof *b);
    int rc = 0;
    if (!b || !(b->path = strdup(path)))
        rc = ntx_err_set(err, -ENOMEM, "no memory");
    else if (!(b->f = fopen(path, "rbe")) || fstat(fileno(b->f), &st))
        rc = ntx_err_set(err, -errno, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = refuse_base(b, err, "not a regular file");
    if (!rc)
        rc = read_head(b, (uint64_t)st.st_size, err);
    if (!rc)
        rc = read_tokens(b, err);
    if (rc) {
        ntx_base_close(b);
        return rc;
    }
    *out = b;
    return 0;
}

const struct ntx_base_head *ntx_base_head(const struct ntx_base_reader *b) { return &b->head; }
const int32_t *ntx_base_tokens(const struct ntx_base_reader *b) { return b->tokens; }

int ntx_base_read(struct ntx_base_reader *b, struct ntx_base_row *r, struct ntx_err *err)
{
    uint8_t head[ROW_HEAD];
    uint32_t n = b->head.n_vocab;
    if (b->row == (uint64_t)b->head.windows * b->head.scored || fread(head, sizeof head, 1, b->f) != 1 ||
        fread(r->q, sizeof *r->q, n, b->f) != n)
        return refuse_base(b, err, "the file ended early");
    memcpy(&r->nll, head, 8);
    memcpy(&r->step, head + 8, 4);
    r->top = get32(head + 12);
    if (!isfinite(r->nll) || !(r->step >= 0 && r->step <= SPAN / LEVELS * 1.001) || r->top >= n || r->q[r->top])
        return refuse_base(b, err, "a row of it is damaged");
    b->row++;
    return 0;
}

void ntx_base_close(struct ntx_base_reader *b)
{
    if (!b)
        return;
    if (b->f)
        fclose(b->f);
    free(b->tokens);
    free(b->path);
    free(b);
}
