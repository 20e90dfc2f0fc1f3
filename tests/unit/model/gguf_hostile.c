/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_hostile.c: bad files give one clear error each, quickly, and never a crash. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "model/chunk.h"
#include "tests/mkmodel/blocks.h"
#include "tests/unit/model/make.h"

/* Time limit of a refusal; more with a sanitizer or an emulator. */
static double limit_s(void)
{
    const char *slow = getenv("NTX_TEST_SLOW");
    return slow && atoi(slow) > 1 ? 1 : 0.1;
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The bytes, as the start of a file of file_bytes, are refused with `text`, from memory and from a file. */
static void refused(const struct mk_buf *b, uint64_t file_bytes, const char *text)
{
    struct ntx_gguf *g = NULL;
    struct ntx_err err = {0};
    const char *name = "hostile.gguf";
    int fd = memfd_create("hostile", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, b->p, b->n) == (ssize_t)b->n && !ftruncate(fd, (off_t)file_bytes));
    double took = 1e9;
    int rc = 0;
    for (int i = 0; i < 3 && took >= limit_s(); i++) { /* the machine may be busy */
        double start = cpu_seconds();
        rc = ntx_gguf_open(&fd, 1, &name, &g, &err);
        took = cpu_seconds() - start;
    }
    CHECK_MSG(rc == -EINVAL && err.code == -EINVAL && !g, "%s: rc %d", text, rc);
    CHECK_MSG(strstr(err.text, text) && !strncmp(err.text, "hostile.gguf: ", 14), "'%s', expected '%s'", err.text,
              text);
    CHECK_MSG(!strchr(err.text, '\n') && took < limit_s(), "%s: %.3f s", err.text, took);
    if (b->n == file_bytes)
        CHECK(ntx_gguf_parse(b->p, b->n, file_bytes, &g, &err) == -EINVAL && strstr(err.text, text));
    close(fd);
}

/* Clears the buffer for the next case. */
static void refused_now(struct mk_buf *b, uint64_t file_bytes, const char *text)
{
    refused(b, file_bytes ? file_bytes : b->n, text);
    b->n = 0;
}

static void bad_heads(void)
{
    struct mk_buf b = {0};
    mk_put(&b, "", 1);
    b.n = 0;
    refused_now(&b, 0, "not a GGUF file: it has 0 bytes");
    mk_put(&b, "GGUF\3\0\0\0", 8);
    refused_now(&b, 0, "not a GGUF file: it has 8 bytes");
    put_head(&b, 3, 0, 0);
    b.p[0] = 'g';
    refused_now(&b, 0, "begins with bytes 67 47 55 46");
    put_head(&b, 1, 0, 0);
    refused_now(&b, 0, "GGUF version 1");
    put_head(&b, 4, 0, 0);
    refused_now(&b, 0, "GGUF version 4");
    put_head(&b, 0x03000000, 0, 0);
    refused_now(&b, 0, "big-endian");
    put_head(&b, 3, 0, UINT64_MAX / 2 + 1);
    refused_now(&b, 0, "claims 9223372036854775808 keys");
    put_head(&b, 3, UINT64_MAX, 0);
    refused_now(&b, 1 << 20, "claims 18446744073709551615 tensors");
    put_head(&b, 3, 0, 100000);
    refused_now(&b, 1 << 30, "claims 100000 keys; at most 65536");
    put_head(&b, 3, 65537, 0);
    refused_now(&b, 1 << 30, "claims 65537 tensors; at most 65536");
    free(b.p);
}

/* A header with one key that begins here. */
static void one_key(struct mk_buf *b, const char *key, uint32_t type)
{
    put_head(b, 3, 0, 1);
    puts_len(b, key);
    put32(b, type);
}

static void one_array(struct mk_buf *b, uint32_t elem, uint64_t count)
{
    one_key(b, "k", NTX_GGUF_ARR);
    put32(b, elem);
    put64(b, count);
}

