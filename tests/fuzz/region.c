/* region.c: a shared region made by somebody else, under libFuzzer: a right one with changes (fuzz.h). What ntx_region_attach
 * takes is used as ntx-iod and ntx-predictor do: every read asked for lies in its file and in the region, and a probe is whole. */
#include <errno.h>

#include "iod/core.h"
#include "predictor/board.h"
#include "tests/fuzz/fuzz.h"
#include "tests/shm/make_region.h"

#define READS 200

static struct ntx_region right;
static uint8_t *front;
static size_t front_bytes;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    const struct shape shape = {.n_layers = 3, .per_layer = 3, .n_desc = 4, .n_slots = 6, .n_demands = 2, .n_bundle_demands = 2, .chunk_bytes = 12000, .host = true};
    make_region(&shape, &right);
    front_bytes = right.hdr->off_probe_data + right.hdr->n_probes * ntx_region_probe_floats(&right) * sizeof(float);
    front = malloc(front_bytes);
    MUST(front);
    memcpy(front, right.base, front_bytes);
    if (!fuzz_seed_dir())
        return 0;
    const uint32_t at[] = {offsetof(struct ntx_region_hdr, n_chunks), (uint32_t)right.hdr->off_chunks, (uint32_t)right.hdr->off_sched, (uint32_t)right.hdr->off_state,
                           (uint32_t)right.hdr->off_desc, (uint32_t)right.hdr->off_taint, (uint32_t)right.hdr->off_pass, (uint32_t)right.hdr->off_demand, (uint32_t)right.hdr->off_probe};
    for (unsigned i = 0; i < sizeof at / sizeof *at; i++) {
        uint8_t seed[16] = {(uint8_t)(at[i] / 4), (uint8_t)(at[i] / 4 >> 8), 0, 2, (uint8_t)(i == 7 ? NTX_POSTED : NTX_READY), 0, 0, 0, 1, 0, 0, 9};
        char name[16];
        snprintf(name, sizeof name, "table%u", i);
        fuzz_seed(name, seed, sizeof seed);
    }
    /* a demand for the arena, posted: 4 bytes each of word, offset, bytes, dest, early, as iod finds them when it begins */
    for (uint8_t early = 0; early < 2; early++) {
        const uint32_t d = (uint32_t)(right.hdr->off_demand + 2 * sizeof(struct ntx_demand));
        const struct {
            uint32_t at, value;
        } set[] = {{d, ntx_word(0, NTX_POSTED)}, {d + offsetof(struct ntx_demand, offset), 5000}, {d + offsetof(struct ntx_demand, bytes), 6000},
                   {d + offsetof(struct ntx_demand, dest), (uint32_t)right.hdr->off_arena}, {d + offsetof(struct ntx_demand, early), early},
                   {offsetof(struct ntx_region_hdr, demand_posted), 1}, {(uint32_t)right.hdr->off_pass + 8, 2}};
        uint8_t seed[8 * sizeof set / sizeof *set] = {0};
        for (unsigned i = 0; i < sizeof set / sizeof *set; i++) {
            const uint32_t at = set[i].at / 4;
            const uint8_t change[8] = {(uint8_t)at, (uint8_t)(at >> 8), (uint8_t)(at >> 16), 2, (uint8_t)set[i].value, (uint8_t)(set[i].value >> 8), (uint8_t)(set[i].value >> 16), (uint8_t)(set[i].value >> 24)};
            memcpy(seed + 8 * i, change, 8);
        }
        fuzz_seed(early ? "early" : "bundle", seed, sizeof seed);
    }
    exit(0);
}

static void on_state(void *ctx, _Atomic uint32_t *word, enum ntx_state s)
{
    (void)ctx;
    MUST((uint8_t *)word > right.base || s); /* it is somewhere, and something */
}

static void on_failed(void *ctx, const struct ntx_iod_failure *f)
{
    (void)ctx;
    MUST(f->err < 0);
}

static void use_core(const struct ntx_region *r, unsigned how)
{
    const struct ntx_region_hdr *h = r->hdr;
    const struct ntx_iod_limits limits = {.piece_bytes = how & 128 ? 4096 : 0};
    const struct ntx_iod_hooks hooks = {.state = on_state, .failed = on_failed};
    struct ntx_iod_core *c;
    struct ntx_iod_read rd, got, last;
    struct ntx_err err = {0};
    if (ntx_iod_core_new(r, NULL, &limits, &hooks, &c, &err)) {
        MUST(err.text[0]);
        return;
    }
    const uint8_t skip[3] = {(uint8_t)how, 0xff, (uint8_t)(how >> 3)};
    ntx_iod_core_hint(c, how % 3, skip, how % 4);
    for (unsigned i = 0; i < READS && ntx_iod_core_next(c, i, &rd); i++) {
        MUST(rd.len && rd.file < h->n_files && rd.dest >= h->off_slots && rd.dest + rd.len <= h->bytes);
        MUST(rd.offset < h->file_bytes[rd.file] && rd.expect <= rd.len && rd.offset + rd.expect <= h->file_bytes[rd.file]);
        if (how & 64 && i % 5 == 4 && ntx_iod_core_next(c, i, &got)) /* two at once; the later one is through first */
            ntx_iod_core_done(c, i, got.tag, (int32_t)got.len, &last);
        MUST(!ntx_iod_core_idle(c) || ntx_iod_core_inflight(c) >= rd.len);
        ntx_iod_core_done(c, i, rd.tag, how & 32 && i < 20 ? -EIO : (i + how) % 7 ? (int32_t)rd.len : (int32_t)rd.expect / 2, &last);
        ntx_iod_core_done(c, i, rd.tag, -EIO, &last); /* told twice */
    }
    ntx_iod_core_free(c);
}

static void use_board(const struct ntx_region *r)
{
    size_t n = ntx_region_probe_floats(r);
    float *floats = malloc(n * sizeof *floats);
    struct ntx_board_probe p;
    MUST(floats);
    for (uint32_t i = 0; i <= r->hdr->n_probes; i++)
        for (uint32_t gen = 0; gen < 2; gen++)
            (void)ntx_board_read(r, i, gen, &p, floats);
    free(floats);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ntx_region r;
    struct ntx_err err = {0};
    memcpy(right.base, front, front_bytes);
    fuzz_patch(right.base, front_bytes, data, size);
    if (ntx_region_attach(dup(right.fd), true, &r, &err)) {
        MUST(err.code < 0 && err.text[0]);
        return 0;
    }
    use_board(&r);
    use_core(&r, size ? data[0] : 0);
    ntx_region_close(&r);
    return 0;
}
