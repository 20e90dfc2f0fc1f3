/* SPDX-License-Identifier: Apache-2.0 */
/* clones.h: a function that the compiler makes several times, for wider instruction sets, too; the loader chooses. For
 * plain loops outside of the kernels, whose values do not depend on the choice. */
#ifndef NTX_COMMON_CLONES_H
#define NTX_COMMON_CLONES_H

#if defined(__SANITIZE_THREAD__) ||                                                                                    \
    !defined(__x86_64__) /* TSan's hooks would run in the loader's choice, before it is set up itself */
#define NTX_CLONES
#define NTX_CLONES_FMA
#else
#define NTX_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#define NTX_CLONES_FMA                                                                                                 \
    __attribute__((                                                                                                    \
        target_clones("default", "fma"))) /* where time goes into fmaf(), a call into libm without this instruction */
#endif

#endif
