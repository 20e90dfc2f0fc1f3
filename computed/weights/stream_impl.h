/* SPDX-License-Identifier: Apache-2.0 */
/* stream_impl.h: internals of the stream, shared by its files.
 *
 *   stream.c           passes and the ring: a chunk's sequence; acquire, release, skip
 *   stream_wait.c      waits for a word, wakes iod, keeps errors and their texts
 *   stream_entries.c   entries of tables on demand
 *   stream_experts.c   experts on demand, in frames that cache.c selects
 *   stream_prefetch.c  prefetch reads for experts that are predicted
 *   stream_preload.c   experts that earlier loads used most, read before anybody wants them
 *   stream_groups.c    groups of a packed model's neurons on demand
 *   stage.c            reads for the encode of a picture, beside all passes (stage.h)
 *   stream_own.c       computed's own record of the words: whatever iod writes, the next iod finds the truth
 *   stream_death.c     what the main thread does to the region when iod has died
 *
 * Threads. Engine: begin, end, skip, entries, drop_layer. Compute threads: acquire, release. Main: errors, abort,
 * cancel, death. Encode: the stage. Data that two of them touch is atomic, or under `lock`. */
#ifndef NTX_COMPUTED_WEIGHTS_STREAM_IMPL_H
#define NTX_COMPUTED_WEIGHTS_STREAM_IMPL_H

#include <errno.h>
#include <pthread.h>

#include "computed/weights/stage.h"
#include "computed/weights/stream.h"

#define NTX__GEN      0x0fffffffu /* generations have 28 bits */
#define NTX__TEXTS    16          /* failures whose text may arrive before the failure is met */
#define NTX__NO_CHUNK UINT32_MAX

enum ntx__hold { NTX__NONE, NTX__HELD, NTX__GONE }; /* a scheduled chunk in this pass: untouched, acquired, released */

struct ntx__held { /* a scheduled chunk that is HELD */
    uint64_t seq;
    uint32_t slot; /* where its bytes are */
};

struct ntx__late { /* a sequence that nobody waits for; freed once iod has finished with it */
    uint64_t seq;
    bool skipped; /* of a dropped layer: counted as read or not; else left over by a failed pass */
};

struct ntx__io_text {
    bool used;
    uint32_t chunk; /* NTX__NO_CHUNK: a demand */
    char text[256];
};

struct ntx__entry_query { /* entries of one table */
    uint32_t file, entry_bytes, n;
    uint64_t offset;
    const int32_t *ids;
    uint8_t *out;
    uint32_t next; /* entries before it are posted, or equal to an earlier one */
    uint32_t left; /* entries asked for ahead that have not come yet */
};

struct ntx_stream {
    struct ntx_weights w;        /* first; w.error is written under lock, before failed is set */
    struct ntx_weights resident; /* likewise, of the arena alone */
    struct ntx_region *r;
    struct ntx_counters *counters;
    int wake_fd;
    uint64_t limit_ns, text_wait_ns;
    const char *const *names; /* [NTX_MAX_FILES], or NULL */
    pthread_mutex_t lock;
    pthread_cond_t text_came;

    uint64_t pass, next_pass; /* engine: the pass that runs, and the lowest that may begin */
    uint64_t begun;           /* engine: the pass begun last, even if it still waits for room */
    bool in_pass;
    _Atomic uint8_t *hold; /* [n_sched] enum ntx__hold */
    /* [n_chunks] host chunks that a dead iod may still write to. Main thread: set before the word is FREE again. */
    _Atomic uint8_t *quarantined_host;
    _Atomic uint64_t *taken_ns; /* [n_sched] when it was acquired in this pass, for the trace */
    _Atomic int failed;         /* errno of this pass's failure, 0: none */
    _Atomic int aborted;        /* errno, by ntx_stream_abort */
    _Atomic uint64_t cancelled; /* 1 + the cancelled pass, 0: none */
    _Atomic bool stalling;      /* one waiting thread counts the time for all */

