/* SPDX-License-Identifier: Apache-2.0 */
/* vision.c: opens and checks projector files, and runs the parts of a tower: a pass over all patches, which is computed
 * in blocks of them, and then passes over some of the squares that they form at a time. Weights stay in memory between
 * pictures or are read for each (`streams`); all else is there only during a call. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/util.h"
#include "computed/pass/weights_ram.h"
#include "computed/vision/vision_impl.h"
#include "model/gguf.h"
#include "model/quant.h"

enum { CHUNK = 4 << 20, WINDOW = 8 << 20, WINDOWS = 16 };
enum { BLOCK = 768, LEAST = 64 }; /* patches at a time; squares at least, so that products have many rows */

struct part { /* of a tower; without a model: it has none */
    struct ntx_vision *of;
    struct ntx_model *model;
    struct ntx_chunks *chunks;
    uint32_t *span; /* see ntx_forward_spans */
    union {
        struct ntx_weights w;
        struct ntx_ram_weights kept;
        struct ntx__windows streamed;
    };
    struct ntx_weights_ops ops; /* those of `w`, but a pass ends where it is unwanted, and its progress counts */
    const struct ntx_weights_ops *own;
    const atomic_bool *unwanted;
};

struct ntx_vision {
    struct ntx_vision_config c;
    int fds[1];
    struct ntx_gguf *gguf;
    struct part parts[NTX_TOWER_PARTS]; /* of those that the tower has */
    const struct ntx_tower *t;
    float *marks; /* learned rows, or NULL */
    struct ntx_picture_rule rule;
    struct ntx_vision_text text;
    uint64_t pass;
    atomic_uint done, todo; /* chunks that the encode under way has used, and will have used */
};

/* ---- memory */

static uint32_t part_taps(const struct ntx_tower *t, uint32_t n_layers, uint32_t *taps)
{
    taps[0] = n_layers;
    memcpy(taps + 1, t->deep, t->n_deep * sizeof *taps);
    return 1 + t->n_deep;
}

static bool sees(const struct ntx_vision *v, const struct part *p) { return p == &v->parts[NTX_TOWER_SEES]; }

/* Rows of a part at a time: in blocks of its one pass, or in passes of their own. */
static uint32_t part_rows(const struct ntx_vision *v, const struct part *p, uint32_t n)
{
    uint32_t most = v->c.block ? v->c.block : BLOCK;
    if (p == &v->parts[NTX_TOWER_PROJECTS])
        most = NTX_MAX(most / v->t->merge / v->t->merge, (uint32_t)LEAST);
    return NTX_MIN(n, most);
}

static struct ntx_forward_config part_pass(const struct ntx_vision *v, const struct part *p, uint32_t rows)
{
    return (struct ntx_forward_config){.model = p->model,
                                       .chunks = p->chunks,
                                       .ops = ntx_cpu_pick(NULL),
                                       .threads = v->c.threads,
                                       .max_rows = rows,
                                       .ctx = rows,
                                       .block = sees(v, p) ? part_rows(v, p, rows) : 0};
}

static struct ntx_kv_shape part_kv(uint32_t rows)
{
    return (struct ntx_kv_shape){.blocks = (rows + NTX_KV_BLOCK - 1) / NTX_KV_BLOCK};
}

static uint64_t part_bytes(const struct ntx_vision *v, const struct part *p, uint32_t n)
{
    const uint32_t rows = sees(v, p) ? n : part_rows(v, p, n);
    const struct ntx_forward_config c = part_pass(v, p, rows);
    const struct ntx_kv_shape kv = part_kv(rows);
    return ntx_forward_bytes(&c) + ntx_kv_shape_bytes(&p->model->hp, NTX_KV_F16, &kv) +
           (uint64_t)rows * (sizeof(struct ntx_row) + ntx_tower_in(p->model) * sizeof(float));
}

static uint64_t window_of(const struct ntx_vision *v, const struct ntx_chunks *c)
{
    return v->c.window ? v->c.window : NTX_MIN(c->matrix_bytes / WINDOWS, (uint64_t)WINDOW);
}

/* One part at a time uses it. */
uint64_t ntx_vision_stage_bytes(const struct ntx_vision *v)
{
    uint64_t most = 0;
    for (int i = 0; i < NTX_TOWER_PARTS; i++) {
        const struct ntx_chunks *c = v->parts[i].chunks;
        if (c)
            most = NTX_MAX(most, ntx__windows_stage(c, v->parts[i].span, window_of(v, c)));
    }
    return most;
}

