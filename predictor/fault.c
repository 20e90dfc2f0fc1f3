/* SPDX-License-Identifier: Apache-2.0 */
#include "predictor/fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RULE 128

static int parse_time(const char *s, uint64_t *ns)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    char *end;
    if (*s < '0' || *s > '9')
        return -EINVAL;
    double v = strtod(s, &end);
    for (unsigned i = 0; i < 3; i++)
        if (!strcmp(end, units[i].unit) && v * units[i].ns <= 3600e9) {
            *ns = (uint64_t)(v * units[i].ns);
            return 0;
        }
    return -EINVAL;
}

static int parse_count(const char *s, uint64_t *n)
{
    char *end;
    if (*s < '0' || *s > '9')
        return -EINVAL;
    unsigned long v = strtoul(s, &end, 10);
    if (*end || v == 0 || v > 1000000000ul)
        return -EINVAL;
    *n = v;
    return 0;
}

/* "what" or "delay=TIME" */
static int parse_what(char *s, struct ntx_predictor_fault_rule *r, bool *kill)
{
    *kill = !strcmp(s, "kill");
    if (*kill)
        return 0;
    if (!strcmp(s, "mute")) {
        r->what = NTX_FAULT_MUTE;
        return 0;
    }
    r->what = NTX_FAULT_DELAY;
    return strncmp(s, "delay=", 6) ? -EINVAL : parse_time(s + 6, &r->delay_ns);
}

static int parse_condition(const char *s, bool kill, struct ntx_predictor_fault_rule *r, uint64_t *start)
{
    if (!strncmp(s, "start=", 6))
        return parse_count(s + 6, start);
    if (!kill)
        return strncmp(s, "every=", 6) ? -EINVAL : parse_count(s + 6, &r->n);
    if (!strncmp(s, "probe=", 6)) {
        r->what = NTX_FAULT_KILL_PROBE;
        return parse_count(s + 6, &r->n);
    }
    r->what = NTX_FAULT_KILL_DECISION;
    return strncmp(s, "decision=", 9) ? -EINVAL : parse_count(s + 9, &r->n);
}

/* *start: 0 when the rule is for every process. */
static int parse_rule(char *s, struct ntx_predictor_fault_rule *r, uint64_t *start)
{
    bool kill;
    char *save = NULL, *conditions = strchr(s, '@');
    *r = (struct ntx_predictor_fault_rule){0};
    *start = 0;
    if (conditions)
        *conditions++ = 0;
    int rc = parse_what(s, r, &kill);
    for (char *c = conditions ? strtok_r(conditions, ",", &save) : NULL; c && !rc; c = strtok_r(NULL, ",", &save))
        rc = parse_condition(c, kill, r, start);
    if (kill && !r->n)
        return -EINVAL;
    if (!r->n)
        r->n = 1;
    return rc;
}

int ntx_predictor_fault_parse(const char *text, uint64_t start, struct ntx_predictor_fault *out, struct ntx_err *err)
{
    struct ntx_predictor_fault f = {0};
    while (*text) {
        char rule[MAX_RULE];
        struct ntx_predictor_fault_rule r;
        uint64_t only;
        size_t len = strcspn(text, ";");
        if (len >= sizeof rule)
            return ntx_err_set(err, -EINVAL, "predictor's fault '%.40s...': too long", text);
        memcpy(rule, text, len);
        rule[len] = 0;
        if (parse_rule(rule, &r, &only))
            return ntx_err_set(err, -EINVAL,
                               "predictor's fault '%.*s': expected delay=TIME, mute, kill@probe=N or kill@decision=N",
                               (int)len, text);
        if (f.n_rules == NTX_PREDICTOR_FAULT_RULES)
            return ntx_err_set(err, -EINVAL, "predictor's fault: more than %d rules", NTX_PREDICTOR_FAULT_RULES);
        if (!only || only == start)
            f.rule[f.n_rules++] = r;
        text += len + (text[len] == ';');
    }
    *out = f;
    return 0;
}

struct ntx_predictor_fault_act ntx_predictor_fault_probe(struct ntx_predictor_fault *f)
{
    struct ntx_predictor_fault_act act = {0};
    f->probes++;
    for (unsigned i = 0; i < f->n_rules; i++) {
        const struct ntx_predictor_fault_rule *r = &f->rule[i];
        if (r->what == NTX_FAULT_KILL_PROBE)
            act.kill |= f->probes == r->n;
        else if (r->what == NTX_FAULT_MUTE)
            act.mute |= f->probes % r->n == 0;
        else if (r->what == NTX_FAULT_DELAY && f->probes % r->n == 0)
            act.delay_ns += r->delay_ns;
    }
    return act;
}

bool ntx_predictor_fault_sent(struct ntx_predictor_fault *f)
{
    f->decisions++;
    for (unsigned i = 0; i < f->n_rules; i++)
        if (f->rule[i].what == NTX_FAULT_KILL_DECISION && f->decisions == f->rule[i].n)
            return true;
    return false;
}
