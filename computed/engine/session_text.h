/* SPDX-License-Identifier: Apache-2.0 */
/* session_text.h: from the bytes of tokens to the text that a client may see. Pure.
 *
 * Held back: what may still turn out to be the beginning of a stop string, and a UTF-8 character that is not complete.
 * A stop string and all after it is never shown. Bytes that are no UTF-8 come out as U+FFFD, so that the text is always
 * valid. */
#ifndef NTX_COMPUTED_ENGINE_SESSION_TEXT_H
#define NTX_COMPUTED_ENGINE_SESSION_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct ntx_text;

int ntx_text_new(char *const *stops, size_t n_stops, struct ntx_text **out); /* empty stop strings are ignored */
void ntx_text_free(struct ntx_text *t);
/* Adds a token's bytes; *stopped: a stop string has appeared, nothing may be fed any more. */
int ntx_text_feed(struct ntx_text *t, const char *bytes, size_t n, bool *stopped);
/* The stop string that has appeared, "" for none; good as long as t. t may be NULL. */
const char *ntx_text_stop(const struct ntx_text *t);
/* What may be shown now and was not before; flush: everything, for nothing more will come. Good until the next call. */
int ntx_text_take(struct ntx_text *t, bool flush, const char **text, size_t *n);

#endif
