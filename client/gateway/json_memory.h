/* SPDX-License-Identifier: Apache-2.0 */
/* json_memory.h: a bound on what parsing a body takes. A body of "[[[[" or "1,1,1" would become forty times its length.
 * jansson's allocator is the program's one; the bound is the thread's that parses. */
#ifndef NTX_CLIENT_GATEWAY_JSON_MEMORY_H
#define NTX_CLIENT_GATEWAY_JSON_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

void ntx_json_memory_init(void);          /* once, before any thread */
void ntx_json_memory_begin(size_t bytes); /* this thread may allocate so many from now on */
bool ntx_json_memory_end(void);           /* no bound any more; whether it was met */

#endif
