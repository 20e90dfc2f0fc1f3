/* SPDX-License-Identifier: Apache-2.0 */
/* backends.h: the back ends that can compute a model's layers, by name (--backend). Another device needs an entry here
 * and a library that exports the table of cuda/ntx_cuda.h. One back end is used: the named one, or with `auto` the
 * first that is present and supports the model's steps; else the CPU, the first entry.
 *
 *   X(name, the plug-in's library, environment variable that names another file); NULL: no library */
#ifndef NTX_COMMON_BACKENDS_H
#define NTX_COMMON_BACKENDS_H

#define NTX_BACKENDS(X)                                                                                                \
    X("cpu", NULL, NULL)                                                                                               \
    X("cuda", "libntx-cuda.so", "NTX_CUDA_LIBRARY")

/* "|cpu|cuda" */
#define NTX_BACKEND_CHOICE(name, library, variable) "|" name
#define NTX_BACKEND_CHOICES                         NTX_BACKENDS(NTX_BACKEND_CHOICE)

#endif
