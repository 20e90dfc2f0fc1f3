/* SPDX-License-Identifier: Apache-2.0 */
/* ntx-predictor: decides which layers a row may skip, and drafts tokens. Its arguments are those of all workers;
 * predictor/service.h has the rest. */
#include "common/programs.h"
#include "common/worker_main.h"
#include "predictor/service.h"

static int run_predictor(const char *dir, int alive_fd, struct ntx_err *err)
{
    struct ntx_service_config c = {.dir = dir, .alive_fd = alive_fd};
    int rc = ntx_service_lock_in(dir, err);
    return rc ? rc : ntx_service_run(&c, err);
}

int main(int argc, char **argv) { return ntx_worker_main(argc, argv, &ntx_predictor_program, run_predictor); }
