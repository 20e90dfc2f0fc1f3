/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/cuda/fake.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/launch.h"
#include "model/quant.h"
#include "tests/unit/cuda/fiber.h"

enum kind { KERNEL_OP, COPY_OP, FILL_OP, WAIT_OP, DENSE_OP };

struct op {
    struct op *next;
    enum kind kind;
    void (*fn)(const void *);
    uint32_t dims[4], shared;
    void *args; /* owned */
    size_t bytes;
    uint8_t *to;
    const uint8_t *from;
    uint64_t to_stride, from_stride, width, rows;
    int byte, upload;
    struct ntx_gpu_stream *other;
    uint64_t until;
};

enum {
    LOCKS = 8,
    KERNELS = 8,
    SHARED_UNASKED = 48 << 10,
    SHARED_MOST = 227 << 10 /* of a card of 9.0 */,
    SHARED_FORMER = 64 << 10 /* of 7.5 */
};

struct ntx_gpu {
    int backwards, locks;
    unsigned objects; /* streams, events, allocations and locks alive */
    struct {
        void *p;
        uintptr_t from, to;
    } locked[LOCKS];
    struct {
        void (*kernel)(const void *args);
        uint32_t shared;
    } allowed[KERNELS];
    char error[256];
};

#ifdef NTX_FAKE_FORMER
#define FORMER 1
#else
#define FORMER 0
#endif

static struct ntx_fake_control control; /* there is one device */

struct ntx_fake_control *ntx_fake_control(void) { return &control; }

struct ntx_gpu_stream {
    struct ntx_gpu *g;
    struct op *first, **last;
    uint64_t queued, done;
    struct ntx_gpu_graph *recorded; /* NULL: what comes is queued */
};

struct ntx_gpu_graph {
    struct ntx_gpu *g;
    struct op *first, **last; /* with the size of what each holds */
};

struct ntx_gpu_event {
    struct ntx_gpu *g;
    bool timed;
    struct ntx_gpu_stream *s;
    uint64_t at;
};

static int fail(struct ntx_gpu *g, int rc, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(g->error, sizeof g->error, fmt, ap);
    va_end(ap);
    return rc;
}

/* At the beginning of every call that may fail. */
static int check_lost(struct ntx_gpu *g)
{
    if (++control.calls < control.fail_at)
        return 0;
    return fail(g, -EIO, "the fake GPU is lost since call %llu", (unsigned long long)control.fail_at);
}

/* ---- running what is queued */

static void run_until(struct ntx_gpu_stream *s, uint64_t n);

static void run_kernel(const struct ntx_gpu *g, const struct op *o)
{
    struct ntx_fiber_block b = {.threads = o->dims[3], .blocks = o->dims[0]};
    if (o->shared && !(b.shared = aligned_alloc(16, (o->shared + 15) / 16 * 16)))
        abort();
    for (b.z = 0; b.z < o->dims[2]; b.z++)
        for (b.y = 0; b.y < o->dims[1]; b.y++)
            for (b.x = 0; b.x < o->dims[0]; b.x++) {
                if (o->shared)
                    memset(b.shared, 0xff, o->shared);
                ntx_fiber_run(&b, o->fn, o->args, g->backwards);
            }
    free(b.shared);
}

struct dense {
    const uint16_t *w, *x;
    float *z;
    uint32_t n_out, n_in, n_rows;
};

static int is_zero(const uint16_t *x, uint32_t n)
{
    while (n && !(x[n - 1] & 0x7fff))
        n--;
    return !n;
}

/* Sums in an order that depends on the product's shape and on the output's place, as a library may do. */
static void run_dense(const struct dense *d)
{
    for (uint32_t r = 0; r < d->n_rows; r++)
        for (uint32_t o = 0, zero = is_zero(d->x + (size_t)r * d->n_in, d->n_in); o < d->n_out;
             o++) { /* most rows pad */
            float sum = 0;
            for (uint32_t i = 0, k = (7 * o + 13 * d->n_out) % d->n_in; !zero && i < d->n_in;
                 i++, k = k + 1 < d->n_in ? k + 1 : 0)
                sum += ntx_f16_to_f32(d->w[(size_t)o * d->n_in + k]) * ntx_f16_to_f32(d->x[(size_t)r * d->n_in + k]);
            d->z[(size_t)r * d->n_out + o] = sum;
        }
}

