/* SPDX-License-Identifier: Apache-2.0 */
/* machines.h: what several machines together would do with a model (computed/ranks/ranks.h): split by rows of each
 * matrix or by whole layers (model/share.h), each machine's share, its reads for a token, and the time of messages.
 *
 *   token = the longer of the slowest drive's reads ahead, and of products + messages; + reads of experts that are
 *     not in memory, which are known late
 *   products, experts: rows: the slowest machine's; layers: all machines', one after another
 *   messages, for each run of products: input out to each machine that has rows, one after another, two latencies,
 *     outputs back one after another
 *
 *   attention: K and V of the text: the first machine reads all of them, or, by heads, each machine its own, which
 *     takes one more exchange per layer
 *
 * A split is chosen by the time of a turn, a prompt and an answer. A prompt's pass takes the longer of reading
 * everything that is not resident, and of its products + messages. Only its last row's output is wanted: the others go
 * through no more of the last layer than feeds its state, and not through the output.
 *
 * Inputs are sent in the form that is multiplied, mostly 8 bits and a scale, once for all experts of a row. Outputs are
 * floats: gate and up together give one value, a row's experts their sum. A machine is assumed to wait while a message
 * is under way. With experts, each machine has its rows of every expert; it keeps some of them whole, and a token takes
 * any of them with equal chance. */
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
    double keeps, reads; /* of them in memory; and read from the drive for each token */
    double kv;           /* of K and V, when the context is full */
};

struct ntx_machines_forecast {
    struct ntx_machines_of of[NTX_RANKS_MAX];
    struct ntx_share parts; /* the same as numbers; and which machine has which layers */
    uint32_t runs;          /* runs of products that are waited for, per token */
    double crosses;         /* bytes sent, per token */
    double drives_s, products_s, attend_s, messages_s, experts_s, token_s;
    double prompt_s; /* messages of one more prompt token, which is not the last */
    /* A pass of NTX_MACHINES_PROMPT tokens: its products, 0: unknown; all of it. */
    double prompt_products_s, prompt_pass_s;
    uint32_t lacks;    /* 1 + the machine whose budget has no room for its K and V; 0: none */
    const char *limit; /* "drives", "memories", "network" */
};

/* Rates of a machine for a model; prompt rates are 0 if the profile has none. */
struct ntx_share_machine ntx_machines_can(const struct ntx_model *m, const struct ntx_hw *hw, uint64_t budget);
/* Adds K and V to the work of a token: half a context of ctx tokens (0: the model's own, at most 4096), for so many
 * sessions. */
void ntx_machines_text(const struct ntx_hparams *hp, enum ntx_kv_type type, uint32_t ctx, uint32_t sessions,
                       struct ntx_share_work *work);

/* budget [n]: bytes of each machine's --ram. -ENODATA: a profile lacks a rate. NTX_SPLIT_HEADS of a model whose heads
 * cannot be split is as by rows. */
struct ntx_machines_request {
    const struct ntx_hw *hw;
    const uint64_t *budget;
    uint32_t n;
    struct ntx_machines_link link;
    enum ntx_kv_type kv_type;
    uint32_t ctx; /* as in ntx_machines_text */
    bool no_text; /* K and V do not count */
};
int ntx_machines_forecast(const struct ntx_outline *o, const struct ntx_machines_request *request, enum ntx_split split,
                          struct ntx_machines_forecast *out, struct ntx_err *err);
/* The same for machines that are known: of [n]. */
int ntx_machines_predict(const struct ntx_model *m, const struct ntx_share_work *work,
                         const struct ntx_share_machine *of, uint32_t n, const struct ntx_machines_link *link,
                         enum ntx_split split, struct ntx_machines_forecast *out, struct ntx_err *err);

#define NTX_MACHINES_PROMPT 512u /* tokens of a turn's prompt, and of its answer */
#define NTX_MACHINES_ANSWER 256u
double ntx_machines_turn(const struct ntx_machines_forecast *f); /* seconds */
/* Another split than rows must be faster by this factor. */
#define NTX_MACHINES_GAIN 1.05
/* The split named by --split; else ("", "auto") the best of [NTX_SPLITS] forecasts: by heads only if that is possible,
 * and one that fits before one that does not. */
enum ntx_split ntx_machines_choose(const char *split, const struct ntx_machines_forecast *by, bool heads);

#endif
