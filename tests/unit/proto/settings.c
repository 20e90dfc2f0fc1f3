/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings has every field of Load and Sampling, its bounds hold for messages, and texts are parsed. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/frame.h"
#include "proto/settings.h"
#include "tests/lib/check.h"

static bool is_text(const struct ntx_setting *s)
{
    return s->kind == NTX_SET_WORD || s->kind == NTX_SET_TEXT || s->kind == NTX_SET_PATH;
}
static bool is_bool(const struct ntx_setting *s) { return s->kind == NTX_SET_FLAG || s->kind == NTX_SET_ON; }

/* Fields that are no settings but belong to the request. */
static bool apart(const char *field)
{
    static const char *const names[] = {"names",    "path",  "also", "copies",       "sidecar",
                                        "drafters", "known", "when", "beside_bytes", "projector"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(field, names[i]))
            return true;
    return false;
}

static void every_field(const struct ntx_settings *t, const ProtobufCMessageDescriptor *d)
{
    for (unsigned f = 0; f < d->n_fields; f++) {
        const ProtobufCFieldDescriptor *field = &d->fields[f];
        unsigned n = 0;
        for (unsigned i = 0; i < t->n; i++) {
            const struct ntx_setting *s = &t->entry[i];
            if (s->wire != field->offset)
                continue;
            n++;
            size_t plain = 8;
            if (is_text(s))
                plain = sizeof(char *);
            else if (is_bool(s))
                plain = sizeof(protobuf_c_boolean);
            else if (s->kind == NTX_SET_COUNT || s->kind == NTX_SET_REAL)
                plain = 4;
            CHECK_MSG(s->wire_size == plain, "%s", s->name);
            CHECK_MSG(is_text(s) == (field->type == PROTOBUF_C_TYPE_STRING) &&
                          is_bool(s) == (field->type == PROTOBUF_C_TYPE_BOOL) &&
                          (s->kind == NTX_SET_COUNT) == (field->type == PROTOBUF_C_TYPE_UINT32) &&
                          (s->kind == NTX_SET_REAL) == (field->type == PROTOBUF_C_TYPE_FLOAT) &&
                          (s->kind == NTX_SET_RATE) == (field->type == PROTOBUF_C_TYPE_DOUBLE),
                      "%s is of another kind than its field", s->name);
        }
        CHECK_MSG(n == !apart(field->name), "%s.%s is declared %u times", d->short_name, field->name, n);
    }
}

static bool comes_through(const Ntx__Load *load)
{
    Ntx__Request r = NTX__REQUEST__INIT;
    uint8_t *frame;
    size_t len;
    r.id = 1;
    r.body_case = NTX__REQUEST__BODY_LOAD;
    r.load = (Ntx__Load *)(uintptr_t)load;
    CHECK_EQ(ntx_request_encode(&r, &frame, &len), 0);
    Ntx__Request *m = ntx_request_decode(frame + 4, len - 4, NULL);
    free(frame);
    bool ok = m != NULL;
    if (m)
        ntx__request__free_unpacked(m, NULL);
    return ok;
}

/* Stores a number in the field's type. */
static void put_number(const struct ntx_setting *s, void *m, double v)
{
    void *p = (char *)m + s->wire;
    if (s->kind == NTX_SET_RATE)
        *(double *)p = v;
    else if (s->kind == NTX_SET_REAL)
        *(float *)p = (float)v;
    else if (s->kind == NTX_SET_SIZE)
        *(uint64_t *)p = (uint64_t)v;
    else
        *(uint32_t *)p = (uint32_t)v;
}

