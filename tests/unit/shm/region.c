/* SPDX-License-Identifier: Apache-2.0 */
/* A region is made and attached. Attach refuses a damaged region with an error that names the damage, and never
 * crashes. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/emulated.h"
#include "tests/unit/shm/attach_to.h"
#include "tests/unit/shm/make_region.h"

static const struct shape small = {
    .n_layers = 4, .per_layer = 5, .n_desc = 4, .n_slots = 6, .n_demands = 3, .chunk_bytes = 20000, .host = true};

static int attach(struct ntx_region *r, struct ntx_err *err)
{
    struct ntx_region a = {0};
    *err = (struct ntx_err){0};
    int rc = attach_to(r, &a, err);
    CHECK(rc ? a.base == NULL : a.base != NULL);
    ntx_region_close(&a);
    return rc;
}

static void test_good(void)
{
    struct ntx_region r, a;
    struct ntx_err err;
    make_region(&small, &r);
    CHECK_EQ((uintptr_t)r.base % NTX_HUGE, 0);
    CHECK_EQ(r.bytes % NTX_HUGE, 0);
    CHECK(r.huge_share >= 0 && r.huge_share <= 1);
    CHECK_EQ(r.pass_map[NTX_PASS_MAPS - 1].pass, UINT64_MAX);
    for (int i = 0; i < NTX_REGION_PARTS; i++) {
        CHECK_EQ(fcntl(r.part[i].fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
                 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        CHECK_EQ(fcntl(r.part[i].fd, F_GETFD), FD_CLOEXEC);
        CHECK(ftruncate(r.part[i].fd, 4096 * 4096) < 0);
    }
    CHECK_EQ(attach_to(&r, &a, &err), 0);
    CHECK_EQ((uintptr_t)a.base % NTX_HUGE, 0);
    CHECK_EQ(a.bytes, r.bytes);
    CHECK_EQ(a.hdr->epoch, 42);
    CHECK_EQ(a.chunks[7].offset, r.chunks[7].offset);
    ntx_region_slot(&r, 5)[19999] = 77; /* both handles see one memory */
    CHECK_EQ(ntx_region_slot(&a, 5)[19999], 77);
    a.desc[3].slot = 4;
    CHECK_EQ(r.desc[3].slot, 4);
    r.quarantine[5] = 1;
    CHECK_EQ(a.quarantine[5], 1);
    r.request[2].offset = 1234;
    CHECK_EQ(a.request[2].offset, 1234);
    ntx_region_close(&a);
    ntx_region_close(&a); /* a second close does nothing */
    ntx_region_close(&r);
}

