/* What a file that guesses is, and takes; apart from guesser.c, since a small model brings the whole pass with it. */
#include <errno.h>
#include <inttypes.h>

#include "infer/guesser_impl.h"

#define BYTES_MOST (1ull << 34) /* of an index or a script */
#define MORE_BYTES (64u << 10)  /* that one takes beside its file */

int ntx_guesser_look(int fd, const struct ntx_gguf *model, uint32_t ctx, enum ntx_guesser_kind *kind, uint64_t *bytes, struct ntx_err *err)
{
    uint64_t n = 0;
    int rc = ntx__guesser_kind(fd, kind, &n, err);
    if (rc) {
        ntx_err_prefix(err, "the drafter");
        return rc;
    }
    if (*kind == NTX_GUESSER_MODEL)
        return ntx_drafter_look(fd, model, ctx, bytes, err);
    if (n > BYTES_MOST)
        return ntx_err_set(err, -EFBIG, "the drafter: %" PRIu64 " bytes are more than any %s has", n, ntx_guesser_name(*kind));
    *bytes = ntx__guesser_times(*kind) * n + MORE_BYTES;
    return 0;
}
