/* SPDX-License-Identifier: Apache-2.0 */
/* roundtrip.c: the time from a probe on the board to its decision, through the real ntx-predictor and the real
 * links, one probe at a time: with a scripted policy, whose answer costs nothing, and with a network of a 70B
 * model's shape (8192 x 256, 80 layers). It also measures the network alone, by kernel, and the machine's floor: a
 * byte to another process and back over a socket pair. "cold": 64 MiB are read before each probe, as a forward pass
 * would, so that the network's weights have left the cores' private caches. The measurements alternate. CSV on
 * stdout. */
#include <errno.h>
#include <fcntl.h>
#include <ntx_version.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/util.h"
#include "model/mlp.h"
#include "predictor/sidecar.h"
#include "tests/lib/check.h"
#include "tests/lib/predictor_harness.h"

#define MAX_N   100000
#define WARM_UP 200
#define WIDTH   8192u
#define HIDDEN  256u
#define LAYERS  80u
#define STATES  64u
#define SWEEP   (64u << 20)

static uint32_t took_ns[MAX_N];
static struct ntx_sidecar sidecar;
static int sidecar_fd;
static float *states; /* [STATES x WIDTH] */

static void sweep_caches(void)
{
    static uint64_t *memory;
    if (!memory) {
        CHECK((memory = malloc(SWEEP)) != NULL);
        memset(memory, 1, SWEEP);
    }
    uint64_t s = 0;
    for (size_t i = 0; i < SWEEP / sizeof *memory; i += 8) /* a value per cache line */
        s += memory[i];
    CHECK(s);
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, unsigned n)
{
    qsort(took_ns, n, sizeof *took_ns, by_value);
    printf("%s,%u,%.1f,%.1f,%.1f,%s\n", what, n, took_ns[n / 2] / 1e3, took_ns[n - n / 100 - 1] / 1e3,
           took_ns[n - 1] / 1e3, NTX_COMMIT);
    fflush(stdout);
}

static void bench_socket(unsigned n, bool sweep)
{
    int s[2];
    char c = 0;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        close(s[0]);
        while (read(s[1], &c, 1) == 1)
            (void)!write(s[1], &c, 1);
        _exit(0);
    }
    close(s[1]);
    for (unsigned i = 0; i < n + WARM_UP; i++) {
        if (sweep)
            sweep_caches();
        uint64_t t0 = ntx_now_ns();
        CHECK(write(s[0], &c, 1) == 1 && read(s[0], &c, 1) == 1);
        if (i >= WARM_UP)
            took_ns[i - WARM_UP] = (uint32_t)(ntx_now_ns() - t0);
    }
    close(s[0]);
    waitpid(pid, NULL, 0);
    report(sweep ? "socketpair_cold" : "socketpair", n);
}

/* The network alone, on states that are not in its cache; with `sweep`, neither are its weights. */
static void bench_network(const char *kernel, unsigned n, bool sweep)
{
    struct ntx_mlp *m;
    char what[64];
    float logits[LAYERS];
    struct ntx_mlp_weights net = ntx_sidecar_net(&sidecar);
    int rc = ntx_mlp_new(&net, kernel, &m);
    if (rc == -ENOTSUP)
        return;
    CHECK_EQ(rc, 0);
    void *scratch = aligned_alloc(64, NTX_ROUND_UP(ntx_mlp_scratch(m), 64));
    CHECK(scratch != NULL);
    for (unsigned i = 0; i < n + WARM_UP; i++) {
        if (sweep)
            sweep_caches();
        uint64_t t0 = ntx_now_ns();
        ntx_mlp_logits(m, states + i % STATES * WIDTH, scratch, logits);
        if (i >= WARM_UP)
            took_ns[i - WARM_UP] = (uint32_t)(ntx_now_ns() - t0);
    }
    snprintf(what, sizeof what, "network_%ux%u_%s%s", WIDTH, HIDDEN, kernel, sweep ? "_cold" : "");
    free(scratch);
    ntx_mlp_free(m);
    report(what, n);
}

