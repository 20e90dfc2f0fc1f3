/* SPDX-License-Identifier: Apache-2.0 */
/* K and V in a file: a pass sees in each block what was last written there, whatever was dropped meanwhile, within the
 * given memory; a drive's fault is an error of the pass that wanted the bytes, and of no later one. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/state/kv_file.h"
#include "tests/lib/check.h"

/* A page has 64 units. */
#ifdef PRETEND_PAGE
enum { UNIT = PRETEND_PAGE / 64, ROUNDS = 1 }; /* more is the same again, and larger */
#else
enum { UNIT = 64, ROUNDS = 2 };
#endif

enum {
    LAYERS = 16,
    PARTS = 18,
    TOPK_PARTS = 16 /* top-k parts from there on */,
    BLOCKS = 70,
    CLUSTER = 4,
    NONE = NTX_KV_NO_PART
};

/* Layer 2 keeps nothing; layer 3 reads two parts, whose runs end within pages; the last layer reads the first one's.
 * Layers 5 and 6 also read top-k parts, in runs of one block and of two. */
static struct ntx_kv_part parts[PARTS];
static uint16_t reads[LAYERS][NTX_KV_READS];
static struct ntx_kv_layout layout = {.n_blocks = BLOCKS,
                                      .cluster = CLUSTER,
                                      .n_layers = LAYERS,
                                      .n_parts = PARTS,
                                      .part = parts,
                                      .reads = (const uint16_t (*)[NTX_KV_READS])reads};

static void lay_out(void)
{
    for (uint16_t i = 0; i < PARTS; i++) {
        parts[i] = (struct ntx_kv_part){64 * UNIT, i < TOPK_PARTS ? 0 : i - TOPK_PARTS + 1, i >= TOPK_PARTS};
        if (i >= LAYERS)
            continue;
        reads[i][0] = i;
        reads[i][1] = reads[i][2] = NONE;
    }
    parts[2].row = parts[LAYERS - 1].row = 0;
    parts[3].row = 41 * UNIT;
    parts[4].row = 55 * UNIT;
    parts[17].row = 32 * UNIT;
    reads[2][0] = reads[4][0] = NONE;
    reads[LAYERS - 1][0] = 0;
    reads[3][1] = 4;
    reads[6][1] = 17;
    reads[5][2] = 16;
}

static struct {
    struct ntx_kv_file *f;
    int fd;
    uint64_t most;
    uint32_t told[BLOCKS][PARTS]; /* what was written there; 0: nothing */
    uint32_t n_told, n_passes;
} w;

static const char *dir(void) { return getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp"; }

static void open_slow(uint64_t more, bool ring, struct ntx_drive drive)
{
    struct ntx_err err = {0};
    struct rlimit had, none;
    memset(&w, 0, sizeof w);
    w.most = ntx_kv_file_least(&layout) + more;
    w.fd = ntx_kv_file_open(dir(), ntx_kv_file_bytes(&layout), &err);
    if (w.fd < 0) {
        printf("skipped: %s\n", err.text);
        exit(77);
    }
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &had), 0);
    none = had;
    none.rlim_cur = 0; /* so that no ring can be made */
    CHECK_EQ(ring ? 0 : setrlimit(RLIMIT_NOFILE, &none), 0);
    CHECK_EQ(ntx_kv_file_new(w.fd, &layout, w.most, drive, &w.f, &err), 0);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &had), 0);
}

static void open_file(uint64_t more, bool ring) { open_slow(more, ring, (struct ntx_drive){0}); }

static void close_file(void)
{
    struct ntx_kv_file_stats s = ntx_kv_file_stats(w.f);
    CHECK_MSG(s.held_most <= w.most, "held %llu of %llu", (unsigned long long)s.held_most, (unsigned long long)w.most);
    CHECK(s.read_bytes > w.most);
    ntx_kv_file_free(w.f);
}

static uint32_t *word(uint32_t block, uint32_t part)
{
    const uint32_t run = parts[part].run ? parts[part].run : CLUSTER;
    uint8_t *at = ntx_kv_file_at(w.f, block, part);
    CHECK_MSG(at, "block %u of part %u is not in memory", block, part);
    return (uint32_t *)(void *)(at + block % run * parts[part].row);
}

static void put(uint32_t block, uint32_t part)
{
    w.told[block][part] = ++w.n_told;
    for (size_t i = 0; i < parts[part].row / 4; i++)
        word(block, part)[i] = w.n_told * 2654435761u + (uint32_t)i;
}

