/* SPDX-License-Identifier: Apache-2.0 */
/* The pictures of a prompt. A text with a mark at the place of each picture is rendered and cut into tokens; the mark
 * has 64 random bits, so no text of others has it. The tokenizer puts the texts around an image there, and each mark's
 * token becomes the image's rows. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/util.h"
#include "computed/engine/session.h"

#define PICTURES_MOST 1000 /* of a request */

/* Pictures of a request are numbered over all its messages. */
static const struct ntx_request_image *picture_of(const struct ntx_request *m, size_t number)
{
    for (size_t i = 0; i < m->n_messages; i++) {
        if (number < m->messages[i].n_images)
            return &m->messages[i].images[number];
        number -= m->messages[i].n_images;
    }
    return number < m->n_images ? &m->images[number] : NULL;
}

static size_t count_pictures(const struct ntx_request *m)
{
    size_t n = m->n_images;
    for (size_t i = 0; i < m->n_messages; i++)
        n += m->messages[i].n_images;
    return n;
}

static int check_places(const struct ntx_request_image *images, size_t n, size_t len, struct ntx_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (images[i].at > len || (i && images[i].at < images[i - 1].at))
            return ntx_err_set(err, -EINVAL,
                               "a picture's place is byte %u of a text of %zu, or pictures are not in the "
                               "order of their places",
                               images[i].at, len);
    return 0;
}

int ntx__pictures_check(const struct ntx_prompt *p, struct ntx_err *err)
{
    const struct ntx_request *m = p->m;
    const size_t n = count_pictures(m);
    if (!n)
        return 0;
    if (!p->images)
        return ntx_err_set(err, -ENOTSUP, "the model cannot take pictures: %s",
                           p->blind ? p->blind : "load it with its projector (--mmproj FILE)");
    if (n > PICTURES_MOST)
        return ntx_err_set(err, -E2BIG, "%zu pictures: a request may have %d", n, PICTURES_MOST);
    if (m->n_tokens || (m->n_messages && m->n_images))
        return ntx_err_set(err, -EINVAL, "pictures stand in a text or in messages, not beside %s",
                           m->n_tokens ? "tokens" : "them");
    int rc = check_places(m->images, m->n_images, m->prompt.len, err);
    for (size_t i = 0; !rc && i < m->n_messages; i++)
        rc = check_places(m->messages[i].images, m->messages[i].n_images, m->messages[i].text.len, err);
    return rc;
}

/* ---- marks */

static int make_mark(struct ntx_prompt *p)
{
    const struct ntx_vision_text *text = ntx_images_text(p->images);
    uint64_t secret;
    if (getrandom(&secret, sizeof secret, 0) != sizeof secret)
        return -EIO;
    snprintf(p->place, sizeof p->place, "ntximage%016" PRIx64 "x", secret);
    p->limits.place = p->place;
    p->limits.place_before = text->begin ? text->begin : "";
    p->limits.place_behind = text->end ? text->end : "";
    return 0;
}

/* A copy of the text with marks, the first of which has this number. */
static char *marked_text(const struct ntx_prompt *p, const struct ntx_chat_msg *msg,
                         const struct ntx_request_image *images, size_t n, size_t number, size_t *len)
{
    size_t from = 0;
    char *text = NULL;
    FILE *f = open_memstream(&text, len);
    if (!f)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        fwrite(msg->text + from, 1, images[i].at - from, f);
        fprintf(f, "%s%0*zu", p->place, NTX_PLACE_DIGITS, number + i);
        from = images[i].at;
    }
    fwrite(msg->text + from, 1, msg->len - from, f);
    if (!ferror(f) && !fclose(f))
        return text;
    free(text);
    return NULL;
}

int ntx__pictures_mark(struct ntx_prompt *p, struct ntx_chat_msg *msgs, char ***marked)
{
    const struct ntx_request *m = p->m;
    const size_t n = NTX_MAX(m->n_messages, (size_t)1);
    size_t number = 0;
    int rc = count_pictures(m) ? make_mark(p) : 0;
    *marked = NULL;
    if (rc || !count_pictures(m))
        return rc;
    if (!(*marked = calloc(n, sizeof **marked)))
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct ntx_request_image *images = m->n_messages ? m->messages[i].images : m->images;
        const size_t has = m->n_messages ? m->messages[i].n_images : m->n_images;
        if (!has)
            continue;
        if (!((*marked)[i] = marked_text(p, &msgs[i], images, has, number, &msgs[i].len)))
            return -ENOMEM;
        msgs[i].text = (*marked)[i];
        number += has;
    }
    return 0;
}

void ntx__pictures_unmark(char **marked, size_t n)
{
    for (size_t i = 0; marked && i < n; i++)
        free(marked[i]);
    free(marked);
}

/* ---- from marks to rows */

struct between { /* tokens between rows of an image (vision.h) */
    int32_t *ids;
    int n;
};

struct placing {
    struct ntx_prompt *p;
    bool encode;
    int32_t *ids;
    size_t n, room;
    uint8_t *seen; /* [pictures] */
    struct between row_end, tile_end, line_end, whole;
};

static int put_ids(struct placing *x, const int32_t *ids, size_t n)
{
    if (x->n + n > x->p->limits.ids)
        return -E2BIG;
    if (x->n + n > x->room) {
        size_t room = x->n + n + x->room / 2 + 64;
        int32_t *more = realloc(x->ids, room * sizeof *more);
        if (!more)
            return -ENOMEM;
        x->ids = more;
        x->room = room;
    }
    if (n)
        memcpy(x->ids + x->n, ids, n * sizeof *ids);
    x->n += n;
    return 0;
}

