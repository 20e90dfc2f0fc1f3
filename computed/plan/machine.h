/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h: a machine in words, for `ntx plan --machine`: "gpu=3090,ram=64G,drive=7G,pcie=4x16".
 *
 *   this                 must be first: this machine, or the named profile; the other words change it
 *   gpu=NAME | none      a card of cards.h
 *   ram=SIZE             of memory
 *   memory=ddr4 | ddr5 | RATE    two channels of DDR4-3200 or DDR5-6000, or a rate
 *   cores=N              of the CPU
 *   drive=RATE           for large reads
 *   pcie=GENxLANES       of the GPU's slot: 3x8, 4x16, 5 (x16)
 *
 * Words left out mean a desktop: 8 cores with AVX2, 32 GiB in two channels of DDR4, a drive of 3.3 GB/s, no GPU; the
 * slot is as good as the card's plug. Of published rates of memory and PCIe 80 % are believed, of a GPU's arithmetic 70
 * %, as in the profiles of bench/profiles. A drive's rate is taken as given. */
#ifndef NTX_COMPUTED_PLAN_MACHINE_H
#define NTX_COMPUTED_PLAN_MACHINE_H

#include "common/err.h"
#include "computed/plan/cards.h"
#include "computed/plan/hw.h"

/* *hw: the machine that `this` means, if known (have_this); becomes the machine. -EINVAL with the wrong word, and the
 * nearest right one. */
int ntx_machine_parse(const char *words, bool have_this, struct ntx_hw *hw, struct ntx_err *err);

/* Whether the words begin with `this`. */
bool ntx_machine_is_this(const char *words);

/* Changes the drive, also to try another one. */
void ntx_machine_set_drive(struct ntx_hw *hw, double bps);

#endif