static void look(uint32_t block, uint32_t part)
{
    uint32_t told = w.told[block][part];
    for (size_t i = 0; told && i < parts[part].row / 4; i++)
        CHECK_MSG(word(block, part)[i] == told * 2654435761u + (uint32_t)i,
                  "block %u, part %u, word %zu: %u for %u of %u", block, part, i,
                  (word(block, part)[i] - (uint32_t)i) * 244002641u, told, w.n_told);
}

static bool chooses(uint32_t part, uint32_t i) { return part < TOPK_PARTS || (i * 7 + w.n_passes) % 5 == 0; }

/* A pass over n blocks, of which those from `written` on are written. some: reads a fifth of the top-k parts, and those
 * blocks. `attends` layers attend; the others read only pooled blocks, from `joined` on. */
static int run_layers(const uint32_t *blocks, uint32_t n, uint32_t joined, uint32_t written, uint32_t attends,
                      bool some)
{
    int rc = 0;
    w.n_passes++;
    ntx_kv_file_add(w.f, blocks, n, joined, written);
    ntx_kv_file_begin(w.f, attends, some);
    CHECK_EQ(ntx_kv_file_has_topk(w.f), some);
    for (uint32_t l = 0; l < LAYERS && !rc; l++) {
        rc = ntx_kv_file_starts(w.f, l);
        for (uint32_t k = 0; k < NTX_KV_READS && !rc && l < LAYERS - 1; k++)
            for (uint32_t i = written; i < n && reads[l][k] != NONE; i++)
                put(blocks[i], reads[l][k]);
        rc = rc ? rc : ntx_kv_file_wants(w.f, l);
        for (uint32_t k = 0; k < NTX_KV_READS && !rc && some; k++)
            for (uint32_t i = 0; i < n && l < attends && reads[l][k] != NONE && reads[l][k] >= TOPK_PARTS; i++)
                if (chooses(reads[l][k], i))
                    ntx_kv_file_set_topk(w.f, blocks[i], reads[l][k]);
        rc = rc ? rc : ntx_kv_file_topk(w.f);
        for (uint32_t k = 0; k < NTX_KV_READS && !rc; k++)
            for (uint32_t i = 0; i < n && reads[l][k] != NONE; i++)
                if (i >= written || (l < attends && (!some || chooses(reads[l][k], i))) || !reads[l][k] ||
                    (i >= joined && reads[l][k] < TOPK_PARTS))
                    look(blocks[i], reads[l][k]);
        ntx_kv_file_done(w.f, l);
    }
    ntx_kv_file_end(w.f);
    return rc;
}

static int run_pass(const uint32_t *blocks, uint32_t n, uint32_t written, bool some)
{
    return run_layers(blocks, n, written, written, LAYERS, some);
}

static int pass(const uint32_t *blocks, uint32_t n, uint32_t written)
{
    const uint32_t joined = written - NTX_MIN(written, w.n_passes % 4);
    return run_layers(blocks, n, joined, written, w.n_passes % 5 == 2 ? LAYERS - 2 : LAYERS, w.n_passes % 3 == 1);
}

/* Blocks of two texts, which change places in the file. */
static void order(uint32_t *a, uint32_t *b)
{
    for (uint32_t i = 0; i < BLOCKS / 2; i++) {
        a[i] = (i * 37 + 5) % BLOCKS;
        b[i] = ((i + BLOCKS / 2) * 37 + 5) % BLOCKS;
    }
}

static void texts_grow(uint64_t more, bool ring)
{
    uint32_t a[BLOCKS / 2], b[BLOCKS / 2];
    open_file(more, ring);
    order(a, b);
    for (uint32_t n = 1; n <= BLOCKS / 2; n += 2) {
        CHECK_EQ(pass(a, n, n > 3 ? n - 3 : 0), 0);
        CHECK_EQ(pass(b, n, n > 2 ? n - 2 : 0), 0);
        CHECK_EQ(pass(a, n, n - 1), 0);
    }
    for (uint32_t i = 0; i < 2 * BLOCKS; i++) { /* outside passes */
        uint32_t block = i * 53 % BLOCKS, part = i % PARTS;
        if (!parts[part].row)
            continue;
        CHECK_EQ(ntx_kv_file_touch(w.f, block, part, part == 5 ? 16 : NONE, i % 3 == 0), 0);
        look(block, part);
        if (part == 5)
            look(block, 16);
        if (i % 3 == 0)
            put(block, part);
        if (i % 3 == 0 && part == 5)
            put(block, 16);
        if (i % 16 == 0)
            CHECK_EQ(pass(i % 32 ? a : b, BLOCKS / 2, BLOCKS / 2 - 1), 0);
    }
    CHECK_EQ(pass(a, BLOCKS / 2, BLOCKS / 2), 0);
    close_file();
}

