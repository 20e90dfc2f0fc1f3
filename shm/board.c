/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/board.h"

#include <errno.h>
#include <inttypes.h>

#include "common/util.h"

static uint64_t floats_at(uint32_t n_probes)
{
    return sizeof(struct ntx_board_hdr) + (uint64_t)n_probes * sizeof(struct ntx_probe);
}

uint64_t ntx_board_bytes(uint32_t n_probes, uint32_t n_layers, uint32_t n_embd)
{
    uint64_t floats, bytes;
    if (__builtin_mul_overflow((uint64_t)n_embd + n_layers, (uint64_t)n_probes * sizeof(float), &floats) ||
        __builtin_add_overflow(floats, floats_at(n_probes), &bytes) || bytes > INT64_MAX - 4096)
        return 0;
    return bytes;
}

static void set_pointers(struct ntx_board *b)
{
    const struct ntx_board_hdr *h = (const struct ntx_board_hdr *)b->part.at;
    b->epoch = h->epoch;
    b->n_probes = h->n_probes;
    b->n_layers = h->n_layers;
    b->n_embd = h->n_embd;
    b->probe = (struct ntx_probe *)(b->part.at + sizeof *h);
    b->data = (float *)(b->part.at + floats_at(h->n_probes));
}

int ntx_board_make(uint64_t epoch, uint32_t n_probes, uint32_t n_layers, uint32_t n_embd, struct ntx_board *out,
                   struct ntx_err *err)
{
    struct ntx_board b = {.part = NTX_NO_SEGMENT};
    uint64_t bytes = ntx_board_bytes(n_probes, n_layers, n_embd);
    if (!bytes)
        return ntx_err_set(err, -EOVERFLOW, "probe board: %u probes of %u floats overflow", n_probes, n_embd);
    int rc = ntx_segment_make("ntx-board", bytes, NTX_SEGMENT_OWNED, 0, NULL, &b.part, err);
    if (rc)
        return rc;
    *(struct ntx_board_hdr *)b.part.at = (struct ntx_board_hdr){.magic = NTX_BOARD_MAGIC,
                                                                .version = NTX_BOARD_VERSION,
                                                                .hdr_bytes = sizeof(struct ntx_board_hdr),
                                                                .epoch = epoch,
                                                                .n_probes = n_probes,
                                                                .n_layers = n_layers,
                                                                .n_embd = n_embd};
    set_pointers(&b);
    *out = b;
    return 0;
}

static int check_board(const struct ntx_segment *p, struct ntx_err *err)
{
    const struct ntx_board_hdr *h = (const struct ntx_board_hdr *)p->at;
    if (h->magic != NTX_BOARD_MAGIC)
        return ntx_err_set(err, -EINVAL, "probe board: wrong magic %#" PRIx64 "; this is no board of ntx", h->magic);
    if (h->version != NTX_BOARD_VERSION || h->hdr_bytes != sizeof *h)
        return ntx_err_set(err, -EPROTO,
                           "probe board: version %u with a header of %u bytes, expected %u and %zu; the daemons are of "
                           "different versions",
                           h->version, h->hdr_bytes, NTX_BOARD_VERSION, sizeof *h);
    if (h->n_layers < 1 || h->n_layers >= NTX_MAP_WORDS * 64)
        return ntx_err_set(err, -EINVAL, "probe board: n_layers is not 1 to 575");
    uint64_t want = ntx_board_bytes(h->n_probes, h->n_layers, h->n_embd);
    if (!want || NTX_ROUND_UP(want, ntx_page_bytes()) != p->bytes)
        return ntx_err_set(err, -EINVAL,
                           "probe board: %" PRIu64 " bytes, but %u probes of %u + %u floats take %" PRIu64, p->bytes,
                           h->n_probes, h->n_embd, h->n_layers, want);
    return 0;
}

int ntx_board_attach(int fd, struct ntx_board *out, struct ntx_err *err)
{
    struct ntx_board b = {.part = NTX_NO_SEGMENT};
    int rc = ntx_segment_take(fd, NTX_SEGMENT_OWNED, 0, &b.part, err);
    if (rc)
        return rc;
    if ((rc = check_board(&b.part, err))) {
        ntx_segment_close(&b.part);
        return rc;
    }
    set_pointers(&b);
    *out = b;
    return 0;
}

void ntx_board_close(struct ntx_board *b)
{
    ntx_segment_close(&b->part);
    *b = (struct ntx_board){.part = NTX_NO_SEGMENT};
}
