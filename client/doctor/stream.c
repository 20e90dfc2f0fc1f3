/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c: measures the drive in the pipeline. ntx-iod's reader, in a thread, fills a ring of a model's size; the
 * compute threads take its slots in turn through ntx-computed's stream, multiply each chunk at once, and release the
 * slot. Bytes that are used may come at half the rate of bytes that nobody touches (docs/log/memory-cap.md). */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/weights/stream.h"
#include "client/doctor/doctor_impl.h"
#include "iod/reader.h"
#include "proto/attach.h"

#define RING_BYTES  (32u << 20) /* RING_GOOD of computed/plan/plan.c */
#define IN_FLIGHT   (4u << 20)
#define BLOCK       4096u
#define WIDTH       4096u
#define TYPE        NTX_Q4_K
#define STEP        8u    /* chunks that threads share between two barriers: a matrix or two */
#define CHUNKS_MOST 8192u /* of the file: a pass reads so many */

struct ntx__doctor_stream {
    struct ntx_region region; /* ntx-computed's mapping of it */
    struct ntx_stream *stream;
    struct ntx_weights *weights;
    int wake_fd;
    uv_loop_t loop;
    uv_async_t stop;
    pthread_t thread;
    struct ntx_reader *reader;
    bool looping, running;
    uint32_t n_chunks, next; /* of this pass */
    uint64_t pass;
};

/* Shared by the compute threads: STEP chunks at a time, each in as many parts as there are threads. */
struct step {
    struct ntx__doctor_stream *s;
    ntx_matmul_fn *matmul;
    uint32_t row_bytes, outs, part; /* outputs of a chunk; of a part */
    unsigned parts;
    uint32_t first;
    const char *x;
    size_t stride;
    float *y; /* [threads x part] */
    _Atomic uint32_t next, done[STEP];
    _Atomic int error;
};

static void multiply_parts(void *ctx, unsigned thread)
{
    struct step *t = ctx;
    const struct ntx_weights_ops *ops = t->s->weights->ops;
    for (uint32_t at; (at = atomic_fetch_add(&t->next, 1)) < STEP * t->parts && !atomic_load(&t->error);) {
        uint32_t i = at / t->parts, out0 = at % t->parts * t->part;
        const void *bytes;
        int rc = ops->acquire(t->s->weights, t->first + i, &bytes);
        if (rc) {
            atomic_store(&t->error, rc);
            return;
        }
        if (out0 < t->outs)
            t->matmul((const char *)bytes + (size_t)out0 * t->row_bytes, t->row_bytes, NTX_MIN(t->part, t->outs - out0),
                      WIDTH, t->x, t->stride, 1, t->y + (size_t)thread * t->part, t->part);
        if (atomic_fetch_add(&t->done[i], 1) + 1 == t->parts)
            ops->release(t->s->weights, t->first + i);
    }
}

/* One step; passes follow each other as in a model: ntx-iod reads on across them. */
static int take_step(struct ntx_pool *pool, struct step *t)
{
    struct ntx__doctor_stream *s = t->s;
    const struct ntx_weights_ops *ops = s->weights->ops;
    if (s->next + STEP > s->n_chunks) {
        ops->end(s->weights);
        s->next = 0;
        int rc = ops->begin(s->weights, ++s->pass);
        if (rc)
            return rc;
    }
    t->first = s->next;
    s->next += STEP;
    atomic_store(&t->next, 0);
    for (unsigned i = 0; i < STEP; i++)
        atomic_store(&t->done[i], 0);
    ntx_pool_run(pool, multiply_parts, t);
    return atomic_load(&t->error);
}