static void bounds_of(const struct ntx_setting *s)
{
    Ntx__Load m = NTX__LOAD__INIT;
    static char text[(1 << 20) + 2];
    double max = s->kind == NTX_SET_SIZE ? (double)NTX_BYTES_MAX : s->max;
    if (is_text(s)) {
        size_t most = s->kind == NTX_SET_WORD ? NTX_WORD_MAX : NTX_OPTION_MAX;
        most = s->max > 0 ? (size_t)s->max : most;
        memset(text, 'x', most + 1);
        text[most + 1] = 0;
        *(char **)((char *)&m + s->wire) = text;
        CHECK_MSG(!comes_through(&m), "%s: too long", s->name);
        *(char **)((char *)&m + s->wire) = text + 1;
        CHECK_MSG(comes_through(&m), "%s: just so long", s->name);
        return;
    }
    if (s->kind == NTX_SET_RATE) {
        static const double bad[] = {NAN, INFINITY, -1};
        for (int i = 0; i < 3; i++) {
            put_number(s, &m, bad[i]);
            CHECK_MSG(!comes_through(&m), "%s: %g", s->name, bad[i]);
        }
        return;
    }
    put_number(s, &m, max);
    CHECK_MSG(comes_through(&m), "%s: most", s->name);
    put_number(s, &m, max + 1);
    CHECK_MSG(!comes_through(&m), "%s: more than most", s->name);
    if (s->min > 1) {
        put_number(s, &m, s->min - 1);
        CHECK_MSG(!comes_through(&m), "%s: less than least", s->name);
    }
}

static void wire(void)
{
    Ntx__Load m = NTX__LOAD__INIT;
    struct ntx_err err = {0};
    struct ntx_load_settings a = {.ram = 7,
                                  .vram = 8,
                                  .chunk = 9,
                                  .ctx = 1,
                                  .threads = 2,
                                  .sessions = 3,
                                  .rows = 4,
                                  .ring = 5,
                                  .backend = "cpu",
                                  .skip = "off",
                                  .link_nvme = 1.5,
                                  .link_h2d = 2.5,
                                  .skip_verify = 6,
                                  .capture_ffns = 11,
                                  .no_prefetch = true,
                                  .trace_experts = true,
                                  .no_gpu_graphs = true},
                             b = {0};
    for (unsigned i = 0; i < ntx_load_settings.n; i++)
        if (!is_bool(&ntx_load_settings.entry[i]))
            bounds_of(&ntx_load_settings.entry[i]);
    ntx_settings_to_wire(&ntx_load_settings, &a, &m);
    CHECK(m.ram_bytes == 7 && m.vram_bytes == 8 && m.chunk_bytes == 9 && m.ctx == 1 && m.threads == 2 &&
          m.sessions == 3 && m.max_rows == 4 && m.ring_slots == 5);
    CHECK(m.link_nvme_bps == 1.5 && m.link_h2d_bps == 2.5 && m.skip_verify == 6 && m.capture_ffns == 11 &&
          m.no_prefetch && m.trace_experts && m.no_gpu_graphs && !m.capture && !m.skip_adapt);
    CHECK_STR(m.backend, "cpu");
    CHECK_STR(m.kernel, "");
    ntx_settings_from_wire(&ntx_load_settings, &m, &b);
    CHECK(b.ram == 7 && b.ring == 5 && b.link_h2d == 2.5 && b.no_prefetch && !b.capture && b.capture_ffns == 11);
    CHECK_STR(b.skip, "off");
    CHECK_EQ(ntx_settings_check(&ntx_load_settings, &m, &err), 0);
    m.kv_type = (char *)"q5_0";
    CHECK_EQ(ntx_settings_check(&ntx_load_settings, &m, &err), -EINVAL);
    CHECK_STR(err.text,
              "--kv-type: 'q5_0' is not a type of keys and values; there are f16, q8_0 and q4_0; did you mean q8_0?");
    CHECK_EQ(ntx_settings_keep(&ntx_load_settings, &b), 0);
    CHECK(b.backend != a.backend);
    CHECK_STR(b.backend, "cpu");
    CHECK_STR(b.kernel, "");
    ntx_settings_drop(&ntx_load_settings, &b);
    CHECK(!b.backend);
}

/* Settings that a load leaves open and ntx.conf can set come from there; the others do not. */
static void test_fill(void)
{
    Ntx__Load m = NTX__LOAD__INIT, d = NTX__LOAD__INIT;
    m.ctx = 5;
    m.source = (char *)"pread";
    d.ctx = 6;
    d.threads = 7;
    d.source = (char *)"uring";
    d.kv_type = (char *)"q8_0";
    d.link_nvme_bps = 1e9;
    d.fault = (char *)"iod:eio";
    d.capture = 1;
    ntx_settings_fill(&ntx_load_settings, &m, &d);
    CHECK(m.ctx == 5 && m.threads == 7 && m.link_nvme_bps == 1e9 && !m.capture);
    CHECK_STR(m.source, "pread");
    CHECK_STR(m.kv_type, "q8_0");
    CHECK_STR(m.fault, "");
}

