/* gguf_split.c: the file names of a split model. "x-00001-of-00003.gguf" names its own place; no file is opened. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gguf.h"

#define MAX_PARTS 128
#define SUFFIX "-00001-of-00003.gguf"
#define SUFFIX_LEN (sizeof SUFFIX - 1)

static bool digits(const char *s, unsigned *v)
{
    *v = 0;
    for (int i = 0; i < 5; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        *v = *v * 10 + (unsigned)(s[i] - '0');
    }
    return true;
}

/* Whether the path ends as a part of a split model does. */
static bool parse_suffix(const char *path, unsigned *no, unsigned *count)
{
    size_t n = strlen(path);
    if (n < SUFFIX_LEN)
        return false;
    const char *s = path + n - SUFFIX_LEN;
    return s[0] == '-' && digits(s + 1, no) && !memcmp(s + 6, "-of-", 4) && digits(s + 10, count) && !strcmp(s + 15, ".gguf");
}

static void free_paths(char **paths, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        free(paths[i]);
    free(paths);
}

int ntx_gguf_split_paths(const char *path, char ***paths, struct ntx_err *err)
{
    unsigned no = 1, count = 1;
    bool split = parse_suffix(path, &no, &count);
    if (split && (!count || count > MAX_PARTS || !no || no > count))
        return ntx_err_set(err, -EINVAL, "%s: its name says part %u of %u; 1 to %u parts are read", path, no, count, MAX_PARTS);
    if (no != 1)
        return ntx_err_set(err, -EINVAL, "%s: this is part %u of a split model; give its first part (-00001-of-%05u.gguf)", path, no, count);
    char **list = calloc(count, sizeof *list);
    if (!list)
        return ntx_err_set(err, -ENOMEM, "no memory for %u paths", count);
    int stem = (int)(strlen(path) - SUFFIX_LEN);
    for (unsigned i = 0; i < count; i++) {
        int n = split ? asprintf(&list[i], "%.*s-%05u-of-%05u.gguf", stem, path, i + 1, count) : asprintf(&list[i], "%s", path);
        if (n < 0) {
            free_paths(list, i);
            return ntx_err_set(err, -ENOMEM, "no memory for %u paths", count);
        }
    }
    *paths = list;
    return (int)count;
}
