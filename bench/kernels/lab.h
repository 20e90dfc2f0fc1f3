/* SPDX-License-Identifier: Apache-2.0 */
/* lab.h: the machine's own ceiling, for the kernel lab. */
#ifndef NTX_BENCH_KERNELS_LAB_H
#define NTX_BENCH_KERNELS_LAB_H

#include <stddef.h>
#include <stdint.h>

/* Reads bytes (a multiple of 512) once, as fast as loads go; the result only keeps the compiler honest. */
uint64_t lab_read(const void *p, size_t bytes);

#endif
