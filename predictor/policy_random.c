/* SPDX-License-Identifier: Apache-2.0 */
/* policy_random.c: the random policy, a baseline for all others. Each layer of a range is skipped with the same
 * probability, by a hash of session, position, layer and seed, so that a run can be repeated. The grammar is in
 * policy.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "predictor/policy.h"

struct chance {
    double p;
    uint32_t first, last;
    unsigned long long seed;
};

static int random_open(struct ntx_policy *p, const char *args, const struct ntx_policy_shape *shape,
                       struct ntx_err *err)
{
    struct chance c = {0};
    int n = 0;
    if (sscanf(args, "%lf,%u-%u%n,%llu%n", &c.p, &c.first, &c.last, &n, &c.seed, &n) < 3 || args[n] ||
        !(c.p >= 0 && c.p <= 1) || c.first < 1 || c.last < c.first || c.last >= shape->n_layers)
        return ntx_err_set(err, -EINVAL,
                           "policy random: '%.60s' is not PROBABILITY,FIRST-LAST[,SEED] with layers from 1 to %u", args,
                           shape->n_layers - 1);
    struct chance *data = malloc(sizeof *data);
    if (!data)
        return ntx_err_set(err, -ENOMEM, "no memory for a policy");
    *data = c;
    p->data = data;
    p->skips = true;
    p->probe_layer = c.first - 1; /* where a learned policy would have its probe, so that both have the same time */
    return 0;
}

static uint64_t mix_hash(uint64_t z)
{
    z = (z + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 29) * 0x94d049bb133111ebu;
    return z ^ z >> 32;
}

static void random_decide(const struct ntx_policy *p, const struct ntx_policy_input *in, uint64_t *skip)
{
    const struct chance *c = p->data;
    uint64_t token = mix_hash(mix_hash(c->seed ^ in->session << 32) ^ in->pos);
    for (uint32_t l = c->first; l <= c->last; l++)
        if ((double)(mix_hash(token ^ (uint64_t)l << 40) >> 11) / 9007199254740992.0 < c->p)
            skip[l / 64] |= 1ull << (l % 64);
}

static void random_close(struct ntx_policy *p) { free(p->data); }

const struct ntx_policy_ops ntx_policy_random = {"random", random_open, random_decide, random_close};
