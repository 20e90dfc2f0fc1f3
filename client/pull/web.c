/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pull/web.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/pull/curl.h"
#include "common/fence.h"
#include "common/util.h"
#include "ntx_version.h"

enum { REDIRECTS = 8, CONNECT_S = 20, SLOWEST = 1024, HEADER_MOST = 256 << 10 };

struct ntx_web {
    const struct ntx__curl *lib;
    CURL *curl;
    char home[300], authorization[700]; /* "": no token */
    /* of the current answer */
    const struct ntx_web_request *request;
    struct ntx_web_answer a;
    uint64_t length, part_end;     /* length: of this answer; part_end: for a range, the byte after its last one.
                                * NTX_WEB_UNKNOWN: not reported */
    size_t header;                 /* bytes of its header so far */
    bool ranged;                   /* there was a valid Content-Range */
    int taken;                     /* result of take */
    bool home_now;                 /* the current host is the home */
    const struct ntx_fence *fence; /* NULL: any host */
    bool by_address, inside;       /* it is allowed by its address; it has an address that is not allowed */
    char why[CURL_ERROR_SIZE];
};

/* ---- addresses */

static bool part_of(const struct ntx__curl *lib, CURLU *u, CURLUPart what, unsigned flags, char *buf, size_t n)
{
    char *s = NULL;
    bool good = !lib->url_get(u, what, &s, flags) && (size_t)snprintf(buf, n, "%s", s) < n;
    lib->free(s);
    return good;
}

static bool lacks(const struct ntx__curl *lib, CURLU *u, CURLUPart what)
{
    char *s = NULL;
    bool has = !lib->url_get(u, what, &s, 0);
    lib->free(s);
    return !has;
}

bool ntx_web_origin(const char *url, char origin[300])
{
    char scheme[16], host[256], port[16];
    const struct ntx__curl *lib = ntx__curl(NULL);
    CURLU *u = lib ? lib->url() : NULL;
    bool good = u && !lib->url_set(u, CURLUPART_URL, url, 0) &&
                part_of(lib, u, CURLUPART_SCHEME, 0, scheme, sizeof scheme) &&
                part_of(lib, u, CURLUPART_HOST, 0, host, sizeof host) &&
                part_of(lib, u, CURLUPART_PORT, CURLU_DEFAULT_PORT, port, sizeof port);
    if (good)
        good = (!strcmp(scheme, "http") || !strcmp(scheme, "https")) && lacks(lib, u, CURLUPART_USER) &&
               lacks(lib, u, CURLUPART_PASSWORD);
    for (char *c = host; good && *c; c++)
        *c = (char)tolower((unsigned char)*c);
    if (good)
        good = snprintf(origin, 300, "%s://%s:%s", scheme, host, port) < 300;
    if (u)
        lib->url_cleanup(u);
    return good;
}

static bool is_plain(const char *origin) { return !strncmp(origin, "http:", 5); }

static bool is_loopback(const char *origin)
{
    char host[300];
    struct in_addr v4;
    const char *at = strstr(origin, "://");
    snprintf(host, sizeof host, "%s", at ? at + 3 : "");
    char *port = strrchr(host, ':');
    if (port)
        *port = 0;
    if (inet_pton(AF_INET, host, &v4) == 1) /* 127.0.0.1.example.org is not an address */
        return ntohl(v4.s_addr) >> 24 == 127;
    return !strcmp(host, "localhost") || !strcmp(host, "[::1]");
}

/* ---- headers */

static void take_etag(struct ntx_web_answer *a, const char *v, size_t n)
{
    if (n > 2 && *v == '"' && n < sizeof a->etag) /* W/"..." is weak: the bytes may differ */
        snprintf(a->etag, sizeof a->etag, "%.*s", (int)n, v);
}

static void take_sha256(struct ntx_web_answer *a, const char *v, size_t n)
{
    if (n == 66 && *v == '"')
        v++, n -= 2;
    if (n != 64 || strspn(v, "0123456789abcdefABCDEF") < 64)
        return;
    for (size_t i = 0; i < 64; i++)
        a->sha256[i] = (char)tolower((unsigned char)v[i]);
    a->sha256[64] = 0;
}

