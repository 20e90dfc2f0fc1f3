/* SPDX-License-Identifier: Apache-2.0 */
/* schema_number.c: numbers between bounds, digit by digit. Bounds are integers in units of 10^-places. A number is
 * written as its integer part and, where that is next to a bound, exactly so many decimal places. Exponents are
 * allowed only without bounds. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "computed/grammar/schema.h"

#define FURTHEST 1000000000000000ll /* the default bound */
enum { PLACES_MOST = 6, LISTED_MOST = 4000, REMAINDERS = 50, DIGITS = 12 };

static node digit(struct tree *t, char lo, char hi)
{
    struct range r = {(uint32_t)lo, (uint32_t)hi};
    return ntx__tree_chars(t, &r, 1);
}

/* Texts of n digits, from lo to hi. */
static node digit_range(struct tree *t, const char *lo, const char *hi, unsigned n)
{
    static const char nines[] = "99999999999999999999", zeros[] = "00000000000000000000";
    if (!n)
        return ntx__tree_list(t, N_EMPTY);
    if (!memcmp(lo, zeros, n) && !memcmp(hi, nines, n))
        return ntx__tree_repeat(t, digit(t, '0', '9'), n, n);
    if (*lo == *hi)
        return SEQ(t, digit(t, *lo, *lo), digit_range(t, lo + 1, hi + 1, n - 1));
    node out = ALT(t, SEQ(t, digit(t, *lo, *lo), digit_range(t, lo + 1, nines, n - 1)),
                   SEQ(t, digit(t, *hi, *hi), digit_range(t, zeros, hi + 1, n - 1)));
    if (*hi - *lo > 1)
        ntx__tree_add(t, out, SEQ(t, digit(t, (char)(*lo + 1), (char)(*hi - 1)), digit_range(t, zeros, nines, n - 1)));
    return out;
}

/* Integers from lo to hi, 0 <= lo <= hi. */
static node integer_range(struct tree *t, int64_t lo, int64_t hi)
{
    node out = ntx__tree_list(t, N_ALT);
    int64_t from = 0, to = 9;
    for (int n = 1; n <= 17; n++) {
        int64_t a = lo > from ? lo : from, b = hi < to ? hi : to;
        if (a <= b) {
            char x[24], y[24];
            snprintf(x, sizeof x, "%0*" PRId64, n, a);
            snprintf(y, sizeof y, "%0*" PRId64, n, b);
            ntx__tree_add(t, out, digit_range(t, x, y, (unsigned)n));
        }
        from = to + 1;
        to = 10 * to + 9;
    }
    return out;
}

static node minus(struct tree *t, node n) { return SEQ(t, ntx__tree_text(t, "-"), n); }

static node integers(struct tree *t, int64_t lo, int64_t hi)
{
    node out = ntx__tree_list(t, N_ALT);
    if (hi >= 0)
        ntx__tree_add(t, out, integer_range(t, lo > 0 ? lo : 0, hi));
    if (lo < 0)
        ntx__tree_add(t, out, minus(t, integer_range(t, hi < 0 ? -hi : 1, -lo)));
    return out;
}

static int64_t power(int places)
{
    int64_t p = 1;
    while (places-- > 0)
        p *= 10;
    return p;
}

/* Fractions of one integer part, with exactly so many places, from lo to hi. */
static node fraction(struct tree *t, int64_t part, int64_t lo, int64_t hi, int places)
{
    char x[24], y[24];
    snprintf(x, sizeof x, "%0*" PRId64, places, lo);
    snprintf(y, sizeof y, "%0*" PRId64, places, hi);
    return SEQ(t, integer_range(t, part, part), ntx__tree_text(t, "."), digit_range(t, x, y, (unsigned)places));
}

/* lo <= x * 10^places <= hi, 0 <= lo. */
static node magnitudes(struct tree *t, int64_t lo, int64_t hi, int places)
{
    node out = ntx__tree_list(t, N_ALT);
    int64_t p = power(places), a = lo / p, b = hi / p;
    if (lo > hi)
        return out;
    int64_t first = a + (lo % p != 0); /* integer parts from here to b - 1 have any fraction */
    if (lo % p && places)
        ntx__tree_add(t, out, fraction(t, a, lo % p, a == b ? hi % p : p - 1, places));
    if (first < b)
        ntx__tree_add(t, out, SEQ(t, integer_range(t, first, b - 1), ntx__regex_plain(t, "(\\.[0-9]{1,6})?")));
    if (first <= b)
        ntx__tree_add(t, out, integer_range(t, b, b));
    if (first <= b && places && hi % p)
        ntx__tree_add(t, out, fraction(t, b, 0, hi % p, places));
    return out;
}

