/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/delta/make_impl.h"
#include "common/util.h"

#define PIECE (1u << 16)

static int read_at(int fd, void *buf, size_t n, uint64_t at)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(fd, (char *)buf + done, n - done, (off_t)(at + done));
        if (got <= 0)
            return got ? -errno : -ENODATA;
        done += (size_t)got;
    }
    return 0;
}

bool ntx__same_bytes(const struct ntx_gguf_tensor *a, const struct ntx_gguf_tensor *b, const int *fds, int *rc,
                     struct ntx_err *err)
{
    uint8_t x[PIECE], y[PIECE];
    bool same = a->type == b->type && !memcmp(a->ne, b->ne, sizeof a->ne);
    for (uint64_t at = 0; at < a->bytes && same && !*rc; at += PIECE) {
        size_t n = NTX_MIN(a->bytes - at, (uint64_t)PIECE);
        int e = read_at(fds[a->file], x, n, a->offset + at);
        e = e ? e : read_at(fds[b->file], y, n, b->offset + at);
        if (e)
            *rc = ntx_err_set(err, e, "tensor '%s' cannot be read: %s", a->name,
                              e == -ENODATA ? "the file ends" : strerror(-e));
        same = !e && !memcmp(x, y, n);
    }
    return same && !*rc;
}

/* Whether two layers have matrices, and all of them are equal. */
static bool same_matrices(const struct ntx_model *m, const int *fds, uint32_t a, uint32_t b, int *rc,
                          struct ntx_err *err)
{
    bool any = false;
    for (int t = 0; t < NTX_N_TENSORS; t++) {
        uint32_t i = m->layers[a].tensor[t], k = m->layers[b].tensor[t];
        if (!ntx_is_matrix((enum ntx_tensor)t) || ntx_is_models((enum ntx_tensor)t) ||
            (i == NTX_NO_TENSOR && k == NTX_NO_TENSOR))
            continue;
        if (i == NTX_NO_TENSOR || k == NTX_NO_TENSOR ||
            !ntx__same_bytes(ntx_gguf_tensor_at(m->gguf, i), ntx_gguf_tensor_at(m->gguf, k), fds, rc, err))
            return false;
        any = true;
    }
    return any;
}

int ntx__same_layers(const struct ntx_model *m, const int *fds, uint32_t *base, struct ntx_err *err)
{
    int rc = 0;
    for (uint32_t l = 0; l < m->hp.n_layers && !rc; l++) {
        base[l] = l;
        for (uint32_t k = 0; k < l && base[l] == l && !rc; k++)
            if (base[k] == k && same_matrices(m, fds, l, k, &rc, err))
                base[l] = k;
    }
    return rc;
}
