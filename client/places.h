/* SPDX-License-Identifier: Apache-2.0 */
/* places.h: further sets of daemons beside the first one, for `ntx serve --at-once N`: each has one model loaded. They
 * are in DIR/place-2, DIR/place-3, ... A thread starts an ntx-computed that died again, and gives it the list of known
 * models; the models come back as those of `ntx up` do. */
#ifndef NTX_CLIENT_PLACES_H
#define NTX_CLIENT_PLACES_H

#include "client/client.h"

#define NTX_PLACES_MOST 4u /* with the first one, as the gateway has it (client/gateway/turns.h) */

struct ntx_places;

/* Starts n further sets. `greet` sends a new ntx-computed the list; -EINTR from it is a signal, which reaches the
 * caller again. Signals are blocked by then (ntx_client_up). */
int ntx_places_start(const char *dir, unsigned n, int (*greet)(void *arg, struct ntx_client *c, struct ntx_err *err),
                     void *arg, struct ntx_places **out, struct ntx_err *err);
const char *ntx_places_dir(const struct ntx_places *p, unsigned i); /* i: from 0 */
/* Asks all to end their answers; then ntx_places_free ends them. NULL does nothing. */
void ntx_places_stop(struct ntx_places *p, void (*stop)(struct ntx_client *c));
void ntx_places_free(struct ntx_places *p);

#endif
