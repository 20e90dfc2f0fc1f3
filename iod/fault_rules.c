/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "iod/fault.h"

static const struct {
    const char *name;
    enum ntx__fault_what what;
    bool timed;
} whats[] = {
    {"eio", NTX__FAULT_EIO, false},    {"short", NTX__FAULT_SHORT, false}, {"delay", NTX__FAULT_DELAY, true},
    {"stall", NTX__FAULT_STALL, true}, {"kill", NTX__FAULT_KILL, false},
};

static const struct {
    const char *name;
    enum ntx_state state;
} states[] = {{"FILLING", NTX_FILLING}, {"READY", NTX_READY}, {"FAILED", NTX_FAILED}, {"SKIPPED", NTX_SKIPPED}};

static int parse_count(const char *text, uint64_t max, uint64_t *out)
{
    char *end;
    if (!text || *text < '0' || *text > '9')
        return -EINVAL;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || *end || v > max)
        return -EINVAL;
    *out = v;
    return 0;
}

static int parse_time(const char *text, uint64_t *ns)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    char *end;
    if (!text || *text < '0' || *text > '9')
        return -EINVAL;
    double v = strtod(text, &end);
    for (unsigned i = 0; i < sizeof(units) / sizeof(*units); i++)
        if (!strcmp(end, units[i].unit) && v * units[i].ns < 1e15) {
            *ns = (uint64_t)(v * units[i].ns);
            return 0;
        }
    return -EINVAL;
}

static int parse_share(const char *text, double *p)
{
    char *end;
    if (!text || !*text)
        return -EINVAL;
    double v = strtod(text, &end);
    if (*end || !(v >= 0 && v <= 1))
        return -EINVAL;
    *p = v;
    return 0;
}

static int parse_state(const char *text, enum ntx_state *out)
{
    for (unsigned i = 0; text && i < sizeof(states) / sizeof(*states); i++)
        if (!strcmp(text, states[i].name)) {
            *out = states[i].state;
            return 0;
        }
    return -EINVAL;
}

static int parse_condition(char *text, struct ntx__fault_rule *r)
{
    char *value = strchr(text, '=');
    uint64_t n = 0;
    int rc = 0;
    if (value)
        *value++ = 0;
    if (!strcmp(text, "demand")) {
        r->demand = true;
        return value ? -EINVAL : 0;
    }
    if (!strcmp(text, "stage")) {
        r->chunk = NTX_STAGE_CHUNK;
        return value ? -EINVAL : 0;
    }
    if (!strcmp(text, "p"))
        return parse_share(value, &r->p);
    if (!strcmp(text, "state")) {
        r->at = NTX__AT_STATE;
        return parse_state(value, &r->state);
    }
    if ((rc = parse_count(value, UINT32_MAX - 1, &n)))
        return rc;
    if (!strcmp(text, "chunk")) {
        r->chunk = (uint32_t)n;
        return 0;
    }
    if (!n)
        return -EINVAL;
    if (!strcmp(text, "every"))
        r->every = n;
    else if (!strcmp(text, "nth") || !strcmp(text, "read"))
        r->nth = n;
    else if (!strcmp(text, "count"))
        r->count = n;
    else if (!strcmp(text, "start"))
        r->start = (uint32_t)n;
    else if (!strcmp(text, "done")) {
        r->at = NTX__AT_DONE;
        r->nth = n;
    } else
        rc = -EINVAL;
    return rc;
}

static int parse_rule(char *text, struct ntx__fault_rule *r)
{
    char *save = NULL, *conditions = strchr(text, '@');
    if (conditions)
        *conditions++ = 0;
    char *value = strchr(text, '=');
    if (value)
        *value++ = 0;
    *r = (struct ntx__fault_rule){.chunk = UINT32_MAX, .p = 1};
    unsigned i = 0, n = sizeof(whats) / sizeof(*whats);
    while (i < n && strcmp(text, whats[i].name))
        i++;
    if (i == n || whats[i].timed != (value != NULL) || (value && parse_time(value, &r->ns)))
        return -EINVAL;
    r->what = whats[i].what;
    for (char *c = conditions ? strtok_r(conditions, ",", &save) : NULL; c; c = strtok_r(NULL, ",", &save))
        if (parse_condition(c, r))
            return -EINVAL;
    if (r->at != NTX__AT_READ && (r->what != NTX__FAULT_KILL || r->chunk != UINT32_MAX || r->demand))
        return -EINVAL;
    return 0;
}