static void bad_keys(void)
{
    struct mk_buf b = {0};
    put_head(&b, 3, 0, 1);
    put64(&b, UINT64_MAX);
    refused_now(&b, 4096, "truncated: 18446744073709551615 bytes wanted at byte 32, the file has 4096");
    put_head(&b, 3, 0, 1);
    put64(&b, 70000);
    refused_now(&b, 1 << 20, "its name has 70000 bytes");
    one_key(&b, "", NTX_GGUF_U8);
    refused_now(&b, 4096, "its name has 0 bytes");
    one_key(&b, "a\xff", NTX_GGUF_U8);
    refused_now(&b, 4096, "not valid UTF-8");
    one_key(&b, "a\nb", NTX_GGUF_U8);
    refused_now(&b, 4096, "not valid UTF-8");
    one_key(&b, "surrogate \xed\xa0\x80", NTX_GGUF_U8);
    refused_now(&b, 4096, "not valid UTF-8");
    one_key(&b, "some.key", 13);
    refused_now(&b, 4096, "key 'some.key': unknown value type 13");
    one_key(&b, "some.key", NTX_GGUF_BOOL);
    mk_put(&b, "\2", 1);
    refused_now(&b, 4096, "key 'some.key': a truth value is 2");
    one_array(&b, NTX_GGUF_ARR, 1);
    refused_now(&b, 4096, "array of arrays");
    one_array(&b, 99, 1);
    refused_now(&b, 4096, "unknown value type 99");
    one_array(&b, NTX_GGUF_U64, 1ull << 62);
    refused_now(&b, 4096, "an array of 4611686018427387904 elements");
    one_array(&b, NTX_GGUF_U8, 1ull << 40);
    refused_now(&b, 4096, "truncated: 1099511627776 bytes wanted");
    one_array(&b, NTX_GGUF_U8, 100 << 20);
    refused_now(&b, 1 << 30, "larger than 67108864 bytes");
    one_array(&b, NTX_GGUF_STR, 1ull << 40);
    refused_now(&b, 1 << 30, "too many strings: 1099511627776");
    put_head(&b, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        puts_len(&b, "twice");
        put32(&b, NTX_GGUF_U8);
        mk_put(&b, "x", 1);
    }
    refused_now(&b, 4096, "key 'twice': there are two");
    free(b.p);
}

static void bad_alignment(void)
{
    static const uint32_t bad[] = {0, 1, 4, 12, 33, 1u << 21, UINT32_MAX};
    struct mk_buf b = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        one_key(&b, "general.alignment", NTX_GGUF_U32);
        put32(&b, bad[i]);
        refused_now(&b, 4096, "is not a power of two");
    }
    one_key(&b, "general.alignment", NTX_GGUF_STR);
    puts_len(&b, "32");
    refused_now(&b, 4096, "key 'general.alignment': not a positive integer");
    free(b.p);
}

static void one_tensor(struct mk_buf *b, const char *name, uint64_t n0, uint64_t n1, uint32_t type, uint64_t offset)
{
    put_head(b, 3, 1, 0);
    puts_len(b, name);
    put32(b, 2);
    put64(b, n0);
    put64(b, n1);
    put32(b, type);
    put64(b, offset);
}

static void bad_dimensions(struct mk_buf *b, uint32_t n, const char *text)
{
    put_head(b, 3, 1, 0);
    puts_len(b, "t");
    put32(b, n);
    refused_now(b, 4096, text);
}