static int prepare_step(struct ntx__doctor_stream *s, const struct ntx__doctor_bench *b, struct step *t, float **x,
                        char **quantized)
{
    enum ntx_act form = ntx_act_for(TYPE);
    *t = (struct step){.s = s,
                       .matmul = b->ops->matmul[TYPE],
                       .row_bytes = (uint32_t)ntx_row_bytes(TYPE, WIDTH),
                       .parts = ntx_pool_threads(b->all),
                       .stride = ntx_act_row_bytes(form, WIDTH)};
    t->outs = (uint32_t)(s->region.chunks[0].bytes / t->row_bytes);
    t->part = NTX_ROUND_UP(t->outs / t->parts + 1, NTX_SLICE_OUTS);
    *x = calloc(WIDTH, sizeof **x);
    *quantized = aligned_alloc(64, NTX_ROUND_UP(t->stride, (size_t)64));
    t->y = calloc((size_t)t->parts * t->part, sizeof *t->y);
    if (!*x || !*quantized || !t->y)
        return -ENOMEM;
    for (uint32_t k = 0; k < WIDTH; k++)
        (*x)[k] = (float)(k * 7 % 31) - 15;
    b->ops->act_quantize[form](*x, *quantized, WIDTH);
    t->x = *quantized;
    return 0;
}

int ntx__doctor_stream_measure(struct ntx__doctor_stream *s, const struct ntx__doctor_bench *b, double seconds,
                               double *bps, struct ntx_err *err)
{
    struct step t;
    float *x = NULL;
    char *quantized = NULL;
    uint64_t bytes = 0, ahead = 0, t0, now;
    int rc = prepare_step(s, b, &t, &x, &quantized);
    /* chunks that were read between measurements */
    for (; !rc && ahead < RING_BYTES; ahead += STEP * s->region.chunks[0].bytes)
        rc = take_step(b->all, &t);
    t0 = now = ntx_now_ns();
    for (uint64_t end = t0 + (uint64_t)(seconds * 1e9); !rc && now < end;
         now = ntx_now_ns(), bytes += STEP * s->region.chunks[0].bytes)
        rc = take_step(b->all, &t);
    free(x);
    free(quantized);
    free(t.y);
    if (rc)
        return ntx_err_set(err, rc, "the drive cannot be read as a model is: %.300s",
                           s->weights->error.text[0] ? s->weights->error.text : strerror(-rc));
    *bps = (double)bytes / ((double)(now - t0) * 1e-9);
    return 0;
}

/* ---- ntx-iod's side */

static void on_failure(void *ctx, const struct ntx_iod_failure *f, const char *text)
{
    struct ntx__doctor_stream *s = ctx;
    if (f)
        ntx_stream_io_error(s->stream, f->chunk, text);
}

static void on_reader_closed(void *ctx)
{
    struct ntx__doctor_stream *s = ctx;
    uv_close((uv_handle_t *)&s->stop, NULL);
}

static void on_stop(uv_async_t *a)
{
    struct ntx__doctor_stream *s = a->data;
    ntx_reader_stop(s->reader, 2000);
}

static void *run_loop(void *ctx)
{
    struct ntx__doctor_stream *s = ctx;
    uv_run(&s->loop, UV_RUN_DEFAULT);
    return NULL;
}

static int start_reader(struct ntx__doctor_stream *s, int file, uint32_t read_bytes, struct ntx_err *err)
{
    int fds[NTX_IOD_FDS + 1] = {[NTX_REGION_PARTS] = fcntl(s->wake_fd, F_DUPFD_CLOEXEC, 0),
                                fcntl(file, F_DUPFD_CLOEXEC, 0)};
    const struct ntx_reader_hooks hooks = {.ctx = s, .told = on_failure, .closed = on_reader_closed};
    const struct ntx_reader_config c = {
        .inflight_bytes = IN_FLIGHT, .piece_bytes = read_bytes, .source = "auto", .fault = "", .start = 1};
    for (int i = 0; i < NTX_REGION_PARTS; i++)
        fds[i] = fcntl(s->region.part[i].fd, F_DUPFD_CLOEXEC, 0);
    int rc = uv_loop_init(&s->loop);
    if (rc)
        return ntx_err_set(err, rc, "cannot make an event loop: %s", uv_strerror(rc));
    s->looping = true;
    if ((rc = ntx_reader_open(&s->loop, NULL, fds, NTX_IOD_FDS + 1, s->region.hdr->epoch, NULL, &hooks, &s->reader,
                              err)))
        return rc;
    uv_async_init(&s->loop, &s->stop, on_stop);
    s->stop.data = s;
    ntx_reader_configure(s->reader, &c);
    if ((rc = -pthread_create(&s->thread, NULL, run_loop, s))) {
        ntx_reader_stop(s->reader, 1);
        uv_run(&s->loop, UV_RUN_DEFAULT);
        return ntx_err_set(err, rc, "cannot start a thread: %s", strerror(-rc));
    }
    s->running = true;
    return 0;
}

