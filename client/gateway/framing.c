/* Where a request ends must be beyond doubt: a proxy before us that sees another end than we do takes what follows for somebody else's request (RFC 9112, 6.3 and 11.2).
 * libmicrohttpd takes the first of two lengths, prefers chunks to a length, reads a body in a coding that it does not know to the connection's end, and lets blanks stand
 * before a header's colon, where they make another name of it. */
#include <string.h>
#include <strings.h>

#include "client/gateway/http.h"

struct framing {
    unsigned lengths, codings, hosts;
    bool unknown, packed, bad;
};

static bool is_token(const char *s)
{
    const char *p = s;
    while (*p > ' ' && *p < 127 && !strchr("\"(),/:;<=>?@[\\]{}", *p))
        p++;
    return p > s && !*p;
}

static bool is_number(const char *s) { return *s && !s[strspn(s, "0123456789")]; }

static enum MHD_Result look(void *arg, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct framing *f = arg;
    (void)kind;
    value = value ? value : "";
    f->bad |= !is_token(name);
    if (!strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH)) {
        f->lengths++;
        f->bad |= !is_number(value);
    } else if (!strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
        f->codings++;
        f->unknown |= strcasecmp(value, "chunked");
    } else if (!strcasecmp(name, MHD_HTTP_HEADER_HOST)) {
        f->hosts++;
    } else if (!strcasecmp(name, MHD_HTTP_HEADER_CONTENT_ENCODING)) {
        f->packed |= *value && strcasecmp(value, "identity");
    }
    return MHD_YES;
}

int ntx__http_framing(struct ntx_request *q, struct ntx_fault *fault)
{
    struct framing f = {0};
    MHD_get_connection_values(q->conn, MHD_HEADER_KIND, look, &f);
    q->ends = true;
    if (f.bad || f.lengths > 1 || f.codings > 1 || f.hosts > 1 || (f.lengths && f.codings))
        return ntx_fault(fault, NTX_FAULT_INVALID, NULL, "the headers leave open where the body ends, or whose it is: there must be one Host, and one Content-Length or one Transfer-Encoding");
    if (f.unknown)
        return ntx_fault(fault, NTX_FAULT_INVALID, NULL, "of transfer codings there is 'chunked'");
    if (f.packed)
        return ntx_fault(fault, NTX_FAULT_UNSUPPORTED, NULL, "a compressed body (Content-Encoding) is not supported");
    q->ends = false;
    return 0;
}
