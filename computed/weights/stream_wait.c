/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting, waking, and failures. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/weights/stream_impl.h"

#define SPIN_NS  20000u    /* a chunk takes a millisecond: spinning pays only if it is almost there */
#define SLICE_NS 10000000u /* how often a sleeper checks whether the wait has become pointless */

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* yield does nothing on most cores */
#endif
}

void ntx__stream_wake(struct ntx_stream *s)
{
    /* seq_cst: pairs with iod, which sets iod_asleep and then looks at the words once more. Our stores came before. */
    if (!atomic_load_explicit(&s->r->ring->iod_asleep, memory_order_seq_cst))
        return;
    uint64_t one = 1;
    (void)!write(s->wake_fd, &one, sizeof one); /* a full counter: it will wake anyway */
}

/* ---- failures */

static int fail_text(struct ntx_stream *s, int rc, const char *text)
{
    pthread_mutex_lock(&s->lock);
    int first = atomic_load_explicit(&s->failed, memory_order_relaxed);
    if (!first) {
        ntx_err_set(&s->w.error, rc, "%s", text);
        /* a thread that sees it may read w.error */
        atomic_store_explicit(&s->failed, first = rc, memory_order_release);
        pthread_cond_broadcast(&s->text_came);
    }
    pthread_mutex_unlock(&s->lock);
    return first;
}

int ntx__stream_fail(struct ntx_stream *s, int rc, const char *fmt, ...)
{
    char text[sizeof s->w.error.text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return fail_text(s, rc, text);
}

static bool take_text(struct ntx_stream *s, uint32_t chunk, char *text, size_t n)
{
    if (s->refused[0]) {
        snprintf(text, n, "%s", s->refused);
        return true;
    }
    for (int i = 0; i < NTX__TEXTS; i++)
        if (s->texts[i].used && s->texts[i].chunk == chunk) {
            s->texts[i].used = false;
            snprintf(text, n, "%s", s->texts[i].text);
            return true;
        }
    return false;
}

void ntx__stream_forget_texts(struct ntx_stream *s, uint32_t chunk)
{
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < NTX__TEXTS; i++)
        s->texts[i].used &= s->texts[i].chunk != chunk;
    pthread_mutex_unlock(&s->lock);
}

bool ntx__stream_wait_text(struct ntx_stream *s, uint32_t chunk, char *text, size_t n)
{
    struct timespec end;
    int rc = 0;
    clock_gettime(CLOCK_MONOTONIC, &end);
    uint64_t ns = (uint64_t)end.tv_nsec + s->text_wait_ns;
    end.tv_sec += (time_t)(ns / 1000000000);
    end.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&s->lock);
    bool have = take_text(s, chunk, text, n);
    while (!have && !rc && !atomic_load(&s->failed) && !atomic_load(&s->aborted)) {
        rc = pthread_cond_timedwait(&s->text_came, &s->lock, &end);
        have = take_text(s, chunk, text, n);
    }
    pthread_mutex_unlock(&s->lock);
    return have;
}

void ntx__stream_describe_read(const struct ntx_stream *s, uint32_t file, uint64_t offset, uint64_t bytes, int err,
                               char *text, size_t n)
{
    char number[32];
    snprintf(number, sizeof number, "file %u of the model", file);
    snprintf(text, n, "%s: cannot read %llu bytes at offset %llu: %s",
             s->names && file < NTX_MAX_FILES && s->names[file] ? s->names[file] : number, (unsigned long long)bytes,
             (unsigned long long)offset, strerror(-err));
}

int ntx__stream_fail_read(struct ntx_stream *s, uint32_t chunk, uint32_t file, uint64_t offset, uint64_t bytes, int err)
{
    char text[256];
    if (!ntx__stream_wait_text(s, chunk, text, sizeof text))
        ntx__stream_describe_read(s, file, offset, bytes, err, text, sizeof text);
    return fail_text(s, err, text);
}

void ntx_stream_io_error(struct ntx_stream *s, uint32_t chunk, const char *text)
{
    pthread_mutex_lock(&s->lock);
    struct ntx__io_text *t = &s->texts[s->next_text++ % NTX__TEXTS];
    t->used = true;
    t->chunk = chunk;
    snprintf(t->text, sizeof t->text, "%s", text);
    pthread_cond_broadcast(&s->text_came);
    pthread_mutex_unlock(&s->lock);
}

