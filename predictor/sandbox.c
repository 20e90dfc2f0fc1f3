/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls that ntx-predictor needs; all others are refused. */
#include "common/sandbox.h"

#include "predictor/service.h"

static const struct ntx_sandbox_call calls[] = {
    {SCMP_SYS(pread64), 0, {0}},     /* for the skip policy's sidecar and drafters */
    {SCMP_SYS(setpriority), 0, {0}}, /* drafting lowers its priority; raising it needs a privilege */
};

int ntx_service_lock_in(const char *dir, struct ntx_err *err)
{
    const struct ntx_sandbox needs = {.calls = calls, .n_calls = sizeof calls / sizeof *calls, .binds = true};
    return ntx_sandbox(&needs, dir, err);
}
