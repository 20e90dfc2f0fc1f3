/* SPDX-License-Identifier: Apache-2.0 */
/* drafter_file.h: files that guess how texts go on (--draft FILE), each of a kind that its first bytes tell:
 *
 *   model   "GGUF"       a small model of the same vocabulary (computed/draft/drafter.h), which works in ntx-predictor
 *   index   "NTXINDEX" texts that were indexed (`ntx draft-index`), in which what came behind the like is looked up
 *           (computed/draft/draft_index.h)
 *   script  "ntx-script" what a text will be, and how often it is guessed: for tests and measurements (draft_script.c)
 *
 *   states  "GGUF" a drafter of the EAGLE-3 or DFlash kind, which its architecture tells: it goes by states of the
 *           model's layers (computed/draft/drafter.h), and so works in ntx-computed
 *   nextn   the model's own next-token block, which is in its own file and is named by that word: a drafter, too, which
 *           works in ntx-computed
 *
 * Index and script are read whole, and guess at once, in ntx-computed: a tree of guesses below a text's last token, as
 * a small model's is. A new kind is a row of the table in drafter_file.c. */
#ifndef NTX_COMPUTED_DRAFT_DRAFTER_FILE_H
#define NTX_COMPUTED_DRAFT_DRAFTER_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "computed/draft/drafter.h"
#include "model/gguf.h"

#define NTX_DRAFTER_FILE_TEXT         33u                                /* of a digest, with its end */
#define NTX_DRAFTER_FILE_NEXTN_DIGEST "0000000000000000000000006e657874" /* in the place of one */

enum ntx_drafter_file_kind {
    NTX_DRAFTER_FILE_MODEL,
    NTX_DRAFTER_FILE_INDEX,
    NTX_DRAFTER_FILE_SCRIPT,
    NTX_DRAFTER_FILE_KINDS,
    NTX_DRAFTER_FILE_STATES = NTX_DRAFTER_FILE_KINDS,
    NTX_DRAFTER_FILE_NEXTN /* no file's */
};

struct ntx_drafter_file_text { /* of a session that writes */
    const int32_t *tokens;     /* [n] */
    uint32_t n, n_prompt;      /* those from n_prompt on were written in answer to the request at hand */
    uint32_t n_vocab;
};

struct ntx_drafter_file; /* an index or a script */

const char *ntx_drafter_file_name(enum ntx_drafter_file_kind kind);
/* What the file is: 0, or why it can guess for no model, or not for this one. What it needs: of a small model, or one
 * that goes by states, for texts of ctx tokens; the latter by so many threads. *kind also where it cannot guess. */
int ntx_drafter_file_look(int fd, const struct ntx_gguf *model, uint32_t ctx, uint32_t threads,
                          enum ntx_drafter_file_kind *kind, struct ntx_drafter_needs *needs, struct ntx_err *err);
/* The file that a model's card names as its drafter: the name under the key "ntx.drafter", beside the model's file.
 * Whether there is such a key; a name with a directory in it is none. */
bool ntx_drafter_file_card(const struct ntx_gguf *model, const char *model_path, char *path, size_t room);
/* What nobody asked for by name is taken if it is so small a part of `ram`. */
static inline bool ntx_drafter_file_small(uint64_t bytes, uint64_t ram) { return bytes <= ram / 8; }
/* Which file it is: a digest of a sample of its bytes. */
int ntx_drafter_file_digest(int fd, char out[NTX_DRAFTER_FILE_TEXT], struct ntx_err *err);
/* Not a model's. fd is read, and not needed afterwards. All of its bytes are looked at. */
int ntx_drafter_file_new(int fd, const struct ntx_gguf *model, struct ntx_drafter_file **out, struct ntx_err *err);
void ntx_drafter_file_free(struct ntx_drafter_file *g);
/* Guesses below the text's last token (node 0, at least one). Pure, and the same for the same text. Returns how many
 * with that one. */
uint32_t ntx_drafter_file_tree(const struct ntx_drafter_file *g, const struct ntx_drafter_file_text *t,
                               struct ntx_draft_node *out /* [NTX_DRAFTER_NODES] */);

#endif