static void run_op(const struct ntx_gpu *g, const struct op *o)
{
    switch (o->kind) {
    case KERNEL_OP: run_kernel(g, o); break;
    case COPY_OP:
        if (control.ran_upload && o->upload)
            control.ran_upload(o->from);
        for (uint64_t r = 0; r < o->rows; r++)
            memcpy(o->to + r * o->to_stride, o->from + r * o->from_stride, o->width);
        break;
    case FILL_OP: memset(o->to, o->byte, o->width); break;
    case WAIT_OP: run_until(o->other, o->until); break;
    case DENSE_OP: run_dense(o->args); break;
    }
}

static void run_until(struct ntx_gpu_stream *s, uint64_t n)
{
    while (s->done < n) {
        struct op *o = s->first;
        if (!(s->first = o->next))
            s->last = &s->first;
        if (control.calls < control.fail_at) /* a lost device does nothing any more */
            run_op(s->g, o);
        s->done++;
        control.waiting--;
        free(o->args);
        free(o);
    }
}

static int push(struct ntx_gpu_stream *s, const struct op *o, const void *args, size_t bytes)
{
    struct op *copy = malloc(sizeof *copy);
    int rc = check_lost(s->g);
    if (!rc && s->recorded && o->kind != KERNEL_OP && o->kind != FILL_OP)
        rc = fail(s->g, -EINVAL, "this cannot be recorded");
    if (rc || !copy) {
        free(copy);
        return rc ? rc : -ENOMEM;
    }
    *copy = *o;
    copy->bytes = bytes;
    copy->next = NULL;
    if (args && !(copy->args = malloc(bytes))) {
        free(copy);
        return -ENOMEM;
    }
    if (args)
        memcpy(copy->args, args, bytes);
    if (s->recorded) {
        *s->recorded->last = copy;
        s->recorded->last = &copy->next;
        return 0;
    }
    *s->last = copy;
    s->last = &copy->next;
    s->queued++;
    control.waiting++;
    return 0;
}

/* ---- the device */

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);
    return s ? strtoull(s, NULL, 10) : otherwise;
}

static int fake_open(uint32_t ordinal, struct ntx_gpu **out, char *why, size_t n)
{
    if (ordinal) {
        snprintf(why, n, "there is no device %u", ordinal);
        return -ENODEV;
    }
    struct ntx_gpu *g = calloc(1, sizeof *g);
    if (!g)
        return -ENOMEM;
    control = (struct ntx_fake_control){.total = number("NTX_FAKE_GPU_MEMORY", 1ull << 30),
                                        .fail_at = number("NTX_FAKE_GPU_FAIL", UINT64_MAX),
                                        .processors = 1,
                                        .shared = FORMER ? SHARED_FORMER : SHARED_MOST,
                                        .no_dense = getenv("NTX_FAKE_GPU_NO_DENSE") != NULL,
                                        .no_graphs = getenv("NTX_FAKE_GPU_NO_GRAPHS") != NULL};
    g->backwards = getenv("NTX_FAKE_GPU_BACKWARDS") != NULL;
    *out = g;
    return 0;
}

static void fake_close(struct ntx_gpu *g)
{
    if (!g)
        return;
    if (g->objects) { /* a leak of the caller: visible */
        fprintf(stderr, "fake GPU: closed with %u streams, events, allocations or locks left\n", g->objects);
        abort();
    }
    ntx_fiber_free();
    free(g);
}

static int fake_info(struct ntx_gpu *g, struct ntx_gpu_info *out)
{
    *out = (struct ntx_gpu_info){.name = "fake GPU",
                                 .total = control.total,
                                 .free = control.total - control.used,
                                 .capability = 75,
                                 .driver = 13000,
                                 .processors = control.processors,
                                 .integrated = getenv("NTX_FAKE_GPU_INTEGRATED") != NULL};
    return check_lost(g);
}

static const char *fake_error(const struct ntx_gpu *g) { return g->error; }

/* The size is stored before the memory, to account for it when it is freed. */
static int fake_alloc(struct ntx_gpu *g, uint64_t bytes, void **out)
{
    uint8_t *p;
    int rc = check_lost(g);
    if (rc)
        return rc;
    if (bytes > control.total - control.used)
        return fail(g, -ENOMEM, "no memory for %llu bytes: %llu of %llu are free", (unsigned long long)bytes,
                    (unsigned long long)(control.total - control.used), (unsigned long long)control.total);
    if (posix_memalign((void **)&p, 256, bytes + 256))
        return -ENOMEM;
    memcpy(p, &bytes, sizeof bytes);
    memset(p + 256, 0xff, bytes);
    control.used += bytes;
    g->objects++;
    *out = p + 256;
    return 0;
}

