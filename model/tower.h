/* SPDX-License-Identifier: Apache-2.0 */
/* tower.h: vision towers: the models of a projector file (llama.cpp's `mmproj`, a GGUF of the architecture "clip").
 *
 * A tower is two or three models (model/arch.h) of ordinary layers. The first has a row for each patch of the picture:
 * it gets its pixels, and leaves the state after its last layer, and perhaps after earlier ones ("deep" states). The
 * last, the projector, has a row for each square of merge x merge patches: it gets their states and makes a row for the
 * text model. Between them there may be one that has a row for each patch, and makes another state of its state.
 * model/arch/tower_*.c has a file for each kind of tower; key clip.projector_type names it.
 *
 * Units: pixels, patches, and floats. All numbers are checked when a tower is opened. */
#ifndef NTX_MODEL_TOWER_H
#define NTX_MODEL_TOWER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define NTX_TOWER_DEEP_MAX  8u
#define NTX_TOWER_MERGE_MAX 8u
#define NTX_TOWER_PATCH_MAX 128u
#define NTX_TOWER_VIEWS_MAX 512u /* layers of a tower with a band */
#define NTX_TOWER_TABLE_MAX (1u << 20)
#define NTX_TOWER_SIDE_MAX  16384u /* longest side of a picture, in pixels */

struct ntx_gguf;
struct ntx_model;

/* How pictures are resized (computed/picture/picture.h). */
enum ntx_tower_fit {
    NTX_TOWER_FIT_AREA,    /* sides are multiples of merge x patch, and the area is within min_pixels and max_pixels */
    NTX_TOWER_FIT_FILL,    /* the same sides, as large as max_pixels allow */
    NTX_TOWER_FIT_CANVAS,  /* the same sides and area, on a canvas */
    NTX_TOWER_FIT_PADDED,  /* the same sides, at most `size` each, of at most max_pixels, on a canvas */
    NTX_TOWER_FIT_SQUARE,  /* size x size */
    NTX_TOWER_FIT_LONGEST, /* both sides at most size, and multiples of merge x patch */
    NTX_TOWER_FIT_ROWS,    /* sides are multiples of patch, on a grey canvas, so that its rows are at most most_rows */
    NTX_TOWER_FIT_TILES    /* in at most `tiles` tiles of size x size, and then the whole picture in one more */
};
/* A row of the tower without a patch, for each picture or tile; the projector does not get its state. */
enum ntx_tower_extra {
    NTX_TOWER_EXTRA_NONE,
    NTX_TOWER_EXTRA_BEHIND /* behind the patches; the table of positions has an entry for it at its end */
};
/* Entries of the table of learned positions that a patch gets. */
enum ntx_tower_table {
    NTX_TOWER_TABLE_NONE,
    NTX_TOWER_TABLE_EXACT,   /* the grid is the table */
    NTX_TOWER_TABLE_CORNERS, /* bilinear, with the corners of the table in the corners of the grid */
    NTX_TOWER_TABLE_CENTRES, /* bicubic, with the borders of the table on the borders of the grid */
    NTX_TOWER_TABLE_SIDES    /* two tables of `side` entries, first one by column, then one by row: their sum */
};
/* Two-dimensional rotation: of the angles, the first half goes by the row, the second half by the column, if nothing
 * else is said. */
enum ntx_tower_turn {
    NTX_TOWER_TURN_NONE,
    NTX_TOWER_TURN_ALIKE, /* both halves have the same frequencies */
    NTX_TOWER_TURN_WOVEN  /* the halves have every second frequency of all pairs: first even ones, then odd ones */
};
/* States of the patches of a square, row by row, in the projector's input. */
enum ntx_tower_join {
    NTX_TOWER_JOIN_STATES, /* one state behind the other */
    NTX_TOWER_JOIN_VALUES  /* value 0 of all states, then value 1 of all, ... */
};

