/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures in prompts (computed/engine/images.h): what the engine feeds for them, what it keeps, and what it refuses.
 * The tower is a function of the picture's bytes: columns, rows, and a seed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/temporary.h"
#include "tests/unit/engine/stage.h"

enum { EMBD = 256, DEEP = 1, WIDTH = EMBD * (1 + DEEP), ANSWER = 6 };

static const char wide[] = {3, 2, 'a'}, other[] = {3, 2, 'b'}, tall[] = {1, 4, 'c'}, tiny[] = {1, 1, 'd'},
                  cut[] = {4, 1, 'e'};

static void values_of(const char *picture, float *out)
{
    uint32_t x = (uint32_t)picture[2] * 2654435761u;
    for (uint32_t i = 0; i < (uint32_t)picture[0] * (uint32_t)picture[1] * WIDTH; i++) {
        x = x * 1664525 + 1013904223;
        out[i] = (float)(x >> 8) / (1 << 24) - 0.5f;
    }
}

/* A picture of more than three columns is two tiles and the whole. */
static struct ntx_vision_grid grid_of(const char *picture)
{
    const uint32_t columns = (uint32_t)picture[0], rows = (uint32_t)picture[1];
    if (columns > 3)
        return (struct ntx_vision_grid){2, 1, columns / 4, rows, columns / 2, rows};
    return (struct ntx_vision_grid){.across = 1, .down = 1, .columns = columns, .rows = rows};
}

static int encode(void *ctx, const void *data, size_t n, const atomic_bool *unwanted, struct ntx_vision_rows *rows,
                  struct ntx_err *err)
{
    const char *picture = data;
    (void)ctx, (void)unwanted;
    if (n != sizeof wide || picture[0] < 1 || picture[1] < 1)
        return ntx_err_set(err, -EINVAL, "this is no picture");
    *rows = (struct ntx_vision_rows){.grid = grid_of(picture), .width = WIDTH, .deep = DEEP};
    CHECK((rows->values = malloc(ntx_vision_grid_rows(&rows->grid) * WIDTH * sizeof(float))));
    values_of(picture, rows->values);
    return 0;
}

static const struct ntx_vision_text causal = {.begin = "", .end = ""}, whole = {.bidirectional = true},
                                    around = {.begin = "a", .end = "bc", .row_end = "d"},
                                    tiled = {.begin = "a", .end = "b", .tile_end = "c", .line_end = "d", .whole = "e"};

static struct ntx_images *store(const struct ntx_vision_text *text, const char *dir, uint64_t most, uint64_t most_file)
{
    struct ntx_images *s;
    struct ntx_err err = {0};
    const struct ntx_images_config c = {
        .encode = encode, .text = text, .n_embd = EMBD, .most = most, .of = "test", .dir = dir, .most_file = most_file};
    CHECK_MSG(!ntx_images_new(&c, &s, &err), "%s", err.text);
    return s;
}

static struct ntx_image *get(struct ntx_images *s, uint64_t scope, const char *picture)
{
    struct ntx_image *m;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_images_get(s, scope, picture, sizeof wide, NULL, &m, &err), "%s", err.text);
    const struct ntx_vision_grid grid = grid_of(picture);
    CHECK(!memcmp(&m->grid, &grid, sizeof grid) && m->deep == DEEP);
    float want[8 * WIDTH];
    values_of(picture, want);
    CHECK(!memcmp(m->values, want, ntx_image_bytes(m)));
    return m;
}

static void put_back(struct ntx_images *s, uint64_t scope, const char *picture, uint64_t encoded)
{
    ntx_image_unref(get(s, scope, picture));
    CHECK_EQ(ntx_images_encoded(s), encoded);
}

/* ---- the store */

static void in_memory(void)
{
    const uint64_t one = sizeof(float) * WIDTH * 6;
    struct ntx_images *s = store(&causal, "", 2 * one, 0);
    put_back(s, 0, wide, 1);
    put_back(s, 0, wide, 1);
    put_back(s, 1, wide, 2); /* another reader does not learn that it is known */
    put_back(s, 0, wide, 2);
    put_back(s, 0, other, 3); /* takes the place of reader 1's */
    put_back(s, 0, wide, 3);
    put_back(s, 1, wide, 4);
    struct ntx_image *a = get(s, 0, wide), *b = get(s, 0, other);
    for (uint32_t i = 0; i < 20; i++) {
        CHECK(ntx_image_token(a, i) < -1);
        CHECK(ntx_image_token(a, i) != ntx_image_token(b, i));
        CHECK(!i || ntx_image_token(a, i) != ntx_image_token(a, i - 1));
    }
    ntx_images_free(s);
    ntx_image_unref(a); /* outlives the store */
    ntx_image_unref(b);
}

