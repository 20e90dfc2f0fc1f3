/* SPDX-License-Identifier: Apache-2.0 */
/* policy_learned.c: the policies that use a sidecar: static (the same layers for every token) and predictive (the
 * network's answer per token). The grammar is in policy.h. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/mlp.h"
#include "predictor/policy.h"
#include "predictor/sidecar.h"

#define SHIFT_MOST 4.0f /* largest shift of a threshold's logit by the session's similarity */

struct learned {
    struct ntx_sidecar s; /* w1, w2 are freed once the network is made */
    struct ntx_mlp *mlp;  /* NULL: static */
    void *scratch;
    float *logits;          /* [outputs] */
    float threshold, limit; /* limit: the threshold's logit */
    float gain;
    uint32_t most; /* layers in a row */
    uint64_t fixed[NTX_MAP_WORDS];
};

struct field {
    const char *name;
    float lo, hi, value;
};

/* name=number[,name=number...] */
static int parse_fields(const char *args, struct field *f, unsigned n, struct ntx_err *err)
{
    while (*args) {
        size_t len = strcspn(args, "=,");
        unsigned i = 0;
        while (i < n && (strlen(f[i].name) != len || memcmp(f[i].name, args, len)))
            i++;
        if (i == n || args[len] != '=')
            return ntx_err_set(err, -EINVAL, "skip policy: '%.60s' is not threshold=P, max=N or gain=G", args);
        char *end;
        f[i].value = strtof(args + len + 1, &end);
        if (end == args + len + 1 || (*end && *end != ',') || !(f[i].value >= f[i].lo && f[i].value <= f[i].hi))
            return ntx_err_set(err, -EINVAL, "skip policy: %s takes a number from %g to %g, got '%.40s'", f[i].name,
                               (double)f[i].lo, (double)f[i].hi, args + len + 1);
        args = *end ? end + 1 : end;
    }
    return 0;
}

static int load_sidecar(struct learned *p, const struct ntx_policy_shape *shape, struct ntx_err *err)
{
    const struct ntx_policy_sidecar *from = shape->sidecar;
    if (!from || from->fd < 0)
        return ntx_err_set(
            err, -ENOENT, "this skip policy needs a sidecar: make one with ntx calibrate MODEL --text FILE -o SIDECAR");
    int rc = ntx_sidecar_read(from->fd, from->model, &p->s, err);
    if (!rc && (p->s.n_layers != shape->n_layers || p->s.n_embd != shape->n_embd))
        rc = ntx_err_set(err, -EINVAL, "the skip sidecar is for %u layers of width %u, the model has %u of %u",
                         p->s.n_layers, p->s.n_embd, shape->n_layers, shape->n_embd);
    return rc;
}

static int make_network(struct learned *p, struct ntx_err *err)
{
    struct ntx_mlp_weights net = ntx_sidecar_net(&p->s);
    int rc = ntx_mlp_new(&net, NULL, &p->mlp);
    if (!rc) {
        p->scratch = aligned_alloc(64, (ntx_mlp_scratch(p->mlp) + 63) / 64 * 64);
        p->logits = calloc(ntx_sidecar_outputs(&p->s), sizeof *p->logits);
        rc = p->scratch && p->logits ? 0 : -ENOMEM;
    }
    free(p->s.w1);
    free(p->s.w2);
    p->s.w1 = p->s.w2 = NULL;
    return rc ? ntx_err_set(err, rc, "no memory for the skip network") : 0;
}

static int open_learned(struct ntx_policy *policy, const char *args, const struct ntx_policy_shape *shape, bool network,
                        struct ntx_err *err)
{
    struct learned *p = calloc(1, sizeof *p);
    struct field f[] = {{"threshold", 0, 1, NAN}, {"max", 1, 512, 512}, {"gain", 0, 10, 0.5f}};
    if (!p)
        return ntx_err_set(err, -ENOMEM, "no memory for a policy");
    policy->data = p;
    int rc = parse_fields(args, f, 3, err);
    if (rc || (rc = load_sidecar(p, shape, err)) || (network && (rc = make_network(p, err))))
        return rc;
    p->threshold = isnan(f[0].value) ? p->s.threshold : f[0].value;
    p->limit = logf(p->threshold / (1 - p->threshold)); /* infinite for 0 and 1, as wanted */
    p->most = (uint32_t)f[1].value;
    p->gain = f[2].value;
    policy->skips = true;
    policy->probe_layer = p->s.first - 1;
    return 0;
}

/* Counts a run of skipped layers, to end it after `most`. */
struct runs {
    uint32_t length;
};

static void mark_layer(struct runs *r, uint32_t most, uint32_t layer, bool wanted, uint64_t *skip)
{
    if (!wanted || r->length == most) {
        r->length = 0;
        return;
    }
    r->length++;
    skip[layer / 64] |= 1ull << (layer % 64);
}

static int static_open(struct ntx_policy *policy, const char *args, const struct ntx_policy_shape *shape,
                       struct ntx_err *err)
{
    struct runs runs = {0};
    int rc = open_learned(policy, args, shape, false, err);
    if (rc)
        return rc;
    struct learned *p = policy->data;
    for (uint32_t l = p->s.first; l <= p->s.last; l++)
        mark_layer(&runs, p->most, l, p->s.rate[l] >= p->threshold, p->fixed);
    return 0;
}

static void static_decide(const struct ntx_policy *policy, const struct ntx_policy_input *in, uint64_t *skip)
{
    const struct learned *p = policy->data;
    (void)in;
    memcpy(skip, p->fixed, sizeof p->fixed);
}

static int predictive_open(struct ntx_policy *policy, const char *args, const struct ntx_policy_shape *shape,
                           struct ntx_err *err)
{
    return open_learned(policy, args, shape, true, err);
}

/* If a session's layers change their input more than in the calibration, the threshold rises, and the other way round:
 * by `gain` logits for each standard deviation. */
static float threshold_shift(const struct learned *p, const struct ntx_policy_input *in, uint32_t layer)
{
    float seen = in->similar ? in->similar[layer] : NAN, sd = p->s.sd[layer];
    if (!(seen >= -1.0f && seen <= 1.0f) || !(sd > 1e-6f))
        return 0;
    float by = p->gain * (p->s.mean[layer] - seen) / sd;
    if (by > SHIFT_MOST)
        return SHIFT_MOST;
    return by < -SHIFT_MOST ? -SHIFT_MOST : by;
}

static void predictive_decide(const struct ntx_policy *policy, const struct ntx_policy_input *in, uint64_t *skip)
{
    const struct learned *p = policy->data;
    struct runs runs = {0};
    ntx_mlp_logits(p->mlp, in->hidden, p->scratch, p->logits);
    for (uint32_t l = p->s.first; l <= p->s.last; l++)
        mark_layer(&runs, p->most, l, p->logits[l - p->s.first] >= p->limit + threshold_shift(p, in, l), skip);
}

static void learned_close(struct ntx_policy *policy)
{
    struct learned *p = policy->data;
    if (!p)
        return;
    ntx_mlp_free(p->mlp);
    ntx_sidecar_free(&p->s);
    free(p->scratch);
    free(p->logits);
    free(p);
}

const struct ntx_policy_ops ntx_policy_static = {"static", static_open, static_decide, learned_close};
const struct ntx_policy_ops ntx_policy_predictive = {"predictive", predictive_open, predictive_decide, learned_close};
