/* SPDX-License-Identifier: Apache-2.0 */
#include "common/programs.h"
#include "common/worker_main.h"

const struct ntx_program ntx_predictor_program = {
    .name = "ntx-predictor",
    .section = 8,
    .brief = "predict which layers to skip, and draft tokens",
    .doc = "Decides by hidden states which layers ntx-computed skips, and drafts tokens with a small model (--draft "
           "FILE, speculative decoding). Started by ntx or systemd.",
    .options = ntx_worker_options,
    .examples = "  systemctl status ntx-predictor\n"
                "  ntx-predictor --runtime /run/ntx",
    .files = "/run/ntx/\tThe service's runtime directory.\n"
             "/run/ntx/ntx-predictor.end\tHow it ended the last time; the unit writes it.\n",
    .environment = "NTX_RUNTIME\tThe runtime directory, unless --runtime names it.\n"
                   "XDG_RUNTIME_DIR\tThe runtime directory is ntx below it, if NTX_RUNTIME is not set.\n",
    .exits = NTX_WORKER_EXITS,
    .see = "ntx(1), ntx-computed(8), ntx-iod(8), ntx.conf(5)",
};
