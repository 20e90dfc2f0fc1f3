/* SPDX-License-Identifier: Apache-2.0 */
/* The plug-in's kernels as C. */
#include "cuda/dense.h"
