/* SPDX-License-Identifier: Apache-2.0 */
/* region.h: the shared region of a loaded model. computed makes one per model. Each of its parts is a memfd, so that a
 * worker gets only the parts that it needs. A part that a worker only reads is sealed: no descriptor or new mapping
 * lets the worker write it.
 *
 *   plan    header        struct ntx_region_hdr: the geometry     | computed writes it from its own memory and seals
 *           plan table    struct ntx_plan_chunk [n_chunks]        | it for good (F_SEAL_WRITE). computed uses its own
 *           schedule      uint32_t [n_sched]: streamed chunks,    | copy, so nothing that others can reach steers it.
 *                         in order of use                         | iod reads
 *   control control page  struct ntx_control_page                 | computed writes (F_SEAL_FUTURE_WRITE: nobody else
 *           quarantine    _Atomic uint32_t [n_slots]              | can map it for writing). iod reads
 *           drop maps     struct ntx_pass_map [NTX_PASS_MAPS]     |
 *           requests      struct ntx_read_request [n_demands + n_bundle_demands + n_stage_reads]
 *   ring    ring          struct ntx_ring                         | iod and computed write, by state words. computed
 *           chunk state   _Atomic uint32_t [n_chunks]             | checks iod's values against the plan before use.
 *           descriptors   struct ntx_desc [n_desc]                | Host chunks: iod writes the state, computed waits,
 *           demands       struct ntx_demand [as many as requests]    and sets FAILED ones back
 *   bytes   0             slots: n_slots x slot_bytes             | 2 MiB aligned, in huge pages; target of the
 *           off_frames    demand frames: n_demands x frame_bytes  | drive's DMA. `where` and `dest` are offsets into
 *           off_arena     host arena: arena_bytes                 | this part. iod writes
 *           off_stage     stage: stage_bytes                      |
 *   board   board.h       probes and their hidden states          | computed writes (F_SEAL_FUTURE_WRITE); the
 *                                                                 | predictor gets this part
 *   drafts  drafts.h      texts that want a draft, draft trees    | with a drafter only; the predictor gets both
 *
 * THE RING. Sequence number s = 0, 1, 2, ... runs over all passes: pass = s / n_sched, schedule index = s % n_sched.
 * Sequence s always uses descriptor s % n_desc. A descriptor's word holds its state and its lap (s / n_desc, 28 bits):
 *
 *   FREE(lap)     by computed: iod may fill sequence lap * n_desc + i
 *   FILLING(lap)  by iod, with a slot that no descriptor holds and that is not quarantined
 *   READY(lap) | FAILED(lap) | SKIPPED(lap)  by iod; computed then reads the bytes at slot + shift, and writes
 *                 FREE(lap + 1)
 *
 * The words alone hold the whole state: a restarted iod continues at the least FREE sequence. A host chunk's word goes
 * FREE (not read yet) -> FILLING -> READY | FAILED. Its gen is 0, or the positive errno with FAILED. While a model is
 * loaded, chunks without memory are SKIPPED; when their memory exists, computed sets them FREE and counts host_again.
 * computed sets FAILED host chunks FREE when the next pass begins and counts host_again, so that they are read again.
 * There is one producer (iod) and one consumer (computed). computed sleeps on the word by futex. iod sleeps in its
 * event loop and sets iod_asleep first; computed writes the wake eventfd only when iod_asleep is set and half the ring
 * is free.
 *
 * DEATH OF IOD. computed (not the new iod) looks at all FILLING words. It quarantines their slots and sets the words
 * FREE at the same lap. Only then it attaches a new iod, which reads into other slots (n_slots > n_desc: spares). The
 * quarantine ends when the dead iod's io_uring shows as many completions as submissions (computed holds a duplicate).
 * FILLING host chunks are simply set FREE, since a late DMA writes the same bytes to the same place; until the
 * quarantine ends computed does not rearrange them (READY chunks outside the quarantine it may: cpu/interleaved.h).
 * Frames of FILLING demands are quarantined likewise. A bundle's frame is quarantined with any of its demands and keeps
 * its bundle meanwhile. A dead iod that was faulty or hostile may have left anything in the ring's part. computed has
 * its own record of each descriptor's sequence, the chunks in use and the state of each demand
 * (computed/weights/stream_own.c). Before it attaches the next iod, it rewrites words that contradict this record, and
 * pass and sched of descriptors, iod_asleep and drive_until. No slot is filled before the old reads have ended.
 *
 * THE STAGE. The encode of a picture is a second consumer, with requests and memory of its own: it reads a projector's
 * file, the last one, once per picture. Its requests are the last n_stage_reads; `dest` is inside the stage. iod reads
 * them when nothing else is wanted, and a small share beside other reads (iod/core.h). Its death concerns them as other
 * requests; while one is quarantined, no place in the stage gets other bytes (computed/weights/stage.h).
 *
 * DEATH OF COMPUTED. The workers see their socket close and exit; the memory is freed with the last of them.
 *
 * MEMORY ORDER. Each barrier in the code names its counterpart. tests/unit/shm/weak runs both sides, deaths included,
 * on a model of C11's memory, where stores may become visible late and in another order. It runs them again with weaker
 * barriers and expects failures.
 *
 * Every field has one writer, named beside it. Fields have native byte order: the daemons share one machine. */
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
#define NTX_REGION_VERSION        6u
#define NTX_HUGE                  (2u << 20)
#define NTX_PASS_MAPS             4
#define NTX_MAX_FILES             100
#define NTX_NEVER_DROPPED         UINT32_MAX
#define NTX_STAGE_CHUNK           (UINT32_MAX - 1) /* in reports, in place of a chunk: a read of the stage */
/* Bits of the drop map: one per layer, one for the output, and one for the part of the last layer that does not feed
 * its K, V and state. */
