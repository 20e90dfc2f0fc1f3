/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.h: a command that takes away what it had begun when it is interrupted (Ctrl-C, SIGTERM, SIGHUP unless under
 * nohup). */
#ifndef NTX_CLIENT_INTERRUPT_H
#define NTX_CLIENT_INTERRUPT_H

#include <signal.h>

/* From now on such a signal is only noted: in what is returned, 0 as long as none came. */
const volatile sig_atomic_t *ntx_interrupt_catch(void);
/* Ends the program the way the shell expects, by the signal that came. */
int ntx_interrupt_end(void);

#endif
