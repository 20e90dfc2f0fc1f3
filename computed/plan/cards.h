/* SPDX-License-Identifier: Apache-2.0 */
/* cards.h: GPUs by name, with their makers' published figures, to plan for absent machines. */
#ifndef NTX_COMPUTED_PLAN_CARDS_H
#define NTX_COMPUTED_PLAN_CARDS_H

#include <stddef.h>
#include <stdint.h>

struct ntx_card {
    const char *name; /* as usually written: "3090", "4060ti-16g", "a100-80g" */
    uint32_t gib;
    double gb_s;         /* of its memory */
    double tflops;       /* FP16 by the matrix units, sums in FP32, dense matrices */
    double tops;         /* INT8 likewise */
    uint8_t pcie, lanes; /* generation and width of its own plug */
};

size_t ntx_card_count(void);
const struct ntx_card *ntx_card_at(size_t i);
const char *ntx_card_name(size_t i);
/* "RTX 3090", "rtx-3090" and "3090" are the same. NULL: not in the table. */
const struct ntx_card *ntx_card_find(const char *name);

/* Bytes per second of a plug of this generation and width, one way, as published (128b/130b coding; generation 6 has
 * its own). */
double ntx_pcie_bps(unsigned generation, unsigned lanes);

#endif
