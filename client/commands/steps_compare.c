/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "client/commands/steps.h"

#include "client/out.h"
#include "common/util.h"

struct comparison {
    const char *name[2];
    double tolerance;
    size_t steps, only[2]; /* compared steps; steps in only one of the files */
    uint32_t tokens;       /* of the longest step */
};

/* Largest distance of two rows, relative to a's largest value, and its column. */
static double row_distance(const float *a, const float *b, uint32_t n, uint32_t *where)
{
    double most = 0, largest = 0;
    for (uint32_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!memcmp(&a[i], &b[i], sizeof *a))
            d = 0;
        if (!(d <= most)) { /* also true for NaN */
            most = isnan(d) ? INFINITY : d;
            *where = i;
        }
        largest = fmax(largest, fabs((double)a[i]));
    }
    return most > 0 ? most / largest : 0;
}

/* Whether the rows differ by more than the tolerance: 1, 0, or -EINVAL where that needs their values. */
static int rows_differ(const struct comparison *c, const struct ntx_step_line *t, const struct ntx_step_row *a,
                       const struct ntx_step_row *b)
{
    uint32_t where = 0;
    if (a->there != b->there)
        return 1;
    if (!a->there || a->digest == b->digest)
        return 0;
    if (c->tolerance > 0 && (!a->values || !b->values))
        return -EINVAL;
    return c->tolerance > 0 ? row_distance(a->values, b->values, t->width, &where) > c->tolerance : 1;
}

static const struct ntx_step_row *step_row(const struct ntx_step_line *t, uint32_t i)
{
    static const struct ntx_step_row none;
    return i < t->n_rows ? &t->row[i] : &none;
}

static void print_step(const struct ntx_step_line *t, const char *what)
{
    bool outside = !strcmp(t->name, "EMBED") || !strcmp(t->name, "OUTPUT");
    printf("%s: ", what);
    if (!outside)
        printf("layer %u, step %u: ", t->layer, t->step);
    ntx_out_format("%s -> %s [%u]", t->name, t->buffer, t->width);
}

static void print_sides(const struct comparison *c, const struct ntx_step_line *a, const struct ntx_step_line *b)
{
    const struct ntx_step_line *t[] = {a, b};
    for (int i = 0; i < 2; i++)
        printf("  %s: %u tokens, from %.9g to %.9g, mean %.9g\n", c->name[i], t[i]->n_there, (double)t[i]->min,
               (double)t[i]->max, t[i]->sum / t[i]->n_there);
}

/* Prints the difference and returns 1. */
static int print_difference(const struct comparison *c, const struct ntx_step_line *a, const struct ntx_step_line *b,
                            uint32_t row)
{
    const struct ntx_step_row *ra = step_row(a, row), *rb = step_row(b, row);
    uint32_t where = 0;
    print_step(a, "they part");
    const char *only = "";
    if (ra->there != rb->there)
        only = ra->there ? ", which only the first has" : ", which only the second has";
    printf(", token %u%s\n", row, only);
    if (ra->values && rb->values) {
        double d = row_distance(ra->values, rb->values, a->width, &where);
        printf("  most at %u: %.9g and %.9g, %.3g of the row's largest value\n", where, (double)ra->values[where],
               (double)rb->values[where], d);
    }
    print_sides(c, a, b);
    return 1;
}

/* 1: they differ, and it was printed. */
static int compare_step(struct comparison *c, const struct ntx_step_line *a, const struct ntx_step_line *b,
                        struct ntx_err *err)
{
    if (a->width != b->width || strcmp(a->name, b->name)) {
        print_step(a, "they part");
        ntx_out_format(" in the first, %s [%u] in the second\n", b->name, b->width);
        return 1;
    }
    for (uint32_t i = 0; i < NTX_MAX(a->n_rows, b->n_rows); i++) {
        int rc = rows_differ(c, a, step_row(a, i), step_row(b, i));
        if (rc < 0)
            return ntx_err_set(err, rc, "--tolerance needs the values: write both files with --step-values");
        if (rc)
            return print_difference(c, a, b, i);
    }
    c->steps++;
    c->tokens = NTX_MAX(c->tokens, a->n_there);
    return 0;
}

int ntx_steps_compare(struct ntx_steps *a, struct ntx_steps *b, const char *name_a, const char *name_b,
                      double tolerance, struct ntx_err *err)
{
    struct comparison c = {.name = {name_a, name_b}, .tolerance = tolerance};
    for (size_t i = 0; i < a->n; i++) {
        const struct ntx_step_line *t = &a->step[i], *other = ntx_steps_find(b, t->layer, t->step, t->buffer);
        int rc = other ? compare_step(&c, t, other, err) : 0;
        if (rc)
            return rc;
        c.only[0] += !other;
    }
    for (size_t i = 0; i < b->n; i++)
        c.only[1] += !ntx_steps_find(a, b->step[i].layer, b->step[i].step, b->step[i].buffer);
    if (!c.steps)
        return ntx_err_set(err, -EINVAL, "%s and %s have no step in common", name_a, name_b);
    printf("the same%s: %zu steps of %u tokens", tolerance > 0 ? " within the tolerance" : "", c.steps, c.tokens);
    if (c.only[0] || c.only[1])
        printf("; %zu only in %s, %zu only in %s", c.only[0], name_a, c.only[1], name_b);
    putchar('\n');
    return 0;
}
