/* SPDX-License-Identifier: Apache-2.0 */
/* board.h: reads one consistent probe from the board (shm/board.h). computed may change a probe at any moment, so the
 * word is compared before and after the copy (computed has the other half of this protocol). */
#ifndef NTX_PREDICTOR_BOARD_H
#define NTX_PREDICTOR_BOARD_H

#include "shm/board.h"

struct ntx_board_probe {
    uint32_t row, layer, pos;
    uint64_t pass, session;
};

/* floats: room for ntx_board_floats: the hidden state [n_embd], then the session's similarity per layer [n_layers].
 * Returns 0, -ESTALE when probe (index, gen) is no longer there, -EINVAL for an invalid index. */
int ntx_board_read(const struct ntx_board *b, uint32_t index, uint32_t gen, struct ntx_board_probe *probe,
                   float *floats);

#endif
