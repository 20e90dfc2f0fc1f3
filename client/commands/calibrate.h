/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate.h: the parts of `ntx calibrate`.
 *
 *   text -> windows -> daemons (StatesReq) -> samples -> labels -> training -> threshold -> report, sidecar
 *            calibrate_text.c                 predictor/learn/learn.h   |      calibrate_report.c
 *                                             calibrate_ffn.c asks it,  calibrate_kl.c, on windows of the text's end
 *                                             some layers at a time     that nothing was learned from */
#ifndef NTX_CLIENT_COMMANDS_CALIBRATE_H
#define NTX_CLIENT_COMMANDS_CALIBRATE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/client.h"
#include "client/commands/commands.h"
#include "client/options.h"
#include "predictor/learn/learn.h"

/* ---- calibrate_text.c */
struct ntx_calibrate_text {
    struct ntx_client *client;
    int32_t *ids;
    int n_ids;
    int32_t bos;                           /* -1: no such token */
    uint32_t layer, ffn_first, ffn_layers; /* fields of StatesReq */
    const char *what;                      /* title of the progress line: "" or "FFNs: " */
    int (*row)(void *ctx, const Ntx__StatesRow *r, struct ntx_err *err);
    void *ctx;
};
int ntx_calibrate_text(const struct ntx_calibrate_text *t, const struct ntx_options *o, struct ntx_err *err);

/* ---- calibrate_ffn.c: activity of the FFNs' neurons */
/* Number of layers whose capture fits into memory, for so many tokens. */
uint32_t ntx_calibrate_ffn_at_once(const struct ntx_ffn_capture *f, size_t tokens);
/* Runs the text as often as needed. t: the client and text; its ffn fields and row are set here. */
int ntx_calibrate_ffn(struct ntx_ffn_capture *f, struct ntx_calibrate_text t, const struct ntx_options *o,
                      const struct ntx_learning *l, struct ntx_err *err);
void ntx_ffn_capture_free(struct ntx_ffn_capture *f);

/* ---- calibrate_kl.c: layers and bytes that may be left out for a KL divergence */
enum { NTX_KL_LEVELS = 3, NTX_KL_AIM = 1 }; /* AIM: the level that the written threshold keeps */
static const double ntx_kl_levels[NTX_KL_LEVELS] = {0.005, 0.02, 0.05};
#define NTX_KL_BYTES 0.1 /* share of a token's bytes that skipping must save at that level to be worth its loss */

struct ntx_kl_text {
    int32_t *ids; /* [windows x ctx] */
    uint32_t windows, ctx, n_vocab;
    double share[NTX_MAX_LAYERS]; /* of the bytes of weights that a token uses, those that a skipped layer leaves out */
};
struct ntx_kl_point {
    float threshold;          /* 0: no threshold, or no layer, keeps this level */
    double kl, layers, bytes; /* layers a token; share of bytes */
    bool set[NTX_MAX_LAYERS]; /* of a static choice */
};
struct ntx_kl_table {
    uint32_t windows, scored;
    struct ntx_kl_point predictive[NTX_KL_LEVELS], fixed[NTX_KL_LEVELS];
};
/* s: what was learned; unchanged. Writes and removes a file beside o->out. */
int ntx_calibrate_kl(const struct ntx_options *o, const struct ntx_kl_text *text, struct ntx_sidecar *s,
                     struct ntx_kl_table *t, struct ntx_err *err);

/* Print the results as text, or as one JSON object. ffn: NULL without --ffn; kl: NULL with --threshold. */
void ntx_calibrate_report(const struct ntx_samples *samples, const struct ntx_sidecar *s,
                          const struct ntx_ffn_capture *ffn, const struct ntx_kl_table *kl);
int ntx_calibrate_json(const struct ntx_samples *samples, const struct ntx_sidecar *s,
                       const struct ntx_ffn_capture *ffn, const struct ntx_kl_table *kl);
/* The table of layers, bytes and KL alone. */
void ntx_calibrate_print_kl(const struct ntx_kl_table *kl);

#endif