/* One probe at a time, its state copied to the board as computed does it. */
static void bench_decision(const char *what, const char *policy, uint32_t n_layers, uint32_t width, unsigned n,
                           bool sweep)
{
    struct harness h;
    harness_start_for(&h, n_layers, width);
    h.sidecar = sidecar_fd;
    h.model = sidecar.model;
    harness_spawn(&h);
    harness_attach(&h);
    harness_policy(&h, policy, "");
    CHECK_STR(h.error, "");
    for (unsigned i = 0; i < n + WARM_UP; i++) {
        if (sweep)
            sweep_caches();
        uint64_t t0 = ntx_now_ns();
        h.decisions = 0;
        memcpy(h.region.board.data, states + i % STATES * WIDTH, width * sizeof *states);
        harness_show(&h, 0, i + 1, i, 0);
        harness_notice(&h, 0, i + 1, i);
        while (!h.decisions)
            uv_run(&h.loop, UV_RUN_ONCE); /* asleep in the loop, as computed is */
        if (i >= WARM_UP)
            took_ns[i - WARM_UP] = (uint32_t)(ntx_now_ns() - t0);
    }
    if (n_layers == HARNESS_LAYERS)
        CHECK_EQ(h.decision[0].skip, 1 << 3 | 1 << 5);
    harness_end(&h);
    report(what, n);
}

static float value(uint32_t *x)
{
    *x = *x * 1664525 + 1013904223;
    return (float)(*x >> 8) / (float)(1 << 23) - 1;
}

/* A sidecar of a 70B model's shape. Its answers are noise, but its cost is real. */
static void make_sidecar(void)
{
    struct ntx_err err = {0};
    char path[] = "/tmp/ntx-bench-XXXXXX";
    uint32_t x = 1;
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    sidecar = (struct ntx_sidecar){.model = "0123456789abcdef0123456789abcdef",
                                   .n_layers = LAYERS,
                                   .n_embd = WIDTH,
                                   .n_hidden = HIDDEN,
                                   .first = 10,
                                   .last = LAYERS - 2,
                                   .n_tokens = 1,
                                   .threshold = 0.5f,
                                   .similarity = 0.9f};
    CHECK_EQ(ntx_sidecar_alloc(&sidecar), 0);
    for (uint32_t i = 0; i < WIDTH; i++)
        sidecar.in_scale[i] = 1;
    for (uint32_t i = 0; i < WIDTH * HIDDEN; i++)
        sidecar.w1[i] = value(&x) / 50;
    for (uint32_t i = 0; i < ntx_sidecar_outputs(&sidecar) * HIDDEN; i++)
        sidecar.w2[i] = value(&x) / 8;
    CHECK((states = malloc(sizeof *states * WIDTH * STATES)) != NULL);
    for (uint32_t i = 0; i < WIDTH * STATES; i++)
        states[i] = value(&x);
    CHECK_MSG(!ntx_sidecar_write(&sidecar, path, &err), "%s", err.text);
    sidecar_fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(sidecar_fd >= 0);
    unlink(path);
}

int main(int argc, char **argv)
{
    static const char *const kernels[] = {"generic", "avx2", "avx512"};
    long n = argc > 1 ? atol(argv[1]) : 10000;
    if (argc > 2 || n < 100 || n > MAX_N) {
        fprintf(stderr, "usage: %s [N]   N from 100 to %d round trips, default 10000\n", argv[0], MAX_N);
        return 100;
    }
    unsigned few = NTX_MIN((unsigned)n, 1000u);
    make_sidecar();
    puts("what,n,p50_us,p99_us,max_us,commit");
    for (unsigned k = 0; k < 3; k++) {
        bench_network(kernels[k], few, false);
        bench_network(kernels[k], few, true);
    }
    for (unsigned turn = 0; turn < 2; turn++) {
        bench_socket((unsigned)n, false);
        bench_decision("script", "script:3,5", HARNESS_LAYERS, 32, (unsigned)n, false);
        bench_decision("predictive_8192x256", "predictive", LAYERS, WIDTH, (unsigned)n, false);
        bench_socket(few, true);
        bench_decision("script_cold", "script:3,5", HARNESS_LAYERS, 32, few, true);
        bench_decision("predictive_8192x256_cold", "predictive", LAYERS, WIDTH, few, true);
    }
    ntx_sidecar_free(&sidecar);
    free(states);
    close(sidecar_fd);
    return 0;
}
