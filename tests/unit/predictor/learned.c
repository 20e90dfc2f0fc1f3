/* SPDX-License-Identifier: Apache-2.0 */
/* The sidecar's file, the network's kernels, the training, and the policies that use them. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <unistd.h>

#include "model/gguf_out.h"
#include "model/mlp.h"
#include "predictor/policy.h"
#include "predictor/sidecar.h"
#include "predictor/learn/train.h"
#include "tests/lib/check.h"
#include "tests/lib/temporary.h"

#define MODEL "0123456789abcdef0123456789abcdef"
#define OTHER "f123456789abcdef0123456789abcdef"

static char path[256];

static uint32_t next(uint32_t *x) { return (*x = *x * 1664525 + 1013904223) >> 8; }
static float value(uint32_t *x) { return (float)(next(x) % 2001) / 1000 - 1; }

/* 8 layers of which 2..6 may be skipped, width 70 (no multiple of any kernel's step). */
static struct ntx_sidecar make_sidecar(void)
{
    struct ntx_sidecar s = {.model = MODEL,
                            .n_layers = 8,
                            .n_embd = 70,
                            .n_hidden = 9,
                            .first = 2,
                            .last = 6,
                            .n_tokens = 5,
                            .threshold = 0.75f,
                            .similarity = 0.9f};
    uint32_t x = 7;
    CHECK_EQ(ntx_sidecar_alloc(&s), 0);
    for (uint32_t i = 0; i < s.n_layers; i++) {
        s.mean[i] = 0.9f;
        s.sd[i] = 0.05f;
        s.rate[i] = (float)i / 10;
    }
    for (uint32_t i = 0; i < s.n_embd; i++) {
        s.in_mean[i] = value(&x);
        s.in_scale[i] = 1 + value(&x) / 2;
    }
    for (uint32_t i = 0; i < s.n_hidden * s.n_embd; i++)
        s.w1[i] = value(&x);
    for (uint32_t i = 0; i < s.n_hidden; i++)
        s.b1[i] = value(&x);
    for (uint32_t i = 0; i < 5 * s.n_hidden; i++)
        s.w2[i] = value(&x);
    for (uint32_t i = 0; i < 5; i++)
        s.b2[i] = value(&x);
    return s;
}

static int written(const struct ntx_sidecar *s)
{
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_sidecar_write(s, path, &err), "%s", err.text);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

static void round_trip(void)
{
    struct ntx_sidecar s = make_sidecar(), t = {0};
    struct ntx_err err = {0};
    int fd = written(&s);
    CHECK_MSG(!ntx_sidecar_read(fd, MODEL, &t, &err), "%s", err.text);
    CHECK_EQ(t.first, 2);
    CHECK_EQ(t.last, 6);
    CHECK_STR(t.model, MODEL);
    CHECK(t.threshold == 0.75f && t.similarity == 0.9f);
    CHECK(!memcmp(s.w1, t.w1, 9 * 70 * sizeof(float)) && !memcmp(s.w2, t.w2, 9 * 5 * sizeof(float)) &&
          !memcmp(s.b2, t.b2, 5 * sizeof(float)));
    CHECK(!memcmp(s.rate, t.rate, 8 * sizeof(float)) && !memcmp(s.in_scale, t.in_scale, 70 * sizeof(float)));
    ntx_sidecar_free(&t);
    t = (struct ntx_sidecar){0};
    CHECK_EQ(ntx_sidecar_read(fd, OTHER, &t, &err), -EINVAL);
    CHECK_MSG(strstr(err.text, "another model"), "%s", err.text);
    CHECK(!t.w1);
    ntx_sidecar_free(&s);
    close(fd);
}

static void refused(struct ntx_sidecar *s, const char *why)
{
    struct ntx_sidecar t = {0};
    struct ntx_err err = {0};
    int fd = written(s);
    CHECK_MSG(ntx_sidecar_read(fd, NULL, &t, &err) < 0, "accepted, expected: %s", why);
    CHECK_MSG(strstr(err.text, why), "\"%s\" lacks \"%s\"", err.text, why);
    CHECK(!t.w1);
    close(fd);
}

static void hostile_values(void)
{
    struct ntx_sidecar s = make_sidecar();
    s.w1[11] = NAN;
    refused(&s, "'w1' holds a value that is no number");
    s.w1[11] = 0;
    s.b2[1] = INFINITY;
    refused(&s, "'b2'");
    s.b2[1] = 0;
    s.sd[3] = NAN;
    refused(&s, "ntx.skip.sd");
    s.sd[3] = 0;
    s.first = 0; /* one output more than there is room for */
    s.last = 4;
    refused(&s, "ntx.skip.first");
    s.first = 2;
    s.last = 6;
    s.threshold = 2;
    refused(&s, "ntx.skip.threshold");
    ntx_sidecar_free(&s);
}

