/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h: ntx_weights over the shared region: waits for ring slots and arena chunks, returns slots, posts demands,
 * writes the drop maps. The consumer's side of shm/region.h. */
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
    bool prefetch;                   /* read the experts that are predicted before they are asked for */
    uint64_t windows_at, window_bytes,
        read_gap;       /* for groups of neurons on demand (chunks is given then); reads not further apart become one */
    uint32_t n_windows; /* 0: none */
    uint32_t wait_limit_s; /* a chunk that does not come for so long fails the pass (default 60) */
    uint32_t text_wait_ms; /* so long iod's own words about a failed read are waited for (default 200) */
    const char *const
        *names; /* [NTX_MAX_FILES] of the model's files, for errors; NULL, or one that is NULL: it goes by its number */
};

int ntx_stream_new(const struct ntx_stream_config *c, struct ntx_stream **out);
void ntx_stream_free(struct ntx_stream *s);
struct ntx_weights *ntx_stream_weights(struct ntx_stream *s);

/* Called by the main thread (any time, also while compute threads wait): the text for a failed read, and a final
 * failure of all waits (shutdown, a worker that does not come back): every waiter wakes and gets err. 0 clears it. */
void ntx_stream_io_error(struct ntx_stream *s, uint32_t chunk, const char *text);
void ntx_stream_io_refused(struct ntx_stream *s,
                           const char *text); /* why every read fails: said in place of what was to be read */
void ntx_stream_abort(struct ntx_stream *s, int err, const char *text);
/* Any thread: nobody wants pass `pass` any more; it fails with -ECANCELED at its next chunk, or the next slice of a
 * wait. Another pass is not touched, whether this one has begun, has ended or never runs. What iod has begun to read
 * for it ends when it ends. */
void ntx_stream_cancel(struct ntx_stream *s, uint64_t pass);

/* Death of iod (main thread): what was FILLING becomes FREE / POSTED again; its slots and frames are tainted. So does
 * each word that it cannot have left when it was well: the next iod reads nothing of it. */
void ntx_stream_iod_died(struct ntx_stream *s);
/* Main thread, after a death whose reads can never be proved finished: there is no place left that is sure not to be
 * written by them. */
bool ntx_stream_no_place(const struct ntx_stream *s);
/* The dead iod's reads are proved finished: taint is lifted. */
void ntx_stream_end_quarantine(struct ntx_stream *s);

/* Before iod has the region: host chunks wait for their memory (words SKIPPED). Then, any one thread: the region's
 * memory is there up to this offset; iod may read what lies before it. */
void ntx_stream_await_memory(struct ntx_stream *s);
void ntx_stream_memory_there(struct ntx_stream *s, uint64_t end);

/* Main thread: a measure of what iods have delivered since the model was loaded: it grows when a word becomes READY, or
 * is left out. *more: there is something that an iod could read now. */
uint64_t ntx_stream_delivered(struct ntx_stream *s, bool *more);

/* Share of host chunks that are READY, in bytes, for progress. */
uint64_t ntx_stream_host_ready(const struct ntx_stream *s);
/* Which host chunk could not be read (the first), in case iod died before it could tell. False: none, text is
 * untouched. */
bool ntx_stream_host_failure(const struct ntx_stream *s, char *text, size_t n);

#endif
