/* SPDX-License-Identifier: Apache-2.0 */
/* serve_list.h: the models that `ntx serve` is given: [NAME=]FILE, a name of `ntx list`, or a folder. */
#ifndef NTX_CLIENT_COMMANDS_SERVE_LIST_H
#define NTX_CLIENT_COMMANDS_SERVE_LIST_H

#include "client/commands/commands.h"

/* Makes the list of all arguments; the first becomes a path. */
int ntx_serve_list(struct ntx_options *o, char list[NTX_KNOWN_LIST], struct ntx_err *err);

#endif
