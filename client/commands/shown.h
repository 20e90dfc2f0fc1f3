/* SPDX-License-Identifier: Apache-2.0 */
/* shown.h: an answer as people see it come: on a terminal, what the model thinks ("<think>...</think>" at its
 * beginning) is dim and without its marks, and an empty line is between it and the answer; elsewhere the text is as it
 * comes. */
#ifndef NTX_CLIENT_COMMANDS_SHOWN_H
#define NTX_CLIENT_COMMANDS_SHOWN_H

#include <stdbool.h>
#include <stddef.h>

struct ntx_shown;

/* NULL where thoughts are not to stand apart (or there is no memory for it): the other functions take that. */
struct ntx_shown *ntx_shown_begin(bool apart);
bool ntx_shown_apart(void); /* standard output is a terminal that can show it */
void ntx_shown_text(struct ntx_shown *s, const char *p, size_t n);
void ntx_shown_end(struct ntx_shown *s); /* what was held back is shown; s is freed */

#endif