/* "bytes 0-99/1000" */
static void take_range(struct ntx_web *w, const char *v)
{
    unsigned long long from, last, size;
    if (sscanf(v, "bytes %20llu-%20llu/%20llu", &from, &last, &size) != 3 || last < from || last >= size ||
        size >= (1ull << 62))
        return;
    w->ranged = true;
    w->a.from = from;
    w->a.size = size;
    w->part_end = last + 1;
}

static bool header_value(const char *line, size_t n, const char *name, const char **v, size_t *len)
{
    size_t k = strlen(name);
    if (n <= k || strncasecmp(line, name, k) || line[k] != ':')
        return false;
    for (k++; k < n && (line[k] == ' ' || line[k] == '\t'); k++)
        ;
    while (n > k && isspace((unsigned char)line[n - 1]))
        n--;
    *v = line + k;
    *len = n - k;
    return true;
}

static size_t on_header(char *p, size_t size, size_t count, void *arg)
{
    struct ntx_web *w = arg;
    char line[1024];
    const char *v;
    size_t n = size * count, len;
    if ((w->header += n) > HEADER_MOST)
        return 0;
    if (n >= sizeof line) /* no header that matters is so long */
        return n;
    memcpy(line, p, n);
    line[n] = 0;
    if (!strncmp(line, "HTTP/", 5)) {
        w->length = w->part_end = NTX_WEB_UNKNOWN;
        w->ranged = false;
    } else if (header_value(line, n, "content-range", &v, &len))
        take_range(w, v);
    else if (header_value(line, n, "content-length", &v, &len) && isdigit((unsigned char)*v))
        w->length = strtoull(v, NULL, 10);
    else if (header_value(line, n, "etag", &v, &len))
        take_etag(&w->a, v, len);
    else if (w->home_now && header_value(line, n, "x-linked-etag", &v, &len))
        take_sha256(&w->a, v, len);
    else if (header_value(line, n, "link", &v, &len))
        w->a.more = strstr(v, "rel=\"next\"") != NULL;
    return n;
}

