/* machines.h: what several machines together would do with a model (infer/ranks.h), before there is any of them: rows of each matrix or whole layers (model/share.h), who gets
 * which share, what each reads for a token, and what the messages take.
 *
 *   token = the longer of what the slowest drive needs for what is read ahead all the while, and of products + messages; + what experts that are not in memory need, which are known late
 *   products, experts: rows: the slowest machine's; layers: all machines', one after another
 *   messages, for each run of products: input out to each machine that has rows, one after another, two latencies, outputs back one after another
 *
 * Inputs cross in the form that they are multiplied by, mostly 8 bits and a scale, once for all experts of a row; outputs as floats: of gate and up together one value, of a row's experts their sum. Attention is the first machine's and is not counted, nor is that a machine computes while a message is under way: it waits.
 * With experts: each machine has its rows of every expert; it keeps some of them whole, and a token takes any, as if a text had no favourites. */
#ifndef NTX_PLAN_MACHINES_H
#define NTX_PLAN_MACHINES_H

#include "model/share.h"
#include "plan/hw.h"
#include "plan/outline.h"

struct ntx_machines_link {
    double bytes_per_s, latency_s;
};

struct ntx_machines_of {
    double share;            /* of each matrix, or of all layers, 0 to 1 */
    double bytes;            /* of weights */
    double keeps, reads;     /* of them in memory; and from the drive, for each token */
};

struct ntx_machines_forecast {
    struct ntx_machines_of of[NTX_RANKS_MAX];
    struct ntx_share parts;  /* the same as numbers, for who deals; and whose layers are whose */
    uint32_t runs;           /* of products that somebody waits for, a token */
    double crosses;          /* bytes, a token */
    double drives_s, products_s, messages_s, experts_s, token_s;
    double prompt_s;         /* messages of one token more of a prompt */
    const char *limit;       /* "drives", "memories", "network" */
};

/* budget [n]: bytes of each machine's --ram. -ENODATA: a profile lacks a rate. */
int ntx_machines_forecast(const struct ntx_outline *o, const struct ntx_hw *hw, const uint64_t *budget, uint32_t n, const struct ntx_machines_link *link, enum ntx_split split,
                          struct ntx_machines_forecast *out, struct ntx_err *err);
/* The same of machines that are known, who hold of[n]. */
int ntx_machines_predict(const struct ntx_model *m, const struct ntx_share_work *work, const struct ntx_share_machine *of, uint32_t n, const struct ntx_machines_link *link, enum ntx_split split,
                         struct ntx_machines_forecast *out, struct ntx_err *err);
/* Layers have to be so much faster in decoding, for prompts are computed by all machines at once where rows are dealt. */
#define NTX_MACHINES_LAYERS_GAIN 1.05
/* What --split says: "rows", "layers", else ("", "auto") what these two say. */
enum ntx_split ntx_machines_choose(const char *split, const struct ntx_machines_forecast *rows, const struct ntx_machines_forecast *layers);

#endif
