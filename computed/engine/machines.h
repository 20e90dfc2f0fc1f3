/* SPDX-License-Identifier: Apache-2.0 */
/* machines.h: the other machines that mpirun started beside this one, and how they come to one model
 * (computed/ranks/ranks.h tells how they compute).
 *
 *      each rank:  join ---- ... load: header, model ---- agree ---- plan ---- build, start ---- rank 0: engine;
 *                  others: follow
 *                                                           |          |
 *                     the same model and build? who can do how much? rank 0's rows of a pass; does it fit everywhere?
 *                       once more, if what each keeps says that others should have more
 *
 * One model for the life of the processes: where one machine cannot take it, all are told which one and why. join and
 * leave by the main thread; the others by whoever loads, then by the engine's thread (rank 0) or the follower's own. */
#ifndef NTX_COMPUTED_ENGINE_MACHINES_H
#define NTX_COMPUTED_ENGINE_MACHINES_H

#include <stdbool.h>
#include <stdint.h>

#include "computed/plan/hw.h"
#include "computed/ranks/ranks.h"
#include "proto/settings.h"

struct ntx_machines;
struct ntx_loaded;

/* Opens the plug-in and waits until all machines have. */
int ntx_machines_join(struct ntx_machines **out, struct ntx_err *err);
/* together: all end, and are waited for; else (something failed) mpirun sees to the others. NULL is fine. */
void ntx_machines_leave(struct ntx_machines *m, bool together);
/* How far they have come together. A failure that all know of leads to MET. */
enum ntx_machines_stage { NTX_MACHINES_JOINED, NTX_MACHINES_AGREED, NTX_MACHINES_MET };
enum ntx_machines_stage ntx_machines_stage(const struct ntx_machines *m);
/* Nobody computes any more: rank 0 tells the others. */
void ntx_machines_over(struct ntx_machines *m, struct ntx_ranks *r);
/* All of them know that it is over. NULL is fine, too. */
bool ntx_machines_ended(const struct ntx_machines *m);
uint32_t ntx_machines_rank(const struct ntx_machines *m);
const char *ntx_machines_name(const struct ntx_machines *m, uint32_t rank); /* "node7 (rank 2)" */

/* What of a load does not go with several machines, or NULL. */
const char *ntx_machines_refusal(const struct ntx_machines *m, const struct ntx_load_settings *set, bool packed,
                                 bool deltas);
/* The same model everywhere? Then *share says who has which rows. mine: what failed here so far (code 0: nothing); the
 * first failure becomes everybody's. hw may be NULL. */
int ntx_machines_agree(struct ntx_machines *m, const struct ntx_loaded *l, const struct ntx_load_settings *set,
                       const struct ntx_hw *hw, const struct ntx_err *mine, struct ntx_share *share,
                       struct ntx_err *err);
struct ntx_machines_pass { /* what is alike on all, as rank 0 has planned it */
    uint32_t rows, ctx;
    struct ntx_kv_shape kv;       /* of K and V by heads */
    struct ntx_machines_planned { /* each one's own, bytes */
        uint64_t kv;              /* by heads: K and V that it keeps */
        uint64_t keeps, streams;  /* of its weights what stays in its memory, and what does not */
    } of;
};
/* *pass: rank 0's becomes everybody's, but for `of`. mine as above. Called twice: by what rank 0 has planned, and when
 * the others have. */
int ntx_machines_pass(struct ntx_machines *m, struct ntx_machines_pass *pass, const struct ntx_err *mine,
                      struct ntx_err *err);
/* Then it is known what each keeps, of which the share went by a guess. *again: *share is another one, with which all
 * are to plan once more, and to ask again; but if one of them cannot, it is to be the one before. */
int ntx_machines_deal_again(struct ntx_machines *m, struct ntx_share *share, bool *again, struct ntx_err *err);
uint64_t ntx_machines_kv_bytes(const struct ntx_machines *m, uint32_t rank);
int ntx_machines_ranks(struct ntx_machines *m, struct ntx_ranks **out);

/* A thread that follows rank 0 with this pass. ended: called by it, once, when rank 0 said that it is over, or nothing
 * works any more (rc, text). */
int ntx_machines_follow(struct ntx_machines *m, struct ntx_loaded *l,
                        void (*ended)(void *ctx, int rc, const char *text), void *ctx);
void ntx_machines_stop(struct ntx_machines *m);   /* asks it to end; its weights are to be aborted, too */
void ntx_machines_joined(struct ntx_machines *m); /* it has: to be called once after `ended` */

#endif
