/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/program.h"

#include "common/programs.h"
#include "proto/config.h"

static const struct argp_option options[] = {
    {"runtime", 'r', "DIR", 0,
     "runtime directory with the sockets (default: $NTX_RUNTIME, /run/ntx for the service, $XDG_RUNTIME_DIR/ntx)", 0},
    {"alive-fd", 'a', "FD", 0, "end when this inherited pipe is closed", 0},
    {"keep", NTX__OPT_KEEP, "R,W", OPTION_HIDDEN,
     "an inherited pair of sockets, in which the served model outlives this process (computed/server/keeper.h)", 0},
    {"config", 'c', "FILE", 0, "configuration file (its keys: --print-config)", 0},
    {"model", 'm', "FILE", 0, "load this GGUF at start", 0},
    {"fault", 'f', "RULES", 0,
     "for tests: fault rules for the reads of that model (iod/source.h); a service takes such rules from its clients "
     "only with this option",
     0},
    {"service", 's', NULL, 0, "serve the socket's group, too (0660), and read " NTX_CONF_FILE, 0},
    {"log-level", 'l', "LEVEL", 0, "error, warning, info (default) or debug", 0},
    {"machines", NTX__OPT_MACHINES, NULL, 0,
     "share the model with the other machines that mpirun started (ntx up sets this)", 0},
    {"place", NTX__OPT_PLACE, "N", 0,
     "be the Nth of the daemons of [model] at_once: load nothing at start, and end at once if there are fewer", 0},
    {"places", NTX__OPT_PLACES, NULL, 0, "print these numbers beyond the first, and exit", 0},
    {"memory-max", NTX__OPT_MEMORY_MAX, NULL, 0,
     "print the MemoryMax (systemd) that the three daemons need by the configuration, and exit", 0},
    {"print-config", NTX__OPT_PRINT_CONFIG, NULL, 0,
     "print a configuration file with every key, its default and its meaning, and exit", 0},
    {"check-config", NTX__OPT_CHECK_CONFIG, NULL, 0,
     "check every key, value and file of the configuration, print each error with its line, and exit: 0 good, 1 bad",
     0},
    {NULL, 'h', NULL, OPTION_HIDDEN, NULL, -1},
    {"quiet", 'q', NULL, 0, "only warnings and errors", 0},
    {0},
};

const struct ntx_program ntx_computed_program = {
    .name = "ntx-computed",
    .section = 8,
    .brief = "compute with language models bigger than memory",
    .doc = "Serves language models bigger than memory: the compute daemon of ntx. Usually started by 'ntx' or by "
           "systemd, with ntx-iod and ntx-predictor beside it.",
    .options = options,
    .examples = "  ntx-computed --check-config --config /etc/ntx/ntx.conf\n"
                "  ntx-computed --print-config >ntx.conf",
    .files = NTX_CONF_FILE "\tThe service's configuration: ntx.conf(5).\n"
                           "/run/ntx/ntx.sock\tThe service's socket, for the group ntx.\n"
                           "/var/lib/ntx/\tThe service's state, and pulled models.\n",
    .environment = "NTX_RUNTIME\tThe runtime directory, unless --runtime names it.\n"
                   "XDG_RUNTIME_DIR\tThe runtime directory is ntx below it, if NTX_RUNTIME is not set.\n",
    .exits = "1\t--check-config found an error.\n",
    .see = "ntx(1), ntx-iod(8), ntx-predictor(8), ntx-gateway(1), ntx.conf(5)",
};
