/* SPDX-License-Identifier: Apache-2.0 */
/* shown.h: prints an answer as it comes. On a terminal, lines are broken between words (client/wrap.h), and the model's
 * reasoning ("<think>...</think>" at the beginning) is dim and without its marks; an empty line separates it from the
 * answer. Elsewhere the text is unchanged. */
#ifndef NTX_CLIENT_COMMANDS_SHOWN_H
#define NTX_CLIENT_COMMANDS_SHOWN_H

#include <stdbool.h>
#include <stddef.h>

struct ntx_shown;

bool ntx_shown_apart(void); /* standard output is a terminal that can show dim text */
/* apart: reasoning is set apart. NULL: no memory, the text is unchanged; the other functions accept NULL. */
struct ntx_shown *ntx_shown_begin(bool apart);
void ntx_shown_text(struct ntx_shown *s, const char *p, size_t n);
bool ntx_shown_midline(const struct ntx_shown *s); /* the cursor is behind an unfinished line */
void ntx_shown_end(struct ntx_shown *s);           /* shows the text that was held back; frees s */

#endif
