/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning of `ntx pull` and `ntx search`: the token, the hub, and the model that a name means. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "client/commands/pull.h"
#include "client/key.h"
#include "client/pull/names.h"

/* ---- the token */

static bool is_token(const char *t)
{
    for (const char *c = t; *c; c++)
        if (*c <= ' ' || *c > '~')
            return false;
    return *t;
}

/* Reads the token from $HF_TOKEN or a file. token "": there is none. */
static int get_token(const struct ntx_options *o, char token[NTX_KEY_ROOM], struct ntx_err *err)
{
    char path[1024];
    const char *env = getenv("HF_TOKEN"), *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    *token = 0;
    if (o->token_file)
        return ntx_key_read(o->token_file, token, err);
    if (env && *env)
        return is_token(env) && (size_t)snprintf(token, NTX_KEY_ROOM, "%s", env) < NTX_KEY_ROOM
                   ? 0
                   : ntx_err_set(err, -EINVAL, "HF_TOKEN is no token");
    if (config && *config)
        snprintf(path, sizeof path, "%s/ntx/token", config);
    else
        snprintf(path, sizeof path, "%s/.config/ntx/token", home ? home : "");
    return access(path, F_OK) ? 0 : ntx_key_read(path, token, err);
}

int ntx__pull_web(const struct ntx_options *o, struct ntx_web **w, struct ntx_err *err)
{
    char token[NTX_KEY_ROOM];
    int rc = get_token(o, token, err);
    if (!rc)
        rc = ntx_web_open(ntx_hub_address(), *token ? token : NULL, o->stall_s, w, err);
    explicit_bzero(token, sizeof token);
    return rc;
}

/* ---- the name */

static int refuse_name(const char *name, struct ntx_err *err)
{
    return ntx_err_set(err, -EINVAL,
                       "'%.120s' names no model of the hub: write hf:OWNER/REPO or hf:OWNER/REPO:TYPE, as "
                       "hf:someone/Some-Model-GGUF:Q4_K_M",
                       name);
}

/* Types are given by their name, or by that of their file without .gguf. */
static bool is_type_word(const char *type)
{
    for (const char *c = type; *c; c++)
        if (*c < ' ' || *c > '~' || strchr("/\\:", *c))
            return false;
    return *type && !strchr(".- ", *type);
}

/* "OWNER/REPO" or "OWNER/REPO:TYPE". */
static int read_repo(const char *name, struct ntx_pull_what *what, struct ntx_err *err)
{
    const char *colon = strchr(name, ':');
    size_t n = colon ? (size_t)(colon - name) : strlen(name);
    if (n >= sizeof what->repo || (colon && (!is_type_word(colon + 1) || strlen(colon + 1) >= sizeof what->type)))
        return refuse_name(name, err);
    snprintf(what->repo, sizeof what->repo, "%.*s", (int)n, name);
    if (colon)
        snprintf(what->type, sizeof what->type, "%s", colon + 1);
    return ntx_hub_is_name(what->repo) ? 0 : refuse_name(name, err);
}

static int refuse_short(const struct ntx_names *names, const char *name, struct ntx_err *err)
{
    const char *near = ntx_names_nearest(names, name);
    if (near)
        return ntx_err_set(err, -ENOENT,
                           "'%.80s' is no short name (did you mean '%s'?): `ntx pull --list` lists them, `ntx search "
                           "%.80s` asks the hub",
                           name, near, name);
    return ntx_err_set(err, -ENOENT,
                       "'%.80s' is no short name: `ntx pull --list` lists them, `ntx search %.80s` asks the hub, and "
                       "hf:OWNER/REPO names a model there",
                       name, name);
}

/* "NAME" or "NAME:TYPE". */
static int read_short(const char *name, struct ntx_pull_what *what, struct ntx_err *err)
{
    struct ntx_names *names = NULL;
    char first[128];
    const char *colon = strchr(name, ':'), *means = NULL;
    snprintf(first, sizeof first, "%.*s", colon ? (int)(colon - name) : (int)sizeof first - 1, name);
    int rc = ntx_names_open(&names, err);
    if (!rc && !(means = ntx_names_find(names, first)))
        rc = refuse_short(names, first, err);
    if (!rc && ntx_hub_is_url(means))
        snprintf(what->url, sizeof what->url, "%s", means);
    else if (!rc)
        rc = read_repo(means, what, err);
    ntx_names_free(names);
    if (rc || !colon)
        return rc;
    if (*what->url || !is_type_word(colon + 1) || strlen(colon + 1) >= sizeof what->type)
        return ntx_err_set(err, -EINVAL, "'%.120s': ':' is followed by no type of this model", name);
    snprintf(what->type, sizeof what->type, "%s", colon + 1); /* instead of one that the name has */
    return 0;
}

int ntx__pull_what(const struct ntx_options *o, struct ntx_pull_what *what, struct ntx_err *err)
{
    const char *name = o->args[0];
    bool hub = !strncasecmp(name, "hf:", 3);
    int rc = 0;
    *what = (struct ntx_pull_what){.repo = ""};
    if (ntx_hub_is_url(name) && strlen(name) < sizeof what->url)
        snprintf(what->url, sizeof what->url, "%s", name);
    else if (hub || strchr(name, '/'))
        rc = read_repo(hub ? name + 3 : name, what, err);
    else
        rc = read_short(name, what, err);
    if (rc || !o->type)
        return rc;
    if (*what->url || !is_type_word(o->type) || strlen(o->type) >= sizeof what->type)
        return ntx_err_set(err, -EINVAL, "--type %.60s: %s", o->type,
                           *what->url ? "an address names one file" : "that is no type");
    if (strchr(hub ? name + 3 : name, ':') && strcasecmp(what->type, o->type))
        return ntx_err_set(err, -EINVAL, "'%.120s' and --type %.60s name two types", name, o->type);
    snprintf(what->type, sizeof what->type, "%s", o->type);
    return 0;
}
