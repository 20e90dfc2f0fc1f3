/* SPDX-License-Identifier: Apache-2.0 */
/* programs.h: the programs beside `ntx`, each defined in its own folder's program.c. */
#ifndef NTX_COMMON_PROGRAMS_H
#define NTX_COMMON_PROGRAMS_H

#include "common/program.h"

extern const struct ntx_program ntx_computed_program, ntx_iod_program, ntx_predictor_program, ntx_gateway_program,
    ntx_top_program, ntx_metrics_program;

#endif
