/* SPDX-License-Identifier: Apache-2.0 */
/* buf.h: a buffer of bytes that grows at its end. Zero-initialised is empty. After a failed allocation it is bad: it
 * takes nothing more, and its sender checks once, at the end. */
#ifndef NTX_CLIENT_GATEWAY_BUF_H
#define NTX_CLIENT_GATEWAY_BUF_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct ntx_buf {
    char *p;
    size_t n, room;
    bool bad;
};

void ntx_buf_add(struct ntx_buf *b, const void *p, size_t n);
void ntx_buf_text(struct ntx_buf *b, const char *text);
void ntx_buf_format(struct ntx_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ntx_buf_json(struct ntx_buf *b, json_t *j); /* compact; takes the reference. NULL makes the buffer bad */
void ntx_buf_free(struct ntx_buf *b);            /* empty afterwards */

/* A JSON string of bytes that a model wrote; invalid UTF-8 becomes U+FFFD. NULL: no memory. */
json_t *ntx_json_text(const char *p, size_t n);

#endif
