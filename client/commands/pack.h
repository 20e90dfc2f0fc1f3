/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h: the kinds of `ntx pack`: groups of neurons (pack.c, pack_touched.c), one machine's share (pack_share.c),
 * bases and deltas (pack_delta.c), high and low bits (pack_planes.c). */
#ifndef NTX_CLIENT_COMMANDS_PACK_H
#define NTX_CLIENT_COMMANDS_PACK_H

#include "client/commands/commands.h"
#include "model/arch.h"
#include "model/pack.h"

enum { NTX_PACK_MODES = 4 };
/* Modes of --ffn-sparse that choose neurons; share: of those with the largest values, 0: those that are not 0. */
static const struct {
    const char *name;
    float share;
} ntx_pack_modes[NTX_PACK_MODES] = {{"threshold=0", 0}, {"topk=0.5", 0.5f}, {"topk=0.3", 0.3f}, {"topk=0.1", 0.1f}};

/* The use of a packed file by a token, a mean over tokens and layers. */
struct ntx_pack_touched {
    double groups[NTX_PACK_MODES]; /* share of the groups with a chosen neuron */
    double bytes[NTX_PACK_MODES];  /* bytes read for a layer's FFN, as a share of those of the original */
};
/* Runs the model over --text, or over a text of ours. order: as for ntx_pack_make, or NULL. */
int ntx__pack_touched(const struct ntx_options *o, const struct ntx_model *m, const struct ntx_pack_layer *pack,
                      const uint32_t *order, struct ntx_pack_touched *t, struct ntx_err *err);

/* For --share I/N, with the parts that --machines FILE leads to, or equal ones. */
int ntx__pack_share(const struct ntx_options *o, const struct ntx_model_files *f, const struct ntx_model *m,
                    struct ntx_err *err);
/* For --delta. */
int ntx__pack_delta(const struct ntx_options *o, const struct ntx_model_files *f, const struct ntx_model *m,
                    struct ntx_err *err);

/* For --planes, and for --join. */
int ntx__pack_planes(const struct ntx_options *o, const struct ntx_model_files *f, const struct ntx_model *m,
                     struct ntx_err *err);
int ntx__pack_join(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_err *err);

#endif