static const struct ntx_setting *row(const struct ntx_settings *t, const char *name)
{
    for (unsigned i = 0; i < t->n; i++)
        if (!strcmp(t->entry[i].name, name))
            return &t->entry[i];
    CHECK_MSG(false, "no row %s", name);
    return NULL;
}

static void refused(const struct ntx_settings *t, const char *name, const char *text, const char *why)
{
    union {
        struct ntx_load_settings l;
        struct ntx_sampling_settings s;
    } before = {0}, after;
    struct ntx_err err = {0};
    after = before;
    CHECK_MSG(ntx_setting_read(row(t, name), text, &after, &err) == -EINVAL, "%s %s", name, text);
    CHECK_STR(err.text, why);
    CHECK_MSG(!memcmp(&before, &after, sizeof before), "%s %s: written", name, text);
}

static void texts(void)
{
    struct ntx_load_settings l = {0};
    struct ntx_sampling_settings s = {0};
    CHECK_EQ(ntx_setting_read(row(&ntx_load_settings, "ram"), "3G", &l, NULL), 0);
    CHECK_EQ(l.ram, 3ll << 30);
    CHECK_EQ(ntx_setting_read(row(&ntx_load_settings, "ring"), "3", &l, NULL), 0);
    CHECK_EQ(l.ring, 3);
    CHECK_EQ(ntx_setting_read(row(&ntx_load_settings, "prefetch"), "off", &l, NULL), 0);
    CHECK(l.no_prefetch);
    CHECK_EQ(ntx_setting_read(row(&ntx_load_settings, "prefetch"), "on", &l, NULL), 0);
    CHECK(!l.no_prefetch);
    CHECK_EQ(ntx_setting_read(row(&ntx_load_settings, "skip-adapt"), NULL, &l, NULL), 0);
    CHECK(l.skip_adapt);
    CHECK_EQ(ntx_setting_read(row(&ntx_sampling_settings, "seed"), "18446744073709551615", &s, NULL), 0);
    CHECK(s.seed == UINT64_MAX && s.has_seed && !s.has_temp);
    /* -1, as other programs have it */
    CHECK_EQ(ntx_setting_read(row(&ntx_sampling_settings, "seed"), "-1", &s, NULL), 0);
    CHECK(!s.has_seed);
    CHECK_EQ(ntx_setting_read(row(&ntx_sampling_settings, "top-k"), "-1", &s, NULL), 0);
    CHECK_EQ(s.top_k, 0);
    CHECK_EQ(ntx_setting_read(row(&ntx_sampling_settings, "repeat-last-n"), "-1", &s, NULL), 0);
    CHECK(s.repeat_last == 1u << 28 && s.has_repeat_last);
    l.threads = l.sessions = 3;
    CHECK_EQ(ntx_setting_read(row(&ntx_load_settings, "threads"), "-1", &l, NULL), 0);
    CHECK_EQ(ntx_setting_read(row(&ntx_load_settings, "sessions"), "-1", &l, NULL), 0);
    CHECK(!l.threads && !l.sessions);
    ntx_settings_preset(&ntx_sampling_settings, &s);
    CHECK(s.temp == 0.8f && s.top_k == 40 && s.top_p == 0.95f && s.min_p == 0.05f && s.repeat_penalty == 1 &&
          !s.has_temp);
    refused(&ntx_load_settings, "ram", "3", "'3' has no unit and would be bytes; did you mean 3G? (3B is bytes)");
    refused(&ntx_load_settings, "ram", "99999",
            "'99999' has no unit and would be bytes; did you mean 99999M? (99999B is bytes)");
    refused(&ntx_load_settings, "ram", "512",
            "'512' has no unit and would be bytes; did you mean 512M? (512B is bytes)");
    refused(&ntx_load_settings, "kv-ram", "1.5",
            "'1.5' has no unit and would be bytes; did you mean 1.5G? (1.5B is bytes)");
    refused(&ntx_load_settings, "chunk", "64", "'64' has no unit and would be bytes; did you mean 64K? (64B is bytes)");
    refused(&ntx_load_settings, "ram", "0", "'0' is not a size; write it as 512M or 3G");
    refused(&ntx_load_settings, "ram", "2000T", "'2000T' is not a size; write it as 512M or 3G");
    refused(&ntx_load_settings, "ctx", "0", "'0' is not a whole number of at least 1");
    refused(&ntx_load_settings, "ctx", "268435457", "'268435457' is more than 268435456");
    refused(&ntx_load_settings, "ring", "2", "'2' is not a whole number of at least 3");
    refused(&ntx_load_settings, "threads", "-2", "'-2' is not a whole number of at least 1");
    refused(&ntx_load_settings, "rows", "-1", "'-1' is not a whole number of at least 1");
    refused(&ntx_load_settings, "threads", "4x", "'4x' is not a whole number of at least 1");
    refused(&ntx_load_settings, "backend", "cp",
            "'cp' is not a back end; there are auto, cpu and cuda; did you mean cpu?");
    refused(&ntx_load_settings, "backend", "", "'' is not a back end; there are auto, cpu and cuda");
    refused(&ntx_load_settings, "prefetch", "x", "on or off, not 'x'");
    refused(&ntx_sampling_settings, "temp", "nan", "'nan' is not a number from 0 to 100");
    refused(&ntx_sampling_settings, "temp", "-0.1", "'-0.1' is not a number from 0 to 100");
    refused(&ntx_sampling_settings, "top-p", "1.1", "'1.1' is not a number from 0 to 1");
    refused(&ntx_sampling_settings, "top-k", "4294967296", "'4294967296' is more than 4294967295");
    CHECK(ntx_skip_learned("static") && ntx_skip_learned("predictive:max=3") && !ntx_skip_learned("statics") &&
          !ntx_skip_learned("script:3") && !ntx_skip_learned(NULL));
    CHECK(ntx_skip_off("off") && ntx_skip_off("") && ntx_skip_off(NULL) && !ntx_skip_off("static"));
}