/* The creator's plan is in private memory: later changes there do not reach workers, and no worker can change it. */
static void test_plan_is_private(void)
{
    struct ntx_region r, a;
    struct ntx_err err;
    char byte = 1;
    make_region(&small, &r);
    uint64_t offset = r.chunks[3].offset;
    CHECK_EQ(attach_to(&r, &a, &err), 0);
    r.chunks[3].offset++;
    CHECK_EQ(a.chunks[3].offset, offset);
    CHECK(pwrite(r.part[NTX_REGION_PLAN].fd, &byte, 1, 0) < 0 && errno == EPERM);
    CHECK_EQ(fcntl(r.part[NTX_REGION_CONTROL].fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE, F_SEAL_FUTURE_WRITE);
    CHECK_EQ(fcntl(r.board.part.fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE, F_SEAL_FUTURE_WRITE);
    r.control->stop = 1; /* the creator can still write the control page */
    CHECK_EQ(a.control->stop, 1);
    ntx_region_close(&a);
    ntx_region_close(&r);
}

static struct ntx_region begin(uint64_t huge_pages_of_arena)
{
    struct ntx_region_geometry g = {.block = BLOCK,
                                    .n_files = 1,
                                    .n_chunks = 1,
                                    .n_desc = 1,
                                    .n_slots = 2,
                                    .n_demands = 1,
                                    .n_probes = 1,
                                    .n_layers = 1,
                                    .n_embd = 8,
                                    .slot_bytes = 4 * BLOCK,
                                    .frame_bytes = BLOCK,
                                    .arena_bytes = huge_pages_of_arena * NTX_HUGE};
    struct ntx_region r;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_region_begin(&g, &r, &err), "%s", err.text);
    CHECK_EQ(r.pages.at, 0);
    return r;
}

/* In steps the memory is populated in whole huge pages, as much as was requested. When memory runs out, the error says
 * what to do, and pages.at says how far it came. */
static void test_steps(void)
{
    struct ntx_region r = begin(6);
    struct ntx_err err = {0};
    char note[512];
    CHECK_EQ(ntx_region_bring_in(&r, 1, &err), 0);
    CHECK_EQ(r.pages.at, NTX_HUGE);
    CHECK_EQ(ntx_region_bring_in(&r, NTX_HUGE + 1, &err), 0);
    CHECK_EQ(r.pages.at, 3 * (uint64_t)NTX_HUGE);
    CHECK_EQ(ntx_region_bring_in(&r, UINT64_MAX, &err), 0);
    CHECK_EQ(r.pages.at, r.bytes);
    CHECK_EQ(ntx_region_bring_in(&r, 1, &err), 0);
    CHECK_EQ(r.pages.at, r.bytes);
    ntx_region_settle(&r, note, sizeof note);
    CHECK(r.huge_share == (double)(r.pages.huge * NTX_HUGE) / (double)r.bytes);
    CHECK_EQ(!strstr(note, "huge pages"), r.huge_share == 1);
    ntx_region_close(&r);

    if (emulated()) { /* qemu-user ignores unknown advice */
        printf("left out: memory that ends\n");
        return;
    }
    r = begin(6);
    CHECK(!munmap(r.base + 4 * (uint64_t)NTX_HUGE, NTX_HUGE));
    CHECK_EQ(ntx_region_bring_in(&r, r.bytes, &err), -ENOMEM);
    CHECK_EQ(r.pages.at, 4 * (uint64_t)NTX_HUGE);
    CHECK_MSG(err.code == -ENOMEM && strstr(err.text, "use a smaller --ram"), "%s", err.text);
    ntx_region_close(&r);
}

#define FIELD(name, ...)                                                                                               \
    {                                                                                                                  \
#name, offsetof(struct ntx_region_hdr, name), sizeof(((struct ntx_region_hdr *)0)->name), { __VA_ARGS__ }      \
    }
#define MAX64 UINT64_MAX

/* Each value must be refused (0 ends the list unless it is the first). */
static const struct {
    const char *name;
    size_t at, size;
    uint64_t bad[4];
} fields[] = {
    FIELD(magic, 0, 1, MAX64),
    FIELD(version, 0, NTX_REGION_VERSION + 1, UINT32_MAX),
    FIELD(hdr_bytes, 0, 1, UINT32_MAX),
    FIELD(bytes, 0, 1, MAX64),
    FIELD(block, 0, 511, 4097, UINT32_MAX),
    FIELD(n_files, 0, 101, UINT32_MAX),
    FIELD(n_chunks, 0, 1, 2000, UINT32_MAX),
    FIELD(n_sched, 0, 1, 1000, UINT32_MAX),
    FIELD(n_desc, 0, 3000, 7, UINT32_MAX),
    FIELD(n_slots, 0, 3, 2000, UINT32_MAX),
    FIELD(n_demands, 0, 1, 1000, UINT32_MAX),
    FIELD(n_bundle_demands, 1 << 20, UINT32_MAX),
    FIELD(n_stage_reads, 1 << 20, UINT32_MAX),
    FIELD(n_layers, 0, 2, 575, UINT32_MAX),
    FIELD(slot_bytes, 0, 4096, 28673, MAX64),
    FIELD(frame_bytes, 1, 4096, MAX64 - 4095),
    FIELD(arena_bytes, 0, 4096, MAX64 - 4095, (uint64_t)1 << 61),
    FIELD(off_frames, 0, 4096, MAX64),
    FIELD(stage_bytes, 1, (uint64_t)NTX_HUGE, MAX64 - 4095, (uint64_t)1 << 61),
    FIELD(off_arena, 0, 4096, MAX64),
    FIELD(off_stage, 0, 4096, MAX64),
};

static void put(uint8_t *at, size_t size, uint64_t v)
{
    uint32_t v32 = (uint32_t)v;
    memcpy(at, size == 4 ? (void *)&v32 : (void *)&v, size);
}

static void test_header(void)
{
    struct ntx_region r;
    struct ntx_err err;
    uint8_t old[8];
    make_region(&small, &r);
    CHECK_EQ(attach(&r, &err), 0);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        uint8_t *at = (uint8_t *)r.hdr + fields[i].at;
        memcpy(old, at, fields[i].size);
        for (int k = 0; k < 4 && (!k || fields[i].bad[k]); k++) {
            put(at, fields[i].size, fields[i].bad[k]);
            int rc = attach(&r, &err);
            CHECK_MSG(rc < 0 && err.code == rc && err.text[0], "%s = %llu: %d", fields[i].name,
                      (unsigned long long)fields[i].bad[k], rc);
        }
        memcpy(at, old, fields[i].size);
    }
    CHECK_EQ(attach(&r, &err), 0);
    r.hdr->version++;
    CHECK_EQ(attach(&r, &err), -EPROTO);
    CHECK(strstr(err.text, "different versions"));
    ntx_region_close(&r);
}

