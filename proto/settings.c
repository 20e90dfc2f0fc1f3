/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/settings.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"
#include "common/util.h"
#include "proto/frame.h"

#define REFUSE(err, ...) ntx_err_set(err, -EINVAL, __VA_ARGS__)

static double most_of(const struct ntx_setting *s)
{
    if (s->max > 0)
        return s->max;
    switch (s->kind) {
    case NTX_SET_SIZE: return (double)NTX_BYTES_MAX;
    case NTX_SET_RATE:
    case NTX_SET_REAL: return HUGE_VAL;
    case NTX_SET_WORD: return NTX_WORD_MAX;
    case NTX_SET_TEXT:
    case NTX_SET_PATH: return NTX_OPTION_MAX;
    default: return UINT32_MAX;
    }
}

/* A number of bytes without a unit that is no sensible size: the unit was forgotten. Larger numbers are taken from
 * messages, which name sizes to the byte. */
static bool lacks_unit(const struct ntx_setting *s, const char *text, uint64_t v)
{
    return !text[strspn(text, "0123456789.")] && v < (s->small ? 1024u : 100000u);
}

static int refuse_without_unit(const struct ntx_setting *s, const char *text, struct ntx_err *err)
{
    const char *unit = atof(text) <= 64 ? "G" : "M";
    if (s->small)
        unit = "K";
    return REFUSE(err, "'%s' has no unit and would be bytes; did you mean %s%s? (%sB is bytes)", text, text, unit,
                  text);
}

static int read_size(const struct ntx_setting *s, const char *text, uint64_t *to, struct ntx_err *err)
{
    uint64_t v = 0;
    if (ntx_parse_size(text, &v) || !v || (double)v > most_of(s))
        return REFUSE(err, "'%s' is not a size; write it as 512M or 3G", text);
    if (lacks_unit(s, text, v))
        return refuse_without_unit(s, text, err);
    *to = v;
    return 0;
}

static int read_count(const struct ntx_setting *s, const char *text, uint32_t *to, struct ntx_err *err)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || *text < '0' || *text > '9' || *end || (double)v < s->min)
        return REFUSE(err, "'%s' is not a whole number of at least %.0f", text, s->min);
    if ((double)v > most_of(s))
        return REFUSE(err, "'%s' is more than %.0f", text, most_of(s));
    *to = (uint32_t)(s->kind == NTX_SET_SECONDS ? v * 1000 : v);
    return 0;
}

static int read_number(const struct ntx_setting *s, const char *text, uint64_t *to, struct ntx_err *err)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || *text < '0' || *text > '9' || *end)
        return REFUSE(err, "'%s' is not a %s; it is a whole number", text, s->name);
    *to = v;
    return 0;
}

static int read_real(const struct ntx_setting *s, const char *text, float *to, struct ntx_err *err)
{
    char *end;
    float v = strtof(text, &end);
    if (end == text || *end || !(v >= (float)s->min && v <= (float)most_of(s)))
        return REFUSE(err, "'%s' is not a number from %g to %g", text, s->min, most_of(s));
    *to = v;
    return 0;
}

static int read_rate(const char *text, double *to, struct ntx_err *err)
{
    return ntx_parse_rate(text, to) ? REFUSE(err, "'%s' is not a rate; write it as 3.3G, in bytes per second", text)
                                    : 0;
}

static const char *first_choice(const struct ntx_setting *s) { return strchr(s->choices, ':') + 1; }

static const char *next_choice(const char *c) { return strchr(c, '|') ? strchr(c, '|') + 1 : NULL; }

static bool is_choice(const struct ntx_setting *s, const char *text)
{
    size_t n = strlen(text);
    for (const char *c = first_choice(s); c; c = next_choice(c))
        if (n && strcspn(c, "|") == n && !memcmp(c, text, n))
            return true;
    return false;
}