uint64_t ntx_vision_weights(const struct ntx_vision *v, bool streamed)
{
    uint64_t all = streamed ? ntx_vision_stage_bytes(v) : 0;
    for (int i = 0; i < NTX_TOWER_PARTS; i++) {
        const struct ntx_chunks *c = v->parts[i].chunks;
        if (c)
            all += streamed ? ntx__windows_tables(c) : ntx_ram_weights_pick_bytes(c);
    }
    return ntx_gguf_header_bytes(v->gguf) + all + (v->t->marked ? NTX_TOWER_MARKS * v->t->out * sizeof(float) : 0);
}

static uint64_t weight_bytes(const struct ntx_vision *v) { return ntx_vision_weights(v, v->c.streams); }

/* The largest pictures by area, or the only one. A long one needs as much as a square one. Kimi's bound counts whole
 * patches before a picture is padded: less than twice as many become of a narrow one. */
static uint64_t most_patches(const struct ntx_vision *v)
{
    const struct ntx_tower *t = v->t;
    const uint64_t square = t->patch * t->merge, side = (t->size + square - 1) / square * t->merge,
                   patch = (uint64_t)t->patch * t->patch;
    if (t->fit == NTX_TOWER_FIT_PADDED)
        return 2 * t->max_pixels / patch;
    if (t->fit == NTX_TOWER_FIT_TILES)
        return (t->tiles + 1) * side * side;
    return t->max_pixels ? t->max_pixels / patch : side * side;
}

static uint64_t count_patches(const struct ntx_tower *t, const struct ntx_fitted *size)
{
    return (uint64_t)(size->width / t->patch) * (size->height / t->patch) +
           (uint64_t)(size->over_width / t->patch) * (size->over_height / t->patch);
}

static uint64_t count_squares(const struct ntx_tower *t, const struct ntx_fitted *size)
{
    return ntx__squares(t, size->width, size->height) + ntx__squares(t, size->over_width, size->over_height);
}

/* Tiles, and the whole picture beside them. */
static uint64_t count_parts(const struct ntx_tower *t, const struct ntx_fitted *size)
{
    return t->tiles ? (uint64_t)(size->width / t->size) * (size->height / t->size) + (size->over_width > 0) : 1;
}

/* The states of the first part live until they are joined, and what is joined during the second. */
uint64_t ntx_vision_bytes(const struct ntx_vision *v, const struct ntx_fitted *size)
{
    const struct ntx_tower *t = v->t;
    const uint64_t patches = count_patches(t, size), squares = count_squares(t, size),
                   n = patches + (t->extra == NTX_TOWER_EXTRA_NONE ? 0 : count_parts(t, size));
    if (n > UINT32_MAX)
        return UINT64_MAX;
    const uint64_t states = n * (1 + t->n_deep) * t->embd * sizeof(float),
                   rows = (squares + (t->marked ? ntx__woven_rows(t, size) : 0)) *
                          v->parts[NTX_TOWER_PROJECTS].model->hp.n_embd * sizeof(float),
                   first = part_bytes(v, &v->parts[NTX_TOWER_SEES], (uint32_t)NTX_MAX(n, 1u)),
                   last = part_bytes(v, &v->parts[NTX_TOWER_PROJECTS], (uint32_t)NTX_MAX(squares, 1u)),
                   converted = t->converted ? n * t->state * sizeof(float) : 0,
                   between = t->converted ? part_bytes(v, &v->parts[NTX_TOWER_CONVERTS], (uint32_t)NTX_MAX(n, 1u)) : 0;
    const uint64_t pixels = patches * t->patch * t->patch * 3 * sizeof(float);
    return weight_bytes(v) + pixels + ntx__patches_bytes(t, n) + states + converted +
           NTX_MAX(NTX_MAX(first, between), last + rows);
}

