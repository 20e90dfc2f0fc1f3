/* SPDX-License-Identifier: Apache-2.0 */
/* board.h: the probe board, a part of the shared region (region.h). It holds the hidden states that wait for the
 * predictor's decision. The predictor gets this part and the draft parts (drafts.h), and no other.
 *
 *   0        header   struct ntx_board_hdr                           constant
 *   +        probes   struct ntx_probe [n_probes]                    computed writes
 *   +        floats   float [n_probes x (n_embd + n_layers)]         computed writes
 *
 * computed maps it for writing; nobody can map it so afterwards. Decisions come back by message. */
#ifndef NTX_SHM_BOARD_H
#define NTX_SHM_BOARD_H

#include <stddef.h>
#include <stdint.h>

#include "shm/segment.h"
#include "shm/word.h"

#define NTX_BOARD_MAGIC   0x31626f6172646e78ULL
#define NTX_BOARD_VERSION 1u
/* Words of a decision and of a drop map: a bit per layer. There are at most 513 layers: the output counts as one, and
 * no decision drops it. */
#define NTX_MAP_WORDS     9

/* A hidden state for the predictor, followed by its session's measured similarity of each layer's input and output
 * (NaN: no measurement). computed fills the row of floats, then the fields, then sets the word READY(gen); the message
 * names (index, gen). computed sets FREE(gen + 1) when the decision has come or is no longer wanted. */
struct ntx_probe {
    _Atomic uint32_t word; /* computed */
    uint32_t row;          /* computed: index of the row in the pass, draft rows (--draft) not counted */
    uint64_t pass;         /* computed */
    uint64_t session;      /* computed */
    uint32_t layer;        /* computed: state after this layer */
    uint32_t pos;          /* computed: position of the row's token in its session */
    char pad[32];
};
_Static_assert(sizeof(struct ntx_probe) == 64, "");

struct ntx_board_hdr {
    uint64_t magic;
    uint32_t version, hdr_bytes;
    uint64_t epoch; /* the region's */
    uint32_t n_probes, n_layers, n_embd, pad[7];
};
_Static_assert(sizeof(struct ntx_board_hdr) == 64, "");

/* The private handle. The geometry is a copy of the checked header. */
struct ntx_board {
    uint64_t epoch;
    uint32_t n_probes, n_layers, n_embd;
    struct ntx_probe *probe;
    float *data;
    struct ntx_segment part;
};

/* Bytes of the board; 0 on overflow. */
uint64_t ntx_board_bytes(uint32_t n_probes, uint32_t n_layers, uint32_t n_embd);
int ntx_board_make(uint64_t epoch, uint32_t n_probes, uint32_t n_layers, uint32_t n_embd, struct ntx_board *b,
                   struct ntx_err *err);
/* The predictor maps the board for reading and validates it. Takes over fd, also on failure. */
int ntx_board_attach(int fd, struct ntx_board *b, struct ntx_err *err);
void ntx_board_close(struct ntx_board *b); /* accepts a zeroed or closed board */

/* Floats of one row: the hidden state [n_embd], then the similarities [n_layers]. */
static inline size_t ntx_board_floats(const struct ntx_board *b) { return (size_t)b->n_embd + b->n_layers; }

#endif
