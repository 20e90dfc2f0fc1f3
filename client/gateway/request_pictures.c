/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures in messages, as each API writes them:
 *
 *   OpenAI      {"type": "image_url", "image_url": {"url": "data:image/png;base64,...", "detail": "auto"}}
 *   Responses   {"type": "input_image", "image_url": "data:image/png;base64,...", "detail": "auto"}
 *   Anthropic   {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "..."}}
 *   Ollama      "images": ["...", ...] beside the text
 *
 * A URL may begin with https:// or http:// where the operator allows its host (fetch.c); Anthropic has {"type": "url",
 * "url": "..."} for it. Nothing is decoded here but base64: ntx-computed decodes pictures in a process of its own. */
#include <errno.h>
#include <nettle/base64.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/gateway/request_fields.h"
#include "common/picture_kind.h"

#define PICTURES_MOST 1000 /* of a message, the limit of proto/frame_valid.c */

bool ntx__request_is_picture(const char *type)
{
    return !strcmp(type, "image_url") || !strcmp(type, "input_image") || !strcmp(type, "image");
}

const char *ntx__request_no_part(const char *type)
{
    static const struct {
        const char *types, *why;
    } known[] = {
        {"|input_audio|audio|audio_url|", "audio needs an encoder for sound, which no model here has; send its text"},
        {"|video|video_url|input_video|", "video needs frames over time; send single frames as pictures"},
        {"|file|input_file|document|", "documents are not taken apart; send their text, or pages as pictures"},
    };
    char word[48];
    if (snprintf(word, sizeof word, "|%s|", type) >= (int)sizeof word)
        return NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(known[i].types, word))
            return known[i].why;
    return NULL;
}

void ntx__request_images_free(struct ntx_api_request_images *m)
{
    while (m->n)
        free(m->list[--m->n].data);
    free(m->list);
    m->list = NULL;
}

/* Takes data over. */
static int keep_image(struct ntx_api_request_images *to, size_t at, uint8_t *data, size_t n, const char *param,
                      struct ntx_fault *f)
{
    struct ntx_api_request_image *list = realloc(to->list, (to->n + 1) * sizeof *list);
    if (!list) {
        free(data);
        return ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory");
    }
    to->list = list;
    if (to->n == PICTURES_MOST) {
        free(data);
        return ntx_fault(f, NTX_FAULT_INVALID, param, "a message has more than %d pictures", PICTURES_MOST);
    }
    list[to->n++] = (struct ntx_api_request_image){at, data, n};
    return 0;
}

static int add_base64(const char *text, size_t len, const char *param, size_t at, struct ntx_api_request_images *to,
                      struct ntx_fault *f)
{
    struct base64_decode_ctx c;
    struct ntx_err err = {0};
    size_t n = BASE64_DECODE_LENGTH(len);
    uint8_t *data = malloc(n + 1);
    if (!data)
        return ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory");
    base64_decode_init(&c);
    bool good = base64_decode_update(&c, &n, data, len, text) && base64_decode_final(&c);
    if (good && !ntx_picture_check(data, n, &err))
        return keep_image(to, at, data, n, param, f);
    free(data);
    return ntx_fault(f, NTX_FAULT_INVALID, param, "a picture cannot be used: %s",
                     good ? err.text : "its bytes are not base64");
}

static bool is_http(const char *url) { return !strncasecmp(url, "http://", 7) || !strncasecmp(url, "https://", 8); }

static int add_fetched(struct ntx_api_request *a, const char *url, const char *param, size_t at,
                       struct ntx_api_request_images *to, struct ntx_fault *f)
{
    struct ntx_err err = {0};
    uint8_t *data = NULL;
    size_t n = 0;
    if (ntx__request_fetch(url, &a->fetched, param, &data, &n, f))
        return -1;
    if (!ntx_picture_check(data, n, &err))
        return keep_image(to, at, data, n, param, f);
    free(data);
    return ntx_fault(f, NTX_FAULT_INVALID, param, "a picture that was fetched cannot be used: %s", err.text);
}

