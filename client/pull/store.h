/* SPDX-License-Identifier: Apache-2.0 */
/* store.h: models by name: where `ntx pull` stores them, and what a name means.
 *
 *   STORE/OWNER/REPO/FILE.gguf        from the hub
 *   STORE/FILE.gguf                   from another URL
 *   STORE/.../.FILE.gguf.part         not complete yet (part.h)
 *
 * STORE is $XDG_DATA_HOME/ntx/models (~/.local/share without it), and for root and the service /var/lib/ntx/models;
 * names are searched in both. There is no index: the name of a model is made from its path, OWNER/REPO:TYPE if the
 * file's name ends with its type, so that files may be added and removed by hand. A name may be shortened as long as it
 * means one model: without the type, without OWNER/, or the file's own name. Case does not matter. */
#ifndef NTX_CLIENT_PULL_STORE_H
#define NTX_CLIENT_PULL_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "common/err.h"

#define NTX_STORE_NAME 400

struct ntx_stored {
    char name[NTX_STORE_NAME]; /* "OWNER/REPO:Q4_K_M" */
    char stem[256];            /* the file's name, without .gguf and without the part's number */
    char dir[1024];            /* the folder of its files */
    unsigned root;             /* length of the store's path at the beginning of dir */
    char first[300];           /* the name of the first file */
    unsigned parts, of;        /* complete files, and their number in a complete model */
    uint64_t bytes, pulled;    /* of complete files; of the others */
    time_t when;               /* the last change */
};

struct ntx_store {
    struct ntx_stored *m; /* [n], by name */
    unsigned n;
    bool lack; /* an allocation failed */
};

/* The folder for pulled models. It may not exist yet (place.h makes it). */
int ntx_store_dir(char *buf, size_t n, struct ntx_err *err);
/* Finds all models. Call ntx_store_free also on failure. */
int ntx_store_scan(struct ntx_store *s, struct ntx_err *err);
void ntx_store_free(struct ntx_store *s);
/* Removes its files, complete or not, the projectors beside the last model of a folder, and the folders that are then
 * empty. Walks as place.h does. */
int ntx_store_remove(const struct ntx_stored *m, struct ntx_err *err);
/* Finds the model that `name` means: 0; -ENOENT without a text; -ENOTUNIQ when it means several, which err lists. */
int ntx_store_find(const struct ntx_store *s, const char *name, const struct ntx_stored **m, struct ntx_err *err);
static inline bool ntx_stored_whole(const struct ntx_stored *m) { return m->parts == m->of; }

/* "llama-3-8b-Q4_K_M" -> "Q4_K_M", within stem; "" when it does not end with a type. */
const char *ntx_store_type(const char *stem);
/* A file's name without ".gguf" and without "-00001-of-00003", which sets *no and *of (else 1 and 1). false: not an
 * acceptable name of a GGUF: it is empty, hidden, too long, or has '/', '\\' or unprintable characters. */
bool ntx_store_stem(const char *file, char stem[256], unsigned *no, unsigned *of);
/* Whether it is the stem of a projector (mmproj), which goes with the models beside it and is none itself. */
bool ntx_store_is_projector(const char *stem);

#endif