/* Chunk 0 is in the arena, chunk 1 is streamed. */
static void test_plan(void)
{
    struct ntx_region r;
    struct ntx_err err;
    make_region(&small, &r);
    struct ntx_plan_chunk host = r.chunks[0], streamed = r.chunks[1];
    CHECK_EQ(host.placement, NTX_PLACE_HOST);
    CHECK_EQ(streamed.placement, NTX_PLACE_STORAGE);
#define REFUSED(i, good, field, value, words)                                                                          \
    do {                                                                                                               \
        r.chunks[i].field = value;                                                                                     \
        CHECK_EQ(attach(&r, &err), -EINVAL);                                                                           \
        CHECK_MSG(strstr(err.text, words), "%s", err.text);                                                            \
        r.chunks[i] = good;                                                                                            \
    } while (0)
    REFUSED(0, host, file, 2, "file");
    REFUSED(0, host, offset, MAX64 - 5, "outside its file");
    REFUSED(0, host, bytes, 0, "outside its file");
    REFUSED(0, host, bytes, MAX64, "outside its file");
    REFUSED(0, host, layer, 6, "layer");
    REFUSED(0, host, placement, 4, "placement");
    REFUSED(0, host, where, host.where + 1, "congruent");
    REFUSED(0, host, where, host.where - BLOCK, "before the arena");
    REFUSED(0, host, where, host.offset % BLOCK, "before the arena");
    REFUSED(0, host, where, r.hdr->off_arena + r.hdr->arena_bytes - BLOCK + host.offset % BLOCK, "behind the arena");
    REFUSED(0, host, where, MAX64 - BLOCK + 1 + host.offset % BLOCK, "behind the arena");
    REFUSED(0, host, placement, NTX_PLACE_STORAGE, "schedule");
    REFUSED(1, streamed, bytes, r.hdr->slot_bytes - 2 * BLOCK + 1, "slot");
    REFUSED(1, streamed, sched, 1, "schedule");
    REFUSED(1, streamed, sched, UINT32_MAX, "schedule");
    REFUSED(1, streamed, placement, NTX_PLACE_DEVICE, "schedule has");
#undef REFUSED
    r.chunks[0].placement = NTX_PLACE_DEVICE; /* valid: a device chunk needs nothing */
    CHECK_EQ(attach(&r, &err), 0);
    r.chunks[0] = host;
    r.sched[0] = 5;
    CHECK_EQ(attach(&r, &err), -EINVAL);
    r.sched[0] = 1;
    r.hdr->file_bytes[0] = MAX64;
    CHECK_EQ(attach(&r, &err), -EINVAL);
    ntx_region_close(&r);
}

