/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h: ntx_weights over the shared region: waits for ring slots and arena chunks, frees slots, posts read
 * requests, writes the drop maps. It is the consumer's side of shm/region.h. */
#ifndef NTX_COMPUTED_WEIGHTS_STREAM_H
#define NTX_COMPUTED_WEIGHTS_STREAM_H

#include <stdbool.h>

#include "computed/weights/frames.h"
#include "computed/pass/weights.h"
#include "model/chunk.h"
#include "shm/counters.h"
#include "shm/region.h"

struct ntx_stream;

struct ntx_stream_config {
    struct ntx_region *region;
    struct ntx_counters *counters;
    int wake_fd;                     /* iod's eventfd */
    const struct ntx_chunks *chunks; /* of a model whose experts are in frames; else NULL */
    const struct ntx_frames *frames; /* NULL or n 0: there are none */
    uint64_t frames_at;              /* region offset of the first */
    bool prefetch;                   /* prefetch predicted experts */
    /* For groups of neurons on demand (needs chunks); reads at most read_gap bytes apart become one. */
    uint64_t windows_at, window_bytes, read_gap;
    uint32_t n_windows;    /* 0: none */
    uint32_t wait_limit_s; /* a chunk that takes longer fails the pass (default 60) */
    uint32_t text_wait_ms; /* how long to wait for ntx-iod's text about a failed read (default 200) */
    /* [NTX_MAX_FILES] names of the model's files, for errors. Without a name the file's number is printed. */
    const char *const *names;
};

int ntx_stream_new(const struct ntx_stream_config *c, struct ntx_stream **out);
void ntx_stream_free(struct ntx_stream *s);
struct ntx_weights *ntx_stream_weights(struct ntx_stream *s);
/* The same without the ring: acquires chunks of the arena alone, between passes, whose reads go on. For
 * ntx_forward_run_part. */
struct ntx_weights *ntx_stream_resident(struct ntx_stream *s);

/* Engine thread. heat: the uses of experts (heat.h), which passes count; NULL: no experts are in frames. preload begins
 * with uses that were put there; preload_more, between passes, reads some of the hottest experts into empty frames.
 * False: nothing is left to read. A pass that wants other experts cancels these reads. */
struct ntx_heat *ntx_stream_heat(struct ntx_stream *s);
void ntx_stream_preload(struct ntx_stream *s);
bool ntx_stream_preload_more(struct ntx_stream *s);

/* For the main thread, at any time, also while compute threads wait: the text for a failed read. */
void ntx_stream_io_error(struct ntx_stream *s, uint32_t chunk, const char *text);
/* Why every read fails; it replaces the texts of single reads. */
void ntx_stream_io_refused(struct ntx_stream *s, const char *text);
/* Ends all waits (shutdown, a worker that does not come back): every waiter wakes and gets err. 0 clears it. */
void ntx_stream_abort(struct ntx_stream *s, int err, const char *text);
/* Any thread: cancels pass `pass`. It fails with -ECANCELED at its next chunk, or within a slice of a wait. Other
 * passes are not touched, whether this one has begun, has ended or never runs. Reads that ntx-iod has begun for it run
 * to their end. */
void ntx_stream_cancel(struct ntx_stream *s, uint64_t pass);

/* Main thread, after the death of ntx-iod: chunks that were FILLING become FREE or POSTED again; their slots and frames
 * are quarantined. The same is done for each word that a sound ntx-iod cannot have left, so that the next one reads
 * none of it. */
void ntx_stream_iod_died(struct ntx_stream *s);
/* Main thread, after a death whose reads can never be proved finished: encodes of pictures that need their places
 * fail. */
void ntx_stream_unproved(struct ntx_stream *s);
/* The same death: true when no slot is left outside quarantine. */
bool ntx_stream_no_place(const struct ntx_stream *s);
/* The dead ntx-iod's reads are proved finished: ends the quarantine. */
void ntx_stream_end_quarantine(struct ntx_stream *s);

/* Before ntx-iod has the region: host chunks wait for their memory (words SKIPPED). */
void ntx_stream_await_memory(struct ntx_stream *s);
/* Then, from any one thread: the region's memory exists up to offset `end`; ntx-iod may read chunks before it. */
void ntx_stream_memory_there(struct ntx_stream *s, uint64_t end);

/* Main thread: a measure of what all ntx-iods have delivered since the model was loaded. It grows when a word becomes
 * READY or SKIPPED. *more: there is something to read now. */
uint64_t ntx_stream_delivered(struct ntx_stream *s, bool *more);

/* Bytes of the host chunks that are READY, for progress. */
uint64_t ntx_stream_host_ready(const struct ntx_stream *s);
/* The first host chunk that could not be read, in case ntx-iod died before it reported it. False: none, text is
 * untouched. */
bool ntx_stream_host_failure(const struct ntx_stream *s, char *text, size_t n);

#endif
