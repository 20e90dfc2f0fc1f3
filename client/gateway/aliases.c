/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/aliases.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "client/pull/place.h"
#include "client/pull/store.h"
#include "proto/frame.h"

#define FILE_NAME "aliases.json"
#define FILE_NEW  ".aliases.json.new"
enum { ALIASES_MOST = 256 };

bool ntx_alias_valid(const char *name)
{
    if (!isalnum((unsigned char)*name) || strlen(name) >= NTX_KNOWN_NAME)
        return false;
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-:/", *c))
            return false;
    return true;
}

/* The folder of models; -ENOENT where it does not exist, and is not made. */
static int open_folder(bool make, struct ntx_err *err)
{
    char dir[1024];
    int rc = ntx_store_dir(dir, sizeof dir, err);
    return rc ? rc : ntx_place_open(dir, "", make, err);
}

/* All aliases; an object, also if there is no file or it is broken. NULL: no memory. */
static json_t *read_aliases(int folder)
{
    int fd = folder < 0 ? -1 : openat(folder, FILE_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    json_t *j = fd < 0 ? NULL : json_loadfd(fd, 0, NULL);
    if (fd >= 0)
        close(fd);
    if (json_is_object(j) && json_object_size(j) <= ALIASES_MOST)
        return j;
    json_decref(j);
    return json_object();
}

static int write_aliases(int folder, const json_t *all, struct ntx_err *err)
{
    int fd = openat(folder, FILE_NEW, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    int rc = fd < 0 ? -errno : 0;
    if (!rc && json_dumpfd(all, fd, JSON_INDENT(1)))
        rc = -EIO;
    if (fd >= 0 && close(fd) && !rc)
        rc = -errno;
    if (!rc && renameat(folder, FILE_NEW, folder, FILE_NAME))
        rc = -errno;
    return rc ? ntx_err_set(err, rc, "%s in the folder of models: %s", FILE_NAME, strerror(-rc)) : 0;
}

/* The path of an alias as the file has it; NULL: it is none. */
static const char *path_of(const json_t *alias)
{
    return json_string_value(json_is_object(alias) ? json_object_get(alias, "path") : alias);
}

static void add_alias(json_t *model, const char *name, const json_t *alias)
{
    json_t *made = json_object_get(model, "made");
    json_array_append_new(json_object_get(model, "names"), json_string(name));
    json_array_append_new(json_object_get(model, "aliases"), json_string(name));
    if (json_is_object(alias))
        json_object_set_new(made, name, json_deep_copy(alias));
}

const json_t *ntx_aliases_made(const json_t *models, const char *name)
{
    const json_t *m, *made;
    const char *each;
    size_t i;
    const size_t n = strlen(name), bare = n > 7 && !strcasecmp(name + n - 7, ":latest") ? n - 7 : n;
    json_array_foreach(models, i, m)
        json_object_foreach(json_object_get(m, "made"), each, made)
            if (!strcasecmp(each, name) || (!strncasecmp(each, name, bare) && !each[bare]))
                return made;
    return NULL;
}

void ntx_aliases_add(json_t *models)
{
    struct ntx_err ignored;
    int folder = open_folder(false, &ignored);
    json_t *all = folder < 0 ? NULL : read_aliases(folder), *path, *m;
    const char *name;
    size_t i;
    if (folder >= 0)
        close(folder);
    json_array_foreach(models, i, m) {
        const char *at = json_string_value(json_object_get(m, "path"));
        json_object_set_new(m, "aliases", json_array());
        json_object_set_new(m, "made", json_object());
        json_object_foreach(all, name, path)
            if (at && path_of(path) && !strcmp(path_of(path), at) && ntx_alias_valid(name))
                add_alias(m, name, path);
    }
    json_decref(all);
}

/* The alias as it is written in the file: case does not matter. */
static const char *spelling_of(json_t *all, const char *name)
{
    const char *each;
    json_t *path;
    json_object_foreach(all, each, path)
        if (!strcasecmp(each, name))
            return each;
    return NULL;
}

static json_t *alias_of(const char *path, const json_t *made)
{
    json_t *alias = json_object_size(made) ? json_deep_copy(made) : NULL;
    if (!alias)
        return json_string(path);
    json_object_set_new(alias, "path", json_string(path));
    return alias;
}

int ntx_aliases_set(const char *name, const char *path, const json_t *made, struct ntx_err *err)
{
    int folder = open_folder(path != NULL, err);
    if (folder < 0)
        return folder;
    json_t *all = read_aliases(folder);
    const char *was = spelling_of(all, name);
    int rc = all ? 0 : ntx_err_set(err, -ENOMEM, "no memory");
    if (!rc && !was && !path)
        rc = -ENOENT;
    if (!rc && was)
        json_object_del(all, was);
    if (!rc && path && json_object_size(all) >= ALIASES_MOST)
        rc = ntx_err_set(err, -E2BIG, "there are %d aliases already: delete some", ALIASES_MOST);
    if (!rc && path)
        json_object_set_new(all, name, alias_of(path, made));
    rc = rc ? rc : write_aliases(folder, all, err);
    json_decref(all);
    close(folder);
    return rc;
}

int ntx_aliases_drop(const char *path, struct ntx_err *err)
{
    int folder = open_folder(false, err);
    if (folder < 0)
        return folder == -ENOENT ? 0 : folder;
    json_t *all = read_aliases(folder), *at;
    const size_t n = json_object_size(all);
    const char *name;
    void *next;
    json_object_foreach_safe(all, next, name, at) if (path_of(at) && !strcmp(path_of(at), path))
        json_object_del(all, name);
    int rc = json_object_size(all) == n ? 0 : write_aliases(folder, all, err);
    json_decref(all);
    close(folder);
    return rc;
}
