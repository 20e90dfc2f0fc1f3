/* SPDX-License-Identifier: Apache-2.0 */
/* region.h: the shared region of a loaded model. One per model, made by computed, in parts that are a memfd each, so
 * that a worker is given what it needs and no more. What it only reads is sealed against its writing, however it opens
 * or maps it anew:
 *
 *   plan    header struct ntx_region_hdr: the geometry | computed writes it from its own memory and seals it for good
 *           (F_SEAL_WRITE);
 *           plan table    struct ntx_plan_chunk [n_chunks] | computed goes on with its own copy, and is never steered
 *                         by
 *           schedule      uint32_t [n_sched]: the streamed        | what others can reach. iod reads it
 *                         chunks' numbers, in order of use        |
 *   orders  orders struct ntx_control_page | computed writes (F_SEAL_FUTURE_WRITE: nobody maps it for writing
 *           taint         _Atomic uint32_t [n_slots]              | after computed). iod reads it
 *           drop maps     struct ntx_pass_map [NTX_PASS_MAPS]     |
 *           asks          struct ntx_read_request [n_demands + n_bundle_demands]
 *   ring    ring struct ntx_ring | iod and computed write, by words. What iod says here is checked
 *           chunk state   _Atomic uint32_t [n_chunks] | against the plan before it is used: of host chunks iod
 *           descriptors   struct ntx_desc [n_desc] | writes the state, computed waits, and sets FAILED back
 *           demands       struct ntx_demand [n_demands + n_bundle_demands]
 *   bytes   0 slots: n_slots x slot_bytes | 2 MiB aligned, in huge pages; DMA lands here. Offsets into this
 *           off_frames    demand frames: n_demands x frame_bytes  | part are what `where` and `dest` mean. iod writes
 *           off_arena     host arena: arena_bytes                 |
 *   board   board.h probes and their hidden states | computed writes (F_SEAL_FUTURE_WRITE). The predictor gets this
 *           part
 *   drafts  drafts.h      texts to be guessed, trees of guesses   | with a drafter only; the predictor gets both parts
 *
 * THE RING. Sequence number s = 0, 1, 2, ... runs over all passes: pass = s / n_sched, schedule index = s % n_sched.
 * Sequence s always uses descriptor s % n_desc. A descriptor's word holds its state and its lap (s / n_desc, 28 bits):
 *   FREE(lap)    computed wrote it: iod may fill sequence lap * n_desc + i
 *   FILLING(lap) iod, with a slot chosen among those that no descriptor holds and that are not tainted
 *   READY(lap) | FAILED(lap) | SKIPPED(lap) iod; computed then reads the bytes at slot + shift, and writes FREE(lap +
 *     1)
 * The words alone tell everything: a restarted iod finds the next sequence to fill as the least FREE one. Words of host
 * chunks: FREE (nothing read yet) -> FILLING -> READY | FAILED, all with gen 0 but FAILED, whose gen is the positive
 * errno. While a model is loaded their memory may still be on its way: SKIPPED until it is there, then computed sets
 * FREE, and counts host_again. computed sets FAILED ones FREE when the next pass begins, and counts host_again: they
 * are read once more. One producer (iod), one consumer (computed). computed sleeps on the word by futex; iod sleeps in
 * its event loop and sets iod_asleep first; computed writes the wake eventfd only when iod_asleep is set and half the
 * ring is free.
 *
 * DEATH. iod dies: computed (not the new iod) looks at all FILLING words: their slots become tainted, the words FREE
 * again at the same lap, and only then is a new iod attached; it reads into other slots (n_slots > n_desc: spares).
 * Taint is lifted when the dead iod's io_uring shows as many completions as submissions (computed holds a duplicate).
 * FILLING host chunks are simply set FREE: a late DMA writes the same bytes to the same place, and until the lift of
 * taint computed leaves these as they are (what is READY and not tainted it may re-arrange: cpu/interleaved.h). FILLING
 * demands: their frames are tainted likewise. A bundle's frame is tainted with any of its demands: it keeps its bundle
 * until the taint is lifted. A dead iod that was broken, or somebody else's, may have left anything in the ring's part.
 * computed knows without it which sequence each descriptor is at, which chunks it has in use and how each demand stands
 * (computed/weights/stream_own.c): what cannot be true is written anew before the next iod is attached, pass and sched
 * of descriptors, iod_asleep and drive_until with it; no slot is then filled before the old reads are over. computed
 * dies: the workers see their socket close and exit; the memory goes with the last of them.
 *
 * ORDER OF MEMORY. Each barrier is told where it stands, with what it pairs with. tests/unit/shm/weak runs both sides,
 * deaths included, on a machine of C11's model, where stores may come late and in another order, and does so once more
 * with weaker barriers, to see them missed.
 *
 * Every field has one writer, named beside it. All multi-byte fields are native-endian: the daemons share one machine.
 * */
#ifndef NTX_SHM_REGION_H
#define NTX_SHM_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "shm/board.h"
#include "shm/segment.h"
#include "shm/word.h"