static void bad_tensors(void)
{
    struct mk_buf b = {0};
    one_tensor(&b, "", 1, 1, 0, 0);
    refused_now(&b, 4096, "its name has 0 bytes, 1 to 64");
    one_tensor(&b, "12345678901234567890123456789012345678901234567890123456789012345", 1, 1, 0, 0);
    refused_now(&b, 4096, "its name has 65 bytes");
    one_tensor(&b, "bell\a", 1, 1, 0, 0);
    refused_now(&b, 4096, "not valid UTF-8");
    bad_dimensions(&b, 0, "tensor 't': it has 0 dimensions");
    bad_dimensions(&b, 5, "tensor 't': it has 5 dimensions");
    bad_dimensions(&b, UINT32_MAX, "tensor 't': it has 4294967295 dimensions");
    one_tensor(&b, "t", 1, 0, 0, 0);
    refused_now(&b, 4096, "zero values in dimension 1");
    one_tensor(&b, "t", 32, 1, 4, 0);
    refused_now(&b, 4096, "type 4 (unknown to ntx)");
    one_tensor(&b, "t", 256, 1, 15, 0);
    refused_now(&b, 4096, "type 15 (Q8_K)");
    one_tensor(&b, "t", 32, 1, UINT32_MAX, 0);
    refused_now(&b, 4096, "type 4294967295");
    one_tensor(&b, "t", 100, 1, 12, 0);
    refused_now(&b, 4096, "rows of 100 values are not whole blocks of 256 (Q4_K)");
    one_tensor(&b, "t", 1ull << 40, 1ull << 40, 0, 0);
    refused_now(&b, 4096, "its size overflows: 1099511627776 x 1099511627776");
    one_tensor(&b, "t", 1ull << 63, 1, 0, 0);
    refused_now(&b, 4096, "its size overflows");
    one_tensor(&b, "t", 1ull << 31, 1ull << 30, 0, 0);
    refused_now(&b, 4096, "its size overflows");
    one_tensor(&b, "t", 32, (1ull << 57) + 1, 0, 0); /* the product comes out as 128 */
    refused_now(&b, 4096, "its size overflows");
    one_tensor(&b, "t", 8, 8, 0, 16);
    refused_now(&b, 4096, "offset 16 is not a multiple of the alignment 32");
    one_tensor(&b, "t", 8, 8, 0, 4096);
    refused_now(&b, 4096, "its 256 bytes at offset 4192 lie beyond the end of the file (4096 bytes)");
    one_tensor(&b, "t", 8, 8, 0, UINT64_MAX / 32 * 32);
    refused_now(&b, 4096, "lie beyond the end");
    one_tensor(&b, "t", 1ull << 60, 1, 0, (1ull << 63) - 96 + (1ull << 62));
    refused_now(&b, 4096, "lie beyond the end");
    put_head(&b, 3, 2, 0);
    for (int i = 0; i < 2; i++) {
        puts_len(&b, "t");
        put32(&b, 1);
        put64(&b, 8);
        put32(&b, 0);
        put64(&b, 0);
    }
    refused_now(&b, 4096, "tensor 't': there are two");
    free(b.p);
}

/* Two tensors of 64 bytes, the second at `offset`. */
static void two_tensors(struct mk_buf *b, uint64_t offset)
{
    put_head(b, 3, 2, 0);
    for (int i = 0; i < 2; i++) {
        puts_len(b, i ? "b" : "a");
        put32(b, 1);
        put64(b, 16);
        put32(b, 0);
        put64(b, i ? offset : 64);
    }
}

static void overlaps(void)
{
    struct mk_buf b = {0};
    struct ntx_gguf *g;
    struct ntx_err err = {0};
    two_tensors(&b, 96);
    refused_now(&b, 4096, "tensors 'a' and 'b' overlap");
    two_tensors(&b, 32);
    refused_now(&b, 4096, "tensors 'b' and 'a' overlap");
    two_tensors(&b, 64); /* the same bytes, not declared as shared */
    refused_now(&b, 4096, "tensors 'a' and 'b' overlap");
    two_tensors(&b, 0); /* one just before the other */
    CHECK_MSG(!ntx_gguf_parse(b.p, b.n, 4096, &g, &err), "%s", err.text);
    ntx_gguf_free(g);
    free(b.p);
}

