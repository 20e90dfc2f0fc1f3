/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads the files of steps.h; a file that is read may come from anybody. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/commands/steps.h"
#include "common/util.h"

#define MAX_WIDTH (1u << 26)
#define MAX_ROWS  (1u << 24)

/* ---- base64 */

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static json_t *encode_base64(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    size_t len = (n + 2) / 3 * 4;
    char *t = malloc(len + 1);
    for (size_t i = 0; t && i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0);
        for (size_t k = 0; k < 4; k++)
            t[i / 3 * 4 + k] = k > n - i ? '=' : letters[v >> (18 - 6 * k) & 63];
    }
    json_t *j = t ? json_stringn_nocheck(t, len) : NULL;
    free(t);
    return j;
}

/* Exactly n bytes, malloc'd; NULL: the text is something else. */
static void *decode_base64(const char *t, size_t len, size_t n)
{
    if (len != (n + 2) / 3 * 4)
        return NULL;
    uint8_t *p = malloc(n + 3);
    for (size_t i = 0; p && i < len; i += 4) {
        uint32_t v = 0;
        for (size_t k = 0; k < 4; k++) {
            bool pad = i / 4 * 3 + k > n;
            const char *at = pad || !t[i + k] ? NULL : strchr(letters, t[i + k]);
            if (pad ? t[i + k] != '=' : !at) {
                free(p);
                return NULL;
            }
            v = v << 6 | (at ? (uint32_t)(at - letters) : 0);
        }
        for (size_t k = 0; k < 3; k++)
            p[i / 4 * 3 + k] = (uint8_t)(v >> (16 - 8 * k));
    }
    return p;
}

/* ---- writing */

static json_t *json_of_real(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static json_t *json_of_digest(const struct ntx_step_row *r)
{
    char hex[17];
    snprintf(hex, sizeof hex, "%016" PRIx64, r->digest);
    return r->there ? json_string(hex) : json_null();
}

static json_t *json_of_step(const struct ntx_step_line *t)
{
    json_t *j = json_pack("{si si ss ss si so so so}", "layer", (int)t->layer, "step", (int)t->step, "name", t->name,
                          "buffer", t->buffer, "width", (int)t->width, "min", json_of_real((double)t->min), "max",
                          json_of_real((double)t->max), "mean", json_of_real(t->sum / t->n_there));
    json_t *digests = json_array(), *values = json_array();
    uint32_t n = t->n_rows;
    bool any = false;
    while (n && !t->row[n - 1].there)
        n--;
    for (uint32_t i = 0; i < n; i++) {
        const struct ntx_step_row *r = &t->row[i];
        json_array_append_new(digests, json_of_digest(r));
        json_array_append_new(values, r->values ? encode_base64(r->values, t->width * sizeof *r->values) : json_null());
        any |= r->values != NULL;
    }
    json_object_set_new(j, "digests", digests);
    if (any)
        json_object_set(j, "values", values);
    json_decref(values);
    return j;
}

int ntx_steps_write(const struct ntx_steps *s, FILE *f, const char *path, struct ntx_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < s->n && !rc; i++) {
        json_t *j = json_of_step(&s->step[i]);
        rc = j && !json_dumpf(j, f, JSON_COMPACT | JSON_REAL_PRECISION(9)) && putc('\n', f) != EOF ? 0 : -EIO;
        json_decref(j);
    }
    if (!rc && !fflush(f))
        return 0;
    return ntx_err_set(err, -EIO, "%s: cannot be written: %s", path, strerror(errno ? errno : EIO));
}

/* ---- reading */

struct reader {
    const char *path, *what; /* what: the first error */
    size_t line;
};

static uint32_t read_json_number(struct reader *r, const json_t *j, const char *key, json_int_t max)
{
    const json_t *v = json_object_get(j, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > max)
        r->what = key;
    return r->what ? 0 : (uint32_t)json_integer_value(v);
}

static void read_json_text(struct reader *r, const json_t *j, const char *key, char *to, size_t room)
{
    const json_t *v = json_object_get(j, key);
    if (!json_is_string(v) || json_string_length(v) >= room || strlen(json_string_value(v)) != json_string_length(v))
        r->what = key;
    else
        memcpy(to, json_string_value(v), json_string_length(v) + 1);
}

