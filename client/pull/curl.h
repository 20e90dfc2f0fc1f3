/* SPDX-License-Identifier: Apache-2.0 */
/* curl.h: libcurl, loaded at its first use. Its thirty libraries take longer to load than all of ntx, which rarely
 * pulls a model. */
#ifndef NTX_CLIENT_PULL_CURL_H
#define NTX_CLIENT_PULL_CURL_H

#include <curl/curl.h>

#include "common/err.h"

#define NTX__CURL_FUNCTIONS(X)                                                                                         \
    X(easy_cleanup)                                                                                                    \
    X(easy_escape)                                                                                                     \
    X(easy_getinfo)                                                                                                    \
    X(easy_init)                                                                                                       \
    X(easy_perform)                                                                                                    \
    X(easy_setopt)                                                                                                     \
    X(easy_strerror)                                                                                                   \
    X(easy_unescape)                                                                                                   \
    X(free) X(global_init) X(slist_append) X(slist_free_all) X(url) X(url_cleanup) X(url_get) X(url_set)

struct ntx__curl {
#define NTX__CURL_MEMBER(f) __typeof__(curl_##f) *f;
    NTX__CURL_FUNCTIONS(NTX__CURL_MEMBER)
};

/* Loads it once; any thread. NULL: it is missing, and err (unless NULL) says why. */
const struct ntx__curl *ntx__curl(struct ntx_err *err);

#endif