/* data:[MEDIA TYPE][;PARAMETER...];base64,DATA (RFC 2397) */
static int add_url(struct ntx_api_request *a, const json_t *url, const char *param, size_t at,
                   struct ntx_api_request_images *to, struct ntx_fault *f)
{
    static const char form[] = ";base64";
    const char *text = json_string_value(url), *comma = text ? strchr(text, ',') : NULL;
    if (!text)
        return ntx_fault(f, NTX_FAULT_INVALID, param, "a picture has no 'url'");
    if (is_http(text))
        return add_fetched(a, text, param, at, to, f);
    if (strncasecmp(text, "data:", 5) || !comma || (size_t)(comma - text) < 5 + sizeof form - 1 ||
        strncasecmp(comma - (sizeof form - 1), form, sizeof form - 1))
        return ntx_fault(f, NTX_FAULT_INVALID, param,
                         "a picture's URL must have the form data:image/png;base64,... (also jpeg, webp, gif, bmp)");
    comma++;
    return add_base64(comma, json_string_length(url) - (size_t)(comma - text), param, at, to, f);
}

static int check_detail(struct ntx_api_request *a, const json_t *detail, const char *param, struct ntx_fault *f)
{
    const char *word = json_string_value(detail);
    if (detail && !json_is_null(detail) && !word)
        return ntx_fault(f, NTX_FAULT_INVALID, param, "'detail' of a picture must be a string");
    if (word && strcmp(word, "auto"))
        ntx_ignored_add(&a->ignored, "image_url", "detail");
    return 0;
}

static int add_source(struct ntx_api_request *a, const json_t *source, const char *param, size_t at,
                      struct ntx_api_request_images *to, struct ntx_fault *f)
{
    const char *type = json_string_value(json_object_get(source, "type"));
    const json_t *data = json_object_get(source, "data"), *url = json_object_get(source, "url");
    if (!json_is_object(source) || !type)
        return ntx_fault(f, NTX_FAULT_INVALID, param, "a block of type image has no 'source' with a type");
    if (ntx_fields_read(NTX_FIELDS_IMAGE_SOURCE, source, NULL, &a->ignored, f))
        return -1;
    if (url && !json_is_null(url) && !json_is_string(url))
        return ntx_fault(f, NTX_FAULT_INVALID, param, "'url' of a picture's source must be a string");
    if (!strcmp(type, "url"))
        return add_url(a, url, param, at, to, f);
    if (strcmp(type, "base64"))
        return ntx_fault(f, NTX_FAULT_UNSUPPORTED, param,
                         "a picture's source of type '%.40s' is not supported: base64 and url are", type);
    if (!json_is_string(data))
        return ntx_fault(f, NTX_FAULT_INVALID, param, "a picture's source has no 'data'");
    return add_base64(json_string_value(data), json_string_length(data), param, at, to, f);
}

int ntx__request_picture(struct ntx_api_request *a, const json_t *part, const char *param, size_t at,
                         struct ntx_api_request_images *to, struct ntx_fault *f)
{
    const json_t *url = json_object_get(part, "image_url"), *source = json_object_get(part, "source");
    if (ntx_fields_read(NTX_FIELDS_PART, part, NULL, &a->ignored, f) ||
        check_detail(a, json_object_get(part, "detail"), param, f))
        return -1;
    if (source && !json_is_null(source))
        return add_source(a, source, param, at, to, f);
    if (!json_is_object(url))
        return add_url(a, url, param, at, to, f);
    if (ntx_fields_read(NTX_FIELDS_IMAGE_URL, url, NULL, &a->ignored, f) ||
        check_detail(a, json_object_get(url, "detail"), param, f))
        return -1;
    return add_url(a, json_object_get(url, "url"), param, at, to, f);
}

int ntx__request_pictures(struct ntx_api_request *a, const json_t *base64, struct ntx_fault *f)
{
    struct ntx_api_request_images *to = &a->messages[a->n_messages - 1].images;
    size_t i;
    json_t *one;
    if (!base64 || json_is_null(base64))
        return 0;
    if (!json_is_array(base64))
        return ntx_fault(f, NTX_FAULT_INVALID, "images", "'images' must be a list of pictures in base64");
    if (to->n && json_array_size(base64))
        return ntx_fault(f, NTX_FAULT_INVALID, "images", "a message has pictures in 'images' and in its content");
    json_array_foreach((json_t *)(uintptr_t)base64, i, one) {
        const char *text = json_string_value(one);
        if (!text)
            return ntx_fault(f, NTX_FAULT_INVALID, "images", "'images' must be a list of pictures in base64");
        if (!strncasecmp(text, "data:", 5) ? add_url(a, one, "images", 0, to, f)
                                           : add_base64(text, json_string_length(one), "images", 0, to, f))
            return -1;
    }
    return 0;
}
