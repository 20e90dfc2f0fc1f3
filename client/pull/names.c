/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pull/names.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "client/pull/hub.h"
#include "common/nearest.h"

#define OWN_MOST 1000u

struct short_name {
    const char *name, *means;
};

/* By size within a family. docs/usage/pull.md says where these come from. */
static const struct short_name table[] = {
    {"smollm2-135m", "bartowski/SmolLM2-135M-Instruct-GGUF"},
    {"smollm2-1.7b", "bartowski/SmolLM2-1.7B-Instruct-GGUF"},
    {"smollm3-3b", "ggml-org/SmolLM3-3B-GGUF"},
    {"llama3.2-1b", "bartowski/Llama-3.2-1B-Instruct-GGUF"},
    {"llama3.2-3b", "bartowski/Llama-3.2-3B-Instruct-GGUF"},
    {"llama3.1-8b", "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF"},
    {"llama3.3-70b", "bartowski/Llama-3.3-70B-Instruct-GGUF"},
    {"llama4-scout", "unsloth/Llama-4-Scout-17B-16E-Instruct-GGUF"},
    {"mistral-7b", "bartowski/Mistral-7B-Instruct-v0.3-GGUF"},
    {"ministral3-8b", "unsloth/Ministral-3-8B-Instruct-2512-GGUF"},
    {"mistral-nemo", "bartowski/Mistral-Nemo-Instruct-2407-GGUF"},
    {"mistral-small3.2", "unsloth/Mistral-Small-3.2-24B-Instruct-2506-GGUF"},
    {"gemma3-270m", "unsloth/gemma-3-270m-it-GGUF"},
    {"gemma3-1b", "unsloth/gemma-3-1b-it-GGUF"},
    {"gemma3-4b", "unsloth/gemma-3-4b-it-GGUF"},
    {"gemma3-12b", "unsloth/gemma-3-12b-it-GGUF"},
    {"gemma3-27b", "unsloth/gemma-3-27b-it-GGUF"},
    {"gemma4-e2b", "unsloth/gemma-4-E2B-it-GGUF"},
    {"gemma4-e4b", "unsloth/gemma-4-E4B-it-GGUF"},
    {"gemma4-26b-a4b", "unsloth/gemma-4-26B-A4B-it-GGUF"},
    {"gemma4-31b", "unsloth/gemma-4-31B-it-GGUF"},
    {"phi4-mini", "unsloth/Phi-4-mini-instruct-GGUF"},
    {"phi4", "bartowski/phi-4-GGUF"},
    {"granite3.3-8b", "ibm-granite/granite-3.3-8b-instruct-GGUF"},
    {"olmoe", "allenai/OLMoE-1B-7B-0924-Instruct-GGUF"},
    {"qwen2.5-7b", "bartowski/Qwen2.5-7B-Instruct-GGUF"},
    {"qwen2.5-coder-0.5b", "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF"},
    {"qwen2.5-coder-1.5b", "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF"},
    {"qwen2.5-coder-7b", "Qwen/Qwen2.5-Coder-7B-Instruct-GGUF"},
    {"qwen2.5-coder-32b", "Qwen/Qwen2.5-Coder-32B-Instruct-GGUF"},
    {"qwen3-0.6b", "unsloth/Qwen3-0.6B-GGUF"},
    {"qwen3-4b", "unsloth/Qwen3-4B-Instruct-2507-GGUF"},
    {"qwen3-8b", "unsloth/Qwen3-8B-GGUF"},
    {"qwen3-14b", "unsloth/Qwen3-14B-GGUF"},
    {"qwen3-32b", "unsloth/Qwen3-32B-GGUF"},
    {"qwen3-30b-a3b", "unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF"},
    {"qwen3-coder-30b", "unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF"},
    {"qwen3-235b-a22b", "unsloth/Qwen3-235B-A22B-Instruct-2507-GGUF"},
    {"qwen3-next-80b", "unsloth/Qwen3-Next-80B-A3B-Instruct-GGUF"},
    {"qwen3.6-35b-a3b", "unsloth/Qwen3.6-35B-A3B-GGUF"},
    {"qwen3.8-27b", "unsloth/Qwen3.8-27B-GGUF"},
    {"qwen3.8-flash-next", "unsloth/Qwen3.8-Flash-Next-GGUF"},
    {"gpt-oss-20b", "ggml-org/gpt-oss-20b-GGUF"},
    {"gpt-oss-120b", "ggml-org/gpt-oss-120b-GGUF"},
    {"glm4.7-flash", "unsloth/GLM-4.7-Flash-GGUF"},
    {"glm4.5-air", "unsloth/GLM-4.5-Air-GGUF"},
    {"glm4.7", "unsloth/GLM-4.7-GGUF"},
    {"glm5.2", "unsloth/GLM-5.2-GGUF"},
    {"glm5.3", "unsloth/GLM-5.3-GGUF"},
    {"glm5.3-flash", "unsloth/GLM-5.3-Flash-GGUF"},
    {"deepseek-r1-8b", "unsloth/DeepSeek-R1-0528-Qwen3-8B-GGUF"},
    {"deepseek-coder-v2-lite", "bartowski/DeepSeek-Coder-V2-Lite-Instruct-GGUF"},
    {"deepseek-r1", "unsloth/DeepSeek-R1-0528-GGUF"},
    {"deepseek-v3.1", "unsloth/DeepSeek-V3.1-GGUF"},
    {"deepseek-v4-flash", "unsloth/DeepSeek-V4-Flash-GGUF"},
    {"minimax-m2.5", "unsloth/MiniMax-M2.5-GGUF"},
    {"step3.5-flash", "ggml-org/Step-3.5-Flash-GGUF"},
    {"kimi-linear-48b", "bartowski/moonshotai_Kimi-Linear-48B-A3B-Instruct-GGUF"},
    {"kimi-k2.6", "unsloth/Kimi-K2.6-GGUF"},
};
enum { N_TABLE = sizeof table / sizeof *table };

