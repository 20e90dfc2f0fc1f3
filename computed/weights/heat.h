/* SPDX-License-Identifier: Apache-2.0 */
/* heat.h: how often each expert of a model was used, over its loads. A new load reads the experts with the most uses
 * before anybody asks (stream_preload.c), and begins its cache with these counts. Pure: no clock, no I/O, one thread.
 *
 * A use counts half after HEAT_HALF further rows of its layer, which are some days of use by one person. The counts are
 * kept beside the draft statistics (computed/plan/heat_file.h). */
#ifndef NTX_COMPUTED_WEIGHTS_HEAT_H
#define NTX_COMPUTED_WEIGHTS_HEAT_H

#include <stdint.h>

struct ntx_heat {
    uint32_t n_layers, n_expert;
    float *uses; /* [n_layers x n_expert] decayed number of rows that used the expert */
    float *rows; /* [n_layers] decayed number of rows; 0: a layer without experts, or nothing is known */
};

int ntx_heat_new(uint32_t n_layers, uint32_t n_expert, struct ntx_heat **out); /* -ENOMEM */
void ntx_heat_free(struct ntx_heat *h);
uint64_t ntx_heat_bytes(uint32_t n_bundles); /* bytes of memory that it takes */

/* Of n_rows rows of a layer, rows[i] used experts[i]. */
void ntx_heat_count(struct ntx_heat *h, uint32_t layer, const uint32_t *experts, const uint32_t *rows, uint32_t n,
                    uint32_t n_rows);
/* The share of the layer's rows that used the expert: 0 to 1. */
float ntx_heat_share(const struct ntx_heat *h, uint32_t bundle);
/* Writes the bundles (layer * n_expert + expert) that were ever used to `list` [n_layers x n_expert], those with the
 * largest shares first; of equal ones the first. Returns their number. */
uint32_t ntx_heat_order(const struct ntx_heat *h, uint32_t *list);

#endif
