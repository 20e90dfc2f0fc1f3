/* SPDX-License-Identifier: Apache-2.0 */
#include "client/http_conf.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/key.h"
#include "client/listen.h"
#include "common/fence.h"

/* none: not even pages of localhost (client/gateway/http.h). */
static bool is_origin(const char *s)
{
    return !strcmp(s, "*") || !strcmp(s, "none") || !strcmp(s, "null") ||
           (strstr(s, "://") && !strchr(strstr(s, "://") + 3, '/'));
}
static bool is_host(const char *s) { return ntx_host_is(s, s); }

struct list {
    unsigned most;
    bool (*fits)(const char *word);
    const char *kind, *like;
};

/* Splits text into words, in place. */
static int split_words(char *text, const struct list *l, const char **to, unsigned *n, struct ntx_err *err)
{
    for (char *s; (s = strsep(&text, ", "));) {
        if (!*s)
            continue;
        if (*n == l->most)
            return ntx_err_set(err, -EINVAL, "more than %u %ss", l->most, l->kind);
        if (!l->fits(s))
            return ntx_err_set(err, -EINVAL, "'%s' is no %s: write %s", s, l->kind, l->like);
        to[(*n)++] = s;
    }
    return 0;
}

int ntx_origins_split(char *text, const char *to[NTX_HTTP_CORS], unsigned *n, struct ntx_err *err)
{
    static const struct list origins = {NTX_HTTP_CORS, is_origin, "origin",
                                        "https://example.org, * for all, or none alone"};
    return split_words(text, &origins, to, n, err);
}

int ntx_hosts_split(char *text, const char *to[NTX_HTTP_HOSTS], unsigned *n, struct ntx_err *err)
{
    static const struct list hosts = {NTX_HTTP_HOSTS, is_host, "host", "its name alone, as in example.org"};
    return split_words(text, &hosts, to, n, err);
}

int ntx_image_hosts_split(char *text, const char *to[NTX_HTTP_HOSTS], unsigned *n, struct ntx_err *err)
{
    static const struct list hosts = {NTX_HTTP_HOSTS, ntx_fence_is_pattern, "pattern of hosts",
                                      "example.org, *.example.org, example.org:8443, or * for all names"};
    return split_words(text, &hosts, to, n, err);
}

/* ---- the check of ntx.conf */

static void check_list(const struct ntx_config *c, struct ntx_config_errors *e, const char *key, const char *value,
                       int (*split)(char *text, const char **to, unsigned *n, struct ntx_err *err))
{
    const char *words[NTX_HTTP_CORS + NTX_HTTP_HOSTS];
    char text[2048];
    unsigned n = 0;
    struct ntx_err err = {0};
    snprintf(text, sizeof text, "%s", value);
    if (split(text, words, &n, &err))
        ntx_config_refuse(e, ntx_config_line(c, "gateway", key), "%s: %s", key, err.text);
}

static bool check_address(const struct ntx_config *c, struct ntx_config_errors *e, const char *section,
                          const char *where, const char *like)
{
    struct ntx_err err = {0};
    if (*where && ntx_listen_check(where, like, &err))
        ntx_config_refuse(e, ntx_config_line(c, section, "listen"), "listen: %s", err.text);
    return *where && !err.code;
}

const char ntx_manage_refusal[] =
    "--manage yes where other machines reach the server: say with --manage-key-file FILE which key may pull, name and "
    "delete models";

void ntx_http_conf_check(const struct ntx_config *c, struct ntx_config_errors *e)
{
    char key[NTX_KEY_ROOM];
    struct ntx_err err = {0};
    check_address(c, e, "metrics", c->metrics_listen, NTX_METRICS_WHERE);
    if (check_address(c, e, "gateway", c->gateway_listen, NTX_GATEWAY_WHERE) &&
        !ntx_listen_is_local(c->gateway_listen) && !*c->gateway_key)
        ntx_config_refuse(e, ntx_config_line(c, "gateway", "listen"),
                          "listen: other machines reach %s: set api_key_file, or listen at " NTX_GATEWAY_WHERE,
                          c->gateway_listen);
    if (*c->gateway_key && ntx_key_read(c->gateway_key, key, &err))
        ntx_config_refuse(e, ntx_config_line(c, "gateway", "api_key_file"), "api_key_file: %s", err.text);
    int64_t ms;
    if (*c->gateway_keep && !ntx_keep_read(c->gateway_keep, &ms))
        ntx_config_refuse(e, ntx_config_line(c, "gateway", "keep_alive"),
                          "keep_alive: '%s' is no time: write 5m, 30s or 2h, or -1 for ever", c->gateway_keep);
    check_list(c, e, "cors", c->gateway_cors, ntx_origins_split);
    check_list(c, e, "hosts", c->gateway_hosts, ntx_hosts_split);
    check_list(c, e, "image_hosts", c->gateway_image_hosts, ntx_image_hosts_split);
}