static void damage(const char *dir)
{
    DIR *d = opendir(dir);
    char path[600];
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        int fd = open(path, O_WRONLY);
        CHECK(fd >= 0 && pwrite(fd, "x", 1, 1000) == 1);
        close(fd);
    }
    closedir(d);
}

static unsigned count_files(const char *dir)
{
    DIR *d = opendir(dir);
    unsigned n = 0;
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void over_restarts(void)
{
    char dir[256], path[600];
    temporary_dir(dir, sizeof dir, "images");
    struct ntx_images *s = store(&causal, dir, 0, 1 << 20);
    put_back(s, 0, wide, 1);
    put_back(s, 0, wide, 1); /* from the file, since memory may keep none */
    put_back(s, 0, tall, 2);
    ntx_images_free(s);
    s = store(&causal, dir, 1 << 20, 1 << 20);
    put_back(s, 0, wide, 0);
    put_back(s, 0, tall, 0);
    put_back(s, 0, other, 1);
    ntx_images_free(s);
    damage(dir);
    s = store(&causal, dir, 0, 1 << 20);
    put_back(s, 0, wide, 1);
    put_back(s, 0, wide, 1);
    ntx_images_free(s);
    /* room for one file: the last one stays */
    s = store(&causal, dir, 0, sizeof(struct ntx_image_head) + sizeof(float) * WIDTH * 6);
    put_back(s, 7, wide, 1);
    CHECK_EQ(count_files(dir), 1);
    put_back(s, 7, wide, 1);
    put_back(s, 8, wide, 2);
    put_back(s, 7, wide, 3);
    ntx_images_free(s);
    CHECK(!chmod(dir, 0777));
    struct ntx_err err = {0};
    const struct ntx_images_config open = {.encode = encode, .of = "", .dir = dir};
    CHECK_EQ(ntx_images_new(&open, &s, &err), -EPERM);
    CHECK(!chmod(dir, 0700));
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        (void)unlink(path);
    }
    closedir(d);
    CHECK_EQ(rmdir(dir), 0);
}

/* ---- spans */

static void place_is(const struct ntx_image_spans *x, uint32_t i, uint32_t t, uint32_t row, uint32_t column)
{
    uint32_t place[3];
    CHECK(ntx_image_spans_place(x, i, place));
    CHECK_MSG(place[0] == t && place[1] == row && place[2] == column, "token %u: %u %u %u", i, place[0], place[1],
              place[2]);
}

/* Places as mtmd_helper_decode_image_chunk and mtmd_image_tokens_get_n_pos give them (llama.cpp, tools/mtmd). */
static void places(void)
{
    struct ntx_images *s = store(&causal, "", 1 << 20, 0);
    struct ntx_image_spans x = {.mrope = true}, more = {.mrope = true};
    uint32_t place[3], deep;
    CHECK(!ntx_image_spans_place(&x, 3, place));
    CHECK_EQ(ntx_image_spans_add(&x, 2, 6, 0, get(s, 0, wide)), 0);
    CHECK_EQ(ntx_image_spans_add(&more, 1, 4, 0, get(s, 0, tall)), 0);
    CHECK_EQ(ntx_image_spans_join(&x, &more, 8), 0);
    place_is(&x, 1, 1, 1, 1);
    place_is(&x, 2, 2, 2, 2);
    place_is(&x, 4, 2, 2, 4);
    place_is(&x, 5, 2, 3, 2);
    place_is(&x, 7, 2, 3, 4);
    place_is(&x, 8, 5, 5, 5); /* behind three columns */
    place_is(&x, 9, 6, 6, 6);
    place_is(&x, 12, 6, 9, 6);
    place_is(&x, 13, 10, 10, 10); /* behind four rows */
    CHECK_EQ(ntx_image_spans_together(&x, 3), 1);
    x.bidirectional = true;
    CHECK_EQ(ntx_image_spans_together(&x, 1), 1);
    CHECK_EQ(ntx_image_spans_together(&x, 2), 6);
    CHECK_EQ(ntx_image_spans_together(&x, 7), 1);
    CHECK_EQ(ntx_image_spans_together(&x, 10), 3);
    CHECK_EQ(ntx_image_spans_before(&x, 1), 0);
    CHECK_EQ(ntx_image_spans_before(&x, 7), 5);
    CHECK_EQ(ntx_image_spans_before(&x, 10), 1);
    CHECK_EQ(ntx_image_spans_most(&x), 6);
    CHECK(!ntx_image_spans_values(&x, 8, &deep) && ntx_image_spans_values(&x, 10, &deep) && deep == DEEP);
    CHECK(ntx_image_spans_values(&x, 10, &deep) == x.span[1].image->values + WIDTH);
    ntx_image_spans_cut(&x, 12);
    CHECK_EQ(x.n, 1);
    place_is(&x, 13, 10, 10, 10);
    ntx_image_spans_free(&x);
    ntx_images_free(s);
}

