/* SPDX-License-Identifier: Apache-2.0 */
/* policy_script.c: the scripted policy: fixed layers for fixed rows. The grammar is in policy.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "predictor/policy.h"

#define ALL_ROWS  UINT32_MAX
#define MAX_PARTS 256

struct part {
    uint32_t row; /* or ALL_ROWS */
    uint64_t skip[NTX_MAP_WORDS];
};

struct script {
    uint32_t n;
    struct part part[];
};

/* Parses a decimal number of at most 9 digits at *s, and moves *s past it. */
static int parse_number(const char **s, uint32_t *out)
{
    uint32_t v = 0;
    unsigned digits = 0;
    for (; **s >= '0' && **s <= '9'; ++*s, digits++) {
        if (digits == 9)
            return -EINVAL;
        v = v * 10 + (uint32_t)(**s - '0');
    }
    if (!digits)
        return -EINVAL;
    *out = v;
    return 0;
}

/* Parses N or N-M. Layer 0 is before every probe, so it is refused, as is a layer that the model does not have. */
static int parse_layers(const char **s, uint32_t n_layers, uint64_t *skip, struct ntx_err *err)
{
    uint32_t first, last;
    const char *at = *s;
    int rc = parse_number(s, &first);
    last = first;
    if (!rc && **s == '-') {
        ++*s;
        rc = parse_number(s, &last);
    }
    if (rc || last < first)
        return ntx_err_set(err, -EINVAL, "policy script: expected a layer (3) or layers (3-5) at '%.40s'", at);
    if (first == 0)
        return ntx_err_set(err, -EINVAL, "policy script: layer 0 cannot be skipped, it is computed before the probe");
    if (last >= n_layers)
        return ntx_err_set(err, -EINVAL, "policy script: no layer %u, the model has layers 0 to %u", last,
                           n_layers - 1);
    for (uint32_t l = first; l <= last; l++)
        skip[l / 64] |= 1ull << (l % 64);
    return 0;
}

static int parse_part(const char **s, uint32_t n_layers, struct part *p, struct ntx_err *err)
{
    *p = (struct part){.row = ALL_ROWS};
    for (;;) {
        int rc = parse_layers(s, n_layers, p->skip, err);
        if (rc)
            return rc;
        if (**s != ',')
            break;
        ++*s;
    }
    if (**s == '@') {
        ++*s;
        if (parse_number(s, &p->row))
            return ntx_err_set(err, -EINVAL, "policy script: expected a row number after '@', got '%.40s'", *s);
    }
    return 0;
}

static int script_open(struct ntx_policy *p, const char *args, const struct ntx_policy_shape *shape,
                       struct ntx_err *err)
{
    uint32_t n_layers = shape->n_layers < 64 * NTX_MAP_WORDS ? shape->n_layers : 64 * NTX_MAP_WORDS;
    struct script *s = calloc(1, sizeof *s + MAX_PARTS * sizeof *s->part);
    if (!s)
        return ntx_err_set(err, -ENOMEM, "no memory for a policy");
    p->data = s;
    p->skips = true;
    p->probe_layer = 0; /* it needs no state; an early decision avoids more reads */
    for (;;) {
        if (s->n == MAX_PARTS)
            return ntx_err_set(err, -EINVAL, "policy script: more than %d parts", MAX_PARTS);
        int rc = parse_part(&args, n_layers, &s->part[s->n], err);
        if (rc)
            return rc;
        s->n++;
        if (*args != ';')
            break;
        args++;
    }
    return *args ? ntx_err_set(err, -EINVAL, "policy script: '%.40s' is too much", args) : 0;
}

static void script_decide(const struct ntx_policy *p, const struct ntx_policy_input *in, uint64_t *skip)
{
    const struct script *s = p->data;
    for (uint32_t i = 0; i < s->n; i++)
        for (unsigned w = 0; w < NTX_MAP_WORDS; w++)
            if (s->part[i].row == ALL_ROWS || s->part[i].row == in->row)
                skip[w] |= s->part[i].skip[w];
}

static void script_close(struct ntx_policy *p) { free(p->data); }

const struct ntx_policy_ops ntx_policy_script = {"script", script_open, script_decide, script_close};
