/* SPDX-License-Identifier: Apache-2.0 */
/* planes_make.h: writes a model as low and high bits (planes.h), and joins these to the model again. Tensors are read
 * and written in pieces; each joined piece is compared with the original's bytes. Not thread-safe. */
#ifndef NTX_MODEL_PLANES_MAKE_H
#define NTX_MODEL_PLANES_MAKE_H

#include "model/arch.h"

struct ntx_planes_report {
    uint64_t low, high; /* bytes of the split matrices' low bits; of all that stays in memory */
    uint64_t whole;     /* bytes of matrices in types that have no low bits, among `high` */
    bool same_file;     /* joining gives the original file byte by byte; else only its tensors and keys */
};

/* low_bits: of Q4_K's weights, 1 or 2. path: of the low bits; high_path: of the high bits. -ENOTSUP: a model that
 * cannot be split, or of which too little can be. */
int ntx_planes_make(const struct ntx_model *m, const int *fds, uint32_t low_bits, const char *path,
                    const char *high_path, struct ntx_planes_report *report, struct ntx_err *err);
/* The two files' headers, in unnamed files in memory, with holes for weights, so that a model is planned as if it were
 * split: fd[0] has the low bits, fd[1] the high bits. The caller closes both. */
int ntx_planes_sketch(const struct ntx_model *m, uint32_t low_bits, int fd[2], struct ntx_err *err);
/* g: low and high bits (ntx_gguf_planes). Writes the original model. */
int ntx_planes_whole_make(const struct ntx_gguf *g, const int *fds, const char *path, struct ntx_err *err);

#endif
