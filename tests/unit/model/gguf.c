/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.c: what a good file says arrives as it was written. */
#include "model/gguf.h"

#include <errno.h>
#include <unistd.h>

#include "tests/unit/model/make.h"

static void put_kv(struct mk_buf *b, const char *key, uint32_t type, const void *v, size_t n)
{
    puts_len(b, key);
    put32(b, type);
    mk_put(b, v, n);
}

#define PUT(KEY, TYPE, CTYPE, V) put_kv(&b, KEY, TYPE, &(CTYPE){V}, sizeof(CTYPE))

static void check_u64(const struct ntx_gguf *g, const char *key, int rc, uint64_t expected)
{
    uint64_t v = 77;
    int got = ntx_gguf_u64(g, key, &v);
    CHECK_MSG(got == rc && v == (rc ? 77 : expected), "%s: %d, %llu", key, got, (unsigned long long)v);
}

static void check_scalars(void)
{
    struct mk_buf b = {0};
    float f = 0;
    bool flag = false;
    struct ntx_str s;
    put_head(&b, 3, 0, 14);
    PUT("u8", NTX_GGUF_U8, uint8_t, 200);
    PUT("i8", NTX_GGUF_I8, int8_t, -5);
    PUT("u16", NTX_GGUF_U16, uint16_t, 60000);
    PUT("i16", NTX_GGUF_I16, int16_t, 1234);
    PUT("u32", NTX_GGUF_U32, uint32_t, 4000000000u);
    PUT("i32", NTX_GGUF_I32, int32_t, -1);
    PUT("u64", NTX_GGUF_U64, uint64_t, UINT64_MAX);
    PUT("i64", NTX_GGUF_I64, int64_t, INT64_MAX);
    PUT("f32", NTX_GGUF_F32, float, 2.5f);
    PUT("f64", NTX_GGUF_F64, double, 0.1);
    PUT("f64.huge", NTX_GGUF_F64, double, 1e300);
    PUT("flag", NTX_GGUF_BOOL, uint8_t, 1);
    puts_len(&b, "text");
    put32(&b, NTX_GGUF_STR);
    puts_len(&b, "caf\xc3\xa9");
    puts_len(&b, "numbers");
    put32(&b, NTX_GGUF_ARR);
    put32(&b, NTX_GGUF_I16);
    put64(&b, 3);
    mk_put(&b, (int16_t[]){-1, 2, 3}, 6);
    struct ntx_gguf *g = parse_ok(b.p, b.n);
    CHECK_EQ(ntx_gguf_n_kv(g), 14);
    CHECK_EQ(ntx_gguf_n_tensors(g), 0);
    CHECK_EQ(ntx_gguf_version(g), 3);
    check_u64(g, "u8", 0, 200);
    check_u64(g, "i8", -EINVAL, 0);
    check_u64(g, "u16", 0, 60000);
    check_u64(g, "i16", 0, 1234);
    check_u64(g, "u32", 0, 4000000000u);
    check_u64(g, "i32", -EINVAL, 0);
    check_u64(g, "u64", 0, UINT64_MAX);
    check_u64(g, "i64", 0, INT64_MAX);
    check_u64(g, "f32", -EINVAL, 0);
    check_u64(g, "flag", -EINVAL, 0);
    check_u64(g, "text", -EINVAL, 0);
    check_u64(g, "numbers", -EINVAL, 0);
    check_u64(g, "absent", -ENOENT, 0);
    CHECK(!ntx_gguf_f32(g, "f32", &f) && f == 2.5f);
    CHECK(!ntx_gguf_f32(g, "f64", &f) && f == 0.1f);
    CHECK_EQ(ntx_gguf_f32(g, "f64.huge", &f), -EINVAL);
    CHECK_EQ(ntx_gguf_f32(g, "u32", &f), -EINVAL);
    CHECK_EQ(ntx_gguf_f32(g, "f3", &f), -ENOENT);
    CHECK(!ntx_gguf_bool(g, "flag", &flag) && flag);
    CHECK_EQ(ntx_gguf_bool(g, "u8", &flag), -EINVAL);
    CHECK(!ntx_gguf_str(g, "text", &s) && s.n == 5 && !memcmp(s.p, "caf\xc3\xa9", 5));
    CHECK_EQ(ntx_gguf_str(g, "numbers", &s), -EINVAL);
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, "numbers");
    CHECK(kv && kv->type == NTX_GGUF_ARR && kv->elem == NTX_GGUF_I16 && kv->count == 3 &&
          !memcmp(kv->data, "\xff\xff\2\0\3\0", 6));
    CHECK(kv == ntx_gguf_kv_at(g, 13) && !ntx_gguf_kv_at(g, 14) && !ntx_gguf_tensor_at(g, 0));
    ntx_gguf_free(g);
    free(b.p);
}

