/* region.h: the shared region of a loaded model. One per model: a memfd made by computed, mapped by all three daemons.
 *
 *   0            header        struct ntx_region_hdr, geometry first (constant), then one cache line per live word
 *   off_chunks   plan table    struct ntx_plan_chunk [n_chunks]   constant once announced
 *   off_sched    schedule      uint32_t [n_sched]                 chunk numbers of the streamed chunks, in order of use
 *   off_state    chunk state   _Atomic uint32_t [n_chunks]        of host chunks: iod writes, computed waits, and sets FAILED back
 *   off_desc     descriptors   struct ntx_desc [n_desc]           the ring
 *   off_taint    taint         _Atomic uint32_t [n_slots]         computed writes
 *   off_pass     drop maps     struct ntx_pass_map [NTX_PASS_MAPS]
 *   off_demand   demands       struct ntx_demand [n_demands + n_bundle_demands]
 *   off_probe    probe board   struct ntx_probe [n_probes], then float [n_probes x (n_embd + n_layers)] at off_probe_data
 *   off_slots    slots         n_slots x slot_bytes   | 2 MiB aligned, in huge pages; DMA lands here
 *   off_frames   demand frames n_demands x frame_bytes|
 *   off_arena    host arena    arena_bytes            |
 *   bytes
 *
 * THE RING. Sequence number s = 0, 1, 2, ... runs over all passes: pass = s / n_sched, schedule index = s % n_sched.
 * Sequence s always uses descriptor s % n_desc. A descriptor's word holds its state and its lap (s / n_desc, 28 bits):
 *   FREE(lap)    computed wrote it: iod may fill sequence lap * n_desc + i
 *   FILLING(lap) iod, with a slot chosen among those that no descriptor holds and that are not tainted
 *   READY(lap) | FAILED(lap) | SKIPPED(lap)   iod; computed then reads the bytes at slot + shift, and writes FREE(lap + 1)
 * The words alone tell everything: a restarted iod finds the next sequence to fill as the least FREE one.
 * Words of host chunks: FREE (nothing read yet) -> FILLING -> READY | FAILED, all with gen 0 but FAILED, whose gen is the positive errno. While a model
 * is loaded their memory may still be on its way: SKIPPED until it is there, then computed sets FREE, and counts host_again.
 * computed sets FAILED ones FREE when the next pass begins, and counts host_again: they are read once more.
 * One producer (iod), one consumer (computed). computed sleeps on the word by futex; iod sleeps in its event loop
 * and sets iod_asleep first; computed writes the wake eventfd only when iod_asleep is set and half the ring is free.
 *
 * DEATH. iod dies: computed (not the new iod) looks at all FILLING words: their slots become tainted, the words FREE again
 * at the same lap, and only then is a new iod attached; it reads into other slots (n_slots > n_desc: spares). Taint is lifted when the
 * dead iod's io_uring shows as many completions as submissions (computed holds a duplicate). FILLING host chunks
 * are simply set EMPTY: a late DMA writes the same bytes to the same place, and until the lift of taint computed leaves these as they are (what is
 * READY and not tainted it may re-arrange: cpu/woven.h). FILLING demands: their frames are tainted likewise.
 * A bundle's frame is tainted with any of its demands: it keeps its bundle until the taint is lifted.
 * computed dies: the workers see their socket close and exit; the memfd goes with the last of them.
 *
 * Every field has one writer, named beside it. All multi-byte fields are native-endian: the daemons share one machine. */
#ifndef NTX_SHM_REGION_H
#define NTX_SHM_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define NTX_REGION_MAGIC 0x31786e7467726e6eULL
#define NTX_REGION_VERSION 2u
#define NTX_HUGE (2u << 20)
#define NTX_PASS_MAPS 4
#define NTX_MAP_WORDS 9 /* 513 layers: the output counts as one, and is never dropped by a decision */
#define NTX_MAX_FILES 100
#define NTX_NEVER_DROPPED UINT32_MAX

/* A state word: state in the low 4 bits, generation (lap or use count) in the upper 28. */
enum ntx_state { NTX_FREE, NTX_FILLING, NTX_READY, NTX_FAILED, NTX_SKIPPED, NTX_POSTED };
static inline uint32_t ntx_word(uint32_t gen, enum ntx_state s) { return gen << 4 | (uint32_t)s; }
static inline enum ntx_state ntx_word_state(uint32_t w) { return (enum ntx_state)(w & 15); }
static inline uint32_t ntx_word_gen(uint32_t w) { return w >> 4; }

