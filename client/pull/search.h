/* SPDX-License-Identifier: Apache-2.0 */
/* search.h: searches the hub for repositories with GGUFs, the most downloaded first. */
#ifndef NTX_CLIENT_PULL_SEARCH_H
#define NTX_CLIENT_PULL_SEARCH_H

#include "client/pull/hub.h"

#define NTX_SEARCH_MOST 50u

struct ntx_found {
    char name[NTX_HUB_NAME]; /* "OWNER/REPO" */
    uint64_t downloads;      /* as the hub counts them; 0: unknown */
    /* from its information: */
    bool looked;          /* it was read */
    bool gated;           /* its terms must be accepted first */
    char arch[64];        /* general.architecture; "": unknown. Bytes of others */
    uint64_t weights;     /* 0: unknown */
    unsigned types;       /* models in it, by type */
    uint64_t least, most; /* bytes of the smallest and the largest; 0: unknown */
};

/* Up to `most` results, at most NTX_SEARCH_MOST, by downloads. */
int ntx_search(struct ntx_web *w, const char *hub, const char *word, unsigned most, struct ntx_found *out, unsigned *n,
               struct ntx_err *err);
/* Reads the information of a result. On failure it stays as it is. */
int ntx_search_look(struct ntx_web *w, const char *hub, struct ntx_found *f, struct ntx_err *err);

/* Their parsers. Results with names that are none are left out. */
int ntx_search_parse(const char *text, size_t len, unsigned most, struct ntx_found *out, unsigned *n,
                     struct ntx_err *err);
int ntx_search_parse_look(const char *hub, const char *text, size_t len, struct ntx_found *f, struct ntx_err *err);

#endif
