/* SPDX-License-Identifier: Apache-2.0 */
/* pack_make.h: writes the packed form of a model (pack.h). Reads and writes whole tensors, one layer's FFN in memory at
 * a time (its down matrix as floats). One thread. */
#ifndef NTX_MODEL_PACK_MAKE_H
#define NTX_MODEL_PACK_MAKE_H

#include "model/arch.h"

struct ntx_pack_source { /* a model's header and its parts' descriptors */
    const struct ntx_gguf *gguf;
    const int *fds;
};

struct ntx_pack_options {
    uint64_t group_bytes; /* of a group, about */
    bool gate_in_bundle;
    uint32_t down_type; /* NTX_TYPE_LIMIT: the original's, or the next that can be written */
    struct ntx_pack_source
        precise; /* the same model in a higher precision: down is taken from there; gguf NULL: from the model */
    const uint32_t *order; /* [n_layers x n_ff] which neuron of the model stands at each place, or NULL: as it is */
    void (*tell)(uint32_t layer, uint32_t n_layers); /* progress; may be NULL */
};

struct ntx_pack_report {
    double error, worst; /* of down once re-quantised: root of its squared error by that of its squares; of all layers,
                            of the worst one */
    uint32_t worst_layer;
    uint32_t group, group_bytes; /* of layer 0 */
    uint32_t down_type;          /* of layer 0 */
    uint64_t padding;            /* bytes of zeros in all groups */
};

int ntx_pack_make(const struct ntx_model *m, const int *fds, const struct ntx_pack_options *o, const char *path,
                  struct ntx_pack_report *report, struct ntx_err *err);

#endif