void ntx_stream_io_refused(struct ntx_stream *s, const char *text)
{
    pthread_mutex_lock(&s->lock);
    snprintf(s->refused, sizeof s->refused, "%s", text);
    pthread_cond_broadcast(&s->text_came);
    pthread_mutex_unlock(&s->lock);
}

void ntx_stream_abort(struct ntx_stream *s, int err, const char *text)
{
    pthread_mutex_lock(&s->lock);
    snprintf(s->abort_text, sizeof s->abort_text, "%s", text ? text : "");
    atomic_store(&s->aborted, err);
    pthread_cond_broadcast(&s->text_came); /* sleepers on words look again within a slice */
    pthread_mutex_unlock(&s->lock);
}

void ntx_stream_cancel(struct ntx_stream *s, uint64_t pass) { atomic_store(&s->cancelled, pass + 1); }

int ntx__stream_aborted(struct ntx_stream *s, char *text)
{
    const int rc = atomic_load(&s->aborted);
    if (!rc)
        return 0;
    pthread_mutex_lock(&s->lock);
    memcpy(text, s->abort_text, sizeof s->abort_text);
    pthread_mutex_unlock(&s->lock);
    return rc < 0 ? rc : -rc;
}

int ntx__stream_check_abort(struct ntx_stream *s)
{
    char text[sizeof s->abort_text];
    const int rc = ntx__stream_aborted(s, text);
    if (!rc && atomic_load_explicit(&s->cancelled, memory_order_relaxed) == s->begun + 1)
        return fail_text(s, -ECANCELED, "cancelled");
    if (!rc)
        return atomic_load_explicit(&s->failed, memory_order_acquire);
    return fail_text(s, rc, text[0] ? text : strerror(-rc));
}

/* ---- waiting */

uint64_t ntx__stream_stall_begin(struct ntx_stream *s)
{
    return atomic_exchange(&s->stalling, true) ? 0 : ntx_now_ns();
}

void ntx__stream_stall_end(struct ntx_stream *s, uint64_t since, enum ntx_trace_wait what)
{
    if (!since)
        return;
    uint64_t now = ntx_now_ns();
    ntx_count(s->counters, NTX_C_comp_stall_ns, now - since);
    ntx_traced(s->counters, NTX_TRACE_COMPUTED, NTX_TR_STALL, since, now, what, 0, 0);
    atomic_store(&s->stalling, false);
}

int ntx__stream_pause(struct ntx_stream *s, _Atomic uint32_t *word, uint32_t seen, struct ntx_patience *patience,
                      const char *what, uint64_t number)
{
    int rc = ntx__stream_check_abort(s);
    if (rc)
        return rc;
    if (ntx_patience_over(patience))
        return ntx__stream_fail(s, -ETIMEDOUT,
                                "%s %llu did not come within %llu s: the drive hangs, or ntx-iod does not run", what,
                                (unsigned long long)number, (unsigned long long)(s->limit_ns / 1000000000u));
    ntx__stream_free_late(s); /* iod may need these slots to go on */
    ntx__stream_wake(s);      /* though less than half of the ring may be free */
    ntx_futex_wait(word, seen, SLICE_NS);
    return 0;
}

int ntx__stream_wait(struct ntx_stream *s, _Atomic uint32_t *word, uint32_t gen, enum ntx_trace_wait what,
                     uint64_t number, uint32_t *seen)
{
    static const char *const names[NTX_WAITS] = {"chunk", "chunk", "groups of neurons at", "entry"};
    int rc = ntx__stream_check_abort(s);
    /* Acquire: pairs with iod's release of the state; the descriptor's fields and the bytes are there. */
    uint32_t w = atomic_load_explicit(word, memory_order_acquire);
    if (!rc && !ntx__settled(w, gen)) {
        uint64_t since = ntx_now_ns(), stall = ntx__stream_stall_begin(s);
        while (!ntx__settled(w, gen) && ntx_now_ns() - since < SPIN_NS) {
            relax();
            w = atomic_load_explicit(word, memory_order_acquire);
        }
        struct ntx_patience patience = ntx_patience(s->limit_ns);
        while (!rc && !ntx__settled(w, gen)) {
            rc = ntx__stream_pause(s, word, w, &patience, names[what], number);
            w = atomic_load_explicit(word, memory_order_acquire);
        }
        ntx__stream_stall_end(s, stall, what);
    }
    if (!rc)
        *seen = w;
    return rc;
}
