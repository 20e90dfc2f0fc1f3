/* SPDX-License-Identifier: Apache-2.0 */
/* stage_reader.h: a region that has nothing but a stage, and a thread that reads a file into it with ntx-iod's own
 * parts: for tests of vision towers whose weights are read for each picture. */
#ifndef NTX_TESTS_LIB_STAGE_READER_H
#define NTX_TESTS_LIB_STAGE_READER_H

#include <pthread.h>

#include "computed/weights/stage.h"
#include "computed/weights/stream.h"
#include "iod/core.h"
#include "iod/source.h"

struct stage_reader {
    struct ntx_region region;
    struct ntx_stream *stream;
    struct ntx_iod_core *core;
    struct ntx_iod_files files;
    struct ntx_source *source;
    int wake_fd;
    atomic_bool stop;
    pthread_t thread;
};

/* fd: borrowed; it is file 0 of the region. */
void stage_reader_open(struct stage_reader *r, int fd, uint64_t stage_bytes);
void stage_reader_close(struct stage_reader *r);

#endif
