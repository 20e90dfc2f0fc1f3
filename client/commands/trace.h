/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h: `ntx trace`, and the end of a recording for `run --trace`. */
#ifndef NTX_CLIENT_COMMANDS_TRACE_H
#define NTX_CLIENT_COMMANDS_TRACE_H

#include "client/commands/commands.h"
#include "client/trace.h"

int ntx_cmd_trace(struct ntx_options *o);
/* Writes t's recording to path, and prints a summary on stderr. */
int ntx_trace_finish(struct ntx_tracer *t, const struct ntx_options *o, const char *path, struct ntx_err *err);

#endif
