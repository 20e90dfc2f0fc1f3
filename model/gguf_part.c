/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_part.c: reads one file's header. gguf_part.h explains how, the GGUF specification the format. */
#include "model/gguf_part.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utf8proc.h>

#include "common/util.h"
#include "model/planes.h"
#include "model/quant.h"

#define FIRST_READ       (256u << 10)
#define PAGE             4096u /* reads are aligned to it, so that a descriptor with O_DIRECT works too */
#define HEAD_BYTES       24    /* magic, version, two counts */
#define MIN_KV_BYTES     13    /* key length, type, one byte of value */
#define MIN_TENSOR_BYTES 33    /* name length, a letter, one dimension, type, offset */
#define MIN_ALIGNMENT    8u
#define MAX_ALIGNMENT    (1u << 20)

struct reader {
    const struct ntx__gguf_source *src;
    struct ntx_err *err;
    uint8_t *buf; /* the first `have` bytes of the file */
    size_t have, pos;
    size_t read;          /* bytes that were read from the descriptor */
    struct ntx_str *strs; /* strings are stored here; NULL in the first walk */
    uint64_t n_strs;
    char *names; /* tensor names are stored here; NULL in the first walk */
    size_t names_bytes;
    const char *kind; /* for messages: "key" or "tensor"; its name is in buf */
    size_t name_at, name_len;
};

static int scan_fail(struct reader *r, const char *what)
{
    if (!r->kind)
        return ntx_err_set(r->err, -EINVAL, "%s", what);
    int n = (int)NTX_MIN(r->name_len, (size_t)80);
    return ntx_err_set(r->err, -EINVAL, "%s '%.*s': %s", r->kind, n, (const char *)r->buf + r->name_at, what);
}

/* Like scan_fail, with a number in the text. */
static int scan_fail_n(struct reader *r, const char *what, uint64_t number, const char *rest)
{
    char text[256];
    snprintf(text, sizeof text, "%s %llu%s", what, (unsigned long long)number, rest);
    return scan_fail(r, text);
}

static int grow_header(struct reader *r, size_t want)
{
    const struct ntx__gguf_source *s = r->src;
    if (s->fd < 0)
        return scan_fail_n(r, "the header goes on beyond the", s->mem_len, " bytes that were given");
    size_t cap = NTX_MAX((size_t)FIRST_READ, r->have * 2);
    cap = NTX_MIN(cap, (size_t)NTX__GGUF_MAX_HEADER);
    cap = NTX_ROUND_UP(NTX_MAX(cap, want), (size_t)PAGE);
    uint8_t *buf = aligned_alloc(PAGE, cap);
    if (!buf)
        return ntx_err_set(r->err, -ENOMEM, "no memory for a header of %zu bytes", cap);
    if (r->have)
        memcpy(buf, r->buf, r->have);
    free(r->buf);
    r->buf = buf;
    while (r->have < want) {
        ssize_t n = pread(s->fd, r->buf + r->have, cap - r->have, (off_t)r->have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ntx_err_set(r->err, -errno, "cannot read: %s", strerror(errno));
        if (n == 0)
            return ntx_err_set(r->err, -EINVAL, "ends after %zu bytes while it is being read", r->have);
        r->read = r->have += (size_t)n;
    }
    return 0;
}

/* Reads until the n bytes at pos are in memory. */
static int need(struct reader *r, uint64_t n)
{
    uint64_t left = r->src->file_bytes - r->pos;
    if (n <= r->have - r->pos)
        return 0;
    if (n > left) {
        char text[160];
        snprintf(text, sizeof text, "truncated: %llu bytes wanted at byte %zu, the file has %llu: fetch it again",
                 (unsigned long long)n, r->pos, (unsigned long long)r->src->file_bytes);
        return scan_fail(r, text);
    }
    if (n > NTX__GGUF_MAX_HEADER - r->pos)
        return scan_fail_n(r, "the header is larger than", NTX__GGUF_MAX_HEADER, " bytes: damaged or hostile");
    return grow_header(r, r->pos + (size_t)n);
}

static int get(struct reader *r, void *v, size_t n)
{
    int rc = need(r, n);
    if (rc)
        return rc;
    memcpy(v, r->buf + r->pos, n);
    r->pos += n;
    return 0;
}

static int get_u32(struct reader *r, uint32_t *v) { return get(r, v, sizeof *v); }
static int get_u64(struct reader *r, uint64_t *v) { return get(r, v, sizeof *v); }

/* The pointer is valid until the next need(). */
static int get_str(struct reader *r, struct ntx_str *s)
{
    uint64_t n;
    int rc = get_u64(r, &n);
    if (!rc)
        rc = need(r, n);
    if (rc)
        return rc;
    s->p = (const char *)r->buf + r->pos;
    s->n = (size_t)n;
    r->pos += (size_t)n;
    return 0;
}

/* Like get_str, if the whole string is in memory already, else false. Vocabularies have a million strings. */
static inline bool get_str_here(struct reader *r, struct ntx_str *s)
{
    uint64_t n;
    size_t here = r->have - r->pos;
    const uint8_t *p = r->buf + r->pos;
    if (here < sizeof n)
        return false;
    memcpy(&n, p, sizeof n);
    if (n > here - sizeof n)
        return false;
    s->p = (const char *)p + sizeof n;
    s->n = (size_t)n;
    r->pos += sizeof n + (size_t)n;
    return true;
}

/* Messages contain names, so control characters are refused, like invalid UTF-8. */
static bool printable_utf8(const struct ntx_str *s)
{
    for (size_t i = 0; i < s->n;) {
        unsigned char c = (unsigned char)s->p[i];
        utf8proc_int32_t point;
        if (c < 0x80) {
            if (c < 0x20 || c == 0x7f)
                return false;
            i++;
            continue;
        }
        utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)s->p + i, (utf8proc_ssize_t)(s->n - i), &point);
        if (k <= 0 || point < 0xa0)
            return false;
        i += (size_t)k;
    }
    return true;
}

