/* SPDX-License-Identifier: Apache-2.0 */
/* clones.h: functions that the compiler makes for several instruction sets; the loader selects one. For plain loops
 * outside the kernels, whose results do not depend on the selection. */
#ifndef NTX_COMMON_CLONES_H
#define NTX_COMMON_CLONES_H

/* Not with TSan: its hooks would run in the loader's selection, before TSan is set up. */
#if defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
#define NTX_CLONES
#define NTX_CLONES_FMA
#else
#define NTX_CLONES     __attribute__((target_clones("default", "avx2", "avx512f")))
/* For code that calls fmaf() often: without this instruction it is a call into libm. */
#define NTX_CLONES_FMA __attribute__((target_clones("default", "fma")))
#endif

#endif
