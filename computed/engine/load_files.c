/* SPDX-License-Identifier: Apache-2.0 */
/* load_files.c: the files of a load, as received descriptors or as paths that are opened here. Several copies must have
 * the same bytes: a copy that is cut short, quantised otherwise or of another version would give mixed answers. The
 * sizes and a sample of blocks are compared: the start, the end, and places between that follow from the size. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/engine/load.h"
#include "model/mmproj.h"
#include "proto/frame.h"

#define SAMPLES      64
#define SAMPLE_BYTES 4096

/* Opens a path with all its parts, as a client would do it. */
static int open_model_parts(struct ntx_load_request *r, const char *path, struct ntx_err *err)
{
    char **paths = NULL;
    int n = ntx_gguf_split_paths(path, &paths, err), rc = n < 0 ? n : 0;
    if (n + (int)r->n_files > NTX_MAX_FILES)
        rc = ntx_err_set(err, -E2BIG, "%s: %d parts, at most %d are supported", path, n, NTX_MAX_FILES);
    for (int i = 0; i < n; i++) {
        /* does not wait for a pipe: anything but a file is refused when it is read */
        int fd = rc ? -1 : open(paths[i], O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (fd >= 0)
            fcntl(fd, F_SETFL, 0);
        if (!rc && fd < 0)
            rc = ntx_err_set(err, -errno, "%s: cannot open the model: %s", paths[i], strerror(errno));
        if (rc) {
            free(paths[i]);
            continue;
        }
        r->fds[r->n_files] = fd;
        r->names[r->n_files++] = paths[i];
    }
    free(paths);
    return rc;
}

/* Opens the projector beside the model, if there is one. */
static int find_projector(struct ntx_load_request *r, struct ntx_err *err)
{
    char path[NTX_OPTION_MAX];
    struct ntx_gguf *g;
    int rc = ntx_gguf_open(r->fds, r->n_files / r->copies, (const char *const *)r->names, &g, err);
    if (rc)
        return rc;
    if (ntx_mmproj_beside(g, r->path, path, sizeof path))
        r->projector_fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (r->projector_fd >= 0)
        ntx_log(NTX_LOG_INFO, "images go through %s, which lies beside the model", path);
    ntx_gguf_free(g);
    return 0;
}

static int open_paths(struct ntx_load_request *r, struct ntx_err *err)
{
    int rc = open_model_parts(r, r->path, err);
    unsigned parts = r->n_files;
    for (unsigned i = 0; !rc && i < r->n_also; i++) {
        rc = open_model_parts(r, r->also[i], err);
        if (!rc && r->n_files != parts * (i + 2))
            rc = ntx_err_set(err, -EINVAL, "%s: has not as many parts as %s", r->also[i], r->path);
    }
    r->copies = r->n_also + 1;
    if (!rc && !*r->set.mmproj && r->projector_fd < 0)
        rc = find_projector(r, err);
    char name[NTX_LORA_NAME], file[NTX_OPTION_MAX];
    for (unsigned i = 0; !rc && i < ntx_lora_files(r->set.lora); i++) {
        if (r->n_also)
            return ntx_err_set(err, -ENOTSUP, "lora and also do not go together: an adapter has no copies");
        if (!(rc = ntx_lora_file(r->set.lora, i, name, sizeof name, file, sizeof file, err)))
            rc = open_model_parts(r, file, err);
    }
    return rc;
}

static int check_file(int fd, const char *name, struct stat *st, struct ntx_err *err)
{
    int flags = fcntl(fd, F_GETFL);
    if (fstat(fd, st))
        return ntx_err_set(err, -errno, "%s: %s", name, strerror(errno));
    if (!S_ISREG(st->st_mode))
        return ntx_err_set(err, -EINVAL, "%s: not a regular file", name);
    if (flags < 0 || (flags & O_PATH) || (flags & O_ACCMODE) == O_WRONLY)
        return ntx_err_set(err, -EBADF, "%s: not open for reading", name);
    return 0;
}

/* Offset of the i-th sample of a file: the first and the last block, and between them a random one in each interval. */
static uint64_t sample_offset(uint64_t bytes, unsigned i)
{
    uint64_t room = bytes > SAMPLE_BYTES ? bytes - SAMPLE_BYTES : 0, interval = room / (SAMPLES - 1);
    if (i == 0 || i == SAMPLES - 1)
        return i ? room : 0;
    uint64_t random = (bytes ^ i) * 0x9e3779b97f4a7c15u;
    return interval * i + (random >> 20) % (interval + 1);
}

static int same_file(const struct ntx_load_request *r, const struct stat *stamps, unsigned a, unsigned b,
                     struct ntx_err *err)
{
    uint8_t x[SAMPLE_BYTES], y[SAMPLE_BYTES];
    uint64_t bytes = (uint64_t)stamps[a].st_size;
    if (stamps[a].st_size != stamps[b].st_size)
        return ntx_err_set(err, -EINVAL, "%s has %llu bytes and %s %llu: they are not copies of one model", r->names[a],
                           (unsigned long long)bytes, r->names[b], (unsigned long long)stamps[b].st_size);
    for (unsigned i = 0; i < SAMPLES; i++) {
        uint64_t at = sample_offset(bytes, i);
        ssize_t n = pread(r->fds[a], x, sizeof x, (off_t)at), m = pread(r->fds[b], y, sizeof y, (off_t)at);
        if (n < 0 || m < 0)
            return ntx_err_set(err, -errno, "%s: cannot be read: %s", r->names[n < 0 ? a : b], strerror(errno));
        if (n != m || memcmp(x, y, (size_t)n))
            return ntx_err_set(err, -EINVAL, "%s and %s differ near byte %llu: they are not copies of one model",
                               r->names[a], r->names[b], (unsigned long long)at);
    }
    return 0;
}

int ntx__load_files(struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err)
{
    int rc = r->n_files ? 0 : open_paths(r, err);
    if (!rc && r->n_files % r->copies)
        rc = ntx_err_set(err, -EINVAL, "%u files are not %u copies of a model: each path must have as many parts",
                         r->n_files, r->copies);
    for (unsigned i = 0; !rc && i < r->n_files; i++)
        rc = check_file(r->fds[i], r->names[i], &l->stamps[i], err);
    unsigned parts = r->n_files / r->copies;
    for (unsigned i = parts; !rc && i < r->n_files; i++)
        rc = same_file(r, l->stamps, i % parts, i, err);
    if (rc)
        return rc;
    memcpy(l->fds, r->fds, sizeof l->fds);
    memcpy(l->names, r->names, sizeof l->names);
    l->n_files = parts;
    l->n_fds = r->n_files;
    r->n_files = 0;
    return 0;
}