/* Reads the name of a key or tensor; messages contain it from then on. */
static int get_name(struct reader *r, const char *kind, size_t max, struct ntx_str *s)
{
    size_t at = r->pos;
    r->kind = NULL;
    int rc = get_str(r, s);
    if (rc)
        return rc;
    if (s->n == 0 || s->n > max)
        return ntx_err_set(r->err, -EINVAL, "%s at byte %zu: its name has %zu bytes, 1 to %zu are allowed", kind, at,
                           s->n, max);
    if (!printable_utf8(s))
        return ntx_err_set(r->err, -EINVAL, "%s at byte %zu: its name is not valid UTF-8 text", kind, at);
    r->kind = kind;
    r->name_at = at + 8;
    r->name_len = s->n;
    return 0;
}

size_t ntx_gguf_scalar_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {
        [NTX_GGUF_U8] = 1,  [NTX_GGUF_I8] = 1,  [NTX_GGUF_U16] = 2, [NTX_GGUF_I16] = 2,
        [NTX_GGUF_U32] = 4, [NTX_GGUF_I32] = 4, [NTX_GGUF_F32] = 4, [NTX_GGUF_BOOL] = 1,
        [NTX_GGUF_U64] = 8, [NTX_GGUF_I64] = 8, [NTX_GGUF_F64] = 8,
    };
    return type < sizeof bytes ? bytes[type] : 0;
}

int ntx__gguf_kv_u64(const struct ntx_gguf_kv *kv, uint64_t *v)
{
    uint64_t raw = 0;
    int64_t s;
    size_t n = ntx_gguf_scalar_bytes(kv->type);
    if (n)
        memcpy(&raw, kv->data, n);
    switch (kv->type) {
    case NTX_GGUF_U8:
    case NTX_GGUF_U16:
    case NTX_GGUF_U32:
    case NTX_GGUF_U64: *v = raw; return 0;
    case NTX_GGUF_I8: s = (int8_t)raw; break;
    case NTX_GGUF_I16: s = (int16_t)raw; break;
    case NTX_GGUF_I32: s = (int32_t)raw; break;
    case NTX_GGUF_I64: s = (int64_t)raw; break;
    default: return -EINVAL;
    }
    if (s < 0)
        return -EINVAL;
    *v = (uint64_t)s;
    return 0;
}

/* n strings: the first walk counts them, the second stores them. */
static int get_strs(struct reader *r, uint64_t n, struct ntx_gguf_kv *kv)
{
    if (n > NTX__GGUF_MAX_STRINGS - r->n_strs)
        return scan_fail_n(r, "too many strings:", n, " in one array");
    kv->strs = r->strs ? r->strs + r->n_strs : NULL;
    for (uint64_t i = 0; i < n; i++) {
        struct ntx_str s;
        int rc;
        if (!get_str_here(r, &s) && (rc = get_str(r, &s)))
            return rc;
        if (r->strs)
            r->strs[r->n_strs + i] = s;
    }
    r->n_strs += n;
    return 0;
}

