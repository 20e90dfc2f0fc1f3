/* SPDX-License-Identifier: Apache-2.0 */
/* words.c: short texts from clients or configuration files: faults, skip policies, sizes and rates, a hardware
 * profile, the strings of a Load message. The first byte picks the kind. */
#include <math.h>

#include "common/util.h"
#include "computed/server/wire.h"
#include "iod/fault.h"
#include "model/override.h"
#include "computed/plan/hw.h"
#include "predictor/fault.h"
#include "tests/fuzz/policy.h"

static void use_iod_fault(char *text)
{
    struct ntx__fault f;
    struct ntx_err err = {0};
    uint64_t delay = 0, stall = 0;
    if (ntx__fault_parse(text, 1, &f, &err)) {
        MUST(err.text[0]);
        return;
    }
    MUST(f.n <= NTX__FAULT_MAX_RULES && f.random);
    const struct ntx_iod_read rd = {.chunk = 3, .len = 4096};
    for (int i = 0; i < 5; i++)
        ntx__fault_event(&f, (enum ntx__fault_at)(i % 3), &rd, NTX_READY, &delay, &stall);
    MUST(ntx__fault_random(&f, 7) < 7);
}

static void use_predictor_fault(char *text)
{
    struct ntx_predictor_fault f;
    struct ntx_err err = {0};
    if (ntx_predictor_fault_parse(text, 1, &f, &err)) {
        MUST(err.text[0]);
        return;
    }
    MUST(f.n_rules <= NTX_PREDICTOR_FAULT_RULES);
    ntx_predictor_fault_probe(&f);
    ntx_predictor_fault_sent(&f);
}

static void use_policy(char *text)
{
    const struct ntx_policy_shape shape = {.n_layers = 70, .n_embd = 4};
    const float hidden[4] = {0};
    struct ntx_policy *p;
    struct ntx_err err = {0};
    if (ntx_policy_new(text, &shape, &p, &err)) {
        MUST(err.text[0]);
        return;
    }
    for (uint32_t row = 0; row < 3; row++)
        fuzz_decide(p, hidden, row, shape.n_layers);
    ntx_policy_free(p);
}

static void use_numbers(char *text)
{
    uint64_t bytes;
    double rate;
    if (!ntx_parse_rate(text, &rate))
        MUST(isfinite(rate) && rate >= 0);
    (void)ntx_parse_size(text, &bytes);
}

static void use_profile(char *text)
{
    static struct ntx_hw hw;
    struct ntx_err err = {0};
    if (ntx_hw_parse(text, &hw, &err)) {
        MUST(err.text[0]);
        return;
    }
    MUST(hw.n_reads <= NTX_HW_READS && hw.n_kernels <= NTX_HW_KERNELS && ntx_hw_drive_bps(&hw, 524288) >= 0);
    MUST(ntx_hw_ram_bps(&hw, 1) >= 0);
    for (uint32_t rows = 1; rows <= 64; rows *= 8)
        MUST(ntx_hw_byte_s(&hw, 12, rows, rows % 3, rows % 2) >= 0);
    (void)ntx_hw_read_gap(&hw);
    const char *found = "a finding";
    char *again = ntx_hw_dump(&hw, &found, 1);
    MUST(again);
    static struct ntx_hw same;
    MUST(!ntx_hw_parse(again, &same, &err) && same.n_reads == hw.n_reads && same.n_kernels == hw.n_kernels);
    free(again);
    ntx_hw_cap(&hw, 1e9, 2e9);
}

/* Each worker gets its own part of the fault; the part lies in the text. */
static void use_load(char *text)
{
    Ntx__Load m = NTX__LOAD__INIT;
    char *also[] = {text};
    struct ntx_load_request *r;
    struct ntx_err err = {0};
    m.fault = m.skip = m.path = text;
    m.also = also;
    m.n_also = 1;
    m.names = also;
    m.n_names = 1;
    m.sidecar = text[0] & 1;
    unsigned n_fds = text[0] & 64 ? (unsigned)text[0] % 4 : 0;
    int fds[4];
    for (unsigned i = 0; i < n_fds; i++)
        MUST((fds[i] = memfd_create("part", MFD_CLOEXEC)) >= 0);
    if (ntx_load_request_new(&m, fds, n_fds, &r, &err)) {
        MUST(err.text[0]);
        return;
    }
    MUST(strlen(r->iod_fault) + strlen(r->predictor_fault) <= strlen(text));
    MUST(strstr(text, r->iod_fault) && strstr(text, r->predictor_fault) && !strcmp(r->path, text));
    ntx_load_request_free(r);
}

/* Overrides keys of a GGUF: each accepted pair is in the file afterwards, and no other key has changed. */
static void use_override(char *text)
{
    static const uint8_t file[] = "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0a\4\0\0\0\7\0\0";
    struct ntx_gguf *g;
    struct ntx_override o, last = {.key = ""};
    struct ntx_err err = {0};
    uint64_t seven = 0;
    const char *at = text, *before = at;
    unsigned n = 0;
    int rc;
    MUST(!ntx_gguf_parse(file, sizeof file, sizeof file, &g, &err));
    MUST(!ntx_gguf_u64(g, "a", &seven) && seven == 7);
    for (; (rc = ntx_override_next(&at, &o, &err)) > 0; n++, before = at, last = o)
        MUST(at > before && *o.key && strlen(o.key) < sizeof o.key);
    MUST(ntx_gguf_override(g, text, &err) == rc && (!rc || err.text[0]));
    MUST(ntx_gguf_n_kv(g) >= 1 && ntx_gguf_n_kv(g) <= 1 + n);
    const struct ntx_gguf_kv *kv = n ? ntx_gguf_find(g, last.key) : NULL;
    MUST(!n ||
         (kv && kv->type == last.type &&
          (last.type != NTX_GGUF_STR || (kv->strs->n == last.str.n && !memcmp(kv->strs->p, last.str.p, last.str.n)))));
    ntx_gguf_free(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const use[])(char *) = {use_iod_fault, use_predictor_fault, use_policy, use_numbers, use_profile,
                                          use_load,      use_override};
    if (!size)
        return 0;
    char *text = malloc(size);
    MUST(text);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    use[data[0] % 7](text);
    free(text);
    return 0;
}
