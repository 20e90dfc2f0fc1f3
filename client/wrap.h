/* SPDX-License-Identifier: Apache-2.0 */
/* wrap.h: breaks lines between words at the terminal's width, as the text comes. The last word is held back until it
 * has ended, so that no word is split and nothing is drawn twice.
 *
 *   "The sky is bl"       shows "The sky is"
 *   "ue because"          shows " blue", or a new line and "blue" where the line is full
 *
 * In an answer (Markdown) some lines stay as they are: those between ``` or ~~~, tables, and lines that begin with four
 * blanks or a tab, except items of lists. Further lines of an item are indented as its text is. A word that is longer
 * than a line begins a new one, and the terminal cuts it. */
#ifndef NTX_CLIENT_WRAP_H
#define NTX_CLIENT_WRAP_H

#include <stdbool.h>
#include <stddef.h>

struct ntx_wrap;

struct ntx_wrap_to {
    void (*put)(void *arg, const char *text, size_t n);
    void *arg;
    bool markdown; /* else: a note, whose further lines are indented by `indent` */
    unsigned indent;
};

/* NULL: no memory. */
struct ntx_wrap *ntx_wrap_new(const struct ntx_wrap_to *to);
void ntx_wrap_free(struct ntx_wrap *w); /* does not show what is held back; NULL does nothing */

/* Takes text in whole characters, without control characters except newline and tab. width: columns of the terminal
 * now, which may change between calls; 0: the text is not wrapped. -ENOMEM: the text is shown without wrapping. */
int ntx_wrap_text(struct ntx_wrap *w, unsigned width, const char *p, size_t n);
/* Shows what is held back; the line goes on. */
void ntx_wrap_flush(struct ntx_wrap *w);
bool ntx_wrap_midline(const struct ntx_wrap *w); /* text stands before the cursor */

#endif