#define NTX_REGION_MAGIC          0x31786e7467726e6eULL
#define NTX_REGION_VERSION        5u
#define NTX_HUGE                  (2u << 20)
#define NTX_PASS_MAPS             4
#define NTX_MAX_FILES             100
#define NTX_NEVER_DROPPED         UINT32_MAX
/* Bits of the drop map: one per layer, one for the output, and one for what the last layer has beside what feeds its
 * state. */
#define NTX_END_OF_LAST(n_layers) ((n_layers) + 1)

enum ntx_placement {
    NTX_PLACE_STORAGE,
    NTX_PLACE_HOST,
    NTX_PLACE_DEVICE,
    NTX_PLACE_FRAME /* of an expert: read on demand, kept as long as it pays */
};

struct ntx_plan_chunk {
    uint64_t offset; /* exact, in its file */
    uint64_t bytes;
    uint64_t where; /* host: offset in the bytes of the chunk's FIRST byte (congruent to `offset` modulo block) */
    uint32_t file;
    uint32_t layer; /* bit of the drop map, which of the last layer's end is not its own; NTX_NEVER_DROPPED: none, K and
                       V where tokens leave them in layers that they skip */
    uint32_t placement; /* enum ntx_placement */
    uint32_t sched;     /* its index in the schedule when placement is storage */
};

struct ntx_desc {
    _Atomic uint32_t word;     /* writers as above */
    uint32_t slot;             /* iod, from FILLING on */
    uint32_t chunk;            /* iod; computed checks chunk, sched and pass */
    uint32_t sched;            /* iod */
    uint64_t pass;             /* iod */
    uint32_t shift;            /* iod: first byte of the chunk lies at slot + shift */
    int32_t err;               /* iod, when FAILED: negative errno */
    uint64_t t_issue, t_ready; /* iod: CLOCK_MONOTONIC ns, for the trace */
    char pad[16];
};
_Static_assert(sizeof(struct ntx_desc) == 64, "one descriptor per cache line");

/* Which layers no row of a pass needs. computed sets `pass` (release) after clearing the bits, then only ever sets
 * bits. iod obeys the map of pass p only while map[p % NTX_PASS_MAPS].pass == p. */
struct ntx_pass_map {
    _Atomic uint64_t pass;                /* computed; UINT64_MAX while none */
    _Atomic uint64_t drop[NTX_MAP_WORDS]; /* computed: bit per layer, and NTX_END_OF_LAST */
    char pad[128 - 8 * (1 + NTX_MAP_WORDS)];
};

/* What computed tells iod beside the plan. */
struct ntx_control_page {
    _Alignas(64) _Atomic uint32_t demand_posted; /* computed: count of posts so far; iod compares with what it took */
    _Atomic uint32_t
        host_again; /* computed: count of times that host chunks were set FREE; iod then looks at all anew */
    _Alignas(64) _Atomic uint64_t current_pass; /* computed: the pass being executed */
    _Alignas(64) _Atomic uint32_t stop;         /* computed: 1 = detach, read nothing any more */
};

struct ntx_ring {
    _Alignas(64) _Atomic uint32_t iod_asleep;  /* iod */
    _Alignas(64) _Atomic uint64_t drive_until; /* iod and computed: drive.h */
};

/* A read on demand is two: what is asked for, which computed alone writes, and how far it is. FREE -> POSTED (computed)
 * -> FILLING -> READY | FAILED (iod) -> FREE(gen + 1) (computed). Both sides leave POSTED by compare and exchange:
 * computed may take back what iod has not begun, POSTED -> FREE(gen + 1). The first n_demands are for entries of
 * tables: demand i reads into frame i. The others are for parts of bundles: they read into the arena, where `dest`
 * says; which bundle has which part of the arena is computed's own business. Completed in any order. */
enum ntx_early {
    NTX_DEMAND_READ,
    NTX_PREFETCH_READ, /* nobody waits for it: read when nothing else is wanted */
    NTX_CANCELLED /* nor will anybody: what iod has begun of it may end FAILED, with -ECANCELED, which is no error */
};
struct ntx_read_request {
    uint64_t offset;              /* computed: exact */
    uint64_t dest;                /* computed: of a bundle's: offset in the bytes that the first block goes to */
    uint32_t file;                /* computed */
    uint32_t bytes;               /* computed */
    _Atomic uint32_t quarantined; /* computed: not to be posted while set */
    _Atomic uint32_t
        early; /* computed: enum ntx_early. May become NTX_DEMAND_READ at any time, and demand_posted be counted up
                  then; or, of NTX_PREFETCH_READ, NTX_CANCELLED, and nothing else until it is posted anew */
    char pad[32];
};
_Static_assert(sizeof(struct ntx_read_request) == 64, "");

struct ntx_demand {
    _Atomic uint32_t word;
    uint32_t shift; /* iod: first byte at frame + shift */
    int32_t err;    /* iod */
    uint32_t got;   /* iod: bytes at least that were read, of one that was given up */
    char pad[48];
};
_Static_assert(sizeof(struct ntx_demand) == 64, "");