/* n scalars of one type, as raw bytes. */
static int get_scalars(struct reader *r, uint32_t type, uint64_t n, struct ntx_gguf_kv *kv)
{
    size_t size = ntx_gguf_scalar_bytes(type);
    uint64_t bytes;
    if (!size)
        return scan_fail_n(r, "unknown value type", type, "");
    if (__builtin_mul_overflow(n, size, &bytes))
        return scan_fail_n(r, "an array of", n, " elements cannot be");
    int rc = need(r, bytes);
    if (rc)
        return rc;
    kv->data = r->buf + r->pos;
    if (type == NTX_GGUF_BOOL)
        for (uint64_t i = 0; i < n; i++)
            if (r->buf[r->pos + i] > 1)
                return scan_fail_n(r, "a truth value is", r->buf[r->pos + i], "");
    r->pos += (size_t)bytes;
    return 0;
}

static int get_kv(struct reader *r, struct ntx_gguf_kv *kv)
{
    uint32_t type, elem = 0;
    uint64_t count = 1;
    memset(kv, 0, sizeof *kv);
    int rc = get_name(r, "key", NTX__GGUF_MAX_KEY, &kv->key);
    if (!rc)
        rc = get_u32(r, &type);
    if (!rc && type == NTX_GGUF_ARR) {
        rc = get_u32(r, &elem);
        if (!rc)
            rc = get_u64(r, &count);
        if (!rc && elem == NTX_GGUF_ARR)
            rc = scan_fail(r, "an array of arrays, which ntx does not read");
    }
    if (rc)
        return rc;
    uint32_t leaf = type == NTX_GGUF_ARR ? elem : type;
    kv->type = type;
    kv->elem = elem;
    kv->count = count;
    rc = leaf == NTX_GGUF_STR ? get_strs(r, count, kv) : get_scalars(r, leaf, count, kv);
    kv->key.p = (const char *)r->buf + r->name_at; /* reading the value may have moved the buffer */
    return rc;
}

/* Types that other programs write and ntx does not compute with. The message names them. */
static const char *foreign_type(uint32_t type)
{
    static const char *const names[] = {
        [9] = "Q8_1",      [15] = "Q8_K",       [25] = "I16",        [26] = "I32",
        [27] = "I64",      [28] = "F64",        [31] = "Q4_0_4_4",   [32] = "Q4_0_4_8",
        [33] = "Q4_0_8_8", [36] = "IQ4_NL_4_4", [37] = "IQ4_NL_4_8", [38] = "IQ4_NL_8_8",
    };
    return type < sizeof names / sizeof *names && names[type] ? names[type] : "unknown to ntx";
}

static int refuse_type(struct reader *r, uint32_t type)
{
    char text[200];
    snprintf(text, sizeof text,
             "type %u (%s) is not supported; take the model in another type: from a file in F16 or BF16, ntx "
             "quantize IN.gguf OUT.gguf Q4_K_M makes one",
             type, foreign_type(type));
    return scan_fail(r, text);
}

/* Sets `bytes` from shape and type. */
static int set_tensor_bytes(struct reader *r, struct ntx_gguf_tensor *t)
{
    const struct ntx_type_info *info = ntx_type_info(t->type);
    char text[200];
    if (!info)
        return refuse_type(r, t->type);
    if (t->ne[0] % info->block) {
        snprintf(text, sizeof text, "rows of %llu values are not whole blocks of %u (%s)", (unsigned long long)t->ne[0],
                 info->block, info->name);
        return scan_fail(r, text);
    }
    uint64_t bytes = ntx_row_bytes(t->type, t->ne[0]);
    for (int d = 1; d < 4 && bytes; d++)
        if (__builtin_mul_overflow(bytes, t->ne[d], &bytes))
            bytes = 0;
    if (!bytes || bytes > INT64_MAX) {
        snprintf(text, sizeof text, "its size overflows: %llu x %llu x %llu x %llu values",
                 (unsigned long long)t->ne[0], (unsigned long long)t->ne[1], (unsigned long long)t->ne[2],
                 (unsigned long long)t->ne[3]);
        return scan_fail(r, text);
    }
    t->bytes = bytes;
    return 0;
}

