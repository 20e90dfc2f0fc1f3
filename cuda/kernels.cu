/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels. They are in headers, which the tests compile for the CPU as well. */
#include "cuda/dense.h"
