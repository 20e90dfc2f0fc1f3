/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h: signs of life on a terminal's standard error while somebody waits: one line, never longer than the
 * terminal is wide, that is gone before text appears. Nothing is shown where standard error is no terminal, nor with
 * --quiet, nor with --verbose, where the daemons' log goes to the same place.
 *
 * Where the answer stands on the same terminal and its line is not finished, the progress stands on the line below, and
 * the cursor goes back to where the answer will go on:
 *
 *   Once upon a time, there_
 *   layer 12 of 41, 2.1 of 7.3 GiB at 1.90 GB/s, 3 s left */
#ifndef NTX_CLIENT_PROGRESS_H
#define NTX_CLIENT_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "client/options.h"

struct ntx_progress {
    bool on;      /* it may be shown */
    bool shared;  /* text on standard output moves the same terminal's cursor */
    bool midline; /* it stands behind some */
    bool shown, below;
};

struct ntx_progress ntx_progress_begin(const struct ntx_options *o);
void ntx_progress_say(struct ntx_progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ntx_progress_show(struct ntx_progress *p, const Ntx__Progress *m);
void ntx_progress_clear(struct ntx_progress *p);
/* This text is about to be written to standard output, or an empty one to standard error, where lines are always whole.
 * */
void ntx_progress_text(struct ntx_progress *p, const void *text, size_t len);

#endif
