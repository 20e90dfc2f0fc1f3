/* SPDX-License-Identifier: Apache-2.0 */
/* models.h: the models that a request may name: those that ntx-computed knows (computed/engine/catalog.h). If it knows
 * none, there is the loaded model, whatever name a request has; with one, that one is meant by any name. */
#ifndef NTX_CLIENT_GATEWAY_MODELS_H
#define NTX_CLIENT_GATEWAY_MODELS_H

#include "client/gateway/call.h"
#include "client/gateway/turns.h"

/* The list, not older than a second: [{id, names, aliases (those of names that requests gave),
 * path, bytes, changed, ctx, parameters, arch, type, digest}]. Empty: none
 * is known. While ntx-computed is away, the last one. Free with json_decref. */
int ntx_gate_models(struct ntx_gate *g, json_t **out, struct ntx_err *err);
/* The model that a name means, borrowed from the list; NULL, with f: none. name NULL or "": the loaded one, or the
 * first. The list is not empty. */
const json_t *ntx_models_find(struct ntx_gate *g, const json_t *list, const char *name, struct ntx_fault *f);
/* The model that has this name; NULL: none. NAME:latest, NAME.gguf and hf.co/NAME mean NAME. */
const json_t *ntx_models_named(const json_t *list, const char *name);
/* The defaults of a name that /api/create made (aliases.h), a new reference; NULL: none. arg: the gate. */
json_t *ntx_models_made(void *arg, const char *name);
/* A turn for the model of this name; *out NULL: no model is known, and no turn is needed. 0, or -1 with f. */
int ntx_models_turn(struct ntx_gate *g, const char *name, struct ntx_turn **out, struct ntx_fault *f);
/* Waits until a turn is held: 0; -ETIMEDOUT, -ECANCELED (the client is gone), -ESHUTDOWN, or why it cannot be. t may be
 * NULL. */
int ntx_models_wait(struct ntx_gate *g, struct ntx_turn *t, int client_fd, int timeout_ms, struct ntx_err *err);
/* The error says that the turn's model is not loaded, or that the daemons are away: then it is lost. */
bool ntx_models_lost(int rc);
/* For struct ntx_turns_config. arg: the gate. */
int ntx_models_load(void *arg, unsigned place, const char *model, char now[NTX_KNOWN_NAME], struct ntx_err *err);
void ntx_models_tell(void *arg);

#endif
