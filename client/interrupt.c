/* SPDX-License-Identifier: Apache-2.0 */
#include "client/interrupt.h"

#include <stddef.h>
#include <stdio.h>

static volatile sig_atomic_t caught;

static void on_signal(int sig) { caught = sig; }

const volatile sig_atomic_t *ntx_interrupt_catch(void)
{
    static const int all[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction now, a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!sigaction(all[i], NULL, &now) && now.sa_handler != SIG_IGN) /* nohup */
            sigaction(all[i], &a, NULL);
    return &caught;
}

int ntx_interrupt_end(void)
{
    int sig = caught;
    fflush(NULL);
    signal(sig, SIG_DFL);
    raise(sig);
    return 128 + sig;
}