/* Every table of an attached region can be read to its end. */
static void walk(const struct ntx_region *a)
{
    const struct ntx_region_hdr *h = a->hdr;
    volatile uint64_t sum = 0;
    for (uint32_t i = 0; i < h->n_chunks; i++)
        sum += a->chunks[i].bytes + a->state[i];
    for (uint32_t i = 0; i < h->n_sched; i++)
        sum += a->sched[i];
    for (uint32_t i = 0; i < h->n_desc; i++)
        sum += a->desc[i].word;
    for (uint32_t i = 0; i < h->n_slots; i++)
        sum += a->quarantine[i] + ntx_region_slot(a, i)[h->slot_bytes - 1];
    for (uint32_t i = 0; i < h->n_demands; i++)
        sum += a->demand[i].word + a->request[i].bytes + ntx_region_frame(a, i)[h->frame_bytes - 1];
}

static void test_random_damage(void)
{
    struct ntx_region r;
    struct ntx_err err;
    uint64_t seed = 1;
    unsigned refused = 0, taken = 0;
    make_region(&small, &r);
    size_t front = r.own_bytes;
    uint8_t *good = malloc(front);
    CHECK(good);
    memcpy(good, r.own, front);
    for (int round = 0; round < 4000; round++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t header = 256, at = (seed >> 33) % (round % 2 ? header : front) & ~(size_t)3;
        put((uint8_t *)r.own + at, 4, round % 3 ? seed >> 17 : 1u << (seed >> 50) % 32);
        struct ntx_region a;
        if (attach_to(&r, &a, &err)) {
            refused++;
        } else {
            taken++;
            walk(&a);
            ntx_region_close(&a);
        }
        memcpy(r.own, good, front);
    }
    CHECK(refused > 1000 && taken > 100);
    free(good);
    ntx_region_close(&r);
}

static int sealed(const char *name, off_t bytes, int seals)
{
    int fd = memfd_create(name, MFD_ALLOW_SEALING | MFD_CLOEXEC);
    CHECK(fd >= 0 && !ftruncate(fd, bytes) && !fcntl(fd, F_ADD_SEALS, seals));
    return fd;
}

/* Each part must have its seals and the size that the geometry gives. All descriptors are taken over, whichever is
 * wrong. */
static void refused(const struct ntx_region *r, int part, int fd, const char *words)
{
    struct ntx_region a = {0};
    struct ntx_err err = {0};
    int fds[NTX_REGION_PARTS];
    for (int i = 0; i < NTX_REGION_PARTS; i++)
        fds[i] = i == part ? fd : dup(r->part[i].fd);
    CHECK_EQ(ntx_region_attach(fds, &a, &err), -EINVAL);
    CHECK_MSG(strstr(err.text, words), "%s", err.text);
    for (int i = 0; i < NTX_REGION_PARTS; i++)
        CHECK(fcntl(fds[i], F_GETFD) < 0);
    CHECK(!a.base);
}

static void test_descriptors(void)
{
    struct ntx_region r;
    int p[2];
    make_region(&small, &r);
    for (int i = 0; i < NTX_REGION_PARTS; i++) {
        refused(&r, i, memfd_create("unsealed", MFD_ALLOW_SEALING), "sealed");
        CHECK(!pipe(p));
        close(p[1]);
        refused(&r, i, p[0], "sealed");
        refused(&r, i, sealed("odd", 100, F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE), "100 bytes");
        int seals = F_SEAL_SHRINK;
        if (i == NTX_REGION_PLAN)
            seals |= F_SEAL_WRITE;
        else if (i == NTX_REGION_CONTROL)
            seals |= F_SEAL_FUTURE_WRITE;
        refused(&r, i, sealed("other", 99 * (off_t)ntx_page_bytes(), seals), i ? "expected" : "magic");
    }
    /* an unsealed part could be written after the check */
    refused(&r, NTX_REGION_PLAN, dup(r.part[NTX_REGION_RING].fd), "sealed");
    refused(&r, NTX_REGION_CONTROL, dup(r.part[NTX_REGION_RING].fd), "sealed");
    ntx_region_close(&r);
}

