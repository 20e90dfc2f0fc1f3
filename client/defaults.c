/* SPDX-License-Identifier: Apache-2.0 */
#include "client/defaults.h"

#include <errno.h>
#include <ini.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SERVICE "/etc/ntx/ntx.conf"

struct reading {
    struct ntx_defaults *d;
    int (*take)(void *arg, const char *section, const char *name, const char *value,
                struct ntx_err *err); /* NULL: only the model is read */
    void *arg;
    struct ntx_err err;
};

/* Texts that options borrow until the program ends. */
static char *kept_text[NTX_DEFAULTS];
static unsigned n_kept;

static void free_kept(void)
{
    while (n_kept)
        free(kept_text[--n_kept]);
}

static const char *keep_copy(const char *value)
{
    if (n_kept == NTX_DEFAULTS || !(kept_text[n_kept] = strdup(value)))
        return NULL;
    if (!n_kept)
        atexit(free_kept);
    return kept_text[n_kept++];
}

static int on_pair(void *arg, const char *section, const char *name, const char *value)
{
    struct reading *r = arg;
    bool model = !strcmp(section, "model") && !strcmp(name, "path");
    struct ntx_err why = {0};
    if (r->err.code || (model && !*value) || (!model && !r->take))
        return 1;
    const char *kept = keep_copy(value);
    if (!kept)
        return ntx_err_set(&r->err, -E2BIG, "more than %d keys", NTX_DEFAULTS), 0;
    if (model)
        r->d->model = r->d->model ? r->d->model : kept;
    else if (r->take(r->arg, section, name, kept, &why))
        return ntx_err_set(&r->err, -EINVAL, "[%s] %s: %s", section, name, why.text), 0;
    return 1;
}

static int read_one(struct reading *r, const char *path, struct ntx_err *err)
{
    if (access(path, R_OK)) /* the file is optional */
        return 0;
    int bad = ini_parse(path, on_pair, r);
    if (r->err.code)
        return ntx_err_set(err, r->err.code, "%s: %s", path, r->err.text);
    return bad > 0 && r->take ? ntx_err_set(err, -EINVAL, "%s:%d: neither '[section]' nor 'key = value'", path, bad)
                              : 0;
}

int ntx_defaults_read(struct ntx_defaults *d,
                      int (*take)(void *arg, const char *section, const char *name, const char *value,
                                  struct ntx_err *err),
                      void *arg, struct ntx_err *err)
{
    char path[1024];
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    struct reading r = {.d = d, .take = take, .arg = arg};
    if (config && *config)
        snprintf(path, sizeof path, "%s/ntx/ntx.conf", config);
    else
        snprintf(path, sizeof path, "%s/.config/ntx/ntx.conf", home ? home : "");
    int rc = read_one(&r, path, err);
    r.take = NULL;
    return rc ? rc : read_one(&r, SERVICE, err);
}