/* offset is relative to the data section until place_tensors() knows where that begins. */
static int get_tensor(struct reader *r, struct ntx_gguf_tensor *t)
{
    struct ntx_str name;
    memset(t, 0, sizeof *t);
    int rc = get_name(r, "tensor", NTX__GGUF_MAX_NAME, &name);
    if (rc)
        return rc;
    if (r->names) {
        memcpy(r->names + r->names_bytes, name.p, name.n);
        r->names[r->names_bytes + name.n] = 0;
        t->name = r->names + r->names_bytes;
    }
    r->names_bytes += name.n + 1;
    if ((rc = get_u32(r, &t->n_dims)))
        return rc;
    if (t->n_dims < 1 || t->n_dims > 4)
        return scan_fail_n(r, "it has", t->n_dims, " dimensions; 1 to 4 are allowed");
    for (uint32_t d = 0; d < 4; d++) {
        t->ne[d] = 1;
        if (d < t->n_dims && (rc = get_u64(r, &t->ne[d])))
            return rc;
        if (!t->ne[d])
            return scan_fail_n(r, "zero values in dimension", d, "");
    }
    if ((rc = get_u32(r, &t->type)) || (rc = get_u64(r, &t->offset)))
        return rc;
    const uint32_t number = t->type;
    t->type = number < NTX_PLANES_FIRST ? number : ntx_planes_from_file(number);
    if (t->type == NTX_TYPE_LIMIT)
        return refuse_type(r, number);
    return set_tensor_bytes(r, t);
}

static int walk(struct reader *r, struct ntx__gguf_part *p, bool keep)
{
    struct ntx_gguf_kv kv;
    struct ntx_gguf_tensor t;
    r->pos = HEAD_BYTES;
    r->n_strs = r->names_bytes = 0;
    for (uint64_t i = 0; i < p->n_kv; i++) {
        int rc = get_kv(r, keep ? &p->kv[i] : &kv);
        if (rc)
            return rc;
    }
    for (uint64_t i = 0; i < p->n_tensors; i++) {
        int rc = get_tensor(r, keep ? &p->tensors[i] : &t);
        if (rc)
            return rc;
    }
    r->kind = NULL;
    return 0;
}

static int check_count(struct reader *r, const char *what, uint64_t n, uint64_t min_bytes)
{
    uint64_t left = r->src->file_bytes - r->pos;
    if (n > left / min_bytes)
        return ntx_err_set(r->err, -EINVAL, "claims %llu %s, more than a file of %llu bytes can hold: fetch it again",
                           (unsigned long long)n, what, (unsigned long long)r->src->file_bytes);
    if (n > NTX__GGUF_MAX_COUNT)
        return ntx_err_set(r->err, -EINVAL, "claims %llu %s; at most %u are read", (unsigned long long)n, what,
                           NTX__GGUF_MAX_COUNT);
    return 0;
}

static int get_head(struct reader *r, struct ntx__gguf_part *p)
{
    if (r->src->file_bytes < HEAD_BYTES)
        return ntx_err_set(r->err, -EINVAL, "not a GGUF file: it has %llu bytes only",
                           (unsigned long long)r->src->file_bytes);
    int rc = need(r, HEAD_BYTES);
    if (rc)
        return rc;
    if (memcmp(r->buf, "GGUF", 4))
        return ntx_err_set(r->err, -EINVAL, "not a GGUF file: it begins with bytes %02x %02x %02x %02x", r->buf[0],
                           r->buf[1], r->buf[2], r->buf[3]);
    r->pos = 4;
    if ((rc = get_u32(r, &p->version)) || (rc = get_u64(r, &p->n_tensors)) || (rc = get_u64(r, &p->n_kv)))
        return rc;
    if (p->version && !(p->version & 0xffff))
        return ntx_err_set(r->err, -EINVAL,
                           "a big-endian GGUF file (version word 0x%08x); ntx reads little-endian ones", p->version);
    if (p->version < 2 || p->version > 3)
        return ntx_err_set(r->err, -EINVAL, "GGUF version %u; ntx reads 2 and 3: convert the model again", p->version);
    if ((rc = check_count(r, "keys", p->n_kv, MIN_KV_BYTES)) ||
        (rc = check_count(r, "tensors", p->n_tensors, MIN_TENSOR_BYTES)))
        return rc;
    return 0;
}