/* "'x' is not a form; there are md, csv and json" */
static int no_choice(const struct ntx_setting *s, const char *text, struct ntx_err *err)
{
    char all[160];
    size_t n = 0;
    for (const char *c = first_choice(s), *next; c && n < sizeof all; c = next) {
        next = next_choice(c);
        const char *between = next ? ", " : " and ";
        if (c == first_choice(s))
            between = "";
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%.*s", between, (int)strcspn(c, "|"), c);
    }
    struct ntx_near near;
    ntx_near_begin(&near, text, "");
    ntx_near_offer_list(&near, first_choice(s));
    return REFUSE(err, "'%.64s' is not a %.*s; there are %s%s", text, (int)strcspn(s->choices, ":"), s->choices, all,
                  near.hint);
}

static int read_text(const struct ntx_setting *s, const char *text, const char **to, struct ntx_err *err)
{
    if (s->kind == NTX_SET_WORD && !is_choice(s, text))
        return no_choice(s, text, err);
    if (s->kind == NTX_SET_PATH && *text && *text != '/')
        return REFUSE(err, "'%s' is not a whole path, from '/' on", text);
    *to = text; /* its length is checked where it goes on the wire */
    return 0;
}

static int read_bool(const struct ntx_setting *s, const char *text, bool *to, struct ntx_err *err)
{
    bool yes = !text || !strcmp(text, "yes") || !strcmp(text, "true") || !strcmp(text, "on");
    if (!yes && strcmp(text, "no") && strcmp(text, "false") && strcmp(text, "off"))
        return REFUSE(err, "%s, not '%s'", s->kind == NTX_SET_YES ? "yes or no" : "on or off", text);
    *to = yes != (s->kind == NTX_SET_ON);
    return 0;
}

static int read_kind(const struct ntx_setting *s, const char *text, void *to, struct ntx_err *err)
{
    switch (s->kind) {
    case NTX_SET_SIZE: return read_size(s, text, to, err);
    case NTX_SET_COUNT:
    case NTX_SET_SECONDS: return read_count(s, text, to, err);
    case NTX_SET_NUMBER: return read_number(s, text, to, err);
    case NTX_SET_REAL: return read_real(s, text, to, err);
    case NTX_SET_RATE: return read_rate(text, to, err);
    case NTX_SET_WORD:
    case NTX_SET_TEXT:
    case NTX_SET_PATH: return read_text(s, text, to, err);
    case NTX_SET_FLAG:
    case NTX_SET_YES:
    case NTX_SET_ON: return read_bool(s, text, to, err);
    case NTX_SET_OWN: break;
    }
    return 0;
}

int ntx_setting_read(const struct ntx_setting *s, const char *text, void *to, struct ntx_err *err)
{
    const bool minus = s->minus && text && !strcmp(text, "-1");
    if (minus && !*s->minus) {
        memset((char *)to + s->at, 0, s->wire_size);
        if (s->given)
            *(bool *)((char *)to + s->given) = false;
        return 0;
    }
    text = minus ? s->minus : text;
    int rc = s->kind == NTX_SET_OWN ? s->own(to, text, err) : read_kind(s, text, (char *)to + s->at, err);
    if (!rc && s->given)
        *(bool *)((char *)to + s->given) = true;
    return rc;
}

void ntx_settings_preset(const struct ntx_settings *t, void *to)
{
    for (unsigned i = 0; i < t->n; i++) {
        struct ntx_setting s = t->entry[i];
        s.given = 0;
        if (s.preset)
            ntx_setting_read(&s, s.preset, to, NULL);
    }
}

/* ---- messages */

static bool is_text(const struct ntx_setting *s)
{
    return s->kind == NTX_SET_WORD || s->kind == NTX_SET_TEXT || s->kind == NTX_SET_PATH;
}
static bool is_bool(const struct ntx_setting *s)
{
    return s->kind == NTX_SET_FLAG || s->kind == NTX_SET_YES || s->kind == NTX_SET_ON;
}

static double number_at(const struct ntx_setting *s, const void *p)
{
    switch (s->kind) {
    case NTX_SET_RATE: return *(const double *)p;
    case NTX_SET_REAL: return (double)*(const float *)p;
    case NTX_SET_SIZE: return (double)*(const uint64_t *)p;
    default: return (double)*(const uint32_t *)p;
    }
}

