/* SPDX-License-Identifier: Apache-2.0 */
/* stream: how fast a real ntx-iod fills the ring when the consumer takes everything at once, and what that costs.
 *
 *   stream FILE SECONDS [chunk=KIB] [desc=N] [inflight=KIB] [piece=KIB] [source=NAME] [rate=B/S]
 *
 * Prints one CSV row: GB/s, iod's CPU in percent of a core, wake-ups per second, share of huge pages, settings. The
 * rate is taken between two looks at the counters, after a first quarter of warming up. */
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/lib/check.h"
#include "tests/lib/iod_harness.h"

struct look {
    uint64_t at, bytes, fallback, wakes;
    double cpu_s;
};

static double cpu_of(pid_t pid)
{
    clockid_t clock;
    struct timespec t = {0};
    CHECK(!clock_getcpuclockid(pid, &clock) && !clock_gettime(clock, &t));
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct look look(const struct harness *h)
{
    return (struct look){.at = ntx_now_ns(),
                         .bytes = ntx_counter_get(h->counters, NTX_C_iod_bytes_read),
                         .fallback = ntx_counter_get(h->counters, NTX_C_iod_bytes_fallback),
                         .wakes = ntx_counter_get(h->counters, NTX_C_iod_wakeups),
                         .cpu_s = cpu_of(h->pid)};
}

static void drain_until(struct harness *h, uint64_t end)
{
    while (ntx_now_ns() < end) {
        CHECK_EQ(harness_wait_seq(h), NTX_READY);
        harness_release(h);
    }
}

static const char *option(int argc, char **argv, const char *name, const char *fallback)
{
    for (int i = 3; i < argc; i++)
        if (!strncmp(argv[i], name, strlen(name)) && argv[i][strlen(name)] == '=')
            return argv[i] + strlen(name) + 1;
    return fallback;
}

static uint64_t number(int argc, char **argv, const char *name, const char *fallback)
{
    return strtoull(option(argc, argv, name, fallback), NULL, 10);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: stream FILE SECONDS [chunk=KIB] [desc=N] [inflight=KIB] [piece=KIB] [source=NAME] "
                        "[rate=BYTES/S]\n");
        return 100;
    }
    struct stat st;
    struct harness h;
    int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    CHECK_MSG(fd >= 0 && !fstat(fd, &st) && st.st_size > 0, "%s", argv[1]);
    uint64_t seconds = strtoull(argv[2], NULL, 10), desc = number(argc, argv, "desc", "8");
    struct harness_shape s = {.file_bytes = (uint64_t)st.st_size,
                              .chunk_bytes = (uint32_t)number(argc, argv, "chunk", "4096") << 10,
                              .n_desc = (uint32_t)desc,
                              .n_slots = (uint32_t)desc + 2};
    struct harness_config c = {.source = option(argc, argv, "source", "auto"),
                               .inflight = number(argc, argv, "inflight", "4096") << 10,
                               .piece = number(argc, argv, "piece", "512") << 10,
                               .rate_bps = (double)number(argc, argv, "rate", "0")};
    harness_open(&h, &s, fd);
    if (h.note[0])
        fprintf(stderr, "region: %s\n", h.note);
    harness_start(&h, &c);
    drain_until(&h, ntx_now_ns() + seconds * 250000000ull);
    struct look a = look(&h);
    drain_until(&h, ntx_now_ns() + seconds * 750000000ull);
    struct look b = look(&h);
    double s_ = (double)(b.at - a.at) / 1e9;
    printf("iod,%.3f,%.2f,%.0f,%.2f,%s,%uK,desc %u,in flight %lluK,piece %lluK,fallback %llu\n",
           (double)(b.bytes - a.bytes) / s_ / 1e9, (b.cpu_s - a.cpu_s) / s_ * 100, (double)(b.wakes - a.wakes) / s_,
           h.region.huge_share, c.source, s.chunk_bytes >> 10, s.n_desc, (unsigned long long)c.inflight >> 10,
           (unsigned long long)c.piece >> 10, (unsigned long long)b.fallback);
    harness_close(&h);
    return 0;
}
