/* SPDX-License-Identifier: Apache-2.0 */
/* writer.h: a model in memory, for the benches of drafts. A failure ends the program with a message. */
#ifndef NTX_BENCH_DRAFT_WRITER_H
#define NTX_BENCH_DRAFT_WRITER_H

#include <stdint.h>

#include "computed/pass/forward.h"
#include "computed/pass/weights_ram.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

struct writer {
    struct ntx_gguf *gguf;
    struct ntx_model *model;
    struct ntx_chunks *chunks;
    struct ntx_ram_weights weights;
    struct ntx_kv_pool *pool;
    struct ntx_forward *f;
    struct ntx_tokenizer *tok;
    float *logits; /* [n_vocab] */
    uint64_t pass;
    int fd;
};

void must(int rc, const struct ntx_err *err); /* ends the program if rc is not 0 */
int open_file(const char *path, uint64_t *bytes);
void open_writer(struct writer *w, const char *path, uint32_t ctx, uint32_t threads, const struct ntx_skip_hooks *skip);
void close_writer(struct writer *w);

#endif
