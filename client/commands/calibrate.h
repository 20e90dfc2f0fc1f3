/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate.h: the parts of `ntx calibrate`.
 *
 *   text -> windows -> daemons (StatesReq) -> samples -> labels -> training -> report, sidecar
 *            calibrate_text.c                 predictor/learn/learn.h          calibrate_report.c
 *                                             calibrate_ffn.c asks it, some layers at a time */
#ifndef NTX_CLIENT_COMMANDS_CALIBRATE_H
#define NTX_CLIENT_COMMANDS_CALIBRATE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/client.h"
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

/* Print the results as text, or as one JSON object. ffn: NULL without --ffn. */
void ntx_calibrate_report(const struct ntx_samples *samples, const struct ntx_sidecar *s,
                          const struct ntx_ffn_capture *ffn);
int ntx_calibrate_json(const struct ntx_samples *samples, const struct ntx_sidecar *s,
                       const struct ntx_ffn_capture *ffn);

#endif
