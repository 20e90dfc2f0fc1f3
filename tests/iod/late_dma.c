/* The rule of tainted slots on a slowed drive (blkio.throttle): after kill -9 reads go on landing in the dead iod's slots, while its
 * successor already fills others. Seen here: bytes do change there after the death, none of them reaches a chunk that is
 * consumed, and once the dead ring shows as many completions as submissions, nothing changes any more.
 * Needs root and the blkio controller of cgroup v1, or io of v2; skipped without. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/util.h"
#include "harness.h"
#include "temp.h"
#include "tests/check.h"

#define RATE 41943040u
#define MARK 0xa5

static const struct harness_shape shape = {
    .file_bytes = 16 * 1048576 + 4321, .chunk_bytes = 1048576, .n_desc = 4, .n_slots = 16, .n_demands = 1, .frame_bytes = 8192};

static char group[128], parent[64];

static int put(const char *dir, const char *file, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int rc = fd < 0 ? -1 : ntx_write_all(fd, text, strlen(text));
    if (fd >= 0)
        close(fd);
    return rc;
}

static bool enter(const char *root, const char *file, const char *rule)
{
    snprintf(parent, sizeof(parent), "%s", root);
    snprintf(group, sizeof(group), "%s/ntx-late-dma-%d", root, (int)getpid());
    if (access(root, W_OK) || mkdir(group, 0700))
        return false;
    if (!put(group, file, rule) && !put(group, "cgroup.procs", "0"))
        return true;
    rmdir(group);
    return false;
}

static void leave(void)
{
    put(parent, "cgroup.procs", "0");
    rmdir(group);
}

/* The whole disk under the build tree: a partition has no throttle of its own. */
static bool slow_down(int fd)
{
    char path[96], rule[64], v2[80];
    struct stat st;
    unsigned maj, min;
    CHECK(!fstat(fd, &st));
    maj = major(st.st_dev), min = minor(st.st_dev);
    snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/../dev", maj, min);
    FILE *f = fopen(path, "re");
    if (f) {
        if (fscanf(f, "%u:%u", &maj, &min) != 2)
            maj = major(st.st_dev), min = minor(st.st_dev);
        fclose(f);
    }
    snprintf(rule, sizeof(rule), "%u:%u %u", maj, min, RATE);
    snprintf(v2, sizeof(v2), "%u:%u rbps=%u", maj, min, RATE);
    return enter("/sys/fs/cgroup/blkio", "blkio.throttle.read_bps_device", rule) || enter("/sys/fs/cgroup", "io.max", v2);
}

static void consume_good(struct harness *h)
{
    const struct ntx_plan_chunk *p;
    CHECK_EQ(harness_wait_seq(h), NTX_READY);
    const uint8_t *bytes = harness_bytes(h, &p);
    CHECK(temp_same(bytes, p->offset, p->bytes));
    harness_release(h);
}

static void mark_tainted(struct harness *h)
{
    for (uint32_t i = 0; i < shape.n_slots; i++)
        if (h->region.taint[i])
            memset(ntx_region_slot(&h->region, i), MARK, h->region.hdr->slot_bytes);
}

/* Bytes in tainted slots that are not the mark any more. */
static uint64_t landed(struct harness *h)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < shape.n_slots; i++)
        for (uint64_t k = 0; h->region.taint[i] && k < h->region.hdr->slot_bytes; k++)
            n += ntx_region_slot(&h->region, i)[k] != MARK;
    return n;
}

/* One death. Returns the bytes that landed after it. */
static uint64_t die_once(struct harness *h)
{
    kill(h->pid, SIGKILL);
    harness_bury(h);
    struct harness dead = *h; /* its ring, until it is proved finished */
    h->ring_map = NULL;
    h->ring_dup = -1;
    mark_tainted(h);
    harness_start(h, &h->config);
    consume_good(h);
    for (uint64_t until = ntx_now_ns() + 20000000000ull; !harness_drained(&dead);)
        CHECK(ntx_now_ns() < until);
    uint64_t n = landed(h);
    consume_good(h);
    CHECK_EQ(landed(h), n);
    harness_drop_ring(&dead);
    harness_untaint(h);
    return n;
}

int main(void)
{
    struct harness h;
    int file = temp_file(NULL, shape.file_bytes);
    if (geteuid())
        SKIP("only root may throttle a drive");
    if (!slow_down(file))
        SKIP("no blkio (cgroup v1) or io (v2) controller to throttle this drive with");
    atexit(leave);
    harness_open(&h, &shape, file);
    harness_start(&h, &(struct harness_config){.inflight = 3 << 20, .piece = 512 << 10});
    uint64_t bytes = 0;
    if (!h.ring_map) {
        harness_close(&h);
        SKIP("no io_uring here");
    }
    for (unsigned k = 0; k < 8; k++) {
        consume_good(&h);
        bytes += die_once(&h);
    }
    harness_close(&h);
    printf("%llu bytes landed after their process was gone, none of them in a chunk\n", (unsigned long long)bytes);
    if (!bytes)
        SKIP("the throttle did not take: no read outlived its process");
    return 0;
}
