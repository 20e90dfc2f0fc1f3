/* SPDX-License-Identifier: Apache-2.0 */
/* hub.h: finds the files of a model: those of a repository of the hub, by its list, or those of a URL, with all parts
 * of a split model.
 *
 *   "OWNER/REPO" -- list --> offers: a model of each type, its parts summed up; no projectors, matrices, drafters
 *   offer, by its type ("Q4_K_M") or its stem -- take --> files with URL, size, hash
 *
 * A list comes from others: names with "..", control characters and sizes beyond 2^56 are left out. */
#ifndef NTX_CLIENT_PULL_HUB_H
#define NTX_CLIENT_PULL_HUB_H

#include "client/pull/web.h"

#define NTX_HUB       "https://huggingface.co" /* $NTX_HUB may name a mirror */
#define NTX_HUB_PARTS 128u
#define NTX_HUB_NAME  290u /* of "OWNER/REPO" */

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

struct ntx_hub_offer {
    char stem[256], folder[256]; /* folder: within the repository; some repositories have a folder for each type */
    unsigned of;                 /* parts */
    uint64_t bytes;              /* of all parts; NTX_WEB_UNKNOWN: the list lacks a size */
};

struct ntx_hub_repo;

/* The address of the hub, from $NTX_HUB. */
const char *ntx_hub_address(void);
/* "OWNER/REPO", in letters, digits and ._- */
bool ntx_hub_is_name(const char *name);
bool ntx_hub_is_url(const char *what);

/* The repository's list. -ENOENT: it has no GGUF of a model. name: "OWNER/REPO". */
int ntx_hub_list(struct ntx_web *w, const char *hub, const char *name, struct ntx_hub_repo **out, struct ntx_err *err);
/* The same from the text of a list: an array of files, or an object with such an array as "siblings". */
int ntx_hub_parse(const char *hub, const char *name, const char *text, size_t n, struct ntx_hub_repo **out,
                  struct ntx_err *err);
void ntx_hub_repo_free(struct ntx_hub_repo *r);

const struct ntx_hub_offer *ntx_hub_offers(const struct ntx_hub_repo *r, unsigned *n);
/* How the command line names an offer: its type, or its stem where several have that type, or none. */
const char *ntx_hub_label(const struct ntx_hub_repo *r, const struct ntx_hub_offer *o);
/* -ENOTUNIQ: no offer has this type, or several have, which err lists. UD-Q4_K_M is a Q4_K_M, too, where there is no
 * plain one. */
int ntx_hub_choose(const struct ntx_hub_repo *r, const char *type, const struct ntx_hub_offer **o, struct ntx_err *err);

/* Call ntx_hub_free also on failure. */
int ntx_hub_take(const struct ntx_hub_repo *r, const struct ntx_hub_offer *o, struct ntx_hub_model *m,
                 struct ntx_err *err);
/* The repository's projector (mmproj), by which its models take images: the one of 16 bits if there are several.
 * m->n 0: it has none. Call ntx_hub_free also on failure. */
int ntx_hub_projector(const struct ntx_hub_repo *r, struct ntx_hub_model *m, struct ntx_err *err);
int ntx_hub_url(const char *url, struct ntx_hub_model *m, struct ntx_err *err);
void ntx_hub_free(struct ntx_hub_model *m);

#endif
