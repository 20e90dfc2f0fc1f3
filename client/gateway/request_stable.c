/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of system prompts that a client changes with each request and that mean nothing to a model. The prefix cache
 * finds a prompt by its beginning, so such a part would make every turn compute all of it again. */
#include <string.h>

#include "client/gateway/api_request.h"

/* A text block of a system prompt that begins so is left out, as a whole. */
static const char *const volatile_blocks[] = {
    "x-anthropic-billing-header:", /* Claude Code: a version and a hash of the request */
};

static bool leaves_out = true;

void ntx_api_request_stable(bool on) { leaves_out = on; }

bool ntx__request_is_volatile(const char *text)
{
    for (size_t i = 0; leaves_out && i < sizeof volatile_blocks / sizeof *volatile_blocks; i++)
        if (!strncmp(text, volatile_blocks[i], strlen(volatile_blocks[i])) && !strchr(text, '\n'))
            return true;
    return false;
}
