/* SPDX-License-Identifier: Apache-2.0 */
/* table.h: the table of commands. The functions that run them are in main.c. */
#ifndef NTX_CLIENT_COMMANDS_TABLE_H
#define NTX_CLIENT_COMMANDS_TABLE_H

#include "client/options.h"

extern const struct ntx_command ntx_commands[];
extern const unsigned ntx_n_commands;
extern const char *const ntx_command_kinds[NTX_N_KINDS]; /* titles */

/* NULL: there is no such command. */
const struct ntx_command *ntx_command_find(const char *name);

#endif