static int check_memory(const struct ntx_vision *v, const struct ntx_fitted *size, struct ntx_err *err)
{
    const uint64_t need = ntx_vision_bytes(v, size);
    char a[32], b[32];
    if (!v->c.ram || need <= v->c.ram)
        return 0;
    return ntx_err_set(
        err, -ENOMEM,
        "a picture of %u x %u pixels needs %s of memory with the projector's weights, and %s are left for "
        "it: give more --ram, or a smaller picture",
        size->width, size->height, ntx_format_size(need, a, sizeof a), ntx_format_size(v->c.ram, b, sizeof b));
}

/* ---- opening */

static struct part *weights_part(struct ntx_weights *w)
{
    return (struct part *)((char *)w - offsetof(struct part, w));
}

/* Threads of a pass share w->error: run_part() sets the text. */
static int acquire_wanted(struct ntx_weights *w, uint32_t chunk, const void **bytes)
{
    struct part *p = weights_part(w);
    if (p->unwanted && atomic_load_explicit(p->unwanted, memory_order_relaxed))
        return -ECANCELED;
    return p->own->acquire(w, chunk, bytes);
}

static void release_counted(struct ntx_weights *w, uint32_t chunk)
{
    struct part *p = weights_part(w);
    atomic_fetch_add_explicit(&p->of->done, 1, memory_order_relaxed);
    p->own->release(w, chunk);
}

static int read_part(struct ntx_vision *v, struct part *p, struct ntx_err *err)
{
    int rc = v->c.streams ? ntx__windows_new(&p->streamed, p->chunks, p->span, window_of(v, p->chunks), err)
                          : ntx_ram_weights_pick(&p->kept, v->fds, p->chunks, err);
    if (rc)
        return rc;
    p->own = p->w.ops;
    p->ops = *p->own;
    p->ops.acquire = acquire_wanted;
    p->ops.release = release_counted;
    p->of = v;
    p->w.ops = &p->ops;
    return 0;
}

static struct ntx_picture_rule rule_of(const struct ntx_tower *t)
{
    static const enum ntx_picture_fit fits[] = {
        [NTX_TOWER_FIT_AREA] = NTX_FIT_MULTIPLE, [NTX_TOWER_FIT_FILL] = NTX_FIT_FILL,
        [NTX_TOWER_FIT_CANVAS] = NTX_FIT_CANVAS, [NTX_TOWER_FIT_PADDED] = NTX_FIT_PADDED,
        [NTX_TOWER_FIT_SQUARE] = NTX_FIT_SQUARE, [NTX_TOWER_FIT_LONGEST] = NTX_FIT_LONGEST,
        [NTX_TOWER_FIT_ROWS] = NTX_FIT_ROWS,     [NTX_TOWER_FIT_TILES] = NTX_FIT_TILES};
    struct ntx_picture_rule r = {.fit = fits[t->fit],
                                 .factor = t->marked ? t->patch : t->patch * t->merge,
                                 .merge = t->merge,
                                 .most_rows = t->most_rows,
                                 .size = t->size,
                                 .patch = t->patch,
                                 .tiles = t->tiles,
                                 .bfloat = t->bfloat,
                                 .min_pixels = t->min_pixels,
                                 .max_pixels = t->max_pixels,
                                 .filter = t->bilinear ? NTX_FILTER_BILINEAR : NTX_FILTER_BICUBIC};
    memcpy(r.mean, t->mean, sizeof r.mean);
    memcpy(r.deviation, t->deviation, sizeof r.deviation);
    return r;
}

/* The text model takes rows of its own width, and deep parts after its layers. */
static int check_text(const struct ntx_tower *t, const struct ntx_model *text, struct ntx_err *err)
{
    if (text && t->out != text->hp.n_embd)
        return ntx_err_set(
            err, -EINVAL,
            "it makes rows of %u values, and the model '%s' takes rows of %u: it belongs to another model", t->out,
            text->hp.name[0] ? text->hp.name : text->hp.arch, text->hp.n_embd);
    if (text && t->n_deep > text->hp.n_layers)
        return ntx_err_set(err, -EINVAL,
                           "it adds to the states after %u layers, and the model has %u: it belongs to another model",
                           t->n_deep, text->hp.n_layers);
    return 0;
}

/* Of Gemma 4, the models with inputs of each layer (E2B, E4B) see images in order, too. */
static bool reads_in_order(const struct ntx_model *text) { return text && text->hp.n_input; }

