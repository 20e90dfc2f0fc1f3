/* SPDX-License-Identifier: Apache-2.0 */
/* A region on a machine with larger pages (pages.c): all its memory is populated, in huge pages where one of that
 * machine fits, and the reported share of huge pages is true. */
#include <sys/mman.h>

#include "tests/unit/shm/attach_to.h"
#include "tests/unit/shm/make_region.h"

static bool all_there(const uint8_t *at, uint64_t bytes)
{
    unsigned char in[1024];
    for (uint64_t done = 0; done < bytes; done += sizeof in * 4096) {
        uint64_t n = NTX_MIN(bytes - done, sizeof in * 4096);
        CHECK(!mincore((void *)(uintptr_t)(at + done), n, in));
        for (uint64_t i = 0; i < n / 4096; i++)
            if (!(in[i] & 1))
                return false;
    }
    return true;
}

static void test_bytes(uint64_t arena)
{
    const uint64_t huge = ntx_huge_bytes();
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
                                    .arena_bytes = arena};
    struct ntx_region r;
    struct ntx_err err = {0};
    char note[512];
    CHECK_MSG(!ntx_region_create(&g, &r, note, sizeof note, &err), "%s", err.text);
    CHECK(r.bytes >= arena && r.bytes % NTX_HUGE == 0);
    CHECK(all_there(r.base, r.bytes));
    CHECK_EQ((uintptr_t)r.base % (r.bytes >= huge ? huge : NTX_HUGE), 0);
    CHECK(r.pages.huge * NTX_HUGE <= r.bytes / huge * huge);
    CHECK((r.huge_share < 1) == (strstr(note, "huge pages") != NULL));
    CHECK(!strstr(note, "of the shared region is in huge pages") || r.bytes >= huge ||
          strstr(note, "are larger than what is left of it"));
    printf("%llu bytes, huge pages of %llu: %.2f of it in them\n", (unsigned long long)r.bytes,
           (unsigned long long)huge, r.huge_share);
    ntx_region_close(&r);
}

static void test_attach(void)
{
    const struct shape small = {
        .n_layers = 4, .per_layer = 5, .n_desc = 4, .n_slots = 6, .n_demands = 3, .chunk_bytes = 20000, .host = true};
    struct ntx_region r, a;
    struct ntx_err err;
    make_region(&small, &r);
    for (int i = 0; i < NTX_REGION_PARTS; i++)
        CHECK_EQ(r.part[i].bytes % ntx_page_bytes(), 0);
    CHECK_MSG(!attach_to(&r, &a, &err), "%s", err.text);
    ntx_region_slot(&r, 5)[19999] = 77;
    CHECK_EQ(ntx_region_slot(&a, 5)[19999], 77);
    a.desc[3].slot = 4;
    CHECK_EQ(r.desc[3].slot, 4);
    ntx_region_close(&a);
    ntx_region_close(&r);
}

int main(void)
{
    test_attach();
    test_bytes(3 * NTX_HUGE);
    test_bytes(21 * (uint64_t)NTX_HUGE); /* a huge page of 32 MiB, and a rest that is in none */
    return 0;
}
