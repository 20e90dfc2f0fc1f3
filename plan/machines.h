/* machines.h: what several machines together would do with a model (infer/ranks.h), before there is any of them: who gets which share of each matrix, what each reads for a
 * token, and what the messages take.
 *
 *   token = what every machine needs for its share (ntx_share_even: all need the same) + messages
 *   messages, for each run of products: input out to each other machine, one after another, two latencies, outputs back one after another
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
    double share;            /* of each matrix, 0 to 1 */
    double bytes;            /* of weights */
    double keeps, reads;     /* of them in memory; and from the drive, for each token */
};

struct ntx_machines_forecast {
    struct ntx_machines_of of[NTX_RANKS_MAX];
    struct ntx_share parts;  /* the same as numbers, for who deals */
    uint32_t runs;           /* of products, a token */
    double crosses;          /* bytes, a token */
    double weights_s, messages_s, token_s;
    double prompt_s;         /* messages of one token more of a prompt */
    double in_turn_s;        /* a token, if each machine had whole layers instead, by the most favourable arithmetic: every drive is busy all the while, one hop for each machine. ntx does not
                                do that: it is here to be compared with */
    const char *limit;       /* "drives", "memories", "network" */
};

/* budget [n]: bytes of each machine's --ram. -ENODATA: a profile lacks a rate. */
int ntx_machines_forecast(const struct ntx_outline *o, const struct ntx_hw *hw, const uint64_t *budget, uint32_t n, const struct ntx_machines_link *link, struct ntx_machines_forecast *out,
                          struct ntx_err *err);

#endif
