/* SPDX-License-Identifier: Apache-2.0 */
/* session_text.h: from the bytes of tokens to the text that a client may see. Pure.
 *
 * Text that may begin a stop string, and an incomplete UTF-8 character, are held back. A stop string and all after it
 * are never shown. Bytes that are not UTF-8 become U+FFFD, so the text is always valid. */
#ifndef NTX_COMPUTED_ENGINE_SESSION_TEXT_H
#define NTX_COMPUTED_ENGINE_SESSION_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct ntx_text;

int ntx_text_new(char *const *stops, size_t n_stops, struct ntx_text **out); /* empty stop strings are ignored */
void ntx_text_free(struct ntx_text *t);
/* Ends the answer before each of these texts, too; they count as no stop strings of the request. NULL ends them. */
int ntx_text_end_before(struct ntx_text *t, const char *const *marks);
/* Adds a token's bytes. *stopped: a stop string has appeared, and nothing may be fed any more. */
int ntx_text_feed(struct ntx_text *t, const char *bytes, size_t n, bool *stopped);
/* The stop string that has appeared, "" for none. Valid as long as t; t may be NULL. */
const char *ntx_text_stop(const struct ntx_text *t);
/* Bytes from one of those texts on, once it has ended the answer; else 0. */
size_t ntx_text_beyond(const struct ntx_text *t);
/* Takes the text that may be shown now. flush: all of it, since no more comes. Valid until the next call. */
int ntx_text_take(struct ntx_text *t, bool flush, const char **text, size_t *n);

#endif