struct bounds {
    double lo, hi;
    bool has_lo, has_hi, open_lo, open_hi;
};

static double bound_of(struct tree *t, const json_t *v, const char *key)
{
    double d = json_number_value(v);
    if (!json_is_number(v) || !isfinite(d))
        ntx__tree_fail(t, -EINVAL, "the schema's '%s' must be a number", key);
    return d;
}

static struct bounds bounds_of(struct tree *t, const json_t *s)
{
    struct bounds b = {0};
    const json_t *min = json_object_get(s, "minimum"), *max = json_object_get(s, "maximum"),
                 *above = json_object_get(s, "exclusiveMinimum"), *below = json_object_get(s, "exclusiveMaximum");
    if (min)
        b.lo = bound_of(t, min, "minimum"), b.has_lo = true;
    if (max)
        b.hi = bound_of(t, max, "maximum"), b.has_hi = true;
    if (above) {
        double x = bound_of(t, above, "exclusiveMinimum");
        b.open_lo = !b.has_lo || x >= b.lo;
        b.lo = b.open_lo ? x : b.lo;
        b.has_lo = true;
    }
    if (below) {
        double x = bound_of(t, below, "exclusiveMaximum");
        b.open_hi = !b.has_hi || x <= b.hi;
        b.hi = b.open_hi ? x : b.hi;
        b.has_hi = true;
    }
    return b;
}

static int64_t clamp(double x, int64_t lo, int64_t hi)
{
    if (x > (double)hi)
        return hi;
    return x < (double)lo ? lo : (int64_t)x;
}

/* Bounds within the range where sums of digits are exact. If a bound leaves nothing there, lowest > highest. */
static int64_t lowest(const struct bounds *b)
{
    if (!b->has_lo)
        return -FURTHEST;
    return clamp(b->open_lo ? floor(b->lo) + 1 : ceil(b->lo), -FURTHEST, FURTHEST + 1);
}
static int64_t highest(const struct bounds *b)
{
    if (!b->has_hi)
        return FURTHEST;
    return clamp(b->open_hi ? ceil(b->hi) - 1 : floor(b->hi), -FURTHEST - 1, FURTHEST);
}

/* Decimal places of a bound, at most PLACES_MOST + 1. */
static int places_of(double x)
{
    int n = 0;
    for (double p = 1; n <= PLACES_MOST && fabs(x * p - round(x * p)) > 1e-9 * fabs(x * p) + 1e-12; p *= 10)
        n++;
    return n;
}

/* The least and the largest n such that n / p is within the bound; n / p rounds to the double that a reader of its
 * text has. */
static int64_t least_of(double lo, int64_t p, bool open)
{
    int64_t n = (int64_t)llround(lo * (double)p);
    double x = (double)n / (double)p;
    return n + (x < lo || (open && x <= lo));
}

static int64_t most_of(double hi, int64_t p, bool open) { return -least_of(-hi, p, open); }

static node reals(struct tree *t, const struct bounds *b)
{
    double lo = b->has_lo ? b->lo : -1e9, hi = b->has_hi ? b->hi : 1e9;
    if (!b->has_lo && hi < 0)
        lo = hi - 1e9;
    if (!b->has_hi && lo > 0)
        hi = lo + 1e9;
    if (fabs(lo) > 1e11 || fabs(hi) > 1e11) /* integers only */
        return integers(t, lowest(b), highest(b));
    int a = places_of(lo), c = places_of(hi), places = a > c ? a : c;
    if (places > PLACES_MOST)
        return ntx__tree_fail(t, -EINVAL, "bounds of numbers with more than %d places are not supported", PLACES_MOST);
    if (b->open_lo || b->open_hi)
        places = places < 3 ? 3 : places + (places < PLACES_MOST);
    int64_t p = power(places), from = least_of(lo, p, b->open_lo), to = most_of(hi, p, b->open_hi);
    node out = ntx__tree_list(t, N_ALT);
    if (to >= 0)
        ntx__tree_add(t, out, magnitudes(t, from > 0 ? from : 0, to, places));
    if (from < 0)
        ntx__tree_add(t, out, minus(t, magnitudes(t, to < 0 ? -to : 1, -from, places)));
    return out;
}

