/* SPDX-License-Identifier: Apache-2.0 */
#include "common/programs.h"

static const struct argp_option options[] = {
    {"once", 'o', NULL, 0, "print the picture once and exit", 0},
    {"json", 'j', NULL, 0, "print everything once as JSON and exit", 0},
    {"interval", 'd', "SECONDS", 0, "time between samples (default 1)", 0},
    {"ascii", 'a', NULL, 0, "no characters beyond ASCII (default: as the locale says)", 0},
    {"no-color", 'n', NULL, 0, "no colours (also with NO_COLOR in the environment)", 0},
    {"runtime", 'r', "DIR", 0,
     "the daemons' runtime directory (default: those of `ntx up`, else the service's, else a private `ntx run` of "
     "yours)",
     0},
    {NULL, 'h', NULL, OPTION_HIDDEN, NULL, -1},
    {0},
};

const struct ntx_program ntx_top_program = {
    .name = "ntx-top",
    .section = 1,
    .brief = "show what the ntx daemons do right now",
    .doc =
        "What the daemons do right now: rates on each link and their ceilings, memory, placement by layer, sessions, "
        "and what limits.",
    .more = "Press h for an explanation. It reads the daemons' counters and sends them no requests.",
    .options = options,
    .examples = "  ntx-top\n"
                "  ntx-top --json --interval 5",
    .files = "/run/ntx/counters\tThe service's counters.\n",
    .environment = "NTX_RUNTIME\tThe daemons' runtime directory, unless --runtime names it.\n"
                   "NO_COLOR\tNo colours.\n",
    .see = "ntx(1), ntx-status(1), ntx-metrics(1)",
};
