/* SPDX-License-Identifier: Apache-2.0 */
/* hub.h: finds the files of a name: "hf:OWNER/REPO[:TYPE]" by the hub's list of that repository, or the URL of a
 * GGUF, with all parts of a split one. */
#ifndef NTX_CLIENT_PULL_HUB_H
#define NTX_CLIENT_PULL_HUB_H

#include "client/pull/web.h"

#define NTX_HUB       "https://huggingface.co" /* $NTX_HUB may name a mirror */
#define NTX_HUB_PARTS 128u

struct ntx_hub_file {
    char *url;
    char name[256];  /* valid as a file's name */
    uint64_t size;   /* NTX_WEB_UNKNOWN: not in the list */
    char sha256[65]; /* or "" */
};

struct ntx_hub_model {
    char dir[300];             /* "OWNER/REPO", or "" for another URL */
    struct ntx_hub_file *file; /* [n], in order */
    unsigned n;
};

/* Call ntx_hub_free also on failure. */
int ntx_hub_find(struct ntx_web *w, const char *hub, const char *what, struct ntx_hub_model *m, struct ntx_err *err);
void ntx_hub_free(struct ntx_hub_model *m);

#endif