struct ntx_region_hdr {
    uint64_t magic;
    uint32_t version, hdr_bytes;
    uint64_t epoch; /* one per load; carried by every message */
    uint64_t bytes; /* of the part of that name */
    uint32_t block; /* file reads start and end on multiples of this (4096) */
    uint32_t n_files, n_chunks, n_sched, n_desc, n_slots, n_demands, n_bundle_demands, n_layers;
    uint64_t slot_bytes, frame_bytes, arena_bytes;
    uint64_t off_frames, off_arena;
    uint64_t file_bytes[NTX_MAX_FILES]; /* size of each file: a widened read is cut at its end */
};

/* Creator: how far the memory of the bytes has been brought in. */
struct ntx_region_pages {
    uint64_t at;     /* all before it is there */
    uint64_t huge;   /* of NTX_HUGE so far, or so many in larger ones */
    int failed, why; /* how many in a row were not to be had, and the last one's -errno */
};

enum ntx_region_part {
    NTX_REGION_PLAN,
    NTX_REGION_ORDERS,
    NTX_REGION_RING,
    NTX_REGION_BYTES,
    NTX_REGION_PARTS /* iod's, in the order in which they are handed over */
};

/* The private handle: typed pointers into the parts; of the creator, hdr, chunks and sched point to its own memory. */
struct ntx_region {
    struct ntx_region_hdr *hdr;
    struct ntx_plan_chunk *chunks;
    uint32_t *sched;
    struct ntx_control_page *control;
    _Atomic uint32_t *quarantine;
    struct ntx_pass_map *pass_map;
    struct ntx_read_request *ask;
    struct ntx_ring *ring;
    _Atomic uint32_t *state;
    struct ntx_desc *desc;
    struct ntx_demand *demand;
    uint8_t *base;  /* of the bytes */
    uint64_t bytes; /* how many */
    struct ntx_segment part[NTX_REGION_PARTS];
    void *own; /* creator: the plan's memory, and how much it is */
    uint64_t own_bytes;
    struct ntx_board board; /* creator */
    struct ntx_region_pages pages;
    double huge_share; /* creator, once settled: share of the bytes that is in huge pages, 0..1 */
};

/* Where everything lies follows from the geometry alone (region_check.c). block: a power of two; slot_bytes,
 * frame_bytes and arena_bytes are multiples of it; n_slots >= n_desc. The widened range of each host chunk lies inside
 * the arena. */
struct ntx_region_geometry {
    uint32_t block, n_files, n_chunks, n_sched, n_desc, n_slots, n_demands, n_bundle_demands, n_probes, n_layers,
        n_embd;
    uint64_t slot_bytes, frame_bytes, arena_bytes, epoch;
};

/* Bytes of a region with this geometry, all parts and the creator's own copy of the plan, for planning; 0 on overflow.
 * */
uint64_t ntx_region_bytes(const struct ntx_region_geometry *g);
/* Memfds, mapped (the bytes 2 MiB-aligned), populated, collapsed into huge pages where the kernel allows, locked where
 * the limit allows (refusals are told in `note`, one line, maybe empty). -ENOMEM with the number of bytes in err. */
int ntx_region_create(const struct ntx_region_geometry *g, struct ntx_region *r, char *note, size_t note_len,
                      struct ntx_err *err);
/* The same by steps, for who has better to do than to wait for all of it: with the tables' memory only; the memory of
 * the next `bytes` (whole huge pages, at least so many), from r->pages.at on, by one thread; and, when pages.at has
 * reached r->bytes, huge_share and the lock. Nothing may be read into what is not there yet: it would come in small
 * pages. After an error it is closed, as a whole one. */
int ntx_region_begin(const struct ntx_region_geometry *g, struct ntx_region *r, struct ntx_err *err);
int ntx_region_bring_in(struct ntx_region *r, uint64_t bytes, struct ntx_err *err);
void ntx_region_settle(struct ntx_region *r, char *note, size_t note_len);
/* The creator fills in file_bytes[], chunks[] and sched[], and then publishes them: they become the plan's part. All
 * words are FREE(0) by then. Once more: a new part, for who attaches from now on. */
int ntx_region_publish(struct ntx_region *r, struct ntx_err *err);
/* iod: maps the parts that it received and validates sizes and seals, magic, version, geometry and every entry of the
 * plan. Takes the descriptors over. */
int ntx_region_attach(const int fd[NTX_REGION_PARTS], struct ntx_region *r, struct ntx_err *err);
void ntx_region_close(struct ntx_region *r); /* a zeroed or closed handle is fine */

static inline uint8_t *ntx_region_slot(const struct ntx_region *r, uint32_t slot)
{
    return r->base + slot * r->hdr->slot_bytes;
}
static inline uint8_t *ntx_region_frame(const struct ntx_region *r, uint32_t i)
{
    return r->base + r->hdr->off_frames + i * r->hdr->frame_bytes;
}

static inline uint32_t ntx_region_all_demands(const struct ntx_region_hdr *h)
{
    return h->n_demands + h->n_bundle_demands;
}

#endif