static double read_value(struct reader *r, const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);
    if (!json_is_number(v) && !json_is_null(v))
        r->what = key;
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static void read_digest(struct reader *r, const json_t *digest, const json_t *values, uint32_t width,
                        struct ntx_step_row *to)
{
    char *end = NULL;
    to->there = !json_is_null(digest);
    if (!to->there)
        return;
    const char *hex = json_string_value(digest);
    if (!hex || strlen(hex) != 16 || strspn(hex, "0123456789abcdef") != 16)
        r->what = "digests";
    else
        to->digest = strtoull(hex, &end, 16);
    if (!values)
        return;
    if (!json_is_string(values) ||
        !(to->values = decode_base64(json_string_value(values), json_string_length(values), width * sizeof(float))))
        r->what = "values";
}

static void read_all_digests(struct reader *r, const json_t *j, struct ntx_step_line *t)
{
    const json_t *digests = json_object_get(j, "digests"), *values = json_object_get(j, "values");
    size_t n = json_array_size(digests);
    if (!json_is_array(digests) || !n || n > MAX_ROWS)
        r->what = "digests";
    else if (values && json_array_size(values) != n)
        r->what = "values";
    if (r->what || !(t->row = calloc(n, sizeof *t->row)))
        return;
    t->n_rows = (uint32_t)n;
    for (size_t i = 0; i < n && !r->what; i++) {
        read_digest(r, json_array_get(digests, i), values ? json_array_get(values, i) : NULL, t->width, &t->row[i]);
        t->n_there += t->row[i].there;
    }
}

static int read_line(struct reader *r, const char *line, size_t len, struct ntx_steps *s, struct ntx_err *err)
{
    json_error_t je;
    json_t *j = json_loadb(line, len, 0, &je);
    struct ntx_step_line t = {0}, *to;
    if (!json_is_object(j)) {
        json_decref(j);
        return ntx_err_set(err, -EINVAL, "%s:%zu: no line of --steps: %s", r->path, r->line,
                           j ? "it is no object" : je.text);
    }
    t.layer = read_json_number(r, j, "layer", INT32_MAX);
    t.step = read_json_number(r, j, "step", INT32_MAX);
    t.width = read_json_number(r, j, "width", MAX_WIDTH);
    read_json_text(r, j, "name", t.name, sizeof t.name);
    read_json_text(r, j, "buffer", t.buffer, sizeof t.buffer);
    t.min = (float)read_value(r, j, "min");
    t.max = (float)read_value(r, j, "max");
    t.sum = read_value(r, j, "mean");
    read_all_digests(r, j, &t);
    t.sum *= t.n_there;
    json_decref(j);
    if (!r->what && s->n && ntx_steps_find(s, t.layer, t.step, t.buffer))
        r->what = "a step that stood there before";
    if (!(to = ntx_steps_new(s)) || (!r->what && !t.row)) {
        free(t.row);
        return ntx_err_set(err, -ENOMEM, "%s: no memory", r->path);
    }
    *to = t;
    s->last = s->n - 1;
    return r->what ? ntx_err_set(err, -EINVAL, "%s:%zu: no line of --steps: %s is wrong or missing", r->path, r->line,
                                 r->what)
                   : 0;
}

int ntx_steps_read(const char *path, struct ntx_steps *s, struct ntx_err *err)
{
    struct reader r = {.path = path};
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    ssize_t len;
    int rc = 0;
    *s = (struct ntx_steps){0};
    if (!f)
        return ntx_err_set(err, -errno, "%s: %s", path, strerror(errno));
    errno = 0;
    while (!rc && (len = getline(&line, &room, f)) > 0) {
        r.line++;
        rc = read_line(&r, line, (size_t)len, s, err);
    }
    if (!rc && ferror(f))
        rc = ntx_err_set(err, -EIO, "%s: %s", path, strerror(errno ? errno : EIO));
    if (!rc && !s->n)
        rc = ntx_err_set(err, -EINVAL, "%s: there is no step in it", path);
    free(line);
    fclose(f);
    if (rc)
        ntx_steps_free(s);
    return rc;
}
