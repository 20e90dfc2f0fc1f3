/* SPDX-License-Identifier: Apache-2.0 */
/* region.c: a shared region that a foreign process made, under libFuzzer: changes to a valid one (fuzz.h). A region
 * that attaching accepts is used as ntx-iod and ntx-predictor use it: every read lies in its file and in the region,
 * and every probe is whole. */
#include <errno.h>

#include "iod/core.h"
#include "predictor/board.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/shm/attach_to.h"
#include "tests/unit/shm/make_region.h"

#define READS 200

static struct ntx_region right;
static uint8_t *image, *now; /* plan, control page, ring and board, one after the other */

#define BOARD    NTX_REGION_PARTS
#define N_PIECES 4
static const int pieces[N_PIECES] = {NTX_REGION_PLAN, NTX_REGION_CONTROL, NTX_REGION_RING, BOARD};

static uint8_t *at_of(int part)
{
    if (part == NTX_REGION_PLAN)
        return right.own;
    return part == BOARD ? right.board.part.at : right.part[part].at;
}

static size_t bytes_of(int part)
{
    if (part == NTX_REGION_PLAN)
        return right.own_bytes;
    return part == BOARD ? right.board.part.bytes : right.part[part].bytes;
}

/* Offset in the image of a pointer into one of the parts. */
static uint32_t in_image(const void *place)
{
    size_t before = 0;
    for (int i = 0; i < N_PIECES; before += bytes_of(pieces[i++])) {
        size_t off = (size_t)((const uint8_t *)place - at_of(pieces[i]));
        if (off < bytes_of(pieces[i]))
            return (uint32_t)(before + off);
    }
    MUST(!"in a part");
    return 0;
}

static size_t image_bytes(void)
{
    size_t n = 0;
    for (int i = 0; i < N_PIECES; i++)
        n += bytes_of(pieces[i]);
    return n;
}

static void put_down(const uint8_t *from)
{
    for (int i = 0; i < N_PIECES; from += bytes_of(pieces[i++]))
        memcpy(at_of(pieces[i]), from, bytes_of(pieces[i]));
}

static void take_up(uint8_t *to)
{
    for (int i = 0; i < N_PIECES; to += bytes_of(pieces[i++]))
        memcpy(to, at_of(pieces[i]), bytes_of(pieces[i]));
}

static void seed_tables(void)
{
    const void *const at[] = {&right.hdr->n_chunks,
                              right.chunks,
                              right.sched,
                              (void *)right.state,
                              right.desc,
                              (void *)right.quarantine,
                              right.pass_map,
                              right.demand,
                              right.board.probe,
                              right.request,
                              &((struct ntx_board_hdr *)right.board.part.at)->n_probes};
    for (unsigned i = 0; i < sizeof at / sizeof *at; i++) {
        uint32_t w = in_image(at[i]) / 4;
        uint8_t seed[16] = {
            (uint8_t)w, (uint8_t)(w >> 8), 0, 2, (uint8_t)(i == 7 ? NTX_POSTED : NTX_READY), 0, 0, 0, 1, 0, 0, 9};
        char name[16];
        snprintf(name, sizeof name, "table%u", i);
        fuzz_seed(name, seed, sizeof seed);
    }
}

/* Posts a demand for the arena as iod finds it when it starts: word, offset, bytes, dest and early, 4 bytes each. */
static void seed_bundle(uint8_t early)
{
    const struct ntx_read_request *a = &right.request[2];
    const struct {
        const void *at;
        uint32_t value;
    } set[] = {{&right.demand[2], ntx_word(0, NTX_POSTED)},
               {&a->offset, 5000},
               {&a->bytes, 6000},
               {&a->dest, (uint32_t)right.hdr->off_arena},
               {(const void *)&a->early, early},
               {(const void *)&right.control->demand_posted, 1},
               {(uint8_t *)right.pass_map + 8, 2}};
    uint8_t seed[8 * sizeof set / sizeof *set] = {0};
    for (unsigned i = 0; i < sizeof set / sizeof *set; i++) {
        const uint32_t at = in_image(set[i].at) / 4;
        const uint8_t change[8] = {(uint8_t)at,
                                   (uint8_t)(at >> 8),
                                   (uint8_t)(at >> 16),
                                   2,
                                   (uint8_t)set[i].value,
                                   (uint8_t)(set[i].value >> 8),
                                   (uint8_t)(set[i].value >> 16),
                                   (uint8_t)(set[i].value >> 24)};
        memcpy(seed + 8 * i, change, 8);
    }
    static const char *const names[] = {
        [NTX_DEMAND_READ] = "bundle", [NTX_PREFETCH_READ] = "early", [NTX_CANCELLED] = "given_up"};
    fuzz_seed(names[early], seed, sizeof seed);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    const struct shape shape = {.n_layers = 3,
                                .per_layer = 3,
                                .n_desc = 4,
                                .n_slots = 6,
                                .n_demands = 2,
                                .n_bundle_demands = 2,
                                .chunk_bytes = 12000,
                                .host = true};
    make_region(&shape, &right);
    image = malloc(image_bytes());
    now = malloc(image_bytes());
    MUST(image && now);
    take_up(image);
    if (!fuzz_seed_dir())
        return 0;
    seed_tables();
    seed_bundle(NTX_DEMAND_READ);
    seed_bundle(NTX_PREFETCH_READ);
    seed_bundle(NTX_CANCELLED);
    exit(0);
}

static void on_state(void *ctx, _Atomic uint32_t *word, enum ntx_state s)
{
    (void)ctx;
    MUST((uint8_t *)word > right.base || s); /* the word lies in the region and was read */
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
        MUST(rd.len && rd.file < h->n_files && rd.dest + rd.len <= h->bytes);
        MUST(rd.offset < h->file_bytes[rd.file] && rd.expect <= rd.len &&
             rd.offset + rd.expect <= h->file_bytes[rd.file]);
        if (how & 64 && i % 5 == 4 && ntx_iod_core_next(c, i, &got)) /* of two reads the later one completes first */
            ntx_iod_core_done(c, i, got.tag, (int32_t)got.len, &last);
        MUST(!ntx_iod_core_idle(c) || ntx_iod_core_inflight(c) >= rd.len);
        int32_t result = (i + how) % 7 ? (int32_t)rd.len : (int32_t)rd.expect / 2;
        if (how & 32 && i < 20)
            result = -EIO;
        ntx_iod_core_done(c, i, rd.tag, result, &last);
        ntx_iod_core_done(c, i, rd.tag, -EIO, &last); /* reported twice */
    }
    ntx_iod_core_free(c);
}

static void use_board(const struct ntx_board *b)
{
    size_t n = ntx_board_floats(b);
    float *floats = malloc(n * sizeof *floats);
    struct ntx_board_probe p;
    MUST(floats);
    for (uint32_t i = 0; i <= b->n_probes; i++)
        for (uint32_t gen = 0; gen < 2; gen++)
            (void)ntx_board_read(b, i, gen, &p, floats);
    free(floats);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ntx_region r;
    struct ntx_board b;
    struct ntx_err err = {0};
    memcpy(now, image, image_bytes());
    fuzz_patch(now, image_bytes(), data, size);
    put_down(now);
    if (!ntx_board_attach(dup(right.board.part.fd), &b, &err)) {
        use_board(&b);
        ntx_board_close(&b);
    }
    if (attach_to(&right, &r, &err)) {
        MUST(err.code < 0 && err.text[0]);
        return 0;
    }
    use_core(&r, size ? data[0] : 0);
    ntx_region_close(&r);
    return 0;
}