/* ---- ntx-computed's side */

/* Makes a schedule of the file's whole chunks, from its beginning. */
static int make_region(struct ntx__doctor_stream *s, uint64_t file_bytes, uint32_t read_bytes, struct ntx_err *err)
{
    uint64_t slot = (uint64_t)read_bytes + 2 * BLOCK;
    s->n_chunks = (uint32_t)NTX_MIN(file_bytes / read_bytes, (uint64_t)CHUNKS_MOST) / STEP * STEP;
    if (!s->n_chunks)
        return ntx_err_set(err, -ENODATA, "the file is too small to be read as a model is");
    uint32_t n_desc = NTX_MIN((uint32_t)(RING_BYTES / slot), s->n_chunks);
    struct ntx_region_geometry g = {.block = BLOCK,
                                    .n_files = 1,
                                    .n_chunks = s->n_chunks,
                                    .n_sched = s->n_chunks,
                                    .n_desc = n_desc,
                                    .n_slots = n_desc + 2,
                                    .n_demands = 1,
                                    .n_layers = 1,
                                    .n_embd = 1,
                                    .slot_bytes = slot,
                                    .frame_bytes = BLOCK,
                                    .arena_bytes = NTX_HUGE,
                                    .epoch = 1};
    char note[400];
    int rc = ntx_region_create(&g, &s->region, note, sizeof note, err);
    if (rc)
        return rc;
    s->region.hdr->file_bytes[0] = file_bytes;
    for (uint32_t i = 0; i < s->n_chunks; i++) {
        s->region.chunks[i] = (struct ntx_plan_chunk){
            .offset = (uint64_t)i * read_bytes, .bytes = read_bytes, .placement = NTX_PLACE_STORAGE, .sched = i};
        s->region.sched[i] = i;
    }
    return ntx_region_publish(&s->region, err);
}

int ntx__doctor_stream_open(int file, uint64_t file_bytes, uint32_t read_bytes, struct ntx__doctor_stream **out,
                            struct ntx_err *err)
{
    struct ntx__doctor_stream *s = calloc(1, sizeof *s);
    if (!s)
        return ntx_err_set(err, -ENOMEM, "no memory");
    s->wake_fd = -1;
    int rc = make_region(s, file_bytes, read_bytes, err);
    if (!rc && (s->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0)
        rc = ntx_err_set(err, -errno, "cannot make an eventfd: %s", strerror(errno));
    const struct ntx_stream_config c = {.region = &s->region, .wake_fd = s->wake_fd, .wait_limit_s = 30};
    if (!rc && (rc = ntx_stream_new(&c, &s->stream)))
        ntx_err_set(err, rc, "cannot prepare a stream: %s", strerror(-rc));
    if (!rc) {
        s->weights = ntx_stream_weights(s->stream);
        rc = start_reader(s, file, read_bytes, err);
    }
    if (!rc && (rc = s->weights->ops->begin(s->weights, 0)))
        ntx_err_set(err, rc, "cannot begin to read: %s", strerror(-rc));
    if (rc)
        ntx__doctor_stream_close(s);
    else
        *out = s;
    return rc;
}

void ntx__doctor_stream_close(struct ntx__doctor_stream *s)
{
    if (!s)
        return;
    if (s->running) {
        uv_async_send(&s->stop);
        pthread_join(s->thread, NULL);
    }
    if (s->looping)
        uv_loop_close(&s->loop);
    ntx_stream_free(s->stream);
    ntx_region_close(&s->region);
    if (s->wake_fd >= 0)
        close(s->wake_fd);
    free(s);
}
