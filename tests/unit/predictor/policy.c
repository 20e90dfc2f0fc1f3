/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of policies, and their decisions. */
#include "predictor/policy.h"

#include <errno.h>

#include "tests/lib/check.h"

static const struct ntx_policy_shape shape = {.n_layers = 80, .n_embd = 4};

static uint64_t word(const char *text, uint32_t row, unsigned w)
{
    struct ntx_policy *p = NULL;
    struct ntx_err err = {0};
    uint64_t skip[NTX_MAP_WORDS];
    float hidden[4] = {0};
    struct ntx_policy_input in = {.hidden = hidden, .row = row, .pos = 17};
    CHECK_MSG(ntx_policy_new(text, &shape, &p, &err) == 0, "%s: %s", text, err.text);
    memset(skip, 0xff, sizeof skip); /* all words are written */
    ntx_policy_decide(p, &in, skip);
    for (unsigned i = 2; i < NTX_MAP_WORDS; i++)
        CHECK_EQ(skip[i], 0);
    ntx_policy_free(p);
    return skip[w];
}

static void refused(const char *text, const char *why)
{
    struct ntx_policy *p = NULL;
    struct ntx_err err = {0};
    CHECK_MSG(ntx_policy_new(text, &shape, &p, &err) == -EINVAL, "%s was accepted", text);
    CHECK(p == NULL);
    CHECK_MSG(strstr(err.text, why), "%s: \"%s\" lacks \"%s\"", text, err.text, why);
}

static void test_bits(void)
{
    CHECK_EQ(word("none", 0, 0), 0);
    CHECK_EQ(word("", 0, 0), 0);
    CHECK_EQ(word("off", 3, 0), 0);
    CHECK_EQ(word("script:3,5", 0, 0), 1 << 3 | 1 << 5);
    CHECK_EQ(word("script:3,5", 9, 0), 1 << 3 | 1 << 5);
    CHECK_EQ(word("script:3,5@0", 0, 0), 1 << 3 | 1 << 5);
    CHECK_EQ(word("script:3,5@0", 1, 0), 0);
    CHECK_EQ(word("script:3,5@0;7@1", 0, 0), 1 << 3 | 1 << 5);
    CHECK_EQ(word("script:3,5@0;7@1", 1, 0), 1 << 7);
    CHECK_EQ(word("script:3,5@0;7@1", 2, 0), 0);
    CHECK_EQ(word("script:3@0;7", 0, 0), 1 << 3 | 1 << 7);
    CHECK_EQ(word("script:3@0;7", 5, 0), 1 << 7);
    CHECK_EQ(word("script:2-4", 0, 0), 7 << 2);
    CHECK_EQ(word("script:63-65,79", 0, 0) >> 63, 1);
    CHECK_EQ(word("script:63-65,79", 0, 1), 1 | 1 << 1 | 1 << 15);
}

static void test_refusals(void)
{
    refused("learned", "unknown policy 'learned'");
    refused("scripts:3", "unknown policy");
    refused("none:3", "no arguments");
    refused("script", "expected a layer");
    refused("script:", "expected a layer");
    refused("script:0", "layer 0 cannot be skipped");
    refused("script:0-3", "layer 0 cannot be skipped");
    refused("script:80", "no layer 80, the model has layers 0 to 79");
    refused("script:3-80", "no layer 80");
    refused("script:5-3", "expected a layer");
    refused("script:3,", "expected a layer");
    refused("script:3@", "expected a row");
    refused("script:3@1x", "'x' is too much");
    refused("script:3;", "expected a layer");
    refused("script:-3", "expected a layer");
    refused("script:3,,5", "expected a layer");
    refused("script:99999999999999999999", "expected a layer");
    char many[600];
    size_t n = (size_t)sprintf(many, "script:1");
    for (int i = 0; i < 256; i++)
        n += (size_t)sprintf(many + n, ";1");
    refused(many, "more than 256 parts");
}

/* A policy reports its state to computed, which decides by it whether to wait. */
static void test_state(void)
{
    struct ntx_policy *p;
    CHECK_EQ(ntx_policy_new("none", &shape, &p, NULL), 0);
    CHECK(!p->skips);
    ntx_policy_free(p);
    CHECK_EQ(ntx_policy_new("script:3", &shape, &p, NULL), 0);
    CHECK(p->skips);
    CHECK_EQ(p->probe_layer, 0);
    ntx_policy_free(p);
    ntx_policy_free(NULL);
}

int main(void)
{
    test_bits();
    test_refusals();
    test_state();
    return 0;
}
