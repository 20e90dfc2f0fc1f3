/* SPDX-License-Identifier: Apache-2.0 */
/* other_load.c: to be preloaded: the machine's load average is NTX_LOAD. */
#include <stdlib.h>

int getloadavg(double load[], int n)
{
    const char *text = getenv("NTX_LOAD");
    for (int i = 0; i < n; i++)
        load[i] = text ? atof(text) : 0;
    return n;
}