static int put_between(struct placing *x, const struct between *b) { return put_ids(x, b->ids, (size_t)b->n); }

/* Rows from *first on, which moves. */
static int put_run(struct placing *x, struct ntx_image *m, uint32_t *first, uint32_t n)
{
    const uint32_t at = (uint32_t)x->n, from = *first;
    int rc = x->n + n > x->p->limits.ids ? -E2BIG : 0;
    for (uint32_t i = 0; !rc && i < n; i++) {
        const int32_t id = ntx_image_token(m, from + i);
        rc = put_ids(x, &id, 1);
    }
    *first += n;
    return rc ? rc : ntx_image_spans_add(&x->p->spans, at, n, from, ntx_image_ref(m));
}

/* A tile, or the whole picture. */
static int put_grid(struct placing *x, struct ntx_image *m, uint32_t *first, uint32_t columns, uint32_t rows)
{
    const uint32_t lines = x->row_end.n && rows > 1 ? rows : 1;
    int rc = 0;
    for (uint32_t r = 0; !rc && r < lines; r++) {
        rc = put_run(x, m, first, columns * rows / lines);
        if (!rc && r + 1 < lines)
            rc = put_between(x, &x->row_end);
    }
    return rc;
}

static int put_tiles(struct placing *x, struct ntx_image *m, uint32_t *first)
{
    const struct ntx_vision_grid *g = &m->grid;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < g->across * g->down; i++) {
        rc = put_grid(x, m, first, g->columns, g->rows);
        if (!rc)
            rc = put_between(x, (i + 1) % g->across ? &x->tile_end : &x->line_end);
    }
    return rc;
}

/* Takes over the image's reference. */
static int put_image(struct placing *x, struct ntx_image *m)
{
    const struct ntx_vision_grid *g = &m->grid;
    uint32_t first = 0;
    int rc = g->over_columns ? put_tiles(x, m, &first) : 0;
    if (!rc)
        rc = put_between(x, &x->whole);
    if (!rc)
        rc = g->over_columns ? put_grid(x, m, &first, g->over_columns, g->over_rows)
                             : put_grid(x, m, &first, g->columns, g->rows);
    ntx_image_unref(m);
    return rc;
}

static int put_picture(struct placing *x, size_t number)
{
    struct ntx_prompt *p = x->p;
    const struct ntx_request_image *picture = picture_of(p->m, number);
    struct ntx_image *m = ntx_images_find(p->images, p->scope, picture->data.data, picture->data.len);
    struct ntx_err why = {0};
    if (!m && !x->encode)
        return -EAGAIN;
    if (p->limits.cancel && atomic_load(p->limits.cancel)) {
        ntx_image_unref(m);
        return -ECANCELED;
    }
    if (!m) {
        const uint64_t t0 = ntx_now_ns();
        int rc = ntx_images_get(p->images, p->scope, picture->data.data, picture->data.len, p->limits.cancel, &m, &why);
        if (rc)
            return ntx_err_set(&p->err, rc, "picture %zu: %s", number + 1, why.text[0] ? why.text : strerror(-rc));
        p->n_encoded++;
        p->encode_ns += ntx_now_ns() - t0;
    }
    x->seen[number] = 1;
    atomic_fetch_add_explicit(&p->n_seen, 1, memory_order_relaxed);
    return put_image(x, m);
}

static int read_between(const struct placing *x, const char *text, struct between *b)
{
    b->n = text ? ntx_chat_text_tokens(x->p->tok, text, &b->ids) : 0;
    const int rc = NTX_MIN(b->n, 0);
    b->n = NTX_MAX(b->n, 0);
    return rc;
}

static int read_form(struct placing *x)
{
    int rc;
    const struct ntx_vision_text *t = ntx_images_text(x->p->images);
    x->p->spans.mrope = t->mrope;
    x->p->spans.bidirectional = t->bidirectional;
    x->p->spans.lead = t->lead;
    if ((rc = read_between(x, t->row_end, &x->row_end)) || (rc = read_between(x, t->tile_end, &x->tile_end)) ||
        (rc = read_between(x, t->line_end, &x->line_end)))
        return rc;
    return read_between(x, t->whole, &x->whole);
}

static void free_form(struct placing *x)
{
    free(x->row_end.ids);
    free(x->tile_end.ids);
    free(x->line_end.ids);
    free(x->whole.ids);
}

int ntx__pictures_place(struct ntx_prompt *p, bool encode)
{
    const size_t n = count_pictures(p->m);
    struct placing x = {.p = p, .encode = encode};
    if (!n)
        return p->n;
    /* progress is told meanwhile */
    atomic_store_explicit(&p->n_pictures, (uint32_t)n, memory_order_relaxed);
    atomic_store_explicit(&p->n_seen, 0, memory_order_relaxed);
    int rc = (x.seen = calloc(n, 1)) ? read_form(&x) : -ENOMEM;
    for (int i = 0; !rc && i < p->n; i++)
        rc = p->ids[i] < 0 && (size_t)(-1 - p->ids[i]) < n ? put_picture(&x, (size_t)(-1 - p->ids[i]))
                                                           : put_ids(&x, p->ids + i, 1);
    for (size_t i = 0; !rc && i < n; i++)
        if (!x.seen[i])
            rc = ntx_err_set(&p->err, -EINVAL,
                             "the chat template leaves picture %zu out: use another one (--chat-template)", i + 1);
    free_form(&x);
    free(x.seen);
    if (rc) {
        ntx_image_spans_free(&p->spans);
        free(x.ids);
        return rc;
    }
    free(p->ids);
    p->ids = x.ids;
    return (int)x.n;
}