/* Only the part with attention holds chunks together. */
static int chunk_part(struct ntx_vision *v, struct part *p, struct ntx_err *err)
{
    int rc = p->model ? ntx_chunks_make(p->model, CHUNK, &p->chunks, err) : 0;
    if (rc || !p->model)
        return rc;
    p->span = calloc(p->chunks->n, sizeof *p->span);
    for (uint32_t i = 0; p->span && i < p->chunks->n; i++)
        p->span[i] = i;
    if (!p->span || (sees(v, p) && ntx_forward_spans(p->model, p->chunks, p->span)))
        return ntx_err_set(err, -ENOMEM, "no memory for %u chunks", p->chunks->n);
    return 0;
}

static int open_parts(struct ntx_vision *v, struct ntx_err *err)
{
    struct ntx_model *models[NTX_TOWER_PARTS];
    struct stat st;
    v->fds[0] = v->c.fd;
    if (fstat(v->c.fd, &st) || !S_ISREG(st.st_mode))
        return ntx_err_set(err, -EINVAL, "not a regular file");
    int rc = ntx_gguf_open(v->fds, 1, NULL, &v->gguf, err);
    if (!rc)
        rc = ntx_tower_open(v->gguf, models, err);
    if (rc)
        return rc;
    for (int i = 0; i < NTX_TOWER_PARTS; i++)
        v->parts[i].model = models[i];
    v->t = v->parts[NTX_TOWER_SEES].model->hp.tower;
    v->rule = rule_of(v->t);
    v->text = (struct ntx_vision_text){.begin = v->t->begin,
                                       .end = v->t->end,
                                       .row_end = v->t->row_end,
                                       .tile_end = v->t->tile_end,
                                       .line_end = v->t->line_end,
                                       .whole = v->t->whole,
                                       .mrope = v->t->mrope,
                                       .lead = v->t->marked ? NTX_TOWER_LEAD : 0,
                                       .bidirectional = v->t->bidirectional && !reads_in_order(v->c.text)};
    if (v->c.text && v->t->glm_begin && !strncmp(v->c.text->hp.arch, "glm", 3)) {
        v->text.begin = v->t->glm_begin;
        v->text.end = v->t->glm_end;
    }
    rc = check_text(v->t, v->c.text, err);
    for (int i = 0; i < NTX_TOWER_PARTS && !rc; i++)
        rc = chunk_part(v, &v->parts[i], err);
    return rc;
}

static int read_weights(struct ntx_vision *v, struct ntx_err *err)
{
    char a[32], b[32];
    if (v->c.ram && weight_bytes(v) > v->c.ram)
        return ntx_err_set(err, -ENOMEM, "its weights need %s of memory, and %s are left for it: give more --ram",
                           ntx_format_size(weight_bytes(v), a, sizeof a), ntx_format_size(v->c.ram, b, sizeof b));
    int rc = 0;
    for (int i = 0; i < NTX_TOWER_PARTS && !rc; i++)
        if (v->parts[i].model)
            rc = read_part(v, &v->parts[i], err);
    return rc || !v->t->marked ? rc : ntx__marks_read(v->t, v->gguf, v->c.fd, &v->marks, err);
}

int ntx_vision_open(const struct ntx_vision_config *c, struct ntx_vision **out, struct ntx_err *err)
{
    struct ntx_vision *v = calloc(1, sizeof *v);
    if (!v)
        return ntx_err_set(err, -ENOMEM, "no memory for a vision tower");
    v->c = *c;
    v->c.threads = NTX_MAX(c->threads, 1u);
    int rc = open_parts(v, err);
    if (!rc && !c->look)
        rc = read_weights(v, err);
    v->c.text = NULL;
    if (rc) {
        ntx_vision_close(v);
        return rc;
    }
    *out = v;
    return 0;
}

static void close_part(const struct ntx_vision *v, struct part *p)
{
    if (v->c.streams)
        ntx__windows_free(&p->streamed);
    else
        ntx_ram_weights_free(&p->kept);
    ntx_chunks_free(p->chunks);
    free(p->span);
    ntx_model_free(p->model);
}

void ntx_vision_close(struct ntx_vision *v)
{
    if (!v)
        return;
    for (int i = 0; i < NTX_TOWER_PARTS; i++)
        close_part(v, &v->parts[i]);
    ntx_gguf_free(v->gguf);
    free(v->marks);
    free(v);
}

