/* SPDX-License-Identifier: Apache-2.0 */
#include "common/programs.h"

static const struct argp_option options[] = {
    {"listen", 'l', "WHERE", 0,
     "serve http://WHERE/metrics: 127.0.0.1:9464, [::1]:9464 or unix:/path (default: print once and exit)", 0},
    {"config", 'c', "FILE", 0, "take the address from [metrics] listen of this ntx.conf", 0},
    {"runtime", 'r', "DIR", 0,
     "the daemons' runtime directory (default: those of `ntx up`, else the service's, else a private `ntx run` of "
     "yours)",
     0},
    {"check-config", 'k', NULL, 0,
     "check the file of --config (default: /etc/ntx/ntx.conf), print each error with its line, and exit: 0 good, 1 bad",
     0},
    {NULL, 'h', NULL, OPTION_HIDDEN, NULL, -1},
    {0},
};

const struct ntx_program ntx_metrics_program = {
    .name = "ntx-metrics",
    .section = 1,
    .brief = "serve the ntx daemons' counters to Prometheus",
    .doc = "The daemons' counters as Prometheus text. Reads them from shared memory and sends no request.",
    .options = options,
    .examples = "  ntx-metrics\n"
                "  ntx-metrics --listen 127.0.0.1:9464",
    .files = "/etc/ntx/ntx.conf\tThe service's configuration, section [metrics]: ntx.conf(5).\n"
             "/run/ntx/counters\tThe service's counters.\n",
    .environment = "NTX_RUNTIME\tThe daemons' runtime directory, unless --runtime names it.\n",
    .exits = "1\t--check-config found an error.\n",
    .see = "ntx(1), ntx-top(1), ntx-gateway(1), ntx.conf(5)",
};
