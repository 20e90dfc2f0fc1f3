/* SPDX-License-Identifier: Apache-2.0 */
/* worker_main.h: main function of the two workers: arguments, log, runtime directory, exit codes. */
#ifndef NTX_COMMON_WORKER_MAIN_H
#define NTX_COMMON_WORKER_MAIN_H

#include "common/err.h"
#include "common/program.h"

#define NTX_EXIT_UNFIT   112
#define NTX_WORKER_EXITS "112\tntx-computed will never accept this worker: another build or another user.\n"

/* The options of both workers, and their keys. */
enum { NTX_WORKER_RUNTIME = 256, NTX_WORKER_ALIVE_FD, NTX_WORKER_QUIET };
extern const struct argp_option ntx_worker_options[];

/* p: of the worker. run works until the process is to end: 0, or a negative errno with err filled.
 * alive_fd is -1 when none was given. Returns the exit code: 0, 100 for wrong usage, 111 for a failure, NTX_EXIT_UNFIT
 * for -EPERM: ntx-computed will never accept this worker, so do not restart it. Sets argp_program_version. */
int ntx_worker_main(int argc, char **argv, const struct ntx_program *p,
                    int (*run)(const char *dir, int alive_fd, struct ntx_err *err));

#endif