/* Keys that say more than the tensors hold. */
static void test_hostile_sizes(void)
{
    const uint32_t sizes[][3] = {{8, 65536, 4096}, {512, 70, 9}, {8, 71, 9}, {8, 70, 8}, {8, 65537, 9}, {1, 70, 9}};
    float few[256] = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct ntx_gguf_out *g = ntx_gguf_out_new();
        struct ntx_sidecar t = {0};
        struct ntx_err err = {0};
        ntx_gguf_out_u32(g, "ntx.skip.version", 1);
        ntx_gguf_out_str(g, "ntx.skip.model", MODEL);
        ntx_gguf_out_u32(g, "ntx.skip.layers", sizes[i][0]);
        ntx_gguf_out_u32(g, "ntx.skip.embd", sizes[i][1]);
        ntx_gguf_out_u32(g, "ntx.skip.hidden", sizes[i][2]);
        ntx_gguf_out_u32(g, "ntx.skip.first", 2);
        ntx_gguf_out_u32(g, "ntx.skip.last", sizes[i][0] - 1);
        ntx_gguf_out_u32(g, "ntx.skip.tokens", 1);
        ntx_gguf_out_f32(g, "ntx.skip.threshold", 0.5f);
        ntx_gguf_out_f32(g, "ntx.skip.similarity", 0.5f);
        ntx_gguf_out_tensor(g, "w1", few, 16, 9);
        ntx_gguf_out_tensor(g, "w2", few, 9, 6);
        CHECK_MSG(!ntx_gguf_out_write(g, path, &err), "%s", err.text);
        ntx_gguf_out_free(g);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        CHECK(ntx_sidecar_read(fd, NULL, &t, &err) < 0);
        CHECK(strstr(err.text, "sidecar") && !t.w1);
        close(fd);
    }
}

/* With any byte of the header changed and at any length, the reader gives an error with a text or a valid sidecar,
 * nothing else (the sanitizers check). */
static void test_hostile_bytes(void)
{
    struct ntx_sidecar s = make_sidecar();
    int fd = written(&s);
    uint8_t old, bytes[2048];
    uint32_t x = 3;
    CHECK(pread(fd, bytes, sizeof bytes, 0) == sizeof bytes);
    for (int i = 0; i < 3000; i++) {
        struct ntx_sidecar t = {0};
        struct ntx_err err = {0};
        size_t at = next(&x) % 1400;
        old = bytes[at];
        uint8_t now = (uint8_t)(i % 3 ? old ^ 1u << next(&x) % 8 : next(&x));
        CHECK(pwrite(fd, &now, 1, (off_t)at) == 1);
        if (ntx_sidecar_read(fd, NULL, &t, &err) < 0)
            CHECK(err.text[0] && !t.w1);
        else
            ntx_sidecar_free(&t);
        CHECK(pwrite(fd, &old, 1, (off_t)at) == 1);
    }
    off_t end = lseek(fd, 0, SEEK_END);
    for (off_t n = end - 1; n >= 0; n -= 1 + n / 50) {
        struct ntx_sidecar t = {0};
        struct ntx_err err = {0};
        CHECK_EQ(ftruncate(fd, n), 0);
        if (n < end - 32) /* the padding behind the last tensor may be missing */
            CHECK(ntx_sidecar_read(fd, NULL, &t, &err) < 0 && err.text[0]);
    }
    ntx_sidecar_free(&s);
    close(fd);
}

