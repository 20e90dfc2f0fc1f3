/* SPDX-License-Identifier: Apache-2.0 */
/* llama-server's /completion: a text is continued. */
#include "client/gateway/request_fields.h"

int ntx__request_most(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    const json_t *v = json_object_get(body, "n_predict");
    json_int_t n = json_integer_value(v);
    if (!v || json_is_null(v) || (json_is_integer(v) && (n == -1 || n == -2)))
        return 0;
    if (!json_is_integer(v) || n < 0 || (double)n > NTX_MOST_TOKENS)
        return ntx_fault(f, NTX_FAULT_INVALID, "n_predict",
                         "'n_predict' must be an integer from 0; or -1 or -2: no limit");
    a->warms = !n; /* editors compute a prompt ahead of time */
    a->max_tokens = n ? (uint32_t)n : 1;
    return 0;
}

int ntx__request_completion(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    if (ntx_fields_read(NTX_FIELDS_COMPLETION, body, a, &a->ignored, f) || ntx__request_most(a, body, f) ||
        ntx__request_stops(a, json_object_get(body, "stop"), "stop", f) ||
        ntx__request_bias(a, json_object_get(body, "logit_bias"), f) || ntx__request_guides(a, body, f))
        return -1;
    return ntx__request_texts(a, json_object_get(body, "prompt"), "prompt", 1, f);
}
