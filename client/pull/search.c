/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pull/search.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/pull/hub_json.h"
#include "client/pull/curl.h"
#include "client/pull/hub_impl.h"
#include "common/util.h"

static uint64_t count_of(const json_t *j)
{
    return json_is_integer(j) && json_integer_value(j) > 0 ? (uint64_t)json_integer_value(j) : 0;
}

/* ---- the results */

static int by_downloads(const void *a, const void *b)
{
    const struct ntx_found *x = a, *y = b;
    if (x->downloads != y->downloads)
        return x->downloads < y->downloads ? 1 : -1;
    return strcmp(x->name, y->name);
}

static int take_results(const json_t *list, unsigned most, struct ntx_found *out, unsigned *n, struct ntx_err *err)
{
    size_t i;
    json_t *one;
    unsigned k = 0;
    if (!json_is_array(list))
        return ntx_err_set(err, -EPROTO, "the hub's answer is not a list");
    json_array_foreach(list, i, one) {
        const char *id = json_string_value(json_object_get(one, "id"));
        id = id ? id : json_string_value(json_object_get(one, "modelId"));
        if (k == NTX_MIN(most, NTX_SEARCH_MOST) || !id || !ntx_hub_is_name(id))
            continue;
        out[k] = (struct ntx_found){.downloads = count_of(json_object_get(one, "downloads"))};
        snprintf(out[k++].name, sizeof out->name, "%s", id);
    }
    qsort(out, k, sizeof *out, by_downloads);
    *n = k;
    return 0;
}

int ntx_search_parse(const char *text, size_t len, unsigned most, struct ntx_found *out, unsigned *n,
                     struct ntx_err *err)
{
    json_t *list = NULL;
    int rc = ntx__hub_json_parse(text, len, &list, err);
    if (!rc)
        rc = take_results(list, most, out, n, err);
    json_decref(list);
    return rc;
}

int ntx_search(struct ntx_web *w, const char *hub, const char *word, unsigned most, struct ntx_found *out, unsigned *n,
               struct ntx_err *err)
{
    char url[NTX_WEB_URL];
    json_t *list = NULL;
    const struct ntx__curl *lib = ntx__curl(err);
    char *escaped = lib ? lib->easy_escape(NULL, word, 0) : NULL;
    if (!lib)
        return -ENODEV;
    int len = snprintf(url, sizeof url, "%s/api/models?search=%s&filter=gguf&sort=downloads&direction=-1&limit=%u", hub,
                       escaped ? escaped : "", most);
    lib->free(escaped);
    if (len < 0 || (size_t)len >= sizeof url)
        return ntx_err_set(err, -EINVAL, "the words are too long to search for");
    int rc = ntx__hub_json_get(w, url, &list, NULL, err);
    if (!rc)
        rc = take_results(list, most, out, n, err);
    json_decref(list);
    return rc;
}

/* ---- the information of one */

static void sum_offers(const struct ntx_hub_repo *r, struct ntx_found *f)
{
    const struct ntx_hub_offer *o = ntx_hub_offers(r, &f->types);
    for (unsigned i = 0; i < f->types; i++) {
        if (o[i].bytes == NTX_WEB_UNKNOWN)
            continue;
        f->least = f->least ? NTX_MIN(f->least, o[i].bytes) : o[i].bytes;
        f->most = NTX_MAX(f->most, o[i].bytes);
    }
}

/* info becomes its own. */
static int take_look(const char *hub, json_t *info, struct ntx_found *f, struct ntx_err *err)
{
    const json_t *gguf = json_object_get(info, "gguf"), *gated = json_object_get(info, "gated");
    const char *arch = json_string_value(json_object_get(gguf, "architecture"));
    struct ntx_found now = {.downloads = f->downloads, .looked = true};
    struct ntx_hub_repo *r = NULL;
    if (!json_is_object(info)) {
        json_decref(info);
        return ntx_err_set(err, -EPROTO, "the hub's answer is no information on a model");
    }
    now.gated = json_is_true(gated) || (json_is_string(gated) && strcmp(json_string_value(gated), "false"));
    now.weights = count_of(json_object_get(gguf, "total"));
    snprintf(now.name, sizeof now.name, "%s", f->name);
    snprintf(now.arch, sizeof now.arch, "%.63s", arch ? arch : "");
    int rc = ntx__hub_make(hub, f->name, info, &r, err);
    if (rc && rc != -ENOENT) /* no GGUF is an answer, too */
        return rc;
    if (!rc)
        sum_offers(r, &now);
    ntx_hub_repo_free(r);
    *f = now;
    return 0;
}

int ntx_search_parse_look(const char *hub, const char *text, size_t len, struct ntx_found *f, struct ntx_err *err)
{
    json_t *info = NULL;
    int rc = ntx__hub_json_parse(text, len, &info, err);
    return rc ? rc : take_look(hub, info, f, err);
}

int ntx_search_look(struct ntx_web *w, const char *hub, struct ntx_found *f, struct ntx_err *err)
{
    char url[NTX_WEB_URL];
    json_t *info = NULL;
    snprintf(url, sizeof url, "%s/api/models/%s?blobs=true", hub, f->name);
    int rc = ntx__hub_json_get(w, url, &info, NULL, err);
    return rc ? rc : take_look(hub, info, f, err);
}
