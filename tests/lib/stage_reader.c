/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/stage_reader.h"

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/lib/check.h"

enum { PAGE = 4096 };

static void on_state(void *ctx, _Atomic uint32_t *word, enum ntx_state s)
{
    (void)ctx;
    if (s != NTX_FILLING)
        ntx_futex_wake(word);
}

static void on_failed(void *ctx, const struct ntx_iod_failure *f)
{
    struct stage_reader *r = ctx;
    ntx_stream_io_error(r->stream, f->chunk, strerror(-f->err));
}

static void on_result(void *ctx, uint64_t tag, int32_t result)
{
    struct stage_reader *r = ctx;
    struct ntx_iod_read rd;
    ntx_iod_core_done(r->core, ntx_now_ns(), tag, result, &rd);
}

static void *read_on(void *arg)
{
    struct stage_reader *r = arg;
    struct ntx_iod_read rd;
    int fds[NTX_SOURCE_MAX_FDS + 1] = {r->wake_fd};
    const unsigned n = r->source->ops->fds(r->source, fds, 1);
    struct pollfd p[NTX_SOURCE_MAX_FDS + 1];
    eventfd_t v;
    while (!atomic_load(&r->stop) || r->source->ops->inflight(r->source)) {
        while (!atomic_load(&r->stop) && ntx_iod_core_next_read(r->core, ntx_now_ns(), &rd))
            CHECK(!r->source->ops->submit(r->source, &rd));
        r->source->ops->flush(r->source);
        for (unsigned i = 0; i < n; i++)
            p[i] = (struct pollfd){fds[i], POLLIN, 0};
        poll(p, n, -1);
        if (p[0].revents)
            eventfd_read(r->wake_fd, &v);
        r->source->ops->reap(r->source, on_result, r);
    }
    return NULL;
}

void stage_reader_open(struct stage_reader *r, int fd, uint64_t stage_bytes)
{
    const struct ntx_region_geometry g = {.block = PAGE,
                                          .n_files = 1,
                                          .n_stage_reads = NTX_STAGE_REQUESTS,
                                          .n_layers = 1,
                                          .n_embd = 1,
                                          .stage_bytes = stage_bytes};
    const struct ntx_iod_limits limits = {0};
    const struct ntx_iod_hooks hooks = {.ctx = r, .state = on_state, .failed = on_failed};
    struct ntx_err err = {0};
    struct stat st;
    char note[512];
    *r = (struct stage_reader){.files = {.n = 1, .fd = {fd}}, .wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    CHECK(!fstat(fd, &st));
    CHECK_MSG(!ntx_region_create(&g, &r->region, note, sizeof note, &err), "%s", err.text);
    r->region.hdr->file_bytes[0] = (uint64_t)st.st_size;
    const struct ntx_stream_config c = {.region = &r->region, .wake_fd = r->wake_fd};
    CHECK(!ntx_stream_new(&c, &r->stream));
    CHECK_MSG(!ntx_source_pread(&r->region, &r->files, &r->source, &err), "%s", err.text);
    CHECK_MSG(!ntx_iod_core_new(&r->region, NULL, &limits, &hooks, &r->core, &err), "%s", err.text);
    CHECK(!pthread_create(&r->thread, NULL, read_on, r));
}

void stage_reader_close(struct stage_reader *r)
{
    atomic_store(&r->stop, true);
    eventfd_write(r->wake_fd, 1);
    CHECK(!pthread_join(r->thread, NULL));
    ntx_iod_core_free(r->core);
    ntx_source_close(r->source);
    ntx_stream_free(r->stream);
    ntx_region_close(&r->region);
    close(r->wake_fd);
}