/* Every kernel gives the same bits, those of the definition. */
static void test_kernels(void)
{
    static const char *const names[] = {"generic", "avx2", "avx512"};
    struct ntx_sidecar s = make_sidecar();
    float h[70], want[5], got[5];
    uint32_t x = 99;
    for (int i = 0; i < 70; i++)
        h[i] = 6 * value(&x);
    h[3] = NAN;
    h[4] = 1e30f;
    for (int o = 0; o < 5; o++)
        want[o] = s.b2[o];
    for (uint32_t j = 0; j < 9; j++) {
        float most = 0, z;
        int32_t sum = 0;
        for (uint32_t i = 0; i < 70; i++)
            most = fmaxf(most, fabsf(s.w1[j * 70 + i]));
        for (uint32_t i = 0; i < 70; i++) {
            float q = (h[i] - s.in_mean[i]) * s.in_scale[i] * 32;
            int32_t k = (int32_t)lrintf(fminf(fmaxf(q, -127), 127));
            sum += k * (int32_t)lrintf(s.w1[j * 70 + i] / (most / 127));
        }
        z = (float)sum * (most / 127 / 32) + s.b1[j];
        for (int o = 0; z > 0 && o < 5; o++)
            want[o] += z * s.w2[(uint32_t)o * 9 + j];
    }
    for (int k = 0; k < 3; k++) {
        struct ntx_mlp *m;
        struct ntx_mlp_weights net = ntx_sidecar_net(&s);
        int rc = ntx_mlp_new(&net, names[k], &m);
        CHECK(!rc || (rc == -ENOTSUP && k));
        if (rc)
            continue;
        CHECK_STR(ntx_mlp_kernel(m), names[k]);
        void *scratch = malloc(ntx_mlp_scratch(m));
        ntx_mlp_logits(m, h, scratch, got);
        CHECK_MSG(!memcmp(want, got, sizeof want), "%s: %g, expected %g", names[k], (double)got[0], (double)want[0]);
        free(scratch);
        ntx_mlp_free(m);
    }
    ntx_sidecar_free(&s);
}

static double accuracy(const struct ntx_sidecar *s, const float *x, const uint8_t *y, uint32_t n)
{
    struct ntx_sidecar plain = *s;
    struct ntx_mlp *m;
    float logits[5];
    uint32_t right = 0;
    for (uint32_t i = 0; i < s->n_embd; i++) {
        plain.in_mean[i] = 0;
        plain.in_scale[i] = 1;
    }
    struct ntx_mlp_weights net = ntx_sidecar_net(&plain);
    CHECK_EQ(ntx_mlp_new(&net, NULL, &m), 0);
    void *scratch = malloc(ntx_mlp_scratch(m));
    for (uint32_t i = 0; i < n; i++) {
        ntx_mlp_logits(m, x + (size_t)i * s->n_embd, scratch, logits);
        for (int o = 0; o < 5; o++)
            right += (logits[o] > 0) == y[i * 5 + (uint32_t)o];
    }
    free(scratch);
    ntx_mlp_free(m);
    return (double)right / n / 5;
}

/* Five rules, one of them not linear, are learned, with the same bits for any number of threads. */
static void test_training(void)
{
    enum { N = 3000, LEARN = 2500 };
    float *x = malloc(N * 70 * sizeof *x);
    uint8_t *y = malloc(N * 5);
    uint32_t order[LEARN], seed = 5;
    float *first = NULL;
    for (uint32_t i = 0; i < N * 70; i++)
        x[i] = roundf(value(&seed) * 64) / 32;
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t o = 0; o < 5; o++)
            y[i * 5 + o] = o < 4 ? x[i * 70 + o] + x[i * 70 + 9] > 0 : x[i * 70 + 20] * x[i * 70 + 20] > 1.2f;
    for (uint32_t i = 0; i < LEARN; i++)
        order[i] = i;
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct ntx_sidecar s = {.n_layers = 8, .n_embd = 70, .n_hidden = 32, .first = 2, .last = 6};
        struct ntx_train t = {.x = x,
                              .y = y,
                              .order = order,
                              .n = LEARN,
                              .epochs = 15,
                              .batch = 32,
                              .threads = threads,
                              .rate = 3e-3f,
                              .seed = 1};
        CHECK_EQ(ntx_sidecar_alloc(&s), 0);
        struct ntx_mlp_weights net = ntx_sidecar_net(&s);
        CHECK_EQ(ntx_train_run(&t, &net), 0);
        double seen = accuracy(&s, x, y, LEARN), held = accuracy(&s, x + LEARN * 70, y + LEARN * 5, N - LEARN);
        CHECK_MSG(seen > 0.88 && held > 0.8, "%.3f, held out %.3f", seen, held);
        if (!first) {
            first = malloc(32 * 70 * sizeof *first);
            memcpy(first, s.w1, 32 * 70 * sizeof *first);
        }
        CHECK_MSG(!memcmp(first, s.w1, 32 * 70 * sizeof *first), "%u threads give other weights", threads);
        ntx_sidecar_free(&s);
    }
    free(first);
    free(x);
    free(y);
}

static uint64_t decide(const char *text, int fd, const float *hidden, const float *similar, uint32_t pos)
{
    struct ntx_policy_sidecar from = {fd, MODEL};
    struct ntx_policy_shape shape = {8, 70, &from};
    struct ntx_policy *p = NULL;
    struct ntx_err err = {0};
    uint64_t skip[NTX_MAP_WORDS];
    CHECK_MSG(!ntx_policy_new(text, &shape, &p, &err), "%s: %s", text, err.text);
    CHECK(p->skips);
    CHECK_EQ(p->probe_layer, 1);
    struct ntx_policy_input in = {.hidden = hidden, .similar = similar, .pos = pos, .session = 1};
    ntx_policy_decide(p, &in, skip);
    ntx_policy_free(p);
    return skip[0];
}

