/* SPDX-License-Identifier: Apache-2.0 */
#include "predictor/board.h"

#include <errno.h>
#include <string.h>

int ntx_board_read(const struct ntx_board *b, uint32_t index, uint32_t gen, struct ntx_board_probe *probe,
                   float *floats)
{
    if (index >= b->n_probes)
        return -EINVAL;
    const struct ntx_probe *p = &b->probe[index];
    _Atomic uint32_t *word = &b->probe[index].word;
    uint32_t want = ntx_word(gen, NTX_READY);
    /* acquire: pairs with computed's release store of READY, so that the row and fields written before it are seen */
    if (atomic_load_explicit(word, memory_order_acquire) != want)
        return -ESTALE;
    struct ntx_board_probe got = {
        .row = p->row, .layer = p->layer, .pos = p->pos, .pass = p->pass, .session = p->session};
    size_t n = ntx_board_floats(b);
    memcpy(floats, b->data + index * n, n * sizeof *floats);
    /* acquire fence: pairs with computed's release fence after it clears READY and before it writes again; if any byte
     * of the copy is newer, the word has changed */
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(word, memory_order_relaxed) != want)
        return -ESTALE;
    *probe = got;
    return 0;
}
