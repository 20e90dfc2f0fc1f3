/* SPDX-License-Identifier: Apache-2.0 */
/* respawn.h: `ntx up --respawn 'mpirun ... ntx up MODEL ...'`: starts it, and again when it fails.
 *
 * MPI takes no machine back: when one is lost all end, and a new start is a new world. So who starts again is outside
 * of it. mpirun itself may hang, too: it waits for its own daemon on a machine that does not answer any more. Whether
 * the first machine's ntx-computed lives is seen at its socket. */
#ifndef NTX_CLIENT_RESPAWN_H
#define NTX_CLIENT_RESPAWN_H

#include "common/err.h"

/* Until the command ends well (`ntx stop`), cannot be meant (usage, or not found), or a signal ends both. */
int ntx_respawn(const char *command, struct ntx_err *err);

#endif
