/* SPDX-License-Identifier: Apache-2.0 */
/* grammars.h: the compiled grammars of a loaded model. Equal constraints share one, and an unused grammar stays for the
 * next equal constraint until its memory is wanted. Any thread; a grammar is immutable. */
#ifndef NTX_COMPUTED_ENGINE_GRAMMARS_H
#define NTX_COMPUTED_ENGINE_GRAMMARS_H

#include "computed/engine/request.h"
#include "computed/grammar/grammar.h"

struct ntx_grammars;
struct ntx_shared_grammar;

/* Everything that a compiled grammar depends on. */
struct ntx_grammar_key {
    const char *kind, *reply; /* kind of the constraint; the model's reply format (model/reply/reply.h) */
    bool chat;
    struct ntx_bytes text;
};
typedef int ntx_grammar_make_fn(void *ctx, struct ntx_grammar **out, struct ntx_err *err);

int ntx_grammars_new(struct ntx_grammars **out);
void ntx_grammars_free(struct ntx_grammars *g); /* once all have been given back; NULL is fine */
/* Gets the grammar of a key, and makes it if it does not exist. The caller gives it back. */
int ntx_grammars_take(struct ntx_grammars *g, const struct ntx_grammar_key *key, ntx_grammar_make_fn *make, void *ctx,
                      struct ntx_shared_grammar **out, struct ntx_err *err);
void ntx_grammars_give(struct ntx_grammars *g, struct ntx_shared_grammar *s); /* s NULL is fine */
const struct ntx_grammar *ntx_grammars_of(const struct ntx_shared_grammar *s);
struct ntx_masks *ntx_grammars_masks(struct ntx_grammars *g); /* shared by all grammars */
size_t ntx_grammars_bytes(struct ntx_grammars *g);            /* of all grammars, and of masks that no answer uses */
/* Masks that no answer uses stay while ntx_grammars_bytes is within this. */
void ntx_grammars_allow(struct ntx_grammars *g, uint64_t bytes);
/* Frees the grammar that has been unused for longest, with its masks. False: all are in use. */
bool ntx_grammars_trim(struct ntx_grammars *g);

#endif
