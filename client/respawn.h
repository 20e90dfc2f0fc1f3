/* SPDX-License-Identifier: Apache-2.0 */
/* respawn.h: `ntx up --respawn 'mpirun ... ntx up MODEL ...'`: starts the command, and again when it fails.
 *
 * MPI cannot take a machine back: when one is lost, all end, and a new start is a new MPI world. So the restart is
 * done outside of it. mpirun itself may hang while it waits for its own daemon on a dead machine; the socket of the
 * first machine's ntx-computed shows whether that lives. */
#ifndef NTX_CLIENT_RESPAWN_H
#define NTX_CLIENT_RESPAWN_H

#include "common/err.h"

/* Returns when the command ends well (`ntx stop`) or cannot work (usage, or not found), or when a signal ends both. */
int ntx_respawn(const char *command, struct ntx_err *err);

#endif