/* Rows of padding before two images, behind 0 to 3 tokens: the row behind the padding is at the end of four. */
static void alignment(void)
{
    enum { LEAD = 3, N = 20, FIRST = 2, SECOND = 11 };
    for (uint32_t before = 0; before < 4; before++) {
        struct ntx_images *s = store(&causal, "", 1 << 20, 0);
        struct ntx_image_spans x = {.lead = LEAD};
        int32_t ids[N];
        for (int32_t i = 0; i < N; i++)
            ids[i] = i;
        CHECK_EQ(ntx_image_spans_add(&x, FIRST, 6, 0, get(s, 0, wide)), 0);
        CHECK_EQ(ntx_image_spans_add(&x, SECOND, 6, 0, get(s, 0, wide)), 0);
        const uint32_t n = ntx_image_spans_align(&x, before, ids, N);
        CHECK_EQ(N - n, x.span[0].first + x.span[1].first);
        for (uint32_t k = 0; k < 2; k++) {
            const struct ntx_image_span *p = &x.span[k];
            const uint32_t begin = p->at + LEAD - p->first;
            CHECK_EQ((before + begin) % (LEAD + 1), LEAD);
            CHECK_EQ(p->n, 6 - p->first);
            CHECK_EQ(ids[begin], (k ? SECOND : FIRST) + LEAD);
            CHECK_EQ(ids[p->at - 1], (k ? SECOND : FIRST) - 1);
            CHECK_EQ(ids[p->at + p->n], (k ? SECOND : FIRST) + 6);
        }
        CHECK_EQ(ids[n - 1], N - 1);
        ntx_image_spans_free(&x);
        ntx_images_free(s);
    }
}

/* ---- answers */

struct part { /* of a prompt: a text, then a picture or NULL */
    const char *text, *picture;
};

struct fed {
    struct ntx_row rows[CTX];
    float values[8 * 8 * WIDTH];
    uint32_t n, n_values;
};

static void feed_text(struct fed *d, const struct ntx_tokenizer *tok, const char *text)
{
    int32_t *ids;
    int n = ntx_tokenize(tok, text, strlen(text), d->n ? 0 : NTX_TOK_BOS, &ids);
    CHECK(n >= 0);
    for (int i = 0; i < n; i++, d->n++)
        d->rows[d->n] = (struct ntx_row){.token = ids[i], .pos = d->n};
    free(ids);
}

static void feed_mark(struct fed *d, const struct ntx_tokenizer *tok, const char *text)
{
    int32_t *ids;
    int n = ntx_chat_text_tokens(tok, text, &ids);
    CHECK(n > 0);
    for (int i = 0; i < n; i++, d->n++)
        d->rows[d->n] = (struct ntx_row){.token = ids[i], .pos = d->n};
    free(ids);
}

static void feed_picture(struct fed *d, const char *picture, bool together, uint32_t from, uint32_t n)
{
    float own[8 * WIDTH];
    values_of(picture, own);
    for (uint32_t i = 0; i < n; i++, d->n++) {
        float *values = d->values + (size_t)d->n_values++ * WIDTH;
        memcpy(values, own + (size_t)(from + i) * WIDTH, WIDTH * sizeof *own);
        d->rows[d->n] = (struct ntx_row){
            .pos = d->n, .values = values, .n_deep = DEEP, .ahead = together ? n - 1 - i : 0};
    }
}