/* A layer's view, in a tower with a band: a patch sees all of the picture, or so many patches before it and behind it,
 * in the order of squares from row to row, or from column to column. */
enum ntx_tower_view { NTX_TOWER_VIEW_WHOLE, NTX_TOWER_VIEW_ROWS, NTX_TOWER_VIEW_COLUMNS };

/* Learned rows around those of a picture. */
enum { NTX_TOWER_MARK_BEGIN, NTX_TOWER_MARK_END, NTX_TOWER_MARK_LINE, NTX_TOWER_MARK_PAD, NTX_TOWER_MARKS };
#define NTX_TOWER_LEAD 3u /* rows of padding before the first one (computed/vision/vision.h) */

struct ntx_tower {
    const char *kind; /* "qwen3vl_merger" */
    uint32_t size, patch, merge, tiles;
    uint32_t embd, out, hidden; /* widths: of a state, of the text model, between the projector's products */
    uint32_t state;             /* width of a state as the projector gets it */
    uint32_t converted;         /* width between the products that a state goes through before; 0: none */
    uint32_t n_deep, deep[NTX_TOWER_DEEP_MAX]; /* deep states: after so many layers, ascending */
    uint32_t side;                             /* the table of learned positions has side x side entries; 0: no table */
    uint32_t n_places;                         /* its entries, that of an extra row included */
    uint32_t window;      /* squares along a side of a window, for layers with windows; 0: no such layers */
    uint32_t whole_every; /* with windows: the last of so many layers attends to the whole picture */
    uint32_t band;        /* patches before one and behind it that it sees in some layers; 0: no such layers */
    uint8_t views[NTX_TOWER_VIEWS_MAX]; /* of each layer, with a band: enum ntx_tower_view */
    enum ntx_tower_fit fit;
    enum ntx_tower_table table;
    enum ntx_tower_turn turn;
    enum ntx_tower_join join;
    enum ntx_tower_extra extra;
    uint32_t turn_from; /* number of the first row and column, for the rotation; an extra row has 0 */
    bool bfloat;        /* pixels are rounded to bfloat16 */
    bool bilinear;      /* resized bilinearly, else bicubically */
    bool gelu, silu;    /* keys clip.use_gelu, clip.use_silu */
    bool bounded;       /* inputs and outputs of matrices have bounds */
    bool misnamed;      /* the file calls the norms before FFNs attn_post_norm */
    bool swapped;       /* the file calls the first matrix of an FFN "down" and the second "up" */
    bool marked;        /* rows are woven with learned ones (computed/vision/weave.c), which these tensors are */
    uint32_t marks[NTX_TOWER_MARKS];
    uint32_t most_rows; /* of a picture, learned ones included; 0: other numbers bound it */
    uint64_t min_pixels, max_pixels;
    float limit; /* of an FFN's gate and of its factor; 0: none */
    float mean[3], deviation[3];
    /* In the text: see computed/vision/vision.h. */
    const char *begin, *end, *row_end;
    const char *glm_begin, *glm_end; /* the same with a text model of GLM; NULL: no others */
    const char *tile_end, *line_end; /* behind a tile with another one to its right; behind the last one of a line */
    const char *whole;               /* before the rows of the whole picture */
    bool mrope, bidirectional;
};

/* The models of a tower, in the order of use; the second is NULL where the tower has none. */
enum { NTX_TOWER_SEES, NTX_TOWER_CONVERTS, NTX_TOWER_PROJECTS, NTX_TOWER_PARTS };

/* Opens all models. Shapes and types are checked, and every tensor for pictures must be used. -ENOTSUP: a kind that is
 * not computed; the error lists those that are. */
int ntx_tower_open(const struct ntx_gguf *g, struct ntx_model *parts[NTX_TOWER_PARTS], struct ntx_err *err);
/* Kinds of towers, comma separated. */
const char *ntx_tower_names(void);
/* Values of a row that a part gets. */
uint32_t ntx_tower_in(const struct ntx_model *part);

#endif
