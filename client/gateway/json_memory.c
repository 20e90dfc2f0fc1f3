/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/json_memory.h"

#include <jansson.h>
#include <stdlib.h>

static _Thread_local struct {
    bool bounded, full;
    size_t left;
} mine;

static void *alloc_bounded(size_t n)
{
    if (!mine.bounded)
        return malloc(n);
    if (n + 16 > mine.left) {
        mine.full = true;
        return NULL;
    }
    mine.left -= n + 16;
    return malloc(n);
}

void ntx_json_memory_init(void)
{
    json_set_alloc_funcs(alloc_bounded, free);
    json_object_seed(0);
}

void ntx_json_memory_begin(size_t bytes)
{
    mine.bounded = true;
    mine.full = false;
    mine.left = bytes;
}

bool ntx_json_memory_end(void)
{
    mine.bounded = false;
    return mine.full;
}
