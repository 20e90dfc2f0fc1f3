/* SPDX-License-Identifier: Apache-2.0 */
#include "client/keep.h"

#include <stdlib.h>
#include <string.h>

bool ntx_keep_read(const char *text, int64_t *ms)
{
    static const struct {
        const char *name;
        double ms;
    } units[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
    char *end;
    double v = strtod(text, &end);
    if (end == text || !(v > -1e9 && v < 1e9))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(end, units[i].name)) {
            *ms = v < 0 ? NTX_KEEP_EVER : (int64_t)(v * units[i].ms);
            return true;
        }
    return false;
}
