/* SPDX-License-Identifier: Apache-2.0 */
/* golden.h: reads tests/golden/pictures.json. */
#ifndef NTX_TESTS_PICTURE_GOLDEN_H
#define NTX_TESTS_PICTURE_GOLDEN_H

#include <jansson.h>
#include <nettle/base64.h>
#include <stdint.h>
#include <stdlib.h>

#include "tests/lib/check.h"

static inline json_t *read_golden(const char *path)
{
    json_error_t e;
    json_t *j = json_load_file(path, 0, &e);
    CHECK(j != NULL);
    return j;
}

/* The bytes of a member in base64; free them. */
static inline uint8_t *golden_bytes(const json_t *j, const char *name, size_t *n)
{
    struct base64_decode_ctx c;
    const json_t *text = json_object_get(j, name);
    const size_t len = json_string_length(text);
    uint8_t *bytes = malloc(BASE64_DECODE_LENGTH(len) + 1);
    *n = BASE64_DECODE_LENGTH(len);
    base64_decode_init(&c);
    CHECK(base64_decode_update(&c, n, bytes, len, json_string_value(text)) && base64_decode_final(&c));
    return bytes;
}

static inline uint32_t golden_number(const json_t *j, const char *name)
{
    return (uint32_t)json_integer_value(json_object_get(j, name));
}

static inline const char *golden_text(const json_t *j, const char *name)
{
    return json_string_value(json_object_get(j, name));
}

#endif