struct ntx_names {
    struct short_name own[OWN_MOST]; /* strings of ours */
    size_t n;
    char path[1024];
    struct ntx_err err;
};

/* "OWNER/REPO", "OWNER/REPO:TYPE", or a URL. */
static bool is_meaning(const char *means)
{
    char repo[NTX_HUB_NAME];
    size_t n = strcspn(means, ":");
    if (ntx_hub_is_url(means))
        return true;
    snprintf(repo, sizeof repo, "%.*s", (int)n, means);
    return n < sizeof repo && ntx_hub_is_name(repo) && (!means[n] || means[n + 1]);
}

static bool is_short(const char *name)
{
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
            return false;
    return isalnum((unsigned char)*name) && strlen(name) < 64;
}

static int take_name(void *arg, const char *section, const char *name, const char *value)
{
    struct ntx_names *n = arg;
    const char *means = strncasecmp(value, "hf:", 3) ? value : value + 3;
    struct short_name *to = &n->own[n->n];
    if (strcmp(section, "models"))
        ntx_err_set(&n->err, -EINVAL, "%s: [%.60s] has no meaning here: names stand below [models]", n->path, section);
    else if (!is_short(name) || !is_meaning(means))
        ntx_err_set(&n->err, -EINVAL,
                    "%s: '%.60s = %.120s': a name is of letters, digits and ._-, and means OWNER/REPO, "
                    "OWNER/REPO:TYPE or a URL",
                    n->path, name, value);
    else if (n->n == OWN_MOST)
        ntx_err_set(&n->err, -E2BIG, "%s: more than %u names", n->path, OWN_MOST);
    if (n->err.code)
        return 0;
    *to = (struct short_name){strdup(name), strdup(means)};
    n->n++;
    return to->name && to->means ? 1 : ntx_err_set(&n->err, -ENOMEM, "no memory") > 0;
}

static int read_own(struct ntx_names *n, struct ntx_err *err)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (config && *config)
        snprintf(n->path, sizeof n->path, "%s/ntx/models.ini", config);
    else
        snprintf(n->path, sizeof n->path, "%s/.config/ntx/models.ini", home ? home : "");
    if (access(n->path, R_OK)) /* the file is optional */
        return 0;
    int bad = ini_parse(n->path, take_name, n);
    if (n->err.code)
        return ntx_err_set(err, n->err.code, "%s", n->err.text);
    return bad > 0 ? ntx_err_set(err, -EINVAL, "%s:%d: neither '[models]' nor 'name = OWNER/REPO'", n->path, bad) : 0;
}

int ntx_names_open(struct ntx_names **out, struct ntx_err *err)
{
    struct ntx_names *n = calloc(1, sizeof *n);
    int rc = n ? read_own(n, err) : ntx_err_set(err, -ENOMEM, "no memory");
    if (rc)
        ntx_names_free(n);
    else
        *out = n;
    return rc;
}

void ntx_names_free(struct ntx_names *n)
{
    for (size_t i = 0; n && i < n->n; i++) {
        free((char *)n->own[i].name);
        free((char *)n->own[i].means);
    }
    free(n);
}

const char *ntx_names_at(const struct ntx_names *n, size_t i, const char **means, bool *own)
{
    const struct short_name *at = NULL;
    *own = i < n->n;
    if (*own)
        at = &n->own[i];
    else if (i - n->n < N_TABLE)
        at = &table[i - n->n];
    if (!at)
        return NULL;
    *means = at->means;
    return at->name;
}

const char *ntx_names_find(const struct ntx_names *n, const char *name)
{
    const char *at, *means;
    bool own;
    for (size_t i = 0; (at = ntx_names_at(n, i, &means, &own)); i++)
        if (!strcasecmp(at, name))
            return means;
    return NULL;
}

const char *ntx_names_nearest(const struct ntx_names *n, const char *name)
{
    const char *all[OWN_MOST + N_TABLE], *means;
    size_t k = 0;
    bool own;
    while (k < OWN_MOST + N_TABLE && (all[k] = ntx_names_at(n, k, &means, &own)))
        k++;
    return ntx_nearest_of(name, all, k);
}