/* reorder=N, seed=N. Returns 1 when it was one of them. */
static int parse_setting(const char *text, struct ntx__fault *f, uint64_t *seed)
{
    uint64_t n = 0;
    if (!strncmp(text, "seed=", 5))
        return parse_count(text + 5, UINT64_MAX, seed) ? -EINVAL : 1;
    if (strncmp(text, "reorder=", 8))
        return 0;
    if (parse_count(text + 8, NTX_IOD_MAX_READS, &n) || n < 2)
        return -EINVAL;
    f->reorder = (unsigned)n;
    return 1;
}

int ntx__fault_parse(const char *text, uint32_t start, struct ntx__fault *out, struct ntx_err *err)
{
    struct ntx__fault f = {.start = start};
    uint64_t seed = 1;
    char *copy = strdup(text), *save = NULL;
    int rc = copy ? 0 : ntx_err_set(err, -ENOMEM, "no memory for fault rules");
    for (char *item = copy ? strtok_r(copy, ";", &save) : NULL; item && !rc; item = strtok_r(NULL, ";", &save)) {
        char shown[64];
        item += strspn(item, " ");
        for (char *end = item + strlen(item); end > item && end[-1] == ' ';)
            *--end = 0;
        snprintf(shown, sizeof(shown), "%s", item);
        if ((rc = parse_setting(item, &f, &seed)) == 0)
            rc = f.n == NTX__FAULT_MAX_RULES ? -EINVAL : parse_rule(item, &f.rule[f.n++]);
        rc = rc > 0 ? 0 : rc;
        if (rc)
            ntx_err_set(err, rc, "fault rule '%s' is not understood (iod/source.h has the grammar)", shown);
    }
    free(copy);
    if (rc)
        return rc;
    f.random = (seed + 1) * 0x9e3779b97f4a7c15ull + start * 0xbf58476d1ce4e5b9ull;
    f.random |= 1;
    *out = f;
    return 0;
}

uint32_t ntx__fault_random(struct ntx__fault *f, uint32_t below)
{
    f->random ^= f->random << 13;
    f->random ^= f->random >> 7;
    f->random ^= f->random << 17;
    return (uint32_t)((f->random >> 32) * below >> 32);
}

static bool rule_fires(struct ntx__fault *f, struct ntx__fault_rule *r)
{
    r->seen++;
    if ((r->nth && r->seen != r->nth) || (r->every && r->seen % r->every) || (r->count && r->fired >= r->count))
        return false;
    if (r->p < 1 && ntx__fault_random(f, 1u << 24) >= r->p * (1u << 24))
        return false;
    r->fired++;
    return true;
}

uint32_t ntx__fault_event(struct ntx__fault *f, enum ntx__fault_at at, const struct ntx_iod_read *rd,
                          enum ntx_state state, uint64_t *delay_ns, uint64_t *stall_ns)
{
    uint32_t bits = 0;
    for (unsigned i = 0; i < f->n; i++) {
        struct ntx__fault_rule *r = &f->rule[i];
        if (r->at != at || (r->start && r->start != f->start))
            continue;
        if (at == NTX__AT_READ &&
            ((r->chunk != UINT32_MAX && r->chunk != rd->chunk) || (r->demand && rd->chunk != UINT32_MAX)))
            continue;
        if ((at == NTX__AT_STATE && r->state != state) || !rule_fires(f, r))
            continue;
        bits |= 1u << r->what;
        if (r->what == NTX__FAULT_DELAY)
            *delay_ns = r->ns;
        if (r->what == NTX__FAULT_STALL)
            *stall_ns = r->ns;
    }
    return bits;
}