static void fake_free(struct ntx_gpu *g, void *p)
{
    if (!p)
        return;
    uint64_t bytes;
    memcpy(&bytes, (uint8_t *)p - 256, sizeof bytes);
    control.used -= bytes;
    g->objects--;
    free((uint8_t *)p - 256);
}

static int fake_host_alloc(struct ntx_gpu *g, uint64_t bytes, void **out)
{
    void *p;
    int rc = check_lost(g);
    if (rc || posix_memalign(&p, 64, bytes ? bytes : 1))
        return rc ? rc : -ENOMEM;
    memset(p, 0xff, bytes);
    g->objects++;
    *out = p;
    return 0;
}

static void fake_host_free(struct ntx_gpu *g, void *p)
{
    g->objects -= p != NULL;
    free(p);
}

/* The whole pages that they lie in, each once. */
static int fake_host_register(struct ntx_gpu *g, void *p, uint64_t bytes)
{
    const char *most = getenv("NTX_FAKE_GPU_NO_LOCK"); /* so many there are */
    const uintptr_t page = 4096, from = (uintptr_t)p / page * page,
                    to = ((uintptr_t)p + bytes + page - 1) / page * page;
    unsigned i = 0;
    if (most && g->locks++ >= atoi(most))
        return fail(g, -EIO, "the fake GPU locks no more");
    for (unsigned k = 0; k < LOCKS; k++)
        if (from < g->locked[k].to && g->locked[k].from < to)
            return fail(g, -EINVAL, "some of this memory is locked");
    while (i < LOCKS && g->locked[i].p)
        i++;
    int rc = check_lost(g);
    if (rc || !bytes || i == LOCKS)
        return rc ? rc : fail(g, -EINVAL, "this cannot be locked");
    g->locked[i].p = p, g->locked[i].from = from, g->locked[i].to = to;
    g->objects++;
    return 0;
}

static void fake_host_unregister(struct ntx_gpu *g, void *p)
{
    unsigned i = 0;
    while (i < LOCKS && (!p || g->locked[i].p != p))
        i++;
    if (i == LOCKS) {
        fprintf(stderr, "fake GPU: memory is unlocked that is not locked\n");
        abort();
    }
    memset(&g->locked[i], 0, sizeof g->locked[i]);
    g->objects--;
}

static int fake_host_address(struct ntx_gpu *g, void *p, void **dev)
{
    *dev = p;
    return check_lost(g);
}

/* ---- streams and events */

static int fake_stream_new(struct ntx_gpu *g, struct ntx_gpu_stream **out)
{
    struct ntx_gpu_stream *s = NULL;
    int rc = check_lost(g);
    if (rc || !(s = calloc(1, sizeof *s)))
        return rc ? rc : -ENOMEM;
    s->g = g;
    s->last = &s->first;
    g->objects++;
    *out = s;
    return 0;
}

static void fake_stream_free(struct ntx_gpu_stream *s)
{
    if (!s)
        return;
    run_until(s, s->queued);
    s->g->objects--;
    free(s);
}

static int fake_stream_sync(struct ntx_gpu_stream *s)
{
    if (s->recorded)
        return fail(s->g, -EINVAL, "a stream that is recorded cannot be waited for");
    run_until(s, s->queued);
    control.syncs++;
    return check_lost(s->g);
}

static int fake_event_new(struct ntx_gpu *g, bool timed, struct ntx_gpu_event **out)
{
    struct ntx_gpu_event *e = NULL;
    int rc = check_lost(g);
    if (rc || !(e = calloc(1, sizeof *e)))
        return rc ? rc : -ENOMEM;
    e->g = g;
    e->timed = timed;
    g->objects++;
    *out = e;
    return 0;
}

static void fake_event_free(struct ntx_gpu_event *e)
{
    if (!e)
        return;
    e->g->objects--;
    free(e);
}

static int fake_event_record(struct ntx_gpu_event *e, struct ntx_gpu_stream *s)
{
    if (s->recorded)
        return fail(s->g, -EINVAL, "this cannot be recorded");
    e->s = s;
    e->at = s->queued;
    return check_lost(e->g);
}

static int fake_event_query(struct ntx_gpu_event *e)
{
    if (e->s && e->s->done < e->at)
        run_until(e->s, e->s->done + 1);
    int rc = check_lost(e->g);
    return rc ? rc : !e->s || e->s->done >= e->at;
}