static bool there(uint32_t block, uint32_t part) { return ntx_kv_file_at(w.f, block, part); }

/* Outside passes: a touched run is in memory until two others were touched, also if it was touched before, or is shared
 * with another one. */
static void guests_stay(void)
{
    uint32_t a[BLOCKS / 2], b[BLOCKS / 2], out[3], n = 0;
    open_file(0, true);
    order(a, b);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(pass(a, BLOCKS / 2, i ? BLOCKS / 2 : 0), 0);
        CHECK_EQ(pass(b, BLOCKS / 2, i ? BLOCKS / 2 : 0), 0);
    }
    for (uint32_t first = 0; first < BLOCKS - CLUSTER && n < 3; first += CLUSTER)
        if (!there(first, 14) && !there(first, 5) && !there(first, 16) && !there(first + 1, 16))
            out[n++] = first;
    CHECK_EQ(n, 3);
    const uint32_t plain[4] = {out[0], out[1], out[0], out[2]}, near[3] = {out[0], out[0] + 1, out[1]};
    for (int i = 0; i < 4; i++)
        CHECK_EQ(ntx_kv_file_touch(w.f, plain[i], 14, NONE, false), 0);
    look(out[0], 14);
    look(out[2], 14);
    CHECK(!there(out[1], 14));
    for (int i = 0; i < 3; i++)
        CHECK_EQ(ntx_kv_file_touch(w.f, near[i], 16, 5, false), 0);
    for (int i = 1; i < 3; i++) {
        look(near[i], 16);
        look(near[i], 5);
    }
    CHECK(!there(near[0], 16));
    CHECK_EQ(ntx_kv_file_touch(w.f, out[2], 16, 5, false), 0);
    CHECK_EQ(ntx_kv_file_touch(w.f, out[0], 14, NONE, false), 0);
    CHECK(!there(near[1], 5) && !there(near[1], 16));
    close_file();
}

/* Until it is mended, the file's replacement can only be written, or only be read. */
static void faults(bool ring)
{
    uint32_t a[BLOCKS / 2], b[BLOCKS / 2];
    open_file(0, ring);
    order(a, b);
    CHECK_EQ(pass(a, BLOCKS / 2, 0), 0);
    CHECK_EQ(pass(b, BLOCKS / 2, 0), 0);
    int good = dup(w.fd), bad[2] = {open("/dev/null", O_WRONLY), open("/dev/null", O_RDONLY)};
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(dup2(bad[i], w.fd), w.fd);
        CHECK_MSG(pass(a, BLOCKS / 2, BLOCKS / 2 - 1) < 0, "fault %d is not told", i);
        CHECK_MSG(ntx_kv_file_touch(w.f, 0, 0, NONE, false) < 0 || ntx_kv_file_touch(w.f, 60, 1, NONE, false) < 0 ||
                      ntx_kv_file_touch(w.f, 30, 3, NONE, false) < 0,
                  "fault %d is not told beside a pass", i);
        CHECK_EQ(dup2(good, w.fd), w.fd);
        CHECK_EQ(pass(b, BLOCKS / 2, BLOCKS / 2 - 1), 0);
        CHECK_EQ(pass(a, BLOCKS / 2, BLOCKS / 2 - 1), 0);
        close(bad[i]);
    }
    close(good);
    close_file();
}

/* Of passes over the same blocks, without memory to spare, one with a top-k reads exactly its selection; and one in
 * which two layers do not attend reads nothing of the part that only one of these has. */
