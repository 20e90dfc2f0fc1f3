/* SPDX-License-Identifier: Apache-2.0 */
/* store.h: models by name: where `ntx pull` keeps them, and what a name means.
 *
 *   STORE/OWNER/REPO/FILE.gguf        of the hub
 *   STORE/FILE.gguf                   of another address
 *   STORE/.../.FILE.gguf.part         not whole yet (part.h)
 *
 * STORE is $XDG_DATA_HOME/ntx/models (~/.local/share without it), and for root and the service /var/lib/ntx/models;
 * names are looked for in both. There is no index: the name of a model is read off its path, OWNER/REPO:TYPE where the
 * file's name ends with its type, so files may be put there and taken away by hand. A name may be shortened as long as
 * it means one model: without the type, without OWNER/, or the file's own name. Upper and lower case are one. */
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
    char stem[256];            /* its file's name, without .gguf and without the number of a part */
    char dir[1024];            /* where its files lie: */
    unsigned root;             /*   the first so many characters of that are the store */
    char first[300];           /* the name of the first of them */
    unsigned parts, of;        /* files that are whole, and how many there must be */
    uint64_t bytes, pulled;    /* of whole files; of those that are not */
    time_t when;               /* the last change */
};

struct ntx_store {
    struct ntx_stored *m; /* [n], by name */
    unsigned n;
    bool lack; /* memory failed */
};

/* Where models that are pulled go. It may not be there yet (place.h makes it). */
int ntx_store_dir(char *buf, size_t n, struct ntx_err *err);
/* All that there are. To be freed in any case. */
int ntx_store_scan(struct ntx_store *s, struct ntx_err *err);
void ntx_store_free(struct ntx_store *s);
/* Its files, whole or not, and the folders that are empty then. Reached as place.h does. */
int ntx_store_remove(const struct ntx_stored *m, struct ntx_err *err);
/* The one that `name` means: 0; -ENOENT without words; -ENOTUNIQ when it means several, which err lists. */
int ntx_store_find(const struct ntx_store *s, const char *name, const struct ntx_stored **m, struct ntx_err *err);
static inline bool ntx_stored_whole(const struct ntx_stored *m) { return m->parts == m->of; }

/* "llama-3-8b-Q4_K_M" -> "Q4_K_M", within stem; "" when it does not end with a type. */
const char *ntx_store_type(const char *stem);
/* A file's name without ".gguf" and without "-00001-of-00003", which *no and *of then tell (else 1 and 1). false: no
 * name of a GGUF that may be kept: it is empty, hidden, too long, or has '/', '\\' or characters that do not print. */
bool ntx_store_stem(const char *file, char stem[256], unsigned *no, unsigned *of);

#endif