/* Parts of --draft. */
static void test_drafts(void)
{
    static const char *const none[] = {NULL, "", "off", "lookup", "auto"};
    struct ntx_err err = {0};
    char path[16];
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CHECK(!ntx_draft_files(none[i]) && ntx_draft_looks_up(none[i]) == (i != 2) &&
              ntx_draft_off(none[i]) == (i == 2) && ntx_draft_auto(none[i]) == (i < 2 || i == 4));
    CHECK(ntx_draft_rows("off", 7) == 0 && ntx_draft_rows("", 0) == 0 && ntx_draft_rows("auto", 7) == 8 &&
          ntx_draft_rows("lookup", 0) == 32 && ntx_draft_rows("a,lookup", 15) == 16);
    CHECK(!ntx_draft_trees("off", 0) && !ntx_draft_trees("auto", 0) && !ntx_draft_trees("lookup", 0) &&
          ntx_draft_trees("lookup,a", 0) && ntx_draft_trees("nextn", 0) && !ntx_draft_trees("a", 15));
    CHECK(ntx_draft_files("a.gguf,lookup,b") == 2 && ntx_draft_looks_up("a.gguf,lookup,b") &&
          !ntx_draft_looks_up("a,b.gguf"));
    CHECK(!ntx_draft_file("a.gguf,lookup,b", 0, path, sizeof path, &err) && !strcmp(path, "a.gguf"));
    CHECK(!ntx_draft_file("a.gguf,lookup,b", 1, path, sizeof path, &err) && !strcmp(path, "b"));
    CHECK(ntx_draft_files("lookups") == 1 && !ntx_draft_looks_up("lookups") && !ntx_draft_looks_up("look"));
    CHECK(ntx_draft_files("lookup,") == 1 && ntx_draft_file("lookup,", 0, path, sizeof path, &err) == -ENOENT &&
          strstr(err.text, "an empty name"));
    CHECK(ntx_draft_file("a name that is longer", 0, path, sizeof path, &err) == -ENAMETOOLONG);
    CHECK(ntx_draft_files("a,b,c,d") == 4 && ntx_draft_file("a,b,c,d", 0, path, sizeof path, &err) == -E2BIG);
}

int main(void)
{
    test_drafts();
    every_field(&ntx_load_settings, &ntx__load__descriptor);
    every_field(&ntx_sampling_settings, &ntx__sampling__descriptor);
    wire();
    test_fill();
    texts();
    return 0;
}