/* Two tensors under an alignment of 64: offsets, sizes, shapes. */
static void check_tensors(void)
{
    struct mk_buf b = {0};
    put_head(&b, 2, 2, 1);
    PUT("general.alignment", NTX_GGUF_U32, uint32_t, 64);
    puts_len(&b, "a");
    put32(&b, 1);
    put64(&b, 5);
    put32(&b, 0);
    put64(&b, 64);
    puts_len(&b, "b.weight");
    put32(&b, 3);
    put64(&b, 64);
    put64(&b, 3);
    put64(&b, 2);
    put32(&b, 8);
    put64(&b, 128);
    uint64_t data = (b.n + 63) / 64 * 64;
    struct ntx_gguf *g;
    struct ntx_err err = {0};
    CHECK(!ntx_gguf_parse(b.p, b.n, data + 128 + 408, &g, &err));
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor(g, "b.weight");
    CHECK(t && t == ntx_gguf_tensor_at(g, 1) && t->n_dims == 3 && t->ne[0] == 64 && t->ne[1] == 3 && t->ne[2] == 2 &&
          t->ne[3] == 1);
    CHECK_EQ(t->offset, data + 128);
    CHECK_EQ(t->bytes, 408);
    CHECK_STR(t->name, "b.weight");
    CHECK_EQ(ntx_gguf_tensor(g, "a")->bytes, 20);
    CHECK(!ntx_gguf_tensor(g, "b.weigh"));
    CHECK_EQ(ntx_gguf_version(g), 2);
    ntx_gguf_free(g);
    CHECK_EQ(ntx_gguf_parse(b.p, b.n, data + 128 + 407, &g, &err), -EINVAL); /* a byte short */
    free(b.p);
}

/* A vocabulary whose header is larger than the first read, from a descriptor; version 2 and 3 hold the same. */
static void check_file(uint32_t version)
{
    struct mk_options o = make_options();
    char **paths;
    struct ntx_gguf *g;
    struct ntx_err err = {0};
    o.version = version;
    o.vocab_size = 30000;
    o.embd = o.heads = 32;
    o.kv = 16;
    o.head_dim = 2;
    int n = make_files(&o, &paths), fd = open_path(paths[0]);
    CHECK_MSG(!ntx_gguf_open(&fd, 1, (const char *const *)paths, &g, &err), "%s", err.text);
    CHECK_EQ(ntx_gguf_version(g), version);
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, "tokenizer.ggml.tokens");
    CHECK(kv && kv->count == 30000 && kv->strs[1].n == 3 && !memcmp(kv->strs[1].p, "<s>", 3));
    CHECK(kv->strs[29999].n == 13 && !memcmp(kv->strs[29999].p, "[unused29999]", 13));
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor(g, "output.weight");
    CHECK(t && t->ne[0] == 32 && t->ne[1] == 30000 && t->offset + t->bytes == (uint64_t)lseek(fd, 0, SEEK_END));
    CHECK(ntx_gguf_header_bytes(g) > 700000);
    ntx_gguf_free(g);
    close(fd);
    unmake(paths, n);
}

int main(void)
{
    check_scalars();
    check_tensors();
    check_file(2);
    check_file(3);
    return 0;
}
