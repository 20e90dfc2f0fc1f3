/* SPDX-License-Identifier: Apache-2.0 */
/* stream_impl.h: inside of the stream, shared by its files.
 *
 *   stream.c        passes and the ring: which sequence a chunk is, taking it, letting it go, leaving it out
 *   stream_wait.c   waiting for a word, waking iod, what failed and in which words
 *   stream_entries.c entries of tables on demand
 *   stream_experts.c  experts on demand, in frames that cache.c chooses
 *   stream_prefetch.c  the same ahead of time, when it is only likely that they will be wanted
 *   stream_groups.c   groups of a packed model's neurons on demand
 *   stream_own.c    what computed knows of the words by itself: whatever iod writes, the next iod finds what is true
 *   stream_death.c  what the main thread does to the region when iod has died
 *
 * Threads. Engine: begin, end, skip, entries, drop_layer. Compute threads: acquire, release. Main: errors, abort,
 * cancel, death. What two of them touch is atomic, or under `lock`. */
#ifndef NTX_COMPUTED_WEIGHTS_STREAM_IMPL_H
#define NTX_COMPUTED_WEIGHTS_STREAM_IMPL_H

#include <errno.h>
#include <pthread.h>

#include "computed/weights/stream.h"

#define NTX__GEN      0x0fffffffu /* generations have 28 bits */
#define NTX__TEXTS    16          /* failures whose text came before the failure was met */
#define NTX__NO_CHUNK UINT32_MAX

enum ntx__hold { NTX__NONE, NTX__HELD, NTX__GONE }; /* of a scheduled chunk in this pass: untouched, acquired, let go */

struct ntx__held { /* of a scheduled chunk that is HELD */
    uint64_t seq;
    uint32_t slot; /* where its bytes are */
};

struct ntx__late { /* a sequence that nobody waits for, to be freed once iod is through with it */
    uint64_t seq;
    bool skipped; /* of a dropped layer: counted as early or late; else left over by a failed pass */
};

struct ntx__io_text {
    bool used;
    uint32_t chunk; /* NTX__NO_CHUNK: a demand */
    char text[256];
};

struct ntx__entry_query { /* of one table */
    uint32_t file, entry_bytes, n;
    uint64_t offset;
    const int32_t *ids;
    uint8_t *out;
    uint32_t next; /* entries before it are posted, or equal to an earlier one */
    uint32_t left; /* of those that were asked for ahead: not come yet */
};

struct ntx_stream {
    struct ntx_weights w; /* first; w.error is written under lock, before failed is set */
    struct ntx_region *r;
    struct ntx_counters *counters;
    int wake_fd;
    uint64_t limit_ns, text_wait_ns;
    const char *const *names; /* [NTX_MAX_FILES], or NULL */
    pthread_mutex_t lock;
    pthread_cond_t text_came;

    uint64_t pass, next_pass; /* engine: the one that runs, and the least that may begin */
    uint64_t begun;           /* engine: the pass that was begun last, be it that it only waits for room */
    bool in_pass;
    _Atomic uint8_t *hold;             /* [n_sched] enum ntx__hold */
    _Atomic uint8_t *quarantined_host; /* [n_chunks] host chunks that a dead iod may still write to. Main thread: set
                                          before the word is FREE again */
    _Atomic uint64_t *taken_ns;        /* [n_sched] when it was acquired in this pass, for the trace */
    _Atomic int failed;                /* errno of this pass's failure, 0 none */
    _Atomic int aborted;               /* errno, by ntx_stream_abort */
    _Atomic uint64_t cancelled;        /* 1 + the pass that nobody wants any more, 0 none */
    _Atomic bool stalling;             /* one of the waiting threads counts the time of all */

    pthread_mutex_t own;    /* guards what follows, and each change of a word by computed; inside of `lock` */
    uint64_t *at;           /* [n_desc] the sequence that the descriptor is at: the first that is not let go */
    struct ntx__held *held; /* [n_sched] */
    _Atomic uint8_t *taken; /* [n_chunks] host chunks that were acquired: they stay as they are. Written under own */
    uint32_t *said;         /* [n_demands + n_bundle_demands] the word as computed wrote it last: FREE or POSTED */
    uint64_t memory_end;    /* of the bytes: up to here their memory is there */
    uint8_t *seen;          /* [n_slots] main: scratch */
    bool odd;               /* main: the iod that died last wrote what it never writes when it is well */
    uint64_t let_go;        /* words that were READY or SKIPPED when they were let go */