static void not_accepted(const char *text, int fd, const char *model, uint32_t n_layers, const char *why)
{
    struct ntx_policy_sidecar from = {fd, model};
    struct ntx_policy_shape shape = {n_layers, 70, &from};
    struct ntx_policy *p = NULL;
    struct ntx_err err = {0};
    CHECK_MSG(ntx_policy_new(text, &shape, &p, &err) < 0, "%s was accepted", text);
    CHECK_MSG(strstr(err.text, why), "%s: \"%s\" lacks \"%s\"", text, err.text, why);
}

static void test_policies(void)
{
    struct ntx_sidecar s = make_sidecar();
    float h[70] = {0}, similar[8];
    /* b2 alone gives the outputs: probabilities 0.88 0.73 0.5 0.27 0.12 for layers 2 to 6 */
    memset(s.w2, 0, 5 * 9 * sizeof(float));
    for (int o = 0; o < 5; o++)
        s.b2[o] = (float)(2 - o);
    int fd = written(&s);
    CHECK_EQ(decide("static:threshold=0.4", fd, h, NULL, 0), 1 << 4 | 1 << 5 | 1 << 6); /* rates are 0.1 per layer */
    CHECK_EQ(decide("static:threshold=0,max=2", fd, h, NULL, 0), 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6);
    CHECK_EQ(decide("predictive", fd, h, NULL, 0), 1 << 2); /* the sidecar's 0.75 */
    CHECK_EQ(decide("predictive:threshold=0.7", fd, h, NULL, 0), 1 << 2 | 1 << 3);
    CHECK_EQ(decide("predictive:threshold=0.2,max=1", fd, h, NULL, 0), 1 << 2 | 1 << 4);
    CHECK_EQ(decide("predictive:threshold=0", fd, h, NULL, 0), 0x7c);
    CHECK_EQ(decide("predictive:threshold=1", fd, h, NULL, 0), 0);
    for (int l = 0; l < 8; l++)
        similar[l] = NAN;
    CHECK_EQ(decide("predictive:threshold=0.7", fd, h, similar, 0), 1 << 2 | 1 << 3);
    similar[2] = 0.75f; /* three deviations less alike than in the calibration: the limit rises by 1.5 logits */
    similar[4] = 1.0f;  /* two deviations more alike: the limit falls by 1 logit */
    CHECK_EQ(decide("predictive:threshold=0.7", fd, h, similar, 0), 1 << 3 | 1 << 4);
    CHECK_EQ(decide("predictive:threshold=0.7,gain=0", fd, h, similar, 0), 1 << 2 | 1 << 3);
    CHECK_EQ(decide("random:1,2-5", fd, h, NULL, 0), 0x3c);
    CHECK_EQ(decide("random:0,2-5", fd, h, NULL, 0), 0);
    CHECK_EQ(decide("random:0.5,2-5,9", fd, h, NULL, 77), decide("random:0.5,2-5,9", fd, h, NULL, 77));
    unsigned ones = 0;
    for (uint32_t pos = 0; pos < 500; pos++)
        ones += (unsigned)__builtin_popcountll(decide("random:0.25,2-5", fd, h, NULL, pos));
    CHECK_MSG(ones > 430 && ones < 570, "%u of 2000 at a quarter", ones);
    not_accepted("predictive", fd, OTHER, 8, "another model");
    not_accepted("predictive", fd, MODEL, 9, "8 layers of width 70, the model has 9");
    not_accepted("static", -1, MODEL, 8, "ntx calibrate");
    not_accepted("predictive:speed=1", fd, MODEL, 8, "'speed=1'");
    not_accepted("predictive:threshold=1.5", fd, MODEL, 8, "from 0 to 1");
    not_accepted("random:0.5", fd, MODEL, 8, "FIRST-LAST");
    not_accepted("random:0.5,0-3", fd, MODEL, 8, "layers from 1 to 7");
    ntx_sidecar_free(&s);
    close(fd);
}

int main(void)
{
    close(temporary_file(path, sizeof path, "test"));
    round_trip();
    hostile_values();
    test_hostile_sizes();
    test_hostile_bytes();
    test_kernels();
    test_training();
    test_policies();
    unlink(path);
    return 0;
}