void ntx_vision_stage(struct ntx_vision *v, struct ntx_stage *stage, uint32_t file)
{
    for (int i = 0; i < NTX_TOWER_PARTS && v->c.streams; i++) {
        v->parts[i].streamed.stage = stage;
        v->parts[i].streamed.file = file;
    }
}

const struct ntx_picture_rule *ntx_vision_rule(const struct ntx_vision *v) { return &v->rule; }
const struct ntx_vision_text *ntx_vision_text(const struct ntx_vision *v) { return &v->text; }
uint32_t ntx_vision_n_embd(const struct ntx_vision *v) { return v->t->out; }
uint32_t ntx_vision_deep(const struct ntx_vision *v) { return v->t->n_deep; }

struct ntx_vision_grid ntx_vision_grid_of(const struct ntx_vision *v, const struct ntx_fitted *size)
{
    const uint32_t square = v->t->patch * v->t->merge, width = v->t->tiles ? v->t->size : size->width,
                   height = v->t->tiles ? v->t->size : size->height;
    if (v->t->marked)
        return (struct ntx_vision_grid){
            .across = 1, .down = 1, .columns = (uint32_t)ntx__woven_rows(v->t, size), .rows = 1};
    return (struct ntx_vision_grid){.across = size->width / width,
                                    .down = size->height / height,
                                    .columns = width / square,
                                    .rows = height / square,
                                    .over_columns = size->over_width / square,
                                    .over_rows = size->over_height / square};
}

/* Each text between rows is one control token. */
uint64_t ntx_vision_tokens(const struct ntx_vision *v, const struct ntx_vision_grid *g)
{
    const struct ntx_vision_text *t = &v->text;
    const uint64_t tiles = (uint64_t)g->across * g->down;
    uint64_t n = ntx_vision_grid_rows(g) + (t->row_end ? g->rows - 1 : 0) + (t->whole ? 1 : 0);
    if (g->over_columns)
        n += (t->tile_end ? tiles - g->down : 0) + (t->line_end ? g->down : 0);
    return n;
}

/* ---- a picture */

static int check_pixels(const struct ntx_vision *v, const struct ntx_pixels *p, struct ntx_err *err)
{
    const struct ntx_tower *t = v->t;
    const uint32_t width = p->size.width, height = p->size.height, factor = t->tiles ? t->size : v->rule.factor;
    const bool square = t->fit == NTX_TOWER_FIT_SQUARE, cut = t->tiles && (width > t->size || height > t->size);
    if (v->c.look)
        return ntx_err_set(err, -EINVAL, "the projector's weights were not read");
    if (!width || !height || width % factor || height % factor || (square && (width != t->size || height != t->size)) ||
        count_patches(t, &p->size) > most_patches(v) || (p->size.over_width || p->size.over_height) != cut ||
        (cut && (p->size.over_width != t->size || p->size.over_height != t->size || !p->over ||
                 (uint64_t)width / factor * (height / factor) > t->tiles)))
        return ntx_err_set(err, -EINVAL, "pixels of %u x %u do not fit the tower", width, height);
    return check_memory(v, &p->size, err);
}

/* Its place for the rotation: a row and a column. */
static void place_patch(const struct ntx_tower *t, struct ntx_row *r, uint32_t at, uint32_t columns)
{
    if (at == NTX__EXTRA)
        return;
    r->place[1] = t->turn_from + at / columns;
    r->place[2] = t->turn_from + at % columns;
}

/* Runs one part over rows whose kv, pos and ahead it sets. */
static int run_part(struct ntx_vision *v, struct part *p, struct ntx_row *rows, uint32_t n, struct ntx_err *err)
{
    struct ntx_forward_config c = part_pass(v, p, n);
    const struct ntx_kv_shape shape = part_kv(n);
    struct ntx_forward *f = NULL;
    struct ntx_kv_pool *pool = NULL;
    struct ntx_kv_seq *kv = NULL;
    uint32_t taps[1 + NTX_TOWER_DEEP_MAX];
    c.weights = &p->w;
    c.taps = taps;
    c.n_taps = sees(v, p) ? part_taps(v->t, p->model->hp.n_layers, taps) : 0;
    p->w.error = (struct ntx_err){0};
    int rc = ntx_kv_pool_new(&p->model->hp, NTX_KV_F16, &shape, &pool, err);
    if (!rc && (rc = ntx_kv_seq_new(pool, n, &kv)))
        ntx_err_set(err, rc, "no memory for the K and V of a picture");
    if (!rc)
        rc = ntx_forward_new(&c, &f, err);
    for (uint32_t i = 0; i < n && !rc; i++) {
        rows[i].kv = kv;
        rows[i].pos = i;
        rows[i].ahead = n - 1 - i;
    }
    if (!rc && (rc = ntx_forward_run(f, &(struct ntx_batch){.pass = ++v->pass, .rows = rows, .n_rows = n}))) {
        const struct ntx_err *why = ntx_forward_error(f);
        if (rc == -ECANCELED)
            ntx_err_set(err, rc, "nobody waits for the picture any more");
        else
            ntx_err_set(err, rc, "%s", why->text[0] ? why->text : p->w.error.text);
    }
    ntx_forward_free(f);
    ntx_kv_seq_free(kv);
    ntx_kv_pool_free(pool);
    return rc;
}

