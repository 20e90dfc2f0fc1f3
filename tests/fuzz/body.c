/* SPDX-License-Identifier: Apache-2.0 */
/* body.c: bodies of HTTP requests in every API, under libFuzzer. The first byte picks the API. A body is refused
 * with a reason, or all its values are within bounds. */
#include "client/gateway/api_request.h"
#include "client/gateway/json_memory.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    ntx_json_memory_init();
    return 0;
}

static void check_message(const struct ntx_api_request_message *m)
{
    MUST(!strcmp(m->role, "system") || !strcmp(m->role, "user") || !strcmp(m->role, "tool") ||
         !strcmp(m->role, "assistant"));
    MUST(m->text && !m->text[m->len]);
}

static void check(const struct ntx_api_request *a)
{
    MUST(a->loads || (ntx_api_request_choices(a) >= 1 && ntx_api_request_choices(a) <= NTX_API_REQUEST_CHOICES));
    MUST(a->n_messages ? !a->n_prompts : a->loads || a->n_prompts >= 1);
    for (size_t i = 0; i < a->n_messages; i++)
        check_message(&a->messages[i]);
    for (size_t i = 0; i < a->n_prompts; i++)
        MUST(a->prompts[i].text ? !a->prompts[i].text[a->prompts[i].len] : a->prompts[i].n_tokens > 0);
    for (unsigned i = 0; i < a->n_stops; i++)
        MUST(a->stops[i][0] && strlen(a->stops[i]) <= 4096);
    MUST(a->temp >= 0 && a->top_p >= 0 && a->top_p <= 1 && a->min_p >= 0 && a->min_p <= 1 && a->repeat_penalty >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ntx_api_request *a = NULL;
    struct ntx_fault f = {0};
    if (!size)
        return 0;
    int rc = ntx_api_request_read(data[0] % NTX_N_APIS, (const char *)data + 1, size - 1, NULL, &a, &f);
    MUST(rc ? f.kind && f.text[0] && ntx_fault_info(f.kind)->status >= 400 : a != NULL);
    if (!rc) {
        json_t *status = json_pack("{s:[s, s, s], s:{s:b, s:[s]}}", "template_names", "enable_thinking",
                                   "reasoning_effort", "x", "thinking", "thinks", size % 3 > 0, "levels", "low");
        check(a);
        MUST(!ntx_api_request_think(a, size % 2 ? status : NULL));
        MUST(strlen(a->think.text) + 1 < sizeof a->think.text);
        MUST(strlen(a->ignored.text) < sizeof a->ignored.text && !a->ignored.n == !a->ignored.text[0]);
        json_decref(status);
        json_decref(ntx_ignored_json(&a->ignored, ""));
        ntx_api_request_free(a);
    }
    return 0;
}