static int fake_event_sync(struct ntx_gpu_event *e)
{
    if (e->s)
        run_until(e->s, e->at);
    control.syncs++;
    return check_lost(e->g);
}

static int fake_event_ms(struct ntx_gpu_event *from, struct ntx_gpu_event *to, float *ms)
{
    if (!from->timed || !to->timed || !from->s || !to->s || to->s->done < to->at)
        return fail(from->g, -EINVAL, "there is no time between two events of which one is not timed, or has not come");
    *ms = from->s == to->s ? (float)(to->at - from->at) : 0;
    return check_lost(from->g);
}

static int fake_stream_wait(struct ntx_gpu_stream *s, struct ntx_gpu_event *e)
{
    return e->s ? push(s, &(struct op){.kind = WAIT_OP, .other = e->s, .until = e->at}, NULL, 0) : check_lost(s->g);
}

/* ---- work */

static int copy(struct ntx_gpu_stream *s, void *to, uint64_t to_stride, const void *from, uint64_t from_stride,
                uint64_t width, uint64_t rows)
{
    return push(s,
                &(struct op){.kind = COPY_OP,
                             .to = to,
                             .from = from,
                             .to_stride = to_stride,
                             .from_stride = from_stride,
                             .width = width,
                             .rows = rows},
                NULL, 0);
}

static int fake_upload(struct ntx_gpu_stream *s, void *dev, const void *host, uint64_t bytes)
{
    control.uploaded += bytes;
    return push(s, &(struct op){.kind = COPY_OP, .to = dev, .from = host, .width = bytes, .rows = 1, .upload = 1}, NULL,
                0);
}

static int fake_upload_rows(struct ntx_gpu_stream *s, void *dev, uint64_t dev_stride, const void *host,
                            uint64_t host_stride, uint64_t width, uint32_t rows)
{
    if (width > dev_stride || width > host_stride || dev_stride > INT32_MAX || host_stride > INT32_MAX)
        return fail(s->g, -EINVAL, "rows of %llu bytes cannot be %llu and %llu apart", (unsigned long long)width,
                    (unsigned long long)dev_stride, (unsigned long long)host_stride);
    return copy(s, dev, dev_stride, host, host_stride, width, rows);
}

static int fake_download(struct ntx_gpu_stream *s, void *host, const void *dev, uint64_t bytes)
{
    return copy(s, host, 0, dev, 0, bytes, 1);
}

static int fake_fill(struct ntx_gpu_stream *s, void *dev, int byte, uint64_t bytes)
{
    return push(s, &(struct op){.kind = FILL_OP, .to = dev, .byte = byte, .width = bytes}, NULL, 0);
}

static int fake_device_copy(struct ntx_gpu_stream *s, void *to, const void *from, uint64_t bytes)
{
    return copy(s, to, 0, from, 0, bytes, 1);
}

struct ntx_card ntx__card(const struct ntx_gpu_stream *s)
{
    (void)s;
    return (struct ntx_card){control.processors, control.shared};
}

int ntx__fake_allow_shared(struct ntx_gpu_stream *s, void (*fn)(const void *args), uint32_t bytes)
{
    struct ntx_gpu *g = s->g;
    unsigned i = 0;
    while (i < KERNELS && g->allowed[i].kernel && g->allowed[i].kernel != fn)
        i++;
    if (i == KERNELS || bytes > control.shared)
        return fail(g, -EINVAL, "a block may not have %u bytes of shared memory: at most %u are", bytes,
                    control.shared);
    g->allowed[i].kernel = fn;
    g->allowed[i].shared = bytes;
    return check_lost(g);
}

static uint32_t allowed(const struct ntx_gpu *g, void (*fn)(const void *args))
{
    for (unsigned i = 0; i < KERNELS; i++)
        if (g->allowed[i].kernel == fn)
            return g->allowed[i].shared;
    return SHARED_UNASKED;
}

