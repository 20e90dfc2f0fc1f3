/* SPDX-License-Identifier: Apache-2.0 */
/* mmproj.h: the projector file (llama.cpp's mmproj) that lies beside a model. */
#ifndef NTX_MODEL_MMPROJ_H
#define NTX_MODEL_MMPROJ_H

#include <stdbool.h>
#include <stddef.h>

#include "model/gguf.h"

/* Whether a file's name is that of a projector: it ends in .gguf and has mmproj in it. */
bool ntx_mmproj_is_name(const char *file);

/* Finds the projector in the folder of the model's first file. Of several that suit (their rows are as wide as the
 * model's), the one whose name has most of the model's at its beginning, and of these the first by name. False: there
 * is none, or the path is longer than `room`. */
bool ntx_mmproj_beside(const struct ntx_gguf *model, const char *path, char *found, size_t room);

#endif
