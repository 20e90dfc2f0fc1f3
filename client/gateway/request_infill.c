/* SPDX-License-Identifier: Apache-2.0 */
/* llama-server's /infill: the text between two texts. Other parts of the editor's files go before the prefix. */
#include <stdlib.h>
#include <string.h>

#include "client/gateway/request_fields.h"
#include "client/gateway/buf.h"

static int add_text(struct ntx_buf *b, const json_t *v, const char *name, struct ntx_fault *f)
{
    if (v && !json_is_null(v) && !json_is_string(v))
        return ntx_fault(f, NTX_FAULT_INVALID, name, "'%s' must be a string", name);
    ntx_buf_add(b, json_is_string(v) ? json_string_value(v) : "", json_string_length(v));
    return 0;
}

static int add_extra(struct ntx_buf *b, const json_t *list, struct ntx_fault *f)
{
    size_t i;
    json_t *one;
    if (list && !json_is_null(list) && !json_is_array(list))
        return ntx_fault(f, NTX_FAULT_INVALID, "input_extra", "'input_extra' must be a list");
    json_array_foreach((json_t *)(uintptr_t)list, i, one) {
        if (!json_is_string(json_object_get(one, "text")))
            return ntx_fault(f, NTX_FAULT_INVALID, "input_extra",
                             "each of 'input_extra' must be an object with a text");
        add_text(b, json_object_get(one, "text"), "input_extra", f);
        ntx_buf_text(b, "\n");
    }
    return 0;
}

int ntx__request_infill(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    struct ntx_buf before = {0}, behind = {0};
    int rc = ntx_fields_read(NTX_FIELDS_INFILL, body, a, &a->ignored, f);
    rc = rc ? rc : ntx__request_most(a, body, f);
    rc = rc ? rc : ntx__request_stops(a, json_object_get(body, "stop"), "stop", f);
    rc = rc ? rc : ntx__request_guides(a, body, f);
    rc = rc ? rc : add_extra(&before, json_object_get(body, "input_extra"), f);
    rc = rc ? rc : add_text(&before, json_object_get(body, "input_prefix"), "input_prefix", f);
    rc = rc ? rc : add_text(&before, json_object_get(body, "prompt"), "prompt", f); /* the line that is being written */
    rc = rc ? rc : add_text(&behind, json_object_get(body, "input_suffix"), "input_suffix", f);
    ntx_buf_add(&before, "", 1);
    ntx_buf_add(&behind, "", 1);
    if (!rc && (before.bad || behind.bad || !(a->prompts = calloc(1, sizeof *a->prompts))))
        rc = ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory");
    if (rc) {
        ntx_buf_free(&before);
        ntx_buf_free(&behind);
        return rc;
    }
    a->n_prompts = 1;
    a->prompts->text = before.p;
    a->prompts->len = before.n - 1;
    a->suffix = behind.p;
    a->n_suffix = behind.n - 1;
    return 0;
}