/* The greedy answer of the pass alone, all rows of the prompt in one pass. */
static void expected(struct fed *d, int32_t *out)
{
    struct rig_options o = {.make = rig_model(), .ctx = CTX};
    struct rig r;
    o.make.layers = 2;
    rig_open(&r, &o);
    float *logits = malloc(r.n_vocab * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, CTX);
    for (uint32_t i = 0; i < d->n; i++)
        d->rows[i].kv = kv;
    d->rows[d->n - 1].logits = logits;
    CHECK_MSG(!rig_run(&r, d->rows, d->n), "%s", r.w.w.error.text);
    for (uint32_t i = 0; i < ANSWER; i++) {
        out[i] = (int32_t)rig_argmax(logits, r.n_vocab);
        rig_feed(&r, kv, &out[i], 1, d->n + i, 1, logits);
    }
    free(logits);
    ntx_kv_seq_free(kv);
    rig_close(&r);
}

struct question {
    char text[256];
    struct ntx_request_image images[4];
    struct ntx_request_message message;
    struct ntx_request q;
};

static const struct ntx_request *put_question(struct stage *g, struct question *a, uint64_t id,
                                              const struct part *parts, size_t n)
{
    *a = (struct question){.q = stage_generation(id, NULL, 0, ANSWER)};
    for (size_t i = 0; i < n; i++) {
        strcat(a->text, parts[i].text);
        if (parts[i].picture)
            a->images[a->q.n_images++] = (struct ntx_request_image){.at = (uint32_t)strlen(a->text),
                                                                    .data = {parts[i].picture, sizeof wide}};
    }
    a->q.prompt = (struct ntx_bytes){a->text, strlen(a->text)};
    a->q.images = a->images;
    stage_submit(g, g->ann, a->q);
    return &a->q;
}

static struct stage stage;

static void open_stage(struct stage *g, struct ntx_images *s, const char *draft)
{
    stage_open_with(g, 4 * CTX, 4, draft, true);
    g->l.env.images = s;
    g->l.env.rows_together = ROWS;
    stage_allow(g, UINT32_MAX);
}

/* Text before, between and behind two pictures, the second time from the prefix cache, with drafts, too. */
static void answers(const struct ntx_vision_text *text, const char *draft)
{
    static struct fed d;
    struct question a, b, c;
    struct ntx_images *s = store(text, "", 1 << 20, 0);
    int32_t want[ANSWER];
    open_stage(&stage, s, draft);
    d = (struct fed){0};
    feed_text(&d, stage.l.tok, "one two, xq zv pk wj, ");
    feed_picture(&d, wide, text->bidirectional, 0, 6);
    feed_text(&d, stage.l.tok, " three ");
    feed_picture(&d, tall, text->bidirectional, 0, 4);
    feed_text(&d, stage.l.tok, "?");
    CHECK_MSG(d.n > 32 && d.n + ANSWER < CTX, "%u tokens", d.n);
    expected(&d, want);
    const struct part parts[] = {{"one two, xq zv pk wj, ", wide}, {" three ", tall}, {"?", NULL}},
                      parts_other[] = {{"one two, xq zv pk wj, ", other}, {" three ", tall}, {"?", NULL}};
    put_question(&stage, &a, 1, parts, 3);
    stage_ended(&stage, 1, "length");
    stage_same_answer(&stage, 1, want, ANSWER);
    CHECK_EQ(stage_reply(&stage, 1, NTX__REPLY__BODY_DONE, 0)->cached, 0);
    CHECK_EQ(ntx_images_encoded(s), 2);
    put_question(&stage, &b, 2, parts, 3);
    stage_ended(&stage, 2, "length");
    stage_same_answer(&stage, 2, want, ANSWER);
    CHECK_EQ(stage_reply(&stage, 2, NTX__REPLY__BODY_DONE, 0)->cached, d.n - 1);
    CHECK_EQ(ntx_images_encoded(s), 2);
    put_question(&stage, &c, 3, parts_other, 3);
    stage_ended(&stage, 3, "length");
    CHECK(stage_reply(&stage, 3, NTX__REPLY__BODY_DONE, 0)->cached < 26); /* the text before the other picture */
    CHECK_EQ(ntx_images_encoded(s), 3);
    stage_close(&stage);
    ntx_images_free(s);
}

/* A session with pictures whose client takes no replies gives up its K and V, and computes them again: the same text,
 * and no picture is encoded again. */
