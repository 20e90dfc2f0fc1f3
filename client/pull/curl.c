/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pull/curl.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

static struct {
    pthread_once_t once;
    struct ntx__curl curl;
    bool good;
    struct ntx_err err;
} library = {.once = PTHREAD_ONCE_INIT};

static void load_libcurl(void)
{
    void *l = dlopen(NTX_LIBCURL, RTLD_LAZY | RTLD_LOCAL);
    library.good = l;
#define FIND(f) library.good = library.good && (*(void **)&library.curl.f = dlsym(l, "curl_" #f));
    NTX__CURL_FUNCTIONS(FIND)
    if (!library.good)
        ntx_err_set(&library.err, -ENODEV, "HTTP needs libcurl (Debian: libcurl4): %s", dlerror());
}

const struct ntx__curl *ntx__curl(struct ntx_err *err)
{
    pthread_once(&library.once, load_libcurl);
    if (!library.good && err)
        *err = library.err;
    return library.good ? &library.curl : NULL;
}
