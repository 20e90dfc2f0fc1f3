/* The plug-in's kernels as C. */
#include "cuda/dense.h"
