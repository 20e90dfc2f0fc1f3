/* SPDX-License-Identifier: Apache-2.0 */
/* catalog.h: the known models: those that can be loaded by name.
 *
 *   list       [NAME=]PATH, several with commas between. PATH: a GGUF (its first part), or a folder, in which all
 *              language models count, three folders deep
 *   names      NAME; else the file's name without .gguf and without the part's number, and for a file in
 *              OWNER/REPO/ also OWNER/REPO:TYPE, as `ntx list` has it. Case does not matter
 *   id         the first name, with '-' for blanks and other characters that lists of names use
 *
 * A scan reads the headers of new and changed files, so it is for a thread that may block. */
#ifndef NTX_COMPUTED_ENGINE_CATALOG_H
#define NTX_COMPUTED_ENGINE_CATALOG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "computed/engine/facts.h"
#include "proto/frame.h"

#define NTX_KNOWN_NAMES 4u
#define NTX_KNOWN_MOST  1024u

struct ntx_catalog_model {
    char *name[NTX_KNOWN_NAMES]; /* [0] is the id, unique; [n_names] */
    unsigned n_names;
    char *path;                  /* of the first part, absolute */
    uint64_t bytes;              /* of all parts */
    int64_t changed, changed_ns; /* the first part's mtime, in seconds and the rest */
    struct ntx_facts facts;      /* from the header */
    bool read;                   /* the header could be read */
};

struct ntx_catalog {
    struct ntx_catalog_model *m; /* [n] */
    unsigned n;
};

/* before: an earlier scan, from which the headers of unchanged files are taken; or NULL. A file that the list names and
 * that is missing or broken stays in the result. -ENOMEM. */
int ntx_catalog_scan(const char *list, const struct ntx_catalog *before, struct ntx_catalog *out);
void ntx_catalog_free(struct ntx_catalog *k);
/* By name, path, or NAME:TAG; NULL: none. */
const struct ntx_catalog_model *ntx_catalog_find(const struct ntx_catalog *k, const char *name);
const struct ntx_catalog_model *ntx_catalog_at(const struct ntx_catalog *k, const char *path);
/* [{id, names, path, bytes, changed, ctx, parameters, arch, type, digest}] */
json_t *ntx_catalog_json(const struct ntx_catalog *k);

#endif
