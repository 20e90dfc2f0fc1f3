/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h: a progress line on a terminal's standard error, never longer than the terminal is wide, that is
 * cleared before text appears. Nothing is shown where standard error is no terminal, with --quiet, or with
 * --verbose, where the daemons' log goes to the same place.
 *
 * If the same terminal shows an unfinished line of the answer, the progress is on the line below, and the cursor
 * returns to the answer:
 *
 *   Once upon a time, there_
 *   layer 12 of 41, 2.1 of 7.3 GiB at 1.90 GB/s, 3 s left */
#ifndef NTX_CLIENT_PROGRESS_H
#define NTX_CLIENT_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "client/options.h"

struct ntx_progress {
    bool on;     /* progress is shown */
    bool shared; /* text on standard output moves the cursor of the same terminal */
};

struct ntx_progress ntx_progress_begin(const struct ntx_options *o);
void ntx_progress_say(struct ntx_progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ntx_progress_show(struct ntx_progress *p, const Ntx__Progress *m);
void ntx_progress_clear(struct ntx_progress *p);
/* Says whether the cursor is now behind an unfinished line on standard output. */
void ntx_progress_midline(struct ntx_progress *p, bool midline);
/* Makes room for a line on standard error, from any thread: erases the progress line, and ends an unfinished line of
 * text. */
void ntx_progress_yield(void);

#endif
