/* SPDX-License-Identifier: Apache-2.0 */
/* turns.h: whose turn it is, where more models are known than are loaded at a time. Each place (a set of daemons) has
 * one loaded model. A request takes a turn for its model before it asks ntx-computed for anything, and has it until its
 * end.
 *
 *   WAITING --its model is loaded and open--> HELD --the answer has ended--> freed
 *      '-----its model cannot be loaded-----> FAILED
 *
 * Requests for a loaded model do not wait, so that a swap serves many of them. The model that was waited for longest
 * comes next: into an empty place, or else in place of the least recently used model, when that has no turns. That one
 * closes for newcomers when others have waited for a while: four times as long as the last swap took, 1 s at least and
 * 30 s at most. If a load says that the budget has no room beside the others (-EDQUOT), the least recently used one of
 * them is unloaded likewise, and the load is tried again. A model without turns is unloaded after `keep_ms`.
 *
 * A thread loads and unloads. The set may be used by any thread, a turn by its own thread. */
#ifndef NTX_CLIENT_GATEWAY_TURNS_H
#define NTX_CLIENT_GATEWAY_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/http_conf.h"
#include "common/err.h"
#include "proto/frame.h"

#define NTX_PLACES 4u

struct ntx_turns_config {
    /* Loads a model into a place, or unloads with "": 0, or a negative errno with err; -EDQUOT: there is no room beside
     * the models of other places. now: the model that is loaded there afterwards. It blocks; called by the turns'
     * thread. */
    int (*load)(void *arg, unsigned place, const char *model, char now[NTX_KNOWN_NAME], struct ntx_err *err);
    /* The queue has changed; called by the turns' thread, a few times a second at most. May be NULL. */
    void (*tell)(void *arg);
    void *arg;
    unsigned places; /* 0: one */
    unsigned most;   /* turns that may wait */
    int64_t keep_ms; /* a request may say otherwise, for its model */
};

struct ntx_turns;
struct ntx_turn;

int ntx_turns_new(const struct ntx_turns_config *c, struct ntx_turns **out);
void ntx_turns_free(struct ntx_turns *s); /* after all turns; waits for `load`. NULL does nothing */
/* The model that is loaded in a place, "" for none, as its ntx-computed says. It has no effect while turns are held. */
void ntx_turns_see(struct ntx_turns *s, unsigned place, const char *loaded);
/* For a `load` that takes long: the place's model at the moment. If that is still the old one (the files of the new one
 * are only being opened), it gets turns meanwhile; the swap ends those that it finds by ntx_turn_lost. */
void ntx_turns_still(struct ntx_turns *s, unsigned place, const char *loaded);

struct ntx_turns_place {
    char loaded[NTX_KNOWN_NAME], loading[NTX_KNOWN_NAME]; /* "": none */
    unsigned held;
    bool asleep;         /* the last one was unloaded here */
    int64_t left_ms;     /* until the loaded model is unloaded, from now or from its last turn on; NTX_KEEP_EVER */
    uint64_t loading_ns; /* since when `loading` is being loaded */
};
struct ntx_turns_state {
    struct ntx_turns_place place[NTX_PLACES];
    unsigned n_places, held, waiting;
    uint64_t swaps, swap_ns;   /* number, and duration of the last */
    char next[NTX_KNOWN_NAME]; /* the model that was waited for longest, "": none */
    uint64_t waiting_ns;       /* since when it is waited for */
};
void ntx_turns_look(struct ntx_turns *s, struct ntx_turns_state *out);
/* The place that has this model loaded, or is loading it; n_places: none. */
unsigned ntx_turns_place_of(const struct ntx_turns_state *s, const char *model);

/* -EAGAIN: too many wait already; -ENOMEM, -EMFILE. */
int ntx_turn_new(struct ntx_turns *s, const char *model, struct ntx_turn **out);
void ntx_turn_free(struct ntx_turn *t); /* NULL does nothing */
/* 0: held; -EAGAIN: it waits; else why the model cannot be loaded, with err. */
int ntx_turn_check(struct ntx_turn *t, struct ntx_err *err);
int ntx_turn_fd(const struct ntx_turn *t); /* becomes readable when ntx_turn_check has news */
/* Another model was loaded under it, or none: it waits again. */
void ntx_turn_lost(struct ntx_turn *t);
const char *ntx_turn_model(const struct ntx_turn *t);
unsigned ntx_turn_place(const struct ntx_turn *t); /* HELD: where its model is; t NULL: the first place */
/* How long its model stays after the last turn. */
void ntx_turn_keep(struct ntx_turn *t, int64_t keep_ms);
/* Unloads a model once it has no turns. False: it is not loaded. */
bool ntx_turns_unload(struct ntx_turns *s, const char *model);

#endif