enum ntx_placement { NTX_PLACE_STORAGE, NTX_PLACE_HOST, NTX_PLACE_DEVICE, NTX_PLACE_FRAME /* of an expert: read on demand, kept as long as it pays */ };

struct ntx_plan_chunk {
    uint64_t offset;    /* exact, in its file */
    uint64_t bytes;
    uint64_t where;     /* host: region offset of the chunk's FIRST byte (congruent to `offset` modulo block) */
    uint32_t file;
    uint32_t layer;     /* bit of the drop map; NTX_NEVER_DROPPED: none, K and V where tokens leave them in layers that they skip */
    uint32_t placement; /* enum ntx_placement */
    uint32_t sched;     /* its index in the schedule when placement is storage */
};

struct ntx_desc {
    _Atomic uint32_t word; /* writers as above */
    uint32_t slot;         /* iod, from FILLING on */
    uint32_t chunk;        /* iod; computed checks chunk, sched and pass */
    uint32_t sched;        /* iod */
    uint64_t pass;         /* iod */
    uint32_t shift;        /* iod: first byte of the chunk lies at slot + shift */
    int32_t err;           /* iod, when FAILED: negative errno */
    uint64_t t_issue, t_ready; /* iod: CLOCK_MONOTONIC ns, for the trace */
    char pad[16];
};
_Static_assert(sizeof(struct ntx_desc) == 64, "one descriptor per cache line");

/* Which layers no row of a pass needs. computed sets `pass` (release) after clearing the bits, then only ever sets bits.
 * iod obeys the map of pass p only while map[p % NTX_PASS_MAPS].pass == p. */
struct ntx_pass_map {
    _Atomic uint64_t pass;                /* computed; UINT64_MAX while none */
    _Atomic uint64_t drop[NTX_MAP_WORDS]; /* computed: bit per layer */
    char pad[128 - 8 * (1 + NTX_MAP_WORDS)];
};

/* A read on demand. FREE -> POSTED (computed) -> FILLING -> READY | FAILED (iod) -> FREE(gen + 1) (computed). Both sides leave POSTED by compare
 * and exchange: computed may take back what iod has not begun, POSTED -> FREE(gen + 1).
 * The first n_demands are for embedding rows: demand i reads into frame i. The others are for parts of bundles: they read into the
 * arena, where `dest` says; which bundle has which part of the arena is computed's own business. Completed in any order. */
struct ntx_demand {
    _Atomic uint32_t word;
    uint32_t file;     /* computed */
    uint64_t offset;   /* computed: exact */
    uint32_t bytes;    /* computed */
    uint32_t shift;    /* iod: first byte at frame + shift */
    int32_t err;       /* iod */
    _Atomic uint32_t tainted; /* computed: not to be posted while set */
    uint64_t dest;     /* computed: of a bundle's: region offset that the first block goes to */
    _Atomic uint32_t early; /* computed: nobody waits for it: read when nothing else is wanted. May be cleared at any time, and demand_posted counted up then */
    char pad[20];
};
_Static_assert(sizeof(struct ntx_demand) == 64, "");

/* A hidden state shown to the predictor, and behind it what its session has seen of each layer's similarity of input and output (NaN
 * where nothing). computed fills the row of floats, then the fields, then word READY(gen);
 * the message names (index, gen). computed sets FREE(gen + 1) when the decision came or is no longer wanted. */
struct ntx_probe {
    _Atomic uint32_t word; /* computed */
    uint32_t row;          /* computed: row of the pass */
    uint64_t pass;         /* computed */
    uint64_t session;      /* computed */
    uint32_t layer;        /* computed: state after this layer */
    uint32_t pos;          /* computed: position of the row's token in its session */
    char pad[32];
};
_Static_assert(sizeof(struct ntx_probe) == 64, "");

struct ntx_region_hdr {
    uint64_t magic;
    uint32_t version, hdr_bytes;
    uint64_t epoch;          /* one per load; carried by every message */
    uint64_t bytes;          /* of the whole region */
    uint32_t block;          /* file reads start and end on multiples of this (4096) */
    uint32_t n_files, n_chunks, n_sched, n_desc, n_slots, n_demands, n_bundle_demands, n_probes, n_layers, n_embd;
    uint64_t slot_bytes, frame_bytes, arena_bytes;
    uint64_t off_chunks, off_sched, off_state, off_desc, off_taint, off_pass, off_demand, off_probe, off_probe_data;
    uint64_t off_slots, off_frames, off_arena;
    uint64_t file_bytes[NTX_MAX_FILES]; /* size of each file: a widened read is cut at its end */

