/* SPDX-License-Identifier: Apache-2.0 */
/* machines.h: the other machines (ranks) that mpirun started beside this one, and how they agree on one model
 * (computed/ranks/ranks.h has how they compute).
 *
 *      each rank:  join ---- ... load: header, model ---- agree ---- plan ---- build, start ---- rank 0: engine;
 *                  others: follow
 *                                                           |          |
 *                     the same model and build? who can do how much? rank 0's rows of a pass; does it fit everywhere?
 *                       once more, if what each keeps says that others should have more
 *
 * The processes have one model for their life. If one machine cannot take it, all report which one and why. The main
 * thread calls join and leave; the loading thread the others, then the engine's thread (rank 0) or the follower's. */
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
/* together: waits until all end. Else something failed, and mpirun ends the others. NULL is fine. */
void ntx_machines_leave(struct ntx_machines *m, bool together);
/* Stage of the agreement. A failure that all know of leads to MET. */
enum ntx_machines_stage { NTX_MACHINES_JOINED, NTX_MACHINES_AGREED, NTX_MACHINES_MET };
enum ntx_machines_stage ntx_machines_stage(const struct ntx_machines *m);
/* Computing is over: rank 0 tells the others. */
void ntx_machines_over(struct ntx_machines *m, struct ntx_ranks *r);
/* Whether all know that it is over. NULL is fine. */
bool ntx_machines_ended(const struct ntx_machines *m);
uint32_t ntx_machines_rank(const struct ntx_machines *m);
const char *ntx_machines_name(const struct ntx_machines *m, uint32_t rank); /* "node7 (rank 2)" */

/* Why a load cannot run on several machines, or NULL. */
const char *ntx_machines_refusal(const struct ntx_machines *m, const struct ntx_load_settings *set, bool packed,
                                 bool deltas);
/* Checks that all have the same model; *share then says which rows each one has. mine: the failure here so far (code 0:
 * none); the first failure becomes everybody's. hw may be NULL. */
int ntx_machines_agree(struct ntx_machines *m, const struct ntx_loaded *l, const struct ntx_load_settings *set,
                       const struct ntx_hw *hw, const struct ntx_err *mine, struct ntx_share *share,
                       struct ntx_err *err);
struct ntx_machines_pass { /* the plan's values that are equal on all, from rank 0 */
    uint32_t rows, ctx;
    struct ntx_kv_shape kv;       /* for K and V by heads */
    struct ntx_machines_planned { /* each machine's own, bytes */
        uint64_t kv;              /* by heads: its K and V */
        uint64_t keeps, streams;  /* its weights that stay in memory, and those that stream */
    } of;
};
/* *pass: all get rank 0's, but for `of`. mine: as above. Called twice: after rank 0 has planned, and after the others
 * have. */
int ntx_machines_pass(struct ntx_machines *m, struct ntx_machines_pass *pass, const struct ntx_err *mine,
                      struct ntx_err *err);
/* Deals the rows again, now that it is known how much each machine keeps. *again: *share has changed, so all plan again
 * and ask again; if one of them cannot, all go back to the share before. */
int ntx_machines_deal_again(struct ntx_machines *m, struct ntx_share *share, bool *again, struct ntx_err *err);
uint64_t ntx_machines_kv_bytes(const struct ntx_machines *m, uint32_t rank);
int ntx_machines_ranks(struct ntx_machines *m, struct ntx_ranks **out);

/* Starts a thread that follows rank 0 with this pass. It calls ended once, when rank 0 says that it is over, or on an
 * error (rc, text). */
int ntx_machines_follow(struct ntx_machines *m, struct ntx_loaded *l,
                        void (*ended)(void *ctx, int rc, const char *text), void *ctx);
void ntx_machines_stop(struct ntx_machines *m);   /* asks it to end; the caller aborts its weights, too */
void ntx_machines_joined(struct ntx_machines *m); /* joins the thread; call it once after `ended` */

#endif