#define NTX_END_OF_LAST(n_layers) ((n_layers) + 1)

enum ntx_placement {
    NTX_PLACE_STORAGE,
    NTX_PLACE_HOST,
    NTX_PLACE_DEVICE,
    NTX_PLACE_FRAME /* an expert: read on demand, kept by the expert cache */
};

struct ntx_plan_chunk {
    uint64_t offset; /* exact offset in its file */
    uint64_t bytes;
    uint64_t where; /* host: offset of the chunk's first byte in the bytes part; congruent to `offset` modulo block */
    uint32_t file;
    /* Bit of the drop map; the last layer's end has NTX_END_OF_LAST. NTX_NEVER_DROPPED: no bit (K and V weights, where
     * tokens write K and V in layers that they skip). */
    uint32_t layer;
    uint32_t placement; /* enum ntx_placement */
    uint32_t sched;     /* its index in the schedule when placement is storage */
};

struct ntx_desc {
    _Atomic uint32_t word;     /* writers: see THE RING */
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

/* Layers that no row of a pass needs. computed clears the bits, then sets `pass` (release), and only sets bits after
 * that. iod obeys the map of pass p only while map[p % NTX_PASS_MAPS].pass == p. */
struct ntx_pass_map {
    _Atomic uint64_t pass;                /* computed; UINT64_MAX: no pass yet */
    _Atomic uint64_t drop[NTX_MAP_WORDS]; /* computed: bit per layer, and NTX_END_OF_LAST */
    char pad[128 - 8 * (1 + NTX_MAP_WORDS)];
};

/* The control page: all that computed tells iod besides the plan. */
struct ntx_control_page {
    _Alignas(64) _Atomic uint32_t demand_posted; /* computed: number of posts so far; iod scans when it changed */
    _Atomic uint32_t host_again;                 /* computed: grows when host chunks were set FREE; iod rescans all */
    _Alignas(64) _Atomic uint64_t current_pass;  /* computed: the pass being executed */
    _Alignas(64) _Atomic uint32_t stop;          /* computed: 1 = detach, start no more reads */
};

struct ntx_ring {
    _Alignas(64) _Atomic uint32_t iod_asleep;  /* iod */
    _Alignas(64) _Atomic uint64_t drive_until; /* iod and computed: drive.h */
};

/* A read on demand has two records: the request, which only computed writes, and its state. FREE -> POSTED (computed)
 * -> FILLING -> READY | FAILED (iod) -> FREE(gen + 1) (computed). Both sides leave POSTED by compare and exchange:
 * computed may cancel a read that iod has not begun, POSTED -> FREE(gen + 1). The first n_demands are for entries of
 * tables: demand i reads into frame i. The next are for parts of bundles: they read into the arena, at `dest`;
 * computed alone knows which bundle owns which part of the arena. The last are the stage's, which computed posts with
 * NTX_PREFETCH_READ. Reads complete in any order. */
enum ntx_read_priority {
    NTX_DEMAND_READ,
    NTX_PREFETCH_READ, /* no layer waits for it: read when nothing else is wanted */
    NTX_CANCELLED      /* no longer wanted: if iod has begun it, it may end FAILED with -ECANCELED, which is no error */
};
struct ntx_read_request {
    uint64_t offset;              /* computed: exact */
    uint64_t dest;                /* computed: for a bundle or the stage, offset of the first block in the bytes part */
    uint32_t file;                /* computed */
    uint32_t bytes;               /* computed */
    _Atomic uint32_t quarantined; /* computed: while set, the request is not posted */
    /* computed: enum ntx_read_priority. NTX_PREFETCH_READ may become NTX_DEMAND_READ at any time (demand_posted then
     * grows), or NTX_CANCELLED, which stays until the next post. */
    _Atomic uint32_t early;
    char pad[32];
};
_Static_assert(sizeof(struct ntx_read_request) == 64, "");

struct ntx_demand {
    _Atomic uint32_t word;
    uint32_t shift; /* iod: first byte at frame + shift */
    int32_t err;    /* iod */
    uint32_t got;   /* iod: of a cancelled read, bytes that were read at least */
    char pad[48];
};
_Static_assert(sizeof(struct ntx_demand) == 64, "");

struct ntx_region_hdr {
    uint64_t magic;
    uint32_t version, hdr_bytes;
    uint64_t epoch; /* one per load; every message carries it */
    uint64_t bytes; /* size of the bytes part */
    uint32_t block; /* file reads start and end on multiples of this (4096) */
    uint32_t n_files, n_chunks, n_sched, n_desc, n_slots, n_demands, n_bundle_demands, n_stage_reads, n_layers;
    uint64_t slot_bytes, frame_bytes, arena_bytes, stage_bytes;
    uint64_t off_frames, off_arena, off_stage;
    uint64_t file_bytes[NTX_MAX_FILES]; /* size of each file: a widened read is cut at its end */
};

/* Creator: how much memory of the bytes part is populated. */
struct ntx_region_pages {
    uint64_t at;     /* all memory before this offset is populated */
    uint64_t huge;   /* huge pages so far, in units of NTX_HUGE */
    int failed, why; /* huge pages refused in a row, and the last one's -errno */
};

enum ntx_region_part {
    NTX_REGION_PLAN,
    NTX_REGION_CONTROL,
    NTX_REGION_RING,
    NTX_REGION_BYTES,
    NTX_REGION_PARTS /* parts that iod gets, in the order in which they are passed */
};

/* The private handle: typed pointers into the parts. The creator's hdr, chunks and sched point to its own memory. */
struct ntx_region {
    struct ntx_region_hdr *hdr;
    struct ntx_plan_chunk *chunks;
    uint32_t *sched;
    struct ntx_control_page *control;
    _Atomic uint32_t *quarantine;
    struct ntx_pass_map *pass_map;
    struct ntx_read_request *request;
    struct ntx_ring *ring;
    _Atomic uint32_t *state;
    struct ntx_desc *desc;
    struct ntx_demand *demand;
    uint8_t *base;  /* the bytes part */
    uint64_t bytes; /* its size */
    struct ntx_segment part[NTX_REGION_PARTS];
    void *own; /* creator: its copy of the plan, own_bytes long */
    uint64_t own_bytes;
    struct ntx_board board; /* creator */
    struct ntx_region_pages pages;
    double huge_share; /* creator, after ntx_region_settle: share of the bytes part in huge pages, 0..1 */
};

/* All offsets follow from the geometry alone (region_check.c). block is a power of two; slot_bytes, frame_bytes,
 * arena_bytes and stage_bytes are multiples of it; n_slots >= n_desc. The range of each host chunk, widened to blocks,
 * is inside the arena. */
struct ntx_region_geometry {
    uint32_t block, n_files, n_chunks, n_sched, n_desc, n_slots, n_demands, n_bundle_demands, n_stage_reads, n_probes,
        n_layers, n_embd;
    uint64_t slot_bytes, frame_bytes, arena_bytes, stage_bytes, epoch;
};

/* For planning: bytes of a region with this geometry, all parts and the creator's copy of the plan; 0 on overflow. */
uint64_t ntx_region_bytes(const struct ntx_region_geometry *g);
/* Makes the memfds, maps them (the bytes part 2 MiB-aligned), populates them, collapses them into huge pages where the
 * kernel allows it, and locks them where the limit allows it. `note` reports refusals in one line, or is empty. -ENOMEM
 * with the number of bytes in err. */
int ntx_region_create(const struct ntx_region_geometry *g, struct ntx_region *r, char *note, size_t note_len,
                      struct ntx_err *err);
/* The same in steps, for a caller that has other work meanwhile. begin makes the tables' memory. bring_in populates the
 * next `bytes` (rounded up to huge pages) from r->pages.at on, by one thread. settle, when pages.at has reached
 * r->bytes, sets huge_share and locks. Nothing may be read into memory that is not populated yet: it would get small
 * pages. After an error the caller closes the region. */
int ntx_region_begin(const struct ntx_region_geometry *g, struct ntx_region *r, struct ntx_err *err);
int ntx_region_bring_in(struct ntx_region *r, uint64_t bytes, struct ntx_err *err);
void ntx_region_settle(struct ntx_region *r, char *note, size_t note_len);
/* The creator fills in file_bytes[], chunks[] and sched[], and then publishes them as the plan part. All words are
 * FREE(0) at that time. A second call makes a new part, for workers that attach from then on. */
int ntx_region_publish(struct ntx_region *r, struct ntx_err *err);
/* iod maps the parts that it received and validates sizes, seals, magic, version, geometry and every entry of the plan.
 * Takes over the descriptors, also on failure. */
int ntx_region_attach(const int fd[NTX_REGION_PARTS], struct ntx_region *r, struct ntx_err *err);
void ntx_region_close(struct ntx_region *r); /* accepts a zeroed or closed handle */

/* Populates bytes [from, from + bytes) of a segment that its creator has mapped, in huge pages where these fit, and
 * locks them where the limit allows it. */
int ntx_segment_bring_in(struct ntx_segment *s, uint64_t from, uint64_t bytes, struct ntx_err *err);

static inline uint8_t *ntx_region_slot(const struct ntx_region *r, uint32_t slot)
{
    return r->base + slot * r->hdr->slot_bytes;
}
static inline uint8_t *ntx_region_frame(const struct ntx_region *r, uint32_t i)
{
    return r->base + r->hdr->off_frames + i * r->hdr->frame_bytes;
}

/* The stage's requests are the last. */
static inline uint32_t ntx_region_first_stage(const struct ntx_region_hdr *h)
{
    return h->n_demands + h->n_bundle_demands;
}
static inline uint32_t ntx_region_all_demands(const struct ntx_region_hdr *h)
{
    return ntx_region_first_stage(h) + h->n_stage_reads;
}

#endif