/* The largest accepted sizes, then an error: still quick. */
static void slow_ones(void)
{
    struct mk_buf b = {0};
    char name[64];
    one_array(&b, NTX_GGUF_STR,
              2 << 20); /* zero lengths follow in the sparse file; then the header ends, so add a bad key */
    b.p[16] = 2;
    refused_now(&b, 1ull << 33, "its name has 0 bytes");
    put_head(&b, 3, 65536, 65536);
    for (int i = 0; i < 65536; i++) {
        snprintf(name, sizeof name, "a.rather.long.common.beginning.of.all.names.%d", i);
        puts_len(&b, name);
        put32(&b, NTX_GGUF_U8);
        mk_put(&b, "", 1);
    }
    for (int i = 0; i < 65536; i++) {
        snprintf(name, sizeof name, "a.rather.long.common.beginning.of.all.%d", i < 65535 ? i : 0);
        puts_len(&b, name);
        put32(&b, 1);
        put64(&b, 8);
        put32(&b, 0);
        put64(&b, 0);
    }
    refused_now(&b, 1 << 30, "there are two of this name");
    free(b.p);
}

/* Accepted files must be safe to use. */
static void use(const uint8_t *p, size_t n, uint64_t file_bytes, bool *opened)
{
    struct ntx_gguf *g;
    struct ntx_model *m;
    struct ntx_chunks *c;
    struct ntx_err err = {0};
    *opened = false;
    if (ntx_gguf_parse(p, n, file_bytes, &g, &err)) {
        CHECK(err.code < 0 && err.text[0] && !strchr(err.text, '\n'));
        return;
    }
    *opened = true;
    if (!ntx_model_open(g, &m, &err)) {
        CHECK(!ntx_chunks_make(m, 4096, &c, &err));
        for (uint32_t i = 0; i < c->n; i++)
            CHECK(c->list[i].bytes && c->list[i].offset + c->list[i].bytes <= file_bytes);
        ntx_chunks_free(c);
        ntx_model_free(m);
    } else {
        CHECK(err.code < 0 && err.text[0]);
    }
    ntx_gguf_free(g);
}

static void truncations(const uint8_t *p, size_t n, size_t header)
{
    bool opened;
    /* of the last 32 bytes some are padding */
    for (size_t at = 0; at < header - 31; at += at < 4096 ? 1 : 64) {
        use(p, at, at, &opened);
        CHECK(!opened);
    }
    use(p, n - 1, n - 1, &opened); /* the last tensor lacks a byte */
    CHECK(!opened);
    use(p, header, n, &opened); /* data is not needed */
    CHECK(opened);
}

static void corruptions(const uint8_t *p, size_t n, size_t header)
{
    struct mk_rng rng = {7};
    uint8_t *q = malloc(header);
    unsigned opened = 0, tries = 4000;
    for (unsigned i = 0; i < tries; i++) {
        bool ok;
        memcpy(q, p, header);
        for (uint64_t k = 1 + mk_next(&rng) % 2; k; k--) {
            size_t at = mk_next(&rng) % (mk_next(&rng) % 4 ? 1200 : header); /* mostly where the keys are */
            q[at] = (uint8_t)(mk_next(&rng) >> 20);
        }
        use(q, header, n, &ok);
        opened += ok;
    }
    CHECK_MSG(opened > 100 && opened < tries - 100, "%u of %u", opened, tries); /* both outcomes occurred */
    free(q);
}

int main(void)
{
    struct mk_options o = make_options();
    size_t n, header = SIZE_MAX;
    uint8_t *p = make_bytes(&o, &n);
    struct ntx_gguf *g = parse_ok(p, n);
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(g); i++)
        header = ntx_gguf_tensor_at(g, i)->offset < header ? ntx_gguf_tensor_at(g, i)->offset : header;
    ntx_gguf_free(g);
    bad_heads();
    bad_keys();
    bad_alignment();
    bad_tensors();
    overlaps();
    slow_ones();
    truncations(p, n, header);
    corruptions(p, n, header);
    free(p);
    return 0;
}
