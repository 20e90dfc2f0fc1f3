/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h: the three kinds of `ntx pack`: groups of neurons (pack.c), one machine's share (pack_share.c), bases and
 * deltas (pack_delta.c). */
#ifndef NTX_CLIENT_COMMANDS_PACK_H
#define NTX_CLIENT_COMMANDS_PACK_H

#include "client/commands/commands.h"
#include "model/arch.h"

/* For --share I/N, with the parts that --machines FILE leads to, or equal ones. */
int ntx__pack_share(const struct ntx_options *o, const struct ntx_model_files *f, const struct ntx_model *m,
                    struct ntx_err *err);
/* For --delta. */
int ntx__pack_delta(const struct ntx_options *o, const struct ntx_model_files *f, const struct ntx_model *m,
                    struct ntx_err *err);

#endif