static void test_board(void)
{
    struct ntx_board b, a = {0};
    struct ntx_err err = {0};
    CHECK_EQ(ntx_board_make(7, 3, 4, 100, &b, &err), 0);
    CHECK_EQ(ntx_board_attach(dup(b.part.fd), &a, &err), 0);
    CHECK(a.epoch == 7 && a.n_probes == 3 && a.n_layers == 4 && a.n_embd == 100 && ntx_board_floats(&a) == 104);
    b.probe[2].row = 9;
    b.data[2 * 104 + 103] = 2.5f;
    CHECK(a.probe[2].row == 9 && a.data[2 * 104 + 103] == 2.5f);
    ntx_board_close(&a);
    ntx_board_close(&a);
    struct ntx_board_hdr *h = (struct ntx_board_hdr *)b.part.at, good = *h;
    const struct {
        uint32_t *field, bad;
    } bad[] = {{(uint32_t *)&h->magic, 0}, {&h->version, 2},           {&h->hdr_bytes, 0},
               {&h->n_probes, 300},        {&h->n_probes, UINT32_MAX}, {&h->n_layers, 0},
               {&h->n_layers, 576},        {&h->n_embd, 10000},        {&h->n_embd, UINT32_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        *bad[i].field = bad[i].bad;
        int rc = ntx_board_attach(dup(b.part.fd), &a, &err);
        CHECK_MSG(rc < 0 && err.code == rc && !a.probe, "%zu: %d", i, rc);
        *h = good;
    }
    CHECK_EQ(ntx_board_attach(sealed("open", 4096, F_SEAL_SHRINK), &a, &err), -EINVAL);
    CHECK(strstr(err.text, "sealed"));
    CHECK_EQ(ntx_board_make(7, UINT32_MAX, 4, UINT32_MAX, &a, &err), -EOVERFLOW);
    ntx_board_close(&b);
}

static void test_refusals(void)
{
    struct ntx_region r = {0};
    struct ntx_err err;
    struct ntx_region_geometry g = {.block = 4096, .n_files = 1, .n_layers = 1, .arena_bytes = (uint64_t)1 << 45};
    /* five pages: plan, control page, ring, board, and the creator's copy of the plan */
    CHECK_EQ(ntx_region_bytes(&g), g.arena_bytes + 5 * ntx_page_bytes());
    CHECK_EQ(ntx_region_create(&g, &r, NULL, 0, &err), -ENOMEM);
    char bytes[32];
    snprintf(bytes, sizeof bytes, "(%llu bytes)", (unsigned long long)ntx_region_bytes(&g));
    CHECK_MSG(strstr(err.text, bytes) && strstr(err.text, "--ram"), "%s", err.text);
    g.arena_bytes = (uint64_t)1 << 62;
    CHECK_EQ(ntx_region_bytes(&g), 0);
    CHECK_EQ(ntx_region_create(&g, &r, NULL, 0, &err), -EOVERFLOW);
    g.arena_bytes = 4095;
    CHECK_EQ(ntx_region_create(&g, &r, NULL, 0, &err), -EINVAL);
    CHECK(!r.base);
}

static void test_futex(void)
{
    _Atomic uint32_t w = 5;
    CHECK_EQ(ntx_futex_wait(&w, 4, 0), 0);
    uint64_t t = ntx_now_ns();
    CHECK_EQ(ntx_futex_wait(&w, 5, 3000000), -ETIMEDOUT);
    CHECK(ntx_now_ns() - t >= 3000000);
    ntx_futex_wake(&w);
}

int main(void)
{
    test_good();
    test_plan_is_private();
    test_steps();
    test_header();
    test_plan();
    test_random_damage();
    test_descriptors();
    test_board();
    test_refusals();
    test_futex();
    return 0;
}
