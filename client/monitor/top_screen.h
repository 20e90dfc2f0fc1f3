/* SPDX-License-Identifier: Apache-2.0 */
/* top_screen.h: ntx-top's terminal, by curses. One at a time. */
#ifndef NTX_CLIENT_MONITOR_TOP_SCREEN_H
#define NTX_CLIENT_MONITOR_TOP_SCREEN_H

#include <stdbool.h>

#include "client/monitor/top_canvas.h"
#include "common/err.h"

enum { NTX_KEY_NONE = -1, NTX_KEY_SIZE = -2, NTX_KEY_GONE = -3 }; /* no key; the size changed; the terminal is gone */

int ntx_screen_open(bool colour, struct ntx_err *err); /* fails without a capable terminal */
void ntx_screen_close(void);
void ntx_screen_size(int *w, int *h);
void ntx_screen_show(const struct ntx_canvas *c);
int ntx_screen_key(int timeout_ms);

#endif
