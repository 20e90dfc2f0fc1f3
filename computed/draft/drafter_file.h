/* SPDX-License-Identifier: Apache-2.0 */
/* drafter_file.h: drafters (--draft FILE). The first bytes of a file give its kind:
 *
 *   model   "GGUF"        a small model with the same vocabulary (computed/draft/drafter.h); it runs in ntx-predictor
 *   index   "NTXINDEX"    an index of texts (`ntx draft-index`), in which earlier continuations are looked up
 *                         (computed/draft/draft_index.h)
 *   script  "ntx-script"  known answers, drafted with given chances: for tests and measurements (draft_script.c)
 *
 *   states  "GGUF"        by its architecture, a drafter of the EAGLE-3 or DFlash kind: it works by states of the
 *                         model's layers (computed/draft/drafter.h), so it runs in ntx-computed
 *   nextn                 the model's own next-token block, in the model's file; it runs in ntx-computed
 *   layers                the model itself, without the layers that are not in memory; it runs in ntx-computed
 *
 * Index and script are read whole and draft at once, in ntx-computed: a tree below the text's last token, like a draft
 * model's. A new kind is an entry of the table in drafter_file.c. */
#ifndef NTX_COMPUTED_DRAFT_DRAFTER_FILE_H
#define NTX_COMPUTED_DRAFT_DRAFTER_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "computed/draft/drafter.h"
#include "model/gguf.h"
#include "model/planes.h"

#define NTX_DRAFTER_FILE_TEXT          33u                                /* size of a digest, with its final 0 */
#define NTX_DRAFTER_FILE_NEXTN_DIGEST  "0000000000000000000000006e657874" /* stand for digests */
#define NTX_DRAFTER_FILE_LAYERS_DIGEST "%08x0000000000006c6179657273"     /* with the number of layers left out */

/* End of the name of a model's copy in fewer bits, or of its high bits. */
#define NTX_DRAFTER_FILE_SELF          NTX_PLANES_HIGH_FILE

enum ntx_drafter_file_kind {
    NTX_DRAFTER_FILE_MODEL,
    NTX_DRAFTER_FILE_INDEX,
    NTX_DRAFTER_FILE_SCRIPT,
    NTX_DRAFTER_FILE_KINDS,
    NTX_DRAFTER_FILE_STATES = NTX_DRAFTER_FILE_KINDS,
    NTX_DRAFTER_FILE_NEXTN, /* these are not files */
    NTX_DRAFTER_FILE_LAYERS
};

struct ntx_drafter_file_text { /* of a session that decodes */
    const int32_t *tokens;     /* [n] */
    uint32_t n, n_prompt;      /* tokens from n_prompt on were generated for the present request */
    uint32_t n_vocab;
};

struct ntx_drafter_file; /* an index or a script */

const char *ntx_drafter_file_name(enum ntx_drafter_file_kind kind);
/* Checks a file: 0, or why it can draft for no model, or not for this one. *needs: for texts of ctx tokens, and threads
 * of a drafter by states. *kind is set even if it cannot draft. */
int ntx_drafter_file_look(int fd, const struct ntx_gguf *model, uint32_t ctx, uint32_t threads,
                          enum ntx_drafter_file_kind *kind, struct ntx_drafter_needs *needs, struct ntx_err *err);
/* The drafter that a model's card names under the key "ntx.drafter": a file beside the model's. False: there is no such
 * key, or its value has a directory. */
bool ntx_drafter_file_card(const struct ntx_gguf *model, const char *model_path, char *path, size_t room);
/* The model's own copy in fewer bits, by which --draft self drafts if there is one: "x.draft.gguf" beside "x.gguf" or
 * "x-00001-of-00003.gguf". False: the path is too long. */
bool ntx_drafter_file_self(const char *model_path, char *path, size_t room);
/* Opens the drafter of --draft auto: the card's, or else the copy. -1: neither is a regular file that can be read. */
int ntx_drafter_file_found(const struct ntx_gguf *model, const char *model_path);
/* A drafter that the user did not name is used if it takes only this part of `ram`. */
static inline bool ntx_drafter_file_small(uint64_t bytes, uint64_t ram) { return bytes <= ram / 8; }
/* Identifies a file: a digest of a sample of its bytes. */
int ntx_drafter_file_digest(int fd, char out[NTX_DRAFTER_FILE_TEXT], struct ntx_err *err);
/* Opens an index or a script. fd is read, and not needed afterwards. All bytes are checked. */
int ntx_drafter_file_new(int fd, const struct ntx_gguf *model, struct ntx_drafter_file **out, struct ntx_err *err);
void ntx_drafter_file_free(struct ntx_drafter_file *g);
/* Drafts below the text's last token (node 0). Pure: the same text gives the same tree. Returns the number of nodes,
 * node 0 included. */
uint32_t ntx_drafter_file_tree(const struct ntx_drafter_file *g, const struct ntx_drafter_file_text *t,
                               struct ntx_draft_node *out /* [NTX_DRAFTER_NODES] */);

#endif
