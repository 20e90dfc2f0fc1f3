/* SPDX-License-Identifier: Apache-2.0 */
/* Texts with images beside llama.cpp's logits (tests/golden/images.py): the engine's places and masks, the pass's
 * rows. */
#include <jansson.h>
#include <math.h>

#include "computed/engine/session_images.h"
#include "tests/mkmodel/options.h"
#include "tests/unit/pass/rig.h"

enum { MOST = 64, VALUES = 8 };

struct text {
    struct ntx_image_spans spans;
    int32_t ids[MOST];
    uint32_t n;
};

static uint32_t grid[2]; /* of the next image */
static uint32_t width, deep;

static int encode(void *ctx, const void *data, size_t n, const atomic_bool *unwanted, struct ntx_vision_rows *rows,
                  struct ntx_err *err)
{
    (void)ctx, (void)data, (void)n, (void)unwanted, (void)err;
    const size_t all = (size_t)grid[0] * grid[1] * width;
    *rows = (struct ntx_vision_rows){.grid = {.across = 1, .down = 1, .columns = grid[0], .rows = grid[1]},
                                     .width = width,
                                     .deep = deep,
                                     .values = malloc(all * sizeof(float))};
    for (size_t i = 0; i < all; i++) /* as images.py makes them */
        rows->values[i] = (float)((uint32_t)(i * 2654435761u) % 1009) / 1009.0f - 0.5f;
    return 0;
}

static void read_parts(const json_t *parts, struct ntx_images *store, uint32_t n_vocab, struct text *t)
{
    for (size_t p = 0; p < json_array_size(parts); p++) {
        const json_t *part = json_array_get(parts, p);
        struct ntx_image *m;
        struct ntx_err err = {0};
        for (json_int_t k = 0; json_is_integer(part) && k < json_integer_value(part); k++, t->n++)
            t->ids[t->n] = (int32_t)(3 + (t->n * 7919 + 5) % (n_vocab - 3));
        if (json_is_integer(part))
            continue;
        for (unsigned i = 0; i < 2; i++)
            grid[i] = (uint32_t)json_integer_value(json_array_get(part, i));
        CHECK_EQ(ntx_images_get(store, p, "", 0, NULL, &m, &err), 0);
        CHECK_EQ(ntx_image_spans_add(&t->spans, t->n, grid[0] * grid[1], 0, m), 0);
        for (uint32_t k = 0; k < grid[0] * grid[1]; k++)
            t->ids[t->n++] = ntx_image_token(m, k);
    }
    CHECK(t->n < MOST);
}

static void feed(struct rig *r, const struct text *t, uint32_t step, float *logits)
{
    struct ntx_kv_seq *kv = rig_seq(r, MOST);
    for (uint32_t i = 0; i < t->n;) {
        struct ntx_row rows[MOST];
        uint32_t n = 0;
        do {
            const uint32_t at = i + n, together = ntx_image_spans_together(&t->spans, at);
            if (n && n + together > step)
                break;
            for (uint32_t k = 0; k < together; k++, n++) {
                struct ntx_row *row = &rows[n];
                *row = (struct ntx_row){.pos = at + k, .kv = kv, .logits = logits + (size_t)(at + k) * r->n_vocab};
                row->values = ntx_image_spans_values(&t->spans, row->pos, &row->n_deep);
                row->token = row->values ? 0 : t->ids[row->pos];
                row->ahead = row->values ? ntx_image_spans_together(&t->spans, row->pos) - 1 : 0;
                row->behind = ntx_image_spans_before(&t->spans, row->pos);
                row->placed = ntx_image_spans_place(&t->spans, row->pos, row->place);
            }
        } while (i + n < t->n && n < step);
        CHECK_MSG(!rig_run(r, rows, n), "%s", r->w.w.error.text);
        i += n;
    }
    ntx_kv_seq_free(kv);
}

static void compare(const json_t *e, const float *logits, uint32_t n, uint32_t n_vocab)
{
    const json_t *rows = json_object_get(e, "logits");
    const double sd = json_number_value(json_object_get(e, "sd"));
    double sum = 0;
    CHECK_EQ(json_array_size(rows), n);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < VALUES; k++)
            sum += pow(logits[(size_t)i * n_vocab + k * n_vocab / VALUES] -
                           json_number_value(json_array_get(json_array_get(rows, i), k)),
                       2);
    const double rms = sqrt(sum / (n * VALUES)) / sd;
    printf("%-24s rms/sd %.3g\n", json_string_value(json_object_get(e, "name")), rms);
    /* K and V are F16 here, F32 there; a wrong place gives 0.1 and more */
    CHECK_MSG(rms <= 5e-3, "%s: rms/sd %g", json_string_value(json_object_get(e, "name")), rms);
}

/* The options point into the text. */
static void take_options(char *text, struct mk_options *o)
{
    char *argv[64] = {text}, *save;
    int argc = 1;
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        CHECK(argc < 63);
        argv[argc++] = word;
    }
    CHECK_EQ(mk_options_take(o, argc, argv), argc);
}

static void try_text(const json_t *e)
{
    struct rig r;
    struct rig_options o = {.make = rig_model(), .ctx = 256};
    struct text t = {.spans = {.mrope = json_is_true(json_object_get(e, "mrope")),
                               .bidirectional = json_is_true(json_object_get(e, "whole"))}};
    struct ntx_images *store;
    struct ntx_err err = {0};
    char *options = strdup(json_string_value(json_object_get(e, "options")));
    take_options(options, &o.make);
    rig_open(&r, &o);
    deep = (uint32_t)json_integer_value(json_object_get(e, "deep"));
    width = r.n_embd * (1 + deep);
    const struct ntx_images_config c = {.encode = encode, .n_embd = r.n_embd, .of = "", .dir = ""};
    CHECK_EQ(ntx_images_new(&c, &store, &err), 0);
    read_parts(json_object_get(e, "parts"), store, r.n_vocab, &t);
    const size_t n = (size_t)t.n * r.n_vocab;
    float *logits = calloc(n, sizeof *logits), *other = calloc(n, sizeof *other);
    feed(&r, &t, MOST, logits);
    compare(e, logits, t.n, r.n_vocab);
    for (uint32_t step = 1; step < 12; step += 5) {
        feed(&r, &t, step, other);
        CHECK_SAME(logits, other, n);
    }
    free(logits), free(other);
    ntx_image_spans_free(&t.spans);
    ntx_images_free(store);
    rig_close(&r);
    free(options);
}

int main(void)
{
    char path[512];
    json_error_t why;
    snprintf(path, sizeof path, "%s/tests/golden/images.json", getenv("NTX_SOURCE"));
    json_t *all = json_load_file(path, 0, &why);
    CHECK_MSG(all && json_array_size(all) >= 30, "%s: %s", path, why.text);
    for (size_t i = 0; i < json_array_size(all); i++)
        try_text(json_array_get(all, i));
    json_decref(all);
    return 0;
}
