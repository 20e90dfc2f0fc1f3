/* arch_keys.h: a model's numbers alone, for who makes the rest of them up (plan/sketch.h). */
#ifndef NTX_MODEL_ARCH_KEYS_H
#define NTX_MODEL_ARCH_KEYS_H

#include "model/arch.h"

/* Of a header that has the keys, and of tensors token_embd.weight and those by which the architecture tells what else there is: no layers. */
int ntx_model_open_keys(const struct ntx_gguf *g, struct ntx_model **out, struct ntx_err *err);

#endif
