/* SPDX-License-Identifier: Apache-2.0 */
/* template.c: untrusted chat templates and variables, under libFuzzer. The input is the template. Variables may
 * follow a NUL as JSON; otherwise those of a conversation are used. The output keeps to its limit, and its marks are
 * 0 and 1. */
#include "model/template/template.h"
#include "tests/fuzz/fuzz.h"

static const char talk[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", "
                           "\"content\": \"\\u00e9<x>\"}, {\"role\": \"assistant\", \"content\": \"a\", "
                           "\"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "
                           "{\"k\": [1, 2.5, null]}}}]}, {\"role\": \"tool\", \"content\": \"r\"}], "
                           "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}], "
                           "\"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"n\": 3, \"xs\": [3, 1, 2]}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ntx_template *t;
    struct ntx_err err = {0};
    const uint8_t *nul = memchr(data, 0, size);
    size_t len = nul ? (size_t)(nul - data) : size;
    const char *variables = nul ? (const char *)nul + 1 : talk;
    size_t n = nul ? size - len - 1 : sizeof talk - 1;
    struct ntx_template_limits limits = {.memory = 64 << 20, .output = 1 << 20, .steps = 300000};
    struct ntx_template_text out;
    if (ntx_template_parse((const char *)data, len, &t, &err)) {
        MUST(err.code < 0 && err.text[0]);
        return 0;
    }
    int rc = ntx_template_render(t, variables, n, &limits, &out, &err);
    MUST(!rc || (err.code == rc && err.text[0]));
    if (!rc) {
        MUST(out.len <= limits.output && !out.text[out.len]);
        for (size_t i = 0; i < out.len; i++)
            MUST(out.people[i] <= 1);
        free(out.text);
    }
    ntx_template_free(t);
    return 0;
}
