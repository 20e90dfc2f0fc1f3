/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints of the answer in the words of llama-server (grammar, json_schema) and vLLM (guided_*, and the object
 * structured_outputs, whose members mean the same). */
#include <stdlib.h>
#include <string.h>

#include "client/gateway/buf.h"
#include "client/gateway/request_fields.h"

static int set_text(struct ntx_api_request *a, const char *param, const char *text, struct ntx_fault *f)
{
    if (a->constraint)
        return ntx_fault(f, NTX_FAULT_INVALID, param, "'%s': the request has another form of the answer already",
                         param);
    a->constraint_kind = "grammar";
    a->constraint = strdup(text);
    return a->constraint ? 0 : ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory");
}

static int read_grammar(struct ntx_api_request *a, const json_t *v, const char *param, struct ntx_fault *f)
{
    if (!v || json_is_null(v) || (json_is_string(v) && !json_string_length(v)))
        return 0;
    if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
        return ntx_fault(f, NTX_FAULT_INVALID, param, "'%s' must be a string: a grammar in GBNF", param);
    return set_text(a, param, json_string_value(v), f);
}

/* A schema, or its text. */
static int read_schema(struct ntx_api_request *a, const json_t *v, const char *param, struct ntx_fault *f)
{
    if (!v || json_is_null(v))
        return 0;
    if (a->constraint)
        return set_text(a, param, "", f);
    if (!json_is_string(v))
        return ntx__request_schema(a, v, false, param, f);
    json_t *read = json_loads(json_string_value(v), JSON_DECODE_ANY, NULL);
    if (!read)
        return ntx_fault(f, NTX_FAULT_INVALID, param, "'%s' must be a schema, or the text of one", param);
    int rc = ntx__request_schema(a, read, false, param, f);
    json_decref(read);
    return rc;
}

static void add_quoted(struct ntx_buf *b, const json_t *text)
{
    const unsigned char *p = (const unsigned char *)json_string_value(text);
    ntx_buf_text(b, "\"");
    for (size_t i = 0; i < json_string_length(text); i++)
        if (p[i] < 0x20 || p[i] == '"' || p[i] == '\\')
            ntx_buf_format(b, "\\x%02X", p[i]);
        else
            ntx_buf_add(b, (const char *)&p[i], 1);
    ntx_buf_text(b, "\"");
}

/* A regular expression that matches all of the answer. */
static int read_regex(struct ntx_api_request *a, const json_t *v, const char *param, struct ntx_fault *f)
{
    struct ntx_buf b = {0};
    if (!v || json_is_null(v) || (json_is_string(v) && !json_string_length(v)))
        return 0;
    if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
        return ntx_fault(f, NTX_FAULT_INVALID, param, "'%s' must be a string: a regular expression", param);
    ntx_buf_text(&b, "root ::= %regex ");
    add_quoted(&b, v);
    ntx_buf_add(&b, "", 1);
    int rc = b.bad ? ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory") : set_text(a, param, b.p, f);
    ntx_buf_free(&b);
    return rc;
}

/* A list of texts, one of which is the answer. */
static int read_choice(struct ntx_api_request *a, const json_t *v, const char *param, struct ntx_fault *f)
{
    struct ntx_buf b = {0};
    size_t i;
    json_t *one;
    int rc = 0;
    if (!v || json_is_null(v))
        return 0;
    if (!json_array_size(v))
        return ntx_fault(f, NTX_FAULT_INVALID, param, "'%s' must be a list of texts", param);
    ntx_buf_text(&b, "root ::= ");
    json_array_foreach((json_t *)(uintptr_t)v, i, one) {
        if (!json_string_length(one))
            rc = ntx_fault(f, NTX_FAULT_INVALID, param, "'%s' must be a list of texts that are not empty", param);
        ntx_buf_text(&b, i ? " | " : "");
        add_quoted(&b, one);
    }
    ntx_buf_add(&b, "", 1);
    if (!rc)
        rc = b.bad ? ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory") : set_text(a, param, b.p, f);
    ntx_buf_free(&b);
    return rc;
}

static int read_structured(struct ntx_api_request *a, const json_t *v, struct ntx_fault *f)
{
    static const char field[] = "structured_outputs";
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_object(v))
        return ntx_fault(f, NTX_FAULT_INVALID, field, "'%s' must be an object", field);
    if (ntx_fields_read(NTX_FIELDS_STRUCTURED, v, NULL, &a->ignored, f) ||
        read_schema(a, json_object_get(v, "json"), "structured_outputs.json", f) ||
        read_choice(a, json_object_get(v, "choice"), "structured_outputs.choice", f) ||
        read_regex(a, json_object_get(v, "regex"), "structured_outputs.regex", f))
        return -1;
    return read_grammar(a, json_object_get(v, "grammar"), "structured_outputs.grammar", f);
}

int ntx__request_guides(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    return read_grammar(a, json_object_get(body, "grammar"), "grammar", f) ||
                   read_schema(a, json_object_get(body, "json_schema"), "json_schema", f) ||
                   read_schema(a, json_object_get(body, "guided_json"), "guided_json", f) ||
                   read_choice(a, json_object_get(body, "guided_choice"), "guided_choice", f) ||
                   read_regex(a, json_object_get(body, "guided_regex"), "guided_regex", f) ||
                   read_grammar(a, json_object_get(body, "guided_grammar"), "guided_grammar", f) ||
                   read_structured(a, json_object_get(body, "structured_outputs"), f)
               ? -1
               : 0;
}
