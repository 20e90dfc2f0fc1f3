/* SPDX-License-Identifier: Apache-2.0 */
#include "predictor/policy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"

static int none_open(struct ntx_policy *p, const char *args, const struct ntx_policy_shape *shape, struct ntx_err *err)
{
    (void)p;
    (void)shape;
    return *args ? ntx_err_set(err, -EINVAL, "policy 'none' takes no arguments, got '%s'", args) : 0;
}

static void none_decide(const struct ntx_policy *p, const struct ntx_policy_input *in, uint64_t *skip)
{
    (void)p;
    (void)in;
    (void)skip;
}

static void none_close(struct ntx_policy *p) { (void)p; }

static const struct ntx_policy_ops none = {"none", none_open, none_decide, none_close};
static const struct ntx_policy_ops *const table[] = {
    &none,
    &ntx_policy_static,
    &ntx_policy_predictive,
#ifdef NTX_TEST_POLICIES
    &ntx_policy_script,
    &ntx_policy_random,
#endif
};

/* text = NAME[:ARGS] */
static const struct ntx_policy_ops *find_policy(const char *text, const char **args)
{
    size_t len = strcspn(text, ":");
    *args = text[len] ? text + len + 1 : "";
    if (!*text || !strcmp(text, "off"))
        return &none;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strlen(table[i]->name) == len && !memcmp(table[i]->name, text, len))
            return table[i];
    return NULL;
}

static int refuse_policy(const char *text, struct ntx_err *err)
{
    struct ntx_near near;
    ntx_near_begin(&near, text, "");
    ntx_near_offer_list(&near, "off|static|predictive");
    return ntx_err_set(err, -EINVAL, "unknown policy '%.100s'; there are off, static and predictive%s", text,
                       near.hint);
}

int ntx_policy_new(const char *text, const struct ntx_policy_shape *shape, struct ntx_policy **out, struct ntx_err *err)
{
    const char *args;
    const struct ntx_policy_ops *ops = find_policy(text, &args);
    if (!ops)
        return refuse_policy(text, err);
    struct ntx_policy *p = calloc(1, sizeof *p);
    if (!p)
        return ntx_err_set(err, -ENOMEM, "no memory for a policy");
    p->ops = ops;
    p->shape = *shape;
    int rc = ops->open(p, args, shape, err);
    if (rc) {
        ntx_policy_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

void ntx_policy_free(struct ntx_policy *p)
{
    if (!p)
        return;
    p->ops->close(p);
    free(p);
}

void ntx_policy_decide(const struct ntx_policy *p, const struct ntx_policy_input *in, uint64_t skip[NTX_MAP_WORDS])
{
    memset(skip, 0, NTX_MAP_WORDS * sizeof *skip);
    p->ops->decide(p, in, skip);
}
