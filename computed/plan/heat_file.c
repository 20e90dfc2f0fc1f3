/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/plan/heat_file.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "computed/plan/learned_file.h"

#define FOLDER    "heat"
#define KEY       "ntx_heat"
#define FILE_MOST (8u << 20)
#define MOST      1e9

/* A layer's uses; without any, an empty list. Fractions say nothing. */
static json_t *uses_json(const struct ntx_heat *h, uint32_t layer)
{
    json_t *a = json_array();
    for (uint32_t e = 0; h->rows[layer] > 0 && e < h->n_expert; e++)
        json_array_append_new(a, json_integer(lroundf(h->uses[(size_t)layer * h->n_expert + e])));
    return a;
}

char *ntx_heat_dump(const struct ntx_heat *h)
{
    json_t *rows = json_array(), *uses = json_array();
    for (uint32_t l = 0; l < h->n_layers; l++) {
        json_array_append_new(rows, json_integer(lroundf(h->rows[l])));
        json_array_append_new(uses, uses_json(h, l));
    }
    json_t *j = json_pack("{s:i, s:I, s:o, s:o}", KEY, 1, "experts", (json_int_t)h->n_expert, "rows", rows, "uses",
                          uses);
    char *text = json_dumps(j, JSON_COMPACT);
    json_decref(j);
    return text;
}

static bool take_count(const json_t *o, float *x)
{
    const double v = json_is_integer(o) ? (double)json_integer_value(o) : -1;
    *x = (float)v;
    return v >= 0 && v <= MOST;
}

static bool take_layer(const json_t *rows, const json_t *uses, struct ntx_heat *h, uint32_t layer)
{
    float *to = h->uses + (size_t)layer * h->n_expert;
    if (!take_count(rows, &h->rows[layer]) || !json_is_array(uses) ||
        json_array_size(uses) != (h->rows[layer] > 0 ? h->n_expert : 0))
        return false;
    for (uint32_t e = 0; e < json_array_size(uses); e++)
        if (!take_count(json_array_get(uses, e), &to[e]))
            return false;
    return true;
}

static bool take_heat(const json_t *j, struct ntx_heat *h)
{
    const json_t *rows = json_object_get(j, "rows"), *uses = json_object_get(j, "uses");
    bool good = json_integer_value(json_object_get(j, KEY)) == 1 &&
                json_integer_value(json_object_get(j, "experts")) == (json_int_t)h->n_expert &&
                json_array_size(rows) == h->n_layers && json_array_size(uses) == h->n_layers;
    for (uint32_t l = 0; l < h->n_layers && good; l++)
        good = take_layer(json_array_get(rows, l), json_array_get(uses, l), h, l);
    return good;
}

int ntx_heat_parse(const char *json, struct ntx_heat *h, struct ntx_err *err)
{
    struct ntx_heat *read;
    int rc = ntx_heat_new(h->n_layers, h->n_expert, &read);
    if (rc)
        return ntx_err_set(err, rc, "no memory");
    json_t *j = json_loads(json, 0, NULL);
    if (take_heat(j, read)) {
        memcpy(h->uses, read->uses, (size_t)h->n_layers * h->n_expert * sizeof *h->uses);
        memcpy(h->rows, read->rows, h->n_layers * sizeof *h->rows);
    } else {
        rc = ntx_err_set(err, -EINVAL, "the uses of experts in this file are damaged, or of another model");
    }
    json_decref(j);
    ntx_heat_free(read);
    return rc;
}

int ntx_heat_load(const char *digest, struct ntx_heat *h, struct ntx_err *err)
{
    char *text = NULL;
    int rc = ntx_learned_read(FOLDER, digest, FILE_MOST, &text, err);
    if (!rc)
        rc = ntx_heat_parse(text, h, err);
    free(text);
    return rc;
}

int ntx_heat_store(const char *digest, const struct ntx_heat *h, struct ntx_err *err)
{
    char *text = ntx_heat_dump(h);
    int rc = text ? ntx_learned_store(FOLDER, digest, text, 0600) : -ENOMEM;
    free(text);
    return rc ? ntx_err_set(err, rc, "the uses of experts cannot be stored: %s", strerror(-rc)) : 0;
}
