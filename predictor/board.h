/* SPDX-License-Identifier: Apache-2.0 */
/* board.h: takes one probe off the board (shm/board.h), whole or not at all. The board belongs to computed, which may
 * change a probe at any moment: the word is compared before and after the copy (the other half of the pair is in
 * computed). */
#ifndef NTX_PREDICTOR_BOARD_H
#define NTX_PREDICTOR_BOARD_H

#include "shm/board.h"

struct ntx_board_probe {
    uint32_t row, layer, pos;
    uint64_t pass, session;
};

/* floats: room for ntx_board_floats, the hidden state [n_embd] and the session's similarity per layer [n_layers]. 0,
 * -ESTALE when probe (index, gen) is no longer there, -EINVAL for an index that never was. */
int ntx_board_read(const struct ntx_board *b, uint32_t index, uint32_t gen, struct ntx_board_probe *probe,
                   float *floats);

#endif
