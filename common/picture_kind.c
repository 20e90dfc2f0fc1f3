/* SPDX-License-Identifier: Apache-2.0 */
#include "common/picture_kind.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define MAGIC(text) text, sizeof text - 1

struct magic {
    const char *first; /* at the file's beginning */
    size_t n;
    const char *then; /* and at byte `at` */
    size_t n_then, at;
    enum ntx_picture_kind kind;
    const char *name, *todo; /* of kinds that are not decoded */
};

static const char as_picture[] = "save it as JPEG or PNG";
static const char as_pages[] = "documents are not read: save its pages as JPEG or PNG, or pass its text";
static const char as_frames[] =
    "video is not understood, which would need frames over time: save frames as JPEG or PNG";
static const char as_text[] = "audio is not understood, which would need an encoder for sound: pass its text";

static const struct magic magics[] = {
    {MAGIC("\xff\xd8\xff"), NULL, 0, 0, NTX_PICTURE_JPEG, NULL, NULL},
    {MAGIC("\x89PNG\r\n\x1a\n"), NULL, 0, 0, NTX_PICTURE_PNG, NULL, NULL},
    {MAGIC("RIFF"), MAGIC("WEBP"), 8, NTX_PICTURE_WEBP, NULL, NULL},
    {MAGIC("GIF8"), MAGIC("a"), 5, NTX_PICTURE_GIF, NULL, NULL},
    {MAGIC("BM"), MAGIC("\0\0"), 8, NTX_PICTURE_BMP, NULL, NULL},
    {MAGIC("%PDF-"), NULL, 0, 0, NTX_PICTURE_NONE, "a PDF", as_pages},
    {MAGIC("PK\3\4"), NULL, 0, 0, NTX_PICTURE_NONE, "an archive or an office document", as_pages},
    {MAGIC("\xd0\xcf\x11\xe0"), NULL, 0, 0, NTX_PICTURE_NONE, "an office document", as_pages},
    {MAGIC("RIFF"), MAGIC("WAVE"), 8, NTX_PICTURE_NONE, "audio (WAV)", as_text},
    {MAGIC("ID3"), NULL, 0, 0, NTX_PICTURE_NONE, "audio (MP3)", as_text},
    {MAGIC("\xff\xfb"), NULL, 0, 0, NTX_PICTURE_NONE, "audio (MP3)", as_text},
    {MAGIC("OggS"), NULL, 0, 0, NTX_PICTURE_NONE, "audio (Ogg)", as_text},
    {MAGIC("fLaC"), NULL, 0, 0, NTX_PICTURE_NONE, "audio (FLAC)", as_text},
    {MAGIC("RIFF"), MAGIC("AVI "), 8, NTX_PICTURE_NONE, "a video (AVI)", as_frames},
    {MAGIC("\x1a\x45\xdf\xa3"), NULL, 0, 0, NTX_PICTURE_NONE, "a video (Matroska or WebM)", as_frames},
    {"", 0, MAGIC("ftypavi"), 4, NTX_PICTURE_NONE, "an AVIF picture", as_picture},
    {"", 0, MAGIC("ftyphei"), 4, NTX_PICTURE_NONE, "a HEIC picture", as_picture},
    {"", 0, MAGIC("ftyphev"), 4, NTX_PICTURE_NONE, "a HEIC picture", as_picture},
    {"", 0, MAGIC("ftypmif1"), 4, NTX_PICTURE_NONE, "a HEIF picture", as_picture},
    {"", 0, MAGIC("ftypM4A"), 4, NTX_PICTURE_NONE, "audio (M4A)", as_text},
    {"", 0, MAGIC("ftyp"), 4, NTX_PICTURE_NONE, "a video (MP4 or QuickTime)", as_frames},
    {MAGIC("II*\0"), NULL, 0, 0, NTX_PICTURE_NONE, "a TIFF or raw picture", as_picture},
    {MAGIC("MM\0*"), NULL, 0, 0, NTX_PICTURE_NONE, "a TIFF picture", as_picture},
    {MAGIC("\xff\x0a"), NULL, 0, 0, NTX_PICTURE_NONE, "a JPEG XL picture", as_picture},
    {MAGIC("\0\0\0\x0cJXL "), NULL, 0, 0, NTX_PICTURE_NONE, "a JPEG XL picture", as_picture},
    {MAGIC("\0\0\0\x0cjP  "), NULL, 0, 0, NTX_PICTURE_NONE, "a JPEG 2000 picture", as_picture},
    {MAGIC("8BPS"), NULL, 0, 0, NTX_PICTURE_NONE, "a Photoshop file", as_picture},
    {MAGIC("\0\0\1\0"), NULL, 0, 0, NTX_PICTURE_NONE, "an icon (ICO)", as_picture},
    {MAGIC("<svg"), NULL, 0, 0, NTX_PICTURE_NONE, "an SVG drawing", as_picture},
    {MAGIC("<?xml"), NULL, 0, 0, NTX_PICTURE_NONE, "XML (an SVG drawing, perhaps)", as_picture},
    {MAGIC("GGUF"), NULL, 0, 0, NTX_PICTURE_NONE, "a GGUF file", "name a JPEG, PNG, WebP, GIF or BMP file"},
};

static bool has_bytes(const char *data, size_t n, const char *magic, size_t len, size_t at)
{
    return !len || (n >= at + len && !memcmp(data + at, magic, len));
}

static const struct magic *find_magic(const void *data, size_t n)
{
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++) {
        const struct magic *m = &magics[i];
        if (has_bytes(data, n, m->first, m->n, 0) && has_bytes(data, n, m->then, m->n_then, m->at))
            return m;
    }
    return NULL;
}

enum ntx_picture_kind ntx_picture_kind(const void *data, size_t n)
{
    const struct magic *m = find_magic(data, n);
    return m ? m->kind : NTX_PICTURE_NONE;
}

int ntx_picture_check(const void *data, size_t n, struct ntx_err *err)
{
    const struct magic *m = find_magic(data, n);
    if (!n)
        return ntx_err_set(err, -EINVAL, "the picture is empty");
    if (m && m->kind != NTX_PICTURE_NONE)
        return 0;
    if (m)
        return ntx_err_set(err, -EINVAL, "this is %s, not a picture that can be decoded: %s", m->name, m->todo);
    return ntx_err_set(err, -EINVAL,
                       "this is no JPEG, PNG, WebP, GIF or BMP file, by its first bytes: save the "
                       "picture as one of these");
}
