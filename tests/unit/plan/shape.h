/* SPDX-License-Identifier: Apache-2.0 */
/* shape.h: models of any size as headers only, for the planner: no weights are made. */
#ifndef NTX_TESTS_UNIT_PLAN_SHAPE_H
#define NTX_TESTS_UNIT_PLAN_SHAPE_H

#include "model/arch.h"
#include "tests/mkmodel/describe.h"

struct shape {
    const char *name;
    struct mk_options make;
    struct ntx_gguf *gguf;
    struct ntx_model *model;
};

enum {
    SHAPE_TINY,
    SHAPE_1B,
    SHAPE_8B,
    SHAPE_13B,
    SHAPE_70B,
    N_SHAPES,
    SHAPE_3T = N_SHAPES
}; /* the last one: what a sparse file may claim to be */

void shape_open(struct shape *s, int which);
void shape_close(struct shape *s);

#endif