    _Alignas(64) _Atomic uint32_t iod_asleep;      /* iod */
    _Alignas(64) _Atomic uint32_t demand_posted;   /* computed: count of posts so far; iod compares with what it took */
    _Atomic uint32_t host_again;                   /* computed: count of times that host chunks were set FREE; iod then looks at all anew */
    _Alignas(64) _Atomic uint64_t current_pass;    /* computed: the pass being executed, for the monitors */
    _Alignas(64) _Atomic uint32_t stop;            /* computed: 1 = detach, read nothing any more */
};

/* Creator: how far the region's memory has been brought in. */
struct ntx_region_pages {
    uint64_t front_end; /* of the tables */
    uint64_t at;        /* region offset: all before it is there */
    uint64_t huge;      /* huge pages so far */
    int failed, why;    /* how many in a row were not to be had, and the last one's -errno */
};

/* The private handle: typed pointers into one mapping. */
struct ntx_region {
    int fd;
    uint8_t *base;
    size_t bytes;
    bool writable;
    struct ntx_region_hdr *hdr;
    struct ntx_plan_chunk *chunks;
    uint32_t *sched;
    _Atomic uint32_t *state;
    struct ntx_desc *desc;
    _Atomic uint32_t *taint;
    struct ntx_pass_map *pass_map;
    struct ntx_demand *demand;
    struct ntx_probe *probe;
    float *probe_data;
    struct ntx_region_pages pages;
    double huge_share; /* creator, once settled: part of slots+frames+arena that is in huge pages, 0..1 */
};

/* Offsets follow from the geometry alone (region_check.c), and attach compares them. block: a power of two; slot_bytes, frame_bytes and
 * arena_bytes are multiples of it; n_slots >= n_desc. The widened range of each host chunk lies inside the arena. */
struct ntx_region_geometry {
    uint32_t block, n_files, n_chunks, n_sched, n_desc, n_slots, n_demands, n_bundle_demands, n_probes, n_layers, n_embd;
    uint64_t slot_bytes, frame_bytes, arena_bytes, epoch;
};

/* Bytes of a region with this geometry, for planning; 0 on overflow. */
uint64_t ntx_region_bytes(const struct ntx_region_geometry *g);
/* memfd, mapped 2 MiB-aligned, populated, collapsed into huge pages where the kernel allows, locked where the limit
 * allows (refusals are told in `note`, one line, maybe empty). -ENOMEM with the number of bytes in err. */
int ntx_region_create(const struct ntx_region_geometry *g, struct ntx_region *r, char *note, size_t note_len, struct ntx_err *err);
/* The same by steps, for who has better to do than to wait for all of it: with the tables' memory only; the memory of the next `bytes` (whole huge pages), from
 * r->pages.at on, by one thread; and, when pages.at has reached r->bytes, huge_share and the lock. Nothing may be read into what is not there yet: it would come in
 * small pages. After an error it is closed, as a whole one. */
int ntx_region_begin(const struct ntx_region_geometry *g, struct ntx_region *r, struct ntx_err *err);
int ntx_region_bring_in(struct ntx_region *r, uint64_t bytes, struct ntx_err *err);
void ntx_region_settle(struct ntx_region *r, char *note, size_t note_len);
/* The creator fills in file_bytes[], chunks[] and sched[] before the descriptor goes to anybody; all words are FREE(0) by then.
 * Maps a received descriptor and validates magic, version, geometry and bounds of every table and entry. Takes fd over. */
int ntx_region_attach(int fd, bool writable, struct ntx_region *r, struct ntx_err *err);
void ntx_region_close(struct ntx_region *r); /* a zeroed or closed handle is fine */

static inline size_t ntx_region_probe_floats(const struct ntx_region *r) { return (size_t)r->hdr->n_embd + r->hdr->n_layers; }
static inline uint8_t *ntx_region_slot(const struct ntx_region *r, uint32_t slot)
{
    return r->base + r->hdr->off_slots + slot * r->hdr->slot_bytes;
}
static inline uint8_t *ntx_region_frame(const struct ntx_region *r, uint32_t i)
{
    return r->base + r->hdr->off_frames + i * r->hdr->frame_bytes;
}

static inline uint32_t ntx_region_all_demands(const struct ntx_region_hdr *h) { return h->n_demands + h->n_bundle_demands; }

/* Futex wait on a shared word while it holds `seen`; returns 0 when woken or changed, -ETIMEDOUT, -EINTR. timeout_ns 0: forever. */
int ntx_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns);
void ntx_futex_wake(_Atomic uint32_t *word);

#endif
