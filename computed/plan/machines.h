/* SPDX-License-Identifier: Apache-2.0 */
/* machines.h: what several machines together would do with a model (computed/ranks/ranks.h), before there is any of
 * them: rows of each matrix or whole layers (model/share.h), who gets which share, what each reads for a token, and
 * what the messages take.
 *
 *   token = the longer of what the slowest drive needs for what is read ahead all the while, and of products +
 *     messages; + what experts that are not in memory need, which are known late
 *   products, experts: rows: the slowest machine's; layers: all machines', one after another
 *   messages, for each run of products: input out to each machine that has rows, one after another, two latencies,
 *     outputs back one after another
 *
 *   attention: K and V of the text: the first machine reads all of them, or, by heads, each machine its own, which
 *     takes an exchange more a layer
 *
 * A split is chosen by what a turn takes, a prompt and an answer: a prompt's pass takes the longer of reading
 * everything that does not stay, and its products + messages. Its last row alone is asked: the others go through no
 * more of the last layer than feeds its state, and not through the output.
 *
 * Inputs cross in the form that they are multiplied by, mostly 8 bits and a scale, once for all experts of a row;
 * outputs as floats: of gate and up together one value, of a row's experts their sum. What is not counted is that a
 * machine computes while a message is under way: it waits. With experts: each machine has its rows of every expert; it
 * keeps some of them whole, and a token takes any, as if a text had no favourites. */
#ifndef NTX_COMPUTED_PLAN_MACHINES_H
#define NTX_COMPUTED_PLAN_MACHINES_H

#include "computed/plan/hw.h"
#include "computed/plan/outline.h"
#include "computed/state/kv.h"
#include "model/share.h"

struct ntx_machines_link {
    double bytes_per_s, latency_s;
};

struct ntx_machines_of {
    double share;        /* of each matrix, or of all layers, 0 to 1 */
    double bytes;        /* of weights */
    double keeps, reads; /* of them in memory; and from the drive, for each token */
    double kv;           /* of K and V, when the context is full */
};

struct ntx_machines_forecast {
    struct ntx_machines_of of[NTX_RANKS_MAX];
    struct ntx_share parts; /* the same as numbers, for who deals; and whose layers are whose */
    uint32_t runs;          /* of products that somebody waits for, a token */
    double crosses;         /* bytes, a token */
    double drives_s, products_s, attend_s, messages_s, experts_s, token_s;
    double prompt_s; /* messages of one token more of a prompt, which is not the last */
    double prompt_products_s,
        prompt_pass_s; /* of a pass of NTX_MACHINES_PROMPT tokens: its products, 0: unknown; all of it */
    uint32_t lacks;    /* 1 + the machine whose budget has no room for its K and V; 0: none */
    const char *limit; /* "drives", "memories", "network" */
};

/* What a machine can do for a model; prompt rates are 0 where the profile has none. */
struct ntx_share_machine ntx_machines_can(const struct ntx_model *m, const struct ntx_hw *hw, uint64_t budget);
/* Adds K and V to what a token takes: of half a context of ctx tokens (0: the model's own, at most 4096), which so many
 * sessions have. */
void ntx_machines_text(const struct ntx_hparams *hp, enum ntx_kv_type type, uint32_t ctx, uint32_t sessions,
                       struct ntx_share_work *work);

/* budget [n]: bytes of each machine's --ram. -ENODATA: a profile lacks a rate. By NTX_SPLIT_HEADS of a model whose
 * heads cannot be dealt it is as by rows. */
struct ntx_machines_ask {
    const struct ntx_hw *hw;
    const uint64_t *budget;
    uint32_t n;
    struct ntx_machines_link link;
    enum ntx_kv_type kv_type;
    uint32_t ctx; /* as in ntx_machines_text */
    bool no_text; /* K and V count nothing */
};
int ntx_machines_forecast(const struct ntx_outline *o, const struct ntx_machines_ask *ask, enum ntx_split split,
                          struct ntx_machines_forecast *out, struct ntx_err *err);
/* The same of machines that are known, who hold of[n]. */
int ntx_machines_predict(const struct ntx_model *m, const struct ntx_share_work *work,
                         const struct ntx_share_machine *of, uint32_t n, const struct ntx_machines_link *link,
                         enum ntx_split split, struct ntx_machines_forecast *out, struct ntx_err *err);

#define NTX_MACHINES_PROMPT 512u /* tokens of a turn's prompt, and of its answer */
#define NTX_MACHINES_ANSWER 256u
double ntx_machines_turn(const struct ntx_machines_forecast *f); /* seconds */
/* Another split than rows has to be so much faster. */
#define NTX_MACHINES_GAIN 1.05
/* What --split says; else ("", "auto") by [NTX_SPLITS] forecasts, by heads only where that is possible, and what fits
 * before what does not. */
enum ntx_split ntx_machines_choose(const char *split, const struct ntx_machines_forecast *by, bool heads);

#endif