/* ---- multiples: a rule for each remainder of the digits so far, or a list between bounds */

static node listed(struct tree *t, int64_t k, int64_t lo, int64_t hi)
{
    node out = ntx__tree_list(t, N_ALT);
    int64_t x = lo >= 0 ? (lo + k - 1) / k * k : -(-lo / k * k);
    for (; x <= hi; x += k) {
        char text[32];
        snprintf(text, sizeof text, "%" PRId64, x);
        ntx__tree_add(t, out, ntx__tree_text(t, text));
    }
    return out;
}

/* Positive multiples of k with at most DIGITS digits: rule r of `left` is the rest after a remainder of r, in so
 * many digits. */
static node remainders(struct tree *t, uint32_t k)
{
    uint32_t after = 0, here = 0;
    for (uint32_t left = 0; left < DIGITS && !t->failed; left++, after = here) {
        here = t->n_rules;
        for (uint32_t r = 0; r < k; r++)
            ntx__tree_rule_new(t, NULL, 0);
        for (uint32_t r = 0; r < k && !t->failed; r++) {
            node any = ntx__tree_list(t, N_ALT);
            if (!r)
                ntx__tree_add(t, any, ntx__tree_list(t, N_EMPTY));
            for (uint32_t d = 0; d < 10 && left; d++)
                ntx__tree_add(
                    t, any,
                    SEQ(t, digit(t, (char)('0' + d), (char)('0' + d)), ntx__tree_rule(t, after + (10 * r + d) % k)));
            ntx__tree_define(t, here + r, any);
        }
    }
    node begin = ntx__tree_list(t, N_ALT);
    for (uint32_t d = 1; d < 10; d++)
        ntx__tree_add(t, begin, SEQ(t, digit(t, (char)('0' + d), (char)('0' + d)), ntx__tree_rule(t, here + d % k)));
    return begin;
}

/* The fractions from lo to hi, in units of 10^-places, that are multiples of k. */
static node some_fractions(struct tree *t, int64_t k, int64_t lo, int64_t hi, int places)
{
    node out = ntx__tree_list(t, N_ALT);
    for (int64_t x = (lo + k - 1) / k * k; x <= hi; x += k) {
        char text[32];
        snprintf(text, sizeof text, ".%0*" PRId64, places, x);
        ntx__tree_add(t, out, ntx__tree_text(t, text));
        if (!x)
            ntx__tree_add(t, out, ntx__tree_list(t, N_EMPTY));
    }
    return out;
}

/* Multiples of k from lo to hi, all in units of 10^-places, 0 <= lo. k divides 10^places. */
static node stepped(struct tree *t, int64_t k, int64_t lo, int64_t hi, int places)
{
    const int64_t p = power(places), a = lo / p, b = hi / p;
    node out = ntx__tree_list(t, N_ALT);
    if (lo > hi)
        return out;
    ntx__tree_add(t, out,
                  SEQ(t, integer_range(t, a, a), some_fractions(t, k, lo % p, a == b ? hi % p : p - 1, places)));
    if (a + 1 < b)
        ntx__tree_add(t, out, SEQ(t, integer_range(t, a + 1, b - 1), some_fractions(t, k, 0, p - 1, places)));
    if (a < b)
        ntx__tree_add(t, out, SEQ(t, integer_range(t, b, b), some_fractions(t, k, 0, hi % p, places)));
    return out;
}

