/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.h: for commands that clean up when they are interrupted (Ctrl-C, SIGTERM, SIGHUP unless under nohup). */
#ifndef NTX_CLIENT_INTERRUPT_H
#define NTX_CLIENT_INTERRUPT_H

#include <signal.h>

/* From now on such a signal is only stored, in the returned variable, which is 0 before. */
const volatile sig_atomic_t *ntx_interrupt_catch(void);
/* Ends the program as the shell expects, by the signal that came. */
int ntx_interrupt_end(void);

#endif
