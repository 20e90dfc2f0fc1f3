/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/draft/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void must(int rc, const struct ntx_err *err)
{
    if (!rc)
        return;
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, err->text[0] ? err->text : strerror(-rc));
    exit(111);
}

int open_file(const char *path, uint64_t *bytes)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, path, strerror(errno));
        exit(111);
    }
    *bytes = (uint64_t)st.st_size;
    return fd;
}

void open_writer(struct writer *w, const char *path, uint32_t ctx, uint32_t threads, const struct ntx_skip_hooks *skip)
{
    struct ntx_err err = {0};
    uint64_t bytes;
    w->fd = open_file(path, &bytes);
    must(ntx_gguf_open(&w->fd, 1, NULL, &w->gguf, &err), &err);
    must(ntx_model_open(w->gguf, &w->model, &err), &err);
    must(ntx_tokenizer_open(w->gguf, &w->tok, &err), &err);
    must(ntx_chunks_make(w->model, 1 << 20, &w->chunks, &err), &err);
    must(ntx_ram_weights_pick(&w->weights, &w->fd, w->chunks, &err), &err);
    const struct ntx_kv_shape kv = {.blocks = (ctx + NTX_KV_BLOCK - 1) / NTX_KV_BLOCK};
    struct ntx_forward_config c = {.model = w->model,
                                   .chunks = w->chunks,
                                   .ops = ntx_cpu_pick(NULL),
                                   .weights = &w->weights.w,
                                   .threads = threads,
                                   .max_rows = ctx,
                                   .ctx = ctx};
    if (skip)
        c.skip = *skip;
    must(ntx_kv_pool_new(&w->model->hp, NTX_KV_F16, &kv, &w->pool, &err), &err);
    must(ntx_forward_new(&c, &w->f, &err), &err);
    w->logits = malloc(w->model->hp.n_vocab * sizeof *w->logits);
    must(w->logits ? 0 : -ENOMEM, &err);
}

void close_writer(struct writer *w)
{
    free(w->logits);
    ntx_forward_free(w->f);
    ntx_kv_pool_free(w->pool);
    ntx_ram_weights_free(&w->weights);
    ntx_chunks_free(w->chunks);
    ntx_tokenizer_free(w->tok);
    ntx_model_free(w->model);
    ntx_gguf_free(w->gguf);
    close(w->fd);
}
