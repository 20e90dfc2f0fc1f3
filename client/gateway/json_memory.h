/* SPDX-License-Identifier: Apache-2.0 */
/* json_memory.h: a bound on the memory for parsing a body. A body of "[[[[" or "1,1,1" would take forty times its
 * length. The program has one jansson allocator; each thread has its own bound. */
#ifndef NTX_CLIENT_GATEWAY_JSON_MEMORY_H
#define NTX_CLIENT_GATEWAY_JSON_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

void ntx_json_memory_init(void);          /* once, before any thread */
void ntx_json_memory_begin(size_t bytes); /* this thread may allocate so many bytes from now on */
bool ntx_json_memory_end(void);           /* removes the bound; whether it was kept */

#endif
