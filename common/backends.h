/* SPDX-License-Identifier: Apache-2.0 */
/* backends.h: who can compute a model's layers, by name (--backend). A further device is an entry here and a library
 * that exports the table of cuda/ntx_cuda.h. One is used: the one that is named, or with `auto` the first that is there
 * and can do the model's steps; else the CPU, the first entry.
 *
 *   X(name, the plug-in's library, the environment's variable that names another file); NULL: there is nothing to open
 *     */
#ifndef NTX_COMMON_BACKENDS_H
#define NTX_COMMON_BACKENDS_H

#define NTX_BACKENDS(X)                                                                                                \
    X("cpu", NULL, NULL)                                                                                               \
    X("cuda", "libntx-cuda.so", "NTX_CUDA_LIBRARY")

/* "|cpu|cuda" */
#define NTX_BACKEND_CHOICE(name, library, variable) "|" name
#define NTX_BACKEND_CHOICES                         NTX_BACKENDS(NTX_BACKEND_CHOICE)

#endif
