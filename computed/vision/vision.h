/* SPDX-License-Identifier: Apache-2.0 */
/* vision.h: from the pixels of a picture to rows of a text model's input.
 *
 * A projector file (llama.cpp's `mmproj`: a GGUF of the architecture "clip") has a vision tower and a projector, which
 * makes rows as wide as the text model's embeddings. Both are layers of the operations table (model/layer.h;
 * model/arch/tower*.c has a file for each kind), and run by the same pass as a text model, with a pool of threads of
 * their own. The bits of a row depend on nothing but the file and the pixels: not on threads, nor on other pictures.
 *
 * One thread at a time uses an open tower, but for ntx_vision_done. Nothing here keeps a picture after its call. */
#ifndef NTX_COMPUTED_VISION_VISION_H
#define NTX_COMPUTED_VISION_VISION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct ntx_fitted;
struct ntx_model;
struct ntx_picture_rule;
struct ntx_pixels;
struct ntx_stage;
struct ntx_vision;

struct ntx_vision_config {
    int fd;                       /* the projector file; borrowed, it must stay open */
    const struct ntx_model *text; /* the text model that it must fit; NULL: any. Not needed after the call */
    uint32_t threads;             /* of an encode, at least 1 */
    uint64_t ram;                 /* most bytes that weights and one encode may take together; 0: no bound */
    bool streams;                 /* weights are read anew for each picture, by ntx-iod (ntx_vision_stage). The bits are
                                     the same */
    uint64_t window; /* bytes that are read at once then; 0: 8 MiB, or a 16th of a small tower. The matrices
                                     of half a layer are always read together */
    uint32_t block;  /* patches that are computed at a time; 0: some hundreds. The bits are the same */
    bool look;       /* read and check the header alone: such a tower cannot encode */
};

/* Opens a projector file. Its header, shapes and types are checked, and that it fits the text model. -ENOTSUP: of a
 * kind that is not computed (the error lists those that are); -EINVAL: it is damaged, or belongs to another model;
 * -ENOMEM: it needs more than `ram` (the error says how much). */
int ntx_vision_open(const struct ntx_vision_config *c, struct ntx_vision **out, struct ntx_err *err);
void ntx_vision_close(struct ntx_vision *v);
/* Of a tower that streams: who reads its weights (computed/weights/stage.h), of at least ntx_vision_stage_bytes, and
 * the projector's number among the files of the region. Before the first encode; the stage must outlive the last. */
void ntx_vision_stage(struct ntx_vision *v, struct ntx_stage *stage, uint32_t file);
uint64_t ntx_vision_stage_bytes(const struct ntx_vision *v);

/* How a picture is made to fit, for ntx_picture_size and ntx_picture_pixels. Lives as long as the tower. */
const struct ntx_picture_rule *ntx_vision_rule(const struct ntx_vision *v);

/* How rows stand in the text. */
struct ntx_vision_text {
    const char *begin, *end; /* text around the rows, with control tokens; "": none */
    const char *row_end;     /* control token between two rows of the grid (Pixtral's [IMG_BREAK]), or NULL */
    const char *tile_end;    /* control tokens of tiles, or NULL: behind a tile with another one to its right; */
    const char *line_end;    /* behind the last one of a line; */
    const char *whole;       /* before the rows of the whole picture, which follows the tiles or is alone */
    bool mrope;              /* positions are by row and column of the grid (M-RoPE) */
    bool bidirectional;      /* rows of one picture see one another (Gemma 3) */
    uint32_t lead;           /* rows of padding before a picture's others (DeepSeek V4). So many are left out that the
                                row behind them is at the end of a group of lead + 1 positions */
};
const struct ntx_vision_text *ntx_vision_text(const struct ntx_vision *v);

/* The rows of a picture: the grids of its tiles, from the left and then from the top, and behind them that of the whole
 * picture. A picture that is not cut is one tile. Where learned rows stand among the others (weave.c), all are one
 * line. */
struct ntx_vision_grid {
    uint32_t across, down;            /* tiles */
    uint32_t columns, rows;           /* of a tile's grid; its row r, column c is row r * columns + c of the tile */
    uint32_t over_columns, over_rows; /* of the whole picture's, beside tiles; 0: there is none */
};
static inline uint64_t ntx_vision_grid_rows(const struct ntx_vision_grid *g)
{
    return (uint64_t)g->across * g->down * g->columns * g->rows + (uint64_t)g->over_columns * g->over_rows;
}
/* The rows that fitted pixels of this size become. */
struct ntx_vision_grid ntx_vision_grid_of(const struct ntx_vision *v, const struct ntx_fitted *size);
/* Its tokens of context, with those between the rows. */
uint64_t ntx_vision_tokens(const struct ntx_vision *v, const struct ntx_vision_grid *g);

struct ntx_vision_rows {
    struct ntx_vision_grid grid;
    uint32_t width; /* floats: the text model's n_embd, times 1 + `deep` */
    uint32_t deep;  /* so many parts of n_embd behind the first are added to the state after the first layers
                               (deepstack: part 1 after layer 0, ...) */
    float *values;  /* [ntx_vision_grid_rows][width] */
};

/* Runs the tower. Pixels are fitted by the rule, else -EINVAL. -ECANCELED: *unwanted (may be NULL) became true.
 * -ENOMEM: this picture needs more than `ram`. */
int ntx_vision_encode(struct ntx_vision *v, const struct ntx_pixels *pixels, const atomic_bool *unwanted,
                      struct ntx_vision_rows *out, struct ntx_err *err);
/* How far the encode under way is, in thousandths of its weights; 0: none is. Any thread. */
uint32_t ntx_vision_done(const struct ntx_vision *v);
void ntx_vision_rows_free(struct ntx_vision_rows *r);

/* Bytes of memory for the weights: all of them, or what a stream of them takes, the stage included. */
uint64_t ntx_vision_weights(const struct ntx_vision *v, bool streamed);
/* Bytes of memory for fitted pixels of this size, these and the weights included. */
uint64_t ntx_vision_bytes(const struct ntx_vision *v, const struct ntx_fitted *size);
uint32_t ntx_vision_n_embd(const struct ntx_vision *v); /* of the text model */
uint32_t ntx_vision_deep(const struct ntx_vision *v);   /* as in struct ntx_vision_rows */

#endif