static int alignment(const struct ntx__gguf_part *p, uint64_t *align, struct ntx_err *err)
{
    static const char key[] = "general.alignment";
    *align = 32;
    for (uint64_t i = 0; i < p->n_kv; i++) {
        const struct ntx_gguf_kv *kv = &p->kv[i];
        if (kv->key.n != sizeof key - 1 || memcmp(kv->key.p, key, kv->key.n))
            continue;
        if (ntx__gguf_kv_u64(kv, align))
            return ntx_err_set(err, -EINVAL, "key '%s': not a positive integer", key);
        if (*align < MIN_ALIGNMENT || *align > MAX_ALIGNMENT || (*align & (*align - 1)))
            return ntx_err_set(err, -EINVAL, "key '%s': %llu is not a power of two from %u to %u", key,
                               (unsigned long long)*align, MIN_ALIGNMENT, MAX_ALIGNMENT);
    }
    return 0;
}

/* Turns offsets in the data section into offsets in the file, and checks that every tensor is inside the file. */
static int place_tensors(struct ntx__gguf_part *p, uint64_t header_end, uint64_t file_bytes, struct ntx_err *err)
{
    uint64_t align, data;
    int rc = alignment(p, &align, err);
    if (rc)
        return rc;
    data = NTX_ROUND_UP(header_end, align);
    for (uint64_t i = 0; i < p->n_tensors; i++) {
        struct ntx_gguf_tensor *t = &p->tensors[i];
        uint64_t end;
        if (t->offset % align)
            return ntx_err_set(err, -EINVAL, "tensor '%s': offset %llu is not a multiple of the alignment %llu",
                               t->name, (unsigned long long)t->offset, (unsigned long long)align);
        if (__builtin_add_overflow(t->offset, data, &t->offset) || __builtin_add_overflow(t->offset, t->bytes, &end) ||
            end > file_bytes)
            return ntx_err_set(
                err, -EINVAL,
                "tensor '%s': its %llu bytes at offset %llu lie beyond the end of the file (%llu bytes); "
                "the file is truncated or damaged: fetch it again",
                t->name, (unsigned long long)t->bytes, (unsigned long long)t->offset, (unsigned long long)file_bytes);
    }
    return 0;
}

static int load_header(struct reader *r, struct ntx__gguf_part *p)
{
    int rc = get_head(r, p);
    if (!rc)
        rc = walk(r, p, false);
    if (rc)
        return rc;
    p->kv = calloc(p->n_kv + 1, sizeof *p->kv);
    p->tensors = calloc(p->n_tensors + 1, sizeof *p->tensors);
    r->strs = p->strs = calloc(r->n_strs + 1, sizeof *p->strs);
    r->names = p->names = malloc(r->names_bytes + 1);
    if (!p->kv || !p->tensors || !p->strs || !p->names)
        return ntx_err_set(r->err, -ENOMEM, "no memory for the tables of a header of %zu bytes", r->pos);
    p->n_strs = r->n_strs;
    p->header_bytes = r->pos;
    uint8_t *exact = realloc(r->buf, r->pos); /* frees the bytes that were read behind the header */
    if (exact)
        r->buf = exact;
    r->have = r->pos;
    rc = walk(r, p, true);
    return rc ? rc : place_tensors(p, r->pos, r->src->file_bytes, r->err);
}

int ntx__gguf_part_read(const struct ntx__gguf_source *src, struct ntx__gguf_part *part, struct ntx_err *err)
{
    struct ntx__gguf_part p = {0};
    struct reader r = {.src = src, .err = err};
    int rc = 0;
    if (src->fd >= 0) {
        posix_fadvise(src->fd, 0, 0, POSIX_FADV_RANDOM); /* no read-ahead into tensor data */
    } else if (src->mem_len) {
        r.have = (size_t)NTX_MIN((uint64_t)src->mem_len, src->file_bytes);
        r.buf = malloc(NTX_MAX(r.have, (size_t)1));
        if (!r.buf)
            return ntx_err_set(err, -ENOMEM, "no memory for a header of %zu bytes", r.have);
        memcpy(r.buf, src->mem, r.have);
    }
    rc = load_header(&r, &p);
    if (src->fd >= 0) { /* the header is not read again: free its page cache */
        posix_fadvise(src->fd, 0, 0, POSIX_FADV_NORMAL);
        posix_fadvise(src->fd, 0, (off_t)r.read, POSIX_FADV_DONTNEED);
    }
    p.header = r.buf;
    if (rc) {
        ntx__gguf_part_free(&p);
        return rc;
    }
    *part = p;
    return 0;
}

void ntx__gguf_part_free(struct ntx__gguf_part *p)
{
    free(p->header);
    free(p->kv);
    free(p->strs);
    free(p->tensors);
    free(p->names);
    memset(p, 0, sizeof *p);
}
