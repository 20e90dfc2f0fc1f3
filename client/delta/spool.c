/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/delta/make_impl.h"
#include "common/util.h"

#define COPY_BYTES (1u << 20)

int ntx__spool_open(const char *beside, struct ntx__spool *s, struct ntx_err *err)
{
    char path[4096];
    s->fd = -1;
    if (snprintf(path, sizeof path, "%s.XXXXXX", beside) >= (int)sizeof path)
        return ntx_err_set(err, -ENAMETOOLONG, "%s: the name is too long", beside);
    s->fd = mkstemp(path);
    if (s->fd < 0)
        return ntx_err_set(err, -errno, "%s: %s", beside, strerror(errno));
    unlink(path);
    return 0;
}

void ntx__spool_close(struct ntx__spool *s)
{
    if (s->fd >= 0)
        close(s->fd);
}

struct ntx__spooled ntx__spool_take(struct ntx__spool *s, uint64_t bytes)
{
    return (struct ntx__spooled){atomic_fetch_add(&s->end, bytes), bytes};
}

int ntx__spool_write(const struct ntx__spool *s, const struct ntx__spooled *to, uint64_t at, const void *from,
                     uint64_t n, struct ntx_err *err)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t got = pwrite(s->fd, (const char *)from + done, n - done, (off_t)(to->at + at + done));
        if (got <= 0)
            return ntx_err_set(err, got ? -errno : -ENOSPC, "cannot keep the results beside the output: %s",
                               strerror(got ? errno : ENOSPC));
        done += (uint64_t)got;
    }
    return 0;
}

int ntx__copy(int from, uint64_t at, uint64_t bytes, int to, const char *what, struct ntx_err *err)
{
    uint8_t *buf = malloc(COPY_BYTES);
    int rc = buf ? 0 : ntx_err_set(err, -ENOMEM, "no memory");
    while (bytes && !rc) {
        ssize_t got = pread(from, buf, NTX_MIN(bytes, (uint64_t)COPY_BYTES), (off_t)at);
        if (got <= 0)
            rc = ntx_err_set(err, got ? -errno : -ENODATA, "tensor '%s' cannot be read: %s", what,
                             got ? strerror(errno) : "the file ends");
        else if (!(rc = ntx_write_all(to, buf, (size_t)got)))
            at += (uint64_t)got, bytes -= (uint64_t)got;
    }
    free(buf);
    return rc;
}