/* Refused as a card would. */
int ntx__fake_launch(struct ntx_gpu_stream *s, void (*fn)(const void *args), const uint32_t dims[4],
                     uint32_t most_threads, uint32_t shared, const void *args, size_t bytes)
{
    if (!dims[0] || !dims[1] || !dims[2] || dims[0] > INT32_MAX || dims[1] > 65535 || dims[2] > 65535)
        return fail(s->g, -EINVAL, "a launch of %u x %u x %u blocks is not possible", dims[0], dims[1], dims[2]);
    if (!dims[3] || dims[3] > most_threads || dims[3] > 1024)
        return fail(s->g, -EINVAL, "a block of %u threads is not possible: at most %u are", dims[3], most_threads);
    if (bytes > 4096)
        return fail(s->g, -EINVAL, "a launch with %zu bytes of arguments is not possible", bytes);
    if (shared > allowed(s->g, fn))
        return fail(s->g, -EINVAL, "a launch with %u bytes of shared memory a block is not possible: %u were asked for",
                    shared, allowed(s->g, fn));
    control.launches += !s->recorded;
    control.persistent += shared != 0;
    return push(
        s, &(struct op){.kind = KERNEL_OP, .fn = fn, .dims = {dims[0], dims[1], dims[2], dims[3]}, .shared = shared},
        args, bytes);
}

/* ---- graphs */

static void empty(struct ntx_gpu_graph *g)
{
    for (struct op *o; (o = g->first);) {
        g->first = o->next;
        free(o->args);
        free(o);
    }
    g->last = &g->first;
}

static void fake_graph_free(struct ntx_gpu_graph *g)
{
    if (!g)
        return;
    empty(g);
    g->g->objects--;
    free(g);
}

static int fake_capture(struct ntx_gpu_stream *s)
{
    int rc = check_lost(s->g);
    control.captures++;
    if (rc || control.no_graphs == 1 || s->recorded)
        return rc ? rc : fail(s->g, -ENOSYS, "the fake GPU records nothing");
    if (!(s->recorded = calloc(1, sizeof *s->recorded)))
        return -ENOMEM;
    s->recorded->g = s->g;
    s->recorded->last = &s->recorded->first;
    s->g->objects++;
    return 0;
}

static int fake_captured(struct ntx_gpu_stream *s, struct ntx_gpu_graph **g)
{
    struct ntx_gpu_graph *new = s->recorded;
    int rc = check_lost(s->g);
    s->recorded = NULL;
    if (rc || !new || control.no_graphs) {
        fake_graph_free(new);
        return rc ? rc : fail(s->g, -ENOSYS, "the fake GPU makes no graphs");
    }
    control.graphs += !*g;
    control.updates += *g != NULL;
    fake_graph_free(*g);
    *g = new;
    return 0;
}

static int fake_graph_launch(struct ntx_gpu_stream *s, struct ntx_gpu_graph *g)
{
    int rc = check_lost(s->g);
    control.graph_launches++;
    for (const struct op *o = g->first; o && !rc; o = o->next)
        rc = push(s, o, o->args, o->bytes);
    return rc;
}

static int fake_dense(struct ntx_gpu_stream *s, const uint16_t *w, const uint16_t *x, float *z, uint32_t n_out,
                      uint32_t n_in, uint32_t n_rows)
{
    struct dense d = {w, x, z, n_out, n_in, n_rows};
    if (control.no_dense)
        return fail(s->g, -ENOSYS, "the fake GPU has no matrix units");
    control.dense++;
    return push(s, &(struct op){.kind = DENSE_OP}, &d, sizeof d);
}

static const struct ntx_gpu_ops ops = {
    .abi = NTX_GPU_ABI,
    .name = "fake",
    .open = fake_open,
    .close = fake_close,
    .info = fake_info,
    .error = fake_error,
    .alloc = fake_alloc,
    .free = fake_free,
    .host_alloc = fake_host_alloc,
    .host_free = fake_host_free,
    .host_register = fake_host_register,
    .host_unregister = fake_host_unregister,
    .host_address = fake_host_address,
    .stream_new = fake_stream_new,
    .stream_free = fake_stream_free,
    .stream_sync = fake_stream_sync,
    .event_new = fake_event_new,
    .event_free = fake_event_free,
    .event_record = fake_event_record,
    .event_query = fake_event_query,
    .event_sync = fake_event_sync,
    .event_ms = fake_event_ms,
    .stream_wait = fake_stream_wait,
    .upload = fake_upload,
    .upload_rows = fake_upload_rows,
    .download = fake_download,
    .fill = fake_fill,
    .device_copy = fake_device_copy,
    .launch = ntx__launch,
    .capture = fake_capture,
    .captured = fake_captured,
    .graph_launch = fake_graph_launch,
    .graph_free = fake_graph_free,
    .dense = fake_dense,
};

const struct ntx_gpu_ops *ntx_gpu_table(void) { return &ops; }
