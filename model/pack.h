/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h: the packed form of a model's dense FFNs, in which the neurons that a token uses can be read
 * alone. `ntx pack` writes it; this header is its definition.
 *
 * A packed model is a GGUF whose layers have, in the place of blk.N.ffn_up.weight and blk.N.ffn_down.weight, one tensor
 * of bytes:
 *
 *   blk.N.ntx_ffn.weight   I8 [group_bytes, n_groups]
 *
 *   one row of it, a group of `group` neighbouring neurons:
 *   +------------------------+------------------------+------------------------+---------------------------+
 *   | gate row of each       | up row of each         | down column of each, or| zeros up to whole blocks  |
 *   | (only gate in bundle)  | n_embd values          | rows of the group      | of NTX_PACK_BLOCK bytes   |
 *   +------------------------+------------------------+------------------------+---------------------------+
 *
 * Each part begins at an even byte. The gate matrix stays contiguous as blk.N.ffn_gate.weight, or (--gate-in-bundle) is
 * in the groups. Neuron j is in group j / group, at j % group; neurons past n_ff in the last group are zeros.
 * general.alignment is NTX_PACK_BLOCK, so a group begins on a block of the drive, and reading it reads nothing else.
 *
 * Down columns are exact in types of single values (F32, F16, BF16). A type of blocks has blocks of some neurons of one
 * output: a group has whole blocks then, and its down part is n_embd rows of `group` values, the original's bytes in
 * another order. Columns in a type of blocks (--down-type, --from) are rounded along their own n_embd values.
 *
 * If layers share matrices and add to them (layer_delta.h), they share groups in the same way, by ntx.delta.base, and
 * shared groups stay in memory. What a layer adds to up and down is read by the same groups of neurons:
 *
 *   blk.N.ntx_ffn_delta.weight   I8 [bytes, n_groups]
 *   +------------------------------+-----------------------------------+---------------------------+
 *   | of ffn_up's lora_b the row   | of ffn_down's lora_a the column   | zeros up to whole blocks  |
 *   | of each, `rank` values       | of each, `rank` values            | of NTX_PACK_BLOCK bytes   |
 *   +------------------------------+-----------------------------------+---------------------------+
 *
 * The low-rank matrices of the gate, ffn_up's lora_a and ffn_down's lora_b are ordinary tensors, and the gate matrix is
 * not in the groups then. Without lora_a, or lora_b, a full matrix is added (ffn_up.weight.delta,
 * ffn_down.weight.delta): `rank` is n_embd, z below is x, and B is the identity.
 *
 * Keys: ntx.pack.version (u32): 1, or 2 with ntx.pack.down_rows; and arrays of u32 with an entry per layer:
 *   ntx.pack.group                              neurons in a group
 *   ntx.pack.down_rows                          1: rows of the group, 0: columns
 *   ntx.pack.up_type, down_type, gate_type ggml types of the rows; gate_type only if gate rows are in the groups
 *   ntx.pack.up_delta_type, down_delta_type both where layers add to what they share: types of what is added; I8:
 *     nothing
 *
 * Computation (computed/pass/sparse.c): hidden value of neuron j is act(gate_j . x) * (up_j . x), or nothing where
 * act gives 0 or the mode leaves the neuron out; y = sum over j, increasing, of fmaf(hidden_j, down_j, y). So an exact
 * zero changes no bit. With rows, y = sum over blocks of neurons, increasing, of their rows . hidden values, a product
 * as that of any matrix; a group whose hidden values are 0 changes no bit. With what is added, up_j . x becomes
 * fmaf(s, up_delta_j . z, up_j . x) with z = A x of ffn_up, and fmaf(s, B v, y) is the outcome, B of ffn_down, with
 * v = sum over j, likewise, of fmaf(hidden_j, down_delta_j, v).
 * */
#ifndef NTX_MODEL_PACK_H
#define NTX_MODEL_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "model/gguf.h"

#define NTX_PACK_VERSION      1u
#define NTX_PACK_VERSION_ROWS 2u /* with ntx.pack.down_rows */
#define NTX_PACK_BLOCK        4096u
#define NTX_PACK_TENSOR       "ntx_ffn.weight"
#define NTX_PACK_ADDED_TENSOR "ntx_ffn_delta.weight"

enum ntx_pack_part { NTX_PACK_GATE, NTX_PACK_UP, NTX_PACK_DOWN, NTX_PACK_PARTS };

struct ntx_pack_added {                 /* the addition to one part (layer_delta.h), by neuron */
    uint32_t type, rank, row_bytes, at; /* at: of its first row in a group; row_bytes 0: no addition */
    bool whole;                         /* a full matrix, not two low-rank ones; rank is n_embd then */
};

struct ntx_pack_layer {
    uint32_t group, n_groups;           /* neurons in a group; groups */
    uint32_t type[NTX_PACK_PARTS];      /* enum ntx_type */
    uint32_t row_bytes[NTX_PACK_PARTS]; /* 0: not in the groups */
    uint32_t at[NTX_PACK_PARTS];        /* offset of the part's first row in a group */
    uint32_t group_bytes;
    bool down_rows;                              /* down is n_embd rows of `group` values */
    bool adds;                                   /* the file has keys of additions */
    struct ntx_pack_added added[NTX_PACK_PARTS]; /* of up and down */
    uint32_t added_bytes;                        /* bytes of a group's addition; 0: this layer adds nothing */
};

static inline bool ntx_pack_has_gate(const struct ntx_pack_layer *p) { return p->row_bytes[NTX_PACK_GATE] != 0; }

/* Rows of a part in a group, row_bytes each. */
static inline uint32_t ntx_pack_rows(const struct ntx_pack_layer *p, enum ntx_pack_part part, uint32_t n_embd)
{
    return part == NTX_PACK_DOWN && p->down_rows ? n_embd : p->group;
}

/* Computes the layout from `group`, `type` and `down_rows`; gate: gate rows are in the groups. -EINVAL: rows that are
 * not whole blocks, or an impossible group size. */
int ntx_pack_layout(struct ntx_pack_layer *p, uint32_t n_embd, uint32_t n_ff, bool gate);

/* Computes the layout of additions from types and ranks. */
int ntx_pack_layout_added(struct ntx_pack_layer *p);
static inline bool ntx_pack_adds(const struct ntx_pack_layer *p, enum ntx_pack_part part)
{
    return p->added[part].row_bytes != 0;
}

/* The number of neurons in a group of about `bytes`: at least that many bytes, up to half as many more; among these
 * the one with least padding. */
uint32_t ntx_pack_group_for(uint64_t bytes, uint64_t neuron_bytes);

/* *layers: malloc'd [n_layers], or NULL if the file is not packed. */
int ntx_pack_read(const struct ntx_gguf *g, uint32_t n_layers, uint32_t n_embd, uint32_t n_ff,
                  struct ntx_pack_layer **layers, struct ntx_err *err);

#endif