static bool number_fits(const struct ntx_setting *s, const void *p)
{
    double v = number_at(s, p), min = s->kind == NTX_SET_REAL ? (double)(float)s->min : s->min;
    return v == 0 || (isfinite(v) && v >= min && v <= most_of(s));
}

bool ntx_settings_fit(const struct ntx_settings *t, const void *m)
{
    for (unsigned i = 0; i < t->n; i++) {
        const struct ntx_setting *s = &t->entry[i];
        const void *p = (const char *)m + s->wire;
        if (!s->wire || is_bool(s) || s->kind == NTX_SET_NUMBER)
            continue;
        if (is_text(s)) {
            const char *text = *(char *const *)p;
            size_t max = (size_t)most_of(s);
            if (!text || strnlen(text, max + 1) > max)
                return false;
        } else if (!number_fits(s, p))
            return false;
    }
    return true;
}

int ntx_settings_check(const struct ntx_settings *t, const void *m, struct ntx_err *err)
{
    for (unsigned i = 0; i < t->n; i++) {
        const struct ntx_setting *s = &t->entry[i];
        const char *text = s->wire && s->kind == NTX_SET_WORD ? *(char *const *)((const char *)m + s->wire) : "";
        struct ntx_err why = {0};
        if (text && *text && !is_choice(s, text)) {
            no_choice(s, text, &why);
            return REFUSE(err, "--%s: %s", s->name, why.text);
        }
    }
    return 0;
}

/* Copies between the plain struct and the message (out: to the message). A message has an int for a bool. */
static void copy_fields(const struct ntx_settings *t, const char *from, char *to, bool out)
{
    for (unsigned i = 0; i < t->n; i++) {
        const struct ntx_setting *s = &t->entry[i];
        const void *p = from + (out ? s->at : s->wire);
        void *q = to + (out ? s->wire : s->at);
        if (!s->wire)
            continue;
        if (is_text(s))
            *(const char **)q = *(const char *const *)p ? *(const char *const *)p : "";
        else if (is_bool(s) && out)
            *(int *)q = *(const bool *)p;
        else if (is_bool(s))
            *(bool *)q = *(const int *)p;
        else
            memcpy(q, p, s->wire_size);
    }
}

void ntx_settings_to_wire(const struct ntx_settings *t, const void *from, void *m) { copy_fields(t, from, m, true); }
void ntx_settings_from_wire(const struct ntx_settings *t, const void *m, void *to) { copy_fields(t, m, to, false); }

/* True when the message does not set it. */
static bool is_open(const struct ntx_setting *s, const void *p)
{
    static const char zero[sizeof(double)];
    if (!is_text(s))
        return !memcmp(p, zero, s->wire_size);
    const char *text = *(char *const *)p;
    return !text || !*text;
}

void ntx_settings_fill(const struct ntx_settings *t, void *m, const void *d)
{
    for (unsigned i = 0; i < t->n; i++) {
        const struct ntx_setting *s = &t->entry[i];
        char *p = (char *)m + s->wire;
        if (s->wire && s->section && is_open(s, p))
            memcpy(p, (const char *)d + s->wire, s->wire_size);
    }
}

/* ---- owned texts */

int ntx_settings_keep(const struct ntx_settings *t, void *of)
{
    bool failed = false;
    for (unsigned i = 0; i < t->n; i++)
        if (is_text(&t->entry[i])) {
            char **p = (char **)((char *)of + t->entry[i].at);
            const char *text = *p ? *p : "";
            *p = failed ? NULL : strdup(text);
            failed |= !*p;
        }
    if (failed)
        ntx_settings_drop(t, of);
    return failed ? -ENOMEM : 0;
}

void ntx_settings_drop(const struct ntx_settings *t, void *of)
{
    for (unsigned i = 0; i < t->n; i++)
        if (is_text(&t->entry[i])) {
            char **p = (char **)((char *)of + t->entry[i].at);
            free(*p);
            *p = NULL;
        }
}