/* states: [n x (1 + n_deep) x embd] */
static int see_patches(struct ntx_vision *v, const struct ntx__patches *p, const struct ntx_pixels *pixels,
                       float *states, struct ntx_err *err)
{
    const size_t in = ntx_tower_in(v->parts[NTX_TOWER_SEES].model);
    struct ntx_row *rows = calloc(p->n, sizeof *rows);
    float *unfolded = malloc(p->n * in * sizeof *unfolded);
    int rc = rows && unfolded ? 0 : ntx_err_set(err, -ENOMEM, "no memory for %u patches", p->n);
    if (!rc)
        ntx__patches_pixels(v->t, p, pixels, unfolded);
    for (uint32_t i = 0; i < p->n && !rc; i++)
        rows[i] = (struct ntx_row){.state = unfolded + i * in,
                                   .placed = true,
                                   .places = p->places ? &p->places[i] : NULL,
                                   .block = p->block ? p->block[i] : 0,
                                   .n_block = p->block ? p->n_block[i] : 0,
                                   .by_columns = p->by_columns ? p->by_columns[i] : 0,
                                   .left = states + (size_t)i * (1 + v->t->n_deep) * v->t->embd};
    for (uint32_t k = 0, i = 0; k < p->n_parts && !rc; k++)
        for (; i < (k + 1 < p->n_parts ? p->part[k + 1].first : p->n); i++)
            place_patch(v->t, &rows[i], p->at[i], p->part[k].columns);
    if (!rc)
        rc = run_part(v, &v->parts[NTX_TOWER_SEES], rows, p->n, err);
    free(rows);
    free(unfolded);
    return rc;
}

/* Other states of the same rows, in place of *states. */
static int convert_states(struct ntx_vision *v, uint32_t n, float **states, struct ntx_err *err)
{
    const struct ntx_tower *t = v->t;
    struct part *p = &v->parts[NTX_TOWER_CONVERTS];
    const uint32_t most = part_rows(v, p, n);
    struct ntx_row *rows = malloc(most * sizeof *rows);
    float *out = malloc((size_t)n * t->state * sizeof *out);
    int rc = rows && out ? 0 : ntx_err_set(err, -ENOMEM, "no memory for %u patches", n);
    for (uint32_t first = 0, some; first < n && !rc; first += some) {
        some = NTX_MIN(n - first, most);
        for (uint32_t i = 0; i < some; i++)
            rows[i] = (struct ntx_row){.state = *states + (size_t)(first + i) * t->embd,
                                       .left = out + (size_t)(first + i) * t->state};
        rc = run_part(v, p, rows, some, err);
    }
    free(rows);
    if (rc) {
        free(out);
        return rc;
    }
    free(*states);
    *states = out;
    return 0;
}

/* out: [n] rows, one for each square */
static int project_squares(struct ntx_vision *v, const struct ntx__patches *patches, const float *states, size_t n,
                           float *out, struct ntx_err *err)
{
    struct part *p = &v->parts[NTX_TOWER_PROJECTS];
    const size_t in = ntx_tower_in(p->model), width = p->model->hp.n_embd;
    const uint32_t most = part_rows(v, p, (uint32_t)n);
    struct ntx_row *rows = malloc(most * sizeof *rows);
    float *joined = malloc(most * in * sizeof *joined);
    int rc = rows && joined ? 0 : ntx_err_set(err, -ENOMEM, "no memory for %zu rows", n);
    for (size_t first = 0, some; first < n && !rc; first += some) {
        some = NTX_MIN(n - first, most);
        ntx__patches_join(v->t, patches, states, first, some, joined);
        for (size_t i = 0; i < some; i++)
            rows[i] = (struct ntx_row){.state = joined + i * in, .left = out + (first + i) * width};
        rc = run_part(v, p, rows, (uint32_t)some, err);
    }
    free(rows);
    free(joined);
    return rc;
}