static void gives_way(void)
{
    enum { BIG = 2 << 20 };
    static struct fed d;
    struct question a;
    struct ntx_images *s = store(&causal, "", 1 << 20, 0);
    int32_t want[ANSWER], ids[8];
    float *much = calloc(BIG, sizeof *much);
    const struct part parts[] = {{"one two, ", wide}, {" three ", tall}, {"?", NULL}};
    CHECK(much);
    stage_open_with(&stage, 2 * CTX, 8, NULL, false);
    stage.l.env.images = s;
    stage.l.env.rows_together = ROWS;
    stage.l.max_sessions = 1;
    d = (struct fed){0};
    feed_text(&d, stage.l.tok, "one two, ");
    feed_picture(&d, wide, false, 0, 6);
    feed_text(&d, stage.l.tok, " three ");
    feed_picture(&d, tall, false, 0, 4);
    feed_text(&d, stage.l.tok, "?");
    expected(&d, want);
    put_question(&stage, &a, 1, parts, 3);
    stage_reached(&stage, 1);
    stage.deaf = stage.ann;
    unsigned pass = 1;
    while (pass < (d.n + ROWS - 1) / ROWS + 2)
        stage_next(&stage, &pass);
    ntx_mail_logits(stage.mail, stage.ann, 99, 0, much, BIG);
    free(much);
    rig_ids(&stage.rig, 4, ids, 8);
    stage_generate(&stage, stage.bob, 2, ids, 5, 4);
    stage_allow(&stage, UINT32_MAX);
    stage_ended(&stage, 2, "length");
    CHECK(!stage_find(&stage, 1, NTX__REPLY__BODY_DONE, 0));
    const unsigned before = stage.n_passes;
    stage.deaf = NULL;
    for (size_t i = 0; i < stage.n_untaken; i++)
        ntx_reply_queue_sent(stage.ann, stage.untaken[i]);
    ntx_engine_poke(stage.e);
    stage_ended(&stage, 1, "length");
    stage_same_answer(&stage, 1, want, ANSWER);
    CHECK_EQ(stage.pass[before].row[0].pos, 0); /* its K and V were freed */
    CHECK_EQ(ntx_images_encoded(s), 2);
    stage_close(&stage);
    ntx_images_free(s);
}

/* Rows that see one another are in one pass, though passes of eight rows would cut them. */
static void together(void)
{
    struct question a;
    struct ntx_images *s = store(&whole, "", 1 << 20, 0);
    open_stage(&stage, s, NULL);
    unsigned before = stage.n_passes;
    const struct part parts[] = {{"abcdef", wide}, {"xy", NULL}};
    put_question(&stage, &a, 1, parts, 2);
    stage_ended(&stage, 1, "length");
    int32_t *ids;
    const int n = ntx_tokenize(stage.l.tok, "abcdef", 6, NTX_TOK_BOS, &ids);
    CHECK(n > 2 && n < ROWS);
    free(ids);
    CHECK_EQ(stage.pass[before].n, n);
    CHECK_EQ(stage.pass[before + 1].row[0].pos, n);
    CHECK(stage.pass[before + 1].n >= 6);
    stage.l.env.rows_together = 5;
    put_question(&stage, &a, 2, parts, 2);
    const struct reply *r = stage_reply(&stage, 2, NTX__REPLY__BODY_ERROR, 0);
    CHECK_MSG(r->err == -E2BIG && strstr(r->text, "6 rows") && strstr(r->text, "--rows 6"), "%s", r->text);
    stage_close(&stage);
    ntx_images_free(s);
}

/* Tokens around an image, and between the rows of its grid. */
static void with_marks(void)
{
    static struct fed d;
    struct question a;
    struct ntx_images *s = store(&around, "", 1 << 20, 0);
    int32_t want[ANSWER];
    open_stage(&stage, s, NULL);
    d = (struct fed){0};
    feed_text(&d, stage.l.tok, "x y a");
    feed_picture(&d, wide, false, 0, 3);
    feed_mark(&d, stage.l.tok, "d");
    feed_picture(&d, wide, false, 3, 3);
    feed_text(&d, stage.l.tok, "bca");
    feed_picture(&d, tiny, false, 0, 1);
    feed_text(&d, stage.l.tok, "bc");
    expected(&d, want);
    put_question(&stage, &a, 1, (const struct part[]){{"x y ", wide}, {"", tiny}}, 2);
    stage_ended(&stage, 1, "length");
    stage_same_answer(&stage, 1, want, ANSWER);
    /* in messages, which a form without control tokens writes */
    a.message = (struct ntx_request_message){.role = "user", .text = {"say  ok", 7}, .images = a.images, .n_images = 1};
    a.images[0].at = 4;
    struct ntx_request q = stage_generation(2, NULL, 0, ANSWER);
    q.raw = false;
    q.messages = &a.message;
    q.n_messages = 1;
    q.chat_template = "plain";
    stage_submit(&stage, stage.ann, q);
    stage_ended(&stage, 2, "length");
    d = (struct fed){0};
    feed_text(&d, stage.l.tok, "User: say a");
    feed_picture(&d, wide, false, 0, 3);
    feed_mark(&d, stage.l.tok, "d");
    feed_picture(&d, wide, false, 3, 3);
    feed_text(&d, stage.l.tok, "bc ok\nAssistant:");
    expected(&d, want);
    stage_same_answer(&stage, 2, want, ANSWER);
    stage_close(&stage);
    ntx_images_free(s);
}

