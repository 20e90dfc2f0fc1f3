/* SPDX-License-Identifier: Apache-2.0 */
/* pack_make.h: writes the packed form of a model (pack.h), without a change of any weight unless the options say
 * otherwise. It reads and writes whole tensors and has one layer's FFN
 * in memory at a time (its down matrix as floats). Not thread-safe. */
#ifndef NTX_MODEL_PACK_MAKE_H
#define NTX_MODEL_PACK_MAKE_H

#include "model/arch.h"

struct ntx_pack_source { /* a model's header and its parts' descriptors */
    const struct ntx_gguf *gguf;
    const int *fds;
};

struct ntx_pack_options {
    uint64_t group_bytes; /* approximate bytes of a group */
    bool gate_in_bundle;
    /* Type of down columns, which are rounded to it. NTX_TYPE_LIMIT: nothing is rounded; but with `precise` the
     * original's type, or the nearest that can be written. */
    uint32_t down_type;
    struct ntx_pack_source
        precise; /* the same model in a higher precision, which down is taken from; gguf NULL: from the model itself */
    const uint32_t *order; /* [n_layers x n_ff] the model's neuron for each place; NULL: unchanged */
    void (*tell)(uint32_t layer, uint32_t n_layers); /* progress; may be NULL */
};

struct ntx_pack_report {
    double error, worst; /* relative error of requantised down: sqrt(sum of squared errors / sum of squares); over
                            all layers, and of the worst one; 0: every weight is the original's */
    uint32_t worst_layer;
    uint32_t group, group_bytes; /* of layer 0 */
    uint32_t down_type;          /* of layer 0 */
    bool down_rows;              /* of layer 0: whole blocks of the original, in another order */
    uint64_t padding;            /* zero bytes in all groups */
};

/* Checks that the model can be packed so. *layers: malloc'd [n_layers], the groups that it would have. */
int ntx_pack_choose(const struct ntx_model *m, const int *fds, const struct ntx_pack_options *o,
                    struct ntx_pack_layer **layers, struct ntx_err *err);
int ntx_pack_make(const struct ntx_model *m, const int *fds, const struct ntx_pack_options *o, const char *path,
                  struct ntx_pack_report *report, struct ntx_err *err);

#endif