/* The rows that the text gets. */
static int make_rows(struct ntx_vision *v, const struct ntx__patches *patches, const float *states,
                     const struct ntx_fitted *size, struct ntx_vision_rows *out, struct ntx_err *err)
{
    const size_t n = ntx_vision_grid_rows(&out->grid), squares = count_squares(v->t, size);
    float *own = v->t->marked ? malloc(squares * out->width * sizeof *own) : NULL;
    out->values = malloc(n * out->width * sizeof *out->values);
    int rc = out->values && (own || !v->t->marked) ? 0 : ntx_err_set(err, -ENOMEM, "no memory for %zu rows", n);
    if (!rc)
        rc = project_squares(v, patches, states, squares, own ? own : out->values, err);
    if (!rc && own)
        ntx__weave(v->t, size, v->marks, own, out->values);
    free(own);
    return rc;
}

/* Chunks that an encode uses, each once for each pass. */
static uint32_t count_chunks(const struct ntx_vision *v, uint32_t patches, uint32_t squares)
{
    uint32_t n = 0;
    for (int i = 0; i < NTX_TOWER_PARTS; i++) {
        const struct part *p = &v->parts[i];
        const uint32_t rows = i == NTX_TOWER_PROJECTS ? squares : patches, most = part_rows(v, p, rows);
        n += (p->chunks ? p->chunks->n : 0) * (sees(v, p) ? 1 : (rows + most - 1) / most);
    }
    return n;
}

int ntx_vision_encode(struct ntx_vision *v, const struct ntx_pixels *pixels, const atomic_bool *unwanted,
                      struct ntx_vision_rows *out, struct ntx_err *err)
{
    struct ntx_vision_rows rows = {.width = v->parts[NTX_TOWER_PROJECTS].model->hp.n_embd, .deep = v->t->n_deep};
    struct ntx__patches p = {0};
    float *states = NULL;
    int rc = check_pixels(v, pixels, err);
    if (rc)
        return rc;
    for (int i = 0; i < NTX_TOWER_PARTS; i++) {
        v->parts[i].unwanted = unwanted;
        if (v->c.streams)
            v->parts[i].streamed.unwanted = unwanted;
    }
    atomic_store(&v->done, 0);
    rows.grid = ntx_vision_grid_of(v, &pixels->size);
    if (ntx__patches_make(v->t, &pixels->size, &p) ||
        !(states = malloc((size_t)p.n * (1 + v->t->n_deep) * v->t->embd * sizeof *states)))
        rc = ntx_err_set(err, -ENOMEM, "no memory for a picture of %u x %u pixels", pixels->size.width,
                         pixels->size.height);
    atomic_store(&v->todo, count_chunks(v, p.n, (uint32_t)count_squares(v->t, &pixels->size)));
    if (!rc)
        rc = see_patches(v, &p, pixels, states, err);
    if (!rc && v->t->converted)
        rc = convert_states(v, p.n, &states, err);
    if (!rc)
        rc = make_rows(v, &p, states, &pixels->size, &rows, err);
    ntx__patches_free(&p);
    free(states);
    atomic_store(&v->done, 0);
    if (rc)
        ntx_vision_rows_free(&rows);
    else
        *out = rows;
    return rc;
}

uint32_t ntx_vision_done(const struct ntx_vision *v)
{
    struct ntx_vision *of = (struct ntx_vision *)(uintptr_t)v;
    const uint64_t done = atomic_load_explicit(&of->done, memory_order_relaxed),
                   all = atomic_load_explicit(&of->todo, memory_order_relaxed);
    return (uint32_t)(1000 * NTX_MIN(done, all) / NTX_MAX(all, 1ull));
}

void ntx_vision_rows_free(struct ntx_vision_rows *r)
{
    free(r->values);
    r->values = NULL;
}
