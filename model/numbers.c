/* SPDX-License-Identifier: Apache-2.0 */
#include "model/numbers.h"

#include <errno.h>
#include <stdlib.h>

#include "common/util.h"

#define READ_BYTES (256u << 10)
#define DAMAGED    ": the file is damaged; get it, or convert it, anew"

static const struct ntx_gguf_tensor *table_of(const struct ntx_model *m, uint32_t layer)
{
    return ntx_gguf_tensor_at(m->gguf, m->layers[layer].token_experts);
}

int ntx_numbers_check(const struct ntx_model *m, uint32_t layer, int32_t token, const uint32_t *id, struct ntx_err *err)
{
    uint64_t seen[NTX_MAX_EXPERTS / 64] = {0};
    for (uint32_t k = 0; k < m->hp.n_expert_used; k++) {
        const uint32_t e = id[k];
        if (e >= m->hp.n_expert)
            return ntx_err_set(err, -EINVAL, "tensor '%s': token %d goes through expert %d of %u" DAMAGED,
                               table_of(m, layer)->name, token, (int32_t)e, m->hp.n_expert);
        if (seen[e / 64] >> e % 64 & 1)
            return ntx_err_set(err, -EINVAL, "tensor '%s': token %d goes through expert %u twice" DAMAGED,
                               table_of(m, layer)->name, token, e);
        seen[e / 64] |= (uint64_t)1 << e % 64;
    }
    return 0;
}

/* buf: [room] entries. */
static int check_table(const struct ntx_model *m, uint32_t layer, const int *fds, uint32_t *buf, uint32_t room,
                       struct ntx_err *err)
{
    const struct ntx_gguf_tensor *t = table_of(m, layer);
    const size_t each = m->hp.n_expert_used * sizeof *buf;
    int rc = 0;
    for (uint32_t at = 0, n; at < m->hp.n_vocab && !rc; at += n) {
        n = NTX_MIN(room, m->hp.n_vocab - at);
        if ((rc = ntx_read_at(fds[t->file], buf, n * each, t->offset + at * each)))
            return ntx_err_set(err, rc, "tensor '%s' cannot be read: %s", t->name, ntx_read_error(rc));
        for (uint32_t i = 0; i < n && !rc; i++)
            rc = ntx_numbers_check(m, layer, (int32_t)(at + i), buf + (size_t)i * m->hp.n_expert_used, err);
    }
    return rc;
}

int ntx_numbers_check_files(const struct ntx_model *m, const int *fds, struct ntx_err *err)
{
    uint32_t *buf = NULL, room = 0;
    int rc = 0;
    for (uint32_t l = 0; l < m->hp.n_layers && !rc; l++) {
        if (m->layers[l].token_experts == NTX_NO_TENSOR)
            continue;
        room = NTX_MAX(READ_BYTES / (m->hp.n_expert_used * (uint32_t)sizeof *buf), 1u);
        if (!buf && !(buf = malloc((size_t)room * m->hp.n_expert_used * sizeof *buf)))
            return ntx_err_set(err, -ENOMEM, "no memory to look at the table of experts");
        rc = check_table(m, l, fds, buf, room, err);
    }
    free(buf);
    return rc;
}
