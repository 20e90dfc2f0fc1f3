/* SPDX-License-Identifier: Apache-2.0 */
#include "client/commands/pictures.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/picture_kind.h"
#include "proto/frame.h"

#define PICTURES_MOST (NTX_FRAME_MAX - (512u << 10)) /* the rest is for the text */

/* Opens a file that is not too large for a request. */
static int open_picture(const char *path, size_t *n, struct ntx_err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return ntx_err_set(err, -errno, "%s: cannot open the picture: %s", path, strerror(errno));
    int rc = 0;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        rc = ntx_err_set(err, -EINVAL, "%s: not a regular file; name a picture", path);
    else if (st.st_size > (off_t)PICTURES_MOST)
        rc = ntx_err_set(err, -EFBIG, "%s: the pictures of a request may have %u MiB together: make it smaller", path,
                         PICTURES_MOST >> 20);
    if (rc) {
        close(fd);
        return rc;
    }
    *n = (size_t)st.st_size;
    return fd;
}

static int read_bytes(int fd, const char *path, uint8_t *to, size_t n, struct ntx_err *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = read(fd, to + done, n - done);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return ntx_err_set(err, k ? -errno : -EIO, "%s: cannot read the picture: %s", path,
                               k ? strerror(errno) : "the file became shorter");
        done += (size_t)k;
    }
    return 0;
}

int ntx_picture_look(const char *path, struct ntx_err *err)
{
    uint8_t first[64];
    size_t n;
    int fd = open_picture(path, &n, err);
    if (fd < 0)
        return fd;
    n = n < sizeof first ? n : sizeof first;
    int rc = read_bytes(fd, path, first, n, err);
    close(fd);
    if (!rc && (rc = ntx_picture_check(first, n, err)))
        ntx_err_prefix(err, "%s", path);
    return rc;
}

static int grow(struct ntx_pictures *p)
{
    Ntx__Image *image = realloc(p->image, (p->n + 1) * sizeof *image);
    if (!image)
        return -ENOMEM;
    p->image = image;
    Ntx__Image **list = realloc(p->list, (p->n + 1) * sizeof *list);
    if (!list)
        return -ENOMEM;
    p->list = list;
    for (unsigned i = 0; i <= p->n; i++)
        p->list[i] = &p->image[i];
    return 0;
}

int ntx_pictures_add(struct ntx_pictures *p, const char *path, struct ntx_err *err)
{
    size_t n;
    int fd = open_picture(path, &n, err), rc = fd < 0 ? fd : 0;
    uint8_t *data = rc ? NULL : malloc(n + 1);
    if (!rc && (!data || grow(p)))
        rc = ntx_err_set(err, -ENOMEM, "no memory for the picture %s", path);
    if (!rc)
        rc = read_bytes(fd, path, data, n, err);
    if (!rc && (rc = ntx_picture_check(data, n, err)))
        ntx_err_prefix(err, "%s", path);
    if (!rc && p->bytes + n > PICTURES_MOST)
        rc = ntx_err_set(err, -EFBIG, "%s: the pictures of a request may have %u MiB together: make them smaller", path,
                         PICTURES_MOST >> 20);
    if (fd >= 0)
        close(fd);
    if (rc) {
        free(data);
        return rc;
    }
    Ntx__Image *m = &p->image[p->n++];
    ntx__image__init(m);
    m->data = (ProtobufCBinaryData){n, data};
    p->bytes += n;
    return 0;
}

int ntx_pictures_add_all(struct ntx_pictures *p, const char *const *paths, unsigned n, struct ntx_err *err)
{
    int rc = 0;
    for (unsigned i = 0; !rc && i < n; i++)
        rc = ntx_pictures_add(p, paths[i], err);
    return rc;
}

void ntx_pictures_before(const struct ntx_pictures *p, unsigned first, unsigned n, Ntx__Message *m)
{
    m->images = n ? p->list + first : NULL;
    m->n_images = n;
}

void ntx_pictures_free(struct ntx_pictures *p)
{
    for (unsigned i = 0; i < p->n; i++)
        free(p->image[i].data.data);
    free(p->image);
    free(p->list);
    *p = (struct ntx_pictures){0};
}
