/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h: a machine by words, for `ntx plan --machine`: "gpu=3090,ram=64G,drive=7G,pcie=4x16".
 *
 *   this                 first: this machine, or the profile that was named, with what the other words change
 *   gpu=NAME | none      a card of cards.h
 *   ram=SIZE             of memory that the machine has
 *   memory=ddr4 | ddr5 | RATE    two channels of DDR4-3200 or DDR5-6000, or what it moves
 *   cores=N              of the CPU
 *   drive=RATE           when it is read in large pieces
 *   pcie=GENxLANES       of the GPU's slot: 3x8, 4x16, 5 (x16)
 *
 * What is not said is a desktop: 8 cores with AVX2, 32 GiB in two channels of DDR4, a drive of 3.3 GB/s, no GPU; its
 * slot as good as the card's plug. Of published rates of memory and of PCIe 80 % are believed, of a GPU's arithmetic 70
 * %, as the kept profiles of bench/profiles do. A drive's rate is believed as it is said. */
#ifndef NTX_COMPUTED_PLAN_MACHINE_H
#define NTX_COMPUTED_PLAN_MACHINE_H

#include "common/err.h"
#include "computed/plan/cards.h"
#include "computed/plan/hw.h"

/* *hw: what `this` stands for, where it is known (have_this); becomes the machine. -EINVAL with the word that is wrong,
 * and the nearest one. */
int ntx_machine_parse(const char *words, bool have_this, struct ntx_hw *hw, struct ntx_err *err);

/* Whether words begin with `this`. */
bool ntx_machine_is_this(const char *words);

/* The parts, also for trying what a change would bring. */
void ntx_machine_set_gpu(struct ntx_hw *hw, const struct ntx_card *card,
                         double slot_bps /* 0: as good as the card's plug */);
void ntx_machine_set_drive(struct ntx_hw *hw, double bps);

#endif