    struct ntx__late *late;  /* lock; [2 * n_sched] */
    _Atomic uint32_t n_late; /* written under lock */

    struct ntx__io_text texts[NTX__TEXTS]; /* lock */
    uint32_t next_text;
    char refused[256];    /* lock: why all reads fail; "" while they do not */
    char abort_text[256]; /* lock */

    struct ntx__experts *experts; /* NULL: there are none in frames */
    struct ntx__groups *groups;   /* NULL: none are on demand */
    uint32_t *entry_frame; /* engine: [n_demands] which entry is in which frame, during entries() and while any are
                              asked for ahead; UINT32_MAX: none */
    struct ntx__entry_query asked; /* engine: those that are asked for ahead; n 0: none are */
};

/* The pass has failed with rc (the first failure wins); returns the errno that all callers get. */
int ntx__stream_fail(struct ntx_stream *s, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Same, for a read that iod gave up; waits a moment for iod's own words. */
int ntx__stream_fail_read(struct ntx_stream *s, uint32_t chunk, uint32_t file, uint64_t offset, uint64_t bytes,
                          int err);

/* What iod would say of a read that it gave up, as far as this side knows. */
void ntx__stream_describe_read(const struct ntx_stream *s, uint32_t file, uint64_t offset, uint64_t bytes, int err,
                               char *text, size_t n);

/* The errno of the pass's failure, or of an abort or cancel (which fail it); 0: go on. */
int ntx__stream_check_abort(struct ntx_stream *s);

/* Waits until the word is READY, FAILED or SKIPPED with generation gen; *seen is what it was then. Fails (and so ends
 * the pass) on abort, another thread's failure, or the time limit. `what` and `number` are for the error text. */
int ntx__stream_wait(struct ntx_stream *s, _Atomic uint32_t *word, uint32_t gen, enum ntx_trace_wait what,
                     uint64_t number, uint32_t *seen);
/* One slice of a longer wait: frees what is late, wakes iod, sleeps on the word while it holds `seen`. The wait began
 * with ntx_patience(s->limit_ns). */
int ntx__stream_pause(struct ntx_stream *s, _Atomic uint32_t *word, uint32_t seen, struct ntx_patience *patience,
                      const char *what, uint64_t number);
uint64_t ntx__stream_stall_begin(struct ntx_stream *s); /* time, or 0: another thread counts already */
void ntx__stream_stall_end(struct ntx_stream *s, uint64_t since, enum ntx_trace_wait what);

/* Wakes iod if it sleeps. To be called after the words it is to see were stored with memory_order_seq_cst. */
void ntx__stream_wake(struct ntx_stream *s);

/* The word has generation gen, and iod is through with it. */
static inline bool ntx__settled(uint32_t word, uint32_t gen)
{
    enum ntx_state st = ntx_word_state(word);
    return ntx_word_gen(word) == (gen & NTX__GEN) && (st == NTX_READY || st == NTX_FAILED || st == NTX_SKIPPED);
}

/* Of a demand's word: ntx-iod leaves no demand out, so one that says so has failed. */
static inline enum ntx_state ntx__demand_state(uint32_t word)
{
    enum ntx_state st = ntx_word_state(word);
    return st == NTX_SKIPPED ? NTX_FAILED : st;
}

/* What ntx-iod says of a failure, where it is an errno at all. */
static inline int ntx__iod_errno(int err) { return err < 0 && err >= -4095 ? err : -EIO; }

/* ntx-iod may write it at any moment: it is read once, and what was read is checked and used. */
static inline uint32_t ntx__desc_slot(const struct ntx_desc *d) { return __atomic_load_n(&d->slot, __ATOMIC_RELAXED); }

static inline struct ntx_desc *ntx__desc_of(const struct ntx_stream *s, uint64_t seq)
{
    return &s->r->desc[seq % s->r->hdr->n_desc];
}
static inline uint32_t ntx__lap_of(const struct ntx_stream *s, uint64_t seq)
{
    return (uint32_t)(seq / s->r->hdr->n_desc) & NTX__GEN;
}

/* ---- stream_own.c */
int ntx__own_new(struct ntx_stream *s);
void ntx__own_free(struct ntx_stream *s);
/* The sequence is let go: its descriptor is FREE for the next one. */
void ntx__own_free_desc(struct ntx_stream *s, uint64_t seq);
/* Its descriptor is at this sequence, and iod is through with it; *word: how. */
bool ntx__own_settled(struct ntx_stream *s, uint64_t seq, uint32_t *word);
/* Whether the descriptor is, word aside, as iod fills it in for this sequence. */
bool ntx__own_fits(const struct ntx_stream *s, uint64_t seq, const struct ntx_desc *d);
/* Takes a sequence whose word said READY: *d is a copy of its descriptor. Returns 1; 0: the word has changed since;
 * -EPROTO: it does not fit, or is before its turn. */
int ntx__own_take(struct ntx_stream *s, uint64_t seq, struct ntx_desc *d);
bool ntx__own_has_memory(const struct ntx_stream *s, uint32_t chunk); /* the place of a host chunk; own is held */
bool ntx__own_take_host(struct ntx_stream *s, uint32_t chunk);        /* False: the word is not READY any more */
/* Demand i of all, by the engine thread. */
static inline uint32_t ntx__own_gen(const struct ntx_stream *s, uint32_t i) { return ntx_word_gen(s->said[i]); }
void ntx__own_post(struct ntx_stream *s, uint32_t i);
void ntx__own_free_demand(struct ntx_stream *s, uint32_t i);
bool ntx__own_take_back(struct ntx_stream *s, uint32_t i); /* False: iod has begun it, or it has ended */

/* Frees those late sequences that iod is through with. Any thread. */
void ntx__stream_free_late(struct ntx_stream *s);

int ntx__experts_new(struct ntx_stream *s, const struct ntx_stream_config *c, struct ntx__experts **out);
void ntx__experts_free(struct ntx__experts *x);
void ntx__stream_routed(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, const uint32_t *times,
                        uint32_t n, uint32_t of, const float *scores);
int ntx__stream_want(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n, bool must,
                     uint8_t *late);
void ntx__stream_done(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n);
void ntx__stream_prefetch_experts(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n);
void ntx__stream_stage_experts(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n);
void ntx__stream_more_experts(struct ntx_weights *w);
int ntx__stream_acquire_expert(struct ntx_stream *s, uint32_t chunk, const struct ntx_plan_chunk *c,
                               const void **bytes);
bool ntx__expert_there(struct ntx_stream *s, uint32_t chunk); /* to acquire it, of one that was taken, does not wait */
void ntx__experts_end(struct ntx_stream *s);                  /* of a pass: nothing is in use any more */

int ntx__groups_new(struct ntx_stream *s, const struct ntx_stream_config *c, struct ntx__groups **out);
void ntx__groups_free(struct ntx__groups *x);
int ntx__stream_want_groups(struct ntx_weights *w, uint32_t layer, const uint32_t *groups, uint32_t n);
int ntx__stream_prefetch_groups(struct ntx_weights *w, uint32_t layer, const uint32_t *groups, uint32_t n);
int ntx__stream_acquire_groups(struct ntx_stream *s, uint32_t chunk, const struct ntx_plan_chunk *c,
                               const void **bytes);

int ntx__stream_entries(struct ntx_weights *w, uint32_t file, uint64_t offset, uint32_t entry_bytes, const int32_t *ids,
                        uint32_t n, void *out);
int ntx__stream_ask_entries(struct ntx_weights *w, uint32_t file, uint64_t offset, uint32_t entry_bytes,
                            const int32_t *ids, uint32_t n, void *out);
int ntx__stream_more_entries(struct ntx_weights *w);
int ntx__stream_entries_there(struct ntx_weights *w);

#endif
