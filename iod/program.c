/* SPDX-License-Identifier: Apache-2.0 */
#include "common/programs.h"
#include "common/worker_main.h"

const struct ntx_program ntx_iod_program = {
    .name = "ntx-iod",
    .section = 8,
    .brief = "read a model's weights from the drive",
    .doc = "Reads the model's weights from the drive into memory shared with ntx-computed. Started by ntx or systemd.",
    .options = ntx_worker_options,
    .examples = "  systemctl status ntx-iod\n"
                "  ntx-iod --runtime /run/ntx",
    .files = "/run/ntx/\tThe service's runtime directory.\n"
             "/run/ntx/ntx-iod.end\tHow it ended the last time; the unit writes it.\n",
    .environment = "NTX_RUNTIME\tThe runtime directory, unless --runtime names it.\n"
                   "XDG_RUNTIME_DIR\tThe runtime directory is ntx below it, if NTX_RUNTIME is not set.\n",
    .exits = NTX_WORKER_EXITS,
    .see = "ntx(1), ntx-computed(8), ntx-predictor(8), ntx.conf(5)",
};
