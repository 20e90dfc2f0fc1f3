/* SPDX-License-Identifier: Apache-2.0 */
/* grammars.h: the compiled grammars of a loaded model: equal constraints share one. A grammar that no request has any
 * more stays for the next equal one, as long as its memory
 * is not wanted. Any thread; a grammar itself is immutable. */
#ifndef NTX_COMPUTED_ENGINE_GRAMMARS_H
#define NTX_COMPUTED_ENGINE_GRAMMARS_H

#include "computed/engine/request.h"
#include "computed/grammar/grammar.h"

struct ntx_grammars;
struct ntx_shared_grammar;

/* All that a compiled grammar depends on. */
struct ntx_grammar_key {
    const char *kind, *reply; /* of the constraint; how the model writes (model/reply/reply.h) */
    bool chat;
    struct ntx_bytes text;
};
typedef int ntx_grammar_make_fn(void *ctx, struct ntx_grammar **out, struct ntx_err *err);

int ntx_grammars_new(struct ntx_grammars **out);
void ntx_grammars_free(struct ntx_grammars *g); /* when all have been given back; NULL is fine */
/* The grammar of that key, made where there is none yet. To be given back. */
int ntx_grammars_take(struct ntx_grammars *g, const struct ntx_grammar_key *key, ntx_grammar_make_fn *make, void *ctx,
                      struct ntx_shared_grammar **out, struct ntx_err *err);
void ntx_grammars_give(struct ntx_grammars *g, struct ntx_shared_grammar *s); /* s NULL is fine */
const struct ntx_grammar *ntx_grammars_of(const struct ntx_shared_grammar *s);
struct ntx_masks *ntx_grammars_masks(struct ntx_grammars *g); /* computed by the answers of all its grammars */
size_t ntx_grammars_bytes(struct ntx_grammars *g); /* of all that are there, and of masks that no answer has */
/* Masks that no answer has stay as long as ntx_grammars_bytes is within this. */
void ntx_grammars_allow(struct ntx_grammars *g, uint64_t bytes);
/* The one that nobody has and nobody had for longest goes, with its masks; false: all are in use. */
bool ntx_grammars_trim(struct ntx_grammars *g);

#endif
