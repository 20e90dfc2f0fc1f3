/* SPDX-License-Identifier: Apache-2.0 */
/* The models of `ntx serve MODEL...` as a list for ntx-computed (computed/engine/catalog.h). */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/commands/serve_list.h"
#include "client/pull/place.h"
#include "client/pull/store.h"

static int add_entry(char list[NTX_KNOWN_LIST], const char *name, const char *path, struct ntx_err *err)
{
    const size_t n = strlen(list);
    if (strchr(path, ',') || strpbrk(name, ",/="))
        return ntx_err_set(err, -EINVAL,
                           "%s: names and paths of models have no commas; names have no '/' or '=', either",
                           strchr(path, ',') ? path : name);
    if (n + strlen(name) + strlen(path) + 3 > NTX_KNOWN_LIST)
        return ntx_err_set(err, -E2BIG, "the paths of all models together have up to %u bytes", NTX_KNOWN_LIST);
    snprintf(list + n, NTX_KNOWN_LIST - n, "%s%s%s,", name, *name ? "=" : "", path);
    return 0;
}

/* The real path of a file, a folder, or a model of `ntx list`; malloc'd. */
static int find_path(const char *what, char **real, bool *named, struct ntx_err *err)
{
    char path[1400];
    const char *p = what;
    struct stat st;
    int rc = stat(what, &st) || !S_ISDIR(st.st_mode) ? ntx_model_by_name(&p, path, err) : 0;
    if (rc)
        return rc;
    *named = p != what;
    if ((*real = realpath(p, NULL)))
        return 0;
    struct ntx_near near;
    ntx_model_near(what, &near);
    return ntx_err_set(err, -errno, "%s: %s%s", what, strerror(errno),
                       *near.hint ? near.hint : "; give the path of a GGUF file, or a name of `ntx list`");
}

static int add_model(struct ntx_options *o, unsigned i, char list[NTX_KNOWN_LIST], struct ntx_err *err)
{
    static char first[PATH_MAX]; /* options borrow their arguments until the program ends */
    char name[NTX_KNOWN_NAME] = "", *real = NULL;
    const char *arg = o->args[i], *equals = strchr(arg, '='), *slash = strchr(arg, '/');
    const bool given = equals && (!slash || equals < slash) && equals - arg < (int)sizeof name;
    const char *what = given ? equals + 1 : arg;
    bool named = false;
    struct stat st;
    int rc = find_path(what, &real, &named, err);
    if (rc)
        return rc;
    if (given)
        snprintf(name, sizeof name, "%.*s", (int)(equals - arg), arg);
    else if (named && !strpbrk(what, ",/="))
        snprintf(name, sizeof name, "%s", what);
    if (!i) {
        snprintf(first, sizeof first, "%s", real);
        o->args[0] = first;
    }
    if (!i && o->alias)
        rc = stat(real, &st) || !S_ISDIR(st.st_mode)
                 ? add_entry(list, o->alias, real, err)
                 : ntx_err_set(err, -EINVAL, "--alias: the first MODEL is a folder; write NAME=FILE instead");
    if (!rc)
        rc = add_entry(list, name, real, err);
    free(real);
    return rc;
}

/* Models that requests pull are in ntx's own folder; it is made now, so that it is in the list as a folder. */
static int add_own_folder(char list[NTX_KNOWN_LIST], struct ntx_err *err)
{
    char dir[1024];
    int rc = ntx_store_dir(dir, sizeof dir, err), fd = rc ? rc : ntx_place_open(dir, "", true, err);
    if (fd < 0)
        return fd;
    close(fd);
    return add_entry(list, "", dir, err);
}

int ntx_serve_list(struct ntx_options *o, char list[NTX_KNOWN_LIST], struct ntx_err *err)
{
    int rc = 0;
    *list = 0;
    if (o->n_args > 1 && (o->n_also || o->sidecar))
        return ntx_err_set(err, -ENOTSUP, "%s belongs to one model: serve that one alone",
                           o->n_also ? "--also" : "--sidecar");
    for (unsigned i = 0; i < o->n_args && !rc; i++)
        rc = add_model(o, i, list, err);
    const bool manages = o->manage_key_file || (o->manage && !strcmp(o->manage, "yes"));
    return rc || !manages ? rc : add_own_folder(list, err);
}