static long status_of(const struct ntx_web *w)
{
    long status = 0;
    w->lib->easy_getinfo(w->curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

/* Finds the position of the bytes that come now: of a whole answer, or of a range. */
static int find_position(struct ntx_web *w, long status)
{
    if (status == 206)
        return w->ranged ? 0 : -EPROTO;
    w->a.from = 0;
    w->a.size = w->length;
    return 0;
}

static size_t on_body(char *p, size_t size, size_t count, void *arg)
{
    struct ntx_web *w = arg;
    size_t n = size * count;
    long status = status_of(w);
    if (status != 200 && status != 206)
        return n; /* of a redirect or a refusal */
    w->taken = find_position(w, status);
    if (!w->taken && !w->request->take)
        w->taken = -ECANCELED; /* only the header was wanted */
    if (!w->taken)
        w->taken = w->request->take(w->request->arg, &w->a, p, n);
    return w->taken ? 0 : n;
}

/* ---- one answer */

/* The address of the connection itself is looked at: that of a name may have changed since another look-up. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct ntx_web *w = arg;
    (void)purpose;
    if (!w->by_address && !ntx_fence_is_public(&a->addr)) {
        w->inside = true;
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

void ntx_web_fence(struct ntx_web *w, const struct ntx_fence *f)
{
    w->fence = f;
    w->lib->easy_setopt(w->curl, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    w->lib->easy_setopt(w->curl, CURLOPT_OPENSOCKETDATA, w);
    w->lib->easy_setopt(w->curl, CURLOPT_PROXY, "");
}

static int check_fence(struct ntx_web *w, const char *origin, struct ntx_err *err)
{
    w->by_address = w->inside = false;
    if (!w->fence || ntx_fence_allows(w->fence, origin, &w->by_address))
        return 0;
    return ntx_err_set(err, -EACCES, "%s is not among the hosts that may be asked", origin);
}

static int curl_fault(const struct ntx_web *w, CURLcode c, const char *origin, struct ntx_err *err)
{
    const char *why = *w->why ? w->why : w->lib->easy_strerror(c);
    if (w->inside)
        return ntx_err_set(err, -EACCES, "%s has an address of this machine or of a private network", origin);
    if (w->fence)
        return ntx_err_set(err, -EIO, "%s: %.200s", origin, why);
    if (w->header > HEADER_MOST)
        return ntx_err_set(err, -EPROTO, "%s sends a header that does not end within %d KiB", origin,
                           HEADER_MOST >> 10);
    switch (c) {
    case CURLE_OUT_OF_MEMORY:
        return ntx_err_set(err, -EPROTO,
                           "%s: a line of the header is longer than libcurl "
                           "takes, or there is no memory",
                           origin);
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
        return ntx_err_set(err, -EAGAIN,
                           "%s: %.200s; is there a network? A proxy is set with https_proxy, a mirror of the hub with "
                           "NTX_HUB",
                           origin, why);
    case CURLE_PEER_FAILED_VERIFICATION:
        return ntx_err_set(err, -EIO,
                           "%s: %.200s; its certificate is not trusted: is the clock right, and is the package "
                           "ca-certificates installed?",
                           origin, why);
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return ntx_err_set(err, -EAGAIN, "%s: %.200s", origin, why);
    default: return ntx_err_set(err, -EIO, "%s: %.200s", origin, why);
    }
}

static int status_fault(long status, const char *origin, bool token, struct ntx_err *err)
{
    if (status == 401 || status == 403)
        return ntx_err_set(err, -EACCES, "%s refuses (%ld): %s", origin, status,
                           token ? "the token has no right to it, or its terms have to be accepted on its page first"
                                 : "it is not there, or wants a token: set HF_TOKEN, or --token-file FILE, or write it "
                                   "to ~/.config/ntx/token");
    if (status == 404 || status == 410)
        return ntx_err_set(err, -ENOENT, "%s has no such file (%ld)", origin, status);
    if (status == 416)
        return ntx_err_set(err, -ERANGE, "%s has nothing there (416)", origin);
    if (status == 429)
        return ntx_err_set(err, -EAGAIN,
                           "%s has had too many requests from here (429): try again in some minutes; a token "
                           "(HF_TOKEN) raises the limit",
                           origin);
    if (status == 408 || status >= 500)
        return ntx_err_set(err, -EAGAIN, "%s cannot answer now (%ld)", origin, status);
    return ntx_err_set(err, -EPROTO, "%s answers with status %ld, which was not expected", origin, status);
}

static struct curl_slist *headers_of(struct ntx_web *w, const struct ntx_web_request *q)
{
    char range[64], only[260];
    struct curl_slist *h = NULL;
    if (w->home_now && *w->authorization)
        h = w->lib->slist_append(h, w->authorization);
    if (q->from || q->to) {
        snprintf(range, sizeof range, q->to ? "Range: bytes=%llu-%llu" : "Range: bytes=%llu-",
                 (unsigned long long)q->from, (unsigned long long)q->to - 1);
        h = w->lib->slist_append(h, range);
    }
    if (q->from && q->if_range && *q->if_range) {
        snprintf(only, sizeof only, "If-Range: %s", q->if_range);
        h = w->lib->slist_append(h, only);
    }
    return h;
}

/* Gets one host's answer. *next: the redirect's target, malloc'd by curl's rules, or NULL. */
static int request_host(struct ntx_web *w, const char *url, const char *origin, char **next, struct ntx_err *err)
{
    char *to = NULL;
    w->home_now = !strcmp(origin, w->home);
    w->taken = 0;
    w->header = 0;
    *w->why = 0;
    struct curl_slist *h = headers_of(w, w->request);
    w->lib->easy_setopt(w->curl, CURLOPT_URL, url);
    w->lib->easy_setopt(w->curl, CURLOPT_HTTPHEADER, h);
    w->lib->easy_setopt(w->curl, CURLOPT_TIMEOUT, (long)w->request->most_s);
    w->lib->easy_setopt(w->curl, CURLOPT_NOPROXY,
                        is_loopback(origin) && w->home_now ? "*" : NULL); /* no proxy may read its token */
    CURLcode c = w->lib->easy_perform(w->curl);
    w->lib->easy_setopt(w->curl, CURLOPT_HTTPHEADER, NULL);
    w->lib->slist_free_all(h);
    long status = status_of(w);
    if (w->taken == -ECANCELED && !w->request->take)
        return 0;
    if (w->taken)
        return w->taken == -EPROTO ? ntx_err_set(err, -EPROTO, "%s sends a part without saying which", origin)
                                   : w->taken;
    if (c)
        return curl_fault(w, c, origin, err);
    if (status >= 300 && status < 400 && !w->lib->easy_getinfo(w->curl, CURLINFO_REDIRECT_URL, &to) && to) {
        *next = strdup(to);
        return *next ? 0 : ntx_err_set(err, -ENOMEM, "no memory");
    }
    if (status != 200 && status != 206 && w->fence)
        return ntx_err_set(err, -EIO, "%s answers with status %ld", origin, status);
    if (status != 200 && status != 206)
        return status_fault(status, origin, w->home_now && *w->authorization, err);
    if (find_position(w, status) ||
        (status == 206 && w->length != NTX_WEB_UNKNOWN && w->length != w->part_end - w->a.from))
        return ntx_err_set(err, -EPROTO, "%s sends a part without saying which", origin);
    return 0;
}

int ntx_web_get(struct ntx_web *w, const struct ntx_web_request *q, struct ntx_web_answer *a, struct ntx_err *err)
{
    char origin[300], *url = strdup(q->url), *next = NULL;
    bool plain = true;
    int rc = url ? 0 : ntx_err_set(err, -ENOMEM, "no memory");
    w->request = q;
    w->a = (struct ntx_web_answer){.size = NTX_WEB_UNKNOWN};
    for (int hops = 0; !rc; hops++) {
        if (!ntx_web_origin(url, origin))
            rc = ntx_err_set(err, -EINVAL, "%s",
                             hops ? "a redirect leads to no address of HTTP"
                                  : "this is no address of HTTP, or has a password in it");
        else if (hops && is_plain(origin) && !plain)
            rc = ntx_err_set(err, -EPROTO, "a redirect leads from HTTPS to HTTP (%.200s)", origin);
        else if (hops == REDIRECTS)
            rc = ntx_err_set(err, -ELOOP, "more than %d redirects, the last one to %.200s", REDIRECTS, origin);
        else
            rc = check_fence(w, origin, err);
        if (rc)
            break;
        plain = is_plain(origin);
        rc = request_host(w, url, origin, &next, err);
        if (rc || !next)
            break;
        free(url);
        url = next;
        next = NULL;
    }
    free(url);
    *a = w->a;
    return rc;
}

/* ---- start and end */

static void set_up(struct ntx_web *w, unsigned stall_s)
{
    CURL *c = w->curl;
    w->lib->easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    w->lib->easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    w->lib->easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    w->lib->easy_setopt(c, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L); /* a proxy's headers are not the answer's */
    w->lib->easy_setopt(c, CURLOPT_USERAGENT, "ntx/" NTX_BUILD);
    w->lib->easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    w->lib->easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, (long)SLOWEST);
    w->lib->easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)stall_s);
    w->lib->easy_setopt(c, CURLOPT_ERRORBUFFER, w->why);
    w->lib->easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    w->lib->easy_setopt(c, CURLOPT_HEADERDATA, w);
    w->lib->easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    w->lib->easy_setopt(c, CURLOPT_WRITEDATA, w);
}

