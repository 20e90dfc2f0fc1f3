/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/http.h"

#include <stdio.h>
#include <string.h>

enum MHD_Result ntx__reply_queue(struct ntx_request *q, unsigned status, struct MHD_Response *r)
{
    if (!r)
        return MHD_NO;
    if (q->origin) {
        MHD_add_response_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, q->origin);
        MHD_add_response_header(r, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ORIGIN);
    }
    if (status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (q->retry_s) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%u", q->retry_s);
        MHD_add_response_header(r, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    }
    if (q->ends)
        MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED && q->allow)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, q->allow);
    if (q->ignored.n) {
        char warning[sizeof q->ignored.text + 40];
        snprintf(warning, sizeof warning, "299 ntx \"ignored: %s\"", q->ignored.text);
        MHD_add_response_header(r, "Warning", warning);
    }
    if (*q->unenforced) {
        char warning[sizeof q->unenforced + 40];
        snprintf(warning, sizeof warning, "299 ntx \"not enforced: %s\"", q->unenforced);
        MHD_add_response_header(r, "Warning", warning);
    }
    if (*q->note) {
        char warning[sizeof q->note + 16];
        snprintf(warning, sizeof warning, "299 ntx \"%s\"", q->note);
        MHD_add_response_header(r, "Warning", warning);
    }
    enum MHD_Result rc = MHD_queue_response(q->conn, status, r);
    MHD_destroy_response(r);
    return rc;
}

enum MHD_Result ntx__reply(struct ntx_request *q, unsigned status, const char *type, struct ntx_buf *body)
{
    if (body->bad) {
        ntx_buf_free(body);
        return MHD_NO;
    }
    struct MHD_Response *r = MHD_create_response_from_buffer(body->n, body->p, MHD_RESPMEM_MUST_FREE);
    if (!r)
        ntx_buf_free(body);
    else
        MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    *body = (struct ntx_buf){0};
    return ntx__reply_queue(q, status, r);
}

enum MHD_Result ntx__reply_json(struct ntx_request *q, unsigned status, json_t *j)
{
    struct ntx_buf b = {0};
    if (q->ignored.n && status == MHD_HTTP_OK)
        json_object_set_new(j, "ntx", ntx_ignored_json(&q->ignored, ""));
    ntx_buf_json(&b, j);
    return ntx__reply(q, status, "application/json", &b);
}

enum MHD_Result ntx__reply_fault(struct ntx_request *q, const struct ntx_fault *f)
{
    struct ntx_buf b = {0};
    q->route->shape->fault(f, &b);
    q->retry_s = ntx_fault_info(f->kind)->retry_s;
    return ntx__reply(q, ntx_fault_info(f->kind)->status, "application/json", &b);
}