    pthread_mutex_t own;    /* guards the fields below, and each change of a word by computed; taken inside `lock` */
    uint64_t *at;           /* [n_desc] the descriptor's present sequence: the first one not released */
    struct ntx__held *held; /* [n_sched] */
    _Atomic uint8_t *taken; /* [n_chunks] host chunks that were acquired: their content is final. Written under own */
    uint32_t *said;         /* [all requests] the word as computed wrote it last: FREE or POSTED */
    uint64_t memory_end;    /* the region's memory exists up to this offset */
    uint8_t *seen;          /* [n_slots] main: scratch */
    bool odd;               /* main: the last iod to die wrote what a sound one never writes */
    uint64_t let_go;        /* words that were READY or SKIPPED when they were released */

    struct ntx__late *late;  /* lock; [2 * n_sched] */
    _Atomic uint32_t n_late; /* written under lock */

    struct ntx__io_text texts[NTX__TEXTS]; /* lock */
    uint32_t next_text;
    char refused[256];    /* lock: why all reads fail; "": they do not */
    char abort_text[256]; /* lock */

    _Atomic bool unproved;        /* an iod died whose reads can never be proved finished */
    struct ntx_stage *stage;      /* NULL: the region has none */
    struct ntx__experts *experts; /* NULL: no experts in frames */
    struct ntx__groups *groups;   /* NULL: no groups on demand */
    /* engine: [n_demands] the entry in each frame, during entries() and while entries are asked for ahead; UINT32_MAX:
     * none. */
    uint32_t *entry_frame;
    struct ntx__entry_query asked; /* engine: entries asked for ahead; n 0: none */
};

