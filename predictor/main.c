/* SPDX-License-Identifier: Apache-2.0 */
/* ntx-predictor: says which layers a row may skip, and guesses tokens. Arguments as all workers, then
 * predictor/service.h. */
#include "common/worker_main.h"
#include "predictor/service.h"

static int run(const char *dir, int alive_fd, struct ntx_err *err)
{
    struct ntx_service_config c = {.dir = dir, .alive_fd = alive_fd};
    int rc = ntx_service_lock_in(dir, err);
    return rc ? rc : ntx_service_run(&c, err);
}

int main(int argc, char **argv)
{
    return ntx_worker_main(argc, argv, "ntx-predictor",
                           "Shows hidden states to a policy and tells ntx-computed which layers to skip; guesses "
                           "tokens by a small model (--draft FILE). Started by ntx or systemd.",
                           run);
}
