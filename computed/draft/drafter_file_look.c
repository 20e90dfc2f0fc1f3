/* SPDX-License-Identifier: Apache-2.0 */
/* Checks drafters and their memory. Not in drafter_file.c, since a draft model needs the whole forward pass. */
#include <errno.h>
#include <inttypes.h>

#include "computed/draft/drafter_file_impl.h"

#define BYTES_MOST (1ull << 34) /* of an index or a script */
#define MORE_BYTES (64u << 10)  /* memory of one beside its file */

/* Whether the architecture of a GGUF is that of a drafter by states. Errors are left to the code that opens it. */
static bool works_by_states(int fd)
{
    struct ntx_gguf *g = NULL;
    struct ntx_err ignored = {0};
    bool yes = !ntx_gguf_open(&fd, 1, NULL, &g, &ignored) && ntx_head_kind(g);
    ntx_gguf_free(g);
    return yes;
}

int ntx_drafter_file_look(int fd, const struct ntx_gguf *model, uint32_t ctx, uint32_t threads,
                          enum ntx_drafter_file_kind *kind, struct ntx_drafter_needs *needs, struct ntx_err *err)
{
    *needs = (struct ntx_drafter_needs){0};
    uint64_t n = 0;
    int rc = ntx__drafter_file_kind(fd, kind, &n, err);
    if (rc) {
        ntx_err_prefix(err, "the drafter");
        return rc;
    }
    if (*kind == NTX_DRAFTER_FILE_MODEL && works_by_states(fd)) {
        *kind = NTX_DRAFTER_FILE_STATES;
        if ((rc = ntx_drafter_head_look(fd, model, ctx, threads, needs, err)))
            ntx_err_prefix(err, "the drafter");
        return rc;
    }
    if (*kind == NTX_DRAFTER_FILE_MODEL)
        return ntx_drafter_look(fd, model, ctx, needs, err);
    if (n > BYTES_MOST)
        return ntx_err_set(err, -EFBIG, "the drafter: %" PRIu64 " bytes are more than any %s has", n,
                           ntx_drafter_file_name(*kind));
    needs->bytes = ntx__drafter_file_times(*kind) * n + MORE_BYTES;
    return 0;
}
