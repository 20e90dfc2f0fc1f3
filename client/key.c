/* SPDX-License-Identifier: Apache-2.0 */
#include "client/key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"

enum { LEAST = 8, MOST = 512 };

static int check_file(int fd, const char *path, struct ntx_err *err)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st))
        return ntx_err_set(err, -errno, "%s: the API key cannot be read: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return ntx_err_set(err, -EINVAL, "%s: no regular file", path);
    if (st.st_mode & 077)
        return ntx_err_set(err, -EINVAL, "%s: others may read the API key: chmod 600 %s", path, path);
    return 0;
}

/* Checks the key; removes the newline. */
static bool is_key(char *key)
{
    size_t len = strcspn(key, "\r\n");
    bool good = len >= LEAST && len <= MOST && strspn(key + len, "\r\n") == strlen(key + len);
    key[len] = 0;
    for (size_t i = 0; i < len; i++)
        good &= key[i] > ' ' && key[i] < 127;
    return good;
}

int ntx_key_read(const char *path, char key[NTX_KEY_ROOM], struct ntx_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = check_file(fd, path, err);
    ssize_t n = rc ? 0 : read(fd, key, NTX_KEY_ROOM - 1);
    if (fd >= 0)
        close(fd);
    key[NTX_MAX(n, 0)] = 0;
    if (!rc && !is_key(key))
        rc = ntx_err_set(err, -EINVAL, "%s: an API key is one line of %d to %d printable characters without blanks",
                         path, LEAST, MOST);
    return rc;
}
