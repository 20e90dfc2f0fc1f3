/* SPDX-License-Identifier: Apache-2.0 */
/* facts.h: what lists of models tell of a file, from its header. */
#ifndef NTX_COMPUTED_ENGINE_FACTS_H
#define NTX_COMPUTED_ENGINE_FACTS_H

#include "model/gguf.h"

struct ntx_facts {
    uint64_t ctx, parameters; /* 0: not known */
    char arch[32], type[16];  /* type: "Q4_K_M"; "": not known */
    char digest[33];          /* model/digest.h; "": not known */
};

/* fds: the parts in order, as in ntx_gguf_open. */
void ntx_facts_read(const struct ntx_gguf *g, const int *fds, struct ntx_facts *out);
/* A name as an id: '-' for blanks and other characters that lists of names use. */
void ntx_facts_id(char *name);

#endif