/* The pass fails with rc; the first failure wins. Returns the errno that all callers get. */
int ntx__stream_fail(struct ntx_stream *s, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Same, for a read that iod could not do; waits a moment for iod's own text. */
int ntx__stream_fail_read(struct ntx_stream *s, uint32_t chunk, uint32_t file, uint64_t offset, uint64_t bytes,
                          int err);

/* The text of a failed read, where iod's own has not come. */
void ntx__stream_describe_read(const struct ntx_stream *s, uint32_t file, uint64_t offset, uint64_t bytes, int err,
                               char *text, size_t n);

/* iod's own text about a failed read, which comes by another channel than the word, and maybe never; waits a moment. */
bool ntx__stream_wait_text(struct ntx_stream *s, uint32_t chunk, char *text, size_t n);
void ntx__stream_forget_texts(struct ntx_stream *s, uint32_t chunk);

/* The negative errno of an abort, with its text [sizeof s->abort_text]; 0: none. */
int ntx__stream_aborted(struct ntx_stream *s, char *text);

/* The errno of the pass's failure, or of an abort or cancel (which fail it); 0: go on. */
int ntx__stream_check_abort(struct ntx_stream *s);

/* Waits until the word is READY, FAILED or SKIPPED with generation gen; *seen: its value then. Fails, and so ends the
 * pass, on abort, another thread's failure, or the time limit. `what` and `number` are for the error text. */
int ntx__stream_wait(struct ntx_stream *s, _Atomic uint32_t *word, uint32_t gen, enum ntx_trace_wait what,
                     uint64_t number, uint32_t *seen);
/* One slice of a longer wait: frees late sequences, wakes iod, sleeps on the word while it holds `seen`. The wait began
 * with ntx_patience(s->limit_ns). */
int ntx__stream_pause(struct ntx_stream *s, _Atomic uint32_t *word, uint32_t seen, struct ntx_patience *patience,
                      const char *what, uint64_t number);
/* The time, or 0: another thread already counts. */
uint64_t ntx__stream_stall_begin(struct ntx_stream *s);
void ntx__stream_stall_end(struct ntx_stream *s, uint64_t since, enum ntx_trace_wait what);

/* Wakes iod if it sleeps. Call it after the words that iod must see were stored with memory_order_seq_cst. */
void ntx__stream_wake(struct ntx_stream *s);

/* The word has generation gen, and iod has finished with it. */
static inline bool ntx__settled(uint32_t word, uint32_t gen)
{
    enum ntx_state st = ntx_word_state(word);
    return ntx_word_gen(word) == (gen & NTX__GEN) && (st == NTX_READY || st == NTX_FAILED || st == NTX_SKIPPED);
}

/* The state in a request's word. iod never skips a request, so SKIPPED counts as FAILED. */
static inline enum ntx_state ntx__demand_state(uint32_t word)
{
    enum ntx_state st = ntx_word_state(word);
    return st == NTX_SKIPPED ? NTX_FAILED : st;
}

/* The errno that iod reported, or -EIO where its value is no errno. */
static inline int ntx__iod_errno(int err) { return err < 0 && err >= -4095 ? err : -EIO; }

/* iod may write it at any moment: read it once, then check and use that value. */
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
/* Releases the sequence: its descriptor is FREE for the next one. */
void ntx__own_free_desc(struct ntx_stream *s, uint64_t seq);
/* The descriptor is at this sequence, and iod has finished with it; *word: its word. */
bool ntx__own_settled(struct ntx_stream *s, uint64_t seq, uint32_t *word);
/* The descriptor's fields, except the word, are as iod fills them in for this sequence. */
bool ntx__own_fits(const struct ntx_stream *s, uint64_t seq, const struct ntx_desc *d);
/* Takes a sequence whose word was READY; *d: a copy of its descriptor. Returns 1; 0: the word has changed since;
 * -EPROTO: the descriptor does not fit the sequence. */
int ntx__own_take(struct ntx_stream *s, uint64_t seq, struct ntx_desc *d);
/* The host chunk's place has memory; own is held. */
bool ntx__own_has_memory(const struct ntx_stream *s, uint32_t chunk);
/* False: the word is no longer READY. */
bool ntx__own_take_host(struct ntx_stream *s, uint32_t chunk);
/* Request i of all, by the thread that posts it: the engine's; of the stage, under the stage's lock. */
static inline uint32_t ntx__own_gen(const struct ntx_stream *s, uint32_t i) { return ntx_word_gen(s->said[i]); }
void ntx__own_post(struct ntx_stream *s, uint32_t i);
void ntx__own_free_demand(struct ntx_stream *s, uint32_t i);
/* Withdraws a request. False: iod has begun it, or it has ended. */
bool ntx__own_take_back(struct ntx_stream *s, uint32_t i);

/* Frees the late sequences that iod has finished with. Any thread. */
void ntx__stream_free_late(struct ntx_stream *s);

int ntx__stage_new(struct ntx_stream *s, struct ntx_stage **out);
void ntx__stage_free(struct ntx_stage *g); /* NULL is fine */

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
/* Whether acquiring a part of a wanted expert would not wait. */
bool ntx__expert_there(struct ntx_stream *s, uint32_t chunk);
/* End of a pass: unpins all frames. */
void ntx__experts_end(struct ntx_stream *s);

int ntx__groups_new(struct ntx_stream *s, const struct ntx_stream_config *c, struct ntx__groups **out);
void ntx__groups_free(struct ntx__groups *x);
int ntx__stream_want_groups(struct ntx_weights *w, uint32_t layer, const uint32_t *groups, uint32_t n);
int ntx__stream_prefetch_groups(struct ntx_weights *w, uint32_t layer, const uint32_t *groups, uint32_t n);
int ntx__stream_acquire_groups(struct ntx_stream *s, uint32_t chunk, const struct ntx_plan_chunk *c,
                               const void **bytes);

int ntx__stream_entries(struct ntx_weights *w, uint32_t file, uint64_t offset, uint32_t entry_bytes, const int32_t *ids,
                        uint32_t n, void *out);
int ntx__stream_request_entries(struct ntx_weights *w, uint32_t file, uint64_t offset, uint32_t entry_bytes,
                                const int32_t *ids, uint32_t n, void *out);
int ntx__stream_more_entries(struct ntx_weights *w);
int ntx__stream_entries_there(struct ntx_weights *w);

#endif
