/* SPDX-License-Identifier: Apache-2.0 */
/* roff.h: writes man pages in the man(7) macros. */
#ifndef NTX_DEPLOY_PAGES_ROFF_H
#define NTX_DEPLOY_PAGES_ROFF_H

#include <stdio.h>

/* Opens DIR/manSECTION/NAME.SECTION and writes its title and NAME. NULL: it cannot be written. */
FILE *roff_open(const char *dir, const char *name, unsigned section, const char *brief);
int roff_close(FILE *f); /* 0, or not all was written */

/* A text in lines of at most 78 characters. Its own lines are joined, except at an empty one. */
void roff_text(FILE *f, const char *text);
/* A paragraph's subject as it is written, in bold, and its text: "--ram=SIZE". */
void roff_item(FILE *f, const char *subject, const char *text);
/* An option: "--ctx", 'c', "N". key: a letter, or another number for none. */
void roff_option(FILE *f, const char *name, int key, const char *arg, const char *text);
/* Lines "SUBJECT\tTEXT\n" as a section; NULL: none. */
void roff_list(FILE *f, const char *title, const char *lines);
/* Lines as they are. */
void roff_lines(FILE *f, const char *title, const char *lines);
/* "ntx(1), ntx.conf(5)" as the last section. */
void roff_see(FILE *f, const char *pages);

#endif
