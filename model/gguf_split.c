/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_split.c: the file names of a split model. A name like "x-00001-of-00003.gguf" gives the number of parts,
 * unless the keys of that file say that it is whole. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/gguf_part.h"
#include "model/planes.h"

#define MAX_PARTS  128
#define SUFFIX     "-00001-of-00003.gguf"
#define SUFFIX_LEN (sizeof SUFFIX - 1)

static bool parse_digits(const char *s, unsigned *v)
{
    *v = 0;
    for (int i = 0; i < 5; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        *v = *v * 10 + (unsigned)(s[i] - '0');
    }
    return true;
}

/* The path ends like a part of a split model. */
static bool parse_suffix(const char *path, unsigned *no, unsigned *count)
{
    size_t n = strlen(path);
    if (n < SUFFIX_LEN)
        return false;
    const char *s = path + n - SUFFIX_LEN;
    return s[0] == '-' && parse_digits(s + 1, no) && !memcmp(s + 6, "-of-", 4) && parse_digits(s + 10, count) &&
           !strcmp(s + 15, ".gguf");
}

static void free_paths(char **paths, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        free(paths[i]);
    free(paths);
}

/* Paths of all parts, from the path of one of them. */
static int list_parts(const char *path, unsigned count, char ***paths, struct ntx_err *err)
{
    char **list = calloc(count, sizeof *list);
    int stem = (int)(strlen(path) - SUFFIX_LEN);
    for (unsigned i = 0; list && i < count; i++)
        if (asprintf(&list[i], "%.*s-%05u-of-%05u.gguf", stem, path, i + 1, count) < 0) {
            free_paths(list, i);
            list = NULL;
        }
    if (!list)
        return ntx_err_set(err, -ENOMEM, "no memory for %u paths", count);
    *paths = list;
    return (int)count;
}

static int list_one(const char *path, char ***paths, struct ntx_err *err)
{
    char **list = calloc(1, sizeof *list);
    if (!list || !(list[0] = strdup(path))) {
        free(list);
        return ntx_err_set(err, -ENOMEM, "no memory for a path");
    }
    *paths = list;
    return 1;
}

/* The file exists, and its keys do not say that it is a part. */
static bool is_whole(const char *path)
{
    struct ntx__gguf_part p = {0};
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    bool whole = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode);
    if (whole)
        whole = !ntx__gguf_part_read(&(struct ntx__gguf_source){.fd = fd, .file_bytes = (uint64_t)st.st_size}, &p,
                                     NULL);
    for (uint64_t i = 0; i < p.n_kv && whole; i++) {
        static const char key[] = "split.count";
        uint64_t count;
        if (p.kv[i].key.n == sizeof key - 1 && !memcmp(p.kv[i].key.p, key, sizeof key - 1))
            whole = !ntx__gguf_kv_u64(&p.kv[i], &count) && count <= 1;
    }
    ntx__gguf_part_free(&p);
    if (fd >= 0)
        close(fd);
    return whole;
}

/* Whether the file begins like one of low bits, whose first key says so. */
static bool is_low(const char *path)
{
    static const char key[] = NTX_PLANES_PART, value[] = "low";
    enum { HEAD = 24, KEY = sizeof key - 1, VALUE = sizeof value - 1 };
    uint8_t want[8 + KEY + 4 + 8 + VALUE] = {KEY}, got[HEAD + sizeof want];
    memcpy(want + 8, key, KEY);
    want[8 + KEY] = NTX_GGUF_STR;
    want[8 + KEY + 4] = VALUE;
    memcpy(want + 8 + KEY + 4 + 8, value, VALUE);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    ssize_t n = -1;
    if (fd >= 0) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* no read-ahead: the page cache is left to others */
        n = pread(fd, got, sizeof got, 0);
        posix_fadvise(fd, 0, 4096, POSIX_FADV_DONTNEED);
        close(fd);
    }
    return n == sizeof got && !memcmp(got, "GGUF", 4) && !memcmp(got + HEAD, want, sizeof want);
}

/* "x.draft.gguf" beside "x.gguf"; malloc'd, or NULL if there is none. */
static char *high_path(const char *path)
{
    size_t n = strlen(path);
    char *high = NULL;
    if (n > 5 && !strcmp(path + n - 5, ".gguf"))
        n -= 5;
    if (asprintf(&high, "%.*s" NTX_PLANES_HIGH_FILE, (int)n, path) < 0)
        return NULL;
    if (!access(high, F_OK))
        return high;
    free(high);
    return NULL;
}

/* A link's file may have its high bits beside it. */
static int list_planes(const char *path, char ***paths, struct ntx_err *err)
{
    char *high = high_path(path), *real = high ? NULL : realpath(path, NULL), **list;
    if (real)
        high = high_path(real);
    free(real);
    if (!high)
        return ntx_err_set(err, -ENOENT,
                           "%s has only the low bits of a model: the file with its high bits (%s), which ntx pack "
                           "--planes wrote with it, must be beside it",
                           path, NTX_PLANES_HIGH_FILE);
    int rc = list_one(path, &list, err);
    char **two = rc == 1 ? realloc(list, 2 * sizeof *two) : NULL;
    if (!two) {
        free(high);
        if (rc == 1)
            free_paths(list, 1);
        return ntx_err_set(err, -ENOMEM, "no memory for two paths");
    }
    two[1] = high;
    *paths = two;
    return 2;
}

int ntx_gguf_split_paths(const char *path, char ***paths, struct ntx_err *err)
{
    unsigned no, count;
    int rc;
    char *real = NULL;
    const char *name = path;
    if (!parse_suffix(name, &no, &count)) { /* a link with another name may point to a part */
        real = realpath(path, NULL);
        if (!real || !parse_suffix(real, &no, &count)) {
            free(real);
            return is_low(path) ? list_planes(path, paths, err) : list_one(path, paths, err);
        }
        name = real;
    }
    if (is_whole(path))
        rc = list_one(path, paths, err);
    else if (!count || count > MAX_PARTS || !no || no > count)
        rc = ntx_err_set(err, -EINVAL, "%s: its name says part %u of %u; 1 to %u parts are read", path, no, count,
                         MAX_PARTS);
    else if (no != 1)
        rc = ntx_err_set(err, -EINVAL,
                         "%s: this is part %u of a split model; give its first part (-00001-of-%05u.gguf)", path, no,
                         count);
    else
        rc = list_parts(name, count, paths, err);
    free(real);
    return rc;
}