static void reads_what_is_wanted(void)
{
    uint32_t a[BLOCKS / 2], b[BLOCKS / 2];
    uint64_t read[5], saved = 0;
    open_file(0, true);
    order(a, b);
    CHECK_EQ(run_pass(a, BLOCKS / 2, 0, false), 0);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(run_pass(b, BLOCKS / 2, i ? BLOCKS / 2 : 0, false), 0); /* nothing of the other text stays */
        CHECK_EQ(ntx_kv_file_wants(w.f, 1), 0); /* what is read ahead for the next pass has come */
        uint64_t before = ntx_kv_file_stats(w.f).read_bytes;
        CHECK_EQ(run_layers(a, BLOCKS / 2, BLOCKS / 2, BLOCKS / 2, i == 4 ? LAYERS - 2 : LAYERS, i % 2), 0);
        CHECK_EQ(ntx_kv_file_wants(w.f, 1), 0);
        CHECK_EQ(run_pass(b, BLOCKS / 2, BLOCKS / 2, false), 0);
        CHECK_EQ(ntx_kv_file_wants(w.f, 1), 0);
        read[i] = ntx_kv_file_stats(w.f).read_bytes - before;
    }
    for (uint32_t block = 0; block < BLOCKS;
         block++) { /* all clusters have blocks of the text: runs that the last pass did not select */
        bool wants[2] = {false};
        for (uint32_t i = 0; i < BLOCKS / 2; i++)
            for (uint32_t k = 0; k < 2; k++)
                wants[k] |= a[i] / (k + 1) * (k + 1) == block && (i * 7 + w.n_passes - 4) % 5 == 0;
        saved += !wants[0] * parts[16].row + (!wants[1] && block % 2 == 0) * 2 * parts[17].row;
    }
    CHECK_EQ(read[2] - read[3], saved);
    CHECK_EQ(read[2] - read[4], (BLOCKS + CLUSTER - 1) / CLUSTER * CLUSTER * parts[LAYERS - 2].row);
    CHECK_EQ(ntx_kv_file_reads(&layout, BLOCKS, w.most, LAYERS, 0) -
                 ntx_kv_file_reads(&layout, BLOCKS, w.most, LAYERS - 2, 0),
             BLOCKS / CLUSTER * CLUSTER * parts[LAYERS - 2].row); /* one cluster stays */
    close_file();
}

/* A drive that another process reads, too, at the same rate: as slow as both together. */
static void shares_a_slow_drive(void)
{
    enum { ROUNDS_OF = 3, RATE = 100000000 };
    _Atomic uint64_t until = 0;
    const struct ntx_drive drive = {&until, 1e9 / RATE};
    uint32_t a[BLOCKS / 2], b[BLOCKS / 2];
    open_slow(0, true, drive);
    order(a, b);
    CHECK_EQ(run_pass(a, BLOCKS / 2, 0, false), 0);
    CHECK_EQ(run_pass(b, BLOCKS / 2, 0, false), 0);
    const uint64_t before = ntx_kv_file_stats(w.f).read_bytes, t0 = ntx_now_ns();
    uint64_t others = 0;
    for (int i = 0; i < ROUNDS_OF; i++) {
        (void)ntx_drive_due(drive, 4 << 20, ntx_now_ns(), NTX_DRIVE_CREDIT_NS);
        others += 4 << 20;
        CHECK_EQ(run_pass(i % 2 ? b : a, BLOCKS / 2, BLOCKS / 2, false), 0);
    }
    CHECK_EQ(ntx_kv_file_wants(w.f, 1), 0);
    const double bytes = (double)(ntx_kv_file_stats(w.f).read_bytes - before + others),
                 s = (double)(ntx_now_ns() - t0) / 1e9, least = bytes / RATE - 2e-9 * NTX_DRIVE_LATE_NS;
    CHECK_MSG(least > 0.05 && s >= least, "%.0f bytes in %.3f s, at least %.3f", bytes, s, least);
    close_file();
}

/* A process with an impossible entry stops no other. */
static void drive_of_liars(void)
{
    _Atomic uint64_t until = UINT64_MAX;
    const struct ntx_drive drive = {&until, 1};
    CHECK_EQ(ntx_drive_due(drive, 1000, 5000000000, 0), 5000001000);
    CHECK_EQ(ntx_drive_due(drive, 1000, 5000000000, 0), 5000002000);
    CHECK_EQ(ntx_drive_due(drive, 1000, 6000000000, 300), 6000000700);
}

int main(void)
{
    if (ntx_page_bytes() != 64 * UNIT)
        SKIP("for pages of %d bytes, and they have %d here (forward-kv_file-64k plays larger ones)", 64 * UNIT,
             (int)ntx_page_bytes());
    drive_of_liars();
    lay_out();
    reads_what_is_wanted();
    guests_stay();
    shares_a_slow_drive();
    for (int ring = 0; ring < ROUNDS; ring++) {
        texts_grow(0, ring);
        if (ROUNDS > 1)
            texts_grow(300000, ring);
        faults(ring);
    }
    return 0;
}
