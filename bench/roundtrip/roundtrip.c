/* roundtrip.c: how long from a probe on the board to its decision, through the real ntx-predictor and the real links, one at a time.
 * First the machine's own ceiling: a byte to another process and back over a socket pair. Two turns of each (A B B A).
 * CSV on stdout. */
#include <errno.h>
#include <ntx_version.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/check.h"
#include "tests/predictor/harness.h"

#define MAX_N 100000
#define WARM_UP 200

static uint32_t took_ns[MAX_N];

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, unsigned n)
{
    qsort(took_ns, n, sizeof *took_ns, by_value);
    printf("%s,%u,%.1f,%.1f,%.1f,%s\n", what, n, took_ns[n / 2] / 1e3, took_ns[n - n / 100 - 1] / 1e3, took_ns[n - 1] / 1e3, NTX_COMMIT);
    fflush(stdout);
}

static void bench_socket(unsigned n)
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
        uint64_t t0 = ntx_now_ns();
        CHECK(write(s[0], &c, 1) == 1 && read(s[0], &c, 1) == 1);
        if (i >= WARM_UP)
            took_ns[i - WARM_UP] = (uint32_t)(ntx_now_ns() - t0);
    }
    close(s[0]);
    waitpid(pid, NULL, 0);
    report("socketpair", n);
}

static void bench_decision(unsigned n)
{
    struct harness h;
    harness_start(&h);
    harness_spawn(&h);
    harness_attach(&h);
    harness_policy(&h, "script:3,5", "");
    for (unsigned i = 0; i < n + WARM_UP; i++) {
        uint64_t t0 = ntx_now_ns();
        h.decisions = 0;
        harness_show(&h, 0, i + 1, i, 0);
        harness_notice(&h, 0, i + 1, i);
        while (!h.decisions)
            uv_run(&h.loop, UV_RUN_ONCE); /* asleep in the loop, as computed is */
        CHECK_EQ(h.decision[0].skip, 1 << 3 | 1 << 5);
        if (i >= WARM_UP)
            took_ns[i - WARM_UP] = (uint32_t)(ntx_now_ns() - t0);
    }
    harness_end(&h);
    report("probe_to_decision", n);
}

int main(int argc, char **argv)
{
    long n = argc > 1 ? atol(argv[1]) : 10000;
    if (argc > 2 || n < 100 || n > MAX_N) {
        fprintf(stderr, "usage: %s [N]   N from 100 to %d round trips, default 10000\n", argv[0], MAX_N);
        return 100;
    }
    puts("what,n,p50_us,p99_us,max_us,commit");
    bench_socket((unsigned)n);
    bench_decision((unsigned)n);
    bench_decision((unsigned)n);
    bench_socket((unsigned)n);
    return 0;
}