int ntx_web_open(const char *home, const char *token, unsigned stall_s, struct ntx_web **out, struct ntx_err *err)
{
    struct ntx_web *w = calloc(1, sizeof *w);
    const struct ntx__curl *lib = ntx__curl(err);
    if (!lib) {
        free(w);
        return -ENODEV;
    }
    if (!w || lib->global_init(CURL_GLOBAL_DEFAULT) || !(w->curl = lib->easy_init())) {
        free(w);
        return ntx_err_set(err, -ENOMEM, "no memory for HTTP");
    }
    w->lib = lib;
    set_up(w, stall_s);
    *out = w;
    if (!ntx_web_origin(home, w->home))
        return ntx_err_set(err, -EINVAL, "'%.200s' is no address of HTTP", home);
    if (token && is_plain(w->home) && !is_loopback(w->home))
        return ntx_err_set(err, -EINVAL, "%s: a token is not sent over HTTP, which others read", w->home);
    if (token && (size_t)snprintf(w->authorization, sizeof w->authorization, "Authorization: Bearer %s", token) >=
                     sizeof w->authorization)
        return ntx_err_set(err, -EINVAL, "the token is too long");
    return 0;
}

void ntx_web_close(struct ntx_web *w)
{
    if (!w)
        return;
    w->lib->easy_cleanup(w->curl);
    explicit_bzero(w->authorization, sizeof w->authorization);
    free(w);
}
