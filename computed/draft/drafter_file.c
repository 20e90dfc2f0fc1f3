/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/draft/drafter_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/draft/draft_index.h"
#include "computed/draft/drafter_file_impl.h"

static const struct {
    const char *magic, *name;
    const struct ntx_drafter_file_ops *ops; /* NULL: it runs in ntx-predictor */
    unsigned times;                         /* memory, in multiples of the file's size */
} kinds[NTX_DRAFTER_FILE_KINDS] = {
    [NTX_DRAFTER_FILE_MODEL] = {"GGUF", "model", NULL, 0},
    [NTX_DRAFTER_FILE_INDEX] = {NTX_DRAFT_INDEX_MAGIC, "index", &ntx__draft_index, 1},
#ifdef NTX_TEST_POLICIES
    [NTX_DRAFTER_FILE_SCRIPT] = {"ntx-script", "script", &ntx__draft_script, 3},
#endif
};

struct ntx_drafter_file {
    const struct ntx_drafter_file_ops *ops;
    void *self;
};

const char *ntx_drafter_file_name(enum ntx_drafter_file_kind kind) { return kinds[kind].name; }

static ssize_t read_at(int fd, void *to, size_t n, uint64_t at)
{
    size_t done = 0;
    while (done < n) {
        ssize_t k = pread(fd, (char *)to + done, n - done, (off_t)(at + done));
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -errno;
        if (!k)
            break;
        done += (size_t)k;
    }
    return (ssize_t)done;
}

int ntx__drafter_file_kind(int fd, enum ntx_drafter_file_kind *kind, uint64_t *bytes, struct ntx_err *err)
{
    char begin[16] = {0};
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return ntx_err_set(err, -EINVAL, "not a regular file");
    ssize_t n = read_at(fd, begin, sizeof begin, 0);
    if (n < 0)
        return ntx_err_set(err, (int)n, "%s", strerror((int)-n));
    for (unsigned k = 0; k < NTX_DRAFTER_FILE_KINDS; k++)
        if (kinds[k].magic && !strncmp(begin, kinds[k].magic, strlen(kinds[k].magic))) {
            *kind = (enum ntx_drafter_file_kind)k;
            *bytes = (uint64_t)st.st_size;
            return 0;
        }
    return ntx_err_set(err, -EINVAL,
                       "this file is neither a small model (GGUF), nor an index of `ntx draft-index`, nor a script");
}

unsigned ntx__drafter_file_times(enum ntx_drafter_file_kind kind) { return kinds[kind].times; }

bool ntx_drafter_file_card(const struct ntx_gguf *model, const char *model_path, char *path, size_t room)
{
    struct ntx_str name;
    const char *slash = strrchr(model_path, '/');
    if (ntx_gguf_str(model, "ntx.drafter", &name) || !name.n || memchr(name.p, '/', name.n) ||
        memchr(name.p, 0, name.n) || name.n > 255)
        return false;
    int n = snprintf(path, room, "%.*s%.*s", slash ? (int)(slash + 1 - model_path) : 0, model_path, (int)name.n,
                     name.p);
    return n > 0 && (size_t)n < room;
}

bool ntx_drafter_file_self(const char *model_path, char *path, size_t room)
{
    size_t n = strlen(model_path);
    unsigned part, parts;
    char end;
    if (n > 5 && !strcmp(model_path + n - 5, ".gguf"))
        n -= 5;
    if (n > 15 && sscanf(model_path + n - 15, "-%5u-of-%5u%c", &part, &parts, &end) >= 2 && model_path[n - 15] == '-')
        n -= 15;
    int all = snprintf(path, room, "%.*s" NTX_DRAFTER_FILE_SELF, (int)n, model_path);
    return all > 0 && (size_t)all < room;
}

static int open_regular(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || (!fstat(fd, &st) && S_ISREG(st.st_mode)))
        return fd;
    close(fd);
    return -1;
}

int ntx_drafter_file_found(const struct ntx_gguf *model, const char *model_path)
{
    char path[4096];
    int fd = ntx_drafter_file_card(model, model_path, path, sizeof path) ? open_regular(path) : -1;
    return fd < 0 && ntx_drafter_file_self(model_path, path, sizeof path) ? open_regular(path) : fd;
}

/* Two sums of its size and of 64 blocks of its bytes, like a model's digest. */
int ntx_drafter_file_digest(int fd, char out[NTX_DRAFTER_FILE_TEXT], struct ntx_err *err)
{
    uint64_t a = 0xcbf29ce484222325u, b = 0x84222325cbf29ce4u;
    unsigned char block[4096];
    struct stat st;
    ssize_t n = fstat(fd, &st) ? -errno : 0;
    uint64_t size = n ? 0 : (uint64_t)st.st_size, every = size / 64 + 1;
    for (uint64_t at = 0; n >= 0 && at < size; at += every) {
        n = read_at(fd, block, NTX_MIN(sizeof block, every), at);
        for (ssize_t i = 0; i < n; i++) {
            a = (a ^ block[i]) * 0x100000001b3u;
            b = (b ^ block[i]) * 0x100000001b3u + 0x9e3779b97f4a7c15u;
        }
    }
    if (n < 0)
        return ntx_err_set(err, (int)n, "the drafter: %s", strerror((int)-n));
    snprintf(out, NTX_DRAFTER_FILE_TEXT, "%016" PRIx64 "%016" PRIx64, a ^ size, b);
    return 0;
}

static int read_whole(int fd, uint64_t n, uint8_t **out, struct ntx_err *err)
{
    uint8_t *bytes = malloc(n + 1);
    ssize_t got = bytes ? read_at(fd, bytes, n, 0) : -ENOMEM;
    if (got != (ssize_t)n) {
        free(bytes);
        return ntx_err_set(err, got < 0 ? (int)got : -EIO, "%s",
                           got < 0 ? strerror((int)-got) : "it became shorter while it was read");
    }
    bytes[n] = 0;
    *out = bytes;
    return 0;
}

int ntx_drafter_file_new(int fd, const struct ntx_gguf *model, struct ntx_drafter_file **out, struct ntx_err *err)
{
    enum ntx_drafter_file_kind kind = NTX_DRAFTER_FILE_MODEL;
    uint64_t n = 0, vocab = 0;
    uint32_t n_vocab = 0;
    uint8_t *bytes = NULL;
    struct ntx_drafter_file *g = calloc(1, sizeof *g);
    int rc = g ? ntx__drafter_file_kind(fd, &kind, &n, err) : ntx_err_set(err, -ENOMEM, "no memory");
    if (!rc && !kinds[kind].ops)
        rc = ntx_err_set(err, -EINVAL, "a draft model runs in ntx-predictor");
    if (!rc)
        rc = ntx_draft_index_vocab(model, &n_vocab, &vocab, err);
    if (!rc)
        rc = read_whole(fd, n, &bytes, err);
    if (!rc && (rc = kinds[kind].ops->open(bytes, n, n_vocab, vocab, &g->self, err)))
        free(bytes);
    if (rc) {
        free(g);
        ntx_err_prefix(err, "the drafter");
        return rc;
    }
    g->ops = kinds[kind].ops;
    *out = g;
    return 0;
}

void ntx_drafter_file_free(struct ntx_drafter_file *g)
{
    if (!g)
        return;
    g->ops->free(g->self);
    free(g);
}

uint32_t ntx_drafter_file_tree(const struct ntx_drafter_file *g, const struct ntx_drafter_file_text *t,
                               struct ntx_draft_node *out)
{
    out[0] = (struct ntx_draft_node){t->tokens[t->n - 1], 0, 1};
    return g->ops->tree(g->self, t, out);
}
