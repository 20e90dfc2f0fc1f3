/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/request.h"

#include <stdlib.h>

void ntx_request_free(struct ntx_request *a)
{
    if (a && a->release)
        a->release(a->owner);
    free(a);
}
