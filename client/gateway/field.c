#include "client/gateway/field.h"

#include <math.h>
#include <string.h>

static const struct ntx_field *find(const struct ntx_field *t, const char *name)
{
    while (t->name && strcmp(t->name, name))
        t++;
    return t->name ? t : NULL;
}

static bool asks_nothing(const json_t *v, double neutral)
{
    switch (json_typeof(v)) {
    case JSON_NULL:
    case JSON_FALSE: return true;
    case JSON_INTEGER:
    case JSON_REAL: return json_number_value(v) == neutral;
    case JSON_STRING: return !json_string_length(v);
    case JSON_ARRAY: return !json_array_size(v);
    case JSON_OBJECT: return !json_object_size(v);
    default: return false;
    }
}

static int read_count(const struct ntx_field *d, const json_t *v, void *at, struct ntx_fault *f)
{
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || (double)n < d->least || (double)n > d->most)
        return ntx_fault(f, NTX_FAULT_INVALID, d->name, "'%s' must be an integer from %.0f to %.0f", d->name, d->least, d->most);
    *(uint32_t *)at = (uint32_t)n;
    return 0;
}

static int read_real(const struct ntx_field *d, const json_t *v, void *at, struct ntx_fault *f)
{
    double x = json_number_value(v);
    if (!json_is_number(v) || !isfinite(x) || x < d->least || x > d->most)
        return ntx_fault(f, NTX_FAULT_INVALID, d->name, "'%s' must be a number from %g to %g", d->name, d->least, d->most);
    *(float *)at = (float)x;
    return 0;
}

static int read_one(const struct ntx_field *d, const json_t *v, void *at, struct ntx_fault *f)
{
    switch (d->kind) {
    case NTX_FIELD_COUNT: return read_count(d, v, at, f);
    case NTX_FIELD_REAL: return read_real(d, v, at, f);
    case NTX_FIELD_BOOL:
        if (!json_is_boolean(v))
            return ntx_fault(f, NTX_FAULT_INVALID, d->name, "'%s' must be true or false", d->name);
        *(bool *)at = json_is_true(v);
        return 0;
    case NTX_FIELD_SEED:
        if (!json_is_integer(v))
            return ntx_fault(f, NTX_FAULT_INVALID, d->name, "'%s' must be an integer", d->name);
        *(uint64_t *)at = (uint64_t)json_integer_value(v);
        return 0;
    case NTX_FIELD_ABSENT:
        return asks_nothing(v, d->least) ? 0 : ntx_fault(f, NTX_FAULT_UNSUPPORTED, d->name, "'%s' is not supported%s%s", d->name, d->instead ? ": " : "", d->instead ? d->instead : "");
    default:
        return 0;
    }
}

int ntx_fields_read(const struct ntx_field *table, const json_t *body, void *to, struct ntx_fault *f)
{
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)body, name, v) {
        const struct ntx_field *d = find(table, name);
        if (!d)
            return ntx_fault(f, NTX_FAULT_UNSUPPORTED, name, "unknown field '%.40s': ntx refuses what it would have to ignore", name);
        if (!json_is_null(v) && read_one(d, v, (char *)to + d->at, f))
            return -1;
    }
    return 0;
}
