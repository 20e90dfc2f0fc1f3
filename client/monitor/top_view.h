/* SPDX-License-Identifier: Apache-2.0 */
/* top_view.h: ntx-top's picture, its help, and its JSON. */
#ifndef NTX_CLIENT_MONITOR_TOP_VIEW_H
#define NTX_CLIENT_MONITOR_TOP_VIEW_H

#include "client/monitor/top_canvas.h"
#include "client/monitor/top_sample.h"

void ntx_top_draw(struct ntx_canvas *c, const struct ntx_top *t, bool paused);
void ntx_top_draw_help(struct ntx_canvas *c);
char *ntx_top_json(const struct ntx_top *t); /* malloc'd; NULL: out of memory */

#endif