/* multipleOf 0.01, 0.5, 0.25, ...: the step is k units of 10^-places. */
static node fractions(struct tree *t, const struct bounds *b, double of)
{
    enum { PLACES = 3 };
    int places = 1;
    while (places < PLACES && fabs(of * (double)power(places) - round(of * (double)power(places))) > 1e-9)
        places++;
    const int64_t p = power(places), k = llround(of * (double)p);
    double lo = b->has_lo ? b->lo : -1e9, hi = b->has_hi ? b->hi : 1e9;
    if (k < 1 || p % k || fabs(of * (double)p - (double)k) > 1e-9)
        return ntx__tree_fail(t, -EINVAL,
                              "multipleOf of decimals is supported for those of up to %d places that divide 1", PLACES);
    if (!b->has_lo && hi < 0)
        lo = hi - 1e9;
    if (!b->has_hi && lo > 0)
        hi = lo + 1e9;
    if (fabs(lo) > 1e11 || fabs(hi) > 1e11)
        return integers(t, lowest(b), highest(b)); /* these are multiples, too */
    const int64_t from = least_of(lo, p, b->has_lo && b->open_lo), to = most_of(hi, p, b->has_hi && b->open_hi);
    node out = ntx__tree_list(t, N_ALT);
    if (to >= 0)
        ntx__tree_add(t, out, stepped(t, k, from > 0 ? from : 0, to, places));
    if (from < 0)
        ntx__tree_add(t, out, minus(t, stepped(t, k, to < 0 ? -to : k, -from, places)));
    return out;
}

static node multiples(struct tree *t, const struct bounds *b, double of)
{
    if (of > 0 && of != floor(of))
        return fractions(t, b, of);
    if (of < 1 || of > 50000)
        return ntx__tree_fail(t, -EINVAL, "multipleOf is supported for whole numbers from 1 to 50000, and decimals");
    int64_t k = (int64_t)of, lo = lowest(b), hi = highest(b);
    if (k == 1)
        return integers(t, lo, hi);
    if (b->has_lo && b->has_hi && (hi - lo) / k <= LISTED_MOST)
        return listed(t, k, lo, hi);
    if (b->has_hi || (b->has_lo && lo > 1) || (b->has_lo && lo < 0))
        return ntx__tree_fail(
            t, -EINVAL,
            "multipleOf together with bounds is supported where at most %d numbers are possible, or the minimum is 0",
            LISTED_MOST);
    unsigned zeros = 0;
    for (; k % 10 == 0; k /= 10)
        zeros++;
    if (k > REMAINDERS)
        return ntx__tree_fail(t, -EINVAL,
                              "multipleOf without bounds is supported for 1 to %d, and 10, 100 and 1000 times these",
                              REMAINDERS);
    node out = SEQ(t, remainders(t, (uint32_t)k), ntx__tree_repeat(t, digit(t, '0', '0'), zeros, zeros));
    if (!b->has_lo)
        out = ALT(t, SEQ(t, ntx__tree_repeat(t, ntx__tree_text(t, "-"), 0, 1), out));
    if (!b->has_lo || lo == 0)
        out = ALT(t, out, ntx__tree_text(t, "0"));
    return out;
}

node ntx__schema_number(struct tree *t, const json_t *schema, bool integer)
{
    const json_t *of = json_object_get(schema, "multipleOf");
    struct bounds b = bounds_of(t, schema);
    if (of && !t->failed) {
        const double step = bound_of(t, of, "multipleOf");
        const bool nothing = integer && step != floor(step) && !t->failed; /* 0.01 of an integer, if 1 is a multiple */
        const double inverse = 1 / step;
        if (nothing && fabs(inverse - round(inverse)) < 1e-9)
            return ntx__schema_number(t, ntx__schema_without(t, schema, "multipleOf"), true);
        if (nothing)
            ntx__tree_fail(t, -EINVAL, "multipleOf of decimals is not supported for integers");
        const node out = nothing ? 0 : multiples(t, &b, step);
        if (!t->failed || !ntx__schema_forgive(t, schema, "multipleOf"))
            return out;
    }
    if (t->failed)
        return 0;
    if (!b.has_lo && !b.has_hi)
        return ntx__schema_common(t, integer ? C_INTEGER : C_NUMBER);
    const node out = integer ? integers(t, lowest(&b), highest(&b)) : reals(t, &b);
    static const char *const bounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
    if (!t->failed)
        return out;
    bool forgiven = false;
    for (int i = 0; i < 4; i++) {
        if (!json_object_get(schema, bounds[i]))
            continue;
        if (forgiven)
            ntx__schema_drop(t, schema, bounds[i], "");
        else
            forgiven = ntx__schema_forgive(t, schema, bounds[i]);
    }
    const enum common any = integer ? C_INTEGER : C_NUMBER;
    return forgiven ? ntx__schema_common(t, any) : 0;
}
