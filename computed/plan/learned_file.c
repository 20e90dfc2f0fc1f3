/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/plan/learned_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "computed/plan/hw.h"

/* service 1: the service's path, else the user's. */
static int learned_path(const char *folder, const char *digest, int service, char *path, unsigned n)
{
    char profile[3072] = NTX_HW_SERVICE_PATH;
    int rc = service ? 0 : ntx_hw_user_path(profile, sizeof profile);
    if (rc)
        return rc;
    *strrchr(profile, '/') = 0;
    return snprintf(path, n, "%s/%s/%s.json", profile, folder, digest) < (int)n ? 0 : -ENAMETOOLONG;
}

static int read_file(const char *path, uint32_t most, char *text)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return -errno;
    size_t n = fread(text, 1, most, f);
    int rc = n == most ? -EFBIG : 0;
    if (ferror(f))
        rc = -EIO;
    text[rc ? 0 : n] = 0;
    fclose(f);
    return rc;
}

int ntx_learned_read(const char *folder, const char *digest, uint32_t most, char **text, struct ntx_err *err)
{
    char path[4096];
    char *buf = malloc(most + 1);
    int rc = buf ? -ENOENT : -ENOMEM;
    for (int service = 0; service < 2 && rc == -ENOENT; service++)
        rc = learned_path(folder, digest, service, path, sizeof path) ? -ENOENT : read_file(path, most, buf);
    if (!rc) {
        *text = buf;
        return 0;
    }
    free(buf);
    return rc == -ENOENT ? rc : ntx_err_set(err, rc, "%s: %s", path, strerror(-rc));
}

int ntx_learned_store(const char *folder, const char *digest, const char *text, unsigned mode)
{
    char path[4096];
    struct ntx_err why = {0};
    int rc = -ENOENT;
    for (int service = 0; service < 2; service++)
        if (!learned_path(folder, digest, service, path, sizeof path) &&
            !(rc = ntx_hw_store_as(path, text, mode, &why)))
            break;
    return rc;
}
