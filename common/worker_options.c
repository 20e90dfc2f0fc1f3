/* SPDX-License-Identifier: Apache-2.0 */
#include "common/worker_main.h"

const struct argp_option ntx_worker_options[] = {
    {"runtime", NTX_WORKER_RUNTIME, "DIR", 0, "runtime directory (default: $NTX_RUNTIME, else $XDG_RUNTIME_DIR/ntx)",
     0},
    {"alive-fd", NTX_WORKER_ALIVE_FD, "N", 0, "inherited descriptor whose end of file ends this process", 0},
    {NULL, 'h', NULL, OPTION_HIDDEN, NULL, -1},
    {"quiet", NTX_WORKER_QUIET, NULL, 0, "log warnings and errors only", 0},
    {0}};
