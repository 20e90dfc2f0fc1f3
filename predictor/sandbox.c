/* SPDX-License-Identifier: Apache-2.0 */
/* What ntx-predictor needs, and nothing besides. */
#include "common/sandbox.h"

#include "predictor/service.h"

static const struct ntx_sandbox_call calls[] = {
    {SCMP_SYS(pread64), 0, {0}},     /* of the skip policy's sidecar, and of a drafter */
    {SCMP_SYS(setpriority), 0, {0}}, /* drafting stands back; nobody can stand forward without privilege */
};

int ntx_service_lock_in(const char *dir, struct ntx_err *err)
{
    const struct ntx_sandbox needs = {.calls = calls, .n_calls = sizeof calls / sizeof *calls, .binds = true};
    return ntx_sandbox(&needs, dir, err);
}