/* Tokens between tiles, behind their lines, and before the whole picture. */
static void with_tiles(void)
{
    static struct fed d;
    struct question a;
    struct ntx_images *s = store(&tiled, "", 1 << 20, 0);
    int32_t want[ANSWER];
    open_stage(&stage, s, NULL);
    d = (struct fed){0};
    feed_text(&d, stage.l.tok, "x y a");
    feed_picture(&d, cut, false, 0, 1);
    feed_mark(&d, stage.l.tok, "c");
    feed_picture(&d, cut, false, 1, 1);
    feed_mark(&d, stage.l.tok, "d");
    feed_mark(&d, stage.l.tok, "e");
    feed_picture(&d, cut, false, 2, 2);
    feed_text(&d, stage.l.tok, "ba");
    feed_mark(&d, stage.l.tok, "e");
    feed_picture(&d, wide, false, 0, 6);
    feed_text(&d, stage.l.tok, "b");
    expected(&d, want);
    put_question(&stage, &a, 1, (const struct part[]){{"x y ", cut}, {"", wide}}, 2);
    stage_ended(&stage, 1, "length");
    stage_same_answer(&stage, 1, want, ANSWER);
    stage_close(&stage);
    ntx_images_free(s);
}

static void refused(struct stage *g, struct ntx_request q, int err, const char *what)
{
    stage_submit(g, g->ann, q);
    const struct reply *r = stage_reply(g, q.id, NTX__REPLY__BODY_ERROR, 0);
    CHECK_MSG(r->err == err && strstr(r->text, what), "%d, %s", r->err, r->text);
}

static void refusals(void)
{
    static const char bad[] = {0, 0, 0};
    struct question a;
    struct ntx_images *s = store(&causal, "", 1 << 20, 0);
    const int32_t ids[] = {5, 6};
    open_stage(&stage, NULL, NULL);
    const struct part parts[] = {{"abc", wide}, {"d", tall}};
    put_question(&stage, &a, 1, parts, 2);
    CHECK(strstr(stage_reply(&stage, 1, NTX__REPLY__BODY_ERROR, 0)->text, "--mmproj FILE"));
    stage.l.env.blind = "they are computed by the CPU of one machine";
    a.q.id = 2;
    refused(&stage, a.q, -ENOTSUP, "CPU of one machine");
    stage.l.env.images = s;
    a.q.id = 3;
    a.images[1].at = 5;
    refused(&stage, a.q, -EINVAL, "byte 5 of a text of 4");
    a.q.id = 4;
    a.images[1].at = 2;
    refused(&stage, a.q, -EINVAL, "order");
    a.images[1].at = 4;
    a.images[1].data.data = bad;
    a.q.id = 5;
    refused(&stage, a.q, -EINVAL, "picture 2: this is no picture");
    a.q.id = 6;
    a.q.tokens = ids;
    a.q.n_tokens = 2;
    refused(&stage, a.q, -EINVAL, "beside tokens");
    a.q.tokens = (const int32_t[]){-5};
    a.q.n_images = 0;
    a.q.n_tokens = 1;
    a.q.id = 7;
    refused(&stage, a.q, -EINVAL, "token -5");
    stage_close(&stage);
    ntx_images_free(s);
}

int main(void)
{
    in_memory();
    over_restarts();
    places();
    alignment();
    answers(&causal, NULL);
    answers(&causal, "lookup");
    answers(&whole, NULL);
    gives_way();
    together();
    with_marks();
    with_tiles();
    refusals();
    return 0;
}
