/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/request.h"

#include <stdlib.h>
#include <string.h>

bool ntx_request_has_tools(const struct ntx_request *a)
{
    return a->variables.len && memmem(a->variables.data, a->variables.len, "\"tools\"", 7);
}

void ntx_request_free(struct ntx_request *a)
{
    if (a && a->release)
        a->release(a->owner);
    free(a);
}
